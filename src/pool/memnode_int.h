/*
 * memnode_int.h - what the files of a memory node's own part share.
 *
 * The chunk table and the tenures in the window are the truth; what is kept here besides is rebuilt
 * from them when the node starts.
 */
#ifndef POOL_MEMNODE_INT_H
#define POOL_MEMNODE_INT_H

#include "base/log_limit.h"
#include "base/prng.h"
#include "pool/block_fmt.h"
#include "pool/call_fmt.h"
#include "pool/memnode.h"
#include "pool/pool_fmt.h"

struct chunk {
    struct pool_chunk entry;
    uint32_t blocks;        /* that begin here */
    uint32_t free_count;    /* in the node's hands */
    uint16_t *free_blocks;  /* their indices, a stack; allocated when first needed */
    uint32_t held;          /* so many at the bottom may still be read by others: */
    uint64_t not_before_ns; /* they are not given out before */
    struct list link;       /* in its class, while it has free blocks */
};

/* Chunks of one kind and block size that have free blocks. */
struct block_class {
    enum pool_chunk_kind kind;
    uint32_t block_bytes;
    struct list chunks;
};

/* What a member has told of, of this incarnation (POOL_WAITING). */
struct member_waiting {
    uint16_t incarnation;
    uint64_t bytes;
};

enum { CLASSES_MAX = 256 };
_Static_assert(POOL_CHUNK_BYTES / 64 <= UINT16_MAX, "free_blocks");

struct memnode {
    struct fabric *fabric;
    uint64_t first;
    struct pool_superblock super;
    uint64_t grace_ns;
    uint64_t seed;
    bool replace;
    struct log_seldom refusal_log;
    memnode_pushdown_fn work;
    memnode_level_fn level_at;
    struct rt_latch pushdown_latches[MEMNODE_LATCHES];
    struct rt_latch latch; /* over all below; calls are served on several threads */
    struct chunk *chunks;
    uint64_t chunks_free;
    uint64_t lowest_free; /* no chunk before it is free */
    uint64_t reserve;     /* so many of the free ones are for what is vital only */
    bool whole_held;      /* some chunk is free when its blocks need not be held any more */
    struct block_class classes[CLASSES_MAX]; /* one without chunks may become another's */
    uint32_t class_next;                     /* gives its place next, when there are more sizes */
    bool classes_short;                      /* chunks with free blocks may be in none */
    struct pool_node_stats stats;
    struct member_waiting waiting[POOL_MEMBERS];
    bool usage_looking;
    uint64_t usage_until_ns;                           /* what follows is told until then */
    struct tally *usage;                               /* NULL: nobody has looked yet */
    _Atomic uint64_t calls[POOL_METHODS], call_errors; /* not under the latch */
};

enum pando_status memnode_word_read(struct memnode *memnode, uint64_t offset, uint64_t *out);
enum pando_status memnode_word_write(struct memnode *memnode, uint64_t offset, uint64_t word);
uint64_t memnode_random(struct memnode *memnode);

/* memnode_serve.c */
enum pando_status memnode_serve(void *context, struct fabric_request *request);

/* memnode_refusal.c: a fabric_refusal_fn */
void memnode_refusal(void *context, const struct fabric_refusal *refusal);

/* memnode_judge.c: on node 0, whether that member is the one that drops the table of that number, whose
 * entry is in that slot. Behind a barrier. */
bool memnode_drops(struct memnode *memnode, struct fabric_identity who, uint32_t slot,
                   uint32_t table);

/* memnode_chunks.c; under the latch, but for the first two */
enum pando_status memnode_chunks_load(struct memnode *memnode);
void memnode_chunks_free(struct memnode *memnode);
uint64_t memnode_load(struct memnode *memnode, uint64_t offset);
void memnode_store(struct memnode *memnode, uint64_t offset, uint64_t word);
uint64_t memnode_block_offset(const struct memnode *memnode, uint64_t index, uint32_t block);

/* Chunks with free blocks of a kind and size. */
struct block_class *memnode_class(struct memnode *memnode, enum pool_chunk_kind kind,
                                  uint32_t block_bytes);
bool memnode_block_push(struct memnode *memnode, uint64_t index, uint32_t block);

/* Cuts a free chunk, or several in a row for a large block. False: there are none, or only the reserve. */
bool memnode_chunk_open(struct memnode *memnode, enum pool_chunk_kind kind, uint32_t block_bytes,
                        bool from_reserve);

/* All its blocks are in the node's hands. */
void memnode_chunk_release(struct memnode *memnode, uint64_t index);

/* memnode_blocks.c; these take the latch themselves, but for the first two */
struct pool_tenure memnode_tenure(struct memnode *memnode, uint64_t index, uint32_t block);

/* Releases chunks whose blocks are all back and need not be held any more. Under the latch. */
void memnode_release_whole(struct memnode *memnode);
enum pando_status memnode_grant(struct memnode *memnode, struct fabric_identity to,
                                const struct pool_grant_request *request,
                                struct pool_grant_reply *reply, struct pool_block *blocks);
enum pando_status memnode_return_co(struct memnode *memnode, struct fabric_identity from,
                                    const struct pool_return_request *request,
                                    const struct pool_block *blocks);
enum pando_status memnode_sweep_co(struct memnode *memnode, struct fabric_identity dead,
                                   struct pool_sweep_reply *reply);

/* Takes back every block of a table that nobody uses any more. */
enum pando_status memnode_sweep_table_co(struct memnode *memnode, uint16_t table,
                                         struct pool_sweep_reply *reply);

/* After it this node's CPU sees every WRITE that has completed (rule cpu-visibility). */
enum pando_status memnode_barrier_co(struct memnode *memnode);

/* memnode_usage.c: POOL_USAGE_BYTES_MAX at the most. AGAIN: ask again. */
enum pando_status memnode_usage_co(struct memnode *memnode, uint32_t from, uint8_t *reply,
                                   uint32_t *size);
void memnode_usage_free(struct memnode *memnode);

/* So many bytes of this node a member keeps for their grace period. DENIED, INVALID. */
PANDO_MUST_CHECK enum pando_status memnode_waiting(struct memnode *memnode,
                                                   struct fabric_identity from, uint64_t bytes);

/* It keeps none any more: it is no member. Under the latch. */
void memnode_waiting_end(struct memnode *memnode, struct fabric_identity gone);

/* memnode_judge.c: who has joined, and who is dead (rule fence-ticket) */
void memnode_judge_start(struct memnode *memnode);
enum pando_status memnode_pass_co(struct memnode *memnode, struct fabric_request *request);
enum pando_status memnode_ticket_co(struct memnode *memnode, struct fabric_request *request);

/* memnode_redo.c: what dead writers left half done when the node itself went down (rule
 * new-incarnation) */
enum pando_status memnode_intents_redo(struct memnode *memnode);

#endif
