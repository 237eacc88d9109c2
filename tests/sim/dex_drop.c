/*
 * A table whose dropper dies, at any of its operations: another one frees the rest and removes it.
 */
#include "base/log.h"
#include "engine/engine.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "tree/dex/dex.h"

enum { KEYS = 200, NOTHING_MORE = 5, TRIES = 1000 };

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

static struct world {
    struct fabric_sim *net;
    struct fabric *memory, *dropper, *heir;
    uint64_t after; /* the dropper dies at this operation of the drop */
    uint64_t table;
    bool dropped, done;
} world;

struct member {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
};

static void join_co(struct fabric *fabric, struct member *self)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
}

static void leave_co(struct member *self)
{
    pool_session_close_co(self->session);
    pool_leave_co(self->pool);
}

static enum pando_status open_co(struct member *self, const char *name)
{
    struct engine_config config = {.kept = true, .cache_bytes = 1 << 20};
    char error[256] = "";
    return engine_open_co(&dex_engine, self->session, name, &config, &self->table, error,
                          sizeof(error));
}

static void fill_co(struct member *self)
{
    struct engine_shape shape = {
        .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 512};
    struct engine *engine;

    CHECK_OK(engine_create_co(&dex_engine, self->session, "t", &shape));
    CHECK_OK(open_co(self, "t"));
    CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    for (uint64_t key = 1; key <= KEYS; key++)
        CHECK_OK(engine_put_co(engine, slice_of(&key, sizeof(key)), slice_of(&key, sizeof(key)),
                               ENGINE_UPSERT));
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static void dropper_task(void *arg)
{
    struct member self;
    char name[32];
    unsigned slot;

    join_co(arg, &self);
    fill_co(&self);
    CHECK_OK(pool_table_mark_co(self.session, "t", &slot, &world.table));
    snprintf(name, sizeof(name), "#%llu", (unsigned long long)world.table);
    CHECK_OK(open_co(&self, name));
    fabric_sim_kill_at(world.dropper, fabric_sim_posted(world.dropper) + world.after);
    enum pando_status status = engine_drop_co(self.table, self.session);
    world.dropped = !fabric_sim_dead(world.dropper);
    CHECK(!world.dropped || status == PANDO_OK);
    fabric_sim_kill(world.dropper);
    engine_close_co(self.table, self.session);
    leave_co(&self);
}

static bool there_co(struct member *self, unsigned *slot, struct pool_entry *entry)
{
    char name[32];
    snprintf(name, sizeof(name), "#%llu", (unsigned long long)world.table);
    enum pando_status status = pool_table_open_co(self->session, name, slot, entry);
    CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
    return status == PANDO_OK;
}

static void heir_task(void *arg)
{
    struct member self;
    struct pool_entry entry;
    char name[32];
    unsigned slot;
    enum pando_status status = PANDO_BUSY;

    join_co(arg, &self);
    while (!fabric_sim_dead(world.dropper))
        rt_sleep_co(LEASE_NS);
    rt_sleep_co(2 * RT_NS_PER_S); /* memory that it has freed is used again */
    if (there_co(&self, &slot, &entry)) {
        for (int i = 0; i < TRIES && status == PANDO_BUSY; i++) {
            rt_sleep_co(LEASE_NS);
            status = pool_table_take_over_co(self.session, slot, entry.state);
        }
        CHECK_OK(status);
        snprintf(name, sizeof(name), "#%llu", (unsigned long long)world.table);
        CHECK_OK(open_co(&self, name));
        CHECK_OK(engine_drop_co(self.table, self.session));
        engine_close_co(self.table, self.session);
        CHECK(!there_co(&self, &slot, &entry));
    }
    leave_co(&self);
    world.done = true;
}

static struct fabric *compute_node(uint16_t number)
{
    struct fabric_sim_node_options options = {
        .node = number, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1};
    struct fabric *fabric;
    CHECK_OK(fabric_sim_add(world.net, &options, &fabric));
    return fabric;
}

/* Whether the drop had ended before. */
static bool run(uint64_t after)
{
    struct fabric_sim_options options = {.seed = 5 + after, .model = sim_nic_model("cx5")};
    struct fabric_sim_node_options node = {.target = FABRIC_MEMORY,
                                           .host_bytes = (size_t)9 * POOL_CHUNK_BYTES,
                                           .device_bytes = MEMNODE_DEVICE_BYTES,
                                           .threads = 1};
    struct memnode_options memnode_options = {.grace_ns = LEASE_NS, .seed = 100};
    struct memnode *memnode;
    char error[256];

    world = (struct world){.net = fabric_sim_create(&options), .after = after};
    CHECK_OK(fabric_sim_add(world.net, &node, &world.memory));
    CHECK_OK(memnode_open(world.memory, &memnode_options, &memnode, error, sizeof(error)));
    world.dropper = compute_node(0x8000);
    world.heir = compute_node(0x8001);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.dropper, 0), dropper_task, world.dropper));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.heir, 0), heir_task, world.heir));
    CHECK(sim_run(fabric_sim_world(world.net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    bool dropped = world.dropped;
    fabric_sim_destroy(world.net);
    memnode_close(memnode);
    return dropped;
}

int main(void)
{
    unsigned ended = 0;
    log_set_level(LOG_LEVEL_ERROR);
    for (uint64_t after = 1; ended < NOTHING_MORE; after++)
        ended += run(after);
    return 0;
}
