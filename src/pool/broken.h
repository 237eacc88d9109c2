/*
 * broken.h - rules of the pool that tests break on purpose, to see that `pando check` notices
 * (docs/PROTOCOLS.md). Each is looked at only where an operation without faults does not come by.
 */
#ifndef POOL_BROKEN_H
#define POOL_BROKEN_H

#include <stdbool.h>

struct pool_broken {
    bool resolve;    /* resolve-unknown (R11): a list of unknown outcome is always sent again */
    bool lost_locks; /* resolve-unknown (R11): a lock table lost in a restart is not noticed */
    bool lease;      /* heartbeat-lease (R13), fence-ticket (R61): observers wait for a quarter of a
                      * lease only, and node 0 agrees */
    bool hasty;      /* heartbeat-lease (R13): the observers only; node 0 does not agree */
    bool judge;      /* fence-ticket (R61): node 0 gives a ticket for anybody */
    bool redo;       /* member-recovery (R14): locks are released before the intents are redone */
    bool kept;       /* member-recovery (R14), intent-first (R18): without a memory node the others'
                      * locks are all released, also those that its intents may name */
    bool window_fence; /* member-recovery (R14): windows that hold something are not waited for */
    bool grace;        /* stale-read-limit (R22): freed memory is used again at once ... */
    bool floor;        /* stale-read-limit (R22): ... and versions begin anew with it */
    bool old_reads; /* stale-read-limit (R22): what a READ brought is believed however old it is */
    bool refusals;  /* a put that got no memory is acknowledged */
};

/* All false outside of `pando check --break`. Of the whole process: set before any pool is joined. */
extern struct pool_broken pool_broken;

#endif
