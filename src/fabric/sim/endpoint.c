/*
 * endpoint.c - connections between simulated processes, and how they break.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"

static struct endpoint *endpoint_of(struct fabric_endpoint *base)
{
    return container_of(base, struct endpoint, base);
}

static void break_fire(struct rt_timer *timer)
{
    struct endpoint *endpoint = container_of(timer, struct endpoint, break_event.timer);
    sim_endpoint_break(endpoint);
}

enum pando_status sim_connect_co(struct fabric *fabric, uint16_t node, uint64_t window,
                                 struct fabric_endpoint **out)
{
    struct process *process = container_of(fabric, struct process, base);
    struct fabric_sim *net = process->net;
    struct machine *target = net->by_node[node];
    struct fabric_identity identity = fabric_identity_now(fabric);
    uint64_t expected = window;
    uint32_t life = 0;

    if (target == NULL)
        return PANDO_NOT_FOUND;
    enum pando_status status =
        sim_rpc_co(process, target, RPC_CONNECT, identity, 0, &life, &window);
    if (status == PANDO_OK)
        status = fabric_window_check(node, target->process->base.target, expected, window);
    if (status == PANDO_OK && process->dead)
        status = PANDO_BROKEN; /* it died between the answer and now */
    if (status != PANDO_OK)
        return status;
    struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL)
        return PANDO_NO_MEMORY;
    endpoint->base.ops = &sim_fabric_ops;
    endpoint->base.fabric = fabric;
    endpoint->base.loop = rt_loop_self();
    endpoint->base.node = node;
    endpoint->base.target = target->process->base.target;
    endpoint->base.identity = identity;
    endpoint->source = process;
    endpoint->target = target;
    endpoint->base.window = window;
    endpoint->target_life = life;
    endpoint->id = ++net->next_endpoint_id;
    sim_event_init(&endpoint->break_event, net->sim, break_fire);
    list_push_back(&process->endpoints, &endpoint->link);
    *out = &endpoint->base;
    return PANDO_OK;
}

void sim_disconnect_co(struct fabric_endpoint *base)
{
    struct endpoint *endpoint = endpoint_of(base);
    sim_event_cancel(&endpoint->break_event);
    list_remove(&endpoint->link);
    free(endpoint);
}

enum pando_status sim_reconnect_co(struct fabric_endpoint *base)
{
    struct endpoint *endpoint = endpoint_of(base);
    struct fabric_identity identity = fabric_identity_now(base->fabric);
    bool any = endpoint->source->net->options.chaos.no_windows;
    uint64_t window = any ? 0 : base->window;
    uint32_t life = 0;

    if (!base->broken)
        sim_endpoint_break(endpoint);
    enum pando_status status = sim_rpc_co(endpoint->source, endpoint->target, RPC_RECONNECT,
                                          identity, endpoint->id, &life, &window);
    if (status == PANDO_OK && !any)
        status = fabric_window_check(base->node, base->target, base->window, window);
    if (status == PANDO_OK && endpoint->source->dead)
        status = PANDO_BROKEN;
    if (status != PANDO_OK)
        return status;
    base->window = window;
    sim_event_cancel(&endpoint->break_event);
    endpoint->target_life = life;
    endpoint->id = ++endpoint->source->net->next_endpoint_id;
    base->identity = identity;
    base->broken = false;
    return PANDO_OK;
}

void sim_endpoint_break(struct endpoint *endpoint)
{
    struct fabric_sim *net = endpoint->source->net;

    if (endpoint->base.broken)
        return;
    sim_event_cancel(&endpoint->break_event);
    sim_trace(net->sim, "break", endpoint->base.fabric->node, endpoint->base.node, endpoint->id);
    endpoint->base.broken = true;
    list_for_each_safe (link, &net->transfers) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        if (transfer->endpoint == endpoint)
            sim_transfer_orphan(transfer);
    }
}

void sim_endpoint_break_later(struct endpoint *endpoint)
{
    struct fabric_sim *net = endpoint->source->net;
    if (endpoint->base.broken || heap_contains(&endpoint->break_event.timer.node))
        return;
    uint64_t wait_ns =
        1 + net->options.break_ns / 2 + prng_below(sim_prng(net->sim), net->options.break_ns);
    sim_event_at(&endpoint->break_event, sim_now_ns(net->sim) + wait_ns);
}

/* As where sockets are closed: what was under way is gone, and who had sent it notices. */
enum pando_status sim_renew_co(struct fabric *fabric)
{
    struct process *process = container_of(fabric, struct process, base);
    struct machine *machine = process->machine;

    if (process->dead)
        return PANDO_BROKEN;
    window_set_id(&machine->window, hash_u64(window_id(&machine->window)) | 1);
    sim_transfers_end_others(machine);
    list_for_each (process_link, &process->net->processes) {
        struct process *other = container_of(process_link, struct process, link);
        list_for_each (link, &other->endpoints) {
            struct endpoint *endpoint = container_of(link, struct endpoint, link);
            if (endpoint->target == machine && other->machine != machine)
                sim_endpoint_break(endpoint);
        }
    }
    return PANDO_OK;
}
