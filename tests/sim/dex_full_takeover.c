/*
 * The owner of a pool that is full dies. Whoever comes then, with nothing at hand, takes over: everything that was
 * acknowledged is there, it can be changed and deleted, and when that has freed memory new pairs can be put.
 * What is left of the reserve does for it, although others have used most of it, each for blocks of another
 * size. The one that takes over may die at any point of it, with changes of pages half done that are in slots from
 * the reserve, and the next takes over from it.
 */
#include <stdlib.h>

#include "pool/block_fmt.h"
#include "pool/intent_fmt.h"
#include "pool/pool_int.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"

enum {
    CHUNKS = 18, /* of which the pool has 17, and its reserve one */
    PAGE_BYTES = 1024,
    LATER_BYTES = 4 * 1024, /* of what others need while the pool is full */
    LAST_BYTES = 256 * 1024,
    KEYS_BEFORE = 4000,
    KEYS_MAX = 20000,
    TRIES = 400,
    DEATHS = 30,
    DEATH_EVERY = 61, /* operations */
};

static struct world {
    struct dex_world place;
    uint64_t seed;
    uint64_t dies_at; /* operation of the first heir; 0: it does not */
    bool owner_ready, first_done, second_done;
    uint64_t keys;                             /* 1 to this were acknowledged */
    uint64_t value[KEYS_MAX], tried[KEYS_MAX]; /* what a key has, or may have */
    unsigned last_used;                        /* times that it took all of the reserve */
} world;

struct member {
    struct dex_member base;
    struct engine *engine;
};

static void come_co(struct member *self)
{
    CHECK_OK(dex_open_switched_co(&self->base, "t", NULL, "small-log"));
    CHECK_OK(engine_attach_co(self->base.table, self->base.session, &self->engine));
}

static void go_co(struct member *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->base.table, self->base.session);
    dex_leave_co(&self->base);
}

static enum pando_status put_co(struct member *self, uint64_t number, uint64_t value)
{
    uint64_t key;
    enum pando_status status = engine_put_co(self->engine, number_key(number, &key),
                                             slice_of(&value, sizeof(value)), ENGINE_UPSERT);
    if (status == PANDO_OK)
        world.value[number] = world.tried[number] = value;
    else if (status != PANDO_FULL)
        world.tried[number] = value;
    return status;
}

static enum pando_status delete_co(struct member *self, uint64_t number)
{
    uint64_t key;
    return engine_delete_co(self->engine, number_key(number, &key));
}

static void check_co(struct member *self, uint64_t number)
{
    uint64_t key, value = 0;
    size_t size;
    enum pando_status status =
        engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
    if (status != PANDO_OK || (value != world.value[number] && value != world.tried[number]))
        CHECK_FAIL("seed %" PRIu64 ", death at %" PRIu64 ": key %" PRIu64 " is %" PRIu64
                   " instead of %" PRIu64 ": %s",
                   world.seed, world.dies_at, number, value, world.value[number],
                   pando_status_text(status));
    world.value[number] = world.tried[number] = value;
}

/* Takes a block for good: it belongs to a table. */
static void keep_co(struct member *self, const struct pool_block *block)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE, .kind = 99, .table = 999};
    uint64_t word = pool_tenure_pack(tenure);
    struct fabric_op write = fabric_write(fabric_address_offset(block->address) + POOL_BLOCK_TENURE,
                                          &word, sizeof(word));
    CHECK_OK(pool_submit_co(self->base.session, 0, &write, 1));
}

/* All memory of the pool but its reserve. */
static void hog_co(struct member *self, uint32_t block_bytes)
{
    struct pool_block block;
    enum pando_status status;
    while ((status = pool_alloc_co(self->base.session, 0, block_bytes, &block)) == PANDO_OK)
        keep_co(self, &block);
    CHECK_STATUS(status, PANDO_FULL);
}

/* What a table of another shape needs while the pool is full, until there is nothing more for it. */
static void need_co(struct member *self, uint32_t block_bytes)
{
    struct pool_block block;
    if (pool_vital_alloc_co(self->base.session, block_bytes, &block) == PANDO_OK)
        keep_co(self, &block);
}

static void owner_task(void *arg)
{
    struct engine_shape shape = {
        .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = PAGE_BYTES};
    struct member self;
    enum pando_status status = PANDO_OK;

    dex_join_co(arg, &self.base);
    CHECK_OK(engine_create_co(&dex_engine, self.base.session, "t", &shape));
    come_co(&self);
    while (world.keys < KEYS_BEFORE)
        CHECK_OK(put_co(&self, ++world.keys, 1));
    hog_co(&self, POOL_CHUNK_BYTES);
    hog_co(&self, PAGE_BYTES);
    need_co(&self, LATER_BYTES);
    while (world.keys < KEYS_MAX - 1 && status == PANDO_OK) {
        status = put_co(&self, world.keys + 1, 1);
        world.keys += status == PANDO_OK;
    }
    CHECK_STATUS(status, PANDO_FULL);
    for (uint64_t number = 1; number <= world.keys; number += 7)
        CHECK_OK(put_co(&self, number, 2));
    world.owner_ready = true;
    while (!fabric_sim_dead(arg))
        rt_sleep_co(LEASE_NS);
    go_co(&self);
}

static bool last_chunk_used(void)
{
    struct pool_node_stats stats;
    memnode_stats(world.place.memnode, &stats);
    return stats.chunks_free == 0;
}

static void take_over_co(struct member *self)
{
    enum pando_status status = PANDO_AGAIN;
    for (int i = 0; i < TRIES && status != PANDO_OK && !fabric_sim_dead(world.place.members[1]);
         i++) {
        status = put_co(self, 1, 3);
        rt_sleep_co(LEASE_NS);
    }
    if (status != PANDO_OK && !fabric_sim_dead(world.place.members[1]))
        CHECK_FAIL("seed %" PRIu64 ": a full pool is not taken over: %s", world.seed,
                   pando_status_text(status));
}

/* Others have used what the owner's death left of memory before this one comes to it. */
static void first_heir_task(void *arg)
{
    struct member self;
    struct fabric *fabric = arg;

    while (!world.owner_ready)
        rt_sleep_co(LEASE_NS);
    dex_join_co(fabric, &self.base);
    come_co(&self);
    fabric_sim_kill(world.place.members[0]);
    while (pool_recoveries(self.base.pool) == 0)
        rt_sleep_co(LEASE_NS);
    need_co(&self, LATER_BYTES);
    need_co(&self, LAST_BYTES);
    rt_sleep_co(2 * pool_grace_ns(self.base.pool));
    for (int i = 0; i < TRIES && !last_chunk_used(); i++)
        need_co(&self, INTENT_SLOT_BLOCK);
    if (world.dies_at != 0)
        fabric_sim_kill_at(fabric, fabric_sim_posted(fabric) + world.dies_at);
    take_over_co(&self);
    world.last_used += last_chunk_used();
    for (uint64_t number = 1; number <= world.keys && !fabric_sim_dead(fabric); number++) {
        rt_sleep_co(RT_NS_PER_US); /* the lease is renewed meanwhile */
        enum pando_status status = put_co(&self, number, 4);
        CHECK(status == PANDO_OK || fabric_sim_dead(fabric));
    }
    go_co(&self);
    world.first_done = true;
}

static void second_heir_task(void *arg)
{
    struct member self;

    dex_join_co(arg, &self.base);
    come_co(&self);
    for (int i = 0; i < TRIES && put_co(&self, 1, 5) != PANDO_OK; i++)
        rt_sleep_co(LEASE_NS);
    for (uint64_t number = 1; number <= world.keys; number++) {
        rt_sleep_co(RT_NS_PER_US);
        check_co(&self, number);
    }
    CHECK_STATUS(put_co(&self, world.keys + 1, 1), PANDO_FULL);
    for (uint64_t number = 1; number <= world.keys; number++) {
        rt_sleep_co(RT_NS_PER_US);
        if (number % 8 != 0)
            CHECK_OK(delete_co(&self, number));
    }
    rt_sleep_co(2 * pool_grace_ns(self.base.pool));
    for (uint64_t number = 1; number <= world.keys / 4; number++) {
        rt_sleep_co(RT_NS_PER_US);
        CHECK_OK(put_co(&self, number, 6));
        check_co(&self, number);
    }
    go_co(&self);
    world.second_done = true;
}

/* When the first heir is done or dead, another comes, on the machine of the owner. */
static void director_task(void *arg)
{
    (void)arg;
    while (!world.first_done)
        rt_sleep_co(LEASE_NS);
    CHECK_OK(fabric_sim_restart(world.place.members[0], false, &world.place.members[0]));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.place.members[0], 0), second_heir_task,
                      world.place.members[0]));
}

static void run(uint64_t seed, uint64_t dies_at)
{
    unsigned last_used = world.last_used;
    world = (struct world){.seed = seed, .dies_at = dies_at, .last_used = last_used};
    dex_world_build(&world.place, seed, CHUNKS);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.place.memory, 0), director_task, NULL));
    dex_world_run(&world.place, owner_task, first_heir_task);
    CHECK(world.second_done);
}

int main(void)
{
    run(5, 0);
    for (uint64_t i = 1; i <= DEATHS; i++)
        run(5 + i, i * DEATH_EVERY);
    printf("%u of %d took over with the last chunk of the reserve\n", world.last_used, DEATHS + 1);
    CHECK(world.last_used > DEATHS / 2);
    return 0;
}
