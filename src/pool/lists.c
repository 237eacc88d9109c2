/*
 * lists.c - lists by address: reads, shared lists and unseen ones.
 */
#include "pool/lists.h"

#include "base/assert.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

enum {
    REREADS_MAX = 16,
    REREAD_DOUBLINGS = 6,
};

static const uint64_t REREAD_PAUSE_NS = RT_NS_PER_US;

/* The endpoint to the memory of that address if something may be sent there now, else NULL: what
 * pool_submit_co looks at, without waiting. */
static inline struct fabric_endpoint *ready(struct pool_session *session, fabric_address address)
{
    const struct pool *pool = session->pool;
    uint16_t node = pool_node_of(pool, address);
    if (node >= pool->nodes || atomic_load_explicit(&pool->fenced, memory_order_acquire) ||
        session->reconnecting[node] || pool_node_avoided(pool, node) ||
        fabric_broken(session->endpoints[node]))
        return NULL;
    return session->endpoints[node];
}

bool pool_kept_off(const struct pool *pool, fabric_address at)
{
    return pool_node_avoided(pool, pool_node_of(pool, at));
}

/* Starts a list of one operation. */
static void begin(struct pool_session *session, fabric_address address, struct fabric_op *op,
                  struct fabric_list *list)
{
    struct fabric_endpoint *endpoint = ready(session, address);
    *list = (struct fabric_list){.ops = op, .count = 1, .status = PANDO_BROKEN};
    if (endpoint != NULL)
        fabric_post(endpoint, list);
}

/* Waits for what was begun. */
static enum pando_status wait_co(struct pool_session *session, struct fabric_list *list)
{
    enum pando_status status = fabric_wait_co(list);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    return status;
}

/* ---- reads ----------------------------------------------------------------------------------- */

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
        pool_submit_co(session, pool_node_of(session->pool, reading->address), &read, 1);
    reading->recent = pool_recent(posted_ns);
    return status == PANDO_RANGE ? PANDO_STALE : status;
}

bool pool_read_fast_co(struct pool_session *session, fabric_address address, void *to,
                       uint32_t size)
{
    struct fabric_endpoint *endpoint = ready(session, address);
    if (endpoint == NULL)
        return false;
    struct fabric_op read = fabric_read(fabric_address_offset(address), to, size);
    struct fabric_list list = {.ops = &read, .count = 1};
    uint64_t posted_ns = rt_coarse_ns();
    fabric_post(endpoint, &list);
    return fabric_wait_co(&list) == PANDO_OK && pool_recent(posted_ns);
}

enum pando_status pool_read_list_co(struct pool_session *session, fabric_address at,
                                    struct fabric_op *ops, uint32_t count)
{
    return pool_submit_again_co(session, pool_node_of(session->pool, at), ops, count);
}

void pool_reads_begin(struct pool_session *session, struct pool_read *reads, uint32_t count)
{
    uint64_t posted_ns = rt_coarse_ns();
    for (uint32_t i = 0; i < count; i++) {
        struct pool_read *read = &reads[i];
        read->posted_ns = posted_ns;
        read->op = fabric_read(fabric_address_offset(read->address), read->to, read->size);
        begin(session, read->address, &read->op, &read->list);
    }
}

void pool_reads_wait_co(struct pool_session *session, struct pool_read *reads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        reads[i].status = wait_co(session, &reads[i].list);
    for (uint32_t i = 0; i < count; i++) /* the last wait may have been long */
        reads[i].recent = pool_recent(reads[i].posted_ns);
}

/* ---- shared lists ---------------------------------------------------------------------------- */

/* Whether to try again. If what was begun cannot be finished, this member resigns. */
static enum pando_status retry_or_resign_co(struct pool *pool, struct pool_retry *retry)
{
    enum pando_status status = pool_retry_co(pool, retry);
    if (status == PANDO_TIMEOUT)
        pool_resign(pool);
    return status == PANDO_OK ? PANDO_OK : PANDO_UNKNOWN;
}

/* After a list that failed with that status. */
static enum pando_status persist_again_co(struct pool_session *session, fabric_address at,
                                          struct fabric_op *ops, uint32_t count,
                                          const atomic_bool *leaving, enum pando_status status)
{
    struct pool_retry retry = {.leaving = leaving};
    while (status != PANDO_OK) {
        if (status == PANDO_FENCED)
            return PANDO_UNKNOWN;
        status = retry_or_resign_co(session->pool, &retry);
        if (status != PANDO_OK)
            return status;
        status = pool_submit_co(session, pool_node_of(session->pool, at), ops, count);
    }
    return PANDO_OK;
}

enum pando_status pool_persist_co(struct pool_session *session, fabric_address at,
                                  struct fabric_op *ops, uint32_t count, const atomic_bool *leaving)
{
    enum pando_status status = pool_submit_co(session, pool_node_of(session->pool, at), ops, count);
    return status == PANDO_OK ? PANDO_OK
                              : persist_again_co(session, at, ops, count, leaving, status);
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
    uint16_t node = pool_node_of(session->pool, lock->address);
    struct pool_retry retry = {.leaving = leaving};
    uint32_t skip = 0;
    for (;;) {
        bool applied = false;
        while (status != PANDO_OK) {
            if (status == PANDO_FENCED || status == PANDO_UNKNOWN)
                return PANDO_UNKNOWN;
            status = retry_or_resign_co(session->pool, &retry);
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
        pool_submit_co(session, pool_node_of(session->pool, lock->address), ops, count);
    return status == PANDO_OK ? PANDO_OK
                              : unlock_again_co(session, lock, ops, count, once, leaving, status);
}

enum pando_status pool_persist_unlock_co(struct pool_session *session, const struct pool_lock *lock,
                                         struct fabric_op *ops, uint32_t count,
                                         const atomic_bool *leaving)
{
    static const struct pool_once none;
    enum pando_status status =
        pool_submit_co(session, pool_node_of(session->pool, lock->address), ops, count);
    return status == PANDO_OK ? PANDO_OK
                              : unlock_again_co(session, lock, ops, count, &none, leaving, status);
}

/* ---- unseen lists ---------------------------------------------------------------------------- */

enum pando_status pool_write_unseen_co(struct pool_session *session, fabric_address at,
                                       struct fabric_op *ops, uint32_t count)
{
    return pool_submit_again_co(session, pool_node_of(session->pool, at), ops, count);
}

enum pando_status pool_persist_unseen_co(struct pool_session *session, fabric_address at,
                                         struct fabric_op *ops, uint32_t count,
                                         const atomic_bool *leaving)
{
    enum pando_status status = pool_submit_co(session, pool_node_of(session->pool, at), ops, count);
    return status == PANDO_OK ? PANDO_OK
                              : persist_again_co(session, at, ops, count, leaving, status);
}

void pool_write_begin(struct pool_session *session, struct pool_write *write)
{
    write->op = fabric_write(fabric_address_offset(write->address), write->from, write->size);
    begin(session, write->address, &write->op, &write->list);
}

enum pando_status pool_write_wait_co(struct pool_session *session, struct pool_write *write)
{
    enum pando_status status = wait_co(session, &write->list);
    if (status == PANDO_BROKEN)
        status = pool_write_unseen_co(session, write->address, &write->op, 1);
    return status;
}

/* ---- words ----------------------------------------------------------------------------------- */

enum pando_status pool_word_cas_co(struct pool_session *session, fabric_address address,
                                   uint64_t expected, uint64_t desired, uint64_t *old)
{
    struct fabric_op cas = fabric_cas(fabric_address_offset(address), expected, desired);
    enum pando_status status =
        pool_submit_co(session, pool_node_of(session->pool, address), &cas, 1);
    *old = cas.old;
    return status;
}

enum pando_status pool_cas_list_co(struct pool_session *session, fabric_address at,
                                   struct fabric_op *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        pando_dassert(ops[i].kind == FABRIC_CAS || ops[i].kind == FABRIC_READ);
    return pool_submit_co(session, pool_node_of(session->pool, at), ops, count);
}

void pool_count_retry(struct pool_session *session, fabric_address at)
{
    fabric_endpoint_counters(session->endpoints[pool_node_of(session->pool, at)])->retries++;
}

/* ---- pushdown -------------------------------------------------------------------------------- */

enum pando_status pool_pushdown_co(struct pool_session *session, fabric_address at,
                                   struct pool_pushdown *pushdown)
{
    uint16_t node = pool_node_of(session->pool, at);
    uint16_t method = pushdown->barrier ? POOL_PUSHDOWN : POOL_PUSHDOWN_SEEN;
    if (node >= session->pool->nodes)
        return PANDO_RANGE;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK)
        return status;
    status = fabric_call_co(session->endpoints[node], method, pushdown->body, pushdown->reply,
                            pushdown->reply_capacity, &pushdown->reply_size);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    return status;
}
