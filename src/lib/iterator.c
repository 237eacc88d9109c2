/*
 * iterator.c - iterators: a batch of pairs, fetched by a scan in one direction, and a place in it.
 *
 *   pairs   [0] [1] [2] ... in the order of the scan: rising keys, or falling ones if it went backwards
 *   at       the pair it stands on
 *
 * A step within the batch costs nothing. A step out of it scans again from the key it stands on.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "lib/pando_int.h"
#include "store/keys.h"

enum { PREFETCH_USUAL = 64, PREFETCH_MAX = 4096, BYTES_MOST = 1 << 20 };

struct pair {
    size_t key_size, value_offset, value_size, key_offset;
};

/* A limit of the range: its bytes are no longer than any key. */
struct bound {
    bool none;
    size_t size;
    uint8_t bytes[STORE_KEY_MAX + 1];
};

struct pando_iterator {
    struct pando_table *table;
    struct bound low, high;
    unsigned prefetch;
    bool nothing; /* no key can be within the bounds */

    struct pair *pairs; /* `prefetch` of them */
    size_t count, at;
    bool falling; /* the scan went backwards */
    bool valid;
    uint8_t *bytes;
    size_t bytes_used, bytes_capacity;
};

static struct slice bound_slice(const struct bound *bound)
{
    return slice_of(bound->bytes, bound->size);
}

static struct slice key_at(const struct pando_iterator *iterator, size_t index)
{
    const struct pair *pair = &iterator->pairs[index];
    return slice_of(iterator->bytes + pair->key_offset, pair->key_size);
}

/* A limit at a key that may be longer than keys can be: then at the least one above it. False: there is
 * none. */
static bool bound_set(struct bound *bound, struct slice key)
{
    bound->none = false;
    bound->size = key.size < STORE_KEY_MAX ? key.size : STORE_KEY_MAX;
    if (bound->size > 0)
        memcpy(bound->bytes, key.data, bound->size);
    return key.size <= STORE_KEY_MAX || key_after_prefix(bound->bytes, &bound->size);
}

/* A limit just above a key. */
static bool bound_set_after(struct bound *bound, struct slice key)
{
    if (key.size > STORE_KEY_MAX)
        return bound_set(bound, key);
    return bound_set(bound, key) && key_after(bound->bytes, &bound->size, STORE_KEY_MAX);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void narrow(struct pando_iterator *iterator, const struct pando_iterator_options *options)
{
    struct bound end;
    iterator->high.none = true;
    if (options->lower.data != NULL)
        iterator->nothing |=
            !bound_set(&iterator->low, slice_of(options->lower.data, options->lower.size));
    if (options->upper.data != NULL)
        iterator->high.none =
            !bound_set(&iterator->high, slice_of(options->upper.data, options->upper.size));
    if (options->prefix.size == 0)
        return;
    struct slice prefix = slice_of(options->prefix.data, options->prefix.size);
    iterator->nothing |= prefix.size > STORE_KEY_MAX;
    if (iterator->nothing)
        return;
    if (slice_compare(prefix, bound_slice(&iterator->low)) > 0)
        (void)bound_set(&iterator->low, prefix);
    (void)bound_set(&end, prefix);
    if (key_after_prefix(end.bytes, &end.size) &&
        (iterator->high.none || slice_compare(bound_slice(&end), bound_slice(&iterator->high)) < 0))
        iterator->high = end;
}

enum pando_status pando_iterator_open(struct pando_table *table,
                                      const struct pando_iterator_options *given,
                                      struct pando_iterator **out)
{
    struct pando_iterator_options options = {0};
    enum pando_status status = table_usable(table, NO_TABLE("pando_iterator_open"));
    if (status != PANDO_OK)
        return status;
    struct library_call call = {.what = "iterate over", .pool = table->pool, .table = table};
    if (out == NULL)
        return failure_null(&call, "where to tell the iterator");
    if (given != NULL && given->size < sizeof(size_t))
        return failure_of(&call, PANDO_INVALID, "the options do not begin with their size");
    if (given != NULL)
        STRUCT_TAKEN(options, given);
    if (options.prefetch > PREFETCH_MAX)
        return failure_of(&call, PANDO_INVALID, "prefetch is %u, and the most is %d",
                          options.prefetch, PREFETCH_MAX);
    if (options.prefix.data == NULL && options.prefix.size > 0)
        return failure_null(&call, "the prefix");
    struct pando_iterator *iterator = calloc(1, sizeof(*iterator));
    if (iterator == NULL)
        return failure_keep(&call, PANDO_NO_MEMORY);
    iterator->table = table;
    iterator->prefetch = options.prefetch == 0 ? PREFETCH_USUAL : options.prefetch;
    iterator->pairs = malloc(iterator->prefetch * sizeof(*iterator->pairs));
    if (iterator->pairs == NULL) {
        free(iterator);
        return failure_keep(&call, PANDO_NO_MEMORY);
    }
    narrow(iterator, &options);
    atomic_fetch_add(&table->users, 1);
    rt_latch_lock(&table->pool->latch);
    table->pool->iterators++;
    rt_latch_unlock(&table->pool->latch);
    *out = iterator;
    return PANDO_OK;
}

void pando_iterator_close(struct pando_iterator *iterator)
{
    if (iterator == NULL)
        return;
    struct pando_table *table = iterator->table;
    if (table->pool->forks == rt_forks()) { /* not a parent's */
        rt_latch_lock(&table->pool->latch);
        table->pool->iterators--;
        rt_latch_unlock(&table->pool->latch);
        atomic_fetch_sub(&table->users, 1);
    }
    free(iterator->pairs);
    free(iterator->bytes);
    free(iterator);
}

/* ---- fetching -------------------------------------------------------------------------------- */

struct fetch_call {
    struct library_call base;
    struct pando_iterator *iterator;
    struct store_range range;
    bool no_memory;
};

static bool bytes_room(struct pando_iterator *iterator, size_t more)
{
    size_t needed = iterator->bytes_used + more;
    if (needed <= iterator->bytes_capacity)
        return true;
    size_t capacity = iterator->bytes_capacity == 0 ? 4096 : iterator->bytes_capacity;
    while (capacity < needed)
        capacity *= 2;
    uint8_t *bytes = realloc(iterator->bytes, capacity);
    if (bytes == NULL)
        return false;
    iterator->bytes = bytes;
    iterator->bytes_capacity = capacity;
    return true;
}

static size_t bytes_add(struct pando_iterator *iterator, struct slice slice)
{
    size_t offset = iterator->bytes_used;
    if (slice.size > 0)
        memcpy(iterator->bytes + offset, slice.data, slice.size);
    iterator->bytes_used += slice.size;
    return offset;
}

static bool take_pair(void *context, struct slice key, struct slice value)
{
    struct fetch_call *fetch = context;
    struct pando_iterator *iterator = fetch->iterator;
    if (!bytes_room(iterator, key.size + value.size + 1)) {
        fetch->no_memory = true;
        return false;
    }
    struct pair *pair = &iterator->pairs[iterator->count++];
    pair->key_size = key.size;
    pair->value_size = value.size;
    pair->key_offset = bytes_add(iterator, key);
    pair->value_offset = bytes_add(iterator, value);
    return iterator->count < iterator->prefetch && iterator->bytes_used < BYTES_MOST;
}

static enum pando_status fetch_co(struct library_call *call)
{
    struct fetch_call *fetch = container_of(call, struct fetch_call, base);
    enum pando_status status = store_scan_co(call->store, &fetch->range, take_pair, fetch);
    return fetch->no_memory ? PANDO_NO_MEMORY : status;
}

static struct library_call call_of(const struct pando_iterator *iterator)
{
    return (struct library_call){.what = "iterate over",
                                 .pool = iterator->table->pool,
                                 .table = iterator->table,
                                 .missing =
                                     "not found: no pair is there; the iterator stands nowhere",
                                 .fn_co = fetch_co};
}

/* The pairs of [low, high), or of the iterator's own limits where they are narrower, from one end. */
static enum pando_status fetch(struct pando_iterator *iterator, const struct bound *low,
                               const struct bound *high, bool falling)
{
    struct fetch_call call = {.base = call_of(iterator), .iterator = iterator};
    if (low == NULL || slice_compare(bound_slice(low), bound_slice(&iterator->low)) < 0)
        low = &iterator->low;
    if (high == NULL || high->none ||
        (!iterator->high.none &&
         slice_compare(bound_slice(&iterator->high), bound_slice(high)) < 0))
        high = &iterator->high;
    call.range = (struct store_range){.low = bound_slice(low),
                                      .high = bound_slice(high),
                                      .no_high = high->none,
                                      .reverse = falling,
                                      .limit = iterator->prefetch};
    iterator->count = iterator->at = iterator->bytes_used = 0;
    iterator->valid = false;
    iterator->falling = falling;
    enum pando_status status = iterator->nothing ? PANDO_OK : call_run(&call.base);
    if (status != PANDO_OK)
        return status;
    iterator->valid = iterator->count > 0;
    return iterator->valid ? PANDO_OK : failure_keep(&call.base, PANDO_NOT_FOUND);
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Away from where it stands and out of the fork: INVALID if it may not be used. */
static enum pando_status usable(const struct pando_iterator *iterator, const char *note)
{
    return table_usable(iterator == NULL ? NULL : iterator->table, note);
}

#define NO_ITERATOR(function) NO_HANDLE(function, "iterator")

enum pando_status pando_iterator_first(struct pando_iterator *iterator)
{
    enum pando_status status = usable(iterator, NO_ITERATOR("pando_iterator_first"));
    return status == PANDO_OK ? fetch(iterator, NULL, NULL, false) : status;
}

enum pando_status pando_iterator_last(struct pando_iterator *iterator)
{
    enum pando_status status = usable(iterator, NO_ITERATOR("pando_iterator_last"));
    return status == PANDO_OK ? fetch(iterator, NULL, NULL, true) : status;
}

static enum pando_status nowhere(struct pando_iterator *iterator)
{
    struct library_call call = call_of(iterator);
    iterator->valid = false;
    return failure_keep(&call, PANDO_NOT_FOUND);
}

static enum pando_status seek_begin(const struct pando_iterator *iterator, const char *note,
                                    const void *key, size_t key_size)
{
    enum pando_status status = usable(iterator, note);
    if (status != PANDO_OK || key != NULL || key_size == 0)
        return status;
    struct library_call call = call_of(iterator);
    return failure_null(&call, "the key");
}

enum pando_status pando_iterator_seek(struct pando_iterator *iterator, const void *key,
                                      size_t key_size)
{
    struct bound low;
    enum pando_status status =
        seek_begin(iterator, NO_ITERATOR("pando_iterator_seek"), key, key_size);
    if (status != PANDO_OK)
        return status;
    if (!bound_set(&low, slice_of(key, key_size)))
        return nowhere(iterator);
    return fetch(iterator, &low, NULL, false);
}

enum pando_status pando_iterator_seek_for_prev(struct pando_iterator *iterator, const void *key,
                                               size_t key_size)
{
    struct bound high;
    enum pando_status status =
        seek_begin(iterator, NO_ITERATOR("pando_iterator_seek_for_prev"), key, key_size);
    if (status != PANDO_OK)
        return status;
    high.none = !bound_set_after(&high, slice_of(key, key_size));
    return fetch(iterator, NULL, &high, true);
}

/* One step in the order of the keys (up) or against it. */
static enum pando_status step(struct pando_iterator *iterator, bool up, const char *note)
{
    struct bound here;
    enum pando_status status = usable(iterator, note);
    if (status != PANDO_OK)
        return status;
    if (!iterator->valid) {
        struct library_call call = call_of(iterator);
        return failure_of(&call, PANDO_INVALID,
                          "the iterator stands on no pair; move it with first, last or seek");
    }
    if (up != iterator->falling && iterator->at + 1 < iterator->count) {
        iterator->at++;
        return PANDO_OK;
    }
    if (up == iterator->falling && iterator->at > 0) {
        iterator->at--;
        return PANDO_OK;
    }
    struct slice key = key_at(iterator, iterator->at);
    if (!up) {
        (void)bound_set(&here, key);
        return fetch(iterator, NULL, &here, true);
    }
    return bound_set_after(&here, key) ? fetch(iterator, &here, NULL, false) : nowhere(iterator);
}

enum pando_status pando_iterator_next(struct pando_iterator *iterator)
{
    return step(iterator, true, NO_ITERATOR("pando_iterator_next"));
}

enum pando_status pando_iterator_prev(struct pando_iterator *iterator)
{
    return step(iterator, false, NO_ITERATOR("pando_iterator_prev"));
}

/* ---- where it stands ------------------------------------------------------------------------- */

int pando_iterator_valid(const struct pando_iterator *iterator)
{
    return iterator != NULL && iterator->valid;
}

struct pando_slice pando_iterator_key(const struct pando_iterator *iterator)
{
    if (!pando_iterator_valid(iterator))
        return (struct pando_slice){0};
    struct slice key = key_at(iterator, iterator->at);
    return (struct pando_slice){.data = key.data, .size = key.size};
}

struct pando_slice pando_iterator_value(const struct pando_iterator *iterator)
{
    if (!pando_iterator_valid(iterator))
        return (struct pando_slice){0};
    const struct pair *pair = &iterator->pairs[iterator->at];
    return (struct pando_slice){.data = iterator->bytes + pair->value_offset,
                                .size = pair->value_size};
}
