/*
 * memnode.h - what runs on a memory node: it formats the window as a part of a pool, or finds the
 * pool in it again, and answers the calls of clients (memory in chunks and blocks, sweeping,
 * statistics).
 *
 * Clients do everything else one-sided. Nothing here is on their data path.
 */
#ifndef POOL_MEMNODE_H
#define POOL_MEMNODE_H

#include "fabric/fabric.h"
#include "pool/pool.h"

struct memnode;

enum {
    MEMNODE_DEVICE_BYTES = 256 * 1024
}; /* what its window needs of on-chip memory: the lock table */

/* Work that engines have memory nodes do: in the window, on a task of a loop that serves calls. Every
 * WRITE that had completed before the call is there. */
enum { MEMNODE_LATCHES = 64 };
struct memnode_place {
    struct fabric *fabric;
    uint64_t pool;
    uint16_t bank;            /* that this node is */
    struct rt_latch *latches; /* MEMNODE_LATCHES, for what two calls must not do at the same time */
};
typedef enum pando_status (*memnode_pushdown_fn)(const struct memnode_place *place,
                                                 struct fabric_request *request);

/* Where in blocks of a kind the byte is that says their level in a tree, 0 for a leaf; 0: they have none. */
typedef uint32_t (*memnode_level_fn)(uint8_t kind);

struct memnode_options {
    memnode_pushdown_fn work;  /* NULL: none is done */
    memnode_level_fn level_at; /* NULL: nothing has a level; for USAGE only */
    uint64_t grace_ns;         /* before memory swept from a dead client is used again; 0 for 2 s */
    uint64_t seed;             /* of a new pool's id; 0: from the machine */
    bool replace;              /* an empty window takes the place of this node's, which is lost */
};

/* Formats or reopens, and sets the fabric's handler of calls; before the fabric starts. VERSION:
 * the window holds a pool of another format. INVALID: with `replace`, it is not empty. Errors as one line for a person. Not from a task. */
PANDO_MUST_CHECK enum pando_status memnode_open(struct fabric *fabric,
                                                const struct memnode_options *options,
                                                struct memnode **out, char *error,
                                                size_t error_bytes);

/* After the fabric is closed. */
void memnode_close(struct memnode *memnode);

/* The least window that holds a pool's tables and one chunk. */
uint64_t memnode_bytes_min(void);

/* ---- what it can say of itself (any thread) -------------------------------------------------- */

void memnode_stats(struct memnode *memnode, struct pool_node_stats *out);

/* Members that there are, up to `capacity`; the table is on node 0, elsewhere there are none. */
void memnode_members(struct memnode *memnode, struct pool_member *out, unsigned capacity,
                     unsigned *count);

/* Calls that were answered, by method, and those of them with an error. */
struct memnode_calls {
    uint64_t answered[POOL_METHODS], errors;
};
void memnode_calls(const struct memnode *memnode, struct memnode_calls *out);

#endif
