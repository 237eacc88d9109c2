/*
 * full.c - a pool that is full: nothing new goes in, but what is there can be read, overwritten and
 * deleted, also by processes that come anew, and then there is room again.
 */
#include <stdatomic.h>

#include "engine/suite.h"
#include "pool/block_fmt.h"
#include "pool/pool_int.h"

#define TABLE "full"

enum {
    TASKS = 4,
    VALUE = 64,
    BLOB = 30000,
    KEYS_MAX = 1 << 16,
    HOGS_MAX = 4096,
    LEFT_CHUNKS = 2,   /* of each node, besides the reserve */
    REFUSALS_MAX = 50, /* of one task: so much is tried again after the first */
};

struct full {
    struct pool_block hogs[HOGS_MAX];
    unsigned hog_count;
    atomic_uint stored, refused;
    uint8_t there[KEYS_MAX]; /* by number of the key */
};

static struct slice number_key(uint64_t number, uint64_t *bytes)
{
    *bytes = hash_u64(number + 1);
    return slice_of(bytes, 8);
}

static size_t value_bytes(uint64_t number)
{
    return number % 4 == 0 ? BLOB : VALUE;
}

/* ---- most of the pool is somebody else's ----------------------------------------------------- */

static void hog_co(struct place *place, struct full *full, uint16_t node)
{
    struct pool_block *block = &full->hogs[full->hog_count++];
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE, .kind = 99, .table = 999};
    CHECK(full->hog_count <= HOGS_MAX);
    CHECK_OK(pool_alloc_co(place->session, node, POOL_CHUNK_BYTES, block));
    uint64_t word = pool_tenure_pack(tenure);
    struct fabric_op write = fabric_write(fabric_address_offset(block->address) + POOL_BLOCK_TENURE,
                                          &word, sizeof(word));
    CHECK_OK(pool_submit_co(place->session, node, &write, 1));
}

static void hog_all_co(struct place *place, void *context)
{
    for (uint16_t node = 0; node < pool_nodes(place->pool); node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(place->session, node, &stats));
        CHECK(stats.chunks_reserved > 0);
        for (uint64_t i = stats.chunks_reserved + LEFT_CHUNKS; i < stats.chunks_free; i++)
            hog_co(place, context, node);
    }
}

static void unhog_co(struct place *place, void *context)
{
    struct full *full = context;
    for (unsigned i = 0; i < full->hog_count; i++)
        CHECK_OK(pool_free_co(place->session, &full->hogs[i], POOL_CHUNK_BYTES, false));
}

/* ---- filling it ------------------------------------------------------------------------------ */

static void fill_task_co(struct place *place, void *context, unsigned task)
{
    struct full *full = context;
    unsigned refused = 0;
    for (uint64_t i = place->index * TASKS + task; i < KEYS_MAX && refused < REFUSALS_MAX;
         i += place->count * TASKS) {
        uint64_t key;
        struct slice value = value_of(i, value_bytes(i));
        enum pando_status status =
            engine_put_co(place->engine, number_key(i, &key), value, ENGINE_INSERT);
        bytes_free(value);
        full->there[i] = status == PANDO_OK;
        if (status == PANDO_OK)
            atomic_fetch_add(&full->stored, 1);
        else
            CHECK_STATUS(status, PANDO_FULL);
        refused += status != PANDO_OK;
    }
    atomic_fetch_add(&full->refused, refused);
}

static void fill_co(struct place *place, void *context)
{
    rt_sleep_co(3 * RT_NS_PER_S); /* what former members have left is free then */
    suite_tasks_co(place, TASKS, fill_task_co, context);
}

/* ---- and working in it ----------------------------------------------------------------------- */

static void check_key_co(struct place *place, uint64_t number)
{
    uint8_t found[BLOB];
    uint64_t key;
    size_t size = 0;
    struct slice value = value_of(number, value_bytes(number));
    CHECK_OK(engine_get_co(place->engine, number_key(number, &key), found, sizeof(found), &size));
    CHECK(size == value.size && memcmp(found, value.data, size) == 0);
    /* What lies in its leaf is overwritten where it is. */
    if (size <= VALUE)
        CHECK_OK(engine_put_co(place->engine, number_key(number, &key), value, ENGINE_UPDATE));
    bytes_free(value);
}

static void use_task_co(struct place *place, void *context, unsigned task)
{
    const struct full *full = context;
    for (uint64_t i = place->index * TASKS + task; i < KEYS_MAX; i += place->count * TASKS) {
        if (full->there[i])
            check_key_co(place, i);
    }
}

static void empty_task_co(struct place *place, void *context, unsigned task)
{
    struct full *full = context;
    for (uint64_t i = place->index * TASKS + task; i < KEYS_MAX; i += place->count * TASKS) {
        uint64_t key;
        if (!full->there[i])
            continue;
        CHECK_OK(engine_delete_co(place->engine, number_key(i, &key)));
        full->there[i] = false;
        atomic_fetch_sub(&full->stored, 1);
    }
}

static void use_co(struct place *place, void *context)
{
    suite_tasks_co(place, TASKS, use_task_co, context);
    suite_barrier_co(place);
    suite_tasks_co(place, TASKS, empty_task_co, context);
}

static void count_co(struct place *place, void *context)
{
    struct full *full = context;
    verify_co(place, atomic_load(&full->stored));
}

static void test_full(struct suite *suite)
{
    struct engine_shape shape = {.key_size = 8, .value_inline = VALUE, .node_bytes = 512};
    struct suite_run all = {.table = TABLE, .threads = 1}, alone = {.table = TABLE, .alone = true};
    struct suite_run nothing = {.alone = true};
    if (suite->ops == &model_engine ||
        (strcmp(suite->fabric, "sim") != 0 && strcmp(suite->fabric, "shm") != 0)) {
        printf(
            "  SKIP: the model keeps its pairs elsewhere, and filling a pool takes minutes on %s\n",
            suite->fabric);
        return;
    }
    struct full *full = calloc(1, sizeof(*full));
    uint64_t before = suite_used_bytes(suite);

    CHECK(full != NULL);
    suite_create(suite, TABLE, &shape);
    suite_run(suite, &nothing, hog_all_co, full);
    for (int round = 0; round < 2; round++) {
        suite_run(suite, &all, fill_co, full);
        unsigned stored = atomic_load(&full->stored);
        printf("  full with %u pairs; %u were refused\n", stored, atomic_load(&full->refused));
        CHECK(atomic_load(&full->refused) > 0 && stored > 500);
        suite_run(suite, &alone, count_co, full);
        suite_run(suite, &all, use_co, full);
        suite_run(suite, &alone, count_co, full);
    }
    suite_drop(suite, TABLE);
    suite_run(suite, &nothing, unhog_co, full);
    CHECK_EQ_U64(suite_used_bytes(suite), before);
    free(full);
}

const struct suite_case full_cases[] = {
    {"full", test_full, false},
    {NULL, NULL, false},
};
