/*
 * crc32c.h - CRC-32C (Castagnoli), as in iSCSI, ext4 and most storage formats.
 */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * The checksum of `size` bytes that follow those whose checksum is `seed`; 0 to start. Chains:
 * crc32c(crc32c(0, a), b) is crc32c(0, ab). Of "123456789" it is 0xE3069283. Any thread, any
 * alignment. The fastest implementation this processor has was chosen before main.
 */
uint32_t crc32c(uint32_t seed, const void *data, size_t size);

/* That of three words, as they lie in memory, and `size` bytes behind them: what a few bytes are and
 * where they belong, in one call. */
uint32_t crc32c_after_words(uint64_t a, uint64_t b, uint64_t c, const void *data, size_t size);

/* The implementation for any processor. */
uint32_t crc32c_portable(uint32_t seed, const void *data, size_t size);

/* Which one crc32c uses: "portable", "sse4.2", "avx512" or "armv8". */
const char *crc32c_name(void);

struct crc32c_implementation {
    const char *name;
    uint32_t (*function)(uint32_t seed, const void *data, size_t size);
};

/* All that this processor can run, so that tests reach them; the last one is crc32c's. */
const struct crc32c_implementation *crc32c_implementations(size_t *out_count);

#endif
