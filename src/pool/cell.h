/*
 * cell.h - making and checking cells: bytes in, bytes out, no I/O. What is checked comes from
 * remote memory and may be anything.
 */
#ifndef POOL_CELL_H
#define POOL_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "pool/cell_fmt.h"

/* What a cell belongs to: it goes into the CRC, not into the bytes. */
struct cell_place {
    uint64_t pool;
    uint16_t table;
    uint8_t kind;           /* of the node or record; the engine's */
    fabric_address address; /* of the cell's first byte */
};

/* The header word for a payload of size bytes (a multiple of 8). flags are 4 bits. */
uint64_t cell_header(const struct cell_place *place, uint16_t version, uint8_t flags,
                     const void *payload, size_t size);

static inline uint16_t cell_version(uint64_t header)
{
    return (uint16_t)(header >> 32);
}

static inline uint8_t cell_flags(uint64_t header)
{
    return (uint8_t)(header >> 60);
}

static inline size_t cell_payload_bytes(uint64_t header)
{
    return (size_t)(header >> 48 & 0xfff) * 8;
}

/* Where one flipped bit would explain that a cell of `size` bytes fails its check. The bit of the payload,
 * counted from its first byte's lowest one, is in *bit. For a cell that is not valid. */
enum cell_flip {
    CELL_FLIP_NONE, /* no single bit explains it */
    CELL_FLIP_CHECK,
    CELL_FLIP_HEADER, /* version, size or flags */
    CELL_FLIP_PAYLOAD,
};
enum cell_flip cell_flip_find(const struct cell_place *place, const void *cell, size_t size,
                              size_t *bit);

/* Whether [cell, cell + available) begins with a whole and valid cell for this place. */
bool cell_valid(const struct cell_place *place, const void *cell, size_t available);

#endif
