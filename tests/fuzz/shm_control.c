/*
 * Arbitrary packets on the control socket beside a window, from a few connections that come and go, some of
 * which do not read what they are answered. The server's own code hears them, without its thread: what it
 * does depends on the input alone. Whatever comes, it neither fails nor waits, and afterwards nothing of the
 * connections is left.
 *
 * The input is a sequence of messages: a byte for what is done on which connection, a byte for how a sound
 * message is made first, then lengths and bytes to put over it.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/shm/server_int.h"
#include "fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 4, MESSAGES_MAX = 48, METHOD_ECHO = 1, METHOD_LARGE, METHOD_WAIT };

static struct shm_fabric *fabric;
static struct shm_server *server;
static struct rt_loop *loop;
static struct input input;
static uint8_t fresh[WINDOW_FIRST]; /* the fabric's part of a new window */

/* Both ends; the server's is known by its address, and gone when it is not in the server's list any more. */
static struct client {
    int fd;
    struct shm_connection *connection;
    uint64_t sent;
} clients[CLIENTS];

static enum pando_status serve(void *context, struct fabric_request *request)
{
    (void)context;
    request->reply_size = (uint32_t)request->body.size;
    if (request->method == METHOD_LARGE)
        request->reply_size = FABRIC_CALL_BYTES_MAX;
    if (request->method == METHOD_WAIT)
        rt_yield_co();
    memset(request->reply, 0, request->reply_size);
    return request->method <= METHOD_WAIT ? PANDO_OK : PANDO_UNSUPPORTED;
}

static bool there(const struct client *client)
{
    list_for_each (link, &server->connections) {
        if (container_of(link, struct shm_connection, link) == client->connection)
            return true;
    }
    return false;
}

static void client_open(struct client *client)
{
    int fds[2];
    pando_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    client->fd = fds[0];
    shm_connection_open(server, fds[1]);
    client->connection = container_of(server->connections.prev, struct shm_connection, link);
}

static void client_close(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    if (there(client))
        shm_connection_ready(&client->connection->socket,
                             EPOLLHUP | client->connection->socket.events);
    client->connection = NULL;
}

/* Takes what has come: replies to messages of this connection, and nothing else. */
static void client_read(struct client *client)
{
    static union {
        struct shm_header header;
        uint8_t bytes[SHM_MESSAGE_MAX + 1];
    } reply;
    for (;;) {
        ssize_t bytes = recv(client->fd, &reply, sizeof(reply), MSG_DONTWAIT);
        if (bytes <= 0)
            return;
        pando_assert((size_t)bytes >= sizeof(reply.header) && bytes <= SHM_MESSAGE_MAX);
        pando_assert(reply.header.type == SHM_REPLY &&
                     reply.header.size == (size_t)bytes - sizeof(reply.header));
        pando_assert(reply.header.code < PANDO_STATUS_COUNT);
        pando_assert(client->sent > 0);
        client->sent--;
    }
}

/* As epoll would tell it. */
static void server_hears(struct client *client)
{
    for (int i = 0; i < 4 && there(client); i++) {
        uint32_t events = client->connection->socket.events;
        if (events != 0)
            shm_connection_ready(&client->connection->socket, events);
        rt_yield_co();
        rt_yield_co();
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static union {
    struct {
        struct shm_header header;
        union {
            struct shm_hello hello;
            struct shm_fence fence;
        };
    };
    uint8_t bytes[SHM_MESSAGE_MAX + 64];
} message;

/* A sound one; the size of its body. */
static size_t message_make(uint8_t choice)
{
    static const uint16_t types[] = {SHM_HELLO, SHM_CALL, SHM_CALL, SHM_FENCE, SHM_GOODBYE};
    message.header = (struct shm_header){.type = types[choice % 5], .tag = input_byte(&input)};
    switch (message.header.type) {
    case SHM_HELLO:
        message.hello = (struct shm_hello){.magic = SHM_CONTROL_MAGIC,
                                           .version = SHM_CONTROL_VERSION,
                                           .member = choice / 8 % 4,
                                           .incarnation = choice / 32 % 4,
                                           .endpoint = input_byte(&input) % 4,
                                           .window = choice & 0x80 ? choice : 0};
        return sizeof(struct shm_hello);
    case SHM_FENCE:
        message.fence = (struct shm_fence){.member = choice / 8 % 4, .incarnation = choice / 32};
        return sizeof(struct shm_fence);
    case SHM_CALL:
        message.header.code = choice / 8 % 5;
        return choice & 0x80 ? FABRIC_CALL_BYTES_MAX : input_byte(&input);
    default:
        return 0;
    }
}

static void client_send(struct client *client)
{
    uint8_t choice = input_byte(&input), damages = input_byte(&input);
    size_t body = message_make(choice), size = sizeof(struct shm_header) + body;
    message.header.size = (uint32_t)body;
    for (unsigned i = 0; i < damages % 4; i++) {
        uint8_t at = input_byte(&input) % 48;
        message.bytes[at] = input_byte(&input);
    }
    if (damages & 0x80)
        size = input_word(&input, 3) % (sizeof(message.bytes) + 1);
    if (size > 0 && send(client->fd, &message, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size)
        client->sent++;
}

static void steps(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < MESSAGES_MAX && input.size > 0; i++) {
        uint8_t choice = input_byte(&input);
        struct client *client = &clients[choice % CLIENTS];
        if (client->fd < 0)
            client_open(client);
        if ((choice & 0x70) != 0)
            client_send(client);
        else
            client_close(client);
        if (choice & 0x0c)
            server_hears(client);
        if (client->fd >= 0 && (choice & 0x80) == 0)
            client_read(client);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        client_close(&clients[i]);
    shm_connections_end_co(server);
    pando_assert(server->connection_count == 0 && server->queued_bytes == 0);
    pando_assert(list_empty(&server->connections) && list_empty(&server->starved));
    for (unsigned i = 0; i < FABRIC_MEMBERS_MAX; i++)
        pando_assert(server->members[i].connections == 0);
}

/* Without a socket and without a thread. */
static void build(void)
{
    static const struct fabric_shm_options options = {
        .target = FABRIC_MEMORY, .host_bytes = 1 << 20, .device_bytes = 4096};
    struct fabric *base;
    char error[256];
    log_set_level(LOG_LEVEL_ERROR);
    pando_assert(fabric_shm_open(&options, &base, error, sizeof(error)) == PANDO_OK);
    fabric_serve(base, serve, NULL);
    fabric = shm_fabric_of(base);
    memcpy(fresh, fabric->window.base, WINDOW_FIRST);
    loop = rt_loop_create();
    pando_assert(loop != NULL);
}

static void server_build(void)
{
    server = shm_server_create(fabric);
    pando_assert(server != NULL);
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){.fd = -1};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fabric == NULL)
        build();
    for (uint16_t member = 0; member < FABRIC_MEMBERS_MAX; member++)
        shm_detach(fabric, member);
    memcpy(fabric->window.base, fresh, WINDOW_FIRST);
    server_build();
    input = (struct input){data, size};
    pando_assert(rt_loop_call(loop, steps, NULL) == PANDO_OK);
    shm_requests_destroy(server);
    shm_server_destroy(server);
    return 0;
}
