/*
 * lists.h - the way to the pool's memory: lists of one-sided operations, by address.
 *
 * Everything that engines read and write in the pool goes through here. Functions take an address and no
 * node: operations of a list are offsets in the memory that this address lies in. There are three kinds of
 * lists, which differ in who sees them arrive, and so in what may be done about one that failed:
 *
 *   reads    change nothing, and may be repeated whenever their outcome is not known
 *   shared   others see them as soon as they arrive: lists under a lock, and the one that releases it. They
 *            are repeated until they are known to be applied, and a release never after it was
 *            (rule resolve-unknown). Whoever cannot finish one resigns
 *   unseen   only their writer knows of what they write until it is published by one word elsewhere: logs,
 *            fresh blocks, an owner's pages. They say the same each time and may be repeated
 *
 * and besides: CASes of words, and calls that push an operation down to the memory.
 *
 * What holds for all: nothing is sent by a member that was declared dead or has resigned (FENCED); nothing
 * through an endpoint that is being connected again, before it is known that the node's lock table was not
 * lost (rule resolve-unknown); and nothing to a node that is kept off because a recovery has not come there
 * yet (partial.c; BROKEN). RANGE: there is no such memory. BROKEN: it may have been applied all the same, if
 * it is not a read, until the endpoint is connected again (rule failed-lists-linger).
 *
 * Lists of operations and what they point to belong to the pool until the function returns, or the wait for
 * what was begun. On the session's loop.
 */
#ifndef POOL_LISTS_H
#define POOL_LISTS_H

#include <stdatomic.h>

#include "fabric/fabric.h"

struct pool;
struct pool_session;
struct pool_lock;

/* Whether lists there fail for now, because a recovery has not come there. Any thread. */
bool pool_kept_off(const struct pool *pool, fabric_address at);

/* ---- reads ----------------------------------------------------------------------------------- */

/* A thing that others may be writing or freeing is read until the caller believes it. */
struct pool_reading {
    fabric_address address;
    void *to;
    uint32_t size;
    unsigned tries; /* 0 to begin with */
    bool recent;    /* out: to be believed if the bytes pass the caller's check (see pool_recent) */
};

/* One try more; pauses before the later ones. STALE: no such place, or it was tried often enough. */
PANDO_MUST_CHECK enum pando_status pool_read_co(struct pool_session *session,
                                                struct pool_reading *reading);

/* stale-read-limit (R22): whether a READ that was posted at that time of rt_coarse_ns, and is done,
 * may be believed. */
bool pool_recent(uint64_t posted_ns);

/* One READ without its detours: fast path. False at the first thing that is unusual, also if what it brought
 * is not recent; pool_read_co says what it was. */
bool pool_read_fast_co(struct pool_session *session, fabric_address address, void *to,
                       uint32_t size);

/* READs only. Repeats the list if its endpoint broke and can be connected again, a few times at most. */
PANDO_MUST_CHECK enum pando_status pool_read_list_co(struct pool_session *session,
                                                     fabric_address at, struct fabric_op *ops,
                                                     uint32_t count);

/* One of several READs that are under way at the same time, wherever they go. */
struct pool_read {
    fabric_address address;
    void *to;
    uint32_t size;
    enum pando_status status; /* out */
    bool recent;              /* out: as of when the wait was over (see pool_recent) */
    uint64_t posted_ns;       /* out: for who looks at the bytes later */
    struct fabric_op op;      /* the pool's */
    struct fabric_list list;  /* the pool's */
};

/* Starts them; does not suspend. What cannot be sent at once is not sent, and has failed: BROKEN, also for
 * what another function would have waited for. */
void pool_reads_begin(struct pool_session *session, struct pool_read *reads, uint32_t count);

/* Waits for all of them. Nothing is repeated. */
void pool_reads_wait_co(struct pool_session *session, struct pool_read *reads, uint32_t count);

/* ---- shared lists ---------------------------------------------------------------------------- */

/* Sends a list that may be repeated, until it was carried out. What was begun must be finished: if that
 * cannot be, in the time of pool_retry_co, this member resigns, and others finish it. OK or
 * UNKNOWN. */
PANDO_MUST_CHECK enum pando_status pool_persist_co(struct pool_session *session, fabric_address at,
                                                   struct fabric_op *ops, uint32_t count,
                                                   const atomic_bool *leaving);

/* Likewise a list that ends in releasing the lock, on the lock's node: it is repeated only if it was
 * not applied (rule resolve-unknown). */
PANDO_MUST_CHECK enum pando_status pool_persist_unlock_co(struct pool_session *session,
                                                          const struct pool_lock *lock,
                                                          struct fabric_op *ops, uint32_t count,
                                                          const atomic_bool *leaving);

/* The same, of a list whose first operations are not repeated once the word at an address, on the lock's
 * node, is another: what they wrote may be others' by then. */
struct pool_once {
    uint32_t count; /* 0: none */
    fabric_address word_at;
    uint64_t word;
};
PANDO_MUST_CHECK enum pando_status
pool_persist_unlock_once_co(struct pool_session *session, const struct pool_lock *lock,
                            struct fabric_op *ops, uint32_t count, const struct pool_once *once,
                            const atomic_bool *leaving);

/* ---- unseen lists ---------------------------------------------------------------------------- */

/* Writes something that the caller can do without: repeats the list if its endpoint broke and can be
 * connected again, a few times at most. */
PANDO_MUST_CHECK enum pando_status pool_write_unseen_co(struct pool_session *session,
                                                        fabric_address at, struct fabric_op *ops,
                                                        uint32_t count);

/* Writes something that was acknowledged or begun, as pool_persist_co does. OK or UNKNOWN. */
PANDO_MUST_CHECK enum pando_status pool_persist_unseen_co(struct pool_session *session,
                                                          fabric_address at, struct fabric_op *ops,
                                                          uint32_t count,
                                                          const atomic_bool *leaving);

/* One of several unseen WRITEs that are under way at the same time, wherever they go. All zero, it is one
 * that is done. */
struct pool_write {
    fabric_address address;
    const void *from;
    uint32_t size;
    struct fabric_op op;     /* the pool's */
    struct fabric_list list; /* the pool's */
};

/* Starts it; does not suspend. */
void pool_write_begin(struct pool_session *session, struct pool_write *write);

/* Waits for it. What could not be sent, or whose endpoint broke, is sent again as by
 * pool_write_unseen_co. */
PANDO_MUST_CHECK enum pando_status pool_write_wait_co(struct pool_session *session,
                                                      struct pool_write *write);

/* ---- words ----------------------------------------------------------------------------------- */

/* One CAS; not repeated. */
PANDO_MUST_CHECK enum pando_status pool_word_cas_co(struct pool_session *session,
                                                    fabric_address address, uint64_t expected,
                                                    uint64_t desired, uint64_t *old);

/* CASes, and READs behind them: a lock with what it protects, or words of many nodes. Not repeated: callers
 * know what to make of a CAS of their own that was applied and had no answer. */
PANDO_MUST_CHECK enum pando_status pool_cas_list_co(struct pool_session *session, fabric_address at,
                                                    struct fabric_op *ops, uint32_t count);

/* Counts a CAS that has to be done again, among the operations of that memory. */
void pool_count_retry(struct pool_session *session, fabric_address at);

/* ---- pushdown -------------------------------------------------------------------------------- */

/* Has the memory node at which an address lies do a part of an engine's operation (struct engine_pushdown).
 * Not repeated. BROKEN, TIMEOUT: it may have been done all the same. */
struct pool_pushdown {
    bool barrier; /* it is to see all WRITEs before (rule cpu-visibility), which takes it longer */
    struct slice body;
    void *reply; /* up to reply_capacity bytes are stored */
    uint32_t reply_capacity;
    uint32_t reply_size; /* out */
};
PANDO_MUST_CHECK enum pando_status pool_pushdown_co(struct pool_session *session, fabric_address at,
                                                    struct pool_pushdown *pushdown);

#endif
