/*
 * accept.c - a new socket becomes a session, on a task of its own: TLS, proof, the end of the
 * endpoint's former session, fences, and what the backend prepares.
 */
#include <sys/socket.h>

#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/session/channel.h"
#include "fabric/session/session.h"

static const uint64_t STRANGER_NS = 5 * RT_NS_PER_S;

struct acceptance {
    struct session *session;
    struct handshake handshake;
    struct handshake_claim claim;
    struct handshake_welcome welcome;
    uint64_t deadline_ns;
    const char *why; /* it was refused */
};

static struct session_server *server_of(const struct session *session)
{
    return session->thread->server;
}

static enum pando_status tls_co(struct acceptance *acceptance)
{
    struct session *session = acceptance->session;
    if (server_of(session)->tls == NULL)
        return PANDO_OK;
    enum pando_status status =
        tls_attach(&session->stream, server_of(session)->tls, TLS_SERVER, NULL);
    if (status == PANDO_OK)
        status = channel_tls_co(&session->stream, acceptance->deadline_ns);
    if (status == PANDO_DENIED)
        acceptance->why = "TLS handshake failed";
    return status;
}

static enum pando_status receive_co(struct acceptance *acceptance, enum wire_type type,
                                    uint8_t *body, uint32_t size)
{
    struct wire_frame frame;
    enum pando_status status = channel_receive_frame_co(&acceptance->session->stream, &frame, body,
                                                        size, acceptance->deadline_ns);
    if (status == PANDO_OK && (frame.type != type || frame.size != size))
        status = PANDO_DENIED;
    if (status == PANDO_TIMEOUT)
        acceptance->why = "it proved nothing in time";
    else if (status == PANDO_DENIED)
        acceptance->why = "it does not speak the protocol";
    return status;
}

static enum pando_status welcome_co(struct acceptance *acceptance, enum pando_status said)
{
    uint8_t body[HANDSHAKE_BODY_MAX];
    acceptance->welcome.status = said;
    enum pando_status status =
        handshake_put_welcome(&acceptance->handshake, &acceptance->welcome, body);
    if (status != PANDO_OK)
        return status;
    return channel_send_frame_co(&acceptance->session->stream, WIRE_WELCOME, body,
                                 handshake_welcome_bytes(acceptance->handshake.protocol),
                                 rt_now_ns() + STRANGER_NS);
}

static enum pando_status hello_co(struct acceptance *acceptance)
{
    struct session *session = acceptance->session;
    struct handshake *handshake = &acceptance->handshake;
    uint8_t body[WIRE_HELLO_BYTES];

    enum pando_status status = receive_co(acceptance, WIRE_HELLO, body, WIRE_HELLO_BYTES);
    if (status != PANDO_OK)
        return status;
    status = handshake_get_hello(handshake, body);
    if (status == PANDO_VERSION)
        (void)welcome_co(acceptance, PANDO_VERSION);
    if (status == PANDO_DENIED || status == PANDO_VERSION)
        acceptance->why = "it does not speak the protocol";
    if (status == PANDO_OK)
        status = secret_nonce(handshake->server_nonce, WIRE_NONCE_BYTES);
    if (status == PANDO_OK)
        status = stream_binding(&session->stream, handshake->binding);
    if (status == PANDO_OK)
        status = channel_send_frame_co(&session->stream, WIRE_CHALLENGE, handshake->server_nonce,
                                       WIRE_NONCE_BYTES, acceptance->deadline_ns);
    return status;
}

static enum pando_status proof_co(struct acceptance *acceptance)
{
    uint8_t body[HANDSHAKE_BODY_MAX];
    enum pando_status status = receive_co(acceptance, WIRE_PROOF, body,
                                          handshake_proof_bytes(acceptance->handshake.protocol));
    if (status != PANDO_OK)
        return status;
    status = handshake_get_proof(&acceptance->handshake, body, &acceptance->claim);
    if (status != PANDO_DENIED)
        return status;
    acceptance->why = "wrong secret";
    (void)welcome_co(acceptance, PANDO_DENIED);
    return PANDO_DENIED;
}

/* Its former session ends here. From the moment its identity is set a fence finds the session; the
 * look at the fences comes after that, so one of the two sees the other. */
static enum pando_status admit_co(struct acceptance *acceptance)
{
    struct session *session = acceptance->session;
    struct session_server *server = server_of(session);
    struct session_filter filter = {.endpoint_id = acceptance->claim.endpoint_id,
                                    .except = session};

    enum pando_status status = session_drop_co(server, &filter);
    session->identity = acceptance->claim.identity;
    session->endpoint_id = acceptance->claim.endpoint_id;
    if (status == PANDO_OK && !window_admit(server->window, session->identity))
        status = PANDO_FENCED;
    if (status == PANDO_OK && session->state != SESSION_CLOSED)
        status =
            server->ops->prepare_co(session, acceptance->claim.extra, acceptance->welcome.extra);
    return status;
}

/* Says what came of it, and lets it in if it may. Between a last look at the state and OPEN nothing
 * suspends: whoever closes it later closes an open one. */
static void conclude_co(struct acceptance *acceptance, enum pando_status status)
{
    struct session *session = acceptance->session;
    struct session_server *server = server_of(session);
    struct fabric *fabric = server->fabric;

    acceptance->welcome.node = fabric->node;
    acceptance->welcome.target = fabric->target;
    acceptance->welcome.window_bytes = fabric->window_bytes;
    acceptance->welcome.device_bytes = fabric->device_bytes;
    acceptance->welcome.window = fabric_window_id(fabric);
    enum pando_status sent = welcome_co(acceptance, status);
    if (session->state == SESSION_CLOSED)
        return;
    if (sent == PANDO_OK && status == PANDO_OK)
        status = server->ops->open(session);
    if (sent != PANDO_OK || status != PANDO_OK) {
        session_close(session, status == PANDO_FENCED ? "its member is fenced" : acceptance->why);
        return;
    }
    session->state = SESSION_OPEN;
    atomic_fetch_sub(&server->strangers, 1);
}

static void accept_task(void *arg)
{
    struct session *session = arg;
    struct session_server *server = server_of(session);
    struct acceptance acceptance = {
        .session = session,
        .handshake = {.protocol = server->protocol, .secret = server->secret},
        .deadline_ns = rt_now_ns() + STRANGER_NS,
    };
    enum pando_status status = tls_co(&acceptance);
    if (status == PANDO_OK)
        status = hello_co(&acceptance);
    if (status == PANDO_OK)
        status = proof_co(&acceptance);
    if (status == PANDO_OK)
        conclude_co(&acceptance, admit_co(&acceptance));
    else
        session_close(session, acceptance.why);
    session_release(session);
}

void session_accept(struct session_server *server, struct session *session)
{
    list_push_back(&session->thread->sessions, &session->link);
    session_hold(session);
    if (session->thread->stopping ||
        rt_spawn(session_loop(session->thread), accept_task, session) != PANDO_OK) {
        session_close(session, NULL);
        session_release(session);
    }
    (void)server;
}
