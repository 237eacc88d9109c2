/*
 * fabric.c - one measurement: threads, each with `depth` lanes that submit one list at a time.
 *
 * It is cut into rounds; with something to compare with, each round measures the pool and then
 * that, so that a disturbance hits both. All lanes end with their round.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "bench/fabric.h"

enum {
    SAMPLE_EVERY = 64, /* operations of a lane: reading the clock costs as much as an operation */
    PAGE_BYTES = 4096,
};

static const uint64_t BARRIER_POLL_NS = 20 * RT_NS_PER_US;

struct thread;

struct lane {
    struct thread *thread;
    unsigned number;
    struct bench_addresses addresses;
    struct fabric_op *ops;     /* its list */
    uint32_t count;            /* of them */
    struct fabric_list posted; /* with one task for all lanes */
    uint64_t posted_ns;
};

struct thread {
    struct run *run;
    struct fabric *fabric;
    struct fabric_endpoint **endpoints; /* one per memory node */
    unsigned connected;
    struct lane *lanes;
    struct fabric_op *ops;
    uint8_t *buffers;
    struct rt_timer timer; /* ends intervals and rounds */
    uint64_t round_end_ns;
    struct rt_countdown lanes_left;
    bool stop;
    enum pando_status status;
    uint64_t operations; /* of this round */
    uint64_t total, total_ns;
    struct bench_intervals intervals, raw_intervals;
    struct histogram latency_ns, raw_latency_ns;
};

struct run {
    struct env *env;
    const struct bench_spec *spec;
    struct bench_region region; /* set by the first thread */
    unsigned thread_count;      /* over all compute nodes */
    atomic_uint arrived;        /* at barriers */
    atomic_bool failed;
    atomic_flag error_taken;
    char *error;
    struct thread *threads;
};

void bench_addresses_init(struct bench_addresses *addresses, const struct bench_region *region,
                          unsigned thread, unsigned lane)
{
    addresses->region = region;
    addresses->state = hash_u64(((uint64_t)thread << 32 | lane) + 1);
}

static void fail(struct run *run, const char *what)
{
    if (!atomic_flag_test_and_set(&run->error_taken))
        snprintf(run->error, BENCH_ERROR_BYTES, "%s", what);
    atomic_store(&run->failed, true);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/* An operation without a place. */
static struct fabric_op make_op(const struct bench_spec *spec, void *buffer)
{
    switch (spec->kind) {
    case FABRIC_READ:
        return fabric_read(0, buffer, spec->size);
    case FABRIC_WRITE:
        return fabric_write(0, buffer, spec->size);
    case FABRIC_CAS:
        return fabric_cas(0, 0, 0);
    default:
        return fabric_faa(0, 0);
    }
}

/* Sends the lane's list, made once, to its next places; the node they are on. */
static unsigned move_list(struct lane *lane)
{
    uint32_t count = lane->count;
    struct fabric_op *ops = lane->ops;
    unsigned node, ignored;

    ops[0].offset = bench_addresses_next(&lane->addresses, &node);
    for (unsigned i = 1; i < count; i++)
        ops[i].offset = bench_addresses_next(&lane->addresses, &ignored);
    return node;
}

static bool list_over(struct lane *lane, enum pando_status status)
{
    struct thread *thread = lane->thread;
    if (status != PANDO_OK) {
        thread->status = status;
        thread->stop = true;
        return false;
    }
    thread->operations += lane->count;
    return true;
}

static bool submit_next_co(struct lane *lane)
{
    unsigned node = move_list(lane);
    return list_over(lane, fabric_submit_co(lane->thread->endpoints[node], lane->ops, lane->count));
}

static void post_next(struct lane *lane)
{
    unsigned node = move_list(lane);
    lane->posted = (struct fabric_list){.ops = lane->ops, .count = lane->count};
    fabric_post(lane->thread->endpoints[node], &lane->posted);
}

/* All lanes in turn: waits for the oldest list, and posts the next in its place. */
static void one_task_main_co(void *arg)
{
    struct thread *thread = arg;
    unsigned depth = thread->run->spec->depth;
    uint64_t count = 0;

    for (unsigned i = 0; i < depth; i++) {
        thread->lanes[i].posted_ns = rt_now_ns();
        post_next(&thread->lanes[i]);
    }
    for (unsigned i = 0; !thread->stop; i = i + 1 == depth ? 0 : i + 1) {
        struct lane *lane = &thread->lanes[i];
        enum pando_status status = fabric_wait_co(&lane->posted);
        if (lane->posted_ns != 0)
            histogram_add(&thread->latency_ns, rt_now_ns() - lane->posted_ns);
        if (!list_over(lane, status))
            break;
        lane->posted_ns = ++count % SAMPLE_EVERY == 0 ? rt_now_ns() : 0;
        post_next(lane);
    }
    for (unsigned i = 0; i < depth; i++) {
        enum pando_status status = fabric_wait_co(&thread->lanes[i].posted);
        (void)status;
    }
    rt_countdown_done(&thread->lanes_left);
}

static void lane_main_co(void *arg)
{
    struct lane *lane = arg;
    struct thread *thread = lane->thread;

    /* Lanes take turns in sampling; none begins with it, when nothing is warm. */
    for (unsigned i = lane->number + 1; !thread->stop; i++) {
        bool sampled = i % SAMPLE_EVERY == 0;
        uint64_t begin_ns = sampled ? rt_now_ns() : 0;
        if (!submit_next_co(lane))
            break;
        if (sampled)
            histogram_add(&thread->latency_ns, rt_now_ns() - begin_ns);
    }
    rt_countdown_done(&thread->lanes_left);
}

static void interval_over(struct rt_timer *timer)
{
    struct thread *thread = container_of(timer, struct thread, timer);
    uint64_t now_ns = rt_now_ns();
    bench_intervals_add(&thread->intervals, now_ns, thread->operations);
    thread->stop |= now_ns >= thread->round_end_ns;
    if (!thread->stop)
        rt_timer_arm(timer, now_ns + BENCH_INTERVAL_NS);
}

static void fabric_round_co(struct thread *thread, uint64_t duration_ns)
{
    const struct bench_spec *spec = thread->run->spec;
    unsigned spawned = 0, tasks = spec->one_task ? 1 : spec->depth;

    thread->stop = false;
    thread->operations = 0;
    rt_countdown_init(&thread->lanes_left, tasks);
    uint64_t begin_ns = rt_now_ns();
    thread->round_end_ns = begin_ns + duration_ns;
    bench_intervals_start(&thread->intervals, begin_ns);
    rt_timer_arm(&thread->timer, begin_ns + BENCH_INTERVAL_NS);
    while (spawned < tasks && (spec->one_task ? rt_spawn(rt_loop_self(), one_task_main_co, thread)
                                              : rt_spawn(rt_loop_self(), lane_main_co,
                                                         &thread->lanes[spawned])) == PANDO_OK)
        spawned++;
    if (spawned < tasks) {
        thread->status = PANDO_NO_MEMORY;
        thread->stop = true;
        for (unsigned i = spawned; i < tasks; i++)
            rt_countdown_done(&thread->lanes_left);
    }
    rt_countdown_wait_co(&thread->lanes_left);
    rt_timer_cancel(&thread->timer);
    thread->total_ns += rt_now_ns() - begin_ns;
    thread->total += thread->operations;
    if (thread->status != PANDO_OK)
        fail(thread->run, pando_status_text(thread->status));
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Waits until every thread of every compute node has come here for the n-th time. */
static void barrier_co(struct run *run, unsigned n)
{
    atomic_fetch_add(&run->arrived, 1);
    while (atomic_load(&run->arrived) < n * run->thread_count)
        rt_sleep_co(BARRIER_POLL_NS);
}

static void connect_co(struct thread *thread)
{
    struct run *run = thread->run;
    unsigned nodes = env_memory_nodes(run->env);
    char why[BENCH_ERROR_BYTES];

    while (thread->connected < nodes) {
        enum pando_status status = fabric_connect_co(thread->fabric, (uint16_t)thread->connected,
                                                     &thread->endpoints[thread->connected]);
        if (status != PANDO_OK) {
            env_explain_connect(run->env, thread->connected, status, why, sizeof(why));
            fail(run, why);
            return;
        }
        thread->connected++;
    }
}

/* The end of every node's window, as much of it as was asked for and at most half. */
static void choose_region_co(struct thread *thread)
{
    struct run *run = thread->run;
    uint64_t slot_bytes = ((uint64_t)run->spec->size + 7) & ~(uint64_t)7;
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < thread->connected; i++) {
        struct env_window window;
        enum pando_status status = env_window_co(thread->endpoints[i], &window);
        if (status != PANDO_OK) {
            fail(run, pando_status_text(status));
            return;
        }
        least = window.host_bytes < least ? window.host_bytes : least;
    }
    uint64_t span = run->spec->span_bytes < least / 2 ? run->spec->span_bytes : least / 2;
    uint64_t base = (least - span) & ~(uint64_t)(PAGE_BYTES - 1);
    if (slot_bytes > span) {
        fail(run, "--span is smaller than --size; use a larger span or a smaller size");
        return;
    }
    run->region = (struct bench_region){.nodes = env_memory_nodes(run->env),
                                        .base = base,
                                        .slots = span / slot_bytes,
                                        .slot_bytes = slot_bytes};
}

/* Touches every page, so that no round pays for the first time. Adding nothing leaves the contents and
 * makes a page that was never written one of its own, instead of a view of the one page of zeroes. */
static void warm_co(struct thread *thread)
{
    struct run *run = thread->run;
    uint64_t end = run->region.base + run->region.slots * run->region.slot_bytes;
    struct fabric_op ops[FABRIC_LIST_OPS_MAX];

    for (unsigned node = 0; node < thread->connected; node++) {
        for (uint64_t offset = run->region.base; offset < end;) {
            uint32_t count = 0;
            for (; count < FABRIC_LIST_OPS_MAX && offset < end; offset += PAGE_BYTES, count++)
                ops[count] = fabric_faa(offset, 0);
            enum pando_status status = fabric_submit_co(thread->endpoints[node], ops, count);
            if (status != PANDO_OK) {
                fail(run, pando_status_text(status));
                return;
            }
        }
    }
    if (run->spec->raw != NULL)
        bench_raw_warm(run->spec->raw, &run->region);
}

static bool allocate(struct thread *thread, unsigned index)
{
    const struct bench_spec *spec = thread->run->spec;

    thread->lanes = calloc(spec->depth, sizeof(*thread->lanes));
    thread->buffers = aligned_alloc(64, bench_buffers_bytes(spec));
    thread->ops = calloc((size_t)spec->depth * spec->list, sizeof(*thread->ops));
    if (thread->lanes == NULL || thread->buffers == NULL || thread->ops == NULL)
        return false;
    memset(thread->buffers, 0, bench_buffers_bytes(spec));
    for (unsigned i = 0; i < spec->depth * spec->list; i++)
        thread->ops[i] = make_op(spec, thread->buffers + bench_buffer_stride(spec) * i);
    for (unsigned i = 0; i < spec->depth; i++) {
        thread->lanes[i].thread = thread;
        thread->lanes[i].number = i;
        thread->lanes[i].count = spec->list;
        thread->lanes[i].ops = thread->ops + (size_t)i * spec->list;
        bench_addresses_init(&thread->lanes[i].addresses, &thread->run->region, index, i);
    }
    return true;
}

static void rounds_co(struct thread *thread, unsigned index)
{
    struct run *run = thread->run;
    const struct bench_spec *spec = run->spec;
    uint64_t slice_ns = spec->duration_ns / spec->rounds / (spec->raw != NULL ? 2 : 1);

    for (unsigned i = 0; i < spec->rounds; i++) {
        if (index == 0 && spec->progress != NULL)
            spec->progress(i, spec->rounds);
        if (!atomic_load(&run->failed))
            fabric_round_co(thread, slice_ns);
        barrier_co(run, 3 + 2 * i);
        if (spec->raw != NULL && !atomic_load(&run->failed))
            bench_raw_slice(spec->raw, index, &run->region, slice_ns, &thread->raw_intervals,
                            &thread->raw_latency_ns);
        barrier_co(run, 4 + 2 * i);
    }
}

static void thread_main_co(void *context, const struct env_place *place)
{
    struct run *run = context;
    unsigned index = place->compute_node * run->spec->threads + place->thread;
    struct thread *thread = &run->threads[index];

    thread->fabric = place->fabric;
    rt_timer_init(&thread->timer, interval_over);
    histogram_init(&thread->latency_ns);
    histogram_init(&thread->raw_latency_ns);
    connect_co(thread);
    if (index == 0 && !atomic_load(&run->failed)) {
        choose_region_co(thread);
        if (!env_simulated(run->env) && !atomic_load(&run->failed))
            warm_co(thread);
    }
    barrier_co(run, 1);
    if (!atomic_load(&run->failed) && !allocate(thread, index))
        fail(run, "out of memory for the buffers; use a smaller --depth or --size");
    barrier_co(run, 2);
    rounds_co(thread, index);
    for (unsigned i = 0; i < thread->connected; i++)
        fabric_disconnect_co(thread->endpoints[i]);
}

static void summarise(struct run *run, struct bench_result *result)
{
    for (unsigned i = 0; i < run->thread_count; i++) {
        struct thread *thread = &run->threads[i];
        result->operations += thread->total;
        result->mean_rate += (double)thread->total * 1e9 / (double)thread->total_ns;
        result->rate += bench_intervals_rate(&thread->intervals);
        result->raw_rate += bench_intervals_rate(&thread->raw_intervals);
        histogram_merge(&result->latency_ns, &thread->latency_ns);
        histogram_merge(&result->raw_latency_ns, &thread->raw_latency_ns);
    }
    if (env_simulated(run->env)) /* nothing disturbs it */
        result->rate = result->mean_rate;
    result->span_bytes = run->region.slots * run->region.slot_bytes;
}

static void threads_free(struct run *run)
{
    if (run->threads == NULL)
        return;
    for (unsigned i = 0; i < run->thread_count; i++) {
        free(run->threads[i].endpoints);
        free(run->threads[i].lanes);
        free(run->threads[i].buffers);
    }
    free(run->threads);
}

static bool threads_create(struct run *run)
{
    run->thread_count = env_compute_nodes(run->env) * run->spec->threads;
    run->threads = calloc(run->thread_count, sizeof(*run->threads));
    if (run->threads == NULL)
        return false;
    for (unsigned i = 0; i < run->thread_count; i++) {
        run->threads[i].run = run;
        run->threads[i].endpoints =
            calloc(env_memory_nodes(run->env), sizeof(struct fabric_endpoint *));
        if (run->threads[i].endpoints == NULL)
            return false;
    }
    return true;
}

bool bench_measure(struct env *env, const struct bench_spec *spec, struct bench_result *result)
{
    struct run run = {
        .env = env, .spec = spec, .error_taken = ATOMIC_FLAG_INIT, .error = result->error};

    memset(result, 0, sizeof(*result));
    histogram_init(&result->latency_ns);
    histogram_init(&result->raw_latency_ns);
    if (!threads_create(&run)) {
        fail(&run, "out of memory");
    } else {
        uint64_t begin_ns = rt_machine_ns();
        enum pando_status status = env_run(env, spec->threads, thread_main_co, &run);
        result->real_seconds = (double)(rt_machine_ns() - begin_ns) / 1e9;
        if (status != PANDO_OK)
            fail(&run, pando_status_text(status));
    }
    if (!atomic_load(&run.failed))
        summarise(&run, result);
    threads_free(&run);
    return !atomic_load(&run.failed);
}
