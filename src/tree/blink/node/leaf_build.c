/*
 * Whole leaves from sorted pairs.
 */
#include "base/assert.h"
#include "tree/blink/node/node_int.h"

/* Of the bytes, how many stay left when a leaf splits at its growing end. */
enum { APPEND_LEFT_PERCENT = 90 };

static inline uint32_t entry_bytes(const struct node_layout *layout, const struct node_entry *entry)
{
    return leaf_cell_bytes(layout, (uint32_t)entry->key.size, (uint32_t)entry->value.size);
}

bool leaf_fits(const struct node_layout *layout, const struct node_header *header,
               const struct node_entry *entries, uint32_t count)
{
    if (layout->fixed)
        return count <= layout->slot_count;
    uint32_t high_size = header->no_high ? 0 : (uint32_t)header->high.size;
    uint64_t used = node_fences_end(layout, (uint32_t)header->low.size, high_size);
    for (uint32_t i = 0; i < count; i++)
        used += entry_bytes(layout, &entries[i]);
    return used <= layout->node_bytes && count <= NODE_ENTRIES_MAX;
}

/* Behind the last pair: empty slots, or the word that ends a packed leaf in every place. */
static void fill_rest(const struct node_layout *layout, const struct node_header *header,
                      uint32_t offset, uint8_t *bytes)
{
    const uint32_t size = layout->fixed ? layout->slot_bytes : (uint32_t)CELL_HEADER;
    const uint64_t word = leaf_cleared_word(layout, header, size);

    memset(bytes + offset, 0, layout->node_bytes - offset);
    for (; layout->node_bytes - offset >= size; offset += size)
        store_u64(bytes + offset, word);
}

void leaf_build(const struct node_layout *layout, const struct node_header *header,
                const struct node_entry *entries, uint32_t count, uint8_t *bytes)
{
    pando_assert(header->level == 0 && leaf_fits(layout, header, entries, count));
    uint32_t offset = node_header_write(layout, header, 0, bytes);
    node_header_seal(layout, header, offset, bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t cell_bytes = entry_bytes(layout, &entries[i]);
        leaf_cell_build(layout, header, offset, cell_bytes, &entries[i], bytes + offset);
        offset += cell_bytes;
    }
    fill_rest(layout, header, offset, bytes);
}

/*
 * The point nearest to the wanted number of bytes. What stays left must fit even with the longest
 * fences: half of what overflowed a leaf does (node_layout_init), a larger part is limited here.
 */
uint32_t leaf_split_point(const struct node_layout *layout, const struct node_entry *entries,
                          uint32_t count, bool appending)
{
    uint64_t total = 0, left = 0;
    pando_assert(count >= 2);
    for (uint32_t i = 0; i < count; i++)
        total += entry_bytes(layout, &entries[i]);

    uint64_t want = total / 2;
    if (appending)
        want = total * APPEND_LEFT_PERCENT / 100;
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint64_t cell = entry_bytes(layout, &entries[i]);
        bool nearer_without =
            left + cell / 2 > want || (appending && left + cell > layout->leaf_room);
        if (i > 0 && nearer_without)
            return i;
        left += cell;
    }
    return count - 1;
}
