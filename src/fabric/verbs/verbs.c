/*
 * verbs.c - opening and closing, peers, the window.
 */
#include "fabric/verbs/verbs.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "fabric/verbs/verbs_int.h"

static const uint64_t TIMEOUT_NS = 5 * RT_NS_PER_S;

static enum pando_status open_server(struct verbs_fabric *fabric,
                                     const struct fabric_verbs_options *options, char *error,
                                     size_t error_bytes)
{
    struct session_server_options server = {
        .ops = &verbs_session_ops,
        .protocol = &verbs_protocol,
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

static enum pando_status open_device(struct verbs_fabric *fabric,
                                     const struct fabric_verbs_options *options, char *error,
                                     size_t error_bytes)
{
    struct device_choice choice;
    enum pando_status status = device_choice_parse(options->device, &choice, error, error_bytes);
    if (status == PANDO_OK)
        status = device_open(&fabric->device, &choice, error, error_bytes);
    return status;
}

static enum pando_status open_window(struct verbs_fabric *fabric,
                                     const struct fabric_verbs_options *options, char *error,
                                     size_t error_bytes)
{
    enum pando_status status =
        window_map_served(&fabric->window, options->window_path, options->node, options->host_bytes,
                          options->device_bytes, error, error_bytes);
    if (status == PANDO_OK)
        status = device_window_open(&fabric->shared, &fabric->device, &fabric->window, error,
                                    error_bytes);
    return status;
}

static void verbs_close(struct fabric *base)
{
    struct verbs_fabric *fabric = verbs_fabric_of(base);
    if (fabric->server != NULL)
        session_server_destroy(fabric->server);
    session_peers_fini(&fabric->peers);
    device_window_close(&fabric->shared);
    device_close(&fabric->device);
    window_unmap(&fabric->window);
    tls_context_destroy(fabric->server_tls);
    tls_context_destroy(fabric->client_tls);
    secret_forget(&fabric->secret);
    pthread_mutex_destroy(&fabric->mutex);
    free(fabric);
}

static void publish(struct verbs_fabric *fabric, const struct fabric_verbs_options *options)
{
    struct fabric *base = &fabric->base;
    if (fabric->server != NULL)
        session_server_location(fabric->server, options->advertise, base->location);
    if (fabric->window.base != NULL)
        base->window = &fabric->window;
    base->window_bytes = fabric->window.host_bytes;
    base->device_bytes = fabric->window.device_bytes;
    /* The card forgets when the process that had its memory ends. */
    base->device_lost = fabric->window.reused && fabric->shared.chip_memory != NULL;
    log_info("RDMA device", log_text("device", fabric->device.text),
             log_text("lock_table", fabric->shared.chip_memory != NULL ? "on chip" : "host"));
}

enum pando_status fabric_verbs_open(const struct fabric_verbs_options *options, struct fabric **out,
                                    char *error, size_t error_bytes)
{
    if (options->secret_file == NULL) {
        snprintf(error, error_bytes,
                 "verbs needs --secret-file; make one with: "
                 "(umask 077; head -c 32 /dev/urandom | base64 > pando.secret)");
        return PANDO_INVALID;
    }
    struct verbs_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return PANDO_NO_MEMORY;
    fabric->base.ops = &verbs_fabric_ops;
    fabric->base.node = options->node;
    fabric->base.target = options->target;
    fabric->timeout_ns = options->timeout_ns == 0 ? TIMEOUT_NS : options->timeout_ns;
    fabric->always_fence = options->always_fence;
    fabric->window.fd = -1;
    list_init(&fabric->lanes);
    pthread_mutex_init(&fabric->mutex, NULL);
    session_peers_init(&fabric->peers);

    enum pando_status status =
        secret_load(&fabric->secret, options->secret_file, error, error_bytes);
    if (status == PANDO_OK)
        status = open_device(fabric, options, error, error_bytes);
    if (status == PANDO_OK)
        status = tls_contexts_create(&options->tls, options->listen != NULL, &fabric->server_tls,
                                     &fabric->client_tls, error, error_bytes);
    /* The port before the window: a port in use leaves no new file behind. */
    if (status == PANDO_OK && options->listen != NULL)
        status = open_server(fabric, options, error, error_bytes);
    if (status == PANDO_OK && options->listen != NULL && options->host_bytes > 0)
        status = open_window(fabric, options, error, error_bytes);
    if (status != PANDO_OK) {
        verbs_close(&fabric->base);
        return status;
    }
    publish(fabric, options);
    *out = &fabric->base;
    return PANDO_OK;
}

enum pando_status fabric_verbs_start(struct fabric *fabric)
{
    struct session_server *server = verbs_fabric_of(fabric)->server;
    return server == NULL ? PANDO_OK : session_server_start(server);
}

bool fabric_verbs_reused(const struct fabric *fabric)
{
    return container_of(fabric, const struct verbs_fabric, base)->window.reused;
}

const char *fabric_verbs_device(const struct fabric *fabric)
{
    return container_of(fabric, const struct verbs_fabric, base)->device.text;
}

bool fabric_verbs_on_chip(const struct fabric *fabric)
{
    return container_of(fabric, const struct verbs_fabric, base)->shared.chip_memory != NULL;
}

static enum pando_status verbs_add_peer(struct fabric *base, uint16_t node,
                                        enum fabric_target target, const char *location)
{
    (void)target; /* it says so itself */
    return session_peers_add(&verbs_fabric_of(base)->peers, node, location);
}

static enum pando_status verbs_self_read(struct fabric *fabric, uint64_t offset, void *to,
                                         size_t size)
{
    return device_window_read(&verbs_fabric_of(fabric)->shared, offset, to, size);
}

static enum pando_status verbs_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                          size_t size)
{
    return device_window_write(&verbs_fabric_of(fabric)->shared, offset, from, size);
}

const struct fabric_ops verbs_fabric_ops = {
    .add_peer = verbs_add_peer,
    .connect_co = verbs_connect_co,
    .disconnect_co = verbs_disconnect_co,
    .reconnect_co = verbs_reconnect_co,
    .post = verbs_post,
    .call_co = verbs_call_co,
    .fence_co = verbs_fence_co,
    .self_read = verbs_self_read,
    .self_write = verbs_self_write,
    .close = verbs_close,
};
