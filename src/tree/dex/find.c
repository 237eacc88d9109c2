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

/* One level down: from a parent at a version to the child that its word names. */
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
static struct step rewarm(struct descent *descent, uint32_t index)
{
    struct dex_table *table = descent->self->table;
    struct frame *parent = frame_at(&table->cache.frames, descent->parent);
    struct frame *frame = frame_at(&table->cache.frames, index);
    uint64_t version = frame_look(frame);
    uint8_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);

    if (frame_held(version) || (state != FRAME_COOLING && state != FRAME_HOT) ||
        !frame_take(parent, descent->parent_version))
        return step_to(STEP_RESTART);
    if (!frame_take(frame, version)) {
        frame_give(parent);
        return step_to(STEP_RESTART);
    }
    state = atomic_load_explicit(&frame->state, memory_order_relaxed);
    bool same = frame->address == descent->word && !frame->pinned;
    if (same && state == FRAME_HOT)
        same = frame->parent != descent->parent && take_away(table, index);
    else
        same = same && state == FRAME_COOLING;
    if (same) {
        (void)cooling_remove(&table->cache.cooling, frame->address, index);
        dex_clear_orphan(table, index);
        page_set_child(&table->layout, frame_bytes(&table->cache.frames, descent->parent),
                       descent->at, frame_word(index));
        dex_check_child(table, descent->parent, descent->at, index);
        frame->parent = descent->parent;
        atomic_store_explicit(&frame->state, FRAME_HOT, memory_order_relaxed);
        descent->child = index;
        descent->version = version;
    }
    frame_give(frame);
    frame_give(parent);
    return same ? step_of(PANDO_OK) : step_to(STEP_RESTART);
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

static bool is_get(const struct descent *descent)
{
    const struct dex_pushdown *push = descent->target->push;
    return push != NULL && push->operation == DEX_PUSHDOWN_GET;
}

static bool admitted(struct descent *descent)
{
    const struct dex_pushdown *push = descent->target->push;
    if (descent->level > 0 || descent->target->keep || (push != NULL && push->keep))
        return true;
    return dex_admits(descent->self) && (!is_get(descent) || !dex_lends(descent->self->table) ||
                                         prng_next(&descent->self->prng) % ADMIT_LENDING == 0);
}

/* The page is in a frame that is BUSY and in the mapping: keeps it, or leaves it to this task. */
static struct step admit(struct descent *descent, uint32_t index)
{
    struct dex_table *table = descent->self->table;
    struct frame *parent = frame_at(&table->cache.frames, descent->parent);
    struct frame *frame = frame_at(&table->cache.frames, index);

    frame->dirty = false;
    if (!admitted(descent)) {
        descent->private = true;
        descent->child = index;
        return step_of(PANDO_OK);
    }
    if (frame_take(parent, descent->parent_version)) {
        page_set_child(&table->layout, frame_bytes(&table->cache.frames, descent->parent),
                       descent->at, frame_word(index));
        frame->parent = descent->parent;
        atomic_store_explicit(&frame->state, FRAME_HOT, memory_order_relaxed);
        frame_give_changed(frame);
        descent->version = frame_look(frame);
        descent->child = index;
        frame_give(parent);
        return step_of(PANDO_OK);
    }
    /* The parent has changed: whoever comes next finds it in the mapping. */
    frame->parent = FRAME_NONE;
    atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
    frame_give_changed(frame);
    dex_evict_if_idle(descent->self, cooling_add(&table->cache.cooling, descent->word, index));
    return step_to(STEP_RESTART);
}

/* Whether all keys of the child are ours alone. */
static bool child_is_ours(const struct descent *descent)
{
    const struct dex_table *table = descent->self->table;
    const struct page_layout *layout = &table->layout;
    const uint8_t *parent = frame_bytes(&table->cache.frames, descent->parent);
    const struct map_partition *part = descent->target->push->part;
    const struct map *map = atomic_load_explicit(&table->owners.map, memory_order_acquire);
    uint8_t key[PAGE_KEY_ROOM];
    struct slice end, part_end;
    bool ours;

    /* Of another map than this operation began with: not now. */
    if (part < map->parts || part >= map->parts + map->count)
        return false;
    ours = slice_compare(page_key(layout, parent, descent->at, key), part->low) >= 0;
    if (ours && map_partition_high(map, part, &part_end)) {
        bool ends = descent->at + 1 < page_pairs(parent);
        if (ends)
            end = page_key(layout, parent, descent->at + 1, key);
        else
            ends = page_high(parent, key, &end);
        ours = ends && slice_compare(end, part_end) <= 0;
    }
    return ours &&
           frame_same(frame_at(&table->cache.frames, descent->parent), descent->parent_version);
}

/* In the frame that stands for the page. */
static struct step try_pushdown_co(struct descent *descent, uint32_t index)
{
    struct dex *self = descent->self;
    struct dex_table *table = self->table;

    if (descent->target->push == NULL || !child_is_ours(descent) ||
        !dex_pushdown_pays(self, descent->target->push, descent->word, descent->level))
        return step_to(STEP_LOAD);
    struct step step = dex_pushdown_co(self, descent->target->push, descent->word, descent->level,
                                       descent->target->scratch);
    if (step.next == STEP_LOAD)
        return step;
    /* UNKNOWN: this member is none any more, and sends nothing that could meet with the call. */
    frame_remove(&table->cache.frames, index);
    dex_frame_free(self, index);
    descent->pushed_down = step_ok(step);
    return step;
}

/* Keeps the parent from cooling while a child of it is in use that it does not name by its frame. */
static bool pin_parent(const struct descent *descent)
{
    struct frame *parent = frame_at(&descent->self->table->cache.frames, descent->parent);
    if (!frame_take(parent, descent->parent_version))
        return false;
    atomic_fetch_add(&parent->users, 1);
    frame_give(parent);
    return true;
}

static void unpin_parent(struct dex_table *table, uint32_t parent)
{
    dex_frame_unuse(table, frame_at(&table->cache.frames, parent));
}

static struct step load_co(struct descent *descent)
{
    struct dex *self = descent->self;
    struct dex_table *table = self->table;
    uint16_t bank = pool_bank(descent->word);
    uint32_t index;

    enum pando_status status = dex_frame_co(self, &index);
    if (status != PANDO_OK)
        return step_of(status);
    struct frame *frame = frame_at(&table->cache.frames, index);
    frame->address = descent->word;
    atomic_store_explicit(&frame->state, FRAME_BUSY, memory_order_relaxed);
    if (!pin_parent(descent)) {
        dex_frame_free(self, index);
        return step_to(STEP_RESTART);
    }
    frame->parent = descent->parent;
    if (!frame_enter(&table->cache.frames, index)) {
        unpin_parent(table, descent->parent);
        dex_frame_free(self, index);
        return step_to(STEP_RESTART);
    }
    dex_count(&table->stats.misses);
    struct step step = try_pushdown_co(descent, index);
    dex_lend_missed(table, bank, descent->level, is_get(descent), step.next != STEP_LOAD);
    if (step.next != STEP_LOAD) {
        unpin_parent(table, descent->parent);
        return step;
    }
    frame->epoch = owners_epoch(&table->owners);
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint64_t begin_ns = table->on.offload ? rt_now_ns() : 0;
    status = scratch == NULL ? PANDO_NO_MEMORY : dex_read_co(self, descent->word, scratch->page);
    if (table->on.offload)
        dex_note_read_time(table, bank, rt_now_ns() - begin_ns);
    step = status == PANDO_STALE ? step_to(STEP_MISLED) : step_of(status);
    /* Where a stale parent leads may be another owner's: that is never kept. */
    if (status == PANDO_OK && !dex_covers(scratch->page, descent->level, descent->target))
        step = step_to(STEP_MISLED);
    if (step_ok(step)) {
        page_copy(frame_bytes(&table->cache.frames, index), scratch->page,
                  table->layout.page_bytes);
        step = admit(descent, index);
    } else {
        frame_remove(&table->cache.frames, index);
        dex_frame_free(self, index);
    }
    if (!descent->private)
        unpin_parent(table, descent->parent);
    if (scratch != NULL)
        dex_scratch_give(self, scratch);
    return step;
}

static struct step child_co(struct descent *descent)
{
    struct frames *frames = &descent->self->table->cache.frames;

    if (frame_swizzled(descent->word)) {
        descent->child = (uint32_t)descent->word;
        frame_prefetch(frames, descent->child);
        struct frame *child = frame_at(frames, descent->child);
        descent->version = frame_look(child);
        /* One that has begun to cool since the word was read is not to be gone through: nothing would
         * keep it. (Beginning to cool changes the version, so that it is still hot while that stays.) */
        return frame_held(descent->version) ||
                       atomic_load_explicit(&child->state, memory_order_relaxed) != FRAME_HOT ||
                       !frame_same(frame_at(frames, descent->parent), descent->parent_version)
                   ? step_to(STEP_RESTART)
                   : step_of(PANDO_OK);
    }
    uint32_t index = frame_find(frames, descent->word);
    return index != FRAME_NONE ? rewarm(descent, index) : load_co(descent);
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

static void note_damaged(struct dex_table *table, fabric_address page, uint8_t level)
{
    struct dex_damage *damage = &table->damage;
    rt_latch_lock(&damage->latch);
    unsigned i = damage->next++ % DEX_DAMAGED_PAGES;
    damage->known[i].page = page;
    damage->known[i].level = level;
    damage->known[i].until_ns = rt_now_ns() + pool_patience_ns(table->pool, false);
    rt_latch_unlock(&damage->latch);
    atomic_store(&damage->any, true);
}

void dex_damage_forget_leaves(struct dex_table *table)
{
    struct dex_damage *damage = &table->damage;
    rt_latch_lock(&damage->latch);
    for (unsigned i = 0; i < DEX_DAMAGED_PAGES; i++) {
        if (damage->known[i].level == 0)
            damage->known[i].until_ns = 0;
    }
    rt_latch_unlock(&damage->latch);
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

/* The child is not what the spot's frame says: makes that right. */
static struct step misled_co(const struct descent *descent, struct dex_spot *spot)
{
    struct dex *self = descent->self;
    enum pando_status status =
        descent->private ? dex_private_end_co(self, descent->child) : PANDO_OK;
    spot->suspect = descent->word;
    spot->suspect_level = descent->level;
    return status == PANDO_OK ? dex_complete_split_co(self, spot, descent->target)
                              : step_of(status);
}

/* From the root to the target's level once. */
static struct step descend_co(struct dex *self, const struct dex_target *target,
                              struct dex_spot *spot)
{
    struct dex_table *table = self->table;
    struct frames *frames = &table->cache.frames;

    *spot = (struct dex_spot){.frame = table->root_frame, .parent = FRAME_NONE};
    spot->version = frame_look(frame_at(frames, spot->frame));
    if (frame_held(spot->version))
        return step_to(STEP_RESTART);
    for (;;) {
        const uint8_t *bytes = frame_bytes(frames, spot->frame);
        uint8_t level = page_level(bytes);
        if (level == target->level || spot->private)
            return step_of(spot->parent != FRAME_NONE || page_no_high(bytes) ||
                                   !frame_same(frame_at(frames, spot->frame), spot->version)
                               ? PANDO_OK
                               : PANDO_CORRUPT); /* the root has all keys */
        if (level < target->level)
            return frame_same(frame_at(frames, spot->frame), spot->version)
                       ? step_of(PANDO_NOT_FOUND)
                       : step_to(STEP_RESTART);
        struct descent descent = {.self = self,
                                  .target = target,
                                  .parent = spot->frame,
                                  .parent_version = spot->version,
                                  .level = (uint8_t)(level - 1)};
        descent.at = dex_child_index(table, bytes, target);
        descent.word = page_child(&table->layout, bytes, descent.at);
        if (!frame_same(frame_at(frames, spot->frame), spot->version))
            return step_to(STEP_RESTART);
        rt_race_point();
        if (still_damaged_co(self, target, descent.word)) {
            spot->suspect = descent.word;
            spot->suspect_level = descent.level;
            return step_of(PANDO_CORRUPT);
        }
        struct step step = child_co(&descent);
        if (step.next == STEP_MISLED)
            return misled_co(&descent, spot);
        spot->pushed_down = descent.pushed_down;
        if (!step_ok(step) || descent.pushed_down)
            return step;
        bool right = dex_covers(frame_bytes(frames, descent.child), descent.level, target);
        if (!descent.private && !frame_same(frame_at(frames, descent.child), descent.version))
            return step_to(STEP_RESTART);
        if (!right)
            return misled_co(&descent, spot);
        if (!descent.private && dex_renew_co(self, descent.child, descent.version))
            return step_to(STEP_RESTART);
        spot->parent = spot->frame;
        spot->parent_version = spot->version;
        spot->frame = descent.child;
        spot->version = descent.version;
        spot->private = descent.private;
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
struct step dex_suspect_co(struct dex *self, fabric_address page, uint8_t level,
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
            return step_of(PANDO_NO_MEMORY);
        enum pando_status status = pool_all_beat_co(self->base.session, suspect->watch, &sure);
        if (status != PANDO_OK)
            return step_of(status);
    }
    if (sure) {
        if (!known)
            note_damaged(self->table, page, level);
        report_damage(self, page, level);
        return step_of(PANDO_CORRUPT);
    }
    rt_sleep_co(LOOK_PAUSE_NS); /* other members are to beat, or to be declared dead */
    return step_to(STEP_RESTART);
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
    struct step step = step_to(STEP_RESTART);

    for (int restarts = 0; restarts < RESTARTS_MAX; restarts++) {
        step = descend_co(self, target, spot);
        if (step.status == PANDO_CORRUPT)
            step =
                dex_suspect_co(self, suspect_of(self->table, spot), spot->suspect_level, &suspect);
        if (step.next == STEP_DONE)
            break;
        dex_count(&self->table->stats.waits);
        if (pool_fenced(self->table->pool)) {
            step = step_of(PANDO_FENCED);
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
    if (step.next == STEP_DONE)
        return step.status;
    report_unreached(self->table, target, spot);
    return PANDO_TIMEOUT;
}
