#include "pool/member_lists.h"

#include "base/assert.h"
#include "pool/peers_int.h"
#include "pool/pool_int.h"

/* ---- whose window ---------------------------------------------------------------------------- */

/* Windows of memory nodes are not of this kind, though a member may live in the process of one. */
uint64_t pool_own_window_bytes(const struct pool *pool)
{
    const struct fabric *fabric = pool->fabric;
    uint64_t bytes = fabric_window_bytes(fabric);
    if (fabric_self(fabric) < POOL_COMPUTE_FIRST || fabric_location(fabric)[0] == '\0' ||
        fabric_window_stale(fabric) || bytes < POOL_SLABS_FIRST)
        return 0;
    return (bytes - POOL_SLABS_FIRST) / POOL_SLAB_BYTES * POOL_SLAB_BYTES;
}

static bool is_self(const struct pool_session *session, struct fabric_identity member)
{
    return pool_same(member, session->pool->identity);
}

enum pando_status pool_member_window_co(struct pool_session *session, struct fabric_identity member,
                                        uint64_t *bytes)
{
    struct pool_record record;
    *bytes = 0;
    if (member.member == 0 || member.member >= POOL_MEMBERS)
        return PANDO_INVALID;
    if (is_self(session, member)) {
        *bytes = pool_own_window_bytes(session->pool);
        return PANDO_OK;
    }
    enum pando_status status = pool_locate_co(session, member, &record);
    if (status == PANDO_OK)
        *bytes = pool_fences_unpack(record.fences).slabs * POOL_SLAB_BYTES;
    return status == PANDO_UNSUPPORTED ? PANDO_OK : status;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* What can be said without looking anywhere. */
static enum pando_status check_member(const struct pool_session *session,
                                      struct fabric_identity member)
{
    const struct pool *pool = session->pool;
    if (member.member == 0 || member.member >= POOL_MEMBERS)
        return PANDO_INVALID;
    if (pool_fenced(pool))
        return PANDO_FENCED;
    if (is_self(session, member))
        return pool_own_window_bytes(pool) > 0 ? PANDO_OK : PANDO_UNSUPPORTED;
    return member.member == pool->identity.member ? PANDO_NOT_FOUND : PANDO_OK;
}

static enum pando_status check_ops(const struct fabric_op *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].offset < POOL_SLABS_FIRST || ops[i].offset >= FABRIC_DEVICE)
            return PANDO_RANGE;
    }
    return PANDO_OK;
}

/* With one user more. */
static enum pando_status take_connected_co(struct pool_session *session,
                                           struct fabric_identity member, struct pool_peer **out)
{
    struct pool_peer *peer;
    enum pando_status status = check_member(session, member);
    if (status == PANDO_OK)
        status = pool_peer_take_co(session, member, &peer);
    if (status != PANDO_OK)
        return status;
    status = pool_peer_connect_co(peer, true);
    if (status == PANDO_OK)
        *out = peer;
    else
        pool_peer_give_co(session, peer);
    return status;
}

enum pando_status pool_member_reach_co(struct pool_session *session, struct fabric_identity member)
{
    struct pool_peer *peer;
    enum pando_status status = take_connected_co(session, member, &peer);
    if (status == PANDO_OK)
        pool_peer_give_co(session, peer);
    return status;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void post(struct pool_member_list *list)
{
    list->list = (struct fabric_list){.ops = list->ops, .count = list->count};
    fabric_post(list->peer->endpoint, &list->list);
}

static void wait_co(struct pool_session *session, struct pool_member_list *list)
{
    struct pool_peer *peer = list->peer;
    list->status = fabric_wait_co(&list->list);
    /* Whether it still leads there is asked again: its member may have come to an end. */
    if (list->status == PANDO_BROKEN)
        peer->bound = false;
    if (list->status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    list->peer = NULL;
    pool_peer_give_co(session, peer);
}

enum pando_status pool_member_submit_co(struct pool_session *session, struct fabric_identity member,
                                        struct fabric_op *ops, uint32_t count)
{
    struct pool_member_list list = {.member = member, .ops = ops, .count = count};
    enum pando_status status = check_ops(ops, count);
    if (status == PANDO_OK)
        status = take_connected_co(session, member, &list.peer);
    if (status != PANDO_OK)
        return status;
    post(&list);
    wait_co(session, &list);
    return list.status;
}

void pool_member_lists_begin(struct pool_session *session, struct pool_member_list *lists,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct pool_member_list *list = &lists[i];
        list->peer = NULL;
        list->status = check_member(session, list->member);
        if (list->status == PANDO_OK)
            list->status = check_ops(list->ops, list->count);
        if (list->status != PANDO_OK)
            continue;
        list->peer = pool_peer_take_ready(session, list->member);
        if (list->peer != NULL) {
            post(list);
            continue;
        }
        list->status = PANDO_NOT_FOUND;
        pool_peer_seek(session, list->member);
    }
}

void pool_member_lists_wait_co(struct pool_session *session, struct pool_member_list *lists,
                               uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lists[i].peer != NULL)
            wait_co(session, &lists[i]);
    }
}
