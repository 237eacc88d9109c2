#include "lib/model_engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/prng.h"
#include "pool/block_fmt.h"
#include "pool/pool_int.h"
#include "rt/rt.h"

enum {
    STRIPES = 64, /* locks of a table, by key */
    TABLES_MAX = 64,
    SCAN_STEP = 4, /* pairs read at one time */
    DELAY_NS = 2000,
    DOUBLINGS = 6, /* of the delay between tries to lock */
    LEAK_BYTES = 256,
};

enum fault {
    FAULT_UPDATE,
    FAULT_READ,
    FAULT_MISS,
    FAULT_TWICE,
    FAULT_ORDER,
    FAULT_GHOST,
    FAULT_WRITE,
    FAULT_TORN,
    FAULT_STATUS,
    FAULT_MEMORY,
    FAULT_LOCK,
    FAULT_HANG,
    NO_DELAY, /* no fault */
    NAMES
};

const char *const model_engine_faults[] = {
    "break-update", "break-read",  "break-miss", "break-twice",  "break-order",
    "break-ghost",  "break-write", "break-torn", "break-status", "break-memory",
    "break-lock",   "break-hang",  NULL};

/* How often a fault shows: once in so many chances. */
static const unsigned rarity[NAMES] = {8, 64, 128, 128, 128, 64, 64, 64, 8, 64, 64, 256, 1};

/* ---- the sorted array ------------------------------------------------------------------------ */

static struct slice copy_of(struct slice bytes)
{
    uint8_t *copy = malloc(bytes.size + 1);
    pando_assert(copy != NULL);
    if (bytes.size > 0)
        memcpy(copy, bytes.data, bytes.size);
    return slice_of(copy, bytes.size);
}

size_t model_map_find(const struct model_map *map, struct slice key)
{
    size_t low = 0, high = map->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (slice_compare(map->pairs[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct model_pair *model_map_get(const struct model_map *map, struct slice key)
{
    size_t at = model_map_find(map, key);
    if (at == map->count || !slice_equal(map->pairs[at].key, key))
        return NULL;
    return &map->pairs[at];
}

void model_map_put(struct model_map *map, struct slice key, struct slice value)
{
    struct model_pair *pair = model_map_get(map, key);
    if (pair != NULL) {
        free((void *)pair->previous.data);
        pair->previous = pair->value;
        pair->value = copy_of(value);
        return;
    }
    size_t at = model_map_find(map, key);
    if (map->count == map->capacity) {
        map->capacity = map->capacity == 0 ? 64 : map->capacity * 2;
        map->pairs = realloc(map->pairs, map->capacity * sizeof(*map->pairs));
        pando_assert(map->pairs != NULL);
    }
    memmove(&map->pairs[at + 1], &map->pairs[at], (map->count - at) * sizeof(*map->pairs));
    map->pairs[at] = (struct model_pair){.key = copy_of(key), .value = copy_of(value)};
    map->count++;
}

static void pair_free(struct model_pair *pair)
{
    free((void *)pair->key.data);
    free((void *)pair->value.data);
    free((void *)pair->previous.data);
}

bool model_map_remove(struct model_map *map, struct slice key)
{
    struct model_pair *pair = model_map_get(map, key);
    if (pair == NULL)
        return false;
    size_t at = (size_t)(pair - map->pairs);
    pair_free(pair);
    map->count--;
    memmove(pair, pair + 1, (map->count - at) * sizeof(*pair));
    return true;
}

void model_map_clear(struct model_map *map)
{
    for (size_t i = 0; i < map->count; i++)
        pair_free(&map->pairs[i]);
    free(map->pairs);
    *map = (struct model_map){0};
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* What all compute nodes share. */
struct store {
    uint64_t pool;
    char name[POOL_NAME_MAX];
    struct engine_shape shape;
    struct rt_latch latch; /* of the map; held across no suspension */
    struct model_map map;
    atomic_bool stripes[STRIPES]; /* held by writers, also across suspensions */
};

struct model_table {
    struct engine_table base;
    struct store *store;
    bool names[NAMES];
};

static struct rt_latch stores_latch;
static struct store *stores[TABLES_MAX];

/* Under the latch. */
static struct store **store_find(uint64_t pool, const char *name)
{
    for (unsigned i = 0; i < TABLES_MAX; i++) {
        if (stores[i] != NULL && stores[i]->pool == pool && strcmp(stores[i]->name, name) == 0)
            return &stores[i];
    }
    return NULL;
}

static void store_free(struct store *store)
{
    model_map_clear(&store->map);
    free(store);
}

void model_engine_reset(void)
{
    for (unsigned i = 0; i < TABLES_MAX; i++) {
        if (stores[i] != NULL)
            store_free(stores[i]);
        stores[i] = NULL;
    }
}

static enum pando_status model_create_co(struct pool_session *session, const char *name,
                                         const struct engine_shape *shape)
{
    enum pando_status status = PANDO_FULL;
    struct store *store = calloc(1, sizeof(*store));
    pando_assert(store != NULL);
    store->pool = pool_id(pool_session_pool(session));
    store->shape = *shape;
    snprintf(store->name, sizeof(store->name), "%s", name);
    rt_latch_lock(&stores_latch);
    if (store_find(store->pool, name) != NULL)
        status = PANDO_EXISTS;
    for (unsigned i = 0; i < TABLES_MAX && status == PANDO_FULL; i++) {
        if (stores[i] == NULL) {
            stores[i] = store;
            status = PANDO_OK;
        }
    }
    rt_latch_unlock(&stores_latch);
    if (status != PANDO_OK)
        free(store);
    return status;
}

static enum pando_status parse_names(struct model_table *table, const char *list, char *error,
                                     size_t error_bytes)
{
    while (list != NULL && *list != '\0') {
        size_t size = strcspn(list, ",");
        unsigned i = 0;
        while (i < NAMES) {
            const char *name = i == NO_DELAY ? "delay" : model_engine_faults[i];
            if (strlen(name) == size && memcmp(name, list, size) == 0)
                break;
            i++;
        }
        if (i == NAMES) {
            snprintf(error, error_bytes, "the model engine has no technique '%.*s'", (int)size,
                     list);
            return PANDO_INVALID;
        }
        table->names[i] = true;
        list += size;
        list += *list == ',';
    }
    return PANDO_OK;
}

static enum pando_status model_open_co(struct pool_session *session, const char *name,
                                       const struct engine_config *config,
                                       struct engine_table **out, char *error, size_t error_bytes)
{
    struct model_table *table = calloc(1, sizeof(*table));
    pando_assert(table != NULL);
    enum pando_status status = parse_names(table, config->without, error, error_bytes);
    if (status == PANDO_OK) {
        rt_latch_lock(&stores_latch);
        struct store **store = store_find(pool_id(pool_session_pool(session)), name);
        table->store = store != NULL ? *store : NULL;
        rt_latch_unlock(&stores_latch);
        if (table->store == NULL) {
            snprintf(error, error_bytes, "no table '%s'", name);
            status = PANDO_NOT_FOUND;
        }
    }
    if (status != PANDO_OK) {
        free(table);
        return status;
    }
    table->base = (struct engine_table){.ops = &model_engine, .shape = table->store->shape};
    *out = &table->base;
    return PANDO_OK;
}

static void model_close_co(struct engine_table *table, struct pool_session *session)
{
    (void)session;
    free(table);
}

static enum pando_status model_drop_co(struct engine_table *base, struct pool_session *session)
{
    struct model_table *table = (struct model_table *)base;
    (void)session;
    rt_latch_lock(&stores_latch);
    struct store **place = store_find(table->store->pool, table->store->name);
    if (place != NULL)
        *place = NULL;
    rt_latch_unlock(&stores_latch);
    store_free(table->store);
    table->store = NULL;
    return PANDO_OK;
}

static enum pando_status model_attach_co(struct engine_table *table, struct pool_session *session,
                                         struct engine **out)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    pando_assert(engine != NULL);
    *engine = (struct engine){.ops = &model_engine, .table = table, .session = session};
    *out = engine;
    return PANDO_OK;
}

static void model_detach_co(struct engine *engine)
{
    free(engine);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct model_table *table_of(const struct engine *engine)
{
    return (struct model_table *)engine->table;
}

static bool strikes(const struct engine *engine, enum fault fault)
{
    return table_of(engine)->names[fault] && rt_random() % rarity[fault] == 0;
}

static void delay_co(const struct engine *engine)
{
    if (!table_of(engine)->names[NO_DELAY])
        rt_sleep_co(rt_random() % DELAY_NS);
}

/* So that the operation costs a round trip, and fails where one would. */
static enum pando_status touch_co(struct engine *engine, struct slice key)
{
    struct pool *pool = pool_session_pool(engine->session);
    uint64_t hash = key.size + (key.size > 0 ? key.data[key.size - 1] : 0);
    uint16_t node = (uint16_t)(hash_u64(hash) % pool_nodes(pool));
    uint64_t word;
    struct fabric_op read =
        fabric_read(pool_superblock(pool, node)->heap_offset, &word, sizeof(word));
    enum pando_status status = pool_submit_co(engine->session, node, &read, 1);
    if (status != PANDO_OK)
        return status;
    if (strikes(engine, FAULT_HANG))
        rt_sleep_co(1000 * RT_NS_PER_S);
    return pool_fenced(pool) ? PANDO_FENCED : PANDO_OK;
}

static void leak_co(struct engine *engine)
{
    struct pool_block block;
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE,
                                 .holder = pool_identity(pool_session_pool(engine->session))};
    uint64_t word = pool_tenure_pack(tenure);
    if (pool_alloc_co(engine->session, POOL_ANY_NODE, LEAK_BYTES, &block) != PANDO_OK)
        return;
    struct fabric_op write =
        fabric_write(fabric_address_offset(block.address) + POOL_BLOCK_TENURE, &word, 8);
    (void)!pool_submit_co(engine->session, fabric_address_node(block.address), &write, 1);
}

static void leave_lock_co(struct engine *engine)
{
    struct pool *pool = pool_session_pool(engine->session);
    struct pool_lock lock;
    (void)!pool_lock_co(engine->session,
                        pool_lock_address(pool, 0, 1 + (uint32_t)(rt_random() % 1000)), &lock);
}

/* What a reader is shown of a pair, as a copy. Under the latch. */
static struct slice shown_value(const struct engine *engine, const struct model_pair *pair,
                                enum fault stale)
{
    struct slice value = copy_of(pair->value);
    if (pair->previous.data == NULL)
        return value;
    if (strikes(engine, stale)) {
        free((void *)value.data);
        return copy_of(pair->previous);
    }
    if (strikes(engine, FAULT_TORN)) {
        size_t common = value.size < pair->previous.size ? value.size : pair->previous.size;
        size_t from = common > 16 ? 8 : common / 2;
        memcpy((uint8_t *)value.data + from, pair->previous.data + from, common - from);
    }
    return value;
}

static enum pando_status model_get_co(struct engine *engine, struct slice key, void *to,
                                      size_t capacity, size_t *size)
{
    struct store *store = table_of(engine)->store;
    struct slice value = {0};

    enum pando_status status = touch_co(engine, key);
    if (status != PANDO_OK)
        return status;
    rt_latch_lock(&store->latch);
    struct model_pair *pair = model_map_get(&store->map, key);
    if (pair != NULL)
        value = shown_value(engine, pair, FAULT_READ);
    rt_latch_unlock(&store->latch);
    delay_co(engine);
    if (value.data == NULL)
        return PANDO_NOT_FOUND;
    *size = value.size;
    if (capacity > 0)
        memcpy(to, value.data, value.size < capacity ? value.size : capacity);
    free((void *)value.data);
    return PANDO_OK;
}

static atomic_bool *stripe_lock_co(struct store *store, struct slice key)
{
    uint64_t hash = key.size;
    for (size_t i = 0; i < key.size; i++)
        hash = hash_u64(hash ^ key.data[i]);
    atomic_bool *stripe = &store->stripes[hash % STRIPES];
    for (unsigned tries = 0; atomic_exchange(stripe, true); tries++)
        rt_sleep_co(1 + rt_random() % (DELAY_NS << (tries < DOUBLINGS ? tries : DOUBLINGS)));
    return stripe;
}

static void apply(struct engine *engine, struct slice key, const struct engine_change *change)
{
    struct store *store = table_of(engine)->store;
    if (change->what == ENGINE_KEEP || strikes(engine, FAULT_WRITE))
        return;
    rt_latch_lock(&store->latch);
    if (change->what == ENGINE_STORE)
        model_map_put(&store->map, key, change->value);
    else
        (void)model_map_remove(&store->map, key);
    rt_latch_unlock(&store->latch);
}

static enum pando_status model_modify_co(struct engine *engine, struct slice key, unsigned how,
                                         engine_modify_fn fn, void *context)
{
    struct store *store = table_of(engine)->store;
    struct slice old = {0};
    (void)how;

    atomic_bool *stripe = strikes(engine, FAULT_UPDATE) ? NULL : stripe_lock_co(store, key);
    rt_latch_lock(&store->latch);
    struct model_pair *pair = model_map_get(&store->map, key);
    if (pair != NULL)
        old = copy_of(pair->value);
    rt_latch_unlock(&store->latch);
    delay_co(engine);
    enum pando_status status = touch_co(engine, key);
    if (status == PANDO_OK) {
        bool absent = old.data == NULL || strikes(engine, FAULT_STATUS);
        struct engine_change change = fn(context, absent ? NULL : &old);
        apply(engine, key, &change);
        if (strikes(engine, FAULT_MEMORY))
            leak_co(engine);
        if (strikes(engine, FAULT_LOCK))
            leave_lock_co(engine);
    }
    if (stripe != NULL)
        atomic_store(stripe, false);
    free((void *)old.data);
    delay_co(engine);
    return status;
}

/* ---- scans ----------------------------------------------------------------------------------- */

struct scan {
    struct engine *engine;
    const struct engine_range *range;
    struct slice
        cursor; /* owned: keys from here on (below it, in reverse); data NULL: from the end */
    struct model_pair step[SCAN_STEP];
    size_t count;
    uint64_t left;
};

/* Copies the next pairs; the cursor moves behind them. */
static void scan_read(struct scan *scan)
{
    struct store *store = table_of(scan->engine)->store;
    const struct engine_range *range = scan->range;

    scan->count = 0;
    rt_latch_lock(&store->latch);
    const struct model_map *map = &store->map;
    size_t at = scan->cursor.data == NULL ? map->count : model_map_find(map, scan->cursor);
    while (scan->count < SCAN_STEP) {
        if (range->reverse ? at == 0 : at == map->count)
            break;
        at -= range->reverse;
        const struct model_pair *pair = &map->pairs[at];
        at += !range->reverse;
        if (range->reverse ? slice_compare(pair->key, range->low) < 0
                           : !range->no_high && slice_compare(pair->key, range->high) >= 0)
            break;
        scan->step[scan->count++] = (struct model_pair){
            .key = copy_of(pair->key), .value = shown_value(scan->engine, pair, FAULT_GHOST)};
    }
    rt_latch_unlock(&store->latch);
    if (scan->count == 0)
        return;
    /* The key that follows the last one is the same with a zero byte behind it. */
    struct slice last = scan->step[scan->count - 1].key;
    free((void *)scan->cursor.data);
    scan->cursor = copy_of(last);
    if (!range->reverse) {
        ((uint8_t *)scan->cursor.data)[last.size] = 0;
        scan->cursor.size++;
    }
}

static bool scan_deliver(struct scan *scan, engine_scan_fn fn, void *context)
{
    bool more = true;
    if (scan->count > 1 && strikes(scan->engine, FAULT_ORDER)) {
        struct model_pair first = scan->step[0];
        scan->step[0] = scan->step[1];
        scan->step[1] = first;
    }
    for (size_t i = 0; i < scan->count; i++) {
        struct model_pair *pair = &scan->step[i];
        unsigned times = strikes(scan->engine, FAULT_MISS) ? 0 : 1;
        times += strikes(scan->engine, FAULT_TWICE);
        for (unsigned t = 0; t < times && more && scan->left > 0; t++) {
            scan->left--;
            more = fn(context, pair->key, pair->value);
        }
        pair_free(pair);
        *pair = (struct model_pair){0};
    }
    return more && scan->left > 0;
}

static enum pando_status model_scan_co(struct engine *engine, const struct engine_range *range,
                                       engine_scan_fn fn, void *context)
{
    struct scan scan = {.engine = engine, .range = range};
    enum pando_status status;
    bool more;

    scan.left = range->limit == 0 ? UINT64_MAX : range->limit;
    if (!range->reverse || !range->no_high)
        scan.cursor = copy_of(range->reverse ? range->high : range->low);
    do {
        status = touch_co(engine, scan.cursor);
        if (status != PANDO_OK)
            break;
        scan_read(&scan);
        delay_co(engine);
        more = scan_deliver(&scan, fn, context);
    } while (more && scan.count > 0);
    free((void *)scan.cursor.data);
    return status;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static enum pando_status model_bulk_load_co(struct engine *engine, engine_feed_fn next,
                                            void *context, unsigned fill)
{
    struct model_map *map = &table_of(engine)->store->map;
    struct slice key, value;
    (void)fill;
    if (map->count > 0)
        return PANDO_EXISTS;
    while (next(context, &key, &value)) {
        if (map->count > 0 && slice_compare(key, map->pairs[map->count - 1].key) <= 0) {
            model_map_clear(map);
            return PANDO_INVALID;
        }
        model_map_put(map, key, value);
    }
    return PANDO_OK;
}

static void model_stats(const struct engine_table *table, struct engine_stats *out)
{
    (void)table;
    *out = (struct engine_stats){0};
}

static enum pando_status model_verify_co(struct engine *engine, struct engine_census *out,
                                         char *error, size_t error_bytes)
{
    struct store *store = table_of(engine)->store;
    const struct model_map *map = &store->map;
    enum pando_status status = PANDO_OK;

    rt_latch_lock(&store->latch);
    for (size_t i = 1; i < map->count && status == PANDO_OK; i++) {
        if (slice_compare(map->pairs[i - 1].key, map->pairs[i].key) >= 0) {
            snprintf(error, error_bytes, "pair %zu is out of order", i);
            status = PANDO_CORRUPT;
        }
    }
    *out = (struct engine_census){.pairs = map->count};
    rt_latch_unlock(&store->latch);
    return status;
}

const struct engine_ops model_engine = {
    .name = "model",
    .create_co = model_create_co,
    .open_co = model_open_co,
    .close_co = model_close_co,
    .drop_co = model_drop_co,
    .attach_co = model_attach_co,
    .detach_co = model_detach_co,
    .get_co = model_get_co,
    .modify_co = model_modify_co,
    .scan_co = model_scan_co,
    .bulk_load_co = model_bulk_load_co,
    .stats = model_stats,
    .verify_co = model_verify_co,
};
