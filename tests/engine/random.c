/*
 * random.c - random operations against a sorted array: all shapes, all techniques, cold caches,
 * tiny caches, bulk loads.
 */
#include "engine/suite.h"

#define TABLE "random"

static const struct {
    const char *name;
    struct engine_shape shape;
    size_t value_max;
} shapes[] = {
    {"fixed in tiny nodes", {.key_size = 8, .value_size = 8, .node_bytes = 256}, 8},
    {"fixed", {.key_size = 8, .value_size = 8}, 8},
    {"fixed keys, any value", {.key_size = 8, .value_inline = 16, .node_bytes = 256}, 2000},
    {"any key, fixed values", {.key_max = 32, .value_size = 24}, 24},
    {"tiny nodes", {.key_max = 16, .value_inline = 8, .node_bytes = 256}, 500},
    {"middle", {.key_max = 128, .value_inline = 64}, 65536},
    {"largest keys", {.key_max = 1024, .value_inline = 128}, 65536},
    {"all values in blobs", {.key_max = 24, .value_inline = 0}, 3000},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

struct random_test {
    struct key_set keys;
    struct model_map map;
    size_t value_max;
    unsigned operations;
};

static void operate_co(struct place *place, void *context)
{
    struct random_test *test = context;
    for (unsigned i = 0; i < test->operations; i++) {
        unsigned key = (unsigned)prng_below(&place->prng, test->keys.count);
        random_operation_co(place, &test->map, test->keys.keys[key], test->value_max);
        if (i % 16 == 0) {
            struct engine_range range = random_range(&place->prng, &test->keys);
            compare_scan_co(place, &test->map, &range);
        }
    }
    compare_all_co(place, &test->map, &test->keys);
}

static struct random_test test_begin(struct suite *suite, const struct engine_shape *shape,
                                     size_t value_max, unsigned operations)
{
    suite_create(suite, TABLE, shape);
    return (struct random_test){.keys = keys_make(shape, operations / 4 + 2, suite->seed + 1),
                                .value_max = value_max,
                                .operations = operations};
}

static void test_end(struct suite *suite, struct random_test *test)
{
    suite_drop(suite, TABLE);
    keys_free(&test->keys);
    model_map_clear(&test->map);
}

static void test_one_task(struct suite *suite)
{
    for (unsigned i = 0; i < SHAPES; i++) {
        printf("  %s\n", shapes[i].name);
        struct random_test test =
            test_begin(suite, &shapes[i].shape, shapes[i].value_max, suite_scaled(suite, 600));
        suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, operate_co, &test);
        test_end(suite, &test);
    }
}

/* Another process every time, with nothing in its caches; sometimes with almost no cache. */
static void test_cold(struct suite *suite)
{
    for (unsigned i = 0; i < SHAPES; i += 2) {
        struct random_test test =
            test_begin(suite, &shapes[i].shape, shapes[i].value_max, suite_scaled(suite, 200));
        test.operations = suite_scaled(suite, 25);
        for (unsigned run = 0; run < 10; run++)
            suite_run(suite,
                      &(struct suite_run){
                          .table = TABLE, .alone = true, .cache_bytes = run % 2 == 0 ? 0 : 1024},
                      operate_co, &test);
        test_end(suite, &test);
    }
}

/* ---- techniques ------------------------------------------------------------------------------ */

static void run_without(struct suite *suite, const char *without, unsigned shape)
{
    struct random_test test =
        test_begin(suite, &shapes[shape].shape, shapes[shape].value_max, suite_scaled(suite, 150));
    printf("  without %s\n", without);
    suite_run(suite, &(struct suite_run){.table = TABLE, .without = without, .alone = true},
              operate_co, &test);
    /* And with everything again: the table is the same. */
    test.operations = suite_scaled(suite, 30);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, operate_co, &test);
    test_end(suite, &test);
}

static void test_techniques(struct suite *suite)
{
    char name[64];
    for (const char *rest = suite->techniques; *rest != '\0';) {
        size_t size = strcspn(rest, ",");
        snprintf(name, sizeof(name), "%.*s", (int)size, rest);
        run_without(suite, name, 0);
        run_without(suite, name, 4);
        rest += size;
        rest += *rest == ',';
    }
    run_without(suite, suite->techniques, 0);
    run_without(suite, suite->techniques, 4);
}

/* ---- bulk load ------------------------------------------------------------------------------- */

struct feed {
    const struct key_set *keys;
    struct model_map *map;
    const struct engine_shape *shape;
    struct prng *prng;
    unsigned next, step;
    struct slice value; /* of the last pair */
    size_t value_max;
};

static bool feed_next(void *context, struct slice *key, struct slice *value)
{
    struct feed *feed = context;
    bytes_free(feed->value);
    feed->value = (struct slice){0};
    if (feed->next >= feed->keys->count)
        return false;
    feed->value = value_make(feed->prng, feed->shape, feed->value_max);
    *key = feed->keys->keys[feed->next];
    *value = feed->value;
    model_map_put(feed->map, *key, *value);
    feed->next += feed->step;
    return true;
}

struct load {
    struct random_test test;
    unsigned fill;
};

static void load_co(struct place *place, void *context)
{
    struct load *load = context;
    struct feed feed = {.keys = &load->test.keys,
                        .map = &load->test.map,
                        .shape = &place->table->shape,
                        .prng = &place->prng,
                        .step = 2,
                        .value_max = load->test.value_max};
    struct feed again = feed;

    CHECK_STATUS(engine_bulk_load_co(place->engine, feed_next, &feed, 0), PANDO_INVALID);
    CHECK_STATUS(engine_bulk_load_co(place->engine, feed_next, &feed, 101), PANDO_INVALID);
    CHECK_OK(engine_bulk_load_co(place->engine, feed_next, &feed, load->fill));
    compare_all_co(place, &load->test.map, &load->test.keys);
    struct model_map unused = {0};
    again.map = &unused;
    CHECK_STATUS(engine_bulk_load_co(place->engine, feed_next, &again, 80), PANDO_EXISTS);
    bytes_free(again.value);
    model_map_clear(&unused);
    compare_all_co(place, &load->test.map, NULL);
    operate_co(place, &load->test);
}

static void test_bulk_load(struct suite *suite)
{
    static const unsigned fills[] = {10, 50, 70, 90, 100};
    for (unsigned i = 0; i < 10; i++) {
        unsigned shape = i % 2 == 0 ? i % SHAPES : 1 + i % 7;
        struct load load = {
            .test = test_begin(suite, &shapes[shape].shape,
                               shapes[shape].value_max < 2000 ? shapes[shape].value_max : 2000,
                               suite_scaled(suite, 800)),
            .fill = fills[i % 5]};
        printf("  %s, %u %% full\n", shapes[shape].name, load.fill);
        load.test.operations /= 4;
        suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, load_co, &load);
        test_end(suite, &load.test);
    }
}

/* Keys out of order, and none at all. */
struct wrong_feed {
    unsigned next;
    bool same;
};

static bool wrong_next(void *context, struct slice *key, struct slice *value)
{
    static const char *const keys[] = {"a", "b", "d", "c"};
    struct wrong_feed *feed = context;
    if (feed->next == 4)
        return false;
    *key = slice_of_text(feed->same ? keys[feed->next / 2] : keys[feed->next]);
    *value = slice_of_text("value");
    feed->next++;
    return true;
}

static bool no_next(void *context, struct slice *key, struct slice *value)
{
    (void)context;
    (void)key;
    (void)value;
    return false;
}

static void wrong_load_co(struct place *place, void *context)
{
    struct wrong_feed *feed = context;
    if (feed != NULL) {
        CHECK_STATUS(engine_bulk_load_co(place->engine, wrong_next, feed, 80), PANDO_INVALID);
        return;
    }
    CHECK_OK(engine_bulk_load_co(place->engine, no_next, NULL, 80));
    verify_co(place, 0);
    CHECK_OK(engine_put_co(place->engine, slice_of_text("x"), slice_of_text("y"), ENGINE_INSERT));
    verify_co(place, 1);
}

static void test_bulk_load_wrong(struct suite *suite)
{
    struct engine_shape shape = {.key_max = 16, .value_inline = 8};
    struct suite_run run = {.table = TABLE, .alone = true};
    for (int i = 0; i < 3; i++) {
        struct wrong_feed feed = {.same = i == 1};
        suite_create(suite, TABLE, &shape);
        suite_run(suite, &run, wrong_load_co, i < 2 ? &feed : NULL);
        suite_drop(suite, TABLE);
    }
}

const struct suite_case random_cases[] = {
    {"one_task", test_one_task, false},
    {"cold", test_cold, false},
    {"techniques", test_techniques, false},
    {"bulk_load", test_bulk_load, false},
    {"bulk_load_wrong", test_bulk_load_wrong, false},
    {NULL, NULL, false},
};
