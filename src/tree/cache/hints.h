/*
 * hints.h - where the node of a key was found last, for keys that are words: a table by the first bits of
 * where the key lies between the lowest and the highest. Most of a level's searches are then a look at one
 * place and at the node it names. Nodes are forgotten before they are freed.
 */
#ifndef TREE_CACHE_HINTS_H
#define TREE_CACHE_HINTS_H

#include "tree/cache/cached_node.h"

struct hints {
    struct cached_node **nodes; /* NULL: none found there yet */
    uint64_t count;             /* a power of two, a few for each node; 0: none yet */
    uint64_t first;             /* word of the first place */
    unsigned shift;             /* places are 2^shift words wide */
    uint64_t made_for;          /* nodes there were when it was made */
};

/* Makes the table anew if it does not suit that many nodes, from which to which. Without memory there are none.
 * How many bytes it has become larger. */
int64_t hints_suit(struct hints *hints, uint64_t nodes, uint64_t first, uint64_t last);
void hints_free(struct hints *hints);

/* A node knows how many places name it, so that one whose range is most of the table is not searched for in all of it. */
void hints_forget(struct hints *hints, struct cached_node *node);

/* The place for a word; NULL: it lies outside. */
static inline struct cached_node **hints_at(const struct hints *hints, uint64_t word)
{
    uint64_t at = (word - hints->first) >> hints->shift;
    return word >= hints->first && at < hints->count ? &hints->nodes[at] : NULL;
}

void hints_set(struct hints *hints, uint64_t word, struct cached_node *node);

#endif
