/*
 * concurrent.c - many tasks on many threads of several compute nodes.
 */
#include "engine/suite.h"

#include <stdatomic.h>

#define TABLE "concurrent"

static const struct engine_shape tiny = {.key_max = 16, .value_inline = 8, .node_bytes = 256};
static const struct engine_shape fixed = {.key_size = 8, .value_size = 8, .node_bytes = 256};

/* ---- everybody on keys of their own ------------------------------------------------------------
 */

enum { TASKS = 8, PLACES_MAX = 16 };

struct disjoint {
    struct key_set keys;
    struct model_map maps[PLACES_MAX][TASKS]; /* of each task */
    unsigned operations;
};

static void disjoint_task_co(struct place *place, void *context, unsigned task)
{
    struct disjoint *test = context;
    struct model_map *map = &test->maps[place->index][task];
    unsigned tasks = place->count * TASKS, mine = place->index * TASKS + task;
    unsigned own = test->keys.count / tasks; /* keys mine, mine + tasks, ... */
    for (unsigned i = 0; i < test->operations; i++) {
        unsigned key = mine + tasks * (unsigned)prng_below(&place->prng, own);
        random_operation_co(place, map, test->keys.keys[key], 300);
    }
    for (unsigned i = 0; i < own; i++)
        compare_get_co(place, map, test->keys.keys[mine + i * tasks]);
}

static void disjoint_co(struct place *place, void *context)
{
    struct disjoint *test = context;
    struct model_map all = {0};

    CHECK(place->count <= PLACES_MAX);
    suite_tasks_co(place, TASKS, disjoint_task_co, test);
    suite_barrier_co(place);
    /* Everybody looks at everything; the structure is looked at while nobody else does anything. */
    for (unsigned i = 0; i < place->count; i++) {
        for (unsigned task = 0; task < TASKS; task++) {
            const struct model_map *map = &test->maps[i][task];
            for (size_t pair = 0; pair < map->count; pair++)
                model_map_put(&all, map->pairs[pair].key, map->pairs[pair].value);
        }
    }
    if (place->index == 0)
        compare_all_co(place, &all, &test->keys);
    suite_barrier_co(place);
    if (place->index != 0) {
        struct engine_range range = {.no_high = true, .reverse = place->index % 2 == 1};
        compare_scan_co(place, &all, &range);
    }
    model_map_clear(&all);
}

static void disjoint(struct suite *suite, const struct engine_shape *shape)
{
    struct disjoint *test = calloc(1, sizeof(*test));
    CHECK(test != NULL);
    suite_create(suite, TABLE, shape);
    test->operations = suite_scaled(suite, 60);
    test->keys = keys_make(shape, 1000, suite->seed);
    suite_run(suite, &(struct suite_run){.table = TABLE}, disjoint_co, test);
    suite_drop(suite, TABLE);
    for (unsigned i = 0; i < PLACES_MAX; i++) {
        for (unsigned task = 0; task < TASKS; task++)
            model_map_clear(&test->maps[i][task]);
    }
    keys_free(&test->keys);
    free(test);
}

static void test_disjoint(struct suite *suite)
{
    disjoint(suite, &tiny);
    disjoint(suite, &fixed);
}

/* ---- counters -------------------------------------------------------------------------------- */

enum { COUNTERS = 4 };

struct counters {
    unsigned increments; /* of each task */
    size_t value_bytes;
};

struct increment {
    size_t value_bytes;
    uint64_t value[64]; /* the first is the count */
};

static struct engine_change add_one(void *context, const struct slice *old)
{
    struct increment *it = context;
    memset(it->value, 0, sizeof(it->value));
    if (old != NULL) {
        CHECK_EQ_U64(old->size, it->value_bytes);
        memcpy(it->value, old->data, old->size);
        for (size_t i = 1; i < it->value_bytes / 8; i++)
            CHECK_EQ_U64(it->value[i], it->value[0]);
    }
    for (size_t i = 0; i < it->value_bytes / 8; i++)
        it->value[i]++;
    return (struct engine_change){.what = ENGINE_STORE,
                                  .value = slice_of(it->value, it->value_bytes)};
}

static struct slice counter_key(unsigned i)
{
    static const char *const keys[] = {"count000", "count001", "different", "e0000000"};
    return slice_of(keys[i % COUNTERS], 8);
}

static void count_task_co(struct place *place, void *context, unsigned task)
{
    const struct counters *test = context;
    struct increment it = {.value_bytes = test->value_bytes};
    for (unsigned i = 0; i < test->increments; i++)
        CHECK_OK(engine_modify_co(place->engine, counter_key(task + i), false, add_one, &it));
}

static void counters_co(struct place *place, void *context)
{
    const struct counters *test = context;
    uint64_t sum = 0, value[64];
    size_t size;

    suite_tasks_co(place, TASKS, count_task_co, context);
    suite_barrier_co(place);
    for (unsigned i = 0; i < COUNTERS; i++) {
        CHECK_OK(engine_get_co(place->engine, counter_key(i), value, sizeof(value), &size));
        CHECK_EQ_U64(size, test->value_bytes);
        sum += value[0];
    }
    CHECK_EQ_U64(sum, (uint64_t)test->increments * TASKS * place->count);
}

static void test_counters(struct suite *suite)
{
    struct counters small = {.increments = suite_scaled(suite, 40), .value_bytes = 8};
    struct counters blobs = {.increments = suite_scaled(suite, 20), .value_bytes = 512};
    suite_create(suite, TABLE, &fixed);
    suite_run(suite, &(struct suite_run){.table = TABLE}, counters_co, &small);
    suite_drop(suite, TABLE);
    suite_create(suite, TABLE, &tiny);
    suite_run(suite, &(struct suite_run){.table = TABLE}, counters_co, &blobs);
    suite_drop(suite, TABLE);
}

/* One winner for each key, however many try. */
struct race {
    unsigned keys;
    atomic_uint inserted, deleted;
};

static void race_task_co(struct place *place, void *context, unsigned task)
{
    struct race *race = context;
    for (unsigned i = 0; i < race->keys; i++) {
        uint64_t key = hash_u64(i + 1), value = place->index * TASKS + task;
        enum pando_status status =
            engine_put_co(place->engine, slice_of(&key, 8), slice_of(&value, 8), ENGINE_INSERT);
        CHECK(status == PANDO_OK || status == PANDO_EXISTS);
        race->inserted += status == PANDO_OK;
    }
}

static void race_delete_task_co(struct place *place, void *context, unsigned task)
{
    struct race *race = context;
    for (unsigned i = 0; i < race->keys; i++) {
        uint64_t key = hash_u64((i + task) % race->keys + 1);
        enum pando_status status = engine_delete_co(place->engine, slice_of(&key, 8));
        CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
        race->deleted += status == PANDO_OK;
    }
}

static void race_co(struct place *place, void *context)
{
    struct race *race = context;
    suite_tasks_co(place, TASKS, race_task_co, race);
    suite_barrier_co(place);
    CHECK_EQ_U64(race->inserted, race->keys);
    if (place->index == 0)
        verify_co(place, race->keys);
    suite_barrier_co(place);
    suite_tasks_co(place, TASKS, race_delete_task_co, race);
    suite_barrier_co(place);
    CHECK_EQ_U64(race->deleted, race->keys);
    if (place->index == 0)
        verify_co(place, 0);
}

static void test_races(struct suite *suite)
{
    struct race race = {.keys = suite_scaled(suite, 100)};
    suite_create(suite, TABLE, &fixed);
    suite_run(suite, &(struct suite_run){.table = TABLE}, race_co, &race);
    suite_drop(suite, TABLE);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { BATCH = 64 };

static void batch_round_co(struct place *place, const struct key_set *keys, struct model_map *map,
                           unsigned width)
{
    struct engine_batch_op *ops = calloc(BATCH, sizeof(*ops));
    unsigned first = (unsigned)prng_below(&place->prng, keys->count);
    CHECK(ops != NULL);
    for (unsigned i = 0; i < BATCH; i++) {
        unsigned kind = (unsigned)prng_below(&place->prng, 3);
        ops[i].key = keys->keys[(first + i) % keys->count];
        ops[i].kind = kind == 0   ? ENGINE_BATCH_GET
                      : kind == 1 ? ENGINE_BATCH_PUT
                                  : ENGINE_BATCH_DELETE;
        ops[i].value = value_make(&place->prng, &place->table->shape, 200);
        ops[i].capacity = 256;
        ops[i].buffer = malloc(256);
        ops[i].status = PANDO_STATUS_COUNT;
    }
    engine_batch_co(place->engine, ops, BATCH, width);
    for (unsigned i = 0; i < BATCH; i++) {
        const struct model_pair *pair = model_map_get(map, ops[i].key);
        bool put = ops[i].kind == ENGINE_BATCH_PUT;
        CHECK_STATUS(ops[i].status, put || pair != NULL ? PANDO_OK : PANDO_NOT_FOUND);
        if (ops[i].kind == ENGINE_BATCH_GET && pair != NULL)
            CHECK(slice_equal(slice_of(ops[i].buffer, ops[i].size), pair->value));
        if (put)
            model_map_put(map, ops[i].key, ops[i].value);
        if (ops[i].kind == ENGINE_BATCH_DELETE)
            (void)model_map_remove(map, ops[i].key);
        bytes_free(ops[i].value);
        free(ops[i].buffer);
    }
    free(ops);
}

static void batches_co(struct place *place, void *context)
{
    static const unsigned widths[] = {0, 1, 2, 7, 64, 1000};
    struct key_set keys = keys_make(&place->table->shape, 2 * BATCH, place->suite->seed);
    struct model_map map = {0};
    (void)context;
    CHECK(keys.count >= BATCH);
    engine_batch_co(place->engine, NULL, 0, 8);
    for (unsigned i = 0; i < suite_scaled(place->suite, 12); i++)
        batch_round_co(place, &keys, &map, widths[i % 6]);
    compare_all_co(place, &map, &keys);
    model_map_clear(&map);
    keys_free(&keys);
}

static void test_batches(struct suite *suite)
{
    suite_create(suite, TABLE, &tiny);
    suite_run(suite, &(struct suite_run){.table = TABLE, .alone = true}, batches_co, NULL);
    suite_drop(suite, TABLE);
}

/* ---- scans while others split and merge --------------------------------------------------------
 */

/* Numbers as keys. Those that 4 divides are there all the time; the others come and go. */
enum { STEADY = 4 };

struct scanning {
    unsigned keys;
    unsigned rounds;
    atomic_uint scanners; /* that have not ended */
    bool fixed;
};

static struct slice number_key(const struct scanning *test, uint64_t number, uint8_t bytes[16])
{
    size_t size = test->fixed ? 8 : 10 + number % 5;
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    memset(bytes + 8, 'x', 8);
    return slice_of(bytes, size);
}

static void put_number_co(struct place *place, const struct scanning *test, uint64_t number)
{
    uint8_t key[16];
    uint64_t value = hash_u64(number);
    CHECK_OK(engine_put_co(place->engine, number_key(test, number, key), slice_of(&value, 8),
                           ENGINE_UPSERT));
}

static void writer_co(struct place *place, struct scanning *test)
{
    uint8_t key[16];
    while (test->scanners > 0) {
        /* A run of neighbours, so that nodes fill up and become empty. */
        uint64_t first = prng_below(&place->prng, test->keys);
        bool deletes = prng_below(&place->prng, 2) == 0;
        for (uint64_t number = first; number < first + 60 && number < test->keys; number++) {
            if (number % STEADY == 0 && deletes)
                continue;
            if (deletes)
                (void)!engine_delete_co(place->engine, number_key(test, number, key));
            else
                put_number_co(place, test, number);
        }
        /* In the simulator time passes only by what is done. */
        rt_yield_co();
    }
}

struct scanned {
    uint64_t
        next; /* the number that may come at the earliest (below which it has to be, in reverse) */
    uint64_t end;
    bool reverse;
    uint64_t count;
};

/* No steady one may lie in [from, to). */
static void none_missed(uint64_t from, uint64_t to)
{
    uint64_t steady = (from + STEADY - 1) / STEADY * STEADY;
    if (steady < to)
        CHECK_FAIL("a scan left out key %" PRIu64 ", which was there all the time", steady);
}

static bool scanned_pair(void *context, struct slice key, struct slice value)
{
    struct scanned *it = context;
    uint64_t number = 0, word;
    CHECK(key.size >= 8 && value.size == 8);
    for (unsigned i = 0; i < 8; i++)
        number = number << 8 | key.data[i];
    memcpy(&word, value.data, 8);
    CHECK_EQ_U64(word, hash_u64(number));
    if (it->reverse) {
        CHECK(number < it->next && number >= it->end);
        none_missed(number + 1, it->next);
        it->next = number;
    } else {
        CHECK(number >= it->next && number < it->end);
        none_missed(it->next, number);
        it->next = number + 1;
    }
    it->count++;
    return true;
}

static void scanner_co(struct place *place, struct scanning *test)
{
    uint8_t low_bytes[16], high_bytes[16];
    for (unsigned i = 0; i < test->rounds; i++) {
        uint64_t low = prng_below(&place->prng, test->keys / 2);
        uint64_t high = low + prng_below(&place->prng, test->keys - low) + 1;
        struct engine_range range = {.reverse = i % 2 == 1};
        if (i % 3 == 0) {
            low = 0;
            high = test->keys;
        }
        range.low = slice_of(number_key(test, low, low_bytes).data, 8);
        range.high = slice_of(number_key(test, high, high_bytes).data, 8);
        if (i % 5 == 4)
            range.limit = 1 + prng_below(&place->prng, 50);
        struct scanned it = {.reverse = range.reverse};
        it.next = range.reverse ? high : low;
        it.end = range.reverse ? low : high;
        CHECK_OK(engine_scan_co(place->engine, &range, scanned_pair, &it));
        CHECK(range.limit == 0 || it.count <= range.limit);
        if (range.limit != 0 && it.count == range.limit)
            continue;
        if (range.reverse)
            none_missed(low, it.next);
        else
            none_missed(it.next, high);
    }
    test->scanners--;
}

static void scanning_task_co(struct place *place, void *context, unsigned task)
{
    if (task % 2 == 0)
        writer_co(place, context);
    else
        scanner_co(place, context);
}

static void scanning_co(struct place *place, void *context)
{
    struct scanning *test = context;
    for (uint64_t number = place->index; number < test->keys / STEADY; number += place->count)
        put_number_co(place, test, number * STEADY);
    suite_barrier_co(place);
    suite_tasks_co(place, 4, scanning_task_co, test);
}

static void test_scans_during_writes(struct suite *suite)
{
    for (int i = 0; i < 2; i++) {
        const struct engine_shape *shape = i == 0 ? &tiny : &fixed;
        unsigned places = env_compute_nodes(suite->env) * SUITE_THREADS;
        struct scanning test = {.keys = 400,
                                .rounds = suite_scaled(suite, 30),
                                .fixed = i == 1,
                                .scanners = 2 * places};
        suite_create(suite, TABLE, shape);
        suite_run(suite, &(struct suite_run){.table = TABLE, .cache_bytes = i == 0 ? 0 : 2048},
                  scanning_co, &test);
        suite_drop(suite, TABLE);
    }
}

/* ---- verifying while others split and merge: nothing under way is taken for damage -------------- */

static void verifier_co(struct place *place, struct scanning *test)
{
    for (unsigned i = 0; i < test->rounds; i++) {
        struct engine_census census;
        char error[1024];
        enum pando_status status = engine_verify_co(place->engine, &census, error, sizeof(error));
        if (status != PANDO_OK)
            CHECK_FAIL("a false alarm: %s (%s)", error, pando_status_text(status));
        CHECK_EQ_U64(census.unsettled, 0);
        CHECK(census.pairs >= test->keys / STEADY && census.pairs <= test->keys);
    }
    test->scanners--;
}

static void verifying_task_co(struct place *place, void *context, unsigned task)
{
    if (task == 0 && place->index == 0)
        verifier_co(place, context);
    else
        writer_co(place, context);
}

static void verifying_co(struct place *place, void *context)
{
    struct scanning *test = context;
    for (uint64_t number = place->index; number < test->keys / STEADY; number += place->count)
        put_number_co(place, test, number * STEADY);
    suite_barrier_co(place);
    suite_tasks_co(place, 4, verifying_task_co, test);
}

static void test_verify_during_writes(struct suite *suite)
{
    unsigned rounds = suite_scaled(suite, strcmp(suite->fabric, "shm") == 0 ? 250 : 15);
    for (int i = 0; i < 2; i++) {
        struct scanning test = {.keys = 400, .rounds = rounds, .fixed = i == 1, .scanners = 1};
        suite_create(suite, TABLE, i == 0 ? &tiny : &fixed);
        suite_run(suite, &(struct suite_run){.table = TABLE}, verifying_co, &test);
        suite_drop(suite, TABLE);
    }
}

const struct suite_case concurrent_cases[] = {
    {"disjoint", test_disjoint, false},
    {"counters", test_counters, false},
    {"races", test_races, false},
    {"batches", test_batches, false},
    {"scans_during_writes", test_scans_during_writes, false},
    {"verify_during_writes", test_verify_during_writes, false},
    {NULL, NULL, false},
};
