/*
 * scan.c - pairs in order, a leaf at a time: each is copied whole, and the next is found by the key
 * where it ends (there are no links between leaves that a scan could follow).
 */
#include <stdlib.h>
#include <string.h>

#include "tree/dex/tree.h"

enum { LEAVES_PER_TURN = 64 };

struct scan {
    struct dex *self;
    const struct engine_range *range;
    engine_scan_fn fn;
    void *context;
    struct dex_scratch *scratch;
    uint8_t cursor[PAGE_KEY_ROOM + 8];
    struct slice at; /* where to go on: in cursor */
    bool from_end;   /* reverse, and nothing has been read yet: no key is above where to begin */
    uint64_t left;   /* pairs still wanted; 0: all there are */
    uint32_t pairs_per_leaf, leaves;
    uint64_t read_ns; /* when the leaf at hand was believed */
    bool delivered;   /* a pair of it, at least */
    struct blob_buffer value;
    blob_ref missing; /* see blob_missing */
};

enum pando_status dex_local_leaf_co(struct dex *self, struct slice key, bool before,
                                    struct dex_scratch *scratch)
{
    return dex_scan_leaf_co(self, NULL, key, before, scratch, 0);
}

enum pando_status dex_scan_leaf_co(struct dex *self, const struct owners_guard *guard,
                                   struct slice key, bool before, struct dex_scratch *scratch,
                                   unsigned more)
{
    struct dex_table *table = self->table;
    struct dex_target target = {.key = key, .before = before};
    struct dex_tries tries = {0};
    struct dex_spot spot;

    owners_count_operations(&self->owners, 1);
    do {
        enum pando_status status = dex_find_co(self, &target, &spot);
        if (status != PANDO_OK)
            return status;
        struct frame *frame = frame_at(&table->cache.frames, spot.frame);
        page_copy(scratch->page, frame_bytes(&table->cache.frames, spot.frame),
                  table->layout.page_bytes);
        uint64_t end = atomic_load_explicit(&frame->end, memory_order_relaxed);
        if (spot.private)
            status = dex_private_end_co(self, spot.frame);
        else if (!frame_same(frame, spot.version))
            continue;
        if (more > 0 && status == PANDO_OK)
            dex_prefetch_co(self, guard, &spot, key, before, more);
        return status == PANDO_OK ? dex_await_durable_co(self, end) : status;
    } while (dex_try_again_co(self, &tries));
    return PANDO_TIMEOUT;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* How many leaves there will be after this one, about; if that is not known, as many as there were. */
static unsigned leaves_ahead(const struct scan *scan)
{
    uint32_t pairs = scan->pairs_per_leaf;
    if (scan->left == 0)
        return scan->leaves;
    return pairs == 0 ? 0 : (unsigned)(scan->left / pairs);
}

/* Pairs of one owner's leaves from the key on, into scratch->page as a page of its own. */
static struct step forward_leaf_co(struct dex *self, uint64_t owner, struct slice key, bool before,
                                   struct dex_scratch *scratch)
{
    const struct page_layout *layout = &self->table->layout;
    uint32_t size;
    struct step step = owners_forward_leaf_co(&self->owners, owner, key, before, scratch->page,
                                              layout->page_bytes, &size);
    if (step_ok(step) && (size != layout->page_bytes ||
                          !page_check(layout, page_address(scratch->page), scratch->page)))
        return step_of(PANDO_CORRUPT);
    return step;
}

static struct step leaf_once_co(struct scan *scan, bool before)
{
    struct dex *self = scan->self;
    struct owners_guard guard;
    uint64_t owner;

    owners_enter(&self->owners, scan->at, &guard);
    guard.part = scan->from_end ? &guard.map->parts[guard.map->count - 1]
                                : map_partition_of(guard.map, scan->at, before);
    uint8_t key[PAGE_KEY_ROOM];
    struct slice low = guard.part->low;
    if (owners_mine(&self->table->owners, guard.part)) {
        enum pando_status status =
            dex_scan_leaf_co(self, &guard, scan->at, before, scan->scratch, leaves_ahead(scan));
        owners_leave(&self->owners, &guard);
        return step_of(status);
    }
    memcpy(key, low.data, low.size);
    low.data = key;
    owners_leave(&self->owners, &guard);
    struct step step = owners_claim_co(&self->owners, before ? low : scan->at, &owner);
    if (!step_ok(step))
        return step;
    return owner == owners_self(&self->table->owners)
               ? step_to(STEP_RESTART)
               : forward_leaf_co(self, owner, scan->at, before, scan->scratch);
}

static enum pando_status leaf_co(struct scan *scan, bool before)
{
    struct pool_retry retry = {0};
    struct step step;
    do
        step = leaf_once_co(scan, before);
    while (dex_again_co(scan->self, &retry, &step));
    return step.status;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Restarts: the blob was freed since the leaf was read, or that was too long ago to rely on
 * (rule stale-read-limit). */
static struct step value_co(struct scan *scan, uint32_t index, struct slice key,
                            struct slice *value)
{
    const struct page_layout *layout = &scan->self->table->layout;
    uint16_t table = scan->self->table->id;
    uint64_t most = scan->range->values == ENGINE_SCAN_SHORT ? ENGINE_SHORT_MAX : ENGINE_VALUE_MAX;
    blob_ref ref;
    bool blob;

    uint32_t bytes = page_value(layout, scan->scratch->page, index, scan->scratch->value,
                                layout->page_bytes, &blob);
    *value = slice_of(scan->scratch->value, bytes);
    if (!blob)
        return step_of(PANDO_OK);
    if (scan->range->values == ENGINE_SCAN_KEYS) {
        *value = slice_of(NULL, 0);
        return step_of(PANDO_OK);
    }
    if (!pool_recent(scan->read_ns))
        return step_to(STEP_RESTART);
    memcpy(&ref, scan->scratch->value, sizeof(ref));
    struct pool_session *session = scan->self->base.session;
    enum pando_status status =
        scan->range->values == ENGINE_SCAN_GLANCE
            ? blob_glance_co(session, table, key, ref, &scan->value, value)
        : scan->range->values == ENGINE_SCAN_FRONTS
            ? blob_front_co(session, table, key, ref, &scan->value, value)
            : blob_fetch_co(session, table, key, ref, most, &scan->value, value);
    if (status == PANDO_RANGE)
        return step_of(PANDO_OK); /* the size alone */
    if (status == PANDO_STALE)
        status = blob_missing(table, ref, &scan->missing);
    return status == PANDO_STALE ? step_to(STEP_RESTART) : step_of(status);
}

/* Below the range, in it, or above. */
static int side_of(const struct scan *scan, struct slice key)
{
    const struct engine_range *range = scan->range;
    if (slice_compare(key, range->low) < 0)
        return -1;
    return !range->no_high && slice_compare(key, range->high) >= 0 ? 1 : 0;
}

/* A bound that is longer than every key compares like its beginning, as long as that is longer, too. */
static void move_to(struct scan *scan, struct slice key)
{
    size_t size = key.size < sizeof(scan->cursor) ? key.size : sizeof(scan->cursor);
    if (size > 0)
        memcpy(scan->cursor, key.data, size);
    scan->at = slice_of(scan->cursor, size);
    scan->from_end = false;
}

/* The same for words, of which nothing else has to be looked at: in rising order, from a low bound that is
 * a key. */
static void deliver_words(struct scan *scan, uint32_t index, bool *more)
{
    const struct page_layout *layout = &scan->self->table->layout;
    const uint8_t *page = scan->scratch->page;
    uint32_t end = page_pairs(page);
    uint64_t left = scan->left;

    if (!scan->range->no_high && page_side(page, scan->range->high) == 0) {
        (void)page_find(layout, page, scan->range->high, &end);
        *more = false;
    }
    if (left > 0 && left <= end - index) {
        end = index + (uint32_t)left;
        *more = false;
    }
    for (uint32_t i = index; i < end; i++) {
        uint64_t key, value;
        page_words(layout, page, i, &key, &value);
        if (!scan->fn(scan->context, slice_of(&key, 8), slice_of(&value, 8))) {
            *more = false;
            return;
        }
    }
    if (left > 0)
        scan->left = left - (end - index);
}

/* Delivers a leaf's pairs. *more: the caller wants to go on. Restarts at the cursor, which is behind
 * what was delivered. */
static struct step deliver_co(struct scan *scan, bool *more)
{
    struct dex_table *table = scan->self->table;
    const struct page_layout *layout = &table->layout;
    const uint8_t *page = scan->scratch->page;
    uint32_t pairs = page_pairs(page), index = 0;
    bool reverse = scan->range->reverse;

    *more = true;
    if (!reverse)
        (void)page_find(layout, page, scan->at, &index);
    if (!reverse && layout->key_size == 8 && layout->value_size == 8 &&
        scan->range->low.size == 8) {
        deliver_words(scan, index, more);
        return step_of(PANDO_OK);
    }
    for (uint32_t i = reverse ? 0 : index; i < pairs && *more; i++) {
        uint32_t which = reverse ? pairs - 1 - i : i;
        struct slice key = page_key(layout, page, which, scan->scratch->key), value;
        if (reverse && !scan->from_end && slice_compare(key, scan->at) >= 0)
            continue;
        int side = side_of(scan, key);
        if (side != 0) {
            *more = reverse == (side > 0); /* not there yet, or past it */
            continue;
        }
        struct step step = value_co(scan, which, key, &value);
        if (step.next == STEP_RESTART) {
            uint8_t *byte = scan->cursor;
            /* In rising order the key itself is where to begin again; in falling order, just above. */
            move_to(scan, key);
            if (reverse) {
                byte[key.size] = 0;
                scan->at.size = key.size + 1;
            }
        }
        if (!step_ok(step))
            return step;
        scan->delivered = true;
        *more = scan->fn(scan->context, key, value);
        if (scan->left > 0 && --scan->left == 0)
            *more = false;
    }
    return step_of(PANDO_OK);
}

/* Where the next leaf is; false: there is none that matters. */
static bool advance(struct scan *scan)
{
    const uint8_t *page = scan->scratch->page;
    struct slice next;

    if (scan->range->reverse) {
        next = page_low(page, scan->scratch->key);
        if (next.size == 0 || slice_compare(next, scan->range->low) <= 0)
            return false;
    } else if (!page_high(page, scan->scratch->key, &next) ||
               (!scan->range->no_high && slice_compare(next, scan->range->high) >= 0)) {
        return false;
    }
    move_to(scan, next);
    return true;
}

enum pando_status dex_scan_co(struct engine *engine, const struct engine_range *range,
                              engine_scan_fn fn, void *context)
{
    struct dex *self = dex_of(engine);
    struct scan scan = {
        .self = self, .range = range, .fn = fn, .context = context, .left = range->limit};
    scan.pairs_per_leaf = self->pairs_per_leaf;
    struct pool_retry retry = {0};
    enum pando_status status;
    bool more = true;

    rt_charge(RT_COST_OPERATION);
    scan.scratch = dex_scratch_take(self);
    if (scan.scratch == NULL)
        return PANDO_NO_MEMORY;
    if (!range->reverse) {
        move_to(&scan, range->low);
    } else if (!range->no_high) {
        move_to(&scan, range->high);
    } else {
        /* Above every key that there may be. */
        memset(scan.cursor, 0xff, sizeof(scan.cursor));
        scan.at = slice_of(scan.cursor, sizeof(scan.cursor));
        scan.from_end = true;
    }
    for (unsigned leaves = 1;; leaves++) {
        if (leaves % LEAVES_PER_TURN == 0)
            rt_yield_co(); /* what is cached is read without ever suspending: others have waited */
        status = leaf_co(&scan, range->reverse);
        if (status != PANDO_OK)
            break;
        scan.pairs_per_leaf = self->pairs_per_leaf = page_pairs(scan.scratch->page);
        scan.leaves++;
        scan.read_ns = rt_coarse_ns();
        scan.delivered = false;
        struct step step = deliver_co(&scan, &more);
        if (scan.delivered)
            retry = (struct pool_retry){0}; /* it gets on */
        if (dex_again_co(self, &retry, &step))
            continue;
        status = step.status;
        if (status != PANDO_OK || !more || !advance(&scan))
            break;
    }
    free(scan.value.bytes);
    dex_scratch_give(self, scan.scratch);
    return status;
}
