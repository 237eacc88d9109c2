/*
 * store_int.h - what the files of the store share. README.md says how they play together.
 */
#ifndef STORE_STORE_INT_H
#define STORE_STORE_INT_H

#include <stdatomic.h>

#include "store/store.h"

/* One membership in the pool, from a join until this member is declared dead. */
struct store_life {
    struct list link; /* in the store's former lives */
    struct pool *pool;
    uint64_t number;
    unsigned threads; /* that have a session of it; under the store's latch */
};

/* A table that this process has open, in one life. */
struct shared_table {
    struct list link;
    char name[POOL_NAME_MAX];
    uint64_t number; /* the table's, in the directory */
    uint64_t life;
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
    char *name, *without;
    uint64_t lease_ns;

    struct store_life *life; /* changed under the store's lock */
    _Atomic uint64_t life_number;
    atomic_bool nudged;     /* the keeper has something to do */
    atomic_bool hurried;    /* nobody waits for the next life */
    struct rt_waitq reborn; /* those who wait for the next life */

    /* The store's lock: one at a time opens or closes tables or joins; the others wait. */
    struct rt_latch latch;
    bool busy;
    struct rt_waitq free;
    struct list tables;

    /* keeper.c, on the loop that opened the store. */
    struct pool_session *session;
    struct list former; /* lives that some thread still has a session of */
    struct rt_waitq wake;
    bool closing, keeper_done, finishing;
    uint64_t
        retired_ns; /* since when no table is used that was dropped; 0: some is, or all is said */
    uint64_t join_said_ns; /* when it last said that it cannot join; 0: not since it has */
    unsigned passes;       /* of the keeper in this life */
    uint64_t drops_looked; /* the count of drops before it last looked at the directory */
    bool dropping;         /* some table was being dropped then */
    unsigned finish_from;  /* the slot after the one of which that was tried last */
    bool seen_due;         /* that count is to be published when the dropped tables are quiet */
};

struct store_thread {
    struct store *store;
    struct store_life *life;
    struct pool_session *session; /* NULL: the last try to open one failed */
    struct list tables;
    unsigned active; /* tasks inside the session or an engine */
    bool renewing, paused;
};

struct store_table {
    struct list link;        /* the thread's */
    struct list shared_link; /* the shared table's */
    struct store_thread *thread;
    struct shared_table *shared; /* NULL and */
    struct engine *engine;       /* NULL: to be attached again in this life */
    char name[POOL_NAME_MAX];
    uint64_t number;
    struct engine_shape shape;
    unsigned opens;
    bool gone; /* dropped: good for nothing */
    _Atomic unsigned active;
};

/* How long an operation waits for the process to join again; and how often it does. */
enum { STORE_REJOIN_LEASES = 20, STORE_REJOINS_MAX = 4 };

/* store.c */
void store_lock_co(struct store *store);
void store_unlock(struct store *store);

/* Makes sure that the thread has a session of the current life, and counts the caller in. FENCED
 * does not come out; BROKEN, TIMEOUT: the pool cannot be reached. */
PANDO_MUST_CHECK enum pando_status store_thread_enter_co(struct store_thread *thread);
void store_thread_leave(struct store_thread *thread);

/* After FENCED in the life of that number: waits for the next, in bounded time. */
PANDO_MUST_CHECK enum pando_status store_reborn_co(struct store *store, uint64_t life_number);

/* table.c: as the thread's; the store's lock is not held. */
PANDO_MUST_CHECK enum pando_status store_table_enter_co(struct store_table *table);
void store_table_leave(struct store_table *table);
void store_table_detach_co(struct store_table *table);

/* keeper.c */
PANDO_MUST_CHECK enum pando_status store_keeper_start(struct store *store);
void store_keeper_stop_co(struct store *store);
void store_keeper_nudge(struct store *store);

#endif
