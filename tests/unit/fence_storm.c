/*
 * One client that knows the secret and has lost its mind: it asks a memory node to fence every member there
 * could be, again and again without waiting for answers, and comes as identities that never joined and want
 * memory. The node's memory stays bounded, nobody is fenced, no block is lost, and the pool can be joined.
 */
#include <sys/wait.h>

#include "pool/memnode.h"
#include "pool/pool_fmt.h"
#include "unit/tcp_world.h"

enum {
    FENCES = 200000,
    BATCH = 512,
    FRAME = WIRE_FRAME_HEADER + WIRE_FENCE_BYTES,
    REPLY = WIRE_FRAME_HEADER + WIRE_CALL_HEADER,
    FAR = 30000, /* incarnations that are still to come */
    OPEN_AT_ONCE = 16,
    GROWTH_MAX_KIB = 16 * 1024,
};

static const uint64_t PATIENCE_NS = 60 * RT_NS_PER_S;
static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static char location[FABRIC_LOCATION_MAX];
static uint64_t chunks_free;

/* ---- the client, a process of its own -------------------------------------------------------- */

static struct stream connect_raw_co(void)
{
    struct client_connect connect = {
        .protocol = &tcp_protocol,
        .credentials = socket_fabric_of(client)->credentials,
        .timeout_ns = PATIENCE_NS,
        .location = location,
        .target = FABRIC_MEMORY,
        .claim = {.endpoint_id = rt_random(), .identity = {.member = 900, .incarnation = 1}},
    };
    struct stream stream;
    CHECK_OK(client_connect_co(&connect, &stream));
    return stream;
}

static void make_batch(uint8_t *to, unsigned first)
{
    for (unsigned i = 0; i < BATCH; i++, to += FRAME) {
        memset(to, 0xa5, FRAME);
        wire_put_frame(to, WIRE_FENCE_BYTES, WIRE_FENCE, 0);
        uint8_t *body = to + WIRE_FRAME_HEADER;
        wire_put_u64(body, first + i);
        wire_put_u16(body + 8, (uint16_t)(1 + (first + i) % (FABRIC_MEMBERS_MAX - 1)));
        wire_put_u16(body + 10, FAR);
        wire_put_u32(body + 12, 0);
    }
}

/* Takes in what has come; how many answers that were. */
static unsigned hear(struct stream *stream, uint8_t *reply, size_t *have)
{
    unsigned count = 0;
    for (;;) {
        ssize_t got = stream_read(stream, reply + *have, REPLY - *have);
        CHECK(got >= 0);
        if (got == 0)
            return count;
        *have += (size_t)got;
        if (*have < REPLY)
            continue;
        CHECK_STATUS((enum pando_status)wire_get_u16(reply + WIRE_FRAME_HEADER + 8), PANDO_DENIED);
        *have = 0;
        count++;
    }
}

static void storm_co(void)
{
    static uint8_t batch[BATCH * FRAME];
    struct stream stream = connect_raw_co();
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_NS;
    unsigned sent = 0, answered = 0;
    uint8_t reply[REPLY];
    size_t have = 0, at = sizeof(batch);

    while (answered < FENCES / BATCH * BATCH) {
        if (at == sizeof(batch) && sent < FENCES / BATCH * BATCH) {
            make_batch(batch, sent);
            sent += BATCH;
            at = 0;
        }
        ssize_t put =
            at == sizeof(batch) ? 0 : stream_write(&stream, batch + at, sizeof(batch) - at);
        CHECK(put >= 0);
        at += (size_t)put;
        unsigned heard = hear(&stream, reply, &have);
        answered += heard;
        CHECK(rt_now_ns() < deadline_ns);
        if (put == 0 && heard == 0)
            rt_sleep_co(20 * RT_NS_PER_US);
    }
    stream_close(&stream);
}

static void want_memory_co(struct fabric_endpoint *endpoint)
{
    struct pool_grant_request request = {
        .block_bytes = 65536, .blocks_max = 64, .kind = POOL_CHUNK_BLOCKS};
    static uint8_t reply[64 * 1024];
    CHECK_STATUS(fabric_call_co(endpoint, POOL_GRANT, slice_of(&request, sizeof(request)), reply,
                                sizeof(reply), NULL),
                 PANDO_DENIED);
}

static void strangers_co(void)
{
    struct fabric_endpoint *open[OPEN_AT_ONCE] = {NULL};
    CHECK_OK(fabric_add_peer(client, 0, FABRIC_MEMORY, location));
    for (uint16_t member = 1; member < FABRIC_MEMBERS_MAX; member++) {
        struct fabric_endpoint **place = &open[member % OPEN_AT_ONCE];
        if (*place != NULL)
            fabric_disconnect_co(*place);
        fabric_set_identity(client, (struct fabric_identity){member, FAR});
        CHECK_OK(fabric_connect_co(client, 0, place));
        want_memory_co(*place);
    }
    for (unsigned i = 0; i < OPEN_AT_ONCE; i++)
        fabric_disconnect_co(open[i]);
}

static void attack_task(void *arg)
{
    (void)arg;
    storm_co();
    strangers_co();
}

static int attacker(int from)
{
    CHECK(read(from, location, sizeof(location)) == sizeof(location));
    run(attack_task);
    return 0;
}

/* ---- the node, and a client in its right mind ------------------------------------------------ */

static void member_task(void *arg)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = LEASE_NS};
    struct pool_node_stats stats;
    struct pool_session *session;
    struct pool_block block;
    struct pool *pool;
    char error[256] = "";
    (void)arg;

    CHECK_OK(fabric_add_peer(client, 0, FABRIC_MEMORY, location));
    if (pool_join_co(client, &options, &pool, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("cannot join: %s", error);
    CHECK_OK(pool_session_open_co(pool, &session));
    CHECK_OK(pool_node_stats_co(session, 0, &stats));
    if (chunks_free == 0)
        chunks_free = stats.chunks_free;
    CHECK_EQ_U64(stats.chunks_free, chunks_free);
    CHECK_OK(pool_alloc_co(session, 0, 65536, &block));
    CHECK_OK(pool_free_co(session, &block, 65536, false));
    pool_session_close_co(session);
    pool_leave_co(pool);
}

static unsigned long peak_kib(void)
{
    char line[128];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmHWM: %lu", &kib) == 1)
            break;
    }
    fclose(file);
    CHECK(kib > 0);
    return kib;
}

int main(void)
{
    struct memnode_options memory = {.grace_ns = RT_NS_PER_MS};
    struct memnode *memnode;
    char error[256] = "";
    int pipe_ends[2], status;

    world_open(FABRIC_NODE_UNKNOWN);
    CHECK(pipe(pipe_ends) == 0);
    pid_t child = fork(); /* before there are threads */
    CHECK(child >= 0);
    if (child == 0)
        _exit(attacker(pipe_ends[0]));
    struct fabric *server =
        open_fabric((struct fabric_socket_options){.target = FABRIC_MEMORY,
                                                   .listen = "127.0.0.1:0",
                                                   .host_bytes = 48 << 20,
                                                   .device_bytes = MEMNODE_DEVICE_BYTES});
    CHECK_OK(memnode_open(server, &memory, &memnode, error, sizeof(error)));
    CHECK_OK(fabric_tcp_start(server));
    snprintf(location, sizeof(location), "%s", fabric_location(server));
    run(member_task);
    unsigned long before_kib = peak_kib();
    CHECK(write(pipe_ends[1], location, sizeof(location)) == sizeof(location));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    unsigned long after_kib = peak_kib();
    printf("%u FENCE requests and %u identities that never joined: the node's memory was at most "
           "%lu KiB before, and %lu KiB after\n",
           FENCES / BATCH * BATCH, FABRIC_MEMBERS_MAX - 1, before_kib, after_kib);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep what is freed */
    CHECK(after_kib - before_kib < GROWTH_MAX_KIB);
#endif
    for (uint16_t member = 1; member < FABRIC_MEMBERS_MAX; member++)
        CHECK(!fabric_fenced(server, (struct fabric_identity){member, 2}));
    run(member_task);
    fabric_close(server);
    memnode_close(memnode);
    world_close();
    return 0;
}
