/*
 * A leaf whose writer died. By intent-first (R18) such a writer was changing one word of one pair
 * in place, so the payload is of before or of after it and only the check is of the other;
 * everything larger is redone from its intent first. Nothing else is repaired: what a torn update
 * of one word cannot have left is damage, and stays as it is.
 *
 * If one flipped bit of the value explains that the check does not fit, that bit is put back, and the check
 * stays. Of a torn update whose values differ by this bit that is the one value instead of the other, and
 * nobody was told of either; of a damaged cell it is the value that was acknowledged. If the bit is one
 * that no update changes, the cell is damaged. An update that changes five bits or more may by chance look
 * like one flipped bit elsewhere (docs/PROTOCOLS.md, "What 32 bits leave").
 */
#include "base/assert.h"
#include "tree/blink/node/node_int.h"

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

/* A cell that is repaired: the bit of its payload that was put back, if one was. */
struct torn {
    struct leaf_slot slot;
    bool flipped;
    size_t bit;
};

static void put_back(uint8_t *bytes, const struct torn *torn)
{
    if (torn->flipped)
        bytes[torn->slot.offset + CELL_HEADER + torn->bit / 8] ^= (uint8_t)(1u << torn->bit % 8);
}

/* Whether an update of one word may change that bit of a cell's payload: it is the value's, or its size's. */
static bool updated(const struct node_layout *layout, const uint8_t *cell, size_t bit)
{
    size_t at = CELL_HEADER + bit / 8;
    if (layout->fixed)
        return at >= NODE_SLOT_KEY + pad8(layout->key_size);
    if (at < NODE_PACKED_KEY)
        return at >= NODE_PACKED_SIZES + 4;
    return at >= NODE_PACKED_KEY + pad8(load_u16(cell + NODE_PACKED_SIZES));
}

/* Whether a pair's cell is, but for its check, as an update of one word leaves it, which changes neither
 * version, flags nor size, nor the key. */
static bool like_update(const struct node_layout *layout, const struct node_header *header,
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

/* Whether a pair's cell that fails its check may be one of whose payload one word was being changed; puts
 * back the bit that explains it alone. If not, the bytes are as they were. */
static bool torn_update(const struct node_layout *layout, const struct node_header *header,
                        uint8_t *bytes, uint32_t offset, uint32_t cell_bytes, struct torn *out)
{
    struct cell_place place = node_place(layout, NODE_KIND_SLOT, header->address + offset);
    enum cell_flip flip = cell_flip_find(&place, bytes + offset, cell_bytes, &out->bit);

    out->slot = (struct leaf_slot){.offset = offset, .bytes = cell_bytes};
    out->flipped = flip == CELL_FLIP_PAYLOAD;
    if (flip == CELL_FLIP_HEADER || (out->flipped && !updated(layout, bytes + offset, out->bit)))
        return false;
    put_back(bytes, out);
    if (like_update(layout, header, bytes, offset, cell_bytes))
        return true;
    put_back(bytes, out); /* undoes it */
    return false;
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

static int refuse(uint8_t *bytes, const struct torn *torn, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        put_back(bytes, &torn[i]); /* undoes it */
    return -1;
}

int leaf_repair(const struct node_layout *layout, const struct node_header *header, uint8_t *bytes,
                unsigned most)
{
    struct torn torn[LEAF_REPAIRS_MAX];
    uint32_t offset = leaf_first(layout, header), cell_bytes = 0, count = 0;
    enum leaf_cell cell;

    pando_assert(header->level == 0 && most <= LEAF_REPAIRS_MAX);
    for (; (cell = leaf_cell_at(layout, bytes, offset, &cell_bytes)) != LEAF_CELL_END;
         offset += cell_bytes) {
        if (leaf_cell_sound(layout, header, bytes, offset, cell_bytes, cell))
            continue;
        if (cell != LEAF_CELL_PAIR || count == most ||
            !torn_update(layout, header, bytes, offset, cell_bytes, &torn[count]))
            return refuse(bytes, torn, count);
        count++;
    }
    if (!leaf_end_valid(layout, header, bytes, offset))
        return refuse(bytes, torn, count);
    for (uint32_t i = 0; i < count; i++) {
        struct leaf_slot *slot = &torn[i].slot;
        if (!leaf_cell_entry(layout, bytes, slot->offset, slot->bytes, &slot->entry) ||
            has_twin(layout, header, bytes, slot->offset, slot->entry.key))
            return refuse(bytes, torn, count);
    }
    for (uint32_t i = 0; i < count; i++)
        reseal_cell(layout, header, bytes, torn[i].slot.offset, torn[i].slot.bytes);
    return (int)count;
}
