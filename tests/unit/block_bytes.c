/*
 * How much more than its bytes a value takes in the pool: the figures of docs/ARCHITECTURE.md, for all sizes of
 * blocks and of values.
 */
#include "blob/blob.h"
#include "lib/check.h"
#include "pool/pool.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

/* Sizes from `first` to `last`, in steps of `step`, and what they take beyond themselves. */
struct range {
    uint64_t first, last, step;
    double average, most; /* part of the size */
    unsigned sizes;       /* of blocks */
};

static void check_range(const struct range *range, uint64_t (*taken)(uint64_t size))
{
    double sum = 0, most = 0;
    uint64_t count = 0, before = 0;
    unsigned sizes = 0;
    for (uint64_t size = range->first; size <= range->last; size += range->step) {
        uint64_t bytes = taken(size);
        CHECK(bytes >= size && bytes % 64 == 0);
        double more = (double)bytes / (double)size - 1;
        sum += more;
        count++;
        most = more > most ? more : most;
        sizes += bytes != before;
        before = bytes;
    }
    printf("%9" PRIu64 " to %9" PRIu64 " bytes: %.3f on average, %.3f at most, %u sizes\n",
           range->first, range->last, sum / (double)count, most, sizes);
    CHECK(sum / (double)count <= range->average);
    CHECK(most <= range->most);
    CHECK(most > range->most * 0.8); /* or the document says too much */
    CHECK(range->sizes == 0 || sizes == range->sizes);
}

static uint64_t block(uint64_t size)
{
    uint32_t bytes = pool_block_bytes(size);
    CHECK(bytes > MIB / 2 || MIB / bytes * bytes > MIB - MIB / 8);
    return bytes;
}

int main(void)
{
    static const struct range blocks[] = {
        {4 * KIB + 1, 8 * KIB, 1, 0.05, 0.14, 8},
        {64 * KIB + 1, 128 * KIB, 1, 0.05, 0.13, 8},
        {128 * KIB + 1, 256 * KIB, 1, 0.10, 0.255, 4},
    };
    static const struct range values[] = {
        {1 * KIB, 4 * KIB, 1, 0.08, 0.18, 0},
        {4 * KIB + 1, 128 * KIB - 56, 1, 0.05, 0.145, 0},
        {128 * KIB - 55, 256 * KIB - 56, 1, 0.10, 0.255, 0},
        {256 * KIB - 55, 1 * MIB, 1, 0.02, 0.115, 0},
        {1 * MIB + 1, 16 * MIB, 17, 0.003, 0.05, 0},
        {16 * MIB + 1, 512 * MIB, 4099, 0.001, 0.0035, 0},
    };
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        check_range(&blocks[i], block);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        check_range(&values[i], blob_pool_bytes);
    return 0;
}
