/*
 * pando_int.h - what the files of the C library share.
 *
 * A *context* is what one user of a pool needs to run operations: a loop, a store thread, and the tables it
 * has met. Every thread that calls has one, with a loop that is run during its calls only; every queue has
 * one on a thread of its own. Between calls a context is paused: it holds no lock and owes nobody an answer.
 */
#ifndef STORE_PANDO_INT_H
#define STORE_PANDO_INT_H

#include <stdatomic.h>

#include "pando/pando.h"
#include "store/store.h"

struct pando_pool {
    unsigned forks; /* when it was opened */
    struct env *env;
    struct store *store;
    struct rt_local *contexts;

    /* The thread that keeps the process a member. */
    struct rt_thread *thread;
    struct rt_task *main_task;
    atomic_bool closing;

    struct rt_latch latch; /* all below */
    struct list context_list;
    unsigned context_count, iterators, queues;
    struct pando_table *tables[PANDO_TABLES_MAX];
    uint64_t table_serial;
};

struct pando_table {
    struct pando_pool *pool;
    unsigned index;
    uint64_t serial; /* no other handle had it: an index is used again */
    char name[PANDO_NAME_MAX];
    uint64_t number;
    struct engine_shape shape;
    atomic_uint users; /* iterators, operations in queues */
    atomic_bool dropped;
};

/* The last failure: its text is made when somebody asks. */
struct failure {
    enum pando_status status;
    const char *what; /* "put into", a constant */
    char table[PANDO_NAME_MAX];
    uint32_t key_max, value_max;
    bool dropped;
    size_t key_size, value_size;
    char text[320]; /* as found; else made of the above */
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
    struct failure failure;
};

/* A call: what it is about, for errors; and fn, which runs on a task of the context. */
struct call {
    const char *what;
    struct pando_pool *pool;
    struct pando_table *table; /* NULL: of the pool */
    size_t key_size, value_size;
    enum pando_status (*fn_co)(struct call *call);
    struct context *context;   /* set before fn_co */
    struct store_table *store; /* likewise, with a table */
    char error[256];           /* fn_co may say more */
};

/* Runs a call on the calling thread's context; keeps its failure. */
PANDO_MUST_CHECK enum pando_status call_run(struct call *call);

/* pando_context.c */
PANDO_MUST_CHECK enum pando_status context_open_co(struct pando_pool *pool, struct rt_loop *loop,
                                                   struct context **out);
void context_close_co(struct context *context); /* frees it, not its loop */

/* This context's part of a table. */
PANDO_MUST_CHECK enum pando_status context_table_co(struct context *context,
                                                    struct pando_table *table,
                                                    struct store_table **out, char *error,
                                                    size_t error_bytes);
void contexts_destroy(void *context); /* a thread ended, or the pool is closed */

/* The calling thread's context; NULL if it has none. */
struct context *context_of_thread(const struct pando_pool *pool);

/* INVALID for NULL, after a fork, and from inside a callback. */
PANDO_MUST_CHECK enum pando_status pool_usable(const struct pando_pool *pool);

/* What a failure was, for a person. */
const char *failure_text(struct failure *failure);
void failure_set(struct context *context, const struct call *call, enum pando_status status);

/* The first members of a struct of another version of the header; the rest is zero. */
#define STRUCT_TAKEN(to, from)                                                                     \
    memcpy(&(to), (from), (from)->size < sizeof(to) ? (from)->size : sizeof(to))

#endif
