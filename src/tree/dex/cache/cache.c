/*
 * cache.c - which pages are kept: free frames, cooling and eviction.
 *
 * A thread that has no free frame left samples two frames. Each begins to cool: what was changed is
 * written back, its parent names it by address again, and it joins a queue of the cooling map, which
 * may push out the oldest of that queue. A sampled inner page passes this on to a child that is
 * cached, down to a page that has none (path-aware), so that what is cached is always whole paths
 * from the root. Whoever comes to a cooling page meanwhile makes it hot again.
 */
#include "base/assert.h"
#include "base/log.h"
#include "tree/dex/dex_int.h"

enum {
    SAMPLES = 2,
    SAMPLE_TRIES = 32, /* for one that is in use */
    TRIES = 16,        /* before waiting, or going on without */
    DEPTH_MAX = 32,
};

/* Longer than any READ takes, also on a machine that is busy with other things: those who have the frames are waiting
 * for their READs, or for a processor. */
static const uint64_t WAIT_NS = 10 * RT_NS_PER_S;

/* ---- free frames ----------------------------------------------------------------------------- */

/* What a thread may have of them: a small cache must not end up in the sets of idle threads. */
static uint32_t free_most(const struct dex_table *table)
{
    uint32_t share = table->cache.frames.count / 64;
    return share < FREE_FRAMES_MAX ? share : FREE_FRAMES_MAX;
}

static uint32_t listed(const struct dex_table *table)
{
    return atomic_load_explicit(&table->cache.free_count, memory_order_relaxed);
}

/* Under the latch: no need of an atomic addition. */
static void count_listed(struct dex_table *table, int by)
{
    atomic_store_explicit(&table->cache.free_count, listed(table) + (uint32_t)by,
                          memory_order_relaxed);
}

static void list_push(struct dex_table *table, uint32_t index)
{
    frame_at(&table->cache.frames, index)->next = table->cache.free_list;
    table->cache.free_list = index;
    count_listed(table, 1);
}

static uint32_t list_pop(struct dex_table *table)
{
    uint32_t index = table->cache.free_list;
    table->cache.free_list = frame_at(&table->cache.frames, index)->next;
    count_listed(table, -1);
    return index;
}

/* Frames in nobody's hands: returned ones, then some that were never used. When the cache is full there are none,
 * and each miss asks: it sees so without the latch. One that comes just then is found by the next. */
static void free_refill(struct dex *self)
{
    struct dex_table *table = self->table;
    uint32_t most = free_most(table) / 2 + 1;

    if (listed(table) == 0 && atomic_load_explicit(&table->cache.fresh, memory_order_relaxed) >=
                                  table->cache.frames.count)
        return;
    rt_latch_lock(&table->cache.free_latch);
    while (listed(table) > 0 && self->free_count < most)
        self->free_frames[self->free_count++] = list_pop(table);
    while (self->free_count < most && atomic_load(&table->cache.fresh) < table->cache.frames.count)
        self->free_frames[self->free_count++] = atomic_fetch_add(&table->cache.fresh, 1);
    rt_latch_unlock(&table->cache.free_latch);
}

static void free_push(struct dex *self, uint32_t index)
{
    struct dex_table *table = self->table;
    if (self->free_count < free_most(table)) {
        self->free_frames[self->free_count++] = index;
        return;
    }
    rt_latch_lock(&table->cache.free_latch);
    list_push(table, index);
    rt_latch_unlock(&table->cache.free_latch);
}

void dex_frames_leave(struct dex *self)
{
    struct dex_table *table = self->table;
    rt_latch_lock(&table->cache.free_latch);
    while (self->free_count > 0)
        list_push(table, self->free_frames[--self->free_count]);
    rt_latch_unlock(&table->cache.free_latch);
}

bool dex_frames_whole(const struct dex_table *table)
{
    const struct frames *frames = &table->cache.frames;
    uint32_t fresh = atomic_load(&table->cache.fresh), found = 0, free = 0;
    bool sound = true;

    /* One that was listed twice would make the list endless. */
    for (uint32_t i = table->cache.free_list; i != FRAME_NONE && found <= listed(table); found++) {
        sound = sound && atomic_load(&frame_at(frames, i)->state) == FRAME_FREE;
        i = frame_at(frames, i)->next;
    }
    for (uint32_t i = 0; i < fresh; i++)
        free += atomic_load(&frame_at(frames, i)->state) == FRAME_FREE;
    return sound && found == listed(table) &&
           free == found + pair_cache_lent(&table->cache.records);
}

void dex_clear_orphan(struct dex_table *table, uint32_t index)
{
    struct frame *frame = frame_at(&table->cache.frames, index);
    if (frame->orphan)
        atomic_fetch_sub(&table->cache.orphans, 1);
    frame->orphan = false;
}

void dex_set_orphan(struct dex_table *table, uint32_t index)
{
    struct frame *frame = frame_at(&table->cache.frames, index);
    if (!frame->orphan)
        atomic_fetch_add(&table->cache.orphans, 1);
    frame->orphan = true;
}

void dex_check_child(struct dex_table *table, uint32_t parent, uint32_t at, uint32_t index)
{
    const struct page_layout *layout = &table->layout;
    const uint8_t *above = frame_bytes(&table->cache.frames, parent);
    const uint8_t *bytes = frame_bytes(&table->cache.frames, index);
    uint8_t ours[PAGE_KEY_ROOM], theirs[PAGE_KEY_ROOM];
    struct slice end = {0}, limit = {0};
    bool bounded = true;

    if (page_level(bytes) == 0 || page_dead(bytes))
        return;
    if (at + 1 < page_pairs(above))
        limit = page_key(layout, above, at + 1, theirs);
    else
        bounded = page_high(above, theirs, &limit);
    bool wider = bounded && (!page_high(bytes, ours, &end) || slice_compare(end, limit) > 0);
    if (!wider)
        wider = slice_compare(page_low(bytes, ours), page_key(layout, above, at, theirs)) < 0;
    if (wider)
        dex_set_orphan(table, index);
}

void dex_frame_free(struct dex *self, uint32_t index)
{
    struct frame *frame = frame_at(&self->table->cache.frames, index);
    dex_clear_orphan(self->table, index);
    frame->address = 0;
    frame->dirty = false;
    frame->first = 0;
    frame->grows = 0;
    frame->split_at = 0;
    atomic_store_explicit(&frame->end, 0, memory_order_relaxed);
    atomic_store_explicit(&frame->state, FRAME_FREE, memory_order_relaxed);
    frame_give_changed(frame);
    free_push(self, index);
}

void dex_evict(struct dex *self, uint32_t index)
{
    pando_assert(!frame_at(&self->table->cache.frames, index)->dirty);
    frame_remove(&self->table->cache.frames, index);
    dex_frame_free(self, index);
}

/* ---- cooling --------------------------------------------------------------------------------- */

void dex_unswizzle(struct dex_table *table, uint32_t parent, uint32_t index)
{
    struct frame *frame = frame_at(&table->cache.frames, index);
    uint8_t *bytes = frame_bytes(&table->cache.frames, parent);
    uint8_t low[PAGE_KEY_ROOM];
    uint32_t at = page_child_index(&table->layout, bytes,
                                   page_low(frame_bytes(&table->cache.frames, index), low));
    /* A page that was replaced by what its block is now may begin elsewhere than its parent says. */
    for (uint32_t i = 0;
         i < page_pairs(bytes) && page_child(&table->layout, bytes, at) != frame_word(index); i++)
        at = i;
    pando_assert(page_child(&table->layout, bytes, at) == frame_word(index));
    page_set_child(&table->layout, bytes, at, frame->address);
    frame->parent = FRAME_NONE;
    atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
}

/* A cached child of an inner page whose latch is held, from a random place on; FRAME_NONE: none. */
static uint32_t cached_child(struct dex *self, uint32_t index)
{
    const struct page_layout *layout = &self->table->layout;
    const uint8_t *bytes = frame_bytes(&self->table->cache.frames, index);
    uint32_t pairs = page_pairs(bytes);
    uint32_t from = pairs > 0 ? (uint32_t)(prng_next(&self->prng) % pairs) : 0;

    if (page_level(bytes) == 0)
        return FRAME_NONE;
    for (uint32_t i = 0; i < pairs; i++) {
        uint64_t word = page_child(layout, bytes, (from + i) % pairs);
        if (frame_swizzled(word))
            return (uint32_t)word;
    }
    return FRAME_NONE;
}

/* Latches the page at the end of a path that begins with this frame; FRAME_NONE: somebody is in the
 * way, or nothing there can cool. */
static uint32_t coolest(struct dex *self, uint32_t index)
{
    struct frames *frames = &self->table->cache.frames;

    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        struct frame *frame = frame_at(frames, index);
        if (atomic_load_explicit(&frame->state, memory_order_relaxed) != FRAME_HOT ||
            !frame_try(frame))
            return FRAME_NONE;
        bool hot = atomic_load_explicit(&frame->state, memory_order_relaxed) == FRAME_HOT;
        uint32_t child = hot ? cached_child(self, index) : FRAME_NONE;
        /* With a child that is in use but not named by its frame, it stays: a memory node that is asked
         * to go on from a page may come to every page below it. */
        if (hot && child == FRAME_NONE && !frame->pinned && atomic_load(&frame->users) == 0)
            return index;
        frame_give(frame);
        if (child == FRAME_NONE || !self->table->on.path_aware)
            return FRAME_NONE;
        index = child;
    }
    return FRAME_NONE;
}

/* What a queue has pushed out goes, unless somebody is at it. */
void dex_evict_if_idle(struct dex *self, uint32_t index)
{
    struct frame *frame;
    if (index == FRAME_NONE)
        return;
    frame = frame_at(&self->table->cache.frames, index);
    if (!frame_try(frame))
        return;
    if (atomic_load_explicit(&frame->state, memory_order_relaxed) == FRAME_COOLING &&
        !frame->dirty && cached_child(self, index) == FRAME_NONE)
        dex_evict(self, index);
    else
        frame_give(frame);
}

static void cool_co(struct dex *self, uint32_t sample);

/* A frame that is cooling but in no queue (its place was taken while somebody looked at it) goes. */
static void collect_stray_co(struct dex *self, uint32_t index)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);
    if (atomic_load_explicit(&frame->state, memory_order_relaxed) != FRAME_COOLING ||
        !frame_try(frame))
        return;
    if (atomic_load_explicit(&frame->state, memory_order_relaxed) != FRAME_COOLING) {
        frame_give(frame);
        return;
    }
    uint32_t child = cached_child(self, index);
    if (child != FRAME_NONE) {
        frame_give(frame);
        cool_co(self, child); /* what is below it first */
        return;
    }
    if (cooling_remove(&table->cache.cooling, frame->address, index)) {
        /* It was no stray: back into its queue, as the youngest. */
        uint32_t out = cooling_add(&table->cache.cooling, frame->address, index);
        frame_give(frame);
        dex_evict_if_idle(self, out);
        return;
    }
    if (frame->dirty && dex_write_back_co(self, index) != PANDO_OK)
        frame_give(frame);
    else
        dex_evict(self, index);
}

static void cool_co(struct dex *self, uint32_t sample)
{
    struct dex_table *table = self->table;
    uint32_t index = coolest(self, sample);

    if (index == FRAME_NONE) {
        collect_stray_co(self, sample);
        return;
    }
    struct frame *frame = frame_at(&table->cache.frames, index);
    if (frame->dirty && dex_write_back_co(self, index) != PANDO_OK) {
        frame_give(frame);
        return;
    }
    struct frame *parent = frame_at(&table->cache.frames, frame->parent);
    if (!frame_try(parent)) {
        frame_give(frame);
        return;
    }
    dex_unswizzle(table, frame->parent, index);
    frame_give(parent);
    fabric_address address = frame->address;
    /* As changed: whoever was about to write to it has to make it hot again first. */
    frame_give_changed(frame);
    dex_evict_if_idle(self, cooling_add(&table->cache.cooling, address, index));
}

/* Most may be lent, and have nothing to cool. */
static uint32_t sample(struct dex *self)
{
    const struct frames *frames = &self->table->cache.frames;
    uint32_t index = 0;
    for (int tries = 0; tries < SAMPLE_TRIES; tries++) {
        index = (uint32_t)(prng_next(&self->prng) % frames->count);
        if (atomic_load_explicit(&frame_at(frames, index)->state, memory_order_relaxed) !=
            FRAME_FREE)
            break;
    }
    return index;
}

/* Makes one free if none is. */
static bool reclaim_frame_co(struct dex *self, uint32_t *out)
{
    struct dex_table *table = self->table;

    if (self->free_count == 0)
        free_refill(self);
    uint32_t back = dex_lend_back(self);
    if (back != FRAME_NONE)
        free_push(self, back);
    for (int i = 0; i < SAMPLES && self->free_count == 0; i++)
        cool_co(self, sample(self));
    if (self->free_count == 0)
        dex_evict_if_idle(self, cooling_oldest(&table->cache.cooling, prng_next(&self->prng)));
    if (self->free_count == 0)
        free_refill(self);
    if (self->free_count == 0)
        return false;
    *out = self->free_frames[--self->free_count];
    frame_latch_co(&table->cache.frames,
                   frame_at(&table->cache.frames, *out)); /* a sampler may just be looking at it */
    return true;
}

bool dex_frame_try_co(struct dex *self, uint32_t *out)
{
    for (int tries = 0; tries < TRIES; tries++) {
        if (reclaim_frame_co(self, out))
            return true;
    }
    return false;
}

enum pando_status dex_frame_co(struct dex *self, uint32_t *out)
{
    struct dex_table *table = self->table;
    struct frame_pause pause = {0};
    uint64_t deadline_ns = 0;

    while (!dex_frame_try_co(self, out)) {
        deadline_ns = deadline_ns == 0 ? rt_now_ns() + WAIT_NS : deadline_ns;
        if (pool_fenced(table->pool))
            return PANDO_FENCED;
        if (pool_past(table->pool, atomic_load(&table->owners.closing), &deadline_ns)) {
            log_error("no frame of the cache becomes free", log_u64("table", table->id),
                      log_u64("frames", table->cache.frames.count));
            return PANDO_TIMEOUT;
        }
        /* One is free as soon as any task lets go of any latch: none of them tells. */
        frame_pause_co(&pause);
    }
    return PANDO_OK;
}

/* ---- new contents for an inner page ---------------------------------------------------------- */

/* Whether a page names this address, and where. */
static bool names_child(const struct page_layout *layout, const uint8_t *bytes,
                        fabric_address address, uint32_t *at)
{
    uint32_t pairs = page_pairs(bytes);
    for (*at = 0; *at < pairs; (*at)++) {
        if (page_child(layout, bytes, *at) == address)
            return true;
    }
    return false;
}

/* Without somebody who waits this is two atomic operations. Both sides go through the same two words, in opposite
 * order and sequentially consistent: one of them sees the other. */
void dex_frame_unuse(struct dex_table *table, struct frame *parent)
{
    if (atomic_fetch_sub(&parent->users, 1) == 1 && atomic_load(&table->cache.relinking) > 0)
        rt_waitq_wake_all(&table->cache.unused);
}

static bool used(const void *frame)
{
    return atomic_load(&((const struct frame *)frame)->users) > 0;
}

/* Tasks with a child that has no parent's word yet: they end by themselves, and no more come. */
static void await_unused_co(struct dex_table *table, const struct frame *frame)
{
    atomic_fetch_add(&table->cache.relinking, 1);
    (void)rt_waitq_while_co(&table->cache.unused, used, frame, RT_NEVER);
    atomic_fetch_sub(&table->cache.relinking, 1);
}

void dex_relink_children_co(struct dex *self, uint32_t index, const uint8_t *bytes)
{
    struct dex_table *table = self->table;
    const struct page_layout *layout = &table->layout;
    uint8_t *page = frame_bytes(&table->cache.frames, index);
    uint32_t children[PAGE_PAIRS_MAX], count = 0;

    if (used(frame_at(&table->cache.frames, index)))
        await_unused_co(table, frame_at(&table->cache.frames, index));
    if (page_level(page) > 0) {
        for (uint32_t i = 0; i < page_pairs(page); i++) {
            uint64_t word = page_child(layout, page, i);
            if (frame_swizzled(word))
                children[count++] = (uint32_t)word;
        }
    }
    /* Their latches are held while their parent changes: a child never waits for its parent's. */
    for (uint32_t i = 0; i < count; i++)
        frame_latch_co(&table->cache.frames, frame_at(&table->cache.frames, children[i]));
    page_copy(page, bytes, layout->page_bytes);
    for (uint32_t i = 0; i < count; i++) {
        struct frame *child = frame_at(&table->cache.frames, children[i]);
        uint32_t at;
        bool stays = page_level(page) > 0 && names_child(layout, page, child->address, &at);
        if (stays) {
            page_set_child(layout, page, at, frame_word(children[i]));
            dex_check_child(table, index, at, children[i]);
            frame_give(child);
            continue;
        }
        child->parent = FRAME_NONE;
        if (child->dirty) {
            /* Only leaves are; those of a page that was split here are written with it. */
            enum pando_status status = dex_write_back_co(self, children[i]);
            (void)status;
        }
        atomic_store_explicit(&child->state, FRAME_COOLING, memory_order_relaxed);
        fabric_address address = child->address;
        bool clean = !child->dirty && cached_child(self, children[i]) == FRAME_NONE;
        if (!clean)
            dex_set_orphan(table, children[i]);
        frame_give_changed(child);
        if (clean)
            dex_evict_if_idle(self, cooling_add(&table->cache.cooling, address, children[i]));
    }
    /* What it does not lead to any more was just let go, or is an orphan itself. */
    if (atomic_load_explicit(&frame_at(&table->cache.frames, index)->state, memory_order_relaxed) ==
            FRAME_HOT &&
        !page_dead(page))
        dex_clear_orphan(table, index);
}
