/*
 * operations.c - the engine's operations on a table that may be dropped, in a process that may have to
 * join the pool again.
 *
 * Each counts itself in, runs in the engine, and counts itself out. FENCED, TIMEOUT and BROKEN mean
 * that nothing was done: after FENCED it is done again in the next membership. Engines say UNKNOWN
 * where they cannot tell, and so does the store.
 */
#include <string.h>

#include "base/assert.h"
#include "store/keys.h"
#include "store/store_int.h"

/* An engine's operation, and how it ended. */
struct attempt {
    struct store_table *table;
    unsigned count;
    uint64_t membership;
    enum pando_status status;
};

static const uint64_t DOUBT_LOOK_NS =
    5 * RT_NS_PER_MS; /* at what nobody tells: fenced, the lease */
enum { DOUBT_LEASES = 3 };

struct doubt {
    const struct store *store;
    uint64_t membership;
};

static bool not_rejoined(const void *context)
{
    const struct doubt *doubt = context;
    return atomic_load(&doubt->store->membership_number) == doubt->membership;
}

/* A process that was stopped finds its deadlines past and its connections cut before it learns that
 * it was declared dead. While its lease is over by its own clock, what could not be done waits
 * until it is known which: the next membership (OK), or this one after all (OK), or neither in time
 * (the status). */
static enum pando_status doubt_co(struct store_thread *thread, uint64_t membership,
                                  enum pando_status status)
{
    struct store *store = thread->store;
    struct doubt doubt = {store, membership};
    uint64_t deadline_ns = rt_now_ns() + DOUBT_LEASES * store->lease_ns;
    while (rt_now_ns() < deadline_ns) {
        if (atomic_load(&store->membership_number) != membership)
            return PANDO_OK;
        if (thread->membership == NULL || thread->membership->number != membership)
            return status; /* another task is moving the thread */
        if (pool_fenced(thread->membership->pool))
            return store_await_membership_co(store, membership);
        if (pool_lease_valid(thread->membership->pool))
            return PANDO_OK;
        (void)rt_waitq_while_co(&store->rejoined, not_rejoined, &doubt,
                                rt_now_ns() + DOUBT_LOOK_NS);
    }
    return status;
}

/* Whether it was not done because the process is, or may be, no member any more. */
static bool failed_with_membership(const struct attempt *attempt)
{
    const struct pool *pool = attempt->table->thread->membership->pool;
    return attempt->status == PANDO_FENCED ||
           ((attempt->status == PANDO_TIMEOUT || attempt->status == PANDO_BROKEN) &&
            !pool_lease_valid(pool));
}

/* False: it is over, and its status says how. Otherwise the caller runs it and sets the status. */
static bool attempt_co(struct attempt *attempt)
{
    struct store_table *table = attempt->table;
    if (attempt->count > 0) {
        bool again = failed_with_membership(attempt);
        store_table_leave(table);
        if (again && attempt->count > STORE_REJOINS_MAX)
            attempt->status = PANDO_TIMEOUT;
        else if (attempt->status == PANDO_FENCED)
            attempt->status = store_await_membership_co(table->thread->store, attempt->membership);
        else if (again)
            attempt->status = doubt_co(table->thread, attempt->membership, attempt->status);
        if (!again || attempt->status != PANDO_OK)
            return false;
    }
    attempt->count++;
    attempt->status = store_table_enter_co(table);
    if (attempt->status != PANDO_OK)
        return false;
    attempt->membership = table->thread->membership->number;
    return true;
}

/* ---- what the engine is told ----------------------------------------------------------------- */

static const enum engine_put put_modes[] = {
    [STORE_UPSERT] = ENGINE_UPSERT, [STORE_INSERT] = ENGINE_INSERT, [STORE_UPDATE] = ENGINE_UPDATE};

struct engine_swap engine_swap_of(const struct store_swap *swap)
{
    static const int expected[] = {[STORE_EXPECT_NOTHING] = ENGINE_EXPECT_NOTHING,
                                   [STORE_EXPECT_ABSENT] = ENGINE_EXPECT_ABSENT,
                                   [STORE_EXPECT_VALUE] = ENGINE_EXPECT_VALUE,
                                   [STORE_EXPECT_REFERENCE] = ENGINE_EXPECT_REFERENCE};
    return (struct engine_swap){.expect = expected[swap->expect],
                                .expected = swap->expected,
                                .expected_reference = swap->expected_reference,
                                .mode = put_modes[swap->mode]};
}

static struct engine_range engine_range_of(const struct store_range *range)
{
    static const int values[] = {[STORE_SCAN_VALUES] = ENGINE_SCAN_VALUES,
                                 [STORE_SCAN_GLANCE] = ENGINE_SCAN_GLANCE,
                                 [STORE_SCAN_KEYS] = ENGINE_SCAN_KEYS,
                                 [STORE_SCAN_SHORT] = ENGINE_SCAN_SHORT,
                                 [STORE_SCAN_FRONTS] = ENGINE_SCAN_FRONTS};
    return (struct engine_range){.low = range->low,
                                 .high = range->high,
                                 .no_high = range->no_high,
                                 .reverse = range->reverse,
                                 .limit = range->limit,
                                 .values = values[range->values]};
}

/* Who decides about a change, and what it is given. */
struct modification {
    store_modify_fn fn;
    void *context;
};

static struct engine_change modification_decide(void *context, const struct slice *old)
{
    static const int what[] = {
        [STORE_KEEP] = ENGINE_KEEP, [STORE_REPLACE] = ENGINE_STORE, [STORE_REMOVE] = ENGINE_REMOVE};
    const struct modification *modification = context;
    struct store_change change = modification->fn(modification->context, old);
    return (struct engine_change){.what = what[change.what], .value = change.value};
}

/* ---- operations ------------------------------------------------------------------------------ */

enum pando_status store_get_co(struct store_table *table, struct slice key, void *value,
                               size_t capacity, size_t *size)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_get_co(table->engine, key, value, capacity, size);
    return attempt.status;
}

enum pando_status store_put_co(struct store_table *table, struct slice key, struct slice value,
                               enum store_put mode)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_put_co(table->engine, key, value, put_modes[mode]);
    return attempt.status;
}

enum pando_status store_delete_co(struct store_table *table, struct slice key)
{
    struct attempt attempt = {.table = table};
    while (attempt_co(&attempt))
        attempt.status = engine_delete_co(table->engine, key);
    return attempt.status;
}

enum pando_status store_modify_co(struct store_table *table, struct slice key, unsigned how,
                                  store_modify_fn fn, void *context)
{
    struct attempt attempt = {.table = table};
    struct modification modification = {.fn = fn, .context = context};
    unsigned engine_how = ((how & STORE_BLIND) != 0 ? ENGINE_BLIND : 0) |
                          ((how & STORE_SHORT) != 0 ? ENGINE_SHORT : 0);
    while (attempt_co(&attempt))
        attempt.status =
            engine_modify_co(table->engine, key, engine_how, modification_decide, &modification);
    return attempt.status;
}

enum pando_status store_part_co(struct store_table *table, struct slice key,
                                struct store_part *part)
{
    struct attempt attempt = {.table = table};
    struct engine_part wanted = {.offset = part->offset,
                                 .to = part->to,
                                 .capacity = part->capacity,
                                 .reference = part->reference};
    while (attempt_co(&attempt))
        attempt.status = engine_part_co(table->engine, key, &wanted);
    part->reference = wanted.reference;
    part->size = wanted.size;
    part->got = wanted.got;
    return attempt.status;
}

enum pando_status store_remove_co(struct store_table *table, struct slice key,
                                  const struct store_swap *swap)
{
    struct attempt attempt = {.table = table};
    const struct engine_swap removal = engine_swap_of(swap);
    while (attempt_co(&attempt))
        attempt.status = engine_swap_co(table->engine, key, &removal);
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

/* A scan that goes on in the next membership after the last pair it has given. */
struct scan {
    const struct store_table *table;
    store_scan_fn fn;
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
static bool scan_rest(struct scan *scan, const struct store_range *range)
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

enum pando_status store_scan_co(struct store_table *table, const struct store_range *range,
                                store_scan_fn fn, void *context)
{
    struct attempt attempt = {.table = table};
    struct scan scan = {
        .table = table, .fn = fn, .context = context, .left = engine_range_of(range)};
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
        return store_put_co(table, op->key, op->value, STORE_UPSERT);
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
