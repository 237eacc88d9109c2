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

/* The implementation for any processor, which tests hold the others against. */
uint32_t crc32c_portable(uint32_t seed, const void *data, size_t size);

/* Which one crc32c uses: "portable", "sse4.2" or "armv8". */
const char *crc32c_name(void);

#endif
