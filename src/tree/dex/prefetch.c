/*
 * prefetch.c - leaves that a scan will come to: their addresses are in the parent of the one it is at, so
 * that those that are not cached are READ at the same time. They wait in the cooling map: the scan makes
 * them hot, or they go.
 */
#include "tree/dex/tree.h"

enum { AHEAD_MAX = 8, SCRATCH_PAGES = 4 };

struct ahead {
    uint32_t frame;
    fabric_address address;
    uint8_t *page;
};

struct fetch {
    struct dex *self;
    const struct dex_spot *spot;
    const struct map *map;
    const struct map_partition *part;
    struct ahead leaves[AHEAD_MAX];
    struct pool_read reads[AHEAD_MAX];
    unsigned count;
    struct dex_scratch *scratch[AHEAD_MAX / SCRATCH_PAGES];
};

/* Whether a child of the parent is all of the scan's part, and its address; false also when the parent has
 * changed. */
static bool candidate(const struct fetch *fetch, uint32_t at, uint64_t *word)
{
    struct dex_table *table = fetch->self->table;
    const uint8_t *parent = frame_bytes(&table->cache.frames, fetch->spot->parent);
    uint8_t key[PAGE_KEY_ROOM];
    struct slice end;

    if (at >= page_pairs(parent)) /* or below 0 */
        return false;
    *word = page_child(&table->layout, parent, at);
    bool ours = map_find(fetch->map, page_key(&table->layout, parent, at, key)) == fetch->part;
    if (ours && map_partition_high(fetch->map, fetch->part, &end)) {
        uint8_t high[PAGE_KEY_ROOM];
        struct slice next;
        bool ends = at + 1 < page_pairs(parent);
        if (ends)
            next = page_key(&table->layout, parent, at + 1, high);
        else
            ends = page_high(parent, high, &next);
        ours = ends && slice_compare(next, end) <= 0;
    }
    return ours && frame_same(frame_at(&table->cache.frames, fetch->spot->parent),
                              fetch->spot->parent_version);
}

/* READs go to memory of this task's own: others may look at a frame whenever they like, if only to find
 * that it is held. NULL: there is none. */
static uint8_t *room_for(struct fetch *fetch, unsigned leaf)
{
    struct dex_scratch *scratch = fetch->scratch[leaf / SCRATCH_PAGES];
    if (scratch == NULL)
        scratch = fetch->scratch[leaf / SCRATCH_PAGES] = dex_scratch_take(fetch->self);
    if (scratch == NULL)
        return NULL;
    uint8_t *pages[SCRATCH_PAGES] = {scratch->page, scratch->image, scratch->sibling,
                                     scratch->other};
    return pages[leaf % SCRATCH_PAGES];
}

/* A BUSY frame for a leaf, and its READ on the way. False: not now. */
static bool begin_co(struct fetch *fetch, fabric_address address)
{
    struct dex *self = fetch->self;
    struct dex_table *table = self->table;
    struct frame *parent = frame_at(&table->cache.frames, fetch->spot->parent);
    struct ahead *leaf = &fetch->leaves[fetch->count];

    *leaf = (struct ahead){.address = address, .page = room_for(fetch, fetch->count)};
    if (leaf->page == NULL || pool_bank(address) >= pool_banks(table->pool) ||
        !dex_frame_try_co(self, &leaf->frame))
        return false;
    struct frame *frame = frame_at(&table->cache.frames, leaf->frame);
    frame->address = address;
    frame->parent = FRAME_NONE;
    frame->epoch = owners_epoch(&table->owners);
    atomic_store_explicit(&frame->state, FRAME_BUSY, memory_order_relaxed);
    bool used = frame_take(parent, fetch->spot->parent_version);
    if (used) {
        atomic_fetch_add(&parent->users, 1);
        frame_give(parent);
    }
    if (!used || !frame_enter(&table->cache.frames, leaf->frame)) {
        if (used)
            dex_frame_unuse(table, parent);
        dex_frame_free(self, leaf->frame);
        return used; /* another has it: go on */
    }
    dex_count(&table->stats.misses);
    fetch->count++;
    return true;
}

/* What was READ too long ago is not kept: the scan reads it again when it comes to it. */
static bool to_be_kept(const struct fetch *fetch, const struct ahead *leaf,
                       const struct pool_read *read)
{
    const struct dex_table *table = fetch->self->table;
    uint8_t key[PAGE_KEY_ROOM];
    return read->status == PANDO_OK && read->recent &&
           page_check(&table->layout, leaf->address, leaf->page) && page_level(leaf->page) == 0 &&
           !page_dead(leaf->page) && map_find(fetch->map, page_low(leaf->page, key)) == fetch->part;
}

static void finish(struct fetch *fetch, struct ahead *leaf, const struct pool_read *read)
{
    struct dex *self = fetch->self;
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, leaf->frame);

    if (to_be_kept(fetch, leaf, read)) {
        page_copy(frame_bytes(&table->cache.frames, leaf->frame), leaf->page,
                  table->layout.page_bytes);
        atomic_store_explicit(&frame->state, FRAME_COOLING, memory_order_relaxed);
        frame_give_changed(frame);
        dex_evict_if_idle(self, cooling_add(&table->cache.cooling, leaf->address, leaf->frame));
    } else {
        frame_remove(&table->cache.frames, leaf->frame);
        dex_frame_free(self, leaf->frame);
    }
    dex_frame_unuse(table, frame_at(&table->cache.frames, fetch->spot->parent));
}

/* The leaf that the scan is at, among its parent's. */
static uint32_t place_of(const struct dex_table *table, const uint8_t *parent, struct slice key,
                         bool before)
{
    uint8_t low[PAGE_KEY_ROOM];
    uint32_t at = page_child_index(&table->layout, parent, key);
    bool begins =
        at < page_pairs(parent) && slice_equal(page_key(&table->layout, parent, at, low), key);
    return before && begins ? at - 1 : at;
}

void dex_prefetch_co(struct dex *self, const struct owners_guard *guard,
                     const struct dex_spot *spot, struct slice key, bool before, unsigned leaves)
{
    struct dex_table *table = self->table;
    struct fetch fetch = {.self = self, .spot = spot, .map = guard->map, .part = guard->part};
    uint64_t word;

    if (spot->parent == FRAME_NONE || spot->pushed_down || !table->on.prefetch)
        return;
    leaves = leaves < AHEAD_MAX ? leaves : AHEAD_MAX;
    uint32_t at = place_of(table, frame_bytes(&table->cache.frames, spot->parent), key, before);
    for (unsigned i = 1; i <= leaves && candidate(&fetch, before ? at - i : at + i, &word); i++) {
        bool hot = frame_swizzled(word),
             cached = hot || frame_find(&table->cache.frames, word) != FRAME_NONE;
        if (hot)
            frame_prefetch(&table->cache.frames, (uint32_t)word);
        /* While the next one is there, those behind it can wait, to be READ together. */
        if (cached ? i == 1 : !begin_co(&fetch, word))
            break;
    }
    /* One that is alone is not faster this way than when the scan comes to it, but no slower. Why one failed
     * the scan finds out when it comes to it. */
    for (unsigned i = 0; i < fetch.count; i++) {
        fetch.reads[i].address = fetch.leaves[i].address;
        fetch.reads[i].to = fetch.leaves[i].page;
        fetch.reads[i].size = table->layout.page_bytes;
    }
    pool_reads_begin(self->base.session, fetch.reads, fetch.count);
    for (unsigned i = 0; i < fetch.count; i++) {
        pool_reads_wait_co(self->base.session, &fetch.reads[i], 1);
        finish(&fetch, &fetch.leaves[i], &fetch.reads[i]);
    }
    for (unsigned i = 0; i < sizeof(fetch.scratch) / sizeof(fetch.scratch[0]); i++) {
        if (fetch.scratch[i] != NULL)
            dex_scratch_give(self, fetch.scratch[i]);
    }
}
