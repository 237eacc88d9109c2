#include "bench/intervals.h"

#include <stdlib.h>

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void bench_intervals_start(struct bench_intervals *intervals, uint64_t now_ns)
{
    intervals->last_ns = now_ns;
    intervals->last_operations = 0;
}

void bench_intervals_add(struct bench_intervals *intervals, uint64_t now_ns, uint64_t operations)
{
    uint64_t done = operations - intervals->last_operations;
    if (intervals->count < BENCH_INTERVALS_MAX && now_ns > intervals->last_ns)
        intervals->rates[intervals->count++] =
            (float)((double)done * 1e9 / (double)(now_ns - intervals->last_ns));
    intervals->last_ns = now_ns;
    intervals->last_operations = operations;
}

double bench_intervals_rate(struct bench_intervals *intervals)
{
    if (intervals->count == 0)
        return 0;
    qsort(intervals->rates, intervals->count, sizeof(intervals->rates[0]), compare_floats);
    return intervals->rates[(intervals->count - 1) * 9 / 10];
}
