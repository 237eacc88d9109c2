/*
 * Keys change their owner while an answer of the pool is lost: what was asked was done, but who asked is not told, and
 * its connection breaks. One moment after the other is tried, so that every step of a take-over is met. Nothing that
 * was acknowledged is lost.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { KEYS = 100, MOMENTS = 240, TRIES = 200 };

static const uint64_t STEP_NS = 500;
static const uint64_t LOST_NS = 1000; /* less than a round trip: seldom two of one task */

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static struct world {
    struct dex_world place;
    uint64_t moment_ns;
    bool written, opened, done;
} world;

static void open_co(struct dex_member *self, struct engine **engine)
{
    CHECK_OK(dex_open_co(self, "t", NULL));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

/* Dies with all that it wrote in its log only. */
static void owner_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t key;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &shape));
    open_co(&self, &engine);
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(engine_put_co(engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
    world.written = true;
    while (!world.opened)
        rt_sleep_co(LEASE_NS);
    fabric_sim_kill(arg);
    engine_detach_co(engine);
    engine_close_co(self.table, self.session);
    dex_leave_co(&self);
}

static void lose_task(void *arg)
{
    (void)arg;
    rt_sleep_co(world.moment_ns);
    fabric_sim_lose_answers(world.place.net, 1);
    rt_sleep_co(LOST_NS);
    fabric_sim_lose_answers(world.place.net, 0);
}

static enum pando_status get_co(struct engine *engine, uint64_t number)
{
    uint64_t key, value = 0;
    size_t size;
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < TRIES && (status == PANDO_BROKEN || status == PANDO_TIMEOUT); i++)
        status = engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size);
    if (status == PANDO_OK)
        CHECK_EQ_U64(value, key);
    return status;
}

static void heir_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    bool gone = false;

    while (!world.written)
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self);
    open_co(&self, &engine);
    CHECK_OK(get_co(engine, 0)); /* so that it knows whose they are */
    const struct dex_table *table = dex_of(engine)->table;
    uint64_t owner = atomic_load(&table->map)->parts[0].owner;
    CHECK(owner != 0 && owner != dex_self(table));
    world.opened = true;
    while (!gone) {
        rt_sleep_co(LEASE_NS);
        CHECK_OK(dex_gone_co(dex_of(engine), owner, &gone));
    }
    CHECK_OK(rt_spawn(rt_loop_self(), lose_task, NULL));
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(get_co(engine, number));
    rt_sleep_co(LEASE_NS);
    engine_detach_co(engine);
    engine_close_co(self.table, self.session);
    dex_leave_co(&self);
    world.done = true;
}

int main(void)
{
    for (unsigned i = 0; i < MOMENTS; i++) {
        world = (struct world){.moment_ns = i * STEP_NS};
        dex_world_build(&world.place, i + 1, 17);
        dex_world_run(&world.place, owner_task, heir_task);
        CHECK(world.done);
    }
    return 0;
}
