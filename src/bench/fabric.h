/*
 * fabric.h - `pando fabric-bench` without its options and its report: measuring raw operations on a
 * pool, measuring what lies beneath it, and measuring the runtime.
 */
#ifndef BENCH_FABRIC_H
#define BENCH_FABRIC_H

#include "bench/bench.h"
#include "bench/intervals.h"

enum { BENCH_DEPTH_MAX = FABRIC_OUTSTANDING_MAX };

/* ---- random addresses, the same for a pool and for what it is compared with ------------------ */

struct bench_region {
    unsigned nodes;
    uint64_t base;       /* offset of the first slot in every node */
    uint64_t slots;      /* in every node */
    uint64_t slot_bytes; /* the operations' size, rounded up to words */
};

/* One word of state: what is measured are operations, not generators. */
struct bench_addresses {
    const struct bench_region *region;
    uint64_t state;
};

/* Lane `lane` of thread `thread` always gets the same sequence. */
void bench_addresses_init(struct bench_addresses *addresses, const struct bench_region *region,
                          unsigned thread, unsigned lane);

/* Uniform in [0, bound): by the high bits of a linear congruential generator (Knuth's MMIX). */
static inline uint64_t bench_addresses_below(struct bench_addresses *addresses, uint64_t bound)
{
    addresses->state = addresses->state * 6364136223846793005u + 1442695040888963407u;
    return (uint64_t)(((unsigned __int128)addresses->state * bound) >> 64);
}

static inline uint64_t bench_addresses_next(struct bench_addresses *addresses, unsigned *node)
{
    const struct bench_region *region = addresses->region;
    *node = region->nodes == 1 ? 0 : (unsigned)bench_addresses_below(addresses, region->nodes);
    return region->base + bench_addresses_below(addresses, region->slots) * region->slot_bytes;
}

/* ---- a measurement --------------------------------------------------------------------------- */

struct bench_raw;

struct bench_spec {
    enum fabric_kind kind;
    uint32_t size;
    unsigned list; /* operations of a list */
    unsigned depth, threads;
    bool one_task;        /* one task keeps all lists in flight, instead of a task for each */
    uint64_t duration_ns; /* of all rounds together */
    unsigned rounds;
    uint64_t span_bytes;   /* of each node's window that is used, at most */
    struct bench_raw *raw; /* measured in turns with the pool; NULL for none */
    void (*progress)(unsigned round, unsigned rounds); /* before each; NULL: nobody looks */
};

/* On a simulated pool rates and latencies are virtual. */
struct bench_result {
    uint64_t operations;
    double rate; /* operations per second over all threads, see bench_intervals */
    double mean_rate;
    double raw_rate; /* 0 without raw */
    uint64_t span_bytes;
    double real_seconds;             /* of the whole measurement */
    struct histogram latency_ns;     /* of lists; a sample of them */
    struct histogram raw_latency_ns; /* at depth 1 of an echo; empty otherwise */
    char error[BENCH_ERROR_BYTES];
};

/* False with result->error set. */
bool bench_measure(struct env *env, const struct bench_spec *spec, struct bench_result *result);

/* ---- what lies beneath: a memcpy loop, or an echo over sockets ------------------------------- */

/* For a pool of one memory node that is embedded, shm or tcp. NULL with an error. */
struct bench_raw *bench_raw_open(const struct env *env, const struct bench_spec *spec,
                                 uint64_t embedded_bytes, char *error, size_t error_bytes);
void bench_raw_close(struct bench_raw *raw);

/* Where the operations of a lane leave what they read, aligned; the size of all of them together.
 */
static inline size_t bench_buffer_stride(const struct bench_spec *spec)
{
    return ((size_t)spec->size + 63) & ~(size_t)63;
}

static inline size_t bench_buffers_bytes(const struct bench_spec *spec)
{
    return bench_buffer_stride(spec) * spec->list * spec->depth;
}

/* "memcpy" or "echo". */
const char *bench_raw_name(const struct bench_raw *raw);

/* Before the first slice: makes the memory of a memcpy loop present. */
void bench_raw_warm(struct bench_raw *raw, const struct bench_region *region);

/* Blocks the calling thread that long. */
void bench_raw_slice(struct bench_raw *raw, unsigned thread, const struct bench_region *region,
                     uint64_t duration_ns, struct bench_intervals *intervals,
                     struct histogram *latency_ns);

/* ---- the runtime ----------------------------------------------------------------------------- */

struct bench_runtime {
    double create_ns;    /* a task created, run and finished */
    double yield_ns;     /* a task gives way and comes back: two switches and the queue */
    double switch_ns;    /* half of that */
    double operation_ns; /* an 8-byte READ of hot memory in this process, */
    double copy_ns;      /* of which the copy itself takes */
};

bool bench_runtime(struct bench_runtime *out, char *error, size_t error_bytes);

#endif
