/*
 * A page of the cache that is in use for very long, as while its node is away and leases are long: whoever waits for
 * its latch ends nothing. After 100 leases the process gives up its membership, so that others serve its
 * keys, and it goes on when the page is free.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { HELD_S = 2000, SOON_LEASES = 101 };

static struct {
    struct dex_table *table;
    bool taken, done;
} world;

static struct frame *root_of(const struct dex_table *table)
{
    return frame_at(&table->cache.frames, table->root_frame);
}

static void hold_task(void *arg)
{
    (void)arg;
    frame_latch_co(&world.table->cache.frames, root_of(world.table));
    world.taken = true;
    rt_sleep_co(SOON_LEASES * LEASE_NS / 2);
    CHECK(!pool_fenced(world.table->pool));
    rt_sleep_co(SOON_LEASES * LEASE_NS / 2 + RT_NS_PER_S);
    CHECK(pool_fenced(world.table->pool));
    rt_sleep_co(HELD_S * RT_NS_PER_S);
    frame_give(root_of(world.table));
}

static void user_task(void *arg)
{
    struct dex_member member;
    struct engine *engine;

    dex_join_co(arg, &member);
    CHECK_OK(engine_create_co(&dex_engine, member.session, "t", &number_shape));
    dex_attach_co(&member, &engine);
    world.table = container_of(member.table, struct dex_table, base);
    CHECK_OK(rt_spawn(rt_loop_self(), hold_task, NULL));
    while (!world.taken)
        rt_sleep_co(RT_NS_PER_US);
    frame_latch_co(&world.table->cache.frames, root_of(world.table));
    frame_give(root_of(world.table));
    dex_end_co(&member, engine);
    world.done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 7, 32);
    CHECK_OK(rt_spawn(fabric_sim_loop(place.members[0], 0), user_task, place.members[0]));
    CHECK(sim_run(fabric_sim_world(place.net), 2 * HELD_S * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    fabric_sim_destroy(place.net);
    memnode_close(place.memnode);
    return 0;
}
