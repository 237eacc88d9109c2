/*
 * kept.h - the locks of a dead member that a partial recovery leaves locked, because an intent that is
 * still to be redone may name them (partial.c). Addresses in, answers out, no I/O. When in doubt it
 * keeps: a lock that is kept for no reason waits for the missing node, one that is released too early
 * loses what others write under it.
 */
#ifndef POOL_KEPT_H
#define POOL_KEPT_H

#include <stdbool.h>

#include "pool/intent.h"

enum { KEPT_LOCKS_MAX = 4096 }; /* more: all are kept */

struct kept_locks {
    bool all;
    bool nodes[POOL_NODES_MAX]; /* of which all are kept */
    unsigned count;
    fabric_address locks[KEPT_LOCKS_MAX];
};

/* Empty when all its bytes are zero. */

/* All locks that an intent or a guard names. */
void kept_intent(struct kept_locks *kept, const struct intent *intent);

/* All locks of a node: what its guards name is not known. */
void kept_node(struct kept_locks *kept, uint16_t node);

bool kept_has(const struct kept_locks *kept, fabric_address lock);

#endif
