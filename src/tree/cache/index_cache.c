/*
 * index_cache.c - per level, nodes sorted by their low fences in pages of a few hundred: a search
 * is two binary searches over words that lie side by side (of the pages' first nodes, then of one
 * page's), an insertion moves one page. In a node with separators of any size a third one finds the
 * child.
 *
 * A word is the 8 bytes of a key behind what most keys share ("user:"), so that words differ where keys
 * do. It never decides wrongly: words rise with keys, and of equal ones the keys themselves are
 * compared.
 */
#include "tree/cache/index_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "rt/rt.h"

enum { LEVELS = 16, PAGE_NODES = 256, SHARED_MAX = 64 };

struct cached {
    uint64_t used; /* the cache's clock when it was last of use */
    uint32_t bytes;
    uint8_t level;
    uint16_t shared;     /* bytes that all keys between its fences begin with */
    uint16_t word_count; /* of the separators; 0: not kept */
    uint64_t data[];     /* the words, then the inner node's one cell */
};

/* Nodes in the order of their low fences; prefixes are the words of those. */
struct page {
    uint32_t count;
    uint64_t prefixes[PAGE_NODES];
    struct cached *nodes[PAGE_NODES];
};

struct level {
    struct page **pages;
    uint64_t *firsts; /* the first prefix of each page */
    uint32_t count, capacity;
    uint64_t nodes;
    uint64_t look_again; /* when there are so many nodes: do they share more, or less? */
    uint32_t shared_size;
    uint8_t shared[SHARED_MAX]; /* what the low fences begin with, most of them */
};

struct index_cache {
    struct node_layout layout;
    struct rt_latch latch;
    struct level levels[LEVELS];
    uint64_t budget, bytes, nodes, evictions, clock;
    uint8_t pinned; /* this level and above */
    struct prng prng;
};

/* The 8 bytes from `from` on as a number, zeroes behind the end. */
static inline uint64_t word_of(struct slice key, uint32_t from)
{
    uint64_t word = 0;
    if (key.size >= (size_t)from + 8)
        memcpy(&word, key.data + from, 8);
    else if (key.size > from)
        memcpy(&word, key.data + from, key.size - from);
    return __builtin_bswap64(word);
}

/* Rises with the key: keys below all that begin with what is shared have the least word, and those
 * above it the greatest. */
static uint64_t prefix_of(const struct level *level, struct slice key)
{
    uint32_t shared = level->shared_size;
    size_t common = key.size < shared ? key.size : shared;
    int order = common == 0 ? 0 : memcmp(key.data, level->shared, common);
    if (order != 0)
        return order < 0 ? 0 : UINT64_MAX;
    return key.size < shared ? 0 : word_of(key, shared);
}

static inline const uint8_t *cell_of(const struct cached *node)
{
    return (const uint8_t *)(node->data + node->word_count);
}

static struct slice low_of(const struct index_cache *cache, const struct cached *node)
{
    return node_low_fence(&cache->layout, cell_of(node));
}

struct index_cache *index_cache_create(const struct node_layout *layout, uint64_t budget_bytes,
                                       uint64_t seed)
{
    struct index_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    cache->layout = *layout;
    cache->budget = budget_bytes;
    cache->pinned = LEVELS;
    prng_seed(&cache->prng, seed);
    return cache;
}

void index_cache_destroy(struct index_cache *cache)
{
    for (int l = 0; l < LEVELS; l++) {
        struct level *level = &cache->levels[l];
        for (uint32_t p = 0; p < level->count; p++) {
            for (uint32_t i = 0; i < level->pages[p]->count; i++)
                free(level->pages[p]->nodes[i]);
            free(level->pages[p]);
        }
        free(level->pages);
        free(level->firsts);
    }
    free(cache);
}

/* ---- places ---------------------------------------------------------------------------------- */

struct place {
    uint32_t page, index;
};

/* Whether a node's low fence lies at or below the key (strictly below, with `before`). */
static bool at_or_below(const struct index_cache *cache, const struct page *page, uint32_t index,
                        struct slice key, bool before)
{
    int order = slice_compare(low_of(cache, page->nodes[index]), key);
    return before ? order < 0 : order <= 0;
}

/* How many of the rising prefixes are below this one; by arithmetic, because a branch could only be
 * guessed. */
static uint32_t prefixes_below(const uint64_t *prefixes, uint32_t count, uint64_t prefix)
{
    const uint64_t *base = prefixes;
    while (count > 1) {
        uint32_t half = count / 2;
        base += half * (size_t)(base[half - 1] < prefix);
        count -= half;
    }
    return (uint32_t)(base - prefixes) + (count == 1 && *base < prefix);
}

/* The last node whose low fence is at or below the key; false when there is none. */
static bool place_find(const struct index_cache *cache, const struct level *level, struct slice key,
                       bool before, struct place *out)
{
    uint64_t prefix = prefix_of(level, key);
    uint32_t count = prefixes_below(level->firsts, level->count, prefix), same = count;
    /* Of those with the very same word only the keys themselves tell. */
    while (same < level->count && level->firsts[same] == prefix)
        same++;
    while (count < same) {
        uint32_t middle = (count + same) / 2;
        if (at_or_below(cache, level->pages[middle], 0, key, before))
            count = middle + 1;
        else
            same = middle;
    }
    if (count == 0)
        return false;
    out->page = count - 1;
    const struct page *page = level->pages[out->page];
    uint32_t low = prefixes_below(page->prefixes, page->count, prefix), high = low;
    while (high < page->count && page->prefixes[high] == prefix)
        high++;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (at_or_below(cache, page, middle, key, before))
            low = middle + 1;
        else
            high = middle;
    }
    out->index = low - 1;
    return true;
}

static struct cached *node_at(const struct level *level, struct place place)
{
    return level->pages[place.page]->nodes[place.index];
}

static void place_remove(struct index_cache *cache, struct level *level, struct place place)
{
    struct page *page = level->pages[place.page];
    struct cached *node = page->nodes[place.index];

    cache->bytes -= node->bytes;
    cache->nodes--;
    level->nodes--;
    free(node);
    page->count--;
    memmove(&page->prefixes[place.index], &page->prefixes[place.index + 1],
            (page->count - place.index) * sizeof(page->prefixes[0]));
    memmove(&page->nodes[place.index], &page->nodes[place.index + 1],
            (page->count - place.index) * sizeof(page->nodes[0]));
    if (page->count > 0) {
        level->firsts[place.page] = page->prefixes[0];
        return;
    }
    free(page);
    level->count--;
    memmove(&level->pages[place.page], &level->pages[place.page + 1],
            (level->count - place.page) * sizeof(level->pages[0]));
    memmove(&level->firsts[place.page], &level->firsts[place.page + 1],
            (level->count - place.page) * sizeof(level->firsts[0]));
}

static bool page_insert(struct level *level, uint32_t at)
{
    if (level->count == level->capacity) {
        uint32_t capacity = level->capacity == 0 ? 16 : level->capacity * 2;
        struct page **pages = realloc(level->pages, capacity * sizeof(*pages));
        if (pages == NULL)
            return false;
        level->pages = pages;
        uint64_t *firsts = realloc(level->firsts, capacity * sizeof(*firsts));
        if (firsts == NULL)
            return false;
        level->firsts = firsts;
        level->capacity = capacity;
    }
    struct page *page = calloc(1, sizeof(*page));
    if (page == NULL)
        return false;
    memmove(&level->pages[at + 1], &level->pages[at],
            (level->count - at) * sizeof(level->pages[0]));
    memmove(&level->firsts[at + 1], &level->firsts[at],
            (level->count - at) * sizeof(level->firsts[0]));
    level->pages[at] = page;
    level->count++;
    return true;
}

static bool page_split(struct level *level, uint32_t at)
{
    if (!page_insert(level, at + 1))
        return false;
    struct page *left = level->pages[at], *right = level->pages[at + 1];
    uint32_t keep = left->count / 2;
    right->count = left->count - keep;
    memcpy(right->prefixes, &left->prefixes[keep], right->count * sizeof(left->prefixes[0]));
    memcpy(right->nodes, &left->nodes[keep], right->count * sizeof(left->nodes[0]));
    left->count = keep;
    level->firsts[at + 1] = right->prefixes[0];
    return true;
}

/* Behind `after`, or first when there is none. */
static bool place_insert(struct level *level, bool have_after, struct place after, uint64_t prefix,
                         struct cached *node)
{
    struct place place = {.page = 0, .index = 0};
    if (have_after)
        place = (struct place){.page = after.page, .index = after.index + 1};
    else if (level->count == 0 && !page_insert(level, 0))
        return false;
    if (level->pages[place.page]->count == PAGE_NODES) {
        if (!page_split(level, place.page))
            return false;
        uint32_t kept = level->pages[place.page]->count;
        if (place.index > kept)
            place = (struct place){.page = place.page + 1, .index = place.index - kept};
    }
    struct page *page = level->pages[place.page];
    memmove(&page->prefixes[place.index + 1], &page->prefixes[place.index],
            (page->count - place.index) * sizeof(page->prefixes[0]));
    memmove(&page->nodes[place.index + 1], &page->nodes[place.index],
            (page->count - place.index) * sizeof(page->nodes[0]));
    page->prefixes[place.index] = prefix;
    page->nodes[place.index] = node;
    page->count++;
    level->firsts[place.page] = page->prefixes[0];
    return true;
}

/* ---- searching ------------------------------------------------------------------------------- */

static bool covers(const struct index_cache *cache, const struct cached *node, struct slice key,
                   bool before)
{
    struct slice high;
    if (!node_high_fence(&cache->layout, cell_of(node), &high))
        return true;
    int order = slice_compare(key, high);
    return before ? order <= 0 : order < 0;
}

/* The node of a level that covers the key. */
static struct cached *node_find(struct index_cache *cache, int l, struct slice key, bool before,
                                struct place *place)
{
    struct level *level = &cache->levels[l];
    if (level->count == 0 || !place_find(cache, level, key, before, place))
        return NULL;
    struct cached *node = node_at(level, *place);
    return covers(cache, node, key, before) ? node : NULL;
}

/* The child that covers the key, which the node does. */
static fabric_address child_of(const struct index_cache *cache, const struct cached *node,
                               struct slice key)
{
    uint32_t index;
    if (node->word_count > 0) {
        uint64_t word = word_of(key, node->shared);
        index = prefixes_below(node->data, node->word_count, word);
        if (index == node->word_count || node->data[index] != word)
            return inner_child_at(&cache->layout, cell_of(node), index);
    }
    return inner_child(&cache->layout, cell_of(node), key, &index);
}

bool index_cache_find(struct index_cache *cache, struct slice key, uint8_t level, bool before,
                      struct index_cache_hit *out)
{
    bool found = false;

    rt_latch_lock(&cache->latch);
    for (int l = level + 1; l < LEVELS && !found; l++) {
        struct place place;
        struct cached *node = node_find(cache, l, key, before, &place);
        if (node == NULL)
            continue;
        uint32_t index;
        out->child = before ? inner_child_before(&cache->layout, cell_of(node), key, &index)
                            : child_of(cache, node, key);
        out->child_level = (uint8_t)(l - 1);
        node->used = ++cache->clock;
        found = true;
    }
    rt_latch_unlock(&cache->latch);
    return found;
}

uint32_t index_cache_next_leaves(struct index_cache *cache, struct slice key,
                                 fabric_address *children, uint32_t most)
{
    uint32_t count = 0;
    struct place place;

    rt_latch_lock(&cache->latch);
    struct cached *node = node_find(cache, 1, key, false, &place);
    if (node != NULL) {
        uint32_t index, separators = inner_count(&cache->layout, cell_of(node));
        (void)inner_child(&cache->layout, cell_of(node), key, &index);
        while (count < most && ++index <= separators)
            children[count++] = inner_child_at(&cache->layout, cell_of(node), index);
    }
    rt_latch_unlock(&cache->latch);
    return count;
}

/* ---- filling and emptying -------------------------------------------------------------------- */

static struct place random_place(struct index_cache *cache, const struct level *level)
{
    struct place place = {.page = (uint32_t)prng_below(&cache->prng, level->count)};
    place.index = (uint32_t)prng_below(&cache->prng, level->pages[place.page]->count);
    return place;
}

static bool evict_one(struct index_cache *cache)
{
    for (int l = 1; l < LEVELS && l < cache->pinned; l++) {
        struct level *level = &cache->levels[l];
        if (level->nodes == 0)
            continue;
        struct place a = random_place(cache, level), b = random_place(cache, level);
        place_remove(cache, level, node_at(level, a)->used <= node_at(level, b)->used ? a : b);
        cache->evictions++;
        return true;
    }
    return false;
}

/* Nodes whose ranges a new one takes over. */
static void remove_overlapping(struct index_cache *cache, struct level *level, struct slice low,
                               const struct node_header *header)
{
    struct place place;
    while (place_find(cache, level, low, false, &place) &&
           covers(cache, node_at(level, place), low, false))
        place_remove(cache, level, place);
    /* Those that begin inside the new one's range. */
    for (;;) {
        bool any = header->no_high ? level->count > 0 : true;
        if (!any)
            return;
        if (header->no_high) {
            place = (struct place){.page = level->count - 1};
            place.index = level->pages[place.page]->count - 1;
        } else if (!place_find(cache, level, header->high, true, &place)) {
            return;
        }
        if (slice_compare(low_of(cache, node_at(level, place)), low) < 0)
            return;
        place_remove(cache, level, place);
    }
}

static uint32_t shared_by(struct slice a, struct slice b)
{
    uint32_t size = 0;
    while (size < a.size && size < b.size && a.data[size] == b.data[size])
        size++;
    return size;
}

/* What the low fences begin with; the first one, which may be empty, aside. Words are made anew when
 * that has changed. */
static void level_look(const struct index_cache *cache, struct level *level)
{
    if (level->nodes < level->look_again)
        return;
    level->look_again = level->nodes + level->nodes / 4 + 8;
    if (cache->layout.key_size == 8 || level->nodes < 3)
        return;
    const struct page *first = level->pages[0], *last = level->pages[level->count - 1];
    const struct cached *second = first->count > 1 ? first->nodes[1] : level->pages[1]->nodes[0];
    struct slice low = low_of(cache, second);
    uint32_t shared = shared_by(low, low_of(cache, last->nodes[last->count - 1]));
    shared = shared > SHARED_MAX ? SHARED_MAX : shared;
    if (shared == level->shared_size && memcmp(low.data, level->shared, shared) == 0)
        return;
    if (shared > 0)
        memcpy(level->shared, low.data, shared);
    level->shared_size = shared;
    for (uint32_t p = 0; p < level->count; p++) {
        struct page *page = level->pages[p];
        for (uint32_t i = 0; i < page->count; i++)
            page->prefixes[i] = prefix_of(level, low_of(cache, page->nodes[i]));
        level->firsts[p] = page->prefixes[0];
    }
}

/* Separators of any size: their words, if the fences say what they share. */
static void words_fill(const struct index_cache *cache, const struct node_header *header,
                       struct cached *node)
{
    node->shared = (uint16_t)shared_by(header->low, header->high);
    for (uint32_t i = 0; i < node->word_count; i++)
        node->data[i] = word_of(inner_key_at(&cache->layout, cell_of(node), i), node->shared);
}

void index_cache_put(struct index_cache *cache, const struct node_header *header,
                     const uint8_t *bytes)
{
    if (header->level == 0 || header->level >= LEVELS || header->dead)
        return;
    bool words = cache->layout.key_size != 8 && !header->no_high;
    uint32_t word_count = words ? inner_count(&cache->layout, bytes) : 0;
    uint32_t size = (uint32_t)sizeof(struct cached) + word_count * 8 + header->cell_bytes;
    struct cached *node = malloc(size);
    if (node == NULL)
        return;
    node->word_count = (uint16_t)word_count;
    node->shared = 0;
    memcpy(node->data + word_count, bytes, header->cell_bytes);
    words_fill(cache, header, node);
    node->level = header->level;
    node->bytes = size + 16; /* its place in a page */

    rt_latch_lock(&cache->latch);
    struct level *level = &cache->levels[header->level];
    struct place after;
    remove_overlapping(cache, level, header->low, header);
    while (header->level < cache->pinned && cache->bytes + node->bytes > cache->budget &&
           evict_one(cache)) {
    }
    bool have_after = place_find(cache, level, header->low, false, &after);
    if ((header->level < cache->pinned && cache->bytes + node->bytes > cache->budget) ||
        !place_insert(level, have_after, after, prefix_of(level, header->low), node)) {
        free(node);
    } else {
        node->used = ++cache->clock;
        cache->bytes += node->bytes;
        cache->nodes++;
        level->nodes++;
        level_look(cache, level);
    }
    rt_latch_unlock(&cache->latch);
}

void index_cache_drop(struct index_cache *cache, uint8_t l, struct slice key)
{
    struct place place;
    if (l >= LEVELS)
        return;
    rt_latch_lock(&cache->latch);
    if (node_find(cache, l, key, false, &place) != NULL)
        place_remove(cache, &cache->levels[l], place);
    rt_latch_unlock(&cache->latch);
}

void index_cache_pin(struct index_cache *cache, uint8_t level)
{
    rt_latch_lock(&cache->latch);
    cache->pinned = level < 2 ? 2 : level;
    rt_latch_unlock(&cache->latch);
}

void index_cache_stats(struct index_cache *cache, struct index_cache_stats *out)
{
    rt_latch_lock(&cache->latch);
    *out = (struct index_cache_stats){
        .bytes = cache->bytes, .nodes = cache->nodes, .evictions = cache->evictions};
    rt_latch_unlock(&cache->latch);
}
