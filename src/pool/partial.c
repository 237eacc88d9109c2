/*
 * partial.c - recoveries that wait for a memory node, seen by those who take over from the dead.
 *
 * What holds (recover.c has the recoverer's side):
 *   - A heartbeat with POOL_RECOVERY_PARTIAL says: that member is dead for good; at every memory node but
 *     those that its record names as missing it is fenced, and its intents are redone.
 *   - Whoever takes over from it keeps off the missing nodes until its recovery has come there: until then
 *     the dead one may still write there, and its intents there would undo what others write.
 *   - A node stops being missing, and never becomes so again: the set only shrinks.
 *   - Its locks stay locked and its memory stays its own, everywhere, until no node is missing: an intent on
 *     a missing node may name any of its locks.
 *
 * A process finds out which nodes to keep off before it works on anything that it has come by
 * (pool_partial_begin_co), after the map that says so was read: parts of a dead owner may have passed
 * through several hands, and its heartbeat stays as it is for as long as a node is missing.
 */
#include <stdlib.h>

#include "base/log.h"
#include "pool/pool_int.h"

enum { LOOKS_PER_LEASE = 8 };

/* Which nodes are missing in the recovery of anybody. */
static enum pando_status missing_co(struct pool_session *session, uint64_t *out)
{
    struct pool *pool = session->pool;
    uint64_t *beats = malloc(POOL_MEMBERS * sizeof(*beats));
    if (beats == NULL)
        return PANDO_NO_MEMORY;
    struct fabric_op read = pool_heartbeats_read(pool, beats);
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
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

bool pool_node_usable(const struct pool *pool, uint16_t node)
{
    return !pool_node_avoided(pool, node);
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
