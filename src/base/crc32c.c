/*
 * The polynomial is 0x1EDC6F41; all values are reflected: bit 31 is the coefficient of x^0.
 */
#include "base/crc32c.h"

#include <string.h>

#include "base/assert.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL_REFLECTED 0x82f63b78u

/* tables[k][b] is byte b followed by k zero bytes. Written by the constructor only. */
static uint32_t tables[8][256];

/* What this processor can run, slowest first. Written by the constructor only. */
static struct crc32c_implementation usable[3] = {{"portable", crc32c_portable}};
static size_t usable_count = 1;
static uint32_t (*chosen)(uint32_t seed, const void *data, size_t size) = crc32c_portable;

static uint32_t after_words_any(uint64_t a, uint64_t b, uint64_t c, const void *data, size_t size)
{
    const uint64_t words[] = {a, b, c};
    return chosen(chosen(0, words, sizeof(words)), data, size);
}

static uint32_t (*chosen_after_words)(uint64_t a, uint64_t b, uint64_t c, const void *data,
                                      size_t size) = after_words_any;

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

#if defined(__x86_64__) || defined(__aarch64__)

static void add_usable(struct crc32c_implementation implementation)
{
    pando_assert(usable_count < sizeof(usable) / sizeof(usable[0]));
    usable[usable_count++] = implementation;
}

#endif

#if defined(__x86_64__)

/*
 * Both x86 implementations move a value forward by n words of 64 bits, that is multiply it by x^(64
 * n) mod P, with the carry-less product. The product of two reflected values, read as one reflected
 * value of twice the width, is their product times x. A 32-bit constant read as 64 bits is itself
 * times x^32. So the constant for a plain 64-bit operand is x^(64 n - 33):
 *
 *   shifts[n] = x^(64 n - 33) mod P,  shifts[1] = x^31
 *
 * A crc32 register counts x^32 for its position behind the data, and crc32 of the 64-bit product
 * gives that and the reduction, so the same constant moves a register. Written by the constructor
 * only.
 */
#define STREAM_WORDS_MAX  128 /* 3 KiB a round: beyond it the joining no longer shows */
#define STREAM_WORDS_MIN  4   /* below it joining costs more than it saves */
#define STREAMS_BYTES_MIN ((size_t)3 * 8 * STREAM_WORDS_MIN)

static uint32_t shifts[2 * STREAM_WORDS_MAX + 1];

static void shifts_init(void)
{
    shifts[1] = 1; /* bit 0 is the coefficient of x^31 */
    for (size_t n = 2; n <= (size_t)2 * STREAM_WORDS_MAX; n++)
        shifts[n] = step_u64(shifts[n - 1], 0);
}

#define TARGET_SSE42 __attribute__((target("sse4.2,pclmul")))

TARGET_SSE42 static inline __m128i multiply(uint64_t crc, uint32_t constant)
{
    return _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)constant),
                                0);
}

/* One crc32 reduces both products at once. */
TARGET_SSE42 static inline uint64_t streams_join(uint64_t a, uint64_t b, uint64_t c, size_t words)
{
    pando_dassert(words >= 1 && words <= STREAM_WORDS_MAX);
    __m128i product = _mm_xor_si128(multiply(a, shifts[2 * words]), multiply(b, shifts[words]));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product)) ^ c;
}

TARGET_SSE42 static inline uint32_t crc32c_short(uint64_t crc, const uint8_t *p, size_t size)
{
    for (; size >= 8; p += 8, size -= 8)
        crc = _mm_crc32_u64(crc, load_u64(p));
    for (; size > 0; p++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}

/*
 * The crc32 instruction takes three cycles but one can start every cycle, so a round runs three
 * streams of n words side by side:
 *
 *   | n words: a | n words: b | n words: c |     crc = a x^(128 n) + b x^(64 n) + c   (mod P)
 *
 * Joining by carry-less product needs two constants of four bytes for any n, where lookup tables
 * would drag 4 KiB through the cache for each of a few fixed n.
 */
TARGET_SSE42 static __attribute__((noinline)) uint32_t crc32c_streams(uint64_t crc,
                                                                      const uint8_t *p, size_t size)
{
    do {
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
    } while (size >= STREAMS_BYTES_MIN);
    return crc32c_short(crc, p, size);
}

/* A few words are checked far more often than much: without a frame, and without streams. */
TARGET_SSE42 static uint32_t crc32c_sse42(uint32_t seed, const void *data, size_t size)
{
    uint64_t crc = (uint32_t)~seed;
    return size < STREAMS_BYTES_MIN ? crc32c_short(crc, data, size)
                                    : crc32c_streams(crc, data, size);
}

TARGET_SSE42 static uint32_t after_words_sse42(uint64_t a, uint64_t b, uint64_t c, const void *data,
                                               size_t size)
{
    uint64_t crc = _mm_crc32_u64(_mm_crc32_u64(_mm_crc32_u64(UINT32_MAX, a), b), c);
    return size < STREAMS_BYTES_MIN ? crc32c_short(crc, data, size)
                                    : chosen(~(uint32_t)crc, data, size);
}

/*
 * With 512-bit carry-less products the data itself is folded: each 128-bit lane of an accumulator
 * is moved forward to where the next data lies, and added to it. Four accumulators hide the
 * latency; at the end they are folded into one, its four lanes into one, and two crc32 reduce that.
 */
#define TARGET_AVX512 __attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul")))
#define FOLD_BYTES    256

/* For a lane moved by n words: its low, earlier half lies one word further away. */
TARGET_AVX512 static inline __m128i fold_constant(size_t words)
{
    return _mm_set_epi64x(shifts[words], shifts[words + 1]);
}

TARGET_AVX512 static inline __m512i fold(__m512i lanes, __m512i constant, __m512i onto)
{
    __m512i low = _mm512_clmulepi64_epi128(lanes, constant, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, constant, 0x11);
    return _mm512_ternarylogic_epi64(low, high, onto, 0x96); /* the sum of all three */
}

TARGET_AVX512 static inline __m512i fold_words(__m512i lanes, size_t words, __m512i onto)
{
    return fold(lanes, _mm512_broadcast_i32x4(fold_constant(words)), onto);
}

TARGET_AVX512 static inline uint32_t fold_reduce(__m512i lanes)
{
    const __m128i zero = _mm_setzero_si128();
    __m512i constants = _mm512_castsi128_si512(fold_constant(6));
    constants = _mm512_inserti32x4(constants, fold_constant(4), 1);
    constants = _mm512_inserti32x4(constants, fold_constant(2), 2);
    constants = _mm512_inserti32x4(constants, zero, 3);

    /* The last lane is where the others go: it is multiplied by 0 and added as it is. */
    __m512i moved = fold(lanes, constants, _mm512_maskz_mov_epi64(0xc0, lanes));
    __m128i sum = _mm_xor_si128(
        _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 0), _mm512_extracti32x4_epi32(moved, 1)),
        _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 2), _mm512_extracti32x4_epi32(moved, 3)));
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum));
    return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(sum, 1));
}

TARGET_AVX512 static uint32_t crc32c_avx512(uint32_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    if (size < FOLD_BYTES)
        return crc32c_sse42(seed, data, size);

    /* The checksum so far is added to the first four bytes. */
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    __m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~seed)));
    p += FOLD_BYTES;
    size -= FOLD_BYTES;

    __m512i constant = _mm512_broadcast_i32x4(fold_constant(FOLD_BYTES / 8));
    for (; size >= FOLD_BYTES; p += FOLD_BYTES, size -= FOLD_BYTES) {
        a = fold(a, constant, _mm512_loadu_si512(p));
        b = fold(b, constant, _mm512_loadu_si512(p + 64));
        c = fold(c, constant, _mm512_loadu_si512(p + 128));
        d = fold(d, constant, _mm512_loadu_si512(p + 192));
    }
    a = fold_words(c, 8, fold_words(b, 16, fold_words(a, 24, d)));
    for (; size >= 64; p += 64, size -= 64)
        a = fold_words(a, 8, _mm512_loadu_si512(p));
    return crc32c_sse42(~fold_reduce(a), p, size);
}

static void choose(void)
{
    /* Every processor with SSE4.2 but the very first ones (Nehalem) has the carry-less product. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return;
    shifts_init();
    add_usable((struct crc32c_implementation){"sse4.2", crc32c_sse42});
    chosen_after_words = after_words_sse42;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        add_usable((struct crc32c_implementation){"avx512", crc32c_avx512});
}

#elif defined(__aarch64__)

/* Assembly, since compilers differ in how a function is allowed an instruction the target lacks. */
static inline uint32_t armv8_step_u64(uint32_t crc, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

static inline uint32_t armv8_step_byte(uint32_t crc, uint8_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}

static uint32_t crc32c_armv8(uint32_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t crc = ~seed;

    for (; size >= 8; p += 8, size -= 8)
        crc = armv8_step_u64(crc, load_u64(p));
    for (; size > 0; p++, size--)
        crc = armv8_step_byte(crc, *p);
    return ~crc;
}

static void choose(void)
{
    if (getauxval(AT_HWCAP) & HWCAP_CRC32)
        add_usable((struct crc32c_implementation){"armv8", crc32c_armv8});
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
    chosen = usable[usable_count - 1].function;
}

uint32_t crc32c(uint32_t seed, const void *data, size_t size)
{
    return chosen(seed, data, size);
}

uint32_t crc32c_after_words(uint64_t a, uint64_t b, uint64_t c, const void *data, size_t size)
{
    return chosen_after_words(a, b, c, data, size);
}

const char *crc32c_name(void)
{
    return usable[usable_count - 1].name;
}

const struct crc32c_implementation *crc32c_implementations(size_t *out_count)
{
    *out_count = usable_count;
    return usable;
}
