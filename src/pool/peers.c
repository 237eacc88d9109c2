/*
 * peers.c - calling other members.
 *
 * A session has one endpoint to each member that it has called. It belongs to one incarnation of that
 * member: whoever asks for another looks into the members' table, and takes the endpoint's place there
 * when the new one is found alive. Connecting again also looks there first, so that a member that is
 * gone is known to be.
 *
 * A member may live and swallow what is sent to it, and connecting then takes seconds. Only the first try is
 * waited for. After one that failed the next is made by a task of its own, which callers do not wait for, and
 * the pause before it doubles each time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/members_int.h"
#include "pool/peer_fmt.h"
#include "pool/pool_int.h"

enum {
    SMALL_BYTES = 1024, /* calls and replies up to this need no memory of their own */
    PEER_TRIES = 8,     /* that somebody else takes the place while we look */
    PAUSES_PER_LEASE = 4,
    PAUSE_DOUBLINGS = 6, /* to 16 leases */
};

struct pool_peer {
    struct pool_session *session;
    struct fabric_identity who;
    uint16_t node;
    char location[FABRIC_LOCATION_MAX];
    struct fabric_endpoint *endpoint; /* NULL until it is connected */
    unsigned users;
    bool connecting;
    bool retired;      /* no longer in its place: goes with its last user */
    unsigned failures; /* to connect, in a row */
    uint64_t again_ns; /* after a failure no further try before */
};

static bool same(struct fabric_identity a, struct fabric_identity b)
{
    return a.member == b.member && a.incarnation == b.incarnation;
}

/* ---- where it is ----------------------------------------------------------------------------- */

static enum pando_status alive_co(struct pool_session *session, struct fabric_identity who)
{
    uint64_t word;
    enum pando_status status =
        pool_word_read_co(session, pool_heartbeat_address(session->pool, who.member), &word);
    struct pool_heartbeat beat = pool_heartbeat_unpack(word);
    if (status == PANDO_OK && (beat.state != POOL_ALIVE || beat.incarnation != who.incarnation))
        status = PANDO_NOT_FOUND;
    return status;
}

enum pando_status pool_locate_co(struct pool_session *session, struct fabric_identity who,
                                 struct pool_record *record)
{
    fabric_address at = pool_record_address(session->pool, who.member);
    struct fabric_op read = fabric_read(fabric_address_offset(at), record, sizeof(*record));
    enum pando_status status = alive_co(session, who);
    if (status == PANDO_OK)
        status = pool_submit_co(session, pool_node_of(session->pool, at), &read, 1);
    if (status == PANDO_OK)
        status = alive_co(session, who);
    if (status != PANDO_OK)
        return status;
    /* Bytes from remote memory: make sure that they end, and mean no memory node. */
    record->location[FABRIC_LOCATION_MAX - 1] = '\0';
    if (record->location[0] == '\0')
        return PANDO_UNSUPPORTED;
    if (record->node < POOL_COMPUTE_FIRST)
        return PANDO_NOT_FOUND;
    return PANDO_OK;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void peer_free_co(struct pool_session *session, struct pool_peer *peer)
{
    if (peer->endpoint != NULL) {
        fabric_counters_add(&session->former_peers, fabric_endpoint_counters(peer->endpoint));
        fabric_disconnect_co(peer->endpoint);
    }
    free(peer);
}

static void peer_give_co(struct pool_session *session, struct pool_peer *peer)
{
    if (--peer->users == 0 && peer->retired)
        peer_free_co(session, peer);
}

/* Puts a new one into the place, unless it is no longer `former` that is there. */
static enum pando_status peer_put_co(struct pool_session *session, struct pool_peer *former,
                                     struct fabric_identity who, const struct pool_record *record)
{
    if (session->peers[who.member] != former)
        return PANDO_OK;
    struct pool_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL)
        return PANDO_NO_MEMORY;
    peer->session = session;
    peer->who = who;
    peer->node = record->node;
    memcpy(peer->location, record->location, sizeof(peer->location));
    session->peers[who.member] = peer;
    if (former != NULL) {
        former->retired = true;
        if (former->users == 0)
            peer_free_co(session, former);
    }
    return PANDO_OK;
}

static enum pando_status peer_take_co(struct pool_session *session, struct fabric_identity who,
                                      struct pool_peer **out)
{
    struct pool_record record;

    if (session->peers == NULL)
        session->peers = calloc(POOL_MEMBERS, sizeof(struct pool_peer *));
    if (session->peers == NULL)
        return PANDO_NO_MEMORY;
    for (int i = 0; i < PEER_TRIES; i++) {
        struct pool_peer *peer = session->peers[who.member];
        if (peer != NULL && same(peer->who, who)) {
            peer->users++;
            *out = peer;
            return PANDO_OK;
        }
        enum pando_status status = pool_locate_co(session, who, &record);
        if (status == PANDO_OK)
            status = peer_put_co(session, peer, who, &record);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_NOT_FOUND;
}

static enum pando_status connect_co(struct pool_peer *peer)
{
    struct fabric *fabric = peer->session->pool->fabric;
    enum pando_status status = fabric_add_peer(fabric, peer->node, FABRIC_COMPUTE, peer->location);
    if (status != PANDO_OK)
        return status;
    if (peer->endpoint != NULL)
        return fabric_reconnect_co(peer->endpoint);
    struct fabric_endpoint *endpoint;
    status = fabric_connect_co(fabric, peer->node, &endpoint);
    if (status == PANDO_OK)
        peer->endpoint = endpoint;
    return status;
}

static bool connected(const struct pool_peer *peer)
{
    return peer->endpoint != NULL && !fabric_broken(peer->endpoint);
}

static void note_failure(struct pool_peer *peer)
{
    unsigned doublings = peer->failures < PAUSE_DOUBLINGS ? peer->failures : PAUSE_DOUBLINGS;
    uint64_t pause_ns = peer->session->pool->lease_ns / PAUSES_PER_LEASE << doublings;
    peer->failures++;
    peer->again_ns = rt_now_ns() + pause_ns;
}

/* By one task at a time. NOT_FOUND for whatever keeps it from connecting. */
static enum pando_status try_co(struct pool_peer *peer)
{
    struct pool *pool = peer->session->pool;
    enum pando_status status = alive_co(peer->session, peer->who);
    if (status == PANDO_OK) {
        status = connect_co(peer);
        if (status == PANDO_FENCED)
            pool_set_fenced(pool);
        if (status == PANDO_OK) {
            peer->failures = 0;
        } else if (status != PANDO_NO_MEMORY) {
            note_failure(peer);
            status = PANDO_NOT_FOUND;
        }
    }
    /* The process may have joined again meanwhile: this then was done in the new member's name. */
    return pool_fenced(pool) ? PANDO_FENCED : status;
}

static void tried(struct pool_peer *peer)
{
    peer->connecting = false;
    rt_waitq_wake_all(&peer->session->connected);
}

static void connect_task(void *arg)
{
    struct pool_peer *peer = arg;
    struct pool_session *session = peer->session;
    enum pando_status status = try_co(peer);
    (void)status; /* whoever calls it finds what came of it */
    tried(peer);
    peer_give_co(session, peer);
    pool_session_release(session);
}

/* Nobody waits for this try. */
static void connect_aside(struct pool_peer *peer)
{
    peer->connecting = true;
    peer->users++;
    pool_session_hold(peer->session);
    if (rt_spawn(rt_loop_self(), connect_task, peer) == PANDO_OK)
        return;
    pool_session_release(peer->session);
    peer->users--;
    tried(peer);
}

static bool first_try(const void *context)
{
    const struct pool_peer *peer = context;
    return peer->connecting && peer->failures == 0;
}

static enum pando_status peer_connect_co(struct pool_peer *peer)
{
    /* One task connects, the others of this loop wait for it. */
    (void)rt_waitq_while_co(&peer->session->connected, first_try, peer, RT_NEVER);
    if (!peer->connecting && connected(peer))
        return PANDO_OK;
    if (peer->connecting || rt_now_ns() < peer->again_ns)
        return PANDO_NOT_FOUND;
    if (peer->failures > 0) {
        connect_aside(peer);
        return PANDO_NOT_FOUND;
    }
    peer->connecting = true;
    enum pando_status status = try_co(peer);
    tried(peer);
    return status;
}

void pool_peers_close_co(struct pool_session *session)
{
    for (uint16_t member = 0; session->peers != NULL && member < POOL_MEMBERS; member++) {
        struct pool_peer *peer = session->peers[member];
        if (peer == NULL)
            continue;
        pando_assert(peer->users == 0);
        peer_free_co(session, peer);
    }
    free(session->peers);
    session->peers = NULL;
}

void pool_peers_counters(const struct pool_session *session, struct fabric_counters *sum)
{
    fabric_counters_add(sum, &session->former_peers);
    for (uint16_t member = 0; session->peers != NULL && member < POOL_MEMBERS; member++) {
        const struct pool_peer *peer = session->peers[member];
        if (peer != NULL && peer->endpoint != NULL)
            fabric_counters_add(sum, fabric_endpoint_counters(peer->endpoint));
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct peer_call {
    struct fabric_identity member;
    uint16_t table, method;
    struct slice body;
    uint8_t *reply;
    uint32_t reply_capacity;
    uint32_t *reply_size;
};

static enum pando_status call_self_co(struct pool_session *session, const struct peer_call *call)
{
    struct fabric_request request = {.from = session->pool->identity,
                                     .method = call->method,
                                     .body = call->body,
                                     .reply = malloc(POOL_CALL_BYTES_MAX)};
    if (request.reply == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_answer_self_co(session, call->table, &request);
    uint32_t stored =
        request.reply_size < call->reply_capacity ? request.reply_size : call->reply_capacity;
    if (stored > 0)
        memcpy(call->reply, request.reply, stored);
    *call->reply_size = request.reply_size;
    free(request.reply);
    return status;
}

/* The fabric's word, and what the other side said. */
static enum pando_status outcome(struct pool_session *session, const struct peer_call *call,
                                 enum pando_status status, const uint8_t *bytes, uint32_t size)
{
    struct pool_peer_reply head;
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    if (status == PANDO_UNSUPPORTED)
        return PANDO_NOT_FOUND; /* no member is there */
    if (status != PANDO_OK)
        return status;
    if (size < sizeof(head))
        return PANDO_BROKEN;
    memcpy(&head, bytes, sizeof(head));
    if (head.magic != POOL_PEER_MAGIC || head.status >= PANDO_STATUS_COUNT)
        return PANDO_BROKEN;
    *call->reply_size = size - (uint32_t)sizeof(head);
    uint32_t stored =
        *call->reply_size < call->reply_capacity ? *call->reply_size : call->reply_capacity;
    if (stored > 0)
        memcpy(call->reply, bytes + sizeof(head), stored);
    return (enum pando_status)head.status;
}

/* `bytes` has room for the request and for the reply behind it. */
static enum pando_status send_co(struct pool_session *session, struct fabric_endpoint *endpoint,
                                 const struct peer_call *call, uint8_t *bytes, size_t bytes_size)
{
    struct pool_peer_request head = {.magic = POOL_PEER_MAGIC,
                                     .table = call->table,
                                     .method = call->method,
                                     .member = call->member.member,
                                     .incarnation = call->member.incarnation};
    size_t request_bytes = sizeof(head) + call->body.size;
    uint32_t size;

    memcpy(bytes, &head, sizeof(head));
    if (call->body.size > 0)
        memcpy(bytes + sizeof(head), call->body.data, call->body.size);
    enum pando_status status =
        fabric_call_co(endpoint, POOL_PEER_METHOD, slice_of(bytes, request_bytes),
                       bytes + request_bytes, (uint32_t)(bytes_size - request_bytes), &size);
    return outcome(session, call, status, bytes + request_bytes, size);
}

static enum pando_status call_peer_co(struct pool_session *session, struct pool_peer *peer,
                                      const struct peer_call *call)
{
    uint8_t small[SMALL_BYTES];
    size_t bytes_size = sizeof(struct pool_peer_request) + call->body.size +
                        sizeof(struct pool_peer_reply) + call->reply_capacity;
    uint8_t *bytes = bytes_size <= sizeof(small) ? small : malloc(bytes_size);
    if (bytes == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = peer_connect_co(peer);
    if (status == PANDO_OK)
        status = send_co(session, peer->endpoint, call, bytes, bytes_size);
    if (status == PANDO_OK)
        pool_wish_over(session->pool, call->member.member);
    if (bytes != small)
        free(bytes);
    return status;
}

enum pando_status pool_call_co(struct pool_session *session, struct fabric_identity member,
                               uint16_t table, uint16_t method, struct slice body, void *reply,
                               uint32_t reply_capacity, uint32_t *reply_size)
{
    struct pool *pool = session->pool;
    struct pool_peer *peer = NULL;
    uint32_t ignored;
    struct peer_call call = {.member = member,
                             .table = table,
                             .method = method,
                             .body = body,
                             .reply = reply,
                             .reply_capacity = reply_capacity,
                             .reply_size = reply_size == NULL ? &ignored : reply_size};

    *call.reply_size = 0;
    if (call.reply_capacity > POOL_CALL_BYTES_MAX)
        call.reply_capacity = POOL_CALL_BYTES_MAX;
    if (body.size > POOL_CALL_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (member.member == 0 || member.member >= POOL_MEMBERS)
        return PANDO_INVALID;
    if (pool_fenced(pool))
        return PANDO_FENCED;
    if (same(member, pool->identity))
        return call_self_co(session, &call);
    if (member.member == pool->identity.member)
        return PANDO_NOT_FOUND; /* a former life of that slot */
    enum pando_status status = peer_take_co(session, member, &peer);
    if (status != PANDO_OK)
        return status;
    status = call_peer_co(session, peer, &call);
    peer_give_co(session, peer);
    return status;
}
