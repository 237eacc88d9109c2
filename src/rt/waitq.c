/*
 * waitq.c - latches and wait queues.
 */
#include <sched.h>

#include "base/assert.h"
#include "rt/rt_int.h"

enum { SPINS_BEFORE_YIELD = 128 };

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void rt_relax(unsigned *spins)
{
    if (++*spins < SPINS_BEFORE_YIELD) {
        cpu_relax();
    } else {
        /* The holder is off the CPU, or is another loop of this simulation. */
        *spins = 0;
        rt_race_point();
        sched_yield();
    }
}

static void latch_acquire(_Atomic uint32_t *word)
{
    unsigned spins = 0;
    while (atomic_exchange_explicit(word, 1, memory_order_acquire) != 0) {
        while (atomic_load_explicit(word, memory_order_relaxed) != 0)
            rt_relax(&spins);
    }
}

static void latch_release(_Atomic uint32_t *word)
{
    atomic_store_explicit(word, 0, memory_order_release);
}

void rt_latch_lock(struct rt_latch *latch)
{
    rt_race_point();
    latch_acquire(&latch->held);
}

void rt_latch_unlock(struct rt_latch *latch)
{
    latch_release(&latch->held);
}

/* Lies on the waiter's stack; `woken` is written under the queue's latch. */
struct waiter {
    struct list link;
    struct rt_task *task;
    bool woken;
};

void rt_waitq_init(struct rt_waitq *queue)
{
    atomic_init(&queue->latch, 0);
    list_init(&queue->waiters);
}

/* Parks until woken or the deadline. Enters and leaves with the latch held. */
static enum pando_status park_in_co(struct rt_waitq *queue, struct waiter *self,
                                    uint64_t deadline_ns)
{
    *self = (struct waiter){.task = rt_task_self()};
    list_push_back(&queue->waiters, &self->link);
    for (;;) {
        latch_release(&queue->latch);
        enum pando_status status = rt_park_co(deadline_ns);
        latch_acquire(&queue->latch);
        if (self->woken)
            return PANDO_OK;
        if (status == PANDO_TIMEOUT) {
            list_remove(&self->link);
            return PANDO_TIMEOUT;
        }
    }
}

enum pando_status rt_waitq_wait_co(struct rt_waitq *queue, uint64_t deadline_ns)
{
    struct waiter self;

    latch_acquire(&queue->latch);
    enum pando_status status = park_in_co(queue, &self, deadline_ns);
    latch_release(&queue->latch);
    return status;
}

enum pando_status rt_waitq_while_co(struct rt_waitq *queue, bool (*condition)(const void *context),
                                    const void *context, uint64_t deadline_ns)
{
    struct waiter self;
    enum pando_status status = PANDO_OK;

    latch_acquire(&queue->latch);
    while (status == PANDO_OK && condition(context))
        status = park_in_co(queue, &self, deadline_ns);
    if (status == PANDO_TIMEOUT && !condition(context))
        status = PANDO_OK;
    latch_release(&queue->latch);
    return status;
}

/* Under the latch: without it the waiter may be gone with its stack. */
static bool wake_first(struct rt_waitq *queue)
{
    struct list *link = list_pop_front(&queue->waiters);
    if (link == NULL)
        return false;
    struct waiter *waiter = container_of(link, struct waiter, link);
    waiter->woken = true;
    rt_unpark(waiter->task);
    return true;
}

bool rt_waitq_wake_one(struct rt_waitq *queue)
{
    latch_acquire(&queue->latch);
    bool woken = wake_first(queue);
    latch_release(&queue->latch);
    return woken;
}

/* With the latch held once: who is woken and waits again is not woken again. */
void rt_waitq_wake_all(struct rt_waitq *queue)
{
    latch_acquire(&queue->latch);
    while (wake_first(queue)) {
    }
    latch_release(&queue->latch);
}

/* The flag changes under the latch: whoever sees that has taken the latch after this has let go of it. */
void rt_waitq_clear(struct rt_waitq *queue, atomic_bool *flag)
{
    latch_acquire(&queue->latch);
    atomic_store_explicit(flag, false, memory_order_release);
    while (wake_first(queue)) {
    }
    latch_release(&queue->latch);
}

void rt_countdown_init(struct rt_countdown *countdown, uint32_t count)
{
    *countdown = (struct rt_countdown){.left = count, .task = rt_task_self()};
}

void rt_countdown_done(struct rt_countdown *countdown)
{
    latch_acquire(&countdown->latch);
    /* Under the latch: the waiter cannot end before it is released. */
    if (--countdown->left == 0)
        rt_unpark(countdown->task);
    latch_release(&countdown->latch);
}

void rt_countdown_wait_co(struct rt_countdown *countdown)
{
    for (;;) {
        latch_acquire(&countdown->latch);
        bool over = countdown->left == 0;
        latch_release(&countdown->latch);
        if (over)
            return;
        (void)rt_park_co(RT_NEVER);
    }
}
