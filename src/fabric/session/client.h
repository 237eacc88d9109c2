/*
 * client.h - an endpoint of a fabric whose connections begin as sockets (tcp, verbs), as far as it is
 * the same in both: connecting and connecting again, calls and fences, breaking, and notice of a peer
 * that has gone silent. Lists are the backend's, which keeps them in `sent` and `waiting`.
 *
 * All of it on the endpoint's loop.
 */
#ifndef FABRIC_SESSION_CLIENT_H
#define FABRIC_SESSION_CLIENT_H

#include "fabric/session/socket_fabric.h"
#include "rt/io.h"

struct client_endpoint;

/* What differs between backends. */
struct client_ops {
    /* Room for a frame of that type, with so many bytes, at the end of the output; NULL: none now. */
    uint8_t *(*append)(struct client_endpoint *endpoint, enum wire_type type, uint32_t size);

    /* An answer to what was appended is expected: sends it, and calls client_endpoint_watch. */
    void (*pump)(struct client_endpoint *endpoint);

    /* Whether anything is expected of the peer. */
    bool (*expects)(const struct client_endpoint *endpoint);

    /* Whether lists have waited for too long, though something else was heard of the peer. NULL: what is
     * heard is enough. */
    bool (*stalled)(const struct client_endpoint *endpoint, uint64_t now);

    /* Asks for a sign of life. False: the endpoint broke. */
    bool (*ping)(struct client_endpoint *endpoint);

    /* Makes what the other end is told with the proof: its own bytes of it. NULL: there is nothing. */
    enum pando_status (*prepare_co)(struct client_endpoint *endpoint, uint8_t *proof_extra);

    /* The stream is connected, and both sides know each other: ends with client_endpoint_open. On
     * failure, here or before, `close` is called. */
    enum pando_status (*open_co)(struct client_endpoint *endpoint,
                                 const struct handshake_welcome *welcome);

    /* When it returns, nothing touches the buffers of lists any more. Harmless on one that is not open. */
    void (*close)(struct client_endpoint *endpoint);

    /* One of `sent` comes to nothing: gives back what it has, beside the list itself. NULL: nothing. */
    void (*lose)(struct client_endpoint *endpoint, struct fabric_list *list);
};

/* First member of a backend's own. */
struct client_endpoint {
    struct fabric_endpoint base;
    const struct client_ops *ops;
    struct stream stream; /* fd -1: there is none, as with one to the process itself */
    struct rt_fd fd;
    struct rt_timer timer;                       /* watches for silence */
    uint64_t input_ns;                           /* when the peer was heard last */
    struct fabric_list *sent, **sent_tail;       /* their results are expected, oldest first */
    struct fabric_list *waiting, **waiting_tail; /* no room for them yet */
    struct client_calls calls;
    struct rt_waitq room; /* those who wait for some in the output, */
    bool full;            /* if there are any */
    uint64_t id;          /* by which the server knows the connection it had before */
};

static inline struct client_endpoint *client_endpoint_of(struct fabric_endpoint *base)
{
    return container_of(base, struct client_endpoint, base);
}

static inline uint64_t client_endpoint_timeout_ns(const struct client_endpoint *endpoint)
{
    return socket_fabric_of(endpoint->base.fabric)->timeout_ns;
}

/* Fills in a zeroed one of the running loop: it is broken still. */
void client_endpoint_init(struct client_endpoint *endpoint, struct fabric *fabric, uint16_t node,
                          const struct fabric_ops *fabric_ops, const struct client_ops *ops);

/* Connects it the first time. On failure it is as fabric_connect_co finds it: to be disconnected. */
PANDO_MUST_CHECK enum pando_status client_endpoint_connect_co(struct client_endpoint *endpoint);

/* From here on its stream, if it has one, is heard by `ready`, and it works. */
PANDO_MUST_CHECK enum pando_status client_endpoint_open(struct client_endpoint *endpoint,
                                                        void (*ready)(struct rt_fd *fd,
                                                                      uint32_t events));

/* Ends what an open one has, without a word to those who wait. Not twice. */
void client_endpoint_close(struct client_endpoint *endpoint);

/* Closes it, once, and fails lists and calls with BROKEN. */
void client_endpoint_break(struct client_endpoint *endpoint, const char *why);

void client_endpoint_wake(struct client_endpoint *endpoint);

/* Bytes of the output were sent, or the endpoint broke: whoever waits for room tries again. */
static inline void client_endpoint_room(struct client_endpoint *endpoint)
{
    if (endpoint->full)
        client_endpoint_wake(endpoint);
}

/* Something is expected from now on: breaks the endpoint when nothing is heard for the timeout. True
 * if nothing was expected before: input_ns is then now. */
bool client_endpoint_watch(struct client_endpoint *endpoint);

static inline void client_sent_push(struct client_endpoint *endpoint, struct fabric_list *list)
{
    list->next = NULL;
    *endpoint->sent_tail = list;
    endpoint->sent_tail = &list->next;
}

static inline void client_waiting_push(struct client_endpoint *endpoint, struct fabric_list *list)
{
    list->next = NULL;
    *endpoint->waiting_tail = list;
    endpoint->waiting_tail = &list->next;
}

/* Lists are taken out at the front, and `next` is what is left. */
static inline void client_sent_set(struct client_endpoint *endpoint, struct fabric_list *next)
{
    endpoint->sent = next;
    if (next == NULL)
        endpoint->sent_tail = &endpoint->sent;
}

static inline void client_waiting_set(struct client_endpoint *endpoint, struct fabric_list *next)
{
    endpoint->waiting = next;
    if (next == NULL)
        endpoint->waiting_tail = &endpoint->waiting;
}

/* For tables of operations. */
enum pando_status client_endpoint_reconnect_co(struct fabric_endpoint *endpoint);
enum pando_status client_endpoint_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                          struct slice body, void *reply, uint32_t reply_capacity,
                                          uint32_t *reply_size);
enum pando_status client_endpoint_fence_co(struct fabric_endpoint *endpoint,
                                           const struct fabric_ticket *ticket);

#endif
