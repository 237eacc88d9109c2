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

struct memnode;

enum {
    MEMNODE_DEVICE_BYTES = 256 * 1024
}; /* what its window needs of on-chip memory: the lock table */

struct memnode_options {
    uint64_t grace_ns; /* before memory swept from a dead client is used again; 0 for 2 s */
    uint64_t seed;     /* of a new pool's id; 0: from the machine */
};

/* Formats or reopens, and sets the fabric's handler of calls; before the fabric starts. VERSION:
 * the window holds a pool of another format. Errors as one line for a person. Not from a task. */
PANDO_MUST_CHECK enum pando_status memnode_open(struct fabric *fabric,
                                                const struct memnode_options *options,
                                                struct memnode **out, char *error,
                                                size_t error_bytes);

/* After the fabric is closed. */
void memnode_close(struct memnode *memnode);

/* The least window that holds a pool's tables and one chunk. */
uint64_t memnode_bytes_min(void);

#endif
