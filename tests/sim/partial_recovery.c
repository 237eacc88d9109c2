/*
 * A memory node that is down does not keep others from taking over what lies elsewhere: DEX keys whose
 * pages and log are on living nodes are served again soon after their owner's death. The dead one's slot,
 * and the node that is down, wait until the recovery has come there, too.
 */
#include "base/log.h"
#include "engine/engine.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"
#include "sim/numbered.h"
#include "tree/dex/dex.h"
#include "tree/dex/memory_side.h"

enum { MEMORIES = 2, KEYS = 60, PATIENCE_LEASES = 8 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;
static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static struct {
    struct fabric_sim *net;
    struct fabric *memory[MEMORIES], *clients[2];
    struct memnode *memnodes[MEMORIES];
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

static void memnode_start(int i)
{
    struct memnode_options memnode = {.grace_ns = LEASE_NS, .seed = 7, .work = dex_memory_work};
    char error[256];
    CHECK_OK(memnode_open(world.memory[i], &memnode, &world.memnodes[i], error, sizeof(error)));
}

static void node_away(void)
{
    if (!world.cut) {
        fabric_sim_kill(world.memory[1]);
        return;
    }
    for (uint16_t i = 0; i < 2; i++)
        fabric_sim_cut(world.net, 1, (uint16_t)(0x8000 + i));
}

static void node_back(void)
{
    if (world.cut) {
        fabric_sim_heal(world.net, 1, 0x8001);
        return;
    }
    CHECK_OK(fabric_sim_restart(world.memory[1], true, &world.memory[1]));
    memnode_close(world.memnodes[1]);
    memnode_start(1);
}

static void reach_co(int step)
{
    while (world.step < step)
        rt_sleep_co(10 * RT_NS_PER_US);
}

static void join_co(struct fabric *fabric, struct member *self)
{
    struct pool_options options = {.memory_nodes = MEMORIES, .name = "m", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
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

static void owner_task(void *arg)
{
    struct member self;
    join_co(arg, &self);
    world.owner = pool_identity(self.pool);
    reach_co(2);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &shape));
    CHECK_OK(open_co(&self));
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t key;
        CHECK_OK(engine_put_co(self.engine, number_key(i, &key), slice_of(&i, sizeof(i)),
                               ENGINE_UPSERT));
    }
    fabric_sim_kill(arg);
    world.step = 3;
    engine_detach_co(self.engine);
    engine_close_co(self.table, self.session);
    pool_session_close_co(self.session);
    pool_leave_co(self.pool);
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
    struct fabric_op read = fabric_read(fabric_window_first(world.memory[1]), &word, 8);
    return pool_submit_co(self->session, 1, &read, 1);
}

static void taker_task(void *arg)
{
    struct member self;
    join_co(arg, &self);
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
    CHECK(fabric_fenced(world.memory[1], world.owner));
    while (state_of_owner_co(&self) != POOL_FREE && rt_now_ns() < deadline_ns)
        rt_sleep_co(LEASE_NS / 8);
    CHECK(state_of_owner_co(&self) == POOL_FREE);
    get_all_co(&self, deadline_ns);
    engine_detach_co(self.engine);
    engine_close_co(self.table, self.session);
    pool_session_close_co(self.session);
    pool_leave_co(self.pool);
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
    struct fabric_sim_options options = {.seed = 1, .model = sim_nic_model("cx5")};
    memset(&world, 0, sizeof(world));
    world.cut = cut;
    world.net = fabric_sim_create(&options);
    for (uint16_t i = 0; i < MEMORIES; i++) {
        struct fabric_sim_node_options node = {.node = i,
                                               .target = FABRIC_MEMORY,
                                               .host_bytes = 160 << 20,
                                               .device_bytes = MEMNODE_DEVICE_BYTES,
                                               .threads = 1};
        CHECK_OK(fabric_sim_add(world.net, &node, &world.memory[i]));
        memnode_start(i);
    }
    for (uint16_t i = 0; i < 2; i++) {
        struct fabric_sim_node_options node = {.node = (uint16_t)(0x8000 + i),
                                               .target = FABRIC_COMPUTE,
                                               .host_bytes = 1 << 20,
                                               .threads = 1};
        CHECK_OK(fabric_sim_add(world.net, &node, &world.clients[i]));
    }
    CHECK_OK(rt_spawn(fabric_sim_loop(world.clients[0], 0), owner_task, world.clients[0]));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.clients[1], 0), taker_task, world.clients[1]));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.memory[0], 0), killer_task, NULL));
    CHECK(sim_run(fabric_sim_world(world.net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    fabric_sim_destroy(world.net);
    for (int i = 0; i < MEMORIES; i++)
        memnode_close(world.memnodes[i]);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    run(false);
    run(true);
    return 0;
}
