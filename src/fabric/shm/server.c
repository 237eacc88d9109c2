/*
 * server.c - the thread beside a window: lets processes in, hears what they say, and ends them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/shm/server_int.h"

enum {
    MESSAGES_PER_EVENT = 16,
    BUFFER_BYTES = 1024 * 1024,
};

static const uint64_t SAY_AGAIN_NS = 60 * RT_NS_PER_S;
static const uint64_t CALLS_END_NS = 5 * RT_NS_PER_S;

/* ---- connections ----------------------------------------------------------------------------- */

void shm_connection_update(struct shm_connection *connection)
{
    uint32_t events = 0;
    if (!list_empty(&connection->queue))
        events = EPOLLOUT;
    else if (list_empty(&connection->starved))
        events = EPOLLIN;
    rt_fd_change(rt_loop_self(), &connection->socket, events);
}

void shm_server_feed(struct shm_server *server)
{
    if (list_empty(&server->starved) || !shm_request_free(server))
        return;
    struct shm_connection *connection =
        container_of(list_pop_front(&server->starved), struct shm_connection, starved);
    shm_connection_update(connection);
}

static void presence_leave(struct shm_connection *connection)
{
    struct shm_server *server = connection->server;
    uint16_t member = connection->identity.member;
    struct shm_presence *presence = &server->members[member];

    if (!connection->welcomed || member == 0)
        return;
    if (!connection->goodbye)
        presence->lost = true;
    if (--presence->connections == 0 && !presence->lost)
        shm_detach(server->fabric, member);
}

void shm_connection_close(struct shm_connection *connection)
{
    struct shm_server *server = connection->server;

    pando_assert(!connection->closed);
    connection->closed = true;
    presence_leave(connection);
    shm_process_let_go(&connection->process);
    rt_fd_remove(rt_loop_self(), &connection->socket);
    close(connection->socket.fd);
    shm_queue_drop(connection);
    list_remove(&connection->link);
    list_remove(&connection->starved);
    server->connection_count--;
    if (connection->requests == 0)
        free(connection);
    shm_server_feed(server);
}

/* Closes those that `covers` picks out; it may look at `wanted`. */
static void close_if(struct shm_server *server,
                     bool (*covers)(const struct shm_connection *, const struct shm_connection *),
                     const struct shm_connection *wanted)
{
    list_for_each_safe (link, &server->connections) {
        struct shm_connection *connection = container_of(link, struct shm_connection, link);
        if (covers(connection, wanted))
            shm_connection_close(connection);
    }
}

/* ---- what clients say ------------------------------------------------------------------------ */

static bool is_former(const struct shm_connection *old, const struct shm_connection *new)
{
    return old != new && old->welcomed && old->endpoint == new->endpoint &&
           old->process.who.process == new->process.who.process;
}

/* Of another version it may be shorter or longer. */
static void hello_copy(const struct shm_request *request, struct shm_hello *out)
{
    uint32_t size = request->in.header.size;
    memcpy(out, request->in.bytes + sizeof(struct shm_header),
           size < sizeof(*out) ? size : sizeof(*out));
}

static enum pando_status hello_check(const struct shm_hello *hello)
{
    if (hello->version != SHM_CONTROL_VERSION)
        return PANDO_VERSION;
    return hello->member < FABRIC_MEMBERS_MAX ? PANDO_OK : PANDO_INVALID;
}

/* A member's process is on record before it learns which file to map. */
static enum pando_status let_in(struct shm_connection *connection, const struct shm_hello *hello)
{
    struct shm_server *server = connection->server;
    struct fabric_identity identity = {.member = hello->member, .incarnation = hello->incarnation};
    bool fresh;

    connection->endpoint = hello->endpoint;
    close_if(server, is_former, connection);
    if (hello->member != 0) {
        enum pando_status status =
            shm_attach(server->fabric, identity, &connection->process, &fresh);
        if (status != PANDO_OK)
            return status;
        struct shm_presence *presence = &server->members[hello->member];
        presence->connections++;
        if (fresh)
            presence->lost = false;
    }
    shm_process_let_go(&connection->process); /* the attachment has one */
    connection->identity = identity;
    connection->welcomed = true;
    return PANDO_OK;
}

static void refuse(struct shm_connection *connection, struct shm_request *request,
                   const struct shm_hello *hello, enum pando_status status, bool say)
{
    if (!shm_reply(connection, request, status, 0))
        return;
    if (say)
        log_warn("refused a client", log_status("status", status),
                 log_u64("process", connection->process.who.process),
                 log_u64("member", hello->member), log_u64("incarnation", hello->incarnation));
    shm_connection_close(connection);
}

static void hear_hello(struct shm_connection *connection, struct shm_request *request)
{
    struct shm_fabric *fabric = connection->server->fabric;
    struct shm_hello hello = {0};
    struct shm_welcome welcome = {
        .version = SHM_CONTROL_VERSION,
        .node = fabric->base.node,
        .target = (uint16_t)fabric->base.target,
        .file = fabric->file,
        .window = window_id(&fabric->window),
    };

    hello_copy(request, &hello);
    enum pando_status status = hello_check(&hello);
    if (status != PANDO_OK) {
        refuse(connection, request, &hello, status, true);
        return;
    }
    struct fabric_identity from = {.member = hello.member, .incarnation = hello.incarnation};
    status = fabric_window_admit(&fabric->base, hello.window, from, rt_now_ns());
    if (status != PANDO_OK) { /* which says more, and less often */
        refuse(connection, request, &hello, status, false);
        return;
    }
    status = let_in(connection, &hello);
    if (status != PANDO_OK) {
        refuse(connection, request, &hello, status, true);
        return;
    }
    memcpy(request->out.bytes + sizeof(struct shm_header), &welcome, sizeof(welcome));
    (void)shm_reply(connection, request, PANDO_OK, sizeof(welcome));
}

static bool hello_valid(const struct shm_connection *connection, const struct shm_request *request)
{
    struct shm_hello hello = {0};
    uint32_t size = request->in.header.size;
    if (connection->welcomed || size < SHM_HELLO_START)
        return false;
    hello_copy(request, &hello);
    return hello.magic == SHM_CONTROL_MAGIC &&
           (hello.version != SHM_CONTROL_VERSION || size == sizeof(hello));
}

static bool fence_valid(const struct shm_request *request)
{
    struct shm_fence fence;
    if (request->in.header.size != sizeof(fence))
        return false;
    memcpy(&fence, request->in.bytes + sizeof(struct shm_header), sizeof(fence));
    return fence.member != 0 && fence.member < FABRIC_MEMBERS_MAX;
}

static bool message_valid(const struct shm_connection *connection,
                          const struct shm_request *request, size_t bytes)
{
    const struct shm_header *header = &request->in.header;

    if (bytes < sizeof(*header) || bytes > SHM_MESSAGE_MAX ||
        header->size != bytes - sizeof(*header))
        return false;
    switch (header->type) {
    case SHM_HELLO:
        return hello_valid(connection, request);
    case SHM_CALL:
        return connection->welcomed;
    case SHM_FENCE:
        return connection->welcomed && fence_valid(request);
    case SHM_GOODBYE:
        return connection->welcomed && header->size == 0;
    default:
        return false;
    }
}

/* True when the request is now being served. May close the connection. */
static bool handle_message(struct shm_connection *connection, struct shm_request *request,
                           size_t bytes)
{
    if (!message_valid(connection, request, bytes)) {
        log_warn("dropped a client that sent nonsense",
                 log_u64("process", connection->process.who.process), log_u64("bytes", bytes));
        shm_connection_close(connection);
        return false;
    }
    switch (request->in.header.type) {
    case SHM_HELLO:
        hear_hello(connection, request);
        return false;
    case SHM_GOODBYE:
        connection->goodbye = true;
        shm_connection_close(connection);
        return false;
    default:
        shm_request_start(connection, request);
        return true;
    }
}

/* False: there was nothing, or the connection was closed. */
static bool connection_read_one(struct shm_connection *connection)
{
    struct shm_server *server = connection->server;
    struct shm_request *request = shm_request_take(server);

    if (request == NULL) {
        if (server->request_count > 0) {
            list_push_back(&server->starved, &connection->starved);
            shm_connection_update(connection);
        } else {
            log_warn("dropped a client: no memory to serve it");
            shm_connection_close(connection);
        }
        return false;
    }
    /* Its header is looked at only if that much has come. */
    ssize_t bytes =
        recv(connection->socket.fd, &request->in, sizeof(request->in), MSG_DONTWAIT | MSG_TRUNC);
    bool open = bytes > 0;
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
        shm_connection_close(connection);
    } else if (bytes > 0) {
        connection
            ->requests++; /* keeps it in memory, so that it can be asked whether it is closed */
        if (handle_message(connection, request, (size_t)bytes))
            request = NULL;
        open = !connection->closed;
        if (--connection->requests == 0 && !open)
            free(connection);
    }
    if (request != NULL)
        shm_request_give(server, request);
    return open;
}

void shm_connection_ready(struct rt_fd *fd, uint32_t events)
{
    struct shm_connection *connection = container_of(fd, struct shm_connection, socket);
    struct shm_server *server = connection->server;

    if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (fd->events & EPOLLIN) == 0) {
        shm_connection_close(connection); /* it would be reported for ever */
        return;
    }
    if ((events & EPOLLOUT) != 0) {
        (void)shm_queue_send(connection);
        return;
    }
    for (int i = 0; i < MESSAGES_PER_EVENT && connection_read_one(connection); i++) {
        if ((fd->events & EPOLLIN) == 0)
            break;
    }
    shm_server_feed(server);
}

/* ---- who comes in ---------------------------------------------------------------------------- */

/* Whether a client may be told of in the log that is turned away, of whom there may be any number. */
static bool may_say(struct shm_server *server)
{
    uint64_t now_ns = rt_now_ns();
    if (server->refused_said_ns != 0 && now_ns - server->refused_said_ns < SAY_AGAIN_NS)
        return false;
    server->refused_said_ns = now_ns;
    return true;
}

void shm_connection_open(struct shm_server *server, int fd)
{
    const int buffer_bytes = BUFFER_BYTES;
    struct shm_connection *connection = calloc(1, sizeof(*connection));

    if (connection == NULL)
        goto err_close;
    connection->server = server;
    connection->socket = (struct rt_fd){.fd = fd, .events = EPOLLIN, .ready = shm_connection_ready};
    list_init(&connection->starved);
    list_init(&connection->queue);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    if (!shm_process_at(fd, &connection->process)) {
        if (errno != 0 && may_say(server))
            log_warn("refused a client: no descriptor of its process is to be had, so it could not "
                     "be fenced; others are refused without a line for a minute",
                     log_errno("error", errno));
        goto err_free;
    }
    if (rt_fd_add(rt_loop_self(), &connection->socket) != PANDO_OK)
        goto err_process;
    list_push_back(&server->connections, &connection->link);
    server->connection_count++;
    return;

err_process:
    shm_process_let_go(&connection->process);
err_free:
    free(connection);
err_close:
    close(fd);
}

static void client_comes(struct acceptor *accepting, int fd)
{
    struct shm_server *server = container_of(accepting, struct shm_server, accepting);
    if (server->connection_count < SHM_CONNECTIONS_MAX) {
        shm_connection_open(server, fd);
        return;
    }
    if (may_say(server))
        log_warn("refused a client: too many connections; others are refused without a line for a "
                 "minute",
                 log_u64("limit", SHM_CONNECTIONS_MAX));
    close(fd);
}

/* ---- fences ---------------------------------------------------------------------------------- */

static bool is_shut_out(const struct shm_connection *connection,
                        const struct shm_connection *wanted)
{
    (void)wanted;
    return connection->welcomed &&
           window_fenced(&connection->server->fabric->window, connection->identity);
}

static bool calls_running(const struct shm_server *server, struct fabric_identity identity)
{
    list_for_each (link, &server->running) {
        const struct shm_request *request = container_of(link, struct shm_request, link);
        if (request->in.header.type == SHM_CALL && request->from.member == identity.member &&
            shm_not_later(request->from.incarnation, identity.incarnation))
            return true;
    }
    return false;
}

enum pando_status shm_server_fence_here_co(struct shm_server *server,
                                           struct fabric_identity identity, bool calls_go_on)
{
    window_fence(&server->fabric->window, identity);
    close_if(server, is_shut_out, NULL);
    enum pando_status status = shm_fence_window_co(server->fabric, identity);
    if (status != PANDO_OK || calls_go_on)
        return status;
    /* A call that was under way still takes effect: it has to end first. */
    uint64_t deadline_ns = rt_now_ns() + CALLS_END_NS;
    while (calls_running(server, identity)) {
        if (rt_waitq_wait_co(&server->request_ended, deadline_ns) != PANDO_OK)
            return PANDO_TIMEOUT;
    }
    return PANDO_OK;
}

/* A fence asked for by this process itself, on any of its loops. Lies on the asking task's stack.
 */
struct fence_job {
    struct rt_message message; /* there, and back */
    struct shm_server *server;
    struct fabric_identity identity;
    bool calls_go_on;
    struct rt_loop *home;
    struct rt_task *task;
    enum pando_status status;
    bool done;
};

static void fence_job_back(struct rt_message *message)
{
    struct fence_job *job = container_of(message, struct fence_job, message);
    job->done = true;
    rt_unpark(job->task);
}

static void fence_job_finish(struct fence_job *job, enum pando_status status)
{
    pthread_mutex_t *handoff = &job->server->handoff;

    job->status = status;
    job->message.deliver = fence_job_back;
    /* Once the message is in, the asking task may go on and end, and its loop with it. The mutex
     * keeps it until the loop is no longer touched here. */
    pthread_mutex_lock(handoff);
    rt_loop_post(job->home, &job->message);
    pthread_mutex_unlock(handoff);
}

static void fence_job_run(void *arg)
{
    struct fence_job *job = arg;
    fence_job_finish(job, shm_server_fence_here_co(job->server, job->identity, job->calls_go_on));
}

static void fence_job_arrives(struct rt_message *message)
{
    struct fence_job *job = container_of(message, struct fence_job, message);
    if (rt_spawn(rt_loop_self(), fence_job_run, job) != PANDO_OK)
        fence_job_finish(job, PANDO_NO_MEMORY);
}

enum pando_status shm_server_fence_co(struct shm_server *server, struct fabric_identity identity,
                                      bool calls_go_on)
{
    struct fence_job job = {
        .message.deliver = fence_job_arrives,
        .server = server,
        .identity = identity,
        .calls_go_on = calls_go_on,
        .home = rt_loop_self(),
        .task = rt_task_self(),
    };

    if (rt_loop_self() == rt_thread_loop(server->thread)) /* from a handler */
        return shm_server_fence_here_co(server, identity, calls_go_on);
    rt_loop_post(rt_thread_loop(server->thread), &job.message);
    while (!job.done)
        (void)rt_park_co(RT_NEVER);
    pthread_mutex_lock(&server->handoff);
    pthread_mutex_unlock(&server->handoff);
    return job.status;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static bool is_open(const struct shm_connection *connection, const struct shm_connection *wanted)
{
    (void)wanted;
    return !connection->closed;
}

void shm_connections_end_co(struct shm_server *server)
{
    close_if(server, is_open, NULL);
    while (!list_empty(&server->running))
        (void)rt_waitq_wait_co(&server->request_ended, RT_NEVER);
}

static void server_main(void *arg)
{
    struct shm_server *server = arg;
    struct rt_loop *loop = rt_loop_self();

    server->main = rt_task_self();
    fabric_attend_from(&server->fabric->base, loop);
    if (acceptor_start(&server->accepting, server->listener, NULL, client_comes) != PANDO_OK)
        log_error("cannot serve the window: no memory to listen");
    while (!server->stopping)
        (void)rt_park_co(RT_NEVER);
    acceptor_stop(&server->accepting);
    shm_connections_end_co(server);
    fabric_attend_end_co(&server->fabric->base);
    shm_requests_destroy(server);
}

static void server_stop(struct rt_message *message)
{
    struct shm_server *server = container_of(message, struct shm_server, stop);
    server->stopping = true;
    if (server->main != NULL)
        rt_unpark(server->main);
}

/* A socket that was left there was removed when the window was opened. */
static enum pando_status listen_at(const char *location, int *out)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        goto err;
    shm_socket_address(location, &address);
    /* Only the owner may connect. The file gets the mode of the socket; by its name another file's
     * might be changed. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, SHM_CONNECTIONS_MAX) != 0)
        goto err;
    *out = fd;
    return PANDO_OK;

err:
    log_error("cannot listen beside the window", log_text("window", location),
              log_errno("error", errno));
    enum pando_status status = errno == EACCES || errno == EPERM ? PANDO_DENIED : PANDO_IO;
    if (fd >= 0)
        close(fd);
    return status;
}

struct shm_server *shm_server_create(struct shm_fabric *fabric)
{
    struct shm_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return NULL;
    server->fabric = fabric;
    server->stop.deliver = server_stop;
    rt_waitq_init(&server->request_ended);
    list_init(&server->connections);
    list_init(&server->starved);
    list_init(&server->idle);
    list_init(&server->running);
    pthread_mutex_init(&server->handoff, NULL);
    /* Whoever was attached when the former server died may still be. */
    for (uint16_t member = 0; member < FABRIC_MEMBERS_MAX; member++)
        server->members[member].lost = shm_is_attached(fabric, member);
    return server;
}

void shm_server_destroy(struct shm_server *server)
{
    pthread_mutex_destroy(&server->handoff);
    free(server);
}

enum pando_status shm_server_start(struct shm_fabric *fabric, struct shm_server **out)
{
    struct shm_server *server = shm_server_create(fabric);
    if (server == NULL)
        return PANDO_NO_MEMORY;

    enum pando_status status = listen_at(fabric->base.location, &server->listener);
    if (status != PANDO_OK)
        goto err_free;
    status = rt_thread_start("pando-shm", server_main, server, &server->thread);
    if (status != PANDO_OK)
        goto err_listener;
    *out = server;
    return PANDO_OK;

err_listener:
    close(server->listener);
err_free:
    shm_server_destroy(server);
    return status;
}

void shm_server_stop(struct shm_server *server)
{
    rt_loop_post(rt_thread_loop(server->thread), &server->stop);
    rt_thread_join(server->thread);
    close(server->listener);
    shm_server_destroy(server);
}

uint32_t shm_server_connections(const struct shm_server *server)
{
    return server->connection_count;
}
