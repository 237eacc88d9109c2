#include "fabric/session/socket_fabric.h"

#include <stdio.h>
#include <stdlib.h>

static const uint64_t TIMEOUT_NS = 5 * RT_NS_PER_S;

enum pando_status socket_fabric_init(struct socket_fabric *fabric, const struct fabric_ops *ops,
                                     const struct handshake_protocol *protocol, const char *name,
                                     const struct fabric_socket_options *options, char *error,
                                     size_t error_bytes)
{
    fabric_init(&fabric->base, ops, options->node, options->target);
    fabric->protocol = protocol;
    fabric->timeout_ns = options->timeout_ns == 0 ? TIMEOUT_NS : options->timeout_ns;
    fabric->window.fd = -1;
    client_peers_init(&fabric->peers);
    if (options->secret_file == NULL) {
        snprintf(error, error_bytes,
                 "%s needs --secret-file; make one with: "
                 "(umask 077; head -c 32 /dev/urandom | base64 > pando.secret)",
                 name);
        return PANDO_INVALID;
    }
    enum pando_status status =
        credentials_open(options->secret_file, &options->tls, options->listen != NULL,
                         &fabric->credentials, error, error_bytes);
    fabric->base.credentials = fabric->credentials;
    return status;
}

static enum pando_status open_server(struct socket_fabric *fabric, const struct connection_ops *ops,
                                     const struct fabric_socket_options *options, char *error,
                                     size_t error_bytes)
{
    struct connection_server_options server = {
        .ops = ops,
        .protocol = fabric->protocol,
        .fabric = &fabric->base,
        .window = &fabric->window,
        .credentials = fabric->credentials,
        .timeout_ns = fabric->timeout_ns,
        .listen = options->listen,
        .threads = options->threads,
    };
    return connection_server_create(&server, &fabric->server, error, error_bytes);
}

enum pando_status socket_fabric_listen(struct socket_fabric *fabric,
                                       const struct connection_ops *ops,
                                       const struct fabric_socket_options *options, char *error,
                                       size_t error_bytes)
{
    struct fabric *base = &fabric->base;
    enum window_open how = options->window_dax        ? WINDOW_CREATE_DAX
                           : options->window_reserved ? WINDOW_CREATE_RESERVED
                                                      : WINDOW_CREATE;
    if (options->listen == NULL)
        return PANDO_OK;
    enum pando_status status = open_server(fabric, ops, options, error, error_bytes);
    if (status == PANDO_OK && options->host_bytes > 0)
        status = window_map_served(&fabric->window, options->window_path, how, options->node,
                                   options->host_bytes, options->device_bytes, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    connection_server_location(fabric->server, options->advertise, base->location);
    if (fabric->window.base != NULL)
        base->window = &fabric->window;
    base->window_bytes = fabric->window.host_bytes;
    base->device_bytes = fabric->window.device_bytes;
    return PANDO_OK;
}

void socket_fabric_stop(struct socket_fabric *fabric)
{
    if (fabric->server != NULL)
        connection_server_destroy(fabric->server);
    fabric->server = NULL;
}

void socket_fabric_fini(struct socket_fabric *fabric)
{
    socket_fabric_stop(fabric);
    client_peers_fini(&fabric->peers);
    window_unmap(&fabric->window);
    credentials_close(fabric->credentials);
    free(fabric->base.kept);
}

enum pando_status socket_fabric_start(struct fabric *fabric)
{
    struct connection_server *server = socket_fabric_of(fabric)->server;
    return server == NULL ? PANDO_OK : connection_server_start(server);
}

bool socket_fabric_reused(const struct fabric *fabric)
{
    return container_of(fabric, const struct socket_fabric, base)->window.reused;
}

enum pando_status socket_fabric_add_peer(struct fabric *fabric, uint16_t node,
                                         enum fabric_target target, const char *location)
{
    return client_peers_add(&socket_fabric_of(fabric)->peers, node, target, location);
}

/* The id first: who connects from now on is told the new one. */
enum pando_status socket_fabric_renew_co(struct fabric *base)
{
    struct socket_fabric *fabric = socket_fabric_of(base);
    struct connection_filter filter = {.all = true};
    window_renew(&fabric->window);
    return fabric->server == NULL ? PANDO_OK : connection_drop_co(fabric->server, &filter);
}

enum pando_status socket_fabric_fence_own_co(struct fabric *base, struct fabric_identity dead)
{
    struct socket_fabric *fabric = socket_fabric_of(base);
    return connection_own_fence_co(fabric->server, &fabric->window, dead);
}

enum pando_status socket_fabric_reload(struct fabric *fabric, char *text, size_t text_bytes)
{
    return credentials_reload(socket_fabric_of(fabric)->credentials, text, text_bytes);
}

void socket_fabric_trouble(struct fabric *fabric, uint16_t node, char *out, size_t size)
{
    client_peers_trouble(&socket_fabric_of(fabric)->peers, node, out, size);
}

enum pando_status socket_fabric_self_fence_co(struct fabric_endpoint *endpoint,
                                              const struct fabric_ticket *ticket)
{
    struct socket_fabric *fabric = socket_fabric_of(endpoint->fabric);
    return connection_self_fence_co(&fabric->base, fabric->server, &fabric->window, ticket);
}
