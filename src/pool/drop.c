/*
 * drop.c - dropping a table that others may be using.
 *
 *   1  mark      live -> dropping, and who drops it, in one word under the directory's lock
 *   2  announce  the pool's count of drops goes up
 *   3  wait      until every member has said that it uses no table dropped up to that count, or is
 *                no member any more
 *   4  free      the table's memory, by its engine; or by the tenures of all blocks, if a member has died
 *                since the table was made and every member has said that it knows the outcome of all
 *                its lists: a death leaves blocks that nothing refers to
 *   5  remove    dropping -> free (directory_change.c, as the mark)
 *
 * What holds:
 *  - An entry that is being dropped never becomes live again, and its name is found by nobody; another
 *    table of that name may be created from step 1 on. Its slot is not used again before step 5.
 *  - A member that has said "seen N" begins no operation on a table that was marked before the count
 *    became N, and has none under way. It reads the count first and the directory after it, so it
 *    misses none.
 *  - A member that has never said anything (a program that does not keep the word) may use any table:
 *    it is waited for until it leaves. One that is dead is waited for until it has been recovered: its
 *    intents may still be written into the table.
 *  - One member at a time frees: the one that the word names. Another takes over only when that one is
 *    no member any more, so nothing of it is under way. Freeing can be done twice.
 *
 * Who finds what after a crash of the dropper:
 *   before 1     a live table
 *   1, 2, 3      an entry being dropped by somebody who is gone: taken over, goes on with 2
 *   4            likewise; the engine frees what is not free yet
 *   5            nothing
 */
#include <stdlib.h>

#include "pool/directory_int.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

static fabric_address state_address(const struct pool *pool, unsigned slot)
{
    return fabric_address_make(0, pool_entry_offset(pool, slot));
}

static fabric_address drops_address(const struct pool *pool)
{
    return fabric_address_make(0, pool->first + POOL_DROPS);
}

/* ---- 1, and the next dropper ----------------------------------------------------------------- */

enum pando_status pool_table_mark_co(struct pool_session *session, const char *name, unsigned *slot,
                                     uint64_t *table)
{
    struct pool_marking mark = {.name = name};
    enum pando_status status =
        name[0] == '#' ? PANDO_NOT_FOUND : pool_entry_mark_co(session, &mark);
    *slot = mark.slot;
    *table = mark.table;
    return status;
}

static bool same(struct fabric_identity a, struct fabric_identity b)
{
    return a.member == b.member && a.incarnation == b.incarnation;
}

enum pando_status pool_table_take_over_co(struct pool_session *session, unsigned slot,
                                          uint64_t state)
{
    struct pool *pool = session->pool;
    struct fabric_identity by = pool_dropping_by(state);
    uint64_t beat_word, found;

    if (same(by, pool->identity))
        return PANDO_OK;
    if (by.member == 0 || by.member >= POOL_MEMBERS)
        return PANDO_CORRUPT;
    enum pando_status status =
        pool_word_read_co(session, pool_heartbeat_address(pool, by.member), &beat_word);
    if (status != PANDO_OK)
        return status;
    struct pool_heartbeat beat = pool_heartbeat_unpack(beat_word);
    if (beat.incarnation == by.incarnation && beat.state != POOL_FREE)
        return PANDO_BUSY;
    uint64_t mine = pool_dropping_pack(pool->identity);
    status = pool_word_cas_co(session, state_address(pool, slot), state, mine, &found);
    /* After a broken endpoint an earlier try may have gone through. */
    return status == PANDO_OK && found != state && found != mine ? PANDO_STALE : status;
}

/* ---- 2 and 3 --------------------------------------------------------------------------------- */

enum pando_status pool_drops_co(struct pool_session *session, uint64_t *drops)
{
    return pool_word_read_co(session, drops_address(session->pool), drops);
}

enum pando_status pool_drops_add_co(struct pool_session *session, uint64_t *drops)
{
    struct fabric_op add = fabric_faa(fabric_address_offset(drops_address(session->pool)), 1);
    enum pando_status status = pool_submit_co(session, 0, &add, 1);
    *drops = add.old + 1;
    return status;
}

static fabric_address seen_address(const struct pool *pool, uint16_t member)
{
    return pool_record_address(pool, member) + offsetof(struct pool_record, drops_seen);
}

enum pando_status pool_deaths_co(struct pool_session *session, uint64_t *deaths)
{
    return pool_word_read_co(session, fabric_address_make(0, session->pool->first + POOL_DEATHS),
                             deaths);
}

enum pando_status pool_drops_seen_co(struct pool_session *session, uint64_t drops, bool settled)
{
    struct pool *pool = session->pool;
    uint64_t word = drops | POOL_DROPS_KEPT | (settled ? POOL_DROPS_SETTLED : 0);
    struct fabric_op write = fabric_write(
        fabric_address_offset(seen_address(pool, pool->identity.member)), &word, sizeof(word));
    return pool_submit_co(session, 0, &write, 1);
}

enum pando_status pool_drops_seen_by_all_co(struct pool_session *session, uint64_t drops, bool *all,
                                            bool *settled)
{
    struct pool *pool = session->pool;
    uint64_t *beats;
    enum pando_status status = pool_heartbeats_co(session, &beats);
    *all = *settled = true;
    for (uint16_t member = 1; member < POOL_MEMBERS && status == PANDO_OK && *all; member++) {
        struct pool_heartbeat beat = pool_heartbeat_unpack(beats[member]);
        uint64_t seen;
        if (beat.state == POOL_FREE)
            continue;
        /* One that joins has its predecessor's record still. */
        *all = beat.state == POOL_ALIVE;
        if (!*all)
            break;
        status = pool_word_read_co(session, seen_address(pool, member), &seen);
        *all = (seen & POOL_DROPS_KEPT) != 0 &&
               (seen & ~(POOL_DROPS_KEPT | POOL_DROPS_SETTLED)) >= drops;
        *settled = *settled && (seen & POOL_DROPS_SETTLED) != 0;
    }
    free(beats);
    return status;
}
