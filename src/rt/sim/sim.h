/*
 * sim.h - a simulated world: virtual time, seeded choices, one real thread.
 *
 * A world has nodes (machines that fail as a whole), a node has loops (its threads), a loop has
 * tasks. Time is a number that jumps from event to event. The same seed and the same calls give the
 * same run to the bit; the trace hash says so.
 *
 * A loop has a CPU: what it is charged (rt_charge) delays its own later work and nobody else's. A
 * loop's own time may therefore be ahead of the world's while one of its tasks runs.
 *
 * A killed node's tasks are not destroyed. Nothing they do has an effect outside any more (the
 * simulated fabric sees to that) and every operation fails, so that they end by themselves and free
 * what they own; to the rest of the world the node died at the moment of the kill.
 */
#ifndef RT_SIM_SIM_H
#define RT_SIM_SIM_H

#include "base/prng.h"
#include "rt/rt.h"

struct sim;
struct sim_node;

struct sim_options {
    uint64_t seed;
    bool shuffle;             /* choose among runnable tasks, and delay them, at random */
    double race_probability;  /* of a switch to another thread at a race point */
    uint64_t race_delay_ns;   /* the most such a switch takes */
    double stall_probability; /* the same of stall points */
    uint64_t stall_ns;
    uint64_t costs[RT_COST_COUNT]; /* ns charged for each kind of work */
};

/* NULL when memory is gone. */
struct sim *sim_create(const struct sim_options *options);

/* Frees everything; tasks that have not ended are dropped with their stacks. */
void sim_destroy(struct sim *sim);

struct sim_node *sim_node_create(struct sim *sim);

/* A loop of that node; it belongs to the world. */
struct rt_loop *sim_loop_create(struct sim_node *node);

/* ---- running --------------------------------------------------------------------------------- */

enum sim_end {
    SIM_STOPPED, /* somebody called sim_stop */
    SIM_TIME,    /* the deadline passed */
    SIM_QUIET,   /* nothing is left to happen */
};

/* Runs events up to the deadline. Not from a task. */
enum sim_end sim_run(struct sim *sim, uint64_t deadline_ns);
void sim_stop(struct sim *sim);

/* Tasks in the world that have not ended. */
size_t sim_live_tasks(const struct sim *sim);

/* ---- time ------------------------------------------------------------------------------------ */

/* The world's time; on a task, its loop's own time, which may be ahead of it. */
uint64_t sim_now_ns(const struct sim *sim);

/* Something that happens at a time of the world, on no loop. Memory of the caller until it fired.
 */
struct sim_event {
    struct rt_timer timer;
    struct sim *sim;
};

void sim_event_init(struct sim_event *event, struct sim *sim, void (*fire)(struct rt_timer *timer));

/* Times in the past mean now. Among equal times the order of the calls decides. */
void sim_event_at(struct sim_event *event, uint64_t time_ns);
void sim_event_cancel(struct sim_event *event);

/* Wakes a task from an event. */
void sim_unpark(struct rt_task *task);

/* ---- faults ---------------------------------------------------------------------------------- */

/* The node's clocks run this much fast (or slow) from now on. */
void sim_node_set_drift(struct sim_node *node, int ppm);

/* Nothing of that node runs until then; its timers fire late. */
void sim_node_pause(struct sim_node *node, uint64_t until_ns);
bool sim_node_paused(const struct sim_node *node);

/* ---- seeds and traces ------------------------------------------------------------------------ */

struct prng *sim_prng(struct sim *sim);

/* Adds to the trace hash; with a trace function set, it also sees it. */
void sim_trace(struct sim *sim, const char *what, uint64_t a, uint64_t b, uint64_t c);
uint64_t sim_trace_hash(const struct sim *sim);
typedef void (*sim_trace_fn)(void *context, uint64_t now_ns, const char *what, uint64_t a,
                             uint64_t b, uint64_t c);
void sim_set_trace(struct sim *sim, sim_trace_fn fn, void *context);

/* Events handled so far. */
uint64_t sim_event_count(const struct sim *sim);

/* The world a loop belongs to; NULL for a real one. */
struct sim *sim_of_loop(struct rt_loop *loop);

#endif
