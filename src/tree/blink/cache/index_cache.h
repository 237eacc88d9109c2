/*
 * index_cache.h - copies of inner nodes, found by key.
 *
 * Bounded in bytes. When it is full, two random nodes of the lowest cached level are drawn and the
 * one used less recently goes. Nodes of the top levels stay. Nothing here is ever invalidated by
 * others: whoever follows a cached pointer checks fences and level of what it finds, and drops the
 * node that misled it.
 *
 * Any thread. Searches wait for nobody and write to no memory that other threads read all the time:
 * each thread searches by a reader of its own. What writers take out is freed when no reader can be
 * looking at it any more; while one stands still in the middle of a search, writers may leave
 * undone what would need more memory than may wait for that.
 */
#ifndef TREE_BLINK_CACHE_INDEX_CACHE_H
#define TREE_BLINK_CACHE_INDEX_CACHE_H

#include "tree/blink/cache/grace.h"
#include "tree/blink/node/node.h"

struct index_cache;

/* One thread's, in the caller's memory: on a cache line that no other thread writes to. */
struct index_cache_reader {
    struct index_cache *cache;
    struct grace_reader reads;
};

struct index_cache_stats {
    uint64_t bytes;
    uint64_t nodes;
    uint64_t evictions;
    uint64_t waiting; /* pieces of memory taken out that readers may still look at */
};

/* NULL when memory is gone. */
struct index_cache *index_cache_create(const struct node_layout *layout, uint64_t budget_bytes,
                                       uint64_t seed);

/* No reader is left. */
void index_cache_destroy(struct index_cache *cache);

/* A reader begins with zeroes, and ends before the cache does. */
void index_cache_join(struct index_cache *cache, struct index_cache_reader *reader);
void index_cache_part(struct index_cache_reader *reader);

/* What a search may start from. */
struct index_cache_hit {
    fabric_address child;
    uint8_t child_level;
};

/* The child on the way to the key, from the lowest cached node above `level` that covers it. With
 * `before` the child that has the keys just below `key`. */
bool index_cache_find(struct index_cache_reader *reader, struct slice key, uint8_t level,
                      bool before, struct index_cache_hit *out);

/* Further children to the right of the one that covers `key`, of the cached level-1 node; how
 * many. */
uint32_t index_cache_next_leaves(struct index_cache_reader *reader, struct slice key,
                                 fabric_address *children, uint32_t most);

/* Copies an inner node whose header and cell were checked. Replaces an older copy of the same
 * range. */
void index_cache_put(struct index_cache *cache, const struct node_header *header,
                     const uint8_t *bytes);

/* Forgets the node of that level that covers the key; without memory it may stay. */
void index_cache_drop(struct index_cache *cache, uint8_t level, struct slice key);

/* Nodes of this level and above stay. */
void index_cache_pin(struct index_cache *cache, uint8_t level);

void index_cache_stats(struct index_cache *cache, struct index_cache_stats *out);

#endif
