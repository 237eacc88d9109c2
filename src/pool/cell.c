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

/* A CRC is linear: what it changes by when one bit of its input changes depends only on how many bits
 * are behind that one. Behind the last it is the polynomial, and one step of the division for each bit
 * more. Without the rare crc of 0 that is made 1, which then nothing explains. */
enum cell_flip cell_flip_find(const struct cell_place *place, const void *cell, size_t size,
                              size_t *bit)
{
    static const uint32_t POLYNOMIAL = 0x82f63b78; /* CRC-32C, reflected */
    enum { UPPER_BITS = 32 };
    size_t payload = size - CELL_HEADER;
    uint64_t header;

    pando_assert(size >= CELL_HEADER);
    memcpy(&header, cell, sizeof(header));
    uint32_t difference = (uint32_t)header ^ cell_crc(place, (uint32_t)(header >> 32),
                                                      (const uint8_t *)cell + CELL_HEADER, payload);
    if ((difference & (difference - 1)) == 0)
        return difference != 0 ? CELL_FLIP_CHECK : CELL_FLIP_NONE;
    uint32_t change = POLYNOMIAL;
    for (size_t behind = 0; behind < payload * 8 + UPPER_BITS; behind++) {
        if (change == difference && behind >= payload * 8)
            return CELL_FLIP_HEADER;
        if (change == difference) {
            *bit = payload * 8 - 1 - behind;
            return CELL_FLIP_PAYLOAD;
        }
        change = change >> 1 ^ ((change & 1) != 0 ? POLYNOMIAL : 0);
    }
    return CELL_FLIP_NONE;
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
