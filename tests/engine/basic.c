/*
 * basic.c - arguments, statuses, sizes, bounds: one thread, each case by hand.
 */
#include "engine/suite.h"

#define TABLE "basic"

static const struct engine_shape any_shape = {.key_max = 1024, .value_inline = 64};

static struct slice text(const char *characters)
{
    return slice_of_text(characters);
}

static void expect_value_co(struct place *place, struct slice key, struct slice expected)
{
    struct model_map map = {0};
    model_map_put(&map, key, expected);
    compare_get_co(place, &map, key);
    model_map_clear(&map);
}

/* ---- statuses -------------------------------------------------------------------------------- */

static void modes_co(struct place *place, void *context)
{
    struct engine *engine = place->engine;
    char buffer[8];
    size_t size;
    (void)context;

    CHECK_STATUS(engine_get_co(engine, text("a"), buffer, 8, &size), PANDO_NOT_FOUND);
    CHECK_STATUS(engine_delete_co(engine, text("a")), PANDO_NOT_FOUND);
    CHECK_STATUS(engine_put_co(engine, text("a"), text("0"), ENGINE_UPDATE), PANDO_NOT_FOUND);
    CHECK_STATUS(engine_get_co(engine, text("a"), buffer, 8, &size), PANDO_NOT_FOUND);
    CHECK_OK(engine_put_co(engine, text("a"), text("1"), ENGINE_INSERT));
    CHECK_STATUS(engine_put_co(engine, text("a"), text("2"), ENGINE_INSERT), PANDO_EXISTS);
    expect_value_co(place, text("a"), text("1"));
    CHECK_OK(engine_put_co(engine, text("a"), text("33"), ENGINE_UPDATE));
    expect_value_co(place, text("a"), text("33"));
    CHECK_OK(engine_put_co(engine, text("a"), text("4"), ENGINE_UPSERT));
    CHECK_OK(engine_put_co(engine, text("b"), text("5"), ENGINE_UPSERT));
    expect_value_co(place, text("a"), text("4"));
    CHECK_OK(engine_delete_co(engine, text("a")));
    CHECK_STATUS(engine_delete_co(engine, text("a")), PANDO_NOT_FOUND);
    expect_value_co(place, text("b"), text("5"));
    /* The empty key is a key like any other, and the first of all. */
    CHECK_OK(engine_put_co(engine, text(""), text("empty"), ENGINE_INSERT));
    expect_value_co(place, text(""), text("empty"));
    verify_co(place, 2);
    CHECK_OK(engine_delete_co(engine, text("")));
    CHECK_STATUS(engine_delete_co(engine, text("")), PANDO_NOT_FOUND);
    verify_co(place, 1);
}

static void test_modes(struct suite *suite)
{
    suite_create(suite, TABLE, &any_shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, modes_co, NULL);
}

static void key_limits_co(struct place *place, void *context)
{
    struct engine *engine = place->engine;
    struct slice longest = value_of(1, 1024), longer = value_of(1, 1025);
    size_t size;
    (void)context;

    CHECK_OK(engine_put_co(engine, longest, text("x"), ENGINE_UPSERT));
    expect_value_co(place, longest, text("x"));
    CHECK_STATUS(engine_put_co(engine, longer, text("x"), ENGINE_UPSERT), PANDO_TOO_LARGE);
    CHECK_STATUS(engine_get_co(engine, longer, NULL, 0, &size), PANDO_TOO_LARGE);
    CHECK_STATUS(engine_delete_co(engine, longer), PANDO_TOO_LARGE);
    verify_co(place, 1);
    bytes_free(longest);
    bytes_free(longer);
}

static void fixed_limits_co(struct place *place, void *context)
{
    struct engine *engine = place->engine;
    size_t size;
    (void)context;

    CHECK_OK(engine_put_co(engine, text("12345678"), text("abcdefgh"), ENGINE_UPSERT));
    expect_value_co(place, text("12345678"), text("abcdefgh"));
    CHECK_STATUS(engine_get_co(engine, text("1234567"), NULL, 0, &size), PANDO_INVALID);
    CHECK_STATUS(engine_get_co(engine, text("123456789"), NULL, 0, &size), PANDO_TOO_LARGE);
    CHECK_STATUS(engine_put_co(engine, text("12345678"), text("abcdefg"), ENGINE_UPSERT),
                 PANDO_INVALID);
    CHECK_STATUS(engine_put_co(engine, text("12345678"), text("abcdefghi"), ENGINE_UPSERT),
                 PANDO_TOO_LARGE);
    expect_value_co(place, text("12345678"), text("abcdefgh"));
    verify_co(place, 1);
}

static void test_limits(struct suite *suite)
{
    struct engine_shape fixed = {.key_size = 8, .value_size = 8};
    suite_create(suite, TABLE, &any_shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, key_limits_co, NULL);
    suite_create(suite, "fixed", &fixed);
    suite_run(suite, &(struct suite_run){.table = "fixed", .alone = true}, fixed_limits_co, NULL);
}

static void tables_co(struct place *place, void *context)
{
    const struct engine_ops *ops = place->suite->ops;
    struct engine_config config = {0}, unknown = {.without = "no-such-technique"};
    struct engine_table *table;
    char error[256];
    (void)context;

    CHECK_STATUS(
        engine_open_co(ops, place->session, "nobody", &config, &table, error, sizeof(error)),
        PANDO_NOT_FOUND);
    CHECK_OK(engine_create_co(ops, place->session, TABLE, &any_shape));
    CHECK_STATUS(engine_create_co(ops, place->session, TABLE, &any_shape), PANDO_EXISTS);
    error[0] = '\0';
    CHECK_STATUS(engine_open_co(ops, place->session, TABLE, &unknown, &table, error, sizeof(error)),
                 PANDO_INVALID);
    CHECK(strstr(error, "no-such-technique") != NULL);
    CHECK_OK(engine_open_co(ops, place->session, TABLE, &config, &table, error, sizeof(error)));
    const struct engine_shape *shape = engine_table_shape(table);
    CHECK(shape->key_max == 1024 && shape->value_inline == 64 && shape->node_bytes >= 256);
    engine_close_co(table, place->session);
}

static void test_tables(struct suite *suite)
{
    suite_run(suite, &(struct suite_run){.alone = true}, tables_co, NULL);
}

/* A table that another engine made. */
static void foreign_co(struct place *place, void *context)
{
    struct pool_table_options options = {.name = "foreign", .engine = "another", .key_max = 8};
    struct engine_config config = {0};
    struct engine_table *table;
    struct pool_entry entry;
    unsigned slot;
    char error[256] = "";
    (void)context;

    CHECK_OK(pool_table_create_co(place->session, &options, &slot, &entry));
    enum pando_status status = engine_open_co(place->suite->ops, place->session, "foreign", &config,
                                              &table, error, sizeof(error));
    /* The model's tables are not in the directory. */
    bool model = place->suite->ops == &model_engine;
    CHECK_STATUS(status, model ? PANDO_NOT_FOUND : PANDO_INVALID);
    CHECK(error[0] != '\0');
}

static void test_foreign(struct suite *suite)
{
    suite_run(suite, &(struct suite_run){.alone = true}, foreign_co, NULL);
}

static void expect_shape(struct engine_shape shape, enum pando_status expected)
{
    CHECK_STATUS(engine_shape_check(&shape), expected);
    if (expected == PANDO_OK)
        CHECK(shape.node_bytes >= 256 && shape.node_bytes <= 32768 && shape.node_bytes % 64 == 0 &&
              shape.key_max > 0);
}

static void test_shapes(struct suite *suite)
{
    (void)suite;
    expect_shape((struct engine_shape){.key_size = 8, .value_size = 8}, PANDO_OK);
    expect_shape((struct engine_shape){.key_size = 8, .value_size = 8, .node_bytes = 256},
                 PANDO_OK);
    expect_shape((struct engine_shape){.key_max = 1024, .value_inline = 1024}, PANDO_OK);
    expect_shape((struct engine_shape){.key_max = 16}, PANDO_OK);
    expect_shape((struct engine_shape){0}, PANDO_OK);
    expect_shape((struct engine_shape){.key_max = 1025}, PANDO_TOO_LARGE);
    expect_shape((struct engine_shape){.key_size = 1025}, PANDO_TOO_LARGE);
    expect_shape((struct engine_shape){.key_size = 8, .key_max = 16}, PANDO_INVALID);
    expect_shape((struct engine_shape){.key_max = 8, .value_inline = 1 << 20}, PANDO_TOO_LARGE);
    expect_shape((struct engine_shape){.key_max = 8, .value_size = 16, .value_inline = 8},
                 PANDO_INVALID);
    expect_shape((struct engine_shape){.key_max = 8, .node_bytes = 128}, PANDO_INVALID);
    expect_shape((struct engine_shape){.key_max = 8, .node_bytes = 1000}, PANDO_INVALID);
    expect_shape((struct engine_shape){.key_max = 8, .node_bytes = 65536}, PANDO_TOO_LARGE);
    expect_shape((struct engine_shape){.key_max = 1024, .node_bytes = 1024}, PANDO_INVALID);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void values_co(struct place *place, void *context)
{
    static const size_t sizes[] = {0,    1,    7,    8,     9,     15,    63,    64,
                                   65,   127,  128,  255,   256,   1000,  1024,  2048,
                                   4095, 4096, 4097, 16384, 32768, 65535, 65536, 200000};
    struct engine *engine = place->engine;
    char key[24];
    (void)context;

    for (size_t from = 0; from < sizeof(sizes) / sizeof(sizes[0]); from++) {
        struct slice value = value_of(from, sizes[from]);
        snprintf(key, sizeof(key), "value-%zu", sizes[from]);
        CHECK_OK(engine_put_co(engine, text(key), value, ENGINE_INSERT));
        expect_value_co(place, text(key), value);
        bytes_free(value);
    }
    /* From every size to every third other. */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t to = i % 3; to < sizeof(sizes) / sizeof(sizes[0]); to += 3) {
            struct slice value = value_of(100 * i + to, sizes[to]);
            snprintf(key, sizeof(key), "value-%zu", sizes[i]);
            CHECK_OK(engine_put_co(engine, text(key), value, ENGINE_UPDATE));
            expect_value_co(place, text(key), value);
            bytes_free(value);
        }
    }
    verify_co(place, sizeof(sizes) / sizeof(sizes[0]));
}

static void short_buffer_co(struct place *place, void *context)
{
    uint8_t buffer[16];
    size_t sizes[] = {40, 5000}, size;
    (void)context;

    for (int i = 0; i < 2; i++) {
        struct slice value = value_of(7, sizes[i]);
        CHECK_OK(engine_put_co(place->engine, text("short"), value, ENGINE_UPSERT));
        memset(buffer, 0xee, sizeof(buffer));
        CHECK_OK(engine_get_co(place->engine, text("short"), buffer, 10, &size));
        CHECK_EQ_U64(size, sizes[i]);
        CHECK(memcmp(buffer, value.data, 10) == 0 && buffer[10] == 0xee);
        CHECK_OK(engine_get_co(place->engine, text("short"), NULL, 0, &size));
        CHECK_EQ_U64(size, sizes[i]);
        bytes_free(value);
    }
}

static void test_values(struct suite *suite)
{
    suite_create(suite, TABLE, &any_shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, values_co, NULL);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, short_buffer_co, NULL);
}

enum { LARGE_BYTES = 20 << 20, STAGED_BYTES = 900001 };

static void largest_co(struct place *place, void *context)
{
    struct slice value = value_of(3, LARGE_BYTES);
    struct slice larger = slice_of("", (size_t)ENGINE_VALUE_MAX + 1); /* it is not looked at */
    (void)context;

    CHECK_STATUS(engine_put_co(place->engine, text("large"), larger, ENGINE_UPSERT),
                 PANDO_TOO_LARGE);
    CHECK_OK(engine_put_co(place->engine, text("large"), value, ENGINE_UPSERT));
    expect_value_co(place, text("large"), value);
    CHECK_OK(engine_put_co(place->engine, text("large"), text("small"), ENGINE_UPDATE));
    expect_value_co(place, text("large"), text("small"));
    verify_co(place, 1);
    bytes_free(value);
}

/* Parts of a staged value: its head, then these bytes. */
static void expect_parts_co(struct engine *engine, struct slice key, struct slice value,
                            uint64_t reference)
{
    static const uint64_t offsets[] = {
        0, 3, 4, 5, 262000, 262200, STAGED_BYTES - 10, STAGED_BYTES + 4, STAGED_BYTES + 5};
    enum { CAPACITY = 300000 };
    static uint8_t got[CAPACITY];
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        struct engine_part part = {.offset = offsets[i], .to = got, .capacity = CAPACITY};
        CHECK_OK(engine_part_co(engine, key, &part));
        CHECK_EQ_U64(part.size, STAGED_BYTES + 4);
        CHECK_EQ_U64(part.reference, reference);
        for (size_t j = 0; j < part.got; j++) {
            size_t at = offsets[i] + j;
            CHECK(got[j] == (at < 4 ? (uint8_t) "head"[at] : value.data[at - 4]));
        }
        uint64_t left = offsets[i] < part.size ? part.size - offsets[i] : 0;
        CHECK_EQ_U64(part.got, left < CAPACITY ? left : CAPACITY);
    }
}

static struct engine_stage *stage_co(struct engine *engine, struct slice key, struct slice value,
                                     uint64_t *reference)
{
    struct engine_stage *stage;
    CHECK_OK(engine_stage_open_co(engine, key, value.size, &stage));
    for (size_t at = 0, step = 1; at < value.size; at += step, step = step * 2 + 1) {
        step = step < value.size - at ? step : value.size - at;
        CHECK_OK(engine_stage_add_co(stage, slice_of(value.data + at, step)));
    }
    CHECK_STATUS(engine_stage_add_co(stage, text("x")), PANDO_INVALID);
    CHECK_OK(engine_stage_seal_co(stage, text("head"), reference));
    return stage;
}

/* A short value instead of a staged one; removals; a stage that nobody takes. */
static void unstaged_co(struct engine *engine, struct slice key, struct slice value)
{
    uint8_t got[16];
    uint64_t reference;
    struct engine_stage *stage;
    CHECK_OK(engine_put_co(engine, key, text("short"), ENGINE_UPSERT));
    struct engine_part part = {.offset = 2, .to = got, .capacity = 10};
    CHECK_OK(engine_part_co(engine, key, &part));
    CHECK(part.reference == 0 && part.size == 5 && part.got == 3 && memcmp(got, "ort", 3) == 0);
    struct engine_swap swap = {.expect = ENGINE_EXPECT_VALUE, .expected = text("other")};
    CHECK_STATUS(engine_swap_co(engine, key, &swap), PANDO_STALE);
    swap.expected = text("short");
    CHECK_OK(engine_swap_co(engine, key, &swap));
    swap.expect = ENGINE_EXPECT_NOTHING;
    CHECK_STATUS(engine_swap_co(engine, key, &swap), PANDO_NOT_FOUND);
    CHECK_OK(engine_stage_open_co(engine, key, value.size, &stage));
    CHECK_OK(engine_stage_add_co(stage, slice_of(value.data, value.size / 2)));
    CHECK_STATUS(engine_stage_seal_co(stage, text(""), &reference), PANDO_INVALID);
    engine_stage_close_co(stage, ENGINE_STAGE_FREE);
}

/* A value in pieces, and parts of it. What is expected of the key is what it has, or nothing is done. */
static void staged_co(struct place *place, void *context)
{
    struct engine *engine = place->engine;
    struct slice value = value_of(5, STAGED_BYTES), key = text("staged");
    struct engine_swap swap = {.mode = ENGINE_UPSERT};
    struct engine_stage *stage;
    (void)context;

    if (engine->ops->stage_open_co == NULL) { /* the model */
        CHECK_STATUS(engine_stage_open_co(engine, key, 1, &stage), PANDO_UNSUPPORTED);
        bytes_free(value);
        return;
    }
    for (int round = 0; round < 2; round++) {
        uint64_t former = swap.staged;
        stage = stage_co(engine, key, value, &swap.staged);
        swap.expect = round == 0 ? ENGINE_EXPECT_REFERENCE : ENGINE_EXPECT_ABSENT;
        swap.expected_reference = former ^ (uint64_t)1 << 30;
        CHECK_STATUS(engine_swap_co(engine, key, &swap), PANDO_STALE);
        swap.expect = round == 0 ? ENGINE_EXPECT_ABSENT : ENGINE_EXPECT_REFERENCE;
        swap.expected_reference = former;
        CHECK_OK(engine_swap_co(engine, key, &swap));
        engine_stage_close_co(stage, ENGINE_STAGE_TAKEN);
        expect_parts_co(engine, key, value, swap.staged);
    }
    unstaged_co(engine, key, value);
    bytes_free(value);
}

static void test_staged(struct suite *suite)
{
    suite_create(suite, TABLE, &any_shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, staged_co, NULL);
}

static void test_largest_value(struct suite *suite)
{
    suite_create(suite, TABLE, &any_shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, largest_co, NULL);
}

/* ---- changes --------------------------------------------------------------------------------- */

struct conditional {
    struct slice expected, desired;
    bool done;
};

static struct engine_change put_if_equal(void *context, const struct slice *old)
{
    struct conditional *it = context;
    it->done = old != NULL && slice_equal(*old, it->expected);
    return (struct engine_change){.what = it->done ? ENGINE_STORE : ENGINE_KEEP,
                                  .value = it->desired};
}

static struct engine_change remove_always(void *context, const struct slice *old)
{
    bool *was_there = context;
    *was_there = old != NULL;
    return (struct engine_change){.what = ENGINE_REMOVE};
}

static struct engine_change store_too_much(void *context, const struct slice *old)
{
    (void)old;
    return (struct engine_change){.what = ENGINE_STORE, .value = *(struct slice *)context};
}

static void conditional_co(struct place *place, void *context)
{
    struct engine *engine = place->engine;
    struct conditional it = {.expected = text("one"), .desired = text("two")};
    struct slice too_much = slice_of("", (size_t)ENGINE_VALUE_MAX + 1);
    bool was_there;
    (void)context;

    CHECK_OK(engine_modify_co(engine, text("k"), false, put_if_equal, &it));
    CHECK(!it.done);
    verify_co(place, 0);
    CHECK_OK(engine_put_co(engine, text("k"), text("one"), ENGINE_INSERT));
    CHECK_OK(engine_modify_co(engine, text("k"), false, put_if_equal, &it));
    CHECK(it.done);
    expect_value_co(place, text("k"), text("two"));
    CHECK_OK(engine_modify_co(engine, text("k"), false, put_if_equal, &it));
    CHECK(!it.done);
    CHECK_STATUS(engine_modify_co(engine, text("k"), false, store_too_much, &too_much),
                 PANDO_TOO_LARGE);
    expect_value_co(place, text("k"), text("two"));
    CHECK_OK(engine_modify_co(engine, text("k"), true, remove_always, &was_there));
    CHECK(was_there);
    CHECK_OK(engine_modify_co(engine, text("k"), true, remove_always, &was_there));
    CHECK(!was_there);
    verify_co(place, 0);
    /* The condition is on a blob. */
    struct slice blob = value_of(5, 3000);
    it.expected = blob;
    CHECK_OK(engine_put_co(engine, text("k"), blob, ENGINE_INSERT));
    CHECK_OK(engine_modify_co(engine, text("k"), false, put_if_equal, &it));
    CHECK(it.done);
    expect_value_co(place, text("k"), text("two"));
    bytes_free(blob);
}

static void test_conditional(struct suite *suite)
{
    suite_create(suite, TABLE, &any_shape);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, conditional_co, NULL);
}

/* ---- scans ----------------------------------------------------------------------------------- */

static bool stop_after(void *context, struct slice key, struct slice value)
{
    unsigned *left = context;
    (void)key;
    (void)value;
    CHECK(*left > 0);
    return --*left > 0;
}

static void bounds_co(struct place *place, void *context)
{
    const struct engine_shape *shape = &place->table->shape;
    unsigned count = suite_scaled(place->suite, 120);
    struct key_set keys = keys_make(shape, count, place->suite->seed);
    struct model_map map = {0};
    struct engine_range range = {.no_high = true};
    (void)context;

    compare_scan_co(place, &map, &range); /* of nothing */
    for (unsigned i = 0; i < keys.count; i += 2) {
        struct slice value = value_make(&place->prng, shape, 300);
        CHECK_OK(engine_put_co(place->engine, keys.keys[i], value, ENGINE_UPSERT));
        model_map_put(&map, keys.keys[i], value);
        bytes_free(value);
    }
    compare_all_co(place, &map, &keys);
    for (unsigned i = 0; i < 2 * count; i++) {
        range = random_range(&place->prng, &keys);
        compare_scan_co(place, &map, &range);
    }
    /* Bounds that are longer or shorter than any key; nothing; the wrong way round. */
    struct slice bounds[] = {text(""),
                             text("a"),
                             text("ab"),
                             text("\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                             keys.keys[keys.count / 2],
                             keys.keys[keys.count - 1]};
    for (unsigned i = 0; i < 6 * 6 * 4; i++) {
        range = (struct engine_range){.low = bounds[i % 6],
                                      .high = bounds[i / 6 % 6],
                                      .reverse = i / 36 % 2 == 1,
                                      .limit = i / 72 % 2};
        compare_scan_co(place, &map, &range);
    }
    for (unsigned i = 0; i < 2; i++) {
        unsigned left = 5;
        range = (struct engine_range){.no_high = true, .reverse = i == 1};
        CHECK_OK(engine_scan_co(place->engine, &range, stop_after, &left));
        CHECK_EQ_U64(left, 0);
    }
    model_map_clear(&map);
    keys_free(&keys);
}

static void test_bounds(struct suite *suite)
{
    struct engine_shape fixed = {.key_size = 8, .value_size = 8, .node_bytes = 256};
    struct engine_shape tiny = {.key_max = 16, .value_inline = 8, .node_bytes = 256};
    suite_create(suite, "fixed", &fixed);
    suite_run(suite, &(struct suite_run){.table = "fixed", .alone = true}, bounds_co, NULL);
    suite_create(suite, "tiny", &tiny);
    suite_run(suite, &(struct suite_run){.table = "tiny", .alone = true}, bounds_co, NULL);
}

/* ---- a table that others open while it is being created ---------------------------------------- */

static void open_at_once_co(struct place *place, void *context)
{
    struct engine_shape shape = {.key_max = 32, .value_inline = 64};
    struct engine_config config = {0};
    struct engine_table *table;
    struct engine *engine;
    char error[256] = "";
    enum pando_status status = PANDO_NOT_FOUND;

    (void)context;
    suite_barrier_co(place);
    if (place->index == 0)
        CHECK_OK(engine_create_co(place->suite->ops, place->session, "new", &shape));
    while (status == PANDO_NOT_FOUND)
        status = engine_open_co(place->suite->ops, place->session, "new", &config, &table, error,
                                sizeof(error));
    CHECK_OK(status);
    CHECK_OK(engine_attach_co(table, place->session, &engine));
    CHECK_OK(engine_put_co(engine, slice_of(&place->index, sizeof(place->index)),
                           slice_of("value", 5), ENGINE_INSERT));
    suite_barrier_co(place);
    engine_detach_co(engine);
    engine_close_co(table, place->session);
}

static void test_open_at_once(struct suite *suite)
{
    struct suite_run run = {.threads = 1};
    for (int i = 0; i < 20; i++) {
        suite_run(suite, &run, open_at_once_co, NULL);
        suite_drop(suite, "new");
    }
}

const struct suite_case basic_cases[] = {
    {"open_at_once", test_open_at_once, false},
    {"modes", test_modes, false},
    {"limits", test_limits, false},
    {"tables", test_tables, false},
    {"foreign", test_foreign, false},
    {"shapes", test_shapes, false},
    {"values", test_values, false},
    {"largest_value", test_largest_value, false},
    {"staged", test_staged, false},
    {"conditional", test_conditional, false},
    {"bounds", test_bounds, false},
    {NULL, NULL, false},
};
