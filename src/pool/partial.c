/*
 * partial.c - recoveries that wait for a memory node, seen by those who take over from the dead.
 *
 * What holds (recover.c has the recoverer's side):
 *   - A heartbeat with POOL_RECOVERY_PARTIAL says: that member is dead for good; at every memory node but
 *     those that its record names as missing it is fenced, and its intents are redone.
 *   - Whoever takes over from it keeps off the missing nodes until its recovery has come there: until then
 *     the dead one may still write there, and its intents there would undo what others write.
 *   - A node stops being missing, and never becomes so again: the set only shrinks.
 *   - Its memory stays its own, everywhere, until no node is missing.
 *   - Of its locks those stay locked that lie on a missing node, or that a guard or an intent that is still to be
 *     redone names. All others are free.
 *
 * Why these locks are enough: what is redone later is what an intent says that lies on a missing node, or names
 * one. Nobody may change what it writes in between. That is sure of what
 *   - lies on the node of the intent, or on another one, under a lock that the intent names: if the intent lies
 *     on a node that answers, it is read, and its locks are kept. If it lies on a missing node, so do its locks,
 *     but for those on other nodes, and each of these is named by a guard beside it, which is whole for as long
 *     as the intent can be redone (intent_fmt.h). The dead one is fenced where guards are looked for, so no guard
 *     comes later, and without its guards no intent.
 *   - is under no lock that the intent names: that one member alone writes it, or it is a fresh block that nothing
 *     refers to but a page under the intent's lock (dex). No other lock ever kept anybody off it.
 * An intent or guard that cannot be read is never redone, but if it was damaged it may have been the guard of one
 * that is: then all locks of its node are kept.
 *
 * Nor does the dead one, which may live where it is not fenced, write to a missing node under a lock of another
 * one: a merge has guards, and all else that it writes there is its own fresh memory, or is under a lock
 * there. Once a node has told it that it is fenced it begins nothing more (pool_submit_co).
 *
 * A process finds out which nodes to keep off before it works on anything that it has come by
 * (pool_partial_begin_co), after the map that says so was read: parts of a dead owner may have passed
 * through several hands, and its heartbeat stays as it is for as long as a node is missing.
 */
#include <stdlib.h>

#include "base/log.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

enum { LOOKS_PER_LEASE = 8 };

/* Which nodes are missing in the recovery of anybody. */
static enum pando_status missing_co(struct pool_session *session, uint64_t *out)
{
    struct pool *pool = session->pool;
    uint64_t *beats;
    enum pando_status status = pool_heartbeats_co(session, &beats);
    *out = 0;
    for (uint16_t member = 1; member < POOL_MEMBERS && status == PANDO_OK; member++) {
        struct pool_heartbeat beat = pool_heartbeat_unpack(beats[member]);
        uint64_t missing = 0;
        if (!pool_heartbeat_partial(&beat))
            continue;
        status = pool_word_read_co(
            session, pool_record_address(pool, member) + offsetof(struct pool_record, missing),
            &missing);
        *out |= missing;
    }
    free(beats);
    return status;
}

enum pando_status pool_partial_begin_co(struct pool_session *session)
{
    struct pool *pool = session->pool;
    uint64_t missing;
    enum pando_status status = missing_co(session, &missing);
    if (status != PANDO_OK || missing == 0)
        return status;
    uint64_t before = atomic_fetch_or(&pool->avoided, missing);
    if ((before | missing) != before)
        log_info("keeps off memory nodes until a dead member is recovered there",
                 log_hex("nodes", missing & ~before));
    return PANDO_OK;
}

enum pando_status pool_partial_check_co(struct pool_session *session, uint16_t node)
{
    struct pool *pool = session->pool;
    uint64_t missing, now_ns = rt_now_ns(), before = atomic_load(&pool->avoided);

    if (!pool_node_avoided(pool, node))
        return PANDO_OK;
    if (node == 0 || now_ns < atomic_load(&pool->avoided_until_ns))
        return PANDO_BROKEN;
    atomic_store(&pool->avoided_until_ns, now_ns + pool->lease_ns / LOOKS_PER_LEASE);
    enum pando_status status = missing_co(session, &missing);
    if (status != PANDO_OK)
        return PANDO_BROKEN;
    /* Only if nothing was added meanwhile; else at the next look. */
    if (atomic_compare_exchange_strong(&pool->avoided, &before, before & missing))
        log_info("uses memory nodes again", log_hex("nodes", before & ~missing));
    return pool_node_avoided(pool, node) ? PANDO_BROKEN : PANDO_OK;
}
