#include "base/assert.h"
#include "tree/blink/node/node_int.h"

static inline enum node_kind header_kind(uint8_t level)
{
    return level == 0 ? NODE_KIND_LEAF : NODE_KIND_INNER;
}

/* Fences are either there in a possible size, or not there and of no size. */
static bool fences_sound(const struct node_layout *layout, uint8_t flags, uint32_t low_size,
                         uint32_t high_size)
{
    bool no_high = (flags & NODE_NO_HIGH) != 0;
    if ((flags & ~(NODE_NO_HIGH | NODE_DEAD)) != 0 || no_high != (high_size == 0))
        return false;
    return layout->key_size == 0 || ((low_size == 0 || low_size == layout->key_size) &&
                                     (high_size == 0 || high_size == layout->key_size));
}

/* Whether [bytes, bytes + node_bytes) begins with a whole header cell for this address. */
static bool header_cell_valid(const struct node_layout *layout, fabric_address address,
                              const uint8_t *bytes)
{
    uint64_t word = load_u64(bytes);
    struct cell_place place = node_place(layout, header_kind(bytes[NODE_LEVEL]), address);

    if (load_u64(bytes + POOL_BLOCK_ADDRESS) != address ||
        cell_version(word) != load_u16(bytes + POOL_BLOCK_VERSION))
        return false;
    return cell_valid(&place, bytes, layout->node_bytes);
}

bool node_header_read(const struct node_layout *layout, fabric_address address,
                      const uint8_t *bytes, struct node_header *out)
{
    uint8_t flags = bytes[NODE_FLAGS], level = bytes[NODE_LEVEL];
    uint32_t low_size = load_u16(bytes + NODE_LOW_SIZE);
    uint32_t high_size = load_u16(bytes + NODE_HIGH_SIZE);
    uint32_t fences_end = node_fences_end(layout, low_size, high_size);
    uint32_t cell_bytes = CELL_HEADER + (uint32_t)cell_payload_bytes(load_u64(bytes));

    if (!fences_sound(layout, flags, low_size, high_size) ||
        !header_cell_valid(layout, address, bytes))
        return false;
    if (level == 0 ? fences_end != cell_bytes || load_u16(bytes + NODE_COUNT) != 0
                   : !inner_within(layout, bytes, fences_end, cell_bytes))
        return false;

    uint32_t low_bytes = pad8(layout->key_size != 0 ? layout->key_size : low_size);
    *out = (struct node_header){
        .address = address,
        .version = load_u64(bytes + POOL_BLOCK_VERSION),
        .tenure = load_u64(bytes + POOL_BLOCK_TENURE),
        .sibling = load_u64(bytes + NODE_SIBLING),
        .level = level,
        .dead = (flags & NODE_DEAD) != 0,
        .no_high = (flags & NODE_NO_HIGH) != 0,
        .low = slice_of(bytes + NODE_FENCES, low_size),
        .high = slice_of(bytes + NODE_FENCES + low_bytes, high_size),
        .cell_bytes = cell_bytes,
    };
    return true;
}

void node_unlink(uint8_t *bytes)
{
    store_u64(bytes, node_link_word(load_u64(bytes)));
}

bool node_unlinked(const struct node_layout *layout, fabric_address address, uint8_t *bytes,
                   struct node_header *out)
{
    store_u64(bytes, node_link_word(load_u64(bytes)));
    if (node_header_read(layout, address, bytes, out))
        return true;
    store_u64(bytes, node_link_word(load_u64(bytes)));
    return false;
}

bool node_right_of(const struct node_header *header, struct slice key)
{
    return !header->no_high && key_compare(key, header->high) >= 0;
}

bool node_covers(const struct node_header *header, struct slice key)
{
    return !node_right_of(header, key) && key_compare(key, header->low) >= 0;
}

uint32_t node_header_write(const struct node_layout *layout, const struct node_header *header,
                           uint32_t count, uint8_t *bytes)
{
    uint8_t flags = (header->no_high ? NODE_NO_HIGH : 0) | (header->dead ? NODE_DEAD : 0);
    uint32_t low_size = (uint32_t)header->low.size;
    uint32_t high_size = header->no_high ? 0 : (uint32_t)header->high.size;
    uint32_t fences_end = node_fences_end(layout, low_size, high_size);
    uint32_t low_bytes = pad8(layout->key_size != 0 ? layout->key_size : low_size);

    pando_assert(fences_sound(layout, flags, low_size, high_size));
    pando_assert(fences_end <= layout->node_bytes && count <= NODE_ENTRIES_MAX);
    store_u64(bytes + POOL_BLOCK_ADDRESS, header->address);
    store_u64(bytes + POOL_BLOCK_VERSION, header->version);
    store_u64(bytes + POOL_BLOCK_TENURE, header->tenure);
    store_u64(bytes + NODE_SIBLING, header->sibling);
    bytes[NODE_LEVEL] = header->level;
    bytes[NODE_FLAGS] = flags;
    store_u16(bytes + NODE_LOW_SIZE, (uint16_t)low_size);
    store_u16(bytes + NODE_HIGH_SIZE, (uint16_t)high_size);
    store_u16(bytes + NODE_COUNT, (uint16_t)count);
    store_padded(bytes + NODE_FENCES, header->low, low_bytes);
    store_padded(bytes + NODE_FENCES + low_bytes, slice_of(header->high.data, high_size),
                 fences_end - NODE_FENCES - low_bytes);
    return fences_end;
}

void node_header_seal(const struct node_layout *layout, const struct node_header *header,
                      uint32_t cell_bytes, uint8_t *bytes)
{
    struct cell_place place = node_place(layout, header_kind(header->level), header->address);
    store_u64(bytes, cell_header(&place, (uint16_t)header->version, 0, bytes + CELL_HEADER,
                                 cell_bytes - CELL_HEADER));
}
