/*
 * table.c - tables and counters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pando_int.h"

enum { VALUE_INLINE_USUAL = 64 };

struct name_call {
    struct library_call base;
    const char *name;
    const struct store_shape *shape;
    const char *engine;
    struct pando_table *opened;
};

static struct name_call *name_call_of(struct library_call *call)
{
    return container_of(call, struct name_call, base);
}

/* ---- creating and dropping ------------------------------------------------------------------- */

static const char REFUSED[] =
    "a memory node refuses this process; open the pool again with its secret and TLS options";

/* Adds to the store's text what to do. */
static void advise(struct library_call *call, const char *advice)
{
    size_t size = strlen(call->error);
    if (size > 0)
        snprintf(call->error + size, sizeof(call->error) - size, "; %s", advice);
}

/* Of sizes that no table can have; "" if it is something else. */
static void explain_shape(const struct name_call *create, char *out, size_t bytes)
{
    const struct store_shape *shape = create->shape;
    out[0] = '\0';
    if (shape->key_max > PANDO_KEY_MAX || shape->key_size > PANDO_KEY_MAX)
        snprintf(out, bytes, "keys of %u bytes are too large: the most is %d",
                 shape->key_max > shape->key_size ? shape->key_max : shape->key_size,
                 PANDO_KEY_MAX);
    else if (shape->key_size != 0 && shape->key_max != 0 && shape->key_max != shape->key_size)
        snprintf(out, bytes, "key_max %u and key_size %u do not go together: give one of them",
                 shape->key_max, shape->key_size);
    else if (shape->value_size != 0 && shape->value_inline != 0 &&
             shape->value_size > shape->value_inline)
        snprintf(out, bytes, "value_inline %u is less than value_size %u: leave it out",
                 shape->value_inline, shape->value_size);
    else
        snprintf(out, bytes,
                 "keys of up to %u bytes and values of %u in the nodes do not fit into them: use "
                 "less",
                 shape->key_max != 0    ? shape->key_max
                 : shape->key_size != 0 ? shape->key_size
                                        : (uint32_t)PANDO_KEY_MAX,
                 shape->value_size != 0 ? shape->value_size : shape->value_inline);
}

static void explain_create(struct name_call *create, enum pando_status status)
{
    struct library_call *call = &create->base;
    char why[128];
    /* What the store says of a bad name or engine ends in what to do. */
    bool general = strstr(call->error, pando_status_text(status)) != NULL;
    switch (status) {
    case PANDO_EXISTS:
        advise(call, "open it, or drop it first");
        break;
    case PANDO_FULL:
        if (general)
            advise(call, "delete something, or use a larger pool");
        break;
    case PANDO_INVALID:
    case PANDO_TOO_LARGE:
        explain_shape(create, why, sizeof(why));
        if (general)
            snprintf(call->error, sizeof(call->error), "cannot create the table '%.64s': %s",
                     create->name, why);
        break;
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        advise(call, "are all memory nodes running? the table may be there without being usable: "
                     "drop it, and try again");
        break;
    case PANDO_UNKNOWN:
        advise(call, "it is there, and perhaps this call made it");
        break;
    case PANDO_DENIED:
        advise(call, REFUSED);
        break;
    case PANDO_NO_MEMORY:
        advise(call, "this process has none left");
        break;
    default:
        break;
    }
}

static enum pando_status create_co(struct library_call *call)
{
    struct name_call *create = name_call_of(call);
    enum pando_status status =
        store_table_create_co(call->context->thread, create->name, create->engine, create->shape,
                              call->error, sizeof(call->error));
    if (status != PANDO_OK)
        explain_create(create, status);
    return status;
}

/* INVALID: there is no pool, or no name. */
static enum pando_status name_check(const struct library_call *call, const char *note,
                                    const char *name)
{
    enum pando_status status = pool_usable(call->pool, note);
    return status == PANDO_OK && name == NULL ? failure_null(call, "the name") : status;
}

enum pando_status pando_table_create(struct pando_pool *pool, const char *name,
                                     const struct pando_table_options *given)
{
    struct pando_table_options options = {0};
    struct name_call call = {.base = {.what = "create a table", .pool = pool, .fn_co = create_co},
                             .name = name};
    enum pando_status status = name_check(&call.base, NO_POOL("pando_table_create"), name);
    if (status != PANDO_OK)
        return status;
    if (given != NULL && given->size < sizeof(size_t))
        return failure_of(&call.base, PANDO_INVALID, "the options do not begin with their size");
    if (given != NULL)
        STRUCT_TAKEN(options, given);
    struct store_shape shape = {
        .key_size = options.key_size,
        .value_size = options.value_size,
        .key_max = options.key_max,
        .value_inline = options.value_inline,
    };
    if (shape.value_size == 0 && shape.value_inline == 0)
        shape.value_inline = VALUE_INLINE_USUAL;
    call.shape = &shape;
    call.engine = options.engine;
    return call_run(&call.base);
}

static enum pando_status drop_co(struct library_call *call)
{
    struct name_call *drop = name_call_of(call);
    enum pando_status status = store_table_drop_co(call->context->thread, drop->name);
    if (status == PANDO_TIMEOUT)
        snprintf(call->error, sizeof(call->error),
                 "the table '%.64s' is dropped, but somebody still uses it: its memory comes back "
                 "later",
                 drop->name);
    else if (status != PANDO_OK)
        snprintf(call->error, sizeof(call->error), "cannot drop the table '%.64s': %s", drop->name,
                 pando_status_text(status));
    if (status == PANDO_NOT_FOUND)
        advise(call, "pando_table_list tells which there are");
    else if (status == PANDO_BROKEN)
        advise(call, "are all memory nodes running? look, and try again");
    else if (status == PANDO_DENIED)
        advise(call, REFUSED);
    return status;
}

enum pando_status pando_table_drop(struct pando_pool *pool, const char *name)
{
    struct name_call call = {.base = {.what = "drop a table", .pool = pool, .fn_co = drop_co},
                             .name = name};
    enum pando_status status = name_check(&call.base, NO_POOL("pando_table_drop"), name);
    return status == PANDO_OK ? call_run(&call.base) : status;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* An index for a new handle; false: none is free. */
static bool handle_add(struct pando_table *table)
{
    struct pando_pool *pool = table->pool;
    rt_latch_lock(&pool->latch);
    unsigned index = pool->table_next;
    while (index < PANDO_TABLES_MAX && pool->tables[index] != NULL)
        index++;
    bool room = index < PANDO_TABLES_MAX;
    if (room) {
        pool->tables[index] = table;
        table->index = index;
        pool->table_next = index + 1;
        table->serial = ++pool->table_serial;
    }
    rt_latch_unlock(&pool->latch);
    return room;
}

static enum pando_status open_co(struct library_call *call)
{
    struct name_call *open = name_call_of(call);
    struct store_table *store;
    enum pando_status status = store_table_open_co(call->context->thread, open->name, &store,
                                                   call->error, sizeof(call->error));
    if (status == PANDO_NOT_FOUND)
        advise(call, "pando_table_create makes it, pando_table_list tells which there are");
    else if (status == PANDO_BROKEN || status == PANDO_TIMEOUT)
        advise(call, "are all memory nodes running? try again");
    else if (status == PANDO_DENIED)
        advise(call, REFUSED);
    if (status != PANDO_OK)
        return status;
    struct pando_table *table = calloc(1, sizeof(*table));
    if (table == NULL) {
        status = PANDO_NO_MEMORY;
    } else {
        table->pool = call->pool;
        snprintf(table->name, sizeof(table->name), "%s", open->name);
        table->number = store_table_number(store);
        table->shape = *store_table_shape(store);
        if (!handle_add(table)) {
            snprintf(call->error, sizeof(call->error),
                     "cannot open the table '%.64s': %d tables are open already; close some",
                     open->name, PANDO_TABLES_MAX);
            free(table);
            status = PANDO_FULL;
        }
    }
    store_table_close(store); /* stays attached; the first operation finds it again */
    if (status == PANDO_OK)
        open->opened = table;
    return status;
}

enum pando_status pando_table_open(struct pando_pool *pool, const char *name,
                                   struct pando_table **out)
{
    struct name_call call = {.base = {.what = "open a table", .pool = pool, .fn_co = open_co},
                             .name = name};
    enum pando_status status = name_check(&call.base, NO_POOL("pando_table_open"), name);
    if (status == PANDO_OK && out == NULL)
        status = failure_null(&call.base, "where to tell the table");
    if (status != PANDO_OK)
        return status;
    status = call_run(&call.base);
    if (status == PANDO_OK)
        *out = call.opened;
    return status;
}

enum pando_status pando_table_close(struct pando_table *table)
{
    if (table == NULL)
        return PANDO_OK;
    enum pando_status status = table_usable(table, NO_TABLE("pando_table_close"));
    if (status != PANDO_OK)
        return status;
    unsigned users = atomic_load(&table->users);
    if (users > 0)
        return failure_say(
            table->pool, PANDO_BUSY,
            "cannot close the table '%s': %u iterators, writers or operations of queues "
            "use it; close or poll these first",
            table->name, users);
    rt_latch_lock(&table->pool->latch);
    table->pool->tables[table->index] = NULL;
    if (table->index < table->pool->table_next)
        table->pool->table_next = table->index;
    rt_latch_unlock(&table->pool->latch);
    free(table);
    return PANDO_OK;
}

int pando_table_dropped(const struct pando_table *table)
{
    return table != NULL && atomic_load(&table->dropped);
}

/* ---- what there is --------------------------------------------------------------------------- */

struct list_call {
    struct library_call base;
    struct pando_table_info *out;
    size_t capacity, *count;
};

static enum pando_status list_co(struct library_call *call)
{
    struct list_call *listing = container_of(call, struct list_call, base);
    unsigned count = 0;
    struct store_table_info *infos = NULL;
    enum pando_status status = store_table_list_co(call->context->thread, &infos, &count);
    for (unsigned i = 0; status == PANDO_OK && i < count && i < listing->capacity; i++) {
        struct pando_table_info *to = &listing->out[i];
        *to = (struct pando_table_info){.key_max = infos[i].key_max,
                                        .value_inline = infos[i].value_inline};
        snprintf(to->name, sizeof(to->name), "%s", infos[i].name);
        snprintf(to->engine, sizeof(to->engine), "%s", infos[i].engine);
    }
    if (status == PANDO_OK)
        *listing->count = count;
    free(infos);
    return status;
}

enum pando_status pando_table_list(struct pando_pool *pool, struct pando_table_info *out,
                                   size_t capacity, size_t *count)
{
    struct list_call call = {.base = {.what = "list the tables", .pool = pool, .fn_co = list_co},
                             .out = out,
                             .capacity = capacity,
                             .count = count};
    enum pando_status status = pool_usable(pool, NO_POOL("pando_table_list"));
    if (status == PANDO_OK && (count == NULL || (out == NULL && capacity > 0)))
        status = failure_null(&call.base, count == NULL ? "where to tell how many there are"
                                                        : "the memory for them");
    return status == PANDO_OK ? call_run(&call.base) : status;
}

/* ---- counters -------------------------------------------------------------------------------- */

enum pando_status pando_counters(struct pando_pool *pool, struct pando_counters *out)
{
    enum pando_status status = pool_usable(pool, NO_POOL("pando_counters"));
    if (status != PANDO_OK)
        return status;
    if (out == NULL || out->size < sizeof(size_t))
        return failure_say(pool, PANDO_INVALID,
                           "count: there is no struct pando_counters, or its size is not set");
    struct fabric_counters all[FABRIC_TARGETS] = {0}, sum = {0};
    struct context *context = context_of_thread(pool);
    if (context != NULL)
        store_counters(context->thread, all);
    for (int i = 0; i < FABRIC_TARGETS; i++)
        fabric_counters_add(&sum, &all[i]);
    struct pando_counters counters = {
        .size = out->size < sizeof(counters) ? out->size : sizeof(counters),
        .round_trips = sum.lists,
        .reads = sum.reads,
        .writes = sum.writes,
        .atomics = sum.atomics,
        .calls = sum.calls,
        .bytes_out = sum.bytes_out,
        .bytes_in = sum.bytes_in,
        .retries = sum.retries,
    };
    memcpy(out, &counters, counters.size);
    return PANDO_OK;
}

struct stats_call {
    struct library_call base;
    struct store_stats stats;
};

static enum pando_status stats_co(struct library_call *call)
{
    struct stats_call *stats = container_of(call, struct stats_call, base);
    store_table_stats(call->store, &stats->stats);
    return PANDO_OK;
}

enum pando_status pando_table_counters(struct pando_table *table, struct pando_table_counters *out)
{
    enum pando_status status = table_usable(table, NO_TABLE("pando_table_counters"));
    if (status != PANDO_OK)
        return status;
    struct stats_call call = {.base = {.what = "count what it cost in",
                                       .pool = table->pool,
                                       .table = table,
                                       .fn_co = stats_co}};
    if (out == NULL || out->size < sizeof(size_t))
        return failure_of(&call.base, PANDO_INVALID,
                          "there is no struct pando_table_counters, or its size is not set");
    status = call_run(&call.base);
    if (status != PANDO_OK)
        return status;
    const struct store_stats *stats = &call.stats;
    struct pando_table_counters counters = {
        .size = out->size < sizeof(counters) ? out->size : sizeof(counters),
        .cache_hits = stats->cache_hits,
        .cache_misses = stats->cache_misses,
        .cache_bytes = stats->cache_bytes,
        .cache_entries = stats->cache_entries,
        .rereads = stats->rereads,
        .splits = stats->splits,
        .merges = stats->merges,
        .repairs = stats->repairs,
        .lock_waits = stats->lock_waits,
        .handovers = stats->handovers,
        .damage = stats->damage,
    };
    memcpy(out, &counters, counters.size);
    return PANDO_OK;
}
