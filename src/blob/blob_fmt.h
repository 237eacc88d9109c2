/*
 * blob_fmt.h - a value in blocks of its own in remote memory (format 3), and the word by which a leaf
 * refers to it.
 *
 * reference:     bits 63..56  bits 13..6 of the version of the head block
 *                bits 55..6   its address: node 8, offset 42 (blocks begin at multiples of 64)
 *                bits 5..0    bits 5..0 of the version
 * head block:    0  8 cell header over the next six words (see below)
 *                8  8 own address   16 8 version   24 8 tenure (block_fmt.h)
 *               32  8 bytes of the value
 *               40  4 CRC32C: of the value, or of the 24 bytes from 56 on   44 4 segments
 *               48  8 key: size 32, CRC32C 32
 *   short:      56    the value: up to BLOB_SHORT_MAX bytes, no segments
 *   long:       56  8 size of the prefix   64 16 the prefix, the rest zeroes
 *               80    references to the segments, in their order
 * segment:       0  8 zero   8, 16, 24 as above
 *               32  8 reference to the head block
 *               40  4 CRC32C of what it is (struct blob_seal) and of its bytes   44 4 its number
 *               48    its bytes: BLOB_SEGMENT_VALUE of them, the last one fewer; its block is as large as
 *                     it has to be (format 2: BLOB_SEGMENT_BYTES as all others)
 *
 * A long value is its prefix and then the bytes of its segments. Each segment is checked by itself, with the
 * head's address and version, its number, its size and the key: bytes that pass are those of this value, so a
 * part is read without the rest, also while the value is being freed, until its blocks are used again. A
 * reference in the list is proved by the segment that it leads to. The cell of a long value's head is made as
 * if its tenure were 0: the tenure alone says whether it is live.
 *
 * Segments are written with a FREE tenure, held by their writer, which a sweep after its death takes back.
 * They become LIVE just before the head is written.
 *
 * Versions never repeat at an address, and a block waits for its grace period between two lives. A reference
 * means another blob only after 2^14 lives of the block: more than four hours, in which whoever held
 * the reference has read its leaf again or is no member any more.
 */
#ifndef BLOB_BLOB_FMT_H
#define BLOB_BLOB_FMT_H

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

enum {
    BLOB_PREFIX_MAX = 16,
    BLOB_SEGMENT_BYTES = 256 * 1024, /* four in a chunk */
    BLOB_SEGMENT_HEAD = 48,
    BLOB_SEGMENT_VALUE = BLOB_SEGMENT_BYTES - BLOB_SEGMENT_HEAD,
    BLOB_SHORT_MAX = BLOB_SEGMENT_BYTES - (int)sizeof(struct blob_head),
};

/* Behind the head of a long value; the references follow. */
struct blob_prefix {
    uint64_t size;
    uint8_t bytes[BLOB_PREFIX_MAX];
};
_Static_assert(sizeof(struct blob_prefix) == 24, "format");

struct blob_segment {
    uint64_t zero;
    uint64_t address;
    uint64_t version;
    uint64_t tenure;
    uint64_t head; /* a blob_ref */
    uint32_t crc;
    uint32_t number;
};
_Static_assert(sizeof(struct blob_segment) == BLOB_SEGMENT_HEAD, "format");

/* Goes into a segment's check before its bytes; lies nowhere. */
struct blob_seal {
    uint64_t pool;
    uint64_t address; /* of the segment */
    uint64_t head_address, head_version;
    uint64_t key;
    uint32_t table, kind;
    uint32_t number, size;
};
_Static_assert(sizeof(struct blob_seal) == 56, "format");

#endif
