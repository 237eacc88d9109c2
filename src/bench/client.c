/*
 * client.c - one client: the next operation, done and counted.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_int.h"

enum {
    SAMPLE_EVERY = 32, /* on real pools: the clock costs as much as a part of an operation */
    YIELD_EVERY = 16,  /* likewise */
    TOUCH_LEAVES = 16  /* one key in so many leaves brings every inner node into the cache */
};

void bench_client_draw_anew(struct bench_client *client)
{
    const struct bench_run *run = client->thread->run;
    const struct bench_plan *plan = run->plan;
    workload_client_init(
        &client->limit_work, plan->workload, &plan->space, plan->dist, client->number,
        (uint64_t)run->thread_count * plan->coroutines * plan->processes, ~plan->seed);
    client->limit_work.wants = client->work.wants;
    client->limit_work.wants_context = client;
}

bool bench_client_init(struct bench_client *client, struct bench_thread *thread, unsigned index)
{
    const struct bench_plan *plan = thread->run->plan;
    uint64_t per_process = (uint64_t)thread->run->thread_count * plan->coroutines;
    uint64_t number =
        thread->run->process * per_process + (uint64_t)thread->index * plan->coroutines + index;
    size_t value_bytes = plan->value_size < 8 ? 8 : plan->value_size;

    *client = (struct bench_client){.thread = thread, .index = index, .quota = UINT64_MAX};
    workload_client_init(&client->work, plan->workload, &plan->space, plan->dist, number,
                         per_process * plan->processes, plan->seed);
    client->number = number;
    client->work.wants = plan->routed ? bench_wants : NULL;
    client->work.wants_context = client;
    bench_client_draw_anew(client);
    prng_seed(&client->prng, plan->seed ^ hash_u64(~number));
    client->value = malloc(value_bytes);
    client->read_to = malloc(value_bytes);
    if (client->value == NULL || client->read_to == NULL)
        return false;
    memset(client->value, 'v', value_bytes);
    return true;
}

void bench_client_fini(struct bench_client *client)
{
    free(client->value);
    free(client->read_to);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct engine_change count_up(void *context, const struct slice *old)
{
    struct bench_client *client = context;
    uint64_t word = 0;
    if (old == NULL)
        return (struct engine_change){.what = ENGINE_KEEP};
    memcpy(&word, old->data, old->size < 8 ? old->size : 8);
    word++;
    memcpy(client->value, &word, 8);
    return (struct engine_change){
        .what = ENGINE_STORE,
        .value = slice_of(client->value, client->thread->run->plan->value_size)};
}

static bool scanned(void *context, struct slice key, struct slice value)
{
    uint64_t *pairs = context;
    (void)key;
    (void)value;
    ++*pairs;
    return true;
}

static enum pando_status scan_co(struct bench_client *client, struct slice key)
{
    uint64_t pairs = 0;
    struct engine_range range = {
        .low = key, .no_high = true, .limit = client->thread->run->plan->scan_length};
    return engine_scan_co(client->thread->engine, &range, scanned, &pairs);
}

static enum pando_status do_op_co(struct bench_client *client, const struct workload_op *op)
{
    const struct bench_plan *plan = client->thread->run->plan;
    struct engine *engine = client->thread->engine;
    struct slice key = slice_of(client->key_word, plan->shape.key_size);
    struct slice value = slice_of(client->value, plan->value_size);
    size_t size;

    if (op->kind == WORKLOAD_LOCK)
        return bench_lock_co(client, op->position);
    workload_key(op->position, op->serial, client->key_word, plan->shape.key_size);
    uint64_t word = prng_next(&client->prng);
    memcpy(client->value, &word, 8);
    switch (op->kind) {
    case WORKLOAD_READ:
        return engine_get_co(engine, key, client->read_to, plan->value_size, &size);
    case WORKLOAD_UPDATE:
        return engine_put_co(engine, key, value, ENGINE_UPDATE);
    case WORKLOAD_INSERT:
        return engine_put_co(engine, key, value, ENGINE_INSERT);
    case WORKLOAD_UPSERT:
        return engine_put_co(engine, key, value, ENGINE_UPSERT);
    case WORKLOAD_MODIFY:
        return engine_modify_co(engine, key, false, count_up, client);
    case WORKLOAD_DELETE:
        return engine_delete_co(engine, key);
    default:
        return scan_co(client, key);
    }
}

/* ---- counting -------------------------------------------------------------------------------- */

struct cost {
    uint64_t round_trips, bytes_written;
};

static struct cost cost_now(const struct bench_client *client)
{
    struct fabric_counters counters[FABRIC_TARGETS];
    struct cost cost = {0};
    pool_session_counters(client->thread->session, counters);
    for (int i = 0; i < FABRIC_TARGETS; i++) {
        cost.round_trips += counters[i].lists + counters[i].calls;
        /* Without the operands of the CASes. */
        cost.bytes_written += counters[i].bytes_out - 16 * counters[i].atomics;
    }
    return cost;
}

static void count_cost(struct bench_tally *tally, enum workload_kind kind, struct cost before,
                       struct cost after)
{
    uint64_t round_trips = after.round_trips - before.round_trips;
    if (kind == WORKLOAD_READ) {
        histogram_add(&tally->read_round_trips, round_trips);
    } else if (workload_kind_writes(kind)) {
        histogram_add(&tally->write_round_trips, round_trips);
        histogram_add(&tally->write_bytes, after.bytes_written - before.bytes_written);
    }
}

/* False: it makes no sense to go on. */
static bool count_status(struct bench_client *client, const struct workload_op *op,
                         enum pando_status status)
{
    struct bench_thread *thread = client->thread;
    if (status == PANDO_OK)
        return true;
    if (status == PANDO_NOT_FOUND || status == PANDO_EXISTS) {
        thread->tally.not_found += thread->counting;
        return true;
    }
    thread->tally.errors++;
    if (status == PANDO_TIMEOUT || status == PANDO_BROKEN)
        return true;
    bench_fail(thread->run, "%s: %s", workload_kind_name(op->kind), pando_status_text(status));
    return false;
}

/* An operation that is served from this process's memory does not suspend: without a pause now and
 * then, a client would keep its thread from everything else, and run ahead of all others in simulated
 * time. After how many operations. */
static unsigned streak_of(const struct bench_run *run)
{
    if (!engine_has_owners(run->plan->engine))
        return UINT_MAX;
    return env_simulated(run->env) ? 1 : YIELD_EVERY;
}

static void measure_co(struct bench_client *client)
{
    struct bench_thread *thread = client->thread;
    const struct bench_plan *plan = thread->run->plan;
    bool costs = plan->coroutines == 1 || thread->phase == BENCH_SAMPLE;
    unsigned every = env_simulated(thread->run->env) ? 1 : SAMPLE_EVERY, skipped = every - 1;
    unsigned streak = 0, longest = streak_of(thread->run);
    struct cost before = {0}, after;
    struct workload_op op;

    if (costs)
        before = cost_now(client);
    while (!thread->stop && client->quota > 0 && workload_next(&client->work, &op)) {
        if (op.none) {
            rt_sleep_co(BENCH_IDLE_NS);
            continue;
        }
        bool timed = ++skipped >= every;
        uint64_t begin_ns = timed ? rt_now_ns() : 0;
        enum pando_status status = do_op_co(client, &op);
        if (!count_status(client, &op, status)) {
            thread->stop = true;
            break;
        }
        if (costs) {
            after = cost_now(client);
            if (thread->counting)
                count_cost(&thread->tally, op.kind, before, after);
            before = after;
        }
        if (timed) {
            skipped = 0;
            uint64_t latency_ns = rt_now_ns() - begin_ns;
            if (thread->counting && thread->phase == BENCH_MEASURE) {
                histogram_add(&thread->tally.latency_ns, latency_ns);
                histogram_add(&thread->tally.kind_latency_ns[op.kind], latency_ns);
            }
        }
        if (thread->counting && thread->phase == BENCH_MEASURE) {
            thread->tally.ops[op.kind]++;
            thread->done++;
        }
        client->quota -= client->quota != UINT64_MAX;
        if (++streak >= longest) {
            streak = 0;
            rt_yield_co();
        }
    }
}

/* The clients of one compute node read a key in every few leaves, so that its cache knows all inner
 * nodes that fit into it. */
static void touch_co(struct bench_client *client)
{
    struct bench_thread *thread = client->thread;
    const struct bench_plan *plan = thread->run->plan;
    uint64_t step = (uint64_t)plan->pairs_per_leaf * TOUCH_LEAVES;
    uint64_t clients = (uint64_t)plan->threads * plan->coroutines;
    uint64_t first = (uint64_t)thread->place->thread * plan->coroutines + client->index;

    for (uint64_t i = first * step; i < plan->space.records && !thread->stop; i += clients * step) {
        struct workload_op op = {.kind = WORKLOAD_READ,
                                 .position = workload_loaded_position(&plan->space, i)};
        if (!bench_wants(client, op.position, op.serial))
            continue;
        if (!count_status(client, &op, do_op_co(client, &op)))
            break;
    }
}

void bench_client_main(void *arg)
{
    struct bench_client *client = arg;
    struct bench_thread *thread = client->thread;
    if (thread->phase == BENCH_TOUCH)
        touch_co(client);
    else
        measure_co(client);
    rt_countdown_done(&thread->left);
}
