/*
 * pool.c - opening and closing a pool, and the thread that keeps the process its member.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pando_int.h"

const char *pando_version(void)
{
    return PANDO_RELEASE;
}

void pando_free(void *memory)
{
    free(memory);
}

/* ---- the member's thread --------------------------------------------------------------------- */

/* Lies on the opener's stack until the pool is open, or is not. */
struct opening {
    struct pando_pool *pool;
    const struct pando_options *options;
    struct rt_countdown done;
    enum pando_status status;
    char *error;
    size_t error_bytes;
};

static void member_main(void *arg)
{
    struct opening *opening = arg;
    struct pando_pool *pool = opening->pool;
    struct store_options options = {
        .env = pool->env,
        .fabric = env_fabric(pool->env),
        .name = opening->options->name == NULL ? "libpando" : opening->options->name,
        .cache_bytes = opening->options->cache_bytes,
    };
    if (opening->options->durability != NULL) /* looked at before */
        (void)store_durability_parse(opening->options->durability, &options.not_durable);
    pool->main_task = rt_task_self();
    enum pando_status status =
        store_open_co(&options, &pool->store, opening->error, opening->error_bytes);
    opening->status = status;
    rt_countdown_done(&opening->done); /* and `opening` is gone */
    if (status != PANDO_OK)
        return;
    while (!atomic_load(&pool->closing))
        (void)rt_park_co(RT_NEVER);
    store_close_co(pool->store);
}

/* On a task of the opener's, which waits here. */
static void open_task(void *arg)
{
    struct opening *opening = arg;
    struct pando_pool *pool = opening->pool;
    rt_countdown_init(&opening->done, 1);
    enum pando_status status = rt_thread_start("pando", member_main, opening, &pool->thread);
    if (status != PANDO_OK) {
        pool->thread = NULL;
        opening->status = status;
        snprintf(opening->error, opening->error_bytes, "cannot start a thread");
        return;
    }
    rt_countdown_wait_co(&opening->done);
}

static enum pando_status member_start(struct opening *opening)
{
    struct pando_pool *pool = opening->pool;
    struct rt_loop *loop = rt_loop_create();
    if (loop == NULL || rt_loop_call(loop, open_task, opening) != PANDO_OK) {
        if (loop != NULL)
            rt_loop_destroy(loop);
        snprintf(opening->error, opening->error_bytes, "out of memory or file descriptors");
        return PANDO_NO_MEMORY;
    }
    rt_loop_destroy(loop);
    if (opening->status != PANDO_OK && pool->thread != NULL)
        rt_thread_join(pool->thread);
    return opening->status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum pando_status world_open(struct pando_pool *pool, const struct pando_options *options,
                                    char *error, size_t error_bytes)
{
    struct env_options env = {
        .uri = options->uri,
        .secret_file = options->secret_file,
        .verbs = options->verbs,
        .require_tls = options->tls != 0,
        .insecure_tcp = options->insecure_tcp != 0,
        .tls_ca = options->tls_ca,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .peer_listen = options->peer_listen,
        .peer_advertise = options->peer_advertise,
        .window_bytes = options->window_bytes,
    };
    if (strncmp(options->uri, "sim:", 4) == 0) {
        snprintf(
            error, error_bytes,
            "a simulated pool has no real memory; use embedded:SIZE, shm:NAME, tcp:HOST:PORT or "
            "verbs:HOST:PORT");
        return PANDO_INVALID;
    }
    return env_open(&env, &pool->env, error, error_bytes);
}

static void pool_free(struct pando_pool *pool)
{
    if (pool->contexts != NULL)
        rt_local_destroy(pool->contexts);
    if (pool->failures != NULL)
        rt_local_destroy(pool->failures);
    if (pool->env != NULL)
        env_close(pool->env);
    free(pool);
}

static enum pando_status open_checked(const struct pando_options *options, struct pando_pool **out,
                                      char *error, size_t error_bytes)
{
    struct pando_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    list_init(&pool->context_list);
    pool->contexts = rt_local_create(contexts_destroy);
    pool->failures = rt_local_create(free);
    pool->forks = rt_forks();
    struct opening opening = {
        .pool = pool, .options = options, .error = error, .error_bytes = error_bytes};
    enum pando_status status =
        pool->contexts == NULL || pool->failures == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    if (status == PANDO_OK)
        status = world_open(pool, options, error, error_bytes);
    if (status == PANDO_OK)
        status = member_start(&opening);
    if (status != PANDO_OK) {
        if (error[0] == '\0')
            snprintf(error, error_bytes, "cannot open the pool %.128s: %s", options->uri,
                     pando_status_text(status));
        pool_free(pool);
        return status;
    }
    error[0] = '\0';
    *rt_local_note() = NULL; /* nothing has failed on this one */
    *out = pool;
    return PANDO_OK;
}

enum pando_status pando_open(const struct pando_options *given, struct pando_pool **out,
                             char *error, size_t error_bytes)
{
    struct pando_options options = {0};
    char unwanted[256];
    if (error == NULL || error_bytes == 0) {
        error = unwanted;
        error_bytes = sizeof(unwanted);
    }
    error[0] = '\0';
    if (given == NULL || out == NULL || given->size < offsetof(struct pando_options, secret_file) ||
        rt_loop_self() != NULL) {
        snprintf(error, error_bytes,
                 "options without their size, no options, or called from inside "
                 "a callback; see pando.h");
        return PANDO_INVALID;
    }
    STRUCT_TAKEN(options, given);
    if (options.uri == NULL) {
        snprintf(error, error_bytes, "no pool was named; set uri, for example to embedded:256M");
        return PANDO_INVALID;
    }
    bool not_durable;
    if (options.durability != NULL && !store_durability_parse(options.durability, &not_durable)) {
        snprintf(error, error_bytes, "durability '%.32s' is neither pool nor none",
                 options.durability);
        return PANDO_INVALID;
    }
    return open_checked(&options, out, error, error_bytes);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* What is still open, and other threads inside a call. */
struct use {
    unsigned tables, iterators, queues, writers, calls;
};

static struct use use_of(struct pando_pool *pool)
{
    rt_latch_lock(&pool->latch);
    struct use use = {
        .iterators = pool->iterators, .queues = pool->queues, .writers = pool->writers};
    for (unsigned i = 0; i < PANDO_TABLES_MAX; i++)
        use.tables += pool->tables[i] != NULL;
    list_for_each (link, &pool->context_list)
        use.calls += atomic_load(&container_of(link, struct context, link)->inside);
    rt_latch_unlock(&pool->latch);
    return use;
}

enum pando_status pando_close(struct pando_pool *pool)
{
    if (pool == NULL)
        return PANDO_OK;
    enum pando_status status = pool_usable(pool, NO_POOL("pando_close"));
    if (status != PANDO_OK)
        return status;
    struct use use = use_of(pool);
    if (use.tables + use.iterators + use.queues + use.writers + use.calls > 0)
        return failure_say(pool, PANDO_BUSY,
                           "cannot close the pool: %u tables, %u iterators, %u queues and %u "
                           "writers are open, and %u threads inside a call; close them first",
                           use.tables, use.iterators, use.queues, use.writers, use.calls);
    /* The contexts first: the store is closed without threads. */
    rt_local_destroy(pool->contexts);
    pool->contexts = NULL;
    atomic_store(&pool->closing, true);
    rt_unpark(pool->main_task);
    rt_thread_join(pool->thread);
    pool_free(pool);
    return PANDO_OK;
}
