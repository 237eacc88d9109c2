/*
 * tcp.c - opening and closing, peers, the window.
 */
#include "fabric/tcp/tcp.h"

#include <stdlib.h>

#include "fabric/tcp/tcp_int.h"

const struct handshake_protocol tcp_protocol = {
    .magic = WIRE_MAGIC,
    .version = WIRE_VERSION,
    .client_label = "pando tcp 1 client",
    .server_label = "pando tcp 1 server",
};

static void tcp_close(struct fabric *base)
{
    struct socket_fabric *fabric = socket_fabric_of(base);
    socket_fabric_fini(fabric);
    free(fabric);
}

enum pando_status fabric_tcp_open(const struct fabric_socket_options *options, struct fabric **out,
                                  char *error, size_t error_bytes)
{
    struct socket_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = socket_fabric_init(fabric, &tcp_fabric_ops, &tcp_protocol, "tcp",
                                                  options, error, error_bytes);
    if (status == PANDO_OK)
        status = socket_fabric_listen(fabric, &tcp_connection_ops, options, error, error_bytes);
    if (status != PANDO_OK) {
        tcp_close(&fabric->base);
        return status;
    }
    *out = &fabric->base;
    return PANDO_OK;
}

enum pando_status fabric_tcp_start(struct fabric *fabric)
{
    return socket_fabric_start(fabric);
}

bool fabric_tcp_reused(const struct fabric *fabric)
{
    return socket_fabric_reused(fabric);
}

void fabric_tcp_served(const struct fabric *fabric, struct fabric_served *out)
{
    struct connection_server *server =
        container_of(fabric, const struct socket_fabric, base)->server;
    *out = (struct fabric_served){0};
    if (server == NULL)
        return;
    out->connections = atomic_load(&server->sockets);
    out->evicted = strangers_evicted(server->strangers);
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct tcp_thread *thread = server->threads[i].own;
        out->lists += atomic_load_explicit(&thread->lists, memory_order_relaxed);
        out->operations += atomic_load_explicit(&thread->operations, memory_order_relaxed);
    }
}

static enum pando_status tcp_self_read(struct fabric *fabric, uint64_t offset, void *to,
                                       size_t size)
{
    return window_read_now(&socket_fabric_of(fabric)->window, offset, to, size);
}

static enum pando_status tcp_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                        size_t size)
{
    return window_write(&socket_fabric_of(fabric)->window, offset, from, size);
}

const struct fabric_ops tcp_fabric_ops = {
    .add_peer = socket_fabric_add_peer,
    .connect_co = tcp_connect_co,
    .disconnect_co = tcp_disconnect_co,
    .reconnect_co = client_endpoint_reconnect_co,
    .post = tcp_post,
    .call_co = client_endpoint_call_co,
    .fence_co = client_endpoint_fence_co,
    .self_read = tcp_self_read,
    .self_write = tcp_self_write,
    .renew_co = socket_fabric_renew_co,
    .fence_own_co = socket_fabric_fence_own_co,
    .close = tcp_close,
    .reload = socket_fabric_reload,
    .trouble = socket_fabric_trouble,
};
