/*
 * Tables whose creator does not come to an end: whoever opens one makes its tree, but never that of
 * another table that has got its place in the directory; and a creator that fails takes back only
 * what nobody uses.
 */
#include "base/log.h"
#include "engine/entry.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "tree/dex/dex.h"
#include "tree/page/page_fmt.h"

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;
static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static struct world {
    struct fabric_sim *net;
    struct fabric *memory, *creator, *opener;
    const char *name; /* that the opener is to open; NULL: none */
    enum pando_status opened;
    bool over;
    unsigned done;
} world;

struct member {
    struct pool *pool;
    struct pool_session *session;
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
    world.done++;
}

static enum pando_status open_co(struct member *self, const char *name)
{
    struct engine_config config = {.kept = true, .cache_bytes = 1 << 20};
    struct engine_table *table;
    char error[256] = "";
    enum pando_status status =
        engine_open_co(&dex_engine, self->session, name, &config, &table, error, sizeof(error));
    if (status == PANDO_OK)
        engine_close_co(table, self->session);
    return status;
}

static void opener_task(void *arg)
{
    struct member self;
    join_co(arg, &self);
    while (!world.over) {
        rt_sleep_co(LEASE_NS / 8);
        if (world.name == NULL)
            continue;
        world.opened = open_co(&self, world.name);
        world.name = NULL;
    }
    leave_co(&self);
}

/* A name without a tree. */
static struct engine_entry enter_co(struct member *self, const char *name)
{
    struct engine_entry entry;
    CHECK_OK(engine_entry_create_co(self->session, name, &dex_engine, PAGE_FORMAT_VERSION, &shape,
                                    &entry));
    return entry;
}

static void creator_task(void *arg)
{
    struct member self;
    struct pool_entry found;
    unsigned slot;
    uint64_t root;

    join_co(arg, &self);

    /* While it is waited for, its place becomes another's. */
    struct engine_entry first = enter_co(&self, "first");
    world.name = "first";
    rt_sleep_co(LEASE_NS);
    CHECK_OK(pool_table_drop_co(self.session, "first"));
    struct engine_entry second = enter_co(&self, "second");
    CHECK(second.slot == first.slot && second.table != first.table);
    while (world.name != NULL)
        rt_sleep_co(LEASE_NS);
    CHECK_STATUS(world.opened, PANDO_NOT_FOUND);
    CHECK_OK(pool_root_read_co(self.session, second.slot, &root));
    CHECK_EQ_U64(root, 0);
    CHECK_OK(open_co(&self, "second"));

    /* Somebody has made the tree meanwhile. */
    struct engine_entry third = enter_co(&self, "third");
    world.name = "third";
    while (world.name != NULL)
        rt_sleep_co(LEASE_NS);
    CHECK_OK(world.opened);
    CHECK_STATUS(pool_table_undo_co(self.session, third.slot, third.table), PANDO_EXISTS);
    CHECK_OK(open_co(&self, "third"));

    /* Nobody has; and then the name is another's. */
    struct engine_entry fourth = enter_co(&self, "fourth");
    CHECK_OK(pool_table_undo_co(self.session, fourth.slot, fourth.table));
    CHECK_STATUS(pool_table_open_co(self.session, "fourth", &slot, &found), PANDO_NOT_FOUND);
    (void)enter_co(&self, "fourth");
    CHECK_STATUS(pool_table_undo_co(self.session, fourth.slot, fourth.table), PANDO_NOT_FOUND);
    CHECK_OK(pool_table_open_co(self.session, "fourth", &slot, &found));
    world.over = true;
    leave_co(&self);
}

static struct fabric *compute_node(uint16_t number)
{
    struct fabric_sim_node_options options = {
        .node = number, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1};
    struct fabric *fabric;
    CHECK_OK(fabric_sim_add(world.net, &options, &fabric));
    return fabric;
}

int main(void)
{
    struct fabric_sim_options options = {.seed = 5, .model = sim_nic_model("cx5")};
    struct fabric_sim_node_options node = {.target = FABRIC_MEMORY,
                                           .host_bytes = (size_t)9 * POOL_CHUNK_BYTES,
                                           .device_bytes = MEMNODE_DEVICE_BYTES,
                                           .threads = 1};
    struct memnode_options memnode_options = {.grace_ns = LEASE_NS, .seed = 100};
    struct memnode *memnode;
    char error[256];

    log_set_level(LOG_LEVEL_ERROR);
    world.net = fabric_sim_create(&options);
    CHECK_OK(fabric_sim_add(world.net, &node, &world.memory));
    CHECK_OK(memnode_open(world.memory, &memnode_options, &memnode, error, sizeof(error)));
    world.creator = compute_node(0x8000);
    world.opener = compute_node(0x8001);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.creator, 0), creator_task, world.creator));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.opener, 0), opener_task, world.opener));
    CHECK(sim_run(fabric_sim_world(world.net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done == 2);
    fabric_sim_destroy(world.net);
    memnode_close(memnode);
    return 0;
}
