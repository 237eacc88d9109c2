/*
 * call_fmt.h - calls that a memory node answers. Requests come from any client that knows the
 * secret, and are checked like everything from outside.
 *
 *   GRANT   request   0 4 block bytes   4 4 blocks wanted at the most   8 1 chunk kind   9 7 zero
 *           reply     0 8 address of a whole chunk, or 0   8 8 its version floor
 *                    16 4 blocks that follow              20 4 zero
 *                    24   each: address 8, version 8
 *   RETURN  request   0 4 block bytes   4 4 blocks   8 each: address 8, version 8
 *           reply     empty
 *   SWEEP   request   0 2 member   2 2 incarnation   4 4 zero: takes back what that member held
 *                     or 0 4 zero   4 4 table: and all blocks of a table that nobody uses any more
 *           reply     0 8 blocks and 8 8 chunks taken back
 *   STATS   request   empty
 *           reply     struct pool_node_stats
 *   WORK    request and reply are an engine's: what its part on memory nodes does, after this node's CPU has
 *           seen to it that it sees every WRITE that has completed
 *   WORK_SEEN  the same at once: the caller knows that it sees what it is asked about
 */
#ifndef POOL_CALL_FMT_H
#define POOL_CALL_FMT_H

#include <stdint.h>

enum pool_method {
    POOL_GRANT = 1,
    POOL_RETURN,
    POOL_SWEEP,
    POOL_STATS,
    POOL_WORK,
    POOL_WORK_SEEN,
    POOL_METHODS
};

struct pool_grant_request {
    uint32_t block_bytes;
    uint32_t blocks_max;
    uint8_t kind;
    uint8_t zero[7];
};
_Static_assert(sizeof(struct pool_grant_request) == 16, "format");

struct pool_block {
    uint64_t address;
    uint64_t version; /* the last it had; the next must be higher */
};

enum { POOL_GRANT_BLOCKS_MAX = 1024 };

struct pool_grant_reply {
    uint64_t chunk;
    uint64_t version_floor;
    uint32_t blocks;
    uint32_t zero;
};
_Static_assert(sizeof(struct pool_grant_reply) == 24, "format");

struct pool_return_request {
    uint32_t block_bytes;
    uint32_t blocks;
};

struct pool_sweep_request {
    uint16_t member;
    uint16_t incarnation;
    uint32_t table; /* with member 0 */
};

struct pool_sweep_reply {
    uint64_t blocks;
    uint64_t chunks;
};

struct pool_node_stats {
    uint64_t chunks;
    uint64_t chunks_free;
    uint64_t chunks_reserved;   /* of the free ones: for what is vital only */
    uint64_t blocks_free_bytes; /* in the node's own hands, in chunks that are not free */
    uint64_t grants;
    uint64_t returns;
    uint64_t sweeps;
    uint64_t refusals; /* FULL */
    uint64_t starts;
    uint64_t chunks_damaged;  /* whose entry could not be read when it started: not given out */
    uint64_t intents_damaged; /* that could not be read then: torn, or damaged */
};

#endif
