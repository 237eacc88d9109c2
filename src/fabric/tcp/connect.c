/*
 * connect.c - the client's handshake, on a task: nothing here is hot.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "fabric/tcp/tcp_int.h"

/* ---- waiting for a socket -------------------------------------------------------------------- */

struct socket_wait {
    struct rt_fd fd;
    struct rt_task *task;
    bool ready;
};

static void wait_ready(struct rt_fd *fd, uint32_t events)
{
    struct socket_wait *wait = container_of(fd, struct socket_wait, fd);
    (void)events;
    wait->ready = true;
    rt_fd_change(rt_loop_self(), fd, 0);
    rt_unpark(wait->task);
}

static enum pando_status socket_wait_co(int fd, uint32_t events, uint64_t deadline_ns)
{
    struct socket_wait wait = {
        .fd = {.fd = fd, .events = events, .ready = wait_ready},
        .task = rt_task_self(),
    };
    enum pando_status status = rt_fd_add(rt_loop_self(), &wait.fd);
    if (status != PANDO_OK)
        return status;
    while (!wait.ready && status != PANDO_TIMEOUT)
        status = rt_park_co(deadline_ns);
    rt_fd_remove(rt_loop_self(), &wait.fd);
    return wait.ready ? PANDO_OK : PANDO_TIMEOUT;
}

/* ---- one connection in the making ------------------------------------------------------------ */

struct attempt {
    struct tcp_fabric *fabric;
    struct stream stream;
    uint64_t deadline_ns;
    struct handshake handshake;
    struct host_port host;
    const char *location;
    struct socket_address address;
    enum pando_status resolved;
    char error[256];
};

static void resolve_blocking(void *arg)
{
    struct attempt *attempt = arg;
    attempt->resolved = socket_resolve(attempt->location, false, &attempt->address, attempt->error,
                                       sizeof(attempt->error));
}

static enum pando_status socket_open_co(struct attempt *attempt)
{
    enum pando_status status = rt_offload_co(resolve_blocking, attempt);
    if (status == PANDO_OK)
        status = attempt->resolved;
    if (status != PANDO_OK) {
        log_warn("cannot connect", log_text("to", attempt->location),
                 log_text("why", attempt->error));
        return status;
    }
    attempt->stream.fd = socket_connect(&attempt->address);
    if (attempt->stream.fd < 0)
        return PANDO_BROKEN;
    status = socket_wait_co(attempt->stream.fd, EPOLLOUT, attempt->deadline_ns);
    if (status != PANDO_OK)
        return status;
    if (socket_error(attempt->stream.fd) != 0)
        return PANDO_BROKEN;
    socket_tune(attempt->stream.fd, (unsigned)(attempt->fabric->timeout_ns / RT_NS_PER_MS));
    return PANDO_OK;
}

static enum pando_status tls_open_co(struct attempt *attempt)
{
    if (attempt->fabric->client_tls == NULL)
        return PANDO_OK;
    enum pando_status status =
        tls_attach(&attempt->stream, attempt->fabric->client_tls, TLS_CLIENT, attempt->host.host);
    while (status == PANDO_OK) {
        status = tls_handshake(&attempt->stream);
        if (status != PANDO_AGAIN)
            break;
        status = socket_wait_co(attempt->stream.fd, EPOLLIN, attempt->deadline_ns);
    }
    if (status == PANDO_DENIED)
        log_warn("TLS handshake failed", log_text("with", attempt->location));
    return status;
}

static enum pando_status send_co(struct attempt *attempt, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = stream_write(&attempt->stream, bytes, size);
        if (put < 0)
            return PANDO_BROKEN;
        bytes += put;
        size -= (size_t)put;
        if (put > 0)
            continue;
        enum pando_status status =
            socket_wait_co(attempt->stream.fd, EPOLLOUT, attempt->deadline_ns);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

static enum pando_status receive_co(struct attempt *attempt, uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t got = stream_read(&attempt->stream, bytes, size);
        if (got < 0)
            return PANDO_BROKEN;
        bytes += got;
        size -= (size_t)got;
        if (got > 0)
            continue;
        enum pando_status status =
            socket_wait_co(attempt->stream.fd, EPOLLIN, attempt->deadline_ns);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

/* A frame of this type and size, or a WELCOME that says why not. */
static enum pando_status receive_frame_co(struct attempt *attempt, enum wire_type type,
                                          uint8_t *body, uint32_t size)
{
    uint8_t header[WIRE_FRAME_HEADER];
    uint8_t refusal[WIRE_WELCOME_BYTES];
    struct wire_frame frame;
    enum pando_status status = receive_co(attempt, header, sizeof(header));
    if (status != PANDO_OK)
        return status;
    if (wire_get_frame(header, sizeof(header), &frame) != WIRE_OK)
        return PANDO_DENIED; /* something else listens there */
    if (frame.type == type && frame.size == size)
        return receive_co(attempt, body, size);
    if (frame.type != WIRE_WELCOME || frame.size != sizeof(refusal))
        return PANDO_DENIED;
    status = receive_co(attempt, refusal, sizeof(refusal));
    if (status != PANDO_OK)
        return status;
    uint16_t code = wire_get_u16(refusal);
    return code == PANDO_OK || code >= PANDO_STATUS_COUNT ? PANDO_DENIED : (enum pando_status)code;
}

static enum pando_status hello_co(struct attempt *attempt)
{
    struct handshake *handshake = &attempt->handshake;
    uint8_t hello[WIRE_FRAME_HEADER + WIRE_HELLO_BYTES] = {0};
    uint8_t *body = hello + WIRE_FRAME_HEADER;

    enum pando_status status = secret_nonce(handshake->client_nonce, WIRE_NONCE_BYTES);
    if (status == PANDO_OK)
        status = stream_binding(&attempt->stream, handshake->binding);
    if (status != PANDO_OK)
        return status;
    wire_put_frame(hello, WIRE_HELLO_BYTES, WIRE_HELLO, 0);
    wire_put_u64(body, WIRE_MAGIC);
    wire_put_u16(body + 8, WIRE_VERSION);
    memcpy(body + 16, handshake->client_nonce, WIRE_NONCE_BYTES);
    status = send_co(attempt, hello, sizeof(hello));
    if (status != PANDO_OK)
        return status;
    return receive_frame_co(attempt, WIRE_CHALLENGE, handshake->server_nonce, WIRE_NONCE_BYTES);
}

static enum pando_status prove_co(struct attempt *attempt, struct tcp_endpoint *endpoint)
{
    uint8_t proof[WIRE_FRAME_HEADER + WIRE_PROOF_BODY_BYTES] = {0};
    uint8_t welcome[WIRE_WELCOME_BYTES], expected[WIRE_PROOF_BYTES];
    uint8_t *body = proof + WIRE_FRAME_HEADER;
    const struct secret *secret = &attempt->fabric->secret;

    wire_put_frame(proof, WIRE_PROOF_BODY_BYTES, WIRE_PROOF, 0);
    wire_put_u64(body, endpoint->endpoint_id);
    wire_put_u16(body + 8, endpoint->base.identity.member);
    wire_put_u16(body + 10, endpoint->base.identity.incarnation);
    enum pando_status status = handshake_proof(secret, HANDSHAKE_CLIENT, &attempt->handshake,
                                               slice_of(body, 16), body + 16);
    if (status == PANDO_OK)
        status = send_co(attempt, proof, sizeof(proof));
    if (status == PANDO_OK)
        status = receive_frame_co(attempt, WIRE_WELCOME, welcome, sizeof(welcome));
    if (status != PANDO_OK)
        return status;
    uint16_t code = wire_get_u16(welcome);
    if (code != PANDO_OK)
        return code >= PANDO_STATUS_COUNT ? PANDO_DENIED : (enum pando_status)code;
    status = handshake_proof(secret, HANDSHAKE_SERVER, &attempt->handshake, slice_of(welcome, 24),
                             expected);
    if (status != PANDO_OK)
        return status;
    if (!secret_proof_equal(expected, welcome + 24))
        return PANDO_DENIED; /* the server does not know the secret */
    if (wire_get_u16(welcome + 2) != endpoint->base.node) {
        log_warn("another node than expected answers", log_text("at", attempt->location),
                 log_u64("expected", endpoint->base.node),
                 log_u64("found", wire_get_u16(welcome + 2)));
        return PANDO_INVALID;
    }
    endpoint->base.target = welcome[4] == FABRIC_COMPUTE ? FABRIC_COMPUTE : FABRIC_MEMORY;
    return PANDO_OK;
}

static bool find_peer(struct tcp_fabric *fabric, uint16_t node, char *location)
{
    bool found = false;
    pthread_mutex_lock(&fabric->mutex);
    list_for_each (link, &fabric->peers) {
        struct peer *peer = container_of(link, struct peer, link);
        if (peer->node == node) {
            memcpy(location, peer->location, FABRIC_LOCATION_MAX);
            found = true;
        }
    }
    pthread_mutex_unlock(&fabric->mutex);
    return found;
}

static enum pando_status establish_co(struct tcp_endpoint *endpoint)
{
    struct tcp_fabric *fabric = tcp_fabric_of(endpoint->base.fabric);
    char location[FABRIC_LOCATION_MAX];
    if (!find_peer(fabric, endpoint->base.node, location))
        return PANDO_NOT_FOUND;
    struct attempt attempt = {
        .fabric = fabric,
        .stream = {.fd = -1},
        .deadline_ns = rt_now_ns() + fabric->timeout_ns,
        .location = location,
    };
    enum pando_status status = parse_host_port(location, &attempt.host);
    if (status == PANDO_OK)
        status = socket_open_co(&attempt);
    if (status == PANDO_OK)
        status = tls_open_co(&attempt);
    if (status == PANDO_OK)
        status = hello_co(&attempt);
    if (status == PANDO_OK)
        status = prove_co(&attempt, endpoint);
    if (status == PANDO_OK)
        status = tcp_endpoint_open(endpoint, attempt.stream);
    if (status != PANDO_OK)
        stream_close(&attempt.stream);
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
