/*
 * leaf_word.c - what most gets come to, a leaf of fixed slots and 8-byte keys that is as it should be: the same
 * checks as by header.c and leaf.c, without what they have for every other shape and outcome, which is most of
 * the time they take.
 */
#include "tree/blink/node/node_int.h"
#include "tree/blink/node/search.h"

enum { WORD_KEY = 8 };

/* Level, flags and sizes are one word. A live leaf's is one of four: with a low fence or without, with a high
 * one or without. */
enum {
    LEVEL_TO_COUNT = NODE_FENCES - NODE_LEVEL,
    LOW_SHIFT = 16,
    HIGH_SHIFT = 32,
    FLAGS_SHIFT = 8
};
_Static_assert(LEVEL_TO_COUNT == 8 && NODE_FLAGS == NODE_LEVEL + 1 &&
                   NODE_LOW_SIZE == NODE_LEVEL + 2 && NODE_HIGH_SIZE == NODE_LEVEL + 4,
               "the shifts");

static bool covers(const uint8_t *bytes, uint64_t key)
{
    uint64_t word = load_u64(bytes + NODE_LEVEL);
    bool no_high = (word >> FLAGS_SHIFT & NODE_NO_HIGH) != 0;
    uint64_t low_size = word >> LOW_SHIFT & WORD_KEY;
    uint64_t high =
        no_high ? (uint64_t)NODE_NO_HIGH << FLAGS_SHIFT : (uint64_t)WORD_KEY << HIGH_SHIFT;

    return word == (high | low_size << LOW_SHIFT) &&
           (no_high || key < key_u64(bytes + NODE_FENCES + WORD_KEY)) &&
           (low_size == 0 || key >= key_u64(bytes + NODE_FENCES));
}

static bool header_valid(const struct node_layout *layout, fabric_address address,
                         const uint8_t *bytes, uint16_t *version)
{
    struct cell_place place = node_place(layout, NODE_KIND_LEAF, address);
    uint64_t word = load_u64(bytes);
    *version = cell_version(word);
    return load_u64(bytes + POOL_BLOCK_ADDRESS) == address &&
           load_u16(bytes + POOL_BLOCK_VERSION) == *version &&
           cell_payload_bytes(word) == layout->slots_at - CELL_HEADER &&
           cell_valid(&place, bytes, layout->slots_at);
}

/* Of a leaf that covers a key: its fences are as they should be. */
static void header_fill(const struct node_layout *layout, fabric_address address,
                        const uint8_t *bytes, struct node_header *out)
{
    out->address = address;
    out->version = load_u64(bytes + POOL_BLOCK_VERSION);
    out->tenure = load_u64(bytes + POOL_BLOCK_TENURE);
    out->sibling = load_u64(bytes + NODE_SIBLING);
    out->level = 0;
    out->dead = false;
    out->no_high = (bytes[NODE_FLAGS] & NODE_NO_HIGH) != 0;
    out->low = slice_of(bytes + NODE_FENCES, bytes[NODE_LOW_SIZE]);
    out->high = slice_of(bytes + NODE_FENCES + WORD_KEY, bytes[NODE_HIGH_SIZE]);
    out->cell_bytes = layout->slots_at;
}

bool leaf_find_word(const struct node_layout *layout, fabric_address address, const uint8_t *bytes,
                    struct slice key, struct node_header *header, struct leaf_slot *slot)
{
    uint16_t version;
    uint32_t size = layout->slot_bytes;

    if (!layout->fixed || layout->key_size != WORD_KEY || key.size != WORD_KEY ||
        layout->slot_count > SEARCH_SLOTS_MAX || layout->unchecked)
        return false;
    uint64_t found =
        search_slots(bytes + layout->slots_at, size, layout->slot_count, load_u64(key.data));
    if (!covers(bytes, key_u64(key.data)) || !header_valid(layout, address, bytes, &version))
        return false;
    for (; found != 0; found &= found - 1) {
        uint32_t offset = layout->slots_at + (uint32_t)__builtin_ctzll(found) * size;
        const uint8_t *cell = bytes + offset;
        uint64_t word = load_u64(cell);
        if ((cell_flags(word) & NODE_SLOT_FLAG_EMPTY) != 0)
            continue;
        struct cell_place place = node_place(layout, NODE_KIND_SLOT, address + offset);
        if (cell_payload_bytes(word) != size - CELL_HEADER || cell_version(word) != version ||
            !cell_valid(&place, cell, size))
            return false;
        if (header != NULL)
            header_fill(layout, address, bytes, header);
        slot->offset = offset;
        slot->bytes = size;
        slot->entry.key = slice_of(cell + NODE_SLOT_KEY, WORD_KEY);
        slot->entry.value = slice_of(cell + NODE_SLOT_KEY + WORD_KEY, layout->value_size);
        slot->entry.flags = cell_flags(word);
        return true;
    }
    return false;
}
