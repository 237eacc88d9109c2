/*
 * operations.c - the engine's operations on a table that may be dropped, in a process that may have to
 * join the pool again.
 *
 * Each counts itself in, runs in the engine, and counts itself out. FENCED, TIMEOUT and BROKEN mean that
 * nothing was done: after FENCED it is done again in the next life. Engines say UNKNOWN where they cannot tell, and so does the store.
 */
#include <string.h>

#include "base/assert.h"
#include "store/keys.h"
#include "store/store_int.h"

/* An engine's operation, and how it ended. */
struct attempt {
    struct store_table *table;
    unsigned count;
    uint64_t life;
    enum pando_status status;
};

static const uint64_t DOUBT_LOOK_NS = 5 * RT_NS_PER_MS;
enum { DOUBT_LEASES = 3 };

/* A process that was stopped finds its deadlines past and its connections cut before it learns that it
 * was declared dead. While its lease is over by its own clock, what could not be done waits until it is
 * known which: the next life (OK), or this one after all (OK), or neither in time (the status). */
static enum pando_status doubt_co(struct store_thread *thread, uint64_t life,
                                  enum pando_status status)
{
    struct store *store = thread->store;
    uint64_t deadline_ns = rt_now_ns() + DOUBT_LEASES * store->lease_ns;
    while (rt_now_ns() < deadline_ns) {
        if (atomic_load(&store->life_number) != life)
            return PANDO_OK;
        if (thread->life == NULL || thread->life->number != life)
            return status; /* another task is moving the thread */
        if (pool_fenced(thread->life->pool))
            return store_reborn_co(store, life);
        if (pool_lease_valid(thread->life->pool))
            return PANDO_OK;
        rt_sleep_co(DOUBT_LOOK_NS);
    }
    return status;
}

/* Whether it was not done because the process is, or may be, no member any more. */
static bool lost_its_life(const struct attempt *attempt)
{
    const struct pool *pool = attempt->table->thread->life->pool;
    return attempt->status == PANDO_FENCED ||
           ((attempt->status == PANDO_TIMEOUT || attempt->status == PANDO_BROKEN) &&
            !pool_lease_valid(pool));
}

/* False: it is over, and its status says how. Otherwise the caller runs it and sets the status. */
static bool attempt_co(struct attempt *attempt)
{
    struct store_table *table = attempt->table;
    if (attempt->count > 0) {
        bool again = lost_its_life(attempt);
        store_table_leave(table);
        if (again && attempt->count > STORE_REJOINS_MAX)
            attempt->status = PANDO_TIMEOUT;
        else if (attempt->status == PANDO_FENCED)
            attempt->status = store_reborn_co(table->thread->store, attempt->life);
        else if (again)
            attempt->status = doubt_co(table->thread, attempt->life, attempt->status);
        if (!again || attempt->status != PANDO_OK)
            return false;
    }
    attempt->count++;
    attempt->status = store_table_enter_co(table);
    if (attempt->status != PANDO_OK)
        return false;
    attempt->life = table->thread->life->number;
    return true;
}

enum pando_status store_get_co(struct store_table *table, struct slice key, void *value,
                               size_t capacity, size_t *size)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_get_co(table->engine, key, value, capacity, size);
    return attempt.status;
}

enum pando_status store_put_co(struct store_table *table, struct slice key, struct slice value,
                               enum engine_put mode)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_put_co(table->engine, key, value, mode);
    return attempt.status;
}

enum pando_status store_delete_co(struct store_table *table, struct slice key)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_delete_co(table->engine, key);
    return attempt.status;
}

enum pando_status store_modify_co(struct store_table *table, struct slice key, bool blind,
                                  engine_modify_fn fn, void *context)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_modify_co(table->engine, key, blind, fn, context);
    return attempt.status;
}

enum pando_status store_verify_co(struct store_table *table, struct engine_census *out, char *error,
                                  size_t error_bytes)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_verify_co(table->engine, out, error, error_bytes);
    return attempt.status;
}

enum pando_status store_spread_co(struct store_table *table, unsigned *processes)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_spread_co(table->engine, true, processes);
    return attempt.status;
}

/* What was fed is gone: it is not done again, but nothing was changed either. */
enum pando_status store_bulk_load_co(struct store_table *table, engine_feed_fn next, void *context,
                                     unsigned fill)
{
    enum pando_status status = store_table_enter_co(table);
    if (status != PANDO_OK)
        return status;
    status = engine_bulk_load_co(table->engine, next, context, fill);
    store_table_leave(table);
    return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
}

/* ---- scans ----------------------------------------------------------------------------------- */

/* A scan that goes on in the next life after the last pair it has given. */
struct scan {
    const struct store_table *table;
    engine_scan_fn fn;
    void *context;
    struct engine_range left;
    uint64_t given;
    bool stopped, dropped;
    size_t last_size;
    uint8_t last[ENGINE_KEY_MAX + 1];
};

static bool scan_pair(void *context, struct slice key, struct slice value)
{
    struct scan *scan = context;
    if (atomic_load_explicit(&scan->table->shared->dropped, memory_order_relaxed)) {
        scan->dropped = true; /* whoever drops it waits for us */
        return false;
    }
    scan->given++;
    if (key.size > 0)
        memcpy(scan->last, key.data, key.size);
    scan->last_size = key.size;
    scan->stopped = !scan->fn(scan->context, key, value);
    return !scan->stopped;
}

/* What is left of the range; false: nothing. */
static bool scan_rest(struct scan *scan, const struct engine_range *range)
{
    if (scan->stopped || (range->limit != 0 && scan->given >= range->limit))
        return false;
    if (scan->given == 0)
        return true;
    scan->left.limit = range->limit == 0 ? 0 : range->limit - scan->given;
    if (range->reverse) {
        scan->left.high = slice_of(scan->last, scan->last_size);
        scan->left.no_high = false;
        return true;
    }
    if (!key_after(scan->last, &scan->last_size, ENGINE_KEY_MAX))
        return false;
    scan->left.low = slice_of(scan->last, scan->last_size);
    return true;
}

enum pando_status store_scan_co(struct store_table *table, const struct engine_range *range,
                                engine_scan_fn fn, void *context)
{
    struct attempt attempt = {.table = table};
    struct scan scan = {.table = table, .fn = fn, .context = context, .left = *range};
    while (attempt_co(&attempt)) {
        if (scan_rest(&scan, range))
            attempt.status = engine_scan_co(table->engine, &scan.left, scan_pair, &scan);
        if (scan.dropped)
            attempt.status = PANDO_NOT_FOUND;
    }
    return attempt.status;
}

/* ---- batches --------------------------------------------------------------------------------- */

static enum pando_status batch_one_co(struct store_table *table, struct engine_batch_op *op)
{
    switch (op->kind) {
    case ENGINE_BATCH_GET:
        return store_get_co(table, op->key, op->buffer, op->capacity, &op->size);
    case ENGINE_BATCH_PUT:
        return store_put_co(table, op->key, op->value, ENGINE_UPSERT);
    case ENGINE_BATCH_DELETE:
        return store_delete_co(table, op->key);
    }
    return PANDO_INVALID;
}

void store_batch_co(struct store_table *table, struct engine_batch_op *ops, size_t count,
                    unsigned width)
{
    enum pando_status status = store_table_enter_co(table);
    if (status == PANDO_OK) {
        engine_batch_co(table->engine, ops, count, width);
        store_table_leave(table);
    }
    for (size_t i = 0; i < count; i++) {
        if (status != PANDO_OK)
            ops[i].status = status;
        else if (ops[i].status == PANDO_FENCED) /* rare: one after the other will do */
            ops[i].status = batch_one_co(table, &ops[i]);
    }
}
