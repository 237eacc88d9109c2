/*
 * run.c - the run: joining, loading, warming up, measuring, leaving.
 *
 * All threads go from step to step together. On a simulated pool everything is measured in one
 * piece of virtual time; on a real one in rounds, in turns with the limit, so that what disturbs
 * the machine hits both.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_int.h"

enum { ROUNDS_MAX = 200 };

static const uint64_t ROUND_NS = 50 * RT_NS_PER_MS;
static const uint64_t SIM_LIMIT_NS = 2 * RT_NS_PER_MS;
static const uint64_t SIM_SETTLE_NS = 200 * RT_NS_PER_US;
static const uint64_t BARRIER_NS = 10 * RT_NS_PER_MS;

void bench_fail(struct bench_run *run, const char *format, ...)
{
    va_list arguments;
    if (!atomic_flag_test_and_set(&run->error_taken)) {
        va_start(arguments, format);
        vsnprintf(run->outcome->error, sizeof(run->outcome->error), format, arguments);
        va_end(arguments);
    }
    atomic_store(&run->failed, true);
}

bool bench_failed(const struct bench_run *run)
{
    return atomic_load(&run->failed);
}

void bench_progress(const struct bench_run *run, const char *what, double share)
{
    if (run->plan->progress != NULL)
        run->plan->progress(what, share < 0 ? 0 : share > 1 ? 1 : share);
}

/* Every thread of every compute node comes here, then all go on. */
static void barrier_co(struct bench_run *run)
{
    unsigned generation = atomic_load(&run->generation);
    if (atomic_fetch_add(&run->arrived, 1) + 1 == run->thread_count) {
        atomic_store(&run->arrived, 0);
        atomic_fetch_add(&run->generation, 1);
        rt_waitq_wake_all(&run->waiting);
        return;
    }
    /* A wake-up between the test and the wait is lost: look again after a while. */
    while (atomic_load(&run->generation) == generation)
        (void)rt_waitq_wait_co(&run->waiting, rt_now_ns() + BARRIER_NS);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void counters_start(struct bench_thread *thread)
{
    pool_session_counters(thread->session, thread->counters_before);
    if (thread->place->thread == 0 && thread->node->table != NULL)
        engine_stats(thread->node->table, &thread->node->before);
}

static void counters_stop(struct bench_thread *thread)
{
    struct fabric_counters now[FABRIC_TARGETS];
    pool_session_counters(thread->session, now);
    for (int i = 0; i < FABRIC_TARGETS; i++) {
        struct fabric_counters *sum = &thread->tally.counters[i];
        const struct fabric_counters *before = &thread->counters_before[i];
        sum->lists += now[i].lists - before->lists;
        sum->reads += now[i].reads - before->reads;
        sum->writes += now[i].writes - before->writes;
        sum->atomics += now[i].atomics - before->atomics;
        sum->calls += now[i].calls - before->calls;
        sum->bytes_out += now[i].bytes_out - before->bytes_out;
        sum->bytes_in += now[i].bytes_in - before->bytes_in;
        sum->retries += now[i].retries - before->retries;
    }
    if (thread->place->thread != 0 || thread->node->table == NULL)
        return;
    struct engine_stats *sum = &thread->node->after, *before = &thread->node->before, stats;
    engine_stats(thread->node->table, &stats);
    sum->cache_hits += stats.cache_hits - before->cache_hits;
    sum->cache_misses += stats.cache_misses - before->cache_misses;
    sum->rereads += stats.rereads - before->rereads;
    sum->splits += stats.splits - before->splits;
    sum->merges += stats.merges - before->merges;
    sum->repairs += stats.repairs - before->repairs;
    sum->lock_waits += stats.lock_waits - before->lock_waits;
    sum->handovers += stats.handovers - before->handovers;
    sum->forwarded += stats.forwarded - before->forwarded;
    sum->moves += stats.moves - before->moves;
    sum->offloaded += stats.offloaded - before->offloaded;
    sum->checkpoints += stats.checkpoints - before->checkpoints;
    sum->log_waits += stats.log_waits - before->log_waits;
    sum->cache_bytes = stats.cache_bytes;
    sum->cache_entries = stats.cache_entries;
}

static struct bench_intervals *intervals_of(struct bench_thread *thread)
{
    return thread->phase == BENCH_LIMIT ? thread->limit_intervals : thread->intervals;
}

static void count_begin(struct bench_thread *thread, uint64_t now_ns)
{
    thread->counting = true;
    thread->count_from_ns = now_ns;
    thread->done = thread->series_done = 0;
    if (thread->index == 0)
        thread->run->series_from_ns = now_ns;
    if (thread->phase == BENCH_MEASURE)
        counters_start(thread);
    bench_intervals_start(intervals_of(thread), now_ns);
}

static void count_end(struct bench_thread *thread, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - thread->count_from_ns;
    thread->counting = false;
    thread->stop = true;
    if (thread->phase == BENCH_MEASURE) {
        counters_stop(thread);
        thread->elapsed_ns += elapsed_ns;
    } else if (thread->phase == BENCH_LIMIT) {
        thread->limit_done += thread->done;
        thread->limit_ns += elapsed_ns;
    }
}

/* What was done in the last interval, to its piece of the run's time. Simulated only: one
 * thread. */
static void series_add(struct bench_thread *thread, uint64_t now_ns)
{
    struct bench_run *run = thread->run;
    if (run->plan->join_at_ns == 0)
        return;
    /* Its middle decides: ticks come a little late. */
    uint64_t middle_ns = now_ns - BENCH_INTERVAL_NS / 2;
    uint64_t piece = (middle_ns - run->series_from_ns) * BENCH_SERIES / run->plan->measure_ns;
    if (piece < BENCH_SERIES) {
        run->outcome->series[piece] += thread->done - thread->series_done;
        /* The last comes, and the one before it gives. */
        if (thread->place->compute_node + 2 < run->node_count)
            run->outcome->series_others[piece] += thread->done - thread->series_done;
    }
    thread->series_done = thread->done;
}

/* Begins the counting, ends intervals, ends the round. */
static void round_timer_fire(struct rt_timer *timer)
{
    struct bench_thread *thread = container_of(timer, struct bench_thread, timer);
    uint64_t now_ns = rt_now_ns();

    if (!thread->counting) {
        count_begin(thread, now_ns);
    } else {
        bench_intervals_add(intervals_of(thread), now_ns, thread->done);
        series_add(thread, now_ns);
        if (thread->index == 0 && thread->phase == BENCH_MEASURE && env_simulated(thread->run->env))
            bench_progress(thread->run, "measuring",
                           (double)(now_ns - thread->count_from_ns) /
                               (double)(thread->end_ns - thread->count_from_ns + 1));
    }
    if (now_ns >= thread->end_ns || bench_failed(thread->run)) {
        count_end(thread, now_ns);
        return;
    }
    uint64_t next_ns = now_ns + BENCH_INTERVAL_NS;
    rt_timer_arm(timer, next_ns < thread->end_ns ? next_ns : thread->end_ns);
}

/* Runs the clients of this thread: for warm_ns without counting, then for count_ns; or, if that is
 * 0, until they have nothing left to do. */
static void round_co(struct bench_thread *thread, enum bench_phase phase, uint64_t warm_ns,
                     uint64_t count_ns)
{
    unsigned clients = phase == BENCH_SAMPLE ? 1 : thread->run->plan->coroutines, spawned = 0;
    uint64_t now_ns = rt_now_ns();

    thread->phase = phase;
    thread->stop = thread->counting = false;
    thread->end_ns = now_ns + warm_ns + count_ns;
    rt_countdown_init(&thread->left, clients);
    if (count_ns > 0)
        rt_timer_arm(&thread->timer, now_ns + warm_ns);
    else if (phase == BENCH_MEASURE)
        count_begin(thread, now_ns);
    while (spawned < clients &&
           rt_spawn(rt_loop_self(), phase == BENCH_LIMIT ? bench_limit_main : bench_client_main,
                    &thread->clients[spawned]) == PANDO_OK)
        spawned++;
    if (spawned < clients) {
        bench_fail(thread->run, "out of memory for the clients; use fewer --coroutines");
        thread->stop = true;
        for (unsigned i = spawned; i < clients; i++)
            rt_countdown_done(&thread->left);
    }
    rt_countdown_wait_co(&thread->left);
    rt_timer_cancel(&thread->timer);
    if (thread->counting) /* they ended by themselves */
        count_end(thread, rt_now_ns());
}

/* ---- loading --------------------------------------------------------------------------------- */

struct feed {
    struct bench_run *run;
    uint64_t next;
    uint64_t key[BENCH_KEY_MAX / 8 + 1];
    uint8_t *value;
};

static bool feed_next(void *context, struct slice *key, struct slice *value)
{
    enum { SHOW_EVERY = 1 << 16 };
    struct feed *feed = context;
    const struct bench_plan *plan = feed->run->plan;
    if (feed->next == plan->space.records || bench_failed(feed->run))
        return false;
    if (feed->next % SHOW_EVERY == 0)
        bench_progress(feed->run, "loading", (double)feed->next / (double)plan->space.records);
    workload_key(workload_loaded_position(&plan->space, feed->next), 0, feed->key,
                 plan->shape.key_size);
    memcpy(feed->value, &feed->next, 8);
    feed->next++;
    *key = slice_of(feed->key, plan->shape.key_size);
    *value = slice_of(feed->value, plan->value_size);
    return true;
}

static uint64_t pool_used_co(struct bench_run *run, struct pool_session *session)
{
    uint64_t used = 0;
    for (unsigned i = 0; i < env_memory_nodes(run->env); i++) {
        struct pool_node_stats stats;
        if (pool_node_stats_co(session, (uint16_t)i, &stats) == PANDO_OK)
            used += (stats.chunks - stats.chunks_free) * POOL_CHUNK_BYTES - stats.blocks_free_bytes;
    }
    return used;
}

static bool load_co(struct bench_run *run, struct engine *engine)
{
    const struct bench_plan *plan = run->plan;
    struct feed *feed = calloc(1, sizeof(*feed));
    enum pando_status status = PANDO_NO_MEMORY;

    if (feed != NULL)
        feed->value = calloc(1, plan->value_size < 8 ? 8 : plan->value_size);
    if (feed != NULL && feed->value != NULL) {
        feed->run = run;
        status = engine_bulk_load_co(engine, feed_next, feed, plan->fill);
    }
    if (status == PANDO_FULL)
        bench_fail(run, "loading: the pool is full; use fewer --records or a larger pool");
    else if (status != PANDO_OK)
        bench_fail(run, "loading: %s", pando_status_text(status));
    if (feed != NULL)
        free(feed->value);
    free(feed);
    return status == PANDO_OK;
}

/* The first thread of the first compute node makes the table and fills it. */
static void create_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    const struct bench_plan *plan = run->plan;
    struct engine_config config = {
        .without = plan->without, .with = plan->with, .cache_bytes = plan->cache_bytes};
    struct engine_table *table;
    struct engine *engine;
    char error[BENCH_ERROR_BYTES];
    uint64_t begin_ns = rt_machine_ns(), before = pool_used_co(run, thread->session);

    enum pando_status status =
        engine_create_co(plan->engine, thread->session, plan->table, &plan->shape);
    if (status == PANDO_EXISTS) {
        bench_fail(run, "table '%s' is there already; choose another --table", plan->table);
        return;
    }
    if (status != PANDO_OK) {
        bench_fail(run, "creating a table: %s", pando_status_text(status));
        return;
    }
    status = engine_open_co(plan->engine, thread->session, plan->table, &config, &table, error,
                            sizeof(error));
    if (status != PANDO_OK) {
        bench_fail(run, "%s", error[0] != '\0' ? error : pando_status_text(status));
        return;
    }
    status = engine_attach_co(table, thread->session, &engine);
    if (status == PANDO_OK) {
        if (!plan->workload->fill && load_co(run, engine))
            bench_join_loaded_co(run, thread->session);
        engine_detach_co(engine);
    }
    engine_close_co(table, thread->session);
    run->outcome->load_seconds = (double)(rt_machine_ns() - begin_ns) / 1e9;
    run->outcome->pool_bytes = pool_used_co(run, thread->session);
    run->outcome->bytes_per_record = (double)(run->outcome->pool_bytes - before) /
                                     (double)(plan->space.records == 0 ? 1 : plan->space.records);
}

/* ---- joining and leaving --------------------------------------------------------------------- */

static void join_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    struct pool_options options = {.memory_nodes = (uint16_t)env_memory_nodes(run->env),
                                   .name = "pando bench"};
    char error[BENCH_ERROR_BYTES] = "";
    enum pando_status status =
        pool_join_co(thread->place->fabric, &options, &thread->node->pool, error, sizeof(error));
    if (status != PANDO_OK)
        bench_fail(run, "%s", error[0] != '\0' ? error : pando_status_text(status));
}

void bench_open_session_co(struct bench_thread *thread)
{
    if (thread->node->pool == NULL)
        return;
    enum pando_status status = pool_session_open_co(thread->node->pool, &thread->session);
    if (status != PANDO_OK) {
        thread->session = NULL;
        bench_fail(thread->run, "connecting: %s", pando_status_text(status));
    }
}

void bench_enter_pool_co(struct bench_thread *thread)
{
    join_co(thread);
    bench_open_session_co(thread);
}

void bench_attach_co(struct bench_thread *thread)
{
    enum pando_status status =
        engine_attach_co(thread->node->table, thread->session, &thread->engine);
    if (status != PANDO_OK)
        bench_fail(thread->run, "%s", pando_status_text(status));
}

void bench_open_table_co(struct bench_thread *thread)
{
    const struct bench_plan *plan = thread->run->plan;
    struct engine_config config = {
        .without = plan->without, .with = plan->with, .cache_bytes = plan->cache_bytes};
    char error[BENCH_ERROR_BYTES] = "";
    enum pando_status status = engine_open_co(plan->engine, thread->session, plan->table, &config,
                                              &thread->node->table, error, sizeof(error));
    if (status != PANDO_OK)
        bench_fail(thread->run, "%s", error[0] != '\0' ? error : pando_status_text(status));
}

static void open_locks(struct bench_thread *thread)
{
    const struct bench_plan *plan = thread->run->plan;
    struct local_lock_options options = {.no_queue = !plan->queue, .no_handover = !plan->handover};
    thread->node->locks = local_locks_create(thread->node->pool, options);
    if (thread->node->locks == NULL)
        bench_fail(thread->run, "out of memory for the locks");
}

static bool is_locks(const struct bench_run *run)
{
    return run->plan->workload->percent[WORKLOAD_LOCK] > 0;
}

/* Who makes the table, and who comes when it is there. */
static void gather_co(struct bench_thread *thread, bool late)
{
    struct bench_run *run = thread->run;
    bool first_of_node = thread->place->thread == 0, first = thread->index == 0;

    if (first_of_node && !late)
        bench_enter_pool_co(thread);
    if (first && !bench_failed(run) && bench_join_claim_co(run, thread->session) &&
        run->process == 0 && !is_locks(run))
        create_co(thread);
    barrier_co(run);
    if (!first_of_node && !late && !bench_failed(run))
        bench_open_session_co(thread);
    if (first && !bench_failed(run))
        (void)bench_join_wait_co(run, thread->session);
    barrier_co(run);
}

/* What threads need to begin with. */
static void prepare_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    bool first_of_node = thread->place->thread == 0, first = thread->index == 0;
    bool late = bench_is_late(thread), owners = !is_locks(run) && !run->plan->workload->fill;

    gather_co(thread, late);
    if (first_of_node && !late && !bench_failed(run)) {
        if (is_locks(run))
            open_locks(thread);
        else
            bench_open_table_co(thread);
    }
    barrier_co(run);
    if (!bench_failed(run) && !late && !is_locks(run))
        bench_attach_co(thread);
    barrier_co(run);
    if (first && !bench_failed(run) && owners)
        bench_spread_co(thread);
    barrier_co(run);
    if (first_of_node && !late && !bench_failed(run) && owners)
        bench_look_co(thread, 0);
    barrier_co(run);
}

static void drop_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    if (run->plan->keep || run->process != 0 || env_simulated(run->env) ||
        strcmp(env_kind(run->env), "embedded") == 0)
        return;
    enum pando_status status = engine_drop_co(thread->node->table, thread->session);
    if (status != PANDO_OK)
        bench_fail(run, "dropping the table: %s", pando_status_text(status));
}

static void leave_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    bool first_of_node = thread->place->thread == 0;
    bool drops = thread->index == 0 && run->process == 0;

    if (thread->engine != NULL)
        engine_detach_co(thread->engine);
    barrier_co(run);
    if (thread->index == 0 && thread->session != NULL)
        run->outcome->pool_bytes = pool_used_co(run, thread->session);
    /* Before the first process is told that it may drop it. */
    if (first_of_node && !drops && thread->node->table != NULL)
        engine_close_co(thread->node->table, thread->session);
    if (thread->index == 0 && thread->session != NULL)
        bench_join_leave_co(run, thread->session);
    if (drops && thread->node->table != NULL) {
        drop_co(thread);
        engine_close_co(thread->node->table, thread->session);
    }
    if (thread->session != NULL)
        pool_session_close_co(thread->session);
    barrier_co(run);
    if (first_of_node && thread->node->locks != NULL)
        local_locks_destroy(thread->node->locks);
    if (first_of_node && thread->node->pool != NULL)
        pool_leave_co(thread->node->pool);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* What does not divide goes to the first clients, as records do when all of them are loaded or deleted. */
static void set_quotas(struct bench_thread *thread)
{
    const struct bench_plan *plan = thread->run->plan;
    uint64_t clients = (uint64_t)thread->run->thread_count * plan->coroutines * plan->processes;
    for (unsigned i = 0; i < plan->coroutines; i++) {
        struct bench_client *client = &thread->clients[i];
        client->quota = plan->ops == 0
                            ? UINT64_MAX
                            : plan->ops / clients + (client->number < plan->ops % clients);
    }
}

static void measure_simulated_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    const struct bench_plan *plan = run->plan;

    set_quotas(thread);
    if (bench_is_late(thread)) {
        uint64_t end_ns = rt_now_ns() + plan->warmup_ns + plan->measure_ns;
        bench_late_co(thread);
        if (!bench_failed(run) && rt_now_ns() < end_ns)
            round_co(thread, BENCH_MEASURE, 0, end_ns - rt_now_ns());
        barrier_co(run);
        return;
    }
    round_co(thread, BENCH_MEASURE, plan->ops > 0 ? 0 : plan->warmup_ns,
             plan->ops > 0 ? 0 : plan->measure_ns);
    barrier_co(run);
    if (thread->node->limit != NULL && !bench_failed(run))
        round_co(thread, BENCH_LIMIT, SIM_SETTLE_NS, SIM_LIMIT_NS);
}

static void measure_real_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    const struct bench_plan *plan = run->plan;
    uint64_t rounds = plan->ops > 0 ? 1 : plan->measure_ns / ROUND_NS;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    uint64_t slice_ns = plan->measure_ns / rounds;

    set_quotas(thread);
    for (uint64_t i = 0; i < rounds && !bench_failed(run); i++) {
        if (thread->index == 0)
            bench_progress(run, "measuring", (double)i / (double)rounds);
        round_co(thread, BENCH_MEASURE, i == 0 && plan->ops == 0 ? plan->warmup_ns : RT_NS_PER_MS,
                 plan->ops > 0 ? 0 : slice_ns);
        barrier_co(run);
        if (thread->node->limit != NULL && !bench_failed(run))
            round_co(thread, BENCH_LIMIT, RT_NS_PER_MS, slice_ns);
        barrier_co(run);
    }
}

static void measure_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    const struct bench_plan *plan = run->plan;
    bool simulated = env_simulated(run->env);

    if (!is_locks(run) && !plan->workload->fill && !bench_is_late(thread)) {
        if (thread->index == 0)
            bench_progress(run, "filling caches", 0);
        round_co(thread, BENCH_TOUCH, 0, 0);
    }
    if (thread->place->thread == 0 && !bench_failed(run) && !plan->no_limit && !is_locks(run) &&
        !bench_limit_open_co(thread))
        bench_limit_close_co(thread);
    barrier_co(run);
    if (!bench_failed(run)) {
        if (simulated)
            measure_simulated_co(thread);
        else
            measure_real_co(thread);
    }
    barrier_co(run);
    if (plan->coroutines > 1 && !bench_failed(run) && plan->ops == 0)
        round_co(thread, BENCH_SAMPLE, 0, plan->measure_ns / 10 + 1);
    if (thread->place->thread == 0)
        bench_limit_close_co(thread);
}

static bool allocate(struct bench_thread *thread)
{
    const struct bench_plan *plan = thread->run->plan;
    thread->intervals = calloc(1, sizeof(*thread->intervals));
    thread->limit_intervals = calloc(1, sizeof(*thread->limit_intervals));
    thread->clients = calloc(plan->coroutines, sizeof(*thread->clients));
    if (thread->intervals == NULL || thread->limit_intervals == NULL || thread->clients == NULL)
        return false;
    for (unsigned i = 0; i < plan->coroutines; i++) {
        if (!bench_client_init(&thread->clients[i], thread, i))
            return false;
    }
    return true;
}

static void tally_init(struct bench_tally *tally)
{
    histogram_init(&tally->latency_ns);
    histogram_init(&tally->write_round_trips);
    histogram_init(&tally->write_bytes);
    histogram_init(&tally->read_round_trips);
    for (int i = 0; i < WORKLOAD_KINDS; i++)
        histogram_init(&tally->kind_latency_ns[i]);
}

static void thread_main_co(void *context, const struct env_place *place)
{
    struct bench_run *run = context;
    unsigned index = place->compute_node * run->plan->threads + place->thread;
    struct bench_thread *thread = &run->threads[index];

    thread->run = run;
    thread->place = place;
    thread->index = index;
    thread->node = &run->nodes[place->compute_node];
    rt_timer_init(&thread->timer, round_timer_fire);
    tally_init(&thread->tally);
    prepare_co(thread);
    if (!bench_failed(run) && !allocate(thread))
        bench_fail(run, "out of memory for the clients");
    barrier_co(run);
    if (!bench_failed(run))
        measure_co(thread);
    leave_co(thread);
}

/* ---- putting it together --------------------------------------------------------------------- */

static void tally_add(struct bench_tally *sum, const struct bench_tally *more)
{
    for (int i = 0; i < WORKLOAD_KINDS; i++) {
        sum->ops[i] += more->ops[i];
        histogram_merge(&sum->kind_latency_ns[i], &more->kind_latency_ns[i]);
    }
    sum->errors += more->errors;
    sum->not_found += more->not_found;
    for (int i = 0; i < FABRIC_TARGETS; i++)
        fabric_counters_add(&sum->counters[i], &more->counters[i]);
    histogram_merge(&sum->latency_ns, &more->latency_ns);
    histogram_merge(&sum->write_round_trips, &more->write_round_trips);
    histogram_merge(&sum->write_bytes, &more->write_bytes);
    histogram_merge(&sum->read_round_trips, &more->read_round_trips);
}

static void stats_add(struct bench_run *run)
{
    struct engine_stats *sum = &run->outcome->stats;
    for (unsigned i = 0; i < run->node_count; i++)
        engine_stats_add(sum, &run->nodes[i].after);
    run->outcome->cache_bytes = run->node_count == 0 ? 0 : sum->cache_bytes / run->node_count;
}

static double per_second(uint64_t count, uint64_t ns)
{
    return ns == 0 ? 0 : (double)count * 1e9 / (double)ns;
}

static void summarise(struct bench_run *run)
{
    struct bench_outcome *outcome = run->outcome;
    bool simulated = env_simulated(run->env);

    tally_init(&outcome->tally);
    for (unsigned i = 0; i < run->thread_count; i++) {
        struct bench_thread *thread = &run->threads[i];
        double rate = per_second(bench_tally_ops(&thread->tally), thread->elapsed_ns);
        double limit = per_second(thread->limit_done, thread->limit_ns);
        tally_add(&outcome->tally, &thread->tally);
        outcome->rate += rate;
        outcome->best_rate += simulated ? rate : bench_intervals_rate(thread->intervals);
        outcome->limit_rate += simulated ? limit : bench_intervals_rate(thread->limit_intervals);
        if (thread->elapsed_ns > outcome->elapsed_ns)
            outcome->elapsed_ns = thread->elapsed_ns;
    }
    if (run->plan->ops > 0) /* the slowest decides */
        outcome->rate = per_second(bench_tally_ops(&outcome->tally), outcome->elapsed_ns);
    outcome->exact = run->plan->coroutines == 1;
    outcome->process = run->process;
    stats_add(run);
}

static void run_free(struct bench_run *run)
{
    for (unsigned i = 0; run->threads != NULL && i < run->thread_count; i++) {
        struct bench_thread *thread = &run->threads[i];
        for (unsigned j = 0; thread->clients != NULL && j < run->plan->coroutines; j++)
            bench_client_fini(&thread->clients[j]);
        free(thread->clients);
        free(thread->intervals);
        free(thread->limit_intervals);
    }
    free(run->threads);
    free(run->nodes);
}

bool bench_engine_run(struct env *env, const struct bench_plan *plan, struct bench_outcome *outcome)
{
    struct bench_run run = {
        .env = env, .plan = plan, .outcome = outcome, .error_taken = ATOMIC_FLAG_INIT};

    memset(outcome, 0, sizeof(*outcome));
    rt_waitq_init(&run.waiting);
    run.node_count = env_compute_nodes(env);
    run.thread_count = run.node_count * plan->threads;
    run.nodes = calloc(run.node_count, sizeof(*run.nodes));
    run.threads = calloc(run.thread_count, sizeof(*run.threads));
    if (run.nodes == NULL || run.threads == NULL) {
        bench_fail(&run, "out of memory");
    } else {
        uint64_t begin_ns = rt_machine_ns();
        enum pando_status status = env_run(env, plan->threads, thread_main_co, &run);
        outcome->real_seconds = (double)(rt_machine_ns() - begin_ns) / 1e9;
        outcome->virtual_ns = env_virtual_ns(env);
        if (status != PANDO_OK)
            bench_fail(&run, "%s", pando_status_text(status));
    }
    if (!bench_failed(&run))
        summarise(&run);
    run_free(&run);
    return !bench_failed(&run);
}
