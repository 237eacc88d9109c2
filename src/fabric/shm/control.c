/*
 * control.c - the client's side of the control socket: messages with replies, any number at a time.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/shm/shm_int.h"

enum { REPLIES_PER_EVENT = 64, BUFFER_BYTES = 1024 * 1024 };

static const uint64_t CONNECT_NS = 2 * RT_NS_PER_S;
static const uint64_t REPLY_NS = 30 * RT_NS_PER_S;
static const uint64_t CONNECT_RETRY_NS = 2 * RT_NS_PER_MS;

/* On the stack of the task that waits for it. */
struct socket_call {
    struct list link; /* in calls or unsent */
    struct rt_task *task;
    struct shm_header header;
    struct slice body;
    void *reply;
    uint32_t reply_capacity;
    uint32_t reply_size;
    enum pando_status status;
    bool done;
};

static void call_done(struct socket_call *call, enum pando_status status)
{
    list_remove(&call->link);
    call->status = status;
    call->done = true;
    rt_unpark(call->task);
}

static void fail_all(struct list *calls)
{
    while (!list_empty(calls))
        call_done(container_of(calls->next, struct socket_call, link), PANDO_BROKEN);
}

static void socket_close(struct shm_endpoint *endpoint)
{
    rt_fd_remove(endpoint->base.loop, &endpoint->socket);
    close(endpoint->socket.fd);
    endpoint->socket.fd = -1;
}

void shm_endpoint_break(struct shm_endpoint *endpoint)
{
    endpoint->base.broken = true;
    if (endpoint->socket.fd >= 0)
        socket_close(endpoint);
    fail_all(&endpoint->calls);
    fail_all(&endpoint->unsent);
    shm_lists_fail(endpoint, PANDO_BROKEN);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* OK, AGAIN when the server does not read, or BROKEN. */
static enum pando_status call_send(struct shm_endpoint *endpoint, struct socket_call *call)
{
    struct iovec parts[2] = {
        {.iov_base = &call->header, .iov_len = sizeof(call->header)},
        {.iov_base = (void *)(uintptr_t)call->body.data, .iov_len = call->body.size},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = call->body.size > 0 ? 2 : 1};
    ssize_t sent;

    do {
        sent = sendmsg(endpoint->socket.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return PANDO_OK;
    return errno == EAGAIN || errno == EWOULDBLOCK ? PANDO_AGAIN : PANDO_BROKEN;
}

/* Sends what had to wait. False: the session broke. */
static bool send_unsent(struct shm_endpoint *endpoint)
{
    while (!list_empty(&endpoint->unsent)) {
        struct socket_call *call = container_of(endpoint->unsent.next, struct socket_call, link);
        enum pando_status status = call_send(endpoint, call);
        if (status == PANDO_AGAIN)
            return true;
        if (status != PANDO_OK) {
            shm_endpoint_break(endpoint);
            return false;
        }
        list_remove(&call->link);
        list_push_back(&endpoint->calls, &call->link);
    }
    rt_fd_change(endpoint->base.loop, &endpoint->socket, EPOLLIN);
    return true;
}

static void call_start(struct shm_endpoint *endpoint, struct socket_call *call)
{
    enum pando_status status = PANDO_AGAIN;

    list_init(&call->link);
    if (endpoint->socket.fd < 0)
        status = PANDO_BROKEN;
    else if (list_empty(&endpoint->unsent))
        status = call_send(endpoint, call);
    switch (status) {
    case PANDO_OK:
        list_push_back(&endpoint->calls, &call->link);
        break;
    case PANDO_AGAIN:
        list_push_back(&endpoint->unsent, &call->link);
        rt_fd_change(endpoint->base.loop, &endpoint->socket, EPOLLIN | EPOLLOUT);
        break;
    default:
        call->status = PANDO_BROKEN;
        call->done = true;
        shm_endpoint_break(endpoint);
    }
}

static enum pando_status ask_until_co(struct shm_endpoint *endpoint, struct socket_call *call,
                                      uint64_t deadline_ns)
{
    struct rt_loop *loop = endpoint->base.loop;

    call->task = rt_task_self();
    call->header.tag = endpoint->next_tag++;
    rt_flight_add(loop, 1);
    call_start(endpoint, call);
    while (!call->done && rt_now_ns() < deadline_ns)
        (void)rt_park_co(deadline_ns);
    rt_flight_add(loop, -1);
    if (!call->done) {
        list_remove(&call->link); /* a reply that comes later finds nobody */
        call->status = PANDO_TIMEOUT;
    }
    return call->status;
}

enum pando_status shm_socket_call_co(struct shm_endpoint *endpoint, enum shm_message_type type,
                                     uint16_t code, struct slice body, void *reply,
                                     uint32_t reply_capacity, uint32_t *reply_size)
{
    struct socket_call call = {
        .header = {.type = (uint16_t)type, .code = code, .size = (uint32_t)body.size},
        .body = body,
        .reply = reply,
        .reply_capacity = reply_capacity,
    };
    enum pando_status status = ask_until_co(endpoint, &call, rt_now_ns() + REPLY_NS);
    *reply_size = call.reply_size;
    return status;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static struct socket_call *call_of(struct shm_endpoint *endpoint, uint64_t tag)
{
    list_for_each (link, &endpoint->calls) {
        struct socket_call *call = container_of(link, struct socket_call, link);
        if (call->header.tag == tag)
            return call;
    }
    return NULL;
}

static bool header_valid(const struct shm_header *header, size_t bytes)
{
    return bytes >= sizeof(*header) && header->size == bytes - sizeof(*header) &&
           header->type == SHM_REPLY && header->code < PANDO_STATUS_COUNT &&
           header->size <= FABRIC_CALL_BYTES_MAX;
}

/* Takes the packet that was looked at off the socket; what the caller has no room for is dropped.
 */
static bool reply_take(struct shm_endpoint *endpoint, struct shm_header *header,
                       struct socket_call *call)
{
    struct iovec parts[2] = {{.iov_base = header, .iov_len = sizeof(*header)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};

    if (call != NULL && call->reply_capacity > 0) {
        parts[1] = (struct iovec){.iov_base = call->reply, .iov_len = call->reply_capacity};
        message.msg_iovlen = 2;
    }
    return recvmsg(endpoint->socket.fd, &message, MSG_DONTWAIT) >= (ssize_t)sizeof(*header);
}

/* OK, AGAIN when there is nothing, or BROKEN. */
static enum pando_status reply_receive(struct shm_endpoint *endpoint)
{
    struct shm_header header;
    ssize_t bytes =
        recv(endpoint->socket.fd, &header, sizeof(header), MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC);
    if (bytes < 0)
        return errno == EAGAIN || errno == EINTR ? PANDO_AGAIN : PANDO_BROKEN;
    if (bytes == 0)
        return PANDO_BROKEN;
    if (!header_valid(&header, (size_t)bytes)) {
        log_warn("a window's server sent nonsense", log_u64("node", endpoint->base.node),
                 log_u64("bytes", (uint64_t)bytes));
        return PANDO_BROKEN;
    }
    struct socket_call *call = call_of(endpoint, header.tag);
    if (!reply_take(endpoint, &header, call))
        return PANDO_BROKEN;
    if (call != NULL) {
        call->reply_size = header.size;
        call_done(call, (enum pando_status)header.code);
    }
    return PANDO_OK;
}

static void client_socket_ready(struct rt_fd *fd, uint32_t events)
{
    struct shm_endpoint *endpoint = container_of(fd, struct shm_endpoint, socket);

    if ((events & EPOLLOUT) != 0 && !send_unsent(endpoint))
        return;
    for (int i = 0; i < REPLIES_PER_EVENT; i++) {
        enum pando_status status = reply_receive(endpoint);
        if (status == PANDO_AGAIN)
            return;
        if (status != PANDO_OK) {
            shm_endpoint_break(endpoint);
            return;
        }
    }
}

/* ---- opening and ending ---------------------------------------------------------------------- */

void shm_socket_init(struct shm_endpoint *endpoint)
{
    endpoint->socket = (struct rt_fd){.fd = -1, .ready = client_socket_ready};
    list_init(&endpoint->calls);
    list_init(&endpoint->unsent);
    rt_waitq_init(&endpoint->reconnected);
}

static enum pando_status connect_status(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return PANDO_DENIED;
    case EPROTOTYPE: /* a socket, but somebody else's */
        return PANDO_INVALID;
    default:
        return PANDO_BROKEN;
    }
}

static enum pando_status connect_until_co(int fd, const struct sockaddr_un *address,
                                          uint64_t deadline_ns)
{
    while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN) /* more wait to be accepted than may */
            return connect_status(errno);
        if (rt_now_ns() >= deadline_ns)
            return PANDO_TIMEOUT;
        rt_sleep_co(CONNECT_RETRY_NS); /* the kernel does not say when there is room */
    }
    return PANDO_OK;
}

/* In a folder that others may write to, anybody can have made a socket of that name. */
static enum pando_status check_server(int fd, const char *location)
{
    struct ucred server;
    socklen_t size = sizeof(server);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) != 0)
        return PANDO_IO;
    if (server.uid == geteuid())
        return PANDO_OK;
    log_warn("the window's server runs as another user; run this as that user, or give another "
             "name",
             log_text("window", location), log_u64("server_user", server.uid),
             log_u64("own_user", geteuid()));
    return PANDO_DENIED;
}

static enum pando_status socket_open_co(struct shm_endpoint *endpoint, const char *location,
                                        uint64_t deadline_ns)
{
    struct sockaddr_un address;
    const int buffer_bytes = BUFFER_BYTES;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno == ENOMEM || errno == ENOBUFS ? PANDO_NO_MEMORY : PANDO_IO;
    /* The system may grant less; its least is enough for a message. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    shm_socket_address(location, &address);
    enum pando_status status = connect_until_co(fd, &address, deadline_ns);
    if (status == PANDO_OK)
        status = check_server(fd, location);
    if (status != PANDO_OK)
        goto err_close;
    endpoint->socket.fd = fd;
    endpoint->socket.events = EPOLLIN;
    status = rt_fd_add(endpoint->base.loop, &endpoint->socket);
    if (status != PANDO_OK)
        goto err_close;
    return PANDO_OK;

err_close:
    endpoint->socket.fd = -1;
    close(fd);
    return status;
}

static enum pando_status check_welcome(const struct shm_endpoint *endpoint,
                                       const struct shm_welcome *welcome, uint32_t size)
{
    if (size != sizeof(*welcome) || welcome->target >= FABRIC_TARGETS)
        return PANDO_BROKEN;
    if (welcome->version != SHM_CONTROL_VERSION)
        return PANDO_VERSION;
    if (welcome->node != endpoint->base.node) {
        log_warn("another node is served there", log_u64("wanted", endpoint->base.node),
                 log_u64("found", welcome->node));
        return PANDO_INVALID;
    }
    return fabric_window_check(endpoint->base.node, (enum fabric_target)welcome->target,
                               endpoint->base.window, welcome->window);
}

enum pando_status shm_socket_open_co(struct shm_endpoint *endpoint, const char *location,
                                     struct shm_welcome *out)
{
    uint64_t deadline_ns = rt_now_ns() + CONNECT_NS;
    struct shm_hello hello = {
        .magic = SHM_CONTROL_MAGIC,
        .version = SHM_CONTROL_VERSION,
        .member = endpoint->base.identity.member,
        .incarnation = endpoint->base.identity.incarnation,
        .endpoint = endpoint->id,
        .window = endpoint->base.window,
    };
    struct socket_call call = {
        .header = {.type = SHM_HELLO, .size = sizeof(hello)},
        .body = slice_of(&hello, sizeof(hello)),
        .reply = out,
        .reply_capacity = sizeof(*out),
    };
    enum pando_status status = socket_open_co(endpoint, location, deadline_ns);
    if (status != PANDO_OK)
        return status;
    status = ask_until_co(endpoint, &call, deadline_ns);
    if (status != PANDO_OK) {
        shm_endpoint_break(endpoint);
        return status;
    }
    status = check_welcome(endpoint, out, call.reply_size);
    if (status != PANDO_OK)
        shm_socket_close(endpoint); /* it was let in but will not map the window */
    return status;
}

void shm_socket_close(struct shm_endpoint *endpoint)
{
    struct socket_call goodbye = {.header = {.type = SHM_GOODBYE}};

    pando_assert(list_empty(&endpoint->calls) && list_empty(&endpoint->unsent));
    if (endpoint->socket.fd < 0)
        return;
    /* If it does not go out, the server keeps this process attached, which is safe. */
    (void)call_send(endpoint, &goodbye);
    socket_close(endpoint);
}
