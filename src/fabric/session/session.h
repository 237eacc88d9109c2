/*
 * session.h - the server of a backend whose clients come over sockets: threads, strangers, those
 * that were let in, their requests, and shutting them out.
 *
 * A socket is a stranger until its task has seen a proof that it knows the secret (accept.c). Then
 * its endpoint's former connection is ended, fences are looked at, and it becomes a connection,
 * which belongs to its thread and never moves. What a connection does besides calls and fences is
 * the backend's. There is always room for one more stranger: it takes the place of an older one
 * (fabric/stream/strangers.h).
 */
#ifndef FABRIC_SESSION_SESSION_H
#define FABRIC_SESSION_SESSION_H

#include <stdatomic.h>

#include "base/log_limit.h"
#include "fabric/session/handshake.h"
#include "fabric/stream/acceptor.h"
#include "fabric/window/window.h"
#include "rt/io.h"

enum { CONNECTION_THREADS_MAX = 16 };

enum connection_state {
    CONNECTION_STRANGER, /* its task is at work */
    CONNECTION_OPEN,
    CONNECTION_CLOSED, /* freed when nothing holds it any more */
};

struct connection_thread;
struct connection_server;

/* First member of a backend's own. */
struct connection {
    struct rt_message message; /* hands it over to its thread */
    struct list link;          /* in its thread's connections, or its closed ones */
    struct connection_thread *thread;
    struct stream stream;
    enum connection_state state;
    unsigned holds;  /* calls, fences and admissions under way */
    unsigned fences; /* of these, fences */
    struct fabric_identity identity;
    uint64_t endpoint_id;     /* 0: not known yet */
    bool was_open;            /* before it was closed: then nothing but calls is left of it */
    struct stranger stranger; /* until it has proved that it knows the secret */
};

/* What differs between backends. All run on the connection's own loop. */
struct connection_ops {
    const char *thread_name;
    size_t connection_bytes; /* of the backend's struct, which is zeroed */

    /* A thread begins and ends; on a task of it. */
    enum pando_status (*thread_start)(struct connection_thread *thread);
    void (*thread_stop_co)(struct connection_thread *thread);

    /* The peer is who it says. Makes what it needs before it is told so, and fills the WELCOME's
     * own bytes. May suspend, and the connection be closed meanwhile. Other than OK: it is
     * refused. */
    enum pando_status (*prepare_co)(struct connection *connection, const uint8_t *proof_extra,
                                    uint8_t *welcome_extra);
    /* It is let in: from here on its stream is the backend's. */
    enum pando_status (*open)(struct connection *connection);
    /* An open one ends: when this returns nothing that it sent takes effect any more. */
    void (*close)(struct connection *connection);
    /* Nothing holds it any more. Also of strangers, prepared or not. */
    void (*free)(struct connection *connection);

    /* A REPLY. Never called on a closed one; may close it. */
    void (*answer)(struct connection *connection, uint64_t tag, enum pando_status status,
                   const uint8_t *body, uint32_t size);
};

struct connection_thread {
    struct connection_server *server;
    unsigned index;
    struct rt_thread *thread;
    struct rt_task *main;
    struct list connections;
    struct list closed; /* held by tasks still */
    struct rt_message stop_message;
    bool stopping, listening;
    uint8_t *reply; /* room for one, of a call that was answered; NULL: in use */
    void *own;      /* the backend's */
};

static inline struct rt_loop *connection_loop(const struct connection_thread *thread)
{
    return rt_thread_loop(thread->thread);
}

struct connection_server {
    const struct connection_ops *ops;
    const struct handshake_protocol *protocol;
    struct fabric *fabric;
    const struct window *window;
    struct credentials *credentials;
    uint64_t timeout_ns;
    struct acceptor acceptor;
    int listener;
    unsigned thread_count, next_thread;
    struct strangers *strangers;
    struct log_limit strangers_log; /* of what is said about them */
    atomic_uint sockets;            /* of connections and strangers */
    atomic_uint released;           /* closed connections that nothing holds any more, ever */
    struct rt_waitq release;        /* when one more is */
    struct connection_thread threads[CONNECTION_THREADS_MAX];
};

/* What server_create needs; the pointers outlive the server. */
struct connection_server_options {
    const struct connection_ops *ops;
    const struct handshake_protocol *protocol;
    struct fabric *fabric;
    const struct window *window;
    struct credentials *credentials;
    uint64_t timeout_ns;
    const char *listen;
    unsigned threads; /* 0 for one */
};

/* Binds the port. */
PANDO_MUST_CHECK enum pando_status
connection_server_create(const struct connection_server_options *options,
                         struct connection_server **out, char *error, size_t error_bytes);

/* Begins to accept. */
PANDO_MUST_CHECK enum pando_status connection_server_start(struct connection_server *server);
void connection_server_destroy(struct connection_server *server);

/* Where others find it: `advertise`, or the address itself. */
void connection_server_location(const struct connection_server *server, const char *advertise,
                                char out[FABRIC_LOCATION_MAX]);

/* Closes every connection that matches, on all threads, and waits until none of their requests is
 * still running. By identity (it and earlier incarnations), or by endpoint. OK or TIMEOUT. */
struct connection_filter {
    bool all;                        /* that have an endpoint's name */
    struct fabric_identity identity; /* member 0: by endpoint */
    uint64_t endpoint_id;
    const struct connection *except;
    bool calls_go_on; /* of those that were open: nothing but lists is to end */
};
PANDO_MUST_CHECK enum pando_status connection_drop_co(struct connection_server *server,
                                                      const struct connection_filter *filter);

/* A process fences somebody at its own window, which it may not serve to others: server NULL then.
 * With a ticket; or because it knows, for lists alone (fabric_fence_own_co). */
PANDO_MUST_CHECK enum pando_status connection_own_fence_co(struct connection_server *server,
                                                           const struct window *window,
                                                           struct fabric_identity dead);
PANDO_MUST_CHECK enum pando_status connection_self_fence_co(struct fabric *fabric,
                                                            struct connection_server *server,
                                                            const struct window *window,
                                                            const struct fabric_ticket *ticket);

/* ---- one connection, on its loop ------------------------------------------------------------- */

/* `why` is logged unless it is NULL. The connection may be freed when this returns. */
void connection_close(struct connection *connection, const char *why);
void connection_hold(struct connection *connection);
void connection_release(struct connection *connection);

/* A CALL or FENCE frame: served on a task, answered by ops->answer. False: no honest peer. */
bool connection_serve_call(struct connection *connection, const struct wire_call *call);
bool connection_serve_fence(struct connection *connection, const uint8_t *body);

/* Between server.c and accept.c: a new socket. */
void connection_accept(struct connection_server *server, struct connection *connection);

#endif
