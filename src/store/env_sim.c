/*
 * env_sim.c - simulated pools: memory nodes 0 .. m-1, compute nodes from 0x8000 on, one real
 * thread.
 */
#include <stdio.h>

#include "base/log.h"
#include "fabric/sim/fabric_sim.h"
#include "store/engines.h"
#include "store/env_int.h"

enum {
    COMPUTE_FIRST = 0x8000,
    COMPUTE_BYTES_MIN = 64 * 1024, /* of a compute node that asked for no window */
};

/* How far the adversary goes when the URI gives it a chance. */
static const uint64_t SPREAD_NS = 2 * RT_NS_PER_US;
static const uint64_t DELAY_NS = 20 * RT_NS_PER_US;
static const uint64_t LATE_CPU_NS = 5 * RT_NS_PER_US;

/* After the first tasks have ended, those that they started get this long, in steps. */
static const uint64_t STRAGGLE_NS = 10 * RT_NS_PER_S;
static const uint64_t STRAGGLE_STEP_NS = 100 * RT_NS_PER_US;

/* Atomics on one word that lies in a node which others READ all the time: the one constant that was
 * fitted to a single figure (FG+ on skewed writes); see docs/results/sherman.md. */
static const double BUCKET_EMBEDDED_NS = 270;

struct env_sim_run {
    struct sim *sim;
    unsigned left; /* first tasks that have not ended */
};

static enum pando_status fail(char *error, size_t error_bytes, const char *what, unsigned node,
                              enum pando_status status)
{
    snprintf(error, error_bytes, "simulated %s %u: %s", what, node, pando_status_text(status));
    return status;
}

static enum pando_status add_memory_node(struct env *env, unsigned node, char *error,
                                         size_t error_bytes)
{
    struct fabric_sim_node_options options = {
        .node = (uint16_t)node,
        .target = FABRIC_MEMORY,
        .host_bytes = env->uri.size_bytes,
        .device_bytes = MEMNODE_DEVICE_BYTES,
        .threads = env->uri.sim.memory_threads,
    };
    struct memnode_options memory = {.work = store_memory_pushdown, .level_at = store_level_at};
    struct fabric *fabric;
    enum pando_status status = fabric_sim_add(env->net, &options, &fabric);
    if (status != PANDO_OK)
        return fail(error, error_bytes, "memory node", node, status);
    return memnode_open(fabric, &memory, &env->memnodes[node], error, error_bytes);
}

/* The preset, with lock words where the URI wants them. */
static struct sim_nic_model model_of(const struct uri_sim *sim)
{
    struct sim_nic_model model = *sim_nic_model(sim->nic);
    if (sim->onchip)
        return model;
    if (sim->embedded)
        model.bucket_host_ok_ns = model.bucket_host_fail_ns = BUCKET_EMBEDDED_NS;
    model.atomic_chip_extra_ns = model.atomic_host_extra_ns;
    model.atomic_chip_message_ns = model.message_in_ns;
    model.bucket_chip_ns = model.bucket_host_ok_ns;
    return model;
}

enum pando_status env_sim_open(struct env *env, char *error, size_t error_bytes)
{
    const struct uri_sim *sim = &env->uri.sim;
    struct sim_nic_model model = model_of(sim);
    struct fabric_sim_options options = {
        .seed = sim->seed,
        .model = &model,
        .chaos = {.tear = sim->tear,
                  .spread = sim->spread,
                  .spread_ns = SPREAD_NS,
                  .delay = sim->delay,
                  .delay_ns = DELAY_NS,
                  .late_cpu = sim->late_cpu,
                  .late_cpu_ns = LATE_CPU_NS},
        .shuffle = sim->shuffle,
        .race_probability = sim->race,
    };
    enum pando_status status = PANDO_OK;

    env->net = fabric_sim_create(&options);
    if (env->net == NULL) {
        snprintf(error, error_bytes, "out of memory for the simulated network");
        return PANDO_NO_MEMORY;
    }
    for (unsigned i = 0; status == PANDO_OK && i < env->uri.memory; i++)
        status = add_memory_node(env, i, error, error_bytes);
    return status;
}

void env_sim_close(struct env *env)
{
    if (env->net != NULL)
        fabric_sim_destroy(env->net);
    for (unsigned i = 0; i < env->uri.memory; i++) {
        if (env->memnodes[i] != NULL)
            memnode_close(env->memnodes[i]);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static enum pando_status add_compute_nodes(struct env *env, unsigned threads)
{
    uint64_t bytes = env->compute_bytes;
    for (unsigned i = 0; i < env->uri.compute; i++) {
        struct fabric_sim_node_options options = {
            .node = (uint16_t)(COMPUTE_FIRST + i),
            .target = FABRIC_COMPUTE,
            .host_bytes = bytes < COMPUTE_BYTES_MIN ? COMPUTE_BYTES_MIN : bytes,
            .threads = threads,
        };
        enum pando_status status = fabric_sim_add(env->net, &options, &env->computes[i]);
        if (status != PANDO_OK)
            return status;
    }
    env->compute_threads = threads;
    return PANDO_OK;
}

static void job_main(void *arg)
{
    struct env_job *job = arg;
    struct env_sim_run *run = job->run;
    job->fn(job->context, &job->place);
    if (--run->left == 0)
        sim_stop(run->sim);
}

/* Until every first task has ended, and then until everything else that began since has. Memory
 * nodes may have tasks and timers that never end, so the world need not get quiet. */
static enum pando_status run_to_end(struct env_sim_run *run, size_t tasks_before)
{
    struct sim *sim = run->sim;
    enum sim_end end = run->left > 0 ? sim_run(sim, RT_NEVER) : SIM_QUIET;
    uint64_t deadline_ns = sim_now_ns(sim) + STRAGGLE_NS;

    while (end != SIM_QUIET && sim_live_tasks(sim) > tasks_before && sim_now_ns(sim) < deadline_ns)
        end = sim_run(sim, sim_now_ns(sim) + STRAGGLE_STEP_NS);
    if (run->left == 0 && sim_live_tasks(sim) <= tasks_before)
        return PANDO_OK;
    log_error("simulated tasks wait for something that does not happen",
              log_u64("tasks", sim_live_tasks(sim) - tasks_before));
    return PANDO_TIMEOUT;
}

enum pando_status env_sim_run(struct env *env, struct env_job *jobs, unsigned threads)
{
    struct env_sim_run run = {.sim = fabric_sim_world(env->net)};
    enum pando_status status = PANDO_OK;

    if (env->compute_threads == 0)
        status = add_compute_nodes(env, threads);
    else if (threads > env->compute_threads)
        status = PANDO_TOO_LARGE;
    if (status != PANDO_OK)
        return status;

    size_t tasks_before = sim_live_tasks(run.sim);
    uint64_t begin_ns = sim_now_ns(run.sim);
    for (unsigned i = 0; status == PANDO_OK && i < env->uri.compute * threads; i++) {
        struct env_job *job = &jobs[i];
        job->run = &run;
        job->place.fabric = env->computes[job->place.compute_node];
        status = rt_spawn(fabric_sim_loop(job->place.fabric, job->place.thread), job_main, job);
        run.left += status == PANDO_OK;
    }
    enum pando_status ended = run_to_end(&run, tasks_before);
    env->virtual_ns += sim_now_ns(run.sim) - begin_ns;
    return status != PANDO_OK ? status : ended;
}
