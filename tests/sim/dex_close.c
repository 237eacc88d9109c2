/*
 * A table is closed by a process that lives on, while nothing can be allocated: neither can its pages be
 * written back, nor its keys be given away. What it acknowledged is in its log, and no other process may wait for
 * it for ever: it gives itself up, and others take over.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"

enum { KEYS = 300, TRIES = 200 };

static struct world {
    bool closed, done;
} world;

static void owner_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t key;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    dex_attach_co(&self, &engine);
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(engine_put_co(engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
    pool_fail_allocations(self.pool, 1, UINT64_MAX);
    engine_detach_co(engine);
    engine_close_co(self.table, self.session);
    pool_fail_allocations(self.pool, 0, 0);
    world.closed = true;
    while (!world.done)
        rt_sleep_co(LEASE_NS);
    dex_leave_co(&self);
}

static void heir_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t key, value;
    size_t size;
    enum pando_status status = PANDO_AGAIN;

    while (!world.closed)
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self);
    dex_attach_co(&self, &engine);
    for (int i = 0; i < TRIES && status != PANDO_OK; i++)
        status = engine_get_co(engine, number_key(0, &key), &value, sizeof(value), &size);
    CHECK_OK(status);
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size));
    dex_end_co(&self, engine);
    world.done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 5, 17);
    dex_world_run(&place, owner_task, heir_task);
    CHECK(world.done);
    return 0;
}
