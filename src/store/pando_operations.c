/*
 * pando_operations.c - blocking operations on one key.
 */
#include <stdlib.h>
#include <string.h>

#include "store/pando_int.h"

enum { COPY_TRIES = 16, COPY_FIRST = 512 };

struct key_call {
    struct call base;
    struct slice key, value;
    void *buffer;
    size_t capacity, size;
    enum engine_put mode;
    engine_modify_fn modify;
    void *context;
};

static struct key_call *key_call_of(struct call *call)
{
    return container_of(call, struct key_call, base);
}

static struct key_call key_call(const char *what, struct pando_table *table,
                                enum pando_status (*fn_co)(struct call *call), const void *key,
                                size_t key_size)
{
    return (struct key_call){
        .base = {.what = what,
                 .pool = table == NULL ? NULL : table->pool,
                 .table = table,
                 .key_size = key_size,
                 .fn_co = fn_co},
        .key = slice_of(key, key_size),
    };
}

static bool bytes_ok(const void *data, size_t size)
{
    return data != NULL || size == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum pando_status get_co(struct call *call)
{
    struct key_call *get = key_call_of(call);
    return store_get_co(call->store, get->key, get->buffer, get->capacity, &get->size);
}

enum pando_status pando_get(struct pando_table *table, const void *key, size_t key_size,
                            void *value, size_t capacity, size_t *size)
{
    struct key_call call = key_call("get from", table, get_co, key, key_size);
    if (!bytes_ok(key, key_size) || !bytes_ok(value, capacity))
        return PANDO_INVALID;
    call.buffer = value;
    call.capacity = capacity;
    enum pando_status status = call_run(&call.base);
    if (status == PANDO_OK && size != NULL)
        *size = call.size;
    return status;
}

enum pando_status pando_get_copy(struct pando_table *table, const void *key, size_t key_size,
                                 void **value, size_t *size)
{
    struct key_call call = key_call("get from", table, get_co, key, key_size);
    if (!bytes_ok(key, key_size) || value == NULL || size == NULL)
        return PANDO_INVALID;
    call.capacity = COPY_FIRST;
    /* It may grow between two tries; not for ever. */
    for (int i = 0; i < COPY_TRIES; i++) {
        call.buffer = malloc(call.capacity);
        enum pando_status status = call.buffer == NULL ? PANDO_NO_MEMORY : call_run(&call.base);
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
    return PANDO_TIMEOUT;
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum pando_status put_co(struct call *call)
{
    struct key_call *put = key_call_of(call);
    return store_put_co(call->store, put->key, put->value, put->mode);
}

static enum pando_status put(struct key_call *call, const void *value, size_t value_size,
                             enum engine_put mode)
{
    if (!bytes_ok(call->key.data, call->key.size) || !bytes_ok(value, value_size))
        return PANDO_INVALID;
    call->value = slice_of(value, value_size);
    call->base.value_size = value_size;
    call->mode = mode;
    return call_run(&call->base);
}

enum pando_status pando_put(struct pando_table *table, const void *key, size_t key_size,
                            const void *value, size_t value_size)
{
    struct key_call call = key_call("put into", table, put_co, key, key_size);
    return put(&call, value, value_size, ENGINE_UPSERT);
}

enum pando_status pando_put_if(struct pando_table *table, enum pando_condition condition,
                               const void *key, size_t key_size, const void *value,
                               size_t value_size)
{
    struct key_call call = key_call("put into", table, put_co, key, key_size);
    if (condition != PANDO_IF_ABSENT && condition != PANDO_IF_PRESENT)
        return PANDO_INVALID;
    return put(&call, value, value_size,
               condition == PANDO_IF_ABSENT ? ENGINE_INSERT : ENGINE_UPDATE);
}

static enum pando_status delete_co(struct call *call)
{
    return store_delete_co(call->store, key_call_of(call)->key);
}

enum pando_status pando_delete(struct pando_table *table, const void *key, size_t key_size)
{
    struct key_call call = key_call("delete from", table, delete_co, key, key_size);
    return bytes_ok(key, key_size) ? call_run(&call.base) : PANDO_INVALID;
}

/* ---- reading and writing --------------------------------------------------------------------- */

static enum pando_status modify_co(struct call *call)
{
    struct key_call *modify = key_call_of(call);
    return store_modify_co(call->store, modify->key, false, modify->modify, modify->context);
}

static enum pando_status modify(const char *what, struct pando_table *table, struct slice key,
                                size_t value_size, engine_modify_fn fn, void *context)
{
    struct key_call call = key_call(what, table, modify_co, key.data, key.size);
    if (!bytes_ok(key.data, key.size))
        return PANDO_INVALID;
    call.base.value_size = value_size;
    call.modify = fn;
    call.context = context;
    return call_run(&call.base);
}

struct user_modify {
    pando_modify_fn fn;
    void *context;
    bool nonsense;
};

static struct engine_change user_change(void *context, const struct slice *old)
{
    struct user_modify *user = context;
    struct pando_slice before, after = {0};
    if (old != NULL)
        before = (struct pando_slice){.data = old->data, .size = old->size};
    enum pando_change what = user->fn(user->context, old == NULL ? NULL : &before, &after);
    user->nonsense =
        what > PANDO_REMOVE || (what == PANDO_STORE && !bytes_ok(after.data, after.size));
    if (user->nonsense || what == PANDO_KEEP)
        return (struct engine_change){.what = ENGINE_KEEP};
    return (struct engine_change){.what = what == PANDO_STORE ? ENGINE_STORE : ENGINE_REMOVE,
                                  .value = slice_of(after.data, after.size)};
}

enum pando_status pando_modify(struct pando_table *table, const void *key, size_t key_size,
                               pando_modify_fn callback, void *context)
{
    struct user_modify user = {.fn = callback, .context = context};
    if (callback == NULL)
        return PANDO_INVALID;
    enum pando_status status =
        modify("modify in", table, slice_of(key, key_size), 0, user_change, &user);
    return status == PANDO_OK && user.nonsense ? PANDO_INVALID : status;
}

struct compare {
    struct slice expected, value;
    enum pando_status status;
};

static struct engine_change compare_change(void *context, const struct slice *old)
{
    struct compare *compare = context;
    compare->status = old == NULL                            ? PANDO_NOT_FOUND
                      : slice_equal(*old, compare->expected) ? PANDO_OK
                                                             : PANDO_STALE;
    return (struct engine_change){.what = compare->status == PANDO_OK ? ENGINE_STORE : ENGINE_KEEP,
                                  .value = compare->value};
}

enum pando_status pando_compare_and_put(struct pando_table *table, const void *key, size_t key_size,
                                        const void *expected, size_t expected_size,
                                        const void *value, size_t value_size)
{
    struct compare compare = {.expected = slice_of(expected, expected_size),
                              .value = slice_of(value, value_size)};
    if (!bytes_ok(expected, expected_size) || !bytes_ok(value, value_size))
        return PANDO_INVALID;
    enum pando_status status = modify("compare and put into", table, slice_of(key, key_size),
                                      value_size, compare_change, &compare);
    return status == PANDO_OK ? compare.status : status;
}

struct addition {
    int64_t addend, sum;
    uint8_t bytes[8];
    enum pando_status status;
};

static struct engine_change add_change(void *context, const struct slice *old)
{
    struct addition *addition = context;
    uint64_t word = 0;
    addition->status = old == NULL || old->size == sizeof(word) ? PANDO_OK : PANDO_INVALID;
    for (size_t i = 0; addition->status == PANDO_OK && old != NULL && i < sizeof(word); i++)
        word |= (uint64_t)old->data[i] << (8 * i);
    if (addition->status == PANDO_OK &&
        __builtin_add_overflow((int64_t)word, addition->addend, &addition->sum))
        addition->status = PANDO_RANGE;
    if (addition->status != PANDO_OK)
        return (struct engine_change){.what = ENGINE_KEEP};
    for (size_t i = 0; i < sizeof(word); i++)
        addition->bytes[i] = (uint8_t)((uint64_t)addition->sum >> (8 * i));
    return (struct engine_change){.what = ENGINE_STORE,
                                  .value = slice_of(addition->bytes, sizeof(addition->bytes))};
}

enum pando_status pando_add(struct pando_table *table, const void *key, size_t key_size,
                            int64_t addend, int64_t *sum)
{
    struct addition addition = {.addend = addend};
    enum pando_status status = modify("add to a number in", table, slice_of(key, key_size),
                                      sizeof(addition.bytes), add_change, &addition);
    if (status == PANDO_OK)
        status = addition.status;
    if (status == PANDO_OK && sum != NULL)
        *sum = addition.sum;
    return status;
}
