/*
 * accept.c - a new socket becomes a connection, on a task of its own: TLS, proof, the end of the
 * endpoint's former connection, fences, and what the backend prepares.
 */
#include <sys/epoll.h>

#include "fabric/fabric_int.h"
#include "fabric/session/channel.h"
#include "fabric/session/session.h"

static const uint64_t STRANGER_NS = 5 * RT_NS_PER_S;

struct acceptance {
    struct connection *connection;
    struct handshake handshake;
    struct handshake_claim claim;
    struct handshake_welcome welcome;
    uint64_t deadline_ns;
    struct credential_set *credentials;
    const char *why; /* it was refused */
};

static struct connection_server *server_of(const struct connection *connection)
{
    return connection->thread->server;
}

/* TLS, if that is how it begins. Whether plain frames are taken is decided after its HELLO, so that an
 * older program is told that it is one. */
static enum pando_status tls_co(struct acceptance *acceptance)
{
    struct connection *connection = acceptance->connection;
    enum pando_status status =
        channel_wait_co(connection->stream.fd, EPOLLIN, acceptance->deadline_ns);
    if (status == PANDO_TIMEOUT)
        acceptance->why = "it proved nothing in time";
    if (status != PANDO_OK || socket_peek(connection->stream.fd) != TLS_FIRST_BYTE)
        return status;
    status =
        tls_attach_context(&connection->stream, acceptance->credentials->server, TLS_SERVER, NULL);
    if (status == PANDO_OK)
        status = channel_tls_co(&connection->stream, acceptance->deadline_ns);
    if (status == PANDO_DENIED)
        acceptance->why = tls_trouble_text(connection->stream.trouble);
    return status;
}

static enum pando_status receive_co(struct acceptance *acceptance, enum wire_type type,
                                    uint8_t *body, uint32_t size)
{
    struct wire_frame frame;
    enum pando_status status = channel_receive_frame_co(&acceptance->connection->stream, &frame,
                                                        body, size, acceptance->deadline_ns);
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
    return channel_send_frame_co(&acceptance->connection->stream, WIRE_WELCOME, body,
                                 handshake_welcome_bytes(acceptance->handshake.protocol),
                                 rt_now_ns() + STRANGER_NS);
}

/* Refuses plain frames where TLS is due. */
static enum pando_status protected_co(struct acceptance *acceptance)
{
    struct connection *connection = acceptance->connection;
    const struct credentials *credentials = server_of(connection)->credentials;
    if (connection->stream.ssl != NULL || !credentials_want_tls(credentials, connection->stream.fd))
        return PANDO_OK;
    acceptance->why = "plain TCP, where TLS is due";
    acceptance->welcome.refusal =
        credentials_certified(credentials) ? WIRE_REFUSED_UNCERTIFIED : WIRE_REFUSED_PLAIN;
    (void)welcome_co(acceptance, PANDO_DENIED);
    return PANDO_DENIED;
}

static enum pando_status hello_co(struct acceptance *acceptance)
{
    struct connection *connection = acceptance->connection;
    struct handshake *handshake = &acceptance->handshake;
    uint8_t body[WIRE_HELLO_BYTES];

    enum pando_status status = receive_co(acceptance, WIRE_HELLO, body, WIRE_HELLO_BYTES);
    if (status != PANDO_OK)
        return status;
    status = handshake_get_hello(handshake, body);
    if (status == PANDO_VERSION) {
        acceptance->why = "it speaks another version of the protocol";
        (void)welcome_co(acceptance, PANDO_VERSION);
    }
    if (status == PANDO_DENIED)
        acceptance->why = "it does not speak the protocol";
    if (status == PANDO_OK)
        status = protected_co(acceptance);
    if (status == PANDO_OK)
        status = secret_nonce(handshake->server_nonce, WIRE_NONCE_BYTES);
    if (status == PANDO_OK)
        status = stream_binding(&connection->stream, handshake->binding);
    if (status == PANDO_OK)
        status = channel_send_frame_co(&connection->stream, WIRE_CHALLENGE, handshake->server_nonce,
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
    acceptance->welcome.refusal = WIRE_REFUSED_SECRET;
    (void)welcome_co(acceptance, PANDO_DENIED);
    return PANDO_DENIED;
}

/* Its former connection ends here, unless it expects another window. From the moment its identity is set a fence finds the
 * connection; the look at the fences comes after that, so one of the two sees the other. */
static enum pando_status admit_co(struct acceptance *acceptance)
{
    struct connection *connection = acceptance->connection;
    struct connection_server *server = server_of(connection);
    struct connection_filter filter = {.endpoint_id = acceptance->claim.endpoint_id,
                                       .except = connection};

    enum pando_status status = fabric_window_admit(server->fabric, acceptance->claim.window,
                                                   acceptance->claim.identity, rt_now_ns());
    if (status != PANDO_OK) {
        acceptance->welcome.refusal = WIRE_REFUSED_WINDOW;
        return status;
    }
    status = connection_drop_co(server, &filter);
    connection->identity = acceptance->claim.identity;
    connection->endpoint_id = acceptance->claim.endpoint_id;
    if (status == PANDO_OK && window_fenced(server->window, connection->identity))
        status = PANDO_FENCED;
    if (status == PANDO_OK && connection->state != CONNECTION_CLOSED)
        status =
            server->ops->prepare_co(connection, acceptance->claim.extra, acceptance->welcome.extra);
    return status;
}

/* Says what came of it, and lets it in if it may. Between a last look at the state and OPEN nothing
 * suspends: whoever closes it later closes an open one. */
static void conclude_co(struct acceptance *acceptance, enum pando_status status)
{
    struct connection *connection = acceptance->connection;
    struct connection_server *server = server_of(connection);
    struct fabric *fabric = server->fabric;

    acceptance->welcome.node = fabric->node;
    acceptance->welcome.target = fabric->target;
    acceptance->welcome.window_bytes = fabric->window_bytes;
    acceptance->welcome.device_bytes = fabric->device_bytes;
    acceptance->welcome.window = fabric_window_id(fabric);
    enum pando_status sent = welcome_co(acceptance, status);
    if (connection->state == CONNECTION_CLOSED)
        return;
    if (sent == PANDO_OK && status == PANDO_OK)
        status = server->ops->open(connection);
    if (sent != PANDO_OK || status != PANDO_OK) {
        connection_close(connection,
                         status == PANDO_FENCED ? "its member is fenced" : acceptance->why);
        return;
    }
    connection->state = CONNECTION_OPEN;
}

static void accept_task(void *arg)
{
    struct connection *connection = arg;
    struct connection_server *server = server_of(connection);
    struct credential_set *credentials = credentials_hold(server->credentials);
    struct acceptance acceptance = {
        .connection = connection,
        .credentials = credentials,
        .handshake = {.protocol = server->protocol, .secrets = credentials->secrets},
        .deadline_ns = rt_now_ns() + STRANGER_NS,
    };
    enum pando_status status = tls_co(&acceptance);
    if (status == PANDO_OK)
        status = hello_co(&acceptance);
    if (status == PANDO_OK)
        status = proof_co(&acceptance);
    if (status == PANDO_OK && !strangers_leave(server->strangers, &connection->stranger))
        status = PANDO_BROKEN; /* another one has its place */
    if (status == PANDO_OK)
        conclude_co(&acceptance, admit_co(&acceptance));
    else
        connection_close(connection, acceptance.why);
    credentials_release(credentials);
    connection_release(connection);
}

void connection_accept(struct connection_server *server, struct connection *connection)
{
    list_push_back(&connection->thread->connections, &connection->link);
    connection_hold(connection);
    if (connection->thread->stopping ||
        rt_spawn(connection_loop(connection->thread), accept_task, connection) != PANDO_OK) {
        connection_close(connection, NULL);
        connection_release(connection);
    }
    (void)server;
}
