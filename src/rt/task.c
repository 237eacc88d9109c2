/*
 * task.c - tasks, parking and timers: what real and simulated loops have in common.
 */
#include "base/assert.h"
#include "rt/rt_int.h"

_Thread_local struct rt_loop *rt_current_loop;

void rt_loop_init(struct rt_loop *loop, const struct rt_driver *driver, struct heap *timers)
{
    *loop = (struct rt_loop){.driver = driver, .timers = timers};
    loop->run_tail = &loop->run_head;
    list_init(&loop->slabs);
}

void rt_loop_fini(struct rt_loop *loop)
{
    rt_stack_unmap_all(loop);
}

struct rt_loop *rt_loop_self(void)
{
    return rt_current_loop;
}

size_t rt_loop_runnable(const struct rt_loop *loop)
{
    return loop->runnable;
}

struct rt_task *rt_task_self(void)
{
    return rt_current_loop->current;
}

static void run_push(struct rt_loop *loop, struct rt_task *task)
{
    bool was_empty = loop->run_head == NULL;
    task->state = RT_RUNNABLE;
    task->next = NULL;
    *loop->run_tail = task;
    loop->run_tail = &task->next;
    loop->runnable++;
    if (was_empty)
        loop->driver->ready(loop);
}

void rt_run_choose(struct rt_loop *loop, size_t n)
{
    if (n == 0)
        return;
    struct rt_task **link = &loop->run_head;
    while (n-- > 0)
        link = &(*link)->next;
    struct rt_task *chosen = *link;
    *link = chosen->next;
    if (loop->run_tail == &chosen->next)
        loop->run_tail = link;
    chosen->next = loop->run_head;
    loop->run_head = chosen;
}

static struct rt_task *run_pop(struct rt_loop *loop)
{
    struct rt_task *task = loop->run_head;
    loop->run_head = task->next;
    if (loop->run_head == NULL)
        loop->run_tail = &loop->run_head;
    loop->runnable--;
    task->state = RT_RUNNING;
    return task;
}

void rt_run_next(struct rt_loop *loop)
{
    struct rt_task *task = run_pop(loop);
    loop->current = task;
    rt_context_switch(&loop->scheduler, &task->context, false);
    loop->current = NULL;
}

/* Where a task goes when it stops running: straight to the next one, or back to the loop. */
static struct rt_context *next_context(struct rt_loop *loop)
{
    if (loop->turn_left == 0 || loop->run_head == NULL)
        return &loop->scheduler;
    loop->turn_left--;
    loop->current = run_pop(loop);
    return &loop->current->context;
}

void rt_suspend(struct rt_loop *loop)
{
    struct rt_task *self = loop->current;
    struct rt_context *next = next_context(loop);
    /* A task that yields when nobody else can run is itself the next. */
    if (next != &self->context)
        rt_context_switch(&self->context, next, false);
}

/* First and last function on every task's stack. It never returns, so TSan must not count it as
 * entered: its shadow of a stack that is used again would grow with every task. */
__attribute__((no_sanitize("thread"))) static void task_entry(void)
{
    struct rt_loop *loop = rt_current_loop;
    struct rt_task *task = loop->current;

    rt_context_entered(&task->context);
    task->fn(task->arg);
    pando_assert(!heap_contains(&task->timer.node));
    /* A late unpark's message still lies in the inbox, and it lies in this task's memory. */
    while (atomic_load_explicit(&task->posted, memory_order_acquire))
        rt_yield_co();
    loop = rt_current_loop;
    loop->live--;
    rt_stack_give(loop, task);
    rt_context_switch(&task->context, next_context(loop), true);
    pando_assert(!"an ended task was resumed");
}

static void park_timeout(struct rt_timer *timer)
{
    struct rt_task *task = container_of(timer, struct rt_task, timer);
    task->timed_out = true;
    run_push(task->loop, task);
}

static void unpark_here(struct rt_task *task)
{
    if (task->state != RT_PARKED) {
        task->permit = true;
        return;
    }
    if (task->timed)
        rt_timer_cancel(&task->timer);
    run_push(task->loop, task);
}

static void unpark_deliver(struct rt_message *message)
{
    struct rt_task *task = container_of(message, struct rt_task, message);
    /* Cleared before the wake-up: an unpark from now on has to post again. */
    atomic_store_explicit(&task->posted, false, memory_order_release);
    unpark_here(task);
}

enum pando_status rt_spawn(struct rt_loop *loop, rt_fn fn, void *arg)
{
    struct rt_task *task = rt_stack_take(loop);
    if (task == NULL)
        return PANDO_NO_MEMORY;
    void *stack = (void *)task->context.stack_bottom;
    rt_context_make(&task->context, stack, task->context.stack_bytes, task_entry);
    task->loop = loop;
    task->fn = fn;
    task->arg = arg;
    task->permit = false;
    task->timed_out = false;
    rt_timer_init(&task->timer, park_timeout);
    task->timer.loop = loop;
    atomic_store_explicit(&task->posted, false, memory_order_relaxed);
    task->message.deliver = unpark_deliver;
    loop->live++;
    run_push(loop, task);
    return PANDO_OK;
}

void rt_yield_co(void)
{
    struct rt_loop *loop = rt_current_loop;
    run_push(loop, loop->current);
    rt_suspend(loop);
}

enum pando_status rt_park_co(uint64_t deadline_ns)
{
    struct rt_loop *loop = rt_current_loop;
    struct rt_task *task = loop->current;

    pando_dassert(task != NULL);
    if (task->permit) {
        task->permit = false;
        return PANDO_OK;
    }
    task->timed_out = false;
    task->state = RT_PARKED;
    task->timed = deadline_ns != RT_NEVER;
    if (task->timed)
        rt_timer_arm(&task->timer, deadline_ns);
    rt_suspend(loop);
    return task->timed_out ? PANDO_TIMEOUT : PANDO_OK;
}

void rt_unpark(struct rt_task *task)
{
    if (task->loop == rt_current_loop) {
        unpark_here(task);
        return;
    }
    if (!atomic_exchange_explicit(&task->posted, true, memory_order_acq_rel))
        task->loop->driver->post(task->loop, &task->message);
}

void rt_sleep_co(uint64_t duration_ns)
{
    uint64_t deadline_ns = rt_now_ns() + duration_ns;
    while (rt_now_ns() < deadline_ns)
        (void)rt_park_co(deadline_ns);
}

void rt_loop_post(struct rt_loop *loop, struct rt_message *message)
{
    loop->driver->post(loop, message);
}

uint64_t rt_now_ns(void)
{
    return rt_current_loop->driver->now_ns(rt_current_loop);
}

uint64_t rt_coarse_ns(void)
{
    return rt_current_loop->driver->coarse_ns(rt_current_loop);
}

uint64_t rt_tick_ns(void)
{
    return rt_current_loop->driver->tick_ns(rt_current_loop);
}

uint64_t rt_wall_us(void)
{
    return rt_current_loop->driver->wall_us(rt_current_loop);
}

uint64_t rt_random(void)
{
    return rt_current_loop->driver->random(rt_current_loop);
}

void rt_charge(enum rt_cost cost)
{
    struct rt_loop *loop = rt_current_loop;
    if (loop != NULL && loop->simulated)
        loop->driver->charge(loop, cost);
}

void rt_race_point(void)
{
    struct rt_loop *loop = rt_current_loop;
    if (loop != NULL && loop->simulated && loop->current != NULL)
        loop->driver->race_point(loop);
}

void rt_stall_point(void)
{
    struct rt_loop *loop = rt_current_loop;
    if (loop != NULL && loop->simulated && loop->current != NULL)
        loop->driver->stall_point(loop);
}

enum pando_status rt_blocking_co(rt_fn fn, void *arg)
{
    return rt_current_loop->driver->blocking_co(rt_current_loop, fn, arg);
}

void rt_timer_init(struct rt_timer *timer, void (*fire)(struct rt_timer *timer))
{
    *timer = (struct rt_timer){.fire = fire};
}

void rt_timer_arm(struct rt_timer *timer, uint64_t deadline_ns)
{
    struct rt_loop *loop = rt_current_loop;
    rt_timer_cancel(timer);
    timer->loop = loop;
    timer->node.key = loop->driver->timer_key(loop, deadline_ns);
    timer->node.order = loop->timer_order++;
    heap_insert(loop->timers, &timer->node);
}

void rt_timer_cancel(struct rt_timer *timer)
{
    if (heap_contains(&timer->node))
        heap_remove(timer->loop->timers, &timer->node);
}
