/*
 * What was refused stays refused: a put that found no room in a full pool is not done by whoever takes
 * over from its owner, and does not keep anybody from taking over.
 */
#include "pool/block_fmt.h"
#include "pool/pool_int.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"

enum { PAGE_BYTES = 1024, KEYS_BEFORE = 1000, KEYS_MAX = 10000, TRIES = 100 };

static struct world {
    struct fabric *owner;
    const char *without, *with;
    uint64_t refused; /* the key that was; 0: none yet */
    bool done;
} world;

struct member {
    struct dex_member base;
    struct engine *engine;
};

static void come_co(struct member *self)
{
    CHECK_OK(dex_open_switched_co(&self->base, "t", world.without, world.with));
    CHECK_OK(engine_attach_co(self->base.table, self->base.session, &self->engine));
}

static void go_co(struct member *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->base.table, self->base.session);
    dex_leave_co(&self->base);
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
    while ((status = pool_alloc_co(self->base.session, 0, block_bytes, &block)) == PANDO_OK) {
        struct fabric_op write = fabric_write(
            fabric_address_offset(block.address) + POOL_BLOCK_TENURE, &word, sizeof(word));
        CHECK_OK(pool_submit_co(self->base.session, 0, &write, 1));
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

    dex_join_co(arg, &self.base);
    CHECK_OK(engine_create_co(&dex_engine, self.base.session, "t", &shape));
    come_co(&self);
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
    go_co(&self);
}

static void heir_task(void *arg)
{
    struct member self;
    enum pando_status status = PANDO_AGAIN;

    while (world.refused == 0)
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self.base);
    come_co(&self);
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
    go_co(&self);
    world.done = true;
}

static void run(const char *without, const char *with)
{
    struct dex_world place;
    dex_world_build(&place, 5, 33);
    world = (struct world){.owner = place.members[0], .without = without, .with = with};
    dex_world_run(&place, owner_task, heir_task);
    CHECK(world.done);
}

int main(void)
{
    run(NULL, NULL);
    run("cache", "offload-only"); /* changes that a memory node would not make */
    return 0;
}
