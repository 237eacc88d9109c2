/*
 * runtime.c - what tasks cost, with nothing on any wire.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/fabric.h"

enum { TASKS = 64, BATCHES = 4096, YIELDS = 4096, ROUNDS = 7 };

struct runtime {
    double create_ns[ROUNDS], yield_ns[ROUNDS];
    unsigned yields_left;
    struct rt_countdown left;
    bool failed;
};

static void nothing(void *arg)
{
    (void)arg;
}

static double create_ns_co(struct runtime *runtime)
{
    struct rt_loop *loop = rt_loop_self();
    uint64_t begin_ns = rt_machine_ns();
    for (int i = 0; i < BATCHES && !runtime->failed; i++) {
        for (int j = 0; j < TASKS; j++)
            runtime->failed |= rt_spawn(loop, nothing, NULL) != PANDO_OK;
        rt_yield_co(); /* they all run before it comes back */
    }
    return (double)(rt_machine_ns() - begin_ns) / ((double)BATCHES * TASKS);
}

static void yielder(void *arg)
{
    struct runtime *runtime = arg;
    for (int i = 0; i < YIELDS; i++)
        rt_yield_co();
    rt_countdown_done(&runtime->left);
}

static double yield_ns_co(struct runtime *runtime)
{
    struct rt_loop *loop = rt_loop_self();
    rt_countdown_init(&runtime->left, TASKS);
    for (int i = 0; i < TASKS; i++) {
        if (rt_spawn(loop, yielder, runtime) != PANDO_OK) {
            runtime->failed = true;
            rt_countdown_done(&runtime->left);
        }
    }
    uint64_t begin_ns = rt_machine_ns();
    rt_countdown_wait_co(&runtime->left);
    return (double)(rt_machine_ns() - begin_ns) / ((double)YIELDS * TASKS);
}

static void runtime_main_co(void *context, const struct env_place *place)
{
    struct runtime *runtime = context;
    (void)place;
    for (int i = 0; i < ROUNDS; i++) {
        runtime->create_ns[i] = create_ns_co(runtime);
        runtime->yield_ns[i] = yield_ns_co(runtime);
    }
}

/* The best of the rounds: whatever else the machine does only adds. */
static double least(const double *values)
{
    double best = values[0];
    for (int i = 1; i < ROUNDS; i++)
        best = values[i] < best ? values[i] : best;
    return best;
}

static bool measure_operation(struct env *env, struct bench_runtime *out, char *error,
                              size_t error_bytes)
{
    struct bench_spec spec = {
        .kind = FABRIC_READ,
        .size = 8,
        .list = 1,
        .depth = TASKS,
        .threads = 1,
        .duration_ns = RT_NS_PER_S,
        .rounds = 20,
        .span_bytes = 4096,
    };
    struct bench_result *result = malloc(sizeof(*result));
    spec.raw = bench_raw_open(env, &spec, (uint64_t)64 << 20, error, error_bytes);
    bool ok = result != NULL && spec.raw != NULL && bench_measure(env, &spec, result);
    if (ok) {
        out->operation_ns = 1e9 / result->rate;
        out->copy_ns = 1e9 / result->raw_rate;
    } else if (result != NULL && spec.raw != NULL) {
        snprintf(error, error_bytes, "%s", result->error);
    }
    if (spec.raw != NULL)
        bench_raw_close(spec.raw);
    free(result);
    return ok;
}

bool bench_runtime(struct bench_runtime *out, char *error, size_t error_bytes)
{
    struct env_options options = {.uri = "embedded:64M"};
    struct runtime *runtime = calloc(1, sizeof(*runtime));
    struct env *env = NULL;
    bool ok = false;

    memset(out, 0, sizeof(*out));
    snprintf(error, error_bytes, "out of memory");
    if (runtime == NULL || env_open(&options, &env, error, error_bytes) != PANDO_OK)
        goto out;
    if (env_run(env, 1, runtime_main_co, runtime) != PANDO_OK || runtime->failed)
        goto out;
    out->create_ns = least(runtime->create_ns);
    out->yield_ns = least(runtime->yield_ns);
    out->switch_ns = out->yield_ns / 2;
    ok = measure_operation(env, out, error, error_bytes);
out:
    if (env != NULL)
        env_close(env);
    free(runtime);
    return ok;
}
