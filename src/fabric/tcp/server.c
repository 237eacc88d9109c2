/*
 * server.c - what each thread of the server does besides serving connections: polling the busy
 * connections, and ending those that stopped in the middle of something.
 */
#include <stdlib.h>

#include "fabric/tcp/tcp_int.h"

enum { HOT_MAX = 8 }; /* more than that are cheaper through epoll */

static const uint64_t HOT_NS = 100 * RT_NS_PER_US;
static const uint64_t TICK_NS = RT_NS_PER_S;
static const uint64_t HALF_FRAME_NS = 30 * RT_NS_PER_S;

/* ---- busy connections ------------------------------------------------------------------------ */

static bool poll_hot(struct rt_poller *poller)
{
    struct tcp_thread *thread = container_of(poller, struct tcp_thread, poller);
    uint64_t now = rt_turn_ns(connection_loop(thread->base));
    bool progress = false;
    int looked_at = 0;

    list_for_each_safe (link, &thread->hot) {
        struct tcp_connection *connection = container_of(link, struct tcp_connection, hot_link);
        if (++looked_at > HOT_MAX || now - connection->input_ns > HOT_NS)
            list_remove(&connection->hot_link);
        else
            progress |= tcp_connection_poll(connection);
        /* A drop on this thread comes as a message, never from inside a poll: only the connection
         * that was polled may be gone. */
    }
    if (list_empty(&thread->hot)) {
        rt_poller_remove(&thread->poller);
        thread->polling = false;
    }
    return progress;
}

void tcp_thread_heat(struct tcp_connection *connection)
{
    struct tcp_thread *thread = connection->base.thread->own;
    if (!list_empty(&connection->hot_link))
        return;
    list_push_back(&thread->hot, &connection->hot_link);
    if (!thread->polling) {
        rt_poller_add(tcp_connection_loop(connection), &thread->poller);
        thread->polling = true;
    }
}

/* Those that promised much and never went on. */
static void close_stalled(struct rt_timer *timer)
{
    struct tcp_thread *thread = container_of(timer, struct tcp_thread, tick);
    uint64_t now = rt_now_ns();

    list_for_each_safe (link, &thread->base->connections) {
        struct tcp_connection *connection =
            tcp_connection_of(container_of(link, struct connection, link));
        if (connection->base.state == CONNECTION_OPEN && bytes_used(&connection->in) > 0 &&
            now - connection->input_ns > HALF_FRAME_NS)
            connection_close(&connection->base, "it stopped in the middle of a frame");
    }
    if (!list_empty(&thread->base->connections))
        rt_timer_arm(&thread->tick, now + TICK_NS);
}

/* ---- the connection's operations ------------------------------------------------------------- */

static enum pando_status thread_start(struct connection_thread *base)
{
    struct tcp_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return PANDO_NO_MEMORY;
    thread->base = base;
    list_init(&thread->hot);
    thread->poller.poll = poll_hot;
    rt_timer_init(&thread->tick, close_stalled);
    base->own = thread;
    return PANDO_OK;
}

static void thread_stop_co(struct connection_thread *base)
{
    struct tcp_thread *thread = base->own;
    if (thread == NULL)
        return;
    rt_timer_cancel(&thread->tick);
    if (thread->polling)
        rt_poller_remove(&thread->poller);
    free(thread);
}

/* Nothing to prepare. */
static enum pando_status prepare_co(struct connection *base, const uint8_t *proof_extra,
                                    uint8_t *welcome_extra)
{
    (void)proof_extra;
    (void)welcome_extra;
    struct tcp_thread *thread = base->thread->own;
    if (!heap_contains(&thread->tick.node))
        rt_timer_arm(&thread->tick, rt_now_ns() + TICK_NS);
    return PANDO_OK;
}

const struct connection_ops tcp_connection_ops = {
    .thread_name = "pando-tcp",
    .connection_bytes = sizeof(struct tcp_connection),
    .thread_start = thread_start,
    .thread_stop_co = thread_stop_co,
    .prepare_co = prepare_co,
    .open = tcp_connection_open,
    .close = tcp_connection_close,
    .free = tcp_connection_free,
    .answer = tcp_connection_answer,
};
