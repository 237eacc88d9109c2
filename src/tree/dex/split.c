/*
 * split.c - pages in two, and completing splits. Every step is written through
 * (rule structure-write-through).
 *
 *   1  the right half is written to a fresh block, the page becomes its left half, with the right one
 *      as its sibling: one list under an intent, or three if they lie on two memory nodes (pages.c). A
 *      death before the intent is there leaves a block that is still held: the sweep takes it back
 *   2  the parent gets the separator; a death before that is made good by whoever is led to the left half
 *      with a key of the right one, which is the very same step (dex_complete_split_co). The key that a page is split
 *      for is led there next if it is the right half's. Else it is done at once: where keys only ever fall
 *      nobody would come for a long time, and then find one half behind the other
 *
 * The root stays where it is: its pairs go to two fresh pages, and it gets these as its children.
 */
#include <string.h>

#include "base/assert.h"
#include "tree/dex/tree.h"

static enum pando_status unlock_with(struct dex *self, const struct pool_lock *lock, bool locked,
                                     enum pando_status status)
{
    enum pando_status released = locked ? pool_unlock_co(self->base.session, lock) : PANDO_OK;
    return released == PANDO_OK ? status : released;
}

/* Another owner may have merged a shared inner page away since it was cached, and its block may be anything by now.
 * Makes the frame a dead page: who is led there next turns to its parent, which is read anew and either names
 * another page by then, or proves that this one is damaged. The frame's latch is held. */
static void make_dead_co(struct dex *self, uint32_t index, struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    const uint8_t *bytes = frame_bytes(&table->cache.frames, index);
    uint8_t low[PAGE_KEY_ROOM];
    /* By its low fence its parent finds it when it is evicted. */
    struct page_header gone = {.address = frame_at(&table->cache.frames, index)->address,
                               .level = page_level(bytes),
                               .low = page_low(bytes, low),
                               .no_high = true};
    page_init(&table->layout, &gone, scratch->other);
    page_set_dead(scratch->other, dex_tenure(table, false));
    dex_relink_children_co(self, index, scratch->other);
}

bool dex_page_exclusive(const struct dex *self, uint32_t frame)
{
    const struct dex_table *table = self->table;
    const uint8_t *bytes = frame_bytes(&table->cache.frames, frame);
    uint64_t read = frame_at(&table->cache.frames, frame)->epoch;
    const struct map *map = owners_map(&table->owners);
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    uint64_t me = owners_self(&table->owners);
    struct slice end;
    bool bounded = page_high(bytes, high, &end);

    if (!table->on.partition)
        return page_level(bytes) == 0;
    for (const struct map_partition *part = map_find(map, page_low(bytes, low));
         part < map->parts + map->count; part++) {
        if (bounded && slice_compare(part->low, end) >= 0)
            break;
        /* What is being given away may have another writer before the operation that asks has ended. */
        if (part->frozen || (part->owner != me && part->taker != me) || part->epoch > read)
            return false;
    }
    return true;
}

enum pando_status dex_lock_page_co(struct dex *self, uint32_t index, struct dex_scratch *scratch,
                                   struct pool_lock *lock, bool *locked)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);
    uint8_t *bytes = frame_bytes(&table->cache.frames, index);

    *locked = false;
    /* A leaf has one owner, and that is who asks. */
    if (page_level(bytes) == 0 || dex_page_exclusive(self, index))
        return PANDO_OK;
    enum pando_status status =
        pool_lock_co(self->base.session, pool_lock_for(table->pool, frame->address), lock);
    if (status != PANDO_OK)
        return status;
    uint64_t epoch = owners_epoch(&table->owners);
    status = dex_read_co(self, frame->address, scratch->other);
    if (status == PANDO_OK && page_version(scratch->other) == page_version(bytes) &&
        !page_dead(scratch->other)) {
        frame->epoch = epoch;
        *locked = true;
        return PANDO_OK;
    }
    enum pando_status released = pool_unlock_co(self->base.session, lock);
    if (released != PANDO_OK)
        return released;
    if (status == PANDO_STALE && index != table->root_frame) {
        make_dead_co(self, index, scratch);
        return PANDO_STALE;
    }
    if (status != PANDO_OK)
        return status == PANDO_STALE ? PANDO_CORRUPT : status;
    dex_count(&table->stats.repairs);
    dex_relink_children_co(self, index, scratch->other);
    frame->epoch = epoch;
    return PANDO_STALE;
}

/* ---- completing a split ---------------------------------------------------------------------- */

/* separator-recheck (R25): an inner page that others change, too, is read again; the frame may even
 * be of a page that was there before. Its latch is held. */
static enum pando_status refresh_co(struct dex *self, uint32_t index, uint8_t *bytes)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);
    uint64_t epoch = owners_epoch(&table->owners);
    enum pando_status status = dex_read_co(self, frame->address, bytes);

    if (status == PANDO_OK &&
        page_version(bytes) != page_version(frame_bytes(&table->cache.frames, index)))
        dex_relink_children_co(self, index, bytes);
    if (status == PANDO_OK)
        frame->epoch = epoch;
    return status;
}

bool dex_renew_co(struct dex *self, uint32_t index, uint64_t version)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);

    if (!atomic_load_explicit(&frame->orphan, memory_order_relaxed))
        return false;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return false;
    bool done = frame_take(frame, version);
    if (done) {
        uint8_t level = page_level(frame_bytes(&table->cache.frames, index));
        uint64_t epoch = owners_epoch(&table->owners);
        enum pando_status status = dex_read_co(self, frame->address, scratch->other);
        if (status == PANDO_OK && page_level(scratch->other) == level) {
            dex_relink_children_co(self, index, scratch->other);
            frame->epoch = epoch;
        } else if (status == PANDO_OK || status == PANDO_STALE) {
            make_dead_co(self, index, scratch);
        } else {
            done = false; /* as it is, it still leads to the pages below it */
        }
        if (done)
            frame_give_changed(frame);
        else
            frame_give(frame);
    }
    dex_scratch_give(self, scratch);
    return done;
}

/* The child's page as it is: from its frame or from the pool. CORRUPT: there is none, although a current
 * page names it. */
static struct step child_page_co(struct dex *self, uint64_t word, uint8_t *bytes)
{
    struct dex_table *table = self->table;
    uint32_t index = frame_swizzled(word) ? (uint32_t)word : frame_find(&table->cache.frames, word);

    if (index == FRAME_NONE) {
        enum pando_status status = dex_read_co(self, word, bytes);
        return step_of(status == PANDO_STALE ? PANDO_CORRUPT : status);
    }
    struct frame *frame = frame_at(&table->cache.frames, index);
    const uint8_t *cached = frame_bytes(&table->cache.frames, index);
    enum pando_status status = PANDO_OK;
    frame_latch_co(&table->cache.frames, frame);
    bool same = frame_swizzled(word) || frame->address == word;
    /* One that was found gone may have been completed since. */
    bool shared =
        same && page_level(cached) > 0 && (page_dead(cached) || !dex_page_exclusive(self, index));
    if (shared) {
        status = refresh_co(self, index, bytes);
        frame_give_changed(frame);
    } else {
        page_copy(bytes, cached, table->layout.page_bytes);
        frame_give(frame);
    }
    if (status == PANDO_STALE)
        return step_of(PANDO_CORRUPT);
    return same ? step_of(status) : step_to(STEP_RESTART);
}

/* The separator that follows a child in a current page whose latch (and lock) is held. Restarts:
 * there is nothing to tell. FULL: no room for it. CORRUPT: the child is not what the page says, nor a
 * half of that. */
static struct step insert_separator_co(struct dex *self, uint32_t index,
                                       const struct dex_target *target, struct dex_scratch *scratch,
                                       const struct pool_lock *lock)
{
    struct dex_table *table = self->table;
    const struct page_layout *layout = &table->layout;
    uint8_t *bytes = frame_bytes(&table->cache.frames, index);
    uint32_t at = dex_child_index(table, bytes, target);
    struct slice high;

    struct step step = child_page_co(self, page_child(layout, bytes, at), scratch->sibling);
    if (!step_ok(step))
        return step;
    if (dex_covers(scratch->sibling, (uint8_t)(page_level(bytes) - 1), target))
        return step_to(STEP_RESTART);
    if (page_level(scratch->sibling) + 1 != page_level(bytes) || page_dead(scratch->sibling) ||
        page_sibling(scratch->sibling) == 0 || !page_high(scratch->sibling, scratch->key, &high) ||
        slice_compare(high, target->key) >= (target->before ? 0 : 1))
        return step_of(PANDO_CORRUPT);
    fabric_address right = page_sibling(scratch->sibling);
    struct page_pair pair = {.key = high, .value = slice_of(&right, sizeof(right))};
    if (!page_room(layout, bytes, UINT32_MAX, high.size, sizeof(right)))
        return step_of(PANDO_FULL);
    /* The image first: the frame changes when it is in the pool. */
    dex_image(table, index, scratch->image);
    page_set_version(scratch->image, page_version(bytes) + 1);
    if (!page_insert(layout, scratch->image, at + 1, &pair)) {
        page_compact(layout, scratch->image, scratch->other);
        bool fits = page_insert(layout, scratch->image, at + 1, &pair);
        pando_assert(fits);
    }
    struct dex_page_write change = {.images = {scratch->image}, .count = 1, .lock = lock};
    enum pando_status status = dex_write_pages_co(self, scratch, &change);
    if (status == PANDO_OK)
        dex_relink_children_co(self, index, scratch->image);
    return step_of(status);
}

struct step dex_complete_split_co(struct dex *self, struct dex_spot *spot,
                                  const struct dex_target *target)
{
    struct dex_table *table = self->table;
    uint32_t index = spot->frame;
    struct frame *frame = frame_at(&table->cache.frames, index);
    struct dex_scratch *scratch = dex_scratch_take(self);
    struct pool_lock lock;
    bool locked = false;

    if (scratch == NULL)
        return step_of(PANDO_NO_MEMORY);
    frame_latch_co(&table->cache.frames, frame);
    uint8_t level = page_level(frame_bytes(&table->cache.frames, index));
    enum pando_status status = PANDO_OK;
    /* It may have become another page's frame, or another's key, while it was waited for. */
    bool same = (atomic_load_explicit(&frame->state, memory_order_relaxed) == FRAME_HOT) &&
                level > target->level &&
                dex_covers(frame_bytes(&table->cache.frames, index), level, target);
    if (same) {
        status = dex_lock_page_co(self, index, scratch, &lock, &locked);
        if (status == PANDO_CORRUPT) {
            spot->suspect = frame->address;
            spot->suspect_level = level;
        }
    } else if (index == table->root_frame && level > target->level &&
               !page_dead(frame_bytes(&table->cache.frames, index))) {
        status = PANDO_CORRUPT; /* the root has all keys */
    }
    struct step step = step_of(status == PANDO_STALE ? PANDO_OK : status); /* it is current now */
    if (same && status == PANDO_OK) {
        step = insert_separator_co(self, index, target, scratch, locked ? &lock : NULL);
        locked = locked && !step_ok(step) && step.status != PANDO_UNKNOWN;
        status = unlock_with(self, &lock, locked, PANDO_OK);
        if (status != PANDO_OK)
            step = step_of(status);
    }
    uint8_t low[PAGE_KEY_ROOM];
    struct slice inside = page_low(frame_bytes(&table->cache.frames, index), low);
    frame_give_changed(frame);
    dex_scratch_give(self, scratch);
    if (step.status == PANDO_FULL)
        step = step_of(dex_split_co(self, inside, level));
    return step_ok(step) ? step_to(STEP_RESTART) : step;
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* Where a page is cut: how many pairs stay, and the key that begins the right half. */
struct cut {
    uint32_t keep;
    struct slice key;
};

static struct cut choose_cut(const struct page_layout *layout, const uint8_t *bytes,
                             struct slice key, struct dex_scratch *scratch)
{
    uint32_t pairs = page_pairs(bytes);
    struct slice last = page_key(layout, bytes, pairs - 1, scratch->key);

    /* Keys that only ever rise fill their pages. (Of an inner page the last child goes: it is the one that is
     * split next, and those that come after it then lie where their parent does.) */
    if (page_no_high(bytes) && page_level(bytes) == 0 && slice_compare(last, key) < 0 &&
        page_used(layout, bytes) <=
            page_space(layout, 0, page_low(bytes, scratch->key2).size, key.size))
        return (struct cut){pairs, key};
    if (page_no_high(bytes) && page_level(bytes) > 0 && slice_compare(last, key) <= 0)
        return (struct cut){pairs - 1, last};
    struct cut cut = {.keep = page_split_point(layout, bytes)};
    cut.key = page_key(layout, bytes, cut.keep, scratch->key);
    if (page_level(bytes) > 0 || layout->key_size != 0)
        return cut;
    /* As short as it may be: up to where it differs from the last key on the left. */
    struct slice left = page_key(layout, bytes, cut.keep - 1, scratch->key2);
    size_t same = 0;
    while (same < left.size && left.data[same] == cut.key.data[same])
        same++;
    cut.key.size = same + 1;
    return cut;
}

/* Builds both halves of scratch->image into scratch->page (left) and scratch->sibling (right). */
static void build_halves(struct dex *self, struct dex_scratch *scratch, const struct cut *cut,
                         struct page_header *right)
{
    const struct page_layout *layout = &self->table->layout;
    const uint8_t *source = scratch->image;
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    struct page_header left = {.address = page_address(source),
                               .version = page_version(source) + 1,
                               .tenure = dex_tenure(self->table, true),
                               .sibling = right->address,
                               .stamp = page_stamp(source),
                               .level = page_level(source),
                               .low = page_low(source, low),
                               .high = cut->key};
    right->level = left.level;
    right->stamp = left.stamp;
    right->sibling = page_sibling(source);
    right->low = cut->key;
    right->no_high = !page_high(source, high, &right->high);
    page_init(layout, &left, scratch->page);
    page_init(layout, right, scratch->sibling);
    bool fits = page_append(layout, scratch->page, source, 0, cut->keep) &&
                page_append(layout, scratch->sibling, source, cut->keep, page_pairs(source));
    pando_assert(fits);
}

/* A fresh block that nobody was told of goes back. */
static void unalloc_co(struct dex *self, const struct page_header *header)
{
    struct pool_block block = {.address = header->address, .version = header->version};
    if (header->address == 0)
        return;
    enum pando_status freed =
        pool_free_co(self->base.session, &block, self->table->layout.page_bytes, false);
    (void)freed; /* if not, it is swept when this member has gone */
}

/* Whether the parent has room for the separator of what is to be split. If it had not, and no memory were
 * left for splitting it, nobody would find the other half. If somebody is at the parent, it is not known. Also
 * tells where new pages below the parent go, if that is known. */
static bool parent_has_room(struct dex *self, const struct dex_spot *spot, const struct cut *cut,
                            uint16_t *node)
{
    const struct frames *frames = &self->table->cache.frames;
    const uint8_t *bytes = frame_bytes(frames, spot->parent);
    struct frame *parent = frame_at(frames, spot->parent);

    if (!frame_take(parent, spot->parent_version))
        return true;
    bool room = page_pairs(bytes) < 2 || page_room(&self->table->layout, bytes, UINT32_MAX,
                                                   cut->key.size, sizeof(fabric_address));
    *node = dex_place_below(parent);
    frame_give(parent);
    return room;
}

/* The page's latch (and lock) is held, scratch->image is what it is. *parent_first: nothing was done, as
 * its parent is to be split before. */
static enum pando_status split_page_co(struct dex *self, const struct dex_spot *spot,
                                       struct slice key, struct dex_scratch *scratch,
                                       const struct pool_lock *lock, bool *parent_first)
{
    struct dex_table *table = self->table;
    uint32_t index = spot->frame;
    struct frame *frame = frame_at(&table->cache.frames, index);
    struct page_header right = {0};
    struct dex_place place = {.below_parent = pool_bank(frame->address)};
    uint8_t level = page_level(scratch->image);
    struct cut cut = choose_cut(&table->layout, scratch->image, key, scratch);

    *parent_first = !parent_has_room(self, spot, &cut, &place.below_parent);
    if (*parent_first)
        return PANDO_STALE;
    dex_place_half(self, index, key, &place);
    enum pando_status status = dex_alloc_half_co(self, place.right, level, &right);
    if (status == PANDO_OK && table->redo.log != NULL)
        status = dex_log_wait_co(table->redo.log, self->base.session, atomic_load(&frame->end));
    if (status != PANDO_OK) {
        unalloc_co(self, &right);
        return status;
    }
    build_halves(self, scratch, &cut, &right);
    struct dex_page_write change = {.images = {scratch->sibling, scratch->page},
                                    .count = 2,
                                    .lock = lock,
                                    .home = pool_bank(frame->address)};
    /* Broken on purpose (rule structure-write-through). */
    bool cached_only = !table->on.through && lock == NULL;
    if (cached_only)
        change = (struct dex_page_write){.images = {scratch->sibling}, .count = 1, .plain = true};
    status = dex_write_pages_co(self, scratch, &change);
    if (status != PANDO_OK && status != PANDO_UNKNOWN)
        unalloc_co(self, &right);
    if (status != PANDO_OK)
        return status;
    frame->dirty = cached_only;
    frame->first = 0;
    frame->grows = place.left_grows;
    frame->split_at = place.split_at;
    dex_relink_children_co(self, index, scratch->page);
    dex_count(&table->stats.splits);
    return PANDO_OK;
}

/* ---- the root -------------------------------------------------------------------------------- */

static enum pando_status split_root_co(struct dex *self, uint32_t index, struct slice key,
                                       struct dex_scratch *scratch, const struct pool_lock *lock)
{
    struct dex_table *table = self->table;
    const struct page_layout *layout = &table->layout;
    struct frame *frame = frame_at(&table->cache.frames, index);
    struct page_header left = {0}, right = {0};
    struct cut cut = choose_cut(layout, scratch->image, key, scratch);
    uint8_t level = page_level(scratch->image);
    /* What was the whole tree is divided: leaves stay beside the root, inner pages take turns. */
    uint16_t bank = pool_bank(frame->address);
    if (level > 0)
        bank = pool_bank(page_child(layout, scratch->image, 0));

    enum pando_status status = dex_alloc_half_co(self, bank, level, &left);
    if (status == PANDO_OK)
        status =
            dex_alloc_half_co(self, level > 0 ? dex_place_turn(self, level) : bank, level, &right);
    if (status == PANDO_OK && table->redo.log != NULL)
        status = dex_log_wait_co(table->redo.log, self->base.session, atomic_load(&frame->end));
    if (status != PANDO_OK) {
        unalloc_co(self, &left);
        unalloc_co(self, &right);
        return status;
    }
    build_halves(self, scratch, &cut, &right);
    page_word_set(scratch->page, POOL_BLOCK_ADDRESS, left.address);
    page_set_version(scratch->page, left.version);
    struct dex_page_write halves = {.images = {scratch->sibling}, .count = 1, .plain = true};
    status = dex_write_pages_co(self, scratch, &halves);
    halves.images[0] = scratch->page;
    if (status == PANDO_OK)
        status = dex_write_pages_co(self, scratch, &halves);
    if (status != PANDO_OK)
        return status;
    struct page_header root = {.address = frame->address,
                               .version = page_version(scratch->image) + 1,
                               .tenure = dex_tenure(table, true),
                               .level = (uint8_t)(page_level(scratch->image) + 1),
                               .stamp = page_stamp(scratch->image),
                               .no_high = true};
    struct page_pair pairs[] = {{.value = slice_of(&left.address, sizeof(left.address))},
                                {cut.key, slice_of(&right.address, sizeof(right.address)), false}};
    page_init(layout, &root, scratch->image);
    bool fits = page_push(layout, scratch->image, &pairs[0]) &&
                page_push(layout, scratch->image, &pairs[1]);
    pando_assert(fits);
    struct dex_page_write change = {.images = {scratch->image}, .count = 1, .lock = lock};
    status = dex_write_pages_co(self, scratch, &change);
    if (status != PANDO_OK && status != PANDO_UNKNOWN) {
        unalloc_co(self, &left);
        unalloc_co(self, &right);
    }
    if (status != PANDO_OK)
        return status;
    frame->dirty = false;
    frame->first = 0;
    dex_relink_children_co(self, index, scratch->image);
    dex_count(&table->stats.splits);
    return PANDO_OK;
}

/* What came of a try. */
struct attempt {
    bool parent_first;   /* nothing was done, as the parent is to be split before */
    fabric_address torn; /* the page is there, but cannot be read in the pool (CORRUPT) */
    bool untold;         /* the key is the left half's; this is where the right one begins: */
    uint8_t low[PAGE_KEY_ROOM];
    size_t low_size;
};

/* Which half has the key, if there are two; the scratch still has the right one. */
static void note_halves(const struct dex_spot *spot, struct slice key, struct dex_scratch *scratch,
                        struct attempt *attempt)
{
    if (spot->parent == FRAME_NONE)
        return; /* the root knows both */
    struct slice low = page_low(scratch->sibling, scratch->key);
    attempt->untold = slice_compare(key, low) < 0;
    attempt->low_size = low.size;
    memcpy(attempt->low, low.data, low.size);
}

static void complete_split_co(struct dex *self, const struct attempt *attempt, uint8_t level)
{
    struct slice low = slice_of(attempt->low, attempt->low_size);
    struct dex_target parent = {.key = low, .level = (uint8_t)(level + 1), .keep = true};
    struct dex_target half = {.key = low, .level = level, .keep = true};
    struct dex_spot spot;
    enum pando_status status = dex_find_co(self, &parent, &spot);
    struct step step =
        status == PANDO_OK ? dex_complete_split_co(self, &spot, &half) : step_of(status);
    (void)step; /* whoever is led to the left half does it */
}

static enum pando_status split_once_co(struct dex *self, struct slice key, uint8_t level,
                                       struct attempt *attempt)
{
    struct dex_table *table = self->table;
    struct dex_target target = {.key = key, .level = level, .keep = true};
    struct dex_spot spot;
    struct pool_lock lock;
    bool locked = false;

    *attempt = (struct attempt){0};
    enum pando_status status = dex_find_co(self, &target, &spot);
    if (status != PANDO_OK)
        return status == PANDO_NOT_FOUND ? PANDO_OK : status;
    struct frame *frame = frame_at(&table->cache.frames, spot.frame);
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    if (!frame_take(frame, spot.version)) {
        dex_scratch_give(self, scratch);
        return PANDO_OK;
    }
    status = dex_lock_page_co(self, spot.frame, scratch, &lock, &locked);
    if (status == PANDO_CORRUPT)
        attempt->torn = frame->address;
    bool changed = status != PANDO_OK;
    if (status == PANDO_OK && page_pairs(frame_bytes(&table->cache.frames, spot.frame)) >= 2) {
        const struct pool_lock *held = locked ? &lock : NULL;
        dex_image(table, spot.frame, scratch->image);
        status = spot.parent == FRAME_NONE
                     ? split_root_co(self, spot.frame, key, scratch, held)
                     : split_page_co(self, &spot, key, scratch, held, &attempt->parent_first);
        changed = status == PANDO_OK;
        if (changed)
            note_halves(&spot, key, scratch, attempt);
        locked = locked && status != PANDO_OK && status != PANDO_UNKNOWN;
    }
    status = unlock_with(self, &lock, locked, status);
    if (changed)
        frame_give_changed(frame);
    else
        frame_give(frame);
    dex_scratch_give(self, scratch);
    return status;
}

enum pando_status dex_split_co(struct dex *self, struct slice key, uint8_t level)
{
    struct pool_retry retry = {0};
    struct dex_suspect suspect = {0};
    struct attempt attempt;
    struct step step;

    do {
        step = step_of(split_once_co(self, key, level, &attempt));
        if (attempt.torn != 0)
            step = dex_suspect_co(self, attempt.torn, level, &suspect);
    } while (dex_again_co(self, &retry, &step));
    dex_suspect_end(&suspect);
    enum pando_status status = step.status;
    if (status == PANDO_OK && attempt.untold)
        complete_split_co(self, &attempt, level);
    if (status == PANDO_STALE && attempt.parent_first)
        return dex_split_co(self, key, (uint8_t)(level + 1));
    return status == PANDO_STALE ? PANDO_OK : status;
}
