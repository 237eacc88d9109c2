/*
 * words.h - pages of words whose values are words, too (8-byte keys and values, and all inner pages of
 * tables with 8-byte keys): the few things that a fast path asks of them, inline. What is true of the
 * functions of page.h is true here: whole words, relaxed, never outside of the page.
 */
#ifndef TREE_PAGE_WORDS_H
#define TREE_PAGE_WORDS_H

#include "tree/page/page.h"

enum { PAGE_WORDS_AT = PAGE_FENCES + 16 }; /* where the keys begin */

static inline uint32_t page_words_capacity(const struct page_layout *layout)
{
    return (layout->page_bytes - PAGE_WORDS_AT) / 16;
}

/* Whether a page of that level that is not dead has the key, which is an integer that compares like the
 * key's bytes. */
static inline bool page_words_cover(const uint8_t *bytes, uint8_t level, uint64_t key)
{
    uint64_t shape = page_word(bytes, PAGE_SHAPE);
    uint64_t low = __builtin_bswap64(page_word(bytes, PAGE_FENCES));
    uint64_t high = __builtin_bswap64(page_word(bytes, PAGE_FENCES + 8));
    uint64_t flags = shape >> 8 & 0xff;
    bool above = (shape >> 32 & 0xffff) == 0 || key >= low;
    bool below = (flags & PAGE_NO_HIGH) != 0 || key < high;
    return (uint8_t)shape == level && (flags & PAGE_DEAD) == 0 && above && below;
}

/* How many keys are below this one. */
static inline uint32_t page_words_below(const struct page_layout *layout, const uint8_t *bytes,
                                        uint64_t key)
{
    uint32_t capacity = page_words_capacity(layout), count = page_pairs(bytes), base = 0;
    count = count < capacity ? count : capacity;
    if (count == 0)
        return 0;
    while (count > 1) {
        uint32_t half = count / 2;
        base += page_word(bytes, PAGE_WORDS_AT + (base + half - 1) * 8) < key ? half : 0;
        count -= half;
    }
    return base + (page_word(bytes, PAGE_WORDS_AT + base * 8) < key);
}

static inline uint64_t page_words_key(const struct page_layout *layout, const uint8_t *bytes,
                                      uint32_t index)
{
    uint32_t last = page_words_capacity(layout) - 1;
    return page_word(bytes, PAGE_WORDS_AT + (index < last ? index : last) * 8);
}

static inline uint64_t page_words_value(const struct page_layout *layout, const uint8_t *bytes,
                                        uint32_t index)
{
    uint32_t capacity = page_words_capacity(layout);
    uint32_t at = index < capacity ? index : capacity - 1;
    return page_word(bytes, PAGE_WORDS_AT + (capacity + at) * 8);
}

static inline void page_words_prefetch(const struct page_layout *layout, const uint8_t *bytes,
                                       uint32_t index)
{
    uint32_t capacity = page_words_capacity(layout);
    uint32_t at = index < capacity ? index : capacity - 1;
    __builtin_prefetch(bytes + PAGE_WORDS_AT + (capacity + at) * 8, 1);
}

/* The child word on the way to a key. */
static inline uint64_t page_words_child(const struct page_layout *layout, const uint8_t *bytes,
                                        uint64_t key)
{
    uint32_t above =
        key == UINT64_MAX ? page_pairs(bytes) : page_words_below(layout, bytes, key + 1);
    return page_words_value(layout, bytes, above > 0 ? above - 1 : 0);
}

#endif
