/*
 * watch.c - whether all members are well: what a page that is neither old nor new can be waited for. If
 * everybody beats and nobody is being recovered, no dead writer left it so.
 */
#include <string.h>

#include "pool/members_int.h"
#include "pool/pool_int.h"

enum { WATCH_LEASES_PART = 2 }; /* of a lease: longer than from one beat to the next */

enum pando_status pool_all_beat_co(struct pool_session *session, struct pool_watch *watch,
                                   bool *well)
{
    struct pool *pool = session->pool;
    struct fabric_op read = pool_heartbeats_read(pool, watch->now);

    *well = false;
    if (watch->since_ns != 0 && rt_now_ns() < watch->since_ns + pool->lease_ns / WATCH_LEASES_PART)
        return PANDO_OK;
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    if (status != PANDO_OK)
        return status;
    *well = watch->since_ns != 0;
    for (unsigned i = 0; i < POOL_MEMBERS && *well; i++) {
        struct pool_heartbeat beat = pool_heartbeat_unpack(watch->now[i]);
        *well = beat.state == POOL_FREE || beat.state == POOL_JOINING ||
                (beat.state == POOL_ALIVE && watch->now[i] != watch->beats[i]);
    }
    watch->since_ns = rt_now_ns();
    memcpy(watch->beats, watch->now, sizeof(watch->now));
    return PANDO_OK;
}
