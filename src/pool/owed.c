/*
 * owed.c - releasing locks that this process may hold and has no use for: the outcome of the CAS that
 * takes a lock, or of the WRITE that releases it, is not known, and the node cannot be reached now
 * (rule resolve-unknown).
 *
 * Only the session that sent the list can find out: reconnecting fences that session, so that nothing of
 * the list arrives afterwards, neither the CAS, nor the release, which by then might hit another's lock.
 * Therefore a task on the session's loop does it, when the node can be reached again. While it is owed a
 * session is not paused: a loop that stands still then costs the membership, and others release the
 * lock. So does a session that is closed before, and a list that has become too long.
 */
#include <stdlib.h>

#include "base/log.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

enum { OWED_MAX = 256, TRIES_PER_LEASE = 8 };

struct owed {
    struct pool_session *session;
    struct pool_lock lock;
};

/* Whether nothing is left to do. */
static bool release_co(struct pool_session *session, const struct pool_lock *lock)
{
    bool applied = false;
    enum pando_status status = pool_resolve_co(session, lock, &applied);
    if (status == PANDO_OK && !applied) {
        struct fabric_op release =
            fabric_write(fabric_address_offset(lock->address), pool_lock_release(lock), 8);
        status = pool_submit_co(session, pool_node_of(session->pool, lock->address), &release, 1);
    }
    /* UNKNOWN: the lock table was lost, and the lock with it. */
    return status == PANDO_OK || status == PANDO_FENCED || status == PANDO_UNKNOWN;
}

static void owed_task(void *arg)
{
    struct owed *owed = arg;
    struct pool_session *session = owed->session;
    struct pool *pool = session->pool;
    bool done = false;

    while (!done && !session->closing && !pool_fenced(pool)) {
        done = release_co(session, &owed->lock);
        if (!done)
            rt_sleep_co(pool->lease_ns / TRIES_PER_LEASE); /* its node cannot be reached now */
    }
    if (!done && !pool_fenced(pool))
        pool_resign(pool);
    if (--session->owed == 0)
        rt_waitq_wake_all(&session->ended);
    free(owed);
}

void pool_lock_owe(struct pool_session *session, const struct pool_lock *lock)
{
    if (pool_fenced(session->pool))
        return;
    struct owed *owed = session->owed < OWED_MAX ? malloc(sizeof(*owed)) : NULL;
    if (owed != NULL)
        *owed = (struct owed){.session = session, .lock = *lock};
    if (owed == NULL || rt_spawn(session->loop, owed_task, owed) != PANDO_OK) {
        free(owed);
        pool_resign(session->pool);
        return;
    }
    session->owed++;
    log_debug("a lock is released later: its node cannot be reached",
              log_hex("lock", lock->address));
}

static bool owes(const void *session)
{
    return ((const struct pool_session *)session)->owed > 0;
}

void pool_owed_settle_co(struct pool_session *session)
{
    static const unsigned LEASES = 2;
    uint64_t deadline_ns = rt_now_ns() + LEASES * session->pool->lease_ns;
    (void)rt_waitq_while_co(&session->ended, owes, session, deadline_ns);
}
