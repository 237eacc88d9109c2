/*
 * pando_batch.c - blocking operations on many keys: batches that overlap, and prefix deletes.
 */
#include <stdlib.h>
#include <string.h>

#include "store/keys.h"
#include "store/pando_int.h"

enum {
    WIDTH = 64,         /* operations in flight */
    PIECE = 1024,       /* operations that are translated at a time */
    DELETE_PIECE = 256, /* keys found before they are deleted */
};

/* ---- batches --------------------------------------------------------------------------------- */

struct batch_call {
    struct call base;
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

static enum pando_status batch_co(struct call *call)
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

static enum pando_status batch_run(const char *what, struct pando_table *table,
                                   struct pando_operation *operations, size_t count)
{
    struct batch_call call = {.base = {.what = what,
                                       .pool = table == NULL ? NULL : table->pool,
                                       .table = table,
                                       .fn_co = batch_co},
                              .operations = operations,
                              .count = count};
    enum pando_status status = call_run(&call.base);
    return status;
}

static bool slice_ok(struct pando_slice slice)
{
    return slice.data != NULL || slice.size == 0;
}

enum pando_status pando_multi_get(struct pando_table *table, struct pando_operation *operations,
                                  size_t count)
{
    if (operations == NULL && count > 0)
        return PANDO_INVALID;
    for (size_t i = 0; i < count; i++) {
        const struct pando_operation *operation = &operations[i];
        if (operation->kind != PANDO_GET || !slice_ok(operation->key) ||
            (operation->buffer == NULL && operation->capacity > 0))
            return PANDO_INVALID;
    }
    return batch_run("get from", table, operations, count);
}

enum pando_status pando_write_batch(struct pando_table *table, struct pando_operation *operations,
                                    size_t count)
{
    if (operations == NULL && count > 0)
        return PANDO_INVALID;
    for (size_t i = 0; i < count; i++) {
        const struct pando_operation *operation = &operations[i];
        if ((operation->kind != PANDO_PUT && operation->kind != PANDO_DELETE) ||
            !slice_ok(operation->key) || !slice_ok(operation->value))
            return PANDO_INVALID;
    }
    return batch_run("write to", table, operations, count);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* Keys that were found and are to be deleted. */
struct found {
    size_t count;
    struct engine_batch_op ops[DELETE_PIECE];
    uint8_t bytes[DELETE_PIECE * ENGINE_KEY_MAX];
};

struct prefix_call {
    struct call base;
    struct slice prefix;
    uint64_t deleted;
};

static bool find_key(void *context, struct slice key, struct slice value)
{
    struct found *found = context;
    uint8_t *to = found->bytes + found->count * ENGINE_KEY_MAX;
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
    uint8_t low[ENGINE_KEY_MAX + 1], high[ENGINE_KEY_MAX];
    size_t key_max = store_table_shape(call->base.store)->key_max;
    size_t low_size = call->prefix.size, high_size = call->prefix.size;
    struct engine_range range = {.limit = DELETE_PIECE};
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

static enum pando_status delete_prefix_co(struct call *call)
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
    struct prefix_call call = {.base = {.what = "delete a prefix from",
                                        .pool = table == NULL ? NULL : table->pool,
                                        .table = table,
                                        .fn_co = delete_prefix_co},
                               .prefix = slice_of(prefix, prefix_size)};
    if (prefix == NULL && prefix_size > 0)
        return PANDO_INVALID;
    enum pando_status status = call_run(&call.base);
    if (deleted != NULL)
        *deleted = call.deleted;
    return status;
}
