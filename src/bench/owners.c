/*
 * owners.c - who works on which keys, with --routed: clients of a compute node draw keys
 * from the whole distribution and keep those of their own node, as if every request had been sent to
 * the owner of its key.
 *
 * Engines that have owners are asked. For the others every compute node has an equal share of the
 * positions, and nobody works on keys that are so near to a border that their leaf may reach across.
 */
#include "bench/bench_int.h"

static bool owned(struct bench_client *client, uint64_t position, uint64_t serial)
{
    const struct bench_plan *plan = client->thread->run->plan;
    uint64_t key[BENCH_KEY_MAX / 8 + 1];
    workload_key(position, serial, key, plan->shape.key_size);
    return engine_owns(client->thread->engine, slice_of(key, plan->shape.key_size));
}

static bool in_share(const struct bench_client *client, uint64_t position)
{
    const struct bench_run *run = client->thread->run;
    const struct bench_plan *plan = run->plan;
    uint64_t nodes = (uint64_t)run->node_count * plan->processes;
    uint64_t node = (uint64_t)run->process * run->node_count + client->thread->place->compute_node;
    uint64_t reach = (uint64_t)plan->pairs_per_leaf * 100 / plan->fill + 1;
    uint64_t low = plan->space.positions * node / nodes;
    uint64_t high = plan->space.positions * (node + 1) / nodes;
    return position >= low + (node == 0 ? 0 : reach) &&
           position + (node + 1 == nodes ? 0 : reach) < high;
}

bool bench_wants(void *context, uint64_t position, uint64_t serial)
{
    struct bench_client *client = context;
    const struct bench_plan *plan = client->thread->run->plan;
    if (!plan->routed)
        return true;
    return engine_has_owners(plan->engine) ? owned(client, position, serial)
                                           : in_share(client, position);
}

void bench_look_co(struct bench_thread *thread, uint64_t record)
{
    const struct bench_plan *plan = thread->run->plan;
    uint64_t key[BENCH_KEY_MAX / 8 + 1], value;
    size_t size;

    workload_key(workload_loaded_position(&plan->space, record), 0, key, plan->shape.key_size);
    enum pando_status status = engine_get_co(thread->engine, slice_of(key, plan->shape.key_size),
                                             &value, sizeof(value), &size);
    if (status != PANDO_OK)
        bench_fail(thread->run, "reading a record: %s", pando_status_text(status));
}

void bench_spread_co(struct bench_thread *thread)
{
    struct bench_run *run = thread->run;
    if (!engine_has_owners(run->plan->engine) ||
        !bench_join_meet_co(run, thread->session, BENCH_OPENED))
        return;
    if (run->process == 0) {
        unsigned processes;
        enum pando_status status = engine_spread_co(thread->engine, false, &processes);
        if (status != PANDO_OK)
            bench_fail(run, "spreading the keys over the compute nodes: %s",
                       pando_status_text(status));
    }
    (void)bench_join_meet_co(run, thread->session, BENCH_SPREAD);
}
