/*
 * merge.c - neighbours under one parent become one page, in one list under one intent: the left one
 * with all pairs, the parent without the separator, the right one dead. What is in the way (another
 * owner, a page that is not cached) ends the attempt; the next delete tries again.
 *
 * If they do not all lie on one memory node it takes two changes:
 *
 *   1  the parent loses the separator, and its lock is released. It is now as it was between the split of
 *      the left page and its completion: a death here, or no slot for the next intent, is made good as that is
 *   2  the right page is dead, and the left one has all pairs: under one intent, which lies on node 0 if they
 *      lie on two nodes. Not on one of theirs: if that could not be read, a successor could still come to
 *      the other page, and what it changed there would be undone by the intent
 */
#include "base/assert.h"
#include "tree/dex/tree.h"

enum {
    UNDERFULL = 4, /* a page that uses less than one of so many parts of its space */
    MERGED_OF =
        4, /* and the two together no more than all but one of so many, unless one has nothing */
};

/* All that takes part; latches of parent, left and right are held. */
struct merge {
    struct dex *self;
    struct dex_scratch *scratch;
    uint32_t parent, left, right;
    uint32_t at; /* of the left one in the parent */
};

/* How far an attempt has come: the parent has the separator, and the lock released, from SEPARATED
 * on. */
enum progress { UNTOUCHED, SEPARATED, MERGED };

static bool underfull(const struct page_layout *layout, const uint8_t *bytes)
{
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    struct slice end;
    (void)page_high(bytes, high, &end);
    return page_used(layout, bytes) * UNDERFULL <=
           page_space(layout, page_level(bytes), page_low(bytes, low).size, end.size);
}

/* ---- may they -------------------------------------------------------------------------------- */

/* Both lie in one part of the map that is ours, and nothing lies between them. */
static bool together(const struct merge *merge)
{
    struct dex *self = merge->self;
    struct dex_table *table = self->table;
    const struct map *map = atomic_load_explicit(&table->owners.map, memory_order_acquire);
    uint8_t low[PAGE_KEY_ROOM], low2[PAGE_KEY_ROOM];
    const uint8_t *left = frame_bytes(&table->cache.frames, merge->left);
    const uint8_t *right = frame_bytes(&table->cache.frames, merge->right);
    const struct map_partition *part = map_find(map, page_low(left, low));

    if ((table->on.partitions && part != map_find(map, page_low(right, low2))) || part->frozen ||
        (part->owner != owners_self(&table->owners) && part->taker != owners_self(&table->owners)))
        return false;
    if (page_level(left) > 0 &&
        (!dex_page_exclusive(self, merge->left) || !dex_page_exclusive(self, merge->right)))
        return false;
    return page_sibling(left) == page_address(right);
}

/* Builds the merged page into scratch->page; false: too full. */
static bool build_merged(const struct merge *merge)
{
    struct dex_table *table = merge->self->table;
    const struct page_layout *layout = &table->layout;
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    uint8_t *left = merge->scratch->image, *right = merge->scratch->sibling;
    struct page_stamp a = page_stamp(left), b = page_stamp(right);
    struct page_header header = {.address = page_address(left),
                                 .version = page_version(left) + 1,
                                 .tenure = dex_tenure(table, true),
                                 .sibling = page_sibling(right),
                                 .stamp = page_stamp_below(a, b) ? b : a,
                                 .level = page_level(left),
                                 .low = page_low(left, low)};
    header.no_high = !page_high(right, high, &header.high);
    uint32_t space = page_space(layout, header.level, header.low.size, header.high.size);
    bool one_empty = page_pairs(left) == 0 || page_pairs(right) == 0;
    if (page_used(layout, left) + page_used(layout, right) > space - space / MERGED_OF &&
        !one_empty)
        return false;
    page_init(layout, &header, merge->scratch->page);
    return page_append(layout, merge->scratch->page, left, 0, page_pairs(left)) &&
           page_append(layout, merge->scratch->page, right, 0, page_pairs(right));
}

/* ---- doing it -------------------------------------------------------------------------------- */

static enum pando_status logged_co(struct dex *self, uint32_t index)
{
    struct dex_table *table = self->table;
    if (table->redo.log == NULL)
        return PANDO_OK;
    return dex_log_wait_co(table->redo.log, self->base.session,
                           atomic_load(&frame_at(&table->cache.frames, index)->end));
}

/* The right one's frame goes; its children can be found through the mapping. */
static void forget_right_co(const struct merge *merge)
{
    struct dex *self = merge->self;
    struct dex_table *table = self->table;
    struct frame *right = frame_at(&table->cache.frames, merge->right);

    right->dirty = false;
    if (page_level(merge->scratch->sibling) > 0) {
        struct page_header empty = {.address = right->address,
                                    .level = page_level(merge->scratch->sibling),
                                    .no_high = true};
        page_init(&table->layout, &empty, merge->scratch->other);
        dex_relink_children_co(self, merge->right, merge->scratch->other);
    }
    if (atomic_load_explicit(&right->state, memory_order_relaxed) == FRAME_COOLING)
        (void)cooling_remove(&table->cache.cooling, right->address, merge->right);
    frame_remove(&table->cache.frames, merge->right);
}

/* In the parent's frame by hand: the latches of its children are held here. */
static void forget_separator(const struct merge *merge, const uint8_t *parent_image)
{
    struct dex_table *table = merge->self->table;
    uint8_t *parent = frame_bytes(&table->cache.frames, merge->parent);
    page_remove(&table->layout, parent, merge->at + 1);
    page_set_version(parent, page_version(parent_image));
}

/* The right one is as a half whose split was not completed: found through the mapping by who
 * completes it. */
static void detach_right(const struct merge *merge)
{
    struct dex_table *table = merge->self->table;
    struct frame *right = frame_at(&table->cache.frames, merge->right);

    if (atomic_load_explicit(&right->state, memory_order_relaxed) == FRAME_COOLING)
        return; /* as it was */
    dex_set_orphan(table, merge->right);
    right->parent = FRAME_NONE;
    atomic_store_explicit(&right->state, FRAME_COOLING, memory_order_relaxed);
}

/* The images are in the scratch; the parent's in `other`. */
static enum pando_status write_merged_co(const struct merge *merge, const struct pool_lock *lock,
                                         enum progress *progress)
{
    struct dex_scratch *scratch = merge->scratch;
    uint8_t *left = scratch->page, *right = scratch->sibling, *parent = scratch->other;
    uint16_t bank = pool_bank(page_address(parent));
    struct dex_page_write change = {.images = {left, parent, right}, .count = 3, .lock = lock};

    if (pool_bank(page_address(left)) == bank && pool_bank(page_address(right)) == bank) {
        enum pando_status status = dex_write_pages_co(merge->self, scratch, &change);
        if (status != PANDO_OK)
            return status;
        *progress = MERGED;
        forget_separator(merge, parent);
        return PANDO_OK;
    }
    change = (struct dex_page_write){.images = {parent}, .count = 1, .lock = lock};
    enum pando_status status = dex_write_pages_co(merge->self, scratch, &change);
    if (status != PANDO_OK)
        return status;
    *progress = SEPARATED;
    forget_separator(merge, parent);
    change = (struct dex_page_write){.images = {right, left}, .count = 2, .home = 0};
    status = dex_write_pages_co(merge->self, scratch, &change);
    if (status == PANDO_OK)
        *progress = MERGED;
    else
        detach_right(merge);
    return status;
}

/* Leaves right's frame for the caller to free, if they were merged. */
static enum pando_status merge_pages_co(const struct merge *merge, const struct pool_lock *lock,
                                        enum progress *progress)
{
    struct dex *self = merge->self;
    struct dex_table *table = self->table;
    struct dex_scratch *scratch = merge->scratch;
    uint8_t *parent_image = scratch->other;

    dex_image(table, merge->left, scratch->image);
    dex_image(table, merge->right, scratch->sibling);
    if (!build_merged(merge))
        return PANDO_OK;
    enum pando_status status = logged_co(self, merge->left);
    if (status == PANDO_OK)
        status = logged_co(self, merge->right);
    if (status != PANDO_OK)
        return status;
    dex_image(table, merge->parent, parent_image);
    page_remove(&table->layout, parent_image, merge->at + 1);
    page_set_version(parent_image, page_version(parent_image) + 1);
    page_set_version(scratch->sibling, page_version(scratch->sibling) + 1);
    page_set_dead(scratch->sibling, dex_tenure(table, false));
    status = write_merged_co(merge, lock, progress);
    if (status != PANDO_OK)
        return status;
    forget_right_co(merge);
    dex_relink_children_co(self, merge->left, scratch->page);
    frame_at(&table->cache.frames, merge->left)->dirty = false;
    frame_at(&table->cache.frames, merge->left)->first = 0;
    dex_count(&table->stats.merges);
    return PANDO_OK;
}

/* A cached child of a page whose latch is held, with its latch; FRAME_NONE: it is not cached. */
static uint32_t latch_child_co(struct dex *self, uint32_t parent, uint32_t at)
{
    struct dex_table *table = self->table;
    uint64_t word = page_child(&table->layout, frame_bytes(&table->cache.frames, parent), at);
    uint32_t index = frame_swizzled(word) ? (uint32_t)word : frame_find(&table->cache.frames, word);

    if (index == FRAME_NONE)
        return FRAME_NONE;
    struct frame *frame = frame_at(&table->cache.frames, index);
    frame_latch_co(&table->cache.frames, frame);
    uint8_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);
    if (frame_swizzled(word) || (frame->address == word && state == FRAME_COOLING))
        return index;
    frame_give(frame);
    return FRAME_NONE;
}

/* The parent's latch is held. */
static enum pando_status merge_under_co(struct dex *self, uint32_t parent, uint32_t at,
                                        struct dex_scratch *scratch, bool *merged)
{
    struct dex_table *table = self->table;
    struct frames *frames = &table->cache.frames;
    struct merge merge = {.self = self, .scratch = scratch, .parent = parent, .at = at};
    enum progress progress = UNTOUCHED;
    struct pool_lock lock;
    bool locked = false;

    enum pando_status status = dex_lock_page_co(self, parent, scratch, &lock, &locked);
    if (status != PANDO_OK)
        return status;
    if (at + 1 >= page_pairs(frame_bytes(frames, parent)))
        goto out_unlock;
    merge.left = latch_child_co(self, parent, at);
    if (merge.left == FRAME_NONE)
        goto out_unlock;
    merge.right = latch_child_co(self, parent, at + 1);
    if (merge.right == FRAME_NONE)
        goto out_left;
    if (together(&merge))
        status = merge_pages_co(&merge, locked ? &lock : NULL, &progress);
    *merged = progress == MERGED;
    if (*merged)
        dex_frame_free(self, merge.right);
    else if (progress == SEPARATED)
        frame_give_changed(frame_at(frames, merge.right));
    else
        frame_give(frame_at(frames, merge.right));
out_left:
    if (*merged)
        frame_give_changed(frame_at(frames, merge.left));
    else
        frame_give(frame_at(frames, merge.left));
out_unlock:
    if (locked && progress == UNTOUCHED && status != PANDO_UNKNOWN) {
        enum pando_status released = pool_unlock_co(self->base.session, &lock);
        status = released == PANDO_OK ? status : released;
    }
    return status;
}

/* A root with one child becomes that child. Its latch is held. A child that was split, and whose other
 * half the root was not told of yet, is not the last of its level: the root has no parent that could be
 * told later, and the half would be lost beyond the root's end. */
static enum pando_status shrink_root_co(struct dex *self, uint32_t root,
                                        struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    struct frames *frames = &table->cache.frames;
    uint8_t *bytes = frame_bytes(frames, root);
    struct frame *frame = frame_at(frames, root);

    if (page_level(bytes) == 0 || page_pairs(bytes) != 1 || !dex_page_exclusive(self, root))
        return PANDO_OK;
    uint32_t child = latch_child_co(self, root, 0);
    if (child == FRAME_NONE)
        return PANDO_OK;
    struct frame *below = frame_at(frames, child);
    enum pando_status status = PANDO_OK;
    bool last = page_no_high(frame_bytes(frames, child)) &&
                (page_level(frame_bytes(frames, child)) == 0 || dex_page_exclusive(self, child));
    if (last)
        status = logged_co(self, child);
    if (!last || status != PANDO_OK) {
        frame_give(below);
        return status;
    }
    uint64_t version = page_version(bytes) + 1;
    dex_image(table, child, scratch->image);
    page_copy(scratch->sibling, scratch->image, table->layout.page_bytes);
    page_word_set(scratch->image, POOL_BLOCK_ADDRESS, frame->address);
    page_set_version(scratch->image, version);
    page_set_version(scratch->sibling, page_version(scratch->sibling) + 1);
    page_set_dead(scratch->sibling, dex_tenure(table, false));
    struct dex_page_write change = {
        .images = {scratch->image, scratch->sibling}, .count = 2, .home = 0};
    status = dex_write_pages_co(self, scratch, &change);
    if (status != PANDO_OK) {
        frame_give(below);
        return status;
    }
    struct merge merge = {.self = self, .scratch = scratch, .right = child};
    forget_right_co(&merge);
    dex_frame_free(self, child);
    page_set_child(&table->layout, bytes, 0, 0); /* its frame is gone */
    dex_relink_children_co(self, root, scratch->image);
    atomic_store_explicit(&frame->end, 0, memory_order_relaxed);
    enum pando_status freed = dex_free_page_co(self, scratch->sibling);
    (void)freed;
    return PANDO_OK;
}

/* Brings the pages beside one into the cache, as far as they are of the same part: leaves of others are
 * never cached. */
static void fetch_neighbours_co(struct dex *self, const struct dex_target *target,
                                struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    const struct map *map = atomic_load_explicit(&table->owners.map, memory_order_acquire);
    const struct map_partition *part = map_find(map, target->key);
    struct dex_target beside = {.level = target->level, .keep = true};
    struct dex_spot spot;
    struct slice high;

    if (dex_find_co(self, target, &spot) != PANDO_OK)
        return;
    page_copy(scratch->page, frame_bytes(&table->cache.frames, spot.frame),
              table->layout.page_bytes);
    if (!frame_same(frame_at(&table->cache.frames, spot.frame), spot.version))
        return;
    if (page_high(scratch->page, scratch->key, &high) &&
        (map_find(map, high) == part || !table->on.partitions)) {
        beside.key = high;
        if (dex_find_co(self, &beside, &spot) != PANDO_OK)
            return;
    }
    beside.key = page_low(scratch->page, scratch->key);
    beside.before = true;
    if (slice_compare(part->low, beside.key) < 0 && dex_find_co(self, &beside, &spot) != PANDO_OK)
        return;
}

/* What came of an attempt. */
enum outcome { NOTHING, BUSY, MERGED_ENOUGH, MERGED_NARROW };

/* Under the parent's latch. */
static enum outcome merge_at_co(struct dex *self, const struct dex_spot *spot,
                                const struct dex_target *target, struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    uint8_t *bytes = frame_bytes(&table->cache.frames, spot->parent);
    uint32_t at = dex_child_index(table, bytes, target);
    bool root = spot->parent == table->root_frame, merged = false;
    enum pando_status status = PANDO_OK;

    if (underfull(&table->layout, frame_bytes(&table->cache.frames, spot->frame))) {
        status = merge_under_co(self, spot->parent, at, scratch, &merged);
        if (status == PANDO_OK && !merged && at > 0)
            status = merge_under_co(self, spot->parent, at - 1, scratch, &merged);
    }
    if (merged) {
        enum pando_status freed = dex_free_page_co(self, scratch->sibling);
        (void)freed;
    }
    if (status == PANDO_OK && root)
        status = shrink_root_co(self, spot->parent, scratch);
    if (status == PANDO_STALE)
        return BUSY;
    if (!merged)
        return NOTHING;
    return !root && underfull(&table->layout, bytes) ? MERGED_NARROW : MERGED_ENOUGH;
}

static enum outcome try_merge_co(struct dex *self, const struct dex_target *target,
                                 struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    struct dex_spot spot;

    fetch_neighbours_co(self, target, scratch);
    if (dex_find_co(self, target, &spot) != PANDO_OK || spot.parent == FRAME_NONE)
        return NOTHING;
    struct frame *parent = frame_at(&table->cache.frames, spot.parent);
    if (!frame_take(parent, spot.parent_version))
        return BUSY;
    enum outcome outcome = merge_at_co(self, &spot, target, scratch);
    frame_give_changed(parent);
    return outcome;
}

_Static_assert(3 * (PAGE_BYTES_MAX + 64) + 64 <= POOL_INTENT_BYTES,
               "any three pages fit an intent");

void dex_merge_co(struct dex *self, struct slice key, uint8_t level)
{
    enum { TRIES_MAX = 16 };
    struct dex_table *table = self->table;
    struct dex_target target = {.key = key, .level = level, .keep = true};
    struct frame_pause pause = {0};

    if (!table->on.merge)
        return;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return; /* a later deletion does it */
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        enum outcome outcome = try_merge_co(self, &target, scratch);
        if (outcome == MERGED_NARROW) {
            target.level++;
            tries = 0;
        } else if (outcome == BUSY) {
            frame_pause_co(&pause);
        } else {
            break;
        }
    }
    dex_scratch_give(self, scratch);
}
