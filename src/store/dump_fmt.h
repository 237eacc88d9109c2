/*
 * dump_fmt.h - the file of `pando dump`: one table's pairs in the order of their keys. All integers
 * little endian.
 *
 *   header, 128 bytes
 *      0  8  magic "PANDODMP"           8  4  format version        12  4  bytes of this header
 *     16  4  size of all keys, or 0    20  4  size of all values, or 0
 *     24  4  largest key               28  4  largest inline value  32  4  bytes of a tree's node
 *     36  4  zero
 *     40 64  the table's name, NUL-terminated         104 16  its engine, NUL-terminated
 *    120  4  zero                     124  4  CRC32C of the 124 bytes before
 *
 *   blocks, each
 *      0  4  kind: "PAIR", "LONG", "PART" or "TAIL"
 *      4  4  bytes of the payload       8  4  pairs in it: none of "PART" and "TAIL", one of "LONG"
 *     12  4  CRC32C of the 12 bytes before and of the payload
 *     16     the payload
 *   of "PAIR": each pair is 4 bytes key size, 4 bytes value size, key, value; keys rise strictly over
 *   all blocks; no value is longer than 16 MiB
 *   of "LONG": a key whose value is longer: 4 bytes key size, 4 bytes zero, 8 bytes value size, key
 *   of "PART": bytes of that value. Each part of a value has DUMP_PART bytes, the last one fewer; they follow
 *   the "LONG" block one by one
 *   of "TAIL", the last block, without pairs: 8 bytes number of pairs, 8 bytes sum of the sizes of all
 *   keys and values
 *
 * Format 1 has no "LONG" and no "PART": a file of it is read as well.
 *
 * Nothing follows the tail. A file that was cut off has none; a damaged one fails a check.
 */
#ifndef STORE_DUMP_FMT_H
#define STORE_DUMP_FMT_H

#include <stdint.h>

#include "engine/engine.h"

#define DUMP_MAGIC "PANDODMP" /* its first eight bytes */

enum {
    DUMP_VERSION = 2,
    DUMP_VERSION_LEAST = 1,
    DUMP_HEADER_BYTES = 128,
    DUMP_BLOCK_HEADER = 16,
    DUMP_PAIR_HEADER = 8,
    DUMP_TAIL_BYTES = 16,
    DUMP_BLOCK_USUAL = 256 * 1024,       /* a writer ends a block when its payload has this size */
    DUMP_VALUE_SHORT = ENGINE_SHORT_MAX, /* longer ones come in parts */
    DUMP_PAYLOAD_MAX = DUMP_BLOCK_USUAL + DUMP_PAIR_HEADER + ENGINE_KEY_MAX + DUMP_VALUE_SHORT,
    DUMP_LONG_HEADER = 16,
    DUMP_PART = 1024 * 1024,
    DUMP_KIND_LONG = 0x474e4f4c,  /* "LONG" */
    DUMP_KIND_PART = 0x54524150,  /* "PART" */
    DUMP_KIND_PAIRS = 0x52494150, /* "PAIR" */
    DUMP_KIND_TAIL = 0x4c494154,  /* "TAIL" */
};

struct dump_raw_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t key_size;
    uint32_t value_size;
    uint32_t key_max;
    uint32_t value_inline;
    uint32_t node_bytes;
    uint32_t zero;
    char name[POOL_NAME_MAX];
    char engine[POOL_ENGINE_NAME_MAX];
    uint32_t zero_2;
    uint32_t crc;
};
_Static_assert(sizeof(struct dump_raw_header) == DUMP_HEADER_BYTES, "format");

struct dump_raw_block {
    uint32_t kind;
    uint32_t payload_bytes;
    uint32_t pairs;
    uint32_t crc;
};
_Static_assert(sizeof(struct dump_raw_block) == DUMP_BLOCK_HEADER, "format");

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format is read as it lies in memory");

#endif
