/*
 * pando_int.h - what the files of the C library share.
 *
 * A *context* is what one user of a pool needs to run operations: a loop, a store thread, and the tables it
 * has met. Every thread that calls has one, with a loop that is run during its calls only; every queue has
 * one on a thread of its own; every writer of a long value has one, whose loop runs during the writer's
 * calls. Between calls a context is paused: it holds no lock and owes nobody an answer.
 */
#ifndef LIB_PANDO_INT_H
#define LIB_PANDO_INT_H

#include <stdatomic.h>

#include "pando/pando.h"
#include "store/store.h"

struct pando_pool {
    unsigned forks; /* when it was opened */
    struct env *env;
    struct store *store;
    struct rt_local *contexts, *failures; /* of each thread */

    /* The thread that keeps the process a member. */
    struct rt_thread *thread;
    struct rt_task *main_task;
    atomic_bool closing;

    struct rt_latch latch; /* all below */
    struct list context_list;
    unsigned context_count, iterators, queues, writers;
    struct pando_table *tables[PANDO_TABLES_MAX];
    unsigned table_next; /* no index below is free */
    uint64_t table_serial;
};

struct pando_table {
    struct pando_pool *pool;
    unsigned index;
    uint64_t serial; /* no other handle had it: an index is used again */
    char name[PANDO_NAME_MAX];
    uint64_t number;
    struct store_shape shape;
    atomic_uint users; /* iterators, writers, operations in queues */
    atomic_bool dropped;
};

/* A thread's last failure on a pool: its text is made when somebody asks. */
struct failure {
    enum pando_status status;
    const char *what;    /* "put into", a constant */
    const char *missing; /* what NOT_FOUND means; NULL: no such key */
    char table[PANDO_NAME_MAX];
    struct store_shape shape;
    bool dropped;
    size_t key_size, value_size;
    size_t number, count; /* of operations; 0: there is one */
    bool many;
    char text[512]; /* as found; else made of the above */
};

struct context {
    struct pando_pool *pool;
    struct list link;
    struct rt_loop *loop;
    struct store_thread *thread;
    atomic_bool inside; /* a call */
    struct {
        uint64_t serial;
        struct store_table *table;
    } attached[PANDO_TABLES_MAX];
};

/* A call: what it is about, for errors; and fn, which runs on a task of the context. */
struct library_call {
    const char *what;
    struct pando_pool *pool;
    struct pando_table *table; /* NULL: of the pool */
    size_t key_size, value_size;
    size_t number, count; /* which of how many operations failed; 0: there is one */
    bool many;            /* a part of it may have been done before it failed */
    const char *missing;  /* what NOT_FOUND means; NULL: no such key */
    enum pando_status (*fn_co)(struct library_call *call);
    struct context *context;   /* set before fn_co */
    struct store_table *store; /* likewise, with a table */
    char error[256];           /* fn_co may say all of it */
};

/* Runs a call on the calling thread's context, of a pool that is usable; keeps its failure. */
PANDO_MUST_CHECK enum pando_status call_run(struct library_call *call);

/* The same on another context of the pool, which nobody else uses meanwhile. */
PANDO_MUST_CHECK enum pando_status call_run_on(struct library_call *call, struct context *context);

/* context.c */
PANDO_MUST_CHECK enum pando_status context_open_co(struct pando_pool *pool, struct rt_loop *loop,
                                                   struct context **out);
void context_close_co(struct context *context); /* frees it, not its loop */

/* This context's part of a table. */
PANDO_MUST_CHECK enum pando_status context_table_co(struct context *context,
                                                    struct pando_table *table,
                                                    struct store_table **out, char *error,
                                                    size_t error_bytes);
void contexts_destroy(void *context); /* a thread ended, or the pool is closed */

/* One with a loop of its own, that any thread may run calls on, one at a time. */
PANDO_MUST_CHECK enum pando_status context_create(struct pando_pool *pool, struct context **out);
void context_destroy(struct context *context);

/* The calling thread's context; NULL if it has none. */
struct context *context_of_thread(const struct pando_pool *pool);

/* INVALID for NULL, after a fork, and from inside a callback; keeps that failure. `note` is what it says
 * of NULL: NO_HANDLE. */
void failure_no_handle(const char *note);
PANDO_MUST_CHECK enum pando_status pool_check(const struct pando_pool *pool);
PANDO_MUST_CHECK static inline enum pando_status pool_usable(const struct pando_pool *pool,
                                                             const char *note)
{
    if (pool != NULL)
        return pool_check(pool);
    failure_no_handle(note);
    return PANDO_INVALID;
}

PANDO_MUST_CHECK static inline enum pando_status table_usable(const struct pando_table *table,
                                                              const char *note)
{
    return pool_usable(table == NULL ? NULL : table->pool, note);
}

/* What is said of a handle that is NULL. */
#define NO_HANDLE(function, what)                                                                  \
    function ": the " what " is NULL; look at the status of the call that was to open it"
#define NO_TABLE(function) NO_HANDLE(function, "table")
#define NO_POOL(function)  NO_HANDLE(function, "pool")

/* ---- failures (failure.c) -------------------------------------------------------------------- */

/* All of them keep why the calling thread's call failed, for pando_error_text, and return the status. */

/* Of a call on a pool or table: call->error if that is set, else made of the status when somebody asks. */
enum pando_status failure_keep(const struct library_call *call, enum pando_status status);

/* The same, with a text that follows what the call is about: "put into table 't': ". */
__attribute__((format(printf, 3, 4))) enum pando_status
failure_of(const struct library_call *call, enum pando_status status, const char *format, ...);

/* Of a call on a pool, with all of its text. */
__attribute__((format(printf, 3, 4))) enum pando_status
failure_say(struct pando_pool *pool, enum pando_status status, const char *format, ...);

/* Whether the text that is made of the status says more than the store's own. */
bool failure_explains(enum pando_status status);

/* A pointer argument that is NULL; INVALID. */
static inline enum pando_status failure_null(const struct library_call *call, const char *which)
{
    (void)failure_of(call, PANDO_INVALID, "%s is NULL; nothing was done", which);
    return PANDO_INVALID;
}

/* The first members of a struct of another version of the header; the rest is zero. */
#define STRUCT_TAKEN(to, from)                                                                     \
    memcpy(&(to), (from), (from)->size < sizeof(to) ? (from)->size : sizeof(to))

#endif
