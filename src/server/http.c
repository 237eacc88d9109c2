/*
 * http.c - one task a connection: reads a head, writes an answer, closes. The socket is watched only
 * while the task waits for it.
 */
#include "server/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "fabric/stream/stream.h"
#include "rt/io.h"
#include "server/http_request.h"

enum {
    CONNECTIONS_MAX = 16,
    ACCEPTS_PER_TURN = 16,
    REQUEST_S = 5,  /* for the whole head */
    RESPONSE_S = 5, /* for the whole answer */
    STOP_TICK_MS = 1,
    RETRY_MS = 100,
};

struct http {
    http_content_fn content_co;
    void *context;
    struct stream listener;
    char address[64];
    struct rt_fd accepting;
    struct rt_timer accept_again;
    struct list connections;
    unsigned count;
    bool started, stopping;
};

struct connection {
    struct list link;
    struct http *http;
    struct stream stream;
    struct rt_fd io;
    struct rt_task *task;
    bool ready;
    size_t used;
    char head[HTTP_HEAD_MAX];
};

/* ---- a connection ---------------------------------------------------------------------------- */

static void socket_ready(struct rt_fd *io, uint32_t events)
{
    struct connection *connection = container_of(io, struct connection, io);
    (void)events;
    rt_fd_change(rt_loop_self(), io, 0);
    connection->ready = true;
    rt_unpark(connection->task);
}

/* False: not in time, or the server stops. */
static bool wait_co(struct connection *connection, uint32_t events, uint64_t deadline_ns)
{
    connection->ready = false;
    rt_fd_change(rt_loop_self(), &connection->io, events);
    while (!connection->ready && !connection->http->stopping) {
        if (rt_park_co(deadline_ns) != PANDO_OK)
            break;
    }
    if (!connection->ready)
        rt_fd_change(rt_loop_self(), &connection->io, 0);
    return connection->ready && !connection->http->stopping;
}

/* A status as http_request_parse has them; 408 for too slow, 0 for gone. */
static int read_request_co(struct connection *connection, struct http_request *request)
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
            return connection->http->stopping ? 0 : 408;
    }
}

static void write_co(struct connection *connection, const char *bytes, size_t size,
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

static void respond_co(struct connection *connection, int status, const char *type,
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

static void respond_metrics_co(struct connection *connection, bool head_only)
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

static void serve_co(struct connection *connection)
{
    struct http_request request = {0};
    char text[80];
    int status = read_request_co(connection, &request);
    if (status == 0)
        return;
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
    struct connection *connection = arg;
    struct http *http = connection->http;
    connection->task = rt_task_self();
    connection->io = (struct rt_fd){.fd = connection->stream.fd, .ready = socket_ready};
    if (rt_fd_add(rt_loop_self(), &connection->io) == PANDO_OK) {
        serve_co(connection);
        rt_fd_remove(rt_loop_self(), &connection->io);
    }
    socket_shutdown(connection->stream.fd);
    stream_close(&connection->stream);
    list_remove(&connection->link);
    free(connection);
    http->count--;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void accept_one(struct http *http, int fd)
{
    struct stream stream = {.fd = fd};
    struct connection *connection = NULL;
    if (http->count < CONNECTIONS_MAX)
        connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        stream_close(&stream);
        return;
    }
    connection->http = http;
    connection->stream = stream;
    list_push_back(&http->connections, &connection->link);
    http->count++;
    if (rt_spawn(rt_loop_self(), connection_task, connection) == PANDO_OK)
        return;
    list_remove(&connection->link);
    http->count--;
    stream_close(&stream);
    free(connection);
}

static void accept_ready(struct rt_fd *io, uint32_t events)
{
    struct http *http = container_of(io, struct http, accepting);
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = socket_accept(http->listener.fd);
        if (fd == SOCKET_LIMIT) { /* it waits in the queue and would wake us at once */
            rt_fd_change(rt_loop_self(), io, 0);
            rt_timer_arm(&http->accept_again, rt_now_ns() + RETRY_MS * RT_NS_PER_MS);
        }
        if (fd < 0)
            return;
        accept_one(http, fd);
    }
}

static void accept_again(struct rt_timer *timer)
{
    struct http *http = container_of(timer, struct http, accept_again);
    rt_fd_change(rt_loop_self(), &http->accepting, RT_READABLE);
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
    rt_timer_init(&http->accept_again, accept_again);
    bool port_only = listen[0] != '\0' && listen[strspn(listen, "0123456789")] == '\0';
    snprintf(full, sizeof(full), "%s%s", port_only ? "127.0.0.1:" : "", listen);
    enum pando_status status = socket_resolve(full, true, &address, error, error_bytes);
    if (status == PANDO_OK)
        status = socket_listen(&address, full, &http->listener.fd, error, error_bytes);
    if (status != PANDO_OK) {
        free(http);
        return status;
    }
    socket_name(http->listener.fd, http->address, sizeof(http->address));
    *out = http;
    return PANDO_OK;
}

void http_close(struct http *http)
{
    if (http->listener.fd >= 0)
        stream_close(&http->listener);
    free(http);
}

const char *http_address(const struct http *http)
{
    return http->address;
}

enum pando_status http_start(struct http *http)
{
    http->accepting =
        (struct rt_fd){.fd = http->listener.fd, .events = RT_READABLE, .ready = accept_ready};
    enum pando_status status = rt_fd_add(rt_loop_self(), &http->accepting);
    http->started = status == PANDO_OK;
    return status;
}

void http_stop_co(struct http *http)
{
    if (!http->started)
        return;
    http->started = false;
    http->stopping = true;
    rt_timer_cancel(&http->accept_again);
    rt_fd_remove(rt_loop_self(), &http->accepting);
    list_for_each (link, &http->connections) {
        struct connection *connection = container_of(link, struct connection, link);
        if (connection->task != NULL)
            rt_unpark(connection->task);
    }
    while (http->count > 0)
        rt_sleep_co(STOP_TICK_MS * RT_NS_PER_MS);
}
