/*
 * endpoint.c - the client's side of a connection: lists are encoded as they are posted, sent once
 * per turn of the loop, and matched with their results in order.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/tcp/tcp_int.h"

enum {
    READS_PER_POLL = 4,
    SILENCE_CHECKS = 4, /* in the time after which a silent peer is given up */
};

static const uint64_t ROOM_NS = RT_NS_PER_MS;

static struct tcp_endpoint *endpoint_of(struct fabric_endpoint *base)
{
    return container_of(base, struct tcp_endpoint, base);
}

static uint64_t timeout_of(const struct tcp_endpoint *endpoint)
{
    return tcp_fabric_of(endpoint->base.fabric)->timeout_ns;
}

static bool expects_something(const struct tcp_endpoint *endpoint)
{
    return endpoint->base.outstanding > 0 || !list_empty(&endpoint->calls.waiting);
}

/* ---- breaking -------------------------------------------------------------------------------- */

static void fail_lists(struct tcp_endpoint *endpoint, struct fabric_list *list)
{
    while (list != NULL) {
        struct fabric_list *next = list->next;
        fabric_list_done(&endpoint->base, list, PANDO_BROKEN);
        list = next;
    }
}

static void polling_set(struct tcp_endpoint *endpoint, bool on)
{
    if (endpoint->polling == on)
        return;
    endpoint->polling = on;
    rt_flight_add(endpoint->base.loop, on ? 1 : -1);
    if (on)
        rt_poller_add(endpoint->base.loop, &endpoint->poller);
    else
        rt_poller_remove(&endpoint->poller);
}

void tcp_endpoint_break(struct tcp_endpoint *endpoint, const char *why)
{
    if (endpoint->base.broken)
        return;
    log_warn("endpoint broken", log_u64("node", endpoint->base.node), log_text("why", why));
    endpoint->base.broken = true;
    polling_set(endpoint, false);
    rt_timer_cancel(&endpoint->timer);
    rt_fd_remove(endpoint->base.loop, &endpoint->fd);
    stream_close(&endpoint->stream);

    struct fabric_list *sent = endpoint->sent, *waiting = endpoint->waiting;
    endpoint->sent = endpoint->waiting = NULL;
    endpoint->sent_tail = &endpoint->sent;
    endpoint->waiting_tail = &endpoint->waiting;
    fail_lists(endpoint, sent);
    fail_lists(endpoint, waiting);
    session_calls_fail(&endpoint->calls, PANDO_BROKEN);
}

/* ---- output ---------------------------------------------------------------------------------- */

static bool is_read(const struct fabric_list *list)
{
    return list->count == 1 && list->ops[0].kind == FABRIC_READ;
}

static void sent_push(struct tcp_endpoint *endpoint, struct fabric_list *list)
{
    list->next = NULL;
    *endpoint->sent_tail = list;
    endpoint->sent_tail = &list->next;
}

static bool encode(struct tcp_endpoint *endpoint, struct fabric_list *list)
{
    uint32_t bytes = wire_list_bytes(list->ops, list->count);
    uint8_t *to = frame_room(&endpoint->out, &endpoint->lists, WIRE_LISTS, bytes);
    if (to == NULL)
        return false;
    wire_put_list(to, bytes, endpoint->next_tag++, list->ops, list->count);
    frame_added(&endpoint->out, &endpoint->lists, bytes, 1);
    sent_push(endpoint, list);
    return true;
}

/* What encode does, for a list of a single READ that has room in the open frame. */
static inline bool encode_read(struct tcp_endpoint *endpoint, struct fabric_list *list)
{
    struct bytes *out = &endpoint->out;
    if (!is_read(list) || frame_left(out, &endpoint->lists) < WIRE_READ_LIST)
        return false;
    wire_put_read(out->data + out->tail, endpoint->next_tag++, &list->ops[0]);
    frame_added(out, &endpoint->lists, WIRE_READ_LIST, 1);
    sent_push(endpoint, list);
    return true;
}

static void encode_waiting(struct tcp_endpoint *endpoint)
{
    while (endpoint->waiting != NULL) {
        struct fabric_list *list = endpoint->waiting;
        struct fabric_list *next = list->next;
        if (!encode(endpoint, list))
            return;
        endpoint->waiting = next;
        if (next == NULL)
            endpoint->waiting_tail = &endpoint->waiting;
    }
}

/* False when the endpoint broke. */
static bool flush(struct tcp_endpoint *endpoint)
{
    struct bytes *out = &endpoint->out;

    frame_close(out, &endpoint->lists, WIRE_LISTS);
    while (bytes_used(out) > 0) {
        ssize_t put = stream_write(&endpoint->stream, bytes_front(out), bytes_used(out));
        if (put < 0) {
            tcp_endpoint_break(endpoint, "connection closed while sending");
            return false;
        }
        if (put == 0)
            break;
        bytes_taken(out, (size_t)put);
        encode_waiting(endpoint);
        frame_close(out, &endpoint->lists, WIRE_LISTS);
    }
    rt_fd_change(endpoint->base.loop, &endpoint->fd,
                 bytes_used(out) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return true;
}

/* ---- input ----------------------------------------------------------------------------------- */

static enum wire_parse take_result(struct tcp_endpoint *endpoint)
{
    struct fabric_list *list = endpoint->sent;
    uint32_t bytes;
    enum pando_status status;

    if (list == NULL)
        return WIRE_BAD;
    enum wire_parse parse = wire_get_result(bytes_front(&endpoint->in), bytes_used(&endpoint->in),
                                            endpoint->results_bytes_left, endpoint->expected_tag,
                                            list->ops, list->count, &bytes, &status);
    if (parse != WIRE_OK)
        return parse;
    endpoint->expected_tag++;
    endpoint->results_bytes_left -= bytes;
    endpoint->results_left--;
    bytes_taken(&endpoint->in, bytes);
    endpoint->sent = list->next;
    if (endpoint->sent == NULL)
        endpoint->sent_tail = &endpoint->sent;
    fabric_list_done(&endpoint->base, list, status);
    bool frame_over = endpoint->results_left == 0;
    return frame_over == (endpoint->results_bytes_left == 0) ? WIRE_OK : WIRE_BAD;
}

/* A multiple of 8 bytes. A call of memcpy takes longer than to copy one cache line or two. */
static inline void copy_words(uint8_t *to, const uint8_t *from, uint32_t size)
{
    for (; size >= 64; size -= 64, to += 64, from += 64)
        memcpy(to, from, 64);
    for (; size > 0; size -= 8, to += 8, from += 8)
        memcpy(to, from, 8);
}

/*
 * What take_result does, for as many lists of a single READ that succeeded as follow each other.
 * Leaves to it the first that is anything else, the last of a frame, and whatever is wrong.
 */
static void take_reads(struct tcp_endpoint *endpoint)
{
    struct bytes *in = &endpoint->in;
    const uint8_t *begin = bytes_front(in), *from = begin;
    size_t left = bytes_used(in) < endpoint->results_bytes_left ? bytes_used(in)
                                                                : endpoint->results_bytes_left;
    unsigned most = endpoint->results_left - 1u, count = 0;
    struct fabric_list *list = endpoint->sent, *next;

    if (endpoint->results_left == 0)
        return;
    for (; count < most && list != NULL && is_read(list); list = next, count++) {
        uint32_t size = list->ops[0].size, bytes = WIRE_LIST_HEADER + size;
        uint16_t tag = (uint16_t)(endpoint->expected_tag + count);
        next = list->next;
        if (size % 8 != 0 || left <= bytes ||
            wire_get_u64(from) != wire_header_word(bytes, PANDO_OK, tag))
            break;
        copy_words(list->ops[0].read_to, from + WIRE_LIST_HEADER, size);
        from += bytes;
        left -= bytes;
        fabric_list_done(&endpoint->base, list, PANDO_OK);
    }
    endpoint->sent = list;
    if (list == NULL)
        endpoint->sent_tail = &endpoint->sent;
    endpoint->expected_tag += (uint16_t)count;
    endpoint->results_left -= (uint16_t)count;
    endpoint->results_bytes_left -= (uint32_t)(from - begin);
    bytes_taken(in, (size_t)(from - begin));
}

static enum wire_parse take_frame(struct tcp_endpoint *endpoint)
{
    struct bytes *in = &endpoint->in;
    struct wire_frame frame;
    enum wire_parse parse = wire_get_frame(bytes_front(in), bytes_used(in), &frame);

    if (parse != WIRE_OK)
        return parse;
    if (frame.type == WIRE_RESULTS) {
        if (frame.count == 0)
            return WIRE_BAD;
        endpoint->results_bytes_left = frame.size;
        endpoint->results_left = frame.count;
        bytes_taken(in, WIRE_FRAME_HEADER);
        return WIRE_OK;
    }
    if (frame.size > WIRE_CALL_MAX)
        return WIRE_BAD;
    if (bytes_used(in) < WIRE_FRAME_HEADER + frame.size)
        return WIRE_MORE;
    if (frame.type == WIRE_REPLY)
        parse =
            session_calls_reply(&endpoint->calls, bytes_front(in) + WIRE_FRAME_HEADER, frame.size);
    else if (frame.type != WIRE_PONG)
        parse = WIRE_BAD;
    bytes_taken(in, WIRE_FRAME_HEADER + frame.size);
    return parse;
}

/* True when there was something; the endpoint may be broken afterwards. */
static bool receive(struct tcp_endpoint *endpoint)
{
    bool progress = false;
    for (int i = 0; i < READS_PER_POLL; i++) {
        uint8_t *to =
            bytes_reserve(&endpoint->in, TCP_READ_BYTES, 2 * WIRE_LIST_MAX + TCP_READ_BYTES);
        ssize_t got = to == NULL ? -1 : stream_read(&endpoint->stream, to, TCP_READ_BYTES);
        if (got < 0) {
            tcp_endpoint_break(endpoint, "connection closed by the peer");
            return true;
        }
        if (got == 0)
            break;
        progress = true;
        bytes_appended(&endpoint->in, (size_t)got);
        enum wire_parse parse = WIRE_OK;
        while (parse == WIRE_OK && bytes_used(&endpoint->in) > 0) {
            take_reads(endpoint);
            parse = endpoint->results_left > 0 ? take_result(endpoint) : take_frame(endpoint);
        }
        if (parse == WIRE_BAD) {
            tcp_endpoint_break(endpoint, "the peer does not speak the protocol");
            return true;
        }
        if (got < TCP_READ_BYTES)
            break;
    }
    if (progress)
        endpoint->input_ns = rt_turn_ns(endpoint->base.loop);
    return progress;
}

static bool endpoint_poll(struct rt_poller *poller)
{
    struct tcp_endpoint *endpoint = container_of(poller, struct tcp_endpoint, poller);
    if (endpoint->lists.bytes + bytes_used(&endpoint->out) > 0 && !flush(endpoint))
        return true;
    bool progress = receive(endpoint);
    if (!endpoint->base.broken && !expects_something(endpoint) && bytes_used(&endpoint->out) == 0)
        polling_set(endpoint, false);
    return progress;
}

static void endpoint_ready(struct rt_fd *fd, uint32_t events)
{
    struct tcp_endpoint *endpoint = container_of(fd, struct tcp_endpoint, fd);
    if ((events & EPOLLOUT) != 0 && !flush(endpoint))
        return;
    if ((events & ~(uint32_t)EPOLLOUT) != 0)
        (void)receive(endpoint);
}

/* ---- silence --------------------------------------------------------------------------------- */

static void timer_start(struct tcp_endpoint *endpoint)
{
    if (!heap_contains(&endpoint->timer.node)) {
        uint64_t now = rt_turn_ns(endpoint->base.loop);
        endpoint->input_ns = now;
        rt_timer_arm(&endpoint->timer, now + timeout_of(endpoint) / SILENCE_CHECKS);
    }
}

static void timer_fire(struct rt_timer *timer)
{
    struct tcp_endpoint *endpoint = container_of(timer, struct tcp_endpoint, timer);
    uint64_t now = rt_now_ns();
    uint64_t silence = now - endpoint->input_ns;

    if (!expects_something(endpoint))
        return; /* the next post starts it again */
    if (silence >= timeout_of(endpoint)) {
        tcp_endpoint_break(endpoint, "no answer in time");
        return;
    }
    if (silence >= timeout_of(endpoint) / 2) {
        /* A slow call is no reason to break: is anybody there? */
        frame_close(&endpoint->out, &endpoint->lists, WIRE_LISTS);
        if (wire_append_frame(&endpoint->out, WIRE_PING, 0, TCP_OUT_LIMIT) != NULL &&
            !flush(endpoint))
            return;
    }
    rt_timer_arm(&endpoint->timer, now + timeout_of(endpoint) / SILENCE_CHECKS);
}

/* ---- what the fabric calls ------------------------------------------------------------------- */

enum pando_status tcp_endpoint_open(struct tcp_endpoint *endpoint, struct stream stream)
{
    endpoint->stream = stream;
    endpoint->fd = (struct rt_fd){.fd = stream.fd, .events = EPOLLIN, .ready = endpoint_ready};
    endpoint->poller.poll = endpoint_poll;
    rt_timer_init(&endpoint->timer, timer_fire);
    list_init(&endpoint->calls.waiting);
    endpoint->sent_tail = &endpoint->sent;
    endpoint->waiting_tail = &endpoint->waiting;
    endpoint->lists = (struct open_frame){0};
    endpoint->results_bytes_left = endpoint->results_left = 0;
    endpoint->next_tag = endpoint->expected_tag = 0;
    bytes_taken(&endpoint->in, bytes_used(&endpoint->in));
    bytes_taken(&endpoint->out, bytes_used(&endpoint->out));
    enum pando_status status = rt_fd_add(endpoint->base.loop, &endpoint->fd);
    endpoint->base.broken = status != PANDO_OK;
    return status;
}

static void encode_or_wait(struct tcp_endpoint *endpoint, struct fabric_list *list)
{
    if (endpoint->waiting == NULL && encode(endpoint, list))
        return;
    list->next = NULL;
    *endpoint->waiting_tail = list;
    endpoint->waiting_tail = &list->next;
}

static void expect(struct tcp_endpoint *endpoint)
{
    polling_set(endpoint, true);
    timer_start(endpoint);
}

void tcp_post(struct fabric_endpoint *base, struct fabric_list *list)
{
    struct tcp_endpoint *endpoint = endpoint_of(base);
    if (endpoint->waiting != NULL || !encode_read(endpoint, list))
        encode_or_wait(endpoint, list);
    if (!endpoint->polling || !heap_contains(&endpoint->timer.node))
        expect(endpoint);
}

void tcp_disconnect_co(struct fabric_endpoint *base)
{
    struct tcp_endpoint *endpoint = endpoint_of(base);
    if (!base->broken) {
        polling_set(endpoint, false);
        rt_timer_cancel(&endpoint->timer);
        rt_fd_remove(base->loop, &endpoint->fd);
        stream_close(&endpoint->stream);
    }
    bytes_fini(&endpoint->in);
    bytes_fini(&endpoint->out);
    free(endpoint);
}

/* Waits for room in the output; NULL when the endpoint broke meanwhile or it took too long. */
static uint8_t *frame_whole_co(struct tcp_endpoint *endpoint, enum wire_type type, uint32_t size)
{
    uint64_t deadline = rt_now_ns() + timeout_of(endpoint);
    while (!endpoint->base.broken) {
        frame_close(&endpoint->out, &endpoint->lists, WIRE_LISTS);
        uint8_t *body = wire_append_frame(&endpoint->out, type, size, TCP_OUT_LIMIT);
        if (body != NULL || rt_now_ns() > deadline)
            return body;
        rt_sleep_co(ROOM_NS);
    }
    return NULL;
}

static enum pando_status call_wait_co(struct tcp_endpoint *endpoint, struct session_call *call)
{
    expect(endpoint);
    return session_call_wait_co(&endpoint->calls, call);
}

enum pando_status tcp_call_co(struct fabric_endpoint *base, uint16_t method, struct slice body,
                              void *reply, uint32_t reply_capacity, uint32_t *reply_size)
{
    struct tcp_endpoint *endpoint = endpoint_of(base);
    struct session_call call = session_call_make(&endpoint->calls, reply, reply_capacity);
    uint32_t size = (uint32_t)body.size;
    uint8_t *to = frame_whole_co(endpoint, WIRE_CALL, WIRE_CALL_HEADER + wire_padded(size));
    if (to == NULL)
        return base->broken ? PANDO_BROKEN : PANDO_TIMEOUT;
    wire_put_call(to, call.tag, method, body.data, size);
    enum pando_status status = call_wait_co(endpoint, &call);
    *reply_size = call.size;
    return status;
}

enum pando_status tcp_fence_co(struct fabric_endpoint *base, struct fabric_identity identity)
{
    struct tcp_endpoint *endpoint = endpoint_of(base);
    struct session_call call = session_call_make(&endpoint->calls, NULL, 0);
    uint8_t *to = frame_whole_co(endpoint, WIRE_FENCE, WIRE_FENCE_BYTES);
    if (to == NULL)
        return base->broken ? PANDO_BROKEN : PANDO_TIMEOUT;
    wire_put_fence(to, call.tag, identity);
    return call_wait_co(endpoint, &call);
}
