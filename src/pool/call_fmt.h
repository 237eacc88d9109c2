/*
 * call_fmt.h - calls that a memory node answers. Requests come from any client that knows the
 * secret, and are checked like everything from outside.
 *
 *   GRANT   request   0 4 block bytes   4 4 blocks wanted at the most   8 1 chunk kind
 *                     9 1 modest: 1 if a vital block is not wanted from the reserve   10 6 zero
 *                     16 16 seal of the member's pass: who has none gets no memory
 *           reply     0 4 blocks that follow   4 4 chunks that could still be opened for such
 *                     blocks   8 each: address 8, version 8
 *   RETURN  request   0 4 blocks   4 4 hold: 1 if they may still be read by others, and are not to
 *                     be given out before a grace period is over   8 16 seal of the pass
 *                     24 each: address 8, version 8
 *           reply     empty
 *   SWEEP   request   0 2 member   2 2 incarnation   4 4 zero: takes back what that member held, which
 *                     is the caller or one that is fenced here
 *                     or 0 4 zero   4 4 table: and all blocks of a table that the caller drops
 *                     8 4 of a table: the slot of its entry, for node 0   12 4 zero
 *                     16 16 seal of the caller's pass
 *                     32 16 of a table, to the others: the seal that node 0 gave; else zero
 *           reply     0 8 blocks and 8 8 chunks taken back   16 16 of a table: node 0's seal that the
 *                     caller drops it, else zero
 *   STATS   request   empty
 *           reply     struct pool_node_stats
 *   USAGE   request   0 4 from: struct pool_usage_request
 *           reply     struct pool_usage_head, its classes, its tables; up to some seconds old
 *   WORK    request and reply are an engine's: what its part on memory nodes does, after this node's CPU has
 *           seen to it that it sees every WRITE that has completed
 *   WORK_SEEN  the same at once: the caller knows that it sees what it is asked about
 *   PASS    request   0 8 lease of the caller, ns, to node 0: has it joined?
 *                     or 0 2 member   2 2 incarnation   4 16 seal: its pass, to the others
 *           reply     its pass, of node 0; empty of the others
 *   TICKET  request   0 2 member   2 2 incarnation   4 4 zero: may it be declared dead? To node 0
 *           reply     0 4 claimed: 1 if its heartbeat says fenced   4 20 a ticket if it does, else
 *                     zero
 *   WAITING  request  0 8 bytes of this node that the caller has freed and still keeps for their
 *                     grace period: for USAGE, not kept over a restart
 *           reply     empty
 */
#ifndef POOL_CALL_FMT_H
#define POOL_CALL_FMT_H

#include <stdint.h>

#include "fabric/fabric.h"

enum pool_method {
    POOL_GRANT = 1,
    POOL_RETURN,
    POOL_SWEEP,
    POOL_STATS,
    POOL_PUSHDOWN,
    POOL_PUSHDOWN_SEEN,
    POOL_USAGE,
    POOL_PASS,
    POOL_TICKET,
    POOL_WAITING,
    POOL_METHODS
};

struct pool_grant_request {
    uint32_t block_bytes;
    uint32_t blocks_max;
    uint8_t kind;
    uint8_t modest;
    uint8_t zero[6];
    uint8_t pass[FABRIC_SEAL_BYTES];
};
_Static_assert(sizeof(struct pool_grant_request) == 32, "format");

struct pool_block {
    uint64_t address;
    uint64_t version; /* the last it had; the next must be higher */
};

enum { POOL_GRANT_BLOCKS_MAX = 1024 };

struct pool_grant_reply {
    uint32_t blocks;
    uint32_t chunks;
};
_Static_assert(sizeof(struct pool_grant_reply) == 8, "format");

struct pool_return_request {
    uint32_t blocks;
    uint32_t hold;
    uint8_t pass[FABRIC_SEAL_BYTES];
};
_Static_assert(sizeof(struct pool_return_request) == 24, "format");

struct pool_sweep_request {
    uint16_t member;
    uint16_t incarnation;
    uint32_t table; /* with member 0; slot and drop belong to it */
    uint32_t slot;
    uint32_t zero;
    uint8_t pass[FABRIC_SEAL_BYTES];
    uint8_t drop[FABRIC_SEAL_BYTES];
};
_Static_assert(sizeof(struct pool_sweep_request) == 48, "format");

struct pool_sweep_reply {
    uint64_t blocks;
    uint64_t chunks;
    uint8_t drop[FABRIC_SEAL_BYTES];
};
_Static_assert(sizeof(struct pool_sweep_reply) == 32, "format");

_Static_assert(sizeof(struct fabric_ticket) == 20, "format of a pass, and of a ticket");

struct pool_ticket_request {
    uint16_t member;
    uint16_t incarnation;
    uint32_t zero;
};
_Static_assert(sizeof(struct pool_ticket_request) == 8, "format");

struct pool_ticket_reply {
    uint32_t claimed;
    struct fabric_ticket ticket;
};
_Static_assert(sizeof(struct pool_ticket_reply) == 24, "format");

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
    uint64_t hands_bytes;   /* granted to members and not in use, without those that wait */
    uint64_t waiting_bytes; /* freed, and kept by members for a grace period, as they have told */
    uint64_t slots_bytes;   /* for intents */
    uint64_t held_bytes;    /* back, and not given out before a grace period is over */
    uint32_t classes;
    uint32_t tables; /* in this reply; POOL_USAGE_TABLES: there may be more */
};

/* Tables from this one on; in the order of their numbers, kinds and levels. */
struct pool_usage_request {
    uint32_t from; /* pool_usage_order */
};
_Static_assert(sizeof(struct pool_usage_head) == 40, "format");

struct pool_waiting_request {
    uint64_t bytes;
};

/* Chunks that are cut into blocks of one size. */
struct pool_usage_class {
    uint32_t block_bytes;
    uint32_t kind; /* enum pool_chunk_kind */
    uint64_t chunks;
    uint64_t free_bytes; /* that can be given out now */
};
_Static_assert(sizeof(struct pool_usage_class) == 24, "format");

/* Blocks of a table of one kind, above the leaves or not. */
struct pool_usage_table {
    uint16_t table;
    uint8_t kind;  /* the engine's */
    uint8_t inner; /* 1 if their level is not 0 (memnode_level_fn) */
    uint8_t zero[4];
    uint64_t bytes;
    uint64_t blocks;
};
_Static_assert(sizeof(struct pool_usage_table) == 24, "format");

static inline uint32_t pool_usage_order(const struct pool_usage_table *of)
{
    return (uint32_t)of->table << 16 | (uint32_t)of->kind << 8 | of->inner;
}

enum {
    POOL_USAGE_BYTES_MAX = sizeof(struct pool_usage_head) +
                           POOL_USAGE_CLASSES * sizeof(struct pool_usage_class) +
                           POOL_USAGE_TABLES * sizeof(struct pool_usage_table)
};

#endif
