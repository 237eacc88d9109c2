/*
 * lock.c - lock words in the tables of the memory nodes (rules lock-word, resolve-unknown).
 */
#include "base/assert.h"
#include "base/prng.h"
#include "pool/broken.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

static const uint64_t BACKOFF_MIN_NS = 2 * RT_NS_PER_US;
enum {
    DOUBLINGS = 6,     /* to 128 us */
    DOUBLINGS_FEW = 1, /* to 4 us */
    LOOKS = 16,
    RELEASES_AT_ONCE = 3,
    AT_ONCE = 4, /* tries without a pause, when a free word was another than expected */
};

const uint64_t pool_lock_frees[POOL_LOCK_DEATHS_MAX + 1] = {0, 1, 2, 3, 4, 5, 6, 7};

fabric_address pool_lock_address(const struct pool *pool, uint16_t bank, uint32_t index)
{
    (void)pool;
    return fabric_address_make(bank, FABRIC_DEVICE + (uint64_t)index * 8);
}

fabric_address pool_lock_for(const struct pool *pool, fabric_address object)
{
    uint16_t bank = pool_bank(object), node = pool_view_node(pool, bank);
    pando_assert(node < pool->nodes);
    uint64_t slots = pool->supers[node].locks - 1;
    return pool_lock_address(pool, bank, 1 + (uint32_t)(hash_u64(object) % slots));
}

uint64_t pool_lock_new_word(struct pool *pool)
{
    return pool_lock_word(pool->identity,
                          atomic_fetch_add_explicit(&pool->acquisitions, 1, memory_order_relaxed));
}

/* Whether the owner of a lock word is no member any more in that incarnation, or is being
 * recovered. */
static enum pando_status owner_gone_co(struct pool_session *session, uint64_t word, bool *gone)
{
    struct fabric_identity owner = pool_lock_owner(word);
    uint64_t beat_word;
    if (owner.member == 0 || owner.member >= POOL_MEMBERS)
        return PANDO_CORRUPT;
    enum pando_status status =
        pool_word_read_co(session, pool_heartbeat_address(session->pool, owner.member), &beat_word);
    struct pool_heartbeat beat = pool_heartbeat_unpack(beat_word);
    *gone = beat.incarnation != owner.incarnation || beat.state == POOL_FREE;
    return status;
}

/*
 * A held lock is somebody's who lives, or who will be recovered by the monitors when its heartbeat
 * stands still. Waiting is enough, but for one case: its owner left or was recovered, and the word
 * stayed (a release that never arrived). Then nobody else will take it away.
 */
static enum pando_status release_ownerless_co(struct pool_session *session, fabric_address address,
                                              uint64_t word)
{
    bool gone = false;
    uint64_t old;
    enum pando_status status = owner_gone_co(session, word, &gone);
    if (status != PANDO_OK || !gone)
        return status;
    /* The owner is fenced at every target: no release of its can come between. */
    return pool_word_cas_co(session, address, word, pool_lock_after_death(word), &old);
}

enum pando_status pool_lock_backoff_co(struct pool_session *session, fabric_address lock,
                                       uint64_t word, struct pool_backoff *backoff)
{
    struct pool *pool = session->pool;
    unsigned limit = backoff->few ? DOUBLINGS_FEW : DOUBLINGS;
    unsigned doublings = backoff->tries < limit ? backoff->tries : limit;
    uint64_t most = BACKOFF_MIN_NS << doublings;

    if (pool_fenced(pool))
        return PANDO_FENCED;
    if (pool_past(pool, false, &backoff->deadline_ns))
        return PANDO_TIMEOUT;
    backoff->tries++;
    rt_sleep_co(most / 2 + rt_random() % (most / 2 + 1)); /* others' processes want it, too */
    if (word != 0 && backoff->tries % LOOKS == 0) {
        enum pando_status status = release_ownerless_co(session, lock, word);
        if (status != PANDO_OK && status != PANDO_BROKEN)
            return status;
    }
    return PANDO_OK;
}

enum pando_status pool_lock_co(struct pool_session *session, fabric_address address,
                               struct pool_lock *out)
{
    uint64_t mine = pool_lock_new_word(session->pool), expected = 0;
    struct pool_backoff backoff = {0};
    enum pando_status status;
    bool unknown = false;

    for (unsigned at_once = 0;;) {
        uint64_t old;
        status = pool_word_cas_co(session, address, expected, mine, &old);
        /* After a broken endpoint an earlier try may have gone through. */
        if (status == PANDO_OK && (old == expected || old == mine)) {
            *out = (struct pool_lock){.address = address, .word = mine};
            return PANDO_OK;
        }
        unknown = status != PANDO_OK;
        if (status != PANDO_OK && status != PANDO_BROKEN)
            break;
        if (status == PANDO_OK && pool_lock_free(old)) {
            expected = old;
            mine = pool_lock_taken_from(mine, old);
            if (at_once++ < AT_ONCE)
                continue;
            old = 0; /* nobody's */
        }
        status = pool_lock_backoff_co(session, address, status == PANDO_OK ? old : 0, &backoff);
        if (status != PANDO_OK)
            break;
    }
    if (unknown)
        pool_lock_owe(session, &(struct pool_lock){.address = address, .word = mine});
    return status;
}

enum pando_status pool_unlock_co(struct pool_session *session, const struct pool_lock *lock)
{
    struct fabric_op release =
        fabric_write(fabric_address_offset(lock->address), pool_lock_release(lock), 8);
    for (int i = 0; i < RELEASES_AT_ONCE; i++) {
        bool applied = false;
        enum pando_status status =
            pool_submit_co(session, pool_node_of(session->pool, lock->address), &release, 1);
        if (status == PANDO_BROKEN)
            status = pool_resolve_co(session, lock, &applied);
        else if (status == PANDO_OK)
            return PANDO_OK;
        if (status == PANDO_FENCED || status == PANDO_UNKNOWN || applied)
            return status;
        if (status != PANDO_OK)
            break;
    }
    pool_lock_owe(session, lock);
    return PANDO_OK;
}

enum pando_status pool_resolve_co(struct pool_session *session, const struct pool_lock *lock,
                                  bool *applied)
{
    uint16_t node = pool_node_of(session->pool, lock->address);
    uint64_t life = session->pool->supers[node].locks_life, life_now, word;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK)
        return status;
    fabric_address life_at =
        fabric_address_make(pool_bank(lock->address),
                            session->pool->first + offsetof(struct pool_superblock, locks_life));
    status = pool_word_read_co(session, life_at, &life_now);
    if (status == PANDO_OK)
        status = pool_word_read_co(session, lock->address, &word);
    if (status != PANDO_OK)
        return status;
    if (life_now != life && !pool_broken.lost_locks)
        return PANDO_UNKNOWN; /* the lock table was lost: a free lock says nothing */
    *applied = word != lock->word && !pool_broken.resolve;
    return PANDO_OK;
}
