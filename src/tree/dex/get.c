/*
 * get.c - one pair. Of a key of one's own mostly without a message: the leaf is cached.
 */
#include <string.h>

#include "tree/dex/tree.h"

enum pando_status dex_local_get_co(struct dex *self, const struct map_partition *part,
                                   struct slice key, struct dex_scratch *scratch, bool *blob,
                                   void *value, size_t capacity, size_t *size)
{
    struct dex_table *table = self->table;
    struct dex_pushdown push = {.operation = DEX_PUSHDOWN_GET, .part = part, .key = key};
    struct dex_target target = {.key = key, .push = &push, .scratch = scratch};
    struct dex_spot spot;
    struct pair_cache_token token;

    owners_count_operations(&self->owners, 1);
    *blob = false;
    pair_cache_ask(&table->cache.records, key, &token);
    if (pair_cache_get(&table->cache.records, key, value, capacity, size, &token))
        return dex_await_durable_co(self, 0);
    struct dex_tries tries = {0};
    do {
        enum pando_status status = dex_find_co(self, &target, &spot);
        if (status != PANDO_OK)
            return status;
        if (spot.pushed_down) {
            *blob = push.old_blob;
            *size = push.found.size;
            memcpy(value, push.found.data, *size < capacity ? *size : capacity);
            status = dex_await_durable_co(self, 0);
            if (status == PANDO_OK && push.was_there && !*blob) {
                pair_cache_keep(&table->cache.records, &token, key, push.found);
                dex_lend_co(self, &token);
            }
            return status == PANDO_OK && !push.was_there ? PANDO_NOT_FOUND : status;
        }
        struct frame *frame = frame_at(&table->cache.frames, spot.frame);
        const uint8_t *bytes = frame_bytes(&table->cache.frames, spot.frame);
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
            status = dex_await_durable_co(self, end);
        if (status != PANDO_OK)
            return status;
        /* While the leaf is kept, the record saves no more than a little time. */
        if (found && !*blob && *size <= capacity && (spot.private || token.room))
            pair_cache_keep(&table->cache.records, &token, key, slice_of(value, *size));
        if (found && spot.private)
            dex_lend_co(self, &token);
        return found ? PANDO_OK : PANDO_NOT_FOUND;
    } while (dex_try_again_co(self, &tries));
    return PANDO_TIMEOUT;
}

static struct step try_get_co(struct dex *self, struct slice key, struct dex_scratch *scratch,
                              struct engine_part *part, blob_ref *missing)
{
    struct dex_table *table = self->table;
    struct owners_guard guard;
    uint64_t owner;
    size_t size;
    bool blob;

    owners_enter(&self->owners, key, &guard);
    if (!owners_mine(&table->owners, guard.part)) {
        owners_leave(&self->owners, &guard);
        struct step step = owners_claim_co(&self->owners, key, &owner);
        if (!step_ok(step))
            return step;
        return owner == owners_self(&table->owners)
                   ? step_to(STEP_RESTART)
                   : owners_forward_get_co(&self->owners, owner, key, part, missing);
    }
    enum pando_status status = dex_local_get_co(self, guard.part, key, scratch, &blob,
                                                scratch->value, table->layout.page_bytes, &size);
    owners_leave(&self->owners, &guard);
    if (status != PANDO_OK)
        return step_of(status);
    if (blob) {
        blob_ref ref;
        memcpy(&ref, scratch->value, sizeof(ref));
        return owners_read_blob_co(&self->owners, key, ref, part, missing);
    }
    owners_take_part(part, slice_of(scratch->value, size));
    return step_of(PANDO_OK);
}

static enum pando_status read_co(struct dex *self, struct slice key, struct engine_part *part)
{
    struct dex_scratch *scratch = dex_scratch_take(self);
    struct pool_retry retry = {0};
    blob_ref missing = 0;
    struct step step;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    rt_charge(RT_COST_OPERATION);
    do
        step = try_get_co(self, key, scratch, part, &missing);
    while (dex_again_co(self, &retry, &step));
    dex_scratch_give(self, scratch);
    return step.status;
}

enum pando_status dex_part_co(struct engine *engine, struct slice key, struct engine_part *part)
{
    struct dex *self = dex_of(engine);
    if (part->reference == 0)
        return read_co(self, key, part);
    return blob_read_again_co(self->base.session, self->table->id, key, part);
}
