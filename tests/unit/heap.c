/*
 * The heap against a sorted array: random inserts, removals from the middle, and pops.
 */
#include "base/heap.h"

#include "base/prng.h"
#include "lib/check.h"

enum { NODES = 500 };

static struct heap_node nodes[NODES];

static struct heap_node *smallest(void)
{
    struct heap_node *least = NULL;
    for (int i = 0; i < NODES; i++) {
        struct heap_node *node = &nodes[i];
        if (heap_contains(node) && (least == NULL || node->key < least->key ||
                                    (node->key == least->key && node->order < least->order)))
            least = node;
    }
    return least;
}

int main(void)
{
    struct heap heap;
    struct prng prng;
    uint64_t order = 0;

    heap_init(&heap);
    prng_seed(&prng, 3);
    for (int round = 0; round < 20000; round++) {
        struct heap_node *node = &nodes[prng_below(&prng, NODES)];
        if (!heap_contains(node)) {
            node->key = prng_below(&prng, 50);
            node->order = order++;
            heap_insert(&heap, node);
        } else if (prng_below(&prng, 2) == 0) {
            heap_remove(&heap, node);
        } else {
            node = heap_peek(&heap);
            CHECK(node == smallest());
            heap_remove(&heap, node);
        }
    }
    while (heap.count > 0) {
        struct heap_node *node = heap_peek(&heap);
        CHECK(node == smallest());
        heap_remove(&heap, node);
    }
    CHECK(smallest() == NULL);
    heap_fini(&heap);
    return 0;
}
