/*
 * page_int.h - what the files of this folder share.
 */
#ifndef TREE_DEX_PAGE_PAGE_INT_H
#define TREE_DEX_PAGE_PAGE_INT_H

#include <string.h>

#include "tree/dex/page/page.h"

static inline uint32_t pad8(uint32_t size)
{
    return (size + 7) & ~(uint32_t)7;
}

/* Word i of a string that is padded with zeroes, as an integer that compares like its bytes. */
static inline uint64_t key_word(struct slice key, size_t at)
{
    uint64_t word = 0;
    if (at + 8 <= key.size)
        memcpy(&word, key.data + at, 8);
    else if (at < key.size)
        memcpy(&word, key.data + at, key.size - at);
    return __builtin_bswap64(word);
}

/* The words of PAGE_SHAPE and PAGE_PACKED, taken apart. */
struct page_shape {
    uint8_t level, flags;
    uint16_t pairs, low_size, high_size;
};

static inline struct page_shape shape_of(const uint8_t *bytes)
{
    uint64_t word = page_word(bytes, PAGE_SHAPE);
    return (struct page_shape){.level = (uint8_t)word,
                               .flags = (uint8_t)(word >> 8),
                               .pairs = (uint16_t)(word >> 16),
                               .low_size = (uint16_t)(word >> 32),
                               .high_size = (uint16_t)(word >> 48)};
}

static inline void shape_set(uint8_t *bytes, struct page_shape shape)
{
    page_word_set(bytes, PAGE_SHAPE,
                  (uint64_t)shape.high_size << 48 | (uint64_t)shape.low_size << 32 |
                      (uint64_t)shape.pairs << 16 | (uint64_t)shape.flags << 8 | shape.level);
}

static inline void pairs_set(uint8_t *bytes, uint32_t pairs)
{
    uint64_t word = page_word(bytes, PAGE_SHAPE) & ~((uint64_t)0xffff << 16);
    page_word_set(bytes, PAGE_SHAPE, word | (uint64_t)pairs << 16);
}

struct page_heap {
    uint16_t prefix, begin, garbage;
};

static inline struct page_heap heap_of(const uint8_t *bytes)
{
    uint64_t word = page_word(bytes, PAGE_PACKED);
    return (struct page_heap){(uint16_t)word, (uint16_t)(word >> 16), (uint16_t)(word >> 32)};
}

static inline void heap_set(uint8_t *bytes, struct page_heap heap)
{
    page_word_set(bytes, PAGE_PACKED,
                  (uint64_t)heap.garbage << 32 | (uint64_t)heap.begin << 16 | heap.prefix);
}

/* Whether a page of this level is one of words, and the bytes of its values. */
static inline bool is_words(const struct page_layout *layout, uint8_t level)
{
    return layout->key_size == 8 && (level > 0 || layout->value_size != 0);
}

static inline uint32_t value_words_bytes(const struct page_layout *layout, uint8_t level)
{
    return level > 0 ? 8 : pad8(layout->value_size);
}

enum { WORDS_AT = PAGE_FENCES + 16 };

static inline uint32_t words_capacity(const struct page_layout *layout, uint8_t level)
{
    return (layout->page_bytes - WORDS_AT) / (8 + value_words_bytes(layout, level));
}

static inline uint32_t words_values_at(const struct page_layout *layout, uint8_t level)
{
    return WORDS_AT + words_capacity(layout, level) * 8;
}

/* Where the slots of a packed page begin. */
static inline uint32_t slots_at(struct page_shape shape)
{
    return PAGE_FENCES + pad8(shape.low_size) + pad8(shape.high_size);
}

/* A slot of a packed page. */
struct page_slot {
    uint64_t head;
    uint32_t at, key_size, value_size;
    bool blob;
};

static inline struct page_slot slot_read(const uint8_t *bytes, uint32_t offset)
{
    uint64_t word = page_word(bytes, offset + 8);
    return (struct page_slot){
        .head = page_word(bytes, offset),
        .at = (uint16_t)word,
        .key_size = (uint16_t)(word >> 16),
        .value_size = (uint32_t)(word >> 32) & ~PAGE_VALUE_BLOB,
        .blob = (word >> 63) != 0,
    };
}

static inline void slot_write(uint8_t *bytes, uint32_t offset, const struct page_slot *slot)
{
    uint64_t sizes = (uint64_t)(slot->value_size | (slot->blob ? PAGE_VALUE_BLOB : 0)) << 32;
    page_word_set(bytes, offset, slot->head);
    page_word_set(bytes, offset + 8, sizes | (uint64_t)slot->key_size << 16 | slot->at);
}

/* Whether what a slot names lies inside the page: of a page that is just being changed it may not. */
static inline bool slot_inside(const struct page_layout *layout, const struct page_slot *slot)
{
    return slot->at % 8 == 0 && slot->at >= PAGE_FENCES &&
           (uint64_t)slot->at + pad8(slot->key_size) + pad8(slot->value_size) <= layout->page_bytes;
}

/* Copies words out of a page, and a string into one with zeroes behind it. */
void page_load(const uint8_t *bytes, uint32_t offset, void *to, size_t size);
void page_store(uint8_t *bytes, uint32_t offset, struct slice string);

#endif
