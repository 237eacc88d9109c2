/*
 * self.c - an endpoint to the process's own window. Atomics are atomic only among those of the card,
 * so these go through it, too: two queue pairs of this process, connected to each other.
 */
#include "fabric/verbs/verbs_int.h"

static enum pando_status establish_co(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = verbs_fabric_of(endpoint->base.fabric);
    struct verbs_end here, there;

    enum pando_status status = verbs_queue_create_co(&endpoint->queue, endpoint->lane, QUEUE_ASKS);
    if (status == PANDO_OK)
        status = verbs_queue_create_co(&endpoint->mirror, endpoint->lane, QUEUE_SERVES);
    if (status != PANDO_OK)
        goto err;
    queue_tell(&endpoint->queue, &here);
    queue_tell(&endpoint->mirror, &there);
    status = verbs_queue_connect_co(&endpoint->mirror, &here, fabric->timeout_ns);
    if (status == PANDO_OK)
        status = verbs_queue_connect_co(&endpoint->queue, &there, fabric->timeout_ns);
    if (status != PANDO_OK)
        goto err;
    endpoint->target = (struct chain_target){
        .host_bytes = fabric->window.host_bytes,
        .device_bytes = fabric->window.device_bytes,
        .inline_max = endpoint->queue.inline_max,
        .fence_reads = fabric->always_fence || !fabric->device.ordered,
    };
    device_window_tell(&fabric->shared, &endpoint->target.window);
    status = verbs_endpoint_open(endpoint, 0);
    if (status == PANDO_OK)
        return PANDO_OK;
err:
    queue_destroy(&endpoint->mirror);
    queue_destroy(&endpoint->queue);
    return status;
}

static enum pando_status self_reconnect_co(struct fabric_endpoint *base)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    verbs_endpoint_break(endpoint, "reconnecting");
    base->identity = fabric_identity_now(base->fabric);
    return establish_co(endpoint);
}

static enum pando_status self_fence_co(struct fabric_endpoint *endpoint,
                                       struct fabric_identity identity)
{
    struct verbs_fabric *fabric = verbs_fabric_of(endpoint->fabric);
    return session_self_fence_co(fabric->server, &fabric->window, identity);
}

static const struct fabric_ops self_ops = {
    .disconnect_co = verbs_disconnect_co,
    .reconnect_co = self_reconnect_co,
    .post = verbs_post,
    .call_co = fabric_self_call_co,
    .fence_co = self_fence_co,
};

enum pando_status verbs_self_connect_co(struct verbs_fabric *fabric, struct fabric_endpoint **out)
{
    struct verbs_endpoint *endpoint;
    enum pando_status status = verbs_endpoint_create(fabric, fabric->base.node, &endpoint);
    if (status != PANDO_OK)
        return status;
    endpoint->base.ops = &self_ops;
    endpoint->base.target = fabric->base.target;
    endpoint->base.window = window_id(&fabric->window);
    status = establish_co(endpoint);
    if (status != PANDO_OK) {
        verbs_disconnect_co(&endpoint->base);
        return status;
    }
    *out = &endpoint->base;
    return PANDO_OK;
}
