/*
 * endpoint.c - the client's side: lists are posted as they come, in one chain each, and complete in
 * order; calls go through packets.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fabric/verbs/verbs_int.h"

static struct verbs_endpoint *endpoint_of(const struct client_endpoint *client)
{
    return container_of((struct client_endpoint *)client, struct verbs_endpoint, client);
}

static struct verbs_endpoint *endpoint_of_queue(struct queue *queue)
{
    return container_of(queue, struct verbs_endpoint, queue);
}

static bool expects_something(const struct client_endpoint *client)
{
    const struct verbs_endpoint *endpoint = endpoint_of(client);
    return endpoint->client.base.outstanding > 0 || !list_empty(&endpoint->client.calls.waiting) ||
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

/* The queue is gone by now, so nobody writes to its buffer any more. */
static void lose(struct client_endpoint *client, struct fabric_list *list)
{
    buffer_give(endpoint_of(client), list);
}

static void endpoint_close(struct client_endpoint *client)
{
    struct verbs_endpoint *endpoint = endpoint_of(client);
    queue_destroy(&endpoint->queue);
    queue_destroy(&endpoint->mirror);
    list_remove(&endpoint->waiting_link);
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
    client_sent_push(&endpoint->client, list);
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
    while (endpoint->client.waiting != NULL) {
        struct fabric_list *list = endpoint->client.waiting, *next = list->next;
        room = post(endpoint, list);
        if (room != ROOM)
            break;
        client_waiting_set(&endpoint->client, next);
    }
    if (room != NO_BUFFER)
        list_remove(&endpoint->waiting_link);
    else if (list_empty(&endpoint->waiting_link))
        list_push_back(&endpoint->lane->waiting, &endpoint->waiting_link);
    return room != NO_BUFFER;
}

static void wait_for_room(struct verbs_endpoint *endpoint, struct fabric_list *list)
{
    client_waiting_push(&endpoint->client, list);
    endpoint->counters.waits++;
}

/* Nobody overtakes one that waits. */
static void post_or_wait(struct verbs_endpoint *endpoint, struct fabric_list *list)
{
    struct list *waiting = &endpoint->lane->waiting;
    enum room room = NO_PLACE;
    if (endpoint->client.waiting == NULL)
        room = list_empty(waiting) ? post(endpoint, list) : NO_BUFFER;
    if (room == ROOM)
        return;
    wait_for_room(endpoint, list);
    if (room == NO_BUFFER && list_empty(&endpoint->waiting_link))
        list_push_back(waiting, &endpoint->waiting_link);
}

static void watch(struct verbs_endpoint *endpoint)
{
    if (client_endpoint_watch(&endpoint->client))
        endpoint->done_ns = endpoint->client.input_ns;
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
    watch(endpoint);
}

static void on_list_done(struct queue *queue)
{
    struct verbs_endpoint *endpoint = endpoint_of_queue(queue);
    struct fabric_list *list = endpoint->client.sent;
    if (list == NULL) {
        queue_fail(queue, "a completion that nobody waits for");
        return;
    }
    client_sent_set(&endpoint->client, list->next);
    chain_finish(&endpoint->target, list->ops, list->count, buffer_of(list));
    buffer_give(endpoint, list);
    queue->list_requests -= list->count;
    endpoint->counters.completions++;
    endpoint->client.input_ns = endpoint->done_ns = rt_turn_ns(endpoint->client.base.loop);
    fabric_list_done(&endpoint->client.base, list, PANDO_OK);
    if (endpoint->client.waiting != NULL && list_empty(&endpoint->waiting_link))
        (void)verbs_endpoint_retry(endpoint);
}

/* ---- packets --------------------------------------------------------------------------------- */

static bool on_frame(struct messages *messages, const struct wire_frame *frame, const uint8_t *body)
{
    struct verbs_endpoint *endpoint = container_of(messages, struct verbs_endpoint, messages);
    return frame->type == WIRE_REPLY &&
           client_calls_reply(&endpoint->client.calls, body, frame->size) == WIRE_OK;
}

static void on_sent(struct queue *queue, unsigned place)
{
    struct verbs_endpoint *endpoint = endpoint_of_queue(queue);
    messages_sent(&endpoint->messages, place);
    client_endpoint_room(&endpoint->client);
}

static void on_received(struct queue *queue, unsigned place, uint32_t bytes)
{
    struct verbs_endpoint *endpoint = endpoint_of_queue(queue);
    endpoint->client.input_ns = rt_turn_ns(endpoint->client.base.loop);
    messages_received(&endpoint->messages, place, bytes);
    client_endpoint_room(&endpoint->client);
}

static bool on_busy(const struct queue *queue)
{
    return expects_something(&endpoint_of_queue((struct queue *)queue)->client);
}

static void on_failed(struct queue *queue, const char *why)
{
    char text[sizeof(queue->failure_text)];
    snprintf(text, sizeof(text), "%s", why); /* the queue's own goes with it */
    client_endpoint_break(&endpoint_of_queue(queue)->client, text);
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
    struct verbs_endpoint *endpoint = container_of(fd, struct verbs_endpoint, client.fd);
    struct wire_frame frame;
    (void)events;
    for (;;) {
        ssize_t got = stream_read(&endpoint->client.stream, endpoint->pong + endpoint->pong_bytes,
                                  sizeof(endpoint->pong) - endpoint->pong_bytes);
        if (got < 0) {
            client_endpoint_break(&endpoint->client, "connection closed by the peer");
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
            client_endpoint_break(&endpoint->client, "the peer does not speak the protocol");
            return;
        }
        endpoint->client.input_ns = rt_turn_ns(endpoint->client.base.loop);
    }
}

/* False when the endpoint broke. */
static bool ping(struct client_endpoint *client)
{
    uint8_t frame[WIRE_FRAME_HEADER];
    if (client->stream.fd < 0)
        return true;
    wire_put_frame(frame, 0, WIRE_PING, 0);
    /* So few bytes are taken whole, or none are, when many are there that nobody read. */
    if (stream_write(&client->stream, frame, sizeof(frame)) >= 0)
        return true;
    client_endpoint_break(client, "connection closed while sending");
    return false;
}

/* The card finds out by itself that nobody answers a list; this is for a card that does not. What is
 * heard is of the processor at the other end. */
static bool stalled(const struct client_endpoint *client, uint64_t now)
{
    return client->base.outstanding > 0 &&
           now - endpoint_of(client)->done_ns >= 2 * client_endpoint_timeout_ns(client);
}

/* ---- what the client's side asks of it ------------------------------------------------------- */

static uint8_t *append(struct client_endpoint *client, enum wire_type type, uint32_t size)
{
    return messages_append(&endpoint_of(client)->messages, type, size);
}

static void pump(struct client_endpoint *client)
{
    struct verbs_endpoint *endpoint = endpoint_of(client);
    messages_pump(&endpoint->messages);
    queue_heat(&endpoint->queue);
    watch(endpoint);
}

static const struct client_ops client_ops = {
    .append = append,
    .pump = pump,
    .expects = expects_something,
    .stalled = stalled,
    .ping = ping,
    .prepare_co = verbs_prepare_co,
    .open_co = verbs_open_co,
    .close = endpoint_close,
    .lose = lose,
};

/* ---- beginning and end ----------------------------------------------------------------------- */

enum pando_status verbs_endpoint_create(struct verbs_fabric *fabric, uint16_t node,
                                        const struct fabric_ops *ops, struct verbs_endpoint **out)
{
    struct verbs_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    client_endpoint_init(&endpoint->client, &fabric->sockets.base, node, ops, &client_ops);
    list_init(&endpoint->waiting_link);
    list_init(&endpoint->kept_link);
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
    enum pando_status status = client_endpoint_open(&endpoint->client, stream_ready);
    if (status != PANDO_OK)
        return status;
    endpoint->pong_bytes = 0;
    messages_init(&endpoint->messages, &endpoint->queue, peer_credits, on_frame);
    queue_open(&endpoint->queue, &queue_ops);
    return PANDO_OK;
}

void verbs_disconnect_co(struct fabric_endpoint *base)
{
    struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
    if (!base->broken)
        client_endpoint_close(&endpoint->client);
    messages_fini(&endpoint->messages);
    lane_put(endpoint->lane);
    free(endpoint);
}

const struct fabric_verbs_counters *fabric_verbs_counters(const struct fabric_endpoint *endpoint)
{
    return &container_of(endpoint, const struct verbs_endpoint, client.base)->counters;
}

bool fabric_verbs_peer_on_chip(const struct fabric_endpoint *endpoint)
{
    return container_of(endpoint, const struct verbs_endpoint, client.base)->target.window.on_chip;
}
