/*
 * A change that never comes to an end ends all the same: its function asks for another long value each time that it
 * is asked, so that none of those that were written is the right one. TIMEOUT after ten leases; after two
 * when the table is being closed.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { VALUE_BYTES = 200 };

static const struct engine_shape shape = {.key_max = 8, .value_inline = 16, .node_bytes = 1024};

static struct {
    uint64_t calls;
    uint8_t value[VALUE_BYTES];
    bool done;
} world;

static struct engine_change another(void *context, const struct slice *old)
{
    (void)context;
    (void)old;
    world.calls++;
    memcpy(world.value, &world.calls, sizeof(world.calls));
    return (struct engine_change){ENGINE_STORE, slice_of(world.value, VALUE_BYTES)};
}

static void change_co(struct engine *engine, uint64_t leases)
{
    uint64_t key, begin_ns = rt_now_ns();
    enum pando_status status = engine_modify_co(engine, number_key(1, &key), 0, another, NULL);
    uint64_t took_ns = rt_now_ns() - begin_ns;
    CHECK_STATUS(status, PANDO_TIMEOUT);
    if (took_ns > (leases + 1) * LEASE_NS)
        CHECK_FAIL("it took %" PRIu64 " leases, %" PRIu64 " calls", took_ns / LEASE_NS,
                   world.calls);
}

static void user_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t key;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &shape));
    dex_attach_co(&self, &engine);
    CHECK_OK(engine_put_co(engine, number_key(1, &key), slice_of("a", 1), ENGINE_UPSERT));
    change_co(engine, 10);
    atomic_bool *closing = &dex_of(engine)->table->owners.closing;
    atomic_store(closing, true);
    change_co(engine, 2);
    atomic_store(closing, false);
    CHECK_OK(engine_put_co(engine, number_key(1, &key), slice_of("b", 1), ENGINE_UPSERT));
    dex_end_co(&self, engine);
    world.done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 3, 33);
    dex_world_run(&place, user_task, NULL);
    CHECK(world.done);
    printf("%" PRIu64 " calls\n", world.calls);
    return 0;
}
