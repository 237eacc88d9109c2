/*
 * bench.h - `pando bench` without its options and its report: measuring an engine with a workload.
 *
 * bench_engine_run does all of it. Every compute node joins the pool once and opens the table once;
 * every thread has a session and a handle of its own, and `coroutines` clients.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/histogram.h"
#include "bench/workload.h"
#include "engine/engine.h"
#include "store/env.h"

enum {
    BENCH_THREADS_MAX = 64,
    BENCH_ERROR_BYTES = 512,
    BENCH_CLIENTS_MAX = 1024, /* of a thread */
    BENCH_PROCESSES_MAX = 16,
    BENCH_KEY_MAX = ENGINE_KEY_MAX,
    BENCH_LOCKS = 10240, /* of the workload `locks` */
    BENCH_TABLE_NAME_MAX = 40,
    BENCH_SERIES = 60, /* pieces of a measurement's time */
};

#define BENCH_IDLE_NS (100 * RT_NS_PER_US) /* of a client that found no key of its own */

struct bench_plan {
    const struct engine_ops *engine;
    const char *engine_name;    /* as it was asked for: "fg+" is sherman without its techniques */
    const char *without, *with; /* as in struct engine_config */
    const struct workload *workload;
    struct workload_dist dist;
    const char *dist_name;
    struct workload_space space;
    uint64_t ops;                   /* of all processes; 0: measure_ns decides */
    uint64_t measure_ns, warmup_ns; /* virtual on a simulated pool */
    unsigned threads, coroutines;   /* of each compute node, of each thread */
    unsigned processes;             /* that take part */
    struct engine_shape shape;
    uint32_t value_size;
    uint32_t pairs_per_leaf; /* about, as loaded */
    uint32_t update_bytes;   /* of the WRITE that an update of a pair takes at least */
    unsigned scan_length, fill;
    uint64_t cache_bytes;
    uint64_t seed;
    const char *table;
    bool keep, no_limit;
    void (*progress)(const char *what, double share); /* share: 0 to 1; NULL: nobody looks */
    uint64_t join_at_ns; /* the last compute node comes only then; 0: with the others */
    bool routed;         /* compute nodes work on keys of their own only */
    /* The workload `locks`. */
    bool onchip, hierarchical, queue, handover, backoff, write_unlock;
};

/* ---- what comes out -------------------------------------------------------------------------- */

/* Of one thread, and of all. */
struct bench_tally {
    uint64_t ops[WORKLOAD_KINDS];
    uint64_t errors, not_found;
    struct fabric_counters counters[FABRIC_TARGETS];
    struct histogram latency_ns;
    struct histogram kind_latency_ns[WORKLOAD_KINDS];
    /* Around single operations. */
    struct histogram write_round_trips, write_bytes, read_round_trips;
};

struct bench_outcome {
    struct bench_tally tally;
    uint64_t elapsed_ns;
    double rate;       /* operations per second over all threads */
    double best_rate;  /* real pools: nine of ten milliseconds were not faster; else `rate` */
    double limit_rate; /* of the limit, measured the same way; 0 without */
    struct engine_stats
        stats;            /* of the measurement alone, over all compute nodes of this process */
    uint64_t cache_bytes; /* per compute node */
    uint64_t pool_bytes;
    double bytes_per_record;
    bool
        exact; /* the distributions are of all operations; else of a sample with one client a thread */
    unsigned process;
    uint64_t move_ns;              /* how long it took until the late node's keys were its own */
    uint64_t series[BENCH_SERIES]; /* operations over time, with a late node */
    uint64_t series_others[BENCH_SERIES]; /* of them, by nodes that neither give nor get keys */
    double load_seconds, real_seconds;
    uint64_t virtual_ns;
    char error[BENCH_ERROR_BYTES];
};

/* False with outcome->error set. Not from a task. */
bool bench_engine_run(struct env *env, const struct bench_plan *plan,
                      struct bench_outcome *outcome);

static inline uint64_t bench_tally_ops(const struct bench_tally *tally)
{
    uint64_t sum = 0;
    for (int i = 0; i < WORKLOAD_KINDS; i++)
        sum += tally->ops[i];
    return sum;
}

/* Which operations the limit was measured with: a text for people. */
void bench_limit_text(const struct bench_plan *plan, char *out, size_t out_bytes);

#endif
