/*
 * connection.c - the server's side of a connection: a queue pair through which the client reaches the
 * window without us, packets with its calls, and a socket that says whether it lives.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "fabric/verbs/verbs_int.h"

struct verbs_connection {
    struct connection base;
    struct queue queue;
    struct messages messages;
    unsigned peer_credits;
    struct rt_fd fd;
    uint8_t ping[WIRE_FRAME_HEADER];
    size_t ping_bytes;
};

static struct verbs_connection *connection_of(struct connection *base)
{
    return container_of(base, struct verbs_connection, base);
}

static struct verbs_connection *connection_of_queue(struct queue *queue)
{
    return container_of(queue, struct verbs_connection, queue);
}

/* ---- packets --------------------------------------------------------------------------------- */

static bool on_frame(struct messages *messages, const struct wire_frame *frame, const uint8_t *body)
{
    struct verbs_connection *connection = container_of(messages, struct verbs_connection, messages);
    struct wire_call call;
    if (frame->type == WIRE_CALL)
        return wire_get_call(body, frame->size, &call) == WIRE_OK &&
               connection_serve_call(&connection->base, &call);
    return frame->type == WIRE_FENCE && frame->size == WIRE_FENCE_BYTES &&
           connection_serve_fence(&connection->base, body);
}

static void on_list_done(struct queue *queue)
{
    queue_fail(queue, "a completion that nobody waits for");
}

static void on_sent(struct queue *queue, unsigned place)
{
    messages_sent(&connection_of_queue(queue)->messages, place);
}

static void on_received(struct queue *queue, unsigned place, uint32_t bytes)
{
    messages_received(&connection_of_queue(queue)->messages, place, bytes);
}

static bool on_busy(const struct queue *queue)
{
    return bytes_used(&connection_of_queue((struct queue *)queue)->messages.out) > 0;
}

static void on_failed(struct queue *queue, const char *why)
{
    connection_close(&connection_of_queue(queue)->base, why);
}

static const struct queue_ops queue_ops = {
    .list_done = on_list_done,
    .sent = on_sent,
    .received = on_received,
    .busy = on_busy,
    .failed = on_failed,
};

/* It may run inside of a completion, where a connection is not closed. */
static void connection_answer(struct connection *base, uint64_t tag, enum pando_status status,
                              const uint8_t *body, uint32_t size)
{
    struct verbs_connection *connection = connection_of(base);
    uint8_t *to =
        messages_append(&connection->messages, WIRE_REPLY, WIRE_CALL_HEADER + wire_padded(size));
    if (to == NULL) {
        queue_fail(&connection->queue, "it does not read its replies");
        return;
    }
    wire_put_call(to, tag, (uint16_t)status, body, size);
    messages_pump(&connection->messages);
    queue_heat(&connection->queue);
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* PINGs, and the end. */
static void stream_ready(struct rt_fd *fd, uint32_t events)
{
    struct verbs_connection *connection = container_of(fd, struct verbs_connection, fd);
    uint8_t pong[WIRE_FRAME_HEADER];
    struct wire_frame frame;
    (void)events;
    for (;;) {
        ssize_t got =
            stream_read(&connection->base.stream, connection->ping + connection->ping_bytes,
                        sizeof(connection->ping) - connection->ping_bytes);
        if (got < 0) {
            connection_close(&connection->base, NULL);
            return;
        }
        if (got == 0)
            return;
        connection->ping_bytes += (size_t)got;
        if (connection->ping_bytes < sizeof(connection->ping))
            continue;
        connection->ping_bytes = 0;
        wire_put_frame(pong, 0, WIRE_PONG, 0);
        if (wire_get_frame(connection->ping, sizeof(connection->ping), &frame) != WIRE_OK ||
            frame.type != WIRE_PING || frame.size != 0) {
            connection_close(&connection->base, "it does not speak the protocol");
            return;
        }
        /* One that does not read its PONGs finds no room for them, and gives us up. */
        (void)stream_write(&connection->base.stream, pong, sizeof(pong));
    }
}

/* ---- the connection's operations ------------------------------------------------------------- */

static enum pando_status thread_start(struct connection_thread *thread)
{
    struct lane *lane = NULL;
    enum pando_status status = lane_get(verbs_fabric_of(thread->server->fabric), &lane);
    thread->own = lane;
    return status;
}

static void thread_stop_co(struct connection_thread *thread)
{
    if (thread->own != NULL)
        lane_put(thread->own);
}

static enum pando_status connection_prepare_co(struct connection *base, const uint8_t *proof_extra,
                                               uint8_t *welcome_extra)
{
    struct verbs_connection *connection = connection_of(base);
    struct verbs_fabric *fabric = verbs_fabric_of(base->thread->server->fabric);
    struct verbs_remote_window window;
    struct verbs_end peer, end;

    if (!verbs_get_end(proof_extra, &peer))
        return PANDO_INVALID;
    if (base->thread->own == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        verbs_queue_create_co(&connection->queue, base->thread->own, QUEUE_SERVES);
    if (status != PANDO_OK)
        return status;
    connection->peer_credits = peer.credits;
    queue_tell(&connection->queue, &end);
    status = verbs_queue_connect_co(&connection->queue, &peer, fabric->sockets.timeout_ns);
    if (status != PANDO_OK)
        return status;
    device_window_tell(&fabric->shared, &window);
    verbs_put_end(welcome_extra, &end);
    verbs_put_window(welcome_extra + VERBS_END_BYTES, &window);
    return PANDO_OK;
}

static enum pando_status connection_open(struct connection *base)
{
    struct verbs_connection *connection = connection_of(base);
    connection->fd =
        (struct rt_fd){.fd = base->stream.fd, .events = EPOLLIN, .ready = stream_ready};
    enum pando_status status = rt_fd_add(connection_loop(base->thread), &connection->fd);
    if (status != PANDO_OK)
        return status;
    messages_init(&connection->messages, &connection->queue, connection->peer_credits, on_frame);
    queue_open(&connection->queue, &queue_ops);
    return PANDO_OK;
}

/* The queue pair goes at once, and with it whatever else of this client would still arrive. */
static void connection_end(struct connection *base)
{
    struct verbs_connection *connection = connection_of(base);
    rt_fd_remove(connection_loop(base->thread), &connection->fd);
    queue_destroy(&connection->queue);
}

static void connection_release_all(struct connection *base)
{
    struct verbs_connection *connection = connection_of(base);
    queue_destroy(&connection->queue);
    messages_fini(&connection->messages);
}

const struct connection_ops verbs_connection_ops = {
    .thread_name = "pando-verbs",
    .connection_bytes = sizeof(struct verbs_connection),
    .thread_start = thread_start,
    .thread_stop_co = thread_stop_co,
    .prepare_co = connection_prepare_co,
    .open = connection_open,
    .close = connection_end,
    .free = connection_release_all,
    .answer = connection_answer,
};
