/*
 * ticket.c - the client's side of fence-ticket (R61): its pass, and tickets for members that may be
 * dead.
 */
#include <string.h>

#include "pool/members_int.h"
#include "pool/pool_int.h"

enum pando_status pool_pass_get_co(struct pool *pool, struct fabric_endpoint *endpoint)
{
    struct fabric_ticket pass;
    uint32_t size;
    enum pando_status status =
        fabric_call_co(endpoint, POOL_PASS, slice_of(&pool->lease_ns, sizeof(pool->lease_ns)),
                       &pass, sizeof(pass), &size);
    if (status != PANDO_OK)
        return status;
    if (size != sizeof(pass) || pass.who.member != pool->identity.member ||
        pass.who.incarnation != pool->identity.incarnation)
        return PANDO_CORRUPT;
    rt_latch_lock(&pool->latch);
    pool->pass = pass;
    rt_latch_unlock(&pool->latch);
    return PANDO_OK;
}

static enum pando_status call_once_co(struct pool_session *session, uint16_t node,
                                      const struct pool_member_call *call)
{
    struct pool *pool = session->pool;
    rt_latch_lock(&pool->latch);
    memcpy(call->pass, pool->pass.seal, sizeof(pool->pass.seal));
    rt_latch_unlock(&pool->latch);
    return fabric_call_co(pool_endpoint(session, node), call->method, call->body, call->reply,
                          call->capacity, call->size);
}

enum pando_status pool_call_as_member_co(struct pool_session *session, uint16_t node,
                                         const struct pool_member_call *call)
{
    enum pando_status status = call_once_co(session, node, call);
    if (status != PANDO_DENIED || pool_reconnect_co(session, 0) != PANDO_OK ||
        pool_pass_get_co(session->pool, pool_endpoint(session, 0)) != PANDO_OK)
        return status;
    return call_once_co(session, node, call);
}

enum pando_status pool_grant_co(struct pool_session *session, uint16_t node,
                                struct pool_grant_request *request, void *reply, uint32_t capacity,
                                uint32_t *size)
{
    const struct pool_member_call call = {.method = POOL_GRANT,
                                          .body = slice_of(request, sizeof(*request)),
                                          .pass = request->pass,
                                          .reply = reply,
                                          .capacity = capacity,
                                          .size = size};
    return pool_call_as_member_co(session, node, &call);
}

enum pando_status pool_sweep_co(struct pool_session *session, uint16_t node,
                                struct pool_sweep_request *request, struct pool_sweep_reply *reply)
{
    uint32_t size = 0;
    const struct pool_member_call call = {.method = POOL_SWEEP,
                                          .body = slice_of(request, sizeof(*request)),
                                          .pass = request->pass,
                                          .reply = reply,
                                          .capacity = sizeof(*reply),
                                          .size = &size};
    enum pando_status status = pool_reconnect_co(session, node);
    if (status == PANDO_OK)
        status = pool_call_as_member_co(session, node, &call);
    return status == PANDO_OK && size != sizeof(*reply) ? PANDO_CORRUPT : status;
}

enum pando_status pool_pass_show_co(struct pool *pool, struct fabric_endpoint *endpoint)
{
    return fabric_call_co(endpoint, POOL_PASS, slice_of(&pool->pass, sizeof(pool->pass)), NULL, 0,
                          NULL);
}

enum pando_status pool_ticket_co(struct pool_session *session, struct fabric_identity who,
                                 struct fabric_ticket *out, bool *claimed)
{
    struct pool_ticket_request request = {.member = who.member, .incarnation = who.incarnation};
    struct pool_ticket_reply reply;
    uint32_t size;

    enum pando_status status = pool_reconnect_co(session, 0);
    if (status != PANDO_OK)
        return status;
    status = fabric_call_co(pool_endpoint(session, 0), POOL_TICKET,
                            slice_of(&request, sizeof(request)), &reply, sizeof(reply), &size);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    if (status != PANDO_OK)
        return status == PANDO_AGAIN ? PANDO_BUSY : status;
    if (size != sizeof(reply))
        return PANDO_CORRUPT;
    *claimed = reply.claimed == 1;
    if (*claimed &&
        (reply.ticket.who.member != who.member || reply.ticket.who.incarnation != who.incarnation))
        return PANDO_CORRUPT;
    *out = reply.ticket;
    return PANDO_OK;
}
