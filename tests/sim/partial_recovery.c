/*
 * A memory node that is down does not keep others from taking over what lies elsewhere: DEX keys whose
 * pages and log are on living nodes are served again soon after their owner's death. The dead one's slot,
 * and the node that is down, wait until the recovery has come there, too.
 */
#include "engine/engine.h"
#include "pool/pool_int.h"
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/dex/dex.h"
#include "tree/dex/pushdown/memory_side.h"

enum { KEYS = 60, PATIENCE_LEASES = 8 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;

static struct {
    struct fabric_identity owner;
    bool cut; /* the node is not down, but nobody reaches it */
    int step; /* 1 both have joined, 2 a node is down, 3 the owner has written, and is dead */
    bool done;
} world;

struct member {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void node_away(void)
{
    if (!world.cut) {
        fabric_sim_kill(place.memory[1]);
        return;
    }
    for (uint16_t i = 0; i < 2; i++)
        fabric_sim_cut(place.net, 1, (uint16_t)(POOL_WORLD_CLIENT + i));
}

static void node_back(void)
{
    if (world.cut)
        fabric_sim_heal(place.net, 1, POOL_WORLD_CLIENT + 1);
    else
        pool_world_restart(&place, 1, true);
}

static void reach_co(int step)
{
    while (world.step < step)
        rt_sleep_co(10 * RT_NS_PER_US);
}

static enum pando_status open_co(struct member *self)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256];
    enum pando_status status = engine_open_co(&dex_engine, self->session, "t", &config,
                                              &self->table, error, sizeof(error));
    if (status == PANDO_OK)
        status = engine_attach_co(self->table, self->session, &self->engine);
    return status;
}

static void leave_co(struct member *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_world_leave_co(self->pool, self->session);
}

static void owner_task(void *arg)
{
    struct member self;
    self.pool = pool_world_join_co(&place, arg, &self.session);
    world.owner = pool_identity(self.pool);
    reach_co(2);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    CHECK_OK(open_co(&self));
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t key;
        CHECK_OK(engine_put_co(self.engine, number_key(i, &key), slice_of(&i, sizeof(i)),
                               ENGINE_UPSERT));
    }
    fabric_sim_kill(arg);
    world.step = 3;
    leave_co(&self);
}

static void get_all_co(struct member *self, uint64_t deadline_ns)
{
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t key, value = 0;
        size_t size;
        enum pando_status status = PANDO_AGAIN;
        while (status != PANDO_OK && rt_now_ns() < deadline_ns) {
            status = engine_get_co(self->engine, number_key(i, &key), &value, sizeof(value), &size);
            if (status != PANDO_OK)
                rt_sleep_co(LEASE_NS / 16);
        }
        CHECK_OK(status);
        CHECK_EQ_U64(value, i);
    }
}

static enum pool_member_state state_of_owner_co(struct member *self)
{
    struct pool_heartbeat beat;
    CHECK_OK(pool_heartbeat_co(self->session, world.owner.member, &beat));
    return beat.incarnation == world.owner.incarnation ? beat.state : POOL_FREE;
}

/* Something of the node that is away. */
static enum pando_status read_co(struct member *self)
{
    uint64_t word;
    struct fabric_op read = fabric_read(fabric_window_first(place.memory[1]), &word, 8);
    return pool_submit_co(self->session, 1, &read, 1);
}

static void taker_task(void *arg)
{
    struct member self;
    self.pool = pool_world_join_co(&place, arg, &self.session);
    while (world.owner.member == 0)
        rt_sleep_co(RT_NS_PER_US);
    world.step = 1;
    reach_co(3);
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_LEASES * LEASE_NS;
    CHECK_OK(open_co(&self));
    get_all_co(&self, deadline_ns);
    /* What is left waits for the node. */
    CHECK(state_of_owner_co(&self) == POOL_FENCED);
    CHECK(read_co(&self) != PANDO_OK);
    node_back();
    deadline_ns = rt_now_ns() + PATIENCE_LEASES * LEASE_NS;
    /* It is not used before the dead one is fenced there. */
    while (read_co(&self) != PANDO_OK && rt_now_ns() < deadline_ns)
        rt_sleep_co(10 * RT_NS_PER_US);
    CHECK(rt_now_ns() < deadline_ns);
    CHECK(fabric_fenced(place.memory[1], world.owner));
    while (state_of_owner_co(&self) != POOL_FREE && rt_now_ns() < deadline_ns)
        rt_sleep_co(LEASE_NS / 8);
    CHECK(state_of_owner_co(&self) == POOL_FREE);
    get_all_co(&self, deadline_ns);
    leave_co(&self);
    world.done = true;
}

static void killer_task(void *arg)
{
    (void)arg;
    reach_co(1);
    node_away();
    world.step = 2;
}

static void run(bool cut)
{
    struct pool_world_options options = {.net = {.seed = 1},
                                         .memnode = {.seed = 7, .work = dex_memory_pushdown},
                                         .memories = 2,
                                         .clients = 2,
                                         .memory_bytes = 160 << 20,
                                         .lease_ns = LEASE_NS};
    memset(&world, 0, sizeof(world));
    world.cut = cut;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, owner_task);
    pool_world_spawn(&place, 1, taker_task);
    pool_world_spawn_memory(&place, 0, killer_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(world.done);
    pool_world_destroy(&place);
}

int main(void)
{
    run(false);
    run(true);
    return 0;
}
