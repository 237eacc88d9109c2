/*
 * bench_int.h - the parts of a run on all threads of all compute nodes (run.c): one client
 * (client.c), what the same one-sided operations could do at best (limit.c), locks alone (locks.c),
 * who works on which keys (owners.c), a compute node that comes later (late.c), and other processes
 * (join.c).
 */
#ifndef BENCH_BENCH_INT_H
#define BENCH_BENCH_INT_H

#include <stdatomic.h>

#include "bench/bench.h"
#include "bench/intervals.h"
#include "tree/blink/lock/local_lock.h"

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
    struct bench_intervals *intervals, *limit_intervals;
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

/* Says how far what is being done has come: a share from 0 to 1. */
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

/* Steps of joining (run.c); each fails the run if it does not work. */
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
