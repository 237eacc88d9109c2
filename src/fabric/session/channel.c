#include "fabric/session/channel.h"

#include <sys/epoll.h>

#include "base/assert.h"

struct socket_wait {
    struct rt_fd fd;
    struct rt_task *task;
    bool ready;
};

static void wait_ready(struct rt_fd *fd, uint32_t events)
{
    struct socket_wait *wait = container_of(fd, struct socket_wait, fd);
    (void)events;
    wait->ready = true;
    rt_fd_change(rt_loop_self(), fd, 0);
    rt_unpark(wait->task);
}

enum pando_status channel_wait_co(int fd, uint32_t events, uint64_t deadline_ns)
{
    struct socket_wait wait = {
        .fd = {.fd = fd, .events = events, .ready = wait_ready},
        .task = rt_task_self(),
    };
    enum pando_status status = rt_fd_add(rt_loop_self(), &wait.fd);
    if (status != PANDO_OK)
        return status;
    while (!wait.ready && status != PANDO_TIMEOUT)
        status = rt_park_co(deadline_ns);
    rt_fd_remove(rt_loop_self(), &wait.fd);
    return wait.ready ? PANDO_OK : PANDO_TIMEOUT;
}

enum pando_status channel_send_co(struct stream *stream, const void *bytes, size_t size,
                                  uint64_t deadline_ns)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        ssize_t put = stream_write(stream, at, size);
        if (put < 0)
            return PANDO_BROKEN;
        at += put;
        size -= (size_t)put;
        if (put > 0)
            continue;
        enum pando_status status = channel_wait_co(stream->fd, EPOLLOUT, deadline_ns);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

enum pando_status channel_receive_co(struct stream *stream, void *bytes, size_t size,
                                     uint64_t deadline_ns)
{
    uint8_t *at = bytes;
    while (size > 0) {
        ssize_t got = stream_read(stream, at, size);
        if (got < 0)
            return PANDO_BROKEN;
        at += got;
        size -= (size_t)got;
        if (got > 0)
            continue;
        enum pando_status status = channel_wait_co(stream->fd, EPOLLIN, deadline_ns);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

enum pando_status channel_tls_co(struct stream *stream, uint64_t deadline_ns)
{
    for (;;) {
        enum pando_status status = tls_handshake(stream);
        if (status != PANDO_AGAIN)
            return status;
        status = channel_wait_co(stream->fd, EPOLLIN, deadline_ns);
        if (status != PANDO_OK)
            return status;
    }
}

enum pando_status channel_send_frame_co(struct stream *stream, enum wire_type type,
                                        const uint8_t *body, uint32_t size, uint64_t deadline_ns)
{
    uint8_t frame[WIRE_FRAME_HEADER + WIRE_EXTRA_MAX * 2];
    pando_assert(WIRE_FRAME_HEADER + size <= sizeof(frame));
    wire_put_frame(frame, size, type, 0);
    memcpy(frame + WIRE_FRAME_HEADER, body, size);
    return channel_send_co(stream, frame, WIRE_FRAME_HEADER + size, deadline_ns);
}

enum pando_status channel_receive_frame_co(struct stream *stream, struct wire_frame *frame,
                                           uint8_t *body, uint32_t capacity, uint64_t deadline_ns)
{
    uint8_t header[WIRE_FRAME_HEADER];
    enum pando_status status = channel_receive_co(stream, header, sizeof(header), deadline_ns);
    if (status != PANDO_OK)
        return status;
    if (wire_get_frame(header, sizeof(header), frame) != WIRE_OK || frame->size > capacity)
        return PANDO_DENIED;
    return channel_receive_co(stream, body, frame->size, deadline_ns);
}
