/*
 * server.c - the threads of a server: accepting sockets, ending sessions, stopping.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/parse.h"
#include "fabric/fabric_int.h"
#include "fabric/session/session.h"

enum {
    SOCKETS_MAX = 8192,
    STRANGERS_MAX = 64,
};

static const uint64_t DROP_NS = 5 * RT_NS_PER_S;

/* ---- the end of a session -------------------------------------------------------------------- */

static void session_free(struct session *session)
{
    list_remove(&session->link);
    session->thread->server->ops->free(session);
    stream_close(&session->stream);
    free(session);
}

void session_close(struct session *session, const char *why)
{
    struct session_server *server = session->thread->server;

    if (session->state == SESSION_CLOSED)
        return;
    if (why != NULL)
        log_warn("connection dropped", log_text("why", why),
                 log_u64("member", session->identity.member));
    atomic_fetch_sub(&server->sockets, 1);
    if (session->state == SESSION_OPEN) {
        session->state = SESSION_CLOSED;
        server->ops->close(session);
        stream_close(&session->stream);
    } else {
        /* Its task may be waiting for this socket, and notices. */
        session->state = SESSION_CLOSED;
        atomic_fetch_sub(&server->strangers, 1);
        shutdown(session->stream.fd, SHUT_RDWR);
    }
    list_remove(&session->link);
    if (session->holds > 0)
        list_push_back(&session->thread->closed, &session->link);
    else
        session_free(session);
}

void session_hold(struct session *session)
{
    session->holds++;
}

void session_release(struct session *session)
{
    pando_assert(session->holds > 0);
    if (--session->holds == 0 && session->state == SESSION_CLOSED)
        session_free(session);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void accept_message(struct rt_message *message)
{
    struct session *session = container_of(message, struct session, message);
    session_accept(session->thread->server, session);
}

static void accept_one(struct session_server *server, int fd)
{
    struct session *session = NULL;
    if (atomic_fetch_add(&server->strangers, 1) < STRANGERS_MAX &&
        atomic_load(&server->sockets) < SOCKETS_MAX)
        session = calloc(1, server->ops->session_bytes);
    if (session == NULL) {
        atomic_fetch_sub(&server->strangers, 1);
        close(fd);
        return;
    }
    atomic_fetch_add(&server->sockets, 1);
    socket_tune(fd, (unsigned)(server->timeout_ns / RT_NS_PER_MS) * 2);
    session->stream.fd = fd;
    list_init(&session->link);
    session->thread = &server->threads[server->next_thread++ % server->thread_count];
    if (session->thread->index == 0) {
        session_accept(server, session);
        return;
    }
    session->message.deliver = accept_message;
    rt_loop_post(session_loop(session->thread), &session->message);
}

static void listener_ready(struct rt_fd *listener, uint32_t events)
{
    struct session_server *server = container_of(listener, struct session_server, listener);
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
    struct session_thread *thread;
    const struct session_filter *filter;
    struct rt_countdown *answers;
    atomic_uint *still_running;
};

static bool drop_matches(const struct session_filter *filter, const struct session *session)
{
    if (session == filter->except)
        return false;
    if (filter->identity.member == 0)
        return session->endpoint_id == filter->endpoint_id && session->endpoint_id != 0;
    int16_t ahead =
        (int16_t)(uint16_t)(session->identity.incarnation - filter->identity.incarnation);
    return session->identity.member == filter->identity.member && ahead <= 0;
}

static void drop_on_thread(struct rt_message *message)
{
    struct drop *drop = container_of(message, struct drop, message);
    unsigned running = 0;

    list_for_each_safe (link, &drop->thread->sessions) {
        struct session *session = container_of(link, struct session, link);
        if (drop_matches(drop->filter, session))
            session_close(session, "its session was ended");
    }
    list_for_each (link, &drop->thread->closed) {
        struct session *session = container_of(link, struct session, link);
        running += drop_matches(drop->filter, session);
    }
    atomic_fetch_add(drop->still_running, running);
    rt_countdown_done(drop->answers);
}

/* One round over all threads; how many requests of dropped sessions are still running. */
static unsigned drop_round_co(struct session_server *server, const struct session_filter *filter)
{
    struct drop drops[SESSION_THREADS_MAX];
    struct rt_countdown answers;
    atomic_uint still_running = 0;

    rt_countdown_init(&answers, server->thread_count);
    for (unsigned i = 0; i < server->thread_count; i++) {
        drops[i] = (struct drop){.message.deliver = drop_on_thread,
                                 .thread = &server->threads[i],
                                 .filter = filter,
                                 .answers = &answers,
                                 .still_running = &still_running};
        rt_loop_post(session_loop(&server->threads[i]), &drops[i].message);
    }
    rt_countdown_wait_co(&answers);
    return atomic_load(&still_running);
}

enum pando_status session_drop_co(struct session_server *server,
                                  const struct session_filter *filter)
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
    struct session_thread *thread = arg;
    struct session_server *server = thread->server;

    thread->main = rt_task_self();
    bool started = server->ops->thread_start(thread) == PANDO_OK;
    if (thread->index == 0)
        thread->listening =
            started && rt_fd_add(session_loop(thread), &server->listener) == PANDO_OK;
    if (!started || (thread->index == 0 && !thread->listening))
        log_error("a server thread cannot start: it serves nobody");
    while (!thread->stopping)
        (void)rt_park_co(RT_NEVER);
    if (thread->listening)
        rt_fd_remove(session_loop(thread), &server->listener);
    list_for_each_safe (link, &thread->sessions)
        session_close(container_of(link, struct session, link), NULL);
    while (!list_empty(&thread->closed))
        rt_sleep_co(RT_NS_PER_MS);
    server->ops->thread_stop_co(thread);
    free(thread->reply);
}

static void stop_message(struct rt_message *message)
{
    struct session_thread *thread = container_of(message, struct session_thread, stop_message);
    thread->stopping = true;
    if (thread->main != NULL)
        rt_unpark(thread->main);
}

enum pando_status session_server_create(const struct session_server_options *options,
                                        struct session_server **out, char *error,
                                        size_t error_bytes)
{
    struct socket_address address;
    unsigned threads = options->threads == 0 ? 1 : options->threads;
    enum pando_status status = socket_resolve(options->listen, true, &address, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    struct session_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return PANDO_NO_MEMORY;
    server->ops = options->ops;
    server->protocol = options->protocol;
    server->fabric = options->fabric;
    server->window = options->window;
    server->secret = options->secret;
    server->tls = options->tls;
    server->timeout_ns = options->timeout_ns;
    server->thread_count = threads > SESSION_THREADS_MAX ? SESSION_THREADS_MAX : threads;
    server->listener = (struct rt_fd){.fd = -1, .events = EPOLLIN, .ready = listener_ready};
    status = socket_listen(&address, options->listen, &server->listener.fd, error, error_bytes);
    if (status != PANDO_OK) {
        free(server);
        return status;
    }
    *out = server;
    return PANDO_OK;
}

enum pando_status session_server_start(struct session_server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct session_thread *thread = &server->threads[i];
        thread->server = server;
        thread->index = i;
        list_init(&thread->sessions);
        list_init(&thread->closed);
        thread->stop_message.deliver = stop_message;
    }
    /* The first one accepts and hands over to the others: it starts last. */
    for (unsigned i = server->thread_count; i-- > 0;) {
        struct session_thread *thread = &server->threads[i];
        enum pando_status status =
            rt_thread_start(server->ops->thread_name, thread_main, thread, &thread->thread);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

void session_server_destroy(struct session_server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct session_thread *thread = &server->threads[i];
        if (thread->thread != NULL)
            rt_loop_post(session_loop(thread), &thread->stop_message);
    }
    for (unsigned i = 0; i < server->thread_count; i++) {
        if (server->threads[i].thread != NULL)
            rt_thread_join(server->threads[i].thread);
    }
    close(server->listener.fd);
    free(server);
}

void session_server_location(const struct session_server *server, const char *advertise,
                             char out[FABRIC_LOCATION_MAX])
{
    char name[FABRIC_LOCATION_MAX];
    struct host_port told, bound;

    socket_name(server->listener.fd, name, sizeof(name));
    if (advertise == NULL || parse_host_port(advertise, &told) != PANDO_OK)
        snprintf(out, FABRIC_LOCATION_MAX, "%s", name);
    else if (told.port == 0 && parse_host_port(name, &bound) == PANDO_OK)
        snprintf(out, FABRIC_LOCATION_MAX,
                 strchr(told.host, ':') != NULL ? "[%.80s]:%u" : "%.80s:%u", told.host, bound.port);
    else
        snprintf(out, FABRIC_LOCATION_MAX, "%s", advertise);
}
