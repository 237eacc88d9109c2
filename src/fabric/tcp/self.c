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

static enum pando_status self_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                      struct slice body, void *reply, uint32_t reply_capacity,
                                      uint32_t *reply_size)
{
    uint8_t *buffer = malloc(FABRIC_CALL_BYTES_MAX);
    if (buffer == NULL)
        return PANDO_NO_MEMORY;
    struct fabric_request request = {
        .from = endpoint->identity, .method = method, .body = body, .reply = buffer};
    enum pando_status status = fabric_serve_request(endpoint->fabric, &request);
    uint32_t stored = request.reply_size < reply_capacity ? request.reply_size : reply_capacity;
    if (stored > 0)
        memcpy(reply, buffer, stored);
    *reply_size = request.reply_size;
    free(buffer);
    return status;
}

static enum pando_status self_fence_co(struct fabric_endpoint *endpoint,
                                       struct fabric_identity identity)
{
    struct tcp_fabric *fabric = fabric_of(endpoint);
    if (fabric->server != NULL)
        return session_fence_co(fabric->server, identity);
    window_fence(&fabric->window, identity);
    return PANDO_OK;
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
    .call_co = self_call_co,
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
    endpoint->identity = fabric_identity_now(&fabric->base);
    *out = endpoint;
    return PANDO_OK;
}
