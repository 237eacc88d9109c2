/*
 * request.c - calls and fences being served, and their replies.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/shm/server_int.h"

/* ---- a bounded set of requests --------------------------------------------------------------- */

bool shm_request_free(const struct shm_server *server)
{
    return !list_empty(&server->idle) || server->request_count < SHM_REQUESTS_MAX;
}

struct shm_request *shm_request_take(struct shm_server *server)
{
    struct list *link = list_pop_front(&server->idle);
    if (link != NULL)
        return container_of(link, struct shm_request, link);
    if (server->request_count == SHM_REQUESTS_MAX)
        return NULL;
    struct shm_request *request = malloc(sizeof(*request));
    if (request == NULL)
        return NULL;
    list_init(&request->link);
    server->request_count++;
    return request;
}

void shm_request_give(struct shm_server *server, struct shm_request *request)
{
    list_push_front(&server->idle, &request->link);
}

void shm_requests_destroy(struct shm_server *server)
{
    struct list *link;
    pando_assert(list_empty(&server->running));
    while ((link = list_pop_front(&server->idle)) != NULL)
        free(container_of(link, struct shm_request, link));
}

/* ---- replies --------------------------------------------------------------------------------- */

struct queued_reply {
    struct list link;
    size_t size;
    uint8_t data[];
};

/* OK, AGAIN when the client does not read, or BROKEN. */
static enum pando_status socket_send(struct shm_connection *connection, const void *data,
                                     size_t size)
{
    ssize_t sent;
    do {
        sent = send(connection->socket.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return PANDO_OK;
    return errno == EAGAIN || errno == EWOULDBLOCK ? PANDO_AGAIN : PANDO_BROKEN;
}

static bool queue_add(struct shm_connection *connection, const void *data, size_t size)
{
    struct shm_server *server = connection->server;
    struct queued_reply *reply = NULL;

    if (size <= SHM_QUEUED_BYTES_MAX - server->queued_bytes)
        reply = malloc(sizeof(*reply) + size);
    if (reply == NULL) {
        log_warn("dropped a client that does not read its replies",
                 log_u64("process", connection->process.who.process));
        return false;
    }
    reply->size = size;
    memcpy(reply->data, data, size);
    list_push_back(&connection->queue, &reply->link);
    server->queued_bytes += size;
    return true;
}

static void queue_remove(struct shm_connection *connection, struct queued_reply *reply)
{
    connection->server->queued_bytes -= reply->size;
    list_remove(&reply->link);
    free(reply);
}

bool shm_queue_send(struct shm_connection *connection)
{
    while (!list_empty(&connection->queue)) {
        struct queued_reply *reply =
            container_of(connection->queue.next, struct queued_reply, link);
        enum pando_status status = socket_send(connection, reply->data, reply->size);
        if (status == PANDO_AGAIN)
            return true;
        if (status != PANDO_OK) {
            shm_connection_close(connection);
            return false;
        }
        queue_remove(connection, reply);
    }
    shm_connection_update(connection);
    return true;
}

void shm_queue_drop(struct shm_connection *connection)
{
    while (!list_empty(&connection->queue))
        queue_remove(connection, container_of(connection->queue.next, struct queued_reply, link));
}

bool shm_reply(struct shm_connection *connection, struct shm_request *request,
               enum pando_status status, uint32_t body_bytes)
{
    enum pando_status sent = PANDO_AGAIN;
    size_t size = sizeof(struct shm_header) + body_bytes;

    request->out.header = (struct shm_header){
        .type = SHM_REPLY,
        .code = (uint16_t)status,
        .size = body_bytes,
        .tag = request->in.header.tag,
    };
    if (list_empty(&connection->queue))
        sent = socket_send(connection, &request->out, size);
    if (sent == PANDO_AGAIN && queue_add(connection, &request->out, size)) {
        shm_connection_update(connection);
        return true;
    }
    if (sent != PANDO_OK)
        shm_connection_close(connection);
    return sent == PANDO_OK;
}

/* ---- serving --------------------------------------------------------------------------------- */

static void request_end(struct shm_request *request, enum pando_status status, uint32_t body_bytes)
{
    struct shm_connection *connection = request->connection;
    struct shm_server *server = connection->server;

    if (!connection->closed)
        (void)shm_reply(connection, request, status, body_bytes);
    if (--connection->requests == 0 && connection->closed)
        free(connection);
    list_remove(&request->link);
    shm_request_give(server, request);
    rt_waitq_wake_all(&server->request_ended);
    shm_server_feed(server);
}

static void serve_call(void *arg)
{
    struct shm_request *request = arg;
    const struct shm_header *header = &request->in.header;
    struct fabric_request call = {
        .from = request->from,
        .method = header->code,
        .body = slice_of(request->in.bytes + sizeof(*header), header->size),
        .reply = request->out.bytes + sizeof(*header),
    };
    enum pando_status status =
        fabric_serve_request(&request->connection->server->fabric->base, &call);
    request_end(request, status, call.reply_size);
}

static void serve_fence(void *arg)
{
    struct shm_request *request = arg;
    struct shm_fence fence;

    memcpy(&fence, request->in.bytes + sizeof(struct shm_header), sizeof(fence));
    struct shm_server *server = request->connection->server;
    struct fabric_ticket ticket = {
        .who = {.member = fence.member, .incarnation = fence.incarnation}};
    memcpy(ticket.seal, fence.seal, sizeof(ticket.seal));
    enum pando_status status = fabric_fence_check(&server->fabric->base, &ticket);
    if (status == PANDO_OK)
        status = shm_server_fence_here_co(server, ticket.who, false);
    request_end(request, status, 0);
}

void shm_request_start(struct shm_connection *connection, struct shm_request *request)
{
    rt_fn serve = request->in.header.type == SHM_CALL ? serve_call : serve_fence;

    request->connection = connection;
    request->from = connection->identity;
    connection->requests++;
    list_push_back(&connection->server->running, &request->link);
    if (rt_spawn(rt_loop_self(), serve, request) != PANDO_OK)
        request_end(request, PANDO_NO_MEMORY, 0);
}
