/*
 * Keys change their owner while an answer of the pool is lost: what was asked was done, but who
 * asked is not told, and its connection breaks. One moment after the other is tried, so that every
 * step is met.
 *
 * An owner dies with all that it wrote in its log only: whoever takes over has it, even if the map
 * has changed and what follows that fails. Another gives its keys away, and when that has failed
 * cannot try again: it goes on with them only if the map in the pool still says that they are its
 * own.
 */
#include "owners/owners_int.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { KEYS = 100, DEATHS = 240, GIFTS = 60, TRIES = 200 };

static const uint64_t STEP_NS = 500;
static const uint64_t LOST_NS = 1000; /* less than a round trip: seldom two of one task */

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static struct world {
    struct dex_world place;
    uint64_t moment_ns;
    bool written, opened, given, changed, seen, done;
    uint64_t heir; /* who gets the keys */
    unsigned kept; /* gifts that came to nothing */
} world;

static void open_co(struct dex_member *self, struct engine **engine)
{
    CHECK_OK(dex_open_co(self, "t", NULL));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

static void close_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
    dex_leave_co(self);
}

static void wait_co(const bool *flag)
{
    while (!*flag)
        rt_sleep_co(LEASE_NS / 4);
}

/* The first owner: writes all keys, and waits until the other has the table open. */
static void begin_co(struct fabric *fabric, struct dex_member *self, struct engine **engine)
{
    uint64_t key;
    dex_join_co(fabric, self);
    CHECK_OK(engine_create_co(&dex_engine, self->session, "t", &shape));
    open_co(self, engine);
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(
            engine_put_co(*engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
    world.written = true;
    wait_co(&world.opened);
}

static void lose_task(void *arg)
{
    (void)arg;
    rt_sleep_co(world.moment_ns);
    fabric_sim_lose_answers(world.place.net, 1);
    rt_sleep_co(LOST_NS);
    fabric_sim_lose_answers(world.place.net, 0);
}

static enum pando_status get_co(struct engine *engine, uint64_t number, uint64_t *value)
{
    uint64_t key;
    size_t size;
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < TRIES && (status == PANDO_BROKEN || status == PANDO_TIMEOUT); i++)
        status = engine_get_co(engine, number_key(number, &key), value, sizeof(*value), &size);
    return status;
}

static void check_co(struct engine *engine, uint64_t number)
{
    uint64_t key, value = 0;
    CHECK_OK(get_co(engine, number, &value));
    (void)number_key(number, &key);
    CHECK_EQ_U64(value, key);
}

/* The second: knows whose the keys are. */
static uint64_t follow_co(struct fabric *fabric, struct dex_member *self, struct engine **engine)
{
    wait_co(&world.written);
    dex_join_co(fabric, self);
    open_co(self, engine);
    check_co(*engine, 0);
    const struct dex_table *table = dex_of(*engine)->table;
    uint64_t owner = atomic_load(&table->owners.map)->parts[0].owner;
    CHECK(owner != 0 && owner != owners_self(&table->owners));
    world.heir = owners_self(&table->owners);
    world.opened = true;
    return owner;
}

/* ---- taking over ----------------------------------------------------------------------------- */

static void mortal_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    begin_co(arg, &self, &engine);
    fabric_sim_kill(arg);
    close_co(&self, engine);
}

static void heir_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t owner = follow_co(arg, &self, &engine);
    bool gone = false;

    while (!gone) {
        rt_sleep_co(LEASE_NS);
        CHECK_OK(owners_member_gone_co(&dex_of(engine)->owners, owner, &gone));
    }
    CHECK_OK(rt_spawn(rt_loop_self(), lose_task, NULL));
    for (uint64_t number = 0; number < KEYS; number++)
        check_co(engine, number);
    rt_sleep_co(LEASE_NS);
    close_co(&self, engine);
    world.done = true;
}

/* ---- giving away ----------------------------------------------------------------------------- */

static void giver_task(void *arg)
{
    const struct owners_range all = {.no_high = true};
    struct dex_member self;
    struct engine *engine;
    uint64_t value = 0;

    begin_co(arg, &self, &engine);
    CHECK_OK(dex_flush_co(dex_of(engine), NULL));
    pool_fail_allocations(self.pool, 2, UINT64_MAX); /* there is one map, and no second */
    CHECK_OK(rt_spawn(rt_loop_self(), lose_task, NULL));
    struct step step = owners_give_co(&dex_of(engine)->owners, &all, world.heir);
    pool_fail_allocations(self.pool, 0, 0);
    world.kept += !step_ok(step);
    rt_sleep_co(LEASE_NS);
    world.given = true;
    wait_co(&world.changed);
    CHECK_OK(get_co(engine, 0, &value));
    CHECK_EQ_U64(value, 1);
    world.seen = true;
    wait_co(&world.done);
    close_co(&self, engine);
}

static void taker_task(void *arg)
{
    static const uint64_t one = 1;
    struct dex_member self;
    struct engine *engine;
    uint64_t key;

    (void)follow_co(arg, &self, &engine);
    wait_co(&world.given);
    atomic_store(&dex_of(engine)->table->owners.map_stale, true); /* it looks at the map */
    CHECK_OK(engine_put_co(engine, number_key(0, &key), slice_of(&one, 8), ENGINE_UPSERT));
    world.changed = true;
    wait_co(&world.seen);
    close_co(&self, engine);
    world.done = true;
}

static void run(unsigned moment, rt_fn first, rt_fn second)
{
    unsigned kept = world.kept;
    world = (struct world){.moment_ns = moment * STEP_NS, .kept = kept};
    dex_world_build(&world.place, moment + 1, 17);
    dex_world_run(&world.place, first, second);
    CHECK(world.done);
}

int main(void)
{
    for (unsigned i = 0; i < DEATHS; i++)
        run(i, mortal_task, heir_task);
    for (unsigned i = 0; i < GIFTS; i++)
        run(i, giver_task, taker_task);
    printf("%u of %d gifts came to nothing\n", world.kept, GIFTS);
    CHECK(world.kept < GIFTS);
    return 0;
}
