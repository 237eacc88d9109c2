#include "base/assert.h"
#include "tree/blink/node/node_int.h"
#include "tree/blink/node/search.h"

enum {
    CHILD_BYTES = 8,
    PLACE_BYTES = 4, /* where a separator of any size is */
};

/* Where things are in an inner node whose cell was checked. */
struct inner_parts {
    uint32_t count;
    const uint8_t *leftmost;
    const uint8_t *pairs;             /* separators of one size, each followed by a child */
    const uint8_t *children, *places; /* separators of any size */
};

static inline uint32_t pair_bytes(const struct node_layout *layout)
{
    return pad8(layout->key_size) + CHILD_BYTES;
}

static inline struct inner_parts parts_of(const struct node_layout *layout, const uint8_t *bytes)
{
    uint32_t at =
        node_fences_end(layout, load_u16(bytes + NODE_LOW_SIZE), load_u16(bytes + NODE_HIGH_SIZE));
    uint32_t count = load_u16(bytes + NODE_COUNT);
    const uint8_t *rest = bytes + at + CHILD_BYTES;
    return (struct inner_parts){
        .count = count,
        .leftmost = bytes + at,
        .pairs = rest,
        .children = rest,
        .places = rest + (size_t)count * CHILD_BYTES,
    };
}

static inline struct slice key_of(const struct node_layout *layout, const uint8_t *bytes,
                                  const struct inner_parts *parts, uint32_t index)
{
    if (layout->key_size != 0)
        return slice_of(parts->pairs + (size_t)index * pair_bytes(layout), layout->key_size);
    uint32_t place = load_u32(parts->places + (size_t)index * PLACE_BYTES);
    return slice_of(bytes + (place & 0xffff), place >> 16);
}

static inline fabric_address child_of(const struct node_layout *layout,
                                      const struct inner_parts *parts, uint32_t index)
{
    if (index == 0)
        return load_u64(parts->leftmost);
    if (layout->key_size != 0)
        return load_u64(parts->pairs + (size_t)index * pair_bytes(layout) - CHILD_BYTES);
    return load_u64(parts->children + (size_t)(index - 1) * CHILD_BYTES);
}

/* ---- checking -------------------------------------------------------------------------------- */

bool inner_within(const struct node_layout *layout, const uint8_t *bytes, uint32_t fences_end,
                  uint32_t cell_bytes)
{
    uint32_t count = load_u16(bytes + NODE_COUNT);
    if (count > NODE_ENTRIES_MAX)
        return false;
    if (layout->key_size != 0)
        return cell_bytes == fences_end + CHILD_BYTES + count * pair_bytes(layout);

    uint32_t places = fences_end + CHILD_BYTES + count * CHILD_BYTES;
    uint32_t keys = places + count * PLACE_BYTES;
    if (keys > cell_bytes)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = load_u32(bytes + places + (size_t)i * PLACE_BYTES);
        if ((place & 0xffff) < keys || (place & 0xffff) + (place >> 16) > cell_bytes)
            return false;
    }
    return true;
}

bool inner_sound(const struct node_layout *layout, const struct node_header *header,
                 const uint8_t *bytes)
{
    struct inner_parts parts = parts_of(layout, bytes);
    struct slice before = header->low;

    if (header->level == 0 || (!header->no_high && key_compare(header->low, header->high) >= 0))
        return false;
    for (uint32_t i = 0; i < parts.count; i++) {
        struct slice key = key_of(layout, bytes, &parts, i);
        if (key_compare(before, key) >= 0 || node_right_of(header, key))
            return false;
        before = key;
    }
    for (uint32_t i = 0; i <= parts.count; i++) {
        fabric_address child = child_of(layout, &parts, i);
        if (child == 0 || child == header->address)
            return false;
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

uint32_t inner_count(const struct node_layout *layout, const uint8_t *bytes)
{
    (void)layout;
    return load_u16(bytes + NODE_COUNT);
}

/* How many separators are not above the key: of keys that do not rise, any number of them. */
static uint32_t separators_to(const struct node_layout *layout, const uint8_t *bytes,
                              const struct inner_parts *parts, struct slice key)
{
    if (layout->key_size == 8 && key.size == 8)
        return search_separators(parts->pairs, parts->count, key_u64(key.data));

    uint32_t from = 0, to = parts->count;
    while (from < to) {
        uint32_t middle = (from + to) / 2;
        if (slice_compare(key_of(layout, bytes, parts, middle), key) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

fabric_address inner_child(const struct node_layout *layout, const uint8_t *bytes, struct slice key,
                           uint32_t *index)
{
    struct inner_parts parts = parts_of(layout, bytes);
    *index = separators_to(layout, bytes, &parts, key);
    return child_of(layout, &parts, *index);
}

fabric_address inner_child_at(const struct node_layout *layout, const uint8_t *bytes,
                              uint32_t index)
{
    struct inner_parts parts = parts_of(layout, bytes);
    pando_assert(index <= parts.count);
    return child_of(layout, &parts, index);
}

struct slice inner_key_at(const struct node_layout *layout, const uint8_t *bytes, uint32_t index)
{
    struct inner_parts parts = parts_of(layout, bytes);
    pando_assert(index < parts.count);
    return key_of(layout, bytes, &parts, index);
}

void inner_entries(const struct node_layout *layout, const uint8_t *bytes, fabric_address *leftmost,
                   struct inner_entry entries[NODE_ENTRIES_MAX], uint32_t *count)
{
    struct inner_parts parts = parts_of(layout, bytes);
    *leftmost = load_u64(parts.leftmost);
    for (uint32_t i = 0; i < parts.count; i++) {
        entries[i] = (struct inner_entry){.key = key_of(layout, bytes, &parts, i),
                                          .child = child_of(layout, &parts, i + 1)};
    }
    *count = parts.count;
}

/* ---- building -------------------------------------------------------------------------------- */

/* What a separator and its child take, but for the padding at the end of the cell. */
static inline uint32_t entry_bytes(const struct node_layout *layout,
                                   const struct inner_entry *entry)
{
    return layout->key_size != 0 ? pair_bytes(layout)
                                 : CHILD_BYTES + PLACE_BYTES + (uint32_t)entry->key.size;
}

bool inner_fits(const struct node_layout *layout, const struct node_header *header,
                const struct inner_entry *entries, uint32_t count)
{
    uint32_t high_size = header->no_high ? 0 : (uint32_t)header->high.size;
    uint64_t used =
        node_fences_end(layout, (uint32_t)header->low.size, high_size) + (uint64_t)CHILD_BYTES;
    for (uint32_t i = 0; i < count; i++)
        used += entry_bytes(layout, &entries[i]);
    return used <= layout->node_bytes && count <= NODE_ENTRIES_MAX;
}

/* Each of these writes what follows the leftmost child and returns the end of the cell. */
static uint32_t write_pairs(const struct node_layout *layout, const struct inner_entry *entries,
                            uint32_t count, uint32_t at, uint8_t *bytes)
{
    const uint32_t key_bytes = pad8(layout->key_size);
    for (uint32_t i = 0; i < count; i++, at += key_bytes + CHILD_BYTES) {
        pando_assert(entries[i].key.size == layout->key_size);
        store_padded(bytes + at, entries[i].key, key_bytes);
        store_u64(bytes + at + key_bytes, entries[i].child);
    }
    return at;
}

static uint32_t write_arrays(const struct inner_entry *entries, uint32_t count, uint32_t at,
                             uint8_t *bytes)
{
    uint8_t *children = bytes + at, *places = children + (size_t)count * CHILD_BYTES;
    uint32_t end = at + count * (CHILD_BYTES + PLACE_BYTES);

    for (uint32_t i = 0; i < count; i++) {
        struct slice key = entries[i].key;
        pando_assert(key.size > 0);
        store_u64(children + (size_t)i * CHILD_BYTES, entries[i].child);
        store_u32(places + (size_t)i * PLACE_BYTES, end | (uint32_t)key.size << 16);
        memcpy(bytes + end, key.data, key.size);
        end += (uint32_t)key.size;
    }
    memset(bytes + end, 0, pad8(end) - end);
    return pad8(end);
}

void inner_build(const struct node_layout *layout, const struct node_header *header,
                 fabric_address leftmost, const struct inner_entry *entries, uint32_t count,
                 uint8_t *bytes)
{
    pando_assert(header->level > 0 && inner_fits(layout, header, entries, count));
    uint32_t at = node_header_write(layout, header, count, bytes);
    store_u64(bytes + at, leftmost);
    at += CHILD_BYTES;
    uint32_t end = layout->key_size != 0 ? write_pairs(layout, entries, count, at, bytes)
                                         : write_arrays(entries, count, at, bytes);
    node_header_seal(layout, header, end, bytes);
    memset(bytes + end, 0, layout->node_bytes - end);
}

uint32_t inner_split_point(const struct node_layout *layout, const struct inner_entry *entries,
                           uint32_t count)
{
    uint64_t total = 0, left = 0;
    pando_assert(count >= 3);
    for (uint32_t i = 0; i < count; i++)
        total += entry_bytes(layout, &entries[i]);

    /* The one that has the middle byte, but not the first or the last. */
    for (uint32_t i = 0; i + 2 < count; i++) {
        left += entry_bytes(layout, &entries[i]);
        if (i > 0 && left > total / 2)
            return i;
    }
    return count - 2;
}
