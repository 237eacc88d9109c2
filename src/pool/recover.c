/*
 * recover.c - taking over from a dead member (rule member-recovery).
 *
 *   0  node 0 confirms that it has stood still for its lease (rule fence-ticket)
 *   1  its heartbeat: alive (or joining) to fenced, by CAS from the very word that stood still
 *   2  fenced, with a ticket that node 0 gives once the word says fenced, at every memory node; at
 *      the window of every living member that holds something there; and at those of others that
 *      can be reached (window_fences.c)
 *   3  its intents whose home lock it still holds are redone; then its guards (intent_fmt.h) are cleared
 *   4  its locks are released, and marked: a holder died here (rule lock-word)
 *   5  its memory is swept
 *   6  its slot is freed
 *
 * Each step can be done twice, and a recoverer that dies is replaced. The word of step 1 names it; the
 * next one claims that word when the former is gone or is itself fenced, so two that recover each
 * other do not wait for each other. A former one that is merely slow could still have an image under
 * way that is older than what others have written since (the checker found that). Therefore step 2
 * fences every member whose word says fenced, not the dead one alone: a former recoverer either is
 * among them, or is gone, which means that it was fenced everywhere. A member whose word says fenced is
 * never let in again, so fencing it early does no harm, whoever recovers it. After step 2 nothing of the
 * dead one or of its recoverers arrives any more, so what the later steps read does not change under
 * them but by us.
 *
 * A memory node other than that of the heartbeats that does not answer holds up steps 5 and 6, but not
 * steps 2 and 3 elsewhere, and of step 4 only what it must: the heartbeat then says that the recovery is
 * partial, and the record which nodes are missing (partial.c has what others may rely on). An intent that names a
 * missing node is left alone, with its locks, and locks that a guard names stay as they are, as the intent
 * may lie on the missing node; guards are not cleared. All other locks on nodes that answer are
 * released. An intent without a lock that names a missing node and others keeps nobody off these: then the
 * recovery is not even partial, and nobody takes over
 * until that node answers. (Such intents lie where they are found: intent_fmt.h.) The recovery is tried again
 * until all nodes answer. A death of the recoverer before that word leaves a recovery as any other; after
 * it, the next one keeps the word partial, and leaves out of the missing nodes only those to which it has
 * come itself or a former one had.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/block_fmt.h"
#include "pool/broken.h"
#include "pool/intent.h"
#include "pool/kept.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

/* An intent is read whole. */
enum { PIECE_BYTES = POOL_INTENT_BYTES, ABSENT_MAX = 64 };

struct recovery {
    struct pool_session *session;
    struct pool *pool;
    struct fabric_identity dead;
    struct fabric_ticket ticket; /* for the dead one */
    uint64_t word;               /* the heartbeat word as we last wrote it */
    uint64_t epoch;              /* at which the dead one had joined */
    uint64_t absent;             /* memory nodes that do not answer now */
    struct kept_locks *kept;     /* what is not released; NULL: no node is absent */
    bool tied;           /* an intent without a lock names one of these: nobody may take over */
    bool guards;         /* the dead one has left some, */
    bool clearing;       /* which are cleared now */
    uint64_t unreadable; /* intents that were left out */
    uint64_t fenced_ns, redone_ns, released_ns; /* when these steps were done */
    uint8_t *buffer;                            /* PIECE_BYTES */
    struct intent *intent;
};

static bool not_later(struct fabric_identity one, struct fabric_identity than)
{
    return one.member == than.member &&
           (int16_t)(uint16_t)(one.incarnation - than.incarnation) <= 0;
}

/* ---- 1: claiming it -------------------------------------------------------------------------- */

static bool is_self(const struct recovery *recovery, struct fabric_identity who)
{
    struct fabric_identity self = recovery->pool->identity;
    return who.member == self.member && who.incarnation == self.incarnation;
}

/* Whether a former recoverer will never be a member again: it is being recovered itself, or gone. What
 * it has under way ends before we write anything: step 2 fences it, too. */
static enum pando_status recoverer_dead_co(struct recovery *recovery,
                                           struct fabric_identity recoverer, bool *dead)
{
    uint64_t word;
    fabric_address at = pool_heartbeat_address(recovery->pool, recoverer.member);
    enum pando_status status = pool_word_read_co(recovery->session, at, &word);
    struct pool_heartbeat beat = pool_heartbeat_unpack(word);
    *dead = beat.state == POOL_FREE || beat.state == POOL_FENCED ||
            beat.incarnation != recoverer.incarnation;
    return status;
}

static enum pando_status mark_fenced_co(struct recovery *recovery, uint64_t seen)
{
    fabric_address at = pool_heartbeat_address(recovery->pool, recovery->dead.member);
    struct pool_heartbeat beat = pool_heartbeat_unpack(seen);
    bool dead = true;
    uint64_t old;
    enum pando_status status = PANDO_OK;

    if (beat.state == POOL_FREE || beat.incarnation != recovery->dead.incarnation)
        return PANDO_NOT_FOUND;
    if (beat.state == POOL_FENCED && !is_self(recovery, pool_recoverer(&beat)))
        status = recoverer_dead_co(recovery, pool_recoverer(&beat), &dead);
    if (status != PANDO_OK || !dead)
        return status == PANDO_OK ? PANDO_BUSY : status;
    uint64_t progress = beat.state == POOL_FENCED ? beat.counter + 1 : 0;
    uint64_t partial = pool_heartbeat_partial(&beat) ? POOL_RECOVERY_PARTIAL : 0;
    beat.state = POOL_FENCED;
    beat.counter = pool_recoverer_pack(recovery->pool->identity, progress) | partial;
    recovery->word = pool_heartbeat_pack(beat);
    status = pool_word_cas_co(recovery->session, at, seen, recovery->word, &old);
    if (status == PANDO_OK && old != seen)
        return PANDO_NOT_FOUND; /* it lives after all, or another recovers it */
    return status;
}

/* Shows that we are at it, and finds out whether somebody took it from us. */
static enum pando_status show_progress_co(struct recovery *recovery, enum pool_member_state state)
{
    struct pool_heartbeat beat = pool_heartbeat_unpack(recovery->word);
    uint64_t old;

    uint64_t partial = beat.counter & POOL_RECOVERY_PARTIAL;
    beat.state = state;
    beat.counter = state == POOL_FREE
                       ? 0
                       : pool_recoverer_pack(recovery->pool->identity, beat.counter + 1) | partial;
    uint64_t word = pool_heartbeat_pack(beat);
    enum pando_status status = pool_word_cas_co(
        recovery->session, pool_heartbeat_address(recovery->pool, recovery->dead.member),
        recovery->word, word, &old);
    if (status == PANDO_OK && old != recovery->word)
        return PANDO_NOT_FOUND;
    recovery->word = word;
    return status;
}

/* ---- 2: fencing ------------------------------------------------------------------------------ */

/* Tickets for everybody that is being recovered: the dead one, and with it all its former recoverers that
 * are not gone, however many there were. One that is gone meanwhile was fenced everywhere. */
struct tickets {
    unsigned count;
    struct fabric_ticket of[POOL_MEMBERS];
};

static enum pando_status ticket_take_co(struct recovery *recovery, struct fabric_identity who,
                                        struct tickets *tickets)
{
    struct fabric_ticket *ticket = &tickets->of[tickets->count];
    bool claimed = false;
    enum pando_status status = pool_ticket_co(recovery->session, who, ticket, &claimed);
    bool dead = who.member == recovery->dead.member;
    if (status == PANDO_NOT_FOUND && !dead)
        return PANDO_OK;
    if (status != PANDO_OK || !claimed)
        return status == PANDO_OK ? PANDO_BUSY : status;
    tickets->count++;
    if (dead)
        recovery->ticket = *ticket;
    return PANDO_OK;
}

static enum pando_status tickets_take_co(struct recovery *recovery, struct tickets *tickets)
{
    uint64_t *beats;
    enum pando_status status = pool_heartbeats_co(recovery->session, &beats);
    for (uint16_t member = 1; member < POOL_MEMBERS && status == PANDO_OK; member++) {
        struct pool_heartbeat beat = pool_heartbeat_unpack(beats[member]);
        struct fabric_identity who = {.member = member, .incarnation = beat.incarnation};
        if (beat.state == POOL_FENCED && !is_self(recovery, who))
            status = ticket_take_co(recovery, who, tickets);
    }
    free(beats);
    return status;
}

static enum pando_status fence_node_co(struct recovery *recovery, uint16_t node,
                                       const struct tickets *tickets)
{
    enum pando_status status = pool_reconnect_co(recovery->session, node);
    for (unsigned i = 0; i < tickets->count && status == PANDO_OK; i++)
        status = fabric_fence_co(pool_endpoint(recovery->session, node), &tickets->of[i]);
    return status;
}

/* A node that does not answer is done without, if the heartbeats are not there. */
static enum pando_status fence_nodes_co(struct recovery *recovery, const struct tickets *tickets)
{
    for (uint16_t node = 0; node < recovery->pool->nodes; node++) {
        enum pando_status status = fence_node_co(recovery, node, tickets);
        bool silent = status == PANDO_BROKEN || status == PANDO_TIMEOUT;
        if (status != PANDO_OK && (!silent || node == 0 || node >= ABSENT_MAX))
            return status;
        if (status != PANDO_OK)
            recovery->absent |= (uint64_t)1 << node;
    }
    return PANDO_OK;
}

static enum pando_status fence_co(struct recovery *recovery)
{
    struct tickets *tickets = malloc(sizeof(*tickets));
    if (tickets == NULL)
        return PANDO_NO_MEMORY;
    tickets->count = 0;
    enum pando_status status = tickets_take_co(recovery, tickets);
    if (status == PANDO_OK)
        status = fence_nodes_co(recovery, tickets);
    free(tickets);
    return status == PANDO_OK ? pool_fence_windows_co(recovery->session, &recovery->ticket)
                              : status;
}

/* ---- 3: intents ------------------------------------------------------------------------------ */

static enum pando_status write_co(struct recovery *recovery, fabric_address address,
                                  const void *bytes, uint32_t size)
{
    struct fabric_op write = fabric_write(fabric_address_offset(address), bytes, size);
    return pool_submit_co(recovery->session, pool_node_of(recovery->pool, address), &write, 1);
}

/* Images first, each completed; then the intent is cleared; only then may others have the locks.
 * Were one released before, what they write could be undone by the next who finds the intent. The
 * words get back the value they were taken from: all that the dead one had begun under them is
 * done, so this death left nothing to repair. A lock on another node than the intent has a guard
 * there, which must be cleared before it: it is released with that, or by step 4. */
static enum pando_status redo_co(struct recovery *recovery, fabric_address slot)
{
    const struct intent *intent = recovery->intent;
    uint64_t old, zero = 0;
    enum pando_status status = PANDO_OK;

    for (uint32_t i = 0; i < intent->image_count && status == PANDO_OK; i++) {
        fabric_address at = intent->images[i].address;
        uint16_t node = pool_node_of(recovery->pool, at);
        if (node < recovery->pool->nodes && recovery->pool->windows[node].since > recovery->epoch)
            continue; /* it was meant for a window that is gone */
        status = write_co(recovery, at, intent->images[i].bytes.data,
                          (uint32_t)intent->images[i].bytes.size);
    }
    if (status == PANDO_OK)
        status = write_co(recovery, slot, &zero, sizeof(zero));
    for (uint32_t i = 0; i < intent->lock_count && status == PANDO_OK; i++) {
        struct intent_lock lock = intent->locks[i];
        if (pool_bank(lock.address) == pool_bank(slot))
            status = pool_word_cas_co(recovery->session, lock.address, lock.word,
                                      pool_lock_deaths(lock.word), &old);
    }
    if (status == PANDO_OK && intent->home.address != 0)
        status = pool_word_cas_co(recovery->session, intent->home.address, intent->home.word,
                                  pool_lock_deaths(intent->home.word), &old);
    return status;
}

static bool answers(const struct recovery *recovery, fabric_address address)
{
    uint16_t node = pool_node_of(recovery->pool, address);
    return node >= ABSENT_MAX || (recovery->absent >> node & 1) == 0;
}

/* Whether all that an intent names can be reached. If not it is left as it is, with its locks. */
static bool reachable(const struct recovery *recovery, const struct intent *intent)
{
    bool all = answers(recovery, intent->home.address);
    for (uint32_t i = 0; i < intent->lock_count; i++)
        all = all && answers(recovery, intent->locks[i].address);
    for (uint32_t i = 0; i < intent->image_count; i++)
        all = all && answers(recovery, intent->images[i].address);
    return all;
}

/* As a memory node does when it starts: torn, so that nothing behind it was written; or damaged, and what it was
 * to finish is found torn by who reads it. It will never be redone, but it may have been a guard. */
static void leave_out(struct recovery *recovery, fabric_address slot)
{
    uint64_t header;
    memcpy(&header, recovery->buffer, sizeof(header));
    if (header == 0 || recovery->clearing)
        return; /* there is none; or the other way through the slots has told */
    if (recovery->kept != NULL)
        kept_node(recovery->kept, fabric_address_node(slot));
    log_warn("left out a dead member's intent that cannot be read", log_hex("slot", slot),
             log_u64("member", recovery->dead.member));
    recovery->unreadable++;
}

static enum pando_status redo_slot_co(struct recovery *recovery, fabric_address slot,
                                      uint32_t slot_bytes)
{
    uint64_t home;
    struct fabric_op read = fabric_read(fabric_address_offset(slot), recovery->buffer, slot_bytes);
    enum pando_status status =
        pool_submit_co(recovery->session, pool_node_of(recovery->pool, slot), &read, 1);
    if (status != PANDO_OK)
        return status;
    if (!intent_read(recovery->intent, recovery->pool->id, slot, recovery->buffer, slot_bytes)) {
        leave_out(recovery, slot);
        return PANDO_OK;
    }
    if (!not_later(pool_lock_owner(recovery->intent->home.word), recovery->dead))
        return PANDO_OK;
    bool guard = intent_is_guard(recovery->intent);
    recovery->guards = recovery->guards || guard;
    bool undone = guard || !reachable(recovery, recovery->intent);
    if (recovery->kept != NULL && undone)
        kept_intent(recovery->kept, recovery->intent);
    if (guard != recovery->clearing)
        return PANDO_OK;
    if (guard)
        return redo_co(recovery, slot);
    if (undone) {
        recovery->tied = recovery->tied || recovery->intent->home.address == 0;
        return PANDO_OK;
    }
    if (recovery->intent->home.address == 0)
        return redo_co(recovery, slot); /* of what nobody else writes: there, so not all was done */
    status = pool_word_read_co(recovery->session, recovery->intent->home.address, &home);
    if (status != PANDO_OK || home != recovery->intent->home.word)
        return status; /* released: all of it was done */
    return redo_co(recovery, slot);
}

/* The dead one's slots in a chunk of vital blocks. */
static enum pando_status redo_chunk_co(struct recovery *recovery, fabric_address at,
                                       const struct pool_chunk *chunk)
{
    enum { BLOCKS_MAX = POOL_CHUNK_BYTES / INTENT_SLOT_BLOCK };
    uint32_t count = pool_chunk_blocks(chunk), bytes = chunk->block_bytes;
    struct fabric_op reads[BLOCKS_MAX];
    uint64_t tenures[BLOCKS_MAX];

    for (uint32_t i = 0; i < count; i++)
        reads[i] = fabric_read(fabric_address_offset(at) + (uint64_t)i * bytes + POOL_BLOCK_TENURE,
                               &tenures[i], sizeof(tenures[i]));
    enum pando_status status =
        pool_submit_co(recovery->session, pool_node_of(recovery->pool, at), reads, count);
    for (uint32_t i = 0; i < count && status == PANDO_OK; i++) {
        struct pool_tenure tenure = pool_tenure_unpack(tenures[i]);
        if (intent_slot_tenure(tenure) && not_later(tenure.holder, recovery->dead))
            status = redo_slot_co(recovery, at + (uint64_t)i * bytes + INTENT_SLOT_AT,
                                  INTENT_SLOT_BYTES);
    }
    return status;
}

static enum pando_status redo_node_co(struct recovery *recovery, uint16_t node)
{
    const struct pool_superblock *super = &recovery->pool->supers[node];
    enum { ENTRIES = 1024 };
    uint64_t *entries = malloc(ENTRIES * POOL_CHUNK_ENTRY_BYTES);
    enum pando_status status = entries == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    for (uint64_t from = 0; from < super->chunks && status == PANDO_OK; from += ENTRIES) {
        uint64_t count = super->chunks - from < ENTRIES ? super->chunks - from : ENTRIES;
        uint64_t table = recovery->pool->first + POOL_CHUNK_TABLE;
        struct fabric_op read = fabric_read(table + from * POOL_CHUNK_ENTRY_BYTES, entries,
                                            (uint32_t)(count * POOL_CHUNK_ENTRY_BYTES));
        status = pool_submit_co(recovery->session, node, &read, 1);
        for (uint64_t i = 0; i < count && status == PANDO_OK; i++) {
            struct pool_chunk chunk = pool_chunk_unpack(entries[2 * i], entries[2 * i + 1]);
            uint64_t offset = super->heap_offset + (from + i) * POOL_CHUNK_BYTES;
            if (chunk.kind == POOL_CHUNK_DAMAGED && recovery->kept != NULL)
                kept_node(recovery->kept, node);
            if (intent_chunk(&chunk))
                status = redo_chunk_co(recovery, fabric_address_make(node, offset), &chunk);
        }
    }
    free(entries);
    return status;
}

/* ---- 4: locks -------------------------------------------------------------------------------- */

static bool to_release(const struct recovery *recovery, fabric_address lock, uint64_t word)
{
    return !pool_lock_free(word) && not_later(pool_lock_owner(word), recovery->dead) &&
           (recovery->kept == NULL || pool_broken.kept || !kept_has(recovery->kept, lock));
}

static enum pando_status release_locks_co(struct recovery *recovery, uint16_t node)
{
    struct pool *pool = recovery->pool;
    uint64_t *words = (uint64_t *)recovery->buffer;
    enum { WORDS = PIECE_BYTES / 8 };
    enum pando_status status = PANDO_OK;

    for (uint64_t from = 0; from < pool->supers[node].locks && status == PANDO_OK; from += WORDS) {
        uint64_t left = pool->supers[node].locks - from;
        uint64_t count = left < WORDS ? left : WORDS;
        fabric_address at = pool_lock_address(pool, node, (uint32_t)from);
        struct fabric_op read =
            fabric_read(fabric_address_offset(at), words, (uint32_t)(count * 8));
        status = pool_submit_co(recovery->session, node, &read, 1);
        for (uint64_t i = 0; i < count && status == PANDO_OK; i++) {
            uint64_t old;
            if (to_release(recovery, at + i * 8, words[i]))
                status = pool_word_cas_co(recovery->session, at + i * 8, words[i],
                                          pool_lock_after_death(words[i]), &old);
        }
    }
    return status;
}

/* ---- 5: memory ------------------------------------------------------------------------------- */

static enum pando_status sweep_co(struct recovery *recovery, uint16_t node)
{
    struct pool_sweep_request request = {.member = recovery->dead.member,
                                         .incarnation = recovery->dead.incarnation};
    struct pool_sweep_reply reply;
    return pool_sweep_co(recovery->session, node, &request, &reply);
}

enum pando_status pool_release_own_locks_co(struct pool_session *session)
{
    struct recovery recovery = {
        .session = session, .pool = session->pool, .dead = session->pool->identity};
    enum pando_status status = PANDO_OK;
    recovery.buffer = malloc(PIECE_BYTES);
    if (recovery.buffer == NULL)
        return PANDO_NO_MEMORY;
    for (uint16_t node = 0; node < session->pool->nodes && status == PANDO_OK; node++)
        status = release_locks_co(&recovery, node);
    free(recovery.buffer);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

typedef enum pando_status (*node_step)(struct recovery *recovery, uint16_t node);

static enum pando_status every_node_co(struct recovery *recovery, node_step step)
{
    enum pando_status status = PANDO_OK;
    for (uint16_t node = 0; node < recovery->pool->nodes && status == PANDO_OK; node++) {
        if (!answers(recovery, fabric_address_make(node, 0)))
            continue;
        status = step(recovery, node);
        if (status == PANDO_OK)
            status = show_progress_co(recovery, POOL_FENCED);
    }
    return status;
}

/* Says at which nodes the dead one is not fenced yet: those that no recoverer has come to. The rest may be
 * taken over. Never OK: what is left has to wait. */
static enum pando_status stop_halfway_co(struct recovery *recovery)
{
    struct pool *pool = recovery->pool;
    struct pool_heartbeat beat = pool_heartbeat_unpack(recovery->word);
    fabric_address at =
        pool_record_address(pool, recovery->dead.member) + offsetof(struct pool_record, missing);
    uint64_t missing = UINT64_MAX;
    bool first = !pool_heartbeat_partial(&beat);
    enum pando_status status =
        first ? PANDO_OK : pool_word_read_co(recovery->session, at, &missing);
    if (status != PANDO_OK)
        return status;
    missing &= recovery->absent;
    beat.counter |= POOL_RECOVERY_PARTIAL;
    uint64_t word = pool_heartbeat_pack(beat);
    /* WRITE before CAS: whoever sees that it is partial sees what is missing. */
    struct fabric_op ops[] = {
        fabric_write(fabric_address_offset(at), &missing, sizeof(missing)),
        fabric_cas(fabric_address_offset(pool_heartbeat_address(pool, recovery->dead.member)),
                   recovery->word, word),
    };
    status = pool_submit_co(recovery->session, 0, ops, 2);
    if (status != PANDO_OK || ops[1].old != recovery->word)
        return status == PANDO_OK ? PANDO_NOT_FOUND : status;
    if (first) {
        atomic_fetch_add(&pool->departures, 1);
        log_warn("a dead member is recovered in part: memory nodes do not answer",
                 log_u64("member", recovery->dead.member), log_hex("nodes", missing));
    }
    return PANDO_AGAIN;
}

/* All that can be done without the absent nodes. Never OK. */
static enum pando_status recover_partly_co(struct recovery *recovery)
{
    recovery->kept = calloc(1, sizeof(*recovery->kept));
    enum pando_status status = recovery->kept == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    if (status == PANDO_OK)
        status = every_node_co(recovery, redo_node_co);
    if (status == PANDO_OK && recovery->tied)
        status = PANDO_AGAIN;
    if (status == PANDO_OK)
        status = every_node_co(recovery, release_locks_co);
    if (status == PANDO_OK)
        status = stop_halfway_co(recovery);
    free(recovery->kept);
    return status;
}

/* Whoever drops a table finds out by this that it may have lost blocks (drop.c). Before the dead one's slot is free. */
static enum pando_status count_death_co(struct recovery *recovery)
{
    struct fabric_op add = fabric_faa(recovery->pool->first + POOL_DEATHS, 1);
    return pool_submit_co(recovery->session, 0, &add, 1);
}

static enum pando_status recover_steps_co(struct recovery *recovery)
{
    fabric_address record = pool_record_address(recovery->pool, recovery->dead.member);
    enum pando_status status = fence_co(recovery);
    if (status == PANDO_OK)
        status = show_progress_co(recovery, POOL_FENCED);
    if (status == PANDO_OK && pool_broken.redo)
        status = every_node_co(recovery, release_locks_co);
    if (status == PANDO_OK)
        status = pool_word_read_co(recovery->session, record + offsetof(struct pool_record, node),
                                   &recovery->epoch);
    recovery->epoch >>=
        8 * (offsetof(struct pool_record, epoch) - offsetof(struct pool_record, node));
    recovery->fenced_ns = rt_now_ns();
    if (status == PANDO_OK && recovery->absent != 0)
        return recover_partly_co(recovery);
    if (status == PANDO_OK)
        status = every_node_co(recovery, redo_node_co);
    recovery->clearing = true;
    if (status == PANDO_OK && recovery->guards)
        status = every_node_co(recovery, redo_node_co);
    recovery->redone_ns = rt_now_ns();
    if (status == PANDO_OK)
        status = every_node_co(recovery, release_locks_co);
    recovery->released_ns = rt_now_ns();
    if (status == PANDO_OK)
        status = every_node_co(recovery, sweep_co);
    if (status == PANDO_OK)
        status = count_death_co(recovery);
    if (status == PANDO_OK)
        status = show_progress_co(recovery, POOL_FREE);
    return status;
}

/* Where the time went, for whoever wonders why a take-over took so long. */
static void log_recovered(const struct recovery *recovery, uint64_t begin_ns)
{
    uint64_t now_ns = rt_now_ns();
    log_info("recovered a dead member", log_u64("member", recovery->dead.member),
             log_u64("incarnation", recovery->dead.incarnation),
             log_u64("unreadable_intents", recovery->unreadable),
             log_u64("recovery_ms", (now_ns - begin_ns) / RT_NS_PER_MS),
             log_u64("fence_ms", (recovery->fenced_ns - begin_ns) / RT_NS_PER_MS),
             log_u64("intents_ms", (recovery->redone_ns - recovery->fenced_ns) / RT_NS_PER_MS),
             log_u64("locks_ms", (recovery->released_ns - recovery->redone_ns) / RT_NS_PER_MS),
             log_u64("sweep_ms", (now_ns - recovery->released_ns) / RT_NS_PER_MS));
}

enum pando_status pool_recover_from_co(struct pool_session *session, uint16_t member, uint64_t seen,
                                       uint64_t still_ns)
{
    struct fabric_identity dead = {.member = member,
                                   .incarnation = pool_heartbeat_unpack(seen).incarnation};
    struct recovery recovery = {.session = session, .pool = session->pool, .dead = dead};
    struct pool_heartbeat beat = pool_heartbeat_unpack(seen);
    enum pando_status status = PANDO_OK;
    bool claimed;
    if (beat.state != POOL_FENCED)
        status = pool_ticket_co(session, dead, &recovery.ticket, &claimed);
    if (status == PANDO_OK)
        status = mark_fenced_co(&recovery, seen);
    if (status != PANDO_OK)
        return status;
    if (beat.state != POOL_FENCED || !is_self(&recovery, pool_recoverer(&beat)))
        log_info("recovering a dead member", log_u64("member", dead.member),
                 log_u64("incarnation", dead.incarnation),
                 log_u64("still_ms", still_ns / RT_NS_PER_MS));
    uint64_t begin_ns = rt_now_ns();
    recovery.buffer = malloc(PIECE_BYTES);
    recovery.intent = malloc(sizeof(*recovery.intent));
    status = recovery.buffer == NULL || recovery.intent == NULL ? PANDO_NO_MEMORY
                                                                : recover_steps_co(&recovery);
    free(recovery.buffer);
    free(recovery.intent);
    if (status == PANDO_OK) {
        atomic_fetch_add(&session->pool->recoveries, 1);
        atomic_fetch_add(&session->pool->unreadable_intents, recovery.unreadable);
        log_recovered(&recovery, begin_ns);
    }
    return status;
}

enum pando_status pool_recover_co(struct pool_session *session, struct fabric_identity dead)
{
    uint64_t word;
    fabric_address at = pool_heartbeat_address(session->pool, dead.member);
    enum pando_status status = pool_word_read_co(session, at, &word);
    if (status != PANDO_OK)
        return status;
    if (pool_heartbeat_unpack(word).incarnation != dead.incarnation)
        return PANDO_NOT_FOUND;
    return pool_recover_from_co(session, dead.member, word, 0);
}
