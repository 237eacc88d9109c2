/*
 * scan.c - leaf after leaf, by key (rule scan-by-key). The next leaves that the cache knows of are
 * read at the same time; they count only if each begins where the one before it ended.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tree/sherman/sherman_int.h"

enum { AHEAD_MAX = 16 };

struct scan {
    struct sherman *self;
    struct blink_scratch *scratch;
    const struct engine_range *range;
    engine_scan_fn fn;
    void *context;
    uint64_t given;
    uint8_t cursor
        [ENGINE_KEY_MAX]; /* forward: the first key not yet looked at; reverse: the first seen */
    size_t cursor_size;
    bool at_end; /* reverse, and nothing seen yet in a range without an upper bound */
    bool over;
    uint64_t read_ns;         /* when the leaf at hand was believed */
    struct blob_buffer value; /* room for blobs */
    blob_ref missing;         /* see blob_missing */
};

static struct slice cursor_of(const struct scan *scan)
{
    return slice_of(scan->cursor, scan->cursor_size);
}

static void cursor_set(struct scan *scan, struct slice key)
{
    if (key.size > 0)
        memmove(scan->cursor, key.data, key.size);
    scan->cursor_size = key.size;
}

/* Reads a long value. A leaf with many of them is read again when it has become old
 * (rule stale-read-limit). Restarts: it has, or the blob is gone: read the leaf again. */
static struct step value_co(struct scan *scan, const struct node_entry *entry, struct slice *value)
{
    struct pool_session *session = scan->self->base.session;
    uint16_t table = scan->self->table->blink.id;
    uint64_t most = scan->range->values == ENGINE_SCAN_SHORT ? ENGINE_SHORT_MAX : ENGINE_VALUE_MAX;
    blob_ref blob;

    if (scan->range->values == ENGINE_SCAN_KEYS) {
        *value = slice_of(NULL, 0);
        return step_of(PANDO_OK);
    }
    if (!pool_recent(scan->read_ns))
        return step_to(STEP_RESTART);
    memcpy(&blob, entry->value.data, sizeof(blob));
    enum pando_status status =
        scan->range->values == ENGINE_SCAN_GLANCE
            ? blob_glance_co(session, table, entry->key, blob, &scan->value, value)
        : scan->range->values == ENGINE_SCAN_FRONTS
            ? blob_front_co(session, table, entry->key, blob, &scan->value, value)
            : blob_fetch_co(session, table, entry->key, blob, most, &scan->value, value);
    if (status == PANDO_RANGE)
        status = PANDO_OK; /* the size alone */
    if (status == PANDO_STALE)
        status = blob_missing(table, blob, &scan->missing);
    return status == PANDO_STALE ? step_to(STEP_RESTART) : step_of(status);
}

/* Gives one pair to the caller. Restarts: read the leaf again. */
static struct step deliver_pair_co(struct scan *scan, const struct node_entry *entry)
{
    struct slice value = entry->value;
    struct step step = step_of(PANDO_OK);
    if ((entry->flags & NODE_FLAG_BLOB) != 0)
        step = value_co(scan, entry, &value);
    if (!step_ok(step))
        return step;
    scan->given++;
    if (!scan->fn(scan->context, entry->key, value) ||
        (scan->range->limit != 0 && scan->given >= scan->range->limit))
        scan->over = true;
    return step;
}

static bool beyond(const struct scan *scan, struct slice key)
{
    return !scan->range->no_high && slice_compare(key, scan->range->high) >= 0;
}

/* The first key that may follow this one: it and a zero byte. A key of the largest size has none in
 * between that could be stored, but is still below its successor in the order. */
static void cursor_behind(struct scan *scan, struct slice key)
{
    cursor_set(scan, key);
    if (scan->cursor_size < sizeof(scan->cursor)) {
        scan->cursor[scan->cursor_size++] = 0;
        return;
    }
    while (scan->cursor_size > 0 && scan->cursor[scan->cursor_size - 1] == 0xff)
        scan->cursor_size--;
    if (scan->cursor_size == 0)
        scan->over = true;
    else
        scan->cursor[scan->cursor_size - 1]++;
}

/* Whether a leaf may have keys that are above the range. */
static bool reaches_beyond(const struct scan *scan, const struct node_header *header)
{
    return !scan->range->no_high &&
           (header->no_high || slice_compare(header->high, scan->range->high) > 0);
}

/* What a leaf has at or above the cursor. Moves the cursor over what was given. Restarts: torn. */
static struct step take_forward_co(struct scan *scan, const struct node_header *header,
                                   const uint8_t *bytes)
{
    struct node_entry *entries = scan->scratch->entries;
    const struct node_entry *last = NULL;
    struct step step = step_of(PANDO_OK);
    uint32_t count, i = 0;

    if (!leaf_entries(&scan->self->table->blink.layout, header, bytes, entries, &count))
        return step_to(STEP_RESTART);
    scan->self->pairs_per_leaf = (scan->self->pairs_per_leaf * 3 + count + 3) / 4;
    bool bounded = reaches_beyond(scan, header);
    while (i < count && slice_compare(entries[i].key, cursor_of(scan)) < 0)
        i++;
    for (; i < count && !scan->over; i++) {
        if (bounded && beyond(scan, entries[i].key)) {
            scan->over = true;
            break;
        }
        step = deliver_pair_co(scan, &entries[i]);
        if (!step_ok(step))
            break;
        last = &entries[i];
    }
    if (last != NULL)
        cursor_behind(scan, last->key);
    if (!step_ok(step))
        return step;
    if (header->no_high || (!scan->over && beyond(scan, header->high)))
        scan->over = true;
    else if (!scan->over && slice_compare(header->high, cursor_of(scan)) > 0)
        cursor_set(scan, header->high);
    return step;
}

/* Reads the leaves to the right of the one that covers the cursor, all at once; uses those that
 * tile. */
static enum pando_status prefetch_leaves_co(struct scan *scan, uint8_t *room, uint32_t most)
{
    struct sherman *self = scan->self;
    uint32_t bytes = self->table->blink.layout.node_bytes;
    fabric_address leaves[AHEAD_MAX];
    struct pool_read reads[AHEAD_MAX];
    struct slice here = cursor_of(scan);
    enum pando_status status = PANDO_OK;

    /* The cursor is the low fence of the next leaf: ask for that one, too. */
    struct index_cache_hit hit;
    if (!index_cache_find(&self->blink.reader, here, 0, false, &hit) || hit.child_level != 0)
        return PANDO_OK;
    leaves[0] = hit.child;
    uint32_t count = 1 + index_cache_next_leaves(&self->blink.reader, here, leaves + 1, most - 1);
    for (uint32_t i = 0; i < count; i++) {
        reads[i].address = leaves[i];
        reads[i].to = room + (size_t)i * bytes;
        reads[i].size = bytes;
    }
    pool_reads_begin(self->base.session, reads, count);
    pool_reads_wait_co(self->base.session, reads, count);
    for (uint32_t i = 0; i < count && status == PANDO_OK; i++)
        status = reads[i].status;
    for (uint32_t i = 0; i < count && status == PANDO_OK && !scan->over; i++) {
        struct node_header header;
        const uint8_t *leaf = room + (size_t)i * bytes;
        /* The one before it may have had blobs to wait for. */
        if (!pool_recent(reads[i].posted_ns) ||
            !node_header_read(&self->table->blink.layout, leaves[i], leaf, &header) ||
            header.dead || header.level != 0 ||
            (self->table->on.tiling && !node_covers(&header, cursor_of(scan))))
            return PANDO_OK; /* resumed at the cursor */
        scan->read_ns = reads[i].posted_ns;
        struct step step = take_forward_co(scan, &header, leaf);
        if (step.next == STEP_RESTART)
            return PANDO_OK;
        status = step.status;
    }
    return status == PANDO_BROKEN ? PANDO_OK : status; /* the ordinary way reconnects */
}

/* How many leaves may be worth reading ahead. */
static uint32_t leaves_ahead(const struct scan *scan)
{
    if (!scan->self->table->blink.on.cache)
        return 0;
    if (scan->range->limit == 0)
        return AHEAD_MAX;
    uint64_t per_leaf = scan->self->table->blink.layout.fixed
                            ? scan->self->table->blink.layout.slot_count / 2 + 1
                            : scan->self->pairs_per_leaf; /* as leaves had lately */
    per_leaf = per_leaf == 0 ? 8 : per_leaf;
    uint64_t left = scan->range->limit - scan->given;
    uint64_t leaves = (left + per_leaf - 1) / per_leaf;
    return leaves > AHEAD_MAX ? AHEAD_MAX : (uint32_t)leaves;
}

static enum pando_status forward_co(struct scan *scan)
{
    struct sherman *self = scan->self;
    uint8_t *room = malloc((size_t)AHEAD_MAX * self->table->blink.layout.node_bytes);
    enum pando_status status = room == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    unsigned looks = 0;

    while (status == PANDO_OK && !scan->over) {
        struct node_header header;
        uint8_t key[ENGINE_KEY_MAX];
        memcpy(key, scan->cursor, scan->cursor_size);
        uint32_t most = leaves_ahead(scan);
        if (most > 1) {
            size_t before_size = scan->cursor_size;
            status = prefetch_leaves_co(scan, room, most);
            bool moved =
                before_size != scan->cursor_size || memcmp(key, scan->cursor, before_size) != 0;
            if (status != PANDO_OK || scan->over || moved)
                continue;
        }
        struct blink_target target = {.key = slice_of(key, scan->cursor_size)};
        status = blink_find_co(&self->blink, &target, scan->scratch->node, &header);
        if (status != PANDO_OK)
            break;
        scan->read_ns = rt_coarse_ns();
        struct step step = take_forward_co(scan, &header, scan->scratch->node);
        if (step.next == STEP_DONE || !slice_equal(target.key, cursor_of(scan)))
            looks = 0;
        status =
            step.next == STEP_DONE ? step.status : sherman_retry_torn_co(self, header.low, &looks);
    }
    free(room);
    return status;
}

/* ---- backwards ------------------------------------------------------------------------------- */

static struct step take_backward_co(struct scan *scan, const struct node_header *header,
                                    const uint8_t *bytes)
{
    struct node_entry *entries = scan->scratch->entries;
    uint32_t count;

    if (!leaf_entries(&scan->self->table->blink.layout, header, bytes, entries, &count))
        return step_to(STEP_RESTART);
    for (uint32_t i = count; i-- > 0 && !scan->over;) {
        if (!scan->at_end && slice_compare(entries[i].key, cursor_of(scan)) >= 0)
            continue;
        if (slice_compare(entries[i].key, scan->range->low) < 0) {
            scan->over = true;
            break;
        }
        struct step step = deliver_pair_co(scan, &entries[i]);
        if (!step_ok(step))
            return step;
        cursor_set(scan, entries[i].key);
        scan->at_end = false;
    }
    if (header->low.size == 0 || slice_compare(header->low, scan->range->low) <= 0)
        scan->over = true;
    else
        cursor_set(scan, header->low);
    scan->at_end = false;
    return step_of(PANDO_OK);
}

static enum pando_status backward_co(struct scan *scan)
{
    static const uint8_t highest[ENGINE_KEY_MAX + 1] = {[0 ... ENGINE_KEY_MAX] = 0xff};
    struct sherman *self = scan->self;
    enum pando_status status = PANDO_OK;
    unsigned looks = 0;

    while (status == PANDO_OK && !scan->over) {
        struct node_header header;
        uint8_t key[ENGINE_KEY_MAX];
        memcpy(key, scan->cursor, scan->cursor_size);
        /* Longer than any key: the last leaf has the keys below it. */
        struct blink_target target = {.key = slice_of(key, scan->cursor_size), .before = true};
        if (scan->at_end)
            target.key = slice_of(highest, sizeof(highest));
        else if (scan->cursor_size == 0)
            break; /* nothing is below the empty key */
        status = blink_find_co(&self->blink, &target, scan->scratch->node, &header);
        if (status != PANDO_OK)
            break;
        scan->read_ns = rt_coarse_ns();
        bool at_end = scan->at_end;
        struct slice before = slice_of(key, scan->cursor_size);
        struct step step = take_backward_co(scan, &header, scan->scratch->node);
        if (step.next == STEP_DONE || at_end != scan->at_end ||
            !slice_equal(before, cursor_of(scan)))
            looks = 0;
        status =
            step.next == STEP_DONE ? step.status : sherman_retry_torn_co(self, header.low, &looks);
    }
    return status;
}

enum pando_status sherman_scan_co(struct engine *engine, const struct engine_range *range,
                                  engine_scan_fn fn, void *context)
{
    struct sherman *self = sherman_of(engine);
    struct scan *scan = malloc(sizeof(*scan));
    if (scan == NULL)
        return PANDO_NO_MEMORY;
    rt_charge(RT_COST_OPERATION);
    *scan = (struct scan){.self = self,
                          .scratch = blink_scratch_take(&self->blink),
                          .range = range,
                          .fn = fn,
                          .context = context};
    bool empty = !range->no_high && slice_compare(range->low, range->high) >= 0;
    if (range->low.size > ENGINE_KEY_MAX || (!range->no_high && range->high.size > ENGINE_KEY_MAX))
        scan->over = true;
    enum pando_status status = scan->scratch == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    if (status != PANDO_OK) {
        free(scan);
        return status;
    }
    if (!empty && !scan->over && range->reverse) {
        scan->at_end = range->no_high;
        if (!range->no_high)
            cursor_set(scan, range->high);
        status = backward_co(scan);
    } else if (!empty && !scan->over) {
        cursor_set(scan, range->low);
        status = forward_co(scan);
    }
    blink_scratch_give(&self->blink, scan->scratch);
    free(scan->value.bytes);
    free(scan);
    return status;
}
