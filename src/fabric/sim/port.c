/*
 * port.c - queues of a NIC and its link; see nic.h for the model.
 */
#include <math.h>

#include "fabric/sim/sim_int.h"

static double later(double a, double b)
{
    return a > b ? a : b;
}

double sim_jitter(struct fabric_sim *net)
{
    return -log(1.0 - prng_unit(sim_prng(net->sim))) * net->model.jitter_mean_ns;
}

double sim_port_send(struct fabric_sim *net, struct port *from, double now, double bytes,
                     uint32_t messages)
{
    const struct sim_nic_model *model = &net->model;
    double wire_bytes = bytes + model->header_bytes * messages;

    double start = later(now, from->tx_free);
    from->tx_free = start + model->message_out_ns * messages;
    from->link_out_free = later(start, from->link_out_free) + wire_bytes / model->bytes_per_ns;
    return from->link_out_free + model->wire_ns;
}

/* Two senders may fill one receiver's link. Asked when the message is there, in the order of
 * arrival: what comes later must not push back what comes earlier. */
double sim_port_receive(struct fabric_sim *net, struct port *to, double now, double bytes,
                        uint32_t messages)
{
    const struct sim_nic_model *model = &net->model;
    double serial_ns = (bytes + model->header_bytes * messages) / model->bytes_per_ns;
    to->link_in_free = later(now, to->link_in_free + serial_ns);
    return to->link_in_free;
}

double sim_port_message(struct fabric_sim *net, struct port *port, double now)
{
    double start = later(now, port->rx_free);
    port->rx_free = start + net->model.message_in_ns;
    return start;
}

/* An atomic whose bucket is busy holds up the whole queue. The caller sets *bucket's next free
 * time, which depends on whether the CAS succeeded. */
double sim_port_atomic(struct fabric_sim *net, struct port *port, double now, uint64_t offset,
                       double **bucket)
{
    const struct sim_nic_model *model = &net->model;
    bool chip = offset >= FABRIC_DEVICE;
    uint32_t index = (uint32_t)(offset % model->buckets) + (chip ? model->buckets : 0);

    *bucket = &port->bucket_free[index];
    double start = later(later(now, port->rx_free), **bucket);
    port->rx_free = start + (chip ? model->atomic_chip_message_ns : model->message_in_ns);
    return start;
}
