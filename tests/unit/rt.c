/*
 * The real loop: tasks, parking, timers, wait queues between threads, messages, offloading, and
 * that an idle loop sleeps, and what its coarse clock promises.
 */
#include "rt/rt.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/list.h"
#include "lib/check.h"
#include "rt/io.h"

/* ---- one loop -------------------------------------------------------------------------------- */

static int order[16];
static int order_count;

static void note(void *arg)
{
    int id = (int)(intptr_t)arg;
    order[order_count++] = id;
    rt_yield_co();
    order[order_count++] = id + 10;
}

static void test_tasks_run_in_order(void)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    order_count = 0;
    for (intptr_t i = 0; i < 3; i++)
        CHECK_OK(rt_spawn(loop, note, (void *)i));
    rt_loop_run(loop);
    const int expected[] = {0, 1, 2, 10, 11, 12};
    CHECK(order_count == 6 && memcmp(order, expected, sizeof(expected)) == 0);
    rt_loop_destroy(loop);
}

static struct rt_task *parked;
static enum pando_status park_status;
static uint64_t park_took_ns;

static void park_task(void *arg)
{
    uint64_t deadline_ns = *(uint64_t *)arg;
    uint64_t start = rt_now_ns();
    parked = rt_task_self();
    park_status = rt_park_co(deadline_ns == RT_NEVER ? RT_NEVER : start + deadline_ns);
    park_took_ns = rt_now_ns() - start;
    parked = NULL;
}

static void unpark_task(void *arg)
{
    (void)arg;
    rt_sleep_co(2 * RT_NS_PER_MS);
    rt_unpark(parked);
}

static void test_park(void)
{
    struct rt_loop *loop = rt_loop_create();
    uint64_t never = RT_NEVER, soon = 3 * RT_NS_PER_MS;

    CHECK_OK(rt_spawn(loop, park_task, &never));
    CHECK_OK(rt_spawn(loop, unpark_task, NULL));
    rt_loop_run(loop);
    CHECK(park_status == PANDO_OK && park_took_ns >= 2 * RT_NS_PER_MS);

    CHECK_OK(rt_spawn(loop, park_task, &soon));
    rt_loop_run(loop);
    CHECK(park_status == PANDO_TIMEOUT && park_took_ns >= soon);
    rt_loop_destroy(loop);
}

static void permit_task(void *arg)
{
    (void)arg;
    rt_unpark(rt_task_self());
    rt_unpark(rt_task_self());
    CHECK(rt_park_co(RT_NEVER) == PANDO_OK);
    CHECK(rt_park_co(rt_now_ns() + RT_NS_PER_MS) == PANDO_TIMEOUT);
}

static void test_permit_is_kept_once(void)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK_OK(rt_spawn(loop, permit_task, NULL));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
}

static void deep(int depth)
{
    volatile char pad[1024];
    memset((char *)pad, depth, sizeof(pad));
    if (depth > 0)
        deep(depth - 1);
    CHECK(pad[17] == (char)depth);
}

static void deep_task(void *arg)
{
    (void)arg;
    deep(30);
    rt_yield_co();
    deep(30);
}

static void test_many_tasks(void)
{
    struct rt_loop *loop = rt_loop_create();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++)
            CHECK_OK(rt_spawn(loop, deep_task, NULL));
        rt_loop_run(loop);
    }
    rt_loop_destroy(loop);
}

/* ---- several threads --------------------------------------------------------------------------
 */

enum { THREADS = 4, ROUNDS = 20000 };

static struct rt_waitq ping, pong;
static struct rt_waitq handed;
static struct rt_latch latch;
static uint64_t counter;
static atomic_int finished;

static void count_task(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        rt_latch_lock(&latch);
        counter++;
        rt_latch_unlock(&latch);
    }
}

static void test_latch(void)
{
    struct rt_thread *threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_OK(rt_thread_start("latch", count_task, NULL, &threads[i]));
    for (int i = 0; i < THREADS; i++)
        rt_thread_join(threads[i]);
    CHECK_EQ_U64(counter, (uint64_t)THREADS * ROUNDS);
}

/* A token passed between threads: wake-ups race with time-outs, and none may be lost. */
static atomic_int tokens;
static atomic_uint taken;

static void token_taker(void *arg)
{
    (void)arg;
    while (atomic_load(&taken) < ROUNDS) {
        uint64_t deadline = rt_now_ns() + rt_random() % 3000;
        if (rt_waitq_wait_co(&handed, deadline) == PANDO_OK) {
            CHECK(atomic_fetch_sub(&tokens, 1) > 0);
            atomic_fetch_add(&taken, 1);
        }
    }
    atomic_fetch_add(&finished, 1);
}

static void token_giver(void *arg)
{
    (void)arg;
    while (atomic_load(&finished) < 2) {
        atomic_fetch_add(&tokens, 1);
        if (!rt_waitq_wake_one(&handed))
            atomic_fetch_sub(&tokens, 1);
        rt_yield_co();
    }
}

static void test_waitq_between_threads(void)
{
    struct rt_thread *a, *b, *c;
    rt_waitq_init(&handed);
    atomic_store(&finished, 0);
    CHECK_OK(rt_thread_start("taker", token_taker, NULL, &a));
    CHECK_OK(rt_thread_start("taker", token_taker, NULL, &b));
    CHECK_OK(rt_thread_start("giver", token_giver, NULL, &c));
    rt_thread_join(a);
    rt_thread_join(b);
    rt_thread_join(c);
    CHECK(atomic_load(&tokens) == 0);
}

/* Two threads take turns, and neither waits by the clock: a wake-up that is lost hangs the test. */
static atomic_int turn;

static bool not_mine(const void *mine)
{
    return atomic_load(&turn) != *(const int *)mine;
}

static void take_turns(void *arg)
{
    const int *mine = arg;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(rt_waitq_while_co(&handed, not_mine, mine, RT_NEVER));
        atomic_store(&turn, 1 - *mine);
        rt_waitq_wake_all(&handed);
    }
}

static void give_up_turn(void *arg)
{
    static const int nobody = 2;
    CHECK(rt_waitq_while_co(&handed, not_mine, &nobody, rt_now_ns() + 1000) == PANDO_TIMEOUT);
    CHECK(rt_waitq_while_co(&handed, not_mine, &nobody, 0) == PANDO_TIMEOUT);
    (void)arg;
}

static void test_waitq_while(void)
{
    static int numbers[2] = {0, 1};
    struct rt_thread *threads[3];
    rt_waitq_init(&handed);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rt_thread_start("turns", take_turns, &numbers[i], &threads[i]));
    CHECK_OK(rt_thread_start("none", give_up_turn, NULL, &threads[2]));
    for (int i = 0; i < 3; i++)
        rt_thread_join(threads[i]);
    CHECK(atomic_load(&turn) == 0);
}

/* Who waits for a flag may free it with its queue: so it does not change while somebody looks at it, who would then
 * go on before the other thread is done with the queue. */
static atomic_bool flag, looking, clearing;

static bool flag_stays(const void *arg)
{
    (void)arg;
    bool set = atomic_load(&flag);
    atomic_store(&looking, true);
    while (!atomic_load(&clearing))
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield();
    CHECK(atomic_load(&flag) == set);
    return set;
}

static void clear_flag(void *arg)
{
    (void)arg;
    while (!atomic_load(&looking))
        rt_yield_co();
    atomic_store(&clearing, true);
    rt_waitq_clear(&handed, &flag);
}

static void await_flag(void *arg)
{
    (void)arg;
    CHECK_OK(rt_waitq_while_co(&handed, flag_stays, NULL, RT_NEVER));
    CHECK(!atomic_load(&flag));
}

static void test_waitq_clear(void)
{
    struct rt_thread *a, *b;
    rt_waitq_init(&handed);
    atomic_store(&flag, true);
    CHECK_OK(rt_thread_start("waits", await_flag, NULL, &a));
    CHECK_OK(rt_thread_start("clears", clear_flag, NULL, &b));
    rt_thread_join(a);
    rt_thread_join(b);
}

struct numbered {
    struct rt_message message;
    int number;
};

static atomic_int delivered;

static void deliver_number(struct rt_message *message)
{
    struct numbered *numbered = container_of(message, struct numbered, message);
    CHECK(atomic_fetch_add(&delivered, 1) == numbered->number);
    if (numbered->number == 99)
        rt_waitq_wake_all(&ping);
}

/* On a busy machine all messages may have come before this task first runs. */
static void wait_for_ping(void *arg)
{
    (void)arg;
    if (atomic_load(&delivered) < 100)
        CHECK_OK(rt_waitq_wait_co(&ping, RT_NEVER));
}

static void test_messages_in_order(void)
{
    static struct numbered messages[100];
    struct rt_thread *thread;
    struct timespec pause = {.tv_nsec = 5 * RT_NS_PER_MS};

    rt_waitq_init(&ping);
    CHECK_OK(rt_thread_start("inbox", wait_for_ping, NULL, &thread));
    nanosleep(&pause, NULL); /* it sleeps by now: the first message has to wake it */
    for (int i = 0; i < 100; i++) {
        messages[i] = (struct numbered){.message.deliver = deliver_number, .number = i};
        rt_loop_post(rt_thread_loop(thread), &messages[i].message);
    }
    rt_thread_join(thread);
    CHECK(atomic_load(&delivered) == 100);
}

static void block_5_ms(void *arg)
{
    struct timespec pause = {.tv_nsec = 5 * RT_NS_PER_MS};
    nanosleep(&pause, NULL);
    *(int *)arg += 1;
}

static int offloaded;
static int turns_meanwhile;

static void offload_task(void *arg)
{
    (void)arg;
    CHECK_OK(rt_blocking_co(block_5_ms, &offloaded));
}

static void turning_task(void *arg)
{
    (void)arg;
    while (offloaded == 0) {
        turns_meanwhile++;
        rt_sleep_co(RT_NS_PER_MS);
        /* offloaded is written by the helper thread and read after its task was woken here; this
         * task only looks in order to stop */
        if (turns_meanwhile > 3)
            break;
    }
}

static void test_blocking(void)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK_OK(rt_spawn(loop, offload_task, NULL));
    rt_loop_run(loop);
    CHECK(offloaded == 1);
    offloaded = 0;
    turns_meanwhile = 0;
    CHECK_OK(rt_spawn(loop, turning_task, NULL));
    rt_loop_run(loop);
    CHECK(turns_meanwhile >= 3);
    rt_loop_destroy(loop);
}

static void sleep_long(void *arg)
{
    (void)arg;
    rt_sleep_co(300 * (uint64_t)RT_NS_PER_MS);
}

static void test_idle_sleeps(void)
{
    struct rt_loop *loop = rt_loop_create();
    struct timespec before, after;
    CHECK_OK(rt_spawn(loop, sleep_long, NULL));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    rt_loop_run(loop);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    uint64_t used = (uint64_t)(after.tv_sec - before.tv_sec) * RT_NS_PER_S +
                    (uint64_t)after.tv_nsec - (uint64_t)before.tv_nsec;
    CHECK(used < 30 * (uint64_t)RT_NS_PER_MS); /* spinning would be 300 */
    CHECK(rt_loop_sleeps(loop) > 0);
    rt_loop_destroy(loop);
}

/* ---- a loop that is entered from time to time ------------------------------------------------ */

struct entered {
    struct rt_loop *loop;
    int ticks, calls;
    bool stop;
};

static void tick_task(void *arg)
{
    struct entered *entered = arg;
    while (!entered->stop) {
        entered->ticks++;
        rt_sleep_co(RT_NS_PER_MS);
    }
}

static void start_ticks(void *arg)
{
    struct entered *entered = arg;
    CHECK_OK(rt_spawn(rt_loop_self(), tick_task, entered));
    entered->calls++;
}

static void sleep_3ms(void *arg)
{
    struct entered *entered = arg;
    rt_sleep_co(3 * RT_NS_PER_MS);
    entered->calls++;
}

static void end_ticks(void *arg)
{
    struct entered *entered = arg;
    entered->stop = true;
    rt_sleep_co(5 * RT_NS_PER_MS);
}

static void *enter_elsewhere(void *arg)
{
    struct entered *entered = arg;
    CHECK_OK(rt_loop_call(entered->loop, sleep_3ms, entered));
    return NULL;
}

static void test_calls(void)
{
    struct entered entered = {.loop = rt_loop_create()};
    pthread_t thread;
    CHECK_OK(rt_loop_call(entered.loop, start_ticks, &entered));
    CHECK(rt_loop_self() == NULL && entered.ticks <= 1);
    CHECK_OK(rt_loop_call(entered.loop, sleep_3ms, &entered));
    CHECK(entered.ticks >= 2 && entered.calls == 2); /* the other task ran along */
    int before = entered.ticks;
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    nanosleep(&pause, NULL);
    CHECK(entered.ticks == before); /* and does not outside of calls */
    CHECK(pthread_create(&thread, NULL, enter_elsewhere, &entered) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(entered.calls == 3 && entered.ticks > before);
    CHECK_OK(rt_loop_call(entered.loop, end_ticks, &entered));
    rt_loop_destroy(entered.loop);
}

/* ---- the coarse clock ------------------------------------------------------------------------ */

/* Something that takes a while to come, by a poller or a descriptor. */
struct brought {
    struct rt_poller poller;
    struct rt_fd fd;
    struct rt_task *waiter;
    uint64_t at_ns;
    int seen;
    struct rt_loop *loop;
};

static void bring(struct brought *brought)
{
    uint64_t begin_ns = rt_now_ns();
    while (rt_now_ns() < begin_ns + RT_NS_PER_MS)
        ;
    brought->at_ns = rt_now_ns();
    rt_unpark(brought->waiter);
}

static bool bring_polled(struct rt_poller *poller)
{
    rt_poller_remove(poller);
    bring(container_of(poller, struct brought, poller));
    return true;
}

static void bring_read(struct rt_fd *fd, uint32_t events)
{
    uint64_t count;
    CHECK(events == RT_READABLE && read(fd->fd, &count, sizeof(count)) == sizeof(count));
    bring(container_of(fd, struct brought, fd));
}

static void check_brought(void *arg)
{
    struct brought *brought = arg;
    brought->waiter = rt_task_self();
    CHECK_OK(rt_park_co(RT_NEVER));
    CHECK(brought->at_ns != 0 && rt_coarse_ns() >= brought->at_ns);
    brought->seen++;
}

static void make_readable(struct brought *brought)
{
    uint64_t one = 1;
    CHECK(write(brought->fd.fd, &one, sizeof(one)) == sizeof(one));
}

static void wait_for_both(void *arg)
{
    struct brought *brought = arg;
    CHECK_OK(rt_fd_add(rt_loop_self(), &brought->fd));
    rt_poller_add(rt_loop_self(), &brought->poller);
    check_brought(brought);
    make_readable(brought);
    check_brought(brought);
    CHECK_OK(rt_spawn(rt_loop_self(), check_brought, brought)); /* waits beyond this call */
    rt_yield_co();
}

static void end_brought(void *arg)
{
    struct brought *brought = arg;
    while (brought->seen < 3)
        rt_yield_co();
    rt_fd_remove(rt_loop_self(), &brought->fd);
}

/* The coarse clock is not older than what woke a task: what it finds done was done before. */
static void test_coarse_clock(void)
{
    struct brought brought = {.poller.poll = bring_polled,
                              .fd = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                     .events = RT_READABLE,
                                     .ready = bring_read},
                              .loop = rt_loop_create()};
    CHECK(brought.loop != NULL);
    CHECK_OK(rt_loop_call(brought.loop, wait_for_both, &brought));
    make_readable(&brought); /* found when the loop is entered after it stood still */
    usleep(5000);
    CHECK_OK(rt_loop_call(brought.loop, end_brought, &brought));
    rt_loop_destroy(brought.loop);
    close(brought.fd.fd);
}

/* ---- what a thread keeps --------------------------------------------------------------------- */

static atomic_int destroyed;

static void count_destroyed(void *value)
{
    CHECK(*(int *)value == 7);
    free(value);
    atomic_fetch_add(&destroyed, 1);
}

static int *seven(void)
{
    int *value = malloc(sizeof(*value));
    CHECK(value != NULL);
    *value = 7;
    return value;
}

static struct rt_local *locals[2];
static atomic_int keepers, keepers_may_end;

static void *keep(void *arg)
{
    bool stay = arg != NULL;
    for (int i = 0; i < 2; i++) {
        CHECK(rt_local_get(locals[i]) == NULL);
        int *value = seven();
        CHECK_OK(rt_local_set(locals[i], value));
        CHECK(rt_local_get(locals[i]) == value);
    }
    atomic_fetch_add(&keepers, 1);
    while (stay && !atomic_load(&keepers_may_end))
        sched_yield();
    return NULL;
}

static void test_locals(void)
{
    pthread_t ends, stays;
    for (int i = 0; i < 2; i++)
        CHECK((locals[i] = rt_local_create(count_destroyed)) != NULL);
    CHECK(pthread_create(&ends, NULL, keep, NULL) == 0);
    CHECK(pthread_join(ends, NULL) == 0);
    CHECK(atomic_load(&destroyed) == 2);
    CHECK(pthread_create(&stays, NULL, keep, locals) == 0);
    CHECK_OK(rt_local_set(locals[0], seven()));
    while (atomic_load(&keepers) < 2)
        sched_yield();
    rt_local_destroy(locals[0]);
    CHECK(atomic_load(&destroyed) == 4); /* this thread's and the other's */
    atomic_store(&keepers_may_end, 1);
    CHECK(pthread_join(stays, NULL) == 0);
    CHECK(atomic_load(&destroyed) == 5);
    rt_local_destroy(locals[1]);
    CHECK(atomic_load(&destroyed) == 5);
}

int main(void)
{
    rt_waitq_init(&pong);
    test_tasks_run_in_order();
    test_park();
    test_permit_is_kept_once();
    test_many_tasks();
    test_latch();
    test_waitq_between_threads();
    test_waitq_while();
    test_waitq_clear();
    test_messages_in_order();
    test_blocking();
    test_idle_sleeps();
    test_calls();
    test_coarse_clock();
    test_locals();
    return 0;
}
