/*
 * session.h - the server of a backend whose clients come over sockets: threads, strangers, those
 * that were let in, their requests, and shutting them out.
 *
 * A socket is a stranger until its task has proved that it knows the secret (accept.c). Then its
 * endpoint's former session is ended, fences are looked at, and it becomes a session, which belongs
 * to its thread and never moves. What a session does besides calls and fences is the backend's.
 */
#ifndef FABRIC_SESSION_SESSION_H
#define FABRIC_SESSION_SESSION_H

#include <stdatomic.h>

#include "fabric/session/handshake.h"
#include "fabric/window/window.h"
#include "rt/io.h"

enum { SESSION_THREADS_MAX = 16 };

enum session_state {
    SESSION_STRANGER, /* its task is at work */
    SESSION_OPEN,
    SESSION_CLOSED, /* freed when nothing holds it any more */
};

struct session_thread;
struct session_server;

/* First member of a backend's own. */
struct session {
    struct rt_message message; /* hands it over to its thread */
    struct list link;          /* in its thread's sessions, or its closed ones */
    struct session_thread *thread;
    struct stream stream;
    enum session_state state;
    unsigned holds; /* calls, fences and admissions under way */
    struct fabric_identity identity;
    uint64_t endpoint_id; /* 0: not known yet */
};

/* What differs between backends. All run on the session's own loop. */
struct session_ops {
    const char *thread_name;
    size_t session_bytes; /* of the backend's struct, which is zeroed */

    /* A thread begins and ends; on a task of it. */
    enum pando_status (*thread_start)(struct session_thread *thread);
    void (*thread_stop_co)(struct session_thread *thread);

    /* The peer is who it says. Makes what it needs before it is told so, and fills the WELCOME's
     * own bytes. May suspend, and the session be closed meanwhile. Other than OK: it is refused. */
    enum pando_status (*prepare_co)(struct session *session, const uint8_t *proof_extra,
                                    uint8_t *welcome_extra);
    /* It is let in: from here on its stream is the backend's. */
    enum pando_status (*open)(struct session *session);
    /* An open one ends: when this returns nothing that it sent takes effect any more. */
    void (*close)(struct session *session);
    /* Nothing holds it any more. Also of strangers, prepared or not. */
    void (*free)(struct session *session);

    /* A REPLY. Never called on a closed one; may close it. */
    void (*answer)(struct session *session, uint64_t tag, enum pando_status status,
                   const uint8_t *body, uint32_t size);
};

struct session_thread {
    struct session_server *server;
    unsigned index;
    struct rt_thread *thread;
    struct rt_task *main;
    struct list sessions;
    struct list closed; /* held by tasks still */
    struct rt_message stop_message;
    bool stopping, listening;
    uint8_t *reply; /* room for one, of a call that was answered; NULL: in use */
    void *own;      /* the backend's */
};

static inline struct rt_loop *session_loop(const struct session_thread *thread)
{
    return rt_thread_loop(thread->thread);
}

struct session_server {
    const struct session_ops *ops;
    const struct handshake_protocol *protocol;
    struct fabric *fabric;
    const struct window *window;
    const struct secret *secret;
    SSL_CTX *tls; /* NULL: plain */
    uint64_t timeout_ns;
    struct rt_fd listener;
    unsigned thread_count, next_thread;
    atomic_uint strangers; /* that have not proved anything yet */
    atomic_uint sockets;   /* all of them */
    struct session_thread threads[SESSION_THREADS_MAX];
};

/* What server_create needs; the pointers outlive the server. */
struct session_server_options {
    const struct session_ops *ops;
    const struct handshake_protocol *protocol;
    struct fabric *fabric;
    const struct window *window;
    const struct secret *secret;
    SSL_CTX *tls;
    uint64_t timeout_ns;
    const char *listen;
    unsigned threads; /* 0 for one */
};

/* Binds the port. */
PANDO_MUST_CHECK enum pando_status
session_server_create(const struct session_server_options *options, struct session_server **out,
                      char *error, size_t error_bytes);

/* Begins to accept. */
PANDO_MUST_CHECK enum pando_status session_server_start(struct session_server *server);
void session_server_destroy(struct session_server *server);

/* Where others find it: `advertise`, or the address itself. */
void session_server_location(const struct session_server *server, const char *advertise,
                             char out[FABRIC_LOCATION_MAX]);

/* Closes every session that matches, on all threads, and waits until none of their requests is
 * still running. By identity (it and earlier incarnations), or by endpoint. OK or TIMEOUT. */
struct session_filter {
    struct fabric_identity identity; /* member 0: by endpoint */
    uint64_t endpoint_id;
    const struct session *except;
};
PANDO_MUST_CHECK enum pando_status session_drop_co(struct session_server *server,
                                                   const struct session_filter *filter);

/* Records the fence and ends the sessions it concerns. */
PANDO_MUST_CHECK enum pando_status session_fence_co(struct session_server *server,
                                                    struct fabric_identity identity);

/* A process fences somebody at its own window, which it may not serve to others: server NULL then. */
PANDO_MUST_CHECK enum pando_status session_self_fence_co(struct session_server *server,
                                                         const struct window *window,
                                                         struct fabric_identity identity);

/* ---- one session, on its loop ---------------------------------------------------------------- */

/* `why` is logged unless it is NULL. The session may be freed when this returns. */
void session_close(struct session *session, const char *why);
void session_hold(struct session *session);
void session_release(struct session *session);

/* A CALL or FENCE frame: served on a task, answered by ops->answer. False: no honest peer. */
bool session_serve_call(struct session *session, const struct wire_call *call);
bool session_serve_fence(struct session *session, const uint8_t *body);

/* Between server.c and accept.c: a new socket. */
void session_accept(struct session_server *server, struct session *session);

#endif
