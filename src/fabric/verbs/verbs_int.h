/*
 * verbs_int.h - what the files of the verbs backend share.
 *
 * As with tcp a process may be a server, a client, or both. Clients' endpoints and the server's
 * connections have a queue each; a loop's queues share a lane.
 */
#ifndef FABRIC_VERBS_VERBS_INT_H
#define FABRIC_VERBS_VERBS_INT_H

#include <pthread.h>

#include "fabric/session/client.h"
#include "fabric/verbs/messages.h"
#include "fabric/verbs/queue.h"
#include "fabric/verbs/verbs.h"

struct verbs_fabric {
    struct socket_fabric sockets;
    struct device device;
    struct device_window shared; /* the window as others reach it */
    bool always_fence;
    pthread_mutex_t mutex; /* lanes */
    struct list lanes;
};

static inline struct verbs_fabric *verbs_fabric_of(struct fabric *fabric)
{
    return container_of(fabric, struct verbs_fabric, sockets.base);
}

extern const struct fabric_ops verbs_fabric_ops;
extern const struct handshake_protocol verbs_protocol;
extern const struct connection_ops verbs_connection_ops;

/* ---- setup.c: queues made on a helper thread ------------------------------------------------- */

/* A new queue on this loop's lane. */
PANDO_MUST_CHECK enum pando_status verbs_queue_create_co(struct queue *queue, struct lane *lane,
                                                         enum queue_role role);
PANDO_MUST_CHECK enum pando_status
verbs_queue_connect_co(struct queue *queue, const struct verbs_end *peer, uint64_t timeout_ns);

/* ---- endpoint.c, connect.c: the client's side ------------------------------------------------ */

struct verbs_endpoint {
    struct client_endpoint client;
    struct lane *lane;
    struct queue queue;
    struct queue mirror; /* to oneself: the other end */
    struct messages messages;
    uint8_t pong
        [WIRE_FRAME_HEADER]; /* its stream proves that the peer lives, and carries PING and PONG */
    size_t pong_bytes;
    uint64_t done_ns; /* when a list completed last */
    struct chain_target target;
    struct list waiting_link; /* in the lane's waiting ones: for a buffer */
    struct list kept_link;    /* in its kept ones, when nobody uses it */
    struct fabric_verbs_counters counters;
};

static inline struct verbs_endpoint *verbs_endpoint_of(struct fabric_endpoint *base)
{
    return container_of(base, struct verbs_endpoint, client.base);
}

enum pando_status verbs_connect_co(struct fabric *fabric, uint16_t node, uint64_t window,
                                   struct fabric_endpoint **out);
void verbs_disconnect_co(struct fabric_endpoint *endpoint);
void verbs_post(struct fabric_endpoint *endpoint, struct fabric_list *list);

/* For the client's side, of connect.c. */
enum pando_status verbs_prepare_co(struct client_endpoint *endpoint, uint8_t *proof_extra);
enum pando_status verbs_open_co(struct client_endpoint *endpoint,
                                const struct handshake_welcome *welcome);

/* An endpoint that is broken still, with a lane. */
PANDO_MUST_CHECK enum pando_status verbs_endpoint_create(struct verbs_fabric *fabric, uint16_t node,
                                                         const struct fabric_ops *ops,
                                                         struct verbs_endpoint **out);

/* Its queue is connected, its target known: it works from now on. `peer_credits` is 0 when there
 * is no stream and there are no calls. */
PANDO_MUST_CHECK enum pando_status verbs_endpoint_open(struct verbs_endpoint *endpoint,
                                                       unsigned peer_credits);

/* Posts what waited; false when a list still waits for a buffer. */
bool verbs_endpoint_retry(struct verbs_endpoint *endpoint);

/* self.c: an endpoint to this process's own window, through the card as everybody's */
PANDO_MUST_CHECK enum pando_status verbs_self_connect_co(struct verbs_fabric *fabric,
                                                         struct fabric_endpoint **out);

/* Ends those that a lane without users has kept, and the lane with the last of them. False: it has none. */
bool verbs_self_end(struct lane *lane);

#endif
