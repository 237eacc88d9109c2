/*
 * fabric_int.h - what a backend implements. Few operations, mandatory but for the last two.
 */
#ifndef FABRIC_FABRIC_INT_H
#define FABRIC_FABRIC_INT_H

#include <stdatomic.h>

#include "fabric/fabric.h"

struct fabric_ops {
    enum pando_status (*add_peer)(struct fabric *fabric, uint16_t node, enum fabric_target target,
                                  const char *location);
    enum pando_status (*connect_co)(struct fabric *fabric, uint16_t node, uint64_t window,
                                    struct fabric_endpoint **out);
    void (*disconnect_co)(struct fabric_endpoint *endpoint);
    enum pando_status (*reconnect_co)(struct fabric_endpoint *endpoint);
    /* The list is well-formed and marked pending; ends in fabric_list_done, now or later. */
    void (*post)(struct fabric_endpoint *endpoint, struct fabric_list *list);
    enum pando_status (*call_co)(struct fabric_endpoint *endpoint, uint16_t method,
                                 struct slice body, void *reply, uint32_t reply_capacity,
                                 uint32_t *reply_size);
    enum pando_status (*fence_co)(struct fabric_endpoint *endpoint,
                                  const struct fabric_ticket *ticket);
    enum pando_status (*self_read)(struct fabric *fabric, uint64_t offset, void *to, size_t size);
    enum pando_status (*self_write)(struct fabric *fabric, uint64_t offset, const void *from,
                                    size_t size);
    /* Of a process that has a window. */
    enum pando_status (*renew_co)(struct fabric *fabric);
    enum pando_status (*fence_own_co)(struct fabric *fabric, struct fabric_identity dead);
    void (*close)(struct fabric *fabric);
    /* NULL: there are no files to read again, nothing is known. */
    enum pando_status (*reload)(struct fabric *fabric, char *text, size_t text_bytes);
    void (*trouble)(struct fabric *fabric, uint16_t node, char *out, size_t size);
};

struct window;
struct credentials;

/* First member of every backend's own struct. */
struct fabric {
    const struct fabric_ops *ops;
    _Atomic uint16_t node;
    atomic_bool node_later;      /* it came by fabric_set_node */
    enum fabric_target target;   /* what this process is to others */
    const struct window *window; /* NULL: it has none */
    uint64_t window_bytes;
    uint64_t device_bytes;
    bool device_lost; /* the window was kept, its device part was not */
    atomic_bool window_stale;
    char location[FABRIC_LOCATION_MAX];
    _Atomic uint32_t identity; /* incarnation << 16 | member */
    fabric_handler handler;
    void *handler_context;
    fabric_refusal_fn on_refusal; /* NULL: nobody wants to know */
    void *refusal_context;
    _Atomic uint64_t refusals; /* of clients that expect another window */
    struct rt_latch answer_latch;
    struct fabric_answerer *answerer; /* NULL: nobody; under the latch, as is how much it runs */
    struct rt_waitq ended;            /* an answerer's last call, or the task of attend.c */

    /* seal.c */
    struct credentials *credentials; /* NULL: there is no secret */
    _Atomic uint64_t pool;
    _Atomic uint64_t refused; /* fences without a ticket */

    /* attend.c; under the latch */
    struct rt_loop *home; /* where the task runs; NULL: nowhere */
    struct rt_message attend_message;
    void (*attend)(struct fabric *fabric);
    struct rt_task *attendant;
    atomic_bool attending;
    bool again, closing; /* again: it is wanted anew when it ends */
    void *kept;          /* freed by the backend */
};

/* What all backends' begin with. The struct is all zero. */
void fabric_init(struct fabric *fabric, const struct fabric_ops *ops, uint16_t node,
                 enum fabric_target target);

struct fabric_endpoint {
    const struct fabric_ops *ops;
    struct fabric *fabric;
    struct rt_loop *loop;
    uint16_t node;
    enum fabric_target target;
    bool broken;
    uint64_t window; /* id of the target's window; until connected the expected one, 0 for any */
    uint32_t outstanding;
    struct fabric_identity identity; /* under which it connected */
    struct fabric_counters counters;
};

/* Takes the id of the window that answers, before anything is sent to it. INVALID: a memory node that
 * was connected before now has another window, so what it held is not there. */
PANDO_MUST_CHECK enum pando_status fabric_window_check(uint16_t node, enum fabric_target target,
                                                       uint64_t before, uint64_t found);

/* Whether this process lets a client in that expects the window of this id, 0 for any. INVALID: this is
 * a memory node with another one; the refusal was counted, and the memory node's own part told of it. */
PANDO_MUST_CHECK enum pando_status fabric_window_admit(struct fabric *fabric, uint64_t expected,
                                                       struct fabric_identity from,
                                                       uint64_t now_ns);

/* Whether the process whose fabric this is fences on such a ticket. INVALID: no such member; DENIED. */
PANDO_MUST_CHECK enum pando_status fabric_fence_check(struct fabric *fabric,
                                                      const struct fabric_ticket *ticket);

/* attend.c, for backends: the loop on which the task may run; the fabric is about to close; and on
 * each loop that serves, before it ends: waits for the task's end. */
void fabric_attend_from(struct fabric *fabric, struct rt_loop *home);
void fabric_attend_close(struct fabric *fabric);
void fabric_attend_end_co(struct fabric *fabric);

struct fabric_identity fabric_identity_now(const struct fabric *fabric);

/* Hands a list back to whoever waits for it. On the endpoint's loop. */
static inline void fabric_list_done(struct fabric_endpoint *endpoint, struct fabric_list *list,
                                    enum pando_status status)
{
    endpoint->outstanding--;
    list->status = status;
    list->pending = false;
    if (list->waiter != NULL)
        rt_unpark(list->waiter);
}

/* Serves one request through the process's handler: UNSUPPORTED when there is none. */
enum pando_status fabric_serve_request(struct fabric *fabric, struct fabric_request *request);

/* The call_co of an endpoint to the process itself: served by the task that calls. */
enum pando_status fabric_self_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                      struct slice body, void *reply, uint32_t reply_capacity,
                                      uint32_t *reply_size);

#endif
