/*
 * nic.h - the model of a network interface, its presets, and the faults the simulated fabric can be
 * told to make.
 *
 * Each NIC has one outgoing and one incoming queue, served in order. An atomic whose bucket is busy
 * waits at the head of the incoming queue and delays everything behind it; that one mechanism gives
 * the collapse of contended remote locks that the papers measured:
 *
 *     start       = max(arrival, rx_free, bucket_free if atomic)
 *     rx_free     = start + message time
 *     bucket_free = start + service time of the atomic
 */
#ifndef FABRIC_SIM_NIC_H
#define FABRIC_SIM_NIC_H

#include <stdint.h>

#include "pando/pando.h"
#include "rt/rt.h"

struct sim_nic_model {
    const char *name;
    double wire_ns;       /* one way */
    double read_extra_ns; /* at the target, beyond the queue: PCIe and memory */
    double write_extra_ns;
    double atomic_host_extra_ns;
    double atomic_chip_extra_ns;
    double jitter_mean_ns; /* exponential, per list; mostly the poster's own PCIe and polling */
    double message_in_ns;  /* READ, WRITE, call */
    double message_out_ns;
    double atomic_chip_message_ns; /* an incoming atomic on on-chip memory */
    double bytes_per_ns;           /* link, each way */
    double header_bytes;           /* per message */
    double bucket_chip_ns;         /* atomics on one bucket, one after the other: on-chip memory */
    double bucket_host_ok_ns;      /* host memory: two PCIe transactions */
    double bucket_host_fail_ns;    /* a failed CAS skips the second */
    uint32_t buckets;              /* chosen by the low bits of the word's address */
    uint64_t device_bytes;         /* on-chip memory */
    uint64_t costs[RT_COST_COUNT]; /* of CPUs, in ns */
};

/* "cx5", "cx5-dex" or "cx6"; NULL for an unknown name. */
const struct sim_nic_model *sim_nic_model(const char *name);

#endif
