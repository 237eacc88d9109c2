/*
 * store.c - joining, threads, and moving a thread from one membership of the process to the next.
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
    free(store->membership);
    free(store->drops);
    free(store->name);
    free(store);
}

static struct store *store_create(const struct store_options *options)
{
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return NULL;
    store->membership = calloc(1, sizeof(*store->membership));
    store->name = strdup(options->name == NULL ? "" : options->name);
    if (store->membership == NULL || store->name == NULL) {
        store_free(store);
        return NULL;
    }
    store->fabric = options->fabric;
    store->pool_options =
        (struct pool_options){.memory_nodes = (uint16_t)env_memory_nodes(options->env),
                              .name = store->name,
                              .ending = &store->hurried};
    store->config = (struct engine_config){
        .cache_bytes = options->cache_bytes, .not_durable = options->not_durable, .kept = true};
    rt_waitq_init(&store->rejoined);
    rt_waitq_init(&store->free);
    rt_waitq_init(&store->wake);
    rt_waitq_init(&store->finished);
    list_init(&store->tables);
    list_init(&store->former);
    store->membership->number = 1;
    atomic_store(&store->membership_number, 1);
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
    enum pando_status status = pool_join_co(store->fabric, &store->pool_options,
                                            &store->membership->pool, error, error_bytes);
    if (status != PANDO_OK) {
        store_free(store);
        return status;
    }
    store->lease_ns = pool_lease_ns(store->membership->pool);
    store->pool_options.pool = pool_id(store->membership->pool);
    status = store_keeper_start(store);
    if (status != PANDO_OK) {
        snprintf(error, error_bytes, "cannot open a session: %s", pando_status_text(status));
        pool_leave_co(store->membership->pool);
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
                 store->membership->threads == 0);
    pool_leave_co(store->membership->pool);
    store_free(store);
}

static bool busy(const void *store)
{
    return atomic_load(&((const struct store *)store)->busy);
}

void store_lock_co(struct store *store)
{
    while (atomic_exchange(&store->busy, true))
        (void)rt_waitq_while_co(&store->free, busy, store, RT_NEVER);
}

void store_unlock(struct store *store)
{
    atomic_store(&store->busy, false);
    rt_waitq_wake_one(&store->free); /* whoever takes it then wakes the next */
}

struct membership_wait {
    const struct store *store;
    uint64_t number;
};

static bool awaited(const void *context)
{
    const struct membership_wait *wait = context;
    return atomic_load(&wait->store->membership_number) == wait->number &&
           !atomic_load(&wait->store->hurried);
}

enum pando_status store_await_membership_co(struct store *store, uint64_t membership_number)
{
    uint64_t deadline_ns = rt_now_ns() + STORE_REJOIN_LEASES * store->lease_ns;
    struct membership_wait wait = {store, membership_number};
    if (awaited(&wait)) {
        store_keeper_wake(store);
        (void)rt_waitq_while_co(&store->rejoined, awaited, &wait, deadline_ns);
    }
    return atomic_load(&store->membership_number) == membership_number ? PANDO_TIMEOUT : PANDO_OK;
}

void store_hurry(struct store *store)
{
    atomic_store(&store->hurried, true);
    rt_waitq_wake_all(&store->rejoined);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Opens a session of the current membership. */
static enum pando_status session_open_co(struct store_thread *thread)
{
    struct store *store = thread->store;
    store_lock_co(store);
    struct store_membership *membership = store->membership;
    enum pando_status status = pool_session_open_co(membership->pool, &thread->session);
    if (status == PANDO_OK && pool_fenced(membership->pool)) {
        /* It may have connected in another's name. */
        pool_session_close_co(thread->session);
        status = PANDO_FENCED;
    }
    if (status == PANDO_OK) {
        thread->membership = membership;
        rt_latch_lock(&store->latch);
        membership->threads++;
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
    while (!list_empty(&thread->attached)) {
        struct store_table *table =
            container_of(thread->attached.next, struct store_table, attached_link);
        table->leaving = true; /* it is not freed meanwhile */
        store_table_detach_co(table);
        table->leaving = false;
    }
    pool_session_close_co(thread->session);
    thread->session = NULL;
    rt_latch_lock(&store->latch);
    thread->membership->threads--;
    rt_latch_unlock(&store->latch);
    thread->membership = NULL;
}

static bool thread_current(const struct store_thread *thread)
{
    return thread->session != NULL && !thread->renewing &&
           thread->membership->number ==
               atomic_load_explicit(&thread->store->membership_number, memory_order_acquire);
}

static bool active(const void *thread)
{
    return ((const struct store_thread *)thread)->active > 0;
}

static bool renewing(const void *thread)
{
    return ((const struct store_thread *)thread)->renewing;
}

/* From a former membership to the current one. What runs in the former ends soon: its member is
 * fenced. */
static enum pando_status renew_co(struct store_thread *thread)
{
    thread->renewing = true;
    (void)rt_waitq_while_co(&thread->changed, active, thread, RT_NEVER);
    session_close_co(thread);
    enum pando_status status = session_open_co(thread);
    thread->renewing = false;
    rt_waitq_wake_all(&thread->changed);
    return status;
}

enum pando_status store_thread_enter_co(struct store_thread *thread)
{
    for (int tries = 0; !thread_current(thread);) {
        if (thread->renewing) {
            /* Another task is at it, in bounded time. */
            (void)rt_waitq_while_co(&thread->changed, renewing, thread, RT_NEVER);
            continue;
        }
        uint64_t membership = atomic_load(&thread->store->membership_number);
        enum pando_status status = renew_co(thread);
        if (status == PANDO_FENCED && tries++ < STORE_REJOINS_MAX)
            status = store_await_membership_co(thread->store, membership);
        if (status != PANDO_OK)
            return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
    }
    thread->active++;
    return PANDO_OK;
}

bool store_thread_enter_membership(struct store_thread *thread, uint64_t membership)
{
    if (thread->renewing || thread->session == NULL || thread->membership->number != membership)
        return false;
    thread->active++;
    return true;
}

void store_thread_leave(struct store_thread *thread)
{
    pando_dassert(thread->active > 0);
    if (--thread->active == 0 && thread->renewing)
        rt_waitq_wake_all(&thread->changed);
}

enum pando_status store_thread_open_co(struct store *store, struct store_thread **out)
{
    struct store_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return PANDO_NO_MEMORY;
    thread->store = store;
    rt_waitq_init(&thread->changed);
    list_init(&thread->tables);
    list_init(&thread->attached);
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

enum pando_status store_memory_co(struct store_thread *thread, uint16_t node,
                                  struct store_memory *out)
{
    struct pool_node_stats stats;
    enum pando_status status = store_node_stats_co(thread, node, &stats);
    if (status != PANDO_OK)
        return status;
    out->bytes = stats.chunks * POOL_CHUNK_BYTES;
    out->used_bytes =
        (stats.chunks - stats.chunks_free) * POOL_CHUNK_BYTES - stats.blocks_free_bytes;
    return PANDO_OK;
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
