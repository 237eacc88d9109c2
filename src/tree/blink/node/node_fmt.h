/*
 * node_fmt.h - the bytes of leaves and inner nodes. Everything is made of cells (pool/cell_fmt.h);
 * all integers little endian; k is pad8(key), v is pad8(value), where pad8 rounds up to a multiple
 * of 8.
 *
 * Every node begins with a header cell; of an inner node that cell is all of it.
 *    0  8  cell header: kind LEAF or INNER, version the low 16 bits of the node's
 *    8  8  own address, 16  8  version, 24  8  tenure: as in pool/block_fmt.h
 *   32  8  right sibling, 0 for none
 *   40  1  level (leaves 0)
 *   41  1  flags: 1 no high fence, 2 dead
 *   42  2  size of the low fence     44  2  size of the high fence
 *   46  2  separators (of a leaf 0)
 *   48  k  low fence, zero-padded; then k  high fence, zero-padded
 *
 * A node that nothing refers to yet is unlinked: the low 32 bits of its cell header, the check, are
 * inverted (rule unlinked-sibling).
 *
 * Where all keys have one size a fence takes pad8 of that even if it is absent, so that what
 * follows is always at the same offset: 64 for 8-byte keys. Otherwise it takes pad8 of its own
 * size.
 *
 * Leaf with fixed slots (one size of keys, one of values), slot i at slots_at + i * slot_bytes
 *    0  8  cell header: kind SLOT, address the cell's own
 *    8  k  key, zero-padded        8 + k  v  value, zero-padded
 *
 * Leaf with packed cells, one behind the other from the end of the header cell to the end of the
 * node 0  8  cell header: kind SLOT, address the cell's own 8  2  size of the key   10  2  zero 12
 * 4  size of the value 16  k  key, zero-padded       16 + k  v  value, zero-padded; then zeroes, if
 * the cell is longer The value begins at a multiple of 8, so that a value of one word (a blob's
 * address) is updated by writing one word (rule intent-first). Where cells begin does not change
 * but with the node's version: a cell that became empty keeps its size, and a new pair takes it
 * whole.
 *
 * Empty cells are a header word and bytes without meaning. Fixed slots and packed cells that are
 * empty have their size in it; an empty packed cell of no payload ends the leaf, and a built leaf
 * has that word in every place from there to the end of the node. 0  4  CRC32C of the place (kind
 * EMPTY, address the node's), the version and the payload words 4  2  low 16 bits of the node's
 * version 6  2  flags 4: EMPTY, payload words 12 Being empty is a statement that a reader relies on
 * when it does not find a key, so it is checked like any other: without the version, a reader that
 * meets a split half-way could take an empty slot of before it for one of after it, and miss a pair
 * that moved there.
 *
 * Inner node where all keys have one size, behind the fences
 *    0  8  leftmost child; then for every separator: k  separator, zero-padded, 8  child right of
 * it
 *
 * Inner node with separators of any size, behind the fences, n of them
 *    0  8         leftmost child
 *    8  8 n       children right of separator 0 .. n-1
 *    .. 4 n       where the separators are: offset in the node 16, size 16 (from the low end)
 *    ..           bytes of the separators, then zeroes to a multiple of 8
 */
#ifndef TREE_BLINK_NODE_NODE_FMT_H
#define TREE_BLINK_NODE_NODE_FMT_H

#include "pool/block_fmt.h"
#include "pool/cell_fmt.h"

/* Goes up with every change of this file; an engine writes it into its table's directory entry. */
enum { NODE_FORMAT_VERSION = 1 };

/* Kinds of cells: what they are goes into their checks. */
enum node_kind {
    NODE_KIND_LEAF = 1, /* a leaf's header */
    NODE_KIND_SLOT = 2,
    NODE_KIND_INNER = 3,
    NODE_KIND_EMPTY = 4,
};

enum {
    NODE_SIBLING = 32,
    NODE_LEVEL = 40,
    NODE_FLAGS = 41,
    NODE_LOW_SIZE = 42,
    NODE_HIGH_SIZE = 44,
    NODE_COUNT = 46,
    NODE_FENCES = 48,
};

enum {
    NODE_NO_HIGH = 1,
    NODE_DEAD = 2,
};

enum {
    NODE_SLOT_FLAG_EMPTY = 8, /* among the flags of a slot's cell header; the others are a pair's */
    NODE_SLOT_KEY = 8,        /* of a fixed slot */
    NODE_PACKED_SIZES = 8,
    NODE_PACKED_KEY = 16,
};

_Static_assert((int)NODE_SIBLING == (int)POOL_BLOCK_HEADER, "the pool's part comes first");
_Static_assert(NODE_FENCES % 8 == 0 && NODE_SIBLING % 8 == 0, "words are aligned");
_Static_assert((int)NODE_SLOT_KEY == (int)CELL_HEADER, "a slot's key follows its cell header");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format is read as it lies in memory");

#endif
