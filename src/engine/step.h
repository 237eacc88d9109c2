/*
 * step.h - what one try of a bounded loop came to: its end, with a status, or what the loop does
 * next.
 *
 * On its way a try finds that what it read does not hold any more, or that somebody else has to be
 * asked. That is no status: nobody outside of the loop is to see it. As a type of its own it is not
 * taken for one, nor a status for a step: the compiler refuses that. A function of which every
 * outcome is an end returns a status.
 */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include <stdbool.h>

#include "pando/pando.h"

enum step_next {
    STEP_DONE,    /* it has ended, with the status */
    STEP_RESTART, /* begin again where the loop begins: at the root, by asking who owns the key */
    STEP_MISLED,  /* the page is not what its parent says, which is to be told of a split */
    STEP_LOAD,    /* no memory node does it: load the page and do it here */
};

struct step {
    enum step_next next;
    enum pando_status status; /* of STEP_DONE, else OK */
};

static inline struct step step_to(enum step_next next)
{
    return (struct step){.next = next};
}

/* After a function that returns a status. AGAIN is back-pressure, of the fabric or of another
 * process: the loop waits it out. */
static inline struct step step_of(enum pando_status status)
{
    return status == PANDO_AGAIN ? step_to(STEP_RESTART) : (struct step){STEP_DONE, status};
}

/* Restarts, if what had to be done before that succeeded. */
static inline struct step step_restart_after(enum pando_status status)
{
    return status == PANDO_OK ? step_to(STEP_RESTART) : step_of(status);
}

static inline bool step_ok(struct step step)
{
    return step.next == STEP_DONE && step.status == PANDO_OK;
}

/* For who does not loop, as another process that called: AGAIN if the step is not the end. */
static inline enum pando_status step_status(struct step step)
{
    return step.next == STEP_DONE ? step.status : PANDO_AGAIN;
}

#endif
