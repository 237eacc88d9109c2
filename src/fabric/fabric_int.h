/*
 * fabric_int.h - what a backend implements. Few operations, all mandatory.
 */
#ifndef FABRIC_FABRIC_INT_H
#define FABRIC_FABRIC_INT_H

#include <stdatomic.h>

#include "fabric/fabric.h"

struct fabric_ops {
    enum pando_status (*add_peer)(struct fabric *fabric, uint16_t node, enum fabric_target target,
                                  const char *location);
    enum pando_status (*connect_co)(struct fabric *fabric, uint16_t node,
                                    struct fabric_endpoint **out);
    void (*disconnect_co)(struct fabric_endpoint *endpoint);
    enum pando_status (*reconnect_co)(struct fabric_endpoint *endpoint);
    /* The list is well-formed and marked pending; ends in fabric_list_done, now or later. */
    void (*post)(struct fabric_endpoint *endpoint, struct fabric_list *list);
    enum pando_status (*call_co)(struct fabric_endpoint *endpoint, uint16_t method,
                                 struct slice body, void *reply, uint32_t reply_capacity,
                                 uint32_t *reply_size);
    enum pando_status (*fence_co)(struct fabric_endpoint *endpoint,
                                  struct fabric_identity identity);
    enum pando_status (*self_read)(struct fabric *fabric, uint64_t offset, void *to, size_t size);
    enum pando_status (*self_write)(struct fabric *fabric, uint64_t offset, const void *from,
                                    size_t size);
    void (*close)(struct fabric *fabric);
};

struct window;

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
    char location[FABRIC_LOCATION_MAX];
    _Atomic uint32_t identity; /* incarnation << 16 | member */
    fabric_handler handler;
    void *handler_context;
    struct rt_latch answer_latch;
    struct fabric_answerer *answerer; /* NULL: nobody; under the latch, as is how much it runs */
};

struct fabric_endpoint {
    const struct fabric_ops *ops;
    struct fabric *fabric;
    struct rt_loop *loop;
    uint16_t node;
    enum fabric_target target;
    bool broken;
    uint64_t window; /* id of the target's window, 0 until connected */
    uint32_t outstanding;
    struct fabric_identity identity; /* under which it connected */
    struct fabric_counters counters;
};

/* Takes the id of the window that answers, before anything is sent to it. INVALID: a memory node that
 * was connected before now has another window, so what it held is not there. */
PANDO_MUST_CHECK enum pando_status fabric_window_check(uint16_t node, enum fabric_target target,
                                                       uint64_t before, uint64_t found);

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
