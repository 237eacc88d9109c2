/*
 * A process that dies in the middle of a load has written nodes and values that nothing leads to: they are had back when
 * the table is dropped, by its number, and nothing of another table is. And numbers: there are 65,535, of which each
 * may be had again.
 */
#include "sim/dex_world.h"
#include "tree/sherman/sherman.h"

enum {
    CHUNKS = 64,
    PAIRS = 100000,
    OTHER_PAIRS = 1000,
    VALUE = 200,
    KILL_AT = 2000,
    STAY = 100,
    AGAIN = 20000
};

static const struct engine_shape shapes[] = {
    {.key_size = 8, .value_size = VALUE, .key_max = 8, .value_inline = VALUE, .node_bytes = 8192},
    {.key_size = 8, .key_max = 8, .value_inline = 64, .node_bytes = 8192},
};

static const struct test {
    const struct engine_ops *ops;
    const struct engine_shape *shape;
} * test;

static bool ready;
static unsigned done;

struct feed {
    uint64_t number, end, key;
    uint8_t value[VALUE];
};

static bool feed_next(void *context, struct slice *key, struct slice *value)
{
    struct feed *feed = context;
    if (feed->number == feed->end)
        return false;
    feed->key = __builtin_bswap64(feed->number++);
    *key = slice_of(&feed->key, sizeof(feed->key));
    *value = slice_of(feed->value, sizeof(feed->value));
    return true;
}

static void open_co(struct dex_member *self, const char *name, struct engine **engine)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256];
    CHECK_OK(engine_open_co(test->ops, self->session, name, &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

static void drop_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    CHECK_OK(engine_drop_co(self->table, self->session));
    engine_close_co(self->table, self->session);
}

static void close_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static void loader_task(void *arg)
{
    struct fabric *fabric = arg;
    struct dex_member self;
    struct engine *engine;
    struct feed feed = {.end = PAIRS};

    while (!ready)
        rt_sleep_co(RT_NS_PER_MS);
    dex_join_co(fabric, &self);
    open_co(&self, "t", &engine);
    fabric_sim_kill_at(fabric, fabric_sim_posted(fabric) + KILL_AT);
    CHECK(engine_bulk_load_co(engine, feed_next, &feed, 90) != PANDO_OK);
    CHECK(fabric_sim_dead(fabric));
    close_co(&self, engine);
    dex_leave_co(&self);
}

/* In chunks that nobody has and in blocks that the node has. */
static uint64_t free_bytes_co(struct dex_member *self)
{
    struct pool_node_stats stats;
    CHECK_OK(pool_node_stats_co(self->session, 0, &stats));
    return stats.chunks_free * POOL_CHUNK_BYTES + stats.blocks_free_bytes;
}

static uint64_t free_after_co(struct dex_member *self, struct fabric *fabric)
{
    dex_leave_co(self);
    rt_sleep_co(10 * LEASE_NS);
    dex_join_co(fabric, self);
    return free_bytes_co(self);
}

/* ---- another table --------------------------------------------------------------------------- */

static void other_load_co(struct dex_member *self)
{
    struct feed feed = {.end = OTHER_PAIRS};
    struct engine *engine;
    CHECK_OK(engine_create_co(test->ops, self->session, "other", test->shape));
    open_co(self, "other", &engine);
    CHECK_OK(engine_bulk_load_co(engine, feed_next, &feed, 90));
    close_co(self, engine);
}

static bool check_pair(void *context, struct slice key, struct slice value)
{
    static const uint8_t zeroes[VALUE];
    uint64_t *count = context, expected = __builtin_bswap64((*count)++);
    CHECK(slice_compare(key, slice_of(&expected, sizeof(expected))) == 0);
    CHECK(slice_compare(value, slice_of(zeroes, sizeof(zeroes))) == 0);
    return true;
}

static void other_check_co(struct dex_member *self)
{
    struct engine_range range = {.no_high = true};
    struct engine *engine;
    uint64_t count = 0;
    open_co(self, "other", &engine);
    CHECK_OK(engine_scan_co(engine, &range, check_pair, &count));
    CHECK_EQ_U64(count, OTHER_PAIRS);
    close_co(self, engine);
}

/* ---- who drops ------------------------------------------------------------------------------- */

static void malformed_co(struct dex_member *self)
{
    struct pool_sweep_table_request request = {.table = 0};
    struct fabric_endpoint *endpoint = pool_endpoint(self->session, 0);
    struct slice whole = slice_of(&request, sizeof(request));
    struct slice part = slice_of(&request, sizeof(request) - 1);
    CHECK_STATUS(fabric_call_co(endpoint, POOL_SWEEP_TABLE, whole, NULL, 0, NULL), PANDO_INVALID);
    request.table = 1;
    CHECK_STATUS(fabric_call_co(endpoint, POOL_SWEEP_TABLE, part, NULL, 0, NULL), PANDO_INVALID);
}

static void keeper_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;

    dex_join_co(arg, &self);
    other_load_co(&self);
    uint64_t before = free_after_co(&self, arg);
    CHECK_OK(engine_create_co(test->ops, self.session, "t", test->shape));
    ready = true;
    rt_sleep_co(RT_NS_PER_S); /* until the other is dead, and known to be */
    uint64_t lost = before - free_after_co(&self, arg);
    CHECK(lost > 1 << 18);
    open_co(&self, "t", &engine);
    drop_co(&self, engine);
    uint64_t left = before - free_after_co(&self, arg);
    printf("%s: %" PRIu64 " bytes written by who died, %" PRIu64 " left\n", test->ops->name, lost,
           left);
    CHECK_EQ_U64(left, 0);
    malformed_co(&self);
    other_check_co(&self);
    dex_leave_co(&self);
    done++;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void create_co(struct dex_member *self, const char *name, uint64_t *number)
{
    struct pool_table_options options = {.name = name, .engine = "none"};
    struct pool_entry entry;
    unsigned slot;
    CHECK_OK(pool_table_create_co(self->session, &options, &slot, &entry));
    *number = entry.table;
}

static void numbers_task(void *arg)
{
    struct dex_member self;
    uint64_t number;

    dex_join_co(arg, &self);
    for (unsigned i = 1; i <= STAY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        create_co(&self, name, &number);
        CHECK_EQ_U64(number, i);
    }
    for (unsigned i = STAY + 1; i < POOL_TABLE_NUMBER_MAX; i++) {
        create_co(&self, "goes", &number);
        CHECK_EQ_U64(number, i);
        CHECK_OK(pool_table_drop_co(self.session, "goes"));
    }
    create_co(&self, "the last", &number);
    CHECK_EQ_U64(number, POOL_TABLE_NUMBER_MAX);
    for (unsigned i = 0; i < AGAIN; i++) {
        uint64_t before = number;
        create_co(&self, "goes", &number);
        CHECK(number > STAY && number < POOL_TABLE_NUMBER_MAX && number != before);
        CHECK_OK(pool_table_drop_co(self.session, "goes"));
    }
    dex_leave_co(&self);
    done++;
}

int main(void)
{
    static const struct test tests[] = {
        {&sherman_engine, &shapes[0]},
        {&sherman_engine, &shapes[1]},
        {&dex_engine, &shapes[0]},
        {&dex_engine, &shapes[1]},
    };
    enum { TESTS = sizeof(tests) / sizeof(tests[0]) };
    struct dex_world place;

    for (unsigned i = 0; i < TESTS; i++) {
        test = &tests[i];
        ready = false;
        dex_world_build(&place, 21 + i, CHUNKS);
        dex_world_run(&place, keeper_task, loader_task);
    }
    dex_world_build(&place, 31, CHUNKS);
    dex_world_run(&place, numbers_task, NULL);
    CHECK_EQ_U64(done, TESTS + 1);
    return 0;
}
