/*
 * members_int.h - a member among others, for the files of the pool: joining and leaving, windows, calls
 * between members, what node 0 confirms, and recovery of the dead.
 */
#ifndef POOL_MEMBERS_INT_H
#define POOL_MEMBERS_INT_H

#include "pool/pool_int.h"

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
 * the pool by whoever joins next, so this member resigns. */
void pool_windows_check_co(struct pool *pool);

/* A window was replaced since this member joined: it has to join again. FENCED. */
enum pando_status pool_epoch_over(struct pool *pool);

/* members.c */
fabric_address pool_heartbeat_address(const struct pool *pool, uint16_t member);

/* Of all POOL_MEMBERS heartbeats, on node 0. */
static inline struct fabric_op pool_heartbeats_read(const struct pool *pool, uint64_t *beats)
{
    return fabric_read(pool->first + POOL_HEARTBEATS, beats, POOL_MEMBERS * sizeof(*beats));
}

/* The same by one READ, into memory that the caller frees: *out is NULL if it fails. */
PANDO_MUST_CHECK enum pando_status pool_heartbeats_co(struct pool_session *session, uint64_t **out);
fabric_address pool_record_address(const struct pool *pool, uint16_t member);
enum pando_status pool_member_join_co(struct pool *pool, struct fabric_endpoint *endpoint,
                                      const char *name);
enum pando_status pool_member_start(struct pool *pool);

/* An endpoint as this member. Waits for up to a lease while a process that had its slot before is still
 * connected: it has left, and is ending. BUSY after that. */
PANDO_MUST_CHECK enum pando_status pool_member_connect_co(struct pool *pool, uint16_t node,
                                                          struct fabric_endpoint **out);

/* Leaving, first half: ends the member's tasks, gives back its locks and memory. False: others have to
 * recover it. Then its sessions are closed, and its slot is freed. */
bool pool_member_end_co(struct pool *pool);
void pool_member_free_slot_co(struct pool *pool);
void pool_session_ticker_task(void *arg);

/* answers.c */
void pool_answers_init(struct pool *pool);

/* Calls are let in from here on: the member has its identity. */
void pool_answers_begin(struct pool *pool);
void pool_answers_end_co(struct pool *pool);

/* A call of this process itself, with the caller's own session. */
PANDO_MUST_CHECK enum pando_status pool_answer_self_co(struct pool_session *session, uint16_t table,
                                                       struct fabric_request *request);

/* window_fences.c: fences the dead one at members' windows. AGAIN: one that holds something in its
 * window has not done so yet. */
PANDO_MUST_CHECK enum pando_status pool_fence_windows_co(struct pool_session *session,
                                                         const struct fabric_ticket *dead);

/* A member's own part in that, on the loop that joined; and that there is something to do. Any
 * thread. */
void pool_fences_task(void *pool);
void pool_fences_wake(struct pool *pool);

/* wishes.c: grants what others have wished of this member. */
void pool_wishes_serve_co(struct pool *pool);

/* The heartbeat of a member has moved: says once, until it answers again, if it could not be called before. */
void pool_uncallable_say_co(struct pool_session *session, struct fabric_identity member);

/* A member has answered a call: when it cannot be called again that is said again. Any thread. */
static inline void pool_wish_over(struct pool *pool, uint16_t member)
{
    if (atomic_load_explicit(&pool->uncallable[member], memory_order_relaxed) != 0)
        atomic_store(&pool->uncallable[member], 0);
    if (atomic_load_explicit(&pool->unsaid[member], memory_order_relaxed) != 0)
        atomic_store(&pool->unsaid[member], 0);
}

/* peers.c */

/* The record of a member, which is its own if it was alive before and after. UNSUPPORTED: it listens nowhere.
 * NOT_FOUND: it is not there any more. */
PANDO_MUST_CHECK enum pando_status pool_locate_co(struct pool_session *session,
                                                  struct fabric_identity who,
                                                  struct pool_record *record);
void pool_peers_close_co(struct pool_session *session);
void pool_peers_counters(const struct pool_session *session, struct fabric_counters *sum);

/* recover.c: recovers the member whose heartbeat is `seen`, by CAS from that very word, which has stood
 * still for that long. Errors as pool_recover_co; BUSY: another is at it. */
PANDO_MUST_CHECK enum pando_status pool_recover_from_co(struct pool_session *session,
                                                        uint16_t member, uint64_t seen,
                                                        uint64_t still_ns);

/* ticket.c (rule fence-ticket) */

/* Has node 0 confirm that this member has joined, and keeps the pass that it gives. */
PANDO_MUST_CHECK enum pando_status pool_pass_get_co(struct pool *pool,
                                                    struct fabric_endpoint *endpoint);

/* A call of a method that wants the caller's pass, at `pass` in its body. */
struct pool_member_call {
    uint16_t method;
    struct slice body;
    uint8_t *pass;
    void *reply;
    uint32_t capacity;
    uint32_t *size; /* of the reply, or NULL */
};

/* Makes it with this member's pass; with a new one, if the secret was changed since it was made. */
PANDO_MUST_CHECK enum pando_status pool_call_as_member_co(struct pool_session *session,
                                                          uint16_t node,
                                                          const struct pool_member_call *call);

/* Connects to a node again if need be, and has it take back what the request says. */
PANDO_MUST_CHECK enum pando_status pool_sweep_co(struct pool_session *session, uint16_t node,
                                                 struct pool_sweep_request *request,
                                                 struct pool_sweep_reply *reply);

/* Asks a node for memory. */
PANDO_MUST_CHECK enum pando_status pool_grant_co(struct pool_session *session, uint16_t node,
                                                 struct pool_grant_request *request, void *reply,
                                                 uint32_t capacity, uint32_t *size);

/* Shows the pass at a memory node. */
PANDO_MUST_CHECK enum pando_status pool_pass_show_co(struct pool *pool,
                                                     struct fabric_endpoint *endpoint);

/* Asks node 0 about a member that may be dead. OK: it has stood still; and *out is a ticket for it if
 * *claimed, that is if its word says fenced. BUSY: it was not silent for long enough, as far as node 0
 * knows. NOT_FOUND: that incarnation is over. */
PANDO_MUST_CHECK enum pando_status pool_ticket_co(struct pool_session *session,
                                                  struct fabric_identity who,
                                                  struct fabric_ticket *out, bool *claimed);

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

#endif
