/*
 * peers_int.h - a session's endpoints to members (peers.c), for the calls and lists that go over
 * them.
 */
#ifndef POOL_PEERS_INT_H
#define POOL_PEERS_INT_H

#include "pool/members_int.h"
#include "pool/peer_fmt.h"

struct pool_peer {
    struct pool_session *session;
    struct fabric_identity who;
    uint16_t node;
    char location[FABRIC_LOCATION_MAX]; /* "": this process itself */
    struct fabric_endpoint *endpoint;   /* NULL until it is connected */
    unsigned users;
    bool connecting;
    bool retired;      /* no longer in its place: goes with its last user */
    bool lists;        /* lists go over it: it has to be bound */
    bool bound;        /* since it connected it was seen to lead to `who` */
    unsigned failures; /* to connect, in a row */
    uint64_t again_ns; /* after a failure no further try before */
};

/* A session's. */
struct pool_peers {
    struct pool_peer *of[POOL_MEMBERS];
    bool seeking[POOL_MEMBERS]; /* a task of pool_peer_seek is at it */
};

static inline bool pool_same(struct fabric_identity a, struct fabric_identity b)
{
    return a.member == b.member && a.incarnation == b.incarnation;
}

/* The endpoint to a member, with one user more. NOT_FOUND, UNSUPPORTED: as pool_call_co. */
PANDO_MUST_CHECK enum pando_status
pool_peer_take_co(struct pool_session *session, struct fabric_identity who, struct pool_peer **out);
void pool_peer_give_co(struct pool_session *session, struct pool_peer *peer);

/* The same, if it is there and lists may be sent over it; NULL otherwise. Does not suspend. */
struct pool_peer *pool_peer_take_ready(struct pool_session *session, struct fabric_identity who);

/* Has a task of its own look for that member and connect to it for lists, unless one does. */
void pool_peer_seek(struct pool_session *session, struct fabric_identity who);

/* Connects if need be, for lists with binding. Waits for the first try only. NOT_FOUND. */
PANDO_MUST_CHECK enum pando_status pool_peer_connect_co(struct pool_peer *peer, bool lists);

/* A call to a member. */
struct peer_call {
    struct fabric_identity member;
    uint16_t table, method;
    struct slice body;
    uint8_t *reply;
    uint32_t reply_capacity;
    uint32_t *reply_size;
};

/* Sends it; `bytes` has room for the request and for the reply behind it. */
PANDO_MUST_CHECK enum pando_status pool_peer_send_co(struct pool_session *session,
                                                     struct fabric_endpoint *endpoint,
                                                     const struct peer_call *call, uint8_t *bytes,
                                                     size_t bytes_size);

/* A call of the pool's own (enum pool_own_method), without bodies. */
PANDO_MUST_CHECK enum pando_status pool_peer_say_co(struct pool_session *session,
                                                    struct fabric_endpoint *endpoint,
                                                    struct fabric_identity who, uint16_t method);

#endif
