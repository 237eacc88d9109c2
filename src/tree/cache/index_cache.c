/*
 * index_cache.c - per level, nodes sorted by their low fences in pages of a few dozen: a search
 * looks for the page among the first fences of all pages, then for the node within the page; an
 * insertion moves one page. Both are arrays of words (key_words.h), side by side in memory; those of
 * a page are looked at all at once.
 */
#include "tree/cache/index_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "rt/rt.h"
#include "tree/cache/cached_node.h"
#include "tree/cache/hints.h"
#include "tree/cache/key_words.h"
#include "tree/node/search.h"

enum {
    LEVELS = 16,
    HINTED_LEVEL = 1,
    PAGE_NODES = 64,
    PLACE_BYTES = 16, /* of a node, in its page */
};

/* What the keys behind an array of words have in common: but for an empty one, the low fence of a
 * level's first node, which would leave them nothing. */
struct common {
    bool first_is_empty;
    uint32_t bytes;
    uint8_t data[KEY_WORDS_SKIP_MAX];
};

/* Nodes in the order of their low fences. */
struct page {
    uint32_t count;
    struct common common;
    uint64_t words[PAGE_NODES];
    struct cached_node *nodes[PAGE_NODES];
};

struct level {
    struct page **pages;
    uint64_t *words; /* of the first node of each page */
    struct common common;
    uint32_t count, capacity;
    uint64_t nodes;
};

struct index_cache {
    struct node_layout layout;
    struct rt_latch latch;
    struct level levels[LEVELS];
    struct hints hints; /* of the lowest level, if keys are words */
    uint64_t budget, bytes, nodes, evictions, clock;
    uint8_t pinned; /* this level and above */
    struct prng prng;
};

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
    hints_free(&cache->hints);
    for (int l = 0; l < LEVELS; l++) {
        struct level *level = &cache->levels[l];
        for (uint32_t p = 0; p < level->count; p++) {
            for (uint32_t i = 0; i < level->pages[p]->count; i++)
                free(level->pages[p]->nodes[i]);
            free(level->pages[p]);
        }
        free(level->pages);
        free(level->words);
    }
    free(cache);
}

/* ---- places ---------------------------------------------------------------------------------- */

struct place {
    uint32_t page, index;
};

/* What words stand for. */
struct lows {
    const struct node_layout *layout;
    const struct page *page;   /* its nodes, */
    const struct level *level; /* or the first ones of its pages */
    uint32_t first;            /* where they begin */
};

static struct slice low_at(const void *context, uint32_t index)
{
    const struct lows *lows = context;
    index += lows->first;
    return cached_node_low(lows->layout, lows->page != NULL ? lows->page->nodes[index]
                                                            : lows->level->pages[index]->nodes[0]);
}

static uint32_t lows_to(struct lows *lows, const uint64_t *words, uint32_t count,
                        const struct common *common, struct slice key, bool before)
{
    lows->first = common->first_is_empty;
    if (common->first_is_empty && before && key.size == 0)
        return 0;
    struct key_words all = {.words = words + lows->first,
                            .count = count - lows->first,
                            .skip = common->bytes,
                            .common = common->data,
                            .key_size = lows->layout->key_size == 8 ? 8 : 0,
                            .key_at = low_at,
                            .context = lows};
    return lows->first + key_words_to(&all, key, before);
}

/* The last node whose low fence is at or below the key (strictly below, with `before`); false when
 * there is none. */
static bool place_find(const struct index_cache *cache, const struct level *level, struct slice key,
                       bool before, struct place *out)
{
    struct lows lows = {.layout = &cache->layout, .level = level};
    uint32_t count = lows_to(&lows, level->words, level->count, &level->common, key, before);
    if (count == 0)
        return false;
    out->page = count - 1;
    lows.page = level->pages[out->page];
    count = lows_to(&lows, lows.page->words, lows.page->count, &lows.page->common, key, before);
    if (count == 0)
        return false; /* no: the page begins at or below the key */
    out->index = count - 1;
    return true;
}

static struct cached_node *node_at(const struct level *level, struct place place)
{
    return level->pages[place.page]->nodes[place.index];
}

/* Whether what all of `count` keys have in common is no longer that; sets it anew. */
static bool common_changed(const struct lows *lows, uint32_t count, struct common *common)
{
    bool empty = low_at(lows, 0).size == 0;
    uint32_t bytes = 0;
    struct slice first = {0};

    if (count > empty && lows->layout->key_size != 8) {
        first = low_at(lows, empty);
        bytes = key_words_common(first, low_at(lows, count - 1));
    }
    if (empty == common->first_is_empty && bytes == common->bytes &&
        (bytes == 0 || memcmp(common->data, first.data, bytes) == 0))
        return false;
    common->first_is_empty = empty;
    common->bytes = bytes;
    if (bytes > 0)
        memcpy(common->data, first.data, bytes);
    return true;
}

/* After a change of the first or the last key, or of the one at `changed`. */
static void set_words(const struct lows *lows, uint64_t *words, uint32_t count,
                      struct common *common, uint32_t changed)
{
    if (count == 0) {
        *common = (struct common){0};
        return;
    }
    bool all = common_changed(lows, count, common);
    for (uint32_t i = all ? 0 : changed; i < (all ? count : changed + 1); i++)
        words[i] = key_word(low_at(lows, i), common->bytes);
}

static void page_words(const struct index_cache *cache, struct page *page, uint32_t changed)
{
    struct lows lows = {.layout = &cache->layout, .page = page};
    set_words(&lows, page->words, page->count, &page->common, changed);
}

static void level_words(const struct index_cache *cache, struct level *level, uint32_t changed)
{
    struct lows lows = {.layout = &cache->layout, .level = level};
    set_words(&lows, level->words, level->count, &level->common, changed);
}

static void place_remove(struct index_cache *cache, struct level *level, struct place place)
{
    struct page *page = level->pages[place.page];
    struct cached_node *node = page->nodes[place.index];

    cache->bytes -= node->bytes + PLACE_BYTES;
    cache->nodes--;
    level->nodes--;
    hints_forget(&cache->hints, node);
    free(node);
    page->count--;
    memmove(&page->words[place.index], &page->words[place.index + 1],
            (page->count - place.index) * sizeof(page->words[0]));
    memmove(&page->nodes[place.index], &page->nodes[place.index + 1],
            (page->count - place.index) * sizeof(page->nodes[0]));
    if (page->count > 0) {
        page_words(cache, page, 0);
        level_words(cache, level, place.page);
        return;
    }
    free(page);
    level->count--;
    memmove(&level->pages[place.page], &level->pages[place.page + 1],
            (level->count - place.page) * sizeof(level->pages[0]));
    memmove(&level->words[place.page], &level->words[place.page + 1],
            (level->count - place.page) * sizeof(level->words[0]));
    level_words(cache, level, 0);
}

/* An empty page, whose word is not yet set. */
static bool page_insert(struct level *level, uint32_t at)
{
    if (level->count == level->capacity) {
        uint32_t capacity = level->capacity == 0 ? 16 : level->capacity * 2;
        struct page **pages = realloc(level->pages, capacity * sizeof(*pages));
        if (pages == NULL)
            return false;
        level->pages = pages;
        uint64_t *words = realloc(level->words, capacity * sizeof(*words));
        if (words == NULL)
            return false;
        level->words = words;
        level->capacity = capacity;
    }
    struct page *page = calloc(1, sizeof(*page));
    if (page == NULL)
        return false;
    memmove(&level->pages[at + 1], &level->pages[at],
            (level->count - at) * sizeof(level->pages[0]));
    memmove(&level->words[at + 1], &level->words[at],
            (level->count - at) * sizeof(level->words[0]));
    level->pages[at] = page;
    level->count++;
    return true;
}

static bool page_split(const struct index_cache *cache, struct level *level, uint32_t at)
{
    if (!page_insert(level, at + 1))
        return false;
    struct page *left = level->pages[at], *right = level->pages[at + 1];
    uint32_t keep = left->count / 2;
    right->count = left->count - keep;
    right->common = left->common;
    memcpy(right->words, &left->words[keep], right->count * sizeof(left->words[0]));
    memcpy(right->nodes, &left->nodes[keep], right->count * sizeof(left->nodes[0]));
    left->count = keep;
    page_words(cache, left, 0);
    page_words(cache, right, 0);
    level_words(cache, level, at + 1);
    return true;
}

/* Behind `after`, or first when there is none. */
static bool place_insert(const struct index_cache *cache, struct level *level, bool have_after,
                         struct place after, struct cached_node *node)
{
    struct place place = {.page = 0, .index = 0};
    if (have_after)
        place = (struct place){.page = after.page, .index = after.index + 1};
    else if (level->count == 0 && !page_insert(level, 0))
        return false;
    if (level->pages[place.page]->count == PAGE_NODES) {
        if (!page_split(cache, level, place.page))
            return false;
        uint32_t kept = level->pages[place.page]->count;
        if (place.index > kept)
            place = (struct place){.page = place.page + 1, .index = place.index - kept};
    }
    struct page *page = level->pages[place.page];
    memmove(&page->words[place.index + 1], &page->words[place.index],
            (page->count - place.index) * sizeof(page->words[0]));
    memmove(&page->nodes[place.index + 1], &page->nodes[place.index],
            (page->count - place.index) * sizeof(page->nodes[0]));
    page->nodes[place.index] = node;
    page->count++;
    page_words(cache, page, place.index);
    if (place.index == 0)
        level_words(cache, level, place.page);
    return true;
}

/* ---- searching ------------------------------------------------------------------------------- */

/* The node of a level that covers the key. */
static struct cached_node *node_find(struct index_cache *cache, int l, struct slice key,
                                     bool before, struct place *place)
{
    struct level *level = &cache->levels[l];
    if (level->count == 0 || !place_find(cache, level, key, before, place))
        return NULL;
    struct cached_node *node = node_at(level, *place);
    cached_node_prefetch(&cache->layout, node);
    return cached_node_reaches(&cache->layout, node, key, before) ? node : NULL;
}

static struct cached_node *node_hinted(const struct index_cache *cache, uint64_t limit)
{
    struct cached_node **hint = hints_at(&cache->hints, limit - 1);
    struct cached_node *node = hint == NULL ? NULL : *hint;
    bool right =
        node != NULL && cached_node_low_word(node) < limit && cached_node_reaches_word(node, limit);
    return right ? node : NULL;
}

/*
 * The same for a key that is a word, as all of its level's are: the last node whose low fence's word lies
 * below `limit`, which is the key's word or, to have that one too, the next. It is not 0, so that the
 * empty fence, whose word is, lies below it, too.
 */
static struct cached_node *node_find_word(struct index_cache *cache, int l, uint64_t limit)
{
    const struct level *level = &cache->levels[l];
    struct cached_node *node = l == HINTED_LEVEL ? node_hinted(cache, limit) : NULL;
    if (node != NULL)
        return node;
    uint32_t count = search_below(level->words, level->count, limit);
    if (count == 0)
        return NULL;
    const struct page *page = level->pages[count - 1];
    count = search_below(page->words, page->count, limit);
    pando_assert(count > 0); /* the page begins below it */
    node = page->nodes[count - 1];
    cached_node_prefetch(&cache->layout, node);
    if (!cached_node_reaches_word(node, limit))
        return NULL;
    if (l == HINTED_LEVEL)
        hints_set(&cache->hints, limit - 1, node);
    return node;
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

bool index_cache_find(struct index_cache *cache, struct slice key, uint8_t level, bool before,
                      struct index_cache_hit *out)
{
    uint64_t limit = 0;
    bool found = false, by_word = word_limit(cache, key, before, &limit);

    rt_latch_lock(&cache->latch);
    for (int l = level + 1; l < LEVELS && !found; l++) {
        struct place place;
        struct cached_node *node =
            by_word ? node_find_word(cache, l, limit) : node_find(cache, l, key, before, &place);
        if (node == NULL)
            continue;
        uint32_t index = by_word ? search_below(node->words, node->count, limit)
                                 : cached_node_index(&cache->layout, node, key, before);
        out->child = cached_node_child(&cache->layout, node, index);
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
    struct cached_node *node = node_find(cache, 1, key, false, &place);
    if (node != NULL) {
        uint32_t index = cached_node_index(&cache->layout, node, key, false);
        while (count < most && ++index <= node->count)
            children[count++] = cached_node_child(&cache->layout, node, index);
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

static void suit_hints(struct index_cache *cache)
{
    const struct level *level = &cache->levels[HINTED_LEVEL];
    const struct page *last = level->pages[level->count - 1];
    cache->bytes += (uint64_t)hints_suit(&cache->hints, level->nodes, level->words[0],
                                         last->words[last->count - 1]);
}

/* Nodes whose ranges a new one takes over. */
static void remove_overlapping(struct index_cache *cache, struct level *level, struct slice low,
                               const struct node_header *header)
{
    struct place place;
    while (place_find(cache, level, low, false, &place) &&
           cached_node_reaches(&cache->layout, node_at(level, place), low, false))
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
        if (slice_compare(cached_node_low(&cache->layout, node_at(level, place)), low) < 0)
            return;
        place_remove(cache, level, place);
    }
}

void index_cache_put(struct index_cache *cache, const struct node_header *header,
                     const uint8_t *bytes)
{
    if (header->level == 0 || header->level >= LEVELS || header->dead)
        return;
    struct cached_node *node = cached_node_create(&cache->layout, header, bytes);
    if (node == NULL)
        return;
    uint64_t size = (uint64_t)node->bytes + PLACE_BYTES;

    rt_latch_lock(&cache->latch);
    struct level *level = &cache->levels[header->level];
    struct place after;
    remove_overlapping(cache, level, header->low, header);
    while (header->level < cache->pinned && cache->bytes + size > cache->budget &&
           evict_one(cache)) {
    }
    bool have_after = place_find(cache, level, header->low, false, &after);
    if ((header->level < cache->pinned && cache->bytes + size > cache->budget) ||
        !place_insert(cache, level, have_after, after, node)) {
        free(node);
    } else {
        node->used = ++cache->clock;
        cache->bytes += size;
        cache->nodes++;
        level->nodes++;
        if (header->level == HINTED_LEVEL && cache->layout.key_size == 8)
            suit_hints(cache);
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
