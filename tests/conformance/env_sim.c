/*
 * env_sim.c - a simulated world. Everything happens in one thread, and the seed decides it.
 */
#include <stdlib.h>

#include "conformance/env.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"

enum {
    CLIENT_THREADS = 4,
    CLIENT_HOST_BYTES = 1024 * 1024,
};

struct sim_env {
    struct env base;
    struct fabric_sim *net;
    struct sim *world;
    struct prng prng; /* for the faults */
    struct fabric *target;
    struct fabric *clients[ENV_CLIENTS_MAX];
    unsigned client_count;
    unsigned running; /* tasks of env_run */
    struct env_writer writer;
};

static struct sim_env *self(struct env *env)
{
    return (struct sim_env *)env;
}

static const struct fabric_sim_chaos CHAOS = {
    .tear = 0.5,
    .spread = 0.5,
    .spread_ns = 3000,
    .delay = 0.2,
    .delay_ns = 10000,
    .late_cpu = 0.5,
    .late_cpu_ns = 30000,
};

static void serve(struct sim_env *sim)
{
    if (sim->base.options.handler != NULL)
        fabric_serve(sim->target, sim->base.options.handler, sim->target);
}

static struct env *open_world(const struct env_ops *ops, const struct env_options *options)
{
    struct sim_env *sim = calloc(1, sizeof(*sim));
    CHECK(sim != NULL);
    sim->base = (struct env){.ops = ops, .options = *options};
    prng_seed(&sim->prng, hash_u64(options->seed));

    struct fabric_sim_options world = {.seed = options->seed,
                                       .model = sim_nic_model(options->seed % 2 ? "cx5" : "cx6")};
    if (options->chaos) {
        world.chaos = CHAOS;
        world.shuffle = true;
        world.race_probability = 0.05;
    }
    world.chaos.no_fencing = options->no_fencing;
    sim->net = fabric_sim_create(&world);
    CHECK(sim->net != NULL);
    sim->world = fabric_sim_world(sim->net);

    struct fabric_sim_node_options node = {.node = ENV_TARGET,
                                           .target = env_target_kind(ops),
                                           .host_bytes = ENV_HOST_BYTES,
                                           .device_bytes = ops->compute ? 0 : ENV_DEVICE_BYTES,
                                           .threads = 2};
    CHECK_OK(fabric_sim_add(sim->net, &node, &sim->target));
    serve(sim);
    return &sim->base;
}

static struct env *sim_open(const struct env_options *options)
{
    return open_world(&env_sim, options);
}

static struct env *sim_compute_open(const struct env_options *options)
{
    return open_world(&env_sim_compute, options);
}

/* What still runs, say a handler that sleeps, gets some time to end. */
static void sim_close(struct env *env)
{
    struct sim_env *sim = self(env);
    for (int i = 0; i < 100 && sim_live_tasks(sim->world) > 0; i++)
        (void)sim_run(sim->world, sim_now_ns(sim->world) + 10 * RT_NS_PER_MS);
    fabric_sim_destroy(sim->net);
    free(sim);
}

static struct fabric *sim_client(struct env *env, const struct env_client *client)
{
    struct sim_env *sim = self(env);
    CHECK(sim->client_count < ENV_CLIENTS_MAX);
    struct fabric_sim_node_options node = {.node = (uint16_t)(1 + sim->client_count),
                                           .target = FABRIC_COMPUTE,
                                           .host_bytes = CLIENT_HOST_BYTES,
                                           .threads = CLIENT_THREADS};
    struct fabric **fabric = &sim->clients[sim->client_count++];
    CHECK_OK(fabric_sim_add(sim->net, &node, fabric));
    fabric_set_identity(*fabric, client->identity);
    return *fabric;
}

/* ---- running --------------------------------------------------------------------------------- */

struct running {
    struct sim_env *sim;
    const struct env_task *task;
};

static void run_task(void *arg)
{
    struct running *running = arg;
    running->task->fn(running->task->arg);
    if (--running->sim->running == 0)
        sim_stop(running->sim->world);
}

/* A loop of that process which none of the first n tasks has. */
static struct rt_loop *loop_for(const struct env_task *tasks, unsigned n)
{
    unsigned used = 0;
    for (unsigned i = 0; i < n; i++)
        used += tasks[i].fabric == tasks[n].fabric;
    CHECK(used < fabric_sim_threads(tasks[n].fabric));
    return fabric_sim_loop(tasks[n].fabric, used);
}

static void sim_env_run(struct env *env, const struct env_task *tasks, unsigned count)
{
    struct sim_env *sim = self(env);
    struct running running[ENV_TASKS_MAX];

    CHECK(count <= ENV_TASKS_MAX);
    sim->running = count;
    for (unsigned i = 0; i < count; i++) {
        running[i] = (struct running){.sim = sim, .task = &tasks[i]};
        CHECK_OK(rt_spawn(loop_for(tasks, i), run_task, &running[i]));
    }
    enum sim_end end = sim_run(sim->world, sim_now_ns(sim->world) + 60 * RT_NS_PER_S);
    if (sim->running > 0)
        CHECK_FAIL("%u of %u tasks %s", sim->running, count,
                   end == SIM_QUIET ? "wait for what will never happen"
                                    : "have not ended in a minute of the simulated world");
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void sim_kill_target(struct env *env)
{
    fabric_sim_kill(self(env)->target);
}

static void sim_restart_target(struct env *env)
{
    struct sim_env *sim = self(env);
    CHECK_OK(fabric_sim_restart(sim->target, !env->ops->compute, &sim->target));
    serve(sim);
}

static void sim_hide_target(struct env *env)
{
    struct sim_env *sim = self(env);
    for (unsigned i = 0; i < sim->client_count; i++)
        fabric_sim_cut(sim->net, fabric_self(sim->clients[i]), ENV_TARGET);
}

static void sim_show_target(struct env *env)
{
    struct sim_env *sim = self(env);
    for (unsigned i = 0; i < sim->client_count; i++)
        fabric_sim_heal(sim->net, fabric_self(sim->clients[i]), ENV_TARGET);
}

static void sim_writer_start(struct env *env, struct fabric_identity identity, uint64_t offset)
{
    struct sim_env *sim = self(env);
    sim->writer = (struct env_writer){.fabric = env_client(env, identity), .offset = offset};
    CHECK_OK(rt_spawn(fabric_sim_loop(sim->writer.fabric, 0), env_writer_main, &sim->writer));
}

static void sim_writer_pause_co(struct env *env)
{
    struct sim_env *sim = self(env);
    struct fabric *writer = sim->writer.fabric;
    uint64_t duration_ns = RT_NS_PER_MS + prng_below(&sim->prng, 2 * RT_NS_PER_MS);

    if (prng_chance(&sim->prng, 0.3))
        fabric_sim_pause(writer, duration_ns);
    else
        fabric_sim_pause_at(writer, fabric_sim_posted(writer) + 1 + prng_below(&sim->prng, 20),
                            duration_ns);
    uint64_t deadline_ns = rt_now_ns() + env->ops->patience_ns;
    while (!sim_node_paused(fabric_sim_machine(writer))) {
        CHECK(rt_now_ns() < deadline_ns && !sim->writer.ended);
        rt_sleep_co(100);
    }
}

/* The pause ends by itself. */
static void sim_writer_resume_co(struct env *env)
{
    while (sim_node_paused(fabric_sim_machine(self(env)->writer.fabric)))
        rt_sleep_co(RT_NS_PER_US);
}

static void sim_writer_kill_co(struct env *env)
{
    struct sim_env *sim = self(env);
    struct fabric *writer = sim->writer.fabric;
    uint64_t deadline_ns = rt_now_ns() + env->ops->patience_ns;

    if (prng_chance(&sim->prng, 0.3))
        fabric_sim_kill(writer);
    else
        fabric_sim_kill_at(writer, fabric_sim_posted(writer) + 1 + prng_below(&sim->prng, 20));
    while (!fabric_sim_dead(writer)) {
        CHECK(rt_now_ns() < deadline_ns && !sim->writer.ended);
        rt_sleep_co(100);
    }
}

static enum env_end sim_writer_end_co(struct env *env)
{
    struct sim_env *sim = self(env);
    uint64_t deadline_ns = rt_now_ns() + env->ops->patience_ns;

    if (fabric_sim_dead(sim->writer.fabric))
        return ENV_END_DEAD;
    while (!sim->writer.ended) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(10 * RT_NS_PER_US);
    }
    return sim->writer.status == PANDO_FENCED ? ENV_END_FENCED : ENV_END_OTHER;
}

const struct env_ops env_sim = {
    .name = "sim",
    .simulated = true,
    .effort = 1,
    .call_effort = 1,
    .patience_ns = RT_NS_PER_S,
    .linger_ns = RT_NS_PER_MS,
    .open = sim_open,
    .close = sim_close,
    .client = sim_client,
    .run = sim_env_run,
    .kill_target = sim_kill_target,
    .restart_target = sim_restart_target,
    .hide_target = sim_hide_target,
    .show_target = sim_show_target,
    .writer_start = sim_writer_start,
    .writer_pause_co = sim_writer_pause_co,
    .writer_resume_co = sim_writer_resume_co,
    .writer_kill_co = sim_writer_kill_co,
    .writer_end_co = sim_writer_end_co,
};

const struct env_ops env_sim_compute = {
    .name = "sim-compute",
    .compute = true,
    .simulated = true,
    .effort = 1,
    .call_effort = 1,
    .patience_ns = RT_NS_PER_S,
    .linger_ns = RT_NS_PER_MS,
    .open = sim_compute_open,
    .close = sim_close,
    .client = sim_client,
    .run = sim_env_run,
    .kill_target = sim_kill_target,
    .restart_target = sim_restart_target,
    .hide_target = sim_hide_target,
    .show_target = sim_show_target,
    .writer_start = sim_writer_start,
    .writer_pause_co = sim_writer_pause_co,
    .writer_resume_co = sim_writer_resume_co,
    .writer_kill_co = sim_writer_kill_co,
    .writer_end_co = sim_writer_end_co,
};
