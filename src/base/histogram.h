/*
 * histogram.h - a log-linear histogram of unsigned values such as latencies in nanoseconds.
 *
 * Each power of two is divided into 64 buckets of equal width, so a bucket is at most 1/64 of its
 * values wide and its middle at most 1/128 (0.8 %) from any of them; values below 128 are exact:
 *
 *   value    0 .. 63 | 64 .. 127 | 128 .. 255 | 256 .. 511 | ...  | 2^39 .. 2^40 - 1
 *   width       1    |     1     |      2     |      4     |      |      2^33
 *
 * Values from 2^40 on (18 minutes in nanoseconds) are counted in the last bucket. Fixed size, 18
 * KiB: not for a coroutine's stack. For one thread; keep one per thread and merge.
 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_VALUE_BITS 40
#define HISTOGRAM_SUB_BITS   6

#define HISTOGRAM_BUCKETS                                                                          \
    ((size_t)(HISTOGRAM_VALUE_BITS - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
    uint64_t count, min, max;
    unsigned __int128 sum;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *histogram);

/* Which bucket a value belongs to. */
static inline size_t histogram_bucket(uint64_t value)
{
    const uint64_t limit = (UINT64_C(1) << HISTOGRAM_VALUE_BITS) - 1;
    if (value > limit)
        value = limit;
    /* The leading one and the SUB_BITS below it survive the shift; a shift of 0 is the exact part.
     */
    unsigned top = 63u - (unsigned)__builtin_clzll(value | (1u << HISTOGRAM_SUB_BITS));
    unsigned shift = top - HISTOGRAM_SUB_BITS;
    return ((size_t)shift << HISTOGRAM_SUB_BITS) + (size_t)(value >> shift);
}

static inline void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->buckets[histogram_bucket(value)]++;
    histogram->count++;
    histogram->sum += value;
    if (value < histogram->min)
        histogram->min = value;
    if (value > histogram->max)
        histogram->max = value;
}

/* Adds all of `from` to `into`. */
void histogram_merge(struct histogram *into, const struct histogram *from);

uint64_t histogram_count(const struct histogram *histogram);

/* The following are exact; of an empty histogram they are 0. */
double histogram_mean(const struct histogram *histogram);
uint64_t histogram_min(const struct histogram *histogram);
uint64_t histogram_max(const struct histogram *histogram);

/*
 * The value at or below which a fraction `q` in [0, 1] of the values lies, within 1 % for values
 * below 2^40; never outside [min, max]. Quantile 0 is min and 1 is max, both exact. 0 when empty.
 */
uint64_t histogram_quantile(const struct histogram *histogram, double q);

#endif
