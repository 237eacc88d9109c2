/*
 * serve.c - requests of a connection that run as tasks. Each holds the connection until it is done;
 * by then it may be closed, and the answer goes nowhere.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/session/session.h"

enum { FENCES_MAX = 64 }; /* of one connection at a time: more get AGAIN */

struct request {
    struct connection *connection;
    uint64_t tag;
    uint16_t method;
    struct fabric_identity identity;
    uint32_t size;
    uint8_t body[];
};

static void answer(struct connection *connection, uint64_t tag, enum pando_status status,
                   const uint8_t *body, uint32_t size)
{
    if (connection->state == CONNECTION_OPEN)
        connection->thread->server->ops->answer(connection, tag, status, body, size);
}

static bool request_start(struct connection *connection, rt_fn task, uint64_t tag, uint16_t method,
                          struct fabric_identity identity, const uint8_t *body, uint32_t size)
{
    struct request *request = malloc(sizeof(*request) + size);
    if (request == NULL)
        return false;
    request->connection = connection;
    request->tag = tag;
    request->method = method;
    request->identity = identity;
    request->size = size;
    if (size > 0)
        memcpy(request->body, body, size);
    if (rt_spawn(connection_loop(connection->thread), task, request) != PANDO_OK) {
        free(request);
        return false;
    }
    connection_hold(connection);
    return true;
}

static void request_end(struct request *request)
{
    connection_release(request->connection);
    free(request);
}

/* Most calls come one after the other, and so much memory is not had or given back in no time. */
static uint8_t *reply_take(struct connection_thread *thread)
{
    uint8_t *reply = thread->reply;
    thread->reply = NULL;
    return reply != NULL ? reply : malloc(FABRIC_CALL_BYTES_MAX);
}

static void reply_give(struct connection_thread *thread, uint8_t *reply)
{
    if (thread->reply == NULL)
        thread->reply = reply;
    else
        free(reply);
}

static void serve_call_task(void *arg)
{
    struct request *request = arg;
    struct connection *connection = request->connection;
    struct connection_thread *thread = connection->thread;
    uint8_t *reply = reply_take(thread);
    struct fabric_request served = {
        .from = connection->identity,
        .method = request->method,
        .body = slice_of(request->body, request->size),
        .reply = reply,
    };
    enum pando_status status =
        reply == NULL ? PANDO_NO_MEMORY : fabric_serve_request(thread->server->fabric, &served);
    answer(connection, request->tag, status, reply, served.reply_size);
    reply_give(thread, reply);
    request_end(request);
}

bool connection_serve_call(struct connection *connection, const struct wire_call *call)
{
    /* Calls only: a fence must get through, whatever else is waiting. */
    if (connection->holds >= FABRIC_CALLS_MAX) {
        answer(connection, call->tag, PANDO_AGAIN, NULL, 0);
        return true;
    }
    return request_start(connection, serve_call_task, call->tag, call->word, connection->identity,
                         call->body, call->size);
}

/* Records the fence and ends the connections it concerns. */
static enum pando_status fence_co(struct connection_server *server, struct fabric_identity identity,
                                  bool calls_go_on)
{
    struct connection_filter filter = {.identity = identity, .calls_go_on = calls_go_on};

    /* First the record, so that nobody new gets in; then those that are. A thread handles the drop
     * between two lists, so none is left running when it has answered. */
    window_fence(server->window, identity);
    enum pando_status status = connection_drop_co(server, &filter);
    log_info("member fenced", log_u64("member", identity.member),
             log_u64("incarnation", identity.incarnation), log_status("status", status));
    return status;
}

static enum pando_status self_fence_co(struct connection_server *server,
                                       const struct window *window, struct fabric_identity dead,
                                       bool calls_go_on)
{
    if (server != NULL)
        return fence_co(server, dead, calls_go_on);
    window_fence(window, dead);
    return PANDO_OK;
}

enum pando_status connection_own_fence_co(struct connection_server *server,
                                          const struct window *window, struct fabric_identity dead)
{
    return self_fence_co(server, window, dead, true);
}

enum pando_status connection_self_fence_co(struct fabric *fabric, struct connection_server *server,
                                           const struct window *window,
                                           const struct fabric_ticket *ticket)
{
    enum pando_status status = fabric_fence_check(fabric, ticket);
    return status == PANDO_OK ? self_fence_co(server, window, ticket->who, false) : status;
}

static void fence_task(void *arg)
{
    struct request *request = arg;
    struct connection *connection = request->connection;
    enum pando_status status = fence_co(connection->thread->server, request->identity, false);
    connection->fences--;
    answer(connection, request->tag, status, NULL, 0);
    request_end(request);
}

/* What has no ticket is answered at once: no task and no memory of it is left waiting. */
bool connection_serve_fence(struct connection *connection, const uint8_t *body)
{
    struct fabric_ticket ticket;
    uint64_t tag = wire_get_fence(body, &ticket);
    enum pando_status status = fabric_fence_check(connection->thread->server->fabric, &ticket);
    if (status == PANDO_INVALID)
        return false;
    if (status == PANDO_OK && connection->fences >= FENCES_MAX)
        status = PANDO_AGAIN;
    if (status != PANDO_OK) {
        answer(connection, tag, status, NULL, 0);
        return true;
    }
    if (!request_start(connection, fence_task, tag, 0, ticket.who, NULL, 0))
        return false;
    connection->fences++;
    return true;
}
