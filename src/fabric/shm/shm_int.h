/*
 * shm_int.h - what the files of src/fabric/shm share; who is attached is in fence_int.h, the server's side
 * in server_int.h.
 *
 *   shm.c       a process's part of the fabric: its window, open and close
 *   path.c      where a named window lies
 *   beside.c    the name of the socket beside it, and whether that is free
 *   temporary.c windows that go with their process
 *   peers.c     where others are, and the mappings of their windows
 *   endpoint.c  connect, reconnect, disconnect; the operations table
 *   post.c      lists
 *   control.c   the client's side of the control socket
 *   server.c    the owner's side of it: connections and what they say
 *   request.c   calls and fences being served, and their replies
 *   fence.c     who is attached to a window, and how to end it
 *   attached.c  the file that says so to the owner's next life
 *   process.c   naming a process without mistaking another for it
 */
#ifndef FABRIC_SHM_SHM_INT_H
#define FABRIC_SHM_SHM_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "fabric/fabric_int.h"
#include "fabric/shm/control_fmt.h"
#include "fabric/shm/shm.h"
#include "fabric/window/window.h"
#include "rt/io.h"

struct shm_server;
struct shm_attached;
struct shm_attached_file;

struct shm_fabric {
    struct fabric base;
    struct window window;             /* its base is NULL when there is none */
    struct shm_attached *attached;    /* by member; NULL without a window: see fence.c */
    uint64_t opened_id;               /* the window's when it was opened, which the record has */
    struct shm_attached_file *record; /* NULL: nobody has come yet, or it cannot be kept */
    bool unrecorded;                  /* it cannot, and that was said */
    struct shm_file file;             /* which file the window is */
    bool temporary;
    _Atomic(struct shm_server *) server; /* NULL until it is started */
    pthread_mutex_t mutex;               /* over the following: threads connect at the same time */
    struct list peers;
};

static inline struct shm_fabric *shm_fabric_of(struct fabric *fabric)
{
    return container_of(fabric, struct shm_fabric, base);
}

extern const struct fabric_ops shm_fabric_ops;
void shm_close(struct fabric *fabric);

/* A node that is this very process. */
static inline bool shm_is_self(const struct shm_fabric *fabric, uint16_t node)
{
    return fabric->window.base != NULL && node == fabric->base.node;
}

/* Incarnations wrap: true when `a` is not later than `b` on their circle. */
static inline bool shm_not_later(uint16_t a, uint16_t b)
{
    return (int16_t)(uint16_t)(a - b) <= 0;
}

/* ---- beside.c -------------------------------------------------------------------------------- */

/* The socket beside a window. `out` has room for it: a location is shorter than a socket's path. */
struct sockaddr_un;
void shm_socket_address(const char *location, struct sockaddr_un *out);

/* Removes a socket that a server of this user has left that was killed. For who holds the window's lock.
 * BUSY, DENIED, INVALID, IO, and a line in `error`: something else is there, and stays as it is. May
 * block for a moment. */
PANDO_MUST_CHECK enum pando_status shm_socket_clear(const char *location, char *error,
                                                    size_t error_bytes);

/* ---- peers.c --------------------------------------------------------------------------------- */

/* A peer's window in this process: one for all its endpoints, unmapped with the last. */
struct shm_mapping {
    struct window window;
    struct shm_file file;
    uint32_t references;
};

enum pando_status shm_peer_add(struct fabric *fabric, uint16_t node, enum fabric_target target,
                               const char *location);

/* Copies the location to `out`, FABRIC_LOCATION_MAX bytes. NOT_FOUND: nobody said where it is. */
PANDO_MUST_CHECK enum pando_status shm_peer_find(struct shm_fabric *fabric, uint16_t node,
                                                 char *out);

/* The mapping of a peer's window, which must be this file. Any thread. */
PANDO_MUST_CHECK enum pando_status shm_mapping_take(struct shm_fabric *fabric, uint16_t node,
                                                    struct shm_file file, struct shm_mapping **out);
void shm_mapping_give(struct shm_fabric *fabric, struct shm_mapping *mapping);

/* With every mapping given back. */
void shm_peers_free(struct shm_fabric *fabric);

/* Names the file behind a descriptor: device and inode, or the number of a character device. */
bool shm_file_of(int fd, struct shm_file *out);

static inline bool shm_file_same(struct shm_file a, struct shm_file b)
{
    return a.device == b.device && a.number == b.number;
}

/* ---- endpoint.c, post.c, control.c ----------------------------------------------------------- */

struct shm_endpoint {
    struct fabric_endpoint base;
    const struct window *window;
    struct shm_mapping *mapping; /* NULL: its own process's window */
    uint64_t id;                 /* by which the server knows the connection it had before */

    /* control.c */
    struct rt_fd socket; /* fd -1 when there is none */
    struct list calls;   /* sent, waiting for their replies */
    struct list unsent;  /* the socket did not take them yet; in order */
    uint64_t next_tag;
    bool reconnecting;
    struct rt_waitq reconnected;

    /* post.c: lists not yet executed; the poller is linked while there are any */
    struct fabric_list *deferred;
    struct fabric_list **deferred_end;
    struct rt_poller poller;
    uint32_t executed_at_once; /* lists in a row, since the poller ran */
};

static inline struct shm_endpoint *shm_endpoint_of(struct fabric_endpoint *endpoint)
{
    return container_of(endpoint, struct shm_endpoint, base);
}

void shm_lists_init(struct shm_endpoint *endpoint);
void shm_lists_post(struct fabric_endpoint *endpoint, struct fabric_list *list);

/* Hands every deferred list back undone. */
void shm_lists_fail(struct shm_endpoint *endpoint, enum pando_status status);

void shm_socket_init(struct shm_endpoint *endpoint);

/* Connects the socket, says who this is, and gets the answer. On failure there is no session. */
PANDO_MUST_CHECK enum pando_status
shm_socket_open_co(struct shm_endpoint *endpoint, const char *location, struct shm_welcome *out);

/* Marks the endpoint broken and fails whatever is under way with BROKEN. */
void shm_endpoint_break(struct shm_endpoint *endpoint);

/* Ends it in order: the server need not remember this endpoint. */
void shm_socket_close(struct shm_endpoint *endpoint);

/* Sends a message and waits for its reply. */
PANDO_MUST_CHECK enum pando_status
shm_socket_call_co(struct shm_endpoint *endpoint, enum shm_message_type type, uint16_t code,
                   struct slice body, void *reply, uint32_t reply_capacity, uint32_t *reply_size);

/* ---- server.c -------------------------------------------------------------------------------- */

PANDO_MUST_CHECK enum pando_status shm_server_start(struct shm_fabric *fabric,
                                                    struct shm_server **out);

/* Closes every connection, waits for the requests being served, ends the thread. */
void shm_server_stop(struct shm_server *server);

/* How many there are now. Any thread. */
uint32_t shm_server_connections(const struct shm_server *server);

/* Fences at the own window of a serving process, on the server's loop, and waits for calls of whom it
 * shuts out or lets them go on. From any loop. */
PANDO_MUST_CHECK enum pando_status
shm_server_fence_co(struct shm_server *server, struct fabric_identity identity, bool calls_go_on);

#endif
