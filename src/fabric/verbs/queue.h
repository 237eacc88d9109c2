/*
 * queue.h - one end of a connection: a queue pair with a completion queue of its own, and the
 * receives for packets; and lanes, what the queues of one loop share.
 *
 * Completions. A queue is polled in every turn of its loop while it is *hot*: while something is
 * expected of it, and for a while after something came. When it cools down, and when the loop is
 * about to sleep, the card is asked for an event on the lane's completion channel, which wakes the
 * loop. So nothing is paid for events while there is work, and an idle process sleeps.
 */
#ifndef FABRIC_VERBS_QUEUE_H
#define FABRIC_VERBS_QUEUE_H

#include "fabric/verbs/buffers.h"
#include "fabric/verbs/chain.h"
#include "fabric/verbs/device.h"
#include "rt/io.h"

enum {
    QUEUE_LIST_REQUESTS = 2 * FABRIC_LIST_OPS_MAX, /* of lists, in the send queue */
    QUEUE_CREDITS = 8,                             /* packets with bytes that may be on their way */
    QUEUE_RECEIVES = QUEUE_CREDITS + 4,            /* and some that only bring credits */
    QUEUE_SENDS = 4,                               /* packets being sent */
};

/* What a completion is of: the upper half of its id. The lower half is the packet's place. */
enum queue_id { QUEUE_ID_LIST, QUEUE_ID_SEND, QUEUE_ID_RECEIVE };

struct verbs_fabric;
struct queue;

/* Called on the queue's loop. None of them may destroy the queue but `failed`. */
struct queue_ops {
    /* A list's last work request succeeded; the oldest that was posted. */
    void (*list_done)(struct queue *queue);
    void (*sent)(struct queue *queue, unsigned place);
    void (*received)(struct queue *queue, unsigned place, uint32_t bytes);
    /* Whether it expects something: keeps it hot. */
    bool (*busy)(const struct queue *queue);
    /* It is of no more use; called once, and may destroy and free it. */
    void (*failed)(struct queue *queue, const char *why);
};

struct lane;

struct queue {
    const struct queue_ops *ops;
    struct lane *lane;
    struct list link;     /* in the lane's queues */
    struct list hot_link; /* in its hot ones */
    bool hot, armed, in_flight;
    uint64_t progress_ns; /* when something came last */
    const char *failure;  /* why it is of no more use */
    char failure_text[96];

    struct ibv_cq *completions;
    struct ibv_qp *pair;
    uint32_t first_psn;
    uint32_t inline_max;
    uint8_t atomics_out;          /* with that peer */
    uint32_t list_requests;       /* of lists, in the send queue now */
    struct device_memory packets; /* QUEUE_RECEIVES places, then QUEUE_SENDS */
};

/* Whether others may reach this process's window through it. */
enum queue_role { QUEUE_ASKS, QUEUE_SERVES };

/* Makes it, with its receives posted. Blocks for a system call or ten: on a helper thread. */
PANDO_MUST_CHECK enum pando_status queue_create(struct queue *queue, struct lane *lane,
                                                enum queue_role role);

/* What the other end has to know. */
void queue_tell(const struct queue *queue, struct verbs_end *out);

/* Connects it; blocks, too. The reason is logged. `timeout_ns` is what the card may take to find out
 * that nobody answers. */
PANDO_MUST_CHECK enum pando_status queue_connect(struct queue *queue, const struct verbs_end *peer,
                                                 uint64_t timeout_ns);

/* Joins its lane: completions are delivered from now on. On the loop. */
void queue_open(struct queue *queue, const struct queue_ops *ops);

/* When it returns nothing that was posted or received on it takes effect any more. On the loop, or,
 * before queue_open, anywhere. Harmless on a zeroed or destroyed one. */
void queue_destroy(struct queue *queue);

/* Posts a chain of `count` requests by one call. False: it failed, which is reported later. */
bool queue_post(struct queue *queue, struct ibv_send_wr *chain, uint32_t count);
bool queue_send(struct queue *queue, unsigned place, uint32_t bytes);
void queue_receive(struct queue *queue, unsigned place);

uint8_t *queue_receive_place(const struct queue *queue, unsigned place);
uint8_t *queue_send_place(const struct queue *queue, unsigned place);

/* Something is expected, or came: poll it. */
void queue_heat(struct queue *queue);
void queue_fail(struct queue *queue, const char *why);

/* ---- lanes ----------------------------------------------------------------------------------- */

struct lane {
    struct list link; /* in the fabric's lanes */
    struct verbs_fabric *fabric;
    struct device *device;
    struct rt_loop *loop;
    unsigned users;
    struct ibv_comp_channel *channel;
    struct rt_fd channel_fd, async_fd;
    struct rt_poller poller;
    bool polling, async_watched;
    struct list queues, hot;
    struct buffers buffers;
    struct device_memory memory; /* of the buffers */
    struct list waiting;         /* endpoints with lists that found no room */
    struct list kept;            /* endpoints to this process's own window, for others (self.c) */
    unsigned kept_count;
    bool retry;             /* some room has come since */
    struct chain chain;     /* where a list is built while it is posted */
    struct rt_message gone; /* the device was removed */
    bool gone_posted;
};

/* This loop's lane, made if there is none; as many puts as gets. */
PANDO_MUST_CHECK enum pando_status lane_get(struct verbs_fabric *fabric, struct lane **out);
void lane_put(struct lane *lane);

#endif
