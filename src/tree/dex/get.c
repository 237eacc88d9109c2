/*
 * get.c - one pair. Of a key of one's own mostly without a message: the leaf is cached.
 */
#include <string.h>

#include "tree/dex/dex_int.h"
#include "tree/dex/offload_fmt.h"

enum { TRIES_MAX = 100000 };

enum pando_status dex_settle_co(struct dex *self, uint64_t end)
{
    struct dex_table *table = self->table;
    if (table->log != NULL && !dex_log_durable(table->log, end) && table->on.durable) {
        enum pando_status status = dex_log_wait_co(table->log, self->base.session, end);
        if (status != PANDO_OK)
            return status;
    }
    if (pool_lease_valid(table->pool))
        return PANDO_OK;
    if (!table->on.lease)
        return PANDO_OK; /* broken on purpose (R39) */
    return pool_fenced(table->pool) ? PANDO_FENCED : PANDO_TIMEOUT;
}

enum pando_status dex_local_get_co(struct dex *self, const struct map_part *part, struct slice key,
                                   struct dex_scratch *scratch, bool *blob, void *value,
                                   size_t capacity, size_t *size)
{
    struct dex_table *table = self->table;
    struct dex_push push = {.operation = DEX_WORK_GET, .part = part, .key = key};
    struct dex_target target = {.key = key, .push = &push, .scratch = scratch};
    struct dex_spot spot;
    struct records_ticket ticket;

    dex_did(self, 1);
    *blob = false;
    records_ask(&table->records, key, &ticket);
    if (records_get(&table->records, key, value, capacity, size, &ticket))
        return dex_settle_co(self, 0);
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        enum pando_status status = dex_find_co(self, &target, &spot);
        if (status != PANDO_OK)
            return status;
        if (spot.pushed) {
            *blob = push.old_blob;
            *size = push.found.size;
            memcpy(value, push.found.data, *size < capacity ? *size : capacity);
            status = dex_settle_co(self, 0);
            if (status == PANDO_OK && push.was_there && !*blob) {
                records_keep(&table->records, &ticket, key, push.found);
                dex_lend_co(self, &ticket);
            }
            return status == PANDO_OK && !push.was_there ? PANDO_NOT_FOUND : status;
        }
        struct frame *frame = frame_at(&table->frames, spot.frame);
        const uint8_t *bytes = frame_bytes(&table->frames, spot.frame);
        uint32_t index;
        bool found = page_find(&table->layout, bytes, key, &index);
        *blob = false;
        if (found)
            *size = page_value(&table->layout, bytes, index, value, capacity, blob);
        uint64_t end = atomic_load_explicit(&frame->end, memory_order_relaxed);
        if (spot.private)
            status = dex_private_end_co(self, spot.frame);
        else if (!frame_same(frame, spot.version))
            continue;
        if (status == PANDO_OK)
            status = dex_settle_co(self, end);
        if (status != PANDO_OK)
            return status;
        /* While the leaf is kept, the record saves no more than a little time. */
        if (found && !*blob && *size <= capacity && (spot.private || ticket.room))
            records_keep(&table->records, &ticket, key, slice_of(value, *size));
        if (found && spot.private)
            dex_lend_co(self, &ticket);
        return found ? PANDO_OK : PANDO_NOT_FOUND;
    }
    return PANDO_TIMEOUT;
}

enum pando_status dex_read_blob_co(struct dex *self, struct slice key, blob_ref ref, void *value,
                                   size_t capacity, size_t *size, blob_ref *missing)
{
    uint16_t table = self->table->id;
    enum pando_status status =
        blob_read_co(self->base.session, table, key, ref, value, capacity, size);
    if (status == PANDO_STALE)
        status = blob_missing(table, ref, missing);
    return status == PANDO_STALE ? PANDO_AGAIN : status;
}

/* One try. AGAIN: ask once more. */
static enum pando_status try_co(struct dex *self, struct slice key, struct dex_scratch *scratch,
                                void *value, size_t capacity, size_t *size, blob_ref *missing)
{
    struct dex_table *table = self->table;
    struct dex_guard guard;
    uint64_t owner;
    bool blob;

    dex_enter(self, key, &guard);
    if (!dex_mine(table, guard.part)) {
        dex_leave(self, &guard);
        enum pando_status status = dex_claim_co(self, key, &owner);
        if (status != PANDO_OK)
            return status;
        return owner == dex_self(table)
                   ? PANDO_AGAIN
                   : dex_forward_get_co(self, owner, key, value, capacity, size, missing);
    }
    enum pando_status status = dex_local_get_co(self, guard.part, key, scratch, &blob,
                                                scratch->value, table->layout.page_bytes, size);
    dex_leave(self, &guard);
    if (status != PANDO_OK)
        return status;
    if (blob) {
        blob_ref ref;
        memcpy(&ref, scratch->value, sizeof(ref));
        return dex_read_blob_co(self, key, ref, value, capacity, size, missing);
    }
    size_t stored = *size < capacity ? *size : capacity;
    if (stored > 0)
        memcpy(value, scratch->value, stored);
    return PANDO_OK;
}

enum pando_status dex_get_co(struct engine *engine, struct slice key, void *value, size_t capacity,
                             size_t *size)
{
    struct dex *self = dex_of(engine);
    struct dex_scratch *scratch = dex_scratch_take(self);
    struct pool_retry retry = {0};
    blob_ref missing = 0;
    enum pando_status status;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    rt_charge(RT_COST_OPERATION);
    while ((status = try_co(self, key, scratch, value, capacity, size, &missing)) == PANDO_AGAIN) {
        status = dex_retry_co(self, &retry);
        if (status != PANDO_OK)
            break;
    }
    dex_scratch_give(self, scratch);
    return status;
}
