/*
 * writer.c - values that are written in pieces.
 *
 * A long one is staged in the pool, in a session that must be the same from the first piece to the commit: a
 * writer has a context of its own, whose loop is run by whoever calls. So any thread may go on with it, and one
 * that ends leaves nothing behind. A short one is kept here and put whole.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/pando_int.h"

enum { WHOLE_MAX = STORE_PART_USUAL }; /* longer values are staged */

struct pando_writer {
    struct pando_table *table;
    struct context *context;   /* NULL: a short value */
    struct store_stage *stage; /* NULL likewise */
    uint64_t size, added;
    bool sealed, failed, done;
    size_t key_size;
    uint8_t key[PANDO_KEY_MAX];
    uint8_t bytes[]; /* of a short value */
};

struct writer_call {
    struct library_call base;
    struct pando_writer *writer;
    struct slice piece;
    enum store_put mode;
};

#define NO_WRITER(function) NO_HANDLE(function, "writer")

static const char WHAT[] = "write in pieces into";

static struct pando_writer *writer_of(struct library_call *call)
{
    return container_of(call, struct writer_call, base)->writer;
}

static struct writer_call call_of(struct pando_writer *writer,
                                  enum pando_status (*fn_co)(struct library_call *call))
{
    return (struct writer_call){.base = {.what = WHAT,
                                         .pool = writer->table->pool,
                                         .table = writer->table,
                                         .key_size = writer->key_size,
                                         .value_size = writer->size,
                                         .fn_co = fn_co},
                                .writer = writer};
}

static struct slice key_of(const struct pando_writer *writer)
{
    return slice_of(writer->key, writer->key_size);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void writers_add(struct pando_table *table, int delta)
{
    atomic_fetch_add(&table->users, (unsigned)delta);
    rt_latch_lock(&table->pool->latch);
    table->pool->writers += (unsigned)delta;
    rt_latch_unlock(&table->pool->latch);
}

static enum pando_status stage_open_co(struct library_call *call)
{
    struct pando_writer *writer = writer_of(call);
    return store_stage_open_co(call->store, key_of(writer), writer->size, false, &writer->stage);
}

static enum pando_status stage_open(struct pando_writer *writer)
{
    struct writer_call call = call_of(writer, stage_open_co);
    enum pando_status status = context_create(writer->table->pool, &writer->context);
    if (status != PANDO_OK)
        return failure_keep(&call.base, status);
    status = call_run_on(&call.base, writer->context);
    if (status != PANDO_OK)
        context_destroy(writer->context);
    return status;
}

enum pando_status pando_writer_open(struct pando_table *table, const void *key, size_t key_size,
                                    uint64_t value_size, struct pando_writer **out)
{
    enum pando_status status = table_usable(table, NO_TABLE("pando_writer_open"));
    if (status != PANDO_OK)
        return status;
    struct library_call call = {.what = WHAT,
                                .pool = table->pool,
                                .table = table,
                                .key_size = key_size,
                                .value_size = value_size};
    if (out == NULL || (key == NULL && key_size > 0))
        return failure_null(&call, out == NULL ? "where to tell the writer" : "the key");
    if (key_size > PANDO_KEY_MAX || value_size > PANDO_VALUE_MAX)
        return failure_keep(&call, PANDO_TOO_LARGE);
    bool whole = value_size <= WHOLE_MAX;
    struct pando_writer *writer = calloc(1, sizeof(*writer) + (whole ? value_size : 0));
    if (writer == NULL)
        return failure_keep(&call, PANDO_NO_MEMORY);
    writer->table = table;
    writer->size = value_size;
    writer->key_size = key_size;
    if (key_size > 0)
        memcpy(writer->key, key, key_size);
    if (!whole)
        status = stage_open(writer);
    if (status != PANDO_OK) {
        free(writer);
        return status;
    }
    writers_add(table, 1);
    *out = writer;
    return PANDO_OK;
}

static enum pando_status stage_close_co(struct library_call *call)
{
    store_stage_close_co(writer_of(call)->stage);
    return PANDO_OK;
}

void pando_writer_close(struct pando_writer *writer)
{
    if (writer == NULL || rt_loop_self() != NULL || writer->table->pool->forks != rt_forks())
        return;
    if (writer->context != NULL) {
        struct writer_call call = call_of(writer, stage_close_co);
        call.base.table = NULL; /* it need not be there any more */
        /* Without memory for a stack both stay; there is nothing else to be done. */
        if (call_run_on(&call.base, writer->context) == PANDO_OK)
            context_destroy(writer->context);
    }
    writers_add(writer->table, -1);
    free(writer);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* INVALID: it may not be used, or can only be closed. */
static enum pando_status usable(struct pando_writer *writer, const char *note)
{
    enum pando_status status = table_usable(writer == NULL ? NULL : writer->table, note);
    if (status != PANDO_OK || (!writer->failed && !writer->done))
        return status;
    struct writer_call call = call_of(writer, NULL);
    return failure_of(&call.base, PANDO_INVALID, "the writer %s; close it",
                      writer->done ? "has been committed" : "has failed before");
}

static enum pando_status add_co(struct library_call *call)
{
    struct writer_call *add = container_of(call, struct writer_call, base);
    return store_stage_add_co(add->writer->stage, add->piece);
}

enum pando_status pando_writer_add(struct pando_writer *writer, const void *bytes, size_t size)
{
    enum pando_status status = usable(writer, NO_WRITER("pando_writer_add"));
    if (status != PANDO_OK)
        return status;
    struct writer_call call = call_of(writer, add_co);
    if (bytes == NULL && size > 0)
        return failure_null(&call.base, "the piece");
    if (size > writer->size - writer->added)
        return failure_of(&call.base, PANDO_INVALID,
                          "%zu bytes are too many: %llu of the value's %llu are missing", size,
                          (unsigned long long)(writer->size - writer->added),
                          (unsigned long long)writer->size);
    if (writer->stage == NULL) {
        if (size > 0)
            memcpy(writer->bytes + writer->added, bytes, size);
    } else {
        call.piece = slice_of(bytes, size);
        status = call_run_on(&call.base, writer->context);
    }
    writer->failed = status != PANDO_OK;
    if (status == PANDO_OK)
        writer->added += size;
    return status;
}

static enum pando_status commit_co(struct library_call *call)
{
    struct writer_call *commit = container_of(call, struct writer_call, base);
    struct pando_writer *writer = commit->writer;
    struct store_swap swap = {.expect = STORE_EXPECT_NOTHING, .mode = commit->mode};
    uint64_t reference;
    if (writer->stage == NULL)
        return store_put_co(call->store, key_of(writer), slice_of(writer->bytes, writer->size),
                            commit->mode);
    if (!writer->sealed) {
        enum pando_status status =
            store_stage_seal_co(writer->stage, slice_of(NULL, 0), &reference);
        writer->sealed = status == PANDO_OK;
        writer->failed = status != PANDO_OK;
        if (status != PANDO_OK)
            return status;
    }
    return store_stage_swap_co(writer->stage, &swap);
}

enum pando_status pando_writer_commit(struct pando_writer *writer, enum pando_condition condition)
{
    enum pando_status status = usable(writer, NO_WRITER("pando_writer_commit"));
    if (status != PANDO_OK)
        return status;
    struct writer_call call = call_of(writer, commit_co);
    if (condition != 0 && condition != PANDO_IF_ABSENT && condition != PANDO_IF_PRESENT)
        return failure_of(&call.base, PANDO_INVALID,
                          "%d is no condition; use PANDO_IF_ABSENT, PANDO_IF_PRESENT or 0",
                          (int)condition);
    if (writer->added != writer->size)
        return failure_of(&call.base, PANDO_INVALID, "%llu of the value's %llu bytes are missing",
                          (unsigned long long)(writer->size - writer->added),
                          (unsigned long long)writer->size);
    call.mode = condition == PANDO_IF_ABSENT    ? STORE_INSERT
                : condition == PANDO_IF_PRESENT ? STORE_UPDATE
                                                : STORE_UPSERT;
    status =
        writer->context == NULL ? call_run(&call.base) : call_run_on(&call.base, writer->context);
    writer->done = status == PANDO_OK || status == PANDO_UNKNOWN;
    return status;
}
