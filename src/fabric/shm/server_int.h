/*
 * server_int.h - what server.c and request.c share. All of it belongs to the server's loop.
 *
 *   socket -> connection -> request (a task) -> handler -> reply -> connection -> socket
 *
 * Nothing here waits for a client. There are SHM_REQUESTS_MAX requests; when all are in use,
 * sockets are left unread until one is free ("starved" connections). A socket that takes no reply
 * leaves it in a queue, and is not read either until the queue is empty; the queues of all have one
 * limit, and the connection that would exceed it is dropped.
 */
#ifndef FABRIC_SHM_SERVER_INT_H
#define FABRIC_SHM_SERVER_INT_H

#include "fabric/shm/fence_int.h"
#include "fabric/stream/acceptor.h"

enum {
    SHM_CONNECTIONS_MAX = 1024,
    SHM_REQUESTS_MAX = 64,
    SHM_QUEUED_BYTES_MAX = 16 * 1024 * 1024,
};

struct shm_connection {
    struct list link;
    struct list starved; /* in the server's list of that name, or alone */
    struct shm_server *server;
    struct rt_fd socket;
    bool welcomed;
    bool goodbye;                /* its end was announced */
    bool closed;                 /* remains until its last request has ended */
    struct shm_attached process; /* its descriptor goes on to the member's attachment */
    struct fabric_identity identity;
    uint64_t endpoint;
    uint32_t requests;
    struct list queue; /* replies the socket did not take */
};

/* A message from a client and the buffers to serve it with. */
struct shm_request {
    struct list link; /* idle or running */
    struct shm_connection *connection;
    struct fabric_identity from;
    union {
        struct shm_header header;
        uint8_t bytes[SHM_MESSAGE_MAX];
    } in, out;
};

/* How much of a member is connected here. */
struct shm_presence {
    uint32_t connections;
    bool lost; /* some went without GOODBYE: its process may still have the window */
};

struct shm_server {
    struct shm_fabric *fabric;
    struct rt_thread *thread;
    struct rt_task *main;
    struct rt_message stop;
    bool stopping;
    int listener;
    struct acceptor accepting;
    uint64_t refused_said_ns; /* when the log told of a client that was turned away; 0: never */
    struct list connections;
    _Atomic uint32_t connection_count;
    struct list starved;
    struct list idle;
    struct list running;
    uint32_t request_count; /* idle and running */
    struct rt_waitq request_ended;
    size_t queued_bytes;
    pthread_mutex_t handoff; /* see shm_server_fence_co */
    struct shm_presence members[FABRIC_MEMBERS_MAX];
};

/* ---- server.c: its parts, which the fuzzer of the control socket uses without the thread ------ */

/* Without a socket and a thread; NULL: no memory. */
struct shm_server *shm_server_create(struct shm_fabric *fabric);
void shm_server_destroy(struct shm_server *server);

/* A client has connected, its socket is ready, and all of them end: when it returns no request runs. */
void shm_connection_open(struct shm_server *server, int fd);
void shm_connection_ready(struct rt_fd *fd, uint32_t events);
void shm_connections_end_co(struct shm_server *server);

/* After it the connection must not be touched, unless a request of it is still running. */
void shm_connection_close(struct shm_connection *connection);

/* Reads it again, or not, as it stands. */
void shm_connection_update(struct shm_connection *connection);

/* Lets one starved connection read, if a request is free. */
void shm_server_feed(struct shm_server *server);

/* Fences at this window; on the server's loop. Waits for calls of whom it shuts out, or lets them
 * go on. */
PANDO_MUST_CHECK enum pando_status shm_server_fence_here_co(struct shm_server *server,
                                                            struct fabric_identity identity,
                                                            bool calls_go_on);

/* ---- request.c ------------------------------------------------------------------------------- */

bool shm_request_free(const struct shm_server *server);

/* To read a message into; NULL when none is free. */
struct shm_request *shm_request_take(struct shm_server *server);
void shm_request_give(struct shm_server *server, struct shm_request *request);
void shm_requests_destroy(struct shm_server *server);

/* Serves it on a task; afterwards it is given back. */
void shm_request_start(struct shm_connection *connection, struct shm_request *request);

/* Answers the message in `in` with the body that lies in `out` already. False: the connection was
 * closed. */
bool shm_reply(struct shm_connection *connection, struct shm_request *request,
               enum pando_status status, uint32_t body_bytes);

/* Sends what had to wait. False: the connection was closed. */
bool shm_queue_send(struct shm_connection *connection);
void shm_queue_drop(struct shm_connection *connection);

#endif
