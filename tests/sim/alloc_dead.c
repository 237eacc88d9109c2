/*
 * Allocation while memory nodes are down: blocks come from the nodes that answer, a node that does not is
 * not waited for at every allocation, and it is used again when it is back. FULL means that nodes are full.
 */
#include "base/log.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"

enum { MEMORIES = 3, CHUNKS = 12, BLOCK_BYTES = 64 * 1024, SOME = 300, DEAD = 1 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;
/* One look at a dead node (three tries to reconnect), and far less than one for each allocation. */
static const uint64_t ONE_LOOK_NS = 200 * RT_NS_PER_MS;

static struct world {
    struct fabric_sim *net;
    struct fabric *memory[MEMORIES];
    struct memnode *memnodes[MEMORIES + 1];
    struct fabric *client;
    bool done;
} world;

static struct memnode *open_node(struct fabric *fabric)
{
    struct memnode_options options = {.grace_ns = LEASE_NS, .seed = 100};
    struct memnode *memnode;
    char error[256];
    CHECK_OK(memnode_open(fabric, &options, &memnode, error, sizeof(error)));
    return memnode;
}

static void build(void)
{
    struct fabric_sim_options options = {.seed = 3, .model = sim_nic_model("cx5")};
    struct fabric_sim_node_options client = {
        .node = 0x8000, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1};

    log_set_level(LOG_LEVEL_ERROR);
    world.net = fabric_sim_create(&options);
    for (uint16_t i = 0; i < MEMORIES; i++) {
        struct fabric_sim_node_options node = {.node = i,
                                               .target = FABRIC_MEMORY,
                                               .host_bytes = CHUNKS * POOL_CHUNK_BYTES,
                                               .device_bytes = MEMNODE_DEVICE_BYTES,
                                               .threads = 1};
        CHECK_OK(fabric_sim_add(world.net, &node, &world.memory[i]));
        world.memnodes[i] = open_node(world.memory[i]);
    }
    CHECK_OK(fabric_sim_add(world.net, &client, &world.client));
}

/* How many of `count` blocks come from each node; stops at the first failure. */
static enum pando_status take_co(struct pool_session *session, bool vital, unsigned count,
                                 unsigned from[MEMORIES])
{
    enum pando_status status = PANDO_OK;
    memset(from, 0, MEMORIES * sizeof(from[0]));
    for (unsigned i = 0; i < count && status == PANDO_OK; i++) {
        struct pool_block block;
        status = vital ? pool_vital_alloc_co(session, BLOCK_BYTES, &block)
                       : pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &block);
        if (status == PANDO_OK)
            from[fabric_address_node(block.address)]++;
    }
    return status;
}

static void one_dead_co(struct pool_session *session)
{
    unsigned from[MEMORIES];
    CHECK_OK(take_co(session, false, 30, from)); /* blocks of all three are at hand */
    CHECK(from[0] == 10 && from[1] == 10 && from[2] == 10);
    fabric_sim_kill(world.memory[DEAD]);
    rt_sleep_co(RT_NS_PER_MS);
    uint64_t begin_ns = rt_now_ns();
    CHECK_OK(take_co(session, true, 10, from));
    CHECK(from[DEAD] == 0 && from[0] > 0 && from[2] > 0);
    CHECK_OK(take_co(session, false, SOME, from));
    CHECK(from[DEAD] == 0 && from[0] >= SOME / 3 && from[2] >= SOME / 3);
    printf("%u blocks with a node down in %" PRIu64 " ms\n", SOME + 10,
           (rt_now_ns() - begin_ns) / RT_NS_PER_MS);
    CHECK(rt_now_ns() - begin_ns < ONE_LOOK_NS);
}

static void all_full_co(struct pool_session *session)
{
    unsigned from[MEMORIES];
    enum pando_status status = take_co(session, false, MEMORIES * CHUNKS * 128, from);
    CHECK(from[0] > 0 && from[2] > 0 && from[DEAD] == 0);
    CHECK_STATUS(status, PANDO_BROKEN); /* the others are full, but not the pool */
}

static void back_again_co(struct pool_session *session)
{
    unsigned from[MEMORIES];
    CHECK_OK(fabric_sim_restart(world.memory[DEAD], true, &world.memory[DEAD]));
    world.memnodes[MEMORIES] = open_node(world.memory[DEAD]);
    CHECK_OK(take_co(session, false, 100, from));
    CHECK_EQ_U64(from[DEAD], 100);
    CHECK_STATUS(take_co(session, false, MEMORIES * CHUNKS * 128, from), PANDO_FULL);
}

static void client_task(void *arg)
{
    struct pool_options options = {.memory_nodes = MEMORIES, .name = "test", .lease_ns = LEASE_NS};
    struct pool *pool;
    struct pool_session *session;
    char error[256];

    CHECK_OK(pool_join_co(arg, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &session));
    one_dead_co(session);
    all_full_co(session);
    back_again_co(session);
    pool_session_close_co(session);
    pool_leave_co(pool);
    world.done = true;
}

int main(void)
{
    build();
    CHECK_OK(rt_spawn(fabric_sim_loop(world.client, 0), client_task, world.client));
    CHECK(sim_run(fabric_sim_world(world.net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    fabric_sim_destroy(world.net);
    for (unsigned i = 0; i <= MEMORIES; i++)
        memnode_close(world.memnodes[i]);
    return 0;
}
