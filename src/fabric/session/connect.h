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
struct client_peers {
    pthread_mutex_t mutex;
    struct list peers;
};

void client_peers_init(struct client_peers *peers);
void client_peers_fini(struct client_peers *peers);

/* INVALID: not host:port. */
PANDO_MUST_CHECK enum pando_status client_peers_add(struct client_peers *peers, uint16_t node,
                                                    enum fabric_target target,
                                                    const char *location);
bool client_peers_find(struct client_peers *peers, uint16_t node, enum fabric_target *target,
                       char location[FABRIC_LOCATION_MAX]);

/* What came of connecting to a node the last time: as client_connect says it. */
void client_peers_note(struct client_peers *peers, uint16_t node, const char *trouble);
void client_peers_trouble(struct client_peers *peers, uint16_t node, char *out, size_t size);

/* ---- connecting ------------------------------------------------------------------------------ */

enum { CONNECTION_TROUBLE_BYTES = 224 };

struct client_connect {
    const struct handshake_protocol *protocol;
    struct credentials *credentials;
    uint64_t timeout_ns;
    const char *location;
    uint16_t node;             /* that is expected there */
    enum fabric_target target; /* and what it is */
    struct handshake_claim claim;
    struct handshake_welcome welcome; /* out */
    /* out, on failure: what is wrong and what to do, for a person; "": the status says it all */
    char trouble[CONNECTION_TROUBLE_BYTES];
};

/* Connects and proves: *out is a stream on which both sides know each other. BROKEN, TIMEOUT:
 * nobody answers; NOT_FOUND: no such host; DENIED: wrong secret or certificate, or one side wants TLS
 * and the other not; INVALID: another node or window answers; and what the server said. */
PANDO_MUST_CHECK enum pando_status client_connect_co(struct client_connect *connect,
                                                     struct stream *out);

/* ---- calls ----------------------------------------------------------------------------------- */

struct client_call {
    struct list link;
    uint64_t tag;
    struct rt_task *task;
    bool done;
    enum pando_status status;
    uint8_t *reply;
    uint32_t capacity, size;
};

/* Calls whose replies are expected on an endpoint. */
struct client_calls {
    struct list waiting;
    uint64_t next_tag;
};

/* A call of the running task, with a tag of its own; not expected yet. */
struct client_call client_call_make(struct client_calls *calls, void *reply, uint32_t capacity);

/* Waits for the reply: its status, or TIMEOUT. */
enum pando_status client_call_wait_co(struct client_calls *calls, struct client_call *call);

/* Takes the body of a REPLY frame. */
enum wire_parse client_calls_reply(struct client_calls *calls, const uint8_t *body, uint32_t size);
void client_calls_fail(struct client_calls *calls, enum pando_status status);

#endif
