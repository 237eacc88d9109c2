#include "base/histogram.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"

void histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->min = UINT64_MAX;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum += from->sum;
    if (from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
}

uint64_t histogram_count(const struct histogram *histogram)
{
    return histogram->count;
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->count == 0 ? 0 : (double)histogram->sum / (double)histogram->count;
}

uint64_t histogram_min(const struct histogram *histogram)
{
    return histogram->count == 0 ? 0 : histogram->min;
}

uint64_t histogram_max(const struct histogram *histogram)
{
    return histogram->max;
}

/* The middle of a bucket: the inverse of histogram_bucket, up to the bucket's width. */
static uint64_t bucket_middle(size_t bucket)
{
    const size_t per_octave = (size_t)1 << HISTOGRAM_SUB_BITS;
    if (bucket < 2 * per_octave)
        return bucket;
    unsigned shift = (unsigned)(bucket >> HISTOGRAM_SUB_BITS) - 1;
    uint64_t low = (uint64_t)(per_octave + (bucket & (per_octave - 1))) << shift;
    return low + (UINT64_C(1) << shift) / 2;
}

uint64_t histogram_quantile(const struct histogram *histogram, double q)
{
    pando_assert(q >= 0 && q <= 1);
    if (histogram->count == 0)
        return 0;

    /* The smallest rank, from 1, that covers the fraction; its ends are known exactly. */
    double rank = ceil(q * (double)histogram->count);
    if (rank <= 1)
        return histogram->min;
    if (rank >= (double)histogram->count)
        return histogram->max;

    uint64_t wanted = (uint64_t)rank, seen = 0;
    size_t bucket = 0;
    for (; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen >= wanted)
            break;
    }
    pando_assert(bucket < HISTOGRAM_BUCKETS);

    uint64_t value = bucket_middle(bucket);
    if (value < histogram->min)
        return histogram->min;
    return value > histogram->max ? histogram->max : value;
}
