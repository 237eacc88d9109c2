/*
 * lane.c - what the queues of one loop share: polling, sleeping, buffers, and notice that the device
 * has gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/verbs/verbs_int.h"

enum { POLL_BATCH = 32 };

static const uint64_t HOT_NS = 100 * RT_NS_PER_US;

/* ---- completions ----------------------------------------------------------------------------- */

static void complete(struct queue *queue, const struct ibv_wc *completion)
{
    unsigned place = (unsigned)(uint32_t)completion->wr_id;
    if (completion->status != IBV_WC_SUCCESS) {
        char why[sizeof(queue->failure_text)];
        snprintf(why, sizeof(why), "%s%s", ibv_wc_status_str(completion->status),
                 completion->status == IBV_WC_RETRY_EXC_ERR ? " (nobody answers)" : "");
        queue_fail(queue, why);
        return;
    }
    switch ((enum queue_id)(completion->wr_id >> 32)) {
    case QUEUE_ID_LIST:
        queue->ops->list_done(queue);
        return;
    case QUEUE_ID_SEND:
        queue->ops->sent(queue, place);
        return;
    case QUEUE_ID_RECEIVE:
        queue->ops->received(queue, place, completion->byte_len);
        return;
    }
}

/* How many there were. */
static int queue_poll(struct queue *queue)
{
    struct ibv_wc batch[POLL_BATCH];
    int count = ibv_poll_cq(queue->completions, POLL_BATCH, batch);
    if (count < 0)
        queue_fail(queue, "completions cannot be polled");
    for (int i = 0; i < count && queue->failure == NULL; i++)
        complete(queue, &batch[i]);
    if (count > 0)
        queue->progress_ns = rt_turn_ns(queue->lane->loop);
    return count;
}

/* Asks for an event, and looks again: what came in between brings none. True when there was
 * something. */
static bool queue_arm(struct queue *queue)
{
    if (queue->armed)
        return false;
    queue->armed = ibv_req_notify_cq(queue->completions, 0) == 0;
    if (!queue->armed)
        queue_fail(queue, "the device gives no events");
    return queue_poll(queue) != 0 || queue->failure != NULL;
}

static void set_flight(struct queue *queue, bool in_flight)
{
    if (queue->in_flight != in_flight)
        rt_flight_add(queue->lane->loop, in_flight ? 1 : -1);
    queue->in_flight = in_flight;
}

static void poller_set(struct lane *lane, bool on)
{
    if (lane->polling == on)
        return;
    lane->polling = on;
    if (on)
        rt_poller_add(lane->loop, &lane->poller);
    else
        rt_poller_remove(&lane->poller);
}

void queue_heat(struct queue *queue)
{
    struct lane *lane = queue->lane;
    if (list_empty(&queue->hot_link)) {
        list_push_back(&lane->hot, &queue->hot_link);
        queue->progress_ns = rt_turn_ns(lane->loop);
    }
    set_flight(queue, queue->ops->busy(queue));
    poller_set(lane, true);
}

/* One hot queue in one turn. It may be gone afterwards. */
static bool turn(struct queue *queue)
{
    bool progress = queue_poll(queue) != 0;
    if (queue->failure == NULL && !progress && !queue->ops->busy(queue) &&
        rt_turn_ns(queue->lane->loop) - queue->progress_ns > HOT_NS) {
        progress = queue_arm(queue);
        if (!progress)
            list_remove(&queue->hot_link);
    }
    set_flight(queue, queue->failure == NULL && queue->ops->busy(queue));
    if (queue->failure != NULL)
        queue->ops->failed(queue, queue->failure);
    return progress;
}

/* Lists that found no room, in the order in which their endpoints came to wait. */
static void retry(struct lane *lane)
{
    if (!lane->retry)
        return;
    lane->retry = false;
    list_for_each_safe (link, &lane->waiting) {
        if (!verbs_endpoint_retry(container_of(link, struct verbs_endpoint, waiting_link)))
            return; /* no buffers: those behind it do not get what it waits for */
    }
}

static bool lane_poll(struct rt_poller *poller)
{
    struct lane *lane = container_of(poller, struct lane, poller);
    bool progress = false;
    list_for_each_safe (link, &lane->hot)
        progress |= turn(container_of(link, struct queue, hot_link));
    retry(lane);
    if (list_empty(&lane->hot))
        poller_set(lane, false);
    return progress;
}

static bool lane_before_sleep(struct rt_poller *poller)
{
    struct lane *lane = container_of(poller, struct lane, poller);
    bool progress = false;
    list_for_each (link, &lane->hot)
        progress |= queue_arm(container_of(link, struct queue, hot_link));
    return progress;
}

static void channel_ready(struct rt_fd *fd, uint32_t events)
{
    struct lane *lane = container_of(fd, struct lane, channel_fd);
    struct ibv_cq *completions;
    void *context;
    (void)events;
    while (ibv_get_cq_event(lane->channel, &completions, &context) == 0) {
        struct queue *queue = context;
        ibv_ack_cq_events(completions, 1);
        queue->armed = false;
        queue_heat(queue);
    }
}

/* ---- the device's own events ----------------------------------------------------------------- */

static void unwatch_async(struct lane *lane)
{
    if (lane->async_watched)
        rt_fd_remove(lane->loop, &lane->async_fd);
    lane->async_watched = false;
}

static void on_gone(struct rt_message *message)
{
    struct lane *lane = container_of(message, struct lane, gone);
    if (lane->users == 0) {
        free(lane); /* it was waiting for this message */
        return;
    }
    lane->gone_posted = false;
    unwatch_async(lane);
    list_for_each (link, &lane->queues)
        queue_fail(container_of(link, struct queue, link), "the device was removed");
}

static void device_gone(struct verbs_fabric *fabric)
{
    if (atomic_exchange(&fabric->device.gone, true))
        return;
    log_error(
        "the RDMA device is gone: nobody is served until this process is started again with a "
        "device",
        log_text("device", fabric->device.name));
    pthread_mutex_lock(&fabric->mutex);
    list_for_each (link, &fabric->lanes) {
        struct lane *lane = container_of(link, struct lane, link);
        lane->gone_posted = true;
        rt_loop_post(lane->loop, &lane->gone);
    }
    pthread_mutex_unlock(&fabric->mutex);
}

static void async_ready(struct rt_fd *fd, uint32_t events)
{
    struct lane *lane = container_of(fd, struct lane, async_fd);
    struct ibv_async_event event;
    (void)events;
    while (ibv_get_async_event(lane->device->context, &event) == 0) {
        enum ibv_event_type type = event.event_type;
        ibv_ack_async_event(&event);
        log_info("RDMA device event", log_text("device", lane->device->name),
                 log_text("event", ibv_event_type_str(type)));
        if (type == IBV_EVENT_DEVICE_FATAL)
            device_gone(lane->fabric);
    }
    /* A descriptor of a device that is gone is in error for ever, and would keep the loop awake. */
    if (atomic_load(&lane->device->gone))
        unwatch_async(lane);
}

/* ---- making and ending ------------------------------------------------------------------------ */

static void lane_free(struct lane *lane)
{
    device_memory_close(&lane->memory);
    if (lane->channel != NULL)
        ibv_destroy_comp_channel(lane->channel);
    free(lane->chain.requests);
    free(lane->chain.pieces);
    lane->chain = (struct chain){0};
    lane->channel = NULL;
    if (!lane->gone_posted)
        free(lane);
}

static enum pando_status lane_create(struct verbs_fabric *fabric, struct lane **out)
{
    struct lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL)
        return PANDO_NO_MEMORY;
    lane->fabric = fabric;
    lane->device = &fabric->device;
    lane->loop = rt_loop_self();
    lane->poller = (struct rt_poller){.poll = lane_poll, .before_sleep = lane_before_sleep};
    lane->gone.deliver = on_gone;
    list_init(&lane->queues);
    list_init(&lane->hot);
    list_init(&lane->waiting);
    list_init(&lane->kept);
    lane->chain.requests = calloc(FABRIC_LIST_OPS_MAX, sizeof(*lane->chain.requests));
    lane->chain.pieces = calloc(FABRIC_LIST_OPS_MAX, sizeof(*lane->chain.pieces));
    enum pando_status status = PANDO_NO_MEMORY;
    if (lane->chain.requests != NULL && lane->chain.pieces != NULL)
        status = device_memory_open(lane->device, &lane->memory, BUFFERS_BYTES);
    if (status != PANDO_OK)
        goto err;
    buffers_init(&lane->buffers, lane->memory.base);
    lane->channel = ibv_create_comp_channel(lane->device->context);
    status = PANDO_IO;
    if (lane->channel == NULL ||
        fcntl(lane->channel->fd, F_SETFL, fcntl(lane->channel->fd, F_GETFL) | O_NONBLOCK) != 0)
        goto err;
    lane->channel_fd =
        (struct rt_fd){.fd = lane->channel->fd, .events = EPOLLIN, .ready = channel_ready};
    lane->async_fd = (struct rt_fd){
        .fd = lane->device->context->async_fd, .events = EPOLLIN, .ready = async_ready};
    status = rt_fd_add(lane->loop, &lane->channel_fd);
    if (status != PANDO_OK)
        goto err;
    status = rt_fd_add(lane->loop, &lane->async_fd);
    if (status == PANDO_OK) {
        lane->async_watched = true;
        *out = lane;
        return PANDO_OK;
    }
    rt_fd_remove(lane->loop, &lane->channel_fd);
err:
    lane_free(lane);
    return status;
}

static struct lane *find(struct verbs_fabric *fabric)
{
    struct lane *found = NULL;
    pthread_mutex_lock(&fabric->mutex);
    list_for_each (link, &fabric->lanes) {
        struct lane *lane = container_of(link, struct lane, link);
        if (lane->loop == rt_loop_self())
            found = lane;
    }
    pthread_mutex_unlock(&fabric->mutex);
    return found;
}

enum pando_status lane_get(struct verbs_fabric *fabric, struct lane **out)
{
    if (atomic_load(&fabric->device.gone))
        return PANDO_IO;
    struct lane *lane = find(fabric);
    if (lane == NULL) {
        enum pando_status status = lane_create(fabric, &lane);
        if (status != PANDO_OK)
            return status;
        pthread_mutex_lock(&fabric->mutex);
        list_push_back(&fabric->lanes, &lane->link);
        pthread_mutex_unlock(&fabric->mutex);
    }
    lane->users++;
    *out = lane;
    return PANDO_OK;
}

void lane_put(struct lane *lane)
{
    if (--lane->users > 0)
        return;
    if (verbs_self_end(lane))
        return; /* the last of those freed it */
    pthread_mutex_lock(&lane->fabric->mutex);
    list_remove(&lane->link);
    pthread_mutex_unlock(&lane->fabric->mutex);
    pando_assert(list_empty(&lane->queues));
    poller_set(lane, false);
    rt_fd_remove(lane->loop, &lane->channel_fd);
    unwatch_async(lane);
    lane_free(lane);
}

void queue_open(struct queue *queue, const struct queue_ops *ops)
{
    struct lane *lane = queue->lane;
    queue->ops = ops;
    queue->progress_ns = rt_turn_ns(lane->loop);
    list_push_back(&lane->queues, &queue->link);
    queue_heat(queue);
}
