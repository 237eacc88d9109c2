/*
 * setup.c - making a queue pair takes system calls of up to milliseconds: a helper thread's.
 */
#include "fabric/verbs/verbs_int.h"

struct setup {
    struct queue *queue;
    struct lane *lane;
    enum queue_role role;
    const struct verbs_end *peer;
    uint64_t timeout_ns;
    enum pando_status status;
};

static void create_blocking(void *arg)
{
    struct setup *setup = arg;
    setup->status = queue_create(setup->queue, setup->lane, setup->role);
}

static void connect_blocking(void *arg)
{
    struct setup *setup = arg;
    setup->status = queue_connect(setup->queue, setup->peer, setup->timeout_ns);
}

enum pando_status verbs_queue_create_co(struct queue *queue, struct lane *lane,
                                        enum queue_role role)
{
    struct setup setup = {.queue = queue, .lane = lane, .role = role};
    enum pando_status status = rt_blocking_co(create_blocking, &setup);
    return status == PANDO_OK ? setup.status : status;
}

enum pando_status verbs_queue_connect_co(struct queue *queue, const struct verbs_end *peer,
                                         uint64_t timeout_ns)
{
    struct setup setup = {.queue = queue, .peer = peer, .timeout_ns = timeout_ns};
    enum pando_status status = rt_blocking_co(connect_blocking, &setup);
    return status == PANDO_OK ? setup.status : status;
}
