/*
 * pushdown_fmt.h - an operation that a memory node does: POOL_PUSHDOWN(_SEEN) calls of this engine.
 * Requests come from members, and are checked like everything from outside.
 *
 *   request    0 2 the engine's number (engine_pushdown): DEX_PUSHDOWN   2 1 operation   3 1 zero
 *              4 2 table   6 1 level of the page   7 1 zero
 *              8 8 address of the page to begin with
 *             16 8 epoch, 24 8 place in the log: the stamp of a change
 *             32 8 an intent slot of the caller's on this node, for a change
 *             40 4 bytes of a page   44 4 key size of the table, 0 any   48 4 value size, 0 any
 *             52 4 largest key   56 4 largest value   60 2 size of the key   62 2 size of the value
 *             64 key, value
 *   reply      0 1 1: the key was there   1 1 1: its value is (or was) a blob's reference
 *              2 1 1: the leaf has become so empty that it should be merged
 *              3 1 1: an earlier call has done it; what this reply says is of afterwards   4 4 zero
 *              8 8 the leaf
 *             16 the value: of a get; of a change the blob's reference, if it was one
 *
 * STALE: not to be done here (a page is not what it should be, or another node has it). FULL: the leaf has no
 * room for the pair; only the owner splits it. Of either, nothing was changed.
 */
#ifndef TREE_DEX_PUSHDOWN_PUSHDOWN_FMT_H
#define TREE_DEX_PUSHDOWN_PUSHDOWN_FMT_H

#include <stdbool.h>
#include <stdint.h>

enum { DEX_PUSHDOWN = 1 };

/* A leaf that uses less than one of so many parts of itself should be merged. */
enum { DEX_UNDERFULL = 4 };

enum dex_pushdown_kind {
    DEX_PUSHDOWN_GET,
    DEX_PUSHDOWN_PUT,
    DEX_PUSHDOWN_DELETE,
    DEX_PUSHDOWN_INSERT, /* only if the key is not there */
    DEX_PUSHDOWN_UPDATE, /* only if it is */
    DEX_PUSHDOWN_KINDS
};

/* Whether a key that was there, or not, is changed by it. */
static inline bool dex_pushdown_changes(unsigned operation, bool was_there)
{
    return operation == DEX_PUSHDOWN_PUT || (operation == DEX_PUSHDOWN_INSERT && !was_there) ||
           ((operation == DEX_PUSHDOWN_UPDATE || operation == DEX_PUSHDOWN_DELETE) && was_there);
}

struct dex_pushdown_request {
    uint16_t engine;
    uint8_t operation;
    uint8_t reserved;
    uint16_t table;
    uint8_t level;
    uint8_t zero;
    uint64_t page;
    uint64_t epoch, lsn;
    uint64_t slot;
    uint32_t page_bytes, key_size, value_size, key_max, value_max;
    uint16_t key_bytes, value_bytes;
};
_Static_assert(sizeof(struct dex_pushdown_request) == 64, "format");

struct dex_pushdown_reply {
    uint8_t was_there;
    uint8_t blob;
    uint8_t shrunk;
    uint8_t repeated;
    uint8_t zero[4];
    uint64_t leaf;
};
_Static_assert(sizeof(struct dex_pushdown_reply) == 16, "format");

#endif
