/*
 * intervals.h - the rate of one thread, over pieces of time.
 */
#ifndef BENCH_INTERVALS_H
#define BENCH_INTERVALS_H

#include "rt/rt.h"

enum { BENCH_INTERVALS_MAX = 8192 };

/*
 * The rate of one thread is taken in intervals of a millisecond, and the one that nine of ten
 * intervals do not exceed counts: whatever else the machine does only takes away, from the pool and
 * from what it is compared with, and in coarse pieces.
 */
#define BENCH_INTERVAL_NS RT_NS_PER_MS

struct bench_intervals {
    uint64_t last_ns, last_operations;
    unsigned count;
    float rates[BENCH_INTERVALS_MAX];
};

/* What was done before `now_ns` belongs to no interval. */
void bench_intervals_start(struct bench_intervals *intervals, uint64_t now_ns);

/* Operations since the start; to be called when an interval has passed. */
void bench_intervals_add(struct bench_intervals *intervals, uint64_t now_ns, uint64_t operations);

/* Sorts them; 0 if there are none. */
double bench_intervals_rate(struct bench_intervals *intervals);

#endif
