/*
 * batch.c - blocking operations on many keys: batches that overlap, and prefix deletes.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/pando_int.h"
#include "store/keys.h"

enum {
    WIDTH = 64,         /* operations in flight */
    PIECE = 1024,       /* operations that are translated at a time */
    DELETE_PIECE = 256, /* keys found before they are deleted */
};

/* ---- batches --------------------------------------------------------------------------------- */

struct batch_call {
    struct library_call base;
    struct pando_operation *operations;
    size_t count;
};

static void batch_translate(const struct pando_operation *from, struct engine_batch_op *to)
{
    *to = (struct engine_batch_op){
        .kind = from->kind == PANDO_GET   ? ENGINE_BATCH_GET
                : from->kind == PANDO_PUT ? ENGINE_BATCH_PUT
                                          : ENGINE_BATCH_DELETE,
        .key = slice_of(from->key.data, from->key.size),
        .value = slice_of(from->value.data, from->value.size),
        .buffer = from->buffer,
        .capacity = from->capacity,
    };
}

static enum pando_status batch_co(struct library_call *call)
{
    struct batch_call *batch = container_of(call, struct batch_call, base);
    size_t most = batch->count < PIECE ? batch->count : PIECE;
    struct engine_batch_op *ops = malloc((most == 0 ? 1 : most) * sizeof(*ops));
    enum pando_status status = PANDO_OK;

    if (ops == NULL)
        return PANDO_NO_MEMORY;
    for (size_t done = 0; done < batch->count; done += most) {
        struct pando_operation *operations = batch->operations + done;
        size_t count = batch->count - done < most ? batch->count - done : most;
        for (size_t i = 0; i < count; i++)
            batch_translate(&operations[i], &ops[i]);
        store_batch_co(call->store, ops, count, WIDTH);
        for (size_t i = 0; i < count; i++) {
            operations[i].status = ops[i].status;
            operations[i].value_size = ops[i].size;
            if (status == PANDO_OK && ops[i].status != PANDO_NOT_FOUND &&
                ops[i].status != PANDO_OK) {
                status = ops[i].status;
                call->number = done + i + 1;
                call->count = batch->count;
                call->key_size = operations[i].key.size;
                call->value_size = operations[i].value.size;
            }
        }
    }
    free(ops);
    /* One that was dropped meanwhile is missing all its keys. */
    return status == PANDO_OK && batch->count > 0 && store_table_dropped(call->store)
               ? PANDO_NOT_FOUND
               : status;
}

static bool slice_ok(struct pando_slice slice)
{
    return slice.data != NULL || slice.size == 0;
}

static bool kind_ok(enum pando_operation_kind kind, bool gets)
{
    return gets ? kind == PANDO_GET : kind == PANDO_PUT || kind == PANDO_DELETE;
}

static enum pando_status batch_check(const struct batch_call *call, bool gets)
{
    if (call->operations == NULL && call->count > 0)
        return failure_null(&call->base, "the operations");
    for (size_t i = 0; i < call->count; i++) {
        const struct pando_operation *operation = &call->operations[i];
        const char *wrong = NULL;
        if (!kind_ok(operation->kind, gets))
            wrong = gets ? "is not a get" : "is neither a put nor a delete";
        else if (!slice_ok(operation->key))
            wrong = "has a key that is NULL";
        else if (gets ? operation->buffer == NULL && operation->capacity > 0
                      : !slice_ok(operation->value))
            wrong = gets ? "has a buffer that is NULL" : "has a value that is NULL";
        if (wrong != NULL)
            return failure_of(&call->base, PANDO_INVALID,
                              "operation %zu of %zu %s; nothing was done", i + 1, call->count,
                              wrong);
    }
    return PANDO_OK;
}

static enum pando_status batch_run(const char *note, const char *what, struct pando_table *table,
                                   struct pando_operation *operations, size_t count, bool gets)
{
    enum pando_status status = table_usable(table, note);
    if (status != PANDO_OK)
        return status;
    struct batch_call call = {
        .base = {.what = what, .pool = table->pool, .table = table, .fn_co = batch_co},
        .operations = operations,
        .count = count};
    status = batch_check(&call, gets);
    if (status != PANDO_OK)
        return status;
    call.base.many = true;
    return call_run(&call.base);
}

enum pando_status pando_multi_get(struct pando_table *table, struct pando_operation *operations,
                                  size_t count)
{
    return batch_run(NO_TABLE("pando_multi_get"), "get from", table, operations, count, true);
}

enum pando_status pando_write_batch(struct pando_table *table, struct pando_operation *operations,
                                    size_t count)
{
    return batch_run(NO_TABLE("pando_write_batch"), "write into", table, operations, count, false);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* Keys that were found and are to be deleted. */
struct found {
    size_t count;
    struct engine_batch_op ops[DELETE_PIECE];
    uint8_t bytes[DELETE_PIECE * STORE_KEY_MAX];
};

struct prefix_call {
    struct library_call base;
    struct slice prefix;
    uint64_t deleted;
};

static bool find_key(void *context, struct slice key, struct slice value)
{
    struct found *found = context;
    uint8_t *to = found->bytes + found->count * STORE_KEY_MAX;
    (void)value;
    if (key.size > 0)
        memcpy(to, key.data, key.size);
    found->ops[found->count++] =
        (struct engine_batch_op){.kind = ENGINE_BATCH_DELETE, .key = slice_of(to, key.size)};
    return found->count < DELETE_PIECE;
}

static enum pando_status delete_found_co(struct prefix_call *call, struct found *found)
{
    enum pando_status status = PANDO_OK;
    store_batch_co(call->base.store, found->ops, found->count, WIDTH);
    for (size_t i = 0; i < found->count; i++) {
        if (found->ops[i].status == PANDO_OK)
            call->deleted++;
        else if (found->ops[i].status != PANDO_NOT_FOUND && status == PANDO_OK)
            status = found->ops[i].status;
    }
    return status == PANDO_OK && store_table_dropped(call->base.store) ? PANDO_NOT_FOUND : status;
}

static enum pando_status delete_range_co(struct prefix_call *call, struct found *found)
{
    uint8_t low[STORE_KEY_MAX + 1], high[STORE_KEY_MAX];
    size_t key_max = store_table_shape(call->base.store)->key_max;
    size_t low_size = call->prefix.size, high_size = call->prefix.size;
    struct store_range range = {.limit = DELETE_PIECE};
    enum pando_status status = PANDO_OK;

    if (call->prefix.size > key_max)
        return PANDO_OK; /* no key begins so */
    if (call->prefix.size > 0) {
        memcpy(low, call->prefix.data, low_size);
        memcpy(high, call->prefix.data, high_size);
    }
    range.no_high = !key_after_prefix(high, &high_size);
    range.high = slice_of(high, high_size);
    do {
        range.low = slice_of(low, low_size);
        found->count = 0;
        status = store_scan_co(call->base.store, &range, find_key, found);
        if (status != PANDO_OK || found->count == 0)
            break;
        struct slice last = found->ops[found->count - 1].key;
        low_size = last.size;
        if (low_size > 0)
            memcpy(low, last.data, low_size);
        status = delete_found_co(call, found);
    } while (status == PANDO_OK && found->count == DELETE_PIECE &&
             key_after(low, &low_size, key_max));
    return status;
}

static enum pando_status delete_prefix_co(struct library_call *call)
{
    struct found *found = malloc(sizeof(*found));
    if (found == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = delete_range_co(container_of(call, struct prefix_call, base), found);
    free(found);
    return status;
}

enum pando_status pando_delete_prefix(struct pando_table *table, const void *prefix,
                                      size_t prefix_size, uint64_t *deleted)
{
    enum pando_status status = table_usable(table, NO_TABLE("pando_delete_prefix"));
    if (status != PANDO_OK)
        return status;
    struct prefix_call call = {.base = {.what = "delete a prefix from",
                                        .pool = table->pool,
                                        .table = table,
                                        .many = true,
                                        .fn_co = delete_prefix_co},
                               .prefix = slice_of(prefix, prefix_size)};
    if (prefix == NULL && prefix_size > 0)
        return failure_null(&call.base, "the prefix");
    status = call_run(&call.base);
    if (deleted != NULL)
        *deleted = call.deleted;
    return status;
}
