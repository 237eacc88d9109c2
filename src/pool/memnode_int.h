/*
 * memnode_int.h - what the files of a memory node's own part share.
 *
 * The chunk table and the tenures in the window are the truth; what is kept here besides is rebuilt
 * from them when the node starts.
 */
#ifndef POOL_MEMNODE_INT_H
#define POOL_MEMNODE_INT_H

#include "base/prng.h"
#include "pool/block_fmt.h"
#include "pool/call_fmt.h"
#include "pool/memnode.h"
#include "pool/pool_fmt.h"

struct chunk {
    struct pool_chunk entry;
    uint32_t blocks;        /* that fit */
    uint32_t free_count;    /* in the node's hands */
    uint32_t *free_blocks;  /* their indices, a stack; allocated when first needed */
    uint32_t held;          /* so many at the bottom were swept: */
    uint64_t not_before_ns; /* they are not given out before */
    struct list link;       /* in its class, while it has free blocks */
};

/* Chunks of one kind and block size that have free blocks. */
struct block_class {
    enum pool_chunk_kind kind;
    uint32_t block_bytes;
    struct list chunks;
};

enum { CLASSES_MAX = 64 };

struct memnode {
    struct fabric *fabric;
    uint64_t first;
    struct pool_superblock super;
    uint64_t grace_ns;
    uint64_t seed;
    bool replace;
    memnode_work_fn work;
    struct rt_latch work_latches[MEMNODE_LATCHES];
    struct rt_latch latch; /* over all below; calls are served on several threads */
    struct chunk *chunks;
    uint64_t chunks_free, next_chunk;
    uint64_t reserve; /* so many of the free ones are for what is vital only */
    struct block_class classes[CLASSES_MAX];
    size_t class_count;
    struct pool_node_stats stats;
    _Atomic uint64_t calls[POOL_METHODS], call_errors; /* not under the latch */
};

enum pando_status memnode_word_read(struct memnode *memnode, uint64_t offset, uint64_t *out);
enum pando_status memnode_word_write(struct memnode *memnode, uint64_t offset, uint64_t word);
uint64_t memnode_random(struct memnode *memnode);

/* memnode_serve.c */
enum pando_status memnode_serve(void *context, struct fabric_request *request);

/* memnode_chunks.c; those without _locked take the latch themselves */
enum pando_status memnode_chunks_load(struct memnode *memnode);
void memnode_chunks_free(struct memnode *memnode);
enum pando_status memnode_grant(struct memnode *memnode, struct fabric_identity to,
                                const struct pool_grant_request *request,
                                struct pool_grant_reply *reply, struct pool_block *blocks);
enum pando_status memnode_return_co(struct memnode *memnode, struct fabric_identity from,
                                    uint32_t block_bytes, const struct pool_block *blocks,
                                    uint32_t count);
enum pando_status memnode_sweep_co(struct memnode *memnode, struct fabric_identity dead,
                                   struct pool_sweep_reply *reply);

/* Takes back every block of a table that nobody uses any more. */
enum pando_status memnode_sweep_table_co(struct memnode *memnode, uint16_t table,
                                         struct pool_sweep_reply *reply);

/* After it this node's CPU sees every WRITE that has completed (R8). */
enum pando_status memnode_barrier_co(struct memnode *memnode);

/* memnode_redo.c: what dead writers left half done when the node itself went down (R16) */
enum pando_status memnode_intents_redo(struct memnode *memnode);

#endif
