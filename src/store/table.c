/*
 * table.c - tables by name: creating, opening, attaching again in a new life, dropping.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "store/engines.h"
#include "store/store_int.h"

static const uint64_t CACHE_BYTES = UINT64_C(1) << 30; /* of all tables */
static const uint64_t CACHE_BYTES_LEAST = UINT64_C(4) << 20;
static const uint64_t DROP_WAIT_NS = 30 * RT_NS_PER_S;
static const uint64_t DROP_LOOK_NS = 2 * RT_NS_PER_MS;
enum { OPEN_TRIES = 3 };

static bool name_ok(const char *name)
{
    return name[0] != '#' && name[0] != '\0' && strlen(name) < POOL_NAME_MAX;
}

static enum pando_status explain(enum pando_status status, const char *what, const char *name,
                                 char *error, size_t error_bytes)
{
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot %s the table '%.64s': %s", what, name,
                 pando_status_text(status));
    return status;
}

/* Something done in the session, again in the next life if this one ended before it was done. */
typedef enum pando_status (*thread_fn)(struct store_thread *thread, void *context);

static enum pando_status in_session_co(struct store_thread *thread, thread_fn fn, void *context)
{
    for (int i = 0; i < STORE_REJOINS_MAX; i++) {
        enum pando_status status = store_thread_enter_co(thread);
        if (status != PANDO_OK)
            return status;
        uint64_t life = thread->life->number;
        status = fn(thread, context);
        store_thread_leave(thread);
        if (status != PANDO_FENCED)
            return status;
        status = store_reborn_co(thread->store, life);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_TIMEOUT;
}

/* ---- creating -------------------------------------------------------------------------------- */

struct creation {
    const struct engine_ops *ops;
    const char *name;
    const struct engine_shape *shape;
    bool begun; /* in a former life: EXISTS may be our own doing */
};

static enum pando_status create_co(struct store_thread *thread, void *context)
{
    struct creation *creation = context;
    const struct engine_ops *ops = creation->ops;
    if (ops == NULL)
        ops = store_default_engine(pool_session_pool(thread->session));
    /* Under the lock the keeper does not speak: a table that is dropped while it is being created is
     * not freed before we are done with it. */
    store_lock_co(thread->store);
    enum pando_status status =
        engine_create_co(ops, thread->session, creation->name, creation->shape);
    store_unlock(thread->store);
    if (status == PANDO_EXISTS && creation->begun)
        return PANDO_UNKNOWN;
    creation->begun |= status == PANDO_FENCED;
    return status;
}

enum pando_status store_table_create_co(struct store_thread *thread, const char *name,
                                        const char *engine, const struct engine_shape *shape,
                                        char *error, size_t error_bytes)
{
    struct creation creation = {
        .ops = engine != NULL ? store_engine(engine) : NULL, .name = name, .shape = shape};
    if (engine != NULL && creation.ops == NULL) {
        snprintf(error, error_bytes, "no engine is called '%.32s'; there is: %s", engine,
                 store_engine_names());
        return PANDO_INVALID;
    }
    if (!name_ok(name)) {
        snprintf(error, error_bytes,
                 "'%.64s' is no table's name; use 1 to %d bytes that do not begin with '#'", name,
                 POOL_NAME_MAX - 1);
        return PANDO_INVALID;
    }
    return explain(in_session_co(thread, create_co, &creation), "create", name, error, error_bytes);
}

/* ---- attaching ------------------------------------------------------------------------------- */

/* When nobody has said how much each may have: a quarter of what is left. The first are served best, and
 * many together do not take much more. */
static uint64_t cache_share(const struct store *store)
{
    uint64_t left = store->cache_given < CACHE_BYTES ? CACHE_BYTES - store->cache_given : 0;
    return left / 4 > CACHE_BYTES_LEAST ? left / 4 : CACHE_BYTES_LEAST;
}

/* Opens a table in this life. The engine looks the name up for itself, so look before and after: it
 * may be another table's by now. Under the store's lock. */
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
            return explain(status, "open", shared->name, error, error_bytes);
        const struct engine_ops *ops = store_engine(entry.engine);
        if (ops == NULL) {
            snprintf(error, error_bytes,
                     "the table '%.64s' belongs to an engine that is not here: %s", shared->name,
                     entry.engine);
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
            return PANDO_OK;
        }
        engine_close_co(shared->engine_table, session);
        if (status != PANDO_OK && status != PANDO_NOT_FOUND)
            return explain(status, "open", shared->name, error, error_bytes);
    }
    return explain(PANDO_NOT_FOUND, "open", shared->name, error, error_bytes);
}

/* Under the store's lock. */
static enum pando_status shared_open_co(struct store_thread *thread, const char *name,
                                        struct shared_table **out, char *error, size_t error_bytes)
{
    struct store *store = thread->store;
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (strcmp(shared->name, name) == 0 && shared->life == thread->life->number &&
            !atomic_load(&shared->dropped)) {
            *out = shared;
            return PANDO_OK;
        }
    }
    struct shared_table *shared = calloc(1, sizeof(*shared));
    if (shared == NULL)
        return PANDO_NO_MEMORY;
    snprintf(shared->name, sizeof(shared->name), "%s", name);
    shared->life = thread->life->number;
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

/* Attaches a handle in this life. A table of that name but another number is not the one it was
 * opened for. */
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
    table->shape = *engine_table_shape(shared->engine_table);
    rt_latch_lock(&store->latch);
    list_push_back(&shared->attached, &table->shared_link);
    rt_latch_unlock(&store->latch);
    return PANDO_OK;
}

static enum pando_status attach_co(struct store_table *table, char *error, size_t error_bytes)
{
    enum pando_status status = PANDO_OK;
    store_lock_co(table->thread->store);
    if (table->engine == NULL) /* another task of this thread may have been first */
        status = attach_locked_co(table, error, error_bytes);
    store_unlock(table->thread->store);
    return status;
}

void store_table_detach_co(struct store_table *table)
{
    struct store_thread *thread = table->thread;
    struct store *store = thread->store;
    struct shared_table *shared = table->shared;
    if (shared == NULL)
        return;
    engine_detach_co(table->engine);
    table->engine = NULL;
    table->shared = NULL;
    store_lock_co(store);
    rt_latch_lock(&store->latch);
    list_remove(&table->shared_link);
    rt_latch_unlock(&store->latch);
    table->gone |= atomic_load(&shared->dropped);
    shared_release_co(thread, shared);
    store_unlock(store);
}

enum pando_status store_table_enter_co(struct store_table *table)
{
    char error[256];
    if (table->gone)
        return PANDO_NOT_FOUND;
    enum pando_status status = store_thread_enter_co(table->thread);
    if (status != PANDO_OK)
        return status;
    if (table->engine == NULL)
        status = attach_co(table, error, sizeof(error));
    if (status == PANDO_OK) {
        /* Partner of keeper.c's quiet. */
        atomic_fetch_add(&table->active, 1);
        if (!atomic_load(&table->shared->dropped))
            return PANDO_OK;
        atomic_fetch_sub(&table->active, 1);
        table->gone = true;
        status = PANDO_NOT_FOUND;
    }
    store_thread_leave(table->thread);
    return status;
}

void store_table_leave(struct store_table *table)
{
    atomic_fetch_sub_explicit(&table->active, 1, memory_order_release);
    store_thread_leave(table->thread);
}

/* ---- opening --------------------------------------------------------------------------------- */

static struct store_table *handle_of(struct store_thread *thread, const char *name)
{
    list_for_each (link, &thread->tables) {
        struct store_table *table = container_of(link, struct store_table, link);
        if (strcmp(table->name, name) == 0 && !store_table_dropped(table))
            return table;
    }
    return NULL;
}

/* Handles that nobody has and that are good for nothing. */
static void sweep_handles_co(struct store_thread *thread)
{
    list_for_each_safe (link, &thread->tables) {
        struct store_table *table = container_of(link, struct store_table, link);
        if (table->opens > 0 || atomic_load(&table->active) > 0 || !store_table_dropped(table))
            continue;
        list_remove(&table->link); /* first: nobody finds it while this suspends */
        store_table_detach_co(table);
        free(table);
        return; /* the list may have changed; the next open takes the next */
    }
}

struct opening {
    struct store_table *table;
    char *error;
    size_t error_bytes;
};

static enum pando_status open_co(struct store_thread *thread, void *context)
{
    struct opening *opening = context;
    sweep_handles_co(thread);
    return attach_co(opening->table, opening->error, opening->error_bytes);
}

enum pando_status store_table_open_co(struct store_thread *thread, const char *name,
                                      struct store_table **out, char *error, size_t error_bytes)
{
    struct store_table *table = handle_of(thread, name);
    if (table != NULL) {
        table->opens++;
        enum pando_status status = store_table_enter_co(table);
        if (status == PANDO_OK) {
            store_table_leave(table);
            *out = table;
            return PANDO_OK;
        }
        table->opens--;
        if (status != PANDO_NOT_FOUND)
            return explain(status, "open", name, error, error_bytes);
    }
    if (!name_ok(name))
        return explain(PANDO_NOT_FOUND, "open", name, error, error_bytes);
    table = calloc(1, sizeof(*table));
    if (table == NULL)
        return PANDO_NO_MEMORY;
    table->thread = thread;
    snprintf(table->name, sizeof(table->name), "%s", name);
    list_init(&table->shared_link);
    struct opening opening = {.table = table, .error = error, .error_bytes = error_bytes};
    if (error_bytes > 0)
        error[0] = '\0';
    enum pando_status status = in_session_co(thread, open_co, &opening);
    if (status != PANDO_OK) {
        free(table);
        /* Of a damaged table its engine knows more. */
        return status == PANDO_CORRUPT && error_bytes > 0 && error[0] != '\0'
                   ? status
                   : explain(status, "open", name, error, error_bytes);
    }
    table->opens = 1;
    list_push_back(&thread->tables, &table->link);
    *out = table;
    return PANDO_OK;
}

void store_table_close(struct store_table *table)
{
    pando_assert(table->opens > 0);
    table->opens--; /* stays attached until the thread closes: it will be asked for again */
}

/* ---- dropping -------------------------------------------------------------------------------- */

struct drop {
    const char *name;
    bool tried, marked;
    unsigned slot;
    uint64_t number;
    bool freed;
};

static enum pando_status mark_co(struct store_thread *thread, void *context)
{
    struct drop *drop = context;
    enum pando_status status =
        pool_table_mark_co(thread->session, drop->name, &drop->slot, &drop->number);
    /* An earlier try, cut off, may have been ours. */
    if (status == PANDO_NOT_FOUND && drop->tried) {
        drop->freed = true;
        return PANDO_OK;
    }
    drop->tried |= status == PANDO_FENCED;
    if (status == PANDO_OK) {
        uint64_t drops;
        enum pando_status told = pool_drops_add_co(thread->session, &drops);
        (void)told; /* whoever frees it tells again: this is for the keepers to hear of it now */
    }
    return status;
}

static enum pando_status look_co(struct store_thread *thread, void *context)
{
    struct drop *drop = context;
    struct pool_entry *entries = malloc(POOL_TABLES * sizeof(*entries));
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_directory_co(thread->session, entries);
    if (status == PANDO_OK) {
        const struct pool_entry *entry = &entries[drop->slot];
        drop->freed = entry->table != drop->number || !pool_entry_dropping(entry->state);
    }
    free(entries);
    return status;
}

enum pando_status store_table_drop_co(struct store_thread *thread, const char *name)
{
    struct drop drop = {.name = name};
    enum pando_status status =
        name_ok(name) ? in_session_co(thread, mark_co, &drop) : PANDO_NOT_FOUND;
    uint64_t deadline_ns = rt_now_ns() + DROP_WAIT_NS;
    uint64_t pause_ns = DROP_LOOK_NS;

    /* The keeper does the rest. */
    store_keeper_nudge(thread->store);
    while (status == PANDO_OK && !drop.freed) {
        if (rt_now_ns() > deadline_ns)
            return PANDO_TIMEOUT;
        rt_sleep_co(pause_ns);
        pause_ns = pause_ns < 32 * DROP_LOOK_NS ? pause_ns * 2 : pause_ns;
        status = in_session_co(thread, look_co, &drop);
        if (status == PANDO_BROKEN)
            status = PANDO_OK;
    }
    return status;
}

/* ---- what there is --------------------------------------------------------------------------- */

struct listing {
    struct pool_entry *entries;
    unsigned count;
};

static enum pando_status list_co(struct store_thread *thread, void *context)
{
    struct listing *listing = context;
    return pool_table_list_co(thread->session, listing->entries, &listing->count);
}

enum pando_status store_table_list_co(struct store_thread *thread, struct store_table_info *out,
                                      unsigned capacity, unsigned *count)
{
    struct listing listing = {.entries = calloc(POOL_TABLES, sizeof(*listing.entries))};
    if (listing.entries == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = in_session_co(thread, list_co, &listing);
    *count = status == PANDO_OK ? listing.count : 0;
    for (unsigned i = 0; i < *count && i < capacity; i++) {
        const struct pool_entry *entry = &listing.entries[i];
        out[i] = (struct store_table_info){
            .number = entry->table, .key_max = entry->key_max, .value_inline = entry->value_inline};
        snprintf(out[i].name, sizeof(out[i].name), "%.*s", POOL_NAME_MAX - 1, entry->name);
        snprintf(out[i].engine, sizeof(out[i].engine), "%.*s", POOL_ENGINE_NAME_MAX - 1,
                 entry->engine);
    }
    free(listing.entries);
    return status;
}

struct owners {
    const char *name;
    struct engine_owner *out;
    unsigned capacity, *count;
};

static enum pando_status owners_co(struct store_thread *thread, void *context)
{
    struct owners *owners = context;
    struct pool_entry entry;
    unsigned slot;
    enum pando_status status = pool_table_open_co(thread->session, owners->name, &slot, &entry);
    if (status != PANDO_OK)
        return status;
    const struct engine_ops *ops = store_engine(entry.engine);
    return ops == NULL ? PANDO_UNSUPPORTED
                       : engine_owners_co(ops, thread->session, slot, entry.table, owners->out,
                                          owners->capacity, owners->count);
}

enum pando_status store_table_owners_co(struct store_thread *thread, const char *name,
                                        struct engine_owner *out, unsigned capacity,
                                        unsigned *count)
{
    struct owners owners = {name, out, capacity, count};
    *count = 0;
    return name_ok(name) ? in_session_co(thread, owners_co, &owners) : PANDO_NOT_FOUND;
}

bool store_table_dropped(const struct store_table *table)
{
    return table->gone || (table->shared != NULL && atomic_load(&table->shared->dropped));
}

uint64_t store_table_number(const struct store_table *table)
{
    return table->number;
}

const struct engine_shape *store_table_shape(const struct store_table *table)
{
    return &table->shape;
}

void store_table_stats(const struct store_table *table, struct engine_stats *out)
{
    *out = (struct engine_stats){0};
    if (table->shared != NULL)
        engine_stats(table->shared->engine_table, out);
}
