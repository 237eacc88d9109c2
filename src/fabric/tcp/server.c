/*
 * server.c - the threads of a server: accepting, polling the busy connections, dropping others.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/tcp/tcp_int.h"

enum {
    CONNECTIONS_MAX = 8192,
    STRANGERS_MAX = 64,
    HOT_MAX = 8, /* more than that are cheaper through epoll */
};

static const uint64_t HOT_NS = 100 * RT_NS_PER_US;
static const uint64_t TICK_NS = RT_NS_PER_S;
static const uint64_t STRANGER_NS = 5 * RT_NS_PER_S;
static const uint64_t HALF_FRAME_NS = 30 * RT_NS_PER_S;
static const uint64_t DROP_NS = 5 * RT_NS_PER_S;

/* ---- busy connections ------------------------------------------------------------------------ */

static bool poll_hot(struct rt_poller *poller)
{
    struct server_thread *thread = container_of(poller, struct server_thread, poller);
    uint64_t now = rt_turn_ns(server_loop(thread));
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

void server_thread_heat(struct connection *connection)
{
    struct server_thread *thread = connection->thread;
    if (!list_empty(&connection->hot_link))
        return;
    list_push_back(&thread->hot, &connection->hot_link);
    if (!thread->polling) {
        rt_poller_add(server_loop(thread), &thread->poller);
        thread->polling = true;
    }
}

/* Those that promised much and never went on. */
static void tick(struct rt_timer *timer)
{
    struct server_thread *thread = container_of(timer, struct server_thread, tick);
    uint64_t now = rt_now_ns();

    list_for_each_safe (link, &thread->connections) {
        struct connection *connection = container_of(link, struct connection, link);
        if (connection->state < CONNECTION_OPEN && now - connection->born_ns > STRANGER_NS)
            connection_close(connection, "it proved nothing in time");
        else if (bytes_used(&connection->in) > 0 && now - connection->input_ns > HALF_FRAME_NS)
            connection_close(connection, "it stopped in the middle of a frame");
    }
    if (!list_empty(&thread->connections))
        rt_timer_arm(&thread->tick, now + TICK_NS);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void adopt(struct server_thread *thread, struct connection *connection)
{
    connection_start(connection, thread);
    if (!heap_contains(&thread->tick.node))
        rt_timer_arm(&thread->tick, rt_now_ns() + TICK_NS);
}

static void adopt_message(struct rt_message *message)
{
    struct connection *connection = container_of(message, struct connection, message);
    adopt(connection->thread, connection);
}

static void accept_one(struct server *server, int fd)
{
    struct connection *connection = NULL;
    if (atomic_fetch_add(&server->strangers, 1) < STRANGERS_MAX &&
        atomic_load(&server->connections) < CONNECTIONS_MAX)
        connection = connection_create(fd);
    if (connection == NULL) {
        atomic_fetch_sub(&server->strangers, 1);
        close(fd);
        return;
    }
    atomic_fetch_add(&server->connections, 1);
    socket_tune(fd, (unsigned)(server->fabric->timeout_ns / RT_NS_PER_MS) * 2);
    struct server_thread *thread = &server->threads[server->next_thread++ % server->thread_count];
    if (thread->index == 0) {
        adopt(thread, connection);
        return;
    }
    connection->thread = thread;
    connection->message.deliver = adopt_message;
    rt_loop_post(server_loop(thread), &connection->message);
}

static void listener_ready(struct rt_fd *listener, uint32_t events)
{
    struct server *server = container_of(listener, struct server, listener);
    (void)events;
    for (int i = 0; i < STRANGERS_MAX; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            accept_one(server, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE)
            log_warn("cannot accept a connection: no file descriptors left");
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- dropping -------------------------------------------------------------------------------- */

struct drop {
    struct rt_message message;
    struct server_thread *thread;
    const struct drop_filter *filter;
    struct rt_countdown *answers;
    atomic_uint *still_running;
};

static bool drop_matches(const struct drop_filter *filter, const struct connection *connection)
{
    if (connection == filter->except)
        return false;
    if (filter->identity.member == 0)
        return connection->endpoint_id == filter->endpoint_id && connection->endpoint_id != 0;
    int16_t ahead =
        (int16_t)(uint16_t)(connection->identity.incarnation - filter->identity.incarnation);
    return connection->identity.member == filter->identity.member && ahead <= 0;
}

static void drop_on_thread(struct rt_message *message)
{
    struct drop *drop = container_of(message, struct drop, message);
    unsigned running = 0;

    list_for_each_safe (link, &drop->thread->connections) {
        struct connection *connection = container_of(link, struct connection, link);
        if (drop_matches(drop->filter, connection))
            connection_close(connection, "its session was ended");
    }
    list_for_each (link, &drop->thread->closed) {
        struct connection *connection = container_of(link, struct connection, link);
        running += drop_matches(drop->filter, connection);
    }
    atomic_fetch_add(drop->still_running, running);
    rt_countdown_done(drop->answers);
}

/* One round over all threads; how many requests of dropped connections are still running. */
static unsigned drop_round_co(struct server *server, const struct drop_filter *filter)
{
    struct drop drops[TCP_THREADS_MAX];
    struct rt_countdown answers;
    atomic_uint still_running = 0;

    rt_countdown_init(&answers, server->thread_count);
    for (unsigned i = 0; i < server->thread_count; i++) {
        drops[i] = (struct drop){.message.deliver = drop_on_thread,
                                 .thread = &server->threads[i],
                                 .filter = filter,
                                 .answers = &answers,
                                 .still_running = &still_running};
        rt_loop_post(server_loop(&server->threads[i]), &drops[i].message);
    }
    rt_countdown_wait_co(&answers);
    return atomic_load(&still_running);
}

enum pando_status server_drop_co(struct server *server, const struct drop_filter *filter)
{
    uint64_t deadline = rt_now_ns() + DROP_NS;
    while (drop_round_co(server, filter) > 0) {
        if (rt_now_ns() > deadline)
            return PANDO_TIMEOUT;
        rt_sleep_co(RT_NS_PER_MS);
    }
    return PANDO_OK;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static void thread_main(void *arg)
{
    struct server_thread *thread = arg;
    struct server *server = thread->server;

    thread->main = rt_task_self();
    if (thread->index == 0 && rt_fd_add(server_loop(thread), &server->listener) != PANDO_OK)
        log_error("cannot watch the listening socket");
    while (!thread->stopping)
        (void)rt_park_co(RT_NEVER);
    if (thread->index == 0)
        rt_fd_remove(server_loop(thread), &server->listener);
    rt_timer_cancel(&thread->tick);
    list_for_each_safe (link, &thread->connections)
        connection_close(container_of(link, struct connection, link), NULL);
    while (!list_empty(&thread->closed))
        rt_sleep_co(RT_NS_PER_MS);
    if (thread->polling)
        rt_poller_remove(&thread->poller);
}

static void stop_message(struct rt_message *message)
{
    struct server_thread *thread = container_of(message, struct server_thread, stop_message);
    thread->stopping = true;
    if (thread->main != NULL)
        rt_unpark(thread->main);
}

enum pando_status server_create(struct tcp_fabric *fabric, const char *listen, unsigned threads,
                                char *error, size_t error_bytes)
{
    struct socket_address address;
    enum pando_status status = socket_resolve(listen, true, &address, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return PANDO_NO_MEMORY;
    server->fabric = fabric;
    server->thread_count = threads == 0 ? 1 : threads > TCP_THREADS_MAX ? TCP_THREADS_MAX : threads;
    server->listener = (struct rt_fd){.fd = -1, .events = EPOLLIN, .ready = listener_ready};
    status = socket_listen(&address, listen, &server->listener.fd, error, error_bytes);
    if (status != PANDO_OK) {
        free(server);
        return status;
    }
    fabric->server = server;
    return PANDO_OK;
}

enum pando_status server_start(struct server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *thread = &server->threads[i];
        thread->server = server;
        thread->index = i;
        list_init(&thread->connections);
        list_init(&thread->closed);
        list_init(&thread->hot);
        thread->poller.poll = poll_hot;
        rt_timer_init(&thread->tick, tick);
        thread->stop_message.deliver = stop_message;
    }
    /* The first one accepts and hands over to the others: it starts last. */
    for (unsigned i = server->thread_count; i-- > 0;) {
        struct server_thread *thread = &server->threads[i];
        enum pando_status status =
            rt_thread_start("pando-tcp", thread_main, thread, &thread->thread);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

void server_destroy(struct server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *thread = &server->threads[i];
        if (thread->thread != NULL)
            rt_loop_post(server_loop(thread), &thread->stop_message);
    }
    for (unsigned i = 0; i < server->thread_count; i++) {
        if (server->threads[i].thread != NULL)
            rt_thread_join(server->threads[i].thread);
    }
    close(server->listener.fd);
    free(server);
}
