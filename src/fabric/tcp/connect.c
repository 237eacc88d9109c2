/*
 * connect.c - connecting and connecting again.
 */
#include <stdlib.h>

#include "fabric/tcp/tcp_int.h"

static enum pando_status establish_co(struct tcp_endpoint *endpoint)
{
    struct tcp_fabric *fabric = tcp_fabric_of(endpoint->base.fabric);
    char location[FABRIC_LOCATION_MAX];
    struct session_connect connect = {
        .protocol = &tcp_protocol,
        .secret = &fabric->secret,
        .tls = fabric->client_tls,
        .timeout_ns = fabric->timeout_ns,
        .location = location,
        .node = endpoint->base.node,
        .window = endpoint->base.window,
        .claim = {.endpoint_id = endpoint->endpoint_id, .identity = endpoint->base.identity},
    };
    struct stream stream;

    if (!session_peers_find(&fabric->peers, endpoint->base.node, location))
        return PANDO_NOT_FOUND;
    enum pando_status status = session_connect_co(&connect, &stream);
    if (status != PANDO_OK)
        return status;
    endpoint->base.target = connect.welcome.target;
    endpoint->base.window = connect.welcome.window;
    status = tcp_endpoint_open(endpoint, stream);
    if (status != PANDO_OK)
        stream_close(&stream);
    return status;
}

enum pando_status tcp_connect_co(struct fabric *base, uint16_t node, struct fabric_endpoint **out)
{
    struct tcp_fabric *fabric = tcp_fabric_of(base);
    if (fabric->window.base != NULL && node == base->node)
        return tcp_self_connect(fabric, out);
    struct tcp_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    endpoint->base.ops = &tcp_fabric_ops;
    endpoint->base.fabric = base;
    endpoint->base.loop = rt_loop_self();
    endpoint->base.node = node;
    endpoint->base.broken = true;
    endpoint->base.identity = fabric_identity_now(base);
    endpoint->stream.fd = -1;
    enum pando_status status = secret_nonce((uint8_t *)&endpoint->endpoint_id, 8);
    if (status == PANDO_OK)
        status = establish_co(endpoint);
    if (status != PANDO_OK) {
        free(endpoint);
        return status;
    }
    *out = &endpoint->base;
    return PANDO_OK;
}

enum pando_status tcp_reconnect_co(struct fabric_endpoint *base)
{
    struct tcp_endpoint *endpoint = container_of(base, struct tcp_endpoint, base);
    tcp_endpoint_break(endpoint, "reconnecting");
    base->identity = fabric_identity_now(base->fabric);
    /* The same endpoint id: the server ends the former session before it lets this one in. */
    return establish_co(endpoint);
}
