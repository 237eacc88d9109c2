/*
 * member_lists.h - one-sided lists to the windows of members, beside the calls of pool.h.
 *
 * What engines may use of a member's window begins at POOL_SLABS_FIRST (peer_fmt.h), at the same
 * offsets in every window, and is pool_own_window_bytes or pool_member_window_co large. Who has
 * which part of it is the engines' to say.
 *
 * A list is meant for one incarnation of a member. One that reaches a later life of its process
 * fails: an endpoint is asked who it leads to before its first list, and is ended when that member
 * ends (fabric_window_renew_co). The process's own window is reached by loopback, so that all
 * atomics on a word are in one domain (rules one-atomic-domain, cpu-visibility); nobody reads it by
 * the CPU.
 *
 * A member that cannot be reached holds up nobody else, and who needs it only once: the first try
 * to connect is waited for, where a function says so; later ones are made by a task of their own,
 * ever less often, and lists fail meanwhile.
 *
 * Statuses of a list:
 *   OK           all of it was done
 *   NOT_FOUND    not sent: no such member in that incarnation (any more), or it cannot be reached
 *   UNSUPPORTED  not sent: it has no window, or none that can be reached
 *   RANGE        an operation lies outside of what engines may use; of those before it some may be
 *                done
 *   BROKEN       it was sent, and may be applied still, wholly or in part, until
 *                pool_member_reach_co has returned OK (rule failed-lists-linger), or the member is no
 *                member any more
 *   FENCED       this member is dead
 *   INVALID, TOO_LARGE, AGAIN  as fabric_post has them; nothing was done
 *
 * A session belongs to its loop, and so do the lists in it.
 */
#ifndef POOL_MEMBER_LISTS_H
#define POOL_MEMBER_LISTS_H

#include "pool/pool.h"

/* Bytes of this process's window for engines; 0: none that others could reach. Any thread. */
uint64_t pool_own_window_bytes(const struct pool *pool);

/* The same of another member, as its record says it; 0 if others cannot reach it. NOT_FOUND. */
PANDO_MUST_CHECK enum pando_status
pool_member_window_co(struct pool_session *session, struct fabric_identity member, uint64_t *bytes);

/* From now on engines keep something of the pool in this process's window that others write to by
 * lists: nobody takes over from a dead member before this one has shut it out of its window
 * (window_fences.c). For as long as the member lives; again: OK. Call it, and let it return OK,
 * before others are told. Any loop. UNSUPPORTED: it has no window. FENCED; TIMEOUT: node 0 does not
 * answer. */
PANDO_MUST_CHECK enum pando_status pool_window_hold_co(struct pool_session *session);

/* Connects, unless it is connected, and waits for the first try. OK: nothing of the session's lists
 * to that member that failed before can be applied any more. Errors as a list's. */
PANDO_MUST_CHECK enum pando_status pool_member_reach_co(struct pool_session *session,
                                                        struct fabric_identity member);

/* One list: connects as above, and one round trip. */
PANDO_MUST_CHECK enum pando_status pool_member_submit_co(struct pool_session *session,
                                                         struct fabric_identity member,
                                                         struct fabric_op *ops, uint32_t count);

/* One of several that are under way at the same time, to any members. */
struct pool_member_list {
    struct fabric_identity member;
    struct fabric_op *ops;
    uint32_t count;
    enum pando_status status; /* out */
    struct pool_peer *peer;   /* the pool's */
    struct fabric_list list;  /* the pool's */
};

/* Starts them; does not suspend. What cannot be sent at once is not sent, NOT_FOUND: a task of its
 * own connects to that member, so that the next may be. */
void pool_member_lists_begin(struct pool_session *session, struct pool_member_list *lists,
                             uint32_t count);

/* Waits for all of them. Until then they, their operations and buffers belong to the pool. */
void pool_member_lists_wait_co(struct pool_session *session, struct pool_member_list *lists,
                               uint32_t count);

#endif
