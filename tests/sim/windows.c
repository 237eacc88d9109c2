/*
 * Memory nodes that come back without their memory: neither a member that is connected nor one that
 * joins takes an empty or foreign window for the one that the pool knows.
 */
#include <stddef.h>
#include <stdlib.h>

#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"

enum { NODES = 2, BLOCK_BYTES = 4096 };

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

struct world {
    struct fabric_sim *net;
    struct fabric *memory[NODES];
    struct memnode *memnodes[NODES];
    struct fabric *clients[2];
    int done;
};

static struct world world;

static void memnode_start(unsigned i)
{
    static uint64_t seed = 100;
    char error[256];
    struct memnode_options options = {.grace_ns = LEASE_NS, .seed = seed++};
    CHECK_OK(memnode_open(world.memory[i], &options, &world.memnodes[i], error, sizeof(error)));
}

/* Kills a memory node and starts it again. */
static void restart(unsigned i, bool keep)
{
    struct memnode *dead = world.memnodes[i];
    fabric_sim_kill(world.memory[i]);
    CHECK_OK(fabric_sim_restart(world.memory[i], keep, &world.memory[i]));
    memnode_close(dead);
    memnode_start(i);
}

static void run(rt_fn main)
{
    struct fabric_sim_options options = {.seed = 5, .model = sim_nic_model("cx5")};
    world = (struct world){.net = fabric_sim_create(&options)};
    for (unsigned i = 0; i < NODES; i++) {
        struct fabric_sim_node_options node = {.node = (uint16_t)i,
                                               .target = FABRIC_MEMORY,
                                               .host_bytes = 42 << 20,
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
    CHECK_OK(rt_spawn(fabric_sim_loop(world.clients[0], 0), main, world.clients[0]));
    CHECK(sim_run(fabric_sim_world(world.net), 600 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done == 1);
    fabric_sim_destroy(world.net);
    for (unsigned i = 0; i < NODES; i++)
        memnode_close(world.memnodes[i]);
}

static enum pando_status join_co(struct fabric *fabric, uint64_t expected, struct pool **pool,
                                 char error[512])
{
    struct pool_options options = {
        .memory_nodes = NODES, .name = "test", .lease_ns = LEASE_NS, .pool = expected};
    return pool_join_co(fabric, &options, pool, error, 512);
}

/* A joiner is refused, with these words. */
static void refused_co(struct fabric *fabric, uint64_t expected, const char *words)
{
    struct pool *pool;
    char error[512] = "";
    CHECK_STATUS(join_co(fabric, expected, &pool, error), PANDO_INVALID);
    if (strstr(error, words) == NULL)
        fprintf(stderr, "not '%s': %s\n", words, error);
    CHECK(strstr(error, words) != NULL);
}

/* ---- node 1 ---------------------------------------------------------------------------------- */

static void empty_task(void *arg)
{
    struct pool *pool;
    struct pool_session *session;
    struct pool_block block;
    uint64_t word = 4711, foreign = 99, seen;
    char error[512];

    CHECK_OK(join_co(arg, 0, &pool, error));
    CHECK_OK(pool_session_open_co(pool, &session));
    CHECK_OK(pool_alloc_co(session, 1, BLOCK_BYTES, &block));
    uint64_t at = fabric_address_offset(block.address) + 64;
    struct fabric_op write = fabric_write(at, &word, sizeof(word));
    struct fabric_op read = fabric_read(at, &seen, sizeof(seen));
    CHECK_OK(pool_submit_co(session, 1, &write, 1));

    /* With its memory it goes on. */
    restart(1, true);
    rt_sleep_co(RT_NS_PER_MS / 4);
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < 3 && status != PANDO_OK; i++)
        status = pool_submit_co(session, 1, &read, 1);
    CHECK_OK(status);
    CHECK(seen == word);

    /* Without, nothing is read from it or written to it, by those that are there or by others. */
    restart(1, false);
    rt_sleep_co(RT_NS_PER_MS / 4);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(pool_submit_co(session, 1, &read, 1), PANDO_BROKEN);
        CHECK_STATUS(pool_submit_co(session, 1, &write, 1), PANDO_BROKEN);
    }
    CHECK_OK(fabric_self_read(world.memory[1], at, &seen, sizeof(seen)));
    CHECK(seen == 0);
    refused_co(world.clients[1], 0, "memory node 1 has come back empty");
    refused_co(world.clients[1], 0, "pando memory --replace 1");
    CHECK(!pool_fenced(pool));

    /* Another pool's window. */
    uint64_t id_at =
        fabric_window_first(world.memory[1]) + offsetof(struct pool_superblock, pool_id);
    CHECK_OK(fabric_self_write(world.memory[1], id_at, &foreign, sizeof(foreign)));
    refused_co(world.clients[1], 0, "memory node 1 belongs to another pool");
    CHECK_STATUS(pool_submit_co(session, 1, &read, 1), PANDO_BROKEN);
    CHECK_OK(pool_submit_co(session, 0, &read, 1)); /* node 0 is as it was */
    pool_session_close_co(session);
    pool_leave_co(pool);
    world.done++;
}

/* ---- node 0 ---------------------------------------------------------------------------------- */

static void first_task(void *arg)
{
    struct pool *pool;
    char error[512];

    CHECK_OK(join_co(arg, 0, &pool, error));
    uint64_t id = pool_id(pool);
    restart(0, false);
    pool_leave_co(pool);
    refused_co(arg, id, "memory node 0 has come back empty");
    refused_co(arg, 0, "If node 0 has come back empty");

    /* To begin anew takes an empty window for every node. A member of the old pool is not a part of it. */
    restart(0, false);
    restart(1, false);
    refused_co(arg, id, "memory node 0 has come back empty");
    CHECK_OK(join_co(arg, 0, &pool, error));
    CHECK(pool_id(pool) != id);
    pool_leave_co(pool);
    world.done++;
}

int main(void)
{
    run(empty_task);
    run(first_task);
    return 0;
}
