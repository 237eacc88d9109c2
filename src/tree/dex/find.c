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
#include "tree/dex/tree.h"

enum {
    ADMIT_ONE_OF = 10, /* leaves that are kept: P = 0.1 */
    ADMIT_LENDING =
        10,            /* of these, one of so many if they are for gets that records serve better */
    RESTARTS_FREE = 4, /* before it begins to pause */
    RESTARTS_MAX = 100000,
    LEAF_LOOKS = 4, /* at a leaf that cannot be read */
};

static const uint64_t LOOK_PAUSE_NS = RT_NS_PER_MS;

/* A step down: from a parent at a version to the child that its word names. */
struct descent {
    struct dex *self;
    const struct dex_target *target;
    uint32_t parent;
    uint64_t parent_version;
    uint32_t at;   /* which child */
    uint64_t word; /* as it was read */
    uint8_t level; /* of the child */
    uint32_t child;
    uint64_t version;
    bool private, pushed_down;
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
    uint32_t former = frame_at(&table->cache.frames, index)->parent;
    struct frame *frame = frame_at(&table->cache.frames, former);
    if (!frame_try(frame))
        return false;
    dex_unswizzle(table, former, index);
    frame_give(frame);
    return true;
}

/* Makes a cooling page hot again: its parent names it by its frame. */
static enum pando_status rewarm(struct descent *step, uint32_t index)
{
    struct dex_table *table = step->self->table;
    struct frame *parent = frame_at(&table->cache.frames, step->parent);
    struct frame *frame = frame_at(&table->cache.frames, index);
    uint64_t version = frame_look(frame);
    uint8_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);

    if (frame_held(version) || (state != FRAME_COOLING && state != FRAME_HOT) ||
        !frame_take(parent, step->parent_version))
        return PANDO_AGAIN;
    if (!frame_take(frame, version)) {
        frame_give(parent);
        return PANDO_AGAIN;
    }
    state = atomic_load_explicit(&frame->state, memory_order_relaxed);
    bool same = frame->address == step->word && !frame->pinned;
    if (same && state == FRAME_HOT)
        same = frame->parent != step->parent && take_away(table, index);
    else
        same = same && state == FRAME_COOLING;
    if (same) {
        (void)cooling_remove(&table->cache.cooling, frame->address, index);
        dex_clear_orphan(table, index);
        page_set_child(&table->layout, frame_bytes(&table->cache.frames, step->parent), step->at,
                       frame_word(index));
        dex_check_child(table, step->parent, step->at, index);
        frame->parent = step->parent;
        atomic_store_explicit(&frame->state, FRAME_HOT, memory_order_relaxed);
        step->child = index;
        step->version = version;
    }
    frame_give(frame);
    frame_give(parent);
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
        atomic_load_explicit(&table->cache.fresh, memory_order_relaxed) < table->cache.frames.count)
        return true;
    return prng_next(&self->prng) % ADMIT_ONE_OF == 0;
}

static bool is_get(const struct descent *step)
{
    const struct dex_pushdown *push = step->target->push;
    return push != NULL && push->operation == DEX_PUSHDOWN_GET;
}

static bool admitted(struct descent *step)
{
    const struct dex_pushdown *push = step->target->push;
    if (step->level > 0 || step->target->keep || (push != NULL && push->keep))
        return true;
    return dex_admits(step->self) && (!is_get(step) || !dex_lends(step->self->table) ||
                                      prng_next(&step->self->prng) % ADMIT_LENDING == 0);
}

/* The page is in a frame that is BUSY and in the mapping: keeps it, or leaves it to this task. */
static enum pando_status admit(struct descent *step, uint32_t index)
{
    struct dex_table *table = step->self->table;
    struct frame *parent = frame_at(&table->cache.frames, step->parent);
    struct frame *frame = frame_at(&table->cache.frames, index);

    frame->dirty = false;
    if (!admitted(step)) {
        step->private = true;
        step->child = index;
        return PANDO_OK;
    }
    if (frame_take(parent, step->parent_version)) {
        page_set_child(&table->layout, frame_bytes(&table->cache.frames, step->parent), step->at,
                       frame_word(index));
        frame->parent = step->parent;
        atomic_store_explicit(&frame->state, FRAME_HOT, memory_order_relaxed);
        frame_give_changed(frame);
        step->version = frame_look(frame);
        step->child = index;
        frame_give(parent);
        return PANDO_OK;
    }
    /* The parent has changed: whoever comes next finds it in the mapping. */
    frame->parent = FRAME_NONE;
    atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
    frame_give_changed(frame);
    dex_evict_if_idle(step->self, cooling_add(&table->cache.cooling, step->word, index));
    return PANDO_AGAIN;
}

/* Whether all keys of the child are ours alone. */
static bool child_is_ours(const struct descent *step)
{
    const struct dex_table *table = step->self->table;
    const struct page_layout *layout = &table->layout;
    const uint8_t *parent = frame_bytes(&table->cache.frames, step->parent);
    const struct map_partition *part = step->target->push->part;
    const struct map *map = atomic_load_explicit(&table->owners.map, memory_order_acquire);
    uint8_t key[PAGE_KEY_ROOM];
    struct slice end, part_end;
    bool ours;

    /* Of another map than this operation began with: not now. */
    if (part < map->parts || part >= map->parts + map->count)
        return false;
    ours = slice_compare(page_key(layout, parent, step->at, key), part->low) >= 0;
    if (ours && map_partition_high(map, part, &part_end)) {
        bool ends = step->at + 1 < page_pairs(parent);
        if (ends)
            end = page_key(layout, parent, step->at + 1, key);
        else
            ends = page_high(parent, key, &end);
        ours = ends && slice_compare(end, part_end) <= 0;
    }
    return ours && frame_same(frame_at(&table->cache.frames, step->parent), step->parent_version);
}

/* In the frame that stands for the page. BUSY: it is to be loaded. */
static enum pando_status try_pushdown_co(struct descent *step, uint32_t index)
{
    struct dex *self = step->self;
    struct dex_table *table = self->table;

    if (step->target->push == NULL || !child_is_ours(step) ||
        !dex_pushdown_pays(self, step->target->push, step->word, step->level))
        return PANDO_BUSY;
    enum pando_status status =
        dex_pushdown_co(self, step->target->push, step->word, step->level, step->target->scratch);
    if (status == PANDO_BUSY)
        return status;
    /* UNKNOWN: this member is none any more, and sends nothing that could meet with the call. */
    frame_remove(&table->cache.frames, index);
    dex_frame_free(self, index);
    step->pushed_down = status == PANDO_OK;
    return status;
}

/* Keeps the parent from cooling while a child of it is in use that it does not name by its frame. */
static bool pin_parent(const struct descent *step)
{
    struct frame *parent = frame_at(&step->self->table->cache.frames, step->parent);
    if (!frame_take(parent, step->parent_version))
        return false;
    atomic_fetch_add(&parent->users, 1);
    frame_give(parent);
    return true;
}

static void unpin_parent(struct dex_table *table, uint32_t parent)
{
    dex_frame_unuse(table, frame_at(&table->cache.frames, parent));
}

static enum pando_status load_co(struct descent *step)
{
    struct dex *self = step->self;
    struct dex_table *table = self->table;
    uint16_t bank = pool_bank(step->word);
    uint32_t index;

    enum pando_status status = dex_frame_co(self, &index);
    if (status != PANDO_OK)
        return status;
    struct frame *frame = frame_at(&table->cache.frames, index);
    frame->address = step->word;
    atomic_store_explicit(&frame->state, FRAME_BUSY, memory_order_relaxed);
    if (!pin_parent(step)) {
        dex_frame_free(self, index);
        return PANDO_AGAIN;
    }
    frame->parent = step->parent;
    if (!frame_enter(&table->cache.frames, index)) {
        unpin_parent(table, step->parent);
        dex_frame_free(self, index);
        return PANDO_AGAIN;
    }
    dex_count(&table->stats.misses);
    status = try_pushdown_co(step, index);
    dex_lend_missed(table, bank, step->level, is_get(step), status != PANDO_BUSY);
    if (status != PANDO_BUSY) {
        unpin_parent(table, step->parent);
        return status;
    }
    frame->epoch = owners_epoch(&table->owners);
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint64_t begin_ns = table->on.offload ? rt_now_ns() : 0;
    status = scratch == NULL ? PANDO_NO_MEMORY : dex_read_co(self, step->word, scratch->page);
    if (table->on.offload)
        dex_note_read_time(table, bank, rt_now_ns() - begin_ns);
    /* Where a stale parent leads may be another owner's: that is never kept. */
    if (status == PANDO_OK && !dex_covers(scratch->page, step->level, step->target))
        status = PANDO_STALE;
    if (status == PANDO_OK) {
        page_copy(frame_bytes(&table->cache.frames, index), scratch->page,
                  table->layout.page_bytes);
        status = admit(step, index);
    } else {
        frame_remove(&table->cache.frames, index);
        dex_frame_free(self, index);
    }
    if (!step->private)
        unpin_parent(table, step->parent);
    if (scratch != NULL)
        dex_scratch_give(self, scratch);
    return status;
}

static enum pando_status child_co(struct descent *step)
{
    struct frames *frames = &step->self->table->cache.frames;

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
    struct frame *frame = frame_at(&table->cache.frames, index);
    enum pando_status status = PANDO_OK;

    uint32_t parent = frame->parent;
    if (frame->dirty)
        status = dex_write_back_co(self, index);
    if (status != PANDO_OK) {
        /* It stays, so that nobody reads what is older, and no memory node does either. */
        dex_set_orphan(table, index);
        atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
        frame_give_changed(frame);
        unpin_parent(table, parent);
        return status;
    }
    frame_remove(&table->cache.frames, index);
    dex_frame_free(self, index);
    unpin_parent(table, parent);
    return PANDO_OK;
}

/* ---- what is known to be damaged ------------------------------------------------------------- */

static bool known_damaged(struct dex_damage *damage, fabric_address page)
{
    if (!atomic_load_explicit(&damage->any, memory_order_relaxed))
        return false;
    uint64_t now_ns = rt_now_ns();
    bool known = false;
    rt_latch_lock(&damage->latch);
    for (unsigned i = 0; i < DEX_DAMAGED_PAGES; i++)
        known = known || (damage->known[i].page == page && now_ns < damage->known[i].until_ns);
    rt_latch_unlock(&damage->latch);
    return known;
}

static void note_damaged(struct dex_table *table, fabric_address page)
{
    struct dex_damage *damage = &table->damage;
    rt_latch_lock(&damage->latch);
    unsigned i = damage->next++ % DEX_DAMAGED_PAGES;
    damage->known[i].page = page;
    damage->known[i].until_ns = rt_now_ns() + pool_patience_ns(table->pool, false);
    rt_latch_unlock(&damage->latch);
    atomic_store(&damage->any, true);
}

/* Being sure of damage takes many READs with the parent's latch held, in which others want to pass: of a page of
 * which somebody was sure a moment ago one READ will do. */
static bool still_damaged_co(struct dex *self, const struct dex_target *target, uint64_t word)
{
    struct dex_table *table = self->table;
    if (frame_swizzled(word) || !known_damaged(&table->damage, word))
        return false;
    if (target->believe_damage)
        return true;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return false;
    bool damaged =
        pool_read_fast_co(self->base.session, word, scratch->page, table->layout.page_bytes) &&
        !page_check(&table->layout, word, scratch->page);
    dex_scratch_give(self, scratch);
    return damaged;
}

/* ---- all the way ----------------------------------------------------------------------------- */

/* From the root to the target's level once. AGAIN: begin again. */
static enum pando_status descend_co(struct dex *self, const struct dex_target *target,
                                    struct dex_spot *spot)
{
    struct dex_table *table = self->table;
    struct frames *frames = &table->cache.frames;

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
        struct descent step = {.self = self,
                               .target = target,
                               .parent = spot->frame,
                               .parent_version = spot->version,
                               .level = (uint8_t)(level - 1)};
        step.at = dex_child_index(table, bytes, target);
        step.word = page_child(&table->layout, bytes, step.at);
        if (!frame_same(frame_at(frames, spot->frame), spot->version))
            return PANDO_AGAIN;
        rt_race_point();
        if (still_damaged_co(self, target, step.word)) {
            spot->suspect = step.word;
            spot->suspect_level = step.level;
            return PANDO_CORRUPT;
        }
        enum pando_status status = child_co(&step);
        bool stale = status == PANDO_STALE;
        if (status != PANDO_OK && !stale)
            return status;
        if (step.pushed_down) {
            spot->pushed_down = true;
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
                status = dex_complete_split_co(self, spot, target);
            return status == PANDO_OK ? PANDO_AGAIN : status;
        }
        if (!step.private && dex_renew_co(self, step.child, step.version))
            return PANDO_AGAIN;
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
enum pando_status dex_suspect_co(struct dex *self, fabric_address page, uint8_t level,
                                 struct dex_suspect *suspect)
{
    if (suspect->page != page) {
        suspect->page = page;
        suspect->looks = 0;
        if (suspect->watch != NULL)
            suspect->watch->since_ns = 0;
    }
    bool known = known_damaged(&self->table->damage, page);
    bool sure = known || suspect->looks++ >= LEAF_LOOKS;
    if (level > 0 && !known) {
        if (suspect->watch == NULL)
            suspect->watch = calloc(1, sizeof(*suspect->watch));
        if (suspect->watch == NULL)
            return PANDO_NO_MEMORY;
        enum pando_status status = pool_all_beat_co(self->base.session, suspect->watch, &sure);
        if (status != PANDO_OK)
            return status;
    }
    if (sure) {
        if (!known)
            note_damaged(self->table, page);
        report_damage(self, page, level);
        return PANDO_CORRUPT;
    }
    rt_sleep_co(LOOK_PAUSE_NS); /* other members are to beat, or to be declared dead */
    return PANDO_AGAIN;
}

void dex_suspect_end(struct dex_suspect *suspect)
{
    free(suspect->watch);
    suspect->watch = NULL;
}

/* The address of what a spot suspects, which may be named by its frame. */
static fabric_address suspect_of(const struct dex_table *table, const struct dex_spot *spot)
{
    return frame_swizzled(spot->suspect)
               ? frame_at(&table->cache.frames, (uint32_t)spot->suspect)->address
               : spot->suspect;
}

/* Nobody has come to a page for as long as an operation may take. Mostly a page on the way was in use all that
 * time, by a task that waits for a memory node: for the log's, or one that a changed page goes to. A way that
 * leads nowhere and cannot be completed is damage that no check has found. */
static void report_unreached(struct dex_table *table, const struct dex_target *target,
                             const struct dex_spot *spot)
{
    uint64_t unsaid;
    if (!log_limit_allows(&table->unreached_log, rt_now_ns(), &unsaid))
        return;
    if (spot->suspect == 0)
        log_info(
            "an operation gave up: a page on its way is in use by others, who wait for the pool",
            log_u64("table", table->id), log_u64("level", target->level),
            log_u64("unsaid", unsaid));
    else
        log_error("a page cannot be reached: its parent leads elsewhere",
                  log_u64("table", table->id), log_u64("level", target->level),
                  log_hex("page", suspect_of(table, spot)), log_u64("unsaid", unsaid));
}

static uint64_t patience_ns(const struct dex_table *table)
{
    bool closing = atomic_load_explicit(&table->owners.closing, memory_order_relaxed);
    return pool_patience_ns(table->pool, closing);
}

bool dex_try_again_co(struct dex *self, struct dex_tries *tries)
{
    const struct dex_table *table = self->table;
    if (tries->count++ < RESTARTS_FREE) {
        rt_race_point();
        return true;
    }
    if (pool_fenced(table->pool) ||
        pool_past(table->pool, atomic_load(&table->owners.closing), &tries->deadline_ns))
        return false;
    frame_pause_co(&tries->pause);
    return true;
}

enum pando_status dex_find_co(struct dex *self, const struct dex_target *target,
                              struct dex_spot *spot)
{
    struct frame_pause pause = {0};
    struct dex_suspect suspect = {0};
    uint64_t begin_ns = 0;
    enum pando_status status = PANDO_AGAIN;

    for (int restarts = 0; restarts < RESTARTS_MAX; restarts++) {
        status = descend_co(self, target, spot);
        if (status == PANDO_CORRUPT)
            status =
                dex_suspect_co(self, suspect_of(self->table, spot), spot->suspect_level, &suspect);
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
    dex_suspect_end(&suspect);
    if (status != PANDO_AGAIN)
        return status;
    report_unreached(self->table, target, spot);
    return PANDO_TIMEOUT;
}
