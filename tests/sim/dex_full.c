/*
 * What was refused stays refused: a put that found no room in a full pool is not done by whoever takes
 * over from its owner, and does not keep anybody from taking over.
 */
#include "base/log.h"
#include "engine/engine.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/block_fmt.h"
#include "pool/memnode.h"
#include "tree/dex/dex.h"
#include "tree/dex/memory_side.h"

enum { PAGE_BYTES = 1024, KEYS_BEFORE = 1000, KEYS_MAX = 10000, TRIES = 100 };

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

static struct world {
    struct fabric_sim *net;
    struct fabric *memory, *owner, *heir;
    const char *without;
    uint64_t refused; /* the key that was; 0: none yet */
    bool done;
} world;

struct member {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static struct slice number_key(uint64_t number, uint64_t *bytes)
{
    *bytes = __builtin_bswap64(number);
    return slice_of(bytes, sizeof(*bytes));
}

static void join_co(struct fabric *fabric, struct member *self)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
}

static void open_co(struct member *self)
{
    struct engine_config config = {.kept = true, .cache_bytes = 1 << 20, .without = world.without};
    char error[256] = "";
    CHECK_OK(engine_open_co(&dex_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void leave_co(struct member *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_session_close_co(self->session);
    pool_leave_co(self->pool);
}

static enum pando_status put_co(struct member *self, uint64_t number)
{
    uint64_t key, value = number;
    return engine_put_co(self->engine, number_key(number, &key), slice_of(&value, sizeof(value)),
                         ENGINE_UPSERT);
}

static enum pando_status get_co(struct member *self, uint64_t number)
{
    uint64_t key, value = 0;
    size_t size;
    enum pando_status status =
        engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
    CHECK(status != PANDO_OK || value == number);
    return status;
}

/* All memory of the pool but its reserve, for good. */
static void hog_co(struct member *self, uint32_t block_bytes)
{
    struct pool_block block;
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE, .kind = 99, .table = 999};
    uint64_t word = pool_tenure_pack(tenure);
    enum pando_status status;
    while ((status = pool_alloc_co(self->session, 0, block_bytes, &block)) == PANDO_OK) {
        struct fabric_op write = fabric_write(
            fabric_address_offset(block.address) + POOL_BLOCK_TENURE, &word, sizeof(word));
        CHECK_OK(pool_submit_co(self->session, 0, &write, 1));
    }
    CHECK_STATUS(status, PANDO_FULL);
}

static void owner_task(void *arg)
{
    struct engine_shape shape = {
        .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = PAGE_BYTES};
    struct member self;
    uint64_t number = 0, key, value;
    enum pando_status status = PANDO_OK;

    join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &shape));
    open_co(&self);
    while (number < KEYS_BEFORE)
        CHECK_OK(put_co(&self, ++number));
    hog_co(&self, POOL_CHUNK_BYTES);
    hog_co(&self, PAGE_BYTES);
    while (number < KEYS_MAX && status == PANDO_OK)
        status = put_co(&self, ++number);
    CHECK_STATUS(status, PANDO_FULL);
    value = number;
    struct engine_batch_op op = {.kind = ENGINE_BATCH_PUT,
                                 .key = number_key(number, &key),
                                 .value = slice_of(&value, sizeof(value))};
    engine_batch_co(self.engine, &op, 1, 2);
    CHECK_STATUS(op.status, PANDO_FULL);
    CHECK_STATUS(get_co(&self, number), PANDO_NOT_FOUND);
    CHECK_OK(put_co(&self, 1)); /* and what the log had before is in the pool */
    world.refused = number;
    while (!fabric_sim_dead(world.owner))
        rt_sleep_co(LEASE_NS);
    leave_co(&self);
}

static void heir_task(void *arg)
{
    struct member self;
    enum pando_status status = PANDO_AGAIN;

    while (world.refused == 0)
        rt_sleep_co(LEASE_NS);
    join_co(arg, &self);
    open_co(&self);
    fabric_sim_kill(world.owner);
    for (int i = 0; i < TRIES && status != PANDO_OK; i++) {
        status = get_co(&self, 1);
        rt_sleep_co(LEASE_NS);
    }
    CHECK_OK(status);
    for (uint64_t number = 1; number < world.refused; number++) {
        rt_sleep_co(RT_NS_PER_US); /* the lease is renewed meanwhile */
        CHECK_OK(get_co(&self, number));
    }
    CHECK_STATUS(get_co(&self, world.refused), PANDO_NOT_FOUND);
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

static void run(const char *without)
{
    struct fabric_sim_options options = {.seed = 5, .model = sim_nic_model("cx5")};
    struct fabric_sim_node_options node = {.target = FABRIC_MEMORY,
                                           .host_bytes = (size_t)33 * POOL_CHUNK_BYTES,
                                           .device_bytes = MEMNODE_DEVICE_BYTES,
                                           .threads = 1};
    struct memnode_options memnode_options = {
        .grace_ns = LEASE_NS, .seed = 100, .work = dex_memory_work};
    struct memnode *memnode;
    char error[256];

    world = (struct world){.net = fabric_sim_create(&options), .without = without};
    CHECK_OK(fabric_sim_add(world.net, &node, &world.memory));
    CHECK_OK(memnode_open(world.memory, &memnode_options, &memnode, error, sizeof(error)));
    world.owner = compute_node(0x8000);
    world.heir = compute_node(0x8001);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.owner, 0), owner_task, world.owner));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.heir, 0), heir_task, world.heir));
    CHECK(sim_run(fabric_sim_world(world.net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    fabric_sim_destroy(world.net);
    memnode_close(memnode);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    run(NULL);
    run("cache,+offload-only"); /* changes that a memory node would not make */
    return 0;
}
