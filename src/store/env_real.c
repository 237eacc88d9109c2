/*
 * env_real.c - pools on real memory: this process is the only compute node, its threads are real.
 */
#include <stdio.h>

#include "fabric/shm/shm.h"
#include "fabric/tcp/tcp.h"
#include "fabric/verbs/verbs.h"
#include "store/env_int.h"

static enum pando_status open_embedded(struct env *env, char *error, size_t error_bytes)
{
    struct fabric_shm_options shm = {
        .node = 0,
        .target = FABRIC_MEMORY,
        .host_bytes = env->uri.size_bytes,
        .device_bytes = MEMNODE_DEVICE_BYTES,
    };
    struct memnode_options memory = {0};
    enum pando_status status = fabric_shm_open(&shm, &env->fabric, error, error_bytes);
    if (status == PANDO_OK)
        status = memnode_open(env->fabric, &memory, &env->memnode, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    status = fabric_shm_start(env->fabric);
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot start the memory node: %s", pando_status_text(status));
    return status;
}

static enum pando_status add_memory_node(struct env *env, unsigned node, char *error,
                                         size_t error_bytes)
{
    const char *place = env->uri.places[node];
    char path[FABRIC_LOCATION_MAX];

    if (env->uri.kind == URI_SHM) {
        if (fabric_shm_path(place, 0, path, sizeof(path)) != PANDO_OK) {
            snprintf(error, error_bytes,
                     "shm:%s: not a name; use letters, digits, '.', '_' and '-', or a path with a "
                     "'/', for example shm:demo",
                     place);
            return PANDO_INVALID;
        }
        place = path;
    }
    enum pando_status status = fabric_add_peer(env->fabric, (uint16_t)node, FABRIC_MEMORY, place);
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "memory node %u at %s: %s", node, place,
                 pando_status_text(status));
    return status;
}

static enum pando_status open_fabric(struct env *env, const struct env_options *options,
                                     char *error, size_t error_bytes)
{
    struct fabric_tls tls = {.enabled = options->tls,
                             .ca_file = options->tls_ca,
                             .cert_file = options->tls_cert,
                             .key_file = options->tls_key};
    struct fabric_shm_options shm = {.node = FABRIC_NODE_UNKNOWN, .target = FABRIC_COMPUTE};
    struct fabric_tcp_options tcp = {.node = FABRIC_NODE_UNKNOWN,
                                     .target = FABRIC_COMPUTE,
                                     .secret_file = options->secret_file,
                                     .tls = tls};
    struct fabric_verbs_options verbs = {.node = FABRIC_NODE_UNKNOWN,
                                         .target = FABRIC_COMPUTE,
                                         .device = options->verbs,
                                         .secret_file = options->secret_file,
                                         .tls = tls};
    switch (env->uri.kind) {
    case URI_SHM:
        return fabric_shm_open(&shm, &env->fabric, error, error_bytes);
    case URI_VERBS:
        return fabric_verbs_open(&verbs, &env->fabric, error, error_bytes);
    default:
        return fabric_tcp_open(&tcp, &env->fabric, error, error_bytes);
    }
}

static enum pando_status open_client(struct env *env, const struct env_options *options,
                                     char *error, size_t error_bytes)
{
    if (env->compute_bytes > 0) {
        snprintf(error, error_bytes, "a compute node on %s has no window yet",
                 uri_kind_name(env->uri.kind));
        return PANDO_UNSUPPORTED;
    }
    enum pando_status status = open_fabric(env, options, error, error_bytes);
    for (unsigned i = 0; status == PANDO_OK && i < env->uri.memory; i++)
        status = add_memory_node(env, i, error, error_bytes);
    return status;
}

enum pando_status env_real_open(struct env *env, const struct env_options *options, char *error,
                                size_t error_bytes)
{
    if (env->uri.kind == URI_EMBEDDED)
        return open_embedded(env, error, error_bytes);
    return open_client(env, options, error, error_bytes);
}

void env_real_close(struct env *env)
{
    if (env->fabric != NULL)
        fabric_close(env->fabric);
    if (env->memnode != NULL)
        memnode_close(env->memnode);
}

static void job_main(void *arg)
{
    struct env_job *job = arg;
    job->fn(job->context, &job->place);
}

enum pando_status env_real_run(struct env *env, struct env_job *jobs, unsigned threads)
{
    struct rt_thread *started[ENV_THREADS_MAX];
    enum pando_status status = PANDO_OK;
    unsigned count = 0;

    while (status == PANDO_OK && count < threads) {
        char name[24];
        snprintf(name, sizeof(name), "pando-%u", count);
        jobs[count].place.fabric = env->fabric;
        status = rt_thread_start(name, job_main, &jobs[count], &started[count]);
        count += status == PANDO_OK;
    }
    for (unsigned i = 0; i < count; i++)
        rt_thread_join(started[i]);
    return status;
}
