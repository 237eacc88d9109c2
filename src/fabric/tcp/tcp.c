/*
 * tcp.c - opening and closing, peers, the window.
 */
#include "fabric/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "fabric/tcp/tcp_int.h"

static const uint64_t TIMEOUT_NS = 5 * RT_NS_PER_S;

static enum pando_status open_window(struct tcp_fabric *fabric,
                                     const struct fabric_tcp_options *options, char *error,
                                     size_t error_bytes)
{
    enum pando_status status;
    fabric->window.fd = -1;
    if (options->listen == NULL || options->host_bytes == 0)
        return PANDO_OK;
    if (options->window_path != NULL)
        return window_map_file(&fabric->window, options->window_path, WINDOW_CREATE, options->node,
                               options->host_bytes, options->device_bytes, error, error_bytes);
    status = window_map_private(&fabric->window, options->node, options->host_bytes,
                                options->device_bytes);
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot map %llu bytes of memory",
                 (unsigned long long)options->host_bytes);
    return status;
}

static enum pando_status open_tls(struct tcp_fabric *fabric,
                                  const struct fabric_tcp_options *options, char *error,
                                  size_t error_bytes)
{
    const struct fabric_tls *tls = &options->tls;
    if (!tls->enabled)
        return PANDO_OK;
    if (options->listen != NULL) {
        fabric->server_tls = tls_context_create(TLS_SERVER, tls->cert_file, tls->key_file,
                                                tls->ca_file, error, error_bytes);
        if (fabric->server_tls == NULL)
            return PANDO_INVALID;
    }
    if (tls->ca_file != NULL) {
        fabric->client_tls = tls_context_create(TLS_CLIENT, tls->cert_file, tls->key_file,
                                                tls->ca_file, error, error_bytes);
        if (fabric->client_tls == NULL)
            return PANDO_INVALID;
    } else if (options->listen == NULL) {
        snprintf(error, error_bytes, "TLS needs --tls-ca to know which servers to trust");
        return PANDO_INVALID;
    }
    return PANDO_OK;
}

/* Others are told the listening address, unless it is "any" or they are told something else. */
static void set_location(struct tcp_fabric *fabric, const struct fabric_tcp_options *options)
{
    char name[FABRIC_LOCATION_MAX];
    struct host_port told, bound;

    socket_name(fabric->server->listener.fd, name, sizeof(name));
    if (options->advertise == NULL || parse_host_port(options->advertise, &told) != PANDO_OK) {
        snprintf(fabric->base.location, sizeof(fabric->base.location), "%s", name);
        return;
    }
    if (told.port == 0 && parse_host_port(name, &bound) == PANDO_OK)
        snprintf(fabric->base.location, sizeof(fabric->base.location),
                 strchr(told.host, ':') != NULL ? "[%.80s]:%u" : "%.80s:%u", told.host, bound.port);
    else
        snprintf(fabric->base.location, sizeof(fabric->base.location), "%s", options->advertise);
}

static void tcp_close(struct fabric *base)
{
    struct tcp_fabric *fabric = tcp_fabric_of(base);
    struct list *link;

    if (fabric->server != NULL)
        server_destroy(fabric->server);
    while ((link = list_pop_front(&fabric->peers)) != NULL)
        free(container_of(link, struct peer, link));
    window_unmap(&fabric->window);
    tls_context_destroy(fabric->server_tls);
    tls_context_destroy(fabric->client_tls);
    secret_forget(&fabric->secret);
    pthread_mutex_destroy(&fabric->mutex);
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
    list_init(&fabric->peers);
    pthread_mutex_init(&fabric->mutex, NULL);

    enum pando_status status =
        secret_load(&fabric->secret, options->secret_file, error, error_bytes);
    if (status == PANDO_OK)
        status = open_tls(fabric, options, error, error_bytes);
    /* The port before the window: a port in use leaves no new file behind. */
    if (status == PANDO_OK && options->listen != NULL)
        status = server_create(fabric, options->listen, options->threads, error, error_bytes);
    if (status == PANDO_OK)
        status = open_window(fabric, options, error, error_bytes);
    if (status != PANDO_OK) {
        tcp_close(&fabric->base);
        return status;
    }
    if (fabric->server != NULL)
        set_location(fabric, options);
    if (fabric->window.base != NULL)
        fabric->base.window = &fabric->window;
    fabric->base.window_bytes = fabric->window.host_bytes;
    fabric->base.device_bytes = fabric->window.device_bytes;
    *out = &fabric->base;
    return PANDO_OK;
}

enum pando_status fabric_tcp_start(struct fabric *fabric)
{
    struct server *server = tcp_fabric_of(fabric)->server;
    return server == NULL ? PANDO_OK : server_start(server);
}

bool fabric_tcp_reused(const struct fabric *fabric)
{
    return container_of(fabric, const struct tcp_fabric, base)->window.reused;
}

void fabric_tcp_served(const struct fabric *fabric, struct fabric_served *out)
{
    struct server *server = container_of(fabric, const struct tcp_fabric, base)->server;
    *out = (struct fabric_served){0};
    if (server == NULL)
        return;
    out->connections = atomic_load(&server->connections);
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *thread = &server->threads[i];
        out->lists += atomic_load_explicit(&thread->lists, memory_order_relaxed);
        out->operations += atomic_load_explicit(&thread->operations, memory_order_relaxed);
    }
}

static enum pando_status tcp_add_peer(struct fabric *base, uint16_t node, enum fabric_target target,
                                      const char *location)
{
    struct tcp_fabric *fabric = tcp_fabric_of(base);
    struct host_port parts;
    struct peer *peer = NULL;
    enum pando_status status = PANDO_OK;

    if (parse_host_port(location, &parts) != PANDO_OK)
        return PANDO_INVALID;
    pthread_mutex_lock(&fabric->mutex);
    list_for_each (link, &fabric->peers) {
        struct peer *known = container_of(link, struct peer, link);
        if (known->node == node)
            peer = known;
    }
    if (peer == NULL && (peer = calloc(1, sizeof(*peer))) != NULL)
        list_push_back(&fabric->peers, &peer->link);
    if (peer == NULL) {
        status = PANDO_NO_MEMORY;
    } else {
        peer->node = node;
        peer->target = target;
        snprintf(peer->location, sizeof(peer->location), "%s", location);
    }
    pthread_mutex_unlock(&fabric->mutex);
    return status;
}

static enum pando_status tcp_self_read(struct fabric *fabric, uint64_t offset, void *to,
                                       size_t size)
{
    return window_read(&tcp_fabric_of(fabric)->window, offset, to, size);
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
