/*
 * find.c - from a key to the page that has it, from the root down through frames, and through the
 * pool where there are none.
 *
 * On the way nothing is held: each page's version is looked at before it is read and again after the
 * next one's (optimistic lock coupling). What does not fit together is begun again. A page that is
 * not cached is loaded by the first who wants it; the others see that it is BUSY, and begin again
 * from the root.
 */
#include "base/assert.h"
#include "base/log.h"
#include "tree/dex/dex_int.h"

enum {
    ADMIT_ONE_OF = 10, /* leaves that are kept: P = 0.1 */
    RESTARTS_FREE = 4, /* before it begins to pause */
    RESTARTS_MAX = 100000,
};

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
    bool private;
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

/* Makes a cooling page hot again: its parent names it by its frame. */
static enum pando_status rewarm(struct step *step, uint32_t index)
{
    struct dex_table *table = step->self->table;
    struct frame *parent = frame_at(&table->frames, step->parent);
    struct frame *frame = frame_at(&table->frames, index);
    uint64_t version = frame_look(frame);

    if (frame_held(version) ||
        atomic_load_explicit(&frame->state, memory_order_relaxed) != FRAME_COOLING ||
        !frame_take(parent, step->parent_version))
        return PANDO_AGAIN;
    if (!frame_take(frame, version)) {
        frame_give(parent, false);
        return PANDO_AGAIN;
    }
    bool same = frame->address == step->word &&
                atomic_load_explicit(&frame->state, memory_order_relaxed) == FRAME_COOLING;
    if (same) {
        (void)cooling_remove(&table->cooling, frame->address, index);
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

static bool admitted(struct step *step)
{
    struct dex_switches *on = &step->self->table->on;
    if (step->level > 0 || step->target->keep)
        return true;
    if (!on->cache)
        return false;
    /* While there is room nobody has to go for it. */
    if (!on->admission || atomic_load_explicit(&step->self->table->fresh, memory_order_relaxed) <
                              step->self->table->frames.count)
        return true;
    return prng_next(&step->self->prng) % ADMIT_ONE_OF == 0;
}

/* The page is in a frame that is BUSY and in the mapping: keeps it, or leaves it to this task. */
static enum pando_status admit(struct step *step, uint32_t index)
{
    struct dex_table *table = step->self->table;
    struct frame *parent = frame_at(&table->frames, step->parent);
    struct frame *frame = frame_at(&table->frames, index);

    frame->dirty = false;
    frame->parent = FRAME_NONE;
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
    atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
    frame_give(frame, true);
    dex_let_go(step->self, cooling_add(&table->cooling, step->word, index));
    return PANDO_AGAIN;
}

static enum pando_status load_co(struct step *step)
{
    struct dex *self = step->self;
    struct dex_table *table = self->table;
    uint32_t index;

    enum pando_status status = dex_frame_co(self, &index);
    if (status != PANDO_OK)
        return status;
    struct frame *frame = frame_at(&table->frames, index);
    frame->address = step->word;
    atomic_store_explicit(&frame->state, FRAME_BUSY, memory_order_relaxed);
    if (!frame_same(frame_at(&table->frames, step->parent), step->parent_version) ||
        !frame_enter(&table->frames, index)) {
        dex_frame_free(self, index);
        return PANDO_AGAIN;
    }
    dex_count(&table->stats.misses);
    frame->epoch = dex_epoch(table);
    struct dex_scratch *scratch = dex_scratch_take(self);
    status = dex_read_co(self, step->word, scratch->page);
    if (status == PANDO_OK) {
        page_copy(frame_bytes(&table->frames, index), scratch->page, table->layout.page_bytes);
        status = admit(step, index);
    } else {
        frame_remove(&table->frames, index);
        dex_frame_free(self, index);
    }
    dex_scratch_give(self, scratch);
    return status;
}

static enum pando_status child_co(struct step *step)
{
    struct frames *frames = &step->self->table->frames;

    if (frame_swizzled(step->word)) {
        step->child = (uint32_t)step->word;
        frame_prefetch(frames, step->child);
        step->version = frame_look(frame_at(frames, step->child));
        return frame_held(step->version) ||
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

    if (frame->dirty)
        status = dex_write_back_co(self, index);
    if (status != PANDO_OK) {
        /* It stays, so that nobody reads what is older: with us it ends. */
        atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
        frame_give(frame, true);
        return status;
    }
    frame_remove(&table->frames, index);
    dex_frame_free(self, index);
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
            return PANDO_OK;
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
        if (!stale) {
            bool right = dex_covers(frame_bytes(frames, step.child), step.level, target);
            if (!step.private && !frame_same(frame_at(frames, step.child), step.version))
                return PANDO_AGAIN;
            stale = !right;
        }
        if (stale) {
            status = step.private ? dex_private_end_co(self, step.child) : PANDO_OK;
            if (status == PANDO_OK)
                status = dex_mend_co(self, spot->frame, target);
            return status == PANDO_OK ? PANDO_AGAIN : status;
        }
        spot->parent = spot->frame;
        spot->parent_version = spot->version;
        spot->frame = step.child;
        spot->version = step.version;
        spot->private = step.private;
    }
}

enum pando_status dex_find_co(struct dex *self, const struct dex_target *target,
                              struct dex_spot *spot)
{
    struct frame_pause pause = {0};

    dex_count_searches(self, 1);
    for (int restarts = 0; restarts < RESTARTS_MAX; restarts++) {
        enum pando_status status = descend_co(self, target, spot);
        if (status != PANDO_AGAIN)
            return status;
        dex_count(&self->table->stats.waits);
        if (pool_fenced(self->table->pool))
            return PANDO_FENCED;
        if (restarts >= RESTARTS_FREE)
            frame_pause_co(&pause);
        else
            rt_race_point();
    }
    log_error("a page cannot be reached", log_u64("table", self->table->id),
              log_u64("level", target->level));
    return PANDO_TIMEOUT;
}
