/*
 * model.c - the presets.
 *
 * Fitted, as a whole, to the figures of the Sherman paper (sections 3.2, 4.3, 5.7; ConnectX-5, 100
 * Gbit/s, PCIe 3) and of the DMTree paper (ConnectX-6): an unloaded READ takes 2.0 us, small WRITEs
 * arrive at more than 50 M/s, atomics on on-chip memory at about 110 M/s, atomics on one bucket of
 * host memory wait for two PCIe transactions (one if a CAS fails).
 */
#include <stddef.h>
#include <string.h>

#include "fabric/sim/nic.h"

static const struct sim_nic_model models[] = {
    {
        .name = "cx5",
        .wire_ns = 450,
        .read_extra_ns = 250,
        .write_extra_ns = 100,
        .atomic_host_extra_ns = 250,
        .atomic_chip_extra_ns = 50,
        .jitter_mean_ns = 750,
        .message_in_ns = 1000.0 / 52,
        .message_out_ns = 1000.0 / 52,
        .atomic_chip_message_ns = 1000.0 / 110,
        .bytes_per_ns = 12.5,
        .header_bytes = 60,
        .bucket_chip_ns = 45,
        .bucket_host_ok_ns = 130,
        .bucket_host_fail_ns = 130,
        .buckets = 4096,
        .device_bytes = 256 * 1024,
        .costs = {[RT_COST_OPERATION] = 1900,
                  [RT_COST_WRITE] = 600,
                  [RT_COST_VERB] = 900,
                  [RT_COST_HANDOFF] = 350,
                  [RT_COST_CALL] = 2000},
    },
    {
        .name = "cx6",
        .wire_ns = 450,
        .read_extra_ns = 250,
        .write_extra_ns = 100,
        .atomic_host_extra_ns = 250,
        .atomic_chip_extra_ns = 50,
        .jitter_mean_ns = 750,
        .message_in_ns = 1000.0 / 50,
        .message_out_ns = 1000.0 / 50,
        .atomic_chip_message_ns = 1000.0 / 110,
        .bytes_per_ns = 12.5,
        .header_bytes = 60,
        .bucket_chip_ns = 45,
        .bucket_host_ok_ns = 130,
        .bucket_host_fail_ns = 130,
        .buckets = 4096,
        .device_bytes = 256 * 1024,
        .costs = {[RT_COST_OPERATION] = 1000,
                  [RT_COST_WRITE] = 600,
                  [RT_COST_VERB] = 900,
                  [RT_COST_HANDOFF] = 350,
                  [RT_COST_CALL] = 2000},
    },
};

const struct sim_nic_model *sim_nic_model(const char *name)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    }
    return NULL;
}
