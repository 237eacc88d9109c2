/*
 * index_cache.c - a level's nodes lie in level.h, those of the lowest level are found by hints.h,
 * and what is taken out of either is freed as grace.h says. Here is what to keep, and for how long.
 *
 * Searches take no lock and write to nothing that others read, but for the time at which a node was
 * used last. That time goes on with evictions only, and not with each: a node that is used all the
 * time is written to a few dozen times while the whole cache is replaced, and never while nothing
 * is evicted.
 */
#include "tree/blink/cache/index_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "rt/rt.h"
#include "tree/blink/cache/cached_node.h"
#include "tree/blink/cache/hints.h"
#include "tree/blink/cache/key_words.h"
#include "tree/blink/cache/level.h"
#include "tree/blink/node/search.h"

enum {
    LEVELS = 16,
    HINTED_LEVEL = 1,
    AGES = 64,       /* ticks of the clock while as many nodes are evicted as there are */
    CACHE_LINE = 64, /* what searches read is kept apart from what only writers do */
};

struct index_cache {
    struct node_layout layout;
    _Atomic uint64_t clock;
    _Atomic(struct hints *) hints; /* of the lowest level, if keys are words; NULL: none */
    struct level levels[LEVELS];
    struct grace grace;
    /* Of writers, under the latch. */
    _Alignas(CACHE_LINE) struct rt_latch latch;
    uint64_t budget, nodes, evictions, tick_at;
    _Atomic uint8_t pinned; /* this level and above; read without the latch, too */
    struct prng prng;
};

struct index_cache *index_cache_create(const struct node_layout *layout, uint64_t budget_bytes,
                                       uint64_t seed)
{
    struct index_cache *cache = aligned_alloc(CACHE_LINE, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    memset(cache, 0, sizeof(*cache));
    cache->layout = *layout;
    cache->budget = budget_bytes;
    grace_init(&cache->grace);
    for (int l = 0; l < LEVELS; l++)
        level_init(&cache->levels[l], &cache->layout, &cache->grace);
    atomic_init(&cache->clock, 1);
    atomic_init(&cache->pinned, LEVELS);
    prng_seed(&cache->prng, seed);
    return cache;
}

void index_cache_destroy(struct index_cache *cache)
{
    grace_fini(&cache->grace);
    for (int l = 0; l < LEVELS; l++)
        level_fini(&cache->levels[l]);
    free(atomic_load(&cache->hints));
    free(cache);
}

void index_cache_join(struct index_cache *cache, struct index_cache_reader *reader)
{
    reader->cache = cache;
    rt_latch_lock(&cache->latch);
    grace_join(&cache->grace, &reader->reads);
    rt_latch_unlock(&cache->latch);
}

void index_cache_part(struct index_cache_reader *reader)
{
    rt_latch_lock(&reader->cache->latch);
    grace_part(&reader->reads);
    rt_latch_unlock(&reader->cache->latch);
}

/* ---- searching ------------------------------------------------------------------------------- */

/* The node of a level that covers the key. */
static struct cached_node *node_find(const struct index_cache *cache, int l, struct slice key,
                                     bool before, struct level_place *place)
{
    struct cached_node *node = level_find(&cache->levels[l], key, before, place);
    if (node == NULL)
        return NULL;
    cached_node_prefetch(&cache->layout, node);
    return cached_node_begins(&cache->layout, node, key, before) &&
                   cached_node_reaches(&cache->layout, node, key, before)
               ? node
               : NULL;
}

/* The same for a key that is a word, as all of its level's are: `limit` is the key's word, or the
 * next one to have that too. It is not 0, so that the empty fence, whose word is, lies below it. */
static struct cached_node *node_find_word(const struct index_cache *cache, int l, uint64_t limit)
{
    const struct hints *hints = l == HINTED_LEVEL ? atomic_load(&cache->hints) : NULL;
    struct cached_node *node = hints != NULL ? hints_find(hints, limit) : NULL;
    if (node != NULL)
        return node;
    node = level_find_word(&cache->levels[l], limit);
    if (node == NULL)
        return NULL;
    cached_node_prefetch(&cache->layout, node);
    return cached_node_low_word(node) < limit && cached_node_reaches_word(node, limit) ? node
                                                                                       : NULL;
}

/* Whether words alone tell where the key lies; then up to which. */
static bool word_limit(const struct index_cache *cache, struct slice key, bool before,
                       uint64_t *limit)
{
    if (cache->layout.key_size != 8 || key.size != 8)
        return false;
    *limit = key_word(key, 0) + !before;
    return *limit != 0;
}

static void mark_used(const struct index_cache *cache, struct cached_node *node)
{
    uint64_t now = atomic_load_explicit(&cache->clock, memory_order_relaxed);
    if (atomic_load_explicit(&node->used, memory_order_relaxed) != now)
        atomic_store_explicit(&node->used, now, memory_order_relaxed);
}

bool index_cache_find(struct index_cache_reader *reader, struct slice key, uint8_t level,
                      bool before, struct index_cache_hit *out)
{
    struct index_cache *cache = reader->cache;
    uint64_t limit = 0;
    bool found = false, by_word = word_limit(cache, key, before, &limit);

    rt_race_point();
    grace_enter(&cache->grace, &reader->reads);
    for (int l = level + 1; l < LEVELS && !found; l++) {
        struct level_place place;
        struct cached_node *node =
            by_word ? node_find_word(cache, l, limit) : node_find(cache, l, key, before, &place);
        if (node == NULL)
            continue;
        uint32_t index = by_word ? search_below(node->words, node->count, limit)
                                 : cached_node_index(&cache->layout, node, key, before);
        out->child = cached_node_child(&cache->layout, node, index);
        out->child_level = (uint8_t)(l - 1);
        mark_used(cache, node);
        found = true;
    }
    grace_leave(&reader->reads);
    return found;
}

uint32_t index_cache_next_leaves(struct index_cache_reader *reader, struct slice key,
                                 fabric_address *children, uint32_t most)
{
    struct index_cache *cache = reader->cache;
    uint32_t count = 0;
    struct level_place place;

    rt_race_point();
    grace_enter(&cache->grace, &reader->reads);
    struct cached_node *node = node_find(cache, 1, key, false, &place);
    if (node != NULL) {
        uint32_t index = cached_node_index(&cache->layout, node, key, false);
        while (count < most && ++index <= node->count)
            children[count++] = cached_node_child(&cache->layout, node, index);
    }
    grace_leave(&reader->reads);
    return count;
}

/* ---- emptying: under the latch, as all that follows ------------------------------------------ */

static uint64_t bytes_of(const struct index_cache *cache)
{
    uint64_t bytes = hints_bytes(atomic_load(&cache->hints));
    for (int l = 1; l < LEVELS; l++)
        bytes += cache->levels[l].bytes;
    return bytes;
}

static bool hinted(const struct index_cache *cache, int l)
{
    return l == HINTED_LEVEL && cache->layout.key_size == 8;
}

static void forget_hints(struct index_cache *cache, int l, const struct cached_node *node)
{
    struct hints *hints = atomic_load(&cache->hints);
    if (hinted(cache, l) && hints != NULL)
        hints_forget(hints, node);
}

static bool node_remove(struct index_cache *cache, int l, struct level_place place)
{
    struct level *level = &cache->levels[l];
    forget_hints(cache, l, level_at(level, place));
    if (!level_remove(level, place))
        return false;
    cache->nodes--;
    return true;
}

static struct level_place random_place(struct index_cache *cache, const struct level *level)
{
    const struct level_row *top = atomic_load(&level->top);
    struct level_place place = {.page = (uint32_t)prng_below(&cache->prng, top->count)};
    const struct level_row *page = level_row_at(top, place.page);
    place.index = (uint32_t)prng_below(&cache->prng, page->count);
    return place;
}

static uint64_t used(const struct level *level, struct level_place place)
{
    return atomic_load_explicit(&level_at(level, place)->used, memory_order_relaxed);
}

static void count_eviction(struct index_cache *cache)
{
    if (++cache->evictions < cache->tick_at)
        return;
    cache->tick_at = cache->evictions + cache->nodes / AGES + 1;
    atomic_fetch_add_explicit(&cache->clock, 1, memory_order_relaxed);
}

static bool evict_one(struct index_cache *cache)
{
    for (int l = 1; l < LEVELS && l < atomic_load(&cache->pinned); l++) {
        struct level *level = &cache->levels[l];
        if (level->nodes == 0)
            continue;
        struct level_place a = random_place(cache, level), b = random_place(cache, level);
        if (!node_remove(cache, l, used(level, a) <= used(level, b) ? a : b))
            return false;
        count_eviction(cache);
        return true;
    }
    return false;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* Makes the table of hints anew if it does not suit any more; without memory it stays. */
static void suit_hints(struct index_cache *cache)
{
    struct level *level = &cache->levels[HINTED_LEVEL];
    struct hints *old = atomic_load(&cache->hints);
    struct level_place place = {0};
    uint64_t first = cached_node_low_word(level_at(level, place));
    uint64_t last = cached_node_low_word(level_at(level, level_last(level)));

    if (hints_suit(old, level->nodes, first, last) || !grace_room(&cache->grace, 1))
        return;
    struct hints *hints = hints_create(level->nodes, first, last);
    if (hints == NULL)
        return;
    do {
        hints_note(hints, level_at(level, place));
    } while (level_next(level, &place));
    atomic_store(&cache->hints, hints);
    if (old != NULL)
        grace_retire(&cache->grace, old);
}

static void note_hints(struct index_cache *cache, int l, struct cached_node *node)
{
    struct hints *hints = atomic_load(&cache->hints);
    if (!hinted(cache, l))
        return;
    if (hints != NULL)
        hints_note(hints, node);
    suit_hints(cache);
}

/* The last node that begins below the high fence of another. */
static struct cached_node *last_below(const struct level *level, const struct node_header *header,
                                      struct level_place *place)
{
    if (level->nodes == 0)
        return NULL;
    if (!header->no_high)
        return level_find(level, header->high, true, place);
    *place = level_last(level);
    return level_at(level, *place);
}

/* Removes nodes that begin within the range of a new one, or reach into it, but for one that begins
 * where it does, whose place is told. False: not all of them could be. */
static bool remove_overlapping(struct index_cache *cache, const struct node_header *header,
                               bool *same, struct level_place *place)
{
    const struct level *level = &cache->levels[header->level];
    *same = false;
    for (;;) {
        const struct cached_node *node = last_below(level, header, place);
        if (node == NULL)
            return true;
        int order = slice_compare(cached_node_low(&cache->layout, node), header->low);
        *same = order == 0;
        /* Nothing lies below all but the first node, which may begin behind the new one. */
        bool beyond =
            !header->no_high && !cached_node_begins(&cache->layout, node, header->high, true);
        if (*same || beyond ||
            (order < 0 && !cached_node_reaches(&cache->layout, node, header->low, false)))
            return true;
        if (!node_remove(cache, header->level, *place))
            return false;
    }
}

static bool replace(struct index_cache *cache, int l, struct level_place place,
                    struct cached_node *node)
{
    struct level *level = &cache->levels[l];
    forget_hints(cache, l, level_at(level, place));
    if (!level_replace(level, place, node))
        return false;
    note_hints(cache, l, node);
    while (l < atomic_load(&cache->pinned) && bytes_of(cache) > cache->budget && evict_one(cache)) {
    }
    return true;
}

static bool insert(struct index_cache *cache, int l, struct cached_node *node)
{
    uint64_t size = (uint64_t)node->bytes + LEVEL_NODE_BYTES;
    bool pinned = l >= atomic_load(&cache->pinned);

    while (!pinned && bytes_of(cache) + size > cache->budget && evict_one(cache)) {
    }
    if ((!pinned && bytes_of(cache) + size > cache->budget) ||
        !level_insert(&cache->levels[l], node))
        return false;
    cache->nodes++;
    note_hints(cache, l, node);
    return true;
}

void index_cache_put(struct index_cache *cache, const struct node_header *header,
                     const uint8_t *bytes)
{
    struct level_place place;
    bool same;

    if (header->level == 0 || header->level >= LEVELS || header->dead)
        return;
    struct cached_node *node = cached_node_create(&cache->layout, header, bytes);
    if (node == NULL)
        return;
    atomic_init(&node->used, atomic_load_explicit(&cache->clock, memory_order_relaxed));
    rt_latch_lock(&cache->latch);
    bool kept =
        remove_overlapping(cache, header, &same, &place) &&
        (same ? replace(cache, header->level, place, node) : insert(cache, header->level, node));
    grace_collect(&cache->grace);
    rt_latch_unlock(&cache->latch);
    if (!kept)
        free(node);
}

void index_cache_drop(struct index_cache *cache, uint8_t l, struct slice key)
{
    struct level_place place;
    if (l >= LEVELS)
        return;
    rt_latch_lock(&cache->latch);
    if (node_find(cache, l, key, false, &place) != NULL)
        (void)node_remove(cache, l, place);
    grace_collect(&cache->grace);
    rt_latch_unlock(&cache->latch);
}

void index_cache_pin(struct index_cache *cache, uint8_t level)
{
    uint8_t pinned = level < 2 ? 2 : level;
    if (atomic_load_explicit(&cache->pinned, memory_order_relaxed) != pinned)
        atomic_store(&cache->pinned, pinned);
}

void index_cache_stats(struct index_cache *cache, struct index_cache_stats *out)
{
    rt_latch_lock(&cache->latch);
    *out = (struct index_cache_stats){.bytes = bytes_of(cache),
                                      .nodes = cache->nodes,
                                      .evictions = cache->evictions,
                                      .waiting = cache->grace.count};
    rt_latch_unlock(&cache->latch);
}
