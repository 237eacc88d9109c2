/*
 * Arbitrary bytes where `pando load` expects a file. Memory errors are the sanitizers' to find; what is
 * said of sizes, counts and the end is checked here.
 *
 * A fuzzer does not guess checksums: with the first byte odd, those of the header and of the blocks are
 * set right before the file is read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "store/dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct source {
    const uint8_t *data;
    size_t size;
};

static size_t take(void *context, uint8_t *to, size_t size)
{
    struct source *source = context;
    size_t got = size < source->size ? size : source->size;
    if (got > 0)
        memcpy(to, source->data, got);
    source->data += got;
    source->size -= got;
    return got;
}

static void mend_checks(uint8_t *bytes, size_t size)
{
    if (size < DUMP_HEADER_BYTES)
        return;
    uint32_t crc = crc32c(0, bytes, DUMP_HEADER_BYTES - 4);
    memcpy(bytes + DUMP_HEADER_BYTES - 4, &crc, 4);
    for (size_t at = DUMP_HEADER_BYTES; size - at >= DUMP_BLOCK_HEADER;) {
        struct dump_raw_block raw;
        memcpy(&raw, bytes + at, sizeof(raw));
        if (raw.payload_bytes > size - at - DUMP_BLOCK_HEADER)
            return;
        crc = crc32c(crc32c(0, &raw, 12), bytes + at + DUMP_BLOCK_HEADER, raw.payload_bytes);
        memcpy(bytes + at + 12, &crc, 4);
        at += DUMP_BLOCK_HEADER + raw.payload_bytes;
    }
}

/* Reads all; pairs go to a block without a limit, which is a whole file's worth here. */
static void read_all(const uint8_t *bytes, size_t size)
{
    struct source source = {bytes, size};
    struct dump_reader reader;
    struct dump_block block = {0};
    struct slice key, value;
    uint64_t pairs = 0, sum = 0;

    enum pando_status status = dump_read_open_co(&reader, take, &source);
    while (status == PANDO_OK) {
        status = dump_read_co(&reader, &key, &value);
        if (status != PANDO_OK)
            break;
        pando_assert(key.size <= STORE_KEY_MAX && value.size <= STORE_VALUE_MAX);
        pairs++;
        sum += key.size + value.size;
        if (value.data != NULL) {
            pando_assert(dump_block_add(&block, key, value));
            continue;
        }
        pando_assert(value.size > DUMP_VALUE_SHORT);
        struct slice part;
        for (unsigned parts = 0; pairs % 2 == 1 && status == PANDO_OK; parts++) {
            status = dump_read_part_co(&reader, &part);
            pando_assert(part.size <= DUMP_PART || status != PANDO_OK);
        }
        if (status == PANDO_NOT_FOUND)
            status = PANDO_OK;
    }
    pando_assert(status == PANDO_NOT_FOUND ? reader.error[0] == '\0' : reader.error[0] != '\0');
    pando_assert(reader.sums.pairs == pairs && reader.sums.bytes == sum);
    if (status == PANDO_NOT_FOUND) {
        pando_assert(source.size == 0);
        pando_assert(dump_read_co(&reader, &key, &value) == PANDO_NOT_FOUND);
    }
    dump_block_free(&block);
    dump_read_close(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *input = malloc(
        size > 1 ? size - 1 : 1); /* of its exact size, so that reading past its end is noticed */
    pando_assert(input != NULL);
    memcpy(input, data + 1, size - 1);
    if (data[0] % 2 == 1)
        mend_checks(input, size - 1);
    read_all(input, size - 1);
    free(input);
    return 0;
}
