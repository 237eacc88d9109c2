#include "tree/cache/hints.h"

#include <stdlib.h>

#include "base/assert.h"

enum { PLACES_PER_NODE = 4, PLACES_MIN = 4 };

static bool suits(const struct hints *hints, uint64_t nodes, uint64_t first, uint64_t last)
{
    uint64_t wanted = PLACES_PER_NODE * nodes;
    if (wanted > hints->count || wanted * PLACES_PER_NODE < hints->count)
        return false;
    /* Keys that grow leave the table behind: not all of it is made anew for each. */
    bool inside = first >= hints->first && (last - hints->first) >> hints->shift < hints->count;
    return inside || nodes < hints->made_for + hints->made_for / 8;
}

int64_t hints_suit(struct hints *hints, uint64_t nodes, uint64_t first, uint64_t last)
{
    uint64_t before = hints->count, count = PLACES_MIN;

    if (suits(hints, nodes, first, last))
        return 0;
    hints_free(hints);
    while (count < PLACES_PER_NODE * nodes)
        count *= 2;
    unsigned shift = 0;
    while ((last - first) >> shift >= count)
        shift++;
    struct cached_node **places = calloc(count, sizeof(struct cached_node *));
    if (places != NULL)
        *hints = (struct hints){
            .nodes = places, .count = count, .first = first, .shift = shift, .made_for = nodes};
    return ((int64_t)hints->count - (int64_t)before) * (int64_t)sizeof(struct cached_node *);
}

void hints_free(struct hints *hints)
{
    for (uint64_t at = 0; at < hints->count; at++) {
        if (hints->nodes[at] != NULL)
            hints->nodes[at]->hints = 0;
    }
    free(hints->nodes);
    *hints = (struct hints){0};
}

void hints_set(struct hints *hints, uint64_t word, struct cached_node *node)
{
    struct cached_node **place = hints_at(hints, word);
    if (place == NULL)
        return;
    if (*place != NULL)
        (*place)->hints--;
    *place = node;
    node->hints++;
}

void hints_forget(struct hints *hints, struct cached_node *node)
{
    uint64_t low = cached_node_low_word(node);
    uint64_t at = low > hints->first ? (low - hints->first) >> hints->shift : 0;
    for (; node->hints > 0; at++) {
        pando_assert(at < hints->count); /* what names it lies between its fences */
        if (hints->nodes[at] == node) {
            hints->nodes[at] = NULL;
            node->hints--;
        }
    }
}
