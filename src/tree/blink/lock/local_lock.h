/*
 * local_lock.h - one lock per global lock word, among the threads of one process: first come, first
 * served, with handover of the global lock (rule local-handover).
 *
 * A task takes the local lock first. If nobody handed it the global one with it, it takes that by
 * CAS. When it is done it asks local_lock_successor before it sends its last list: if there is one
 * (and the lock was not passed on too often), the list does not release the global lock and the
 * successor gets both when the list has completed. With both it may get the node as it is now, so
 * that it need not read it.
 *
 * A holder may also adopt those who wait for the same node and do their work together with its own;
 * they get neither lock, but are told that it is done.
 */
#ifndef TREE_BLINK_LOCK_LOCAL_LOCK_H
#define TREE_BLINK_LOCK_LOCAL_LOCK_H

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
    uint32_t index;      /* which lock */
    bool handed;         /* the global lock came with it */
    uint64_t word;       /* which it holds, if handed */
    fabric_address node; /* if handed: the node whose bytes came with it; 0: none did */
    bool done;           /* nothing is held: somebody else did the work */
};

/* What one who waits has to offer. */
struct local_lock_offer {
    uint8_t *bytes;      /* room for handed bytes; NULL: none */
    fabric_address node; /* which it is after */
    void *work;          /* for whoever adopts it; NULL: it wants to do it itself */
};

/* What a holder may pass on with both locks: a node as it is now. All zero: nothing. */
struct local_lock_bytes {
    fabric_address node;
    const uint8_t *bytes;
    uint32_t size;
};

/* Waits its turn. TIMEOUT: gave up, as pool_past says; nothing is held. */
PANDO_MUST_CHECK enum pando_status local_lock_take_co(struct local_locks *locks,
                                                      fabric_address address, uint64_t *deadline_ns,
                                                      const struct local_lock_offer *offer,
                                                      struct local_lock_grant *grant);

/* Without waiting: false if it is held. */
bool local_lock_try(struct local_locks *locks, fabric_address address,
                    struct local_lock_grant *grant);

/* One of those who wait for this node and let others do their work, longest waiting first; NULL:
 * there is none. It waits until it is told that the work is done, or put back where it was. */
struct local_lock_waiter;
struct local_lock_waiter *local_lock_adopt(struct local_locks *locks,
                                           const struct local_lock_grant *grant,
                                           fabric_address node);
void *local_lock_work(const struct local_lock_waiter *waiter);
void local_lock_put_back(struct local_locks *locks, const struct local_lock_grant *grant,
                         struct local_lock_waiter *waiter);
void local_lock_done(struct local_locks *locks, const struct local_lock_grant *grant,
                     struct local_lock_waiter *waiter);

/* Chooses who gets both locks next; from now on it cannot give up. False: nobody, or not again;
 * then the global lock has to be released. */
bool local_lock_successor(struct local_locks *locks, const struct local_lock_grant *grant);

/* The holder's last list has completed: passes both locks to the chosen successor, or the local one
 * to whoever waits. */
void local_lock_release(struct local_locks *locks, const struct local_lock_grant *grant,
                        bool handover, struct local_lock_bytes handed);

struct local_lock_stats {
    uint64_t waits, handovers, adopted;
};
void local_locks_stats(struct local_locks *locks, struct local_lock_stats *out);

#endif
