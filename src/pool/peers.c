/*
 * peers.c - endpoints to other members, and calls over them; lists are in member_lists.c.
 *
 * A session has one endpoint to each member that it has called, or sent a list to. It belongs to one
 * incarnation of that member: whoever asks for another looks into the members' table, and takes the
 * endpoint's place there when the new one is found alive. Connecting again also looks there first, so
 * that a member that is gone is known to be.
 *
 * A member may live and swallow what is sent to it, and connecting then takes seconds. Only the first try is
 * waited for. After one that failed the next is made by a task of its own, which callers do not wait for, and
 * the pause before it doubles each time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/peers_int.h"
#include "pool/pool_int.h"

enum {
    SMALL_BYTES = 1024, /* calls and replies up to this need no memory of their own */
    PEER_TRIES = 8,     /* that somebody else takes the place while we look */
    PAUSES_PER_LEASE = 4,
    PAUSE_DOUBLINGS = 6, /* to 16 leases */
};

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

void pool_peer_give_co(struct pool_session *session, struct pool_peer *peer)
{
    if (--peer->users == 0 && peer->retired)
        peer_free_co(session, peer);
}

/* Puts a new one into the place, unless it is no longer `former` that is there. */
static enum pando_status peer_put_co(struct pool_session *session, struct pool_peer *former,
                                     struct fabric_identity who, const struct pool_record *record)
{
    if (session->peers->of[who.member] != former)
        return PANDO_OK;
    struct pool_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL)
        return PANDO_NO_MEMORY;
    peer->session = session;
    peer->who = who;
    peer->node = record->node;
    memcpy(peer->location, record->location, sizeof(peer->location));
    session->peers->of[who.member] = peer;
    if (former != NULL) {
        former->retired = true;
        if (former->users == 0)
            peer_free_co(session, former);
    }
    return PANDO_OK;
}

/* This process itself is found without a look, and has no location. */
static enum pando_status locate_co(struct pool_session *session, struct fabric_identity who,
                                   struct pool_record *record)
{
    if (!pool_same(who, session->pool->identity))
        return pool_locate_co(session, who, record);
    *record = (struct pool_record){.node = fabric_self(session->pool->fabric)};
    return PANDO_OK;
}

enum pando_status pool_peer_take_co(struct pool_session *session, struct fabric_identity who,
                                    struct pool_peer **out)
{
    struct pool_record record;

    if (session->peers == NULL)
        session->peers = calloc(1, sizeof(*session->peers));
    if (session->peers == NULL)
        return PANDO_NO_MEMORY;
    for (int i = 0; i < PEER_TRIES; i++) {
        struct pool_peer *peer = session->peers->of[who.member];
        if (peer != NULL && pool_same(peer->who, who)) {
            peer->users++;
            *out = peer;
            return PANDO_OK;
        }
        enum pando_status status = locate_co(session, who, &record);
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
    bool self = peer->location[0] == '\0';
    enum pando_status status =
        self ? PANDO_OK : fabric_add_peer(fabric, peer->node, FABRIC_COMPUTE, peer->location);
    if (status != PANDO_OK)
        return status;
    peer->bound = false;
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

static bool ready(const struct pool_peer *peer, bool lists)
{
    return !peer->connecting && connected(peer) && (peer->bound || !lists);
}

/* Asks who it leads to. From then on it leads there or is broken (fabric_window_renew_co). */
static enum pando_status bind_co(struct pool_peer *peer)
{
    enum pando_status status = PANDO_OK;
    if (peer->location[0] != '\0')
        status =
            pool_peer_say_co(peer->session, peer->endpoint, peer->who, (uint16_t)POOL_OWN_BIND);
    peer->bound = status == PANDO_OK && connected(peer);
    return peer->bound || status != PANDO_OK ? status : PANDO_BROKEN;
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
        if (!connected(peer))
            status = connect_co(peer);
        if (status == PANDO_OK && peer->lists && !peer->bound)
            status = bind_co(peer);
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
    pool_peer_give_co(session, peer);
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

enum pando_status pool_peer_connect_co(struct pool_peer *peer, bool lists)
{
    peer->lists = peer->lists || lists;
    /* One task connects, the others of this loop wait for it. */
    (void)rt_waitq_while_co(&peer->session->connected, first_try, peer, RT_NEVER);
    if (ready(peer, lists))
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

/* ---- for lists ------------------------------------------------------------------------------- */

struct pool_peer *pool_peer_take_ready(struct pool_session *session, struct fabric_identity who)
{
    struct pool_peer *peer = session->peers == NULL ? NULL : session->peers->of[who.member];
    if (peer == NULL || !pool_same(peer->who, who) || !ready(peer, true))
        return NULL;
    peer->users++;
    return peer;
}

struct seek {
    struct pool_session *session;
    struct fabric_identity who;
};

static void seek_task(void *arg)
{
    struct seek *seek = arg;
    struct pool_session *session = seek->session;
    struct pool_peer *peer;
    enum pando_status status = pool_peer_take_co(session, seek->who, &peer);
    if (status == PANDO_OK) {
        status = pool_peer_connect_co(peer, true);
        pool_peer_give_co(session, peer);
    }
    (void)status; /* the next list finds out */
    session->peers->seeking[seek->who.member] = false;
    free(seek);
    pool_session_release(session);
}

void pool_peer_seek(struct pool_session *session, struct fabric_identity who)
{
    if (session->peers == NULL)
        session->peers = calloc(1, sizeof(*session->peers));
    if (session->peers == NULL || session->peers->seeking[who.member])
        return;
    struct pool_peer *peer = session->peers->of[who.member];
    if (peer != NULL && pool_same(peer->who, who) &&
        (peer->connecting || rt_now_ns() < peer->again_ns))
        return;
    struct seek *seek = malloc(sizeof(*seek));
    if (seek == NULL)
        return;
    *seek = (struct seek){.session = session, .who = who};
    session->peers->seeking[who.member] = true;
    pool_session_hold(session);
    if (rt_spawn(rt_loop_self(), seek_task, seek) == PANDO_OK)
        return;
    session->peers->seeking[who.member] = false;
    pool_session_release(session);
    free(seek);
}

void pool_peers_close_co(struct pool_session *session)
{
    for (uint16_t member = 0; session->peers != NULL && member < POOL_MEMBERS; member++) {
        struct pool_peer *peer = session->peers->of[member];
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
        const struct pool_peer *peer = session->peers->of[member];
        if (peer != NULL && peer->endpoint != NULL)
            fabric_counters_add(sum, fabric_endpoint_counters(peer->endpoint));
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

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

enum pando_status pool_peer_send_co(struct pool_session *session, struct fabric_endpoint *endpoint,
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
    enum pando_status status = pool_peer_connect_co(peer, false);
    if (status == PANDO_OK)
        status = pool_peer_send_co(session, peer->endpoint, call, bytes, bytes_size);
    if (status == PANDO_OK)
        pool_wish_over(session->pool, call->member.member);
    if (bytes != small)
        free(bytes);
    return status;
}

enum pando_status pool_peer_say_co(struct pool_session *session, struct fabric_endpoint *endpoint,
                                   struct fabric_identity who, uint16_t method)
{
    uint8_t bytes[SMALL_BYTES];
    uint32_t ignored = 0;
    struct peer_call call = {
        .member = who, .method = method, .body = slice_of("", 0), .reply_size = &ignored};
    return pool_peer_send_co(session, endpoint, &call, bytes, sizeof(bytes));
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
    if (pool_same(member, pool->identity))
        return call_self_co(session, &call);
    if (member.member == pool->identity.member)
        return PANDO_NOT_FOUND; /* a former life of that slot */
    enum pando_status status = pool_peer_take_co(session, member, &peer);
    if (status != PANDO_OK)
        return status;
    status = call_peer_co(session, peer, &call);
    pool_peer_give_co(session, peer);
    return status;
}
