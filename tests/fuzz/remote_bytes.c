/*
 * Arbitrary bytes where a cell or an intent is expected in remote memory. The CRC is made right for
 * half of the inputs, so that what lies behind it is reached.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "pool/cell.h"
#include "pool/intent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POOL = 99, SLOT = 4096 };

static void fix_intent_crc(uint8_t *bytes, size_t size)
{
    uint64_t seed[2] = {POOL, SLOT};
    if (size < 8)
        return;
    uint32_t rest = (uint32_t)size - 8;
    uint32_t crc = crc32c(crc32c(0, seed, sizeof(seed)), bytes + 8, rest);
    memcpy(bytes, &crc, 4);
    memcpy(bytes + 4, &rest, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct intent intent;
    struct cell_place place = {.pool = POOL, .table = 1, .kind = 2, .address = SLOT};
    uint8_t *bytes = malloc(size == 0 ? 1 : size);

    pando_assert(bytes != NULL);
    if (size > 0)
        memcpy(bytes, data, size);
    (void)cell_valid(&place, bytes, size);
    if (size % 2 == 0)
        fix_intent_crc(bytes, size);
    if (intent_read(&intent, POOL, SLOT, bytes, size)) {
        for (uint32_t i = 0; i < intent.image_count; i++)
            pando_assert(intent.images[i].bytes.data + intent.images[i].bytes.size <= bytes + size);
    }
    free(bytes);
    return 0;
}
