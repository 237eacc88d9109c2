/*
 * A leaf whose writer died. By R18 such a writer was changing one word of one pair in place, so the
 * payload is of before or of after it and only the check is of the other; everything larger is redone
 * from its intent first. Nothing else is mended: what a torn update of one word cannot have left is
 * damage, and stays as it is.
 */
#include "base/assert.h"
#include "tree/node/node_int.h"

static bool all_zero(const uint8_t *bytes, const uint8_t *end)
{
    for (; bytes < end; bytes++) {
        if (*bytes != 0)
            return false;
    }
    return true;
}

/* Whether the bytes behind the key and behind the value are zero, as every writer leaves them. */
static bool padding_zero(const struct node_layout *layout, const struct node_entry *entry,
                         const uint8_t *cell, uint32_t cell_bytes)
{
    uint32_t key_at = layout->fixed ? (uint32_t)NODE_SLOT_KEY : (uint32_t)NODE_PACKED_KEY;
    uint32_t value_at = key_at + pad8((uint32_t)entry->key.size);
    return all_zero(entry->key.data + entry->key.size, cell + value_at) &&
           all_zero(entry->value.data + entry->value.size, cell + cell_bytes);
}

/* Whether a pair's cell that fails its check may be one of whose payload one word was being changed: an
 * update changes neither version, flags nor size, nor the key. */
static bool torn_update(const struct node_layout *layout, const struct node_header *header,
                        const uint8_t *bytes, uint32_t offset, uint32_t cell_bytes)
{
    uint64_t word = load_u64(bytes + offset);
    struct node_entry entry;

    return cell_version(word) == (uint16_t)header->version &&
           (cell_flags(word) & ~NODE_FLAG_BLOB) == 0 &&
           leaf_cell_entry(layout, bytes, offset, cell_bytes, &entry) &&
           ((entry.flags & NODE_FLAG_BLOB) == 0 || entry.value.size == 8) &&
           padding_zero(layout, &entry, bytes + offset, cell_bytes) &&
           node_covers(header, entry.key);
}

/* Whether another pair has the key of the cell at `offset`. */
static bool has_twin(const struct node_layout *layout, const struct node_header *header,
                     const uint8_t *bytes, uint32_t offset, struct slice key)
{
    struct node_entry entry;
    uint32_t cell_bytes = 0;
    enum leaf_cell cell;

    for (uint32_t at = leaf_first(layout, header);
         (cell = leaf_cell_at(layout, bytes, at, &cell_bytes)) != LEAF_CELL_END; at += cell_bytes) {
        if (at != offset && cell == LEAF_CELL_PAIR &&
            leaf_cell_entry(layout, bytes, at, cell_bytes, &entry) && slice_equal(entry.key, key))
            return true;
    }
    return false;
}

/* Makes the check fit the payload. */
static void reseal_cell(const struct node_layout *layout, const struct node_header *header,
                        uint8_t *bytes, uint32_t offset, uint32_t cell_bytes)
{
    struct cell_place place = node_place(layout, NODE_KIND_SLOT, header->address + offset);
    store_u64(bytes + offset,
              cell_header(&place, (uint16_t)header->version, cell_flags(load_u64(bytes + offset)),
                          bytes + offset + CELL_HEADER, cell_bytes - CELL_HEADER));
}

int leaf_repair(const struct node_layout *layout, const struct node_header *header, uint8_t *bytes,
                unsigned most)
{
    struct leaf_slot torn[LEAF_REPAIRS_MAX];
    uint32_t offset = leaf_first(layout, header), cell_bytes = 0, count = 0;
    enum leaf_cell cell;

    pando_assert(header->level == 0 && most <= LEAF_REPAIRS_MAX);
    for (; (cell = leaf_cell_at(layout, bytes, offset, &cell_bytes)) != LEAF_CELL_END;
         offset += cell_bytes) {
        if (leaf_cell_sound(layout, header, bytes, offset, cell_bytes, cell))
            continue;
        if (cell != LEAF_CELL_PAIR || count == most ||
            !torn_update(layout, header, bytes, offset, cell_bytes))
            return -1;
        torn[count++] = (struct leaf_slot){.offset = offset, .bytes = cell_bytes};
    }
    if (!leaf_end_valid(layout, header, bytes, offset))
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        struct leaf_slot *slot = &torn[i];
        if (!leaf_cell_entry(layout, bytes, slot->offset, slot->bytes, &slot->entry) ||
            has_twin(layout, header, bytes, slot->offset, slot->entry.key))
            return -1;
    }
    for (uint32_t i = 0; i < count; i++)
        reseal_cell(layout, header, bytes, torn[i].offset, torn[i].bytes);
    return (int)count;
}
