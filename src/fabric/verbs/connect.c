/*
 * connect.c - connecting and connecting again: the queue pair first, so that what it is goes with the
 * proof, and what the other end is comes with the welcome.
 */
#include "fabric/verbs/verbs_int.h"

const struct handshake_protocol verbs_protocol = {
    .magic = VERBS_MAGIC,
    .version = VERBS_VERSION,
    .client_label = "pando verbs 1 client",
    .server_label = "pando verbs 1 server",
    .proof_extra = VERBS_END_BYTES,
    .welcome_extra = VERBS_END_BYTES + VERBS_WINDOW_BYTES,
};

enum pando_status verbs_prepare_co(struct client_endpoint *client, uint8_t *proof_extra)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(&client->base);
    struct verbs_end end;
    enum pando_status status = verbs_queue_create_co(&endpoint->queue, endpoint->lane, QUEUE_ASKS);
    if (status != PANDO_OK)
        return status;
    queue_tell(&endpoint->queue, &end);
    verbs_put_end(proof_extra, &end);
    return PANDO_OK;
}

/* The other end is known: connects to it and takes its window for the target. */
enum pando_status verbs_open_co(struct client_endpoint *client,
                                const struct handshake_welcome *welcome)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(&client->base);
    struct verbs_fabric *fabric = verbs_fabric_of(client->base.fabric);
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
    enum pando_status status =
        verbs_queue_connect_co(&endpoint->queue, &peer, fabric->sockets.timeout_ns);
    return status == PANDO_OK ? verbs_endpoint_open(endpoint, peer.credits) : status;
}

enum pando_status verbs_connect_co(struct fabric *base, uint16_t node, uint64_t window,
                                   struct fabric_endpoint **out)
{
    struct verbs_fabric *fabric = verbs_fabric_of(base);
    struct verbs_endpoint *endpoint;

    if (fabric->sockets.window.base != NULL && node == base->node)
        return verbs_self_connect_co(fabric, out);
    enum pando_status status = verbs_endpoint_create(fabric, node, &verbs_fabric_ops, &endpoint);
    if (status != PANDO_OK)
        return status;
    endpoint->client.base.window = window;
    status = client_endpoint_connect_co(&endpoint->client);
    if (status != PANDO_OK) {
        verbs_disconnect_co(&endpoint->client.base);
        return status;
    }
    *out = &endpoint->client.base;
    return PANDO_OK;
}
