/*
 * Calls between members on real threads: several members in one process, each with a fabric of its own, over tcp
 * and over shared memory; each calls all others from two threads, while answers come and go and members leave.
 * And a process that is memory node and member at once calls itself.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/shm.h"
#include "fabric/tcp/tcp.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"
#include "store/env.h"

enum { MEMBERS = 3, THREADS = 2, ROUNDS = 300, TABLE = 5, METHOD = 9, BODY_MAX = 4000 };

struct member {
    struct env *env;
    struct pool *pool;
    atomic_uint identity; /* incarnation << 16 | member; 0: not there */
    atomic_uint answered, refused;
    atomic_uint callers;
};

static struct member members[MEMBERS];
static atomic_uint joined, called;

static struct fabric_identity identity_of(const struct member *member)
{
    unsigned word = atomic_load(&member->identity);
    return (struct fabric_identity){.member = (uint16_t)word,
                                    .incarnation = (uint16_t)(word >> 16)};
}

/* The body, every byte plus one. */
static enum pando_status answer(void *context, struct pool_session *session,
                                struct fabric_request *request)
{
    struct member *member = context;
    CHECK(pool_session_pool(session) == member->pool);
    CHECK_EQ_U64(request->method, METHOD);
    for (size_t i = 0; i < request->body.size; i++)
        request->reply[i] = (uint8_t)(request->body.data[i] + 1);
    request->reply_size = (uint32_t)request->body.size;
    if (atomic_fetch_add(&member->answered, 1) % 16 == 0)
        rt_sleep_co(RT_NS_PER_MS / 4);
    return PANDO_OK;
}

static enum pando_status call_co(struct pool_session *session, struct fabric_identity to,
                                 uint8_t first, uint32_t size)
{
    uint8_t body[BODY_MAX], reply[BODY_MAX];
    uint32_t reply_size = 0;
    memset(body, first, size);
    enum pando_status status = pool_call_co(session, to, TABLE, METHOD, slice_of(body, size), reply,
                                            sizeof(reply), &reply_size);
    if (status != PANDO_OK)
        return status;
    CHECK_EQ_U64(reply_size, size);
    CHECK(size == 0 ||
          (reply[0] == (uint8_t)(first + 1) && reply[size - 1] == (uint8_t)(first + 1)));
    return PANDO_OK;
}

static void call_all_co(struct member *member, struct pool_session *session)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < MEMBERS; i++) {
            enum pando_status status =
                call_co(session, identity_of(&members[i]), (uint8_t)round, round * 13 % BODY_MAX);
            /* Its answer was just away. */
            if (status == PANDO_STALE)
                atomic_fetch_add(&member->refused, 1);
            else
                CHECK_OK(status);
        }
    }
}

static void caller_co(struct member *member)
{
    struct pool_session *session;
    while (atomic_load(&joined) < MEMBERS)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK_OK(pool_session_open_co(member->pool, &session));
    call_all_co(member, session);
    pool_session_close_co(session);
    atomic_fetch_add(&called, 1);
    atomic_fetch_sub(&member->callers, 1);
}

/* The first thread joins, lets the answer come and go, and leaves when all have called all. */
static void keeper_co(struct member *member, const struct env_place *place)
{
    struct pool_options options = {.memory_nodes = (uint16_t)env_memory_nodes(place->env)};
    char error[256];

    CHECK_OK(pool_join_co(place->fabric, &options, &member->pool, error, sizeof(error)));
    CHECK_OK(pool_answer(member->pool, TABLE, answer, member));
    struct fabric_identity identity = pool_identity(member->pool);
    atomic_store(&member->callers, THREADS);
    atomic_store(&member->identity, (unsigned)identity.incarnation << 16 | identity.member);
    atomic_fetch_add(&joined, 1);
    while (atomic_load(&called) < MEMBERS * THREADS) {
        rt_sleep_co(3 * RT_NS_PER_MS);
        pool_answer_stop_co(member->pool, TABLE);
        CHECK_OK(pool_answer(member->pool, TABLE, answer, member));
    }
    while (atomic_load(&member->callers) > 0)
        rt_sleep_co(RT_NS_PER_MS);
    pool_leave_co(member->pool);
}

static void member_co(void *context, const struct env_place *place)
{
    struct member *member = context;
    if (place->thread == 0) {
        keeper_co(member, place);
        return;
    }
    while (atomic_load(&member->identity) == 0)
        rt_sleep_co(RT_NS_PER_MS);
    caller_co(member);
}

/* ---- processes: threads of this one, each with a fabric of its own --------------------------- */

static void *member_main(void *arg)
{
    struct member *member = arg;
    CHECK_OK(env_run(member->env, 1 + THREADS, member_co, member));
    return NULL;
}

static void run_members(const char *uri, const char *secret)
{
    pthread_t threads[MEMBERS];
    char error[256] = "";
    unsigned answered = 0, refused = 0;

    atomic_store(&joined, 0);
    atomic_store(&called, 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct env_options options = {.uri = uri, .secret_file = secret};
        memset(&members[i], 0, sizeof(members[i]));
        if (env_open(&options, &members[i].env, error, sizeof(error)) != PANDO_OK)
            CHECK_FAIL("%s", error);
        CHECK(pthread_create(&threads[i], NULL, member_main, &members[i]) == 0);
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        env_close(members[i].env);
        answered += members[i].answered;
        refused += members[i].refused;
    }
    CHECK_EQ_U64(answered + refused, MEMBERS * MEMBERS * THREADS * ROUNDS);
    CHECK(answered > refused);
    printf("%.3s: %u calls, %u while the answer was away\n", uri, answered, refused);
}

static void run_tcp(void)
{
    char secret[] = "/tmp/pando-peers-XXXXXX", uri[128], error[256] = "";
    int fd = mkstemp(secret);
    CHECK(fd >= 0 && write(fd, "0123456789abcdef0123456789abcdef", 32) == 32 && close(fd) == 0);
    struct fabric_socket_options options = {.target = FABRIC_MEMORY,
                                            .listen = "127.0.0.1:0",
                                            .secret_file = secret,
                                            .host_bytes = 64 << 20,
                                            .device_bytes = MEMNODE_DEVICE_BYTES};
    struct memnode_options memory = {0};
    struct memnode *memnode;
    struct fabric *fabric;
    CHECK_OK(fabric_tcp_open(&options, &fabric, error, sizeof(error)));
    CHECK_OK(memnode_open(fabric, &memory, &memnode, error, sizeof(error)));
    CHECK_OK(fabric_tcp_start(fabric));
    snprintf(uri, sizeof(uri), "tcp:%s", fabric_location(fabric));
    run_members(uri, secret);
    fabric_close(fabric);
    memnode_close(memnode);
    CHECK(unlink(secret) == 0);
}

static void run_shm(void)
{
    char name[64], path[FABRIC_LOCATION_MAX], uri[128], error[256] = "";
    snprintf(name, sizeof(name), "test-peers-%d", (int)getpid());
    CHECK_OK(fabric_shm_path(name, 0, path, sizeof(path)));
    struct fabric_shm_options options = {.target = FABRIC_MEMORY,
                                         .path = path,
                                         .temporary = true,
                                         .host_bytes = 64 << 20,
                                         .device_bytes = MEMNODE_DEVICE_BYTES};
    struct memnode_options memory = {0};
    struct memnode *memnode;
    struct fabric *fabric;
    CHECK_OK(fabric_shm_open(&options, &fabric, error, sizeof(error)));
    CHECK_OK(memnode_open(fabric, &memory, &memnode, error, sizeof(error)));
    CHECK_OK(fabric_shm_start(fabric));
    snprintf(uri, sizeof(uri), "shm:%s", name);
    run_members(uri, NULL);
    fabric_close(fabric);
    memnode_close(memnode);
}

/* ---- memory node and member at once ---------------------------------------------------------- */

static void embedded_co(void *context, const struct env_place *place)
{
    struct member *member = context;
    struct pool_options options = {.memory_nodes = 1};
    struct pool_session *session;
    struct pool_node_stats stats;
    char error[256];

    CHECK_OK(pool_join_co(place->fabric, &options, &member->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(member->pool, &session));
    struct fabric_identity self = pool_identity(member->pool), other = self;
    CHECK_STATUS(call_co(session, self, 1, 10), PANDO_STALE);
    CHECK_OK(pool_answer(member->pool, TABLE, answer, member));
    CHECK_OK(call_co(session, self, 1, 10));
    CHECK_OK(call_co(session, self, 2, BODY_MAX));
    CHECK_EQ_U64(member->answered, 2);
    other.incarnation++;
    CHECK_STATUS(call_co(session, other, 1, 10), PANDO_NOT_FOUND);
    other.member++;
    CHECK_STATUS(call_co(session, other, 1, 10), PANDO_NOT_FOUND);
    CHECK_OK(pool_node_stats_co(session, 0, &stats)); /* the memory node still answers */
    CHECK(stats.chunks > 0);
    pool_session_close_co(session);
    pool_leave_co(member->pool);
}

static void run_embedded(void)
{
    struct env_options options = {.uri = "embedded:64M"};
    char error[256] = "";
    memset(&members[0], 0, sizeof(members[0]));
    CHECK_OK(env_open(&options, &members[0].env, error, sizeof(error)));
    CHECK_OK(env_run(members[0].env, 1, embedded_co, &members[0]));
    env_close(members[0].env);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    run_embedded();
    run_tcp();
    run_shm();
    printf("peers: ok\n");
    return 0;
}
