/*
 * http.c - one task a connection: reads a head, writes an answer, closes. The socket is watched only
 * while the task waits for it.
 *
 * Everybody is a stranger here, so those that are slow give way: while their request comes to newer
 * ones, while their answer goes to newer ones that are answered.
 */
#include "http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "fabric/stream/acceptor.h"
#include "fabric/stream/stream.h"
#include "http/request.h"
#include "rt/io.h"

enum {
    ASKING_MAX = 64,
    ANSWERED_MAX = 64,
    CONNECTIONS_MAX = 2 * (ASKING_MAX + ANSWERED_MAX), /* with evicted ones that have not noticed */
    REQUEST_S = 5,                                     /* for the whole head */
    RESPONSE_S = 5,                                    /* for the whole answer */
};

struct http {
    http_content_fn content_co;
    void *context;
    struct stream listener;
    char address[64];
    struct acceptor acceptor;
    struct strangers *asking, *answered;
    struct list connections;
    unsigned count;
    struct rt_waitq none; /* no connection is left */
    bool started, stopping;
};

struct http_connection {
    struct list link;
    struct http *http;
    struct stream stream;
    struct rt_fd io;
    struct rt_task *task;
    struct stranger stranger;
    struct strangers *among; /* asking or answered */
    bool ready;
    bool watched; /* io is in the loop; a socket that is shut down would keep waking it */
    size_t used;
    char head[HTTP_HEAD_MAX];
};

/* ---- a connection ---------------------------------------------------------------------------- */

static void socket_ready(struct rt_fd *io, uint32_t events)
{
    struct http_connection *connection = container_of(io, struct http_connection, io);
    if ((events & RT_HANG_UP) != 0) {
        rt_fd_remove(rt_loop_self(), io);
        connection->watched = false;
    } else {
        rt_fd_change(rt_loop_self(), io, 0);
    }
    connection->ready = true;
    rt_unpark(connection->task);
}

/* False: not in time, or gone, or the server stops. */
static bool wait_co(struct http_connection *connection, uint32_t events, uint64_t deadline_ns)
{
    if (!connection->watched)
        return false;
    connection->ready = false;
    rt_fd_change(rt_loop_self(), &connection->io, events);
    while (!connection->ready && !connection->http->stopping) {
        if (rt_park_co(deadline_ns) != PANDO_OK)
            break;
    }
    if (connection->watched)
        rt_fd_change(rt_loop_self(), &connection->io, 0);
    return connection->ready && !connection->http->stopping;
}

/* A status as http_request_parse has them; 408 for too slow, 0 for gone. */
static int read_request_co(struct http_connection *connection, struct http_request *request)
{
    uint64_t deadline_ns = rt_now_ns() + REQUEST_S * RT_NS_PER_S;
    for (;;) {
        ssize_t got = stream_read(&connection->stream, connection->head + connection->used,
                                  sizeof(connection->head) - connection->used);
        if (got < 0)
            return 0;
        connection->used += (size_t)got;
        int status = http_request_parse(connection->head, connection->used, request);
        if (status != HTTP_MORE)
            return status;
        if (got == 0 && !wait_co(connection, RT_READABLE, deadline_ns))
            return connection->http->stopping || !connection->watched ? 0 : 408;
    }
}

static void write_co(struct http_connection *connection, const char *bytes, size_t size,
                     uint64_t deadline_ns)
{
    while (size > 0) {
        ssize_t put = stream_write(&connection->stream, bytes, size);
        if (put < 0 || (put == 0 && !wait_co(connection, RT_WRITABLE, deadline_ns)))
            return;
        bytes += put;
        size -= (size_t)put;
    }
}

static const char *reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Bad Request";
    }
}

static void respond_co(struct http_connection *connection, int status, const char *type,
                       const char *body, size_t size, bool head_only)
{
    uint64_t deadline_ns = rt_now_ns() + RESPONSE_S * RT_NS_PER_S;
    char head[512];
    int head_size =
        snprintf(head, sizeof(head),
                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
                 "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                 "Connection: close\r\n\r\n",
                 status, reason(status), type, size, status == 405 ? "Allow: GET, HEAD\r\n" : "");
    write_co(connection, head, (size_t)head_size, deadline_ns);
    if (!head_only)
        write_co(connection, body, size, deadline_ns);
}

static void respond_metrics_co(struct http_connection *connection, bool head_only)
{
    struct metrics metrics = {0};
    connection->http->content_co(connection->http->context, &metrics);
    if (metrics.failed || metrics.text == NULL)
        respond_co(connection, 500, "text/plain", "out of memory\n", 14, head_only);
    else
        respond_co(connection, 200, "text/plain; version=0.0.4; charset=utf-8", metrics.text,
                   metrics.size, head_only);
    metrics_fini(&metrics);
}

static void serve_co(struct http_connection *connection)
{
    struct http_request request = {0};
    char text[80];
    int status = read_request_co(connection, &request);
    if (status == 0 || !strangers_leave(connection->among, &connection->stranger))
        return;
    connection->among = connection->http->answered;
    strangers_enter(connection->among, &connection->stranger, connection->stream.fd);
    if (status == HTTP_OK && strcmp(request.path, "/metrics") == 0) {
        respond_metrics_co(connection, request.head);
        return;
    }
    status = status == HTTP_OK ? 404 : status;
    int size = snprintf(text, sizeof(text), "%d %s; try GET /metrics\n", status, reason(status));
    respond_co(connection, status, "text/plain", text, (size_t)size, request.head);
}

static void connection_task(void *arg)
{
    struct http_connection *connection = arg;
    struct http *http = connection->http;
    connection->task = rt_task_self();
    connection->io = (struct rt_fd){.fd = connection->stream.fd, .ready = socket_ready};
    connection->watched = rt_fd_add(rt_loop_self(), &connection->io) == PANDO_OK;
    if (connection->watched)
        serve_co(connection);
    if (connection->watched)
        rt_fd_remove(rt_loop_self(), &connection->io);
    (void)strangers_leave(connection->among, &connection->stranger);
    socket_shutdown(connection->stream.fd);
    stream_close(&connection->stream);
    list_remove(&connection->link);
    free(connection);
    if (--http->count == 0)
        rt_waitq_wake_all(&http->none);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void accept_one(struct acceptor *acceptor, int fd)
{
    struct http *http = container_of(acceptor, struct http, acceptor);
    struct stream stream = {.fd = fd};
    struct http_connection *connection = NULL;
    if (http->count < CONNECTIONS_MAX)
        connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        stream_close(&stream);
        return;
    }
    connection->http = http;
    connection->stream = stream;
    list_push_back(&http->connections, &connection->link);
    connection->among = http->asking;
    strangers_enter(connection->among, &connection->stranger, fd);
    http->count++;
    if (rt_spawn(rt_loop_self(), connection_task, connection) == PANDO_OK)
        return;
    (void)strangers_leave(connection->among, &connection->stranger);
    list_remove(&connection->link);
    http->count--;
    stream_close(&stream);
    free(connection);
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum pando_status http_open(const char *listen, http_content_fn content_co, void *context,
                            struct http **out, char *error, size_t error_bytes)
{
    struct socket_address address;
    char full[300];
    struct http *http = calloc(1, sizeof(*http));
    if (http == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    http->content_co = content_co;
    http->context = context;
    http->listener.fd = -1;
    list_init(&http->connections);
    rt_waitq_init(&http->none);
    bool port_only = listen[0] != '\0' && listen[strspn(listen, "0123456789")] == '\0';
    snprintf(full, sizeof(full), "%s%s", port_only ? "127.0.0.1:" : "", listen);
    enum pando_status status = socket_resolve(full, true, &address, error, error_bytes);
    if (status == PANDO_OK)
        status = socket_listen(&address, full, &http->listener.fd, error, error_bytes);
    if (status != PANDO_OK) {
        http_close(http);
        return status;
    }
    socket_name(http->listener.fd, http->address, sizeof(http->address));
    http->asking = strangers_create(http->address, ASKING_MAX);
    http->answered = strangers_create(http->address, ANSWERED_MAX);
    if (http->asking == NULL || http->answered == NULL) {
        snprintf(error, error_bytes, "out of memory");
        http_close(http);
        return PANDO_NO_MEMORY;
    }
    *out = http;
    return PANDO_OK;
}

void http_close(struct http *http)
{
    if (http->listener.fd >= 0)
        stream_close(&http->listener);
    strangers_destroy(http->asking);
    strangers_destroy(http->answered);
    free(http);
}

const char *http_address(const struct http *http)
{
    return http->address;
}

enum pando_status http_start(struct http *http)
{
    enum pando_status status =
        acceptor_start(&http->acceptor, http->listener.fd, http->asking, accept_one);
    http->started = status == PANDO_OK;
    return status;
}

static bool any_left(const void *http)
{
    return ((const struct http *)http)->count > 0;
}

void http_stop_co(struct http *http)
{
    if (!http->started)
        return;
    http->started = false;
    http->stopping = true;
    acceptor_stop(&http->acceptor);
    list_for_each (link, &http->connections) {
        struct http_connection *connection = container_of(link, struct http_connection, link);
        if (connection->task != NULL)
            rt_unpark(connection->task);
    }
    (void)rt_waitq_while_co(&http->none, any_left, http, RT_NEVER);
}
