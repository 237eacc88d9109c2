/*
 * cached_node.h - a copy of an inner node, arranged for searching: its separators' words side by
 * side (key_words.h), then its children; or, where words do not say all of a key, the node's own
 * bytes.
 */
#ifndef TREE_BLINK_CACHE_CACHED_NODE_H
#define TREE_BLINK_CACHE_CACHED_NODE_H

#include <stdatomic.h>

#include "tree/blink/cache/key_words.h"
#include "tree/blink/node/node.h"

/* Never changed but for `used`. */
struct cached_node {
    _Atomic uint64_t used; /* the cache's clock when it was last of use */
    uint32_t bytes;
    uint16_t count; /* separators */
    uint16_t skip;  /* of their words */
    uint8_t level;
    bool no_high;
    uint8_t low_size;        /* of 8-byte keys */
    uint8_t low[8], high[8]; /* of 8-byte keys */
    uint64_t words[];
};

/* Of a node whose header and cell were checked. NULL when memory is gone; free() it. */
struct cached_node *cached_node_create(const struct node_layout *layout,
                                       const struct node_header *header, const uint8_t *bytes);

/* Lives as long as the node. */
struct slice cached_node_low(const struct node_layout *layout, const struct cached_node *node);

/* Whether the key lies below the high fence; with `before`, at it or below. */
bool cached_node_reaches(const struct node_layout *layout, const struct cached_node *node,
                         struct slice key, bool before);

/* Of 8-byte keys: the words of its fences; the lowest and the highest where it has none. */
static inline uint64_t cached_node_low_word(const struct cached_node *node)
{
    return key_word(slice_of(node->low, sizeof(node->low)), 0);
}

static inline uint64_t cached_node_high_word(const struct cached_node *node)
{
    return node->no_high ? UINT64_MAX : key_word(slice_of(node->high, sizeof(node->high)), 0);
}

/* Likewise: whether all whose words are below `limit` lie below the high fence. */
static inline bool cached_node_reaches_word(const struct cached_node *node, uint64_t limit)
{
    return node->no_high || limit <= cached_node_high_word(node);
}

/* Which of the children 0 .. count has the key; with `before`, the keys just below it. */
uint32_t cached_node_index(const struct node_layout *layout, const struct cached_node *node,
                           struct slice key, bool before);
fabric_address cached_node_child(const struct node_layout *layout, const struct cached_node *node,
                                 uint32_t index);

/* Whether the low fence is at or below the key; with `before`, below it. */
bool cached_node_begins(const struct node_layout *layout, const struct cached_node *node,
                        struct slice key, bool before);

/* Asks for all that a search may look at, so that one wait does for it. */
void cached_node_prefetch(const struct node_layout *layout, const struct cached_node *node);

#endif
