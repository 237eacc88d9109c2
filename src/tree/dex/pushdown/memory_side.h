/*
 * memory_side.h - what this engine does on memory nodes (memnode_pushdown_fn).
 */
#ifndef TREE_DEX_PUSHDOWN_MEMORY_SIDE_H
#define TREE_DEX_PUSHDOWN_MEMORY_SIDE_H

#include "pool/memnode.h"

PANDO_MUST_CHECK enum pando_status dex_memory_pushdown(const struct memnode_place *place,
                                                       struct fabric_request *request);

#endif
