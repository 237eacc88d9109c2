/*
 * Reading leaves and writing single cells. Nothing here believes a byte of the leaf: sizes are
 * checked before they are used, and a pair counts only if its cell is whole.
 */
#include "base/assert.h"
#include "tree/blink/node/node_int.h"
#include "tree/blink/node/search.h"

/* ---- cells -------------------------------------------------------------------------------------
 */

enum leaf_cell leaf_cell_at(const struct node_layout *layout, const uint8_t *bytes, uint32_t offset,
                            uint32_t *cell_bytes)
{
    const uint32_t least = layout->fixed ? layout->slot_bytes : (uint32_t)CELL_HEADER;
    if (layout->node_bytes - offset < least)
        return LEAF_CELL_END;

    uint64_t word = load_u64(bytes + offset);
    bool empty = (cell_flags(word) & NODE_SLOT_FLAG_EMPTY) != 0;
    uint32_t size = CELL_HEADER + (uint32_t)cell_payload_bytes(word);
    *cell_bytes = size;
    if (layout->fixed) {
        *cell_bytes = layout->slot_bytes;
        if (size != layout->slot_bytes)
            return LEAF_CELL_BROKEN;
    } else if (size == CELL_HEADER) {
        return empty ? LEAF_CELL_END : LEAF_CELL_BROKEN;
    } else if (size > layout->node_bytes - offset) {
        return LEAF_CELL_BROKEN;
    }
    return empty ? LEAF_CELL_EMPTY : LEAF_CELL_PAIR;
}

static inline void fixed_entry(const struct node_layout *layout, const uint8_t *cell,
                               struct node_entry *entry)
{
    *entry = (struct node_entry){
        .key = slice_of(cell + NODE_SLOT_KEY, layout->key_size),
        .value = slice_of(cell + NODE_SLOT_KEY + pad8(layout->key_size), layout->value_size),
        .flags = cell_flags(load_u64(cell)),
    };
}

bool leaf_cell_entry(const struct node_layout *layout, const uint8_t *bytes, uint32_t offset,
                     uint32_t cell_bytes, struct node_entry *entry)
{
    const uint8_t *cell = bytes + offset;
    if (layout->fixed) {
        fixed_entry(layout, cell, entry);
        return true;
    }
    uint32_t key_size = load_u16(cell + NODE_PACKED_SIZES);
    uint32_t value_size = load_u32(cell + NODE_PACKED_SIZES + 4);
    uint32_t room = cell_bytes - NODE_PACKED_KEY;
    if (pad8(key_size) > room || value_size > room - pad8(key_size) ||
        load_u16(cell + NODE_PACKED_SIZES + 2) != 0 ||
        (layout->key_size != 0 && key_size != layout->key_size) ||
        (layout->value_size != 0 && value_size != layout->value_size))
        return false;
    *entry = (struct node_entry){
        .key = slice_of(cell + NODE_PACKED_KEY, key_size),
        .value = slice_of(cell + NODE_PACKED_KEY + pad8(key_size), value_size),
        .flags = cell_flags(load_u64(cell)),
    };
    return true;
}

bool leaf_cell_valid(const struct node_layout *layout, const struct node_header *header,
                     const uint8_t *bytes, uint32_t offset, uint32_t cell_bytes)
{
    struct cell_place place = node_place(layout, NODE_KIND_SLOT, header->address + offset);
    return layout->unchecked ||
           (cell_version(load_u64(bytes + offset)) == (uint16_t)header->version &&
            cell_valid(&place, bytes + offset, cell_bytes));
}

uint32_t leaf_cell_bytes(const struct node_layout *layout, uint32_t key_size, uint32_t value_size)
{
    return layout->fixed ? layout->slot_bytes : NODE_PACKED_KEY + pad8(key_size) + pad8(value_size);
}

uint64_t leaf_cleared_word(const struct node_layout *layout, const struct node_header *header,
                           uint32_t cell_bytes)
{
    uint64_t words = (cell_bytes - CELL_HEADER) / 8;
    struct cell_place place = node_place(layout, NODE_KIND_EMPTY, header->address);
    uint64_t check =
        cell_header(&place, (uint16_t)header->version, NODE_SLOT_FLAG_EMPTY, &words, sizeof(words));

    pando_assert(cell_bytes >= CELL_HEADER && words <= CELL_PAYLOAD_WORDS_MAX);
    return (uint32_t)check | (uint64_t)(uint16_t)header->version << 32 | words << 48 |
           (uint64_t)NODE_SLOT_FLAG_EMPTY << 60;
}

void leaf_cell_build(const struct node_layout *layout, const struct node_header *header,
                     uint32_t offset, uint32_t cell_bytes, const struct node_entry *entry,
                     uint8_t *out)
{
    uint32_t key_size = (uint32_t)entry->key.size, value_size = (uint32_t)entry->value.size;
    uint32_t key_at = layout->fixed ? (uint32_t)NODE_SLOT_KEY : (uint32_t)NODE_PACKED_KEY;
    uint32_t value_at = key_at + pad8(key_size);
    struct cell_place place = node_place(layout, NODE_KIND_SLOT, header->address + offset);

    pando_assert(cell_bytes >= leaf_cell_bytes(layout, key_size, value_size) &&
                 cell_bytes <= layout->node_bytes - offset &&
                 (layout->key_size == 0 || key_size == layout->key_size) &&
                 (layout->value_size == 0 || value_size == layout->value_size) &&
                 entry->flags < NODE_SLOT_FLAG_EMPTY);
    if (!layout->fixed) {
        store_u32(out + NODE_PACKED_SIZES, key_size);
        store_u32(out + NODE_PACKED_SIZES + 4, value_size);
    }
    store_padded(out + key_at, entry->key, value_at - key_at);
    store_padded(out + value_at, entry->value, cell_bytes - value_at);
    store_u64(out, cell_header(&place, (uint16_t)header->version, entry->flags, out + CELL_HEADER,
                               cell_bytes - CELL_HEADER));
}

bool leaf_one_word(const uint8_t *from, const uint8_t *to, uint32_t cell_bytes)
{
    uint32_t changed = 0;
    for (uint32_t at = CELL_HEADER; at < cell_bytes; at += 8)
        changed += load_u64(from + at) != load_u64(to + at);
    return changed <= 1 && load_u64(from) >> 32 == load_u64(to) >> 32;
}

/* ---- checking a whole leaf ------------------------------------------------------------------- */

/* The word of an empty cell, kept as long as the sizes are the same: of fixed slots, for a whole
 * leaf. */
struct empty_check {
    uint32_t cell_bytes; /* 0: none yet */
    uint64_t word;
};

static inline bool empty_valid(const struct node_layout *layout, const struct node_header *header,
                               struct empty_check *check, uint32_t cell_bytes, uint64_t word)
{
    if (check->cell_bytes != cell_bytes) {
        check->cell_bytes = cell_bytes;
        check->word = leaf_cleared_word(layout, header, cell_bytes);
    }
    return word == check->word;
}

bool leaf_end_valid(const struct node_layout *layout, const struct node_header *header,
                    const uint8_t *bytes, uint32_t offset)
{
    return layout->fixed || offset == layout->node_bytes ||
           load_u64(bytes + offset) == leaf_end_word(layout, header);
}

static inline bool leaf_cell_whole(const struct node_layout *layout,
                                   const struct node_header *header, const uint8_t *bytes,
                                   uint32_t offset, uint32_t cell_bytes, enum leaf_cell cell,
                                   struct empty_check *check)
{
    if (cell == LEAF_CELL_PAIR)
        return leaf_cell_valid(layout, header, bytes, offset, cell_bytes);
    return cell == LEAF_CELL_EMPTY &&
           empty_valid(layout, header, check, cell_bytes, load_u64(bytes + offset));
}

bool leaf_cell_sound(const struct node_layout *layout, const struct node_header *header,
                     const uint8_t *bytes, uint32_t offset, uint32_t cell_bytes,
                     enum leaf_cell cell)
{
    struct empty_check check = {0};
    struct node_entry entry;
    return leaf_cell_whole(layout, header, bytes, offset, cell_bytes, cell, &check) &&
           (cell != LEAF_CELL_PAIR || leaf_cell_entry(layout, bytes, offset, cell_bytes, &entry));
}

/* Whether every cell, empty or not, is whole and of the header's version, and its sizes fit. */
static bool leaf_whole(const struct node_layout *layout, const struct node_header *header,
                       const uint8_t *bytes)
{
    struct empty_check check = {0};
    struct node_entry entry;
    uint32_t offset = leaf_first(layout, header), cell_bytes = 0;
    enum leaf_cell cell;

    if (layout->unchecked)
        return true;
    while ((cell = leaf_cell_at(layout, bytes, offset, &cell_bytes)) != LEAF_CELL_END) {
        if (!leaf_cell_whole(layout, header, bytes, offset, cell_bytes, cell, &check) ||
            (cell == LEAF_CELL_PAIR && !leaf_cell_entry(layout, bytes, offset, cell_bytes, &entry)))
            return false;
        offset += cell_bytes;
    }
    return leaf_end_valid(layout, header, bytes, offset);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The slots with the key's 8 bytes that are not empty: there is at most one, unless they are torn.
 * A slot that was cleared keeps its key, so all matches count until one is not empty. */
static enum leaf_find find_u64(const struct node_layout *layout, const struct node_header *header,
                               const uint8_t *bytes, struct slice key, struct leaf_slot *slot)
{
    const uint64_t key_word = load_u64(key.data);
    const uint32_t size = layout->slot_bytes;

    for (uint32_t first = 0; first < layout->slot_count; first += SEARCH_SLOTS_MAX) {
        uint32_t rest = layout->slot_count - first, base = layout->slots_at + first * size;
        uint32_t count = rest < SEARCH_SLOTS_MAX ? rest : SEARCH_SLOTS_MAX;
        uint64_t found = search_slots(bytes + base, size, count, key_word);
        for (; found != 0; found &= found - 1) {
            uint32_t offset = base + (uint32_t)__builtin_ctzll(found) * size;
            if (cell_flags(load_u64(bytes + offset)) & NODE_SLOT_FLAG_EMPTY)
                continue;
            if (cell_payload_bytes(load_u64(bytes + offset)) != size - CELL_HEADER ||
                !leaf_cell_valid(layout, header, bytes, offset, size))
                return LEAF_TORN;
            *slot = (struct leaf_slot){.offset = offset, .bytes = size};
            fixed_entry(layout, bytes + offset, &slot->entry);
            return LEAF_FOUND;
        }
    }
    return LEAF_ABSENT;
}

/* Keys of one leaf begin alike and end differently: most that are not it are told by their size or their
 * last word. What is said of a cell that is torn does not matter. */
static inline bool packed_may_have(const uint8_t *cell, uint32_t cell_bytes, struct slice key,
                                   uint64_t last_word)
{
    return load_u16(cell + NODE_PACKED_SIZES) == key.size &&
           (key.size < sizeof(last_word) || key.size > cell_bytes - NODE_PACKED_KEY ||
            load_u64(cell + NODE_PACKED_KEY + key.size - sizeof(last_word)) == last_word);
}

/* LEAF_ABSENT here says only that no cell has the key. */
static enum leaf_find find_any(const struct node_layout *layout, const struct node_header *header,
                               const uint8_t *bytes, struct slice key, struct leaf_slot *slot)
{
    struct node_entry entry;
    uint32_t offset = leaf_first(layout, header), cell_bytes = 0;
    uint64_t last_word = 0;

    if (key.size >= sizeof(last_word))
        last_word = load_u64((const uint8_t *)key.data + key.size - sizeof(last_word));
    for (;; offset += cell_bytes) {
        enum leaf_cell cell = leaf_cell_at(layout, bytes, offset, &cell_bytes);
        if (cell == LEAF_CELL_EMPTY)
            continue;
        if (cell == LEAF_CELL_END)
            return LEAF_ABSENT;
        if (cell == LEAF_CELL_PAIR && !layout->fixed &&
            !packed_may_have(bytes + offset, cell_bytes, key, last_word))
            continue;
        if (cell == LEAF_CELL_BROKEN || !leaf_cell_entry(layout, bytes, offset, cell_bytes, &entry))
            return LEAF_TORN;
        if (!slice_equal(entry.key, key))
            continue;
        if (!leaf_cell_valid(layout, header, bytes, offset, cell_bytes))
            return LEAF_TORN;
        *slot = (struct leaf_slot){.offset = offset, .bytes = cell_bytes, .entry = entry};
        return LEAF_FOUND;
    }
}

enum leaf_find leaf_find(const struct node_layout *layout, const struct node_header *header,
                         const uint8_t *bytes, struct slice key, struct leaf_slot *slot)
{
    pando_assert(header->level == 0 && (layout->key_size == 0 || key.size == layout->key_size));
    enum leaf_find found = layout->fixed && layout->key_size == 8
                               ? find_u64(layout, header, bytes, key, slot)
                               : find_any(layout, header, bytes, key, slot);
    if (found == LEAF_ABSENT && !leaf_whole(layout, header, bytes))
        return LEAF_TORN;
    return found;
}

/* ---- a place for a new pair ------------------------------------------------------------------ */

/*
 * At the tail of a packed leaf a cell must be followed by the word that ends it. That word is there
 * since the leaf was built, unless a writer died between the payload and the header word of a
 * longer cell. Then the new cell is made long enough to cover what it left.
 */
static bool place_at_tail(const struct node_layout *layout, const struct node_header *header,
                          const uint8_t *bytes, uint32_t offset, uint32_t need,
                          uint32_t *cell_bytes)
{
    const uint64_t end = leaf_end_word(layout, header);
    uint32_t next = offset + need;

    if (need > layout->node_bytes - offset)
        return false;
    while (next < layout->node_bytes && load_u64(bytes + next) != end)
        next += 8;
    *cell_bytes = next - offset;
    return true;
}

/* The smallest empty cell that holds it, else the tail. */
bool leaf_place(const struct node_layout *layout, const struct node_header *header,
                const uint8_t *bytes, uint32_t key_size, uint32_t value_size, uint32_t *offset,
                uint32_t *cell_bytes)
{
    const uint32_t need = leaf_cell_bytes(layout, key_size, value_size);
    struct empty_check check = {0};
    uint32_t at = leaf_first(layout, header), size = 0, best = UINT32_MAX;

    for (;; at += size) {
        enum leaf_cell cell = leaf_cell_at(layout, bytes, at, &size);
        if (cell == LEAF_CELL_BROKEN)
            return false;
        if (cell == LEAF_CELL_END)
            break;
        if (cell == LEAF_CELL_EMPTY && size >= need && size < best &&
            empty_valid(layout, header, &check, size, load_u64(bytes + at))) {
            best = size;
            *offset = at;
            *cell_bytes = size;
            if (size == need)
                return true;
        }
    }
    if (best != UINT32_MAX)
        return true;
    if (layout->fixed || !leaf_end_valid(layout, header, bytes, at) ||
        !place_at_tail(layout, header, bytes, at, need, cell_bytes))
        return false;
    *offset = at;
    return true;
}

/* ---- all pairs ------------------------------------------------------------------------------- */

enum { SORT_WORDS_MAX = 96 };

/* What all keys between two fences share, and eight bytes behind it: nearly always they tell how a key
 * lies to the fences and to another key. */
struct fence_words {
    uint32_t shared;
    uint64_t low, high;
};

static inline uint64_t word_behind(struct slice key, uint32_t shared)
{
    uint64_t word = 0;
    if (key.size >= (size_t)shared + 8)
        memcpy(&word, key.data + shared, 8);
    else if (key.size > shared)
        memcpy(&word, key.data + shared, key.size - shared);
    return __builtin_bswap64(word);
}

static struct fence_words fence_words(const struct node_header *header)
{
    struct fence_words words = {.high = UINT64_MAX};
    struct slice low = header->low, high = header->high;
    if (!header->no_high) {
        while (words.shared < low.size && words.shared < high.size &&
               low.data[words.shared] == high.data[words.shared])
            words.shared++;
        words.high = word_behind(high, words.shared);
    }
    words.low = word_behind(low, words.shared);
    return words;
}

/* As node_covers; and the key's word, which means something only if it does. */
static inline bool covers_word(const struct node_header *header, const struct fence_words *fences,
                               struct slice key, uint64_t *word)
{
    *word = word_behind(key, fences->shared);
    if (*word > fences->low && *word < fences->high && key.size >= fences->shared &&
        (fences->shared == 0 || memcmp(key.data, header->low.data, fences->shared) == 0))
        return true;
    return node_covers(header, key);
}

static bool words_rise(const uint64_t *words, uint32_t count)
{
    bool rise = true;
    for (uint32_t i = 1; i < count; i++)
        rise &= words[i - 1] < words[i];
    return rise;
}

/* By their words: each pair goes where as many are below it, so that no branch depends on their order.
 * False, and nothing done, if two words are equal: then the words do not say all. */
static bool sort_by_words(struct node_entry *entries, const uint64_t *words, uint32_t count)
{
    struct node_entry sorted[SORT_WORDS_MAX];
    uint64_t taken[(SORT_WORDS_MAX + 63) / 64] = {0};

    if (words_rise(words, count))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = search_rank(words, count, words[i]);
        uint64_t bit = (uint64_t)1 << rank % 64;
        if ((taken[rank / 64] & bit) != 0)
            return false;
        taken[rank / 64] |= bit;
        sorted[rank] = entries[i];
    }
    memcpy(entries, sorted, count * sizeof(*entries));
    return true;
}

/* In place and without recursion; leaves are small, and often partly in order. */
static void sort_entries(struct node_entry *entries, uint32_t count)
{
    static const uint16_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};

    for (size_t g = 0; g < sizeof(gaps) / sizeof(gaps[0]); g++) {
        uint32_t gap = gaps[g];
        for (uint32_t i = gap; i < count; i++) {
            struct node_entry entry = entries[i];
            uint32_t to = i;
            for (; to >= gap && key_compare(entries[to - gap].key, entry.key) > 0; to -= gap)
                entries[to] = entries[to - gap];
            entries[to] = entry;
        }
    }
}

/* One key in two whole cells: it was cleared in one and put into the other between two of the words
 * that were read. */
static bool has_twins(const struct node_entry *entries, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (slice_equal(entries[i - 1].key, entries[i].key))
            return true;
    }
    return false;
}

bool leaf_entries(const struct node_layout *layout, const struct node_header *header,
                  const uint8_t *bytes, struct node_entry entries[NODE_ENTRIES_MAX],
                  uint32_t *count)
{
    uint32_t offset = leaf_first(layout, header), cell_bytes = 0, found = 0;
    struct fence_words fences = fence_words(header);
    uint64_t words[SORT_WORDS_MAX + 1];
    struct empty_check check = {0};
    const bool checked = !layout->unchecked;
    enum leaf_cell cell;

    pando_assert(header->level == 0);
    while ((cell = leaf_cell_at(layout, bytes, offset, &cell_bytes)) != LEAF_CELL_END) {
        if (checked && !leaf_cell_whole(layout, header, bytes, offset, cell_bytes, cell, &check))
            return false;
        if (cell == LEAF_CELL_PAIR) {
            if (found == NODE_ENTRIES_MAX ||
                !leaf_cell_entry(layout, bytes, offset, cell_bytes, &entries[found]))
                return false;
            found += covers_word(header, &fences, entries[found].key,
                                 &words[found < SORT_WORDS_MAX ? found : SORT_WORDS_MAX]);
        }
        offset += cell_bytes;
    }
    if (checked && !leaf_end_valid(layout, header, bytes, offset))
        return false;
    *count = found;
    if (found <= SORT_WORDS_MAX && sort_by_words(entries, words, found))
        return true; /* where words differ, keys do */
    sort_entries(entries, found);
    return !has_twins(entries, found);
}
