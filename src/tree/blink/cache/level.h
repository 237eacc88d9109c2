/*
 * level.h - the cached nodes of one level in the order of their low fences. They do not overlap.
 *
 * Nodes are named by pages of up to 64, and pages by the level's top:
 *
 *   top    | low of page 1, 2, 3 ... as words | page 0, 1, 2, 3 ... |
 *   page   | low of node 1, 2, 3 ... as words | node 0, 1, 2, 3 ... |
 *
 * A search looks at the words of the top, then at those of one page, each side by side in memory
 * (key_words.h). Words never change, and neither does what a page begins with while a top names it.
 * A page that changes is replaced whole: its place in the top then names another, or there is
 * another top if that begins with another key. A node with the low fence of the one before takes
 * its place. So a reader that began with some top finds what was right at that time or later.
 *
 * One writer at a time; any number of readers, between grace_enter and grace_leave (grace.h).
 */
#ifndef TREE_BLINK_CACHE_LEVEL_H
#define TREE_BLINK_CACHE_LEVEL_H

#include "tree/blink/cache/cached_node.h"
#include "tree/blink/cache/grace.h"
#include "tree/blink/node/search.h"

enum {
    LEVEL_NODE_BYTES = 16, /* of a node, in its page */
    LEVEL_PAGE_NODES = 64,
};

typedef _Atomic(void *) level_slot;

/* A top or a page. */
struct level_row {
    uint32_t count;   /* of what it names: never 0 */
    uint32_t common;  /* so many bytes are alike in the low fences of all but the first */
    uint64_t words[]; /* count - 1; then count slots; and if keys are no words, these bytes */
};

struct level {
    const struct node_layout *layout;
    struct grace *grace;
    _Atomic(struct level_row *) top; /* NULL: there is no node */
    uint64_t nodes;
    uint64_t bytes; /* of nodes and rows, but for those that wait to be freed */
};

struct level_place {
    uint32_t page, index;
};

void level_init(struct level *level, const struct node_layout *layout, struct grace *grace);

/* No reader is left. */
void level_fini(struct level *level);

static inline void *level_row_at(const struct level_row *row, uint32_t index)
{
    const level_slot *slots = (const level_slot *)(row->words + (row->count - 1));
    return atomic_load(&slots[index]);
}

/* ---- for readers, and for the writer --------------------------------------------------------- */

/* The last node whose low fence is at or below the key (below it, with `before`), or the first
 * node. NULL: there is none. */
struct cached_node *level_find(const struct level *level, struct slice key, bool before,
                               struct level_place *place);

/* The same of keys that are words, as all of the level's are: the last whose low fence's word is
 * below `limit`. */
static inline struct cached_node *level_find_word(const struct level *level, uint64_t limit)
{
    const struct level_row *row = atomic_load(&level->top);
    if (row == NULL)
        return NULL;
    row = level_row_at(row, search_below(row->words, row->count - 1, limit));
    return level_row_at(row, search_below(row->words, row->count - 1, limit));
}

/* ---- for the writer -------------------------------------------------------------------------- */

/* These do nothing and return false when memory is gone, or when readers stand still for so long
 * that too much waits to be freed. Nodes are the level's from then on. */

/* Between its neighbours, which it does not overlap. */
PANDO_MUST_CHECK bool level_insert(struct level *level, struct cached_node *node);

/* In place of a node with the same low fence. */
PANDO_MUST_CHECK bool level_replace(struct level *level, struct level_place place,
                                    struct cached_node *node);
PANDO_MUST_CHECK bool level_remove(struct level *level, struct level_place place);

struct cached_node *level_at(const struct level *level, struct level_place place);

/* The place behind; false: it was the last. Begins with {0, 0}, of a level that has nodes. */
bool level_next(const struct level *level, struct level_place *place);
struct level_place level_last(const struct level *level);

#endif
