/*
 * members.c - being a member: a slot in the table on node 0, heartbeats, and watching the others'
 * (rule heartbeat-lease).
 *
 * What a crash leaves behind: before the first CAS nothing; after it a slot that joins or lives and
 * whose heartbeat stands still, which the others recover like any dead member's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/broken.h"
#include "pool/member_lists.h"
#include "pool/members_int.h"
#include "pool/memory_int.h"
#include "pool/peer_fmt.h"
#include "pool/pool_int.h"

enum {
    BEATS_PER_LEASE = 4,
    RETURNS_PER_LEASE = 8,
    TRIES_PER_BEAT = 4, /* one that failed is tried again so much sooner: the lease runs */
    LOOKS_PER_LEASE = 4,
    ASKS_PER_LEASE = 16, /* of node 0, for a ticket that it does not give yet */
    ASKS_LOGGED = 128,   /* so many are no matter of a moment */
    HUNG_LEASES = 8,     /* a loop that has not turned for so long takes the member with it */
};

static const uint64_t LEASE_MAX_NS = 60 * RT_NS_PER_S;
static const uint64_t BUSY_PAUSE_NS = RT_NS_PER_MS;

fabric_address pool_heartbeat_address(const struct pool *pool, uint16_t member)
{
    return fabric_address_make(0, pool->first + POOL_HEARTBEATS + (uint64_t)member * 8);
}

fabric_address pool_record_address(const struct pool *pool, uint16_t member)
{
    return fabric_address_make(0,
                               pool->first + POOL_RECORDS + (uint64_t)member * POOL_RECORD_BYTES);
}

enum pando_status pool_heartbeats_co(struct pool_session *session, uint64_t **out)
{
    uint64_t *beats = malloc(POOL_MEMBERS * sizeof(*beats));
    *out = NULL;
    if (beats == NULL)
        return PANDO_NO_MEMORY;
    struct fabric_op read = pool_heartbeats_read(session->pool, beats);
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    if (status == PANDO_OK)
        *out = beats;
    else
        free(beats);
    return status;
}

/* ---- joining --------------------------------------------------------------------------------- */

static enum pando_status take_slot_co(struct pool *pool, struct fabric_endpoint *endpoint,
                                      uint64_t *beats)
{
    struct fabric_op read = pool_heartbeats_read(pool, beats);
    enum pando_status status = fabric_submit_co(endpoint, &read, 1);
    if (status != PANDO_OK)
        return status;
    for (uint16_t member = 1; member < POOL_MEMBERS; member++) {
        struct pool_heartbeat beat = pool_heartbeat_unpack(beats[member]);
        if (beat.state != POOL_FREE)
            continue;
        struct pool_heartbeat mine = {.state = POOL_JOINING,
                                      .incarnation = (uint16_t)(beat.incarnation + 1)};
        struct fabric_op cas =
            fabric_cas(fabric_address_offset(pool_heartbeat_address(pool, member)), beats[member],
                       pool_heartbeat_pack(mine));
        status = fabric_submit_co(endpoint, &cas, 1);
        if (status != PANDO_OK)
            return status;
        if (cas.old != beats[member])
            continue; /* somebody was faster */
        pool->identity =
            (struct fabric_identity){.member = member, .incarnation = mine.incarnation};
        pool->beat = cas.operand;
        return PANDO_OK;
    }
    return PANDO_FULL;
}

/* Who the process is from now on. Before others see it alive: they may call it at once. */
static void become(struct pool *pool)
{
    fabric_set_identity(pool->fabric, pool->identity);
    fabric_set_node(pool->fabric, (uint16_t)(POOL_COMPUTE_FIRST | pool->identity.member));
    pool_answers_begin(pool);
}

/* Says who it is and that it lives. On an endpoint of the member itself: were this joiner declared
 * dead meanwhile and its slot given to another, the list must not overwrite that one's record. */
static enum pando_status announce_co(struct pool *pool, struct fabric_endpoint *endpoint,
                                     const char *name)
{
    uint16_t member = pool->identity.member;
    struct pool_record record = {.lease_ns = pool->lease_ns,
                                 .node = fabric_self(pool->fabric),
                                 .epoch = (uint32_t)pool->epoch};
    struct pool_fences fences = {.slabs = pool_own_window_bytes(pool) / POOL_SLAB_BYTES};
    record.fences = pool_fences_pack(fences);
    snprintf(record.name, sizeof(record.name), "%s", name);
    snprintf(record.location, sizeof(record.location), "%s", fabric_location(pool->fabric));
    uint64_t sent_ns = rt_now_ns();
    struct pool_heartbeat alive = {.state = POOL_ALIVE, .incarnation = pool->identity.incarnation};
    /* WRITE before CAS: whoever sees it alive sees its record. */
    struct fabric_op ops[] = {
        fabric_write(fabric_address_offset(pool_record_address(pool, member)), &record,
                     sizeof(record)),
        fabric_cas(fabric_address_offset(pool_heartbeat_address(pool, member)), pool->beat,
                   pool_heartbeat_pack(alive)),
    };
    enum pando_status status = fabric_submit_co(endpoint, ops, 2);
    if (status != PANDO_OK)
        return status;
    if (ops[1].old != pool->beat)
        return PANDO_FENCED; /* too slow: already declared dead */
    pool->beat = ops[1].operand;
    atomic_store(&pool->lease_until_ns, sent_ns + pool->lease_ns);
    return PANDO_OK;
}

enum pando_status pool_member_connect_co(struct pool *pool, uint16_t node,
                                         struct fabric_endpoint **out)
{
    uint64_t until_ns = rt_now_ns() + pool->lease_ns;
    for (;;) {
        enum pando_status status =
            fabric_connect_window_co(pool->fabric, node, pool->windows[node].id, out);
        if (status != PANDO_BUSY || rt_now_ns() > until_ns)
            return status;
        rt_sleep_co(BUSY_PAUSE_NS); /* another process is to disconnect */
    }
}

enum pando_status pool_member_join_co(struct pool *pool, struct fabric_endpoint *endpoint,
                                      const char *name)
{
    uint64_t *beats = malloc(POOL_MEMBERS * sizeof(*beats));
    if (beats == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = take_slot_co(pool, endpoint, beats);
    free(beats);
    if (status != PANDO_OK)
        return status;
    become(pool);
    struct fabric_endpoint *own;
    status = pool_member_connect_co(pool, 0, &own);
    if (status != PANDO_OK)
        return status;
    status = pool_pass_get_co(pool, own);
    if (status == PANDO_OK)
        status = announce_co(pool, own, name);
    fabric_disconnect_co(own);
    return status;
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

/* Whether the session's loop has not turned for a good part of a lease. */
static bool stood_still(const struct pool_session *session)
{
    uint64_t ticked_ns = atomic_load_explicit(&session->ticked_ns, memory_order_acquire);
    return rt_now_ns() - ticked_ns > session->pool->lease_ns / 2;
}

void pool_session_ticker_task(void *arg)
{
    struct pool_session *session = arg;
    while (!session->closing) {
        if (stood_still(session))
            session->stops++;
        atomic_store_explicit(&session->ticked_ns, rt_now_ns(), memory_order_release);
        pool_session_settle(session);
        (void)rt_waitq_wait_co(&session->wake,
                               rt_now_ns() + session->pool->lease_ns / (2 * BEATS_PER_LEASE));
    }
    session->ticker_done = true;
    rt_waitq_wake_all(&session->ended);
}

/* A process one of whose threads is stuck must not keep its lease: others wait for its locks. */
static bool all_loops_turn(struct pool *pool)
{
    uint64_t now = rt_now_ns();
    uint64_t oldest = now;

    rt_latch_lock(&pool->latch);
    list_for_each (link, &pool->sessions) {
        struct pool_session *session = container_of(link, struct pool_session, link);
        if (atomic_load_explicit(&session->paused, memory_order_acquire))
            continue;
        uint64_t ticked = atomic_load_explicit(&session->ticked_ns, memory_order_acquire);
        if (ticked < oldest)
            oldest = ticked;
    }
    rt_latch_unlock(&pool->latch);
    if (now - oldest < pool->lease_ns / 2) {
        pool->stuck = 0;
        return true;
    }
    /* Counted, not timed: after a stop of the whole process every loop looks stuck at first. */
    if (++pool->stuck >= HUNG_LEASES * BEATS_PER_LEASE * TRIES_PER_BEAT)
        pool_resign(pool);
    return false;
}

/* Sends one beat. False: it was not counted now, so the lease was not renewed. */
static bool beat_co(struct pool *pool)
{
    struct pool_heartbeat next = pool_heartbeat_unpack(pool->beat);
    uint64_t sent_ns = rt_now_ns(), old, epoch;

    next.counter++;
    uint64_t word = pool_heartbeat_pack(next);
    uint64_t at = fabric_address_offset(pool_heartbeat_address(pool, pool->identity.member));
    struct fabric_op ops[] = {
        fabric_cas(at, pool->beat, word),
        fabric_read(pool->first + POOL_EPOCH, &epoch, sizeof(epoch)),
    };
    enum pando_status status = pool_submit_co(pool->own, 0, ops, 2);
    old = ops[0].old;
    if (status == PANDO_FENCED || (status == PANDO_OK && old != pool->beat && old != word)) {
        pool_set_fenced(pool);
        return false;
    }
    if (status == PANDO_OK && epoch != pool->epoch) {
        (void)pool_epoch_over(pool);
        return false;
    }
    if (status != PANDO_OK)
        return false; /* it may have been counted: the next one finds out */
    pool->beat = word;
    /* An earlier try had been counted, and observers have seen that word stand still since: what was
     * sent now has changed nothing, and renews nothing. */
    if (old == word)
        return false;
    atomic_store_explicit(&pool->lease_until_ns, sent_ns + pool->lease_ns, memory_order_release);
    return true;
}

static void task_ended(struct pool *pool, bool *runs)
{
    *runs = false;
    rt_waitq_wake_all(&pool->ended);
}

/* Goes on while the member leaves, until it has given everything back: that may take longer than a lease. */
static void heartbeat_task(void *arg)
{
    struct pool *pool = arg;
    uint64_t next_ns = rt_now_ns() + pool->lease_ns / BEATS_PER_LEASE;
    while (!pool->left && !pool_fenced(pool)) {
        if (rt_now_ns() < next_ns) {
            (void)rt_waitq_wait_co(&pool->wake, next_ns);
            continue;
        }
        bool beaten = all_loops_turn(pool) && beat_co(pool);
        if (!pool->leaving)
            pool_windows_check_co(pool);
        next_ns = rt_now_ns() + pool->lease_ns / BEATS_PER_LEASE / (beaten ? 1 : TRIES_PER_BEAT);
    }
    task_ended(pool, &pool->beating);
}

/* ---- watching --------------------------------------------------------------------------------
 *
 * A member is dead when its word has stood still for its lease, on the observer's clock
 * (rule heartbeat-lease). That clock runs only while the word could have changed and the observer
 * would have seen it: a look that failed or took long, a broken endpoint to the heartbeats' node,
 * or a stop of the observer's own loop give everybody a whole lease again (rule member-recovery).
 * Stillness is counted from after the first READ that returned the word to before the last one was
 * sent, and recovery begins with a CAS from that word: a beat that was not seen makes it fail.
 */

struct watch {
    uint64_t word;
    uint64_t since_ns; /* this process's clock after the word was first seen */
    uint64_t lease_ns; /* from its record; 0: not read yet */
    uint64_t again_ns; /* a recovery failed: not again before */
    unsigned refused;  /* times in a row that node 0 gave no ticket */
};

struct monitor {
    struct pool *pool;
    uint64_t *beats;
    struct watch *watches;
    uint64_t breaks, stops; /* of the own session, as known at the last look */
    bool blind;             /* the last look failed */
    bool told;              /* that there is no memory for it */
    uint64_t sent_ns;       /* when the last look was sent */
    uint64_t next_ns;       /* when the next one is due */
};

/* How long a heartbeat may stand still, on our clock: its lease by its clock, plus a round trip or
 * two. */
static uint64_t patience_ns(const struct pool *pool, uint64_t lease_ns)
{
    if (pool_broken.lease || pool_broken.hasty)
        return lease_ns / 4;
    return lease_ns + lease_ns / 1000000 * pool->drift_ppm + lease_ns / 8;
}

/* False: it cannot be read now, and a guess could be too short. */
static bool lease_read_co(struct pool *pool, uint16_t member, uint64_t *out)
{
    uint64_t lease_ns;
    fabric_address at = pool_record_address(pool, member) + offsetof(struct pool_record, lease_ns);
    if (pool_word_read_co(pool->own, at, &lease_ns) != PANDO_OK)
        return false;
    if (lease_ns < pool->lease_ns)
        lease_ns = pool->lease_ns;
    *out = lease_ns > LEASE_MAX_NS ? LEASE_MAX_NS : lease_ns;
    return true;
}

static void due_at(struct monitor *monitor, uint64_t at_ns)
{
    if (at_ns < monitor->next_ns)
        monitor->next_ns = at_ns;
}

/* Whether a word has stood still long enough. The record of one that joins is not its own yet, and it
 * has no lease that it could rely on. */
static bool expired_co(struct monitor *monitor, uint16_t member, enum pool_member_state state)
{
    struct pool *pool = monitor->pool;
    struct watch *watch = &monitor->watches[member];
    /* Nobody waits for one that joins, and on a busy machine that may take long. */
    uint64_t times = state == POOL_JOINING ? POOL_JOINING_LEASES : 1;
    uint64_t end_ns = watch->since_ns + times * patience_ns(pool, pool->lease_ns);

    if (monitor->sent_ns > end_ns && state != POOL_JOINING) {
        if (watch->lease_ns == 0 && !lease_read_co(pool, member, &watch->lease_ns))
            return false;
        end_ns = watch->since_ns + patience_ns(pool, watch->lease_ns);
    }
    if (monitor->sent_ns > end_ns)
        return true;
    due_at(monitor, end_ns + 1);
    return false;
}

/* Whether the recovery of a member may be begun, or gone on with where another stopped. */
static bool due_co(struct monitor *monitor, uint16_t member)
{
    struct watch *watch = &monitor->watches[member];
    struct pool_heartbeat beat = pool_heartbeat_unpack(watch->word);

    if (monitor->sent_ns < watch->again_ns) {
        due_at(monitor, watch->again_ns);
        return false;
    }
    if (beat.state != POOL_FENCED)
        return expired_co(monitor, member, beat.state);
    struct fabric_identity recoverer = pool_recoverer(&beat);
    struct pool_heartbeat other = pool_heartbeat_unpack(monitor->beats[recoverer.member]);
    return recoverer.member == monitor->pool->identity.member ||
           other.incarnation != recoverer.incarnation || other.state == POOL_FREE ||
           other.state == POOL_FENCED;
}

static void recover_co(struct monitor *monitor, uint16_t member)
{
    struct pool *pool = monitor->pool;
    struct watch *watch = &monitor->watches[member];
    uint64_t still_ns = monitor->sent_ns > watch->since_ns ? monitor->sent_ns - watch->since_ns : 0;
    enum pando_status status = pool_recover_from_co(pool->own, member, watch->word, still_ns);

    if (status == PANDO_OK)
        atomic_fetch_add(&pool->departures, 1);
    if (status != PANDO_OK && status != PANDO_NOT_FOUND && status != PANDO_BUSY &&
        status != PANDO_AGAIN)
        log_warn("cannot recover a dead member", log_u64("member", member),
                 log_status("status", status));
    watch->refused = status == PANDO_BUSY ? watch->refused + 1 : 0;
    if (watch->refused == ASKS_LOGGED)
        log_warn("memory node 0 does not confirm that a silent member is dead: nobody takes over "
                 "from it until it does",
                 log_u64("member", member));
    /* Not again at once. */
    watch->again_ns =
        rt_now_ns() + pool->lease_ns / (status == PANDO_BUSY ? ASKS_PER_LEASE : LOOKS_PER_LEASE);
}

static void check_heartbeat_co(struct monitor *monitor, uint16_t member, uint64_t now_ns)
{
    struct watch *watch = &monitor->watches[member];
    uint64_t word = monitor->beats[member];
    struct pool_heartbeat beat = pool_heartbeat_unpack(word);

    if (word != watch->word) {
        struct pool_heartbeat former = pool_heartbeat_unpack(watch->word);
        if (former.incarnation != beat.incarnation)
            fabric_note_member(monitor->pool->fabric,
                               (struct fabric_identity){member, beat.incarnation});
        /* Also at the first look: it may have been here before. */
        if (former.incarnation != beat.incarnation || beat.state == POOL_FREE ||
            pool_heartbeat_partial(&former) != pool_heartbeat_partial(&beat))
            atomic_fetch_add(&monitor->pool->departures, 1);
        uint64_t lease_ns = former.incarnation == beat.incarnation && former.state == beat.state
                                ? watch->lease_ns
                                : 0;
        *watch = (struct watch){.word = word, .since_ns = now_ns, .lease_ns = lease_ns};
        if (former.incarnation == beat.incarnation && beat.state == POOL_ALIVE)
            pool_uncallable_say_co(monitor->pool->own,
                                   (struct fabric_identity){member, beat.incarnation});
    }
    if (beat.state != POOL_FREE && member != monitor->pool->identity.member &&
        due_co(monitor, member))
        recover_co(monitor, member);
}

/* Reads all heartbeats. False: that was not possible. */
static bool beats_read_co(struct monitor *monitor)
{
    struct pool *pool = monitor->pool;
    struct fabric_op read = pool_heartbeats_read(pool, monitor->beats);

    monitor->sent_ns = rt_now_ns();
    bool blind = monitor->blind;
    monitor->blind = pool_submit_co(pool->own, 0, &read, 1) != PANDO_OK;
    if (monitor->blind)
        return false;
    uint64_t now_ns = rt_now_ns();
    if (blind || stood_still(pool->own) || monitor->stops != pool->own->stops ||
        monitor->breaks != pool->own->breaks || now_ns - monitor->sent_ns > pool->lease_ns / 2) {
        for (uint16_t member = 1; member < POOL_MEMBERS; member++)
            monitor->watches[member].since_ns = now_ns;
    }
    monitor->stops = pool->own->stops;
    monitor->breaks = pool->own->breaks;
    return true;
}

static void check_heartbeats_co(struct monitor *monitor)
{
    if (!beats_read_co(monitor))
        return;
    uint64_t now_ns = rt_now_ns();
    atomic_store(&monitor->pool->fences_waited, false);
    for (uint16_t member = 1; member < POOL_MEMBERS && !monitor->pool->leaving; member++)
        check_heartbeat_co(monitor, member, now_ns);
}

/* Whether it has the memory that it needs. Who watches nobody for want of it must not do so for ever. */
static bool equipped(struct monitor *monitor)
{
    if (monitor->beats == NULL)
        monitor->beats = calloc(POOL_MEMBERS, sizeof(*monitor->beats));
    if (monitor->watches == NULL)
        monitor->watches = calloc(POOL_MEMBERS, sizeof(*monitor->watches));
    bool now = monitor->beats != NULL && monitor->watches != NULL;
    if (!now && !monitor->told)
        log_warn("no memory to watch the other members with; will try again");
    monitor->told = !now;
    return now;
}

static void monitor_task(void *arg)
{
    struct pool *pool = arg;
    struct monitor monitor = {.pool = pool,
                              .next_ns = rt_now_ns() + pool->lease_ns / LOOKS_PER_LEASE};

    while (!pool->leaving && !pool_fenced(pool)) {
        if (rt_now_ns() < monitor.next_ns)
            (void)rt_waitq_wait_co(&pool->wake, monitor.next_ns);
        if (pool->leaving)
            continue;
        monitor.next_ns = rt_now_ns() + pool->lease_ns / LOOKS_PER_LEASE;
        if (!pool->no_recovery && equipped(&monitor))
            check_heartbeats_co(&monitor);
    }
    free(monitor.beats);
    free(monitor.watches);
    task_ended(pool, &pool->watching);
}

/* ---- giving back blocks ---------------------------------------------------------------------- */

static void return_task(void *arg)
{
    struct pool *pool = arg;
    while (!pool->leaving && !pool_fenced(pool)) {
        (void)rt_waitq_wait_co(&pool->wake, rt_now_ns() + pool->lease_ns / RETURNS_PER_LEASE);
        pool_intents_shrink(pool);
        (void)stock_return_co(pool->own, false);
        if (!pool->leaving) {
            stock_tell_co(pool->own);
            pool_rooms_refresh_co(pool);
        }
    }
    task_ended(pool, &pool->returning);
}

/* By itself: it may take long to give something away. */
static void grant_task(void *arg)
{
    struct pool *pool = arg;
    while (!pool->leaving && !pool_fenced(pool)) {
        (void)rt_waitq_wait_co(&pool->wake, rt_now_ns() + pool->lease_ns / RETURNS_PER_LEASE);
        if (!pool->leaving)
            pool_wishes_serve_co(pool);
    }
    task_ended(pool, &pool->granting);
}

enum pando_status pool_member_start(struct pool *pool)
{
    const struct {
        rt_fn task;
        bool *runs;
    } tasks[] = {{heartbeat_task, &pool->beating},
                 {monitor_task, &pool->watching},
                 {return_task, &pool->returning},
                 {grant_task, &pool->granting},
                 {pool_fences_task, &pool->fencing_own}};
    size_t count = sizeof(tasks) / sizeof(tasks[0]) - (pool_own_window_bytes(pool) == 0);
    enum pando_status status = PANDO_OK;
    for (size_t i = 0; i < count && status == PANDO_OK; i++) {
        *tasks[i].runs = true;
        status = rt_spawn(rt_loop_self(), tasks[i].task, pool);
        *tasks[i].runs = status == PANDO_OK;
    }
    return status;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Has a node look at all its blocks for those that this member holds. */
static bool sweep_node_co(struct pool *pool, uint16_t node)
{
    struct pool_sweep_request request = {.member = pool->identity.member,
                                         .incarnation = pool->identity.incarnation};
    struct pool_sweep_reply reply;
    enum pando_status status = pool_sweep_co(pool->own, node, &request, &reply);
    if (status != PANDO_OK)
        log_warn("leaving without giving back memory: the others will take it",
                 log_u64("node", node), log_status("status", status));
    return status == PANDO_OK;
}

/* Gives back all memory that this member holds; its tables stay. False: not everywhere. Nodes search for it
 * only if some call of this member failed, or some intent was left: otherwise it knows what it has. */
static bool give_up_memory_co(struct pool *pool)
{
    bool all = true;
    pool_intents_end(pool);
    if (stock_return_all_co(pool->own)) {
        stock_tell_co(pool->own);
        return true;
    }
    for (uint16_t node = 0; node < pool->nodes; node++)
        all = sweep_node_co(pool, node) && all;
    return all;
}

static bool task_runs(const void *runs)
{
    return *(const bool *)runs;
}

/* The tasks are of this loop, and look whether they shall end before each wait: one wake-up is enough. */
static void await_end_co(struct pool *pool, const bool *runs)
{
    rt_waitq_wake_all(&pool->wake);
    (void)rt_waitq_while_co(&pool->ended, task_runs, runs, RT_NEVER);
}

/* The heartbeats end last. A recovery that the monitor is in the middle of, and giving back memory, may
 * take longer than a lease: whoever leaves without beating meanwhile is declared dead, and killed on shm. */
bool pool_member_end_co(struct pool *pool)
{
    pool->leaving = true;
    await_end_co(pool, &pool->watching);
    await_end_co(pool, &pool->returning);
    await_end_co(pool, &pool->granting);
    bool given = !pool_fenced(pool) && pool_release_own_locks_co(pool->own) == PANDO_OK &&
                 give_up_memory_co(pool);
    pool->left = true;
    await_end_co(pool, &pool->beating);
    pool_fences_wake(pool);
    await_end_co(pool, &pool->fencing_own);
    /* A slot that stays is recovered by the others, memory and all. */
    return given && !pool_fenced(pool);
}

/* By an endpoint of nobody: whoever takes the slot next connects as this member, which a process that is
 * still connected as it would keep it from. Late, or done twice, the CAS changes nothing: no other word of
 * this slot is ever the same. */
void pool_member_free_slot_co(struct pool *pool)
{
    struct pool_heartbeat beat = {.state = POOL_FREE, .incarnation = pool->identity.incarnation};
    uint64_t at = fabric_address_offset(pool_heartbeat_address(pool, pool->identity.member));
    struct fabric_op cas = fabric_cas(at, pool->beat, pool_heartbeat_pack(beat));
    struct fabric_endpoint *endpoint;

    fabric_set_identity(pool->fabric, (struct fabric_identity){0});
    enum pando_status status =
        fabric_connect_window_co(pool->fabric, 0, pool->windows[0].id, &endpoint);
    if (status == PANDO_OK) {
        status = fabric_submit_co(endpoint, &cas, 1);
        fabric_disconnect_co(endpoint);
    }
    if (status != PANDO_OK || cas.old != pool->beat)
        log_warn("left without freeing the member slot", log_status("status", status));
}

/* ---- for people and recovery ----------------------------------------------------------------- */

enum pando_status pool_members_co(struct pool_session *session, struct pool_member *out,
                                  unsigned capacity, unsigned *count)
{
    struct pool *pool = session->pool;
    uint64_t *beats;
    enum pando_status status = pool_heartbeats_co(session, &beats);
    *count = 0;
    for (uint16_t member = 1; member < POOL_MEMBERS && status == PANDO_OK && *count < capacity;
         member++) {
        struct pool_member *entry = &out[*count];
        entry->member = member;
        entry->beat = pool_heartbeat_unpack(beats[member]);
        if (entry->beat.state == POOL_FREE)
            continue;
        struct fabric_op get = fabric_read(fabric_address_offset(pool_record_address(pool, member)),
                                           &entry->record, sizeof(entry->record));
        status = pool_submit_co(session, 0, &get, 1);
        /* Bytes from remote memory: make sure that they end. */
        entry->record.name[POOL_NAME_MAX - 1] = '\0';
        entry->record.location[FABRIC_LOCATION_MAX - 1] = '\0';
        (*count)++;
    }
    free(beats);
    return status;
}

enum pando_status pool_heartbeat_co(struct pool_session *session, uint16_t member,
                                    struct pool_heartbeat *out)
{
    uint64_t word = 0;
    enum pando_status status =
        pool_word_read_co(session, pool_heartbeat_address(session->pool, member), &word);
    *out = pool_heartbeat_unpack(word);
    return status;
}
