/*
 * Many members that hold something in their windows die at the same moment, and one is left: it does
 * not wait a lease for each of those whom it has not found dead yet.
 */
#include "pool/member_lists.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { MEMBERS = 12, LEASES_MAX = 8 };
static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

struct actor {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_session *session;
    uint16_t member;
};

static struct pool_world world;
static struct actor actors[MEMBERS];
static unsigned holding;
static bool done;

static void join_and_hold_co(struct actor *actor)
{
    struct pool_options options = {.memory_nodes = 2, .name = "test", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(actor->fabric, &options, &actor->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(actor->pool, &actor->session));
    CHECK_OK(pool_window_hold_co(actor->session));
    actor->member = pool_identity(actor->pool).member;
    holding++;
}

static void other_task(void *arg)
{
    struct actor *actor = arg;
    join_and_hold_co(actor);
    while (!fabric_sim_dead(actor->fabric))
        rt_sleep_co(100 * RT_NS_PER_US);
    pool_world_leave_co(actor->pool, actor->session);
}

static bool all_free_co(void)
{
    bool all = true;
    for (unsigned i = 1; i < MEMBERS; i++) {
        struct pool_heartbeat beat;
        CHECK_OK(pool_heartbeat_co(actors[0].session, actors[i].member, &beat));
        all = all && beat.state == POOL_FREE;
    }
    return all;
}

static void left_task(void *arg)
{
    join_and_hold_co(arg);
    while (holding < MEMBERS)
        rt_sleep_co(100 * RT_NS_PER_US);
    rt_sleep_co(LEASE_NS);
    uint64_t begin_ns = rt_now_ns();
    for (unsigned i = 1; i < MEMBERS; i++)
        fabric_sim_kill(actors[i].fabric);
    while (!all_free_co())
        rt_sleep_co(100 * RT_NS_PER_US);
    uint64_t leases = (rt_now_ns() - begin_ns) / LEASE_NS;
    printf("%u members that hold were recovered in %" PRIu64 " leases\n", MEMBERS - 1, leases);
    CHECK(leases < LEASES_MAX);
    pool_world_leave_co(actors[0].pool, actors[0].session);
    done = true;
}

int main(void)
{
    struct pool_world_options options = pool_world_pair(LEASE_NS);
    options.net.call_ns = 2 * LEASE_NS;
    options.clients = 0;
    pool_world_build(&world, &options);
    for (unsigned i = 0; i < MEMBERS; i++) {
        pool_world_add_client(world.net, i, 1 << 20, 1, &actors[i].fabric);
        CHECK_OK(rt_spawn(fabric_sim_loop(actors[i].fabric, 0), i == 0 ? left_task : other_task,
                          &actors[i]));
    }
    CHECK(pool_world_ends(&world, 60 * RT_NS_PER_S));
    CHECK(done);
    pool_world_destroy(&world);
    return 0;
}
