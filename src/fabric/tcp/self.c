/*
 * self.c - an endpoint to the process's own window: the processor that executes everybody's lists
 * executes these too, so their atomics are in one domain.
 */
#include <stdlib.h>

#include "fabric/tcp/tcp_int.h"

static void self_post(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    const struct window *window = &socket_fabric_of(endpoint->fabric)->window;
    fabric_list_done(endpoint, list, window_execute(window, list->ops, list->count));
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
    .fence_co = socket_fabric_self_fence_co,
};

enum pando_status tcp_self_connect(struct socket_fabric *fabric, struct fabric_endpoint **out)
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
