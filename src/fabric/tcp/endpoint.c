/*
 * endpoint.c - the client's side of a connection: lists are encoded as they are posted, sent once
 * per turn of the loop, and matched with their results in order.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "fabric/tcp/tcp_int.h"

enum { READS_PER_POLL = 4 };

static struct tcp_endpoint *endpoint_of(struct client_endpoint *client)
{
    return container_of(client, struct tcp_endpoint, client);
}

static bool expects_something(const struct client_endpoint *client)
{
    return client->base.outstanding > 0 || !list_empty(&client->calls.waiting);
}

static void polling_set(struct tcp_endpoint *endpoint, bool on)
{
    if (endpoint->polling == on)
        return;
    endpoint->polling = on;
    rt_flight_add(endpoint->client.base.loop, on ? 1 : -1);
    if (on)
        rt_poller_add(endpoint->client.base.loop, &endpoint->poller);
    else
        rt_poller_remove(&endpoint->poller);
}

/* ---- output ---------------------------------------------------------------------------------- */

static bool is_read(const struct fabric_list *list)
{
    return list->count == 1 && list->ops[0].kind == FABRIC_READ;
}

static bool encode(struct tcp_endpoint *endpoint, struct fabric_list *list)
{
    uint32_t bytes = wire_list_bytes(list->ops, list->count);
    uint8_t *to = frame_room(&endpoint->out, &endpoint->lists, WIRE_LISTS, bytes);
    if (to == NULL)
        return false;
    wire_put_list(to, bytes, endpoint->next_tag++, list->ops, list->count);
    frame_added(&endpoint->out, &endpoint->lists, bytes, 1);
    client_sent_push(&endpoint->client, list);
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
    client_sent_push(&endpoint->client, list);
    return true;
}

static void encode_waiting(struct tcp_endpoint *endpoint)
{
    while (endpoint->client.waiting != NULL) {
        struct fabric_list *list = endpoint->client.waiting;
        struct fabric_list *next = list->next;
        if (!encode(endpoint, list))
            return;
        client_waiting_set(&endpoint->client, next);
    }
}

/* False when the endpoint broke. */
static bool flush(struct tcp_endpoint *endpoint)
{
    struct bytes *out = &endpoint->out;

    frame_close(out, &endpoint->lists, WIRE_LISTS);
    while (bytes_used(out) > 0) {
        ssize_t put = stream_write(&endpoint->client.stream, bytes_front(out), bytes_used(out));
        if (put < 0) {
            client_endpoint_break(&endpoint->client, "connection closed while sending");
            return false;
        }
        if (put == 0)
            break;
        bytes_taken(out, (size_t)put);
        client_endpoint_room(&endpoint->client);
        encode_waiting(endpoint);
        frame_close(out, &endpoint->lists, WIRE_LISTS);
    }
    rt_fd_change(endpoint->client.base.loop, &endpoint->client.fd,
                 bytes_used(out) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return true;
}

/* ---- input ----------------------------------------------------------------------------------- */

static enum wire_parse take_result(struct tcp_endpoint *endpoint)
{
    struct fabric_list *list = endpoint->client.sent;
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
    client_sent_set(&endpoint->client, list->next);
    fabric_list_done(&endpoint->client.base, list, status);
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
    struct fabric_list *list = endpoint->client.sent, *next;

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
        fabric_list_done(&endpoint->client.base, list, PANDO_OK);
    }
    client_sent_set(&endpoint->client, list);
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
        parse = client_calls_reply(&endpoint->client.calls, bytes_front(in) + WIRE_FRAME_HEADER,
                                   frame.size);
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
        ssize_t got = to == NULL ? -1 : stream_read(&endpoint->client.stream, to, TCP_READ_BYTES);
        if (got < 0) {
            client_endpoint_break(&endpoint->client, "connection closed by the peer");
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
            client_endpoint_break(&endpoint->client, "the peer does not speak the protocol");
            return true;
        }
        if (got < TCP_READ_BYTES)
            break;
    }
    if (progress)
        endpoint->client.input_ns = rt_turn_ns(endpoint->client.base.loop);
    return progress;
}

static bool endpoint_poll(struct rt_poller *poller)
{
    struct tcp_endpoint *endpoint = container_of(poller, struct tcp_endpoint, poller);
    if (endpoint->lists.bytes + bytes_used(&endpoint->out) > 0 && !flush(endpoint))
        return true;
    bool progress = receive(endpoint);
    if (!endpoint->client.base.broken && !expects_something(&endpoint->client) &&
        bytes_used(&endpoint->out) == 0)
        polling_set(endpoint, false);
    return progress;
}

static void endpoint_ready(struct rt_fd *fd, uint32_t events)
{
    struct tcp_endpoint *endpoint = container_of(fd, struct tcp_endpoint, client.fd);
    if ((events & EPOLLOUT) != 0 && !flush(endpoint))
        return;
    if ((events & ~(uint32_t)EPOLLOUT) != 0)
        (void)receive(endpoint);
}

/* ---- what the client's side asks of it ------------------------------------------------------- */

static uint8_t *append(struct client_endpoint *client, enum wire_type type, uint32_t size)
{
    struct tcp_endpoint *endpoint = endpoint_of(client);
    frame_close(&endpoint->out, &endpoint->lists, WIRE_LISTS);
    return wire_append_frame(&endpoint->out, type, size, TCP_OUT_LIMIT);
}

static void expect(struct client_endpoint *client)
{
    polling_set(endpoint_of(client), true);
    (void)client_endpoint_watch(client);
}

static bool ping(struct client_endpoint *client)
{
    return append(client, WIRE_PING, 0) == NULL || flush(endpoint_of(client));
}

static enum pando_status open_co(struct client_endpoint *client,
                                 const struct handshake_welcome *welcome)
{
    (void)welcome;
    return tcp_endpoint_open(endpoint_of(client));
}

static void endpoint_close(struct client_endpoint *client)
{
    polling_set(endpoint_of(client), false);
}

static const struct client_ops client_ops = {
    .append = append,
    .pump = expect,
    .expects = expects_something,
    .ping = ping,
    .open_co = open_co,
    .close = endpoint_close,
};

/* ---- what the fabric calls ------------------------------------------------------------------- */

struct tcp_endpoint *tcp_endpoint_create(struct fabric *fabric, uint16_t node)
{
    struct tcp_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return NULL;
    client_endpoint_init(&endpoint->client, fabric, node, &tcp_fabric_ops, &client_ops);
    endpoint->poller.poll = endpoint_poll;
    return endpoint;
}

enum pando_status tcp_endpoint_open(struct tcp_endpoint *endpoint)
{
    endpoint->lists = (struct open_frame){0};
    endpoint->results_bytes_left = endpoint->results_left = 0;
    endpoint->next_tag = endpoint->expected_tag = 0;
    bytes_taken(&endpoint->in, bytes_used(&endpoint->in));
    bytes_taken(&endpoint->out, bytes_used(&endpoint->out));
    return client_endpoint_open(&endpoint->client, endpoint_ready);
}

enum pando_status tcp_connect_co(struct fabric *base, uint16_t node, uint64_t window,
                                 struct fabric_endpoint **out)
{
    struct socket_fabric *fabric = socket_fabric_of(base);
    if (fabric->window.base != NULL && node == base->node)
        return tcp_self_connect(fabric, out);
    struct tcp_endpoint *endpoint = tcp_endpoint_create(base, node);
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    endpoint->client.base.window = window;
    enum pando_status status = client_endpoint_connect_co(&endpoint->client);
    if (status != PANDO_OK) {
        tcp_disconnect_co(&endpoint->client.base);
        return status;
    }
    *out = &endpoint->client.base;
    return PANDO_OK;
}

void tcp_disconnect_co(struct fabric_endpoint *base)
{
    struct tcp_endpoint *endpoint = endpoint_of(client_endpoint_of(base));
    if (!base->broken)
        client_endpoint_close(&endpoint->client);
    bytes_fini(&endpoint->in);
    bytes_fini(&endpoint->out);
    free(endpoint);
}

void tcp_post(struct fabric_endpoint *base, struct fabric_list *list)
{
    struct client_endpoint *client = client_endpoint_of(base);
    struct tcp_endpoint *endpoint = endpoint_of(client);
    if (client->waiting != NULL || (!encode_read(endpoint, list) && !encode(endpoint, list)))
        client_waiting_push(client, list);
    if (!endpoint->polling || !heap_contains(&client->timer.node))
        expect(client);
}
