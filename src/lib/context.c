/*
 * context.c - what a thread keeps of a pool, and running a call on it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "lib/pando_int.h"

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

void context_destroy(struct context *context)
{
    struct rt_loop *loop = context->loop;
    /* Without memory for a stack it stays; there is nothing else to be done. */
    if (rt_loop_call(loop, close_task, context) == PANDO_OK)
        rt_loop_destroy(loop);
}

void contexts_destroy(void *value)
{
    struct context *context = value;
    if (context->pool->forks == rt_forks()) /* else it is the parent's */
        context_destroy(context);
}

struct context *context_of_thread(const struct pando_pool *pool)
{
    return rt_local_get(pool->contexts);
}

enum pando_status context_create(struct pando_pool *pool, struct context **out)
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
    *out = entry.context;
    return PANDO_OK;
}

static enum pando_status context_enter(struct pando_pool *pool, struct context **out)
{
    struct context *context;
    enum pando_status status = context_create(pool, &context);
    if (status != PANDO_OK)
        return status;
    status = rt_local_set(pool->contexts, context);
    if (status != PANDO_OK)
        context_destroy(context);
    else
        *out = context;
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct running {
    struct library_call *call;
    enum pando_status status;
};

static void library_call_task(void *arg)
{
    struct running *running = arg;
    struct library_call *call = running->call;
    struct context *context = call->context;
    enum pando_status status = PANDO_OK;

    store_thread_resume(context->thread);
    if (call->table != NULL) {
        status =
            context_table_co(context, call->table, &call->store, call->error, sizeof(call->error));
        if (failure_explains(status))
            call->error[0] = '\0'; /* it is the operation that failed, for the same reason */
    }
    if (status == PANDO_OK)
        status = call->fn_co(call);
    if (status == PANDO_NOT_FOUND && call->store != NULL && store_table_dropped(call->store))
        atomic_store(&call->table->dropped, true);
    store_thread_pause(context->thread);
    running->status = status;
}

enum pando_status call_run(struct library_call *call)
{
    struct context *context = context_of_thread(call->pool);
    call->error[0] = '\0';
    if (context == NULL) {
        enum pando_status status = context_enter(call->pool, &context);
        if (status != PANDO_OK)
            return failure_keep(call, status);
    }
    return call_run_on(call, context);
}

enum pando_status call_run_on(struct library_call *call, struct context *context)
{
    struct running running = {.call = call};
    call->error[0] = '\0';
    call->context = context;
    atomic_store_explicit(&context->inside, true, memory_order_relaxed);
    enum pando_status status = rt_loop_call(context->loop, library_call_task, &running);
    atomic_store_explicit(&context->inside, false, memory_order_release);
    if (status == PANDO_OK)
        status = running.status;
    return status == PANDO_OK ? status : failure_keep(call, status);
}
