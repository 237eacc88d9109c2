#include "engine/suite.h"

#include <stdatomic.h>

#include "engine/memory_process.h"

enum { NODES_MAX = 8, URI_BYTES = 256, NODE_DOUBLINGS = 7, JOINS = 8 };

/* Long: a machine that is busy with other things must not get anybody declared dead. */
static const uint64_t LEASE_NS = 5 * RT_NS_PER_S;
static const uint64_t POLL_NS = 50 * RT_NS_PER_US;

static void nothing(void *context, const struct env_place *place)
{
    (void)context;
    (void)place;
}

void suite_open(struct suite *suite)
{
    char uri[URI_BYTES], error[256] = "";
    struct env_options options = {.uri = uri};

    if (strcmp(suite->fabric, "sim") == 0) {
        const char *chaos = "shuffle=1,tear=0.2,spread=0.2,delay=0.02,late-cpu=0.1,race=0.02";
        snprintf(uri, sizeof(uri), "sim:nic=cx5,compute=2,memory=2,size=1G,seed=%" PRIu64 ",%s",
                 suite->seed, chaos);
    } else if (strcmp(suite->fabric, "shm") == 0) {
        snprintf(uri, sizeof(uri), "embedded:512M");
    } else {
        suite->memory = memory_processes_start(suite->fabric, 2);
        snprintf(uri, sizeof(uri), "%s", memory_processes_uri(suite->memory));
        options.secret_file = memory_processes_secret(suite->memory);
        options.verbs = getenv("PANDO_TEST_CLIENT_DEVICE");
    }
    enum pando_status status = env_open(&options, &suite->env, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("cannot open %s: %s (%s)", uri, error, pando_status_text(status));
    /* The first run decides how many threads there can be. */
    CHECK_OK(env_run(suite->env, SUITE_THREADS, nothing, NULL));
}

void suite_close(struct suite *suite)
{
    env_close(suite->env);
    if (suite->memory != NULL)
        memory_processes_stop(suite->memory);
    model_engine_reset();
}

/* ---- running --------------------------------------------------------------------------------- */

/* A compute node: its first thread joins and leaves for all of them. */
struct node {
    struct pool *pool;
    struct engine_table *table;
    atomic_bool ready;
    atomic_uint active;
};

struct running {
    struct suite *suite;
    const struct suite_run *run;
    suite_fn fn;
    void *context;
    unsigned threads, places;
    struct node nodes[NODES_MAX];
    atomic_uint arrived; /* at barriers, ever */
};

/* Only one suite_run at a time. */
static struct running *current;

static void join_co(struct running *running, struct node *node, const struct env_place *at,
                    struct place *place)
{
    const struct suite_run *run = running->run;
    struct engine_config config = {.without = run->without, .cache_bytes = run->cache_bytes};
    struct pool_options options = {
        .memory_nodes = (uint16_t)env_memory_nodes(at->env), .name = "suite", .lease_ns = LEASE_NS};
    char error[256] = "";
    enum pando_status status = PANDO_BROKEN;
    /* A guest that gets no processor for seconds loses connections that it has just made. */
    for (int i = 0; i < JOINS && (status == PANDO_BROKEN || status == PANDO_TIMEOUT); i++)
        status = pool_join_co(at->fabric, &options, &node->pool, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("cannot join: %s (%s)", error, pando_status_text(status));
    CHECK_OK(pool_session_open_co(node->pool, &place->session));
    if (run->table == NULL)
        return;
    status = engine_open_co(running->suite->ops, place->session, run->table, &config, &node->table,
                            error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("cannot open table %s: %s (%s)", run->table, error, pando_status_text(status));
}

static void leave_co(struct node *node, struct place *place)
{
    while (atomic_load(&node->active) > 1)
        rt_sleep_co(POLL_NS);
    if (node->table != NULL)
        engine_close_co(node->table, place->session);
    pool_session_close_co(place->session);
    pool_leave_co(node->pool);
}

static void thread_main_co(void *context, const struct env_place *at)
{
    struct running *running = context;
    struct node *node = &running->nodes[at->compute_node];
    struct place place = {.suite = running->suite,
                          .index = at->compute_node * running->threads + at->thread,
                          .count = running->places};

    if (running->run->alone && place.index != 0)
        return;
    prng_seed(&place.prng, running->suite->seed * 1000 + place.index);
    if (at->thread == 0) {
        join_co(running, node, at, &place);
        atomic_store(&node->ready, true);
    } else {
        while (!atomic_load(&node->ready))
            rt_sleep_co(POLL_NS);
        CHECK_OK(pool_session_open_co(node->pool, &place.session));
    }
    place.pool = node->pool;
    place.table = node->table;
    if (place.table != NULL)
        CHECK_OK(engine_attach_co(place.table, place.session, &place.engine));
    running->fn(&place, running->context);
    if (place.engine != NULL)
        engine_detach_co(place.engine);
    if (at->thread == 0) {
        leave_co(node, &place);
    } else {
        pool_session_close_co(place.session);
        atomic_fetch_sub(&node->active, 1);
    }
}

void suite_run(struct suite *suite, const struct suite_run *run, suite_fn fn, void *context)
{
    struct running running = {.suite = suite, .run = run, .fn = fn, .context = context};
    unsigned nodes = env_compute_nodes(suite->env);
    CHECK(nodes <= NODES_MAX);
    running.threads = run->alone ? 1 : run->threads != 0 ? run->threads : SUITE_THREADS;
    running.places = run->alone ? 1 : nodes * running.threads;
    for (unsigned i = 0; i < nodes; i++)
        atomic_init(&running.nodes[i].active, running.threads);
    current = &running;
    CHECK_OK(env_run(suite->env, running.threads, thread_main_co, &running));
    current = NULL;
}

void suite_barrier_co(struct place *place)
{
    unsigned mine = atomic_fetch_add(&current->arrived, 1);
    unsigned all = (mine / place->count + 1) * place->count;
    while (atomic_load(&current->arrived) < all)
        rt_sleep_co(POLL_NS);
}

struct task {
    struct place *place;
    suite_task_fn fn;
    void *context;
    unsigned number;
    struct rt_countdown *left;
};

static void task_main(void *arg)
{
    struct task *task = arg;
    task->fn(task->place, task->context, task->number);
    rt_countdown_done(task->left);
}

void suite_tasks_co(struct place *place, unsigned count, suite_task_fn fn, void *context)
{
    struct task tasks[SUITE_TASKS_MAX];
    struct rt_countdown left;
    CHECK(count <= SUITE_TASKS_MAX);
    rt_countdown_init(&left, count);
    for (unsigned i = 0; i < count; i++) {
        tasks[i] =
            (struct task){.place = place, .fn = fn, .context = context, .number = i, .left = &left};
        CHECK_OK(rt_spawn(rt_loop_self(), task_main, &tasks[i]));
    }
    rt_countdown_wait_co(&left);
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct create {
    const char *table;
    const struct engine_shape *shape;
};

static void create_co(struct place *place, void *context)
{
    const struct create *create = context;
    enum pando_status status = PANDO_INVALID;
    for (int i = 0; i < NODE_DOUBLINGS && status == PANDO_INVALID; i++) {
        struct engine_shape shape = *create->shape;
        shape.node_bytes <<= i;
        status = engine_create_co(place->suite->ops, place->session, create->table, &shape);
    }
    CHECK_OK(status);
}

void suite_create(struct suite *suite, const char *table, const struct engine_shape *shape)
{
    struct create create = {.table = table, .shape = shape};
    suite_run(suite, &(struct suite_run){.alone = true}, create_co, &create);
}

static void drop_co(struct place *place, void *context)
{
    struct engine_table *table;
    struct engine_config config = {0};
    char error[256];
    CHECK_OK(engine_open_co(place->suite->ops, place->session, context, &config, &table, error,
                            sizeof(error)));
    CHECK_OK(engine_drop_co(table, place->session));
    engine_close_co(table, place->session);
}

void suite_drop(struct suite *suite, const char *table)
{
    suite_run(suite, &(struct suite_run){.alone = true}, drop_co, (void *)table);
}

static void used_co(struct place *place, void *context)
{
    uint64_t *used = context;
    for (uint16_t node = 0; node < pool_nodes(place->pool); node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(place->session, node, &stats));
        *used += (stats.chunks - stats.chunks_free) * POOL_CHUNK_BYTES - stats.blocks_free_bytes;
    }
}

uint64_t suite_used_bytes(struct suite *suite)
{
    uint64_t used = 0;
    suite_run(suite, &(struct suite_run){.alone = true}, used_co, &used);
    return used;
}

void verify_co(struct place *place, uint64_t pairs)
{
    struct engine_census census;
    char error[512];
    enum pando_status status = engine_verify_co(place->engine, &census, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("the structure is damaged: %s (%s)", error, pando_status_text(status));
    CHECK_EQ_U64(census.pairs, pairs);
}

/* ---- keys and values ------------------------------------------------------------------------- */

static struct slice bytes_new(size_t size)
{
    uint8_t *bytes = calloc(1, size + 1);
    CHECK(bytes != NULL);
    return slice_of(bytes, size);
}

void bytes_free(struct slice bytes)
{
    free((void *)bytes.data);
}

static size_t key_length(struct prng *prng, const struct engine_shape *shape, unsigned i)
{
    if (shape->key_size != 0)
        return shape->key_size;
    if (i == 0)
        return 0;
    if (i == 1)
        return shape->key_max;
    uint64_t most = prng_below(prng, 4) == 0 ? shape->key_max : 24;
    if (most > shape->key_max)
        most = shape->key_max;
    return 1 + prng_below(prng, most);
}

static int key_compare(const void *a, const void *b)
{
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

struct key_set keys_make(const struct engine_shape *shape, unsigned count, uint64_t seed)
{
    struct key_set set = {.keys = calloc(count, sizeof(struct slice))};
    struct prng prng;
    unsigned kept = 0;

    CHECK(set.keys != NULL);
    prng_seed(&prng, seed);
    for (unsigned i = 0; i < count; i++) {
        bool alike = prng_below(&prng, 2) == 0;
        set.keys[i] = bytes_new(key_length(&prng, shape, i));
        uint8_t *bytes = (uint8_t *)set.keys[i].data;
        for (size_t at = 0; at < set.keys[i].size; at++)
            bytes[at] = (uint8_t)(alike ? 'a' + prng_below(&prng, 2) : prng_below(&prng, 256));
    }
    qsort(set.keys, count, sizeof(*set.keys), key_compare);
    for (unsigned i = 0; i < count; i++) {
        if (kept > 0 && slice_equal(set.keys[kept - 1], set.keys[i]))
            bytes_free(set.keys[i]);
        else
            set.keys[kept++] = set.keys[i];
    }
    set.count = kept;
    return set;
}

void keys_free(struct key_set *set)
{
    for (unsigned i = 0; i < set->count; i++)
        bytes_free(set->keys[i]);
    free(set->keys);
}

struct slice value_of(uint64_t number, size_t size)
{
    struct slice value = bytes_new(size);
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)value.data)[i] = (uint8_t)(hash_u64(number * 131 + i / 8) >> (i % 8 * 8));
    return value;
}

struct slice value_make(struct prng *prng, const struct engine_shape *shape, size_t most)
{
    size_t size = shape->value_size;
    if (size == 0) {
        uint64_t dice = prng_below(prng, 100);
        size_t small = 2 * (size_t)shape->value_inline + 8;
        size_t limit = dice < 80 ? small : dice < 97 ? 4096 : 65536;
        size = prng_below(prng, (limit < most ? limit : most) + 1);
    }
    return value_of(prng_next(prng), size);
}

/* ---- comparing with the model ---------------------------------------------------------------- */

static void check_value(struct slice expected, const uint8_t *found, size_t size)
{
    CHECK_EQ_U64(size, expected.size);
    if (size > 0 && memcmp(found, expected.data, size) != 0)
        CHECK_FAIL("a value of %zu bytes is not what was stored", size);
}

void compare_get_co(struct place *place, const struct model_map *map, struct slice key)
{
    const struct model_pair *pair = model_map_get(map, key);
    size_t capacity = pair != NULL ? pair->value.size : 64, size = SIZE_MAX;
    uint8_t *buffer = malloc(capacity + 1);
    CHECK(buffer != NULL);
    enum pando_status status = engine_get_co(place->engine, key, buffer, capacity, &size);
    CHECK_STATUS(status, pair != NULL ? PANDO_OK : PANDO_NOT_FOUND);
    if (pair != NULL)
        check_value(pair->value, buffer, size);
    free(buffer);
}

struct comparison {
    const struct model_map *map;
    size_t next; /* index in the map; one above it in reverse */
    bool reverse;
    uint64_t count;
};

static bool compare_pair(void *context, struct slice key, struct slice value)
{
    struct comparison *with = context;
    if (with->reverse ? with->next == 0 : with->next == with->map->count)
        CHECK_FAIL("a scan returned a pair too many");
    const struct model_pair *pair = &with->map->pairs[with->reverse ? with->next - 1 : with->next];
    CHECK(slice_equal(key, pair->key));
    check_value(pair->value, value.data, value.size);
    with->next += with->reverse ? (size_t)-1 : 1;
    with->count++;
    return true;
}

void compare_scan_co(struct place *place, const struct model_map *map,
                     const struct engine_range *range)
{
    size_t first = model_map_find(map, range->low);
    size_t end = range->no_high ? map->count : model_map_find(map, range->high);
    struct comparison with = {.map = map, .reverse = range->reverse};
    uint64_t expected = end > first ? end - first : 0;

    if (range->limit != 0 && expected > range->limit)
        expected = range->limit;
    with.next = range->reverse ? end : first;
    CHECK_OK(engine_scan_co(place->engine, range, compare_pair, &with));
    CHECK_EQ_U64(with.count, expected);
}

void compare_all_co(struct place *place, const struct model_map *map, const struct key_set *keys)
{
    struct engine_range range = {.no_high = true};
    compare_scan_co(place, map, &range);
    range.reverse = true;
    compare_scan_co(place, map, &range);
    for (unsigned i = 0; keys != NULL && i < keys->count; i++)
        compare_get_co(place, map, keys->keys[i]);
    verify_co(place, map->count);
}

/* ---- random operations ----------------------------------------------------------------------- */

struct change_context {
    struct slice value;
    struct slice old; /* what it was given, as a copy; data NULL: absent */
    unsigned what;
};

static struct engine_change change(void *context, const struct slice *old)
{
    struct change_context *it = context;
    struct engine_change result = {.value = it->value};
    bytes_free(it->old);
    it->old = (struct slice){0};
    if (old != NULL) {
        it->old = bytes_new(old->size);
        if (old->size > 0)
            memcpy((uint8_t *)it->old.data, old->data, old->size);
    }
    result.what = it->what == 0 ? ENGINE_KEEP : it->what == 1 ? ENGINE_REMOVE : ENGINE_STORE;
    return result;
}

static void modify_co(struct place *place, struct model_map *map, struct slice key,
                      struct slice value)
{
    struct change_context it = {.value = value, .what = (unsigned)prng_below(&place->prng, 4)};
    const struct model_pair *pair = model_map_get(map, key);
    CHECK_OK(engine_modify_co(place->engine, key, false, change, &it));
    CHECK((pair == NULL) == (it.old.data == NULL));
    if (pair != NULL)
        check_value(pair->value, it.old.data, it.old.size);
    bytes_free(it.old);
    if (it.what == 1)
        (void)model_map_remove(map, key);
    else if (it.what > 1)
        model_map_put(map, key, value);
}

static void put_co(struct place *place, struct model_map *map, struct slice key, struct slice value,
                   enum engine_put mode)
{
    bool present = model_map_get(map, key) != NULL;
    enum pando_status expected = mode == ENGINE_INSERT && present    ? PANDO_EXISTS
                                 : mode == ENGINE_UPDATE && !present ? PANDO_NOT_FOUND
                                                                     : PANDO_OK;
    CHECK_STATUS(engine_put_co(place->engine, key, value, mode), expected);
    if (expected == PANDO_OK)
        model_map_put(map, key, value);
}

void random_operation_co(struct place *place, struct model_map *map, struct slice key,
                         size_t value_max)
{
    uint64_t dice = prng_below(&place->prng, 100);
    struct slice value = value_make(&place->prng, &place->table->shape, value_max);

    if (dice < 25) {
        compare_get_co(place, map, key);
    } else if (dice < 45) {
        put_co(place, map, key, value, ENGINE_UPSERT);
    } else if (dice < 60) {
        put_co(place, map, key, value, ENGINE_INSERT);
    } else if (dice < 70) {
        put_co(place, map, key, value, ENGINE_UPDATE);
    } else if (dice < 88) {
        CHECK_STATUS(engine_delete_co(place->engine, key),
                     model_map_get(map, key) != NULL ? PANDO_OK : PANDO_NOT_FOUND);
        (void)model_map_remove(map, key);
    } else {
        modify_co(place, map, key, value);
    }
    bytes_free(value);
}

struct engine_range random_range(struct prng *prng, const struct key_set *keys)
{
    struct engine_range range = {.reverse = prng_below(prng, 2) == 0};
    unsigned low = (unsigned)prng_below(prng, keys->count);
    unsigned high = (unsigned)prng_below(prng, keys->count);
    if (prng_below(prng, 5) != 0)
        range.low = keys->keys[low];
    range.no_high = prng_below(prng, 5) == 0;
    if (!range.no_high)
        range.high = keys->keys[high];
    if (prng_below(prng, 2) == 0)
        range.limit = 1 + prng_below(prng, 20);
    return range;
}
