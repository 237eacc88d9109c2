/*
 * hints.h - where to find the node of a key at one look, for keys that are words: a table by the
 * first bits of where the key lies between the lowest and the highest. A place names the node that
 * covers its first word; the node of any other word of it is that one, or mostly the next place's.
 *
 * Writers, one at a time, fill it in and take out of it what they remove. Readers only look; a
 * table is replaced whole.
 */
#ifndef TREE_BLINK_CACHE_HINTS_H
#define TREE_BLINK_CACHE_HINTS_H

#include "tree/blink/cache/cached_node.h"

struct hints {
    uint64_t count;                        /* a power of two, a few for each node */
    uint64_t first;                        /* word of the first place */
    unsigned shift;                        /* places are 2^shift words wide */
    uint64_t made_for;                     /* nodes there were when it was made */
    _Atomic(struct cached_node *) nodes[]; /* NULL: none is known */
};

/* Whether a table does for that many nodes, from which to which. NULL does for none. */
bool hints_suit(const struct hints *hints, uint64_t nodes, uint64_t first, uint64_t last);

/* An empty one; free() it. NULL: no memory. */
struct hints *hints_create(uint64_t nodes, uint64_t first, uint64_t last);
uint64_t hints_bytes(const struct hints *hints);

/* Names the node in the places that are its own, HINTS_OF_NODE_MAX at the most; takes it out of
 * these. */
enum { HINTS_OF_NODE_MAX = 1024 };
void hints_note(struct hints *hints, struct cached_node *node);
void hints_forget(struct hints *hints, const struct cached_node *node);

static inline struct cached_node *hints_at(const struct hints *hints, uint64_t place,
                                           uint64_t limit)
{
    struct cached_node *node = atomic_load(&hints->nodes[place]);
    bool right =
        node != NULL && cached_node_low_word(node) < limit && cached_node_reaches_word(node, limit);
    return right ? node : NULL;
}

/* The node with the words just below `limit`, which is not 0. NULL: the table does not know. */
static inline struct cached_node *hints_find(const struct hints *hints, uint64_t limit)
{
    uint64_t place = (limit - 1 - hints->first) >> hints->shift;
    if (limit - 1 < hints->first || place >= hints->count)
        return NULL;
    struct cached_node *node = hints_at(hints, place, limit);
    return node == NULL && place + 1 < hints->count ? hints_at(hints, place + 1, limit) : node;
}

#endif
