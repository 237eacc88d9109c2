/*
 * env_tcp.c - the target listens on a port of the loopback interface.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "conformance/env_real.h"
#include "fabric/tcp/tcp.h"
#include "lib/check.h"

enum { PATH_BYTES = 128 };

/* Until a far client gives up on a target that is silent. */
static const uint64_t FAR_NS = (ENV_SLOWDOWN > 1 ? 1200 : 400) * RT_NS_PER_MS;

static enum pando_status open_target(const char *folder, const char *location, struct fabric **out,
                                     char *error, size_t error_bytes)
{
    char window[PATH_BYTES], secret[PATH_BYTES];
    snprintf(window, sizeof(window), "%s/window", folder);
    snprintf(secret, sizeof(secret), "%s/secret", folder);
    struct fabric_socket_options options = {.node = ENV_TARGET,
                                            .target = FABRIC_MEMORY,
                                            .listen = location != NULL ? location : "127.0.0.1:0",
                                            .threads = 2,
                                            .secret_file = secret,
                                            .window_path = window,
                                            .host_bytes = ENV_HOST_BYTES,
                                            .device_bytes = ENV_DEVICE_BYTES};
    return fabric_tcp_open(&options, out, error, error_bytes);
}

/* As store/env_real.c does it. */
static enum pando_status open_compute(const char *folder, const char *location, struct fabric **out,
                                      char *error, size_t error_bytes)
{
    char secret[PATH_BYTES];
    snprintf(secret, sizeof(secret), "%s/secret", folder);
    struct fabric_socket_options options = {.node = FABRIC_NODE_UNKNOWN,
                                            .target = FABRIC_COMPUTE,
                                            .listen = location != NULL ? location : "127.0.0.1:0",
                                            .secret_file = secret,
                                            .window_reserved = true,
                                            .host_bytes = ENV_HOST_BYTES};
    return fabric_tcp_open(&options, out, error, error_bytes);
}

static enum pando_status open_client(const char *folder, uint16_t node,
                                     const struct env_client *client, struct fabric **out,
                                     char *error, size_t error_bytes)
{
    char secret[PATH_BYTES];
    snprintf(secret, sizeof(secret), "%s/%s", folder,
             client->wrong_secret ? "wrong-secret" : "secret");
    struct fabric_socket_options options = {.node = node,
                                            .target = FABRIC_COMPUTE,
                                            .secret_file = secret,
                                            .timeout_ns = client->far ? FAR_NS : 0};
    return fabric_tcp_open(&options, out, error, error_bytes);
}

static void make_secret(const char *folder, const char *name, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(fd) == 0);
}

static const struct real_backend backend = {
    .ops = &env_tcp,
    .links = true,
    .nowhere = "127.0.0.1:1",
    .open_target = open_target,
    .start_target = fabric_tcp_start,
    .open_client = open_client,
};

static const struct real_backend compute_backend = {
    .ops = &env_tcp_compute,
    .links = true,
    .nowhere = "127.0.0.1:1",
    .open_target = open_compute,
    .start_target = fabric_tcp_start,
    .open_client = open_client,
};

static struct env *tcp_open_env(const struct env_options *options)
{
    make_secret(options->folder, "secret", "forty thousand trunks, one root system\n");
    make_secret(options->folder, "wrong-secret", "forty thousand roots, one trunk system\n");
    return real_open(&backend, options);
}

static struct env *tcp_compute_open_env(const struct env_options *options)
{
    make_secret(options->folder, "secret", "forty thousand trunks, one root system\n");
    make_secret(options->folder, "wrong-secret", "forty thousand roots, one trunk system\n");
    return real_open(&compute_backend, options);
}

static int tcp_process(int argc, char **argv, fabric_handler handler)
{
    return real_process(&backend, argc, argv, handler);
}

static int tcp_compute_process(int argc, char **argv, fabric_handler handler)
{
    return real_process(&compute_backend, argc, argv, handler);
}

const struct env_ops env_tcp = {
    .name = "tcp",
    .has_secret = true,
    .effort = 12,
    .call_effort = 10,
    .open = tcp_open_env,
    .process = tcp_process,
    REAL_ENV_OPS,
};

const struct env_ops env_tcp_compute = {
    .name = "tcp-compute",
    .compute = true,
    .has_secret = true,
    .effort = 12,
    .call_effort = 10,
    .open = tcp_compute_open_env,
    .process = tcp_compute_process,
    REAL_ENV_OPS,
};
