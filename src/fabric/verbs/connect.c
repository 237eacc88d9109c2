/*
 * connect.c - connecting and connecting again: the queue pair first, so that what it is goes with the
 * proof, and what the other end is comes with the welcome.
 */
#include <stdlib.h>

#include "base/log.h"
#include "fabric/verbs/verbs_int.h"

const struct handshake_protocol verbs_protocol = {
    .magic = VERBS_MAGIC,
    .version = VERBS_VERSION,
    .client_label = "pando verbs 1 client",
    .server_label = "pando verbs 1 server",
    .proof_extra = VERBS_END_BYTES,
    .welcome_extra = VERBS_END_BYTES + VERBS_WINDOW_BYTES,
};

/* The other end is known: connects to it and takes its window for the target. */
static enum pando_status join_co(struct verbs_endpoint *endpoint,
                                 const struct handshake_welcome *welcome)
{
    struct verbs_fabric *fabric = verbs_fabric_of(endpoint->base.fabric);
    struct verbs_end peer;

    if (!verbs_get_end(welcome->extra, &peer))
        return PANDO_DENIED;
    endpoint->target = (struct chain_target){
        .host_bytes = welcome->window_bytes,
        .device_bytes = welcome->device_bytes,
        .inline_max = endpoint->queue.inline_max,
        .fence_reads = fabric->always_fence || !fabric->device.ordered,
    };
    verbs_get_window(welcome->extra + VERBS_END_BYTES, &endpoint->target.window);
    endpoint->base.target = welcome->target;
    endpoint->base.window = welcome->window;
    enum pando_status status = verbs_queue_connect_co(&endpoint->queue, &peer, fabric->timeout_ns);
    return status == PANDO_OK ? verbs_endpoint_open(endpoint, peer.credits) : status;
}

static enum pando_status establish_co(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = verbs_fabric_of(endpoint->base.fabric);
    char location[FABRIC_LOCATION_MAX];
    struct session_connect connect = {
        .protocol = &verbs_protocol,
        .secret = &fabric->secret,
        .tls = fabric->client_tls,
        .timeout_ns = fabric->timeout_ns,
        .location = location,
        .node = endpoint->base.node,
        .window = endpoint->base.window,
        .claim = {.endpoint_id = endpoint->endpoint_id, .identity = endpoint->base.identity},
    };
    struct verbs_end end;

    if (!session_peers_find(&fabric->peers, endpoint->base.node, location))
        return PANDO_NOT_FOUND;
    enum pando_status status = verbs_queue_create_co(&endpoint->queue, endpoint->lane, QUEUE_ASKS);
    if (status != PANDO_OK)
        return status;
    queue_tell(&endpoint->queue, &end);
    verbs_put_end(connect.claim.extra, &end);
    status = session_connect_co(&connect, &endpoint->stream);
    if (status == PANDO_OK)
        status = join_co(endpoint, &connect.welcome);
    if (status != PANDO_OK) {
        queue_destroy(&endpoint->queue);
        stream_close(&endpoint->stream);
    }
    return status;
}

enum pando_status verbs_connect_co(struct fabric *base, uint16_t node, struct fabric_endpoint **out)
{
    struct verbs_fabric *fabric = verbs_fabric_of(base);
    struct verbs_endpoint *endpoint;

    if (fabric->window.base != NULL && node == base->node)
        return verbs_self_connect_co(fabric, out);
    enum pando_status status = verbs_endpoint_create(fabric, node, &endpoint);
    if (status != PANDO_OK)
        return status;
    endpoint->base.ops = &verbs_fabric_ops;
    status = secret_nonce((uint8_t *)&endpoint->endpoint_id, sizeof(endpoint->endpoint_id));
    if (status == PANDO_OK)
        status = establish_co(endpoint);
    if (status != PANDO_OK) {
        verbs_disconnect_co(&endpoint->base);
        return status;
    }
    *out = &endpoint->base;
    return PANDO_OK;
}

enum pando_status verbs_reconnect_co(struct fabric_endpoint *base)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    verbs_endpoint_break(endpoint, "reconnecting");
    base->identity = fabric_identity_now(base->fabric);
    /* The same endpoint id: the server ends the former session before it lets this one in. */
    return establish_co(endpoint);
}
