/*
 * table.c - tables by name: creating, opening, dropping, listing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/counters.h"
#include "store/engines.h"
#include "store/store_int.h"

static const uint64_t DROP_WAIT_NS = 30 * RT_NS_PER_S;
static const uint64_t DROP_LOOK_NS = 2 * RT_NS_PER_MS;

static bool name_ok(const char *name)
{
    return name[0] != '#' && name[0] != '\0' && strlen(name) < POOL_NAME_MAX;
}

enum pando_status store_table_explain(enum pando_status status, const char *what, const char *name,
                                      char *error, size_t error_bytes)
{
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot %s the table '%.64s': %s", what, name,
                 pando_status_text(status));
    return status;
}

/* Something done in the session, again in the next membership if this one ended before it was
 * done. */
typedef enum pando_status (*thread_fn)(struct store_thread *thread, void *context);

static enum pando_status in_session_co(struct store_thread *thread, thread_fn fn, void *context)
{
    for (int i = 0; i < STORE_REJOINS_MAX; i++) {
        enum pando_status status = store_thread_enter_co(thread);
        if (status != PANDO_OK)
            return status;
        uint64_t membership = thread->membership->number;
        status = fn(thread, context);
        store_thread_leave(thread);
        if (status != PANDO_FENCED)
            return status;
        status = store_await_membership_co(thread->store, membership);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_TIMEOUT;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static struct engine_shape engine_shape_of(const struct store_shape *shape)
{
    return (struct engine_shape){.key_size = shape->key_size,
                                 .value_size = shape->value_size,
                                 .key_max = shape->key_max,
                                 .value_inline = shape->value_inline,
                                 .node_bytes = shape->node_bytes};
}

struct store_shape store_shape_of(const struct engine_shape *shape)
{
    return (struct store_shape){.key_size = shape->key_size,
                                .value_size = shape->value_size,
                                .key_max = shape->key_max,
                                .value_inline = shape->value_inline,
                                .node_bytes = shape->node_bytes};
}

enum pando_status store_shape_check(struct store_shape *shape)
{
    struct engine_shape checked = engine_shape_of(shape);
    enum pando_status status = engine_shape_check(&checked);
    *shape = store_shape_of(&checked);
    return status;
}

/* ---- creating -------------------------------------------------------------------------------- */

struct creation {
    const struct engine_ops *ops;
    const char *name;
    const struct engine_shape *shape;
    bool begun;    /* in a former membership: EXISTS may be our own doing */
    unsigned full; /* how many tables there is room for, if that was the reason for FULL */
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
    struct pool_directory_counts counts;
    unsigned most = pool_tables_max(pool_session_pool(thread->session));
    if (status == PANDO_FULL && pool_directory_counts_co(thread->session, &counts) == PANDO_OK &&
        counts.used >= most)
        creation->full = most;
    return status;
}

enum pando_status store_table_create_co(struct store_thread *thread, const char *name,
                                        const char *engine, const struct store_shape *shape,
                                        char *error, size_t error_bytes)
{
    const struct engine_shape wanted = engine_shape_of(shape);
    struct creation creation = {
        .ops = engine != NULL ? store_engine(engine) : NULL, .name = name, .shape = &wanted};
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
    enum pando_status status = in_session_co(thread, create_co, &creation);
    if (status != PANDO_FULL || creation.full == 0)
        return store_table_explain(status, "create", name, error, error_bytes);
    snprintf(
        error, error_bytes,
        "cannot create the table '%.64s': the pool has %u tables, and room for no more; drop some",
        name, creation.full);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static struct store_table **bucket_of(struct store_thread *thread, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return &thread->names[(hash ^ hash >> 32) % STORE_NAME_BUCKETS];
}

static struct store_table *handle_of(struct store_thread *thread, const char *name)
{
    struct store_table *table = *bucket_of(thread, name);
    while (table != NULL && (strcmp(table->name, name) != 0 || store_table_dropped(table)))
        table = table->next;
    return table;
}

static void handle_add(struct store_thread *thread, struct store_table *table)
{
    struct store_table **bucket = bucket_of(thread, table->name);
    table->next = *bucket;
    *bucket = table;
    list_push_back(&thread->tables, &table->link);
}

void store_handle_remove(struct store_table *table)
{
    struct store_table **link = bucket_of(table->thread, table->name);
    while (*link != table)
        link = &(*link)->next;
    *link = table->next;
    list_remove(&table->link);
}

/* Detaches a handle that nobody has and that is good for nothing. */
static void sweep_handle_co(struct store_thread *thread)
{
    if (!atomic_exchange(&thread->dropped, false))
        return;
    list_for_each (link, &thread->attached) {
        struct store_table *table = container_of(link, struct store_table, attached_link);
        if (table->opens > 0 || table->stages > 0 || table->leaving ||
            atomic_load(&table->active) > 0 || !store_table_dropped(table))
            continue;
        table->leaving = true;
        store_handle_remove(table); /* first: nobody finds it while this suspends */
        store_table_detach_co(table);
        free(table);
        atomic_store(&thread->dropped, true); /* there may be more: the next open takes the next */
        return;
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
    sweep_handle_co(thread);
    return store_table_attach_co(opening->table, opening->error, opening->error_bytes);
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
        store_table_close(table);
        if (status != PANDO_NOT_FOUND)
            return store_table_explain(status, "open", name, error, error_bytes);
    }
    if (!name_ok(name))
        return store_table_explain(PANDO_NOT_FOUND, "open", name, error, error_bytes);
    table = calloc(1, sizeof(*table));
    if (table == NULL)
        return PANDO_NO_MEMORY;
    table->thread = thread;
    table->opens = 1; /* it is not freed before it is known by its name */
    snprintf(table->name, sizeof(table->name), "%s", name);
    list_init(&table->shared_link);
    list_init(&table->attached_link);
    struct opening opening = {.table = table, .error = error, .error_bytes = error_bytes};
    if (error_bytes > 0)
        error[0] = '\0';
    enum pando_status status = in_session_co(thread, open_co, &opening);
    if (status != PANDO_OK) {
        free(table);
        /* Of a table that is damaged, or of another program's, more is known. */
        bool known =
            status == PANDO_CORRUPT || status == PANDO_UNSUPPORTED || status == PANDO_VERSION;
        return known && error_bytes > 0 && error[0] != '\0'
                   ? status
                   : store_table_explain(status, "open", name, error, error_bytes);
    }
    handle_add(thread, table);
    *out = table;
    return PANDO_OK;
}

void store_table_hold(struct store_table *table)
{
    pando_assert(table->opens > 0);
    table->opens++;
}

void store_table_close(struct store_table *table)
{
    pando_assert(table->opens > 0);
    table->opens--; /* stays attached until it is idle: it will be asked for again */
    if (table->opens > 0 || table->stages > 0 || table->shared != NULL || table->leaving ||
        atomic_load(&table->active) > 0)
        return;
    store_handle_remove(table);
    free(table);
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
        store_finish_add(thread->store, drop->slot, drop->number);
        enum pando_status told = pool_drops_add_co(thread->session, &drops);
        (void)told; /* whoever frees it tells again: this is for the keepers to hear of it now */
    }
    return status;
}

static enum pando_status check_freed_co(struct store_thread *thread, void *context)
{
    struct drop *drop = context;
    struct pool_entry entry;
    enum pando_status status = pool_table_read_co(thread->session, drop->slot, &entry);
    if (status == PANDO_OK)
        drop->freed = entry.table != drop->number || !pool_entry_dropping(entry.state);
    return status;
}

enum pando_status store_table_drop_co(struct store_thread *thread, const char *name)
{
    struct drop drop = {.name = name};
    enum pando_status status =
        name_ok(name) ? in_session_co(thread, mark_co, &drop) : PANDO_NOT_FOUND;
    uint64_t deadline_ns = rt_now_ns() + DROP_WAIT_NS;
    uint64_t pause_ns = DROP_LOOK_NS;
    if (status == PANDO_TIMEOUT)
        status = PANDO_BROKEN; /* the name is not gone, which is what TIMEOUT says */

    /* The keeper does the rest. */
    store_keeper_wake(thread->store);
    while (status == PANDO_OK && !drop.freed) {
        if (rt_now_ns() > deadline_ns)
            return PANDO_TIMEOUT;
        rt_sleep_co(pause_ns); /* it may be another process that frees it */
        pause_ns = pause_ns < 32 * DROP_LOOK_NS ? pause_ns * 2 : pause_ns;
        status = in_session_co(thread, check_freed_co, &drop);
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
    return pool_table_list_co(thread->session, &listing->entries, &listing->count);
}

enum pando_status store_table_list_co(struct store_thread *thread, struct store_table_info **out,
                                      unsigned *count)
{
    struct listing listing = {0};
    enum pando_status status = in_session_co(thread, list_co, &listing);
    if (status != PANDO_OK)
        return status;
    struct store_table_info *infos = calloc(listing.count + 1ul, sizeof(*infos));
    for (unsigned i = 0; i < listing.count && infos != NULL; i++) {
        const struct pool_entry *entry = &listing.entries[i];
        infos[i] = (struct store_table_info){
            .number = entry->table, .key_max = entry->key_max, .value_inline = entry->value_inline};
        snprintf(infos[i].name, sizeof(infos[i].name), "%.*s", POOL_NAME_MAX - 1, entry->name);
        snprintf(infos[i].engine, sizeof(infos[i].engine), "%.*s", POOL_ENGINE_NAME_MAX - 1,
                 entry->engine);
    }
    free(listing.entries);
    *out = infos;
    *count = infos == NULL ? 0 : listing.count;
    return infos == NULL ? PANDO_NO_MEMORY : PANDO_OK;
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

bool store_table_attached(const struct store_table *table)
{
    return table->engine != NULL && !store_table_dropped(table);
}

uint64_t store_table_number(const struct store_table *table)
{
    return table->number;
}

const struct store_shape *store_table_shape(const struct store_table *table)
{
    return &table->shape;
}

void store_table_stats(const struct store_table *table, struct store_stats *out)
{
    struct engine_stats stats = {0};
    if (table->shared != NULL)
        engine_stats(table->shared->engine_table, &stats);
    *out = (struct store_stats){
        .cache_hits = stats.cache_hits,
        .cache_misses = stats.cache_misses,
        .cache_bytes = stats.cache_bytes,
        .cache_entries = stats.cache_entries,
        .rereads = stats.rereads,
        .splits = stats.splits,
        .merges = stats.merges,
        .repairs = stats.repairs,
        .damage = stats.damage,
        .lock_waits = stats.lock_waits,
        .handovers = stats.handovers,
        .forwarded = stats.forwarded,
        .moves = stats.moves,
        .offloaded = stats.offloaded,
        .checkpoints = stats.checkpoints,
        .log_waits = stats.log_waits,
    };
}

void store_stats_add(struct store_stats *sum, const struct store_stats *more)
{
    counters_add(sum, more);
}
