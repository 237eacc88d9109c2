/*
 * Memory nodes that come back without their memory: neither a member that is connected nor one that
 * joins takes an empty or foreign window for the one that the pool knows.
 */
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/block_fmt.h"
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

static void memnode_start_as(unsigned i, bool replace)
{
    static uint64_t seed = 100;
    char error[256];
    struct memnode_options options = {.grace_ns = LEASE_NS, .seed = seed++, .replace = replace};
    CHECK_OK(memnode_open(world.memory[i], &options, &world.memnodes[i], error, sizeof(error)));
}

static void memnode_start(unsigned i)
{
    memnode_start_as(i, false);
}

/* Kills a memory node and starts it again. */
static void restart_as(unsigned i, bool keep, bool replace)
{
    struct memnode *dead = world.memnodes[i];
    fabric_sim_kill(world.memory[i]);
    CHECK_OK(fabric_sim_restart(world.memory[i], keep, &world.memory[i]));
    memnode_close(dead);
    memnode_start_as(i, replace);
}

static void restart(unsigned i, bool keep)
{
    restart_as(i, keep, false);
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

/* ---- replacing ------------------------------------------------------------------------------- */

struct member {
    struct pool *pool;
    struct pool_session *session;
};

static struct member enter_co(struct fabric *fabric)
{
    struct member member;
    char error[512] = "";
    enum pando_status status = join_co(fabric, 0, &member.pool, error);
    if (status != PANDO_OK)
        fprintf(stderr, "%s\n", error);
    CHECK_OK(status);
    CHECK_OK(pool_session_open_co(member.pool, &member.session));
    return member;
}

static void leave_co(struct member member)
{
    pool_session_close_co(member.session);
    pool_leave_co(member.pool);
}

/* A table with a live block on one node. */
static void table_create_co(struct member member, const char *name, uint16_t node,
                            struct pool_block *block)
{
    struct pool_table_options options = {.name = name, .engine = "none", .key_max = 8, .root = 77};
    struct pool_entry entry;
    unsigned slot;
    CHECK_OK(pool_table_create_co(member.session, &options, &slot, &entry));
    uint16_t number = (uint16_t)entry.table;
    CHECK_OK(pool_table_alloc_co(member.session, number, node, BLOCK_BYTES, block));
    struct pool_tenure tenure = {
        .state = POOL_BLOCK_LIVE, .table = number, .holder = pool_identity(member.pool)};
    uint64_t words[4] = {0, block->address, ++block->version, pool_tenure_pack(tenure)};
    struct fabric_op write =
        fabric_write(fabric_address_offset(block->address), words, sizeof(words));
    CHECK_OK(pool_submit_co(member.session, node, &write, 1));
}

static struct pool_entry entry_co(struct member member, const char *name)
{
    struct pool_entry entry;
    unsigned slot;
    CHECK_OK(pool_table_open_co(member.session, name, &slot, &entry));
    return entry;
}

static bool lost_co(struct member member, const char *name)
{
    uint16_t node;
    struct pool_entry entry = entry_co(member, name);
    return pool_table_lost(member.pool, &entry, &node) && node == 1;
}

static uint64_t epoch_now(void)
{
    uint64_t epoch, at = fabric_window_first(world.memory[0]) + POOL_EPOCH;
    CHECK_OK(fabric_self_read(world.memory[0], at, &epoch, sizeof(epoch)));
    return epoch;
}

static void wait_fenced_co(struct pool *pool)
{
    for (int i = 0; i < 1000 && !pool_fenced(pool); i++)
        rt_sleep_co(LEASE_NS / 20);
    CHECK(pool_fenced(pool));
}

/* The pool after node 1 was replaced: "here" is sound, "there" is lost and can be freed. */
static void check_replaced_co(struct member member, uint64_t epoch)
{
    struct pool_block block;
    struct pool_node_stats before, after;
    struct pool_entry here = entry_co(member, "here"), there = entry_co(member, "there");

    CHECK(epoch_now() % 2 == 0 && epoch_now() > epoch);
    CHECK(pool_window(member.pool, 1).id == fabric_window_id(world.memory[1]));
    CHECK(!lost_co(member, "here") && lost_co(member, "there"));
    CHECK_STATUS(pool_table_alloc_co(member.session, (uint16_t)there.table, 1, BLOCK_BYTES, &block),
                 PANDO_CORRUPT);
    /* A table that had nothing there may get memory on the new node, and stays sound. */
    CHECK_OK(pool_table_alloc_co(member.session, (uint16_t)here.table, 1, BLOCK_BYTES, &block));
    CHECK(fabric_address_node(block.address) == 1);
    CHECK(!lost_co(member, "here"));
    CHECK_OK(pool_node_stats_co(member.session, 0, &before));
    CHECK_OK(pool_table_sweep_co(member.session, (uint16_t)there.table));
    CHECK_OK(pool_node_stats_co(member.session, 0, &after));
    CHECK(after.blocks_free_bytes == before.blocks_free_bytes + BLOCK_BYTES);
    CHECK_OK(pool_table_drop_co(member.session, "there"));
}

static void replace_task(void *arg)
{
    struct pool_block here, there, both;
    struct member member = enter_co(arg), other = enter_co(world.clients[1]);
    uint64_t epoch = epoch_now();

    table_create_co(member, "here", 0, &here);
    table_create_co(member, "there", 1, &there);
    struct pool_entry entry = entry_co(member, "there");
    CHECK_OK(pool_table_alloc_co(member.session, (uint16_t)entry.table, 0, BLOCK_BYTES, &both));
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE, .table = (uint16_t)entry.table};
    uint64_t words[4] = {0, both.address, both.version + 1, pool_tenure_pack(tenure)};
    struct fabric_op write =
        fabric_write(fabric_address_offset(both.address), words, sizeof(words));
    CHECK_OK(pool_submit_co(member.session, 0, &write, 1));

    /* Nobody takes it without having been told. */
    restart(1, false);
    struct fabric_op read = fabric_read(fabric_address_offset(there.address), words, sizeof(words));
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(pool_submit_co(member.session, 1, &read, 1), PANDO_BROKEN);
    rt_sleep_co(LEASE_NS);
    CHECK(!pool_fenced(member.pool) && epoch_now() == epoch);

    /* Told, those that are there join again, also one that needs nothing of that node. */
    restart_as(1, true, true);
    wait_fenced_co(member.pool);
    leave_co(member);
    member = enter_co(arg);
    wait_fenced_co(other.pool);
    leave_co(other);
    check_replaced_co(member, epoch);
    leave_co(member);

    /* Another start of it is an ordinary one, and --replace would give up what is in it. */
    restart(1, true);
    member = enter_co(arg);
    CHECK(!lost_co(member, "here"));
    leave_co(member);
    world.done++;
}

/* Somebody dies at each step of a replacement in turn; the next who joins goes on with it. */
static unsigned crash_step;
static bool crashed;

static void doomed_task(void *arg)
{
    struct pool *pool;
    char error[512];
    if (join_co(arg, 0, &pool, error) == PANDO_OK)
        pool_leave_co(pool);
    crashed = fabric_sim_dead(arg);
}

static void crash_task(void *arg)
{
    struct pool_block here, there;
    struct member member = enter_co(arg);
    uint64_t epoch = epoch_now();

    table_create_co(member, "here", 0, &here);
    table_create_co(member, "there", 1, &there);
    struct pool_entry entry = entry_co(member, "there");
    struct pool_block both;
    CHECK_OK(pool_table_alloc_co(member.session, (uint16_t)entry.table, 0, BLOCK_BYTES, &both));
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE, .table = (uint16_t)entry.table};
    uint64_t words[4] = {0, both.address, both.version + 1, pool_tenure_pack(tenure)};
    struct fabric_op write =
        fabric_write(fabric_address_offset(both.address), words, sizeof(words));
    CHECK_OK(pool_submit_co(member.session, 0, &write, 1));
    leave_co(member);

    restart_as(1, false, true);
    fabric_sim_kill_at(world.clients[1], crash_step);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.clients[1], 0), doomed_task, world.clients[1]));
    rt_sleep_co(20 * LEASE_NS);
    member = enter_co(arg);
    check_replaced_co(member, epoch);
    leave_co(member);
    world.done++;
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    run(empty_task);
    run(first_task);
    run(replace_task);
    do {
        crash_step++;
        crashed = false;
        run(crash_task);
    } while (crashed);
    CHECK(crash_step > 15);
    printf("%u steps\n", crash_step);
    return 0;
}
