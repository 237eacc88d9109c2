/*
 * tcp.c - opening and closing, peers, the window.
 */
#include "fabric/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/tcp/tcp_int.h"

static const uint64_t TIMEOUT_NS = 5 * RT_NS_PER_S;

const struct handshake_protocol tcp_protocol = {
    .magic = WIRE_MAGIC,
    .version = WIRE_VERSION,
    .client_label = "pando tcp 1 client",
    .server_label = "pando tcp 1 server",
};

static enum pando_status open_server(struct tcp_fabric *fabric,
                                     const struct fabric_tcp_options *options, char *error,
                                     size_t error_bytes)
{
    struct session_server_options server = {
        .ops = &tcp_session_ops,
        .protocol = &tcp_protocol,
        .fabric = &fabric->base,
        .window = &fabric->window,
        .secret = &fabric->secret,
        .tls = fabric->server_tls,
        .timeout_ns = fabric->timeout_ns,
        .listen = options->listen,
        .threads = options->threads,
    };
    return session_server_create(&server, &fabric->server, error, error_bytes);
}

static void tcp_close(struct fabric *base)
{
    struct tcp_fabric *fabric = tcp_fabric_of(base);

    if (fabric->server != NULL)
        session_server_destroy(fabric->server);
    session_peers_fini(&fabric->peers);
    window_unmap(&fabric->window);
    tls_context_destroy(fabric->server_tls);
    tls_context_destroy(fabric->client_tls);
    secret_forget(&fabric->secret);
    free(fabric);
}

enum pando_status fabric_tcp_open(const struct fabric_tcp_options *options, struct fabric **out,
                                  char *error, size_t error_bytes)
{
    if (options->secret_file == NULL) {
        snprintf(error, error_bytes,
                 "tcp needs --secret-file; make one with: "
                 "(umask 077; head -c 32 /dev/urandom | base64 > pando.secret)");
        return PANDO_INVALID;
    }
    struct tcp_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return PANDO_NO_MEMORY;
    fabric->base.ops = &tcp_fabric_ops;
    fabric->base.node = options->node;
    fabric->base.target = options->target;
    fabric->timeout_ns = options->timeout_ns == 0 ? TIMEOUT_NS : options->timeout_ns;
    fabric->window.fd = -1;
    session_peers_init(&fabric->peers);

    enum pando_status status =
        secret_load(&fabric->secret, options->secret_file, error, error_bytes);
    if (status == PANDO_OK)
        status = tls_contexts_create(&options->tls, options->listen != NULL, &fabric->server_tls,
                                     &fabric->client_tls, error, error_bytes);
    /* The port before the window: a port in use leaves no new file behind. */
    if (status == PANDO_OK && options->listen != NULL)
        status = open_server(fabric, options, error, error_bytes);
    if (status == PANDO_OK && options->listen != NULL && options->host_bytes > 0)
        status = window_map_served(&fabric->window, options->window_path, options->node,
                                   options->host_bytes, options->device_bytes, error, error_bytes);
    if (status != PANDO_OK) {
        tcp_close(&fabric->base);
        return status;
    }
    if (fabric->server != NULL)
        session_server_location(fabric->server, options->advertise, fabric->base.location);
    if (fabric->window.base != NULL)
        fabric->base.window = &fabric->window;
    fabric->base.window_bytes = fabric->window.host_bytes;
    fabric->base.device_bytes = fabric->window.device_bytes;
    *out = &fabric->base;
    return PANDO_OK;
}

enum pando_status fabric_tcp_start(struct fabric *fabric)
{
    struct session_server *server = tcp_fabric_of(fabric)->server;
    return server == NULL ? PANDO_OK : session_server_start(server);
}

bool fabric_tcp_reused(const struct fabric *fabric)
{
    return container_of(fabric, const struct tcp_fabric, base)->window.reused;
}

void fabric_tcp_served(const struct fabric *fabric, struct fabric_served *out)
{
    struct session_server *server = container_of(fabric, const struct tcp_fabric, base)->server;
    *out = (struct fabric_served){0};
    if (server == NULL)
        return;
    out->connections = atomic_load(&server->sockets);
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct tcp_thread *thread = server->threads[i].own;
        out->lists += atomic_load_explicit(&thread->lists, memory_order_relaxed);
        out->operations += atomic_load_explicit(&thread->operations, memory_order_relaxed);
    }
}

static enum pando_status tcp_add_peer(struct fabric *base, uint16_t node, enum fabric_target target,
                                      const char *location)
{
    (void)target; /* it says so itself */
    return session_peers_add(&tcp_fabric_of(base)->peers, node, location);
}

static enum pando_status tcp_self_read(struct fabric *fabric, uint64_t offset, void *to,
                                       size_t size)
{
    return window_read_now(&tcp_fabric_of(fabric)->window, offset, to, size);
}

static enum pando_status tcp_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                        size_t size)
{
    return window_write(&tcp_fabric_of(fabric)->window, offset, from, size);
}

const struct fabric_ops tcp_fabric_ops = {
    .add_peer = tcp_add_peer,
    .connect_co = tcp_connect_co,
    .disconnect_co = tcp_disconnect_co,
    .reconnect_co = tcp_reconnect_co,
    .post = tcp_post,
    .call_co = tcp_call_co,
    .fence_co = tcp_fence_co,
    .self_read = tcp_self_read,
    .self_write = tcp_self_write,
    .close = tcp_close,
};
