#include "server/walk.h"

#include <stdlib.h>

#include "server/resp/pattern.h"

/* What one table had. */
struct batch {
    struct walk *walk;
    uint8_t *bytes; /* keys, one behind the other */
    size_t used, capacity;
    uint16_t *sizes;
    size_t count, count_capacity;
    uint8_t last[KEYSPACE_KEY_MAX]; /* examined */
    size_t last_size;
    uint64_t examined, limit;
    bool failed; /* no memory */
    bool over;
};

bool walk_begin(struct walk *walk, const struct database *database, const struct slice *pattern)
{
    *walk = (struct walk){.no_high = true};
    for (int i = 0; i < 2; i++) {
        walk->tables[i] = database->tables[i];
        walk->batches[i] = calloc(1, sizeof(struct batch));
        if (walk->batches[i] == NULL) {
            walk_end(walk);
            return false;
        }
        walk->batches[i]->walk = walk;
    }
    if (pattern == NULL)
        return true;
    walk->pattern = *pattern;
    walk->has_pattern = true;
    struct slice prefix = pattern_prefix(*pattern);
    if (prefix.size > KEYSPACE_KEY_MAX) {
        walk->over = true; /* no key is that long */
        return true;
    }
    if (prefix.size > 0) {
        memcpy(walk->low, prefix.data, prefix.size);
        memcpy(walk->high, prefix.data, prefix.size);
    }
    walk->low_size = prefix.size;
    walk->high_size = prefix_end(walk->high, prefix.size);
    walk->no_high = walk->high_size == 0;
    return true;
}

void walk_end(struct walk *walk)
{
    for (int i = 0; i < 2; i++) {
        if (walk->batches[i] == NULL)
            continue;
        free(walk->batches[i]->bytes);
        free(walk->batches[i]->sizes);
        free(walk->batches[i]);
    }
    free(walk->entries);
    *walk = (struct walk){.over = true};
}

static struct slice low_of(const struct walk *walk)
{
    return slice_of(walk->low, walk->low_size);
}

void walk_resume(struct walk *walk, struct slice key)
{
    if (slice_compare(key, low_of(walk)) < 0)
        return; /* before everything that matches */
    if (key.size > 0)
        memmove(walk->low, key.data, key.size);
    walk->low_size = key.size;
    walk->exclusive = true;
    if (!walk->no_high && slice_compare(key, slice_of(walk->high, walk->high_size)) >= 0)
        walk->over = true;
}

/* ---- one table ------------------------------------------------------------------------------- */

static bool batch_keep(struct batch *batch, struct slice key)
{
    if (batch->count == batch->count_capacity) {
        size_t capacity = batch->count_capacity == 0 ? 64 : batch->count_capacity * 2;
        uint16_t *sizes = realloc(batch->sizes, capacity * sizeof(*sizes));
        if (sizes == NULL)
            return false;
        batch->sizes = sizes;
        batch->count_capacity = capacity;
    }
    if (batch->capacity - batch->used < key.size) {
        size_t capacity = (batch->capacity + key.size) * 2;
        uint8_t *bytes = realloc(batch->bytes, capacity);
        if (bytes == NULL)
            return false;
        batch->bytes = bytes;
        batch->capacity = capacity;
    }
    if (key.size > 0)
        memcpy(batch->bytes + batch->used, key.data, key.size);
    batch->used += key.size;
    batch->sizes[batch->count++] = (uint16_t)key.size;
    return true;
}

static bool batch_pair(void *context, struct slice key, struct slice stored)
{
    struct batch *batch = context;
    struct walk *walk = batch->walk;
    struct value value;

    if (walk->exclusive && slice_equal(key, low_of(walk)))
        return true;
    if (key.size > 0)
        memcpy(batch->last, key.data, key.size);
    batch->last_size = key.size;
    batch->examined++;
    bool known = walk->which != WALK_ALL && value_read(stored, &value);
    walk->expiring += known && value.expire_ms != 0;
    bool expired = known && value_expired(&value);
    if ((walk->which == WALK_ALL || expired == (walk->which == WALK_EXPIRED)) &&
        (!walk->has_pattern || pattern_matches(walk->pattern, key)) && !batch_keep(batch, key)) {
        batch->failed = true;
        return false;
    }
    return batch->examined < batch->limit;
}

static enum pando_status batch_fill_co(struct walk *walk, int which, unsigned limit)
{
    struct batch *batch = walk->batches[which];
    static const int values[] = {[WALK_UNEXPIRED] = STORE_SCAN_FRONTS,
                                 [WALK_EXPIRED] = STORE_SCAN_GLANCE,
                                 [WALK_ALL] = STORE_SCAN_KEYS};
    struct store_range range = {.values = values[walk->which],
                                .low = low_of(walk),
                                .high = slice_of(walk->high, walk->high_size),
                                .no_high = walk->no_high,
                                .limit = (uint64_t)limit + 1};
    batch->used = batch->count = 0;
    batch->examined = 0;
    batch->limit = limit;
    batch->failed = false;
    if (walk->tables[which] == NULL) { /* of a database that is not there */
        batch->over = true;
        return PANDO_OK;
    }
    enum pando_status status = store_scan_co(walk->tables[which], &range, batch_pair, batch);
    batch->over = batch->examined < limit;
    return batch->failed ? PANDO_NO_MEMORY : status;
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool entries_room(struct walk *walk, size_t count)
{
    if (count <= walk->capacity)
        return true;
    struct walk_entry *entries = realloc(walk->entries, count * sizeof(*entries));
    if (entries == NULL)
        return false;
    walk->entries = entries;
    walk->capacity = count;
    return true;
}

/* Keys of both, in order, up to the last that is known to have none before it. */
static void merge(struct walk *walk, const struct slice *horizon)
{
    size_t at[2] = {0}, offset[2] = {0};
    for (;;) {
        struct slice key[2];
        int best = -1;
        for (int i = 0; i < 2; i++) {
            const struct batch *batch = walk->batches[i];
            if (at[i] == batch->count)
                continue;
            key[i] = slice_of(batch->bytes + offset[i], batch->sizes[at[i]]);
            if (best < 0 || slice_compare(key[i], key[best]) < 0)
                best = i;
        }
        if (best < 0 || (horizon != NULL && slice_compare(key[best], *horizon) > 0))
            return;
        walk->entries[walk->count++] = (struct walk_entry){.key = key[best]};
        offset[best] += key[best].size;
        at[best]++;
    }
}

enum pando_status walk_step_co(struct walk *walk, unsigned limit)
{
    struct slice horizon = {0};
    bool bounded = false;

    walk->count = 0;
    for (int i = 0; i < 2; i++) {
        enum pando_status status = batch_fill_co(walk, i, limit);
        if (status != PANDO_OK)
            return status;
        const struct batch *batch = walk->batches[i];
        struct slice last = slice_of(batch->last, batch->last_size);
        if (!batch->over && (!bounded || slice_compare(last, horizon) < 0)) {
            horizon = last;
            bounded = true;
        }
    }
    if (!entries_room(walk, walk->batches[0]->count + walk->batches[1]->count + 1))
        return PANDO_NO_MEMORY;
    merge(walk, bounded ? &horizon : NULL);
    if (bounded)
        walk_resume(walk, horizon);
    else
        walk->over = true;
    return PANDO_OK;
}
