#include "rt/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "rt/rt_int.h"

enum { SHUFFLE_DELAY_NS = 200 }; /* the most a runnable loop waits for its turn when shuffling */

struct sim {
    struct sim_options options;
    struct heap events; /* timers of all loops, loops' turns, and sim_events */
    uint64_t order;
    uint64_t now_ns;
    struct prng prng;
    struct list nodes;
    struct sim_loop *running; /* the loop whose task runs now */
    struct sim_loop *at_once; /* loops to run right after the current event */
    struct sim_loop **at_once_tail;
    bool stopped;
    uint64_t event_count;
    uint64_t trace_hash;
    sim_trace_fn trace_fn;
    void *trace_context;
};

struct sim_node {
    struct sim *sim;
    struct list link;
    struct list loops;
    uint64_t resume_ns; /* paused until then */
    int64_t drift_ppm;
    uint64_t drift_since_ns; /* the world's time when the drift was set */
    uint64_t clock_base_ns;  /* the node's clock at that time */
};

struct sim_loop {
    struct rt_loop base;
    struct sim_node *node;
    struct list link;
    struct rt_timer turn; /* the event that runs it; in the heap while scheduled */
    bool queued_at_once;
    struct sim_loop *next_at_once;
    uint64_t local_ns;       /* its own time: busy until then */
    struct rt_task *stalled; /* left the CPU at a race point; resumed before any other */
};

static struct sim_loop *sim_loop(struct rt_loop *loop)
{
    return container_of(loop, struct sim_loop, base);
}

uint64_t sim_now_ns(const struct sim *sim)
{
    return sim->running != NULL ? sim->running->local_ns : sim->now_ns;
}

static void event_insert(struct sim *sim, struct rt_timer *timer, uint64_t time_ns)
{
    timer->node.key = time_ns < sim->now_ns ? sim->now_ns : time_ns;
    timer->node.order = sim->order++;
    heap_insert(&sim->events, &timer->node);
}

/* When virtual time begins: 2026-01-01. */
static const uint64_t SIM_EPOCH_US = UINT64_C(1767225600000000);

/* ---- the driver of a simulated loop ---------------------------------------------------------- */

static uint64_t node_clock(const struct sim_node *node, uint64_t world_ns)
{
    int64_t passed = (int64_t)(world_ns - node->drift_since_ns);
    int64_t gained = (int64_t)((__int128)passed * node->drift_ppm / 1000000);
    return node->clock_base_ns + (uint64_t)(passed + gained);
}

static uint64_t driver_now_ns(struct rt_loop *base)
{
    struct sim_loop *loop = sim_loop(base);
    return node_clock(loop->node, sim_now_ns(loop->node->sim));
}

static uint64_t driver_wall_us(struct rt_loop *base)
{
    return SIM_EPOCH_US + driver_now_ns(base) / RT_NS_PER_US;
}

static uint64_t driver_random(struct rt_loop *base)
{
    return prng_next(&sim_loop(base)->node->sim->prng);
}

/* The first time of the world at which the node's clock shows the deadline. */
static uint64_t driver_timer_key(struct rt_loop *base, uint64_t deadline_ns)
{
    struct sim_node *node = sim_loop(base)->node;
    struct sim *sim = node->sim;
    uint64_t now = sim_now_ns(sim);
    uint64_t clock = node_clock(node, now);
    uint64_t key = now;

    if (deadline_ns > clock) {
        uint64_t wait = deadline_ns - clock;
        key += (uint64_t)((__int128)wait * 1000000 / (1000000 + node->drift_ppm));
        while (node_clock(node, key) < deadline_ns)
            key++;
    }
    base->timer_order = sim->order++;
    return key;
}

static void schedule_turn(struct sim_loop *loop)
{
    struct sim *sim = loop->node->sim;
    uint64_t at = sim_now_ns(sim);

    if (heap_contains(&loop->turn.node) || loop->queued_at_once || sim->running == loop)
        return;
    if (at < loop->local_ns)
        at = loop->local_ns;
    if (sim->options.shuffle)
        at += prng_below(&sim->prng, SHUFFLE_DELAY_NS);
    if (at <= sim->now_ns && sim->running == NULL) {
        loop->queued_at_once = true;
        loop->next_at_once = NULL;
        *sim->at_once_tail = loop;
        sim->at_once_tail = &loop->next_at_once;
        return;
    }
    event_insert(sim, &loop->turn, at);
}

static void driver_ready(struct rt_loop *base)
{
    schedule_turn(sim_loop(base));
}

static void driver_post(struct rt_loop *base, struct rt_message *message)
{
    struct rt_loop *sender = rt_current_loop;
    rt_current_loop = base;
    message->deliver(message);
    rt_current_loop = sender;
}

static enum pando_status driver_blocking_co(struct rt_loop *base, rt_fn fn, void *arg)
{
    (void)base;
    fn(arg);
    return PANDO_OK;
}

static void driver_charge(struct rt_loop *base, enum rt_cost cost)
{
    struct sim_loop *loop = sim_loop(base);
    struct sim *sim = loop->node->sim;
    if (loop->local_ns < sim->now_ns)
        loop->local_ns = sim->now_ns;
    loop->local_ns += sim->options.costs[cost];
}

static void stand_still(struct rt_loop *base, double probability, uint64_t most_ns)
{
    struct sim_loop *loop = sim_loop(base);
    struct sim *sim = loop->node->sim;
    if (probability == 0 || !prng_chance(&sim->prng, probability))
        return;
    loop->stalled = base->current;
    loop->local_ns += prng_below(&sim->prng, most_ns + 1);
    rt_suspend(base);
}

static void driver_race_point(struct rt_loop *base)
{
    const struct sim_options *options = &sim_loop(base)->node->sim->options;
    stand_still(base, options->race_probability, options->race_delay_ns);
}

static void driver_stall_point(struct rt_loop *base)
{
    const struct sim_options *options = &sim_loop(base)->node->sim->options;
    stand_still(base, options->stall_probability, options->stall_ns);
}

static const struct rt_driver sim_driver = {
    .now_ns = driver_now_ns,
    .coarse_ns = driver_now_ns,
    .tick_ns = driver_now_ns,
    .wall_us = driver_wall_us,
    .random = driver_random,
    .ready = driver_ready,
    .post = driver_post,
    .timer_key = driver_timer_key,
    .blocking_co = driver_blocking_co,
    .charge = driver_charge,
    .race_point = driver_race_point,
    .stall_point = driver_stall_point,
};

/* ---- building a world -------------------------------------------------------------------------
 */

struct sim *sim_create(const struct sim_options *options)
{
    struct sim *sim = calloc(1, sizeof(*sim));
    if (sim == NULL)
        return NULL;
    sim->options = *options;
    sim->trace_hash = options->seed;
    heap_init(&sim->events);
    prng_seed(&sim->prng, options->seed);
    list_init(&sim->nodes);
    sim->at_once_tail = &sim->at_once;
    return sim;
}

static void node_destroy(struct sim_node *node)
{
    struct list *link;
    while ((link = list_pop_front(&node->loops)) != NULL) {
        struct sim_loop *loop = container_of(link, struct sim_loop, link);
        rt_loop_fini(&loop->base);
        free(loop);
    }
    free(node);
}

void sim_destroy(struct sim *sim)
{
    struct list *link;
    heap_fini(&sim->events);
    while ((link = list_pop_front(&sim->nodes)) != NULL)
        node_destroy(container_of(link, struct sim_node, link));
    free(sim);
}

struct sim_node *sim_node_create(struct sim *sim)
{
    struct sim_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return NULL;
    node->sim = sim;
    list_init(&node->loops);
    list_push_back(&sim->nodes, &node->link);
    return node;
}

static void loop_turn(struct rt_timer *timer);

struct rt_loop *sim_loop_create(struct sim_node *node)
{
    struct sim_loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL)
        return NULL;
    rt_loop_init(&loop->base, &sim_driver, &node->sim->events);
    loop->base.simulated = true;
    loop->node = node;
    rt_timer_init(&loop->turn, loop_turn);
    list_push_back(&node->loops, &loop->link);
    return &loop->base;
}

struct sim *sim_of_loop(struct rt_loop *base)
{
    return base->simulated ? sim_loop(base)->node->sim : NULL;
}

/* ---- running ----------------------------------------------------------------------------------
 */

static void resume_stalled(struct sim_loop *loop)
{
    struct rt_task *task = loop->stalled;
    loop->stalled = NULL;
    loop->base.current = task;
    rt_context_switch(&loop->base.scheduler, &task->context, false);
    loop->base.current = NULL;
}

static void loop_run(struct sim_loop *loop)
{
    struct sim *sim = loop->node->sim;
    struct rt_loop *base = &loop->base;

    if (loop->node->resume_ns > sim->now_ns) {
        event_insert(sim, &loop->turn, loop->node->resume_ns);
        return;
    }
    if (loop->local_ns < sim->now_ns)
        loop->local_ns = sim->now_ns;
    sim->running = loop;
    rt_current_loop = base;
    while (loop->stalled != NULL || base->runnable > 0) {
        if (loop->stalled != NULL) {
            resume_stalled(loop);
        } else {
            if (sim->options.shuffle && base->runnable > 1)
                rt_run_choose(base, prng_below(&sim->prng, base->runnable));
            rt_run_next(base);
        }
        /* What comes next on this CPU comes later than now, or another thread has its turn. */
        if (loop->local_ns > sim->now_ns || loop->stalled != NULL)
            break;
    }
    sim->running = NULL;
    rt_current_loop = NULL;
    if (loop->stalled != NULL || base->runnable > 0)
        event_insert(sim, &loop->turn, loop->local_ns);
}

static void loop_turn(struct rt_timer *timer)
{
    loop_run(container_of(timer, struct sim_loop, turn));
}

static void run_at_once(struct sim *sim)
{
    while (sim->at_once != NULL) {
        struct sim_loop *loop = sim->at_once;
        sim->at_once = loop->next_at_once;
        if (sim->at_once == NULL)
            sim->at_once_tail = &sim->at_once;
        loop->queued_at_once = false;
        loop_run(loop);
    }
}

/* A timer of a loop fires on that loop; on a paused node, when it wakes. */
static void fire(struct sim *sim, struct rt_timer *timer)
{
    if (timer->loop != NULL) {
        struct sim_loop *loop = sim_loop(timer->loop);
        if (loop->node->resume_ns > sim->now_ns) {
            event_insert(sim, timer, loop->node->resume_ns);
            return;
        }
        rt_current_loop = timer->loop;
    }
    timer->fire(timer);
    rt_current_loop = NULL;
}

enum sim_end sim_run(struct sim *sim, uint64_t deadline_ns)
{
    struct rt_loop *outer = rt_current_loop;
    enum sim_end end = SIM_STOPPED;

    pando_assert(outer == NULL || !outer->simulated);
    rt_current_loop = NULL;
    sim->stopped = false;
    run_at_once(sim);
    while (!sim->stopped) {
        struct heap_node *node = heap_peek(&sim->events);
        if (node == NULL) {
            end = SIM_QUIET;
            break;
        }
        if (node->key > deadline_ns) {
            sim->now_ns = deadline_ns;
            end = SIM_TIME;
            break;
        }
        sim->now_ns = node->key;
        heap_remove(&sim->events, node);
        sim->event_count++;
        fire(sim, container_of(node, struct rt_timer, node));
        run_at_once(sim);
    }
    rt_current_loop = outer;
    return end;
}

void sim_stop(struct sim *sim)
{
    sim->stopped = true;
}

size_t sim_live_tasks(const struct sim *sim)
{
    size_t live = 0;
    list_for_each (node_link, &sim->nodes) {
        struct sim_node *node = container_of(node_link, struct sim_node, link);
        list_for_each (loop_link, &node->loops)
            live += container_of(loop_link, struct sim_loop, link)->base.live;
    }
    return live;
}

uint64_t sim_event_count(const struct sim *sim)
{
    return sim->event_count;
}

void sim_event_init(struct sim_event *event, struct sim *sim,
                    void (*on_fire)(struct rt_timer *timer))
{
    rt_timer_init(&event->timer, on_fire);
    event->sim = sim;
}

void sim_event_at(struct sim_event *event, uint64_t time_ns)
{
    event_insert(event->sim, &event->timer, time_ns);
}

void sim_event_cancel(struct sim_event *event)
{
    if (heap_contains(&event->timer.node))
        heap_remove(&event->sim->events, &event->timer.node);
}

void sim_unpark(struct rt_task *task)
{
    struct rt_loop *outer = rt_current_loop;
    rt_current_loop = task->loop;
    rt_unpark(task);
    rt_current_loop = outer;
}

/* ---- faults and traces -------------------------------------------------------------------------
 */

void sim_node_set_drift(struct sim_node *node, int ppm)
{
    uint64_t now = node->sim->now_ns;
    node->clock_base_ns = node_clock(node, now);
    node->drift_since_ns = now;
    node->drift_ppm = ppm;
}

void sim_node_pause(struct sim_node *node, uint64_t until_ns)
{
    node->resume_ns = until_ns;
}

bool sim_node_paused(const struct sim_node *node)
{
    return node->resume_ns > node->sim->now_ns;
}

struct prng *sim_prng(struct sim *sim)
{
    return &sim->prng;
}

void sim_trace(struct sim *sim, const char *what, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t hash = sim->trace_hash;
    hash = hash_u64(hash ^ sim->now_ns);
    hash = hash_u64(hash ^ a);
    hash = hash_u64(hash ^ b ^ prng_rotate(c, 32));
    sim->trace_hash = hash;
    if (sim->trace_fn != NULL)
        sim->trace_fn(sim->trace_context, sim_now_ns(sim), what, a, b, c);
}

uint64_t sim_trace_hash(const struct sim *sim)
{
    return sim->trace_hash;
}

void sim_set_trace(struct sim *sim, sim_trace_fn fn, void *context)
{
    sim->trace_fn = fn;
    sim->trace_context = context;
}
