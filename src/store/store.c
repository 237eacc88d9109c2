/*
 * store.c - joining, threads and tables.
 */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "store/engines.h"

static const char DEFAULT_ENGINE[] = "sherman";

/* A table that this process has open. */
struct shared_table {
    struct list link;
    char name[POOL_NAME_MAX];
    struct engine_table *engine_table;
    unsigned attached; /* threads */
};

struct store {
    struct pool *pool;
    struct engine_config config;
    char *without;

    /* One at a time opens or closes tables; the others wait. */
    struct rt_latch latch;
    bool busy;
    struct rt_waitq free;
    struct list tables;
};

struct store_thread {
    struct store *store;
    struct pool_session *session;
    struct list tables;
};

struct store_table {
    struct list link;
    struct store_thread *thread;
    struct shared_table *shared;
    struct engine *engine;
    unsigned opens;
};

/* ---- the process ----------------------------------------------------------------------------- */

enum pando_status store_open_co(const struct store_options *options, struct store **out,
                                char *error, size_t error_bytes)
{
    struct pool_options pool_options = {
        .memory_nodes = (uint16_t)env_memory_nodes(options->env),
        .name = options->name,
    };
    struct store *store = calloc(1, sizeof(*store));
    if (store != NULL && options->without != NULL)
        store->without = strdup(options->without);
    if (store == NULL || (options->without != NULL && store->without == NULL)) {
        free(store);
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    store->config =
        (struct engine_config){.without = store->without, .cache_bytes = options->cache_bytes};
    rt_waitq_init(&store->free);
    list_init(&store->tables);
    enum pando_status status =
        pool_join_co(options->fabric, &pool_options, &store->pool, error, error_bytes);
    if (status != PANDO_OK) {
        free(store->without);
        free(store);
        return status;
    }
    *out = store;
    return PANDO_OK;
}

void store_close_co(struct store *store)
{
    pando_assert(list_empty(&store->tables));
    pool_leave_co(store->pool);
    free(store->without);
    free(store);
}

static void store_lock_co(struct store *store)
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

static void store_unlock(struct store *store)
{
    rt_latch_lock(&store->latch);
    store->busy = false;
    rt_latch_unlock(&store->latch);
    rt_waitq_wake_one(&store->free);
}

enum pando_status store_thread_open_co(struct store *store, struct store_thread **out)
{
    struct store_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return PANDO_NO_MEMORY;
    thread->store = store;
    list_init(&thread->tables);
    enum pando_status status = pool_session_open_co(store->pool, &thread->session);
    if (status != PANDO_OK) {
        free(thread);
        return status;
    }
    *out = thread;
    return PANDO_OK;
}

static void table_detach_co(struct store_table *table)
{
    struct shared_table *shared = table->shared;
    struct store_thread *thread = table->thread;
    struct store *store = thread->store;

    engine_detach_co(table->engine);
    list_remove(&table->link);
    free(table);
    store_lock_co(store);
    if (--shared->attached == 0) {
        list_remove(&shared->link);
        engine_close_co(shared->engine_table, thread->session);
        free(shared);
    }
    store_unlock(store);
}

void store_thread_close_co(struct store_thread *thread)
{
    while (!list_empty(&thread->tables))
        table_detach_co(container_of(thread->tables.next, struct store_table, link));
    pool_session_close_co(thread->session);
    free(thread);
}

struct pool_session *store_session(struct store_thread *thread)
{
    return thread->session;
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum pando_status store_table_create_co(struct store_thread *thread, const char *name,
                                        const char *engine, const struct engine_shape *shape,
                                        char *error, size_t error_bytes)
{
    const struct engine_ops *ops = store_engine(engine == NULL ? DEFAULT_ENGINE : engine);
    if (ops == NULL) {
        snprintf(error, error_bytes, "no engine is called '%.32s'; there is: %s", engine,
                 store_engine_names());
        return PANDO_INVALID;
    }
    enum pando_status status = engine_create_co(ops, thread->session, name, shape);
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot create the table '%.64s': %s", name,
                 pando_status_text(status));
    return status;
}

static struct store_table *attached_table(struct store_thread *thread, const char *name)
{
    list_for_each (link, &thread->tables) {
        struct store_table *table = container_of(link, struct store_table, link);
        if (strcmp(table->shared->name, name) == 0)
            return table;
    }
    return NULL;
}

/* Under the store's lock. */
static enum pando_status shared_open_co(struct store_thread *thread, const char *name,
                                        struct shared_table **out, char *error, size_t error_bytes)
{
    struct store *store = thread->store;
    struct pool_entry entry;
    unsigned slot;

    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (strcmp(shared->name, name) == 0) {
            *out = shared;
            return PANDO_OK;
        }
    }
    enum pando_status status = pool_table_open_co(thread->session, name, &slot, &entry);
    if (status != PANDO_OK) {
        snprintf(error, error_bytes, "cannot open the table '%.64s': %s", name,
                 pando_status_text(status));
        return status;
    }
    entry.engine[POOL_ENGINE_NAME_MAX - 1] = '\0';
    const struct engine_ops *ops = store_engine(entry.engine);
    if (ops == NULL) {
        snprintf(error, error_bytes, "the table '%.64s' belongs to an engine that is not here: %s",
                 name, entry.engine);
        return PANDO_UNSUPPORTED;
    }
    struct shared_table *shared = calloc(1, sizeof(*shared));
    if (shared == NULL)
        return PANDO_NO_MEMORY;
    snprintf(shared->name, sizeof(shared->name), "%s", name);
    status = engine_open_co(ops, thread->session, name, &store->config, &shared->engine_table,
                            error, error_bytes);
    if (status != PANDO_OK) {
        free(shared);
        return status;
    }
    list_push_back(&store->tables, &shared->link);
    *out = shared;
    return PANDO_OK;
}

static enum pando_status table_attach_co(struct store_thread *thread, const char *name,
                                         struct store_table **out, char *error, size_t error_bytes)
{
    struct shared_table *shared;
    struct store_table *table = calloc(1, sizeof(*table));
    if (table == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = shared_open_co(thread, name, &shared, error, error_bytes);
    if (status == PANDO_OK) {
        shared->attached++;
        status = engine_attach_co(shared->engine_table, thread->session, &table->engine);
        if (status != PANDO_OK && --shared->attached == 0) {
            list_remove(&shared->link);
            engine_close_co(shared->engine_table, thread->session);
            free(shared);
        }
    }
    if (status != PANDO_OK) {
        free(table);
        return status;
    }
    table->thread = thread;
    table->shared = shared;
    list_push_back(&thread->tables, &table->link);
    *out = table;
    return PANDO_OK;
}

enum pando_status store_table_open_co(struct store_thread *thread, const char *name,
                                      struct store_table **out, char *error, size_t error_bytes)
{
    enum pando_status status = PANDO_OK;
    struct store_table *table = attached_table(thread, name);

    if (table == NULL) {
        store_lock_co(thread->store);
        table = attached_table(thread, name); /* another task of this thread may have been first */
        if (table == NULL)
            status = table_attach_co(thread, name, &table, error, error_bytes);
        store_unlock(thread->store);
    }
    if (status != PANDO_OK)
        return status;
    table->opens++;
    *out = table;
    return PANDO_OK;
}

void store_table_close(struct store_table *table)
{
    pando_assert(table->opens > 0);
    table->opens--; /* stays attached until the thread closes: it will be asked for again */
}

enum pando_status store_table_drop_co(struct store_thread *thread, const char *name)
{
    (void)thread;
    (void)name;
    return PANDO_UNSUPPORTED;
}

enum pando_status store_table_list_co(struct store_thread *thread, struct store_table_info *out,
                                      unsigned capacity, unsigned *count)
{
    struct pool_entry *entries = calloc(POOL_TABLES, sizeof(*entries));
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_table_list_co(thread->session, entries, count);
    for (unsigned i = 0; status == PANDO_OK && i < *count && i < capacity; i++) {
        out[i] = (struct store_table_info){.key_max = entries[i].key_max,
                                           .value_inline = entries[i].value_inline};
        snprintf(out[i].name, sizeof(out[i].name), "%.*s", POOL_NAME_MAX - 1, entries[i].name);
        snprintf(out[i].engine, sizeof(out[i].engine), "%.*s", POOL_ENGINE_NAME_MAX - 1,
                 entries[i].engine);
    }
    free(entries);
    return status;
}

const struct engine_shape *store_table_shape(const struct store_table *table)
{
    return engine_table_shape(table->shared->engine_table);
}

/* ---- operations ------------------------------------------------------------------------------ */

enum pando_status store_get_co(struct store_table *table, struct slice key, void *value,
                               size_t capacity, size_t *size)
{
    return engine_get_co(table->engine, key, value, capacity, size);
}

enum pando_status store_put_co(struct store_table *table, struct slice key, struct slice value,
                               enum engine_put mode)
{
    return engine_put_co(table->engine, key, value, mode);
}

enum pando_status store_delete_co(struct store_table *table, struct slice key)
{
    return engine_delete_co(table->engine, key);
}

enum pando_status store_modify_co(struct store_table *table, struct slice key, bool blind,
                                  engine_modify_fn fn, void *context)
{
    return engine_modify_co(table->engine, key, blind, fn, context);
}

enum pando_status store_scan_co(struct store_table *table, const struct engine_range *range,
                                engine_scan_fn fn, void *context)
{
    return engine_scan_co(table->engine, range, fn, context);
}

void store_batch_co(struct store_table *table, struct engine_batch_op *ops, size_t count,
                    unsigned width)
{
    engine_batch_co(table->engine, ops, count, width);
}

enum pando_status store_bulk_load_co(struct store_table *table, engine_feed_fn next, void *context,
                                     unsigned fill)
{
    return engine_bulk_load_co(table->engine, next, context, fill);
}

enum pando_status store_verify_co(struct store_table *table, struct engine_census *out, char *error,
                                  size_t error_bytes)
{
    return engine_verify_co(table->engine, out, error, error_bytes);
}

/* ---- statistics ------------------------------------------------------------------------------ */

void store_counters(const struct store_thread *thread, struct fabric_counters out[FABRIC_TARGETS])
{
    pool_session_counters(thread->session, out);
}

void store_table_stats(const struct store_table *table, struct engine_stats *out)
{
    engine_stats(table->shared->engine_table, out);
}
