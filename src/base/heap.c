#include "base/heap.h"

#include <stdlib.h>

#include "base/assert.h"

enum { ARITY = 4 };

static bool slot_less(const struct heap_slot *a, const struct heap_slot *b)
{
    return a->key < b->key || (a->key == b->key && a->order < b->order);
}

static void slot_put(struct heap *heap, size_t at, struct heap_slot slot)
{
    heap->slots[at] = slot;
    slot.node->index = at + 1;
}

static void sift_up(struct heap *heap, size_t at, struct heap_slot slot)
{
    while (at > 0) {
        size_t parent = (at - 1) / ARITY;
        if (!slot_less(&slot, &heap->slots[parent]))
            break;
        slot_put(heap, at, heap->slots[parent]);
        at = parent;
    }
    slot_put(heap, at, slot);
}

static void sift_down(struct heap *heap, size_t at, struct heap_slot slot)
{
    for (;;) {
        size_t first = at * ARITY + 1;
        if (first >= heap->count)
            break;
        size_t last = first + ARITY < heap->count ? first + ARITY : heap->count;
        size_t least = first;
        for (size_t child = first + 1; child < last; child++) {
            if (slot_less(&heap->slots[child], &heap->slots[least]))
                least = child;
        }
        if (!slot_less(&heap->slots[least], &slot))
            break;
        slot_put(heap, at, heap->slots[least]);
        at = least;
    }
    slot_put(heap, at, slot);
}

void heap_init(struct heap *heap)
{
    *heap = (struct heap){0};
}

void heap_fini(struct heap *heap)
{
    free(heap->slots);
    *heap = (struct heap){0};
}

bool heap_reserve(struct heap *heap, size_t count)
{
    size_t capacity = heap->capacity == 0 ? 64 : heap->capacity;
    while (capacity < count)
        capacity *= 2;
    if (capacity == heap->capacity)
        return true;
    struct heap_slot *slots = realloc(heap->slots, capacity * sizeof(*slots));
    if (slots == NULL)
        return false;
    heap->slots = slots;
    heap->capacity = capacity;
    return true;
}

void heap_insert(struct heap *heap, struct heap_node *node)
{
    pando_assert(node->index == 0);
    if (heap->count == heap->capacity) {
        bool room = heap_reserve(heap, heap->count + 1);
        pando_assert(room);
    }
    struct heap_slot slot = {.key = node->key, .order = node->order, .node = node};
    sift_up(heap, heap->count++, slot);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    pando_assert(node->index != 0 && node->index <= heap->count);
    size_t at = node->index - 1;
    pando_dassert(heap->slots[at].node == node);
    node->index = 0;

    struct heap_slot moved = heap->slots[--heap->count];
    if (at == heap->count)
        return;
    if (at > 0 && slot_less(&moved, &heap->slots[(at - 1) / ARITY]))
        sift_up(heap, at, moved);
    else
        sift_down(heap, at, moved);
}
