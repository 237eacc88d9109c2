/*
 * serve.c - requests of a connection that run as tasks: calls, fences, admission. Each holds the
 * connection until it is done; by then it may be closed, and the answer goes nowhere.
 */
#include <stdlib.h>

#include "base/log.h"
#include "fabric/tcp/tcp_int.h"

struct request {
    struct connection *connection;
    uint64_t tag;
    uint16_t word; /* method */
    struct fabric_identity identity;
    uint32_t size;
    uint8_t body[];
};

static struct tcp_fabric *fabric_of(struct connection *connection)
{
    return connection->thread->server->fabric;
}

static void answer(struct connection *connection, uint64_t tag, enum pando_status status,
                   const uint8_t *body, uint32_t size)
{
    if (connection->state == CONNECTION_CLOSED)
        return;
    frame_close(&connection->out, &connection->results, WIRE_RESULTS);
    uint8_t *to = frame_whole(&connection->out, WIRE_REPLY, WIRE_CALL_HEADER + wire_padded(size));
    if (to == NULL) {
        connection_close(connection, "it does not read its replies");
        return;
    }
    wire_put_call(to, tag, (uint16_t)status, body, size);
    (void)connection_flush(connection);
}

static bool request_start(struct connection *connection, rt_fn task, uint64_t tag, uint16_t word,
                          struct fabric_identity identity, const uint8_t *body, uint32_t size)
{
    struct request *request = malloc(sizeof(*request) + size);
    if (request == NULL)
        return false;
    request->connection = connection;
    request->tag = tag;
    request->word = word;
    request->identity = identity;
    request->size = size;
    if (size > 0)
        memcpy(request->body, body, size);
    if (rt_spawn(server_loop(connection->thread), task, request) != PANDO_OK) {
        free(request);
        return false;
    }
    connection->holds++;
    return true;
}

static void request_end(struct request *request)
{
    connection_release(request->connection);
    free(request);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void call_task(void *arg)
{
    struct request *request = arg;
    uint8_t *reply = malloc(FABRIC_CALL_BYTES_MAX);
    struct fabric_request served = {
        .from = request->connection->identity,
        .method = request->word,
        .body = slice_of(request->body, request->size),
        .reply = reply,
    };
    enum pando_status status =
        reply == NULL ? PANDO_NO_MEMORY
                      : fabric_serve_request(&fabric_of(request->connection)->base, &served);
    answer(request->connection, request->tag, status, reply, served.reply_size);
    free(reply);
    request_end(request);
}

bool connection_call(struct connection *connection, const struct wire_call *call)
{
    /* Calls only: a fence must get through, whatever else is waiting. */
    if (connection->holds >= FABRIC_CALLS_MAX) {
        answer(connection, call->tag, PANDO_AGAIN, NULL, 0);
        return true;
    }
    return request_start(connection, call_task, call->tag, call->word, connection->identity,
                         call->body, call->size);
}

/* ---- fences ---------------------------------------------------------------------------------- */

static void fence_task(void *arg)
{
    struct request *request = arg;
    struct connection *connection = request->connection;
    struct tcp_fabric *fabric = fabric_of(connection);
    struct drop_filter filter = {.identity = request->identity};

    /* First the record, so that no new connection gets in; then those that are. A thread handles
     * the drop between two lists, so none is left running when it has answered. */
    window_fence(&fabric->window, request->identity);
    enum pando_status status = server_drop_co(fabric->server, &filter);
    log_info("member fenced", log_u64("member", request->identity.member),
             log_u64("incarnation", request->identity.incarnation), log_status("status", status));
    answer(connection, request->tag, status, NULL, 0);
    request_end(request);
}

bool connection_fence(struct connection *connection, const uint8_t *body)
{
    struct fabric_identity identity = {.member = wire_get_u16(body + 8),
                                       .incarnation = wire_get_u16(body + 10)};
    if (identity.member == 0 || identity.member >= FABRIC_MEMBERS_MAX)
        return false;
    return request_start(connection, fence_task, wire_get_u64(body), 0, identity, NULL, 0);
}

/* ---- admission ------------------------------------------------------------------------------- */

static bool welcome(struct connection *connection, enum pando_status status)
{
    struct tcp_fabric *fabric = fabric_of(connection);
    uint8_t *body = frame_whole(&connection->out, WIRE_WELCOME, WIRE_WELCOME_BYTES);
    if (body == NULL)
        return false;
    memset(body, 0, WIRE_WELCOME_BYTES);
    wire_put_u16(body, (uint16_t)status);
    wire_put_u16(body + 2, fabric->base.node);
    body[4] = (uint8_t)fabric->base.target;
    wire_put_u64(body + 8, fabric->base.window_bytes);
    wire_put_u64(body + 16, fabric->base.device_bytes);
    return handshake_proof(&fabric->secret, HANDSHAKE_SERVER, &connection->handshake,
                           slice_of(body, 24), body + 24) == PANDO_OK &&
           connection_flush(connection);
}

static void admit_task(void *arg)
{
    struct request *request = arg;
    struct connection *connection = request->connection;
    struct tcp_fabric *fabric = fabric_of(connection);
    struct drop_filter filter = {.endpoint_id = request->tag, .except = connection};

    enum pando_status status = server_drop_co(fabric->server, &filter);
    if (connection->state == CONNECTION_CLOSED)
        goto out;
    /* No suspension between this look and OPEN: a fence that comes later finds the connection. */
    if (status == PANDO_OK && window_fenced(&fabric->window, request->identity))
        status = PANDO_FENCED;
    if (!welcome(connection, status) || status != PANDO_OK) {
        connection_close(connection, status == PANDO_FENCED ? "its member is fenced" : NULL);
        goto out;
    }
    connection->identity = request->identity;
    connection->endpoint_id = request->tag;
    connection->state = CONNECTION_OPEN;
    atomic_fetch_sub(&connection->thread->server->strangers, 1);
    (void)connection_poll(connection);
out:
    request_end(request);
}

bool connection_admit(struct connection *connection, const uint8_t *body)
{
    struct fabric_identity identity = {.member = wire_get_u16(body + 8),
                                       .incarnation = wire_get_u16(body + 10)};
    uint64_t endpoint_id = wire_get_u64(body);
    return request_start(connection, admit_task, endpoint_id, 0, identity, NULL, 0);
}
