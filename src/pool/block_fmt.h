/*
 * block_fmt.h - the first 32 bytes of every block that the pool hands out: the beginning of its
 * header cell (cell_fmt.h), which the engine continues.
 *
 *    0  8  cell header
 *    8  8  own address
 *   16  8  version: goes up for ever at an address, over all its lives
 *   24  8  tenure: state 8, kind 8, table 16, member 16, incarnation 16 (from the high end)
 *
 * The tenure is one word, so it is never torn, and it alone says whose the block is:
 *   0        none: no block has it once its chunk has been given out
 *   FREE     held by that member (0: the memory node), to be used again; or, with the kind of
 *            intent_fmt.h, that member's slot for an intent
 *   LIVE     part of a table; the member is the one that made it
 * A sweep after a death relies on nothing else. Zeroes are no valid cell.
 */
#ifndef POOL_BLOCK_FMT_H
#define POOL_BLOCK_FMT_H

#include <stdint.h>

#include "fabric/fabric.h"

enum pool_block_state { POOL_BLOCK_RAW, POOL_BLOCK_FREE, POOL_BLOCK_LIVE };

enum {
    POOL_BLOCK_ADDRESS = 8,
    POOL_BLOCK_VERSION = 16,
    POOL_BLOCK_TENURE = 24,
    POOL_BLOCK_HEADER = 32,
};

struct pool_tenure {
    enum pool_block_state state;
    uint8_t kind; /* the engine's */
    uint16_t table;
    struct fabric_identity holder;
};

static inline uint64_t pool_tenure_pack(struct pool_tenure tenure)
{
    return (uint64_t)tenure.state << 56 | (uint64_t)tenure.kind << 48 |
           (uint64_t)tenure.table << 32 | (uint64_t)tenure.holder.member << 16 |
           tenure.holder.incarnation;
}

static inline struct pool_tenure pool_tenure_unpack(uint64_t word)
{
    return (struct pool_tenure){
        .state = (enum pool_block_state)(word >> 56),
        .kind = (uint8_t)(word >> 48),
        .table = (uint16_t)(word >> 32),
        .holder = {.member = (uint16_t)(word >> 16), .incarnation = (uint16_t)word},
    };
}

#endif
