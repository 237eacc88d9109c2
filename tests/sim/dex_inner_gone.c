/*
 * A process with all inner pages of a high tree in its cache gives half of the keys away. Their new owner
 * deletes most of them, so that inner pages are merged away on two levels, uses their blocks for another table,
 * and dies. The first one takes over with its former copies of these inner pages: what they lead to is not there any
 * more, nor are some of them. It must find out at their parents, not call the table damaged.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"

enum { KEYS = 40000, KEPT_EVERY = 50, AFTER = 20000, CACHE = 16 << 20, TRIES = 400 };

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 512};

static struct world {
    struct dex_world place;
    bool loaded, joined, given, dying, done;
    uint64_t first_given; /* keys from here on */
} world;

static void open_co(struct dex_member *self, const char *name, struct engine_table **table,
                    struct engine **engine)
{
    struct engine_config config = {.kept = true, .cache_bytes = CACHE};
    char error[256] = "";
    CHECK_OK(
        engine_open_co(&dex_engine, self->session, name, &config, table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(*table, self->session, engine));
}

static void await_co(const bool *what)
{
    while (!*what)
        rt_sleep_co(LEASE_NS / 4);
}

static enum pando_status get_co(struct engine *engine, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    enum pando_status status = PANDO_AGAIN;
    rt_sleep_co(RT_NS_PER_US); /* the lease is renewed meanwhile */
    for (int i = 0; i < TRIES && status != PANDO_OK && status != PANDO_NOT_FOUND; i++) {
        status = engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size);
        if (status == PANDO_CORRUPT)
            break;
    }
    return status;
}

static void giver_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct number_feed feed = {.end = KEYS};

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &shape));
    open_co(&self, "t", &self.table, &engine);
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 100));
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(get_co(engine, number));
    world.loaded = true;
    await_co(&world.joined);
    unsigned processes;
    CHECK_OK(engine_spread_co(engine, false, &processes));
    CHECK_EQ_U64(processes, 2);
    world.given = true;
    await_co(&world.dying);
    for (uint64_t number = 0; number < KEYS; number++) {
        bool there = number < world.first_given || number % KEPT_EVERY == 0;
        enum pando_status got = get_co(engine, number);
        if (got != (there ? PANDO_OK : PANDO_NOT_FOUND))
            CHECK_FAIL("key %" PRIu64 " (%" PRIu64 " was given first): %s", number,
                       world.first_given, pando_status_text(got));
    }
    dex_end_co(&self, engine);
    world.done = true;
}

static void taker_task(void *arg)
{
    struct dex_member self;
    struct engine_table *other;
    struct engine *engine, *other_engine;
    uint64_t key;

    await_co(&world.loaded);
    dex_join_co(arg, &self);
    open_co(&self, "t", &self.table, &engine);
    CHECK_OK(get_co(engine, KEYS - 1));
    world.joined = true;
    await_co(&world.given);
    CHECK_OK(get_co(engine, KEYS - 1));
    while (!engine_owns(engine, number_key(world.first_given, &key)))
        world.first_given++;
    CHECK(world.first_given > KEYS / 4 && world.first_given < KEYS / 4 * 3);
    for (uint64_t number = world.first_given; number < KEYS; number++) {
        if (number % KEPT_EVERY != 0)
            CHECK_OK(engine_delete_co(engine, number_key(number, &key)));
    }
    rt_sleep_co(3 * pool_grace_ns(self.pool));
    CHECK_OK(engine_create_co(&dex_engine, self.session, "u", &shape));
    open_co(&self, "u", &other, &other_engine);
    for (uint64_t number = 0; number < AFTER; number++)
        CHECK_OK(engine_put_co(other_engine, number_key(number, &key), slice_of(&key, 8),
                               ENGINE_UPSERT));
    world.dying = true;
    fabric_sim_kill(arg);
    engine_detach_co(other_engine);
    engine_close_co(other, self.session);
    dex_end_co(&self, engine);
}

int main(void)
{
    dex_world_build(&world.place, 5, 129);
    dex_world_run(&world.place, giver_task, taker_task);
    CHECK(world.done);
    return 0;
}
