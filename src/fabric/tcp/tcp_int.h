/*
 * tcp_int.h - what the files of the tcp backend share.
 *
 * A process may be a server (it has a window and listens), a client, or both. The server's threads
 * each have a loop and their share of the connections; a connection never moves. The client's
 * endpoints live on the loops of their users.
 */
#ifndef FABRIC_TCP_TCP_INT_H
#define FABRIC_TCP_TCP_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "fabric/fabric_int.h"
#include "fabric/stream/bytes.h"
#include "fabric/stream/secret.h"
#include "fabric/stream/stream.h"
#include "fabric/tcp/tcp.h"
#include "fabric/tcp/wire.h"
#include "rt/io.h"

enum {
    TCP_READ_BYTES = 256 * 1024,        /* asked of the kernel at once */
    TCP_FRAME_BYTES = 64 * 1024,        /* a frame is closed when it has grown beyond this */
    TCP_OUT_LIMIT = 2 * WIRE_FRAME_MAX, /* bytes waiting to be sent on one connection */
    TCP_THREADS_MAX = 16,
};

struct peer {
    struct list link;
    uint16_t node;
    enum fabric_target target;
    char location[FABRIC_LOCATION_MAX];
};

struct server;

struct tcp_fabric {
    struct fabric base;
    struct window window; /* base NULL: a client only */
    struct secret secret;
    SSL_CTX *server_tls, *client_tls;
    uint64_t timeout_ns;
    pthread_mutex_t mutex; /* peers: threads connect at the same time */
    struct list peers;
    struct server *server; /* NULL: does not listen */
};

static inline struct tcp_fabric *tcp_fabric_of(struct fabric *fabric)
{
    return container_of(fabric, struct tcp_fabric, base);
}

extern const struct fabric_ops tcp_fabric_ops;

/* ---- handshake.c: who proves what, for both sides -------------------------------------------- */

struct handshake {
    uint8_t client_nonce[WIRE_NONCE_BYTES];
    uint8_t server_nonce[WIRE_NONCE_BYTES];
    uint8_t binding[STREAM_BINDING_BYTES];
};

enum handshake_side { HANDSHAKE_CLIENT, HANDSHAKE_SERVER };

/* Proof of the side over the handshake so far and the bytes that precede it in its frame. */
PANDO_MUST_CHECK enum pando_status handshake_proof(const struct secret *secret,
                                                   enum handshake_side side,
                                                   const struct handshake *handshake,
                                                   struct slice said,
                                                   uint8_t out[WIRE_PROOF_BYTES]);

/* ---- outgoing frames ------------------------------------------------------------------------- */

/* A frame of lists or results that is still being filled lies at the end of the output. */
struct open_frame {
    uint32_t bytes; /* its header included; 0: none is open */
    uint16_t count;
};

/* Room for `size` bytes in the open frame; opens one if need be, and closes a grown one first. NULL
 * when the output is over its limit. frame_added makes what was put there part of it. */
uint8_t *frame_room(struct bytes *out, struct open_frame *frame, enum wire_type type, size_t size);
void frame_added(struct bytes *out, struct open_frame *frame, size_t size);
void frame_close(struct bytes *out, struct open_frame *frame, enum wire_type type);

/* Room for a whole frame with a body of `size` bytes, its header already written. */
uint8_t *frame_whole(struct bytes *out, enum wire_type type, uint32_t size);

/* ---- connection.c: one client, as its server sees it ----------------------------------------- */

enum connection_state {
    CONNECTION_TLS,
    CONNECTION_HELLO,
    CONNECTION_PROOF,
    CONNECTION_ADMIT, /* a task drops the endpoint's former session */
    CONNECTION_OPEN,
    CONNECTION_CLOSED, /* freed when nothing holds it any more */
};

struct server_thread;

struct connection {
    struct rt_message message; /* hands it over to its thread */
    struct list link;          /* in its thread's connections */
    struct list hot_link;      /* in its thread's hot ones: polled without asking epoll */
    struct server_thread *thread;
    struct stream stream;
    struct rt_fd fd;
    enum connection_state state;
    struct bytes in, out;
    uint32_t lists_bytes_left; /* of the LISTS frame being read */
    uint16_t lists_left;
    struct open_frame results;
    bool throttled; /* its output is full: no input is looked at */
    uint64_t born_ns, input_ns;
    unsigned holds; /* calls, fences and admissions under way */
    struct fabric_identity identity;
    uint64_t endpoint_id;
    struct handshake handshake;
};

struct connection *connection_create(int fd);
void connection_start(struct connection *connection, struct server_thread *thread);
void connection_close(struct connection *connection, const char *why);

/* Reads, executes, answers; true when there was something. */
bool connection_poll(struct connection *connection);

/* serve.c: requests that run as tasks */
bool connection_call(struct connection *connection, const struct wire_call *call);
bool connection_fence(struct connection *connection, const uint8_t *body);
bool connection_admit(struct connection *connection, const uint8_t *proof_body);
void connection_release(struct connection *connection);

/* Sends what is queued; false when that closed the connection. */
bool connection_flush(struct connection *connection);

/* ---- server.c -------------------------------------------------------------------------------- */

struct server_thread {
    struct server *server;
    unsigned index;
    struct rt_thread *thread;
    struct rt_task *main;
    struct list connections;
    struct list closed; /* held by tasks still */
    struct list hot;
    struct rt_poller poller;
    bool polling;
    struct rt_timer tick;
    struct rt_message stop_message;
    bool stopping;
    _Atomic uint64_t lists, operations; /* executed; written by this thread alone */
};

/* Only the owner adds, so that it needs no locked instruction. */
static inline void server_thread_count(struct server_thread *thread, uint32_t operations)
{
    atomic_store_explicit(&thread->lists,
                          atomic_load_explicit(&thread->lists, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&thread->operations,
                          atomic_load_explicit(&thread->operations, memory_order_relaxed) +
                              operations,
                          memory_order_relaxed);
}

static inline struct rt_loop *server_loop(const struct server_thread *thread)
{
    return rt_thread_loop(thread->thread);
}

struct server {
    struct tcp_fabric *fabric;
    struct rt_fd listener;
    unsigned thread_count, next_thread;
    atomic_uint strangers;   /* connections that have not proved anything yet */
    atomic_uint connections; /* all of them */
    struct server_thread threads[TCP_THREADS_MAX];
};

PANDO_MUST_CHECK enum pando_status server_create(struct tcp_fabric *fabric, const char *listen,
                                                 unsigned threads, char *error, size_t error_bytes);
PANDO_MUST_CHECK enum pando_status server_start(struct server *server);
void server_destroy(struct server *server);

/* The connection has input now and then: poll it directly. */
void server_thread_heat(struct connection *connection);

/* Closes every connection that matches, on all threads, and waits until none of their requests is
 * still running. By identity (it and earlier incarnations), or by endpoint. Returns OK or TIMEOUT.
 */
struct drop_filter {
    struct fabric_identity identity; /* member 0: by endpoint */
    uint64_t endpoint_id;
    const struct connection *except;
};
PANDO_MUST_CHECK enum pando_status server_drop_co(struct server *server,
                                                  const struct drop_filter *filter);

/* ---- endpoint.c, connect.c: the client's side ------------------------------------------------ */

struct tcp_call {
    struct list link;
    uint64_t tag;
    struct rt_task *task;
    bool done;
    enum pando_status status;
    uint8_t *reply;
    uint32_t capacity, size;
};

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
    struct list calls;
    uint64_t next_call;
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
