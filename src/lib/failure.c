/*
 * failure.c - what pando_error_text says: per thread and pool the last failure, and per thread a
 * constant text for calls that belong to no pool.
 *
 * A failure that happens often (a key that is not there) costs a few stores: its text is made when
 * somebody asks for it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pando_int.h"

#define FROM_INSIDE                                                                                \
    "a function of this library was called from inside a callback; return from it first"
#define AFTER_FORK "this pool was opened before a fork(); open it again in the child"

/* ---- keeping --------------------------------------------------------------------------------- */

/* The calling thread's; NULL: there is no memory for it, and a note says so. */
static struct failure *failure_of_thread(struct pando_pool *pool)
{
    struct failure *failure = rt_local_get(pool->failures);
    if (failure == NULL) {
        failure = calloc(1, sizeof(*failure));
        if (failure != NULL && rt_local_set(pool->failures, failure) != PANDO_OK) {
            free(failure);
            failure = NULL;
        }
    }
    *rt_local_note() = failure == NULL ? "out of memory: this process has none left, not even to "
                                         "keep why a call of this thread failed"
                                       : NULL;
    return failure;
}

enum pando_status failure_keep(const struct library_call *call, enum pando_status status)
{
    struct failure *failure = failure_of_thread(call->pool);
    if (failure == NULL)
        return status;
    failure->status = status;
    failure->what = call->what;
    failure->missing = call->missing;
    failure->key_size = call->key_size;
    failure->value_size = call->value_size;
    failure->number = call->number;
    failure->count = call->count;
    failure->many = call->many;
    failure->table[0] = '\0';
    failure->dropped = false;
    if (call->table != NULL) {
        memcpy(failure->table, call->table->name, sizeof(failure->table));
        failure->shape = call->table->shape;
        failure->dropped = atomic_load_explicit(&call->table->dropped, memory_order_relaxed);
    }
    failure->text[0] = '\0';
    if (call->error[0] != '\0')
        memcpy(failure->text, call->error, sizeof(call->error));
    return status;
}

static void failure_print(struct pando_pool *pool, enum pando_status status, const char *format,
                          va_list arguments)
{
    struct failure *failure = failure_of_thread(pool);
    if (failure == NULL)
        return;
    failure->status = status;
    vsnprintf(failure->text, sizeof(failure->text), format, arguments);
}

enum pando_status failure_say(struct pando_pool *pool, enum pando_status status, const char *format,
                              ...)
{
    va_list arguments;
    va_start(arguments, format);
    failure_print(pool, status, format, arguments);
    va_end(arguments);
    return status;
}

enum pando_status failure_of(const struct library_call *call, enum pando_status status,
                             const char *format, ...)
{
    char text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (call->table != NULL)
        return failure_say(call->pool, status, "%s table '%s': %s", call->what, call->table->name,
                           text);
    return failure_say(call->pool, status, "%s: %s", call->what, text);
}

void failure_no_handle(const char *note)
{
    *rt_local_note() = rt_loop_self() != NULL ? FROM_INSIDE : note;
}

enum pando_status pool_check(const struct pando_pool *pool)
{
    const char *note = rt_loop_self() != NULL      ? FROM_INSIDE
                       : pool->forks != rt_forks() ? AFTER_FORK
                                                   : NULL;
    if (note != NULL)
        *rt_local_note() = note;
    return note == NULL ? PANDO_OK : PANDO_INVALID;
}

/* ---- for a person ---------------------------------------------------------------------------- */

static void explain_size(const struct failure *failure, char *out, size_t bytes)
{
    const struct store_shape *shape = &failure->shape;
    uint64_t value_max = shape->value_size != 0 ? shape->value_size : PANDO_VALUE_MAX;
    if (shape->key_size != 0 && failure->key_size != shape->key_size)
        snprintf(out, bytes, "the key has %zu bytes, and all keys of the table have %u",
                 failure->key_size, shape->key_size);
    else if (failure->key_size > shape->key_max)
        snprintf(out, bytes, "the key has %zu bytes, and the table's longest %u; shorten it",
                 failure->key_size, shape->key_max);
    else if (shape->value_size != 0 && failure->value_size != shape->value_size)
        snprintf(out, bytes, "the value has %zu bytes, and all values of the table have %u",
                 failure->value_size, shape->value_size);
    else if (failure->value_size > value_max)
        snprintf(out, bytes, "the value has %zu bytes, and the table's longest %llu; divide it",
                 failure->value_size, (unsigned long long)value_max);
    else
        snprintf(out, bytes, "%s: a key of %zu or a value of %zu bytes does not fit it",
                 pando_status_text(failure->status), failure->key_size, failure->value_size);
}

bool failure_explains(enum pando_status status)
{
    switch (status) {
    case PANDO_NOT_FOUND:
    case PANDO_FULL:
    case PANDO_NO_MEMORY:
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
    case PANDO_UNKNOWN:
    case PANDO_AGAIN:
        return true;
    default:
        return false;
    }
}

/* What the status means here. */
static const char *explain(const struct failure *failure)
{
    switch (failure->status) {
    case PANDO_NOT_FOUND:
        return failure->dropped           ? "not found: the table was dropped; close it"
               : failure->missing != NULL ? failure->missing
                                          : "not found: no such key";
    case PANDO_EXISTS:
        return "exists already: the key is there; nothing was changed";
    case PANDO_STALE:
        return "stale: the value is not the expected one; get it, and decide again";
    case PANDO_AGAIN:
        return "256 threads, queues and writers use the pool, which is the most: let one end first";
    case PANDO_FULL:
        return "pool is full: delete something, or use a larger pool";
    case PANDO_NO_MEMORY:
        return "out of memory: this process has none left";
    case PANDO_BROKEN:
        return "the pool cannot be reached: are all memory nodes running? try again";
    case PANDO_TIMEOUT:
        return "timed out: a memory node does not answer, or another process is in the way; try "
               "again";
    case PANDO_UNKNOWN:
        return "outcome unknown: it may or may not have been done; read and see";
    case PANDO_DENIED:
        return "denied: a memory node refuses this process; open the pool again with its secret "
               "and "
               "TLS options";
    case PANDO_CORRUPT:
        return "corrupt: bytes in the pool fail their check; `pando table verify` says where";
    default:
        return pando_status_text(failure->status);
    }
}

static const char *failure_text(struct failure *failure)
{
    char sizes[192], which[64] = "";
    if (failure->status == PANDO_OK || failure->text[0] != '\0')
        return failure->text;
    bool of_table = failure->table[0] != '\0';
    const char *why = explain(failure);
    if (of_table && (failure->status == PANDO_TOO_LARGE || failure->status == PANDO_INVALID)) {
        explain_size(failure, sizes, sizeof(sizes));
        why = sizes;
    }
    const char *rest = "";
    if (failure->status == PANDO_FULL || failure->status == PANDO_NO_MEMORY ||
        failure->status == PANDO_BROKEN || failure->status == PANDO_TIMEOUT)
        rest = failure->many ? "; a part may have been done" : "; nothing was changed";
    if (failure->number > 0)
        snprintf(which, sizeof(which), "operation %zu of %zu: ", failure->number, failure->count);
    snprintf(failure->text, sizeof(failure->text), "%s%s%s%s: %s%s%s", failure->what,
             of_table ? " table '" : "", failure->table, of_table ? "'" : "", which, why, rest);
    return failure->text;
}

const char *pando_error_text(const struct pando_pool *pool)
{
    if (pool != NULL && pool->forks != rt_forks())
        return AFTER_FORK;
    const char *note = *rt_local_note();
    if (note != NULL)
        return note;
    struct failure *failure = pool == NULL ? NULL : rt_local_get(pool->failures);
    return pool == NULL ? "no pool" : failure == NULL ? "" : failure_text(failure);
}
