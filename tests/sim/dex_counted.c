/*
 * A counter counts what it was told to: whatever allocation fails while it is counted up, by its owner or
 * for another, the answer is right. OK: counted once; UNKNOWN: once or not at all; anything else: not. The
 * leaf is written back with every change here, so that the write-back is what fails.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { SLOTS_MAX = 1024, ALLOCATIONS_MAX = 20 };

static struct world {
    const char *without, *with;
    struct pool *owner_pool;
    bool owned, done;
    unsigned failed, unknown;
} world;

struct member {
    struct dex_member base;
    struct engine *engine;
};

static struct engine_change count_up(void *context, const struct slice *old)
{
    uint64_t *count = context;
    *count = 0;
    if (old != NULL && old->size == sizeof(*count))
        memcpy(count, old->data, sizeof(*count));
    ++*count;
    return (struct engine_change){.what = ENGINE_STORE, .value = slice_of(count, sizeof(*count))};
}

static uint64_t count_co(struct member *self, uint64_t number)
{
    uint64_t key, count = 0;
    size_t size;
    enum pando_status status =
        engine_get_co(self->engine, number_key(number, &key), &count, sizeof(count), &size);
    CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
    return status == PANDO_OK ? count : 0;
}

/* Counts up once, and looks what came of it. */
static void try_co(struct member *self, uint64_t number)
{
    uint64_t key, context;
    uint64_t before = count_co(self, number);
    pool_fail_allocations(world.owner_pool, world.failed + 1, 1);
    enum pando_status status =
        engine_modify_co(self->engine, number_key(number, &key), false, count_up, &context);
    bool none = pool_allocations_asked(world.owner_pool) < world.failed + 1;
    pool_fail_allocations(world.owner_pool, 0, 0);
    uint64_t added = count_co(self, number) - before;
    if (status == PANDO_UNKNOWN ? added > 1 : added != (status == PANDO_OK))
        CHECK_FAIL("allocation %u failed: %s, and counted %" PRIu64 " times", world.failed + 1,
                   pando_status_text(status), added);
    world.unknown += status == PANDO_UNKNOWN;
    world.failed = none ? ALLOCATIONS_MAX : world.failed + 1;
}

static void try_all_co(struct member *self, uint64_t number)
{
    for (world.failed = 0; world.failed < ALLOCATIONS_MAX;)
        try_co(self, number);
}

/* No slot for an intent can be had for longer than anybody waits for one. */
static void starve_co(struct member *self)
{
    static fabric_address slots[SLOTS_MAX];
    unsigned count = 0;
    while (count < POOL_CHUNK_BYTES / POOL_INTENT_BYTES)
        CHECK_OK(pool_intent_take_co(self->base.session, 0, &slots[count++]));
    rt_sleep_co(15 * LEASE_NS);
    while (count > 0)
        pool_intent_give(self->base.session, slots[--count]);
}

static void open_co(struct member *self)
{
    CHECK_OK(dex_open_switched_co(&self->base, "t", world.without, world.with));
    CHECK_OK(engine_attach_co(self->base.table, self->base.session, &self->engine));
}

static void close_co(struct member *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->base.table, self->base.session);
    dex_leave_co(&self->base);
}

static void owner_task(void *arg)
{
    struct member self;
    struct number_feed feed = {.end = 1000};

    dex_join_co(arg, &self.base);
    world.owner_pool = self.base.pool;
    CHECK_OK(engine_create_co(&dex_engine, self.base.session, "t", &number_shape));
    open_co(&self);
    CHECK_OK(engine_bulk_load_co(self.engine, number_feed_next, &feed, 100));
    try_all_co(&self, 2000);
    world.owned = true;
    starve_co(&self);
    while (!world.done)
        rt_sleep_co(LEASE_NS);
    close_co(&self);
}

static void asker_task(void *arg)
{
    struct member self;
    uint64_t key, context;

    while (!world.owned)
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self.base);
    open_co(&self);
    enum pando_status status =
        engine_modify_co(self.engine, number_key(3000, &key), false, count_up, &context);
    uint64_t count = count_co(&self, 3000);
    printf("without slots: %s, counted %" PRIu64 "\n", pando_status_text(status), count);
    CHECK(status == PANDO_UNKNOWN ? count <= 1 : count == (status == PANDO_OK));
    try_all_co(&self, 2001);
    close_co(&self);
    world.done = true;
}

static void run(const char *without, const char *with)
{
    struct dex_world place;
    dex_world_build(&place, 7, 17);
    world = (struct world){.without = without, .with = with};
    dex_world_run(&place, owner_task, asker_task);
    CHECK(world.done);
}

int main(void)
{
    run("cache", NULL);
    run("cache,log", NULL);
    run("cache", "offload-only");
    return 0;
}
