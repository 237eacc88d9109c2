/*
 * map_fmt.h - who owns which keys of a table: a block in the pool, written whole and never changed.
 * The table's root word in the directory names the one that counts; a new one is put in its place by
 * CAS. All integers little endian.
 *
 *    0  8  cell header: kind MAP, over all that follows
 *    8  8  own address, 16  8  version, 24  8  tenure: as in pool/block_fmt.h
 *   32  8  epoch: one higher than in the map before it
 *   40  8  where the engine's data begins, which stays there for ever: a tree's root
 *   48  4  parts   52  4  bytes of this block that are used
 *   56     parts, 48 bytes each, in the order of their keys; then the keys, each padded to 8
 *
 * part
 *    0  8  owner: member 16, incarnation 16 (from bit 31 down); 0: nobody
 *    8  8  who takes it over from an owner that died, likewise; 0: nobody
 *   16  8  epoch in which the owner got it
 *   24  8  address of the owner's log, 0 for none
 *   32  4  where its lowest key is in the block   36  4  size of that key
 *   40  8  version of that log
 */
#ifndef OWNERS_MAP_FMT_H
#define OWNERS_MAP_FMT_H

#include <stdint.h>

#include "pool/block_fmt.h"

enum {
    MAP_KIND = 6,
    MAP_BYTES = 16 * 1024,
    MAP_PARTITIONS_MAX = 128,
    MAP_HEADER = 56,
    MAP_PART = 48,
};

struct map_head_fmt {
    uint64_t cell;
    uint64_t address;
    uint64_t version;
    uint64_t tenure;
    uint64_t epoch;
    uint64_t root;
    uint32_t parts;
    uint32_t bytes;
};
_Static_assert(sizeof(struct map_head_fmt) == MAP_HEADER, "format");

struct map_part_fmt {
    uint64_t owner;
    uint64_t taker;
    uint64_t epoch;
    uint64_t log;
    uint32_t key_at;
    uint32_t key_size;
    uint64_t log_version;
};
_Static_assert(sizeof(struct map_part_fmt) == MAP_PART, "format");

#endif
