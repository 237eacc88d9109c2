/*
 * datagram.c - packets that may be lost, doubled or overtaken.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"

struct datagram {
    struct sim_event event;
    struct fabric_sim *net;
    struct machine *from, *to;
    size_t size;
    uint8_t bytes[];
};

void fabric_sim_on_datagram(struct fabric *fabric, fabric_sim_datagram_fn fn, void *context)
{
    struct process *process = container_of(fabric, struct process, base);
    process->datagram_fn = fn;
    process->datagram_context = context;
}

static void datagram_fire(struct rt_timer *timer)
{
    struct datagram *datagram = container_of(timer, struct datagram, event.timer);
    struct process *to = datagram->to->process;

    sim_trace(datagram->net->sim, "datagram",
              (uint64_t)datagram->from->node << 16 | datagram->to->node, datagram->size, 0);
    if (!to->dead && to->datagram_fn != NULL &&
        sim_linked(datagram->net, datagram->from, datagram->to))
        to->datagram_fn(to->datagram_context, datagram->from->node,
                        slice_of(datagram->bytes, datagram->size));
    free(datagram);
}

static void datagram_send(struct process *process, struct machine *to, struct slice bytes)
{
    struct fabric_sim *net = process->net;
    struct datagram *datagram = calloc(1, sizeof(*datagram) + bytes.size);
    pando_assert(datagram != NULL);
    datagram->net = net;
    datagram->from = process->machine;
    datagram->to = to;
    datagram->size = bytes.size;
    memcpy(datagram->bytes, bytes.data, bytes.size);
    sim_event_init(&datagram->event, net->sim, datagram_fire);
    double arrival = sim_port_send(net, &process->machine->port, (double)sim_now_ns(net->sim),
                                   (double)bytes.size, 1) +
                     sim_jitter(net);
    sim_event_at(&datagram->event, (uint64_t)arrival);
}

enum pando_status fabric_sim_datagram(struct fabric *fabric, uint16_t to, struct slice bytes)
{
    struct process *process = container_of(fabric, struct process, base);
    struct fabric_sim *net = process->net;
    const struct fabric_sim_chaos *chaos = &net->options.chaos;

    if (bytes.size > FABRIC_SIM_DATAGRAM_MAX)
        return PANDO_TOO_LARGE;
    if (net->by_node[to] == NULL)
        return PANDO_NOT_FOUND;
    if (process->dead || prng_chance(sim_prng(net->sim), chaos->datagram_loss))
        return PANDO_OK; /* the sender cannot tell */
    datagram_send(process, net->by_node[to], bytes);
    if (prng_chance(sim_prng(net->sim), chaos->datagram_duplicate))
        datagram_send(process, net->by_node[to], bytes);
    return PANDO_OK;
}
