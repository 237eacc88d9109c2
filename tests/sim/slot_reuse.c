/*
 * Processes join and leave beside each other, and stand still for a while in the middle of leaving. Who
 * gets a slot that was just freed is let in: the process that had it before is not connected as that
 * member any more.
 */
#include "sim/pool_world.h"

enum { CLIENTS = 4, ROUNDS = 30 };

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS, STALL_NS = RT_NS_PER_MS;

static struct pool_world world;
static int done;

static void member_task(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct pool_session *session;
        struct pool *pool = pool_world_join_co(&world, arg, &session);
        pool_world_leave_co(pool, session);
    }
    done++;
}

int main(void)
{
    struct pool_world_options options = {
        .net = {.seed = 7, .shuffle = true, .stall_probability = 0.5, .stall_ns = STALL_NS},
        .memnode = {.seed = 100},
        .memories = 2,
        .clients = CLIENTS,
        .memory_bytes = 42 << 20,
        .lease_ns = LEASE_NS};

    pool_world_build(&world, &options);
    for (unsigned i = 0; i < CLIENTS; i++)
        pool_world_spawn(&world, i, member_task);
    CHECK(pool_world_ends(&world, 100 * RT_NS_PER_S));
    CHECK(done == CLIENTS);
    pool_world_destroy(&world);
    return 0;
}
