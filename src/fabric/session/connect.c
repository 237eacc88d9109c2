/*
 * connect.c - the client's handshake, on a task.
 */
#include "fabric/session/connect.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/session/channel.h"
#include "fabric/session/session_int.h"

__attribute__((format(printf, 3, 4))) static enum pando_status
fail(struct client_attempt *attempt, enum pando_status status, const char *format, ...)
{
    struct client_connect *connect = attempt->connect;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(connect->trouble, sizeof(connect->trouble), format, arguments);
    va_end(arguments);
    return status;
}

/* ---- the socket ------------------------------------------------------------------------------ */

static void resolve_blocking(void *arg)
{
    struct client_attempt *attempt = arg;
    attempt->resolved = socket_resolve(attempt->connect->location, false, &attempt->address,
                                       attempt->error, sizeof(attempt->error));
}

static enum pando_status unreachable(struct client_attempt *attempt, int error)
{
    if (error == ECONNREFUSED) /* the status says it all */
        return PANDO_BROKEN;
    return fail(attempt, PANDO_BROKEN, "cannot reach it: %s; check the address and the network",
                strerror(error));
}

static enum pando_status socket_open_co(struct client_attempt *attempt)
{
    enum pando_status status = rt_blocking_co(resolve_blocking, attempt);
    if (status != PANDO_OK)
        return status;
    if (attempt->resolved != PANDO_OK)
        return fail(attempt, attempt->resolved, "%s; check the name", attempt->error);
    attempt->stream.fd = socket_connect(&attempt->address);
    if (attempt->stream.fd < 0)
        return unreachable(attempt, errno);
    status = channel_wait_co(attempt->stream.fd, EPOLLOUT, attempt->deadline_ns);
    if (status != PANDO_OK)
        return status;
    int error = socket_error(attempt->stream.fd);
    if (error != 0)
        return unreachable(attempt, error);
    socket_tune(attempt->stream.fd, (unsigned)(attempt->connect->timeout_ns / RT_NS_PER_MS));
    return PANDO_OK;
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* With the secret as the key: whoever shows a certificate instead is trusted by nobody. */
static const char *keyed_advice(enum tls_trouble trouble)
{
    switch (trouble) {
    case TLS_NOTHING_SHARED:
        return "wrong secret: it does not know the one of --secret-file; give its own";
    case TLS_AUTHORITY_UNKNOWN:
    case TLS_NAME_WRONG:
    case TLS_OUT_OF_DATE:
        return "it shows a certificate; give --tls-ca with the authority that signed it";
    case TLS_NOT_SPOKEN:
        return "it does not speak TLS 1.3; use programs of one release";
    default:
        return NULL;
    }
}

static const char *certified_advice(enum tls_trouble trouble)
{
    switch (trouble) {
    case TLS_NOTHING_SHARED:
        return "it has no certificate; leave --tls-ca out, or start it with --tls-cert and "
               "--tls-key";
    case TLS_AUTHORITY_UNKNOWN:
        return "wrong authority: its certificate is not signed by the one of --tls-ca; give the "
               "right one";
    case TLS_NAME_WRONG:
        return "its certificate is for another host; use a name that is in the certificate";
    case TLS_OUT_OF_DATE:
        return "its certificate is not valid today; renew it, or set the clock";
    case TLS_CERTIFICATE_WANTED:
        return "it wants a certificate of its clients; give --tls-cert and --tls-key";
    case TLS_CERTIFICATE_REFUSED:
        return "it does not trust the certificate of --tls-cert; give one that its --tls-ca signed";
    case TLS_NOT_SPOKEN:
        return "it does not speak TLS 1.3; use programs of one release";
    default:
        return NULL;
    }
}

static enum pando_status tls_failed(struct client_attempt *attempt)
{
    enum tls_trouble trouble = attempt->stream.trouble;
    bool certified = credentials_certified(attempt->connect->credentials);
    const char *advice = certified ? certified_advice(trouble) : keyed_advice(trouble);
    if (advice != NULL)
        return fail(attempt, PANDO_DENIED, "%s", advice);
    return fail(attempt, PANDO_DENIED, "TLS failed: %s; its log says more",
                tls_trouble_text(trouble));
}

static enum pando_status tls_open_co(struct client_attempt *attempt)
{
    const struct client_connect *connect = attempt->connect;
    if (!credentials_want_tls(connect->credentials, attempt->stream.fd))
        return PANDO_OK;
    SSL_CTX *context = connect->target == FABRIC_MEMORY ? attempt->credentials->to_memory
                                                        : attempt->credentials->to_members;
    if (context == NULL)
        return fail(attempt, PANDO_DENIED, "TLS needs --tls-ca to know whom to trust");
    enum pando_status status =
        tls_attach_context(&attempt->stream, context, TLS_CLIENT, attempt->host.host);
    if (status == PANDO_OK)
        status = channel_tls_co(&attempt->stream, attempt->deadline_ns);
    return status == PANDO_DENIED ? tls_failed(attempt) : status;
}

/* ---- proofs ---------------------------------------------------------------------------------- */

/* What a server says of a refusal; it may be anybody, so this is for a person only. */
static enum pando_status refused(struct client_attempt *attempt, const uint8_t *body)
{
    struct handshake_welcome welcome;
    enum pando_status status = handshake_get_welcome(&attempt->handshake, body, &welcome);
    switch (welcome.refusal) {
    case WIRE_REFUSED_SECRET:
        return fail(attempt, status,
                    "wrong secret: it does not know the one of --secret-file; give its own");
    case WIRE_REFUSED_PLAIN:
        return fail(attempt, status,
                    credentials_insecure(attempt->connect->credentials)
                        ? "it refuses plain TCP; leave --insecure-tcp out, or give it on both sides"
                        : "it wants TLS on loopback, too; give --require-tls");
    case WIRE_REFUSED_UNCERTIFIED:
        return fail(attempt, status, "it wants TLS with certificates; give --tls-ca%s",
                    credentials_insecure(attempt->connect->credentials)
                        ? ", and leave --insecure-tcp out"
                        : "");
    case WIRE_REFUSED_WINDOW: /* whoever connects says what that means */
        log_debug("a memory node says that it has another window",
                  log_u64("node", attempt->connect->node),
                  log_hex("expected", attempt->connect->claim.window));
        return status;
    default:
        return status;
    }
}

/* The stream ended, perhaps with a last word of TLS. */
static enum pando_status ended(struct client_attempt *attempt, enum pando_status status)
{
    if (status == PANDO_BROKEN && attempt->stream.trouble > TLS_CUT)
        return tls_failed(attempt);
    return status;
}

/* A frame of this type and size, or a WELCOME that says why not. */
static enum pando_status expect_co(struct client_attempt *attempt, enum wire_type type,
                                   uint8_t *body, uint32_t size)
{
    struct wire_frame frame;
    enum pando_status status = channel_receive_frame_co(&attempt->stream, &frame, body,
                                                        HANDSHAKE_BODY_MAX, attempt->deadline_ns);
    if (status != PANDO_OK)
        return ended(attempt, status);
    if (frame.type == type && frame.size == size &&
        (type != WIRE_WELCOME || wire_get_u16(body) == PANDO_OK))
        return PANDO_OK;
    /* A refusal has no proof; a WELCOME that says OK here is none. */
    if (frame.type != WIRE_WELCOME || frame.size < WIRE_WELCOME_FIXED ||
        wire_get_u16(body) == PANDO_OK)
        return PANDO_DENIED;
    return refused(attempt, body);
}

static enum pando_status send_co(struct client_attempt *attempt, enum wire_type type,
                                 const uint8_t *body, uint32_t size)
{
    return ended(attempt,
                 channel_send_frame_co(&attempt->stream, type, body, size, attempt->deadline_ns));
}

enum pando_status client_hello_co(struct client_attempt *attempt)
{
    uint8_t body[HANDSHAKE_BODY_MAX];
    enum pando_status status = stream_binding(&attempt->stream, attempt->handshake.binding);
    if (status == PANDO_OK)
        status = handshake_put_hello(&attempt->handshake, body);
    if (status == PANDO_OK)
        status = send_co(attempt, WIRE_HELLO, body, WIRE_HELLO_BYTES);
    if (status == PANDO_OK)
        status = expect_co(attempt, WIRE_CHALLENGE, body, WIRE_CHALLENGE_BYTES);
    if (status == PANDO_OK)
        memcpy(attempt->handshake.server_nonce, body, WIRE_NONCE_BYTES);
    return status;
}

enum pando_status client_prove_co(struct client_attempt *attempt)
{
    struct client_connect *connect = attempt->connect;
    const struct handshake_protocol *protocol = connect->protocol;
    uint8_t body[HANDSHAKE_BODY_MAX];

    enum pando_status status = handshake_put_proof(&attempt->handshake, &connect->claim, body);
    if (status == PANDO_OK)
        status = send_co(attempt, WIRE_PROOF, body, handshake_proof_bytes(protocol));
    if (status == PANDO_OK)
        status = expect_co(attempt, WIRE_WELCOME, body, handshake_welcome_bytes(protocol));
    if (status != PANDO_OK)
        return status;
    status = handshake_get_welcome(&attempt->handshake, body, &connect->welcome);
    if (status == PANDO_DENIED)
        return fail(attempt, status,
                    "what answers there does not know the secret; check the address");
    if (status != PANDO_OK)
        return status;
    if (connect->welcome.node != connect->node) {
        log_warn("another node than expected answers", log_text("at", connect->location),
                 log_u64("expected", connect->node), log_u64("found", connect->welcome.node));
        return PANDO_INVALID;
    }
    return fabric_window_check(connect->node, connect->welcome.target, connect->claim.window,
                               connect->welcome.window);
}

enum pando_status client_connect_co(struct client_connect *connect, struct stream *out)
{
    struct credential_set *credentials = credentials_hold(connect->credentials);
    struct client_attempt attempt = {
        .connect = connect,
        .credentials = credentials,
        .handshake = {.protocol = connect->protocol, .secrets = credentials->secrets},
        .stream = {.fd = -1},
        .deadline_ns = rt_now_ns() + connect->timeout_ns,
    };
    connect->trouble[0] = '\0';
    enum pando_status status = parse_host_port(connect->location, &attempt.host);
    if (status == PANDO_OK)
        status = socket_open_co(&attempt);
    if (status == PANDO_OK)
        status = tls_open_co(&attempt);
    if (status == PANDO_OK)
        status = client_hello_co(&attempt);
    if (status == PANDO_OK)
        status = client_prove_co(&attempt);
    credentials_release(credentials);
    if (status == PANDO_OK) {
        *out = attempt.stream;
        return PANDO_OK;
    }
    stream_close(&attempt.stream);
    if (connect->trouble[0] != '\0')
        log_warn("cannot connect", log_text("to", connect->location),
                 log_text("why", connect->trouble));
    return status;
}
