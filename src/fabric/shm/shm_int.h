/*
 * shm_int.h - what the files of src/fabric/shm share.
 *
 *   shm.c       a process's part of the fabric: its window, open and close
 *   path.c      where a named window lies
 *   temporary.c windows that go with their process
 *   peers.c     where others are, and the mappings of their windows
 *   endpoint.c  connect, reconnect, disconnect; the operations table
 *   post.c      lists
 *   session.c   the client's side of the control socket
 *   server.c    the owner's side of it: connections and what they say
 *   request.c   calls and fences being served, and their replies
 *   fence.c     who is attached to a window, and how to end it
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

struct shm_fabric {
    struct fabric base;
    struct window window; /* its base is NULL when there is none */
    struct shm_file file; /* which file the window is */
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

/* The socket beside a window. `out` has room for it: a location is shorter than a socket's path. */
struct sockaddr_un;
void shm_socket_address(const char *location, struct sockaddr_un *out);

/* ---- temporary.c ----------------------------------------------------------------------------- */

/* True when the path still leads to this file. */
bool shm_path_leads_to(const char *path, int fd);

/* Removes what a process that was killed has left at that path. Only a window is, and only by the one who
 * holds its lock while the path leads to it, so that of two who try none removes what the other has just
 * made. */
void shm_leftover_remove(const char *path);

/* The same of a file that was just made and could not become a window. */
void shm_stillborn_remove(const char *path);

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

/* ---- endpoint.c, post.c, session.c ----------------------------------------------------------- */

struct shm_endpoint {
    struct fabric_endpoint base;
    const struct window *window;
    struct shm_mapping *mapping; /* NULL: its own process's window */
    uint64_t id;                 /* by which the server knows the connection it had before */

    /* session.c */
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

void shm_session_init(struct shm_endpoint *endpoint);

/* Connects the socket, says who this is, and gets the answer. On failure there is no session. */
PANDO_MUST_CHECK enum pando_status
shm_session_open_co(struct shm_endpoint *endpoint, const char *location, struct shm_welcome *out);

/* Marks the endpoint broken and fails whatever is under way with BROKEN. */
void shm_session_break(struct shm_endpoint *endpoint);

/* Ends it in order: the server need not remember this endpoint. */
void shm_session_end(struct shm_endpoint *endpoint);

/* Sends a message and waits for its reply. */
PANDO_MUST_CHECK enum pando_status
shm_session_ask_co(struct shm_endpoint *endpoint, enum shm_message_type type, uint16_t code,
                   struct slice body, void *reply, uint32_t reply_capacity, uint32_t *reply_size);

/* ---- fence.c, process.c ---------------------------------------------------------------------- */

enum { SHM_PROCESS_UNSEEN = UINT32_MAX }; /* attached, but this process cannot tell which it is */

/* Fills in `process` and `start_time` of who connected a socket; false: it has hung up. */
bool shm_process_at(int socket, struct window_attachment *out);

enum shm_life { SHM_GONE, SHM_LIVES, SHM_UNKNOWN };

/* Does this very process live? If it does, *pidfd (when wanted) is a descriptor of it. */
enum shm_life shm_process_look(const struct window_attachment *who, int *pidfd);

/* Kills it and waits until it is dead. UNSUPPORTED: it is this process, or not to be killed. */
PANDO_MUST_CHECK enum pando_status shm_process_end_co(const struct window_attachment *who);

/*
 * Attachments. They are in the window, so that a restarted owner still knows whom to end. Only the
 * server's loop touches them, or before there is a server whoever fences.
 */
struct window_attachment shm_attachment(const struct shm_fabric *fabric, uint16_t member);

/* Lets a process in as a member. *fresh: it was not attached as that member before. FENCED; BUSY:
 * another process that may be alive is attached as this member. */
PANDO_MUST_CHECK enum pando_status shm_attach(struct shm_fabric *fabric,
                                              struct fabric_identity identity,
                                              struct window_attachment who, bool *fresh);
void shm_detach(struct shm_fabric *fabric, uint16_t member);

/* Records the fence and ends the member's process, if that is attached. */
PANDO_MUST_CHECK enum pando_status shm_fence_window_co(struct shm_fabric *fabric,
                                                       struct fabric_identity identity);

/* ---- server.c -------------------------------------------------------------------------------- */

PANDO_MUST_CHECK enum pando_status shm_server_start(struct shm_fabric *fabric,
                                                    struct shm_server **out);

/* Closes every connection, waits for the requests being served, ends the thread. */
void shm_server_stop(struct shm_server *server);

/* How many there are now. Any thread. */
uint32_t shm_server_connections(const struct shm_server *server);

/* Fences at the own window of a serving process, on the server's loop. From any loop. */
PANDO_MUST_CHECK enum pando_status shm_server_fence_co(struct shm_server *server,
                                                       struct fabric_identity identity);

#endif
