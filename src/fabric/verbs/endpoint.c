/*
 * endpoint.c - the client's side: lists are posted as they come, in one chain each, and complete in
 * order; calls go through packets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/verbs/verbs_int.h"

enum { SILENCE_CHECKS = 4 }; /* in the time after which a silent peer is given up */

static const uint64_t ROOM_NS = RT_NS_PER_MS;

static struct verbs_endpoint *endpoint_of_queue(struct queue *queue)
{
    return container_of(queue, struct verbs_endpoint, queue);
}

static uint64_t timeout_of(const struct verbs_endpoint *endpoint)
{
    return verbs_fabric_of(endpoint->base.fabric)->timeout_ns;
}

static bool expects_something(const struct verbs_endpoint *endpoint)
{
    return endpoint->base.outstanding > 0 || !list_empty(&endpoint->calls.waiting) ||
           bytes_used(&endpoint->messages.out) > 0;
}

/* ---- breaking -------------------------------------------------------------------------------- */

static uint8_t *buffer_of(const struct fabric_list *list)
{
    return (uint8_t *)(uintptr_t)list->scratch;
}

static void buffer_give(struct verbs_endpoint *endpoint, const struct fabric_list *list)
{
    uint32_t bytes = chain_buffer_bytes(&endpoint->target, list->ops, list->count);
    if (bytes > 0)
        buffers_give(&endpoint->lane->buffers, buffer_of(list), bytes);
    endpoint->lane->retry = true;
}

/* The queue is gone by now, so nobody writes to their buffers any more. */
static void fail_lists(struct verbs_endpoint *endpoint, struct fabric_list *list, bool posted)
{
    while (list != NULL) {
        struct fabric_list *next = list->next;
        if (posted)
            buffer_give(endpoint, list);
        fabric_list_done(&endpoint->base, list, PANDO_BROKEN);
        list = next;
    }
}

/* What an open endpoint has, without a word to those who wait. */
static void teardown(struct verbs_endpoint *endpoint)
{
    endpoint->base.broken = true;
    rt_timer_cancel(&endpoint->timer);
    if (endpoint->stream.fd >= 0) {
        rt_fd_remove(endpoint->base.loop, &endpoint->fd);
        stream_close(&endpoint->stream);
    }
    queue_destroy(&endpoint->queue);
    queue_destroy(&endpoint->mirror);
    list_remove(&endpoint->waiting_link);
}

void verbs_endpoint_break(struct verbs_endpoint *endpoint, const char *why)
{
    if (endpoint->base.broken)
        return;
    log_warn("endpoint broken", log_u64("node", endpoint->base.node), log_text("why", why));
    teardown(endpoint);
    struct fabric_list *sent = endpoint->sent, *waiting = endpoint->waiting;
    endpoint->sent = endpoint->waiting = NULL;
    endpoint->sent_tail = &endpoint->sent;
    endpoint->waiting_tail = &endpoint->waiting;
    fail_lists(endpoint, sent, true);
    fail_lists(endpoint, waiting, false);
    session_calls_fail(&endpoint->calls, PANDO_BROKEN);
}

/* ---- lists ----------------------------------------------------------------------------------- */

enum room { ROOM, NO_PLACE, NO_BUFFER };

static enum room post(struct verbs_endpoint *endpoint, struct fabric_list *list)
{
    struct lane *lane = endpoint->lane;
    struct queue *queue = &endpoint->queue;
    struct fabric_verbs_counters *counters = &endpoint->counters;
    uint8_t *buffer = NULL;

    if (queue->list_requests + list->count > QUEUE_LIST_REQUESTS || queue->failure != NULL)
        return NO_PLACE;
    uint32_t bytes = chain_buffer_bytes(&endpoint->target, list->ops, list->count);
    if (bytes > 0 && (buffer = buffers_take(&lane->buffers, bytes)) == NULL)
        return NO_BUFFER;
    list->scratch = (uintptr_t)buffer;
    list->next = NULL;
    *endpoint->sent_tail = list;
    endpoint->sent_tail = &list->next;
    chain_build(&endpoint->target, list->ops, list->count, buffer, lane->memory.region->lkey,
                (uint64_t)QUEUE_ID_LIST << 32, &lane->chain);
    if (queue_post(queue, lane->chain.requests, list->count)) {
        counters->lists++;
        counters->work_requests += list->count;
        counters->doorbells++;
        counters->signalled++;
        counters->inlined += lane->chain.inlined;
        counters->fences += lane->chain.fences;
    }
    return ROOM;
}

/* For a buffer one waits with all endpoints of the lane, for a place in the queue alone: another
 * node that does not answer must not hold up this one. */
bool verbs_endpoint_retry(struct verbs_endpoint *endpoint)
{
    enum room room = ROOM;
    while (endpoint->waiting != NULL) {
        struct fabric_list *list = endpoint->waiting, *next = list->next;
        room = post(endpoint, list);
        if (room != ROOM)
            break;
        endpoint->waiting = next;
    }
    if (endpoint->waiting == NULL)
        endpoint->waiting_tail = &endpoint->waiting;
    if (room != NO_BUFFER)
        list_remove(&endpoint->waiting_link);
    else if (list_empty(&endpoint->waiting_link))
        list_push_back(&endpoint->lane->waiting, &endpoint->waiting_link);
    return room != NO_BUFFER;
}

static void wait_for_room(struct verbs_endpoint *endpoint, struct fabric_list *list)
{
    list->next = NULL;
    *endpoint->waiting_tail = list;
    endpoint->waiting_tail = &list->next;
    endpoint->counters.waits++;
}

/* Nobody overtakes one that waits. */
static void post_or_wait(struct verbs_endpoint *endpoint, struct fabric_list *list)
{
    struct list *waiting = &endpoint->lane->waiting;
    enum room room = NO_PLACE;
    if (endpoint->waiting == NULL)
        room = list_empty(waiting) ? post(endpoint, list) : NO_BUFFER;
    if (room == ROOM)
        return;
    wait_for_room(endpoint, list);
    if (room == NO_BUFFER && list_empty(&endpoint->waiting_link))
        list_push_back(waiting, &endpoint->waiting_link);
}

static void timer_start(struct verbs_endpoint *endpoint)
{
    if (!heap_contains(&endpoint->timer.node)) {
        uint64_t now = rt_turn_ns(endpoint->base.loop);
        endpoint->input_ns = endpoint->done_ns = now;
        rt_timer_arm(&endpoint->timer, now + timeout_of(endpoint) / SILENCE_CHECKS);
    }
}

void verbs_post(struct fabric_endpoint *base, struct fabric_list *list)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    enum pando_status status = chain_check(&endpoint->target, list->ops, list->count);
    if (status != PANDO_OK) {
        fabric_list_done(base, list, status);
        return;
    }
    post_or_wait(endpoint, list);
    queue_heat(&endpoint->queue);
    timer_start(endpoint);
}

static void on_list_done(struct queue *queue)
{
    struct verbs_endpoint *endpoint = endpoint_of_queue(queue);
    struct fabric_list *list = endpoint->sent;
    if (list == NULL) {
        queue_fail(queue, "a completion that nobody waits for");
        return;
    }
    endpoint->sent = list->next;
    if (endpoint->sent == NULL)
        endpoint->sent_tail = &endpoint->sent;
    chain_finish(&endpoint->target, list->ops, list->count, buffer_of(list));
    buffer_give(endpoint, list);
    queue->list_requests -= list->count;
    endpoint->counters.completions++;
    endpoint->input_ns = endpoint->done_ns = rt_turn_ns(endpoint->base.loop);
    fabric_list_done(&endpoint->base, list, PANDO_OK);
    if (endpoint->waiting != NULL && list_empty(&endpoint->waiting_link))
        (void)verbs_endpoint_retry(endpoint);
}

/* ---- packets --------------------------------------------------------------------------------- */

static bool on_frame(struct messages *messages, const struct wire_frame *frame, const uint8_t *body)
{
    struct verbs_endpoint *endpoint = container_of(messages, struct verbs_endpoint, messages);
    return frame->type == WIRE_REPLY &&
           session_calls_reply(&endpoint->calls, body, frame->size) == WIRE_OK;
}

static void on_sent(struct queue *queue, unsigned place)
{
    messages_sent(&endpoint_of_queue(queue)->messages, place);
}

static void on_received(struct queue *queue, unsigned place, uint32_t bytes)
{
    struct verbs_endpoint *endpoint = endpoint_of_queue(queue);
    endpoint->input_ns = rt_turn_ns(endpoint->base.loop);
    messages_received(&endpoint->messages, place, bytes);
}

static bool on_busy(const struct queue *queue)
{
    return expects_something(endpoint_of_queue((struct queue *)queue));
}

static void on_failed(struct queue *queue, const char *why)
{
    char text[sizeof(queue->failure_text)];
    snprintf(text, sizeof(text), "%s", why); /* the queue's own goes with it */
    verbs_endpoint_break(endpoint_of_queue(queue), text);
}

static const struct queue_ops queue_ops = {
    .list_done = on_list_done,
    .sent = on_sent,
    .received = on_received,
    .busy = on_busy,
    .failed = on_failed,
};

/* ---- the socket, and silence ----------------------------------------------------------------- */

/* PONGs, and the end. */
static void stream_ready(struct rt_fd *fd, uint32_t events)
{
    struct verbs_endpoint *endpoint = container_of(fd, struct verbs_endpoint, fd);
    struct wire_frame frame;
    (void)events;
    for (;;) {
        ssize_t got = stream_read(&endpoint->stream, endpoint->pong + endpoint->pong_bytes,
                                  sizeof(endpoint->pong) - endpoint->pong_bytes);
        if (got < 0) {
            verbs_endpoint_break(endpoint, "connection closed by the peer");
            return;
        }
        if (got == 0)
            return;
        endpoint->pong_bytes += (size_t)got;
        if (endpoint->pong_bytes < sizeof(endpoint->pong))
            continue;
        endpoint->pong_bytes = 0;
        if (wire_get_frame(endpoint->pong, sizeof(endpoint->pong), &frame) != WIRE_OK ||
            frame.type != WIRE_PONG || frame.size != 0) {
            verbs_endpoint_break(endpoint, "the peer does not speak the protocol");
            return;
        }
        endpoint->input_ns = rt_turn_ns(endpoint->base.loop);
    }
}

/* False when the endpoint broke. */
static bool ping(struct verbs_endpoint *endpoint)
{
    uint8_t frame[WIRE_FRAME_HEADER];
    if (endpoint->stream.fd < 0)
        return true;
    wire_put_frame(frame, 0, WIRE_PING, 0);
    /* So few bytes are taken whole, or none are, when many are there that nobody read. */
    if (stream_write(&endpoint->stream, frame, sizeof(frame)) >= 0)
        return true;
    verbs_endpoint_break(endpoint, "connection closed while sending");
    return false;
}

/* The card finds out by itself that nobody answers a list; this is for the processor at the other
 * end, which answers calls, and for a card that does not. */
static void timer_fire(struct rt_timer *timer)
{
    struct verbs_endpoint *endpoint = container_of(timer, struct verbs_endpoint, timer);
    uint64_t now = rt_now_ns(), timeout = timeout_of(endpoint);
    uint64_t silence = now - endpoint->input_ns;

    if (!expects_something(endpoint))
        return; /* the next post starts it again */
    if (silence >= timeout ||
        (endpoint->base.outstanding > 0 && now - endpoint->done_ns >= 2 * timeout)) {
        verbs_endpoint_break(endpoint, "no answer in time");
        return;
    }
    if (silence >= timeout / 2 && !ping(endpoint))
        return;
    rt_timer_arm(&endpoint->timer, now + timeout / SILENCE_CHECKS);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Waits for room in the output; NULL when the endpoint broke meanwhile or it took too long. */
static uint8_t *append_co(struct verbs_endpoint *endpoint, enum wire_type type, uint32_t size)
{
    uint64_t deadline = rt_now_ns() + timeout_of(endpoint);
    while (!endpoint->base.broken) {
        uint8_t *body = messages_append(&endpoint->messages, type, size);
        if (body != NULL || rt_now_ns() > deadline)
            return body;
        rt_sleep_co(ROOM_NS);
    }
    return NULL;
}

static enum pando_status call_wait_co(struct verbs_endpoint *endpoint, struct session_call *call)
{
    messages_pump(&endpoint->messages);
    queue_heat(&endpoint->queue);
    timer_start(endpoint);
    return session_call_wait_co(&endpoint->calls, call);
}

enum pando_status verbs_call_co(struct fabric_endpoint *base, uint16_t method, struct slice body,
                                void *reply, uint32_t reply_capacity, uint32_t *reply_size)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    struct session_call call = session_call_make(&endpoint->calls, reply, reply_capacity);
    uint32_t size = (uint32_t)body.size;
    uint8_t *to = append_co(endpoint, WIRE_CALL, WIRE_CALL_HEADER + wire_padded(size));
    if (to == NULL)
        return base->broken ? PANDO_BROKEN : PANDO_TIMEOUT;
    wire_put_call(to, call.tag, method, body.data, size);
    enum pando_status status = call_wait_co(endpoint, &call);
    *reply_size = call.size;
    return status;
}

enum pando_status verbs_fence_co(struct fabric_endpoint *base, struct fabric_identity identity)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    struct session_call call = session_call_make(&endpoint->calls, NULL, 0);
    uint8_t *to = append_co(endpoint, WIRE_FENCE, WIRE_FENCE_BYTES);
    if (to == NULL)
        return base->broken ? PANDO_BROKEN : PANDO_TIMEOUT;
    wire_put_fence(to, call.tag, identity);
    return call_wait_co(endpoint, &call);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

enum pando_status verbs_endpoint_create(struct verbs_fabric *fabric, uint16_t node,
                                        struct verbs_endpoint **out)
{
    struct verbs_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    endpoint->base.fabric = &fabric->base;
    endpoint->base.loop = rt_loop_self();
    endpoint->base.node = node;
    endpoint->base.broken = true;
    endpoint->base.identity = fabric_identity_now(&fabric->base);
    endpoint->stream.fd = -1;
    rt_timer_init(&endpoint->timer, timer_fire);
    list_init(&endpoint->calls.waiting);
    list_init(&endpoint->waiting_link);
    endpoint->sent_tail = &endpoint->sent;
    endpoint->waiting_tail = &endpoint->waiting;
    enum pando_status status = lane_get(fabric, &endpoint->lane);
    if (status != PANDO_OK) {
        free(endpoint);
        return status;
    }
    *out = endpoint;
    return PANDO_OK;
}

enum pando_status verbs_endpoint_open(struct verbs_endpoint *endpoint, unsigned peer_credits)
{
    if (endpoint->stream.fd >= 0) {
        endpoint->fd =
            (struct rt_fd){.fd = endpoint->stream.fd, .events = EPOLLIN, .ready = stream_ready};
        enum pando_status status = rt_fd_add(endpoint->base.loop, &endpoint->fd);
        if (status != PANDO_OK)
            return status;
    }
    endpoint->pong_bytes = 0;
    messages_init(&endpoint->messages, &endpoint->queue, peer_credits, on_frame);
    endpoint->base.broken = false;
    queue_open(&endpoint->queue, &queue_ops);
    return PANDO_OK;
}

void verbs_disconnect_co(struct fabric_endpoint *base)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    if (!base->broken)
        teardown(endpoint);
    messages_fini(&endpoint->messages);
    lane_put(endpoint->lane);
    free(endpoint);
}

const struct fabric_verbs_counters *fabric_verbs_counters(const struct fabric_endpoint *endpoint)
{
    return &container_of(endpoint, const struct verbs_endpoint, base)->counters;
}

bool fabric_verbs_peer_on_chip(const struct fabric_endpoint *endpoint)
{
    return container_of(endpoint, const struct verbs_endpoint, base)->target.window.on_chip;
}
