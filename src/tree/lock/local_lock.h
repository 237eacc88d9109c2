/*
 * local_lock.h - one lock per global lock word, among the threads of one process: first come, first
 * served, with handover of the global lock (R12).
 *
 * A task takes the local lock first. If nobody handed it the global one with it, it takes that by
 * CAS. When it is done it asks local_lock_successor before it sends its last list: if there is one
 * (and the lock was not passed on too often), the list does not release the global lock and the
 * successor gets both when the list has completed.
 */
#ifndef TREE_LOCK_LOCAL_LOCK_H
#define TREE_LOCK_LOCAL_LOCK_H

#include "pool/pool.h"

struct local_locks;

struct local_lock_options {
    bool no_queue;    /* waiters try again at random instead of lining up */
    bool no_handover; /* the global lock is released every time */
};

enum { LOCAL_LOCK_HANDOVERS = 4 }; /* in a row */

struct local_locks *local_locks_create(const struct pool *pool, struct local_lock_options options);
void local_locks_destroy(struct local_locks *locks);

/* What a holder has. */
struct local_lock_grant {
    fabric_address address; /* of the global lock */
    bool handed;            /* the global lock came with it */
    uint64_t word;          /* which it holds, if handed */
};

/* Waits its turn. TIMEOUT: gave up; nothing is held. */
PANDO_MUST_CHECK enum pando_status local_lock_take_co(struct local_locks *locks,
                                                      fabric_address address, uint64_t deadline_ns,
                                                      struct local_lock_grant *grant);

/* Without waiting: false if it is held. */
bool local_lock_try(struct local_locks *locks, fabric_address address,
                    struct local_lock_grant *grant);

/* Chooses who gets both locks next; from now on it cannot give up. False: nobody, or not again;
 * then the global lock has to be released. */
bool local_lock_successor(struct local_locks *locks, const struct local_lock_grant *grant);

/* The holder's last list has completed: passes both locks to the chosen successor, or the local one
 * to whoever waits. */
void local_lock_release(struct local_locks *locks, const struct local_lock_grant *grant,
                        bool handover);

struct local_lock_stats {
    uint64_t waits, handovers;
};
void local_locks_stats(struct local_locks *locks, struct local_lock_stats *out);

#endif
