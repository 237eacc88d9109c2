/*
 * tcp_int.h - what the files of the tcp backend share.
 *
 * A process may be a server (it has a window and listens), a client, or both. The server's threads
 * each have a loop and their share of the connections; a connection never moves. The client's
 * endpoints live on the loops of their users.
 */
#ifndef FABRIC_TCP_TCP_INT_H
#define FABRIC_TCP_TCP_INT_H

#include "fabric/session/client.h"
#include "fabric/tcp/tcp.h"
#include "fabric/tcp/wire.h"

enum {
    TCP_READ_BYTES = 256 * 1024,        /* asked of the kernel at once */
    TCP_FRAME_BYTES = 64 * 1024,        /* a frame is closed when it has grown beyond this */
    TCP_OUT_LIMIT = 2 * WIRE_FRAME_MAX, /* bytes waiting to be sent on one connection */
};

extern const struct fabric_ops tcp_fabric_ops;

extern const struct handshake_protocol tcp_protocol;

_Static_assert(
    TCP_FRAME_BYTES / WIRE_LIST_HEADER < UINT16_MAX && TCP_FRAME_BYTES < TCP_OUT_LIMIT / 2,
    "a frame's lists can be counted, and one more is never too much for half the output");

/* ---- outgoing frames ------------------------------------------------------------------------- */

/* A frame of lists or results that is still being filled lies at the end of the output. */
struct open_frame {
    uint32_t bytes; /* its header included; 0: none is open */
    uint16_t count;
};

void frame_close(struct bytes *out, struct open_frame *frame, enum wire_type type);

/* Closes the one that is open, and opens another with room for `size` bytes. */
uint8_t *frame_open(struct bytes *out, struct open_frame *frame, enum wire_type type, size_t size);

/* Room for `size` bytes in the open frame; opens one if need be, and closes a grown one first. NULL
 * when the output is over its limit. frame_added makes what was put there part of it. */
static inline uint8_t *frame_room(struct bytes *out, struct open_frame *frame, enum wire_type type,
                                  size_t size)
{
    if (frame->bytes == 0 || frame->bytes + size > TCP_FRAME_BYTES)
        return frame_open(out, frame, type, size);
    return bytes_reserve(out, size, TCP_OUT_LIMIT);
}

/* Bytes for which there is room in the open frame as it is. */
static inline size_t frame_left(const struct bytes *out, const struct open_frame *frame)
{
    size_t room = out->capacity - out->tail;
    if (frame->bytes == 0 || frame->bytes >= TCP_FRAME_BYTES ||
        bytes_used(out) >= TCP_OUT_LIMIT / 2)
        return 0;
    return room < TCP_FRAME_BYTES - frame->bytes ? room : TCP_FRAME_BYTES - frame->bytes;
}

static inline void frame_added(struct bytes *out, struct open_frame *frame, size_t size,
                               unsigned count)
{
    bytes_appended(out, size);
    frame->bytes += (uint32_t)size;
    frame->count += (uint16_t)count;
}

/* ---- connection.c: one client, as its server sees it ----------------------------------------- */

struct tcp_connection {
    struct connection base;
    struct list hot_link; /* in its thread's hot ones: polled without asking epoll */
    struct rt_fd fd;
    struct bytes in, out;
    uint32_t lists_bytes_left; /* of the LISTS frame being read */
    uint16_t lists_left;
    struct open_frame results;
    bool throttled; /* its output is full: no input is looked at */
    uint64_t input_ns;
};

static inline struct tcp_connection *tcp_connection_of(struct connection *base)
{
    return container_of(base, struct tcp_connection, base);
}

static inline struct rt_loop *tcp_connection_loop(const struct tcp_connection *connection)
{
    return connection_loop(connection->base.thread);
}

/* Reads, executes, answers; true when there was something. */
bool tcp_connection_poll(struct tcp_connection *connection);

/* Parts of the connection's operations. */
enum pando_status tcp_connection_open(struct connection *base);
void tcp_connection_close(struct connection *base);
void tcp_connection_free(struct connection *base);
void tcp_connection_answer(struct connection *base, uint64_t tag, enum pando_status status,
                           const uint8_t *body, uint32_t size);

/* ---- server.c: what each thread of it does besides ------------------------------------------- */

struct tcp_thread {
    struct connection_thread *base;
    struct list hot;
    struct rt_poller poller;
    bool polling;
    struct rt_timer tick;
    _Atomic uint64_t lists, operations; /* executed; written by this thread alone */
};

/* Only the owner adds, so that it needs no locked instruction. */
static inline void tcp_thread_count(struct tcp_thread *thread, uint32_t lists, uint32_t operations)
{
    atomic_store_explicit(&thread->lists,
                          atomic_load_explicit(&thread->lists, memory_order_relaxed) + lists,
                          memory_order_relaxed);
    atomic_store_explicit(&thread->operations,
                          atomic_load_explicit(&thread->operations, memory_order_relaxed) +
                              operations,
                          memory_order_relaxed);
}

extern const struct connection_ops tcp_connection_ops;

/* The connection has input now and then: poll it directly. */
void tcp_thread_heat(struct tcp_connection *connection);

/* ---- endpoint.c: the client's side ------------------------------------------------------------ */

struct tcp_endpoint {
    struct client_endpoint client;
    struct rt_poller poller;
    bool polling;
    struct bytes in, out;
    struct open_frame lists;
    uint32_t results_bytes_left; /* of the RESULTS frame being read */
    uint16_t results_left;
    uint16_t next_tag, expected_tag;
};

enum pando_status tcp_connect_co(struct fabric *fabric, uint16_t node, uint64_t window,
                                 struct fabric_endpoint **out);
void tcp_disconnect_co(struct fabric_endpoint *endpoint);
void tcp_post(struct fabric_endpoint *endpoint, struct fabric_list *list);

/* An endpoint that is broken still; NULL: no memory. */
struct tcp_endpoint *tcp_endpoint_create(struct fabric *fabric, uint16_t node);

/* Its stream is connected and proven: it works from now on. */
PANDO_MUST_CHECK enum pando_status tcp_endpoint_open(struct tcp_endpoint *endpoint);

/* self.c: an endpoint to this process's own window */
enum pando_status tcp_self_connect(struct socket_fabric *fabric, struct fabric_endpoint **out);

#endif
