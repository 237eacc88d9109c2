/* Against the sorted values themselves. */
#include "base/histogram.h"

#include <math.h>

#include "base/prng.h"
#include "lib/check.h"

#define VALUES 20000

static struct histogram whole, part;

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_empty(void)
{
    histogram_init(&whole);
    CHECK_EQ_U64(histogram_count(&whole), 0);
    CHECK_EQ_U64(histogram_min(&whole), 0);
    CHECK_EQ_U64(histogram_max(&whole), 0);
    CHECK_EQ_U64(histogram_quantile(&whole, 0.5), 0);
    CHECK(histogram_mean(&whole) == 0);
}

/* Every bucket border: buckets follow each other without gaps and stay within the array. */
static void test_buckets(void)
{
    size_t previous = 0;

    for (uint64_t value = 0; value < 1 << 16; value++) {
        size_t bucket = histogram_bucket(value);
        CHECK(bucket == previous || bucket == previous + 1);
        previous = bucket;
    }
    for (int bit = 1; bit < HISTOGRAM_VALUE_BITS; bit++)
        CHECK_EQ_U64(histogram_bucket(UINT64_C(1) << bit),
                     histogram_bucket((UINT64_C(1) << bit) - 1) + 1);
    CHECK_EQ_U64(histogram_bucket((UINT64_C(1) << 40) - 1), HISTOGRAM_BUCKETS - 1);
    CHECK_EQ_U64(histogram_bucket(UINT64_C(1) << 40), HISTOGRAM_BUCKETS - 1);
    CHECK_EQ_U64(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void check_near(uint64_t actual, uint64_t expected)
{
    double difference = fabs((double)actual - (double)expected);
    if (difference > 0.01 * (double)expected)
        CHECK_FAIL("%" PRIu64 " is more than 1 %% from %" PRIu64, actual, expected);
}

/* Values between two others, so that neither end is returned as min or max. */
static void test_error_bound(void)
{
    struct prng prng;

    prng_seed(&prng, 3);
    for (int i = 0; i < 3000; i++) {
        uint64_t value = prng_next(&prng) >> (24 + prng_below(&prng, 40));
        histogram_init(&whole);
        histogram_add(&whole, 0);
        histogram_add(&whole, value);
        histogram_add(&whole, UINT64_MAX);
        uint64_t median = histogram_quantile(&whole, 0.5);
        check_near(median, value);
        if (value < 128)
            CHECK_EQ_U64(median, value);
    }
}

static void test_quantiles(unsigned bits)
{
    static const double quantiles[] = {0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    static uint64_t values[VALUES];
    struct prng prng;
    double sum = 0;

    prng_seed(&prng, bits);
    histogram_init(&whole);
    histogram_init(&part);
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = prng_next(&prng) >> (64 - bits + prng_below(&prng, bits / 2 + 1));
        sum += (double)values[i];
        histogram_add(i % 3 == 0 ? &part : &whole, values[i]);
    }
    histogram_merge(&whole, &part);

    qsort(values, VALUES, sizeof(values[0]), compare_u64);
    CHECK_EQ_U64(histogram_count(&whole), VALUES);
    CHECK_EQ_U64(histogram_min(&whole), values[0]);
    CHECK_EQ_U64(histogram_max(&whole), values[VALUES - 1]);
    CHECK(fabs(histogram_mean(&whole) - sum / VALUES) <= 1e-9 * sum / VALUES);
    CHECK_EQ_U64(histogram_quantile(&whole, 0), values[0]);
    CHECK_EQ_U64(histogram_quantile(&whole, 1), values[VALUES - 1]);
    for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
        size_t rank = (size_t)ceil(quantiles[i] * VALUES);
        check_near(histogram_quantile(&whole, quantiles[i]), values[rank == 0 ? 0 : rank - 1]);
    }
}

static void test_huge(void)
{
    histogram_init(&whole);
    histogram_add(&whole, 1);
    for (int i = 0; i < 3; i++)
        histogram_add(&whole, UINT64_MAX);
    CHECK_EQ_U64(histogram_max(&whole), UINT64_MAX);
    CHECK_EQ_U64(histogram_quantile(&whole, 1), UINT64_MAX);
    /* In the last bucket all that is known is that it was at least 2^40 or so. */
    CHECK(histogram_quantile(&whole, 0.5) > UINT64_C(1) << 39);
    CHECK(fabs(histogram_mean(&whole) - 0.75 * 0x1p64) < 1e9);
}

int main(void)
{
    test_empty();
    test_buckets();
    test_error_bound();
    for (unsigned bits = 1; bits <= HISTOGRAM_VALUE_BITS; bits++)
        test_quantiles(bits);
    test_huge();
    return 0;
}
