/*
 * call_fmt.h - calls that a memory node answers. Requests come from any client that knows the
 * secret, and are checked like everything from outside.
 *
 *   GRANT   request   0 4 block bytes   4 4 blocks wanted at the most   8 1 chunk kind
 *                     9 1 modest: 1 if a vital block is not wanted from the reserve   10 6 zero
 *           reply     0 4 blocks that follow   4 4 zero   8 each: address 8, version 8
 *   RETURN  request   0 4 blocks   4 4 hold: 1 if they may still be read by others, and are not to
 *                     be given out before a grace period is over   8 each: address 8, version 8
 *           reply     empty
 *   SWEEP   request   0 2 member   2 2 incarnation   4 4 zero: takes back what that member held
 *                     or 0 4 zero   4 4 table: and all blocks of a table that nobody uses any more
 *           reply     0 8 blocks and 8 8 chunks taken back
 *   STATS   request   empty
 *           reply     struct pool_node_stats
 *   USAGE   request   empty
 *           reply     struct pool_usage_head, its classes, its tables; up to some seconds old
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
    POOL_USAGE,
    POOL_METHODS
};

struct pool_grant_request {
    uint32_t block_bytes;
    uint32_t blocks_max;
    uint8_t kind;
    uint8_t modest;
    uint8_t zero[6];
};
_Static_assert(sizeof(struct pool_grant_request) == 16, "format");

struct pool_block {
    uint64_t address;
    uint64_t version; /* the last it had; the next must be higher */
};

enum { POOL_GRANT_BLOCKS_MAX = 1024 };

struct pool_grant_reply {
    uint32_t blocks;
    uint32_t zero;
};
_Static_assert(sizeof(struct pool_grant_reply) == 8, "format");

struct pool_return_request {
    uint32_t blocks;
    uint32_t hold;
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

enum { POOL_USAGE_CLASSES = 256, POOL_USAGE_TABLES = 1024 };

struct pool_usage_head {
    uint64_t hands_bytes; /* granted to members and not in use, or freed and not back yet */
    uint64_t slots_bytes; /* for intents */
    uint64_t held_bytes;  /* back, and not given out before a grace period is over */
    uint32_t classes;
    uint32_t tables;
};
_Static_assert(sizeof(struct pool_usage_head) == 32, "format");

/* Chunks that are cut into blocks of one size. */
struct pool_usage_class {
    uint32_t block_bytes;
    uint32_t kind; /* enum pool_chunk_kind */
    uint64_t chunks;
    uint64_t free_bytes; /* in the node's own hands */
};
_Static_assert(sizeof(struct pool_usage_class) == 24, "format");

/* Blocks of a table of one kind. */
struct pool_usage_table {
    uint16_t table;
    uint8_t kind; /* the engine's */
    uint8_t zero[5];
    uint64_t bytes;
    uint64_t blocks;
};
_Static_assert(sizeof(struct pool_usage_table) == 24, "format");

enum {
    POOL_USAGE_BYTES_MAX = sizeof(struct pool_usage_head) +
                           POOL_USAGE_CLASSES * sizeof(struct pool_usage_class) +
                           POOL_USAGE_TABLES * sizeof(struct pool_usage_table)
};

#endif
