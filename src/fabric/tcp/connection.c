/*
 * connection.c - the server's side of a connection: bytes in, lists executed, bytes out.
 *
 * Nothing here suspends; what may (calls, fences) is handed to tasks. A list is executed when all of
 * it has arrived, and a frame need not have.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/tcp/tcp_int.h"

enum {
    READS_PER_POLL = 8,
    PREFETCH_LISTS = 16, /* in a row, a row ahead of the one that is executed */
    AHEAD = PREFETCH_LISTS * WIRE_READ_LIST,
    SHORT_BYTES = 128, /* up to here the first line does */
};

static struct socket_fabric *fabric_of(struct tcp_connection *connection)
{
    return socket_fabric_of(connection->base.thread->server->fabric);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void connection_ready(struct rt_fd *fd, uint32_t events)
{
    struct tcp_connection *connection = container_of(fd, struct tcp_connection, fd);
    (void)events;
    (void)tcp_connection_poll(connection);
}

enum pando_status tcp_connection_open(struct connection *base)
{
    struct tcp_connection *connection = tcp_connection_of(base);
    list_init(&connection->hot_link);
    connection->fd =
        (struct rt_fd){.fd = base->stream.fd, .events = EPOLLIN, .ready = connection_ready};
    connection->input_ns = rt_now_ns();
    return rt_fd_add(tcp_connection_loop(connection), &connection->fd);
}

void tcp_connection_close(struct connection *base)
{
    struct tcp_connection *connection = tcp_connection_of(base);
    rt_fd_remove(tcp_connection_loop(connection), &connection->fd);
    list_remove(&connection->hot_link);
}

void tcp_connection_free(struct connection *base)
{
    struct tcp_connection *connection = tcp_connection_of(base);
    bytes_fini(&connection->in);
    bytes_fini(&connection->out);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Sends what is queued; false when that closed the connection. */
static bool connection_flush(struct tcp_connection *connection)
{
    struct bytes *out = &connection->out;

    frame_close(out, &connection->results, WIRE_RESULTS);
    while (bytes_used(out) > 0) {
        ssize_t put = stream_write(&connection->base.stream, bytes_front(out), bytes_used(out));
        if (put < 0) {
            connection_close(&connection->base, NULL);
            return false;
        }
        if (put == 0)
            break;
        bytes_taken(out, (size_t)put);
    }
    /* While its output is full, more input would only wake us in vain. */
    uint32_t events = connection->throttled ? EPOLLOUT
                      : bytes_used(out) > 0 ? EPOLLIN | EPOLLOUT
                                            : EPOLLIN;
    rt_fd_change(tcp_connection_loop(connection), &connection->fd, events);
    return true;
}

void tcp_connection_answer(struct connection *base, uint64_t tag, enum pando_status status,
                           const uint8_t *body, uint32_t size)
{
    struct tcp_connection *connection = tcp_connection_of(base);
    frame_close(&connection->out, &connection->results, WIRE_RESULTS);
    uint8_t *to = wire_append_frame(&connection->out, WIRE_REPLY,
                                    WIRE_CALL_HEADER + wire_padded(size), TCP_OUT_LIMIT);
    if (to == NULL) {
        connection_close(base, "it does not read its replies");
        return;
    }
    wire_put_call(to, tag, (uint16_t)status, body, size);
    (void)connection_flush(connection);
}

/* ---- input ----------------------------------------------------------------------------------- */

/* What a step of the input led to. */
enum outcome {
    GO_ON,
    WAIT,   /* for more bytes, or for room in the output */
    REFUSE, /* close it: no honest peer does that */
};

/* All of its body is here. A call that is refused at once is answered at once, which may close the
 * connection. */
static enum outcome on_whole_frame(struct tcp_connection *connection,
                                   const struct wire_frame *frame, const uint8_t *body)
{
    struct wire_call call;
    switch (frame->type) {
    case WIRE_CALL:
        if (wire_get_call(body, frame->size, &call) != WIRE_OK)
            return REFUSE;
        return connection_serve_call(&connection->base, &call) ? GO_ON : REFUSE;
    case WIRE_FENCE:
        if (frame->size != WIRE_FENCE_BYTES)
            return REFUSE;
        return connection_serve_fence(&connection->base, body) ? GO_ON : REFUSE;
    case WIRE_PING:
        frame_close(&connection->out, &connection->results, WIRE_RESULTS);
        return wire_append_frame(&connection->out, WIRE_PONG, 0, TCP_OUT_LIMIT) != NULL ? GO_ON
                                                                                        : REFUSE;
    default:
        return REFUSE;
    }
}

static enum outcome take_frame(struct tcp_connection *connection)
{
    struct bytes *in = &connection->in;
    struct wire_frame frame;

    switch (wire_get_frame(bytes_front(in), bytes_used(in), &frame)) {
    case WIRE_BAD:
        return REFUSE;
    case WIRE_MORE:
        return WAIT;
    case WIRE_OK:
        break;
    }
    if (frame.type == WIRE_LISTS) {
        if (frame.count == 0)
            return REFUSE;
        connection->lists_bytes_left = frame.size;
        connection->lists_left = frame.count;
        bytes_taken(in, WIRE_FRAME_HEADER);
        return GO_ON;
    }
    if (frame.size > WIRE_CALL_MAX)
        return REFUSE;
    if (bytes_used(in) < WIRE_FRAME_HEADER + frame.size)
        return WAIT;
    enum outcome outcome = on_whole_frame(connection, &frame, bytes_front(in) + WIRE_FRAME_HEADER);
    bytes_taken(in, WIRE_FRAME_HEADER + frame.size);
    return outcome;
}

static enum outcome take_list(struct tcp_connection *connection)
{
    struct bytes *in = &connection->in;
    struct fabric_op ops[FABRIC_LIST_OPS_MAX];
    struct wire_list list;

    switch (
        wire_get_list(bytes_front(in), bytes_used(in), connection->lists_bytes_left, &list, ops)) {
    case WIRE_BAD:
        return REFUSE;
    case WIRE_MORE:
        return WAIT;
    case WIRE_OK:
        break;
    }
    uint8_t *result =
        frame_room(&connection->out, &connection->results, WIRE_RESULTS, list.result_bytes);
    if (result == NULL) {
        connection->throttled = true;
        return WAIT;
    }
    wire_place_reads(result, ops, list.count);
    enum pando_status status = window_execute(&fabric_of(connection)->window, ops, list.count);
    tcp_thread_count(connection->base.thread->own, 1, list.count);
    uint32_t bytes = wire_finish_result(result, &list, ops, status);
    frame_added(&connection->out, &connection->results, bytes, 1);
    bytes_taken(in, list.bytes);
    connection->lists_bytes_left -= list.bytes;
    connection->lists_left--;
    if ((connection->lists_left == 0) != (connection->lists_bytes_left == 0))
        return REFUSE;
    return GO_ON;
}

/* Bytes of the LISTS frame being read that have arrived. */
static size_t lists_at_hand(struct tcp_connection *connection)
{
    size_t used = bytes_used(&connection->in);
    return used < connection->lists_bytes_left ? used : connection->lists_bytes_left;
}

/* Only a hint: place and size are looked at, not believed, and checked when the list is taken. */
static inline void prefetch_target(const struct window *window, const uint8_t *list)
{
    uint64_t offset = fabric_address_offset(wire_get_u64(list + WIRE_LIST_HEADER));
    uint64_t size = wire_get_u64(list + WIRE_LIST_HEADER + 8);
    const uint8_t *target = window_at(window, offset, 64);
    if (target != NULL)
        __builtin_prefetch(target);
    if (size > SHORT_BYTES)
        window_prefetch(window, offset, size, false);
    /* gcc 12 takes a function that only prefetches for one without effect, and drops the call. */
    __asm__ volatile("");
}

/* Asks for the cache lines of what the next lists at hand begin with: by the time a list is executed
 * they have come. In a row: only prefetches side by side look for their pages side by side. */
static void prefetch_lists(const struct window *window, const uint8_t *at, size_t left)
{
    for (int i = 0; i < PREFETCH_LISTS && left >= WIRE_LIST_HEADER + WIRE_OP; i++) {
        uint32_t bytes = wire_get_u32(at);
        prefetch_target(window, at);
        if (bytes < WIRE_LIST_HEADER + WIRE_OP || bytes > left)
            return;
        at += bytes;
        left -= bytes;
    }
}

/*
 * What take_list does, for as many lists of a single READ as follow each other; how many those were.
 * Leaves to it the first that is anything else, the last of a frame, one that has no room, and
 * whatever is wrong.
 */
static unsigned take_reads(struct tcp_connection *connection)
{
    const struct window *window = &fabric_of(connection)->window;
    struct bytes *in = &connection->in, *out = &connection->out;
    size_t left = lists_at_hand(connection);
    size_t most = left / WIRE_READ_LIST, room = frame_left(out, &connection->results);
    const uint8_t *at = bytes_front(in), *end = at + left;
    uint8_t *begin = out->data + out->tail, *to = begin;
    uint64_t offset, size;
    uint16_t tag;
    unsigned count = 0;

    if (most >= connection->lists_left)
        most = connection->lists_left - 1u;
    for (; count < most && wire_get_read(at, &tag, &offset, &size); at += WIRE_READ_LIST, count++) {
        if (count % PREFETCH_LISTS == 0 && (size_t)(end - at) > AHEAD)
            prefetch_lists(window, at + AHEAD, (size_t)(end - at) - AHEAD);
        if (size % 8 != 0 || WIRE_LIST_HEADER + size > room ||
            window_read(window, offset, to + WIRE_LIST_HEADER, size) != PANDO_OK)
            break;
        wire_put_u64(to, wire_header_word(WIRE_LIST_HEADER + (uint32_t)size, PANDO_OK, tag));
        to += WIRE_LIST_HEADER + size;
        room -= WIRE_LIST_HEADER + size;
    }
    if (count == 0)
        return 0;
    frame_added(out, &connection->results, (size_t)(to - begin), count);
    bytes_taken(in, count * WIRE_READ_LIST);
    connection->lists_bytes_left -= count * WIRE_READ_LIST;
    connection->lists_left -= (uint16_t)count;
    tcp_thread_count(connection->base.thread->own, count, count);
    return count;
}

/* False when the connection is closed. */
static bool process(struct tcp_connection *connection)
{
    enum outcome outcome = GO_ON;
    unsigned prefetched = 0;
    while (outcome == GO_ON && connection->base.state == CONNECTION_OPEN &&
           bytes_used(&connection->in) > 0) {
        if (connection->lists_left == 0) {
            outcome = take_frame(connection);
            prefetched = 0;
            continue;
        }
        if (prefetched == 0) {
            prefetch_lists(&fabric_of(connection)->window, bytes_front(&connection->in),
                           lists_at_hand(connection));
            prefetched = PREFETCH_LISTS;
        }
        unsigned taken = take_reads(connection) + 1;
        outcome = take_list(connection);
        prefetched -= taken < prefetched ? taken : prefetched;
    }
    if (outcome == REFUSE)
        connection_close(&connection->base, "it does not speak the protocol");
    return connection->base.state == CONNECTION_OPEN;
}

/* As many bytes as are there and wanted; -1 when the peer is gone. */
static ssize_t take_input(struct tcp_connection *connection)
{
    struct bytes *in = &connection->in;
    /* What is kept is at most one incomplete list or frame, so this never fails for its limit. */
    uint8_t *to = bytes_reserve(in, TCP_READ_BYTES, 2 * WIRE_LIST_MAX + TCP_READ_BYTES);
    if (to == NULL)
        return -1;
    ssize_t got = stream_read(&connection->base.stream, to, TCP_READ_BYTES);
    if (got > 0)
        bytes_appended(in, (size_t)got);
    return got;
}

/* Reads and executes; true when there was something. May close the connection. */
static bool poll_input(struct tcp_connection *connection)
{
    bool progress = false;
    for (int i = 0; i < READS_PER_POLL; i++) {
        if (connection->throttled) {
            if (!connection_flush(connection))
                return true;
            if (bytes_used(&connection->out) > TCP_OUT_LIMIT / 4)
                return progress;
            connection->throttled = false;
        } else {
            ssize_t got = take_input(connection);
            if (got < 0) {
                connection_close(&connection->base, NULL);
                return true;
            }
            if (got == 0)
                break;
        }
        progress = true;
        if (!process(connection))
            return true;
        if (bytes_used(&connection->in) < TCP_READ_BYTES && !connection->throttled)
            break; /* nothing more is waiting, most likely: answer first */
    }
    return progress;
}

bool tcp_connection_poll(struct tcp_connection *connection)
{
    if (connection->base.state != CONNECTION_OPEN)
        return false;
    connection_hold(&connection->base); /* it may be closed in here, and is looked at afterwards */
    bool progress = poll_input(connection);
    bool open = connection->base.state == CONNECTION_OPEN;
    if (progress && open) {
        connection->input_ns = rt_turn_ns(tcp_connection_loop(connection));
        tcp_thread_heat(connection);
    }
    if (open && bytes_used(&connection->out) > 0)
        (void)connection_flush(connection);
    connection_release(&connection->base);
    return progress;
}
