/*
 * bench_engine.h - the parts of `pando bench`: its command (bench_engine.c), the run on all threads
 * of all compute nodes (bench_engine_run.c), one client (bench_engine_client.c), what the same
 * one-sided operations could do at best (bench_engine_limit.c), locks alone (bench_engine_locks.c),
 * who works on which keys (bench_engine_owners.c), a compute node that comes later
 * (bench_engine_late.c), other processes (bench_engine_join.c), and the report (bench_engine_report.c).
 *
 * Every compute node joins the pool once and opens the table once; every thread has a session and a
 * handle of its own, and `coroutines` clients.
 */
#ifndef CMD_BENCH_ENGINE_H
#define CMD_BENCH_ENGINE_H

#include <stdatomic.h>

#include "cmd/bench.h"
#include "cmd/workload.h"
#include "engine/engine.h"
#include "tree/lock/local_lock.h"

int cmd_bench(int argc, char **argv);

enum {
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
    const char *engine_name; /* as it was asked for: "fg+" is sherman without its techniques */
    const char *without;
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
    bool keep, no_limit, progress;
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

/* False with outcome->error set. */
bool bench_engine_run(struct env *env, const struct bench_plan *plan,
                      struct bench_outcome *outcome);

/* One line. */
void bench_report_line(FILE *out, const struct env *env, const struct bench_plan *plan,
                       const struct bench_outcome *outcome);
void bench_report_json(struct json *json, const struct env *env, const struct bench_plan *plan,
                       const struct bench_outcome *outcome);

static inline uint64_t bench_tally_ops(const struct bench_tally *tally)
{
    uint64_t sum = 0;
    for (int i = 0; i < WORKLOAD_KINDS; i++)
        sum += tally->ops[i];
    return sum;
}

/* ---- the run's own structures ---------------------------------------------------------------- */

struct bench_run;
struct bench_thread;

/* A process of the pool: on a simulated one there are many in here. */
struct bench_node {
    struct pool *pool;
    struct engine_table *table;
    struct local_locks *locks; /* the workload `locks` */
    struct bench_limit *limit;
    struct engine_stats before, after;
    atomic_bool open; /* of one that came late */
};

struct bench_client {
    struct bench_thread *thread;
    unsigned index;
    uint64_t number; /* among the clients of all processes */
    struct workload_client work;
    struct workload_client limit_work; /* what it draws when the limit is measured */
    uint64_t quota;                    /* operations that are left; UINT64_MAX: no bound */
    uint64_t key_word[BENCH_KEY_MAX / 8 + 1];
    uint8_t *value, *read_to;
    struct prng prng;
};

struct bench_limit;

enum bench_phase {
    BENCH_TOUCH,   /* each part of the index once, for the cache */
    BENCH_MEASURE, /* the workload */
    BENCH_SAMPLE,  /* the same by one client per thread, for the distributions */
    BENCH_LIMIT,   /* raw operations */
};

struct bench_thread {
    struct bench_run *run;
    struct bench_node *node;
    const struct env_place *place;
    unsigned index; /* over all compute nodes of this process */
    struct pool_session *session;
    struct engine *engine;
    struct bench_client *clients;

    /* The round that runs. */
    enum bench_phase phase;
    bool counting, stop;
    uint64_t count_from_ns, end_ns;
    struct rt_timer timer;
    struct rt_countdown left;
    uint64_t done;        /* operations counted in this round */
    uint64_t series_done; /* of them, in a piece of the series */
    struct fabric_counters counters_before[FABRIC_TARGETS];

    struct bench_tally tally;
    uint64_t elapsed_ns;
    struct bench_windows *windows, *limit_windows;
    uint64_t limit_done, limit_ns;
};

struct bench_run {
    struct env *env;
    const struct bench_plan *plan;
    struct bench_outcome *outcome;
    unsigned thread_count, node_count;
    struct bench_node *nodes;
    struct bench_thread *threads;
    unsigned process;        /* of this one among plan->processes */
    uint64_t series_from_ns; /* when the counting began */
    atomic_uint arrived, generation;
    struct rt_waitq waiting;
    atomic_bool failed;
    atomic_flag error_taken;
};

__attribute__((format(printf, 2, 3))) void bench_fail(struct bench_run *run, const char *format,
                                                      ...);
bool bench_failed(const struct bench_run *run);

/* A share of what is being done, from 0 to 1, on the terminal. */
void bench_progress(const struct bench_run *run, const char *what, double share);

/* ---- a client -------------------------------------------------------------------------------- */

bool bench_client_init(struct bench_client *client, struct bench_thread *thread, unsigned index);
void bench_client_fini(struct bench_client *client);

/* limit_work begins again. */
void bench_client_draw_anew(struct bench_client *client);

/* The body of a client's task in every phase but BENCH_LIMIT; counts itself out. */
void bench_client_main(void *arg);

/* ---- owners ---------------------------------------------------------------------------------- */

/* A workload_wants_fn; the context is a struct bench_client. */
bool bench_wants(void *context, uint64_t position, uint64_t serial);

/* Keys to all compute nodes of all processes; called by one thread of each process, when all its
 * compute nodes have opened the table. Fails the run if it does not work. */
void bench_spread_co(struct bench_thread *thread);

/* Reads a record that has changed hands, by which this thread's compute node learns what it owns now. */
void bench_look_co(struct bench_thread *thread, uint64_t record);

/* ---- a late compute node --------------------------------------------------------------------- */

bool bench_is_late(const struct bench_thread *thread);

/* For each thread of a late compute node: sleeps, joins, gets keys. */
void bench_late_co(struct bench_thread *thread);

/* Steps of joining (bench_engine_run.c); each fails the run if it does not work. */
void bench_enter_pool_co(
    struct bench_thread *thread); /* the node, and a session for its first thread */
void bench_open_session_co(struct bench_thread *thread);
void bench_open_table_co(struct bench_thread *thread);
void bench_attach_co(struct bench_thread *thread);

/* ---- the limit ------------------------------------------------------------------------------- */

/* Blocks to read and write, for all threads of this one's compute node. False: no memory in the pool; there is no limit then. */
bool bench_limit_open_co(struct bench_thread *thread);
void bench_limit_close_co(struct bench_thread *thread);
void bench_limit_main(void *arg); /* a struct bench_client's task */

/* Which operations: a text for people. */
void bench_limit_text(const struct bench_plan *plan, char *out, size_t out_bytes);

/* ---- locks ----------------------------------------------------------------------------------- */

PANDO_MUST_CHECK enum pando_status bench_lock_co(struct bench_client *client, uint64_t number);

/* ---- other processes ------------------------------------------------------------------------- */

/* Numbers the processes that take part by the order in which they come, and waits until all have:
 * names in the pool's directory. */
bool bench_join_claim_co(struct bench_run *run, struct pool_session *session);

/* Process 0 says that the table is loaded. */
void bench_join_loaded_co(struct bench_run *run, struct pool_session *session);
bool bench_join_wait_co(struct bench_run *run, struct pool_session *session);

/* Waits until every process has come here. */
enum bench_meeting { BENCH_OPENED, BENCH_SPREAD, BENCH_DONE, BENCH_MEETINGS };
bool bench_join_meet_co(struct bench_run *run, struct pool_session *session,
                        enum bench_meeting meeting);

/* Says that it is done; the first process waits until all have, and takes all names away. */
void bench_join_leave_co(struct bench_run *run, struct pool_session *session);

#endif
