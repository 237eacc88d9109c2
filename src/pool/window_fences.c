/*
 * window_fences.c - fencing the dead at members' windows (rules member-recovery, binding-fence).
 *
 * Most windows hold nothing of the pool: what others do there when they are called they do in their
 * own name, and a late call of a dead member is one whose outcome nobody knows. The recoverer
 * fences the dead there so that this ends soon, and waits no longer than a lease for those that do
 * not answer.
 *
 * A member whose engines keep state in its window that others write to one-sided *holds*
 * (pool_window_hold_co). There the dead must be shut out before anything of theirs is taken over,
 * and no link from the recoverer to that member is needed for it:
 *
 *   the recoverer   1  the dead one's word says fenced; it is fenced at memory nodes (recover.c)
 *                   2  reads the records; if a living member holds, counts the fences on node 0
 *                      up, to n
 *                   3  goes on when each of these has n in its record, or is alive no more
 *   who holds       1  says so in its record
 *                   2  reads the count, and then all heartbeats
 *                   3  fences, at its own window, everybody whose word says fenced
 *                   4  writes the count to its record; again from 2 when asked, and now and then
 *
 * Whoever finds the count n read the heartbeats after it, so the word of the dead one said fenced
 * by then. A member that begins to hold after the recoverer has read its record reads the
 * heartbeats later still. It finds the dead one's word fenced, or that its recovery is over: then
 * it was shut out of all memory nodes before anybody could learn there that this member holds.
 *
 * A holder that is alive no more holds nothing up: who relies on what lies in its window looks up,
 * after the dead one was recovered, whether it is alive. Two dead members that hold do not wait for
 * each other.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/broken.h"
#include "pool/member_lists.h"
#include "pool/members_int.h"
#include "pool/peers_int.h"
#include "pool/pool_int.h"

enum {
    ROUNDS_PER_LEASE = 8,     /* of a holder that nobody asks */
    LOOKS_PER_LEASE = 1024,   /* of the recoverer, at first; then the pause doubles, */
    LOOKS_PER_LEASE_MIN = 32, /* up to this */
};

/* ---- who holds ------------------------------------------------------------------------------- */

static uint64_t record_word(const struct pool *pool, bool holds, uint64_t count)
{
    struct pool_fences fences = {
        .holds = holds, .slabs = pool_own_window_bytes(pool) / POOL_SLAB_BYTES, .count = count};
    return pool_fences_pack(fences);
}

static uint64_t record_offset(const struct pool *pool)
{
    return fabric_address_offset(pool_record_address(pool, pool->identity.member)) +
           offsetof(struct pool_record, fences);
}

/* Says what this member has come to. */
static enum pando_status record_write_co(struct pool *pool, bool holds, uint64_t count)
{
    uint64_t word = record_word(pool, holds, count);
    struct fabric_op write = fabric_write(record_offset(pool), &word, sizeof(word));
    return pool_submit_co(pool->own, 0, &write, 1);
}

static enum pando_status fence_dead_co(struct pool *pool)
{
    uint64_t *beats;
    enum pando_status status = pool_heartbeats_co(pool->own, &beats);
    for (uint16_t member = 1; member < POOL_MEMBERS && status == PANDO_OK; member++) {
        struct pool_heartbeat beat = pool_heartbeat_unpack(beats[member]);
        struct fabric_identity dead = {.member = member, .incarnation = beat.incarnation};
        if (beat.state != POOL_FENCED || member == pool->identity.member)
            continue;
        status = fabric_fence_own_co(pool->fabric, dead);
        if (status != PANDO_OK)
            log_warn("cannot fence a dead member at the own window: nobody takes over from it",
                     log_u64("dead", member), log_status("status", status));
    }
    free(beats);
    return status;
}

static enum pando_status round_co(struct pool *pool)
{
    uint64_t count, word;
    bool first = !atomic_load(&pool->holds);
    enum pando_status status = PANDO_OK;
    if (first)
        status = record_write_co(pool, true, 0);
    /* The count before the heartbeats. */
    struct fabric_op reads[] = {
        fabric_read(pool->first + POOL_FENCES, &count, sizeof(count)),
        fabric_read(record_offset(pool), &word, sizeof(word)),
    };
    if (status == PANDO_OK)
        status = pool_submit_co(pool->own, 0, reads, 2);
    if (status != PANDO_OK || (!first && count == pool->fences_seen &&
                               word == record_word(pool, true, count))) /* else it is damaged */
        return status;
    status = fence_dead_co(pool);
    if (status == PANDO_OK)
        status = record_write_co(pool, true, count);
    if (status != PANDO_OK)
        return status;
    pool->fences_seen = count;
    atomic_store(&pool->holds, true);
    rt_waitq_wake_all(&pool->holding);
    return PANDO_OK;
}

static bool unasked(const void *context)
{
    return !atomic_load(&((const struct pool *)context)->fences_asked);
}

void pool_fences_task(void *arg)
{
    struct pool *pool = arg;
    while (!pool->left && !pool_fenced(pool)) {
        uint64_t next_ns = RT_NEVER;
        if (atomic_load(&pool->hold_wanted))
            next_ns = rt_now_ns() + pool->lease_ns / ROUNDS_PER_LEASE;
        (void)rt_waitq_while_co(&pool->fences_wake, unasked, pool, next_ns);
        bool asked = atomic_exchange(&pool->fences_asked, false);
        enum pando_status status = PANDO_OK;
        if (!pool->left && atomic_load(&pool->hold_wanted))
            status = round_co(pool);
        else if (!pool->left && asked)
            status =
                record_write_co(pool, false, 0); /* it may be damaged: who asks waits for this */
        (void)status; /* what failed is done in the next round, or asked for again */
    }
    rt_waitq_wake_all(&pool->holding);
    pool->fencing_own = false;
    rt_waitq_wake_all(&pool->ended);
}

void pool_fences_wake(struct pool *pool)
{
    atomic_store(&pool->fences_asked, true);
    rt_waitq_wake_all(&pool->fences_wake);
}

static bool not_yet(const void *context)
{
    const struct pool *pool = context;
    return !atomic_load(&pool->holds) && !pool_fenced(pool);
}

enum pando_status pool_window_hold_co(struct pool_session *session)
{
    struct pool *pool = session->pool;
    uint64_t deadline_ns = rt_now_ns() + pool_patience_ns(pool, false);
    if (pool_own_window_bytes(pool) == 0)
        return PANDO_UNSUPPORTED;
    atomic_store(&pool->hold_wanted, true);
    pool_fences_wake(pool);
    enum pando_status status = rt_waitq_while_co(&pool->holding, not_yet, pool, deadline_ns);
    return pool_fenced(pool) ? PANDO_FENCED : status;
}

/* ---- the recoverer: those that can be reached ------------------------------------------------ */

struct fencing {
    struct rt_task *waiter; /* NULL: it has gone on */
    unsigned left;
    unsigned awaited; /* of them, at windows of members that do not hold */
};

struct window_fence {
    struct fencing *fencing;
    struct pool_session *session;
    struct fabric_ticket dead;
    struct pool_member member;
    bool holds;
};

static struct fabric_identity identity_of(const struct pool_member *member)
{
    return (struct fabric_identity){.member = member->member,
                                    .incarnation = member->beat.incarnation};
}

static enum pando_status fence_member_window_co(const struct window_fence *fence)
{
    const struct pool_member *member = &fence->member;
    struct fabric *fabric = fence->session->pool->fabric;
    struct fabric_endpoint *endpoint;
    enum pando_status status =
        fabric_add_peer(fabric, member->record.node, FABRIC_COMPUTE, member->record.location);
    if (status == PANDO_OK)
        status = fabric_connect_co(fabric, member->record.node, &endpoint);
    if (status != PANDO_OK)
        return status;
    status = fabric_fence_co(endpoint, &fence->dead);
    if (fence->holds && status == PANDO_OK) /* it looks for itself, but soon */
        status = pool_peer_say_co(fence->session, endpoint, identity_of(member), POOL_OWN_FENCES);
    fabric_disconnect_co(endpoint);
    return status;
}

static void window_fence_task(void *arg)
{
    struct window_fence *fence = arg;
    struct fencing *fencing = fence->fencing;
    enum pando_status status = fence_member_window_co(fence);
    if (status != PANDO_OK)
        log_info("a member could not be told of a dead one",
                 log_u64("member", fence->member.member), log_u64("dead", fence->dead.who.member),
                 log_status("status", status));
    if (--fence->session->fencing == 0)
        rt_waitq_wake_all(&fence->session->ended);
    bool last = !fence->holds && --fencing->awaited == 0;
    free(fence);
    fencing->left--;
    if (fencing->waiter != NULL && last)
        rt_unpark(fencing->waiter);
    if (fencing->waiter == NULL && fencing->left == 0)
        free(fencing);
}

static bool has_window(const struct pool_member *member, uint16_t dead)
{
    return member->beat.state == POOL_ALIVE && member->record.location[0] != '\0' &&
           member->record.node >= POOL_COMPUTE_FIRST && member->member != dead;
}

static bool holds(const struct pool_member *member, uint16_t dead)
{
    struct pool_fences fences = pool_fences_unpack(member->record.fences);
    return member->beat.state == POOL_ALIVE && member->member != dead && fences.holds &&
           fences.slabs > 0;
}

static enum pando_status window_fence_start(struct pool_session *session, struct fencing *fencing,
                                            const struct fabric_ticket *dead,
                                            const struct pool_member *member)
{
    struct window_fence *fence = malloc(sizeof(*fence));
    if (fence == NULL)
        return PANDO_NO_MEMORY;
    *fence = (struct window_fence){.fencing = fencing,
                                   .session = session,
                                   .dead = *dead,
                                   .member = *member,
                                   .holds = holds(member, dead->who.member)};
    enum pando_status status = rt_spawn(rt_loop_self(), window_fence_task, fence);
    if (status != PANDO_OK) {
        free(fence);
        return status;
    }
    fencing->left++;
    fencing->awaited += !fence->holds;
    session->fencing++;
    return PANDO_OK;
}

/* For a lease at the most; the tasks then go on by themselves. */
static void fencing_wait_co(struct pool_session *session, struct fencing *fencing)
{
    uint64_t deadline_ns = rt_now_ns() + session->pool->lease_ns;
    fencing->waiter = rt_task_self();
    while (fencing->awaited > 0 && rt_now_ns() < deadline_ns)
        (void)rt_park_co(deadline_ns);
    fencing->waiter = NULL;
    if (fencing->left == 0)
        free(fencing);
}

/* ---- the recoverer: those that hold ---------------------------------------------------------- */

struct holder {
    uint16_t member;
    uint16_t incarnation;
};

/* Whether it has come to that count, or is alive no more. */
static enum pando_status settled_co(struct pool_session *session, struct holder holder,
                                    uint64_t count, bool *out)
{
    struct pool *pool = session->pool;
    uint64_t beat_word = 0, fences_word = 0;
    struct fabric_op reads[] = {
        fabric_read(fabric_address_offset(pool_heartbeat_address(pool, holder.member)), &beat_word,
                    sizeof(beat_word)),
        fabric_read(fabric_address_offset(pool_record_address(pool, holder.member)) +
                        offsetof(struct pool_record, fences),
                    &fences_word, sizeof(fences_word)),
    };
    enum pando_status status = pool_submit_co(session, 0, reads, 2);
    struct pool_heartbeat beat = pool_heartbeat_unpack(beat_word);
    struct pool_fences fences = pool_fences_unpack(fences_word);
    bool alive = beat.state == POOL_ALIVE && beat.incarnation == holder.incarnation;
    /* A later member of the slot may have written the second word: the first one's is over then. */
    *out = status == PANDO_OK && (!alive || !fences.holds || pool_fences_reached(fences, count));
    return status;
}

/* AGAIN: not in a lease. Others have to be watched meanwhile, those that hold among them. Many may
 * have died at once, and each is waited for as long as its own recovery has not begun: whoever goes
 * through all of them waits for one lease, not for one with each. */
static enum pando_status holders_wait_co(struct pool_session *session, struct holder *holders,
                                         unsigned left, uint64_t count)
{
    uint64_t lease_ns = session->pool->lease_ns, pause_ns = lease_ns / LOOKS_PER_LEASE;
    uint64_t deadline_ns =
        rt_now_ns() + (atomic_load(&session->pool->fences_waited) ? 0 : lease_ns);
    for (;;) {
        for (unsigned i = 0; i < left;) {
            bool settled;
            enum pando_status status = settled_co(session, holders[i], count, &settled);
            if (status != PANDO_OK)
                return status;
            if (settled)
                holders[i] = holders[--left];
            else
                i++;
        }
        if (left == 0)
            return PANDO_OK;
        if (rt_now_ns() >= deadline_ns)
            break;
        rt_sleep_co(pause_ns);
        if (pause_ns < lease_ns / LOOKS_PER_LEASE_MIN)
            pause_ns *= 2;
    }
    if (atomic_exchange(&session->pool->fences_waited, true))
        return PANDO_AGAIN; /* which was said before the lease that was waited */
    log_warn("nobody takes over from a dead member until others have shut it out of their windows: "
             "those live, and have not done so in a lease",
             log_u64("waits_for", holders[0].member), log_u64("members", left));
    return PANDO_AGAIN;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum pando_status count_up_co(struct pool_session *session, uint64_t *count)
{
    struct fabric_op add = fabric_faa(session->pool->first + POOL_FENCES, 1);
    enum pando_status status = pool_submit_co(session, 0, &add, 1);
    *count = add.old + 1;
    pool_fences_wake(session->pool); /* this one may hold, too */
    return status;
}

enum pando_status pool_fence_windows_co(struct pool_session *session,
                                        const struct fabric_ticket *dead)
{
    struct room {
        struct pool_member members[POOL_MEMBERS];
        struct holder holders[POOL_MEMBERS];
    } *room = malloc(sizeof(*room));
    struct fencing *fencing = calloc(1, sizeof(*fencing));
    unsigned count = 0, held = 0;
    uint64_t fences = 0;
    enum pando_status status = fencing == NULL || room == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    if (status == PANDO_OK)
        status = pool_members_co(session, room->members, POOL_MEMBERS, &count);
    for (unsigned i = 0; i < count && status == PANDO_OK; i++) {
        const struct pool_member *member = &room->members[i];
        if (holds(member, dead->who.member) && !pool_broken.window_fence)
            room->holders[held++] = (struct holder){member->member, member->beat.incarnation};
    }
    if (held > 0)
        status = count_up_co(session, &fences);
    for (unsigned i = 0; i < count && status == PANDO_OK; i++) {
        if (has_window(&room->members[i], dead->who.member))
            status = window_fence_start(session, fencing, dead, &room->members[i]);
    }
    if (fencing != NULL)
        fencing_wait_co(session, fencing);
    if (status == PANDO_OK && held > 0)
        status = holders_wait_co(session, room->holders, held, fences);
    free(room);
    return status;
}
