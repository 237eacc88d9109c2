/*
 * pairs.c - finding and changing the pairs of a page.
 */
#include "base/assert.h"
#include "tree/dex/page/page_int.h"

/* ---- searching ------------------------------------------------------------------------------- */

/* How many of the rising words are below (or, with `or_equal`, not above) this one. Without branches that
 * depend on them. */
static uint32_t words_below(const uint8_t *bytes, uint32_t at, uint32_t count, uint64_t word,
                            bool or_equal)
{
    uint32_t base = 0;
    if (count == 0)
        return 0;
    if (or_equal) {
        if (word == UINT64_MAX)
            return count;
        word++;
    }
    while (count > 1) {
        uint32_t half = count / 2;
        base += page_word(bytes, at + (base + half - 1) * 8) < word ? half : 0;
        count -= half;
    }
    return base + (page_word(bytes, at + base * 8) < word);
}

static uint32_t clamp(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

/* The key of a slot to a key that has the same head: negative when the key is below it. */
static int compare_slot(const struct page_layout *layout, const uint8_t *bytes,
                        const struct page_slot *slot, uint32_t from, struct slice key)
{
    size_t most = slot->key_size < key.size ? slot->key_size : key.size;
    if (!slot_inside(layout, slot))
        return 0;
    for (size_t i = from & ~(uint32_t)7; i < most; i += 8) {
        uint64_t mine = __builtin_bswap64(page_word(bytes, slot->at + (uint32_t)i));
        uint64_t word = key_word(key, i);
        if (mine != word)
            return word < mine ? -1 : 1;
    }
    return (key.size > slot->key_size) - (key.size < slot->key_size);
}

/* How many keys are below this one, and whether the next is it. */
static uint32_t packed_below(const struct page_layout *layout, const uint8_t *bytes,
                             struct page_shape shape, struct slice key, bool *equal)
{
    uint32_t at = slots_at(shape);
    uint32_t prefix = heap_of(bytes).prefix;
    uint64_t head = key_word(key, prefix);
    uint32_t low = 0, high = shape.pairs;

    *equal = false;
    if (at + high * PAGE_SLOT > layout->page_bytes)
        return 0; /* somebody is changing it */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t mine = page_word(bytes, at + middle * PAGE_SLOT);
        int order = head < mine ? -1 : head > mine;
        if (order == 0) {
            struct page_slot slot = slot_read(bytes, at + middle * PAGE_SLOT);
            order = compare_slot(layout, bytes, &slot, prefix, key);
        }
        if (order == 0) {
            *equal = true;
            return middle;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool page_find(const struct page_layout *layout, const uint8_t *bytes, struct slice key,
               uint32_t *index)
{
    struct page_shape shape = shape_of(bytes);
    bool equal;

    if (!is_words(layout, shape.level)) {
        *index = packed_below(layout, bytes, shape, key, &equal);
        return equal;
    }
    uint32_t count = clamp(shape.pairs, words_capacity(layout, shape.level));
    uint64_t word = key_word(key, 0);
    *index = words_below(bytes, WORDS_AT, count, word, key.size > 8);
    return key.size == 8 && *index < count && page_word(bytes, WORDS_AT + *index * 8) == word;
}

uint32_t page_child_index(const struct page_layout *layout, const uint8_t *bytes, struct slice key)
{
    struct page_shape shape = shape_of(bytes);
    bool equal;

    if (is_words(layout, shape.level)) {
        uint32_t count = clamp(shape.pairs, words_capacity(layout, shape.level));
        /* A bound that is shorter than keys is below those that it begins. */
        uint32_t above = words_below(bytes, WORDS_AT, count, key_word(key, 0), key.size >= 8);
        return above > 0 ? above - 1 : 0;
    }
    uint32_t below = packed_below(layout, bytes, shape, key, &equal);
    return equal || below == 0 ? below : below - 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static struct page_slot packed_slot(const struct page_layout *layout, const uint8_t *bytes,
                                    struct page_shape shape, uint32_t index)
{
    uint32_t at = slots_at(shape) + index * PAGE_SLOT;
    struct page_slot slot = {.at = PAGE_FENCES};
    if (at + PAGE_SLOT <= layout->page_bytes)
        slot = slot_read(bytes, at);
    if (!slot_inside(layout, &slot))
        slot = (struct page_slot){.at = PAGE_FENCES};
    return slot;
}

static uint32_t words_value_at(const struct page_layout *layout, uint8_t level, uint32_t index)
{
    uint32_t last = words_capacity(layout, level) - 1;
    return words_values_at(layout, level) + clamp(index, last) * value_words_bytes(layout, level);
}

static uint32_t child_at(const struct page_layout *layout, const uint8_t *bytes, uint32_t index)
{
    struct page_shape shape = shape_of(bytes);
    if (is_words(layout, shape.level))
        return words_value_at(layout, shape.level, index);
    struct page_slot slot = packed_slot(layout, bytes, shape, index);
    uint32_t at = slot.at + pad8(slot.key_size);
    return at + 8 <= layout->page_bytes ? at : PAGE_FENCES;
}

uint64_t page_child(const struct page_layout *layout, const uint8_t *bytes, uint32_t index)
{
    return page_word(bytes, child_at(layout, bytes, index));
}

void page_set_child(const struct page_layout *layout, uint8_t *bytes, uint32_t index,
                    uint64_t child)
{
    page_word_set(bytes, child_at(layout, bytes, index), child);
}

const uint8_t *page_child_place(const struct page_layout *layout, const uint8_t *bytes,
                                uint32_t index)
{
    return bytes + child_at(layout, bytes, index);
}

struct slice page_key(const struct page_layout *layout, const uint8_t *bytes, uint32_t index,
                      uint8_t to[PAGE_KEY_ROOM])
{
    struct page_shape shape = shape_of(bytes);
    if (is_words(layout, shape.level)) {
        uint32_t last = words_capacity(layout, shape.level) - 1;
        uint64_t word = __builtin_bswap64(page_word(bytes, WORDS_AT + clamp(index, last) * 8));
        memcpy(to, &word, sizeof(word));
        /* The lowest child of an inner page may have an empty key. */
        return slice_of(to, index == 0 && shape.level > 0 ? clamp(shape.low_size, 8) : 8);
    }
    struct page_slot slot = packed_slot(layout, bytes, shape, index);
    uint32_t size = clamp(slot.key_size, PAGE_KEY_ROOM);
    page_load(bytes, slot.at, to, size);
    return slice_of(to, size);
}

uint32_t page_value(const struct page_layout *layout, const uint8_t *bytes, uint32_t index,
                    void *to, size_t capacity, bool *blob)
{
    struct page_shape shape = shape_of(bytes);
    uint32_t at, size;

    *blob = false;
    if (is_words(layout, shape.level)) {
        at = words_value_at(layout, shape.level, index);
        size = shape.level > 0 ? 8 : layout->value_size;
    } else {
        struct page_slot slot = packed_slot(layout, bytes, shape, index);
        at = slot.at + pad8(slot.key_size);
        size = slot.value_size;
        *blob = slot.blob;
    }
    page_load(bytes, at, to, size < capacity ? size : capacity);
    return size;
}

void page_words(const struct page_layout *layout, const uint8_t *bytes, uint32_t index,
                uint64_t *key, uint64_t *value)
{
    *key = __builtin_bswap64(page_word(bytes, WORDS_AT + index * 8));
    *value = page_word(bytes, words_values_at(layout, 0) + index * 8);
}

/* ---- changing -------------------------------------------------------------------------------- */

/* Moves `count` items of `size` bytes each at `at` by one place, up or down. */
static void shift_up(uint8_t *bytes, uint32_t at, uint32_t count, uint32_t size)
{
    for (uint32_t i = count * size; i > 0; i -= 8)
        page_word_set(bytes, at + i - 8 + size, page_word(bytes, at + i - 8));
}

static void shift_down(uint8_t *bytes, uint32_t at, uint32_t count, uint32_t size)
{
    for (uint32_t i = 0; i < count * size; i += 8)
        page_word_set(bytes, at + i, page_word(bytes, at + i + size));
}

static bool words_insert(const struct page_layout *layout, uint8_t *bytes, struct page_shape shape,
                         uint32_t index, const struct page_pair *pair)
{
    uint32_t value_bytes = value_words_bytes(layout, shape.level);
    uint32_t values = words_values_at(layout, shape.level);
    uint32_t behind = shape.pairs - index;

    if (shape.pairs == words_capacity(layout, shape.level))
        return false;
    shift_up(bytes, WORDS_AT + index * 8, behind, 8);
    shift_up(bytes, values + index * value_bytes, behind, value_bytes);
    page_word_set(bytes, WORDS_AT + index * 8, key_word(pair->key, 0));
    page_store(bytes, values + index * value_bytes, pair->value);
    pairs_set(bytes, shape.pairs + 1u);
    return true;
}

static bool packed_insert(uint8_t *bytes, struct page_shape shape, uint32_t index,
                          const struct page_pair *pair)
{
    struct page_heap heap = heap_of(bytes);
    uint32_t at = slots_at(shape);
    uint32_t need = pad8((uint32_t)pair->key.size) + pad8((uint32_t)pair->value.size);
    struct page_slot slot = {.head = key_word(pair->key, heap.prefix),
                             .at = heap.begin - need,
                             .key_size = (uint32_t)pair->key.size,
                             .value_size = (uint32_t)pair->value.size,
                             .blob = pair->blob};

    if (at + (shape.pairs + 1u) * PAGE_SLOT + need > heap.begin)
        return false;
    heap.begin = (uint16_t)(heap.begin - need);
    page_store(bytes, slot.at, pair->key);
    page_store(bytes, slot.at + pad8(slot.key_size), pair->value);
    heap_set(bytes, heap);
    shift_up(bytes, at + index * PAGE_SLOT, shape.pairs - index, PAGE_SLOT);
    slot_write(bytes, at + index * PAGE_SLOT, &slot);
    pairs_set(bytes, shape.pairs + 1u);
    return true;
}

bool page_insert(const struct page_layout *layout, uint8_t *bytes, uint32_t index,
                 const struct page_pair *pair)
{
    struct page_shape shape = shape_of(bytes);
    pando_assert(index <= shape.pairs);
    return is_words(layout, shape.level) ? words_insert(layout, bytes, shape, index, pair)
                                         : packed_insert(bytes, shape, index, pair);
}

static void packed_remove(uint8_t *bytes, struct page_shape shape, uint32_t index)
{
    struct page_heap heap = heap_of(bytes);
    uint32_t at = slots_at(shape) + index * PAGE_SLOT;
    struct page_slot slot = slot_read(bytes, at);

    heap.garbage = (uint16_t)(heap.garbage + pad8(slot.key_size) + pad8(slot.value_size));
    heap_set(bytes, heap);
    shift_down(bytes, at, shape.pairs - index - 1, PAGE_SLOT);
    pairs_set(bytes, shape.pairs - 1u);
}

void page_remove(const struct page_layout *layout, uint8_t *bytes, uint32_t index)
{
    struct page_shape shape = shape_of(bytes);
    pando_assert(index < shape.pairs);
    if (!is_words(layout, shape.level)) {
        packed_remove(bytes, shape, index);
        return;
    }
    uint32_t value_bytes = value_words_bytes(layout, shape.level);
    uint32_t behind = shape.pairs - index - 1;
    shift_down(bytes, WORDS_AT + index * 8, behind, 8);
    shift_down(bytes, words_values_at(layout, shape.level) + index * value_bytes, behind,
               value_bytes);
    pairs_set(bytes, shape.pairs - 1u);
}

bool page_update(const struct page_layout *layout, uint8_t *bytes, uint32_t index,
                 const struct page_pair *pair)
{
    struct page_shape shape = shape_of(bytes);
    pando_assert(index < shape.pairs);
    if (is_words(layout, shape.level)) {
        page_store(bytes, words_value_at(layout, shape.level, index), pair->value);
        return true;
    }
    uint32_t at = slots_at(shape) + index * PAGE_SLOT;
    struct page_slot slot = slot_read(bytes, at);
    if (pad8((uint32_t)pair->value.size) <= pad8(slot.value_size)) {
        struct page_heap heap = heap_of(bytes);
        heap.garbage =
            (uint16_t)(heap.garbage + pad8(slot.value_size) - pad8((uint32_t)pair->value.size));
        heap_set(bytes, heap);
        page_store(bytes, slot.at + pad8(slot.key_size), pair->value);
        slot.value_size = (uint32_t)pair->value.size;
        slot.blob = pair->blob;
        slot_write(bytes, at, &slot);
        return true;
    }
    struct page_heap heap = heap_of(bytes);
    uint32_t need = pad8(slot.key_size) + pad8((uint32_t)pair->value.size);
    if (slots_at(shape) + (uint32_t)shape.pairs * PAGE_SLOT + need > heap.begin)
        return false;
    packed_remove(bytes, shape, index);
    shape.pairs--;
    return packed_insert(bytes, shape, index, pair);
}

/* ---- room ------------------------------------------------------------------------------------ */

static uint32_t pair_bytes(size_t key_size, size_t value_size)
{
    return PAGE_SLOT + pad8((uint32_t)key_size) + pad8((uint32_t)value_size);
}

uint32_t page_used(const struct page_layout *layout, const uint8_t *bytes)
{
    struct page_shape shape = shape_of(bytes);
    if (is_words(layout, shape.level))
        return shape.pairs * (8 + value_words_bytes(layout, shape.level));
    struct page_heap heap = heap_of(bytes);
    return (uint32_t)shape.pairs * PAGE_SLOT + layout->page_bytes - heap.begin - heap.garbage;
}

uint32_t page_space(const struct page_layout *layout, uint8_t level, size_t low_size,
                    size_t high_size)
{
    if (is_words(layout, level))
        return words_capacity(layout, level) * (8 + value_words_bytes(layout, level));
    return layout->page_bytes - PAGE_FENCES - pad8((uint32_t)low_size) - pad8((uint32_t)high_size);
}

bool page_room(const struct page_layout *layout, const uint8_t *bytes, uint32_t replaced,
               size_t key_size, size_t value_size)
{
    struct page_shape shape = shape_of(bytes);
    uint32_t space = page_space(layout, shape.level, shape.low_size, shape.high_size);
    uint32_t used = page_used(layout, bytes);

    if (is_words(layout, shape.level)) {
        uint32_t need = 8 + value_words_bytes(layout, shape.level);
        return replaced != UINT32_MAX || used + need <= space;
    }
    if (replaced != UINT32_MAX) {
        struct page_slot slot = slot_read(bytes, slots_at(shape) + replaced * PAGE_SLOT);
        used -= pair_bytes(slot.key_size, slot.value_size);
    }
    return used + pair_bytes(key_size, value_size) <= space;
}

bool page_push(const struct page_layout *layout, uint8_t *bytes, const struct page_pair *pair)
{
    return page_insert(layout, bytes, page_pairs(bytes), pair);
}

bool page_append(const struct page_layout *layout, uint8_t *bytes, const uint8_t *source,
                 uint32_t from, uint32_t to)
{
    struct page_shape shape = shape_of(source);
    bool words = is_words(layout, shape.level);
    uint32_t value_bytes = value_words_bytes(layout, shape.level);

    for (uint32_t i = from; i < to; i++) {
        struct page_pair pair = {0};
        uint64_t word;
        if (words) {
            word = __builtin_bswap64(page_word(source, WORDS_AT + i * 8));
            pair.key = slice_of(&word, 8);
            pair.value = slice_of(source + words_values_at(layout, shape.level) + i * value_bytes,
                                  value_bytes);
        } else {
            struct page_slot slot = slot_read(source, slots_at(shape) + i * PAGE_SLOT);
            pair.key = slice_of(source + slot.at, slot.key_size);
            pair.value = slice_of(source + slot.at + pad8(slot.key_size), slot.value_size);
            pair.blob = slot.blob;
        }
        if (!page_push(layout, bytes, &pair))
            return false;
    }
    return true;
}

void page_compact(const struct page_layout *layout, uint8_t *bytes, uint8_t *scratch)
{
    struct page_shape shape = shape_of(bytes);
    struct page_heap heap = heap_of(bytes);

    if (is_words(layout, shape.level))
        return;
    page_copy(scratch, bytes, layout->page_bytes);
    pairs_set(bytes, 0);
    heap.begin = (uint16_t)layout->page_bytes;
    heap.garbage = 0;
    heap_set(bytes, heap);
    bool fits = page_append(layout, bytes, scratch, 0, shape.pairs);
    pando_assert(fits);
}

void page_put(const struct page_layout *layout, uint8_t *bytes, uint32_t index, bool found,
              const struct page_pair *pair, uint8_t *scratch)
{
    if (found && page_update(layout, bytes, index, pair))
        return;
    if (found)
        page_remove(layout, bytes, index);
    if (page_insert(layout, bytes, index, pair))
        return;
    page_compact(layout, bytes, scratch);
    bool fits = page_insert(layout, bytes, index, pair);
    pando_assert(fits);
}

uint32_t page_split_point(const struct page_layout *layout, const uint8_t *bytes)
{
    struct page_shape shape = shape_of(bytes);
    uint32_t half = page_used(layout, bytes) / 2, sum = 0;

    pando_assert(shape.pairs >= 2);
    if (is_words(layout, shape.level))
        return shape.pairs / 2;
    for (uint32_t i = 0; i < shape.pairs - 1u; i++) {
        struct page_slot slot = slot_read(bytes, slots_at(shape) + i * PAGE_SLOT);
        sum += pair_bytes(slot.key_size, slot.value_size);
        if (sum >= half)
            return i + 1;
    }
    return shape.pairs - 1u;
}
