/*
 * rt_int.h - what the files of src/rt share.
 */
#ifndef RT_RT_INT_H
#define RT_RT_INT_H

#include <stdatomic.h>

#include "base/prng.h"
#include "rt/rt.h"

#if defined(__SANITIZE_ADDRESS__)
#define RT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define RT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RT_TSAN 1
#endif
#endif

/* A saved context, and what the sanitizers want to know about its stack. */
struct rt_context {
    void *sp;
    const void *stack_bottom;
    size_t stack_bytes;
    void *asan_fake_stack;
    void *tsan_fiber;
};

enum rt_task_state { RT_RUNNABLE, RT_RUNNING, RT_PARKED };

/* Lies at the top of its own stack. */
struct rt_task {
    struct rt_context context;
    struct rt_task *next; /* in the run queue or in the pool of free stacks */
    struct rt_loop *loop;
    uint8_t state;  /* enum rt_task_state; what a switch needs ends here, in one cache line */
    bool permit;    /* an unpark came before the park */
    bool timed;     /* it has a deadline, the park that it is in */
    bool timed_out; /* why the park ended */
    rt_fn fn;
    void *arg;
    struct rt_timer timer;
    atomic_bool posted; /* its message is on the way: a second unpark adds nothing */
    struct rt_message message;
};

/* What a real loop and a simulated one do differently. */
struct rt_driver {
    uint64_t (*now_ns)(struct rt_loop *loop);
    uint64_t (*coarse_ns)(struct rt_loop *loop);
    uint64_t (*tick_ns)(struct rt_loop *loop);
    uint64_t (*wall_us)(struct rt_loop *loop);
    uint64_t (*random)(struct rt_loop *loop);
    void (*ready)(struct rt_loop *loop); /* the run queue became non-empty */
    void (*post)(struct rt_loop *loop, struct rt_message *message);
    uint64_t (*timer_key)(struct rt_loop *loop, uint64_t deadline_ns);
    enum pando_status (*blocking_co)(struct rt_loop *loop, rt_fn fn, void *arg);
    void (*charge)(struct rt_loop *loop, enum rt_cost cost);
    void (*race_point)(struct rt_loop *loop);
    void (*stall_point)(struct rt_loop *loop);
};

/* The part of a loop that both kinds have. */
struct rt_loop {
    const struct rt_driver *driver;
    bool simulated;
    struct rt_context scheduler;
    struct rt_task *current;
    struct rt_task *run_head, **run_tail;
    size_t runnable;
    size_t
        turn_left; /* tasks that may still run in this turn, one switching straight to the next */
    size_t live;   /* tasks that have not ended */
    struct heap *timers;
    uint64_t timer_order;
    struct rt_task *free_tasks;
    size_t free_count;
    struct list slabs; /* all stacks, to unmap at the end */
};

extern _Thread_local struct rt_loop *rt_current_loop;

void rt_loop_init(struct rt_loop *loop, const struct rt_driver *driver, struct heap *timers);
void rt_loop_fini(struct rt_loop *loop);

/* Takes the first task off the run queue and runs it until it suspends or ends. */
void rt_run_next(struct rt_loop *loop);

/* Moves the n-th runnable task to the front. */
void rt_run_choose(struct rt_loop *loop, size_t n);

/* Switches from the running task back to the loop; the task is already where it waits. */
void rt_suspend(struct rt_loop *loop);

/* stack.c: tasks with their stacks, pooled per loop. */
struct rt_task *rt_stack_take(struct rt_loop *loop);
void rt_stack_give(struct rt_loop *loop, struct rt_task *task);
void rt_stack_unmap_all(struct rt_loop *loop);

/* context.c: entry is called on the new stack with the first switch to it; it never returns. */
void rt_context_make(struct rt_context *context, void *stack, size_t bytes, void (*entry)(void));
void rt_context_switch(struct rt_context *from, struct rt_context *to, bool from_ends);
void rt_context_entered(struct rt_context *self);

#endif
