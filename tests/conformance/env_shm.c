/*
 * env_shm.c - the target's window is a file in the case's folder, and all processes map it.
 */
#include <stdio.h>

#include "conformance/env_real.h"
#include "fabric/shm/shm.h"

static enum pando_status open_target(const char *folder, const char *location, struct fabric **out,
                                     char *error, size_t error_bytes)
{
    char path[FABRIC_LOCATION_MAX];
    snprintf(path, sizeof(path), "%s/window", folder);
    struct fabric_shm_options options = {.node = ENV_TARGET,
                                         .target = FABRIC_MEMORY,
                                         .path = location != NULL ? location : path,
                                         .host_bytes = ENV_HOST_BYTES,
                                         .device_bytes = ENV_DEVICE_BYTES};
    return fabric_shm_open(&options, out, error, error_bytes);
}

/* As store/env_real.c does it. */
static enum pando_status open_compute(const char *folder, const char *location, struct fabric **out,
                                      char *error, size_t error_bytes)
{
    char path[FABRIC_LOCATION_MAX];
    snprintf(path, sizeof(path), "%s/window", folder);
    struct fabric_shm_options options = {.node = FABRIC_NODE_UNKNOWN,
                                         .target = FABRIC_COMPUTE,
                                         .path = location != NULL ? location : path,
                                         .temporary = true,
                                         .reserved = true,
                                         .host_bytes = ENV_HOST_BYTES};
    return fabric_shm_open(&options, out, error, error_bytes);
}

static enum pando_status open_client(const char *folder, uint16_t node,
                                     const struct env_client *client, struct fabric **out,
                                     char *error, size_t error_bytes)
{
    (void)folder;
    (void)client;
    struct fabric_shm_options options = {.node = node, .target = FABRIC_COMPUTE};
    return fabric_shm_open(&options, out, error, error_bytes);
}

static const struct real_backend backend = {
    .ops = &env_shm,
    .nowhere = "/nowhere",
    .open_target = open_target,
    .start_target = fabric_shm_start,
    .open_client = open_client,
};

static const struct real_backend compute_backend = {
    .ops = &env_shm_compute,
    .nowhere = "/nowhere",
    .open_target = open_compute,
    .start_target = fabric_shm_start,
    .open_client = open_client,
};

static struct env *shm_open_env(const struct env_options *options)
{
    return real_open(&backend, options);
}

static struct env *shm_compute_open_env(const struct env_options *options)
{
    return real_open(&compute_backend, options);
}

static int shm_process(int argc, char **argv, fabric_handler handler)
{
    return real_process(&backend, argc, argv, handler);
}

static int shm_compute_process(int argc, char **argv, fabric_handler handler)
{
    return real_process(&compute_backend, argc, argv, handler);
}

const struct env_ops env_shm = {
    .name = "shm",
    .fence_kills = true,
    .effort = 5000,
    .call_effort = 50,
    .open = shm_open_env,
    .process = shm_process,
    REAL_ENV_OPS,
};

const struct env_ops env_shm_compute = {
    .name = "shm-compute",
    .compute = true,
    .fence_kills = true,
    .effort = 5000,
    .call_effort = 50,
    .open = shm_compute_open_env,
    .process = shm_compute_process,
    REAL_ENV_OPS,
};
