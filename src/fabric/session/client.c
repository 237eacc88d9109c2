#include "fabric/session/client.h"

#include <sys/epoll.h>

#include "base/log.h"

enum { SILENCE_CHECKS = 4 }; /* in the time after which a silent peer is given up */

/* ---- breaking -------------------------------------------------------------------------------- */

void client_endpoint_close(struct client_endpoint *endpoint)
{
    endpoint->base.broken = true;
    rt_timer_cancel(&endpoint->timer);
    if (endpoint->stream.fd >= 0) {
        rt_fd_remove(endpoint->base.loop, &endpoint->fd);
        stream_close(&endpoint->stream);
    }
    endpoint->ops->close(endpoint);
    client_endpoint_room(endpoint);
}

void client_endpoint_break(struct client_endpoint *endpoint, const char *why)
{
    if (endpoint->base.broken)
        return;
    log_warn("endpoint broken", log_u64("node", endpoint->base.node), log_text("why", why));
    client_endpoint_close(endpoint);

    struct fabric_list *sent = endpoint->sent, *waiting = endpoint->waiting, *next;
    client_sent_set(endpoint, NULL);
    client_waiting_set(endpoint, NULL);
    for (; sent != NULL; sent = next) {
        next = sent->next;
        if (endpoint->ops->lose != NULL)
            endpoint->ops->lose(endpoint, sent);
        fabric_list_done(&endpoint->base, sent, PANDO_BROKEN);
    }
    for (; waiting != NULL; waiting = next) {
        next = waiting->next;
        fabric_list_done(&endpoint->base, waiting, PANDO_BROKEN);
    }
    client_calls_fail(&endpoint->calls, PANDO_BROKEN);
}

/* ---- silence --------------------------------------------------------------------------------- */

bool client_endpoint_watch(struct client_endpoint *endpoint)
{
    if (heap_contains(&endpoint->timer.node))
        return false;
    uint64_t now = rt_turn_ns(endpoint->base.loop);
    endpoint->input_ns = now;
    rt_timer_arm(&endpoint->timer, now + client_endpoint_timeout_ns(endpoint) / SILENCE_CHECKS);
    return true;
}

static void timer_fire(struct rt_timer *timer)
{
    struct client_endpoint *endpoint = container_of(timer, struct client_endpoint, timer);
    const struct client_ops *ops = endpoint->ops;
    uint64_t now = rt_now_ns(), timeout = client_endpoint_timeout_ns(endpoint);
    uint64_t silence = now - endpoint->input_ns;

    if (!ops->expects(endpoint))
        return; /* the next post starts it again */
    if (silence >= timeout || (ops->stalled != NULL && ops->stalled(endpoint, now))) {
        client_endpoint_break(endpoint, "no answer in time");
        return;
    }
    /* A slow call is no reason to break: is anybody there? */
    if (silence >= timeout / 2 && !ops->ping(endpoint))
        return;
    rt_timer_arm(&endpoint->timer, now + timeout / SILENCE_CHECKS);
}

/* ---- calls ----------------------------------------------------------------------------------- */

void client_endpoint_wake(struct client_endpoint *endpoint)
{
    endpoint->full = false;
    rt_waitq_wake_all(&endpoint->room);
}

static bool is_full(const void *endpoint)
{
    return ((const struct client_endpoint *)endpoint)->full;
}

/* Waits for room in the output; NULL when the endpoint broke meanwhile or it took too long. */
static uint8_t *append_co(struct client_endpoint *endpoint, enum wire_type type, uint32_t size)
{
    uint64_t deadline = rt_now_ns() + client_endpoint_timeout_ns(endpoint);
    while (!endpoint->base.broken) {
        uint8_t *body = endpoint->ops->append(endpoint, type, size);
        if (body != NULL || rt_now_ns() >= deadline)
            return body;
        endpoint->full = true;
        (void)rt_waitq_while_co(&endpoint->room, is_full, endpoint, deadline);
    }
    return NULL;
}

static enum pando_status call_wait_co(struct client_endpoint *endpoint, struct client_call *call)
{
    endpoint->ops->pump(endpoint);
    return client_call_wait_co(&endpoint->calls, call);
}

enum pando_status client_endpoint_call_co(struct fabric_endpoint *base, uint16_t method,
                                          struct slice body, void *reply, uint32_t reply_capacity,
                                          uint32_t *reply_size)
{
    struct client_endpoint *endpoint = client_endpoint_of(base);
    struct client_call call = client_call_make(&endpoint->calls, reply, reply_capacity);
    uint32_t size = (uint32_t)body.size;
    uint8_t *to = append_co(endpoint, WIRE_CALL, WIRE_CALL_HEADER + wire_padded(size));
    if (to == NULL)
        return base->broken ? PANDO_BROKEN : PANDO_TIMEOUT;
    wire_put_call(to, call.tag, method, body.data, size);
    enum pando_status status = call_wait_co(endpoint, &call);
    *reply_size = call.size;
    return status;
}

enum pando_status client_endpoint_fence_co(struct fabric_endpoint *base,
                                           const struct fabric_ticket *ticket)
{
    struct client_endpoint *endpoint = client_endpoint_of(base);
    struct client_call call = client_call_make(&endpoint->calls, NULL, 0);
    uint8_t *to = append_co(endpoint, WIRE_FENCE, WIRE_FENCE_BYTES);
    if (to == NULL)
        return base->broken ? PANDO_BROKEN : PANDO_TIMEOUT;
    wire_put_fence(to, call.tag, ticket);
    return call_wait_co(endpoint, &call);
}

/* ---- connecting ------------------------------------------------------------------------------ */

void client_endpoint_init(struct client_endpoint *endpoint, struct fabric *fabric, uint16_t node,
                          const struct fabric_ops *fabric_ops, const struct client_ops *ops)
{
    rt_waitq_init(&endpoint->room);
    endpoint->base.ops = fabric_ops;
    endpoint->base.fabric = fabric;
    endpoint->base.loop = rt_loop_self();
    endpoint->base.node = node;
    endpoint->base.broken = true;
    endpoint->base.identity = fabric_identity_now(fabric);
    endpoint->ops = ops;
    endpoint->stream.fd = -1;
    rt_timer_init(&endpoint->timer, timer_fire);
    list_init(&endpoint->calls.waiting);
    client_sent_set(endpoint, NULL);
    client_waiting_set(endpoint, NULL);
}

enum pando_status client_endpoint_open(struct client_endpoint *endpoint,
                                       void (*ready)(struct rt_fd *fd, uint32_t events))
{
    if (endpoint->stream.fd >= 0) {
        endpoint->fd = (struct rt_fd){.fd = endpoint->stream.fd, .events = EPOLLIN, .ready = ready};
        enum pando_status status = rt_fd_add(endpoint->base.loop, &endpoint->fd);
        if (status != PANDO_OK)
            return status;
    }
    endpoint->base.broken = false;
    return PANDO_OK;
}

static enum pando_status handshake_co(struct client_endpoint *endpoint,
                                      struct client_connect *connect)
{
    struct client_peers *peers = &socket_fabric_of(endpoint->base.fabric)->peers;
    enum pando_status status = client_connect_co(connect, &endpoint->stream);
    client_peers_note(peers, endpoint->base.node, connect->trouble);
    if (status != PANDO_OK)
        return status;
    endpoint->base.target = connect->welcome.target;
    endpoint->base.window = connect->welcome.window;
    return endpoint->ops->open_co(endpoint, &connect->welcome);
}

static enum pando_status establish_co(struct client_endpoint *endpoint)
{
    struct socket_fabric *fabric = socket_fabric_of(endpoint->base.fabric);
    char location[FABRIC_LOCATION_MAX];
    struct client_connect connect = {
        .protocol = fabric->protocol,
        .credentials = fabric->credentials,
        .timeout_ns = fabric->timeout_ns,
        .location = location,
        .node = endpoint->base.node,
        .claim = {.endpoint_id = endpoint->id,
                  .identity = endpoint->base.identity,
                  .window = endpoint->base.window},
    };
    enum pando_status status = PANDO_OK;

    if (!client_peers_find(&fabric->peers, endpoint->base.node, &connect.target, location))
        return PANDO_NOT_FOUND;
    if (endpoint->ops->prepare_co != NULL)
        status = endpoint->ops->prepare_co(endpoint, connect.claim.extra);
    if (status == PANDO_OK)
        status = handshake_co(endpoint, &connect);
    if (status != PANDO_OK) {
        endpoint->ops->close(endpoint);
        stream_close(&endpoint->stream);
    }
    return status;
}

enum pando_status client_endpoint_connect_co(struct client_endpoint *endpoint)
{
    enum pando_status status = secret_nonce((uint8_t *)&endpoint->id, sizeof(endpoint->id));
    return status == PANDO_OK ? establish_co(endpoint) : status;
}

enum pando_status client_endpoint_reconnect_co(struct fabric_endpoint *base)
{
    struct client_endpoint *endpoint = client_endpoint_of(base);
    client_endpoint_break(endpoint, "reconnecting");
    base->identity = fabric_identity_now(base->fabric);
    /* The same id: the server ends the former connection before it lets this one in. */
    return establish_co(endpoint);
}
