/*
 * self.c - an endpoint to the process's own window: the processor that executes everybody's lists
 * executes these too, so their atomics are in one domain.
 */
#include <stdlib.h>

#include "fabric/tcp/tcp_int.h"

static struct tcp_fabric *fabric_of(struct fabric_endpoint *endpoint)
{
    return tcp_fabric_of(endpoint->fabric);
}

static void self_post(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    fabric_list_done(endpoint, list,
                     window_execute(&fabric_of(endpoint)->window, list->ops, list->count));
}

static enum pando_status self_fence_co(struct fabric_endpoint *endpoint,
                                       struct fabric_identity identity)
{
    struct tcp_fabric *fabric = fabric_of(endpoint);
    return session_self_fence_co(fabric->server, &fabric->window, identity);
}

static enum pando_status self_reconnect_co(struct fabric_endpoint *endpoint)
{
    endpoint->identity = fabric_identity_now(endpoint->fabric);
    return PANDO_OK;
}

static void self_disconnect_co(struct fabric_endpoint *endpoint)
{
    free(endpoint);
}

static const struct fabric_ops self_ops = {
    .disconnect_co = self_disconnect_co,
    .reconnect_co = self_reconnect_co,
    .post = self_post,
    .call_co = fabric_self_call_co,
    .fence_co = self_fence_co,
};

enum pando_status tcp_self_connect(struct tcp_fabric *fabric, struct fabric_endpoint **out)
{
    struct fabric_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    endpoint->ops = &self_ops;
    endpoint->fabric = &fabric->base;
    endpoint->loop = rt_loop_self();
    endpoint->node = fabric->base.node;
    endpoint->target = fabric->base.target;
    endpoint->window = window_id(&fabric->window);
    endpoint->identity = fabric_identity_now(&fabric->base);
    *out = endpoint;
    return PANDO_OK;
}
