#include "store/env.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/parse.h"
#include "store/env_int.h"

/* Pools that are made here have to be large enough for what they hold. */
static enum pando_status check_size(const struct uri *uri, const char *text, char *error,
                                    size_t error_bytes)
{
    char least[FORMAT_SIZE_MAX];
    if (uri->kind != URI_EMBEDDED && uri->kind != URI_SIM)
        return PANDO_OK;
    if (uri->size_bytes >= FABRIC_DEVICE) {
        snprintf(error, error_bytes,
                 "pool '%.*s': too large for one memory node; use less than 128T", URI_SHOWN_MAX,
                 text);
        return PANDO_INVALID;
    }
    if (uri->size_bytes >= memnode_bytes_min())
        return PANDO_OK;
    format_size(least, sizeof(least), memnode_bytes_min());
    snprintf(error, error_bytes, "pool '%.*s': too small; a memory node needs at least %s",
             URI_SHOWN_MAX, text, least);
    return PANDO_INVALID;
}

enum pando_status env_open(const struct env_options *options, struct env **out, char *error,
                           size_t error_bytes)
{
    struct env *env = calloc(1, sizeof(*env));
    if (env == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    env->compute_bytes = options->window_bytes;
    enum pando_status status = uri_parse(options->uri, &env->uri, error, error_bytes);
    if (status == PANDO_OK)
        status = check_size(&env->uri, options->uri, error, error_bytes);
    if (status != PANDO_OK) {
        free(env);
        return status;
    }
    env->uri.size_bytes &= ~(uint64_t)7;
    if (env->uri.kind == URI_SIM)
        status = env_sim_open(env, error, error_bytes);
    else
        status = env_real_open(env, options, error, error_bytes);
    if (status != PANDO_OK) {
        env_close(env);
        return status;
    }
    *out = env;
    return PANDO_OK;
}

void env_close(struct env *env)
{
    if (env->uri.kind == URI_SIM)
        env_sim_close(env);
    else
        env_real_close(env);
    free(env);
}

unsigned env_memory_nodes(const struct env *env)
{
    return env->uri.memory;
}

unsigned env_compute_nodes(const struct env *env)
{
    return env->uri.compute;
}

bool env_simulated(const struct env *env)
{
    return env->uri.kind == URI_SIM;
}

struct fabric *env_fabric(const struct env *env)
{
    return env->fabric;
}

enum pando_status env_reload(struct env *env, char *text, size_t text_bytes)
{
    return env->fabric == NULL ? PANDO_UNSUPPORTED : fabric_reload(env->fabric, text, text_bytes);
}

const char *env_kind(const struct env *env)
{
    return uri_kind_name(env->uri.kind);
}

const char *env_memory_place(const struct env *env, unsigned node)
{
    bool inside = env->uri.kind == URI_EMBEDDED || env->uri.kind == URI_SIM;
    return inside ? "this process" : env->uri.places[node];
}

enum pando_status env_run(struct env *env, unsigned threads, env_fn fn, void *context)
{
    if (threads == 0 || threads > ENV_THREADS_MAX)
        return PANDO_INVALID;
    struct env_job *jobs = calloc((size_t)env->uri.compute * threads, sizeof(*jobs));
    if (jobs == NULL)
        return PANDO_NO_MEMORY;
    for (unsigned i = 0; i < env->uri.compute * threads; i++) {
        jobs[i] = (struct env_job){
            .place = {.env = env, .compute_node = i / threads, .thread = i % threads},
            .fn = fn,
            .context = context,
        };
    }
    enum pando_status status = env->uri.kind == URI_SIM ? env_sim_run(env, jobs, threads)
                                                        : env_real_run(env, jobs, threads);
    free(jobs);
    return status;
}

uint64_t env_virtual_ns(const struct env *env)
{
    return env->virtual_ns;
}
