/*
 * page_fmt.h - the bytes of pages: sorted nodes that are one cell each (pool/cell_fmt.h). Leaves and
 * inner nodes look the same: pairs in the order of their keys; the value of an inner node's pair is
 * the address of a child, and its key is the lowest that child may have. All integers little endian.
 *
 *    0  8  cell header: kind PAGE, over the whole page
 *    8  8  own address, 16  8  version, 24  8  tenure: as in pool/block_fmt.h
 *   32  8  right sibling, 0 for none
 *   40  8  epoch, 48  8  place in the log of the last change (a leaf's stamp; rule log-before-page)
 *   56  1  level (leaves 0)   57  1  flags: 1 no high fence, 2 dead   58  2  pairs
 *   60  2  size of the low fence   62  2  size of the high fence
 *   64  2  packed: bytes that all keys begin with   66  2  packed: where the heap begins
 *   68  2  packed: bytes of the heap that are used by no pair   70  2  zero
 *   72  k  low fence, zero-padded; then k  high fence, zero-padded
 *
 * k is pad8 of the fence's size; pages of words give both fences 8 bytes in any case.
 *
 * A page of words, where keys have 8 bytes and values one size: `capacity` keys, 8 bytes each, as
 * integers that compare like the keys; then `capacity` values, pad8 of their size each.
 *
 * A packed page, behind the fences, a slot of 16 bytes for each pair:
 *    0  8  the 8 bytes behind the common ones of the key, as an integer that compares like them
 *    8  2  where the key lies   10  2  its size   12  4  the value's size; the highest bit: a blob's
 *          address instead of a value
 * and from the end of the page downwards the heap: key, zero-padded to 8; value, likewise.
 */
#ifndef TREE_DEX_PAGE_PAGE_FMT_H
#define TREE_DEX_PAGE_PAGE_FMT_H

#include "pool/block_fmt.h"
#include "pool/cell_fmt.h"

enum { PAGE_FORMAT_VERSION = 1 };

enum { PAGE_KIND = 5 }; /* of its cell; beside those of tree/blink/node/node_fmt.h */

enum {
    PAGE_SIBLING = 32,
    PAGE_EPOCH = 40,
    PAGE_LSN = 48,
    PAGE_SHAPE = 56,  /* the word with level, flags, pairs and fence sizes */
    PAGE_PACKED = 64, /* the word with prefix, heap and garbage */
    PAGE_FENCES = 72,
    PAGE_SLOT = 16,
};

enum {
    PAGE_NO_HIGH = 1,
    PAGE_DEAD = 2,
};

#define PAGE_VALUE_BLOB ((uint32_t)1 << 31)

_Static_assert((int)PAGE_SIBLING == (int)POOL_BLOCK_HEADER, "the pool's part comes first");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format is read as it lies in memory");

#endif
