/*
 * env_verbs.c - the target is reached through an RDMA device. Which one may be said in the
 * environment, where the two sides have different ones.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "conformance/env_real.h"
#include "fabric/verbs/verbs.h"
#include "lib/check.h"

enum { PATH_BYTES = 128 };

static enum pando_status open_target(const char *folder, const char *location, struct fabric **out,
                                     char *error, size_t error_bytes)
{
    char window[PATH_BYTES], secret[PATH_BYTES];
    snprintf(window, sizeof(window), "%s/window", folder);
    snprintf(secret, sizeof(secret), "%s/secret", folder);
    struct fabric_socket_options options = {.node = ENV_TARGET,
                                            .target = FABRIC_MEMORY,
                                            .device = getenv("PANDO_TEST_TARGET_DEVICE"),
                                            .listen = location != NULL ? location : "127.0.0.1:0",
                                            .threads = 2,
                                            .secret_file = secret,
                                            .window_path = window,
                                            .host_bytes = ENV_HOST_BYTES,
                                            .device_bytes = ENV_DEVICE_BYTES};
    return fabric_verbs_open(&options, out, error, error_bytes);
}

/* As store/env_real.c does it. */
static enum pando_status open_compute(const char *folder, const char *location, struct fabric **out,
                                      char *error, size_t error_bytes)
{
    char secret[PATH_BYTES];
    snprintf(secret, sizeof(secret), "%s/secret", folder);
    struct fabric_socket_options options = {.node = FABRIC_NODE_UNKNOWN,
                                            .target = FABRIC_COMPUTE,
                                            .device = getenv("PANDO_TEST_TARGET_DEVICE"),
                                            .listen = location != NULL ? location : "127.0.0.1:0",
                                            .secret_file = secret,
                                            .window_reserved = true,
                                            .host_bytes = ENV_HOST_BYTES};
    return fabric_verbs_open(&options, out, error, error_bytes);
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
                                            .device = getenv("PANDO_TEST_CLIENT_DEVICE"),
                                            .always_fence = getenv("PANDO_TEST_FENCE") != NULL,
                                            .secret_file = secret};
    return fabric_verbs_open(&options, out, error, error_bytes);
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
    .ops = &env_verbs,
    .nowhere = "127.0.0.1:1",
    .open_target = open_target,
    .start_target = fabric_verbs_start,
    .open_client = open_client,
};

static const struct real_backend compute_backend = {
    .ops = &env_verbs_compute,
    .nowhere = "127.0.0.1:1",
    .open_target = open_compute,
    .start_target = fabric_verbs_start,
    .open_client = open_client,
};

static struct env *verbs_open_env(const struct env_options *options)
{
    make_secret(options->folder, "secret", "forty thousand trunks, one root system\n");
    make_secret(options->folder, "wrong-secret", "forty thousand roots, one trunk system\n");
    return real_open(&backend, options);
}

static struct env *verbs_compute_open_env(const struct env_options *options)
{
    make_secret(options->folder, "secret", "forty thousand trunks, one root system\n");
    make_secret(options->folder, "wrong-secret", "forty thousand roots, one trunk system\n");
    return real_open(&compute_backend, options);
}

static int verbs_process(int argc, char **argv, fabric_handler handler)
{
    return real_process(&backend, argc, argv, handler);
}

static int verbs_compute_process(int argc, char **argv, fabric_handler handler)
{
    return real_process(&compute_backend, argc, argv, handler);
}

/* Whether this machine has a device. */
static bool verbs_available(void)
{
    bool found = false;
    DIR *folder = opendir("/sys/class/infiniband");
    if (folder == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        found |= entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

const struct env_ops env_verbs = {
    .name = "verbs",
    .has_secret = true,
    .effort = 1,
    .call_effort = 1,
    .available = verbs_available,
    .open = verbs_open_env,
    .process = verbs_process,
    REAL_ENV_OPS,
};

const struct env_ops env_verbs_compute = {
    .name = "verbs-compute",
    .compute = true,
    .has_secret = true,
    .effort = 1,
    .call_effort = 1,
    .available = verbs_available,
    .open = verbs_compute_open_env,
    .process = verbs_compute_process,
    REAL_ENV_OPS,
};
