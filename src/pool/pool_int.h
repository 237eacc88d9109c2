/*
 * pool_int.h - what the files of the client's side of the pool share.
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
    uint64_t lease_ns, drift_ppm;
    bool no_recovery;
    const atomic_bool *ending; /* of pool_options */
    _Atomic uint64_t lease_until_ns;
    atomic_bool fenced;
    atomic_uint acquisitions;
    _Atomic uint64_t recoveries, departures;
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

    struct rt_latch latch; /* sessions */
    struct list sessions;
    struct pool_stock *stock;
    atomic_bool doubtful;         /* a session was closed whose lists were in doubt */
    struct intent_slots *intents; /* by node */
    _Atomic uint16_t vital_node;  /* vital blocks come from all nodes in turn */
    struct pool_fail fail;

    /* answers.c */
    struct fabric_answerer answerer;
    struct list answers;      /* who answers, by table; under the latch */
    struct list answering;    /* sessions of the loops on which calls come; under the latch */
    struct rt_waitq answered; /* some call has been */
};

struct pool_peer;

/* Slots for intents of the process on one node, fetched one by one when all are in use. */
enum { INTENT_SLOTS_MAX = 64 };
struct intent_slots {
    struct rt_latch latch; /* for all but the queue */
    uint32_t count;
    uint32_t free_count;
    fabric_address free_slots[INTENT_SLOTS_MAX];
    uint64_t again_ns; /* the node had none: not asked before */
    bool fetching;
    struct rt_waitq waiting;
};

struct pool_session {
    struct pool *pool;
    struct list link;
    struct rt_loop *loop;
    struct fabric_endpoint **endpoints;
    bool *reconnecting;
    uint64_t *silent_until_ns;   /* of each node: it did not answer, and is left alone until then */
    uint16_t next_node;          /* for blocks that may be anywhere */
    _Atomic uint64_t ticked_ns;  /* the loop was seen turning */
    uint64_t stops;              /* times it had not turned for long, as after a pause */
    uint64_t breaks;             /* times the endpoint to node 0 was found broken */
    _Atomic uint64_t settled_ns; /* when none of its endpoints was broken */
    atomic_bool paused;          /* its loop need not turn, */
    atomic_bool paused_settled;  /* and no endpoint was broken when it stopped */
    bool closing;
    bool ticker_done;
    struct rt_waitq wake;
    struct pool_peer **peers; /* by member; NULL until the first is called */
    struct fabric_counters former_peers;
    unsigned fencing; /* tasks of recover.c that are still trying */
    unsigned owed;    /* tasks of owed.c that have a lock to release */
};

/* pool.c */
enum pando_status pool_word_read_co(struct pool_session *session, fabric_address address,
                                    uint64_t *out);
enum pando_status pool_word_cas_co(struct pool_session *session, fabric_address address,
                                   uint64_t expected, uint64_t desired, uint64_t *old);
void pool_set_fenced(struct pool *pool);

/* Notes whether no endpoint is broken. On the session's loop. */
void pool_session_settle(struct pool_session *session);

/* windows.c */

/* What joining needs of the memory nodes: superblocks, the pool's id (`expected`, if that is not 0),
 * and that every window is the one that the pool knows. With endpoints of nobody; `first` is one to
 * node 0. */
PANDO_MUST_CHECK enum pando_status pool_windows_join_co(struct pool *pool,
                                                        struct fabric_endpoint *first,
                                                        uint64_t expected, char *error,
                                                        size_t error_bytes);

/* Connects to a memory node if its window still is the one that was joined; else BROKEN. */
PANDO_MUST_CHECK enum pando_status pool_connect_co(struct pool *pool, uint16_t node,
                                                   struct fabric_endpoint **out);

/* Another window answers there: says so once, and BROKEN: its former one may yet come back. */
enum pando_status pool_window_lost(struct pool *pool, uint16_t node);

/* Looks at nodes that had another window: one that is to take the place of a lost one is joined to
 * the pool by whoever joins next, so this member gives itself up. */
void pool_windows_look_co(struct pool *pool);

/* A window was replaced since this member joined: it has to join again. FENCED. */
enum pando_status pool_epoch_over(struct pool *pool);

/* uses.c */
_Atomic uint64_t *pool_uses_create(void);
void pool_uses_learn(struct pool *pool, unsigned slot, const struct pool_entry *entry);

/* Says that the table has memory on that node, before it has. CORRUPT: it has lost some. */
PANDO_MUST_CHECK enum pando_status pool_table_uses_co(struct pool_session *session, uint16_t table,
                                                      uint16_t node);

/* members.c */
fabric_address pool_heartbeat_address(const struct pool *pool, uint16_t member);

/* Of all POOL_MEMBERS heartbeats, on node 0. */
static inline struct fabric_op pool_heartbeats_read(const struct pool *pool, uint64_t *beats)
{
    return fabric_read(pool->first + POOL_HEARTBEATS, beats, POOL_MEMBERS * sizeof(*beats));
}
fabric_address pool_record_address(const struct pool *pool, uint16_t member);
enum pando_status pool_member_join_co(struct pool *pool, struct fabric_endpoint *endpoint,
                                      const char *name);
enum pando_status pool_member_start(struct pool *pool);
void pool_member_leave_co(struct pool *pool);
void pool_session_ticker_task(void *arg);

/* answers.c */
void pool_answers_init(struct pool *pool);

/* Calls are let in from here on: the member has its identity. */
void pool_answers_begin(struct pool *pool);
void pool_answers_end_co(struct pool *pool);

/* A call of this process itself, with the caller's own session. */
PANDO_MUST_CHECK enum pando_status pool_answer_self_co(struct pool_session *session, uint16_t table,
                                                       struct fabric_request *request);

/* wishes.c: grants what others have wished of this member. */
void pool_wishes_look_co(struct pool *pool);

/* peers.c */
void pool_peers_close_co(struct pool_session *session);
void pool_peers_counters(const struct pool_session *session, struct fabric_counters *sum);

/* directory.c: fn changes it under its lock, and has read it. */
typedef enum pando_status (*pool_directory_fn)(struct pool_session *session,
                                               struct pool_entry *entries, void *context);
PANDO_MUST_CHECK enum pando_status pool_directory_change_co(struct pool_session *session,
                                                            pool_directory_fn fn, void *context);
uint64_t pool_entry_offset(const struct pool *pool, unsigned slot);
unsigned pool_entry_find(const struct pool_entry *entries, const char *name);

/* Under the directory's lock. */
PANDO_MUST_CHECK enum pando_status pool_entry_free_co(struct pool_session *session, unsigned slot);

/* recover.c: recovers the member whose heartbeat is `seen`, by CAS from that very word, which has stood
 * still for that long. Errors as pool_recover_co; BUSY: another is at it. */
PANDO_MUST_CHECK enum pando_status pool_recover_from_co(struct pool_session *session,
                                                        uint16_t member, uint64_t seen,
                                                        uint64_t still_ns);

/* partial.c: a node that is not to be used for now */
static inline bool pool_node_avoided(const struct pool *pool, uint16_t node)
{
    uint64_t avoided = atomic_load_explicit(&pool->avoided, memory_order_acquire);
    return avoided != 0 && node < 64 && (avoided >> node & 1) != 0;
}

/* Looks whether it may be again: OK or BROKEN. */
PANDO_MUST_CHECK enum pando_status pool_partial_check_co(struct pool_session *session,
                                                         uint16_t node);

/* owed.c: waits for what is owed, two leases at the most */
void pool_owed_settle_co(struct pool_session *session);

/* recover.c: locks of ours that nobody knows of any more, because their CAS had an unknown outcome */
enum pando_status pool_release_own_locks_co(struct pool_session *session);

/* intents.c */
struct intent_slots *intent_slots_create(uint16_t nodes);
void intent_slots_destroy(struct intent_slots *slots);

/* Nobody has an intent any more: the slots' blocks go back to their nodes with the rest. */
void pool_intents_end(struct pool *pool);

/* vital.c */

/* A vital block on that node; `modest`: not if it has only its reserve. Errors as pool_vital_alloc_co. */
PANDO_MUST_CHECK enum pando_status pool_vital_ask_co(struct pool_session *session, uint16_t node,
                                                     uint32_t block_bytes, bool modest,
                                                     struct pool_block *block);

/* fail.c: whether an allocation is to be refused with FULL. */
bool pool_alloc_fails(struct pool *pool, bool block);

/* alloc.c: marks a block as free and in this member's hands */
enum pando_status pool_tenure_free_co(struct pool_session *session, const struct pool_block *block);

/* Asks one node after the other, from `first` on, until one has a block: pool_alloc_co says how. */
typedef enum pando_status (*pool_alloc_fn)(struct pool_session *session, uint16_t node,
                                           uint32_t block_bytes, struct pool_block *block);
enum pando_status pool_alloc_anywhere_co(struct pool_session *session, uint16_t first,
                                         pool_alloc_fn fn, uint32_t block_bytes,
                                         struct pool_block *block);

/* Whether so many bytes at an address that a node named are in its heap. */
bool pool_granted_ok(const struct pool *pool, uint16_t node, uint64_t address, uint64_t bytes);

/* retry.c: whether a wait has lasted too long. *deadline_ns is 0 when it begins; it becomes ten leases later,
 * and no more than two after the caller began to leave, or the process to end. */
bool pool_past(const struct pool *pool, bool leaving, uint64_t *deadline_ns);

#endif
