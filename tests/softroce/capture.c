/*
 * Watches the wire while one key of a Sherman table is updated, and checks that what goes over it is what
 * the counters say: a CAS and a READ in one chain, then two WRITEs in one chain.
 *
 *   softroce_capture URI SECRET DEVICE INTERFACE [near]
 *
 * Where answers take longer than sending, both requests of a chain leave before anything comes back. With
 * "near" that is not asked for, only that these are the requests, in this order.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/engine.h"
#include "fabric/verbs/verbs.h"
#include "lib/check.h"
#include "pool/pool_int.h"
#include "store/engines.h"
#include "store/env.h"

enum {
    PACKETS_MAX = 64,
    ROCE_PORT = 4791,
    IP_AT = 14,
    UDP_BYTES = 8,
    BTH_BYTES = 12,
    TRIES = 5,
    KEYS = 300,
};

/* Opcodes of a reliable connection, from the base transport header. */
enum {
    SEND_ONLY = 0x04,
    WRITE_ONLY = 0x0a,
    READ_REQUEST = 0x0c,
    READ_FIRST = 0x0d,
    READ_MIDDLE = 0x0e,
    READ_LAST = 0x0f,
    READ_ONLY = 0x10,
    ACKNOWLEDGE = 0x11,
    ATOMIC_ACKNOWLEDGE = 0x12,
    COMPARE_SWAP = 0x13,
};

struct packet {
    bool out;
    uint8_t opcode;
    uint32_t queue_pair, sequence;
    uint64_t at_ns;
};

struct capture {
    const char *interface;
    bool near;
    int fd;
    struct packet packets[PACKETS_MAX];
    unsigned count;
};

static const char *opcode_name(uint8_t opcode)
{
    switch (opcode) {
    case SEND_ONLY:
        return "SEND";
    case WRITE_ONLY:
        return "WRITE";
    case READ_REQUEST:
        return "READ";
    case READ_FIRST:
    case READ_MIDDLE:
    case READ_LAST:
    case READ_ONLY:
        return "READ response";
    case ACKNOWLEDGE:
        return "acknowledge";
    case ATOMIC_ACKNOWLEDGE:
        return "atomic acknowledge";
    case COMPARE_SWAP:
        return "COMPARE AND SWAP";
    default:
        return "?";
    }
}

static uint32_t get_u24(const uint8_t *from)
{
    return (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
}

/* ---- packets --------------------------------------------------------------------------------- */

static void capture_open(struct capture *capture)
{
    struct sockaddr_ll where = {.sll_family = AF_PACKET,
                                .sll_protocol = htons(ETH_P_ALL),
                                .sll_ifindex = (int)if_nametoindex(capture->interface)};
    capture->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL));
    CHECK(capture->fd >= 0 && where.sll_ifindex != 0);
    CHECK(bind(capture->fd, (struct sockaddr *)&where, sizeof(where)) == 0);
    struct timespec at;
    (void)ioctl(capture->fd, SIOCGSTAMPNS, &at); /* packets get a time from the first question on */
}

/* False: no RoCEv2 over IPv4. */
static bool decode(const uint8_t *frame, size_t size, struct packet *packet)
{
    if (size < IP_AT + 20 + UDP_BYTES + BTH_BYTES || frame[12] != 0x08 || frame[13] != 0 ||
        frame[IP_AT] != 0x45 || frame[IP_AT + 9] != IPPROTO_UDP)
        return false;
    const uint8_t *udp = frame + IP_AT + 20, *header = udp + UDP_BYTES;
    if ((udp[2] << 8 | udp[3]) != ROCE_PORT)
        return false;
    packet->opcode = header[0];
    packet->queue_pair = get_u24(header + 5);
    packet->sequence = get_u24(header + 9);
    return true;
}

/* Takes what has come; all of it is forgotten, or kept. */
static void capture_take(struct capture *capture, bool keep)
{
    uint8_t frame[2048];
    struct sockaddr_ll from;
    socklen_t from_size = sizeof(from);
    ssize_t got;

    capture->count = 0;
    while ((got = recvfrom(capture->fd, frame, sizeof(frame), 0, (struct sockaddr *)&from,
                           &from_size)) > 0) {
        struct packet *packet = &capture->packets[capture->count];
        if (!keep || capture->count == PACKETS_MAX || !decode(frame, (size_t)got, packet))
            continue;
        packet->out = from.sll_pkttype == PACKET_OUTGOING;
        struct timespec at;
        CHECK(ioctl(capture->fd, SIOCGSTAMPNS, &at) == 0);
        packet->at_ns = (uint64_t)at.tv_sec * RT_NS_PER_S + (uint64_t)at.tv_nsec;
        capture->count++;
    }
}

static void capture_print(const struct capture *capture)
{
    for (unsigned i = 0; i < capture->count; i++) {
        const struct packet *packet = &capture->packets[i];
        printf("  %6.2f ms %s queue pair %u, packet %u: %s\n",
               (double)(packet->at_ns - capture->packets[0].at_ns) / 1e6, packet->out ? ">" : "  <",
               packet->queue_pair, packet->sequence, opcode_name(packet->opcode));
    }
}

/* The requests of the write are these four, and each pair left before anything came back for it, and the
 * second only after the first was answered. */
static bool capture_is_write(const struct capture *capture)
{
    static const uint8_t expected[] = {COMPARE_SWAP, READ_REQUEST, WRITE_ONLY, WRITE_ONLY};
    unsigned found = 0, answered_at[4] = {0}, answers = 0;
    uint32_t queue_pair = 0, last = 0;

    for (unsigned i = 0; i < capture->count; i++) {
        const struct packet *packet = &capture->packets[i];
        if (!packet->out) {
            answers++;
            continue;
        }
        if (found == 4 || packet->opcode != expected[found] ||
            (found > 0 && (packet->queue_pair != queue_pair || packet->sequence <= last)))
            return false;
        queue_pair = packet->queue_pair;
        last = packet->sequence;
        answered_at[found++] = answers;
    }
    bool together = answered_at[0] == answered_at[1] && answered_at[2] == answered_at[3];
    return found == 4 && (together || capture->near) && answered_at[2] > answered_at[1];
}

/* ---- the write ------------------------------------------------------------------------------- */

static void put_co(struct engine *engine, uint64_t number, uint64_t value)
{
    uint64_t key = __builtin_bswap64(number);
    CHECK_OK(engine_put_co(engine, slice_of(&key, 8), slice_of(&value, 8), ENGINE_UPSERT));
}

static struct fabric_verbs_counters counted_put_co(struct engine *engine, uint64_t value)
{
    const struct fabric_verbs_counters *now =
        fabric_verbs_counters(pool_endpoint(engine->session, 0));
    struct fabric_verbs_counters before = *now;
    put_co(engine, 42, value);
    return (struct fabric_verbs_counters){
        .lists = now->lists - before.lists,
        .work_requests = now->work_requests - before.work_requests,
        .doorbells = now->doorbells - before.doorbells,
        .signalled = now->signalled - before.signalled,
        .completions = now->completions - before.completions,
    };
}

static void watch_co(struct capture *capture, struct engine *engine)
{
    for (uint64_t i = 0; i < KEYS; i++)
        put_co(engine, i, i); /* enough for inner nodes, which are cached */
    for (uint64_t i = 0; i < TRIES; i++) {
        rt_sleep_co(20 * RT_NS_PER_MS);
        capture_take(capture, false);
        struct fabric_verbs_counters counted = counted_put_co(engine, 100 + i);
        rt_sleep_co(20 * RT_NS_PER_MS);
        capture_take(capture, true);
        printf(
            "one write: %u lists, %u work requests, %u doorbells, %u signalled, %u completions\n",
            (unsigned)counted.lists, (unsigned)counted.work_requests, (unsigned)counted.doorbells,
            (unsigned)counted.signalled, (unsigned)counted.completions);
        capture_print(capture);
        CHECK(counted.lists == 2 && counted.work_requests == 4 && counted.doorbells == 2 &&
              counted.signalled == 2 && counted.completions == 2);
        if (capture_is_write(capture))
            return;
        printf("  something else was on the wire (a heartbeat); again\n");
    }
    CHECK_FAIL("no write was seen to be CAS and READ, then WRITE and WRITE");
}

static void session_co(struct capture *capture, struct pool_session *session)
{
    const struct engine_ops *ops = store_engine("sherman");
    struct engine_shape shape = {.key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8};
    struct engine_config config = {0};
    struct engine_table *table;
    struct engine *engine;
    char error[256] = "";

    CHECK_OK(engine_create_co(ops, session, "capture", &shape));
    if (engine_open_co(ops, session, "capture", &config, &table, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    CHECK_OK(engine_attach_co(table, session, &engine));
    watch_co(capture, engine);
    engine_detach_co(engine);
    engine_close_co(table, session);
}

static void main_co(void *context, const struct env_place *place)
{
    struct pool_options options = {
        .memory_nodes = 1, .name = "capture", .lease_ns = 30 * RT_NS_PER_S};
    struct pool *pool;
    struct pool_session *session;
    char error[256] = "";

    if (pool_join_co(place->fabric, &options, &pool, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    CHECK_OK(pool_session_open_co(pool, &session));
    session_co(context, session);
    pool_session_close_co(session);
    pool_leave_co(pool);
}

int main(int argc, char **argv)
{
    struct env *env;
    char error[256] = "";

    if (argc != 5 && argc != 6) {
        fprintf(stderr, "see the head of capture.c\n");
        return 2;
    }
    log_set_level(LOG_LEVEL_ERROR);
    struct capture capture = {.interface = argv[4], .near = argc == 6};
    struct env_options options = {.uri = argv[1], .secret_file = argv[2], .verbs = argv[3]};
    capture_open(&capture);
    if (env_open(&options, &env, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    CHECK_OK(env_run(env, 1, main_co, &capture));
    env_close(env);
    return 0;
}
