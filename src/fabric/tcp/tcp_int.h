/*
 * tcp_int.h - what the files of the tcp backend share.
 *
 * A process may be a server (it has a window and listens), a client, or both. The server's threads
 * each have a loop and their share of the connections; a connection never moves. The client's
 * endpoints live on the loops of their users.
 */
#ifndef FABRIC_TCP_TCP_INT_H
#define FABRIC_TCP_TCP_INT_H

#include "fabric/fabric_int.h"
#include "fabric/session/connect.h"
#include "fabric/session/session.h"
#include "fabric/tcp/tcp.h"
#include "fabric/tcp/wire.h"

enum {
    TCP_READ_BYTES = 256 * 1024,        /* asked of the kernel at once */
    TCP_FRAME_BYTES = 64 * 1024,        /* a frame is closed when it has grown beyond this */
    TCP_OUT_LIMIT = 2 * WIRE_FRAME_MAX, /* bytes waiting to be sent on one connection */
};

struct tcp_fabric {
    struct fabric base;
    struct window window; /* base NULL: a client only */
    struct secret secret;
    SSL_CTX *server_tls, *client_tls;
    uint64_t timeout_ns;
    struct session_peers peers;
    struct session_server *server; /* NULL: does not listen */
};

static inline struct tcp_fabric *tcp_fabric_of(struct fabric *fabric)
{
    return container_of(fabric, struct tcp_fabric, base);
}

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

struct connection {
    struct session base;
    struct list hot_link; /* in its thread's hot ones: polled without asking epoll */
    struct rt_fd fd;
    struct bytes in, out;
    uint32_t lists_bytes_left; /* of the LISTS frame being read */
    uint16_t lists_left;
    struct open_frame results;
    bool throttled; /* its output is full: no input is looked at */
    uint64_t input_ns;
};

static inline struct connection *connection_of(struct session *session)
{
    return container_of(session, struct connection, base);
}

static inline struct rt_loop *connection_loop(const struct connection *connection)
{
    return session_loop(connection->base.thread);
}

/* Reads, executes, answers; true when there was something. */
bool connection_poll(struct connection *connection);

/* Parts of the session's operations. */
enum pando_status connection_open(struct session *session);
void connection_close(struct session *session);
void connection_free(struct session *session);
void connection_answer(struct session *session, uint64_t tag, enum pando_status status,
                       const uint8_t *body, uint32_t size);

/* ---- server.c: what each thread of it does besides --------------------------------------------- */

struct tcp_thread {
    struct session_thread *base;
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

extern const struct session_ops tcp_session_ops;

/* The connection has input now and then: poll it directly. */
void tcp_thread_heat(struct connection *connection);

/* ---- endpoint.c, connect.c: the client's side ------------------------------------------------ */

struct tcp_endpoint {
    struct fabric_endpoint base;
    struct stream stream;
    struct rt_fd fd;
    struct rt_poller poller;
    bool polling;
    struct rt_timer timer; /* watches for silence */
    uint64_t input_ns;     /* when the peer was heard last */
    struct bytes in, out;
    struct open_frame lists;
    uint32_t results_bytes_left; /* of the RESULTS frame being read */
    uint16_t results_left;
    uint16_t next_tag, expected_tag;
    struct fabric_list *sent, **sent_tail;       /* encoded, oldest first */
    struct fabric_list *waiting, **waiting_tail; /* no room in the output yet */
    struct session_calls calls;
    uint64_t endpoint_id;
};

enum pando_status tcp_connect_co(struct fabric *fabric, uint16_t node,
                                 struct fabric_endpoint **out);
enum pando_status tcp_reconnect_co(struct fabric_endpoint *endpoint);
void tcp_disconnect_co(struct fabric_endpoint *endpoint);
void tcp_post(struct fabric_endpoint *endpoint, struct fabric_list *list);
enum pando_status tcp_call_co(struct fabric_endpoint *endpoint, uint16_t method, struct slice body,
                              void *reply, uint32_t reply_capacity, uint32_t *reply_size);
enum pando_status tcp_fence_co(struct fabric_endpoint *endpoint, struct fabric_identity identity);

/* Makes a connected and proven stream the endpoint's. */
PANDO_MUST_CHECK enum pando_status tcp_endpoint_open(struct tcp_endpoint *endpoint,
                                                     struct stream stream);
void tcp_endpoint_break(struct tcp_endpoint *endpoint, const char *why);

/* self.c: an endpoint to this process's own window */
enum pando_status tcp_self_connect(struct tcp_fabric *fabric, struct fabric_endpoint **out);

#endif
