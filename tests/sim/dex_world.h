/*
 * dex_world.h - what the tests of DEX tables whose users die share: a simulated pool of one memory node,
 * two compute nodes with a task each, and joining, opening and leaving.
 */
#ifndef TESTS_SIM_DEX_WORLD_H
#define TESTS_SIM_DEX_WORLD_H

#include "engine/engine.h"
#include "sim/pool_world.h"
#include "tree/dex/dex.h"
#include "tree/dex/pushdown/memory_side.h"

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

struct dex_world {
    struct fabric_sim *net;
    struct fabric *memory, *members[2];
    struct memnode *memnode;
};

static inline void dex_world_build_on(struct dex_world *world, uint64_t seed, size_t chunks,
                                      const struct sim_nic_model *model)
{
    struct fabric_sim_options options = {.seed = seed, .model = model};
    struct memnode_options memnode = {
        .grace_ns = LEASE_NS, .seed = 100, .work = dex_memory_pushdown};
    char error[256];

    log_set_level(LOG_LEVEL_ERROR);
    *world = (struct dex_world){.net = fabric_sim_create(&options)};
    pool_world_add_memory(world->net, 0, chunks * POOL_CHUNK_BYTES, 1, &world->memory);
    CHECK_OK(memnode_open(world->memory, &memnode, &world->memnode, error, sizeof(error)));
    for (unsigned i = 0; i < 2; i++)
        pool_world_add_client(world->net, i, 1 << 20, 1, &world->members[i]);
}

static inline void dex_world_build(struct dex_world *world, uint64_t seed, size_t chunks)
{
    dex_world_build_on(world, seed, chunks, sim_nic_model("cx5"));
}

/* Each task gets its fabric; second may be NULL. Until nothing is left to do; the world ends with it. */
static inline void dex_world_run(struct dex_world *world, rt_fn first, rt_fn second)
{
    CHECK_OK(rt_spawn(fabric_sim_loop(world->members[0], 0), first, world->members[0]));
    if (second != NULL)
        CHECK_OK(rt_spawn(fabric_sim_loop(world->members[1], 0), second, world->members[1]));
    CHECK(sim_run(fabric_sim_world(world->net), 60 * RT_NS_PER_S) == SIM_QUIET);
    fabric_sim_destroy(world->net);
    memnode_close(world->memnode);
}

struct dex_member {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
};

static inline void dex_join_co(struct fabric *fabric, struct dex_member *self)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
}

static inline enum pando_status dex_open_switched_co(struct dex_member *self, const char *name,
                                                     const char *without, const char *with)
{
    struct engine_config config = {
        .kept = true, .cache_bytes = 1 << 20, .without = without, .with = with};
    char error[256] = "";
    return engine_open_co(&dex_engine, self->session, name, &config, &self->table, error,
                          sizeof(error));
}

static inline enum pando_status dex_open_co(struct dex_member *self, const char *name,
                                            const char *without)
{
    return dex_open_switched_co(self, name, without, NULL);
}

static inline void dex_leave_co(struct dex_member *self)
{
    pool_world_leave_co(self->pool, self->session);
}

/* Opens table "t" and attaches to it. */
static inline void dex_attach_co(struct dex_member *self, struct engine **engine)
{
    CHECK_OK(dex_open_co(self, "t", NULL));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

/* Ends what dex_join_co and attaching to a table of any engine began. */
static inline void dex_end_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
    dex_leave_co(self);
}

#endif
