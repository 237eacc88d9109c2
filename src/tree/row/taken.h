/*
 * taken.h - what a load has taken from the pool so far. Until its root is in place nobody else knows
 * of any of it: if the load fails, it is given back.
 */
#ifndef TREE_ROW_TAKEN_H
#define TREE_ROW_TAKEN_H

#include "blob/blob_fmt.h"
#include "pool/pool.h"

/* All zero to begin with, but for the first three. */
struct taken {
    struct pool_session *session;
    uint16_t table;
    uint32_t node_bytes;
    struct pool_block *nodes;
    size_t node_count, node_capacity;
    blob_ref *blobs;
    size_t blob_count, blob_capacity;
};

/* NO_MEMORY: it was freed. The version is the one that the node has, or will have. */
PANDO_MUST_CHECK enum pando_status taken_node_co(struct taken *taken, struct pool_block node);
PANDO_MUST_CHECK enum pando_status taken_blob_co(struct taken *taken, blob_ref blob);

/* When none of it is being written any more. Whoever has lost its pool does not try for longer than pool_retry_co. */
void taken_give_back_co(struct taken *taken);
void taken_free(struct taken *taken);

#endif
