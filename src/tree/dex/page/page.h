/*
 * page.h - sorted nodes of a tree as bytes: one cell each, keys in order. Bytes in, bytes out, no
 * I/O, no allocation. Formats in page_fmt.h.
 *
 * A page lies in a cache's frame, where one writer at a time changes it in place while others may be
 * reading: they find out afterwards that what they read was no page (tree/dex/cache/frame.h) and until then
 * must not be led out of it. So every access here is to whole words, atomic and relaxed, and readers
 * keep to the page whatever the bytes say. Bytes that came from remote memory are checked once, by
 * page_check.
 */
#ifndef TREE_DEX_PAGE_PAGE_H
#define TREE_DEX_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "fabric/fabric.h"
#include "pando/pando.h"
#include "tree/dex/page/page_fmt.h"

enum {
    PAGE_BYTES_MIN = 256,
    PAGE_BYTES_MAX = 32 * 1024,
    PAGE_PAIRS_MAX = PAGE_BYTES_MAX / 16,
};

struct page_layout {
    uint64_t pool;
    uint16_t table;
    uint32_t page_bytes; /* a multiple of 64 */
    uint32_t key_size;   /* 0: variable */
    uint32_t value_size; /* of all values in leaves; 0: variable */
    uint32_t key_max, value_max;
    bool unchecked; /* test only: believes pages, to show that a checker notices */
};

/* INVALID when a leaf or an inner page would not hold at least four of the largest pairs. */
PANDO_MUST_CHECK enum pando_status page_layout_check(const struct page_layout *layout);

/* The longest values of which that many fit, with keys of that size; 0: not even addresses do. */
uint32_t page_value_most(uint32_t page_bytes, uint32_t key_max);

/* ---- words ----------------------------------------------------------------------------------- */

static inline uint64_t page_word(const uint8_t *bytes, uint32_t offset)
{
    return __atomic_load_n((const uint64_t *)(const void *)(bytes + offset), __ATOMIC_RELAXED);
}

static inline void page_word_set(uint8_t *bytes, uint32_t offset, uint64_t word)
{
    __atomic_store_n((uint64_t *)(void *)(bytes + offset), word, __ATOMIC_RELAXED);
}

/* All of a page from or to private memory. */
void page_copy(uint8_t *to, const uint8_t *from, uint32_t bytes);

static inline uint8_t page_level(const uint8_t *bytes)
{
    return (uint8_t)page_word(bytes, PAGE_SHAPE);
}

static inline uint32_t page_pairs(const uint8_t *bytes)
{
    return (uint32_t)(page_word(bytes, PAGE_SHAPE) >> 16 & 0xffff);
}

static inline bool page_dead(const uint8_t *bytes)
{
    return (page_word(bytes, PAGE_SHAPE) >> 8 & PAGE_DEAD) != 0;
}

static inline bool page_no_high(const uint8_t *bytes)
{
    return (page_word(bytes, PAGE_SHAPE) >> 8 & PAGE_NO_HIGH) != 0;
}

static inline fabric_address page_sibling(const uint8_t *bytes)
{
    return page_word(bytes, PAGE_SIBLING);
}

static inline fabric_address page_address(const uint8_t *bytes)
{
    return page_word(bytes, POOL_BLOCK_ADDRESS);
}

static inline uint64_t page_version(const uint8_t *bytes)
{
    return page_word(bytes, POOL_BLOCK_VERSION);
}

struct page_stamp {
    uint64_t epoch, lsn;
};

static inline struct page_stamp page_stamp(const uint8_t *bytes)
{
    return (struct page_stamp){page_word(bytes, PAGE_EPOCH), page_word(bytes, PAGE_LSN)};
}

static inline bool page_stamp_below(struct page_stamp a, struct page_stamp b)
{
    return a.epoch != b.epoch ? a.epoch < b.epoch : a.lsn < b.lsn;
}

static inline void page_set_stamp(uint8_t *bytes, struct page_stamp stamp)
{
    page_word_set(bytes, PAGE_EPOCH, stamp.epoch);
    page_word_set(bytes, PAGE_LSN, stamp.lsn);
}

static inline void page_set_version(uint8_t *bytes, uint64_t version)
{
    page_word_set(bytes, POOL_BLOCK_VERSION, version);
}

static inline void page_set_sibling(uint8_t *bytes, fabric_address sibling)
{
    page_word_set(bytes, PAGE_SIBLING, sibling);
}

/* ---- whole pages ----------------------------------------------------------------------------- */

struct page_header {
    fabric_address address;
    uint64_t version;
    uint64_t tenure; /* as in pool/block_fmt.h */
    fabric_address sibling;
    struct page_stamp stamp;
    uint8_t level;
    bool no_high;
    struct slice low, high; /* not in the page that is made */
};

/* An empty page. */
void page_init(const struct page_layout *layout, const struct page_header *header, uint8_t *bytes);

/* Makes it valid as it is now: the last thing before it is sent. In private memory. */
void page_seal(const struct page_layout *layout, uint8_t *bytes);

/* Whether these are the bytes of a page of this table that was read from there: whole, and sound. */
bool page_check(const struct page_layout *layout, fabric_address address, const uint8_t *bytes);

/* Marks it as merged away. */
void page_set_dead(uint8_t *bytes, uint64_t tenure);

/* The fences; up to PAGE_KEY_ROOM bytes are copied to `to`. page_high: false when there is none. */
enum { PAGE_KEY_ROOM = 1024 };
struct slice page_low(const uint8_t *bytes, uint8_t to[PAGE_KEY_ROOM]);
bool page_high(const uint8_t *bytes, uint8_t to[PAGE_KEY_ROOM], struct slice *high);

/* Negative: below the low fence; positive: at or above the high one; 0: between them. */
int page_side(const uint8_t *bytes, struct slice key);

/* ---- pairs ----------------------------------------------------------------------------------- */

/* For all of these the key lies between the fences, and index is below page_pairs. */

/* Where the key is or would be; whether it is there. */
bool page_find(const struct page_layout *layout, const uint8_t *bytes, struct slice key,
               uint32_t *index);

/* Of an inner page: which child has the key. */
uint32_t page_child_index(const struct page_layout *layout, const uint8_t *bytes, struct slice key);
uint64_t page_child(const struct page_layout *layout, const uint8_t *bytes, uint32_t index);
void page_set_child(const struct page_layout *layout, uint8_t *bytes, uint32_t index,
                    uint64_t child);

/* For prefetching: where a value or child of that index lies, about. */
const uint8_t *page_child_place(const struct page_layout *layout, const uint8_t *bytes,
                                uint32_t index);

struct slice page_key(const struct page_layout *layout, const uint8_t *bytes, uint32_t index,
                      uint8_t to[PAGE_KEY_ROOM]);

/* Copies up to `capacity` bytes (rounded up to 8 in `to`, which has room for that) and tells the whole size. A
 * blob's address is a value of 8 bytes with *blob set. */
uint32_t page_value(const struct page_layout *layout, const uint8_t *bytes, uint32_t index,
                    void *to, size_t capacity, bool *blob);

/* Key and value of pair `index`, both of 8 bytes, as they are in memory. */
void page_words(const struct page_layout *layout, const uint8_t *bytes, uint32_t index,
                uint64_t *key, uint64_t *value);

/* ---- changes: one writer ----------------------------------------------------------------------- */

/* What a pair is. */
struct page_pair {
    struct slice key;
    struct slice value;
    bool blob;
};

/* False: there is no room as it lies. If page_room says that there is, page_compact makes it. */
bool page_insert(const struct page_layout *layout, uint8_t *bytes, uint32_t index,
                 const struct page_pair *pair);
bool page_update(const struct page_layout *layout, uint8_t *bytes, uint32_t index,
                 const struct page_pair *pair);
void page_remove(const struct page_layout *layout, uint8_t *bytes, uint32_t index);

/* Whether a pair of these sizes fits when all that is not used is put together, and pair `replaced`
 * (UINT32_MAX: none) is gone. */
bool page_room(const struct page_layout *layout, const uint8_t *bytes, uint32_t replaced,
               size_t key_size, size_t value_size);

/* `scratch` has a page's size. */
void page_compact(const struct page_layout *layout, uint8_t *bytes, uint8_t *scratch);

/* Puts a pair to where page_find says, in the place of what is there if `found`; page_room said that there
 * is room. `scratch` has a page's size. */
void page_put(const struct page_layout *layout, uint8_t *bytes, uint32_t index, bool found,
              const struct page_pair *pair, uint8_t *scratch);

/* Appends pairs from .. to-1 of another page of the same level. False: they do not fit. */
bool page_append(const struct page_layout *layout, uint8_t *bytes, const uint8_t *source,
                 uint32_t from, uint32_t to);

/* Appends one pair at the end, whose key is above all. */
bool page_push(const struct page_layout *layout, uint8_t *bytes, const struct page_pair *pair);

/* Bytes that pairs take, and that a page of that level with those fences has for them. */
uint32_t page_used(const struct page_layout *layout, const uint8_t *bytes);
uint32_t page_space(const struct page_layout *layout, uint8_t level, size_t low_size,
                    size_t high_size);

/* How many of at least two pairs stay in the left one of two halves of about the same size. */
uint32_t page_split_point(const struct page_layout *layout, const uint8_t *bytes);

/* ---- pages of words -------------------------------------------------------------------------- */

/* Pages of words whose values are words, too (8-byte keys and values, and all inner pages of tables with
 * 8-byte keys): the few things that a fast path asks of them, inline. What is true of the functions above
 * is true here: whole words, relaxed, never outside of the page. */

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
