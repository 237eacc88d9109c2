/*
 * heap.h - an intrusive min-heap of timed things that can be removed from the middle.
 *
 * Ordered by (key, order): order breaks ties, so that equal keys leave in the order their owner
 * chose. The array is 4-ary and carries the keys itself, so that a sift touches few cache lines. A
 * node is in at most one heap; its memory belongs to the caller and must stay until it is popped or
 * removed.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    uint64_t key;
    uint64_t order;
    size_t index; /* place in the array plus one; 0 when in no heap */
};

struct heap_slot {
    uint64_t key;
    uint64_t order;
    struct heap_node *node;
};

struct heap {
    struct heap_slot *slots;
    size_t count;
    size_t capacity;
};

void heap_init(struct heap *heap);
void heap_fini(struct heap *heap);

/* Makes room for so many nodes in all. False: no memory; the heap is as before. */
bool heap_reserve(struct heap *heap, size_t count);

/* Inserts by node->key and node->order. Where there is no room the array grows; aborts when memory is gone. */
void heap_insert(struct heap *heap, struct heap_node *node);

/* Removes a node that is in this heap. */
void heap_remove(struct heap *heap, struct heap_node *node);

/* The smallest node, or NULL. It stays in the heap. */
static inline struct heap_node *heap_peek(const struct heap *heap)
{
    return heap->count == 0 ? NULL : heap->slots[0].node;
}

static inline bool heap_contains(const struct heap_node *node)
{
    return node->index != 0;
}

#endif
