/*
 * Arbitrary bytes where a record of a redo log is expected in remote memory. The CRC is made
 * right for half of the inputs, as log_fmt.h describes it, so that what lies behind it is
 * reached.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "tree/dex/log/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POOL = 99, TABLE = 3, LOG = 4096, VERSION = 7, LSN = 800 };

static uint32_t seed(void)
{
    uint64_t words[4] = {POOL, LOG, VERSION, TABLE};
    return crc32c(0, words, sizeof(words));
}

static void fix_crc(uint8_t *bytes, size_t size)
{
    uint16_t key_bytes, value_bytes;
    uint32_t sizes;

    if (size < 16)
        return;
    memcpy(&key_bytes, bytes + 4, 2);
    memcpy(&value_bytes, bytes + 6, 2);
    memcpy(&sizes, bytes + 4, 4);
    size_t all = (16 + (size_t)key_bytes + (value_bytes & 0x1fff) + 7) / 8 * 8;
    if (all > size)
        return;
    uint64_t last[2] = {LSN, sizes};
    uint32_t crc = crc32c(crc32c(seed(), bytes + 8, all - 8), last, sizeof(last));
    crc = crc == 0 ? 1 : crc;
    memcpy(bytes, &crc, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dex_log_record record;
    uint8_t *bytes = malloc(size == 0 ? 1 : size);

    pando_assert(bytes != NULL);
    if (size > 0)
        memcpy(bytes, data, size);
    if (size % 2 == 0)
        fix_crc(bytes, size);
    pando_assert(dex_log_seed(POOL, TABLE, LOG, VERSION) == seed());
    size_t used = dex_log_record_read(seed(), LSN, bytes, size, &record);
    if (used > 0) {
        pando_assert(used <= size && used % 8 == 0 && record.lsn == LSN);
        pando_assert(record.kind < DEX_LOG_KINDS && record.key.size <= DEX_LOG_KEY_MAX);
        pando_assert(record.key.data == bytes + 16 &&
                     record.value.data == record.key.data + record.key.size);
        pando_assert(record.value.data + record.value.size <= bytes + used);
        /* It stands for this place only. */
        pando_assert(dex_log_record_read(seed(), LSN + 8, bytes, size, &record) == 0);
        pando_assert(dex_log_record_read(seed() + 1, LSN, bytes, size, &record) == 0);
        pando_assert(dex_log_record_read(seed(), LSN, bytes, used - 1, &record) == 0);
    }
    free(bytes);
    return 0;
}
