/*
 * verbs.c - opening and closing, peers, the window.
 */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>

#include "base/log.h"
#include "fabric/verbs/verbs_int.h"

static enum pando_status open_device(struct verbs_fabric *fabric,
                                     const struct fabric_socket_options *options, char *error,
                                     size_t error_bytes)
{
    struct device_choice choice;
    enum pando_status status = device_choice_parse(options->device, &choice, error, error_bytes);
    if (status == PANDO_OK)
        status = device_open(&fabric->device, &choice, error, error_bytes);
    return status;
}

static void verbs_close(struct fabric *base)
{
    struct verbs_fabric *fabric = verbs_fabric_of(base);
    socket_fabric_stop(&fabric->sockets);
    device_window_close(&fabric->shared);
    device_close(&fabric->device);
    socket_fabric_fini(&fabric->sockets);
    pthread_mutex_destroy(&fabric->mutex);
    free(fabric);
}

static enum pando_status open_parts(struct verbs_fabric *fabric,
                                    const struct fabric_socket_options *options, char *error,
                                    size_t error_bytes)
{
    enum pando_status status = socket_fabric_init(
        &fabric->sockets, &verbs_fabric_ops, &verbs_protocol, "verbs", options, error, error_bytes);
    if (status == PANDO_OK)
        status = open_device(fabric, options, error, error_bytes);
    if (status == PANDO_OK)
        status = socket_fabric_listen(&fabric->sockets, &verbs_connection_ops, options, error,
                                      error_bytes);
    if (status == PANDO_OK && fabric->sockets.window.base != NULL)
        status = device_window_open(&fabric->shared, &fabric->device, &fabric->sockets.window,
                                    error, error_bytes);
    return status;
}

enum pando_status fabric_verbs_open(const struct fabric_socket_options *options,
                                    struct fabric **out, char *error, size_t error_bytes)
{
    struct verbs_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return PANDO_NO_MEMORY;
    struct socket_fabric *sockets = &fabric->sockets;
    fabric->always_fence = options->always_fence;
    list_init(&fabric->lanes);
    pthread_mutex_init(&fabric->mutex, NULL);
    enum pando_status status = open_parts(fabric, options, error, error_bytes);
    if (status != PANDO_OK) {
        verbs_close(&sockets->base);
        return status;
    }
    /* The card forgets when the process that had its memory ends. */
    sockets->base.device_lost = sockets->window.reused && fabric->shared.chip_memory != NULL;
    log_info("RDMA device", log_text("device", fabric->device.text),
             log_text("lock_table", fabric->shared.chip_memory != NULL ? "on chip" : "host"));
    *out = &sockets->base;
    return PANDO_OK;
}

enum pando_status fabric_verbs_start(struct fabric *fabric)
{
    return socket_fabric_start(fabric);
}

bool fabric_verbs_reused(const struct fabric *fabric)
{
    return socket_fabric_reused(fabric);
}

const char *fabric_verbs_device(const struct fabric *fabric)
{
    return container_of(fabric, const struct verbs_fabric, sockets.base)->device.text;
}

uint64_t fabric_verbs_pairs_made(const struct fabric *fabric)
{
    const struct device *device =
        &container_of(fabric, const struct verbs_fabric, sockets.base)->device;
    return atomic_load_explicit(&device->pairs_made, memory_order_relaxed);
}

bool fabric_verbs_on_chip(const struct fabric *fabric)
{
    return container_of(fabric, const struct verbs_fabric, sockets.base)->shared.chip_memory !=
           NULL;
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
    .add_peer = socket_fabric_add_peer,
    .connect_co = verbs_connect_co,
    .disconnect_co = verbs_disconnect_co,
    .reconnect_co = client_endpoint_reconnect_co,
    .post = verbs_post,
    .call_co = client_endpoint_call_co,
    .fence_co = client_endpoint_fence_co,
    .self_read = verbs_self_read,
    .self_write = verbs_self_write,
    .renew_co = socket_fabric_renew_co,
    .fence_own_co = socket_fabric_fence_own_co,
    .close = verbs_close,
    .reload = socket_fabric_reload,
    .trouble = socket_fabric_trouble,
};
