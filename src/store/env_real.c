/*
 * env_real.c - pools on real memory: this process is the only compute node, its threads are real.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fabric/shm/shm.h"
#include "fabric/stream/stream.h"
#include "fabric/tcp/tcp.h"
#include "fabric/verbs/verbs.h"
#include "store/engines.h"
#include "store/env_int.h"

enum { COMPUTE_BYTES_MIN = 64 * 1024 }; /* a window for calls and fences alone */

static enum pando_status open_embedded(struct env *env, char *error, size_t error_bytes)
{
    struct fabric_shm_options shm = {
        .node = 0,
        .target = FABRIC_MEMORY,
        .host_bytes = env->uri.size_bytes,
        .device_bytes = MEMNODE_DEVICE_BYTES,
    };
    struct memnode_options memory = {.work = store_memory_pushdown, .level_at = store_level_at};
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

/* ---- being called ---------------------------------------------------------------------------- */

/* Where this process is to be found by other members, if it is. */
struct callable {
    bool wanted;                     /* by the options: by name, or for its window */
    char place[FABRIC_LOCATION_MAX]; /* "": nowhere */
    const char *advertise;
};

static enum pando_status callable_of(const struct env *env, const struct env_options *options,
                                     struct callable *out, char *error, size_t error_bytes)
{
    const char *listen = options->peer_listen;
    bool none = options->no_member || (listen != NULL && strcmp(listen, "none") == 0);
    enum pando_status status = PANDO_OK;

    *out = (struct callable){.advertise = options->peer_advertise};
    if (none)
        return PANDO_OK;
    if (env->uri.kind == URI_SHM) {
        status = fabric_shm_path_temporary(out->place, sizeof(out->place));
    } else if (listen != NULL) {
        if (strlen(listen) >= sizeof(out->place)) {
            snprintf(error, error_bytes, "--peer-listen: no such address");
            return PANDO_INVALID;
        }
        out->wanted = true;
        memcpy(out->place, listen, strlen(listen) + 1);
    } else {
        status = socket_route(env->uri.places[0], out->place, sizeof(out->place));
    }
    if (status != PANDO_OK)
        out->place[0] = '\0';
    if (env->compute_bytes == 0)
        return PANDO_OK;
    out->wanted = true;
    if (status == PANDO_OK)
        return PANDO_OK;
    snprintf(error, error_bytes, "no place for a window that others can reach: %s",
             env->uri.kind == URI_SHM
                 ? "/dev/shm is not to be written"
                 : "no way leads to memory node 0; say where with --peer-listen");
    return status;
}

/* ---- the fabric ------------------------------------------------------------------------------ */

static enum pando_status open_fabric(struct env *env, const struct env_options *options,
                                     const struct callable *callable, char *error,
                                     size_t error_bytes)
{
    bool window = callable->place[0] != '\0';
    const char *place = window ? callable->place : NULL;
    uint64_t bytes = !window                                  ? 0
                     : env->compute_bytes > COMPUTE_BYTES_MIN ? env->compute_bytes
                                                              : COMPUTE_BYTES_MIN;
    struct fabric_tls tls = {.required = options->require_tls,
                             .insecure = options->insecure_tcp,
                             .ca_file = options->tls_ca,
                             .cert_file = options->tls_cert,
                             .key_file = options->tls_key};
    struct fabric_shm_options shm = {.node = FABRIC_NODE_UNKNOWN,
                                     .target = FABRIC_COMPUTE,
                                     .path = place,
                                     .temporary = true,
                                     .reserved = env->compute_bytes > 0,
                                     .host_bytes = bytes};
    struct fabric_socket_options sockets = {.node = FABRIC_NODE_UNKNOWN,
                                            .target = FABRIC_COMPUTE,
                                            .device = options->verbs,
                                            .listen = place,
                                            .advertise = callable->advertise,
                                            .secret_file = options->secret_file,
                                            .tls = tls,
                                            .window_reserved = env->compute_bytes > 0,
                                            .host_bytes = bytes};
    switch (env->uri.kind) {
    case URI_SHM:
        return fabric_shm_open(&shm, &env->fabric, error, error_bytes);
    case URI_VERBS:
        return fabric_verbs_open(&sockets, &env->fabric, error, error_bytes);
    default:
        return fabric_tcp_open(&sockets, &env->fabric, error, error_bytes);
    }
}

static enum pando_status start_fabric(struct env *env, char *error, size_t error_bytes)
{
    enum pando_status status = env->uri.kind == URI_SHM     ? fabric_shm_start(env->fabric)
                               : env->uri.kind == URI_VERBS ? fabric_verbs_start(env->fabric)
                                                            : fabric_tcp_start(env->fabric);
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot start a thread for calls of other members: %s",
                 pando_status_text(status));
    return status;
}

static enum pando_status open_client(struct env *env, const struct env_options *options,
                                     char *error, size_t error_bytes)
{
    struct callable callable;
    if (options->tls_cert != NULL && options->tls_ca == NULL) {
        snprintf(error, error_bytes, "TLS needs --tls-ca to know which servers to trust");
        return PANDO_INVALID;
    }
    enum pando_status status = callable_of(env, options, &callable, error, error_bytes);
    if (status == PANDO_OK)
        status = open_fabric(env, options, &callable, error, error_bytes);
    /* Nobody asked for it by name: do without. Whatever else is wrong goes wrong again. */
    if (status != PANDO_OK && callable.place[0] != '\0' && !callable.wanted) {
        log_info("other members cannot call this one", log_text("why", error));
        callable.place[0] = '\0';
        status = open_fabric(env, options, &callable, error, error_bytes);
    }
    for (unsigned i = 0; status == PANDO_OK && i < env->uri.memory; i++)
        status = add_memory_node(env, i, error, error_bytes);
    return status == PANDO_OK ? start_fabric(env, error, error_bytes) : status;
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

/* Jobs wait for one another: none begins before all threads are there, or ever, if one cannot be had. */
struct gate {
    struct rt_waitq waiting;
    atomic_bool open, shut;
};

struct gated_job {
    struct env_job *job;
    struct gate *gate;
};

static bool undecided(const void *context)
{
    const struct gate *gate = context;
    return !atomic_load(&gate->open) && !atomic_load(&gate->shut);
}

static void job_main(void *arg)
{
    const struct gated_job *gated = arg;
    struct env_job *job = gated->job;
    (void)rt_waitq_while_co(&gated->gate->waiting, undecided, gated->gate, RT_NEVER);
    if (atomic_load(&gated->gate->open))
        job->fn(job->context, &job->place);
}

enum pando_status env_real_run(struct env *env, struct env_job *jobs, unsigned threads)
{
    struct rt_thread *started[ENV_THREADS_MAX];
    struct gated_job gated[ENV_THREADS_MAX];
    struct gate gate = {0};
    enum pando_status status = PANDO_OK;
    unsigned count = 0;

    rt_waitq_init(&gate.waiting);
    while (status == PANDO_OK && count < threads) {
        char name[24];
        snprintf(name, sizeof(name), "pando-%u", count);
        jobs[count].place.fabric = env->fabric;
        gated[count] = (struct gated_job){&jobs[count], &gate};
        status = rt_thread_start(name, job_main, &gated[count], &started[count]);
        count += status == PANDO_OK;
    }
    atomic_store(status == PANDO_OK ? &gate.open : &gate.shut, true);
    rt_waitq_wake_all(&gate.waiting);
    for (unsigned i = 0; i < count; i++)
        rt_thread_join(started[i]);
    return status;
}
