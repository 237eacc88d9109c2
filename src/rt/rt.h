/*
 * rt.h - the runtime: one event loop per thread, many coroutines ("tasks") per loop.
 *
 * Everything above this folder takes its time, its randomness and its threads from here, so that
 * the same object code runs on real threads and in the simulator (rt/sim), where all loops share
 * one thread and time is virtual.
 *
 * Rules
 *  - A function that may suspend ends in _co and is called on a task only. Whatever other tasks may
 *    change has to be validated again after it.
 *  - Tasks of one loop never run at the same time; tasks of different loops do.
 *  - Unless a comment says "any thread", a function is called on the loop it concerns.
 *  - A task's stack is RT_STACK_BYTES; large buffers do not belong there.
 */
#ifndef RT_RT_H
#define RT_RT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "pando/pando.h"

struct rt_loop;
struct rt_task;
struct rt_thread;

typedef void (*rt_fn)(void *arg);

#define RT_NEVER UINT64_MAX /* a deadline that does not come */

enum {
    RT_STACK_BYTES = 64 * 1024, /* four times that under a sanitizer */
};

#define RT_NS_PER_US UINT64_C(1000)
#define RT_NS_PER_MS UINT64_C(1000000)
#define RT_NS_PER_S  UINT64_C(1000000000)

/* ---- loops and threads ----------------------------------------------------------------------- */

/* How long a loop keeps looking for work before it sleeps. */
struct rt_spin {
    uint64_t idle_ns;   /* after the last progress, with nothing in flight */
    uint64_t flight_ns; /* after the last progress, with operations in flight */
};

/* A loop for the calling thread; NULL when memory or file descriptors are gone. */
struct rt_loop *rt_loop_create(void);

/* Runs tasks until none is left. */
void rt_loop_run(struct rt_loop *loop);

/* Runs fn(arg) as a task of a loop that nobody runs, on this thread, until that task has ended; the
 * loop's other tasks run meanwhile and then stay where they are. Different threads may do so one
 * after the other. NO_MEMORY: no stack. Not from a task of this loop. */
PANDO_MUST_CHECK enum pando_status rt_loop_call(struct rt_loop *loop, rt_fn fn, void *arg);

/* No task, timer, fd or poller may be left. */
void rt_loop_destroy(struct rt_loop *loop);

void rt_loop_set_spin(struct rt_loop *loop, struct rt_spin spin);

/* The loop this code runs on; NULL outside of one. */
struct rt_loop *rt_loop_self(void);

/* Tasks that could run now, besides the one that asks. */
size_t rt_loop_runnable(const struct rt_loop *loop);

/* How often the loop went to sleep in the kernel. */
uint64_t rt_loop_sleeps(const struct rt_loop *loop);

/* Starts a thread with a loop of its own that runs main(arg) as its first task, and later whatever
 * is posted to it, until no task is left. The name (up to 15 characters) is what `top -H` shows.
 * *out is set before main begins, so that main may use it. */
PANDO_MUST_CHECK enum pando_status rt_thread_start(const char *name, rt_fn main, void *arg,
                                                   struct rt_thread **out);
struct rt_loop *rt_thread_loop(struct rt_thread *thread);

/* Waits until the thread's loop has ended, and frees it. Not from a task. */
void rt_thread_join(struct rt_thread *thread);

/* ---- what a thread keeps --------------------------------------------------------------------- */

/* One pointer per thread and rt_local, for threads that this program did not start. `destroy` is called
 * with it when its thread ends, on that thread, or by rt_local_destroy. None of these from a task. */
struct rt_local;
struct rt_local *rt_local_create(void (*destroy)(void *value));

/* Calls `destroy` for every thread's pointer that is left, and waits for those of threads that are
 * just ending. No thread uses it any more. */
void rt_local_destroy(struct rt_local *local);

/* This thread's; NULL until it is set. It is set once. */
void *rt_local_get(const struct rt_local *local);
PANDO_MUST_CHECK enum pando_status rt_local_set(struct rt_local *local, void *value);

/* A constant text that belongs to the calling thread alone, whoever started it; NULL until it is set. */
const char **rt_local_note(void);

/* How many forks lie between the start of the first program and this process: what belongs to threads
 * and descriptors of the parent is told by it. */
unsigned rt_forks(void);

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Starts fn(arg) on this loop; it runs when the current task suspends. NO_MEMORY: no stack. */
PANDO_MUST_CHECK enum pando_status rt_spawn(struct rt_loop *loop, rt_fn fn, void *arg);

struct rt_task *rt_task_self(void);

/* Lets every other runnable task run once. */
void rt_yield_co(void);
void rt_sleep_co(uint64_t duration_ns);

/* Suspends until rt_unpark or the deadline (OK or TIMEOUT). An unpark that comes first is kept, one
 * at the most; a park may therefore end early and its caller tests its condition in a loop. */
enum pando_status rt_park_co(uint64_t deadline_ns);

/* Any thread; the task must not have ended. */
void rt_unpark(struct rt_task *task);

/* ---- messages between loops ------------------------------------------------------------------ */

/* Memory of the sender until `deliver` has been called on the receiving loop (not on a task). */
struct rt_message {
    struct rt_message *next;
    void (*deliver)(struct rt_message *message);
};

/* Any thread. Wakes the loop if it sleeps. */
void rt_loop_post(struct rt_loop *loop, struct rt_message *message);

/* ---- time, randomness, cost ------------------------------------------------------------------ */

/* A monotonic clock: the machine's, or the simulated node's own, which may drift. */
uint64_t rt_now_ns(void);

/* The same clock, up to a turn of the loop old: for limits that are coarse themselves. Read after whatever
 * pollers and descriptors brought that made this task run. */
uint64_t rt_coarse_ns(void);

/* The same clock, read now, but up to RT_TICK_NS behind: a fifth of the price. */
#define RT_TICK_NS (10 * RT_NS_PER_MS)
uint64_t rt_tick_ns(void);

/* The machine's monotonic clock, also in a simulation: what a run takes in earnest. Any thread; for benchmarks
 * and commands, as nothing that is simulated may depend on it. */
uint64_t rt_machine_ns(void);

/* The time of day as microseconds since 1970 (UTC), for what has to mean the same to everybody: it
 * may jump, and machines differ. In the simulator it goes with virtual time. */
uint64_t rt_wall_us(void);

static inline uint64_t rt_wall_ms(void)
{
    return rt_wall_us() / 1000;
}

/* 64 random bits; not for secrets. */
uint64_t rt_random(void);

/* 64 bits from the machine itself, also outside of a loop: for seeds and ids of what no simulation
 * made. */
uint64_t rt_entropy(void);

/* What a simulated CPU is charged for; free of cost on a real one. */
enum rt_cost {
    RT_COST_OPERATION, /* one operation of an index: parsing, cache lookup, search */
    RT_COST_WRITE,     /* added by a write */
    RT_COST_VERB,      /* posting and polling one list */
    RT_COST_HANDOFF,   /* passing a lock from one thread of a node to another */
    RT_COST_CALL,      /* serving a call, on the target's CPU */
    RT_COST_COUNT
};
void rt_charge(enum rt_cost cost);

/* Where another thread could run in between: the simulator may let it. */
void rt_race_point(void);

/* The same between two steps of a rare change, where a thread that stands still for long does the most
 * harm. */
void rt_stall_point(void);

/* ---- timers ---------------------------------------------------------------------------------- */

/* `fire` runs on the loop, not on a task. The timer is disarmed before, so that it may arm itself.
 */
struct rt_timer {
    struct heap_node node;
    void (*fire)(struct rt_timer *timer);
    struct rt_loop *loop;
};

void rt_timer_init(struct rt_timer *timer, void (*fire)(struct rt_timer *timer));

/* Arms (or moves) it on the current loop. */
void rt_timer_arm(struct rt_timer *timer, uint64_t deadline_ns);
void rt_timer_cancel(struct rt_timer *timer);

/* ---- wait queues ----------------------------------------------------------------------------- */

/* First come, first served; tasks of any loop may wait and anyone may wake. Zeroed memory will not
 * do: initialise it. */
struct rt_waitq {
    _Atomic uint32_t latch;
    struct list waiters;
};

void rt_waitq_init(struct rt_waitq *queue);

/* OK when woken, TIMEOUT otherwise; the two exclude each other, so a wake-up is never lost to a
 * waiter that had given up. */
enum pando_status rt_waitq_wait_co(struct rt_waitq *queue, uint64_t deadline_ns);

/* Waits while the condition is true: OK; TIMEOUT: it still was at the deadline. The condition is looked at under
 * the queue's latch, so no change is missed of which somebody makes it false first and wakes the queue then. It
 * does not suspend, and takes no latch under which the queue is woken. Who ends a queue knows that no one who
 * wakes it is still at it. */
enum pando_status rt_waitq_while_co(struct rt_waitq *queue, bool (*condition)(const void *context),
                                    const void *context, uint64_t deadline_ns);

/* Makes a flag false and wakes all: who waits while it is true, by rt_waitq_while_co, may then free the queue and
 * the flag. Any thread. */
void rt_waitq_clear(struct rt_waitq *queue, atomic_bool *flag);

/* Wakes the longest waiting task; false when nobody waits. Any thread. */
bool rt_waitq_wake_one(struct rt_waitq *queue);
void rt_waitq_wake_all(struct rt_waitq *queue);

/* Waiting for a number of things that end on any thread. Lies on the waiter's stack. */
struct rt_countdown {
    _Atomic uint32_t latch;
    uint32_t left;
    struct rt_task *task;
};
void rt_countdown_init(struct rt_countdown *countdown, uint32_t count);

/* One of them ended; the caller does not touch the countdown afterwards. Any thread. */
void rt_countdown_done(struct rt_countdown *countdown);
void rt_countdown_wait_co(struct rt_countdown *countdown);

/* A latch for a few instructions; held across no suspension. */
struct rt_latch {
    _Atomic uint32_t held;
};
void rt_latch_lock(struct rt_latch *latch);
void rt_latch_unlock(struct rt_latch *latch);

/* One turn of waiting for such a one of the caller's own making; *spins is 0 to begin with. */
void rt_relax(unsigned *spins);

/* ---- large memory ---------------------------------------------------------------------------- */

/* Zeroed, taken from the machine as it is touched, in large pages where there are some; NULL when there
 * is no room for it. Any thread. */
void *rt_pages_map(size_t bytes);
void rt_pages_unmap(void *pages, size_t bytes);

/* The same in small pages, for what is used here and there: only pages that are touched take memory. */
void *rt_pages_map_sparse(size_t bytes);
void rt_pages_unmap_sparse(void *pages, size_t bytes);

/* ---- this process ---------------------------------------------------------------------------- */

/* What it has used and holds; 0 where the system does not tell. Any thread. */
struct rt_usage {
    uint64_t user_us, system_us; /* of CPU time */
    uint64_t resident_bytes;     /* of physical memory */
    uint64_t private_bytes;      /* of that, what no file or shared mapping lies behind */
    uint64_t heap_bytes;         /* allocated, not counting what was mapped */
};
void rt_usage(struct rt_usage *out);
int rt_process_id(void);

/* Bytes of memory that it may still take, as far as the machine and its control groups have some
 * now; UINT64_MAX where the system does not tell. Any thread. */
uint64_t rt_memory_free(void);

/* Gives memory that was freed back to the system where that is possible. */
void rt_heap_trim(void);

/* ---- blocking work --------------------------------------------------------------------------- */

/* Runs fn(arg) on one of a few helper threads while this task waits. For libraries and system calls
 * that block. In the simulator it runs at once. */
PANDO_MUST_CHECK enum pando_status rt_blocking_co(rt_fn fn, void *arg);

#endif
