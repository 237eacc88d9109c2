/*
 * pool_int.h - what the files of the client's side of the pool share: a pool and a session. What they do
 * for each other is in members_int.h, directory_int.h and memory_int.h.
 */
#ifndef POOL_POOL_INT_H
#define POOL_POOL_INT_H

#include <stdatomic.h>

#include "base/list.h"
#include "pool/intent_fmt.h"
#include "pool/pool.h"
#include "pool/stock.h"

/* Allocations that fail on purpose: fail.c. */
struct pool_fail {
    atomic_bool on, blocks_only;
    _Atomic uint64_t asked, first, count;
};

enum { POOL_ANSWER_BUCKETS = 64 };

/* What is known of a memory node's room: room.c. */
struct pool_room {
    _Atomic uint32_t chunks;           /* that it could open for blocks */
    _Atomic uint32_t refused_bytes;    /* the smallest block that it lately had not, */
    _Atomic uint64_t refused_until_ns; /* and until when that is believed; 0: it refused none */
};

struct pool {
    struct fabric *fabric;
    uint16_t nodes;
    uint64_t id;
    uint64_t first; /* of every window */
    struct pool_superblock supers[POOL_NODES_MAX];
    struct pool_window windows[POOL_NODES_MAX]; /* as of when it joined, */
    uint64_t epoch;                             /* which was at this epoch */
    _Atomic uint64_t *uses;                     /* uses.c; by table's number */
    atomic_bool window_lost[POOL_NODES_MAX];    /* that was logged */
    struct fabric_identity identity;
    struct fabric_ticket pass; /* of this member; under the latch */
    uint64_t lease_ns, drift_ppm;
    bool no_recovery;
    const atomic_bool *ending; /* of pool_options */
    _Atomic uint64_t lease_until_ns;
    atomic_bool fenced;
    atomic_uint acquisitions;
    _Atomic uint64_t recoveries, unreadable_intents, departures;
    _Atomic uint64_t shared_bytes;     /* the engines' */
    _Atomic uint64_t avoided;          /* memory nodes that may not be used now; partial.c */
    _Atomic uint64_t avoided_until_ns; /* not looked whether they may be again before */

    /* On the loop that joined. */
    struct pool_session *own; /* the member tasks' session */
    struct pool_session
        *grants;              /* the one with which wishes are granted; NULL until there was one */
    uint64_t beat;            /* the heartbeat word as last written */
    bool leaving;             /* watches the others no more, */
    bool left;                /* and has given back everything: beats no more */
    bool watching, beating;   /* the tasks that do run, */
    bool returning, granting; /* as well as those that give back blocks, and grant wishes */
    unsigned stuck;           /* beats in a row that were not sent because a loop stood still */
    struct rt_waitq wake;     /* ends the member tasks' sleep when leaving */
    struct rt_waitq ended;    /* one of them */

    /* window_fences.c */
    bool fencing_own;     /* its task runs */
    uint64_t fences_seen; /* that task's: the count on node 0 that it has come to */
    atomic_bool hold_wanted, holds, fences_asked;
    atomic_bool fences_waited;   /* for a lease, since the monitor has last looked at all members */
    struct rt_waitq fences_wake; /* its sleep */
    struct rt_waitq holding;     /* it has come to hold */

    struct rt_latch latch; /* sessions */
    struct list sessions;
    struct pool_stock *stock;
    atomic_bool unknown_left;     /* a session was closed whose lists had an unknown outcome */
    struct intent_slots *intents; /* by node */
    _Atomic uint16_t vital_node;  /* vital blocks come from all nodes in turn */
    struct pool_fail fail;
    struct pool_room rooms[POOL_NODES_MAX];
    atomic_bool turns_taken; /* since the last look */
    uint64_t rooms_look_ns;  /* when the next is due; the member's own task's */

    /* Of each member, the incarnation of which was said that it cannot be called, and one more; 0: none. */
    _Atomic uint32_t uncallable[POOL_MEMBERS];
    _Atomic uint64_t unsaid[POOL_MEMBERS]; /* wishes.c: of whom that is to be said */

    /* answers.c */
    struct fabric_answerer answerer;
    struct list answers[POOL_ANSWER_BUCKETS]; /* who answers, by table; under the latch */
    struct list answering;    /* sessions of the loops on which calls come; under the latch */
    struct rt_waitq answered; /* some call has been */
};

struct pool_peers;

/* Slots for intents of the process on one node, fetched one by one when all are in use. */
enum { INTENT_SLOTS_MAX = 64 };
struct intent_slots {
    struct rt_latch latch; /* for all but the queue */
    uint32_t count;
    _Atomic uint32_t free_count;
    fabric_address free_slots[INTENT_SLOTS_MAX];
    uint64_t again_ns; /* the node had none: not asked before */
    bool fetching;
    _Atomic uint32_t fetches; /* that have ended, well or not */
    uint32_t unused;          /* the least that free_count has been, */
    uint64_t unused_until_ns; /* in the lease that ends then */
    struct rt_waitq waiting;
};

struct pool_session {
    struct pool *pool;
    struct list link;
    struct rt_loop *loop;
    struct fabric_endpoint **endpoints;
    bool *reconnecting;
    uint64_t *silent_until_ns;   /* of each node: it did not answer, and is left alone until then */
    int32_t *credits;            /* of each node: for blocks that may be anywhere (room.c) */
    _Atomic uint64_t ticked_ns;  /* the loop was seen turning */
    uint64_t stops;              /* times it had not turned for long, as after a pause */
    uint64_t breaks;             /* times the endpoint to node 0 was found broken */
    _Atomic uint64_t settled_ns; /* when none of its endpoints was broken */
    atomic_bool paused;          /* its loop need not turn, */
    atomic_bool paused_settled;  /* and no endpoint was broken when it stopped */
    bool closing;
    bool ticker_done;
    struct rt_waitq wake;  /* the ticker's sleep */
    struct rt_waitq ended; /* its tasks: the ticker, the last that fences, the last that is owed */
    struct rt_waitq connected; /* a task has connected, or could not, for all that wait for it */
    struct pool_peers *peers;  /* NULL until the first is called */
    struct fabric_counters former_peers;
    unsigned fencing; /* tasks of recover.c that are still trying */
    unsigned owed;    /* tasks of owed.c that have a lock to release */
    unsigned held;    /* tasks that go on without their callers: pool_session_hold */
};

/* pool.c: lists to a node, whatever they are about. Engines have lists.h. */
struct fabric_endpoint *pool_endpoint(struct pool_session *session, uint16_t node);

/* Connects a broken endpoint again: OK, FENCED, or why not. OK at once if it is not broken. */
PANDO_MUST_CHECK enum pando_status pool_reconnect_co(struct pool_session *session, uint16_t node);

/* A list; reconnects a broken endpoint first, in bounded time. */
PANDO_MUST_CHECK enum pando_status pool_submit_co(struct pool_session *session, uint16_t node,
                                                  struct fabric_op *ops, uint32_t count);

/* The same for a list that may be repeated. If its endpoint broke, so that its outcome is not known, and can
 * be connected again, which fences what was sent before (rule failed-lists-linger), the list is
 * sent again, a few times at most. */
PANDO_MUST_CHECK enum pando_status pool_submit_again_co(struct pool_session *session, uint16_t node,
                                                        struct fabric_op *ops, uint32_t count);

enum pando_status pool_word_read_co(struct pool_session *session, fabric_address address,
                                    uint64_t *out);
void pool_set_fenced(struct pool *pool);

/* Notes whether no endpoint is broken. On the session's loop. */
void pool_session_settle(struct pool_session *session);

/* pool.c: says why a memory node cannot be connected to, and returns the status. */
enum pando_status pool_connect_failed(struct pool *pool, uint16_t node, enum pando_status status,
                                      char *error, size_t error_bytes);

#endif
