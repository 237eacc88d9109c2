/*
 * memory.c - what is deleted, overwritten or dropped gives its memory back.
 */
#include "engine/suite.h"

#define TABLE "memory"

enum { TASKS = 8, VALUE = 64, BLOB = 3000, BLOB_EVERY = 8 };

struct filling {
    unsigned keys;
    unsigned round;
};

static struct slice number_key(uint64_t number, uint64_t *bytes)
{
    *bytes = hash_u64(number + 1);
    return slice_of(bytes, 8);
}

static void fill_task_co(struct place *place, void *context, unsigned task)
{
    const struct filling *test = context;
    unsigned step = place->count * TASKS;
    for (uint64_t i = place->index * TASKS + task; i < test->keys; i += step) {
        uint64_t key;
        struct slice value = value_of(i, i % BLOB_EVERY == 0 ? BLOB : VALUE);
        CHECK_OK(engine_put_co(place->engine, number_key(i, &key), value, ENGINE_UPSERT));
        bytes_free(value);
    }
}

static void empty_task_co(struct place *place, void *context, unsigned task)
{
    const struct filling *test = context;
    unsigned step = place->count * TASKS;
    for (uint64_t i = place->index * TASKS + task; i < test->keys; i += step) {
        uint64_t key;
        CHECK_OK(engine_delete_co(place->engine, number_key(i, &key)));
    }
}

static void fill_co(struct place *place, void *context)
{
    suite_tasks_co(place, TASKS, fill_task_co, context);
}

static void empty_co(struct place *place, void *context)
{
    suite_tasks_co(place, TASKS, empty_task_co, context);
}

static bool no_pair(void *context, struct slice key, struct slice value)
{
    (void)context;
    (void)key;
    (void)value;
    CHECK_FAIL("a scan of an empty table returned a pair");
}

static void is_empty_co(struct place *place, void *context)
{
    struct engine_range range = {.no_high = true};
    (void)context;
    CHECK_OK(engine_scan_co(place->engine, &range, no_pair, NULL));
    range.reverse = true;
    CHECK_OK(engine_scan_co(place->engine, &range, no_pair, NULL));
    verify_co(place, 0);
}

static void count_co(struct place *place, void *context)
{
    const struct filling *test = context;
    verify_co(place, test->keys);
}

/* The whole of it twice: what came back must be good for use again. */
static void delete_everything(struct suite *suite, const struct engine_shape *shape, unsigned keys)
{
    struct filling test = {.keys = keys};
    struct suite_run all = {.table = TABLE}, alone = {.table = TABLE, .alone = true};
    uint64_t before = suite_used_bytes(suite);

    suite_create(suite, TABLE, shape);
    for (test.round = 0; test.round < 2; test.round++) {
        suite_run(suite, &all, fill_co, &test);
        suite_run(suite, &alone, count_co, &test);
        uint64_t peak = suite_used_bytes(suite);
        suite_run(suite, &all, empty_co, &test);
        suite_run(suite, &alone, is_empty_co, NULL);
        uint64_t left = suite_used_bytes(suite);
        printf("  %u keys: %" PRIu64 " bytes at the peak, %" PRIu64 " after deleting all\n",
               test.keys, peak - before, left - before);
        if (suite->ops != &model_engine)
            CHECK(peak - before > (uint64_t)test.keys * 16);
        CHECK(left - before <= (peak - before) / 100 || left - before <= 4 * shape->node_bytes);
    }
    suite_drop(suite, TABLE);
    CHECK_EQ_U64(suite_used_bytes(suite), before);
}

static void test_delete_everything(struct suite *suite)
{
    struct engine_shape small = {.key_size = 8, .value_inline = VALUE, .node_bytes = 512};
    delete_everything(suite, &small, suite_scaled(suite, 3000));
}

/* The largest there are: intents have room for three of them. */
static void test_delete_large_nodes(struct suite *suite)
{
    struct engine_shape large = {.key_size = 8, .value_inline = VALUE, .node_bytes = 32 * 1024};
    delete_everything(suite, &large, 4000);
}

/* Values overwritten by longer and shorter ones, again and again. */
static void overwrite_co(struct place *place, void *context)
{
    static const size_t sizes[] = {10, 100, 1000, 5000, 20000};
    unsigned *rounds = context;
    for (unsigned i = 0; i < *rounds; i++) {
        struct slice value = value_of(i, sizes[prng_below(&place->prng, 5)]);
        uint64_t key;
        CHECK_OK(engine_put_co(place->engine, number_key(i % 10, &key), value, ENGINE_UPSERT));
        bytes_free(value);
    }
}

static void test_overwritten(struct suite *suite)
{
    struct engine_shape shape = {.key_size = 8, .value_inline = 32};
    unsigned rounds = suite_scaled(suite, 300);
    uint64_t before = suite_used_bytes(suite);
    suite_create(suite, TABLE, &shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, overwrite_co, &rounds);
    uint64_t used = suite_used_bytes(suite) - before;
    printf("  10 values of at most 20,000 bytes: %" PRIu64 " bytes\n", used);
    CHECK(used <= 10 * 40000 + 65536);
    suite_drop(suite, TABLE);
    CHECK_EQ_U64(suite_used_bytes(suite), before);
}

static void absent_co(struct place *place, void *context)
{
    struct engine_config config = {0};
    struct engine_table *table;
    char error[256];
    (void)context;
    CHECK_STATUS(engine_open_co(place->suite->ops, place->session, TABLE, &config, &table, error,
                                sizeof(error)),
                 PANDO_NOT_FOUND);
}

static void test_drop(struct suite *suite)
{
    struct engine_shape shape = {.key_size = 8, .value_inline = VALUE};
    struct filling test = {.keys = suite_scaled(suite, 500)};
    uint64_t before = suite_used_bytes(suite);
    for (int i = 0; i < 2; i++) {
        suite_create(suite, TABLE, &shape);
        suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, is_empty_co, NULL);
        suite_run(suite, &(struct suite_run){.table = TABLE}, fill_co, &test);
        suite_drop(suite, TABLE);
        CHECK_EQ_U64(suite_used_bytes(suite), before);
        suite_run(suite, &(struct suite_run){.alone = true}, absent_co, NULL);
    }
}

const struct suite_case memory_cases[] = {
    {"delete_everything", test_delete_everything, false},
    {"delete_large_nodes", test_delete_large_nodes, false},
    {"overwritten", test_overwritten, false},
    {"drop", test_drop, false},
    {NULL, NULL, false},
};
