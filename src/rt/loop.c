/*
 * loop.c - the real event loop: tasks, pollers, timers, messages; spinning, then sleeping.
 *
 * One turn: deliver messages, run every runnable task once, call the pollers, look at the
 * descriptors, fire the timers. While turns make progress nothing sleeps. Without progress the loop
 * goes on turning for a bounded time, because waking a sleeping core costs tens of microseconds,
 * and then sleeps in epoll_wait until a descriptor, a timer or a message wakes it.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "rt/blocking.h"
#include "rt/io.h"
#include "rt/rt_int.h"

enum {
    EVENTS_PER_WAIT = 64,
    SLEEP_MS_MAX = 60000,
    TURNS_PER_YIELD = 64, /* without progress: let another process have the core */
    TURNS_PER_EPOLL = 16, /* when busy: how often the descriptors are looked at */
};

_Static_assert((int)RT_READABLE == (int)EPOLLIN && (int)RT_WRITABLE == (int)EPOLLOUT &&
                   (int)RT_HANG_UP == ((int)EPOLLHUP | (int)EPOLLERR),
               "handed to epoll as they are");

struct real_loop {
    struct rt_loop base;
    struct heap timers;
    struct prng prng;
    int epoll_fd;
    struct rt_fd wake; /* an eventfd, written by senders that find the loop asleep */
    _Atomic(struct rt_message *) inbox;
    atomic_bool asleep;
    atomic_uint posters; /* threads inside real_post: the loop is not destroyed under them */
    struct list pollers;
    struct list *next_poller; /* the one after the poller being called; it may unlink itself */
    struct rt_spin spin;
    int in_flight;
    uint64_t turn_ns;
    uint64_t progress_ns; /* when there was progress last */
    uint64_t sleeps;
    struct epoll_event *pending; /* events being handed out: a handler may remove a later fd */
    int pending_count;
};

static struct real_loop *real(struct rt_loop *loop)
{
    return container_of(loop, struct real_loop, base);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * RT_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t real_now_ns(struct rt_loop *loop)
{
    (void)loop;
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t rt_machine_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t real_tick_ns(struct rt_loop *loop)
{
    (void)loop;
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

static uint64_t real_coarse_ns(struct rt_loop *loop)
{
    return real(loop)->turn_ns;
}

static uint64_t real_wall_us(struct rt_loop *loop)
{
    (void)loop;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / RT_NS_PER_US;
}

static uint64_t real_random(struct rt_loop *loop)
{
    return prng_next(&real(loop)->prng);
}

static void real_ready(struct rt_loop *loop)
{
    (void)loop; /* the loop looks at its run queue in every turn */
}

static void real_post(struct rt_loop *base, struct rt_message *message)
{
    struct real_loop *loop = real(base);
    atomic_fetch_add_explicit(&loop->posters, 1, memory_order_relaxed);
    struct rt_message *head = atomic_load_explicit(&loop->inbox, memory_order_relaxed);
    do {
        message->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->inbox, &head, message,
                                                    memory_order_seq_cst, memory_order_relaxed));
    /* Pairs with loop_sleep: it says "asleep" and then looks at the inbox; here it is the other
     * way round. At least one of the two sees the other. */
    if (atomic_load_explicit(&loop->asleep, memory_order_seq_cst)) {
        uint64_t one = 1;
        ssize_t written = write(loop->wake.fd, &one, sizeof(one));
        (void)written; /* full only if it is readable already */
    }
    atomic_fetch_sub_explicit(&loop->posters, 1, memory_order_release);
}

static uint64_t real_timer_key(struct rt_loop *loop, uint64_t deadline_ns)
{
    (void)loop;
    return deadline_ns;
}

static void real_charge(struct rt_loop *loop, enum rt_cost cost)
{
    (void)loop;
    (void)cost;
}

static void real_race_point(struct rt_loop *loop)
{
    (void)loop;
}

static const struct rt_driver real_driver = {
    .now_ns = real_now_ns,
    .coarse_ns = real_coarse_ns,
    .tick_ns = real_tick_ns,
    .wall_us = real_wall_us,
    .random = real_random,
    .ready = real_ready,
    .post = real_post,
    .timer_key = real_timer_key,
    .blocking_co = rt_blocking_real_co,
    .charge = real_charge,
    .race_point = real_race_point,
    .stall_point = real_race_point,
};

static void wake_ready(struct rt_fd *self, uint32_t events)
{
    (void)events;
    uint64_t count;
    ssize_t got = read(self->fd, &count, sizeof(count));
    (void)got;
}

uint64_t rt_entropy(void)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
        bits = hash_u64(real_now_ns(NULL));
    return bits;
}

struct rt_loop *rt_loop_create(void)
{
    struct real_loop *loop = calloc(1, sizeof(*loop));

    if (loop == NULL)
        return NULL;
    rt_loop_init(&loop->base, &real_driver, &loop->timers);
    heap_init(&loop->timers);
    list_init(&loop->pollers);
    loop->spin = (struct rt_spin){.idle_ns = 50 * RT_NS_PER_US, .flight_ns = 2 * RT_NS_PER_MS};
    prng_seed(&loop->prng, rt_entropy());

    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0)
        goto err_free;
    loop->wake = (struct rt_fd){
        .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = EPOLLIN, .ready = wake_ready};
    if (loop->wake.fd < 0)
        goto err_epoll;
    if (rt_fd_add(&loop->base, &loop->wake) != PANDO_OK)
        goto err_wake;
    loop->turn_ns = loop->progress_ns = real_now_ns(NULL);
    return &loop->base;

err_wake:
    close(loop->wake.fd);
err_epoll:
    close(loop->epoll_fd);
err_free:
    free(loop);
    return NULL;
}

void rt_loop_destroy(struct rt_loop *base)
{
    struct real_loop *loop = real(base);
    pando_assert(base->live == 0 && list_empty(&loop->pollers));
    while (atomic_load_explicit(&loop->posters, memory_order_acquire) > 0)
        sched_yield(); /* a few instructions of another thread */
    close(loop->wake.fd);
    close(loop->epoll_fd);
    heap_fini(&loop->timers);
    rt_loop_fini(base);
    free(loop);
}

void rt_loop_set_spin(struct rt_loop *loop, struct rt_spin spin)
{
    if (!loop->simulated)
        real(loop)->spin = spin;
}

uint64_t rt_loop_sleeps(const struct rt_loop *loop)
{
    return ((const struct real_loop *)loop)->sleeps;
}

uint64_t rt_turn_ns(const struct rt_loop *loop)
{
    return ((const struct real_loop *)loop)->turn_ns;
}

/* ---- descriptors and pollers ----------------------------------------------------------------- */

enum pando_status rt_fd_add(struct rt_loop *base, struct rt_fd *fd)
{
    struct epoll_event event = {.events = fd->events, .data.ptr = fd};
    if (epoll_ctl(real(base)->epoll_fd, EPOLL_CTL_ADD, fd->fd, &event) != 0)
        return errno == ENOMEM || errno == ENOSPC ? PANDO_NO_MEMORY : PANDO_IO;
    return PANDO_OK;
}

void rt_fd_change(struct rt_loop *base, struct rt_fd *fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = fd};
    if (fd->events == events)
        return;
    fd->events = events;
    int result = epoll_ctl(real(base)->epoll_fd, EPOLL_CTL_MOD, fd->fd, &event);
    pando_assert(result == 0);
}

void rt_fd_remove(struct rt_loop *base, struct rt_fd *fd)
{
    struct real_loop *loop = real(base);
    int result = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd->fd, NULL);
    pando_assert(result == 0);
    for (int i = 0; i < loop->pending_count; i++) {
        if (loop->pending[i].data.ptr == fd)
            loop->pending[i].data.ptr = NULL;
    }
}

void rt_poller_add(struct rt_loop *base, struct rt_poller *poller)
{
    list_push_back(&real(base)->pollers, &poller->link);
}

void rt_poller_remove(struct rt_poller *poller)
{
    struct real_loop *loop = real(rt_current_loop);
    if (loop->next_poller == &poller->link)
        loop->next_poller = poller->link.next;
    list_remove(&poller->link);
}

void rt_flight_add(struct rt_loop *base, int delta)
{
    real(base)->in_flight += delta;
    pando_dassert(real(base)->in_flight >= 0);
}

/* ---- the parts of a turn --------------------------------------------------------------------- */

static bool deliver_messages(struct real_loop *loop)
{
    if (atomic_load_explicit(&loop->inbox, memory_order_relaxed) == NULL)
        return false;
    struct rt_message *taken = atomic_exchange_explicit(&loop->inbox, NULL, memory_order_acquire);
    struct rt_message *in_order = NULL;
    while (taken != NULL) {
        struct rt_message *next = taken->next;
        taken->next = in_order;
        in_order = taken;
        taken = next;
    }
    while (in_order != NULL) {
        struct rt_message *message = in_order;
        in_order = message->next;
        message->deliver(message);
    }
    return true;
}

static bool run_tasks(struct rt_loop *loop)
{
    size_t count = loop->runnable; /* not those that become runnable meanwhile */
    loop->turn_left = count;
    while (loop->turn_left > 0) {
        loop->turn_left--;
        rt_run_next(loop); /* and those that follow it without coming back here */
    }
    return count > 0;
}

static bool call_pollers(struct real_loop *loop)
{
    bool progress = false;
    for (struct list *link = loop->pollers.next; link != &loop->pollers; link = loop->next_poller) {
        struct rt_poller *poller = container_of(link, struct rt_poller, link);
        loop->next_poller = link->next;
        progress |= poller->poll(poller);
    }
    loop->next_poller = NULL;
    return progress;
}

/* True when one of them found something to do. */
static bool ask_pollers(struct real_loop *loop)
{
    bool progress = false;
    for (struct list *link = loop->pollers.next; link != &loop->pollers; link = loop->next_poller) {
        struct rt_poller *poller = container_of(link, struct rt_poller, link);
        loop->next_poller = link->next;
        if (poller->before_sleep != NULL)
            progress |= poller->before_sleep(poller);
    }
    loop->next_poller = NULL;
    return progress;
}

static bool fire_timers(struct real_loop *loop)
{
    bool fired = false;
    struct heap_node *node;
    while ((node = heap_peek(&loop->timers)) != NULL && node->key <= loop->turn_ns) {
        struct rt_timer *timer = container_of(node, struct rt_timer, node);
        heap_remove(&loop->timers, node);
        timer->fire(timer);
        fired = true;
    }
    return fired;
}

static bool look_at_descriptors(struct real_loop *loop, int timeout_ms)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    int count = epoll_wait(loop->epoll_fd, events, EVENTS_PER_WAIT, timeout_ms);
    if (count <= 0)
        return false;
    loop->pending = events;
    loop->pending_count = count;
    for (int i = 0; i < count; i++) {
        struct rt_fd *fd = events[i].data.ptr;
        if (fd != NULL)
            fd->ready(fd, events[i].events);
    }
    loop->pending = NULL;
    loop->pending_count = 0;
    return true;
}

static int sleep_limit_ms(struct real_loop *loop)
{
    struct heap_node *node = heap_peek(&loop->timers);
    if (node == NULL)
        return -1;
    if (node->key <= loop->turn_ns)
        return 0;
    uint64_t ms = (node->key - loop->turn_ns + RT_NS_PER_MS - 1) / RT_NS_PER_MS;
    return ms > SLEEP_MS_MAX ? SLEEP_MS_MAX : (int)ms;
}

static void loop_sleep(struct real_loop *loop)
{
    int limit_ms = sleep_limit_ms(loop);
    atomic_store_explicit(&loop->asleep, true, memory_order_seq_cst);
    if (atomic_load_explicit(&loop->inbox, memory_order_seq_cst) == NULL) {
        loop->sleeps++;
        look_at_descriptors(loop, limit_ms);
    }
    atomic_store_explicit(&loop->asleep, false, memory_order_relaxed);
    loop->turn_ns = real_now_ns(NULL);
    loop->progress_ns = loop->turn_ns;
}

/* Turns of a loop since it was last entered. */
struct turns {
    unsigned count, quiet;
};

static void loop_turn(struct real_loop *loop, struct turns *turns)
{
    bool progress = deliver_messages(loop);
    progress |= run_tasks(&loop->base);
    progress |= call_pollers(loop);
    /* Pollers look at what is busy by themselves; the descriptors then can wait a little. */
    bool busy = progress || !list_empty(&loop->pollers);
    if (turns->count++ % (busy ? TURNS_PER_EPOLL : 1) == 0) {
        loop->turn_ns = real_now_ns(NULL);
        progress |= look_at_descriptors(loop, 0);
    }
    /* What the next turn's tasks find done was done before this: the promise of rt_coarse_ns. */
    loop->turn_ns = real_now_ns(NULL);
    progress |= fire_timers(loop);
    if (progress || loop->base.runnable > 0) {
        loop->progress_ns = loop->turn_ns;
        turns->quiet = 0;
        return;
    }
    uint64_t limit_ns = loop->in_flight > 0 ? loop->spin.flight_ns : loop->spin.idle_ns;
    if (loop->turn_ns - loop->progress_ns < limit_ns) {
        if (++turns->quiet % TURNS_PER_YIELD == 0)
            sched_yield();
    } else if (!ask_pollers(loop)) {
        loop_sleep(loop);
    }
}

void rt_loop_run(struct rt_loop *base)
{
    struct rt_loop *outer = rt_current_loop;
    struct turns turns = {0};

    rt_current_loop = base;
    while (base->live > 0)
        loop_turn(real(base), &turns);
    rt_current_loop = outer;
}

/* ---- one task at a time ---------------------------------------------------------------------- */

struct loop_call {
    rt_fn fn;
    void *arg;
    bool done;
};

static void loop_call_task(void *arg)
{
    struct loop_call *call = arg;
    call->fn(call->arg);
    /* A late unpark's message is on the way: the task ends when it has come, and so does the call. */
    while (atomic_load_explicit(&rt_task_self()->posted, memory_order_acquire))
        rt_yield_co();
    call->done = true;
}

/* What became due while the loop stood still happens before anything new begins: a timer that watches
 * for silence would otherwise take the pause for one. */
static void catch_up(struct real_loop *loop)
{
    uint64_t now = real_now_ns(NULL);
    bool stood_still = now - loop->turn_ns >= RT_NS_PER_MS;
    loop->turn_ns = loop->progress_ns = now;
    if (!stood_still)
        return;
    (void)look_at_descriptors(loop, 0);
    loop->turn_ns = real_now_ns(NULL);
    (void)fire_timers(loop);
}

enum pando_status rt_loop_call(struct rt_loop *base, rt_fn fn, void *arg)
{
    struct real_loop *loop = real(base);
    struct rt_loop *outer = rt_current_loop;
    struct loop_call call = {.fn = fn, .arg = arg};
    struct turns turns = {.count = 1};

    pando_assert(!base->simulated && base->current == NULL);
    rt_current_loop = base;
    base->scheduler = (struct rt_context){0}; /* perhaps another thread's stack this time */
    catch_up(loop);
    enum pando_status status = rt_spawn(base, loop_call_task, &call);
    while (status == PANDO_OK && !call.done)
        loop_turn(loop, &turns);
    loop->turn_ns = real_now_ns(NULL);
    rt_current_loop = outer;
    return status;
}
