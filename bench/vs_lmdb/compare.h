/*
 * compare.h - the run: loads both sides, then measures them in turns.
 */
#ifndef VS_LMDB_COMPARE_H
#define VS_LMDB_COMPARE_H

#include "engine_side.h"
#include "work.h"

enum { COMPARE_ROUNDS_MAX = 99 };

struct compare_plan {
    struct engine_side_options engine;
    const char *engine_name;
    const char *lmdb_directory;
    uint64_t records, operations, pool_bytes, seed;
    size_t bare_node_bytes; /* 0: the fastest */
    unsigned rounds;
};

/* One comparison; rates are operations per second, medians over the rounds. */
struct compare_line {
    const char *name; /* in JSON */
    const char *what, *other;
    enum work_job job;
    double target;       /* what the ratio is to be at least */
    uint64_t operations; /* of a round */
    double engine_rate, other_rate;
    double ratio, ratio_least, ratio_most; /* of the rounds' ratios: median and range */
};

struct compare_outcome {
    struct compare_line lines[WORK_JOBS];
    double engine_load_seconds, lmdb_load_seconds;
    size_t bare_node_bytes; /* of the bare tree that was the fastest */
    bool bare_late_values, bare_wide;
    char error[WORK_ERROR_BYTES];
};

/* False with outcome->error set. Not from a task. */
bool compare_run(struct env *env, const struct compare_plan *plan, struct compare_outcome *outcome);

#endif
