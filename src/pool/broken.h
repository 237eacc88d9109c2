/*
 * broken.h - rules of the pool that tests break on purpose, to see that `pando check` notices
 * (docs/PROTOCOLS.md). Each is looked at only where an operation without faults does not come by.
 */
#ifndef POOL_BROKEN_H
#define POOL_BROKEN_H

#include <stdbool.h>

struct pool_broken {
    bool resolve;    /* R11: a list of unknown outcome is always sent again */
    bool lost_locks; /* R11: a lock table that was lost in a restart is not noticed */
    bool lease;      /* R13: observers wait for a quarter of a lease only */
    bool redo;       /* R14: recovery releases the locks before it redoes the intents */
    bool grace;      /* R22: freed memory is used again at once ... */
    bool floor;      /* R22: ... and versions begin anew with it */
    bool old_reads;  /* R22: what a READ brought is believed however old it is */
    bool refusals;   /* a put that got no memory is acknowledged */
};

/* All false outside of `pando check --break`. Of the whole process: set before any pool is joined. */
extern struct pool_broken pool_broken;

#endif
