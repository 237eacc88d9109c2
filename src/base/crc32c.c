/*
 * The polynomial is 0x1EDC6F41; all values are reflected: bit 31 is the coefficient of x^0.
 */
#include "base/crc32c.h"

#include <string.h>

#include "base/assert.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL_REFLECTED 0x82f63b78u

typedef uint32_t crc32c_function(uint32_t seed, const void *data, size_t size);

/* tables[k][b] is byte b followed by k zero bytes. Written by the constructor only. */
static uint32_t tables[8][256];

static crc32c_function *chosen = crc32c_portable;
static const char *chosen_name = "portable";

static inline uint64_t load_u64(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static inline uint32_t step_byte(uint32_t crc, uint8_t byte)
{
    return tables[0][(crc ^ byte) & 0xff] ^ (crc >> 8);
}

/* Slicing by 8: eight independent lookups advance the checksum by eight bytes. */
static inline uint32_t step_u64(uint32_t crc, uint64_t little_endian_word)
{
    uint64_t w = little_endian_word ^ crc;
    return tables[7][w & 0xff] ^ tables[6][(w >> 8) & 0xff] ^ tables[5][(w >> 16) & 0xff] ^
           tables[4][(w >> 24) & 0xff] ^ tables[3][(w >> 32) & 0xff] ^ tables[2][(w >> 40) & 0xff] ^
           tables[1][(w >> 48) & 0xff] ^ tables[0][w >> 56];
}

uint32_t crc32c_portable(uint32_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t crc = ~seed;

    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word = load_u64(p);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        crc = step_u64(crc, word);
    }
    for (; size > 0; p++, size--)
        crc = step_byte(crc, *p);
    return ~crc;
}

static void tables_init(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL_REFLECTED : 0);
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (int byte = 0; byte < 256; byte++)
            tables[k][byte] = step_byte(tables[k - 1][byte], 0);
    }
}

#if defined(__x86_64__)

/*
 * The crc32 instruction takes three cycles but one can start every cycle, so a round runs three
 * streams of n words side by side:
 *
 *   | n words: a | n words: b | n words: c |     crc = a x^(128 n) + b x^(64 n) + c   (mod P)
 *
 * To multiply by x^m: the carry-less product of two reflected 32-bit values, read as a 64-bit word,
 * is their product times x; crc32 of that word multiplies it by x^32 and reduces. So the constant
 * for a shift of n words is x^(64 n - 33) mod P, and one crc32 reduces both products at once. Two
 * four-byte constants per length, where shifting by lookup would drag 4 KiB through the cache.
 */
#define STREAM_WORDS_MAX 128 /* 3 KiB a round: beyond it the joining no longer shows */
#define STREAM_WORDS_MIN 4   /* below it joining costs more than it saves */

/* shifts[n] is x^(64 n - 33) mod P. Written by the constructor only. */
static uint32_t shifts[2 * STREAM_WORDS_MAX + 1];

static void shifts_init(void)
{
    shifts[1] = 1; /* x^31 */
    for (size_t n = 2; n <= (size_t)2 * STREAM_WORDS_MAX; n++)
        shifts[n] = step_u64(shifts[n - 1], 0);
}

#define TARGET_SSE42 __attribute__((target("sse4.2,pclmul")))

TARGET_SSE42 static inline __m128i multiply(uint64_t crc, uint32_t constant)
{
    return _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)constant),
                                0);
}

TARGET_SSE42 static inline uint32_t streams_join(uint64_t a, uint64_t b, uint64_t c, size_t words)
{
    pando_dassert(words >= 1 && words <= STREAM_WORDS_MAX);
    __m128i product = _mm_xor_si128(multiply(a, shifts[2 * words]), multiply(b, shifts[words]));
    uint64_t reduced = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
    return (uint32_t)(reduced ^ c);
}

TARGET_SSE42 static uint32_t crc32c_sse42(uint32_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    uint64_t crc = (uint32_t)~seed;

    while (size >= (size_t)3 * 8 * STREAM_WORDS_MIN) {
        size_t words = size / 24 < STREAM_WORDS_MAX ? size / 24 : STREAM_WORDS_MAX;
        size_t stride = 8 * words;
        uint64_t a = crc, b = 0, c = 0;
        for (const uint8_t *end = p + stride; p < end; p += 8) {
            a = _mm_crc32_u64(a, load_u64(p));
            b = _mm_crc32_u64(b, load_u64(p + stride));
            c = _mm_crc32_u64(c, load_u64(p + 2 * stride));
        }
        crc = streams_join(a, b, c, words);
        p += 2 * stride;
        size -= 3 * stride;
    }
    for (; size >= 8; p += 8, size -= 8)
        crc = _mm_crc32_u64(crc, load_u64(p));
    for (; size > 0; p++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}

static void choose(void)
{
    /* Every processor with SSE4.2 but the very first ones (Nehalem) has the carry-less product. */
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        shifts_init();
        chosen = crc32c_sse42;
        chosen_name = "sse4.2";
    }
}

#elif defined(__aarch64__)

#if defined(__clang__)
#define TARGET_CRC __attribute__((target("crc")))
#else
#define TARGET_CRC __attribute__((target("+crc")))
#endif

TARGET_CRC static uint32_t crc32c_armv8(uint32_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t crc = ~seed;

    for (; size >= 8; p += 8, size -= 8)
        crc = __crc32cd(crc, load_u64(p));
    for (; size > 0; p++, size--)
        crc = __crc32cb(crc, *p);
    return ~crc;
}

static void choose(void)
{
    if (getauxval(AT_HWCAP) & HWCAP_CRC32) {
        chosen = crc32c_armv8;
        chosen_name = "armv8";
    }
}

#else

static void choose(void)
{
}

#endif

/* Before main, so before there are threads: the tables and the choice need no atomics. The priority
 * puts it ahead of constructors that state none and might want a checksum. */
__attribute__((constructor(101))) static void crc32c_init(void)
{
    tables_init();
    choose();
}

uint32_t crc32c(uint32_t seed, const void *data, size_t size)
{
    return chosen(seed, data, size);
}

const char *crc32c_name(void)
{
    return chosen_name;
}
