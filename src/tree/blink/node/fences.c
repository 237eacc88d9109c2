/*
 * fences.c - fences and the child before a key, of nodes that were checked when they were read.
 */
#include "tree/blink/node/node_int.h"

struct slice node_low_fence(const struct node_layout *layout, const uint8_t *bytes)
{
    (void)layout;
    return slice_of(bytes + NODE_FENCES, load_u16(bytes + NODE_LOW_SIZE));
}

bool node_high_fence(const struct node_layout *layout, const uint8_t *bytes, struct slice *high)
{
    uint32_t low_size = load_u16(bytes + NODE_LOW_SIZE);
    uint32_t low_bytes = pad8(layout->key_size != 0 ? layout->key_size : low_size);
    *high = slice_of(bytes + NODE_FENCES + low_bytes, load_u16(bytes + NODE_HIGH_SIZE));
    return (bytes[NODE_FLAGS] & NODE_NO_HIGH) == 0;
}

fabric_address inner_child_before(const struct node_layout *layout, const uint8_t *bytes,
                                  struct slice key, uint32_t *index)
{
    fabric_address child = inner_child(layout, bytes, key, index);
    if (*index == 0 || key_compare(inner_key_at(layout, bytes, *index - 1), key) != 0)
        return child;
    /* The key is where a child begins: the keys below it are in the one before. */
    --*index;
    return inner_child_at(layout, bytes, *index);
}
