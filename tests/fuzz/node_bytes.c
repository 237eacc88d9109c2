/*
 * Arbitrary bytes where a node is expected in remote memory. The first byte chooses the table's
 * layout and whether the checks are made right, so that what lies behind them is reached; the rest
 * is the node, in memory of exactly its size.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/cell.h"
#include "tree/blink/node/node.h"
#include "tree/blink/node/node_fmt.h"
#include "tree/blink/node/search.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ADDRESS = 0x10000, FIX_HEADER = 0x80, FIX_CELLS = 0x40 };

static const struct node_layout layouts[] = {
    {.pool = 9, .table = 1, .node_bytes = 256, .key_size = 8, .value_size = 8},
    {.pool = 9, .table = 1, .node_bytes = 256},
    {.pool = 9, .table = 1, .node_bytes = 256, .key_size = 3, .value_size = 10},
    {.pool = 9, .table = 1, .node_bytes = 512, .key_size = 8},
    {.pool = 9, .table = 1, .node_bytes = 512, .value_size = 8},
    {.pool = 9, .table = 1, .node_bytes = 1728, .key_size = 8, .value_size = 8}, /* > 64 slots */
};

static struct node_layout layout;
static struct node_entry entries[NODE_ENTRIES_MAX], again[NODE_ENTRIES_MAX];
static struct inner_entry separators[NODE_ENTRIES_MAX];

static void choose_layout(uint8_t choice)
{
    layout = layouts[choice % (sizeof(layouts) / sizeof(layouts[0]))];
    uint32_t key_max = layout.key_size != 0 ? layout.key_size : 12;
    uint32_t value_max = layout.value_size != 0 ? layout.value_size : 8;
    pando_assert(node_layout_init(&layout, key_max, value_max) == PANDO_OK);
}

static uint64_t load(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word;
}

/* ---- making checks right --------------------------------------------------------------------- */

static void fix_cell(uint8_t *bytes, uint32_t offset, uint8_t kind, uint32_t cell_bytes,
                     uint8_t flags)
{
    struct cell_place place = {
        .pool = layout.pool, .table = layout.table, .kind = kind, .address = ADDRESS + offset};
    uint16_t version;
    memcpy(&version, bytes + POOL_BLOCK_VERSION, 2);
    uint64_t word =
        cell_header(&place, version, flags, bytes + offset + CELL_HEADER, cell_bytes - CELL_HEADER);
    memcpy(bytes + offset, &word, 8);
}

/* A leaf's header cell ends with its fences; an inner one where its own header word says. */
static void fix_header(uint8_t *bytes)
{
    uint16_t low, high, count;
    uint64_t address = ADDRESS;
    memcpy(&low, bytes + NODE_LOW_SIZE, 2);
    memcpy(&high, bytes + NODE_HIGH_SIZE, 2);
    memcpy(&count, bytes + NODE_COUNT, 2);
    memcpy(bytes + POOL_BLOCK_ADDRESS, &address, 8);

    uint32_t end = layout.slots_at;
    if (layout.key_size == 0)
        end = NODE_FENCES + ((low + 7u) & ~7u) + ((high + 7u) & ~7u);
    if (bytes[NODE_LEVEL] == 0)
        memset(bytes + NODE_COUNT, 0, 2);
    else if (layout.key_size != 0)
        end += 8 + count * (((layout.key_size + 7) & ~7u) + 8);
    else
        end = CELL_HEADER + (uint32_t)cell_payload_bytes(load(bytes));
    if (end >= NODE_FENCES && end <= layout.node_bytes)
        fix_cell(bytes, 0, bytes[NODE_LEVEL] == 0 ? NODE_KIND_LEAF : NODE_KIND_INNER, end, 0);
}

static void fix_cells(const struct node_header *header, uint8_t *bytes)
{
    uint32_t offset = header->cell_bytes;
    while (offset + CELL_HEADER <= layout.node_bytes) {
        uint64_t word = load(bytes + offset);
        uint32_t cell_bytes = CELL_HEADER + (uint32_t)cell_payload_bytes(word);
        if (layout.fixed)
            cell_bytes = layout.slot_bytes;
        if (cell_bytes > layout.node_bytes - offset)
            return;
        if ((cell_flags(word) & NODE_SLOT_FLAG_EMPTY) != 0 || cell_bytes == CELL_HEADER) {
            word = leaf_cleared_word(&layout, header, cell_bytes);
            memcpy(bytes + offset, &word, 8);
        } else {
            fix_cell(bytes, offset, NODE_KIND_SLOT, cell_bytes, cell_flags(word));
        }
        offset += cell_bytes;
    }
}

/* ---- what must hold of whatever was read ----------------------------------------------------- */

static void check_inside(const uint8_t *bytes, struct slice slice)
{
    pando_assert(slice.data >= bytes && slice.size <= layout.node_bytes &&
                 slice.data + slice.size <= bytes + layout.node_bytes);
}

static uint32_t check_entries(const struct node_header *header, const uint8_t *bytes)
{
    uint32_t count;
    struct leaf_slot slot;
    pando_assert(leaf_entries(&layout, header, bytes, entries, &count));
    for (uint32_t i = 0; i < count; i++) {
        check_inside(bytes, entries[i].key);
        check_inside(bytes, entries[i].value);
        pando_assert(node_covers(header, entries[i].key));
        pando_assert(i == 0 || slice_compare(entries[i - 1].key, entries[i].key) < 0);
        pando_assert(leaf_find(&layout, header, bytes, entries[i].key, &slot) == LEAF_FOUND);
        pando_assert(slice_equal(slot.entry.value, entries[i].value));
    }
    return count;
}

static void check_rebuilt(const struct node_header *header, const uint8_t *bytes, uint32_t count)
{
    uint8_t *built = malloc(layout.node_bytes);
    struct node_header header_built;
    uint32_t count_built;

    pando_assert(built != NULL && leaf_fits(&layout, header, entries, count));
    leaf_build(&layout, header, entries, count, built);
    pando_assert(node_header_read(&layout, ADDRESS, built, &header_built));
    pando_assert(leaf_entries(&layout, &header_built, built, again, &count_built));
    pando_assert(count_built == count);
    for (uint32_t i = 0; i < count; i++)
        pando_assert(slice_equal(entries[i].key, again[i].key) &&
                     slice_equal(entries[i].value, again[i].value) &&
                     entries[i].flags == again[i].flags);
    if (count >= 2) {
        uint32_t left = leaf_split_point(&layout, entries, count, bytes[0] & 1);
        pando_assert(left >= 1 && left < count);
    }
    free(built);
}

/* The short way says the same as the long one, where it knows the layout. */
static void check_word(const uint8_t *bytes, struct slice key)
{
    struct node_header header, short_header;
    struct leaf_slot slot, other;
    bool known = layout.fixed && layout.key_size == 8 && layout.slot_count <= SEARCH_SLOTS_MAX;
    bool there = node_header_read(&layout, ADDRESS, bytes, &header) && header.level == 0 &&
                 !header.dead && node_covers(&header, key) &&
                 leaf_find(&layout, &header, bytes, key, &slot) == LEAF_FOUND;
    bool found = leaf_find_word(&layout, ADDRESS, bytes, key, &short_header, &other);
    pando_assert(found == (known && there));
    if (found)
        pando_assert(other.offset == slot.offset && other.bytes == slot.bytes &&
                     slice_equal(other.entry.value, slot.entry.value) &&
                     slice_equal(other.entry.key, key) && other.entry.flags == slot.entry.flags &&
                     slice_equal(header.low, short_header.low) &&
                     slice_equal(header.high, short_header.high));
}

static void insert(const struct node_header *header, uint8_t *bytes, struct slice key)
{
    static const uint8_t value[16];
    uint32_t value_size = layout.value_size != 0 ? layout.value_size : 8, offset, cell_bytes;
    struct node_entry entry = {.key = key, .value = slice_of(value, value_size)};
    struct leaf_slot slot;

    enum leaf_find before = leaf_find(&layout, header, bytes, key, &slot);
    if (!leaf_place(&layout, header, bytes, (uint32_t)key.size, value_size, &offset, &cell_bytes))
        return;
    pando_assert(offset >= header->cell_bytes && cell_bytes <= layout.node_bytes - offset);
    leaf_cell_build(&layout, header, offset, cell_bytes, &entry, bytes + offset);
    check_word(bytes, key);
    if (before == LEAF_ABSENT)
        pando_assert(leaf_find(&layout, header, bytes, key, &slot) == LEAF_FOUND &&
                     slot.offset == offset && slot.bytes == cell_bytes);
}

static void use_leaf(uint8_t *bytes, bool fix, struct slice key)
{
    struct node_header header;
    struct leaf_slot slot;
    uint32_t count;

    pando_assert(node_header_read(&layout, ADDRESS, bytes, &header));
    if (fix)
        fix_cells(&header, bytes);
    check_word(bytes, key);
    if (leaf_find(&layout, &header, bytes, key, &slot) == LEAF_FOUND) {
        check_inside(bytes, slot.entry.key);
        check_inside(bytes, slot.entry.value);
        pando_assert(slice_equal(slot.entry.key, key));
    }
    if (leaf_entries(&layout, &header, bytes, entries, &count))
        check_rebuilt(&header, bytes, check_entries(&header, bytes));
    insert(&header, bytes, key);
    const unsigned most = (unsigned)key.size % (LEAF_REPAIRS_MAX + 1);
    int repaired = leaf_repair(&layout, &header, bytes, most);
    pando_assert(repaired <= (int)most);
    if (repaired < 0)
        return;
    pando_assert(leaf_repair(&layout, &header, bytes, 0) == 0);
    if (leaf_entries(&layout, &header, bytes, entries, &count)) /* else a key is there twice */
        check_rebuilt(&header, bytes, check_entries(&header, bytes));
    insert(&header, bytes, key);
}

static void use_inner(const struct node_header *header, const uint8_t *bytes, struct slice key)
{
    fabric_address leftmost, child;
    uint32_t count, index;

    inner_entries(&layout, bytes, &leftmost, separators, &count);
    pando_assert(count == inner_count(&layout, bytes) && count <= NODE_ENTRIES_MAX);
    for (uint32_t i = 0; i < count; i++)
        check_inside(bytes, separators[i].key);
    child = inner_child(&layout, bytes, key, &index);
    pando_assert(index <= count);
    pando_assert(child == (index == 0 ? leftmost : separators[index - 1].child));
    if (!inner_sound(&layout, header, bytes))
        return;
    pando_assert(index == 0 || slice_compare(separators[index - 1].key, key) <= 0);
    pando_assert(index == count || slice_compare(separators[index].key, key) > 0);
    if (count >= 3) {
        uint32_t up = inner_split_point(&layout, separators, count);
        pando_assert(up >= 1 && up <= count - 2);
    }
    if (inner_fits(&layout, header, separators, count)) {
        uint8_t *built = malloc(layout.node_bytes);
        struct node_header header_built;
        pando_assert(built != NULL);
        inner_build(&layout, header, leftmost, separators, count, built);
        pando_assert(node_header_read(&layout, ADDRESS, built, &header_built) &&
                     inner_sound(&layout, &header_built, built));
        free(built);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t zeroes[12];
    struct node_header header;

    if (size == 0)
        return 0;
    choose_layout(data[0] & 0x3f);
    uint8_t *bytes = calloc(1, layout.node_bytes);
    pando_assert(bytes != NULL);
    memcpy(bytes, data + 1, size - 1 < layout.node_bytes ? size - 1 : layout.node_bytes);
    uint32_t key_size = layout.key_size != 0 ? layout.key_size : 1 + data[0] % 12u;
    uint8_t *key = malloc(key_size);
    pando_assert(key != NULL);
    memcpy(key, size > key_size ? data + size - key_size : zeroes, key_size);

    if (data[0] & FIX_HEADER)
        fix_header(bytes);
    check_word(bytes, slice_of(key, key_size));
    if (node_header_read(&layout, ADDRESS, bytes, &header)) {
        check_inside(bytes, header.low);
        check_inside(bytes, header.high);
        (void)node_covers(&header, slice_of(key, key_size));
        if (header.level == 0)
            use_leaf(bytes, data[0] & FIX_CELLS, slice_of(key, key_size));
        else
            use_inner(&header, bytes, slice_of(key, key_size));
    }
    free(key);
    free(bytes);
    return 0;
}
