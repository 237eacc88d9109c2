#include "tree/blink/cache/hints.h"

#include <stdlib.h>

enum { PLACES_PER_NODE = 4, PLACES_MIN = 4 };

bool hints_suit(const struct hints *hints, uint64_t nodes, uint64_t first, uint64_t last)
{
    uint64_t wanted = PLACES_PER_NODE * nodes;
    if (hints == NULL || wanted > hints->count || wanted * PLACES_PER_NODE < hints->count)
        return false;
    /* Keys that grow leave the table behind: not all of it is made anew for each. */
    bool inside = first >= hints->first && (last - hints->first) >> hints->shift < hints->count;
    return inside || nodes < hints->made_for + hints->made_for / 8;
}

struct hints *hints_create(uint64_t nodes, uint64_t first, uint64_t last)
{
    uint64_t count = PLACES_MIN;
    unsigned shift = 0;

    while (count < PLACES_PER_NODE * nodes)
        count *= 2;
    while ((last - first) >> shift >= count)
        shift++;
    struct hints *hints = calloc(1, sizeof(*hints) + count * sizeof(hints->nodes[0]));
    if (hints == NULL)
        return NULL;
    hints->count = count;
    hints->first = first;
    hints->shift = shift;
    hints->made_for = nodes;
    return hints;
}

uint64_t hints_bytes(const struct hints *hints)
{
    return hints == NULL ? 0 : sizeof(*hints) + hints->count * sizeof(hints->nodes[0]);
}

/* The first place that begins at this word or behind it. */
static uint64_t place_from(const struct hints *hints, uint64_t word)
{
    return word <= hints->first ? 0 : ((word - 1 - hints->first) >> hints->shift) + 1;
}

/* The places that begin within the node. */
static void places_of(const struct hints *hints, const struct cached_node *node, uint64_t *from,
                      uint64_t *to)
{
    *from = place_from(hints, cached_node_low_word(node));
    *to = node->no_high ? hints->count : place_from(hints, cached_node_high_word(node));
    if (*to > hints->count)
        *to = hints->count;
    if (*to > *from && *to - *from > HINTS_OF_NODE_MAX)
        *to = *from + HINTS_OF_NODE_MAX;
}

void hints_note(struct hints *hints, struct cached_node *node)
{
    uint64_t place, to;
    for (places_of(hints, node, &place, &to); place < to; place++)
        atomic_store_explicit(&hints->nodes[place], node, memory_order_release);
}

void hints_forget(struct hints *hints, const struct cached_node *node)
{
    uint64_t place, to;
    for (places_of(hints, node, &place, &to); place < to; place++) {
        if (atomic_load_explicit(&hints->nodes[place], memory_order_relaxed) == node)
            atomic_store(&hints->nodes[place], NULL);
    }
}
