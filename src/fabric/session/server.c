/*
 * server.c - the threads of a server: accepting sockets, ending connections, stopping.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/parse.h"
#include "fabric/fabric_int.h"
#include "fabric/session/session.h"

enum {
    SOCKETS_MAX = 8192,
    STRANGERS_MIN = 16,
    STRANGERS_MAX = 2048,
    STRANGERS_FILES = 4, /* one of so many descriptors may be a stranger's */
};

static const uint64_t DROP_NS = 5 * RT_NS_PER_S;

/* ---- the end of a connection ----------------------------------------------------------------- */

static void connection_free(struct connection *connection)
{
    list_remove(&connection->link);
    connection->thread->server->ops->free(connection);
    stream_close(&connection->stream);
    free(connection);
}

/* Anybody can be a stranger, as often as he likes: few words about each. */
static void say_why(struct connection *connection, const char *why)
{
    struct connection_server *server = connection->thread->server;
    uint64_t unsaid;
    char address[64];

    if (connection->state == CONNECTION_OPEN) {
        log_warn("connection dropped", log_text("why", why),
                 log_u64("member", connection->identity.member));
    } else if (log_limit_allows(&server->strangers_log, rt_now_ns(), &unsaid)) {
        socket_peer_name(connection->stream.fd, address, sizeof(address));
        log_warn("connection dropped", log_text("why", why), log_text("address", address),
                 log_u64("member", connection->identity.member), log_u64("unsaid", unsaid));
    }
}

void connection_close(struct connection *connection, const char *why)
{
    struct connection_server *server = connection->thread->server;

    if (connection->state == CONNECTION_CLOSED)
        return;
    if (why != NULL)
        say_why(connection, why);
    atomic_fetch_sub(&server->sockets, 1);
    if (connection->state == CONNECTION_OPEN) {
        connection->state = CONNECTION_CLOSED;
        connection->was_open = true;
        server->ops->close(connection);
        stream_close(&connection->stream);
    } else {
        /* Its task may be waiting for this socket, and notices. */
        connection->state = CONNECTION_CLOSED;
        (void)strangers_leave(server->strangers, &connection->stranger);
        socket_shutdown(connection->stream.fd);
    }
    list_remove(&connection->link);
    if (connection->holds > 0)
        list_push_back(&connection->thread->closed, &connection->link);
    else
        connection_free(connection);
}

void connection_hold(struct connection *connection)
{
    connection->holds++;
}

void connection_release(struct connection *connection)
{
    pando_assert(connection->holds > 0);
    struct connection_server *server = connection->thread->server;
    if (--connection->holds > 0 || connection->state != CONNECTION_CLOSED)
        return;
    connection_free(connection);
    atomic_fetch_add(&server->released, 1);
    rt_waitq_wake_all(&server->release);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void accept_message(struct rt_message *message)
{
    struct connection *connection = container_of(message, struct connection, message);
    connection_accept(connection->thread->server, connection);
}

static void refuse(struct connection_server *server, int fd, const char *why)
{
    uint64_t unsaid;
    if (log_limit_allows(&server->strangers_log, rt_now_ns(), &unsaid))
        log_warn("connection refused", log_text("why", why), log_u64("unsaid", unsaid));
    close(fd);
}

/* Strangers give way. Those that were evicted are counted until their tasks have noticed. */
static bool room_for_one(struct connection_server *server)
{
    unsigned sockets = atomic_load(&server->sockets);
    return sockets < SOCKETS_MAX ||
           (strangers_evict(server->strangers) && sockets < SOCKETS_MAX + STRANGERS_MAX);
}

static void accept_one(struct acceptor *acceptor, int fd)
{
    struct connection_server *server = container_of(acceptor, struct connection_server, acceptor);
    if (!room_for_one(server)) {
        refuse(server, fd, "too many sessions");
        return;
    }
    struct connection *connection = calloc(1, server->ops->connection_bytes);
    if (connection == NULL) {
        refuse(server, fd, "out of memory");
        return;
    }
    atomic_fetch_add(&server->sockets, 1);
    socket_tune(fd, (unsigned)(server->timeout_ns / RT_NS_PER_MS) * 2);
    connection->stream.fd = fd;
    list_init(&connection->link);
    strangers_enter(server->strangers, &connection->stranger, fd);
    connection->thread = &server->threads[server->next_thread++ % server->thread_count];
    if (connection->thread->index == 0) {
        connection_accept(server, connection);
        return;
    }
    connection->message.deliver = accept_message;
    rt_loop_post(connection_loop(connection->thread), &connection->message);
}

/* ---- dropping -------------------------------------------------------------------------------- */

struct drop {
    struct rt_message message;
    struct connection_thread *thread;
    const struct connection_filter *filter;
    struct rt_countdown *answers;
    atomic_uint *still_running;
};

static bool drop_matches(const struct connection_filter *filter,
                         const struct connection *connection)
{
    if (connection == filter->except)
        return false;
    if (filter->all)
        return connection->endpoint_id != 0;
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
        running += drop_matches(drop->filter, connection) &&
                   !(drop->filter->calls_go_on && connection->was_open);
    }
    atomic_fetch_add(drop->still_running, running);
    rt_countdown_done(drop->answers);
}

/* One round over all threads; how many requests of dropped connections are still running. */
static unsigned drop_round_co(struct connection_server *server,
                              const struct connection_filter *filter)
{
    struct drop drops[CONNECTION_THREADS_MAX];
    struct rt_countdown answers;
    atomic_uint still_running = 0;

    rt_countdown_init(&answers, server->thread_count);
    for (unsigned i = 0; i < server->thread_count; i++) {
        drops[i] = (struct drop){.message.deliver = drop_on_thread,
                                 .thread = &server->threads[i],
                                 .filter = filter,
                                 .answers = &answers,
                                 .still_running = &still_running};
        rt_loop_post(connection_loop(&server->threads[i]), &drops[i].message);
    }
    rt_countdown_wait_co(&answers);
    return atomic_load(&still_running);
}

struct release_wait {
    const struct connection_server *server;
    unsigned released; /* before the last round */
};

static bool none_released(const void *context)
{
    const struct release_wait *wait = context;
    return atomic_load(&wait->server->released) == wait->released;
}

enum pando_status connection_drop_co(struct connection_server *server,
                                     const struct connection_filter *filter)
{
    uint64_t deadline = rt_now_ns() + DROP_NS;
    struct release_wait wait = {server, atomic_load(&server->released)};
    while (drop_round_co(server, filter) > 0) {
        if (rt_now_ns() > deadline ||
            rt_waitq_while_co(&server->release, none_released, &wait, deadline) != PANDO_OK)
            return PANDO_TIMEOUT;
        wait.released = atomic_load(&server->released);
    }
    return PANDO_OK;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static bool any_closed(const void *closed)
{
    return !list_empty(closed);
}

static void thread_main(void *arg)
{
    struct connection_thread *thread = arg;
    struct connection_server *server = thread->server;

    thread->main = rt_task_self();
    bool started = server->ops->thread_start(thread) == PANDO_OK;
    if (started && thread->index == 0)
        fabric_attend_from(server->fabric, connection_loop(thread));
    if (thread->index == 0)
        thread->listening = started && acceptor_start(&server->acceptor, server->listener,
                                                      server->strangers, accept_one) == PANDO_OK;
    if (!started || (thread->index == 0 && !thread->listening))
        log_error("a server thread cannot start: it serves nobody");
    while (!thread->stopping)
        (void)rt_park_co(RT_NEVER);
    if (thread->listening)
        acceptor_stop(&server->acceptor);
    list_for_each_safe (link, &thread->connections)
        connection_close(container_of(link, struct connection, link), NULL);
    (void)rt_waitq_while_co(&server->release, any_closed, &thread->closed, RT_NEVER);
    fabric_attend_end_co(server->fabric);
    server->ops->thread_stop_co(thread);
    free(thread->reply);
}

static void stop_message(struct rt_message *message)
{
    struct connection_thread *thread =
        container_of(message, struct connection_thread, stop_message);
    thread->stopping = true;
    if (thread->main != NULL)
        rt_unpark(thread->main);
}

static unsigned strangers_places(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return STRANGERS_MIN;
    rlim_t places = files.rlim_cur / STRANGERS_FILES;
    return places < STRANGERS_MIN   ? STRANGERS_MIN
           : places > STRANGERS_MAX ? STRANGERS_MAX
                                    : (unsigned)places;
}

enum pando_status connection_server_create(const struct connection_server_options *options,
                                           struct connection_server **out, char *error,
                                           size_t error_bytes)
{
    struct socket_address address;
    unsigned threads = options->threads == 0 ? 1 : options->threads;
    enum pando_status status = socket_resolve(options->listen, true, &address, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    struct connection_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return PANDO_NO_MEMORY;
    server->ops = options->ops;
    rt_waitq_init(&server->release);
    server->protocol = options->protocol;
    server->fabric = options->fabric;
    server->window = options->window;
    server->credentials = options->credentials;
    server->timeout_ns = options->timeout_ns;
    server->thread_count = threads > CONNECTION_THREADS_MAX ? CONNECTION_THREADS_MAX : threads;
    status = socket_listen(&address, options->listen, &server->listener, error, error_bytes);
    if (status != PANDO_OK) {
        free(server);
        return status;
    }
    char name[FABRIC_LOCATION_MAX];
    socket_name(server->listener, name, sizeof(name));
    server->strangers = strangers_create(name, strangers_places());
    if (server->strangers == NULL) {
        close(server->listener);
        free(server);
        return PANDO_NO_MEMORY;
    }
    if (credentials_insecure(options->credentials) && !socket_listens_on_loopback(server->listener))
        log_warn("plain TCP is let in: who is on the path can read and write all of the pool",
                 log_text("listen", options->listen), log_text("because_of", "--insecure-tcp"));
    *out = server;
    return PANDO_OK;
}

enum pando_status connection_server_start(struct connection_server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct connection_thread *thread = &server->threads[i];
        thread->server = server;
        thread->index = i;
        list_init(&thread->connections);
        list_init(&thread->closed);
        thread->stop_message.deliver = stop_message;
    }
    /* The first one accepts and hands over to the others: it starts last. */
    for (unsigned i = server->thread_count; i-- > 0;) {
        struct connection_thread *thread = &server->threads[i];
        enum pando_status status =
            rt_thread_start(server->ops->thread_name, thread_main, thread, &thread->thread);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

void connection_server_destroy(struct connection_server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct connection_thread *thread = &server->threads[i];
        if (thread->thread != NULL)
            rt_loop_post(connection_loop(thread), &thread->stop_message);
    }
    for (unsigned i = 0; i < server->thread_count; i++) {
        if (server->threads[i].thread != NULL)
            rt_thread_join(server->threads[i].thread);
    }
    close(server->listener);
    strangers_destroy(server->strangers);
    free(server);
}

void connection_server_location(const struct connection_server *server, const char *advertise,
                                char out[FABRIC_LOCATION_MAX])
{
    char name[FABRIC_LOCATION_MAX];
    struct host_port told, bound;

    socket_name(server->listener, name, sizeof(name));
    if (advertise == NULL || parse_host_port(advertise, &told) != PANDO_OK)
        snprintf(out, FABRIC_LOCATION_MAX, "%s", name);
    else if (told.port == 0 && parse_host_port(name, &bound) == PANDO_OK)
        snprintf(out, FABRIC_LOCATION_MAX,
                 strchr(told.host, ':') != NULL ? "[%.80s]:%u" : "%.80s:%u", told.host, bound.port);
    else
        snprintf(out, FABRIC_LOCATION_MAX, "%s", advertise);
}
