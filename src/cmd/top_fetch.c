#include "cmd/top_fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "rt/io.h"

enum { RESPONSE_MAX = 4 * 1024 * 1024, PIECE = 64 * 1024, PATIENCE_S = 3 };

static const char request_text[] =
    "GET /metrics HTTP/1.1\r\nHost: pando\r\nConnection: close\r\n\r\n";

struct fetch {
    struct rt_fd io;
    struct stream stream;
    struct rt_task *task;
    bool ready;
    uint64_t deadline_ns;
    char *bytes;
    size_t size, capacity;
};

static void socket_ready(struct rt_fd *io, uint32_t events)
{
    struct fetch *fetch = container_of(io, struct fetch, io);
    (void)events;
    rt_fd_change(rt_loop_self(), io, 0);
    fetch->ready = true;
    rt_unpark(fetch->task);
}

static bool wait_co(struct fetch *fetch, uint32_t events)
{
    fetch->ready = false;
    rt_fd_change(rt_loop_self(), &fetch->io, events);
    while (!fetch->ready) {
        if (rt_park_co(fetch->deadline_ns) != PANDO_OK)
            break;
    }
    return fetch->ready;
}

static enum pando_status send_co(struct fetch *fetch)
{
    size_t sent = 0, size = sizeof(request_text) - 1;
    while (sent < size) {
        ssize_t put = stream_write(&fetch->stream, request_text + sent, size - sent);
        if (put < 0)
            return PANDO_BROKEN;
        if (put == 0 && !wait_co(fetch, RT_WRITABLE))
            return PANDO_TIMEOUT;
        sent += (size_t)put;
    }
    return PANDO_OK;
}

/* Until the other side closes. */
static enum pando_status receive_co(struct fetch *fetch)
{
    for (;;) {
        if (fetch->size + PIECE > RESPONSE_MAX)
            return PANDO_TOO_LARGE;
        if (fetch->capacity - fetch->size < PIECE) {
            char *grown = realloc(fetch->bytes, fetch->size + 2 * (size_t)PIECE);
            if (grown == NULL)
                return PANDO_NO_MEMORY;
            fetch->bytes = grown;
            fetch->capacity = fetch->size + 2 * (size_t)PIECE;
        }
        ssize_t got = stream_read(&fetch->stream, fetch->bytes + fetch->size, PIECE);
        if (got < 0)
            return PANDO_OK;
        if (got == 0 && !wait_co(fetch, RT_READABLE))
            return PANDO_TIMEOUT;
        fetch->size += (size_t)got;
    }
}

static enum pando_status exchange_co(struct fetch *fetch)
{
    enum pando_status status = rt_fd_add(rt_loop_self(), &fetch->io);
    if (status != PANDO_OK)
        return status;
    if (!wait_co(fetch, RT_WRITABLE))
        status = PANDO_TIMEOUT;
    else if (socket_error(fetch->stream.fd) != 0)
        status = PANDO_BROKEN;
    if (status == PANDO_OK)
        status = send_co(fetch);
    if (status == PANDO_OK)
        status = receive_co(fetch);
    rt_fd_remove(rt_loop_self(), &fetch->io);
    return status;
}

static enum pando_status take_apart(const struct fetch *fetch, struct slice *body)
{
    static const char ok[] = "HTTP/1.1 200 ";
    if (fetch->size < sizeof(ok) || memcmp(fetch->bytes, ok, sizeof(ok) - 1) != 0)
        return PANDO_INVALID;
    const char *end = memmem(fetch->bytes, fetch->size, "\r\n\r\n", 4);
    if (end == NULL)
        return PANDO_INVALID;
    size_t head = (size_t)(end + 4 - fetch->bytes);
    *body = slice_of(fetch->bytes + head, fetch->size - head);
    return PANDO_OK;
}

enum pando_status top_fetch_co(const struct socket_address *address, char **out, struct slice *body,
                               char *error, size_t error_bytes)
{
    struct fetch fetch = {.task = rt_task_self(),
                          .deadline_ns = rt_now_ns() + PATIENCE_S * RT_NS_PER_S};
    fetch.stream.fd = socket_connect(address);
    enum pando_status status = fetch.stream.fd < 0 ? PANDO_BROKEN : PANDO_OK;
    if (status == PANDO_OK) {
        fetch.io = (struct rt_fd){.fd = fetch.stream.fd, .ready = socket_ready};
        status = exchange_co(&fetch);
        stream_close(&fetch.stream);
    }
    if (status == PANDO_OK)
        status = take_apart(&fetch, body);
    if (status == PANDO_OK) {
        *out = fetch.bytes;
        return PANDO_OK;
    }
    free(fetch.bytes);
    snprintf(error, error_bytes, "%s",
             status == PANDO_INVALID   ? "what answers there is no pando with --metrics"
             : status == PANDO_TIMEOUT ? "no answer in time"
                                       : "nobody answers there; start it with --metrics");
    return status;
}
