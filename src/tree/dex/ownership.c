/*
 * ownership.c - what this engine does when keys become its own, are asked for by others, and go.
 */
#include <string.h>

#include "tree/dex/ownership.h"
#include "tree/dex/tree.h"

/* ---- handles, and operations for others ------------------------------------------------------ */

static enum pando_status attach(struct owners *owners, struct pool_session *session,
                                struct owners_handle **out)
{
    struct dex *self;
    enum pando_status status =
        dex_handle_create(container_of(owners, struct dex_table, owners), session, &self);
    if (status == PANDO_OK)
        *out = &self->owners;
    return status;
}

static void detach(struct owners_handle *handle)
{
    dex_handle_destroy(dex_of_handle(handle));
}

static enum pando_status get_co(struct owners_handle *handle, const struct map_partition *part,
                                struct slice key, bool *blob, void *to, size_t capacity,
                                size_t *size)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_local_get_co(self, part, key, scratch, blob, to, capacity, size);
    dex_scratch_give(self, scratch);
    return status;
}

static enum pando_status modify_co(struct owners_handle *handle, const struct map_partition *part,
                                   struct slice key, const struct owners_edit *edit)
{
    return dex_local_modify_co(dex_of_handle(handle), part, key, edit);
}

/* A leaf's page, sealed. */
static enum pando_status leaf_co(struct owners_handle *handle, struct slice key, bool before,
                                 uint8_t *to, uint32_t *size)
{
    struct dex *self = dex_of_handle(handle);
    const struct page_layout *layout = &self->table->layout;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_local_leaf_co(self, key, before, scratch);
    if (status == PANDO_OK) {
        page_seal(layout, scratch->page);
        memcpy(to, scratch->page, layout->page_bytes);
        *size = layout->page_bytes;
    }
    dex_scratch_give(self, scratch);
    return status;
}

/* ---- the log, the view ----------------------------------------------------------------------- */

static struct owners_log log_of(const struct owners *owners)
{
    const struct dex_table *table = container_of((struct owners *)owners, struct dex_table, owners);
    struct dex_log *log = table->redo.log;
    return log == NULL ? (struct owners_log){0}
                       : (struct owners_log){dex_log_address(log), dex_log_version(log)};
}

static enum pando_status retain_log_co(struct owners_handle *handle, bool keep)
{
    struct dex *self = dex_of_handle(handle);
    return dex_log_retain_co(self->table->redo.log, self->base.session, keep);
}

/* A member that does nothing more is not to end, because of that, when its log's node is away. */
static void maintain_co(struct owners_handle *handle)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_log *log = self->table->redo.log;
    if (log == NULL || pool_kept_off(self->table->pool, dex_log_address(log)))
        return;
    enum pando_status status = dex_log_mark_co(log, self->base.session);
    (void)status; /* whoever writes finds out */
}

/* What has become ours was written by others. */
static void published(struct owners *owners)
{
    visible_forget(&container_of(owners, struct dex_table, owners)->pushdown.visible);
}

/* The root is cached for good: when it is a leaf, it is current only for its owner. */
static enum pando_status map_install_co(struct owners_handle *handle, uint64_t epoch)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, table->root_frame);
    struct dex_scratch *scratch = dex_scratch_take(self);
    enum pando_status status = PANDO_OK;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    frame_latch_co(&table->cache.frames, frame);
    if (!frame->dirty) {
        status = dex_read_co(self, frame->address, scratch->page);
        if (status == PANDO_OK) {
            dex_relink_children_co(self, table->root_frame, scratch->page);
            frame->epoch = epoch;
        }
    }
    frame_give_changed(frame);
    dex_scratch_give(self, scratch);
    return status == PANDO_STALE ? PANDO_CORRUPT : status;
}

/* ---- bounds: leaves have one owner ----------------------------------------------------------- */

static enum pando_status align_co(struct owners_handle *handle, struct slice *bound, bool *none,
                                  uint8_t to[ENGINE_KEY_MAX])
{
    struct dex *self = dex_of_handle(handle);
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint8_t low[PAGE_KEY_ROOM];
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_local_leaf_co(self, *bound, false, scratch);
    if (status == PANDO_OK && !slice_equal(page_low(scratch->page, low), *bound))
        *none = !page_high(scratch->page, to, bound);
    dex_scratch_give(self, scratch);
    return status;
}

static enum pando_status check_bound_co(struct owners_handle *handle, struct slice bound)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint8_t low[PAGE_KEY_ROOM];
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_local_leaf_co(self, bound, false, scratch);
    if (status == PANDO_OK && !slice_equal(page_low(scratch->page, low), bound))
        status = PANDO_STALE;
    dex_scratch_give(self, scratch);
    return status;
}

/* The keys that begin the children of all pages of a level, as the pool has them. */
static enum pando_status collect_co(struct dex *self, fabric_address address, uint8_t level,
                                    struct owners_bounds *bounds)
{
    const struct page_layout *layout = &self->table->layout;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_read_co(self, address, scratch->page);

    if (status == PANDO_STALE)
        status = PANDO_OK; /* merged away meanwhile: a bound less */
    else if (status == PANDO_OK && page_level(scratch->page) > 0) {
        for (uint32_t i = 0; i < page_pairs(scratch->page) && status == PANDO_OK; i++) {
            if (page_level(scratch->page) > level)
                status = collect_co(self, page_child(layout, scratch->page, i), level, bounds);
            else if (!owners_bounds_add(bounds, page_key(layout, scratch->page, i, scratch->key)))
                status = PANDO_NO_MEMORY;
        }
    }
    dex_scratch_give(self, scratch);
    return status;
}

static enum pando_status bounds_co(struct owners_handle *handle, size_t wanted, bool fresh,
                                   struct owners_bounds *bounds)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_table *table = self->table;
    struct dex_scratch *scratch = dex_scratch_take(self);
    const uint8_t *root = frame_bytes(&table->cache.frames, table->root_frame);
    enum pando_status status = PANDO_OK;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    if (fresh) {
        status = dex_read_co(self, table->root, scratch->page);
        root = scratch->page;
    }
    /* As deep as it takes to cut finely enough. */
    for (int level = status == PANDO_OK ? page_level(root) : 0;
         level > 0 && status == PANDO_OK && bounds->count < wanted; level--) {
        bounds->count = 0;
        status = collect_co(self, table->root, (uint8_t)level, bounds);
    }
    dex_scratch_give(self, scratch);
    return status;
}

/* ---- going ----------------------------------------------------------------------------------- */

/* Who gets keys has to read the root. If that is damaged in the pool, only we can go on, with our copy. */
static enum pando_status can_give_co(struct owners_handle *handle)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_read_co(self, self->table->root, scratch->page);
    dex_scratch_give(self, scratch);
    return status == PANDO_STALE ? PANDO_CORRUPT : status;
}

static enum pando_status flush_co(struct owners_handle *handle, const struct owners_range *range)
{
    return dex_flush_co(dex_of_handle(handle), range);
}

/* When these keys come back they may be others. */
static void stopped(struct owners_handle *handle)
{
    pair_cache_forget_all(&dex_of_handle(handle)->table->cache.records);
}

/* A cached leaf of the range goes, written back if it was changed. */
static enum pando_status drop_leaf_co(struct dex *self, uint32_t index,
                                      const struct owners_range *range)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);
    struct frame_pause pause = {0};
    uint8_t low[PAGE_KEY_ROOM];
    enum pando_status status = PANDO_OK;

    for (;;) {
        frame_latch_co(&table->cache.frames, frame);
        uint8_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);
        const uint8_t *bytes = frame_bytes(&table->cache.frames, index);
        if ((state != FRAME_HOT && state != FRAME_COOLING) || page_level(bytes) != 0 ||
            frame->pinned || !owners_range_has(range, page_low(bytes, low)))
            break;
        if (frame->dirty)
            status = dex_write_back_co(self, index);
        if (status != PANDO_OK)
            break;
        struct frame *parent =
            state == FRAME_HOT ? frame_at(&table->cache.frames, frame->parent) : NULL;
        if (parent != NULL && !frame_try(parent)) {
            frame_give(frame);
            frame_pause_co(&pause);
            continue;
        }
        if (parent != NULL) {
            dex_unswizzle(table, frame->parent, index);
            frame_give(parent);
        } else {
            (void)cooling_remove(&table->cache.cooling, frame->address, index);
        }
        dex_evict(self, index);
        return PANDO_OK;
    }
    /* The root may be a leaf: it stays, but must be in the pool. */
    if (status == PANDO_OK && frame->pinned && frame->dirty)
        status = dex_write_back_co(self, index);
    frame_give(frame);
    return status;
}

static enum pando_status drop_co(struct owners_handle *handle, const struct owners_range *range)
{
    struct dex *self = dex_of_handle(handle);
    uint32_t used = atomic_load(&self->table->cache.fresh);
    enum pando_status status = PANDO_OK;
    for (uint32_t i = 0; i < used && status == PANDO_OK; i++) {
        uint8_t state = atomic_load_explicit(&frame_at(&self->table->cache.frames, i)->state,
                                             memory_order_relaxed);
        if (state != FRAME_FREE)
            status = drop_leaf_co(self, i, range);
    }
    return status;
}

const struct owners_engine dex_owners_engine = {
    .attach = attach,
    .detach = detach,
    .get_co = get_co,
    .modify_co = modify_co,
    .leaf_co = leaf_co,
    .prepare_co = dex_log_prepare_co,
    .log = log_of,
    .retain_log_co = retain_log_co,
    .maintain_co = maintain_co,
    .replay_co = dex_log_take_over_co,
    .free_log_co = dex_log_let_go_co,
    .map_install_co = map_install_co,
    .published = published,
    .align_co = align_co,
    .can_give_co = can_give_co,
    .flush_co = flush_co,
    .stopped = stopped,
    .check_bound_co = check_bound_co,
    .drop_co = drop_co,
    .bounds_co = bounds_co,
};
