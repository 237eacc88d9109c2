/*
 * endpoint.c - endpoints to peers and to the process itself.
 *
 * An endpoint to a peer is a mapping of its window, shared by the process's endpoints, and a
 * session with its server. One to itself has the window and nothing else, and never breaks.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/shm/fence_int.h"

static struct shm_endpoint *endpoint_create(struct shm_fabric *fabric, uint16_t node)
{
    struct shm_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return NULL;
    endpoint->base = (struct fabric_endpoint){
        .ops = fabric->base.ops,
        .fabric = &fabric->base,
        .loop = rt_loop_self(),
        .node = node,
        .broken = true, /* until it is connected */
    };
    endpoint->id = rt_random();
    shm_lists_init(endpoint);
    shm_socket_init(endpoint);
    return endpoint;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static enum pando_status connect_self(struct shm_endpoint *endpoint)
{
    struct shm_fabric *fabric = shm_fabric_of(endpoint->base.fabric);

    if (window_fenced(&fabric->window, endpoint->base.identity))
        return PANDO_FENCED;
    endpoint->window = &fabric->window;
    endpoint->base.target = fabric->base.target;
    endpoint->base.window = window_id(&fabric->window);
    endpoint->base.broken = false;
    return PANDO_OK;
}

static enum pando_status connect_peer_co(struct shm_endpoint *endpoint)
{
    struct shm_fabric *fabric = shm_fabric_of(endpoint->base.fabric);
    char location[FABRIC_LOCATION_MAX];
    struct shm_welcome welcome = {0};
    struct shm_mapping *mapping;

    enum pando_status status = shm_peer_find(fabric, endpoint->base.node, location);
    if (status != PANDO_OK)
        return status;
    status = shm_socket_open_co(endpoint, location, &welcome);
    if (status != PANDO_OK)
        return status;
    status = shm_mapping_take(fabric, endpoint->base.node, welcome.file, &mapping);
    if (status != PANDO_OK) {
        shm_socket_close(endpoint); /* nothing was mapped: the server need not remember it */
        return status;
    }
    if (endpoint->mapping != NULL)
        shm_mapping_give(fabric, endpoint->mapping);
    endpoint->mapping = mapping;
    endpoint->window = &mapping->window;
    endpoint->base.target = (enum fabric_target)welcome.target;
    endpoint->base.window = welcome.window;
    endpoint->base.broken = false;
    return PANDO_OK;
}

static enum pando_status connect_either_co(struct shm_endpoint *endpoint)
{
    struct shm_fabric *fabric = shm_fabric_of(endpoint->base.fabric);

    endpoint->base.identity = fabric_identity_now(&fabric->base);
    if (shm_is_self(fabric, endpoint->base.node))
        return connect_self(endpoint);
    return connect_peer_co(endpoint);
}

static enum pando_status shm_connect_co(struct fabric *base, uint16_t node, uint64_t window,
                                        struct fabric_endpoint **out)
{
    struct shm_endpoint *endpoint = endpoint_create(shm_fabric_of(base), node);
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    endpoint->base.window = window;
    enum pando_status status = connect_either_co(endpoint);
    if (status != PANDO_OK) {
        free(endpoint);
        return status;
    }
    *out = &endpoint->base;
    return PANDO_OK;
}

/* Lists are executed by this process or not at all, so a failed one is gone; and the server drops
 * the former connection of this endpoint when the new one says HELLO. */
static enum pando_status shm_reconnect_co(struct fabric_endpoint *base)
{
    struct shm_endpoint *endpoint = shm_endpoint_of(base);

    if (endpoint->reconnecting) { /* another task is at it: its success is ours too */
        (void)rt_waitq_wait_co(&endpoint->reconnected, RT_NEVER);
        return base->broken ? PANDO_BROKEN : PANDO_OK;
    }
    endpoint->reconnecting = true;
    shm_endpoint_break(endpoint);
    enum pando_status status = connect_either_co(endpoint);
    endpoint->reconnecting = false;
    rt_waitq_wake_all(&endpoint->reconnected);
    return status;
}

static void shm_disconnect_co(struct fabric_endpoint *base)
{
    struct shm_endpoint *endpoint = shm_endpoint_of(base);

    pando_assert(!endpoint->reconnecting);
    shm_socket_close(endpoint);
    if (endpoint->mapping != NULL)
        shm_mapping_give(shm_fabric_of(base->fabric), endpoint->mapping);
    free(endpoint);
}

/* ---- calls and fences ------------------------------------------------------------------------ */

static enum pando_status shm_call_co(struct fabric_endpoint *base, uint16_t method,
                                     struct slice body, void *reply, uint32_t reply_capacity,
                                     uint32_t *reply_size)
{
    if (shm_is_self(shm_fabric_of(base->fabric), base->node))
        return fabric_self_call_co(base, method, body, reply, reply_capacity, reply_size);
    return shm_socket_call_co(shm_endpoint_of(base), SHM_CALL, method, body, reply, reply_capacity,
                              reply_size);
}

static enum pando_status self_fence_co(struct shm_fabric *fabric, struct fabric_identity dead,
                                       bool calls_go_on)
{
    struct shm_server *server = atomic_load_explicit(&fabric->server, memory_order_acquire);
    if (server != NULL)
        return shm_server_fence_co(server, dead, calls_go_on);
    return shm_fence_window_co(fabric, dead);
}

static enum pando_status shm_fence_own_co(struct fabric *fabric, struct fabric_identity dead)
{
    return self_fence_co(shm_fabric_of(fabric), dead, true);
}

static enum pando_status shm_fence_co(struct fabric_endpoint *base,
                                      const struct fabric_ticket *ticket)
{
    struct shm_fabric *fabric = shm_fabric_of(base->fabric);
    struct shm_fence fence = {.member = ticket->who.member, .incarnation = ticket->who.incarnation};
    uint32_t reply_size;

    memcpy(fence.seal, ticket->seal, sizeof(fence.seal));
    if (!shm_is_self(fabric, base->node))
        return shm_socket_call_co(shm_endpoint_of(base), SHM_FENCE, 0,
                                  slice_of(&fence, sizeof(fence)), NULL, 0, &reply_size);
    enum pando_status status = fabric_fence_check(&fabric->base, ticket);
    return status == PANDO_OK ? self_fence_co(fabric, ticket->who, false) : status;
}

/* ---- the window, and the table --------------------------------------------------------------- */

static enum pando_status shm_self_read(struct fabric *fabric, uint64_t offset, void *to,
                                       size_t size)
{
    return window_read_now(&shm_fabric_of(fabric)->window, offset, to, size);
}

static enum pando_status shm_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                        size_t size)
{
    return window_write(&shm_fabric_of(fabric)->window, offset, from, size);
}

/* Nobody stands between others and a window that they have mapped: their lists look at the id. */
static enum pando_status shm_renew_co(struct fabric *base)
{
    window_renew(&shm_fabric_of(base)->window);
    if (base->location[0] == '\0')
        return PANDO_OK;
    atomic_store_explicit(&base->window_stale, true, memory_order_release);
    return PANDO_UNSUPPORTED;
}

const struct fabric_ops shm_fabric_ops = {
    .add_peer = shm_peer_add,
    .connect_co = shm_connect_co,
    .disconnect_co = shm_disconnect_co,
    .reconnect_co = shm_reconnect_co,
    .post = shm_lists_post,
    .call_co = shm_call_co,
    .fence_co = shm_fence_co,
    .self_read = shm_self_read,
    .self_write = shm_self_write,
    .renew_co = shm_renew_co,
    .fence_own_co = shm_fence_own_co,
    .close = shm_close,
};
