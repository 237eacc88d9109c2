/*
 * Lists between members on real threads: several members in one process, each with a fabric and a
 * window of its own, over tcp and over shared memory. From two threads each, all of them add to one
 * word in everybody's window, by loopback in their own, one list after the other and several at
 * once. Then one joins again with the same process, and what was connected to it leads nowhere. An
 * embedded pool's member has no such window.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/shm.h"
#include "fabric/tcp/tcp.h"
#include "lib/check.h"
#include "pool/member_lists.h"
#include "pool/memnode.h"
#include "pool/peer_fmt.h"
#include "store/env.h"

enum { MEMBERS = 3, THREADS = 2, ROUNDS = 300, WINDOW_BYTES = 1 << 20 };
static const uint64_t AT = POOL_SLABS_FIRST + 64;

struct member {
    struct env *env;
    struct pool *pool;
    atomic_uint identity; /* incarnation << 16 | member; 0: not there */
    bool shm;
};

static struct member members[MEMBERS];
static atomic_uint joined, added, looked, ended;

static struct fabric_identity identity_of(const struct member *member)
{
    unsigned word = atomic_load(&member->identity);
    return (struct fabric_identity){.member = (uint16_t)word,
                                    .incarnation = (uint16_t)(word >> 16)};
}

static void wait_for_co(atomic_uint *count, unsigned wanted)
{
    while (atomic_load(count) < wanted)
        rt_sleep_co(RT_NS_PER_MS);
}

static void add_to_all_co(struct pool_session *session)
{
    struct fabric_op ops[MEMBERS];
    struct pool_member_list lists[MEMBERS];
    for (unsigned i = 0; i < MEMBERS; i++)
        CHECK_OK(pool_member_reach_co(session, identity_of(&members[i])));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < MEMBERS; i++) {
            ops[i] = fabric_faa(AT, 1);
            lists[i] = (struct pool_member_list){
                .member = identity_of(&members[i]), .ops = &ops[i], .count = 1};
            if (round % 2 == 0)
                CHECK_OK(pool_member_submit_co(session, lists[i].member, &ops[i], 1));
        }
        if (round % 2 == 0)
            continue;
        pool_member_lists_begin(session, lists, MEMBERS);
        pool_member_lists_wait_co(session, lists, MEMBERS);
        for (unsigned i = 0; i < MEMBERS; i++)
            CHECK_OK(lists[i].status);
    }
}

static void look_at_all_co(struct pool_session *session)
{
    uint64_t word, bytes;
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct fabric_op read = fabric_read(AT, &word, sizeof(word));
        CHECK_OK(pool_member_submit_co(session, identity_of(&members[i]), &read, 1));
        CHECK_EQ_U64(word, MEMBERS * THREADS * ROUNDS);
        CHECK_OK(pool_member_window_co(session, identity_of(&members[i]), &bytes));
        CHECK_EQ_U64(bytes, WINDOW_BYTES - POOL_SLABS_FIRST);
        struct fabric_op outside = fabric_read(POOL_SLABS_FIRST - 8, &word, sizeof(word));
        CHECK_STATUS(pool_member_submit_co(session, identity_of(&members[i]), &outside, 1),
                     PANDO_RANGE);
    }
}

/* Of the first member, whose process has joined again. */
static void former_co(struct pool_session *session, struct fabric_identity former, bool shm)
{
    uint64_t word = 7, bytes;
    struct fabric_op write = fabric_write(AT, &word, sizeof(word));
    enum pando_status status = pool_member_submit_co(session, former, &write, 1);
    CHECK(status == PANDO_BROKEN || status == PANDO_NOT_FOUND);
    CHECK_STATUS(pool_member_submit_co(session, former, &write, 1), PANDO_NOT_FOUND);
    CHECK_OK(pool_member_window_co(session, identity_of(&members[0]), &bytes));
    CHECK_EQ_U64(bytes, shm ? 0 : WINDOW_BYTES - POOL_SLABS_FIRST);
}

static void worker_co(struct member *member)
{
    struct pool_session *session;
    struct fabric_identity former;
    wait_for_co(&joined, MEMBERS);
    former = identity_of(&members[0]);
    CHECK_OK(pool_session_open_co(member->pool, &session));
    add_to_all_co(session);
    atomic_fetch_add(&added, 1);
    wait_for_co(&added, MEMBERS * THREADS);
    look_at_all_co(session);
    if (member == &members[0])
        pool_session_close_co(session);
    atomic_fetch_add(&looked, 1);
    if (member == &members[0])
        return;
    wait_for_co(&joined, MEMBERS + 1);
    former_co(session, former, member->shm);
    pool_session_close_co(session);
    atomic_fetch_add(&ended, 1);
}

static void join_co(struct member *member, const struct env_place *place)
{
    struct pool_options options = {.memory_nodes = (uint16_t)env_memory_nodes(place->env)};
    struct pool_session *session;
    char error[256];
    CHECK_OK(pool_join_co(place->fabric, &options, &member->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(member->pool, &session));
    CHECK_STATUS(pool_window_hold_co(session),
                 pool_own_window_bytes(member->pool) > 0 ? PANDO_OK : PANDO_UNSUPPORTED);
    pool_session_close_co(session);
    struct fabric_identity identity = pool_identity(member->pool);
    atomic_store(&member->identity, (unsigned)identity.incarnation << 16 | identity.member);
    atomic_fetch_add(&joined, 1);
}

/* The first thread joins, and leaves when all have done all. */
static void keeper_co(struct member *member, const struct env_place *place)
{
    join_co(member, place);
    wait_for_co(&looked, MEMBERS * THREADS);
    if (member == &members[0]) {
        pool_leave_co(member->pool);
        join_co(member, place);
    }
    wait_for_co(&ended, (MEMBERS - 1) * THREADS);
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
    worker_co(member);
}

/* ---- processes: threads of this one, each with a fabric of its own --------------------------- */

static void *member_main(void *arg)
{
    struct member *member = arg;
    CHECK_OK(env_run(member->env, 1 + THREADS, member_co, member));
    return NULL;
}

/* Of a window nothing stays, though it was renewed. */
static void close_member(const struct member *member)
{
    char window[FABRIC_LOCATION_MAX], attached[FABRIC_LOCATION_MAX + 16];
    snprintf(window, sizeof(window), "%s", fabric_location(env_fabric(member->env)));
    snprintf(attached, sizeof(attached), "%s.attached", window);
    env_close(member->env);
    if (member->shm)
        CHECK(access(window, F_OK) != 0 && access(attached, F_OK) != 0);
}

static void run_members(const char *uri, const char *secret)
{
    pthread_t threads[MEMBERS];
    char error[256] = "";

    atomic_store(&joined, 0);
    atomic_store(&added, 0);
    atomic_store(&looked, 0);
    atomic_store(&ended, 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct env_options options = {
            .uri = uri, .secret_file = secret, .window_bytes = WINDOW_BYTES};
        memset(&members[i], 0, sizeof(members[i]));
        members[i].shm = secret == NULL;
        if (env_open(&options, &members[i].env, error, sizeof(error)) != PANDO_OK)
            CHECK_FAIL("%s", error);
    }
    for (unsigned i = 0; i < MEMBERS; i++)
        CHECK(pthread_create(&threads[i], NULL, member_main, &members[i]) == 0);
    for (unsigned i = 0; i < MEMBERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (unsigned i = 0; i < MEMBERS; i++)
        close_member(&members[i]);
    printf("%.3s: ok\n", uri);
}

static void run_tcp(void)
{
    char secret[] = "/tmp/pando-member-lists-XXXXXX", uri[128], error[256] = "";
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
    snprintf(name, sizeof(name), "test-member-lists-%d", (int)getpid());
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

/* ---- none of its own ------------------------------------------------------------------------- */

static void embedded_co(void *context, const struct env_place *place)
{
    struct pool_options options = {.memory_nodes = 1};
    struct pool_session *session;
    struct pool *pool;
    uint64_t word;
    char error[256];
    struct fabric_op read = fabric_read(AT, &word, sizeof(word));

    (void)context;
    CHECK_OK(pool_join_co(place->fabric, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &session));
    CHECK_EQ_U64(pool_own_window_bytes(pool), 0);
    CHECK_STATUS(pool_member_submit_co(session, pool_identity(pool), &read, 1), PANDO_UNSUPPORTED);
    CHECK_STATUS(pool_window_hold_co(session), PANDO_UNSUPPORTED);
    pool_session_close_co(session);
    pool_leave_co(pool);
}

static void run_embedded(void)
{
    struct env_options options = {.uri = "embedded:64M"};
    struct env *env;
    char error[256] = "";
    CHECK_OK(env_open(&options, &env, error, sizeof(error)));
    CHECK_OK(env_run(env, 1, embedded_co, NULL));
    env_close(env);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    run_embedded();
    run_tcp();
    run_shm();
    printf("lists to members: ok\n");
    return 0;
}
