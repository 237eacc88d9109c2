/*
 * blob_fmt.h - a long value in remote memory, and the word by which a leaf refers to it.
 *
 * reference:     bits 63..56  bits 13..6 of the version of the head block
 *                bits 55..6   its address: node 8, offset 42 (blocks begin at multiples of 64)
 *                bits 5..0    bits 5..0 of the version
 * head block:    0  8 cell header over the next six words
 *                8  8 own address   16 8 version   24 8 tenure (block_fmt.h)
 *               32  8 bytes of the value
 *               40  4 CRC32C of the value   44 4 segments
 *               48  8 key: size 32, CRC32C 32
 *               56    the value, or references to the segments
 * segment block: 8, 16, 24 as above, the value's bytes from 32 on
 *
 * Versions never repeat at an address, and a block waits for its grace period between two lives. A reference
 * means another blob only after 2^14 lives of the block: more than four hours, in which whoever held
 * the reference has read its leaf again or is no member any more.
 */
#ifndef TREE_BLOB_BLOB_FMT_H
#define TREE_BLOB_BLOB_FMT_H

#include <stdint.h>

#include "fabric/fabric.h"

enum { BLOB_KIND = 9 }; /* of its cell and its tenure */

/* 0 is no reference. */
typedef uint64_t blob_ref;

#define BLOB_REF_LOW     ((uint64_t)0x3f)
#define BLOB_REF_HIGH    ((uint64_t)0xff << 56)
#define BLOB_REF_VERSION (BLOB_REF_HIGH | BLOB_REF_LOW)

static inline uint64_t blob_ref_version_bits(uint64_t version)
{
    return (version << 50 & BLOB_REF_HIGH) | (version & BLOB_REF_LOW);
}

/* The address has none of the bits of BLOB_REF_VERSION. */
static inline blob_ref blob_ref_make(fabric_address address, uint64_t version)
{
    return address | blob_ref_version_bits(version);
}

static inline fabric_address blob_ref_address(blob_ref ref)
{
    return ref & ~BLOB_REF_VERSION;
}

/* Whether that block, with that version, is the one that was meant. */
static inline bool blob_ref_means(blob_ref ref, uint64_t version)
{
    return (ref & BLOB_REF_VERSION) == blob_ref_version_bits(version);
}

struct blob_head {
    uint64_t cell;
    uint64_t address;
    uint64_t version;
    uint64_t tenure;
    uint64_t size;
    uint32_t crc;
    uint32_t segments;
    uint64_t key;
};
_Static_assert(sizeof(struct blob_head) == 56, "format");

#endif
