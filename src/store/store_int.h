/*
 * store_int.h - what the files of the store share. README.md says how they play together.
 */
#ifndef STORE_STORE_INT_H
#define STORE_STORE_INT_H

#include <stdatomic.h>

#include "store/store.h"

/* One membership in the pool, from a join until this member is declared dead. */
struct store_membership {
    struct list link; /* in the store's former memberships */
    struct pool *pool;
    uint64_t number;
    unsigned threads; /* that have a session of it; under the store's latch */

    /* The keeper's. */
    struct pool_session *session; /* its own, of a membership that is over; NULL: there is none */
    bool leaving;                 /* a task is at it */
};

/* A table that this process has open, in one membership. */
struct shared_table {
    struct list link;
    char name[POOL_NAME_MAX];
    uint64_t number; /* the table's, in the directory */
    unsigned slot;   /* where it is there */
    uint64_t membership;
    struct engine_table *engine_table;
    struct list attached; /* struct store_table; under the store's latch */
    atomic_bool dropped;  /* no operation begins any more */
    bool retired;         /* and nothing of it is written any more */
    uint64_t cache_bytes; /* of what the store has for all */
};

struct store {
    struct fabric *fabric;
    struct pool_options pool_options; /* .pool: the one joined first, none other after that */
    struct engine_config config;
    uint64_t cache_given; /* to the tables that are open; changed under the store's lock */
    char *name;
    uint64_t lease_ns;

    struct store_membership *membership; /* changed under the store's lock */
    _Atomic uint64_t membership_number;
    atomic_bool nudged;       /* the keeper has something to do */
    atomic_bool hurried;      /* nobody waits for the next membership */
    struct rt_waitq rejoined; /* those who wait for the next membership */

    /* The store's lock: one at a time opens or closes tables or joins; the others wait. */
    struct rt_latch latch;
    atomic_bool busy;
    struct rt_waitq free;
    struct list tables;
    atomic_uint attached; /* handles, of all threads */

    /* finish.c: dropped tables that this process is to free; under the latch. */
    struct store_drop *drops;
    unsigned drop_count, drop_room;

    /* keeper.c, on the loop that opened the store. */
    struct pool_session *session;
    struct list former;       /* memberships that are over, and were not left yet, */
    unsigned leaving;         /* of which so many are being left */
    struct rt_waitq wake;     /* ends the keeper's sleep, and tells its end */
    struct rt_waitq finished; /* finishing is over, or a membership was left */
    atomic_bool closing, keeping;
    bool finishing;
    uint64_t
        retired_ns; /* since when no table is used that was dropped; 0: some is, or all is said */
    uint64_t join_said_ns; /* when it last said that it cannot join; 0: not since it has */
    unsigned rounds;       /* of the keeper in this membership */
    uint64_t drops_looked; /* the count of drops before it last looked at its tables' entries */
    uint64_t scanned_ns;   /* when it last looked for tables whose droppers are gone, */
    uint64_t departures;   /* and how many members had departed then */
    bool seen_due;         /* that count is to be published when the dropped tables are quiet */
};

enum { STORE_NAME_BUCKETS = 1024 };

struct store_thread {
    struct store *store;
    struct store_membership *membership;
    struct pool_session *session; /* NULL: the last try to open one failed */
    struct list tables;
    struct store_table *names[STORE_NAME_BUCKETS]; /* the same, by a hash of their names */
    struct list attached; /* those that are, in the order in which they are asked to leave */
    unsigned attached_count;
    atomic_bool dropped; /* some handle is of a table that is no more */
    unsigned active;     /* tasks inside the session or an engine */
    bool renewing, paused;
    struct rt_waitq changed; /* nobody is active while it is being renewed, or it has been */
};

struct store_table {
    struct list link;          /* the thread's */
    struct list shared_link;   /* the shared table's */
    struct list attached_link; /* the thread's, while it is attached */
    struct store_table *next;  /* of the same bucket */
    struct store_thread *thread;
    struct shared_table *shared; /* NULL and */
    struct engine *engine;       /* NULL: to be attached again in this membership */
    char name[POOL_NAME_MAX];
    uint64_t number;
    struct store_shape shape;
    unsigned opens;
    unsigned stages; /* of this table: it stays attached */
    bool gone;       /* dropped: good for nothing */
    bool used;       /* since its thread last looked for idle ones */
    bool leaving;    /* a task is about to detach it */
    _Atomic unsigned active;
};

/* How long an operation waits for the process to join again; and how often it does. */
enum { STORE_REJOIN_LEASES = 20, STORE_REJOINS_MAX = 4 };

/* store.c */
void store_lock_co(struct store *store);
void store_unlock(struct store *store);

/* Makes sure that the thread has a session of the current membership, and counts the caller in.
 * FENCED does not come out; BROKEN, TIMEOUT: the pool cannot be reached. */
PANDO_MUST_CHECK enum pando_status store_thread_enter_co(struct store_thread *thread);
void store_thread_leave(struct store_thread *thread);

/* The same in a membership that may be over, without waiting for the next. Does not suspend; false:
 * the thread is in another membership, or on its way to one. */
bool store_thread_enter_membership(struct store_thread *thread, uint64_t membership);

/* After FENCED in the membership of that number: waits for the next, in bounded time. */
PANDO_MUST_CHECK enum pando_status store_await_membership_co(struct store *store,
                                                             uint64_t membership_number);

/* table.c */
enum pando_status store_table_explain(enum pando_status status, const char *what, const char *name,
                                      char *error, size_t error_bytes);
void store_handle_remove(struct store_table *table); /* from its thread's lists */

/* attach.c: as the thread's; the store's lock is not held. */
PANDO_MUST_CHECK enum pando_status store_table_attach_co(struct store_table *table, char *error,
                                                         size_t error_bytes);
PANDO_MUST_CHECK enum pando_status store_table_enter_co(struct store_table *table);
PANDO_MUST_CHECK enum pando_status store_table_enter_membership(struct store_table *table,
                                                                uint64_t membership);
void store_table_leave(struct store_table *table);
void store_table_detach_co(struct store_table *table);

/* finish.c */

/* Adds a table that was marked as being dropped to those that this process is to free. Any thread. */
void store_finish_add(struct store *store, unsigned slot, uint64_t number);

/* Looks for tables whose droppers are gone, if that is due; starts to free what there is. The keeper's. */
void store_finish_round_co(struct store *store, bool first);

/* keeper.c */
PANDO_MUST_CHECK enum pando_status store_keeper_start(struct store *store);
void store_keeper_stop_co(struct store *store);
void store_keeper_wake(struct store *store);

/* table.c */
struct store_shape store_shape_of(const struct engine_shape *shape);

/* operations.c */
struct engine_swap engine_swap_of(const struct store_swap *swap);

#endif
