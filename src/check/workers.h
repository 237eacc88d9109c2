/*
 * workers.h - many seeds at once: processes that take one seed after the other. A seed that
 * crashes or hangs its process is a violation like any other.
 */
#ifndef CHECK_WORKERS_H
#define CHECK_WORKERS_H

#include "check/check.h"

enum { CHECK_WORKERS_MAX = 64 };

struct check_run {
    struct check_options options; /* the seed is set for each */
    uint64_t first_seed, last_seed;
    unsigned workers;
    unsigned seed_seconds; /* a seed that takes longer hangs; 0 for two minutes */
};

/* One seed has ended. False: no further seeds are begun. */
typedef bool (*check_seed_fn)(void *context, uint64_t seed, const struct check_result *result);

/* Returns when all have. False if no process could be started. */
bool check_workers_run(const struct check_run *run, check_seed_fn fn, void *context);

#endif
