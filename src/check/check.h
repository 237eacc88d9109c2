/*
 * check.h - one seed of `pando check`: a simulated cluster whose clients use one table,
 * fail, and are replaced; and the judgement of what they saw and of what they left behind.
 *
 * Any engine will do: tests run it on their own.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include "engine/engine.h"
#include "pool/broken.h"

/* Kinds of faults, as bits. Without any there is only what the memory model allows at any time. */
enum check_faults {
    CHECK_FAULTS_NONE = 0,
    CHECK_FAULTS_CRASH = 1 << 0,   /* clients are killed at any operation; some are replaced */
    CHECK_FAULTS_SHORT = 1 << 1,   /* and paused, cut off, clocks drift, memory nodes restart */
    CHECK_FAULTS_OUTAGE = 1 << 2,  /* memory nodes or links are gone for longer than any patience */
    CHECK_FAULTS_PAUSES = 1 << 3,  /* several clients stand still at once, beyond their leases */
    CHECK_FAULTS_FLIPS = 1 << 4,   /* bits of the table change in memory nodes */
    CHECK_FAULTS_ANSWERS = 1 << 5, /* lists are executed, but their answers are lost */
    CHECK_FAULTS_FULL = 1 << 6,    /* memory nodes are so small that they get full */
    CHECK_FAULTS_ALLOC = 1 << 7,   /* some allocations fail */
    CHECK_FAULTS_BLOBS = 1 << 8,   /* values up to megabytes, on slow links */
    CHECK_FAULTS_LOST = 1 << 9,    /* a memory node comes back empty, as another's, or never */
    CHECK_FAULTS_LOCKS = 1 << 10,  /* memory nodes come back without their lock tables */
};

/* What `--faults all` is. */
#define CHECK_FAULTS_ALL                                                                           \
    (CHECK_FAULTS_CRASH | CHECK_FAULTS_SHORT | CHECK_FAULTS_OUTAGE | CHECK_FAULTS_PAUSES |         \
     CHECK_FAULTS_FLIPS | CHECK_FAULTS_ANSWERS | CHECK_FAULTS_FULL | CHECK_FAULTS_ALLOC |          \
     CHECK_FAULTS_BLOBS | CHECK_FAULTS_LOST | CHECK_FAULTS_LOCKS)

enum {
    CHECK_NODES_MAX = 16,
    CHECK_MEMORY_MAX = 8,
    CHECK_THREADS_MAX = 8,
    CHECK_TASKS_MAX = 8,
    CHECK_KEYS_MAX = 1024,
    CHECK_OPS_MAX = 100000,
    CHECK_TEXT_BYTES = 8192,
};

struct check_options {
    const struct engine_ops *engine;
    uint64_t seed;
    unsigned faults;  /* of enum check_faults */
    unsigned nodes;   /* compute nodes */
    unsigned memory;  /* memory nodes */
    unsigned threads; /* of each compute node */
    unsigned tasks;   /* of each thread */
    unsigned keys;
    unsigned ops;        /* of all clients together */
    const char *without; /* as in struct engine_config; with what is to be broken in the engine */
    const char *with;    /* as in struct engine_config */
    bool no_fencing;     /* test only, as the next three */
    bool no_windows;
    bool no_recovery;
    struct pool_broken broken;
    bool trace; /* events on stdout */
};

struct check_result {
    bool violated;
    char text[CHECK_TEXT_BYTES]; /* what was violated: lines without a final newline */
    uint64_t operations;         /* with those of scans */
    uint64_t unknown;            /* writes that nobody was told the outcome of */
    uint64_t failed;             /* operations that ended with an error */
    uint64_t undecided;          /* 1: the search for an order was given up */
    uint64_t kills, pauses, cuts, restarts, recoveries;
    uint64_t outages, flips, lost, lock_tables, big_values;
    uint64_t full;    /* operations that answered FULL */
    uint64_t corrupt; /* operations that answered CORRUPT */
    uint64_t served;  /* clients that were served everything after the faults */
    uint64_t splits, merges, repairs;
    uint64_t forwarded, moves; /* of engines whose keys have owners */
    uint64_t leaked_bytes, leaked_bound_bytes;
    uint64_t virtual_ns;
    uint64_t trace_hash;
};

/* The same options give the same result, to the bit. Not from a task. */
void check_seed(const struct check_options *options, struct check_result *result);

#endif
