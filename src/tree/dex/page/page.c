/*
 * page.c - whole pages: making, checking, fences.
 */
#include "base/assert.h"
#include "pool/cell.h"
#include "tree/dex/page/page_int.h"

void page_copy(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 8)
        page_word_set(to, i, page_word(from, i));
}

void page_load(const uint8_t *bytes, uint32_t offset, void *to, size_t size)
{
    uint8_t *out = to;
    size_t whole = size & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word = page_word(bytes, offset + (uint32_t)i);
        memcpy(out + i, &word, 8);
    }
    if (size > whole) {
        uint64_t word = page_word(bytes, offset + (uint32_t)whole);
        memcpy(out + whole, &word, size - whole);
    }
}

void page_store(uint8_t *bytes, uint32_t offset, struct slice string)
{
    for (size_t i = 0; i < string.size; i += 8)
        page_word_set(bytes, offset + (uint32_t)i, __builtin_bswap64(key_word(string, i)));
}

enum { PAIRS_MIN = 4 };

uint32_t page_value_most(uint32_t page_bytes, uint32_t key_max)
{
    uint32_t key = pad8(key_max), fixed = PAGE_FENCES + 2 * key;
    uint32_t pair = page_bytes > fixed ? (page_bytes - fixed) / PAIRS_MIN : 0;
    return pair > PAGE_SLOT + key ? (pair - PAGE_SLOT - key) / 8 * 8 : 0;
}

enum pando_status page_layout_check(const struct page_layout *layout)
{
    uint32_t value = layout->value_max > 8 ? pad8(layout->value_max) : 8;
    uint32_t pair = PAGE_SLOT + pad8(layout->key_max) + value;
    uint32_t least = PAGE_FENCES + 2 * pad8(layout->key_max) + PAIRS_MIN * pair;
    if (layout->page_bytes < PAGE_BYTES_MIN || layout->page_bytes > PAGE_BYTES_MAX ||
        layout->page_bytes % 64 != 0 || layout->key_max > PAGE_KEY_ROOM)
        return PANDO_INVALID;
    return layout->page_bytes < least ? PANDO_INVALID : PANDO_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static uint16_t common_prefix(const struct page_header *header)
{
    size_t most = header->low.size < header->high.size ? header->low.size : header->high.size;
    size_t same = 0;
    if (header->no_high)
        return 0;
    while (same < most && header->low.data[same] == header->high.data[same])
        same++;
    return (uint16_t)same;
}

void page_init(const struct page_layout *layout, const struct page_header *header, uint8_t *bytes)
{
    struct page_shape shape = {.level = header->level,
                               .flags = header->no_high ? PAGE_NO_HIGH : 0,
                               .low_size = (uint16_t)header->low.size,
                               .high_size = header->no_high ? 0 : (uint16_t)header->high.size};
    struct page_heap heap = {.prefix = common_prefix(header),
                             .begin = (uint16_t)layout->page_bytes};
    bool words = is_words(layout, header->level);

    for (uint32_t i = 0; i < layout->page_bytes; i += 8)
        page_word_set(bytes, i, 0);
    page_word_set(bytes, POOL_BLOCK_ADDRESS, header->address);
    page_word_set(bytes, POOL_BLOCK_VERSION, header->version);
    page_word_set(bytes, POOL_BLOCK_TENURE, header->tenure);
    page_word_set(bytes, PAGE_SIBLING, header->sibling);
    page_set_stamp(bytes, header->stamp);
    shape_set(bytes, shape);
    heap_set(bytes, words ? (struct page_heap){0} : heap);
    page_store(bytes, PAGE_FENCES, header->low);
    if (!header->no_high)
        page_store(bytes, PAGE_FENCES + (words ? 8 : pad8(shape.low_size)), header->high);
}

static struct cell_place place_of(const struct page_layout *layout, fabric_address address)
{
    return (struct cell_place){
        .pool = layout->pool, .table = layout->table, .kind = PAGE_KIND, .address = address};
}

void page_seal(const struct page_layout *layout, uint8_t *bytes)
{
    struct cell_place place = place_of(layout, page_address(bytes));
    page_word_set(bytes, 0,
                  cell_header(&place, (uint16_t)page_version(bytes), 0, bytes + CELL_HEADER,
                              layout->page_bytes - CELL_HEADER));
}

void page_set_dead(uint8_t *bytes, uint64_t tenure)
{
    page_word_set(bytes, PAGE_SHAPE, page_word(bytes, PAGE_SHAPE) | (uint64_t)PAGE_DEAD << 8);
    page_word_set(bytes, POOL_BLOCK_TENURE, tenure);
}

/* ---- checking -------------------------------------------------------------------------------- */

static bool packed_sound(const struct page_layout *layout, const uint8_t *bytes,
                         struct page_shape shape)
{
    struct page_heap heap = heap_of(bytes);
    uint32_t at = slots_at(shape);
    uint32_t end = at + (uint32_t)shape.pairs * PAGE_SLOT;
    uint32_t named = heap.garbage;

    if (end > layout->page_bytes || heap.begin < end || heap.begin > layout->page_bytes ||
        heap.begin % 8 != 0 || heap.prefix > shape.low_size)
        return false;
    for (; at < end; at += PAGE_SLOT) {
        struct page_slot slot = slot_read(bytes, at);
        if (!slot_inside(layout, &slot) || slot.at < heap.begin ||
            slot.key_size > layout->key_max || (slot.blob && slot.value_size != 8))
            return false;
        if (shape.level > 0 && (slot.value_size != 8 || slot.blob))
            return false;
        named += pad8(slot.key_size) + pad8(slot.value_size);
    }
    /* Pairs that share bytes would not fit when they are put apart. */
    return named == layout->page_bytes - heap.begin;
}

static bool sound(const struct page_layout *layout, const uint8_t *bytes)
{
    struct page_shape shape = shape_of(bytes);
    if (shape.low_size > layout->key_max || shape.high_size > layout->key_max)
        return false;
    if (is_words(layout, shape.level))
        return shape.pairs <= words_capacity(layout, shape.level) && shape.low_size <= 8 &&
               shape.high_size <= 8;
    return packed_sound(layout, bytes, shape);
}

bool page_check(const struct page_layout *layout, fabric_address address, const uint8_t *bytes)
{
    struct cell_place place = place_of(layout, address);
    if (page_address(bytes) != address ||
        cell_payload_bytes(page_word(bytes, 0)) != layout->page_bytes - CELL_HEADER)
        return false;
    if (!layout->unchecked && !cell_valid(&place, bytes, layout->page_bytes))
        return false;
    return sound(layout, bytes);
}

/* ---- fences ---------------------------------------------------------------------------------- */

static struct slice load_fence(const uint8_t *bytes, uint32_t at, uint32_t size,
                               uint8_t to[PAGE_KEY_ROOM])
{
    if (size > PAGE_KEY_ROOM)
        size = 0; /* somebody is changing it */
    page_load(bytes, at, to, size);
    return slice_of(to, size);
}

struct slice page_low(const uint8_t *bytes, uint8_t to[PAGE_KEY_ROOM])
{
    return load_fence(bytes, PAGE_FENCES, shape_of(bytes).low_size, to);
}

/* Pages of words give an empty low fence 8 bytes too: told by a heap that does not exist. */
static uint32_t high_at(const uint8_t *bytes, struct page_shape shape)
{
    return PAGE_FENCES + (heap_of(bytes).begin == 0 ? 8 : pad8(shape.low_size));
}

bool page_high(const uint8_t *bytes, uint8_t to[PAGE_KEY_ROOM], struct slice *high)
{
    struct page_shape shape = shape_of(bytes);
    *high = load_fence(bytes, high_at(bytes, shape), shape.high_size, to);
    return (shape.flags & PAGE_NO_HIGH) == 0;
}

/* A fence of `size` bytes at an offset to a key: negative when the key is below it. */
static int compare_at(const uint8_t *bytes, uint32_t at, uint32_t size, struct slice key)
{
    size_t most = size < key.size ? size : key.size;
    if (size > PAGE_KEY_ROOM)
        return 0;
    for (size_t i = 0; i < most; i += 8) {
        uint64_t mine = __builtin_bswap64(page_word(bytes, at + (uint32_t)i));
        uint64_t word = key_word(key, i);
        if (mine != word)
            return word < mine ? -1 : 1;
    }
    return (key.size > size) - (key.size < size);
}

int page_side(const uint8_t *bytes, struct slice key)
{
    struct page_shape shape = shape_of(bytes);
    if (shape.low_size > 0 && compare_at(bytes, PAGE_FENCES, shape.low_size, key) < 0)
        return -1;
    if ((shape.flags & PAGE_NO_HIGH) != 0)
        return 0;
    return compare_at(bytes, high_at(bytes, shape), shape.high_size, key) >= 0 ? 1 : 0;
}
