/*
 * connect.h - the client's way to an authenticated stream, and what a client keeps besides: where
 * peers are, and which calls it waits for.
 */
#ifndef FABRIC_SESSION_CONNECT_H
#define FABRIC_SESSION_CONNECT_H

#include <pthread.h>

#include "fabric/session/handshake.h"

/* ---- peers ----------------------------------------------------------------------------------- */

/* Where nodes are, as host:port. Any thread. */
struct session_peers {
    pthread_mutex_t mutex;
    struct list peers;
};

void session_peers_init(struct session_peers *peers);
void session_peers_fini(struct session_peers *peers);

/* INVALID: not host:port. */
PANDO_MUST_CHECK enum pando_status session_peers_add(struct session_peers *peers, uint16_t node,
                                                     const char *location);
bool session_peers_find(struct session_peers *peers, uint16_t node,
                        char location[FABRIC_LOCATION_MAX]);

/* ---- connecting ------------------------------------------------------------------------------ */

struct session_connect {
    const struct handshake_protocol *protocol;
    const struct secret *secret;
    SSL_CTX *tls; /* NULL: plain */
    uint64_t timeout_ns;
    const char *location;
    uint16_t node;   /* that is expected there */
    uint64_t window; /* the id of its window, 0 for any */
    struct handshake_claim claim;
    struct handshake_welcome welcome; /* out */
};

/* Connects and proves: *out is a stream on which both sides know each other. BROKEN, TIMEOUT:
 * nobody answers; DENIED: wrong secret or certificate; INVALID: another node or window
 * answers; and what the
 * server said. */
PANDO_MUST_CHECK enum pando_status session_connect_co(struct session_connect *connect,
                                                      struct stream *out);

/* ---- calls ----------------------------------------------------------------------------------- */

struct session_call {
    struct list link;
    uint64_t tag;
    struct rt_task *task;
    bool done;
    enum pando_status status;
    uint8_t *reply;
    uint32_t capacity, size;
};

/* Calls whose replies are expected on an endpoint. */
struct session_calls {
    struct list waiting;
    uint64_t next_tag;
};

/* A call of the running task, with a tag of its own; not expected yet. */
struct session_call session_call_make(struct session_calls *calls, void *reply, uint32_t capacity);

/* Waits for the reply: its status, or TIMEOUT. */
enum pando_status session_call_wait_co(struct session_calls *calls, struct session_call *call);

/* Takes the body of a REPLY frame. */
enum wire_parse session_calls_reply(struct session_calls *calls, const uint8_t *body,
                                    uint32_t size);
void session_calls_fail(struct session_calls *calls, enum pando_status status);

#endif
