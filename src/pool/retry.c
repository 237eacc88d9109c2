/*
 * retry.c - what has to be done again: reads of things that are being written, and lists that must
 * arrive. All of it is bounded.
 */
#include "pool/broken.h"
#include "pool/pool_int.h"

struct pool_broken pool_broken;

enum {
    REREADS_MAX = 16,
    REREAD_DOUBLINGS = 6,
    RETRIES_MAX = 10000,
    RETRY_DOUBLINGS = 8,
    PATIENCE_LEASES = 10,
    LEAVING_LEASES = 2,
    AGAIN_MAX = 4,
};

static const uint64_t READ_OLD_NS = 100 * RT_NS_PER_MS; /* R22 */
static const uint64_t REREAD_PAUSE_NS = RT_NS_PER_US;
static const uint64_t RETRY_MIN_NS = RT_NS_PER_US;

bool pool_ending(const struct pool *pool)
{
    return pool->ending != NULL && atomic_load(pool->ending);
}

bool pool_past(const struct pool *pool, bool leaving, uint64_t *deadline_ns)
{
    uint64_t now_ns = rt_now_ns();
    if (*deadline_ns == 0)
        *deadline_ns = now_ns + PATIENCE_LEASES * pool->lease_ns;
    if (leaving || pool_ending(pool)) {
        uint64_t soon_ns = now_ns + LEAVING_LEASES * pool->lease_ns;
        *deadline_ns = *deadline_ns < soon_ns ? *deadline_ns : soon_ns;
    }
    return now_ns > *deadline_ns;
}

enum pando_status pool_retry_co(struct pool *pool, struct pool_retry *retry)
{
    unsigned doublings = retry->count < RETRY_DOUBLINGS ? retry->count : RETRY_DOUBLINGS;

    if (pool_fenced(pool))
        return PANDO_FENCED;
    bool leaving = retry->leaving != NULL && atomic_load(retry->leaving);
    if (pool_past(pool, leaving, &retry->deadline_ns) || retry->count > RETRIES_MAX)
        return PANDO_TIMEOUT;
    retry->count++;
    uint64_t pause = RETRY_MIN_NS << doublings;
    rt_sleep_co(pause / 2 + rt_random() % pause);
    return PANDO_OK;
}

/* Memory is used again some time after it was freed: what was read long ago may be both. */
bool pool_recent(uint64_t posted_ns)
{
    uint64_t now_ns = rt_coarse_ns();
    if (now_ns == posted_ns) /* else the loop has turned since, and looked at the clock */
        now_ns = rt_tick_ns() + RT_TICK_NS;
    return now_ns < posted_ns + READ_OLD_NS || pool_broken.old_reads;
}

enum pando_status pool_read_co(struct pool_session *session, struct pool_reading *reading)
{
    unsigned again = reading->tries == 0 ? 0 : reading->tries - 1;

    if (again > 0) /* what is torn is mostly whole a moment later: the second try is at once */
        rt_sleep_co(REREAD_PAUSE_NS << (again < REREAD_DOUBLINGS ? again : REREAD_DOUBLINGS));
    if (reading->tries == REREADS_MAX)
        return PANDO_STALE;
    reading->tries++;
    struct fabric_op read =
        fabric_read(fabric_address_offset(reading->address), reading->to, reading->size);
    uint64_t posted_ns = rt_coarse_ns(); /* not later than the truth */
    enum pando_status status =
        pool_submit_co(session, fabric_address_node(reading->address), &read, 1);
    reading->recent = pool_recent(posted_ns);
    return status == PANDO_RANGE ? PANDO_STALE : status;
}

enum pando_status pool_submit_again_co(struct pool_session *session, uint16_t node,
                                       struct fabric_op *ops, uint32_t count)
{
    enum pando_status status = pool_submit_co(session, node, ops, count);
    for (int i = 0; i < AGAIN_MAX && status == PANDO_BROKEN; i++) {
        status = pool_reconnect_co(session, node);
        if (status != PANDO_OK)
            break; /* it cannot be reached: that may take long */
        status = pool_submit_co(session, node, ops, count);
    }
    return status;
}

/* Whether to try again. If what was begun cannot be finished, this member gives itself up. */
static enum pando_status go_on_co(struct pool *pool, struct pool_retry *retry)
{
    enum pando_status status = pool_retry_co(pool, retry);
    if (status == PANDO_TIMEOUT)
        pool_give_up(pool);
    return status == PANDO_OK ? PANDO_OK : PANDO_UNKNOWN;
}

enum pando_status pool_persist_co(struct pool_session *session, uint16_t node,
                                  struct fabric_op *ops, uint32_t count, const atomic_bool *leaving)
{
    struct pool_retry retry = {.leaving = leaving};
    for (;;) {
        enum pando_status status = pool_submit_co(session, node, ops, count);
        if (status == PANDO_OK)
            return PANDO_OK;
        if (status == PANDO_FENCED)
            return PANDO_UNKNOWN;
        status = go_on_co(session->pool, &retry);
        if (status != PANDO_OK)
            return status;
    }
}

/* How many of the first operations are not to be sent again, after a list that may have been applied in
 * part: nothing of it arrives any more. */
static enum pando_status skip_co(struct pool_session *session, const struct pool_once *once,
                                 uint32_t *skip)
{
    uint64_t word;
    if (once->count == 0 || *skip > 0)
        return PANDO_OK;
    enum pando_status status = pool_word_read_co(session, once->word_at, &word);
    if (status == PANDO_OK && word != once->word)
        *skip = once->count;
    return status;
}

/* After a list that failed with that status. */
static enum pando_status unlock_again_co(struct pool_session *session, const struct pool_lock *lock,
                                         struct fabric_op *ops, uint32_t count,
                                         const struct pool_once *once, const atomic_bool *leaving,
                                         enum pando_status status)
{
    uint16_t node = fabric_address_node(lock->address);
    struct pool_retry retry = {.leaving = leaving};
    uint32_t skip = 0;
    for (;;) {
        bool applied = false;
        while (status != PANDO_OK) {
            if (status == PANDO_FENCED || status == PANDO_UNKNOWN)
                return PANDO_UNKNOWN;
            status = go_on_co(session->pool, &retry);
            if (status == PANDO_OK)
                status = pool_resolve_co(session, lock, &applied);
            if (status == PANDO_OK && !applied)
                status = skip_co(session, once, &skip);
        }
        if (applied)
            return PANDO_OK;
        status = pool_submit_co(session, node, ops + skip, count - skip);
        if (status == PANDO_OK)
            return PANDO_OK;
    }
}

enum pando_status pool_persist_unlock_once_co(struct pool_session *session,
                                              const struct pool_lock *lock, struct fabric_op *ops,
                                              uint32_t count, const struct pool_once *once,
                                              const atomic_bool *leaving)
{
    enum pando_status status =
        pool_submit_co(session, fabric_address_node(lock->address), ops, count);
    return status == PANDO_OK ? PANDO_OK
                              : unlock_again_co(session, lock, ops, count, once, leaving, status);
}

enum pando_status pool_persist_unlock_co(struct pool_session *session, const struct pool_lock *lock,
                                         struct fabric_op *ops, uint32_t count,
                                         const atomic_bool *leaving)
{
    static const struct pool_once none;
    return pool_persist_unlock_once_co(session, lock, ops, count, &none, leaving);
}
