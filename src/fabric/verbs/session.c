/*
 * session.c - the server's side of a connection: a queue pair through which the client reaches the
 * window without us, packets with its calls, and a socket that says whether it lives.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "fabric/verbs/verbs_int.h"

struct verbs_session {
    struct session base;
    struct queue queue;
    struct messages messages;
    unsigned peer_credits;
    struct rt_fd fd;
    uint8_t ping[WIRE_FRAME_HEADER];
    size_t ping_bytes;
};

static struct verbs_session *session_of(struct session *base)
{
    return container_of(base, struct verbs_session, base);
}

static struct verbs_session *session_of_queue(struct queue *queue)
{
    return container_of(queue, struct verbs_session, queue);
}

/* ---- packets --------------------------------------------------------------------------------- */

static bool on_frame(struct messages *messages, const struct wire_frame *frame, const uint8_t *body)
{
    struct verbs_session *session = container_of(messages, struct verbs_session, messages);
    struct wire_call call;
    if (frame->type == WIRE_CALL)
        return wire_get_call(body, frame->size, &call) == WIRE_OK &&
               session_serve_call(&session->base, &call);
    return frame->type == WIRE_FENCE && frame->size == WIRE_FENCE_BYTES &&
           session_serve_fence(&session->base, body);
}

static void on_list_done(struct queue *queue)
{
    queue_fail(queue, "a completion that nobody waits for");
}

static void on_sent(struct queue *queue, unsigned place)
{
    messages_sent(&session_of_queue(queue)->messages, place);
}

static void on_received(struct queue *queue, unsigned place, uint32_t bytes)
{
    messages_received(&session_of_queue(queue)->messages, place, bytes);
}

static bool on_busy(const struct queue *queue)
{
    return bytes_used(&session_of_queue((struct queue *)queue)->messages.out) > 0;
}

static void on_failed(struct queue *queue, const char *why)
{
    session_close(&session_of_queue(queue)->base, why);
}

static const struct queue_ops queue_ops = {
    .list_done = on_list_done,
    .sent = on_sent,
    .received = on_received,
    .busy = on_busy,
    .failed = on_failed,
};

/* It may run inside of a completion, where a session is not closed. */
static void session_answer(struct session *base, uint64_t tag, enum pando_status status,
                           const uint8_t *body, uint32_t size)
{
    struct verbs_session *session = session_of(base);
    uint8_t *to =
        messages_append(&session->messages, WIRE_REPLY, WIRE_CALL_HEADER + wire_padded(size));
    if (to == NULL) {
        queue_fail(&session->queue, "it does not read its replies");
        return;
    }
    wire_put_call(to, tag, (uint16_t)status, body, size);
    messages_pump(&session->messages);
    queue_heat(&session->queue);
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* PINGs, and the end. */
static void stream_ready(struct rt_fd *fd, uint32_t events)
{
    struct verbs_session *session = container_of(fd, struct verbs_session, fd);
    uint8_t pong[WIRE_FRAME_HEADER];
    struct wire_frame frame;
    (void)events;
    for (;;) {
        ssize_t got = stream_read(&session->base.stream, session->ping + session->ping_bytes,
                                  sizeof(session->ping) - session->ping_bytes);
        if (got < 0) {
            session_close(&session->base, NULL);
            return;
        }
        if (got == 0)
            return;
        session->ping_bytes += (size_t)got;
        if (session->ping_bytes < sizeof(session->ping))
            continue;
        session->ping_bytes = 0;
        wire_put_frame(pong, 0, WIRE_PONG, 0);
        if (wire_get_frame(session->ping, sizeof(session->ping), &frame) != WIRE_OK ||
            frame.type != WIRE_PING || frame.size != 0) {
            session_close(&session->base, "it does not speak the protocol");
            return;
        }
        /* One that does not read its PONGs finds no room for them, and gives us up. */
        (void)stream_write(&session->base.stream, pong, sizeof(pong));
    }
}

/* ---- the session's operations ---------------------------------------------------------------- */

static enum pando_status thread_start(struct session_thread *thread)
{
    struct lane *lane = NULL;
    enum pando_status status = lane_get(verbs_fabric_of(thread->server->fabric), &lane);
    thread->own = lane;
    return status;
}

static void thread_stop_co(struct session_thread *thread)
{
    if (thread->own != NULL)
        lane_put(thread->own);
}

static enum pando_status session_prepare_co(struct session *base, const uint8_t *proof_extra,
                                            uint8_t *welcome_extra)
{
    struct verbs_session *session = session_of(base);
    struct verbs_fabric *fabric = verbs_fabric_of(base->thread->server->fabric);
    struct verbs_remote_window window;
    struct verbs_end peer, end;

    if (!verbs_get_end(proof_extra, &peer))
        return PANDO_INVALID;
    if (base->thread->own == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        verbs_queue_create_co(&session->queue, base->thread->own, QUEUE_SERVES);
    if (status != PANDO_OK)
        return status;
    session->peer_credits = peer.credits;
    queue_tell(&session->queue, &end);
    status = verbs_queue_connect_co(&session->queue, &peer, fabric->timeout_ns);
    if (status != PANDO_OK)
        return status;
    device_window_tell(&fabric->shared, &window);
    verbs_put_end(welcome_extra, &end);
    verbs_put_window(welcome_extra + VERBS_END_BYTES, &window);
    return PANDO_OK;
}

static enum pando_status session_open(struct session *base)
{
    struct verbs_session *session = session_of(base);
    session->fd = (struct rt_fd){.fd = base->stream.fd, .events = EPOLLIN, .ready = stream_ready};
    enum pando_status status = rt_fd_add(session_loop(base->thread), &session->fd);
    if (status != PANDO_OK)
        return status;
    messages_init(&session->messages, &session->queue, session->peer_credits, on_frame);
    queue_open(&session->queue, &queue_ops);
    return PANDO_OK;
}

/* The queue pair goes at once, and with it whatever else of this client would still arrive. */
static void session_end(struct session *base)
{
    struct verbs_session *session = session_of(base);
    rt_fd_remove(session_loop(base->thread), &session->fd);
    queue_destroy(&session->queue);
}

static void session_release_all(struct session *base)
{
    struct verbs_session *session = session_of(base);
    queue_destroy(&session->queue);
    messages_fini(&session->messages);
}

const struct session_ops verbs_session_ops = {
    .thread_name = "pando-verbs",
    .session_bytes = sizeof(struct verbs_session),
    .thread_start = thread_start,
    .thread_stop_co = thread_stop_co,
    .prepare_co = session_prepare_co,
    .open = session_open,
    .close = session_end,
    .free = session_release_all,
    .answer = session_answer,
};
