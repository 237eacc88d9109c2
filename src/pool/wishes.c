/*
 * wishes.c - what one wants of a member that cannot be called: because it listens nowhere, or something is in
 * the way.
 *
 * The wish is a word in that member's record, which it looks at several times in a lease. There are few such
 * words, and whoever comes later may overwrite one: whoever still wants something wishes again. A wish that
 * is left from a former life of the slot does no more than any other: the engine gives what it has and can
 * spare.
 */
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

/* What is to be said of a member that was wished something of, when its heartbeat shows that it lives. One that
 * has just died does not answer either. */
static uint64_t unsaid_pack(struct fabric_identity member, uint16_t table)
{
    return (uint64_t)table << 32 | (member.incarnation + UINT32_C(1));
}

void pool_uncallable_say_co(struct pool_session *session, struct fabric_identity member)
{
    struct pool *pool = session->pool;
    uint64_t unsaid = atomic_load_explicit(&pool->unsaid[member.member], memory_order_relaxed);
    uint32_t incarnation = member.incarnation + UINT32_C(1);
    struct pool_record record;
    if ((uint32_t)unsaid != incarnation)
        return;
    atomic_store(&pool->unsaid[member.member], 0);
    if (atomic_load(&pool->uncallable[member.member]) == incarnation)
        return; /* until it answers again */
    enum pando_status status = pool_locate_co(session, member, &record);
    if (status != PANDO_OK && status != PANDO_UNSUPPORTED)
        return;
    atomic_store(&pool->uncallable[member.member], incarnation);
    if (status == PANDO_UNSUPPORTED) /* as it was told to */
        log_warn("cannot call a member: asking it through the pool to give its keys away",
                 log_u64("table", unsaid >> 32), log_u64("member", member.member),
                 log_text("at", "nowhere"));
    else
        log_error(
            "cannot call a member, which lives: it is asked through the pool to give its keys "
            "away, which takes longer; let this machine connect to it there, or start it with "
            "another --peer-listen or --peer-advertise, or with --peer-listen none",
            log_u64("table", unsaid >> 32), log_u64("member", member.member),
            log_text("at", record.location));
}

void pool_wish_co(struct pool_session *session, struct fabric_identity member, uint16_t table)
{
    struct pool *pool = session->pool;
    uint64_t word = pool_wish_pack(table, pool->identity);
    unsigned place = (unsigned)(table + pool->identity.member) % POOL_WISHES;
    if (member.member == 0 || member.member >= POOL_MEMBERS)
        return;
    fabric_address at = pool_record_address(pool, member.member) +
                        offsetof(struct pool_record, wishes) + place * sizeof(word);
    struct fabric_op write = fabric_write(fabric_address_offset(at), &word, sizeof(word));
    enum pando_status status = pool_submit_co(session, pool_node_of(pool, at), &write, 1);
    if (status == PANDO_OK) /* else whoever wishes wishes again */
        atomic_store(&pool->unsaid[member.member], unsaid_pack(member, table));
}

/* Whether it is a member that lives: what is given to another is nobody's. */
static bool alive_co(struct pool_session *session, struct fabric_identity member)
{
    struct pool_heartbeat beat;
    return member.member > 0 && member.member < POOL_MEMBERS &&
           pool_heartbeat_co(session, member.member, &beat) == PANDO_OK &&
           beat.state == POOL_ALIVE && beat.incarnation == member.incarnation;
}

/* Has the table's engine answer, as if the other one had called. With a session of its own, which lasts as long as
 * the pool because engines keep handles to it: the member's is not kept off nodes that a recovery has not
 * come to yet (partial.c). */
static void serve_wish_co(struct pool *pool, uint64_t word)
{
    struct fabric_request request = {.from = pool_wish_from(word), .method = POOL_WISH_METHOD};
    if (!alive_co(pool->own, request.from))
        return;
    request.reply = malloc(POOL_CALL_BYTES_MAX); /* nobody reads it */
    enum pando_status status = request.reply == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    if (status == PANDO_OK && pool->grants == NULL)
        status = pool_session_open_co(pool, &pool->grants);
    if (status == PANDO_OK)
        status = pool_answer_self_co(pool->grants, (uint16_t)(word >> 32), &request);
    (void)status; /* it is wished again, if it still is */
    free(request.reply);
}

void pool_wishes_serve_co(struct pool *pool)
{
    uint64_t words[POOL_WISHES], old;
    fabric_address at =
        pool_record_address(pool, pool->identity.member) + offsetof(struct pool_record, wishes);
    struct fabric_op read = fabric_read(fabric_address_offset(at), words, sizeof(words));
    enum pando_status status = pool_submit_co(pool->own, pool_node_of(pool, at), &read, 1);
    for (unsigned i = 0; i < POOL_WISHES && status == PANDO_OK; i++) {
        if (words[i] == 0)
            continue;
        status = pool_word_cas_co(pool->own, at + i * sizeof(words[i]), words[i], 0, &old);
        if (status == PANDO_OK && old == words[i])
            serve_wish_co(pool, words[i]);
    }
}
