/*
 * connect.c - the client's handshake, on a task.
 */
#include "fabric/session/connect.h"

#include <sys/epoll.h>

#include "base/log.h"
#include "base/parse.h"
#include "fabric/fabric_int.h"
#include "fabric/session/channel.h"

/* One connection in the making. */
struct attempt {
    struct session_connect *connect;
    struct handshake handshake;
    struct stream stream;
    uint64_t deadline_ns;
    struct host_port host;
    struct socket_address address;
    enum pando_status resolved;
    char error[256];
};

static void resolve_blocking(void *arg)
{
    struct attempt *attempt = arg;
    attempt->resolved = socket_resolve(attempt->connect->location, false, &attempt->address,
                                       attempt->error, sizeof(attempt->error));
}

static enum pando_status socket_open_co(struct attempt *attempt)
{
    enum pando_status status = rt_offload_co(resolve_blocking, attempt);
    if (status == PANDO_OK)
        status = attempt->resolved;
    if (status != PANDO_OK) {
        log_warn("cannot connect", log_text("to", attempt->connect->location),
                 log_text("why", attempt->error));
        return status;
    }
    attempt->stream.fd = socket_connect(&attempt->address);
    if (attempt->stream.fd < 0)
        return PANDO_BROKEN;
    status = channel_wait_co(attempt->stream.fd, EPOLLOUT, attempt->deadline_ns);
    if (status != PANDO_OK)
        return status;
    if (socket_error(attempt->stream.fd) != 0)
        return PANDO_BROKEN;
    socket_tune(attempt->stream.fd, (unsigned)(attempt->connect->timeout_ns / RT_NS_PER_MS));
    return PANDO_OK;
}

static enum pando_status tls_open_co(struct attempt *attempt)
{
    if (attempt->connect->tls == NULL)
        return PANDO_OK;
    enum pando_status status =
        tls_attach(&attempt->stream, attempt->connect->tls, TLS_CLIENT, attempt->host.host);
    if (status == PANDO_OK)
        status = channel_tls_co(&attempt->stream, attempt->deadline_ns);
    if (status == PANDO_DENIED)
        log_warn("TLS handshake failed", log_text("with", attempt->connect->location));
    return status;
}

/* A frame of this type and size, or a WELCOME that says why not. */
static enum pando_status expect_co(struct attempt *attempt, enum wire_type type, uint8_t *body,
                                   uint32_t size)
{
    struct handshake_welcome refusal;
    struct wire_frame frame;
    enum pando_status status = channel_receive_frame_co(&attempt->stream, &frame, body,
                                                        HANDSHAKE_BODY_MAX, attempt->deadline_ns);
    if (status != PANDO_OK)
        return status;
    if (frame.type == type && frame.size == size)
        return PANDO_OK;
    /* A refusal has no proof; a WELCOME that says OK here is none. */
    if (frame.type != WIRE_WELCOME || frame.size < WIRE_WELCOME_FIXED ||
        wire_get_u16(body) == PANDO_OK)
        return PANDO_DENIED;
    return handshake_get_welcome(&attempt->handshake, body, &refusal);
}

static enum pando_status hello_co(struct attempt *attempt)
{
    uint8_t body[HANDSHAKE_BODY_MAX];
    enum pando_status status = stream_binding(&attempt->stream, attempt->handshake.binding);
    if (status == PANDO_OK)
        status = handshake_put_hello(&attempt->handshake, body);
    if (status == PANDO_OK)
        status = channel_send_frame_co(&attempt->stream, WIRE_HELLO, body, WIRE_HELLO_BYTES,
                                       attempt->deadline_ns);
    if (status == PANDO_OK)
        status = expect_co(attempt, WIRE_CHALLENGE, body, WIRE_CHALLENGE_BYTES);
    if (status == PANDO_OK)
        memcpy(attempt->handshake.server_nonce, body, WIRE_NONCE_BYTES);
    return status;
}

static enum pando_status prove_co(struct attempt *attempt)
{
    struct session_connect *connect = attempt->connect;
    const struct handshake_protocol *protocol = connect->protocol;
    uint8_t body[HANDSHAKE_BODY_MAX];

    enum pando_status status = handshake_put_proof(&attempt->handshake, &connect->claim, body);
    if (status == PANDO_OK)
        status = channel_send_frame_co(&attempt->stream, WIRE_PROOF, body,
                                       handshake_proof_bytes(protocol), attempt->deadline_ns);
    if (status == PANDO_OK)
        status = expect_co(attempt, WIRE_WELCOME, body, handshake_welcome_bytes(protocol));
    if (status == PANDO_OK)
        status = handshake_get_welcome(&attempt->handshake, body, &connect->welcome);
    if (status != PANDO_OK)
        return status;
    if (connect->welcome.node != connect->node) {
        log_warn("another node than expected answers", log_text("at", connect->location),
                 log_u64("expected", connect->node), log_u64("found", connect->welcome.node));
        return PANDO_INVALID;
    }
    return fabric_window_check(connect->node, connect->welcome.target, connect->window,
                               connect->welcome.window);
}

enum pando_status session_connect_co(struct session_connect *connect, struct stream *out)
{
    struct attempt attempt = {
        .connect = connect,
        .handshake = {.protocol = connect->protocol, .secret = connect->secret},
        .stream = {.fd = -1},
        .deadline_ns = rt_now_ns() + connect->timeout_ns,
    };
    enum pando_status status = parse_host_port(connect->location, &attempt.host);
    if (status == PANDO_OK)
        status = socket_open_co(&attempt);
    if (status == PANDO_OK)
        status = tls_open_co(&attempt);
    if (status == PANDO_OK)
        status = hello_co(&attempt);
    if (status == PANDO_OK)
        status = prove_co(&attempt);
    if (status != PANDO_OK) {
        stream_close(&attempt.stream);
        return status;
    }
    *out = attempt.stream;
    return PANDO_OK;
}
