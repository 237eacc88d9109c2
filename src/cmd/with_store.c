#include "cmd/with_store.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

struct job {
    const char *command;
    struct env *env;
    cmd_store_fn fn;
    void *context;
    int result;
};

/* Why the pool cannot be joined, more helpfully where a memory node does not answer. */
static void explain_co(const struct job *job, struct fabric *fabric, enum pando_status status,
                       char *error, size_t error_bytes)
{
    unsigned nodes = env_memory_nodes(job->env);
    if (error[0] == '\0')
        snprintf(error, error_bytes, "%s", pando_status_text(status));
    for (unsigned i = 0; i < nodes; i++) {
        struct fabric_endpoint *endpoint;
        status = fabric_connect_co(fabric, (uint16_t)i, &endpoint);
        if (status != PANDO_OK) {
            env_explain_connect(job->env, i, status, error, error_bytes);
            return;
        }
        fabric_disconnect_co(endpoint);
    }
}

static void job_co(void *context, const struct env_place *place)
{
    struct job *job = context;
    char name[POOL_NAME_MAX], error[512] = "";
    struct store *store;
    struct store_thread *thread;

    if (place->compute_node != 0)
        return;
    snprintf(name, sizeof(name), "pando %s", job->command);
    struct store_options options = {.env = job->env, .fabric = place->fabric, .name = name};
    enum pando_status status = store_open_co(&options, &store, error, sizeof(error));
    if (status != PANDO_OK) {
        explain_co(job, place->fabric, status, error, sizeof(error));
        cmd_error(job->command, "%s", error);
        return;
    }
    status = store_thread_open_co(store, &thread);
    if (status == PANDO_OK) {
        job->result = job->fn(job->context, thread);
        store_thread_close_co(thread);
    } else {
        cmd_error(job->command, "cannot work on the pool: %s", pando_status_text(status));
    }
    store_close_co(store);
}

int cmd_with_store(const char *command, const struct cmd_pool *pool, cmd_store_fn fn, void *context)
{
    int result;
    struct job job = {.command = command, .fn = fn, .context = context, .result = EXIT_FAILED};

    job.env = cmd_pool_open(command, pool, &result);
    if (job.env == NULL)
        return result;
    enum pando_status status = env_run(job.env, 1, job_co, &job);
    if (status != PANDO_OK)
        cmd_error(command, "cannot run: %s", pando_status_text(status));
    env_close(job.env);
    return status == PANDO_OK ? job.result : EXIT_FAILED;
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Set on whichever thread gets the signal, read on others; lock-free, so a handler may. */
static atomic_bool stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = true;
}

void cmd_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool cmd_stopping(void)
{
    return stop_asked;
}
