/*
 * A leaf whose writer died. By R18 such a writer was changing one word of one pair in place, so the
 * payload is either of before or of after it and only the check is of the other; everything larger
 * is redone from its intent first. What is not explained by that is damage: it is cleared, so that
 * the rest can be used.
 */
#include "base/assert.h"
#include "tree/node/node_int.h"

/* Makes a cell empty; whether it changed. */
static bool clear_cell(const struct node_layout *layout, const struct node_header *header,
                       uint8_t *bytes, uint32_t offset, uint32_t cell_bytes)
{
    uint64_t word = leaf_cleared_word(layout, header, cell_bytes);
    if (load_u64(bytes + offset) == word)
        return false;
    store_u64(bytes + offset, word);
    return true;
}

/* Makes the check fit the payload; whether it changed. */
static bool reseal_cell(const struct node_layout *layout, const struct node_header *header,
                        uint8_t *bytes, uint32_t offset, uint32_t cell_bytes)
{
    struct cell_place place = node_place(layout, NODE_KIND_SLOT, header->address + offset);
    uint64_t old = load_u64(bytes + offset);
    uint64_t word = cell_header(&place, (uint16_t)header->version, cell_flags(old),
                                bytes + offset + CELL_HEADER, cell_bytes - CELL_HEADER);
    store_u64(bytes + offset, word);
    return word != old;
}

/* Ends a packed leaf here, unless it is so; whether it changed. */
static bool end_leaf(const struct node_layout *layout, const struct node_header *header,
                     uint8_t *bytes, uint32_t offset)
{
    const uint64_t word = leaf_end_word(layout, header);
    if (layout->fixed || offset == layout->node_bytes || load_u64(bytes + offset) == word)
        return false;
    for (; offset < layout->node_bytes; offset += CELL_HEADER)
        store_u64(bytes + offset, word);
    return true;
}

/* Whether a cell before this one has its key. All cells before it are sound. */
static bool is_twin(const struct node_layout *layout, const struct node_header *header,
                    const uint8_t *bytes, uint32_t offset, struct slice key)
{
    uint32_t cell_bytes = 0;
    for (uint32_t at = leaf_first(layout, header); at < offset; at += cell_bytes) {
        struct node_entry entry;
        if (leaf_cell_at(layout, bytes, at, &cell_bytes) == LEAF_CELL_PAIR &&
            leaf_cell_entry(layout, bytes, at, cell_bytes, &entry) && slice_equal(entry.key, key))
            return true;
    }
    return false;
}

static bool repair_pair(const struct node_layout *layout, const struct node_header *header,
                        uint8_t *bytes, uint32_t offset, uint32_t cell_bytes)
{
    struct node_entry entry;
    if (!leaf_cell_entry(layout, bytes, offset, cell_bytes, &entry) ||
        is_twin(layout, header, bytes, offset, entry.key))
        return clear_cell(layout, header, bytes, offset, cell_bytes);
    return reseal_cell(layout, header, bytes, offset, cell_bytes);
}

uint32_t leaf_repair(const struct node_layout *layout, const struct node_header *header,
                     uint8_t *bytes)
{
    uint32_t offset = leaf_first(layout, header), cell_bytes = 0, changed = 0;

    pando_assert(header->level == 0);
    for (;; offset += cell_bytes) {
        switch (leaf_cell_at(layout, bytes, offset, &cell_bytes)) {
        case LEAF_CELL_PAIR:
            changed += repair_pair(layout, header, bytes, offset, cell_bytes);
            break;
        case LEAF_CELL_EMPTY:
            changed += clear_cell(layout, header, bytes, offset, cell_bytes);
            break;
        case LEAF_CELL_END:
            return changed + end_leaf(layout, header, bytes, offset);
        case LEAF_CELL_BROKEN:
            if (!layout->fixed) /* where the next one begins is lost */
                return changed + end_leaf(layout, header, bytes, offset);
            changed += clear_cell(layout, header, bytes, offset, cell_bytes);
            break;
        }
    }
}
