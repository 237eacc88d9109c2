/*
 * model.c - the presets.
 *
 * Fitted, as a whole, to the figures of the Sherman paper (sections 3.2, 4.3, 5.7; ConnectX-5, 100
 * Gbit/s, PCIe 3) and of the DMTree paper (ConnectX-6): an unloaded READ takes 2.0 us, small WRITEs
 * arrive at more than 50 M/s, atomics on on-chip memory at about 110 M/s, atomics on one bucket of
 * host memory wait for two PCIe transactions (one if a CAS fails).
 *
 * cx5-dex is cx5 with other CPUs: those of the DEX paper's testbed (section 8.1: Xeon Gold 6242R, 3.1
 * GHz, against the 2.2 GHz of Sherman's). Its figures give no absolute rates in the text but for two
 * (section 8.3): a tree without a cache, two threads, half of the operations updates, does 0.04 Mops, and
 * with partitions 0.096. If it has five levels of 1 KB (a guess), these are 16.5 and 7.5 verbs an
 * operation (3 READs of a shared node, 1 of another, 3 verbs for a shared update and 1 for one's own) in
 * 50 and 20.8 us. cx5's verbs take 2.97 us each, CPU and mean jitter included: 49 and 22.3 us. So verbs
 * are left as they are; what is left for an operation is 1.0 us in the one case and nothing in the
 * other, and 1.0 us is chosen. All other constants are cx5's.
 *
 * Serving a call is an operation for the CPU that does it: it is held to cost as much as one, and a little
 * for taking it and answering (2.0 us in cx5). No figure of the papers tells it; neither is it fitted.
 */
#include <stddef.h>
#include <string.h>

#include "fabric/sim/nic.h"

/* All have one wire, one PCIe and one kind of memory; they differ in what is given here. */
#define PRESET(preset, messages_per_us, operation_ns)                                              \
    {                                                                                              \
        .name = (preset), .wire_ns = 450, .read_extra_ns = 250, .write_extra_ns = 100,             \
        .atomic_host_extra_ns = 250, .atomic_chip_extra_ns = 50, .jitter_mean_ns = 750,            \
        .message_in_ns = 1000.0 / (messages_per_us), .message_out_ns = 1000.0 / (messages_per_us), \
        .atomic_chip_message_ns = 1000.0 / 110, .bytes_per_ns = 12.5, .header_bytes = 60,          \
        .bucket_chip_ns = 45, .bucket_host_ok_ns = 130, .bucket_host_fail_ns = 130,                \
        .buckets = 4096, .device_bytes = 256 * 1024,                                               \
        .costs = {[RT_COST_OPERATION] = (operation_ns),                                            \
                  [RT_COST_WRITE] = 600,                                                           \
                  [RT_COST_VERB] = 900,                                                            \
                  [RT_COST_HANDOFF] = 350,                                                         \
                  [RT_COST_CALL] = (operation_ns) + 100},                                          \
    }

static const struct sim_nic_model models[] = {
    PRESET("cx5", 52, 1900),
    PRESET("cx5-dex", 52, 1000),
    PRESET("cx6", 50, 1000),
};

const struct sim_nic_model *sim_nic_model(const char *name)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    }
    return NULL;
}
