/*
 * operations.c - blocking operations on one key.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/pando_int.h"

enum { COPY_TRIES = 16, COPY_FIRST = 512 };

struct key_call {
    struct library_call base;
    struct slice key, value;
    void *buffer;
    uint64_t offset;
    size_t capacity, size;
    enum store_put mode;
    store_modify_fn modify;
    void *context;
};

static struct key_call *key_call_of(struct library_call *call)
{
    return container_of(call, struct key_call, base);
}

/* Sets up a call, if the table may be used and the key makes sense. */
static enum pando_status key_call_begin(struct key_call *call, const char *note, const char *what,
                                        struct pando_table *table,
                                        enum pando_status (*fn_co)(struct library_call *call),
                                        struct slice key)
{
    enum pando_status status = table_usable(table, note);
    if (status != PANDO_OK)
        return status;
    *call = (struct key_call){
        .base = {.what = what,
                 .pool = table->pool,
                 .table = table,
                 .key_size = key.size,
                 .fn_co = fn_co},
        .key = key,
    };
    return key.data != NULL || key.size == 0 ? PANDO_OK : failure_null(&call->base, "the key");
}

static bool bytes_ok(const void *data, size_t size)
{
    return data != NULL || size == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum pando_status get_co(struct library_call *call)
{
    struct key_call *get = key_call_of(call);
    return store_get_co(call->store, get->key, get->buffer, get->capacity, &get->size);
}

/* A call that has begun with that status, into the caller's memory. */
static enum pando_status get_run(struct key_call *call, enum pando_status begun, void *value,
                                 size_t capacity, size_t *size)
{
    if (begun == PANDO_OK && !bytes_ok(value, capacity))
        begun = failure_null(&call->base, "the memory for the value");
    if (begun != PANDO_OK)
        return begun;
    call->buffer = value;
    call->capacity = capacity;
    enum pando_status status = call_run(&call->base);
    if (status == PANDO_OK && size != NULL)
        *size = call->size;
    return status;
}

enum pando_status pando_get(struct pando_table *table, const void *key, size_t key_size,
                            void *value, size_t capacity, size_t *size)
{
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_get"), "get from", table,
                                              get_co, slice_of(key, key_size));
    return get_run(&call, status, value, capacity, size);
}

enum pando_status pando_get_copy(struct pando_table *table, const void *key, size_t key_size,
                                 void **value, size_t *size)
{
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_get_copy"), "get from", table,
                                              get_co, slice_of(key, key_size));
    if (status == PANDO_OK && (value == NULL || size == NULL))
        status = failure_null(&call.base,
                              value == NULL ? "where to tell the value" : "where to tell its size");
    if (status != PANDO_OK)
        return status;
    call.capacity = COPY_FIRST;
    /* It may grow between two tries; not for ever. */
    for (int i = 0; i < COPY_TRIES; i++) {
        call.buffer = malloc(call.capacity);
        if (call.buffer == NULL)
            return failure_of(&call.base, PANDO_NO_MEMORY,
                              "out of memory: this process has no %zu bytes for the value",
                              call.capacity);
        status = call_run(&call.base);
        if (status == PANDO_OK && call.size <= call.capacity) {
            *value = call.buffer;
            *size = call.size;
            return PANDO_OK;
        }
        free(call.buffer);
        if (status != PANDO_OK)
            return status;
        call.capacity = call.size;
    }
    return failure_of(&call.base, PANDO_TIMEOUT,
                      "timed out: the value grew while it was read, %d times; try again",
                      COPY_TRIES);
}

static enum pando_status get_part_co(struct library_call *call)
{
    struct key_call *get = key_call_of(call);
    struct store_part part = {.offset = get->offset, .to = get->buffer, .capacity = get->capacity};
    enum pando_status status = store_part_co(call->store, get->key, &part);
    get->size = part.size;
    return status;
}

enum pando_status pando_get_part(struct pando_table *table, const void *key, size_t key_size,
                                 uint64_t offset, void *value, size_t capacity, size_t *size)
{
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_get_part"), "get from", table,
                                              get_part_co, slice_of(key, key_size));
    call.offset = offset;
    return get_run(&call, status, value, capacity, size);
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum pando_status put_co(struct library_call *call)
{
    struct key_call *put = key_call_of(call);
    if (put->value.size > PANDO_VALUE_MAX)
        return PANDO_TOO_LARGE;
    return store_put_co(call->store, put->key, put->value, put->mode);
}

static enum pando_status put(struct key_call *call, const void *value, size_t value_size,
                             enum store_put mode)
{
    if (!bytes_ok(value, value_size))
        return failure_null(&call->base, "the value");
    call->value = slice_of(value, value_size);
    call->base.value_size = value_size;
    call->mode = mode;
    return call_run(&call->base);
}

enum pando_status pando_put(struct pando_table *table, const void *key, size_t key_size,
                            const void *value, size_t value_size)
{
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_put"), "put into", table,
                                              put_co, slice_of(key, key_size));
    return status == PANDO_OK ? put(&call, value, value_size, STORE_UPSERT) : status;
}

enum pando_status pando_put_if(struct pando_table *table, enum pando_condition condition,
                               const void *key, size_t key_size, const void *value,
                               size_t value_size)
{
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_put_if"), "put into", table,
                                              put_co, slice_of(key, key_size));
    if (status == PANDO_OK && condition != PANDO_IF_ABSENT && condition != PANDO_IF_PRESENT)
        status = failure_of(&call.base, PANDO_INVALID,
                            "%d is no condition; use PANDO_IF_ABSENT or PANDO_IF_PRESENT",
                            (int)condition);
    if (status != PANDO_OK)
        return status;
    return put(&call, value, value_size,
               condition == PANDO_IF_ABSENT ? STORE_INSERT : STORE_UPDATE);
}

static enum pando_status delete_co(struct library_call *call)
{
    return store_delete_co(call->store, key_call_of(call)->key);
}

enum pando_status pando_delete(struct pando_table *table, const void *key, size_t key_size)
{
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_delete"), "delete from", table,
                                              delete_co, slice_of(key, key_size));
    return status == PANDO_OK ? call_run(&call.base) : status;
}

/* ---- reading and writing --------------------------------------------------------------------- */

static enum pando_status modify_co(struct library_call *call)
{
    struct key_call *modify = key_call_of(call);
    return store_modify_co(call->store, modify->key, false, modify->modify, modify->context);
}

static enum pando_status modify(struct key_call *call, store_modify_fn fn, void *context)
{
    call->modify = fn;
    call->context = context;
    return call_run(&call->base);
}

struct user_modify {
    pando_modify_fn fn;
    void *context;
    struct key_call *call;
    bool nonsense;
};

static struct store_change user_change(void *context, const struct slice *old)
{
    struct user_modify *user = context;
    struct pando_slice before, after = {0};
    if (old != NULL)
        before = (struct pando_slice){.data = old->data, .size = old->size};
    enum pando_change what = user->fn(user->context, old == NULL ? NULL : &before, &after);
    user->nonsense =
        what > PANDO_REMOVE || (what == PANDO_STORE && !bytes_ok(after.data, after.size));
    user->call->base.value_size = what == PANDO_STORE ? after.size : 0;
    if (user->nonsense || what == PANDO_KEEP)
        return (struct store_change){.what = STORE_KEEP};
    return (struct store_change){.what = what == PANDO_STORE ? STORE_REPLACE : STORE_REMOVE,
                                 .value = slice_of(after.data, after.size)};
}

enum pando_status pando_modify(struct pando_table *table, const void *key, size_t key_size,
                               pando_modify_fn callback, void *context)
{
    struct key_call call;
    struct user_modify user = {.fn = callback, .context = context, .call = &call};
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_modify"), "modify in", table,
                                              modify_co, slice_of(key, key_size));
    if (status == PANDO_OK && callback == NULL)
        status = failure_null(&call.base, "the callback");
    if (status == PANDO_OK)
        status = modify(&call, user_change, &user);
    if (status != PANDO_OK || !user.nonsense)
        return status;
    return failure_of(&call.base, PANDO_INVALID,
                      "the callback returned no enum pando_change, or a value that is NULL; "
                      "nothing was changed");
}

struct compare {
    struct slice expected, value;
    enum pando_status status;
};

static struct store_change compare_change(void *context, const struct slice *old)
{
    struct compare *compare = context;
    compare->status = old == NULL                            ? PANDO_NOT_FOUND
                      : slice_equal(*old, compare->expected) ? PANDO_OK
                                                             : PANDO_STALE;
    return (struct store_change){.what = compare->status == PANDO_OK ? STORE_REPLACE : STORE_KEEP,
                                 .value = compare->value};
}

enum pando_status pando_compare_and_put(struct pando_table *table, const void *key, size_t key_size,
                                        const void *expected, size_t expected_size,
                                        const void *value, size_t value_size)
{
    struct compare compare = {.expected = slice_of(expected, expected_size),
                              .value = slice_of(value, value_size)};
    struct key_call call;
    enum pando_status status =
        key_call_begin(&call, NO_TABLE("pando_compare_and_put"), "compare and put into", table,
                       modify_co, slice_of(key, key_size));
    if (status == PANDO_OK && (!bytes_ok(expected, expected_size) || !bytes_ok(value, value_size)))
        status = failure_null(&call.base,
                              bytes_ok(value, value_size) ? "the expected value" : "the value");
    if (status != PANDO_OK)
        return status;
    call.base.value_size = value_size;
    status = modify(&call, compare_change, &compare);
    if (status != PANDO_OK || compare.status == PANDO_OK)
        return status;
    return failure_keep(&call.base, compare.status);
}

struct addition {
    int64_t addend, sum;
    size_t size; /* of what was there */
    uint8_t bytes[8];
    enum pando_status status;
};

static struct store_change add_change(void *context, const struct slice *old)
{
    struct addition *addition = context;
    uint64_t word = 0;
    addition->size = old == NULL ? 0 : old->size;
    addition->status = old == NULL || old->size == sizeof(word) ? PANDO_OK : PANDO_INVALID;
    for (size_t i = 0; addition->status == PANDO_OK && old != NULL && i < sizeof(word); i++)
        word |= (uint64_t)old->data[i] << (8 * i);
    if (addition->status == PANDO_OK &&
        __builtin_add_overflow((int64_t)word, addition->addend, &addition->sum))
        addition->status = PANDO_RANGE;
    if (addition->status != PANDO_OK)
        return (struct store_change){.what = STORE_KEEP};
    for (size_t i = 0; i < sizeof(word); i++)
        addition->bytes[i] = (uint8_t)((uint64_t)addition->sum >> (8 * i));
    return (struct store_change){.what = STORE_REPLACE,
                                 .value = slice_of(addition->bytes, sizeof(addition->bytes))};
}

enum pando_status pando_add(struct pando_table *table, const void *key, size_t key_size,
                            int64_t addend, int64_t *sum)
{
    struct addition addition = {.addend = addend};
    struct key_call call;
    enum pando_status status = key_call_begin(&call, NO_TABLE("pando_add"), "add to a number in",
                                              table, modify_co, slice_of(key, key_size));
    if (status != PANDO_OK)
        return status;
    call.base.value_size = sizeof(addition.bytes);
    status = modify(&call, add_change, &addition);
    if (status != PANDO_OK)
        return status;
    if (addition.status == PANDO_INVALID)
        return failure_of(&call.base, PANDO_INVALID,
                          "its value has %zu bytes, and a number 8; nothing was changed",
                          addition.size);
    if (addition.status == PANDO_RANGE)
        return failure_of(&call.base, PANDO_RANGE,
                          "the sum with %lld is no number of 64 bits; nothing was changed",
                          (long long)addend);
    if (sum != NULL)
        *sum = addition.sum;
    return PANDO_OK;
}
