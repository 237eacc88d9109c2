/*
 * self.c - an endpoint to the process's own window. Atomics are atomic only among those of the
 * card, so these go through it, too: two queue pairs of this process, connected to each other.
 *
 * Making them takes longer than anything that is done with them: a memory node that serves a call
 * wants one atomic (rule cpu-visibility). So each loop keeps a few that were disconnected, for as
 * long as others use its lane. One that broke meanwhile is not used again; one that breaks when it
 * is used takes the others along.
 */
#include "fabric/verbs/verbs_int.h"

enum { KEPT_MAX = 8 }; /* as many calls at once as are worth it: two queue pairs, 128 KiB each */

static enum pando_status establish_co(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = verbs_fabric_of(endpoint->client.base.fabric);
    struct verbs_end here, there;

    enum pando_status status = verbs_queue_create_co(&endpoint->queue, endpoint->lane, QUEUE_ASKS);
    if (status == PANDO_OK)
        status = verbs_queue_create_co(&endpoint->mirror, endpoint->lane, QUEUE_SERVES);
    if (status != PANDO_OK)
        goto err;
    queue_tell(&endpoint->queue, &here);
    queue_tell(&endpoint->mirror, &there);
    status = verbs_queue_connect_co(&endpoint->mirror, &here, fabric->sockets.timeout_ns);
    if (status == PANDO_OK)
        status = verbs_queue_connect_co(&endpoint->queue, &there, fabric->sockets.timeout_ns);
    if (status != PANDO_OK)
        goto err;
    endpoint->target = (struct chain_target){
        .host_bytes = fabric->sockets.window.host_bytes,
        .device_bytes = fabric->sockets.window.device_bytes,
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
    client_endpoint_break(&endpoint->client, "reconnecting");
    base->identity = fabric_identity_now(base->fabric);
    return establish_co(endpoint);
}

/* The one that was kept last, as a user of the lane again; NULL: there is none. */
static struct verbs_endpoint *take_kept(struct lane *lane)
{
    struct list *link = list_pop_front(&lane->kept);
    if (link == NULL)
        return NULL;
    lane->kept_count--;
    lane->users++;
    return container_of(link, struct verbs_endpoint, kept_link);
}

static void self_disconnect_co(struct fabric_endpoint *base)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base), *kept;
    struct lane *lane = endpoint->lane;
    if (!base->broken && lane->kept_count < KEPT_MAX && lane->users > 1) {
        list_push_front(&lane->kept, &endpoint->kept_link);
        lane->kept_count++;
        lane->users--; /* it does not hold the lane, see lane_put */
        return;
    }
    /* What broke this one may have broken others, which show it when they are used. */
    while (base->broken && (kept = take_kept(lane)) != NULL)
        verbs_disconnect_co(&kept->client.base);
    verbs_disconnect_co(base);
}

bool verbs_self_end(struct lane *lane)
{
    struct verbs_endpoint *kept = take_kept(lane);
    if (kept != NULL)
        verbs_disconnect_co(&kept->client.base); /* which comes here again for the next */
    return kept != NULL;
}

static const struct fabric_ops self_ops = {
    .disconnect_co = self_disconnect_co,
    .reconnect_co = self_reconnect_co,
    .post = verbs_post,
    .call_co = fabric_self_call_co,
    .fence_co = socket_fabric_self_fence_co,
};

/* One that this loop has kept and that works, as good as new; NULL: there is none. */
static struct verbs_endpoint *renew_kept_co(struct lane *lane)
{
    struct verbs_endpoint *kept;
    while ((kept = take_kept(lane)) != NULL) {
        if (!kept->client.base.broken) {
            kept->client.base.identity = fabric_identity_now(kept->client.base.fabric);
            kept->client.base.counters = (struct fabric_counters){0};
            kept->counters = (struct fabric_verbs_counters){0};
            return kept;
        }
        verbs_disconnect_co(&kept->client.base);
    }
    return NULL;
}

enum pando_status verbs_self_connect_co(struct verbs_fabric *fabric, struct fabric_endpoint **out)
{
    struct verbs_endpoint *endpoint;
    enum pando_status status =
        verbs_endpoint_create(fabric, fabric->sockets.base.node, &self_ops, &endpoint);
    if (status != PANDO_OK)
        return status;
    struct verbs_endpoint *kept = renew_kept_co(endpoint->lane);
    if (kept != NULL) {
        verbs_disconnect_co(&endpoint->client.base);
        *out = &kept->client.base;
        return PANDO_OK;
    }
    endpoint->client.base.target = fabric->sockets.base.target;
    endpoint->client.base.window = window_id(&fabric->sockets.window);
    status = establish_co(endpoint);
    if (status != PANDO_OK) {
        verbs_disconnect_co(&endpoint->client.base);
        return status;
    }
    *out = &endpoint->client.base;
    return PANDO_OK;
}
