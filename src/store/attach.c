/*
 * attach.c - opening a table in this process and attaching it to a thread, again in a new
 * membership or after it was idle.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "store/engines.h"
#include "store/store_int.h"

static const uint64_t CACHE_BYTES = UINT64_C(1) << 30; /* of all tables */
static const uint64_t CACHE_BYTES_LEAST = UINT64_C(1) << 20;
enum {
    OPEN_TRIES = 3,
    ATTACHED_MAX = 512,  /* of all threads */
    ATTACHED_LEAST = 48, /* of a thread, whatever others have */
    REFUSALS_MAX =
        4 /* tables that could not be let go of before one more is attached all the same */
};

/* ---- attaching ------------------------------------------------------------------------------- */

/* When nobody has said how much each may have: a quarter of what is left. The first are served best, and
 * many together do not take much more. */
static uint64_t cache_share(const struct store *store)
{
    uint64_t left = store->cache_given < CACHE_BYTES ? CACHE_BYTES - store->cache_given : 0;
    return left / 4 > CACHE_BYTES_LEAST ? left / 4 : CACHE_BYTES_LEAST;
}

/* Opens a table in this membership. The engine looks the name up for itself, so look before and
 * after: it may be another table's by now. Under the store's lock. */
static enum pando_status shared_fill_co(struct store_thread *thread, struct shared_table *shared,
                                        const struct engine_config *config, char *error,
                                        size_t error_bytes)
{
    struct pool_session *session = thread->session;
    struct pool_entry entry, after;
    unsigned slot;

    for (int i = 0; i < OPEN_TRIES; i++) {
        enum pando_status status = pool_table_open_co(session, shared->name, &slot, &entry);
        if (status != PANDO_OK)
            return store_table_explain(status, "open", shared->name, error, error_bytes);
        const struct engine_ops *ops = store_engine(entry.engine);
        if (ops == NULL) {
            snprintf(error, error_bytes,
                     "the table '%.64s' belongs to an engine that is not here, '%s'; use a program "
                     "that has it",
                     shared->name, entry.engine);
            return PANDO_UNSUPPORTED;
        }
        status = engine_open_co(ops, session, shared->name, config, &shared->engine_table, error,
                                error_bytes);
        if (status == PANDO_NOT_FOUND)
            continue;
        if (status != PANDO_OK)
            return status;
        status = pool_table_open_co(session, shared->name, &slot, &after);
        if (status == PANDO_OK && after.table == entry.table) {
            shared->number = entry.table;
            shared->slot = slot;
            return PANDO_OK;
        }
        engine_close_co(shared->engine_table, session);
        if (status != PANDO_OK && status != PANDO_NOT_FOUND)
            return store_table_explain(status, "open", shared->name, error, error_bytes);
    }
    return store_table_explain(PANDO_NOT_FOUND, "open", shared->name, error, error_bytes);
}

/* Under the store's lock. */
static enum pando_status shared_open_co(struct store_thread *thread, const char *name,
                                        struct shared_table **out, char *error, size_t error_bytes)
{
    struct store *store = thread->store;
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (strcmp(shared->name, name) == 0 && shared->membership == thread->membership->number &&
            !atomic_load(&shared->dropped)) {
            *out = shared;
            return PANDO_OK;
        }
    }
    struct shared_table *shared = calloc(1, sizeof(*shared));
    if (shared == NULL)
        return PANDO_NO_MEMORY;
    snprintf(shared->name, sizeof(shared->name), "%s", name);
    shared->membership = thread->membership->number;
    list_init(&shared->attached);
    struct engine_config config = store->config;
    if (config.cache_bytes == 0)
        config.cache_bytes = shared->cache_bytes = cache_share(store);
    enum pando_status status = shared_fill_co(thread, shared, &config, error, error_bytes);
    if (status != PANDO_OK) {
        free(shared);
        return status;
    }
    store->cache_given += shared->cache_bytes;
    rt_latch_lock(&store->latch);
    list_push_back(&store->tables, &shared->link);
    rt_latch_unlock(&store->latch);
    *out = shared;
    return PANDO_OK;
}

/* Under the store's lock. */
static void shared_release_co(struct store_thread *thread, struct shared_table *shared)
{
    struct store *store = thread->store;
    if (!list_empty(&shared->attached))
        return;
    rt_latch_lock(&store->latch);
    list_remove(&shared->link);
    rt_latch_unlock(&store->latch);
    engine_close_co(shared->engine_table, thread->session);
    store->cache_given -= shared->cache_bytes;
    free(shared);
}

/* Attaches a handle in this membership. A table of that name but another number is not the one it
 * was opened for. */
static enum pando_status attach_locked_co(struct store_table *table, char *error,
                                          size_t error_bytes)
{
    struct store_thread *thread = table->thread;
    struct store *store = thread->store;
    struct shared_table *shared;
    enum pando_status status = shared_open_co(thread, table->name, &shared, error, error_bytes);

    if (status == PANDO_NOT_FOUND && table->number != 0)
        table->gone = true;
    if (status != PANDO_OK)
        return status;
    if (table->number != 0 && table->number != shared->number) {
        table->gone = true;
        status = PANDO_NOT_FOUND;
    } else {
        status = engine_attach_co(shared->engine_table, thread->session, &table->engine);
    }
    if (status != PANDO_OK) {
        shared_release_co(thread, shared);
        return status;
    }
    table->shared = shared;
    table->number = shared->number;
    table->shape = store_shape_of(engine_table_shape(shared->engine_table));
    rt_latch_lock(&store->latch);
    list_push_back(&shared->attached, &table->shared_link);
    rt_latch_unlock(&store->latch);
    list_push_back(&thread->attached, &table->attached_link);
    thread->attached_count++;
    atomic_fetch_add(&store->attached, 1);
    table->used = true;
    return PANDO_OK;
}

/* Under the store's lock. The engine's pointer first: an operation that comes now waits for the lock. */
static void detach_locked_co(struct store_table *table)
{
    struct store_thread *thread = table->thread;
    struct store *store = thread->store;
    struct shared_table *shared = table->shared;
    struct engine *engine = table->engine;
    table->engine = NULL;
    table->shared = NULL;
    list_remove(&table->attached_link);
    thread->attached_count--;
    atomic_fetch_sub(&store->attached, 1);
    engine_detach_co(engine);
    rt_latch_lock(&store->latch);
    list_remove(&table->shared_link);
    rt_latch_unlock(&store->latch);
    table->gone |= atomic_load(&shared->dropped);
    shared_release_co(thread, shared);
}

/* ---- idle tables ----------------------------------------------------------------------------- */

static bool idle(const struct store_table *table)
{
    return table->engine != NULL && table->stages == 0 && atomic_load(&table->active) == 0;
}

/* What the engine has of the table in the pool is given back first, while operations still may come: if that
 * cannot be, the table stays attached. Under the store's lock. */
static enum pando_status release_idle_co(struct store_table *table)
{
    struct shared_table *shared = table->shared;
    struct store *store = table->thread->store;
    bool last = list_only(&shared->attached, &table->shared_link);
    if (!last || shared->membership != store->membership->number || atomic_load(&shared->dropped))
        return PANDO_OK;
    return engine_release_co(shared->engine_table, table->thread->session);
}

/* Detaches a table that was not used for a while, unless it is used now; false: it stays. */
static bool detach_idle_co(struct store_table *table)
{
    struct store *store = table->thread->store;
    table->leaving = true; /* it is not freed meanwhile */
    store_lock_co(store);
    bool gone = idle(table) && release_idle_co(table) == PANDO_OK && idle(table);
    if (gone)
        detach_locked_co(table);
    else
        table->used = true;
    store_unlock(store);
    table->leaving = false;
    if (table->opens == 0 && table->stages == 0 && table->shared == NULL &&
        atomic_load(&table->active) == 0) {
        store_handle_remove(table);
        free(table);
    }
    return gone;
}

/* A process has a bounded number of tables attached, so that one with very many has memory for them, here and in
 * the pool: those of this thread that were not used since it last went round are detached, and attached again
 * when they are. */
static void make_room_co(struct store_thread *thread)
{
    struct store *store = thread->store;
    unsigned refused = 0;
    if (!pool_session_whole(thread->session)) /* it could not be finished, and others would wait */
        return;
    for (unsigned left = 2 * thread->attached_count;
         left > 0 && refused < REFUSALS_MAX && thread->attached_count > ATTACHED_LEAST &&
         atomic_load(&store->attached) >= ATTACHED_MAX;
         left--) {
        struct store_table *table =
            container_of(thread->attached.next, struct store_table, attached_link);
        list_remove(&table->attached_link);
        list_push_back(&thread->attached, &table->attached_link);
        if (table->used || table->leaving || !idle(table))
            table->used = false;
        else if (!detach_idle_co(table))
            refused++;
    }
}

/* ---- in and out ------------------------------------------------------------------------------ */

enum pando_status store_table_attach_co(struct store_table *table, char *error, size_t error_bytes)
{
    enum pando_status status = PANDO_OK;
    if (table->engine == NULL)
        make_room_co(table->thread);
    store_lock_co(table->thread->store);
    if (table->engine == NULL) /* another task of this thread may have been first */
        status = attach_locked_co(table, error, error_bytes);
    store_unlock(table->thread->store);
    return status;
}

void store_table_detach_co(struct store_table *table)
{
    struct store *store = table->thread->store;
    if (table->shared == NULL)
        return;
    store_lock_co(store);
    if (table->shared != NULL)
        detach_locked_co(table);
    store_unlock(store);
}

/* Counts an operation in, unless the table was dropped. */
static enum pando_status count_in(struct store_table *table)
{
    /* Partner of keeper.c's quiet. */
    atomic_fetch_add(&table->active, 1);
    table->used = true;
    if (!atomic_load(&table->shared->dropped))
        return PANDO_OK;
    atomic_fetch_sub(&table->active, 1);
    table->gone = true;
    atomic_store(&table->thread->dropped, true);
    return PANDO_NOT_FOUND;
}

/* In the membership that the thread is in, whose number is told. */
static enum pando_status enter_once_co(struct store_table *table, uint64_t *membership)
{
    char error[256];
    *membership = 0;
    if (table->gone)
        return PANDO_NOT_FOUND;
    enum pando_status status = store_thread_enter_co(table->thread);
    if (status != PANDO_OK)
        return status;
    *membership = table->thread->membership->number;
    if (table->engine == NULL)
        status = store_table_attach_co(table, error, sizeof(error));
    if (status == PANDO_OK)
        status = count_in(table);
    if (status != PANDO_OK)
        store_thread_leave(table->thread);
    return status;
}

/* To attach changes nothing: it is done again in the next membership. */
enum pando_status store_table_enter_co(struct store_table *table)
{
    uint64_t membership;
    enum pando_status status = enter_once_co(table, &membership);
    for (int i = 0; i < STORE_REJOINS_MAX && status == PANDO_FENCED && membership != 0; i++) {
        status = store_await_membership_co(table->thread->store, membership);
        if (status == PANDO_OK)
            status = enter_once_co(table, &membership);
    }
    return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
}

enum pando_status store_table_enter_membership(struct store_table *table, uint64_t membership)
{
    if (table->gone)
        return PANDO_NOT_FOUND;
    if (!store_thread_enter_membership(table->thread, membership))
        return PANDO_TIMEOUT;
    enum pando_status status = table->engine == NULL ? PANDO_TIMEOUT : count_in(table);
    if (status != PANDO_OK)
        store_thread_leave(table->thread);
    return status;
}

void store_table_leave(struct store_table *table)
{
    atomic_fetch_sub_explicit(&table->active, 1, memory_order_release);
    store_thread_leave(table->thread);
}
