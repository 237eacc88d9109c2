/*
 * retry.c - how often and how long something is done again. All of it is bounded.
 */
#include "pool/broken.h"
#include "pool/pool_int.h"

struct pool_broken pool_broken;

enum {
    RETRIES_MAX = 10000,
    RETRY_DOUBLINGS = 8,
    PATIENCE_LEASES = 10,
    LEAVING_LEASES = 2,
    AGAIN_MAX = 4,
};

static const uint64_t READ_OLD_NS = 100 * RT_NS_PER_MS; /* stale-read-limit (R22) */
static const uint64_t RETRY_MIN_NS = RT_NS_PER_US;

bool pool_ending(const struct pool *pool)
{
    return pool->ending != NULL && atomic_load(pool->ending);
}

uint64_t pool_patience_ns(const struct pool *pool, bool leaving)
{
    return (leaving || pool_ending(pool) ? LEAVING_LEASES : PATIENCE_LEASES) * pool->lease_ns;
}

bool pool_past(const struct pool *pool, bool leaving, uint64_t *deadline_ns)
{
    uint64_t now_ns = rt_now_ns(), latest_ns = now_ns + pool_patience_ns(pool, leaving);
    bool hurry = leaving || pool_ending(pool);
    if (*deadline_ns == 0 || (hurry && latest_ns < *deadline_ns))
        *deadline_ns = latest_ns;
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
    rt_sleep_co(pause / 2 +
                rt_random() % pause); /* for others, who do not say when they are done */
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
