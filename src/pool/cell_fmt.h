/*
 * cell_fmt.h - the unit of consistency in remote memory: a header word and a payload.
 *
 *    0  4  CRC32C of everything else in the cell, seeded with pool, table, kind and address
 *    4  2  low 16 bits of the node's version
 *    6  2  flags 4, payload words 12 (from the high end)
 *    8     payload, a multiple of 8 bytes, at most 32 KiB - 8
 *
 * The seed makes a valid cell at another place, of another table or of another pool an invalid one
 * here. Zeroes are never valid. A 32-bit CRC takes one torn cell in 2^32 for whole.
 */
#ifndef POOL_CELL_FMT_H
#define POOL_CELL_FMT_H

#include <stdint.h>

enum {
    CELL_HEADER = 8,
    CELL_PAYLOAD_WORDS_MAX = 4095,
};

#endif
