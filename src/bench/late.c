/*
 * late.c - a compute node that comes while the others work: --join-at. It joins the pool,
 * opens the table, and one of the owners gives it half of its keys; everybody else goes on.
 */
#include "bench/bench_int.h"

static const uint64_t POLL_NS = 100 * RT_NS_PER_US;

bool bench_is_late(const struct bench_thread *thread)
{
    const struct bench_run *run = thread->run;
    return run->plan->join_at_ns > 0 && thread->place->compute_node + 1 == run->node_count;
}

/* The newcomer gets the second half of the last of the equal shares. Members are counted from 0, and it
 * was the last that came. */
static void take_keys_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    const struct bench_plan *plan = run->plan;
    uint64_t shares = run->node_count - 1;
    uint64_t record = plan->space.records / (2 * shares) * (2 * shares - 1);
    uint64_t key[BENCH_KEY_MAX / 8 + 1], begin_ns = rt_now_ns();
    struct slice from = slice_of(key, plan->shape.key_size);

    workload_key(workload_loaded_position(&plan->space, record), 0, key, plan->shape.key_size);
    enum pando_status status = engine_move_co(thread->engine, from, shares);
    run->outcome->move_ns = rt_now_ns() - begin_ns;
    if (status != PANDO_OK) {
        bench_fail(run, "moving keys to the new compute node: %s", pando_status_text(status));
        return;
    }
    bench_look_co(thread, plan->space.records - 1);
    workload_key(workload_loaded_position(&plan->space, plan->space.records - 1), 0, key,
                 plan->shape.key_size);
    if (!bench_failed(run) && !engine_owns(thread->engine, from))
        bench_fail(run, "the new compute node did not get its keys");
}

void bench_late_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    struct bench_node *node = thread->node;
    bool first = thread->place->thread == 0;

    rt_sleep_co(run->plan->warmup_ns + run->plan->join_at_ns);
    if (first) {
        bench_enter_pool_co(thread);
        if (!bench_failed(run))
            bench_open_table_co(thread);
        atomic_store(&node->open, true);
    }
    while (!atomic_load(&node->open))
        rt_sleep_co(POLL_NS);
    if (!first && !bench_failed(run))
        bench_open_session_co(thread);
    if (!bench_failed(run))
        bench_attach_co(thread);
    if (first && !bench_failed(run))
        take_keys_co(thread);
}
