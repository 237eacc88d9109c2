/*
 * A search compares every slot and leaves no early: a loop that ends at the match ends at a
 * different place each time, and one mispredicted branch costs more than comparing all 40 slots of
 * a 1 KB leaf.
 */
#include "tree/blink/node/search.h"

#include "base/assert.h"
#include "tree/blink/node/node_int.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static inline uint64_t slot_equals(const uint8_t *slot, uint64_t key_word)
{
    return load_u64(slot + NODE_SLOT_KEY) == key_word;
}

static uint64_t slots_portable(const uint8_t *slots, uint32_t slot_bytes, uint32_t count,
                               uint64_t key_word)
{
    const size_t stride = slot_bytes;
    uint64_t found = 0;
    uint32_t i = 0;

    for (; i + 4 <= count; i += 4, slots += 4 * stride) {
        uint64_t four = slot_equals(slots, key_word) | slot_equals(slots + stride, key_word) << 1 |
                        slot_equals(slots + 2 * stride, key_word) << 2 |
                        slot_equals(slots + 3 * stride, key_word) << 3;
        found |= four << i;
    }
    for (; i < count; i++, slots += stride)
        found |= slot_equals(slots, key_word) << i;
    return found;
}

static uint32_t below_portable(const uint64_t *words, uint32_t count, uint64_t word)
{
    uint32_t below = 0;
    for (uint32_t i = 0; i < count; i++)
        below += words[i] < word;
    return below;
}

/* Written by the constructor only. */
static struct search_implementation usable[3] = {{"portable", slots_portable, below_portable}};
static size_t usable_count = 1;
static struct search_implementation chosen = {"portable", slots_portable, below_portable};

#if defined(__x86_64__)

enum { PAIR_BYTES = 24 }; /* a slot of an 8-byte key and an 8-byte value */

static inline __attribute__((target("avx2"))) __m256i load_four(const uint8_t *bytes)
{
    return _mm256_loadu_si256((const __m256i *)bytes);
}

/*
 * Four slots of 24 bytes are three registers, and their keys are in different lanes, so that one
 * comparison serves four of them:
 *
 *    a  header0  key0     value0  header1        keys, blended:  key1 key0 key3 key2
 *    b  key1     value1   header2 key2
 *    c  value2   header3  key3    value3
 *
 * (A gather of four keys takes as long as four loads on the processors at hand. Slots of other
 * sizes are left to the portable loop, since nothing was faster.)
 */
static __attribute__((target("avx2"))) uint64_t
slots_avx2(const uint8_t *slots, uint32_t slot_bytes, uint32_t count, uint64_t key_word)
{
    const uint64_t even = 0x5555555555555555u;
    const __m256i key = _mm256_set1_epi64x((long long)key_word);
    uint64_t found = 0;
    uint32_t i = 0;

    if (slot_bytes != PAIR_BYTES)
        return slots_portable(slots, slot_bytes, count, key_word);
    for (; i + 4 <= count; i += 4, slots += (size_t)4 * PAIR_BYTES) {
        __m256i a = load_four(slots), b = load_four(slots + 32), c = load_four(slots + 64);
        __m256i keys = _mm256_blend_epi32(_mm256_blend_epi32(b, a, 0x0c), c, 0x30);
        __m256d equal = _mm256_castsi256_pd(_mm256_cmpeq_epi64(keys, key));
        found |= (uint64_t)(unsigned)_mm256_movemask_pd(equal) << i;
    }
    found = (found & even) << 1 | (found >> 1 & even);
    for (; i < count; i++, slots += PAIR_BYTES)
        found |= slot_equals(slots, key_word) << i;
    return found;
}

/* Comparisons are of signed numbers: flipping the highest bits makes the orders the same. */
static __attribute__((target("avx2"))) uint32_t below_avx2(const uint64_t *words, uint32_t count,
                                                           uint64_t word)
{
    const __m256i flip = _mm256_set1_epi64x(INT64_MIN);
    const __m256i limit = _mm256_xor_si256(_mm256_set1_epi64x((long long)word), flip);
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    uint32_t i = 0;

    for (; i + 8 <= count; i += 8) {
        for (uint32_t half = 0; half < 2; half++) {
            __m256i four = load_four((const uint8_t *)(words + i + 4 * half));
            __m256i less = _mm256_cmpgt_epi64(limit, _mm256_xor_si256(four, flip));
            sums[half] = _mm256_sub_epi64(sums[half], less);
        }
    }
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)lanes, _mm256_add_epi64(sums[0], sums[1]));
    uint32_t below = (uint32_t)(lanes[0] + lanes[1] + lanes[2] + lanes[3]);
    for (; i < count; i++)
        below += words[i] < word;
    return below;
}

static __attribute__((target("avx512f,popcnt"))) uint32_t
below_avx512(const uint64_t *words, uint32_t count, uint64_t word)
{
    const __m512i limit = _mm512_set1_epi64((long long)word);
    uint32_t below = 0, i = 0;

    for (; i + 8 <= count; i += 8)
        below += (uint32_t)__builtin_popcount(
            _mm512_cmplt_epu64_mask(_mm512_loadu_si512(words + i), limit));
    if (i < count) {
        __mmask8 rest = (__mmask8)((1u << (count - i)) - 1);
        below += (uint32_t)__builtin_popcount(
            _mm512_mask_cmplt_epu64_mask(rest, _mm512_maskz_loadu_epi64(rest, words + i), limit));
    }
    return below;
}

static void choose(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        usable[usable_count++] = (struct search_implementation){"avx2", slots_avx2, below_avx2};
    if (__builtin_cpu_supports("avx512f"))
        usable[usable_count++] = (struct search_implementation){"avx512", slots_avx2, below_avx512};
}

#else

static void choose(void)
{
}

#endif

__attribute__((constructor)) static void search_init(void)
{
    choose();
    chosen = usable[usable_count - 1];
}

uint64_t search_slots(const uint8_t *slots, uint32_t slot_bytes, uint32_t count, uint64_t key_word)
{
    pando_dassert(count <= SEARCH_SLOTS_MAX);
    return chosen.slots(slots, slot_bytes, count, key_word);
}

const struct search_implementation *search_implementations(size_t *out_count)
{
    *out_count = usable_count;
    return usable;
}

/* Halves the range without a branch that depends on the keys. */
uint32_t search_separators(const uint8_t *separators, uint32_t count, uint64_t key)
{
    uint32_t below = 0;

    while (count > 0) {
        uint32_t half = (count + 1) / 2;
        bool not_above = key_u64(separators + (size_t)16 * (below + half - 1)) <= key;
        below = not_above ? below + half : below;
        count -= half;
    }
    return below;
}

/* A few dependent steps, then all that is left at once: what costs is waiting for a load to know
 * where the next one goes. */
uint32_t search_below(const uint64_t *words, uint32_t count, uint64_t word)
{
    enum { AT_ONCE = 64 };
    const uint64_t *base = words;

    while (count > AT_ONCE) {
        uint32_t half = count / 2;
        base += half * (size_t)(base[half - 1] < word);
        count -= half;
    }
    return (uint32_t)(base - words) + chosen.below(base, count, word);
}

uint32_t search_rank(const uint64_t *words, uint32_t count, uint64_t word)
{
    return chosen.below(words, count, word);
}
