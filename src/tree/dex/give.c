/*
 * give.c - giving keys away: an owner stops working on them, writes back what it changed, and changes
 * the map. The others notice nothing; who asks for these keys waits that long.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "tree/dex/call_fmt.h"
#include "tree/dex/dex_int.h"

enum { GIVE_TRIES = 8 };

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Leaves have one owner: keys are given from where a leaf begins to where one does. */

static bool leaf_is_ours(struct dex *self, struct slice key)
{
    const struct map *map = atomic_load_explicit(&self->table->map, memory_order_acquire);
    return map_find(map, key)->owner == dex_self(self->table);
}

/* Moves a bound to the end of the leaf of ours that it is in. *none: that is the end of all keys. */
static enum pando_status align_co(struct dex *self, struct slice *bound, bool *none,
                                  struct dex_scratch *scratch, uint8_t to[PAGE_KEY_ROOM])
{
    uint8_t low[PAGE_KEY_ROOM];
    if (*none || bound->size == 0 || !leaf_is_ours(self, *bound))
        return PANDO_OK;
    enum pando_status status = dex_local_leaf_co(self, *bound, false, scratch);
    if (status == PANDO_OK && !slice_equal(page_low(scratch->page, low), *bound))
        *none = !page_high(scratch->page, to, bound);
    return status;
}

/* STALE: no leaf begins there any more. */
static enum pando_status check_bound_co(struct dex *self, struct slice bound,
                                        struct dex_scratch *scratch)
{
    uint8_t low[PAGE_KEY_ROOM];
    if (bound.size == 0 || !leaf_is_ours(self, bound))
        return PANDO_OK;
    enum pando_status status = dex_local_leaf_co(self, bound, false, scratch);
    if (status != PANDO_OK)
        return status;
    return slice_equal(page_low(scratch->page, low), bound) ? PANDO_OK : PANDO_STALE;
}

/* ---- stopping -------------------------------------------------------------------------------- */

/* A copy of the view in which what is ours of a range has that owner, and is stopped or not. */
static struct map *view_with(struct dex *self, const struct dex_range *range, uint64_t owner,
                             bool frozen, bool *any)
{
    const struct dex_table *table = self->table;
    struct map *map = map_copy(atomic_load_explicit(&table->map, memory_order_acquire));
    *any = false;
    if (map == NULL)
        return NULL;
    if (map_cut(map, range->low) != PANDO_OK ||
        (!range->no_high && map_cut(map, range->high) != PANDO_OK)) {
        free(map);
        return NULL;
    }
    for (uint32_t i = 0; i < map->count; i++) {
        struct map_part *part = &map->parts[i];
        if (part->owner != dex_self(table) || !dex_range_has(range, part->low))
            continue;
        if (owner != part->owner)
            part->log = part->log_version = 0;
        part->owner = owner;
        part->frozen = frozen;
        *any = true;
    }
    map_join(map);
    return map;
}

/* A cached leaf of the range goes, written back if it was changed. */
static enum pando_status drop_leaf_co(struct dex *self, uint32_t index,
                                      const struct dex_range *range)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->frames, index);
    struct frame_pause pause = {0};
    uint8_t low[PAGE_KEY_ROOM];
    enum pando_status status = PANDO_OK;

    for (;;) {
        frame_latch_co(frame);
        uint8_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);
        const uint8_t *bytes = frame_bytes(&table->frames, index);
        if ((state != FRAME_HOT && state != FRAME_COOLING) || page_level(bytes) != 0 ||
            frame->pinned || !dex_range_has(range, page_low(bytes, low)))
            break;
        if (frame->dirty)
            status = dex_write_back_co(self, index);
        if (status != PANDO_OK)
            break;
        struct frame *parent = state == FRAME_HOT ? frame_at(&table->frames, frame->parent) : NULL;
        if (parent != NULL && !frame_try(parent)) {
            frame_give(frame, false);
            frame_pause_co(&pause);
            continue;
        }
        if (parent != NULL) {
            dex_unswizzle(table, frame->parent, index);
            frame_give(parent, false);
        } else {
            (void)cooling_remove(&table->cooling, frame->address, index);
        }
        dex_evict(self, index);
        return PANDO_OK;
    }
    /* The root may be a leaf: it stays, but must be in the pool. */
    if (status == PANDO_OK && frame->pinned && frame->dirty)
        status = dex_write_back_co(self, index);
    frame_give(frame, false);
    return status;
}

static enum pando_status drop_leaves_co(struct dex *self, const struct dex_range *range)
{
    uint32_t used = atomic_load(&self->table->fresh);
    enum pando_status status = PANDO_OK;
    for (uint32_t i = 0; i < used && status == PANDO_OK; i++) {
        uint8_t state =
            atomic_load_explicit(&frame_at(&self->table->frames, i)->state, memory_order_relaxed);
        if (state != FRAME_FREE)
            status = drop_leaf_co(self, i, range);
    }
    return status;
}

/* If it fails, *unsure says whether the map in the pool may have changed all the same. */
static enum pando_status give_in_pool_co(struct dex *self, const struct dex_range *range,
                                         uint64_t to, bool *unsure)
{
    struct dex_table *table = self->table;
    struct pool_retry retry = {0};
    enum pando_status status;

    do {
        struct map *map, *next;
        status = map_read_co(self->base.session, table->slot, table->id, &map);
        if (status == PANDO_OK) {
            next = map_copy(map);
            if (next == NULL || map_cut(next, range->low) != PANDO_OK ||
                (!range->no_high && map_cut(next, range->high) != PANDO_OK)) {
                free(map);
                free(next);
                return PANDO_FULL;
            }
            for (uint32_t i = 0; i < next->count; i++) {
                struct map_part *part = &next->parts[i];
                if (part->owner != dex_self(table) || !dex_range_has(range, part->low))
                    continue;
                part->owner = to;
                part->log = part->log_version = 0;
                part->epoch = map->epoch + 1;
            }
            /* All that the log has of these keys is in their pages. If there are no others, it is not
             * needed any more, and after the change nobody would know of it. */
            status = PANDO_OK;
            if (table->log != NULL && !dex_log_named(table, next))
                status = dex_log_keep_co(table->log, self->base.session, false);
            if (status == PANDO_OK) {
                *unsure = true;
                status = dex_swap_co(self, map, next);
            } else {
                free(map);
                free(next);
            }
        }
        if (status == PANDO_AGAIN || status == PANDO_BROKEN || status == PANDO_TIMEOUT) {
            status = dex_retry_co(self, &retry);
            if (status == PANDO_OK)
                status = PANDO_AGAIN;
        }
    } while (status == PANDO_AGAIN);
    return status;
}

/* Reads in the pool whether the keys that are stopped here were given away. One CAS gives all of
 * them, and nobody but its owner changes the owner or the epoch of a part. They may even be ours
 * again, given back: then the epoch is another. */
static enum pando_status given_co(struct dex *self, bool *given)
{
    const struct dex_table *table = self->table;
    const struct map *view = atomic_load_explicit(&table->map, memory_order_acquire);
    struct pool_retry retry = {0};
    struct map *map;
    enum pando_status status;

    do {
        status = map_read_co(self->base.session, table->slot, table->id, &map);
    } while ((status == PANDO_BROKEN || status == PANDO_TIMEOUT) &&
             dex_retry_co(self, &retry) == PANDO_OK);
    if (status != PANDO_OK)
        return status;
    *given = false;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct map_part *part = &view->parts[i], *now = map_find(map, part->low);
        *given =
            *given || (part->frozen && (now->owner != part->owner || now->epoch != part->epoch));
    }
    free(map);
    return PANDO_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum pando_status give_frozen_co(struct dex *self, const struct dex_range *range,
                                        uint64_t to, struct dex_scratch *scratch, bool *unsure)
{
    /* Since nobody works on these keys, no leaf grows over their ends any more. */
    enum pando_status status = check_bound_co(self, range->low, scratch);
    if (status == PANDO_OK && !range->no_high)
        status = check_bound_co(self, range->high, scratch);
    if (status == PANDO_OK)
        status = drop_leaves_co(self, range);
    return status == PANDO_OK ? give_in_pool_co(self, range, to, unsure) : status;
}

/* Ends a gift that failed with that status. If `unsure`, the CAS may have given the keys away before
 * something else failed; then this member must not work on them. OK: they were given away. */
static enum pando_status settle_co(struct dex *self, const struct dex_range *range, uint64_t to,
                                   bool unsure, enum pando_status status)
{
    struct dex_table *table = self->table;
    struct map *view = NULL;
    bool given = false, any;

    if (!unsure || given_co(self, &given) == PANDO_OK)
        view = view_with(self, range, given ? to : dex_self(table), false, &any);
    if (view != NULL && (!dex_log_named(table, view) ||
                         dex_log_keep_co(table->log, self->base.session, true) == PANDO_OK)) {
        dex_publish_co(self, view);
    } else {
        free(view);
        pool_give_up(table->pool); /* these keys would stand still for ever */
    }
    return given ? PANDO_OK : status;
}

static enum pando_status give_once_co(struct dex *self, const struct dex_range *wanted, uint64_t to,
                                      struct dex_scratch *scratch)
{
    struct dex_range range = *wanted;
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    bool empty = false, any;

    enum pando_status status = align_co(self, &range.low, &empty, scratch, low);
    if (status == PANDO_OK)
        status = align_co(self, &range.high, &range.no_high, scratch, high);
    if (status != PANDO_OK || empty ||
        (!range.no_high && slice_compare(range.low, range.high) >= 0))
        return status;
    /* Who gets them has to read the root. If that is damaged in the pool, only we can go on, with
     * our copy. */
    if (to != 0 && to != dex_self(self->table))
        status = dex_read_co(self, self->table->root, scratch->page);
    if (status != PANDO_OK)
        return status == PANDO_STALE ? PANDO_CORRUPT : status;
    struct map *view = view_with(self, &range, dex_self(self->table), true, &any);
    if (view == NULL || !any) {
        free(view);
        return view == NULL ? PANDO_FULL : PANDO_OK;
    }
    /* What can be written before: who asks for these keys waits from then on. */
    status = dex_flush_co(self, &range);
    if (status != PANDO_OK) {
        free(view);
        return status;
    }
    dex_publish_co(self, view);
    /* Nobody reads or changes these keys here any more; when they come back they may be others. */
    records_forget_all(&self->table->records);
    bool unsure = false;
    status = give_frozen_co(self, &range, to, scratch, &unsure);
    if (status != PANDO_OK)
        status = settle_co(self, &range, to, unsure, status);
    if (status == PANDO_OK)
        dex_count(&self->table->stats.given);
    return status;
}

/* So that whoever got keys knows it before somebody asks for them. It need not hear it. */
static void tell_co(struct dex *self, const struct dex_range *range, uint64_t to)
{
    uint32_t size;
    enum pando_status status = pool_call_co(self->base.session, map_identity(to), self->table->id,
                                            DEX_CALL_TAKE, range->low, NULL, 0, &size);
    (void)status;
}

enum pando_status dex_give_co(struct dex *self, const struct dex_range *range, uint64_t to)
{
    struct dex_scratch *scratch = dex_scratch_take(self);
    enum pando_status status = PANDO_STALE;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    dex_change_begin_co(self->table);
    for (int tries = 0; tries < GIVE_TRIES && status == PANDO_STALE; tries++)
        status = give_once_co(self, range, to, scratch);
    dex_change_end(self->table);
    dex_scratch_give(self, scratch);
    /* Not while others wait for a change of ours: the other one may be telling us something, too. */
    if (status == PANDO_OK && to != 0 && to != dex_self(self->table))
        tell_co(self, range, to);
    return status;
}
