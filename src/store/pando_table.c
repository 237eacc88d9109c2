/*
 * pando_table.c - tables and counters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/pando_int.h"

enum { VALUE_INLINE_USUAL = 64 };

struct name_call {
    struct call base;
    const char *name;
    const struct engine_shape *shape;
    const char *engine;
    struct pando_table *opened;
};

static struct name_call *name_call_of(struct call *call)
{
    return container_of(call, struct name_call, base);
}

/* ---- creating and dropping ------------------------------------------------------------------- */

static enum pando_status create_co(struct call *call)
{
    struct name_call *create = name_call_of(call);
    return store_table_create_co(call->context->thread, create->name, create->engine, create->shape,
                                 call->error, sizeof(call->error));
}

enum pando_status pando_table_create(struct pando_pool *pool, const char *name,
                                     const struct pando_table_options *given)
{
    struct pando_table_options options = {0};
    if (name == NULL || (given != NULL && given->size < sizeof(size_t)))
        return PANDO_INVALID;
    if (given != NULL)
        STRUCT_TAKEN(options, given);
    struct engine_shape shape = {
        .key_size = options.key_size,
        .value_size = options.value_size,
        .key_max = options.key_max,
        .value_inline = options.value_inline,
    };
    if (shape.value_size == 0 && shape.value_inline == 0)
        shape.value_inline = VALUE_INLINE_USUAL;
    struct name_call call = {.base = {.what = "create", .pool = pool, .fn_co = create_co},
                             .name = name,
                             .shape = &shape,
                             .engine = options.engine};
    return call_run(&call.base);
}

static enum pando_status drop_co(struct call *call)
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
    return status;
}

enum pando_status pando_table_drop(struct pando_pool *pool, const char *name)
{
    struct name_call call = {.base = {.what = "drop", .pool = pool, .fn_co = drop_co},
                             .name = name};
    return name == NULL ? PANDO_INVALID : call_run(&call.base);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* An index for a new handle; false: none is free. */
static bool handle_add(struct pando_table *table)
{
    struct pando_pool *pool = table->pool;
    rt_latch_lock(&pool->latch);
    unsigned index = 0;
    while (index < PANDO_TABLES_MAX && pool->tables[index] != NULL)
        index++;
    bool room = index < PANDO_TABLES_MAX;
    if (room) {
        pool->tables[index] = table;
        table->index = index;
        table->serial = ++pool->table_serial;
    }
    rt_latch_unlock(&pool->latch);
    return room;
}

static enum pando_status open_co(struct call *call)
{
    struct name_call *open = name_call_of(call);
    struct store_table *store;
    enum pando_status status = store_table_open_co(call->context->thread, open->name, &store,
                                                   call->error, sizeof(call->error));
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
    struct name_call call = {.base = {.what = "open", .pool = pool, .fn_co = open_co},
                             .name = name};
    if (name == NULL || out == NULL)
        return PANDO_INVALID;
    enum pando_status status = call_run(&call.base);
    if (status == PANDO_OK)
        *out = call.opened;
    return status;
}

enum pando_status pando_table_close(struct pando_table *table)
{
    if (table == NULL)
        return PANDO_OK;
    enum pando_status status = pool_usable(table->pool);
    if (status != PANDO_OK)
        return status;
    if (atomic_load(&table->users) > 0)
        return PANDO_BUSY;
    rt_latch_lock(&table->pool->latch);
    table->pool->tables[table->index] = NULL;
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
    struct call base;
    struct pando_table_info *out;
    size_t capacity, *count;
};

static enum pando_status list_co(struct call *call)
{
    struct list_call *listing = container_of(call, struct list_call, base);
    unsigned count = 0;
    struct store_table_info *infos = calloc(POOL_TABLES, sizeof(*infos));
    if (infos == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        store_table_list_co(call->context->thread, infos, POOL_TABLES, &count);
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
    struct list_call call = {.base = {.what = "list tables", .pool = pool, .fn_co = list_co},
                             .out = out,
                             .capacity = capacity,
                             .count = count};
    return count == NULL || (out == NULL && capacity > 0) ? PANDO_INVALID : call_run(&call.base);
}

/* ---- counters -------------------------------------------------------------------------------- */

enum pando_status pando_counters(struct pando_pool *pool, struct pando_counters *out)
{
    enum pando_status status = pool_usable(pool);
    if (status != PANDO_OK)
        return status;
    if (out == NULL || out->size < sizeof(size_t))
        return PANDO_INVALID;
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
    struct call base;
    struct engine_stats stats;
};

static enum pando_status stats_co(struct call *call)
{
    struct stats_call *stats = container_of(call, struct stats_call, base);
    store_table_stats(call->store, &stats->stats);
    return PANDO_OK;
}

enum pando_status pando_table_counters(struct pando_table *table, struct pando_table_counters *out)
{
    if (table == NULL || out == NULL || out->size < sizeof(size_t))
        return PANDO_INVALID;
    struct stats_call call = {
        .base = {.what = "count", .pool = table->pool, .table = table, .fn_co = stats_co}};
    enum pando_status status = call_run(&call.base);
    if (status != PANDO_OK)
        return status;
    const struct engine_stats *stats = &call.stats;
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
