/*
 * store.c - joining, threads, and moving a thread from one life of the process to the next.
 */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "store/store_int.h"

/* ---- the process ----------------------------------------------------------------------------- */

static void store_free(struct store *store)
{
    free(store->life);
    free(store->name);
    free(store->without);
    free(store);
}

static struct store *store_create(const struct store_options *options)
{
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return NULL;
    store->life = calloc(1, sizeof(*store->life));
    store->name = strdup(options->name == NULL ? "" : options->name);
    store->without = options->without == NULL ? NULL : strdup(options->without);
    if (store->life == NULL || store->name == NULL ||
        (options->without != NULL && store->without == NULL)) {
        store_free(store);
        return NULL;
    }
    store->fabric = options->fabric;
    store->pool_options =
        (struct pool_options){.memory_nodes = (uint16_t)env_memory_nodes(options->env),
                              .name = store->name,
                              .ending = &store->hurried};
    store->config = (struct engine_config){.without = store->without,
                                           .cache_bytes = options->cache_bytes,
                                           .not_durable = options->not_durable,
                                           .kept = true};
    rt_waitq_init(&store->reborn);
    rt_waitq_init(&store->free);
    rt_waitq_init(&store->wake);
    list_init(&store->tables);
    list_init(&store->former);
    store->life->number = 1;
    atomic_store(&store->life_number, 1);
    return store;
}

bool store_durability_parse(const char *text, bool *not_durable)
{
    *not_durable = strcmp(text, "none") == 0;
    return *not_durable || strcmp(text, "pool") == 0;
}

enum pando_status store_open_co(const struct store_options *options, struct store **out,
                                char *error, size_t error_bytes)
{
    struct store *store = store_create(options);
    if (store == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    enum pando_status status =
        pool_join_co(store->fabric, &store->pool_options, &store->life->pool, error, error_bytes);
    if (status != PANDO_OK) {
        store_free(store);
        return status;
    }
    store->lease_ns = pool_lease_ns(store->life->pool);
    store->pool_options.pool = pool_id(store->life->pool);
    status = store_keeper_start(store);
    if (status != PANDO_OK) {
        snprintf(error, error_bytes, "cannot open a session: %s", pando_status_text(status));
        pool_leave_co(store->life->pool);
        store_free(store);
        return status;
    }
    *out = store;
    return PANDO_OK;
}

void store_close_co(struct store *store)
{
    store_keeper_stop_co(store);
    pando_assert(list_empty(&store->tables) && list_empty(&store->former) &&
                 store->life->threads == 0);
    pool_leave_co(store->life->pool);
    store_free(store);
}

void store_lock_co(struct store *store)
{
    for (;;) {
        rt_latch_lock(&store->latch);
        bool mine = !store->busy;
        store->busy = true;
        rt_latch_unlock(&store->latch);
        if (mine)
            return;
        /* A wake-up between the look and the wait would be missed: look again soon. */
        (void)rt_waitq_wait_co(&store->free, rt_now_ns() + RT_NS_PER_MS);
    }
}

void store_unlock(struct store *store)
{
    rt_latch_lock(&store->latch);
    store->busy = false;
    rt_latch_unlock(&store->latch);
    rt_waitq_wake_one(&store->free);
}

enum pando_status store_reborn_co(struct store *store, uint64_t life_number)
{
    uint64_t deadline_ns = rt_now_ns() + STORE_REJOIN_LEASES * store->lease_ns;
    while (atomic_load(&store->life_number) == life_number) {
        uint64_t now = rt_now_ns();
        if (now > deadline_ns || atomic_load(&store->hurried))
            return PANDO_TIMEOUT;
        store_keeper_nudge(store);
        (void)rt_waitq_wait_co(&store->reborn, now + 10 * RT_NS_PER_MS);
    }
    return PANDO_OK;
}

void store_hurry(struct store *store)
{
    atomic_store(&store->hurried, true);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Opens a session of the current life. */
static enum pando_status session_open_co(struct store_thread *thread)
{
    struct store *store = thread->store;
    store_lock_co(store);
    struct store_life *life = store->life;
    enum pando_status status = pool_session_open_co(life->pool, &thread->session);
    if (status == PANDO_OK && pool_fenced(life->pool)) {
        /* It may have connected in another's name. */
        pool_session_close_co(thread->session);
        status = PANDO_FENCED;
    }
    if (status == PANDO_OK) {
        thread->life = life;
        rt_latch_lock(&store->latch);
        life->threads++;
        rt_latch_unlock(&store->latch);
    } else {
        thread->session = NULL;
    }
    store_unlock(store);
    return status;
}

static void session_close_co(struct store_thread *thread)
{
    struct store *store = thread->store;
    if (thread->session == NULL)
        return;
    list_for_each (link, &thread->tables)
        store_table_detach_co(container_of(link, struct store_table, link));
    pool_session_close_co(thread->session);
    thread->session = NULL;
    rt_latch_lock(&store->latch);
    thread->life->threads--;
    rt_latch_unlock(&store->latch);
    thread->life = NULL;
}

static bool thread_current(const struct store_thread *thread)
{
    return thread->session != NULL && !thread->renewing &&
           thread->life->number ==
               atomic_load_explicit(&thread->store->life_number, memory_order_acquire);
}

/* From a former life to the current one. What runs in the former ends soon: its member is fenced. */
static enum pando_status renew_co(struct store_thread *thread)
{
    thread->renewing = true;
    while (thread->active > 0)
        rt_sleep_co(RT_NS_PER_MS / 4);
    session_close_co(thread);
    enum pando_status status = session_open_co(thread);
    thread->renewing = false;
    return status;
}

enum pando_status store_thread_enter_co(struct store_thread *thread)
{
    for (int tries = 0; !thread_current(thread);) {
        if (thread->renewing) {
            rt_sleep_co(RT_NS_PER_MS / 4); /* another task is at it, in bounded time */
            continue;
        }
        uint64_t life = atomic_load(&thread->store->life_number);
        enum pando_status status = renew_co(thread);
        if (status == PANDO_FENCED && tries++ < STORE_REJOINS_MAX)
            status = store_reborn_co(thread->store, life);
        if (status != PANDO_OK)
            return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
    }
    thread->active++;
    return PANDO_OK;
}

void store_thread_leave(struct store_thread *thread)
{
    pando_dassert(thread->active > 0);
    thread->active--;
}

enum pando_status store_thread_open_co(struct store *store, struct store_thread **out)
{
    struct store_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return PANDO_NO_MEMORY;
    thread->store = store;
    list_init(&thread->tables);
    enum pando_status status = store_thread_enter_co(thread);
    if (status != PANDO_OK) {
        free(thread);
        return status;
    }
    store_thread_leave(thread);
    *out = thread;
    return PANDO_OK;
}

void store_thread_close_co(struct store_thread *thread)
{
    pando_assert(thread->active == 0);
    session_close_co(thread);
    while (!list_empty(&thread->tables)) {
        struct store_table *table = container_of(thread->tables.next, struct store_table, link);
        list_remove(&table->link);
        free(table);
    }
    free(thread);
}

void store_thread_pause(struct store_thread *thread)
{
    pando_dassert(thread->active == 0 && !thread->paused);
    thread->paused = true;
    if (thread->session != NULL)
        pool_session_pause(thread->session);
}

void store_thread_resume(struct store_thread *thread)
{
    thread->paused = false;
    if (thread->session != NULL)
        pool_session_resume(thread->session);
}

struct pool_session *store_session(struct store_thread *thread)
{
    return thread->session;
}

/* ---- statistics ------------------------------------------------------------------------------ */

void store_counters(const struct store_thread *thread, struct fabric_counters out[FABRIC_TARGETS])
{
    memset(out, 0, sizeof(struct fabric_counters) * FABRIC_TARGETS);
    if (thread->session != NULL)
        pool_session_counters(thread->session, out);
}

enum pando_status store_members_co(struct store_thread *thread, struct pool_member *out,
                                   unsigned capacity, unsigned *count)
{
    enum pando_status status = store_thread_enter_co(thread);
    if (status != PANDO_OK)
        return status;
    status = pool_members_co(thread->session, out, capacity, count);
    store_thread_leave(thread);
    return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
}

enum pando_status store_node_stats_co(struct store_thread *thread, uint16_t node,
                                      struct pool_node_stats *out)
{
    enum pando_status status = store_thread_enter_co(thread);
    if (status != PANDO_OK)
        return status;
    status = pool_node_stats_co(thread->session, node, out);
    store_thread_leave(thread);
    return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
}

uint16_t store_memory_nodes(const struct store_thread *thread)
{
    return thread->session == NULL ? 0 : pool_nodes(pool_session_pool(thread->session));
}

enum pando_status store_usage_co(struct store_thread *thread, uint16_t node, struct pool_usage *out)
{
    enum pando_status status = store_thread_enter_co(thread);
    if (status != PANDO_OK)
        return status;
    status = pool_usage_co(thread->session, node, out);
    store_thread_leave(thread);
    return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
}
