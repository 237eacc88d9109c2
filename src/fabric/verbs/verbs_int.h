/*
 * verbs_int.h - what the files of the verbs backend share.
 *
 * As with tcp a process may be a server, a client, or both. Clients' endpoints and the server's
 * sessions have a queue each; a loop's queues share a lane.
 */
#ifndef FABRIC_VERBS_VERBS_INT_H
#define FABRIC_VERBS_VERBS_INT_H

#include <pthread.h>

#include "fabric/fabric_int.h"
#include "fabric/session/connect.h"
#include "fabric/session/session.h"
#include "fabric/verbs/messages.h"
#include "fabric/verbs/queue.h"
#include "fabric/verbs/verbs.h"

struct verbs_fabric {
    struct fabric base;
    struct device device;
    struct window window;        /* base NULL: a client only */
    struct device_window shared; /* the same as others reach it */
    bool always_fence;
    struct secret secret;
    SSL_CTX *server_tls, *client_tls;
    uint64_t timeout_ns;
    pthread_mutex_t mutex; /* lanes */
    struct list lanes;
    struct session_peers peers;
    struct session_server *server; /* NULL: does not listen */
};

static inline struct verbs_fabric *verbs_fabric_of(struct fabric *fabric)
{
    return container_of(fabric, struct verbs_fabric, base);
}

extern const struct fabric_ops verbs_fabric_ops;
extern const struct handshake_protocol verbs_protocol;
extern const struct session_ops verbs_session_ops;

/* ---- setup.c: queues made on a helper thread --------------------------------------------------- */

/* A new queue on this loop's lane. */
PANDO_MUST_CHECK enum pando_status verbs_queue_create_co(struct queue *queue, struct lane *lane,
                                                         enum queue_role role);
PANDO_MUST_CHECK enum pando_status
verbs_queue_connect_co(struct queue *queue, const struct verbs_end *peer, uint64_t timeout_ns);

/* ---- endpoint.c, connect.c: the client's side -------------------------------------------------- */

struct verbs_endpoint {
    struct fabric_endpoint base;
    struct lane *lane;
    struct queue queue;
    struct queue mirror; /* to oneself: the other end */
    struct messages messages;
    struct stream stream; /* proves that the peer lives, and carries PING and PONG */
    struct rt_fd fd;
    uint8_t pong[WIRE_FRAME_HEADER];
    size_t pong_bytes;
    struct rt_timer timer; /* watches for silence */
    uint64_t input_ns;     /* when the peer was heard last */
    uint64_t done_ns;      /* when a list completed last */
    struct chain_target target;
    struct fabric_list *sent, **sent_tail;       /* posted to the queue, oldest first */
    struct fabric_list *waiting, **waiting_tail; /* no room yet */
    struct list waiting_link;                    /* in the lane's waiting ones */
    struct session_calls calls;
    uint64_t endpoint_id;
    struct fabric_verbs_counters counters;
};

static inline struct verbs_endpoint *verbs_endpoint_of(struct fabric_endpoint *base)
{
    return container_of(base, struct verbs_endpoint, base);
}

enum pando_status verbs_connect_co(struct fabric *fabric, uint16_t node,
                                   struct fabric_endpoint **out);
enum pando_status verbs_reconnect_co(struct fabric_endpoint *endpoint);
void verbs_disconnect_co(struct fabric_endpoint *endpoint);
void verbs_post(struct fabric_endpoint *endpoint, struct fabric_list *list);
enum pando_status verbs_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                struct slice body, void *reply, uint32_t reply_capacity,
                                uint32_t *reply_size);
enum pando_status verbs_fence_co(struct fabric_endpoint *endpoint, struct fabric_identity identity);

/* An endpoint that is broken still, with a lane. */
PANDO_MUST_CHECK enum pando_status verbs_endpoint_create(struct verbs_fabric *fabric, uint16_t node,
                                                         struct verbs_endpoint **out);

/* Its queue is connected, its target known: it works from now on. `peer_credits` is 0 when there
 * is no stream and there are no calls. */
PANDO_MUST_CHECK enum pando_status verbs_endpoint_open(struct verbs_endpoint *endpoint,
                                                       unsigned peer_credits);
void verbs_endpoint_break(struct verbs_endpoint *endpoint, const char *why);

/* Posts what waited; false when a list still waits for a buffer. */
bool verbs_endpoint_retry(struct verbs_endpoint *endpoint);

/* self.c: an endpoint to this process's own window, through the card as everybody's */
PANDO_MUST_CHECK enum pando_status verbs_self_connect_co(struct verbs_fabric *fabric,
                                                         struct fabric_endpoint **out);

#endif
