/*
 * find.c - from a key to the page that has it, from the root down through frames, and through the
 * pool where there are none.
 *
 * On the way nothing is held: each page's version is looked at before it is read and again after the
 * next one's (optimistic lock coupling). What does not fit together is begun again. A page that is
 * not cached is loaded by the first who wants it; the others see that it is BUSY, and begin again
 * from the root.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/offload_fmt.h"

enum {
    ADMIT_ONE_OF = 10, /* leaves that are kept: P = 0.1 */
    ADMIT_LENDING =
        10,            /* of these, one of so many if they are for gets that records serve better */
    RESTARTS_FREE = 4, /* before it begins to pause */
    RESTARTS_MAX = 100000,
    PATIENCE_LEASES = 10,
    LEAVING_LEASES = 2, /* while the table is being closed */
    LEAF_LOOKS = 4,     /* at a leaf that cannot be read */
};

static const uint64_t LOOK_PAUSE_NS = RT_NS_PER_MS;

/* A step down: from a parent at a version to the child that its word names. */
struct step {
    struct dex *self;
    const struct dex_target *target;
    uint32_t parent;
    uint64_t parent_version;
    uint32_t at;   /* which child */
    uint64_t word; /* as it was read */
    uint8_t level; /* of the child */
    uint32_t child;
    uint64_t version;
    bool private, pushed;
};

uint32_t dex_child_index(const struct dex_table *table, const uint8_t *bytes,
                         const struct dex_target *target)
{
    uint32_t at = page_child_index(&table->layout, bytes, target->key);
    uint8_t low[PAGE_KEY_ROOM];
    /* The keys just below one that begins a child are the child's before it. */
    if (target->before && at > 0 &&
        slice_equal(page_key(&table->layout, bytes, at, low), target->key))
        at--;
    return at;
}

bool dex_covers(const uint8_t *bytes, uint8_t level, const struct dex_target *target)
{
    uint8_t fence[PAGE_KEY_ROOM];
    struct slice high;

    if (page_level(bytes) != level || page_dead(bytes))
        return false;
    if (!target->before)
        return page_side(bytes, target->key) == 0;
    if (slice_compare(page_low(bytes, fence), target->key) >= 0)
        return false;
    return !page_high(bytes, fence, &high) || slice_compare(target->key, high) <= 0;
}

/* ---- what is cached -------------------------------------------------------------------------- */

/* A page that was moved to another parent by another process is still named by a stale copy of its
 * former one: takes it away from there. Its latch is held. */
static bool take_away(struct dex_table *table, uint32_t index)
{
    uint32_t former = frame_at(&table->frames, index)->parent;
    struct frame *frame = frame_at(&table->frames, former);
    if (!frame_try(frame))
        return false;
    dex_unswizzle(table, former, index);
    frame_give(frame, false);
    return true;
}

/* Makes a cooling page hot again: its parent names it by its frame. */
static enum pando_status rewarm(struct step *step, uint32_t index)
{
    struct dex_table *table = step->self->table;
    struct frame *parent = frame_at(&table->frames, step->parent);
    struct frame *frame = frame_at(&table->frames, index);
    uint64_t version = frame_look(frame);
    uint8_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);

    if (frame_held(version) || (state != FRAME_COOLING && state != FRAME_HOT) ||
        !frame_take(parent, step->parent_version))
        return PANDO_AGAIN;
    if (!frame_take(frame, version)) {
        frame_give(parent, false);
        return PANDO_AGAIN;
    }
    state = atomic_load_explicit(&frame->state, memory_order_relaxed);
    bool same = frame->address == step->word && !frame->pinned;
    if (same && state == FRAME_HOT)
        same = frame->parent != step->parent && take_away(table, index);
    else
        same = same && state == FRAME_COOLING;
    if (same) {
        (void)cooling_remove(&table->cooling, frame->address, index);
        dex_not_orphan(table, index);
        page_set_child(&table->layout, frame_bytes(&table->frames, step->parent), step->at,
                       frame_word(index));
        frame->parent = step->parent;
        atomic_store_explicit(&frame->state, FRAME_HOT, memory_order_relaxed);
        step->child = index;
        step->version = version;
    }
    frame_give(frame, false);
    frame_give(parent, false);
    return same ? PANDO_OK : PANDO_AGAIN;
}

/* ---- what is not ----------------------------------------------------------------------------- */

bool dex_admits(struct dex *self)
{
    const struct dex_table *table = self->table;
    if (!table->on.cache)
        return false;
    /* While there is room nobody has to go for it. */
    if (!table->on.admission ||
        atomic_load_explicit(&table->fresh, memory_order_relaxed) < table->frames.count)
        return true;
    return prng_next(&self->prng) % ADMIT_ONE_OF == 0;
}

static bool is_get(const struct step *step)
{
    const struct dex_push *push = step->target->push;
    return push != NULL && push->operation == DEX_WORK_GET;
}

static bool admitted(struct step *step)
{
    const struct dex_push *push = step->target->push;
    if (step->level > 0 || step->target->keep || (push != NULL && push->keep))
        return true;
    return dex_admits(step->self) && (!is_get(step) || !dex_lends(step->self->table) ||
                                      prng_next(&step->self->prng) % ADMIT_LENDING == 0);
}

/* The page is in a frame that is BUSY and in the mapping: keeps it, or leaves it to this task. */
static enum pando_status admit(struct step *step, uint32_t index)
{
    struct dex_table *table = step->self->table;
    struct frame *parent = frame_at(&table->frames, step->parent);
    struct frame *frame = frame_at(&table->frames, index);

    frame->dirty = false;
    if (!admitted(step)) {
        step->private = true;
        step->child = index;
        return PANDO_OK;
    }
    if (frame_take(parent, step->parent_version)) {
        page_set_child(&table->layout, frame_bytes(&table->frames, step->parent), step->at,
                       frame_word(index));
        frame->parent = step->parent;
        atomic_store_explicit(&frame->state, FRAME_HOT, memory_order_relaxed);
        frame_give(frame, true);
        step->version = frame_look(frame);
        step->child = index;
        frame_give(parent, false);
        return PANDO_OK;
    }
    /* The parent has changed: whoever comes next finds it in the mapping. */
    frame->parent = FRAME_NONE;
    atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
    frame_give(frame, true);
    dex_let_go(step->self, cooling_add(&table->cooling, step->word, index));
    return PANDO_AGAIN;
}

/* Whether all keys of the child are ours alone. */
static bool child_is_ours(const struct step *step)
{
    const struct dex_table *table = step->self->table;
    const struct page_layout *layout = &table->layout;
    const uint8_t *parent = frame_bytes(&table->frames, step->parent);
    const struct map_part *part = step->target->push->part;
    const struct map *map = atomic_load_explicit(&table->map, memory_order_acquire);
    uint8_t key[PAGE_KEY_ROOM];
    struct slice end, part_end;
    bool ours;

    /* Of another map than this operation began with: not now. */
    if (part < map->parts || part >= map->parts + map->count)
        return false;
    ours = slice_compare(page_key(layout, parent, step->at, key), part->low) >= 0;
    if (ours && map_part_high(map, part, &part_end)) {
        bool ends = step->at + 1 < page_pairs(parent);
        if (ends)
            end = page_key(layout, parent, step->at + 1, key);
        else
            ends = page_high(parent, key, &end);
        ours = ends && slice_compare(end, part_end) <= 0;
    }
    return ours && frame_same(frame_at(&table->frames, step->parent), step->parent_version);
}

/* In the frame that stands for the page. BUSY: it is to be loaded. */
static enum pando_status push_co(struct step *step, uint32_t index)
{
    struct dex *self = step->self;
    struct dex_table *table = self->table;

    if (step->target->push == NULL || !child_is_ours(step) ||
        !dex_offload_pays(self, step->target->push, step->word, step->level))
        return PANDO_BUSY;
    enum pando_status status =
        dex_offload_co(self, step->target->push, step->word, step->level, step->target->scratch);
    if (status == PANDO_BUSY)
        return status;
    /* UNKNOWN: this member is none any more, and sends nothing that could meet with the call. */
    frame_remove(&table->frames, index);
    dex_frame_free(self, index);
    step->pushed = status == PANDO_OK;
    return status;
}

/* Keeps the parent from cooling while a child of it is in use that it does not name by its frame. */
static bool use_parent(const struct step *step)
{
    struct frame *parent = frame_at(&step->self->table->frames, step->parent);
    if (!frame_take(parent, step->parent_version))
        return false;
    atomic_fetch_add(&parent->users, 1);
    frame_give(parent, false);
    return true;
}

static void unuse(struct dex_table *table, uint32_t parent)
{
    atomic_fetch_sub(&frame_at(&table->frames, parent)->users, 1);
}

static enum pando_status load_co(struct step *step)
{
    struct dex *self = step->self;
    struct dex_table *table = self->table;
    uint16_t node = fabric_address_node(step->word);
    uint32_t index;

    enum pando_status status = dex_frame_co(self, &index);
    if (status != PANDO_OK)
        return status;
    struct frame *frame = frame_at(&table->frames, index);
    frame->address = step->word;
    atomic_store_explicit(&frame->state, FRAME_BUSY, memory_order_relaxed);
    if (!use_parent(step)) {
        dex_frame_free(self, index);
        return PANDO_AGAIN;
    }
    frame->parent = step->parent;
    if (!frame_enter(&table->frames, index)) {
        unuse(table, step->parent);
        dex_frame_free(self, index);
        return PANDO_AGAIN;
    }
    dex_count(&table->stats.misses);
    status = push_co(step, index);
    dex_lend_missed(table, node, step->level, is_get(step), status != PANDO_BUSY);
    if (status != PANDO_BUSY) {
        unuse(table, step->parent);
        return status;
    }
    frame->epoch = dex_epoch(table);
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint64_t begin_ns = table->on.offload ? rt_now_ns() : 0;
    status = scratch == NULL ? PANDO_NO_MEMORY : dex_read_co(self, step->word, scratch->page);
    if (table->on.offload)
        dex_read_took(table, node, rt_now_ns() - begin_ns);
    /* Where a stale parent leads may be another owner's: that is never kept. */
    if (status == PANDO_OK && !dex_covers(scratch->page, step->level, step->target))
        status = PANDO_STALE;
    if (status == PANDO_OK) {
        page_copy(frame_bytes(&table->frames, index), scratch->page, table->layout.page_bytes);
        status = admit(step, index);
    } else {
        frame_remove(&table->frames, index);
        dex_frame_free(self, index);
    }
    if (!step->private)
        unuse(table, step->parent);
    if (scratch != NULL)
        dex_scratch_give(self, scratch);
    return status;
}

static enum pando_status child_co(struct step *step)
{
    struct frames *frames = &step->self->table->frames;

    if (frame_swizzled(step->word)) {
        step->child = (uint32_t)step->word;
        frame_prefetch(frames, step->child);
        struct frame *child = frame_at(frames, step->child);
        step->version = frame_look(child);
        /* One that has begun to cool since the word was read is not to be gone through: nothing would
         * keep it. (Beginning to cool changes the version, so that it is still hot while that stays.) */
        return frame_held(step->version) ||
                       atomic_load_explicit(&child->state, memory_order_relaxed) != FRAME_HOT ||
                       !frame_same(frame_at(frames, step->parent), step->parent_version)
                   ? PANDO_AGAIN
                   : PANDO_OK;
    }
    uint32_t index = frame_find(frames, step->word);
    return index != FRAME_NONE ? rewarm(step, index) : load_co(step);
}

enum pando_status dex_private_end_co(struct dex *self, uint32_t index)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->frames, index);
    enum pando_status status = PANDO_OK;

    uint32_t parent = frame->parent;
    if (frame->dirty)
        status = dex_write_back_co(self, index);
    if (status != PANDO_OK) {
        /* It stays, so that nobody reads what is older, and no memory node does either. */
        if (!frame->orphan)
            atomic_fetch_add(&table->orphans, 1);
        frame->orphan = true;
        atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
        frame_give(frame, true);
        unuse(table, parent);
        return status;
    }
    frame_remove(&table->frames, index);
    dex_frame_free(self, index);
    unuse(table, parent);
    return PANDO_OK;
}

/* ---- all the way ----------------------------------------------------------------------------- */

/* From the root to the target's level once. AGAIN: begin again. */
static enum pando_status descend_co(struct dex *self, const struct dex_target *target,
                                    struct dex_spot *spot)
{
    struct dex_table *table = self->table;
    struct frames *frames = &table->frames;

    *spot = (struct dex_spot){.frame = table->root_frame, .parent = FRAME_NONE};
    spot->version = frame_look(frame_at(frames, spot->frame));
    if (frame_held(spot->version))
        return PANDO_AGAIN;
    for (;;) {
        const uint8_t *bytes = frame_bytes(frames, spot->frame);
        uint8_t level = page_level(bytes);
        if (level == target->level || spot->private)
            return spot->parent != FRAME_NONE || page_no_high(bytes) ||
                           !frame_same(frame_at(frames, spot->frame), spot->version)
                       ? PANDO_OK
                       : PANDO_CORRUPT; /* the root has all keys */
        if (level < target->level)
            return frame_same(frame_at(frames, spot->frame), spot->version) ? PANDO_NOT_FOUND
                                                                            : PANDO_AGAIN;
        struct step step = {.self = self,
                            .target = target,
                            .parent = spot->frame,
                            .parent_version = spot->version,
                            .level = (uint8_t)(level - 1)};
        step.at = dex_child_index(table, bytes, target);
        step.word = page_child(&table->layout, bytes, step.at);
        if (!frame_same(frame_at(frames, spot->frame), spot->version))
            return PANDO_AGAIN;
        rt_race_point();
        enum pando_status status = child_co(&step);
        bool stale = status == PANDO_STALE;
        if (status != PANDO_OK && !stale)
            return status;
        if (step.pushed) {
            spot->pushed = true;
            return PANDO_OK;
        }
        if (!stale) {
            bool right = dex_covers(frame_bytes(frames, step.child), step.level, target);
            if (!step.private && !frame_same(frame_at(frames, step.child), step.version))
                return PANDO_AGAIN;
            stale = !right;
        }
        if (stale) {
            status = step.private ? dex_private_end_co(self, step.child) : PANDO_OK;
            spot->suspect = step.word;
            spot->suspect_level = step.level;
            if (status == PANDO_OK)
                status = dex_mend_co(self, spot, target);
            return status == PANDO_OK ? PANDO_AGAIN : status;
        }
        spot->parent = spot->frame;
        spot->parent_version = spot->version;
        spot->frame = step.child;
        spot->version = step.version;
        spot->private = step.private;
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void report_damage(struct dex *self, fabric_address page, uint8_t level)
{
    struct dex_table *table = self->table;
    uint64_t before = atomic_fetch_add(&table->stats.damage, 1);
    if ((before & (before + 1)) != 0)
        return; /* the first, and then ever fewer */
    log_error("a page of the table is damaged", log_u64("table", table->id), log_hex("page", page),
              log_u64("level", level), log_u64("operations", before + 1));
}

/* Nobody but its owner writes a leaf: it is looked at a few times more. An inner page may be torn
 * because its writer died: it is waited for until everybody is known to live. */
enum pando_status dex_doubt_co(struct dex *self, fabric_address page, uint8_t level,
                               struct dex_doubt *doubt)
{
    if (doubt->page != page) {
        doubt->page = page;
        doubt->looks = 0;
        if (doubt->watch != NULL)
            doubt->watch->since_ns = 0;
    }
    bool sure = doubt->looks++ >= LEAF_LOOKS;
    if (level > 0) {
        if (doubt->watch == NULL)
            doubt->watch = calloc(1, sizeof(*doubt->watch));
        if (doubt->watch == NULL)
            return PANDO_NO_MEMORY;
        enum pando_status status = pool_watch_co(self->base.session, doubt->watch, &sure);
        if (status != PANDO_OK)
            return status;
    }
    if (sure) {
        report_damage(self, page, level);
        return PANDO_CORRUPT;
    }
    rt_sleep_co(LOOK_PAUSE_NS);
    return PANDO_AGAIN;
}

void dex_doubt_end(struct dex_doubt *doubt)
{
    free(doubt->watch);
    doubt->watch = NULL;
}

/* The address of what a spot suspects, which may be named by its frame. */
static fabric_address suspect_of(const struct dex_table *table, const struct dex_spot *spot)
{
    return frame_swizzled(spot->suspect)
               ? frame_at(&table->frames, (uint32_t)spot->suspect)->address
               : spot->suspect;
}

static uint64_t patience_ns(const struct dex_table *table)
{
    bool leaving =
        atomic_load_explicit(&table->closing, memory_order_relaxed) || pool_ending(table->pool);
    return (leaving ? LEAVING_LEASES : PATIENCE_LEASES) * pool_lease_ns(table->pool);
}

enum pando_status dex_find_co(struct dex *self, const struct dex_target *target,
                              struct dex_spot *spot)
{
    struct frame_pause pause = {0};
    struct dex_doubt doubt = {0};
    uint64_t begin_ns = 0;
    enum pando_status status = PANDO_AGAIN;

    for (int restarts = 0; restarts < RESTARTS_MAX; restarts++) {
        status = descend_co(self, target, spot);
        if (status == PANDO_CORRUPT)
            status = dex_doubt_co(self, suspect_of(self->table, spot), spot->suspect_level, &doubt);
        if (status != PANDO_AGAIN)
            break;
        dex_count(&self->table->stats.waits);
        if (pool_fenced(self->table->pool)) {
            status = PANDO_FENCED;
            break;
        }
        if (restarts < RESTARTS_FREE) {
            rt_race_point();
            continue;
        }
        if (restarts == RESTARTS_FREE)
            begin_ns = rt_now_ns();
        else if (rt_now_ns() > begin_ns + patience_ns(self->table))
            break;
        frame_pause_co(&pause);
    }
    dex_doubt_end(&doubt);
    if (status != PANDO_AGAIN)
        return status;
    log_error("a page cannot be reached", log_u64("table", self->table->id),
              log_u64("level", target->level));
    return PANDO_TIMEOUT;
}
