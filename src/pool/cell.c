#include "pool/cell.h"

#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"

/* CRC over the place, the upper half of the header, and the payload. Never 0, so that a cleared
 * header word is invalid whatever lies behind it. */
static uint32_t cell_crc(const struct cell_place *place, uint32_t upper, const void *payload,
                         size_t size)
{
    uint64_t rest = (uint64_t)upper << 32 | (uint32_t)place->kind << 16 | place->table;
    uint32_t crc = crc32c_after_words(place->pool, place->address, rest, payload, size);
    return crc == 0 ? 1 : crc;
}

uint64_t cell_header(const struct cell_place *place, uint16_t version, uint8_t flags,
                     const void *payload, size_t size)
{
    pando_assert(size % 8 == 0 && size / 8 <= CELL_PAYLOAD_WORDS_MAX && flags < 16);
    uint32_t upper = version | (uint32_t)(size / 8) << 16 | (uint32_t)flags << 28;
    return (uint64_t)upper << 32 | cell_crc(place, upper, payload, size);
}

bool cell_valid(const struct cell_place *place, const void *cell, size_t available)
{
    uint64_t header;
    if (available < CELL_HEADER)
        return false;
    memcpy(&header, cell, sizeof(header));
    size_t size = cell_payload_bytes(header);
    if ((uint32_t)header == 0 || size > available - CELL_HEADER)
        return false;
    return (uint32_t)header ==
           cell_crc(place, (uint32_t)(header >> 32), (const uint8_t *)cell + CELL_HEADER, size);
}
