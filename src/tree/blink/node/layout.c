#include "tree/blink/node/node_int.h"

enum { PAIRS_MIN = 4, KEY_BYTES_MAX = 1024, BLOB_WORD = 8 };

static bool sizes_sound(const struct node_layout *layout, uint32_t key_max, uint32_t value_max)
{
    return layout->node_bytes >= NODE_BYTES_MIN && layout->node_bytes <= NODE_BYTES_MAX &&
           layout->node_bytes % 64 == 0 && key_max >= 1 && key_max <= KEY_BYTES_MAX &&
           layout->key_size <= key_max && value_max <= layout->node_bytes &&
           layout->value_size <= value_max;
}

/*
 * With four of the largest pairs in a leaf, and so four of the largest separators in an inner node,
 * which take less, both halves of a split fit whatever their fences are.
 */
enum pando_status node_layout_init(struct node_layout *layout, uint32_t key_max, uint32_t value_max)
{
    if (!sizes_sound(layout, key_max, value_max))
        return PANDO_INVALID;
    layout->fixed = layout->key_size != 0 && layout->value_size != 0;
    layout->slots_at =
        layout->key_size != 0 ? NODE_FENCES + 2 * pad8(layout->key_size) : (uint32_t)NODE_FENCES;

    uint32_t key_bytes = layout->key_size != 0 ? layout->key_size : key_max;
    uint32_t value_bytes = layout->value_size != 0 ? layout->value_size : value_max;
    if (layout->value_size == 0 && value_bytes < BLOB_WORD)
        value_bytes = BLOB_WORD;
    uint32_t fences_end = NODE_FENCES + 2 * pad8(key_bytes);
    uint32_t largest = pad8(key_bytes) + pad8(value_bytes) +
                       (layout->fixed ? (uint32_t)NODE_SLOT_KEY : (uint32_t)NODE_PACKED_KEY);
    if (fences_end + PAIRS_MIN * largest > layout->node_bytes)
        return PANDO_INVALID;

    layout->leaf_room = layout->node_bytes - fences_end;
    layout->slot_bytes = layout->fixed ? largest : 0;
    layout->slot_count = layout->fixed ? layout->leaf_room / layout->slot_bytes : 0;
    return PANDO_OK;
}
