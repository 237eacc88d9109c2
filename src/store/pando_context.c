/*
 * pando_context.c - what a thread keeps of a pool, and running a call on it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "store/pando_int.h"

/* ---- contexts -------------------------------------------------------------------------------- */

static bool context_count_in(struct pando_pool *pool)
{
    rt_latch_lock(&pool->latch);
    bool room = pool->context_count < PANDO_THREADS_MAX;
    pool->context_count += room;
    rt_latch_unlock(&pool->latch);
    return room;
}

static void context_count_out(struct pando_pool *pool, struct context *context)
{
    rt_latch_lock(&pool->latch);
    if (context != NULL)
        list_remove(&context->link);
    pool->context_count--;
    rt_latch_unlock(&pool->latch);
}

enum pando_status context_open_co(struct pando_pool *pool, struct rt_loop *loop,
                                  struct context **out)
{
    if (!context_count_in(pool))
        return PANDO_AGAIN;
    struct context *context = calloc(1, sizeof(*context));
    enum pando_status status =
        context == NULL ? PANDO_NO_MEMORY : store_thread_open_co(pool->store, &context->thread);
    if (status != PANDO_OK) {
        free(context);
        context_count_out(pool, NULL);
        return status;
    }
    context->pool = pool;
    context->loop = loop;
    rt_latch_lock(&pool->latch);
    list_push_back(&pool->context_list, &context->link);
    rt_latch_unlock(&pool->latch);
    *out = context;
    return PANDO_OK;
}

void context_close_co(struct context *context)
{
    for (unsigned i = 0; i < PANDO_TABLES_MAX; i++) {
        if (context->attached[i].table != NULL)
            store_table_close(context->attached[i].table);
    }
    store_thread_close_co(context->thread);
    context_count_out(context->pool, context);
    free(context);
}

enum pando_status context_table_co(struct context *context, struct pando_table *table,
                                   struct store_table **out, char *error, size_t error_bytes)
{
    unsigned index = table->index;
    if (context->attached[index].serial == table->serial) {
        *out = context->attached[index].table;
        return PANDO_OK;
    }
    struct store_table *opened;
    if (atomic_load(&table->dropped))
        return PANDO_NOT_FOUND;
    enum pando_status status =
        store_table_open_co(context->thread, table->name, &opened, error, error_bytes);
    if (status == PANDO_OK && store_table_number(opened) != table->number) {
        store_table_close(opened); /* another table of that name */
        status = PANDO_NOT_FOUND;
    }
    if (status != PANDO_OK) {
        if (status == PANDO_NOT_FOUND)
            atomic_store(&table->dropped, true);
        return status;
    }
    if (context->attached[index].table != NULL)
        store_table_close(context->attached[index].table); /* of a handle that was closed */
    context->attached[index].serial = table->serial;
    context->attached[index].table = opened;
    *out = opened;
    return PANDO_OK;
}

/* ---- a thread's own -------------------------------------------------------------------------- */

struct entry {
    struct pando_pool *pool;
    struct context *context;
    enum pando_status status;
};

static void enter_task(void *arg)
{
    struct entry *entry = arg;
    entry->status = context_open_co(entry->pool, rt_loop_self(), &entry->context);
    if (entry->status == PANDO_OK)
        store_thread_pause(entry->context->thread);
}

static void close_task(void *arg)
{
    struct context *context = arg;
    store_thread_resume(context->thread);
    context_close_co(context);
}

void contexts_destroy(void *value)
{
    struct context *context = value;
    struct rt_loop *loop = context->loop;
    if (context->pool->forks != rt_forks())
        return; /* the parent's */
    /* Without memory for a stack it stays; there is nothing else to be done. */
    if (rt_loop_call(loop, close_task, context) == PANDO_OK)
        rt_loop_destroy(loop);
}

struct context *context_of_thread(const struct pando_pool *pool)
{
    return rt_local_get(pool->contexts);
}

static enum pando_status context_enter(struct pando_pool *pool, struct context **out)
{
    struct entry entry = {.pool = pool};
    struct rt_loop *loop = rt_loop_create();
    if (loop == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = rt_loop_call(loop, enter_task, &entry);
    if (status == PANDO_OK)
        status = entry.status;
    if (status != PANDO_OK) {
        rt_loop_destroy(loop);
        return status;
    }
    status = rt_local_set(pool->contexts, entry.context);
    if (status != PANDO_OK)
        contexts_destroy(entry.context);
    else
        *out = entry.context;
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct running {
    struct call *call;
    enum pando_status status;
};

static void call_task(void *arg)
{
    struct running *running = arg;
    struct call *call = running->call;
    struct context *context = call->context;
    enum pando_status status = PANDO_OK;

    store_thread_resume(context->thread);
    if (call->table != NULL)
        status =
            context_table_co(context, call->table, &call->store, call->error, sizeof(call->error));
    if (status == PANDO_OK)
        status = call->fn_co(call);
    if (status == PANDO_NOT_FOUND && call->store != NULL && store_table_dropped(call->store))
        atomic_store(&call->table->dropped, true);
    store_thread_pause(context->thread);
    running->status = status;
}

enum pando_status call_run(struct call *call)
{
    struct running running = {.call = call};
    enum pando_status status = pool_usable(call->pool);
    if (status != PANDO_OK)
        return status;
    call->error[0] = '\0';
    call->context = context_of_thread(call->pool);
    if (call->context == NULL) {
        status = context_enter(call->pool, &call->context);
        if (status != PANDO_OK)
            return status;
    }
    atomic_store_explicit(&call->context->inside, true, memory_order_relaxed);
    status = rt_loop_call(call->context->loop, call_task, &running);
    atomic_store_explicit(&call->context->inside, false, memory_order_release);
    if (status == PANDO_OK)
        status = running.status;
    if (status != PANDO_OK)
        failure_set(call->context, call, status);
    return status;
}

/* ---- failures -------------------------------------------------------------------------------- */

void failure_set(struct context *context, const struct call *call, enum pando_status status)
{
    struct failure *failure = &context->failure;
    failure->status = status;
    failure->what = call->what;
    failure->key_size = call->key_size;
    failure->value_size = call->value_size;
    failure->table[0] = '\0';
    if (call->table != NULL) {
        memcpy(failure->table, call->table->name, sizeof(failure->table));
        failure->key_max = call->table->shape.key_max;
        failure->value_max = call->table->shape.value_size != 0 ? call->table->shape.value_size
                                                                : (uint32_t)PANDO_VALUE_MAX;
        failure->dropped = atomic_load_explicit(&call->table->dropped, memory_order_relaxed);
    }
    memcpy(failure->text, call->error, sizeof(call->error));
}

/* What the status means here. */
static void reason(const struct failure *failure, char *out, size_t bytes)
{
    const char *text = pando_status_text(failure->status);
    const char *more = "";
    switch (failure->status) {
    case PANDO_NOT_FOUND:
        more = failure->dropped ? ": the table was dropped; close it" : ": no such key";
        break;
    case PANDO_TOO_LARGE:
        if (failure->key_size > failure->key_max)
            snprintf(out, bytes, "the key has %zu bytes, and the table's longest %u",
                     failure->key_size, failure->key_max);
        else
            snprintf(out, bytes, "the value has %zu bytes, and the table's longest %u",
                     failure->value_size, failure->value_max);
        return;
    case PANDO_INVALID:
        snprintf(out, bytes, "%s: a key of %zu or a value of %zu bytes does not fit it", text,
                 failure->key_size, failure->value_size);
        return;
    case PANDO_FULL:
        more = ": delete something, or use a larger pool; nothing was changed";
        break;
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        more = ": are all memory nodes running? nothing was changed, try again";
        break;
    case PANDO_UNKNOWN:
        more = ": it may or may not have been done; read and see";
        break;
    default:
        break;
    }
    snprintf(out, bytes, "%s%s", text, more);
}

const char *failure_text(struct failure *failure)
{
    char why[192];
    if (failure->status == PANDO_OK || failure->text[0] != '\0')
        return failure->text;
    if (failure->table[0] == '\0') {
        snprintf(failure->text, sizeof(failure->text), "%s: %s", failure->what,
                 pando_status_text(failure->status));
    } else {
        reason(failure, why, sizeof(why));
        snprintf(failure->text, sizeof(failure->text), "%s table '%s': %s", failure->what,
                 failure->table, why);
    }
    return failure->text;
}
