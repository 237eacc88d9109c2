/*
 * server.c - what each thread of the server does besides serving sessions: polling the busy
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
    uint64_t now = rt_turn_ns(session_loop(thread->base));
    bool progress = false;
    int looked_at = 0;

    list_for_each_safe (link, &thread->hot) {
        struct connection *connection = container_of(link, struct connection, hot_link);
        if (++looked_at > HOT_MAX || now - connection->input_ns > HOT_NS)
            list_remove(&connection->hot_link);
        else
            progress |= connection_poll(connection);
        /* A drop on this thread comes as a message, never from inside a poll: only the connection
         * that was polled may be gone. */
    }
    if (list_empty(&thread->hot)) {
        rt_poller_remove(&thread->poller);
        thread->polling = false;
    }
    return progress;
}

void tcp_thread_heat(struct connection *connection)
{
    struct tcp_thread *thread = connection->base.thread->own;
    if (!list_empty(&connection->hot_link))
        return;
    list_push_back(&thread->hot, &connection->hot_link);
    if (!thread->polling) {
        rt_poller_add(connection_loop(connection), &thread->poller);
        thread->polling = true;
    }
}

/* Those that promised much and never went on. */
static void tick(struct rt_timer *timer)
{
    struct tcp_thread *thread = container_of(timer, struct tcp_thread, tick);
    uint64_t now = rt_now_ns();

    list_for_each_safe (link, &thread->base->sessions) {
        struct connection *connection = connection_of(container_of(link, struct session, link));
        if (connection->base.state == SESSION_OPEN && bytes_used(&connection->in) > 0 &&
            now - connection->input_ns > HALF_FRAME_NS)
            session_close(&connection->base, "it stopped in the middle of a frame");
    }
    if (!list_empty(&thread->base->sessions))
        rt_timer_arm(&thread->tick, now + TICK_NS);
}

/* ---- the session's operations ---------------------------------------------------------------- */

static enum pando_status thread_start(struct session_thread *base)
{
    struct tcp_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return PANDO_NO_MEMORY;
    thread->base = base;
    list_init(&thread->hot);
    thread->poller.poll = poll_hot;
    rt_timer_init(&thread->tick, tick);
    base->own = thread;
    return PANDO_OK;
}

static void thread_stop_co(struct session_thread *base)
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
static enum pando_status prepare_co(struct session *session, const uint8_t *proof_extra,
                                    uint8_t *welcome_extra)
{
    (void)proof_extra;
    (void)welcome_extra;
    struct tcp_thread *thread = session->thread->own;
    if (!heap_contains(&thread->tick.node))
        rt_timer_arm(&thread->tick, rt_now_ns() + TICK_NS);
    return PANDO_OK;
}

const struct session_ops tcp_session_ops = {
    .thread_name = "pando-tcp",
    .session_bytes = sizeof(struct connection),
    .thread_start = thread_start,
    .thread_stop_co = thread_stop_co,
    .prepare_co = prepare_co,
    .open = connection_open,
    .close = connection_close,
    .free = connection_free,
    .answer = connection_answer,
};
