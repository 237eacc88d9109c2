/*
 * attend.c - one task of a process that serves, beside its calls, and memory that lives as long as
 * its fabric. The task runs on a loop that serves; closing the fabric ends its rest.
 */
#include <stdlib.h>

#include "fabric/fabric_int.h"

void *fabric_attendant_memory(struct fabric *fabric, size_t bytes)
{
    if (fabric->kept == NULL)
        fabric->kept = calloc(1, bytes);
    return fabric->kept;
}

/* Whoever wanted it while it was about to end gets it: it begins anew. */
static void attend_task(void *arg)
{
    struct fabric *fabric = arg;
    bool again = true;
    rt_latch_lock(&fabric->answer_latch);
    fabric->attendant = rt_task_self();
    rt_latch_unlock(&fabric->answer_latch);
    while (again) {
        rt_latch_lock(&fabric->answer_latch);
        fabric->again = false;
        rt_latch_unlock(&fabric->answer_latch);
        fabric->attend(fabric);
        rt_latch_lock(&fabric->answer_latch);
        again = fabric->again && !fabric->closing;
        atomic_store(&fabric->attending, again);
        if (!again)
            fabric->attendant = NULL;
        rt_latch_unlock(&fabric->answer_latch);
    }
    rt_waitq_wake_all(&fabric->ended);
}

static void attend_arrives(struct rt_message *message)
{
    struct fabric *fabric = container_of(message, struct fabric, attend_message);
    if (rt_spawn(rt_loop_self(), attend_task, fabric) == PANDO_OK)
        return;
    rt_latch_lock(&fabric->answer_latch);
    atomic_store(&fabric->attending, false);
    rt_latch_unlock(&fabric->answer_latch);
    rt_waitq_wake_all(&fabric->ended);
}

/* With the latch held. */
static void attend_start(struct fabric *fabric)
{
    if (fabric->attend == NULL || fabric->home == NULL || fabric->closing ||
        atomic_load(&fabric->attending))
        return;
    atomic_store(&fabric->attending, true);
    fabric->attend_message.deliver = attend_arrives;
    rt_loop_post(fabric->home, &fabric->attend_message);
}

void fabric_attend(struct fabric *fabric, void (*attend)(struct fabric *fabric))
{
    rt_latch_lock(&fabric->answer_latch);
    fabric->attend = attend;
    fabric->again = true;
    attend_start(fabric);
    rt_latch_unlock(&fabric->answer_latch);
}

bool fabric_rest_co(struct fabric *fabric, uint64_t until_ns)
{
    for (;;) {
        rt_latch_lock(&fabric->answer_latch);
        bool closing = fabric->closing;
        rt_latch_unlock(&fabric->answer_latch);
        if (closing || rt_now_ns() >= until_ns)
            return !closing;
        (void)rt_park_co(until_ns);
    }
}

void fabric_attend_from(struct fabric *fabric, struct rt_loop *home)
{
    rt_latch_lock(&fabric->answer_latch);
    fabric->home = home;
    attend_start(fabric);
    rt_latch_unlock(&fabric->answer_latch);
}

void fabric_attend_close(struct fabric *fabric)
{
    rt_latch_lock(&fabric->answer_latch);
    fabric->closing = true;
    if (fabric->attendant != NULL)
        rt_unpark(fabric->attendant);
    rt_latch_unlock(&fabric->answer_latch);
}

static bool attended(const void *fabric)
{
    return atomic_load(&((const struct fabric *)fabric)->attending);
}

/* The fabric outlives who wakes: it is freed after the loops on which that is have ended. */
void fabric_attend_end_co(struct fabric *fabric)
{
    fabric_attend_from(fabric, NULL);
    (void)rt_waitq_while_co(&fabric->ended, attended, fabric, RT_NEVER);
}
