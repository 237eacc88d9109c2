#include "store/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "store/env_int.h"

enum { PAGE_BYTES = 4096 };

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

/* A window that was asked for: whether it makes sense, before anything is opened. */
static enum pando_status check_window(const struct env *env, const struct env_options *options,
                                      char *error, size_t error_bytes)
{
    uint64_t bytes = options->window_bytes, free_bytes = rt_memory_free();
    char asked[FORMAT_SIZE_MAX], there[FORMAT_SIZE_MAX];
    bool none = options->peer_listen != NULL && strcmp(options->peer_listen, "none") == 0;
    const char *wrong = NULL;

    if (bytes == 0)
        return PANDO_OK;
    format_size(asked, sizeof(asked), bytes);
    if (bytes < ENV_WINDOW_BYTES_MIN)
        wrong = "is too small; ask for at least 128K, or for none (0)";
    else if (bytes >= FABRIC_DEVICE)
        wrong = "is too large; ask for less than 128T";
    else if (env->uri.kind == URI_EMBEDDED)
        wrong = "is of no use in an embedded pool, which no other process can join; ask for none";
    else if (none && env->uri.kind != URI_SHM)
        wrong = "is of no use to a process that nobody can reach; ask for none, or let others "
                "call this process (--peer-listen)";
    if (wrong != NULL) {
        snprintf(error, error_bytes, "a window of %s %s", asked, wrong);
        return PANDO_INVALID;
    }
    if (env->uri.kind != URI_SIM || bytes <= free_bytes / env->uri.compute)
        return PANDO_OK;
    snprintf(error, error_bytes,
             "%u windows of %s are more than the %s that this machine has free; ask for smaller "
             "ones, or simulate fewer compute nodes",
             env->uri.compute, asked, format_size(there, sizeof(there), free_bytes));
    return PANDO_NO_MEMORY;
}

enum pando_status env_open(const struct env_options *options, struct env **out, char *error,
                           size_t error_bytes)
{
    struct env *env = calloc(1, sizeof(*env));
    if (env == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    env->compute_bytes = options->window_bytes & ~(uint64_t)(PAGE_BYTES - 1);
    enum pando_status status = uri_parse(options->uri, &env->uri, error, error_bytes);
    if (status == PANDO_OK)
        status = check_size(&env->uri, options->uri, error, error_bytes);
    if (status == PANDO_OK)
        status = check_window(env, options, error, error_bytes);
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

uint64_t env_window_bytes(const struct env *env)
{
    return env->compute_bytes;
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
