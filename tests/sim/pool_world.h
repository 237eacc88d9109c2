/*
 * pool_world.h - a simulated pool: memory nodes that can be killed and started again, compute nodes, and
 * joining and leaving.
 */
#ifndef TESTS_SIM_POOL_WORLD_H
#define TESTS_SIM_POOL_WORLD_H

#include "base/log.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"

enum { POOL_WORLD_MEMORIES_MAX = 4, POOL_WORLD_CLIENTS_MAX = 5, POOL_WORLD_CLIENT = 0x8000 };

/* ---- single nodes ---------------------------------------------------------------------------- */

static inline void pool_world_add_memory(struct fabric_sim *net, unsigned i, uint64_t bytes,
                                         unsigned threads, struct fabric **out)
{
    struct fabric_sim_node_options node = {.node = (uint16_t)i,
                                           .target = FABRIC_MEMORY,
                                           .host_bytes = bytes,
                                           .device_bytes = MEMNODE_DEVICE_BYTES,
                                           .threads = threads};
    CHECK_OK(fabric_sim_add(net, &node, out));
}

static inline void pool_world_add_client(struct fabric_sim *net, unsigned i, uint64_t bytes,
                                         unsigned threads, struct fabric **out)
{
    struct fabric_sim_node_options node = {.node = (uint16_t)(POOL_WORLD_CLIENT + i),
                                           .target = FABRIC_COMPUTE,
                                           .host_bytes = bytes,
                                           .threads = threads};
    CHECK_OK(fabric_sim_add(net, &node, out));
}

/* ---- the world ------------------------------------------------------------------------------- */

struct pool_world_options {
    struct fabric_sim_options net;  /* model NULL: a ConnectX-5 */
    struct memnode_options memnode; /* grace_ns 0: a lease; each start adds one to the seed */
    unsigned memories, clients;
    uint64_t memory_bytes;                   /* of each memory node */
    unsigned memory_threads, client_threads; /* 0: one */
    uint64_t lease_ns;
};

struct pool_world {
    struct pool_world_options options;
    struct fabric_sim *net;
    struct fabric *memory[POOL_WORLD_MEMORIES_MAX];
    struct memnode *memnodes[POOL_WORLD_MEMORIES_MAX];
    struct fabric *clients[POOL_WORLD_CLIENTS_MAX];
};

/* Opens memory node i as world->options.memnode says. */
static inline void pool_world_start(struct pool_world *world, unsigned i)
{
    char error[256];
    CHECK_OK(memnode_open(world->memory[i], &world->options.memnode, &world->memnodes[i], error,
                          sizeof(error)));
    world->options.memnode.seed++; /* a window that is formatted again becomes another pool's */
}

/* Starts a killed memory node again; without `keep`, its window is empty. */
static inline void pool_world_restart(struct pool_world *world, unsigned i, bool keep)
{
    CHECK_OK(fabric_sim_restart(world->memory[i], keep, &world->memory[i]));
    memnode_close(world->memnodes[i]);
    pool_world_start(world, i);
}

static inline void pool_world_build(struct pool_world *world,
                                    const struct pool_world_options *options)
{
    log_set_level(LOG_LEVEL_ERROR);
    *world = (struct pool_world){.options = *options};
    struct pool_world_options *with = &world->options;
    if (with->net.model == NULL)
        with->net.model = sim_nic_model("cx5");
    if (with->memnode.grace_ns == 0)
        with->memnode.grace_ns = with->lease_ns;
    if (with->memory_threads == 0)
        with->memory_threads = 1;
    if (with->client_threads == 0)
        with->client_threads = 1;
    CHECK(with->memories <= POOL_WORLD_MEMORIES_MAX && with->clients <= POOL_WORLD_CLIENTS_MAX);
    world->net = fabric_sim_create(&with->net);
    for (unsigned i = 0; i < with->memories; i++) {
        pool_world_add_memory(world->net, i, with->memory_bytes, with->memory_threads,
                              &world->memory[i]);
        pool_world_start(world, i);
    }
    for (unsigned i = 0; i < with->clients; i++)
        pool_world_add_client(world->net, i, 1 << 20, with->client_threads, &world->clients[i]);
}

/* Two small memory nodes, and two compute nodes. */
static inline struct pool_world_options pool_world_pair(uint64_t lease_ns)
{
    return (struct pool_world_options){.net = {.seed = 5},
                                       .memnode = {.seed = 100},
                                       .memories = 2,
                                       .clients = 2,
                                       .memory_bytes = 42 << 20,
                                       .lease_ns = lease_ns};
}

static inline void pool_world_build_pair(struct pool_world *world, uint64_t lease_ns)
{
    struct pool_world_options options = pool_world_pair(lease_ns);
    pool_world_build(world, &options);
}

/* Starts a task of compute node i; it gets its fabric. */
static inline void pool_world_spawn(struct pool_world *world, unsigned i, rt_fn task)
{
    CHECK_OK(rt_spawn(fabric_sim_loop(world->clients[i], 0), task, world->clients[i]));
}

/* Starts a task of memory node i; it gets NULL. */
static inline void pool_world_spawn_memory(struct pool_world *world, unsigned i, rt_fn task)
{
    CHECK_OK(rt_spawn(fabric_sim_loop(world->memory[i], 0), task, NULL));
}

/* Runs until nothing is left to do; false if that takes longer than `most_ns`. */
static inline bool pool_world_ends(struct pool_world *world, uint64_t most_ns)
{
    return sim_run(fabric_sim_world(world->net), most_ns) == SIM_QUIET;
}

static inline void pool_world_destroy(struct pool_world *world)
{
    fabric_sim_destroy(world->net);
    for (unsigned i = 0; i < world->options.memories; i++)
        memnode_close(world->memnodes[i]);
}

/* ---- members --------------------------------------------------------------------------------- */

static inline struct pool *pool_world_join_co(struct pool_world *world, struct fabric *fabric,
                                              struct pool_session **session)
{
    struct pool_options options = {.memory_nodes = (uint16_t)world->options.memories,
                                   .name = "test",
                                   .lease_ns = world->options.lease_ns};
    struct pool *pool;
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, session));
    return pool;
}

static inline void pool_world_leave_co(struct pool *pool, struct pool_session *session)
{
    pool_session_close_co(session);
    pool_leave_co(pool);
}

#endif
