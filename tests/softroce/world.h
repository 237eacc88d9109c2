/*
 * world.h - a memory node and a client over RDMA in one process, each with a device of its own opening:
 * what the programs that run in the guest share.
 */
#ifndef SOFTROCE_WORLD_H
#define SOFTROCE_WORLD_H

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fabric/verbs/verbs_int.h"
#include "lib/check.h"

enum {
    NODE = 0,
    AT = 1024 * 1024,
    WORLD_HOST_BYTES = 8 * 1024 * 1024,
    WORLD_DEVICE_BYTES = 64 * 1024,
};

struct world {
    struct fabric *server, *client;
    struct fabric_endpoint *endpoint; /* the client's, while its task runs */
    void (*run)(struct world *world);
};

struct world_options {
    const char *server_device, *client_device;
    bool always_fence;
    uint64_t timeout_ns;
    uint64_t device_bytes; /* 0 for WORLD_DEVICE_BYTES */
    fabric_handler handler;
    void (*prepare)(struct world *world); /* before the server accepts connections */
};

static inline const char *world_secret(void)
{
    static const char path[] = "/tmp/softroce-secret";
    static const char text[] = "forty thousand trunks, one root system\n";
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, sizeof(text) - 1) == sizeof(text) - 1 && close(fd) == 0);
    return path;
}

static inline void world_open(struct world *world, const struct world_options *options)
{
    char error[512] = "";
    struct fabric_socket_options server = {
        .node = NODE,
        .target = FABRIC_MEMORY,
        .device = options->server_device,
        .listen = "127.0.0.1:0",
        .secret_file = world_secret(),
        .host_bytes = WORLD_HOST_BYTES,
        .device_bytes = options->device_bytes != 0 ? options->device_bytes : WORLD_DEVICE_BYTES};
    struct fabric_socket_options client = {.node = 1,
                                           .target = FABRIC_COMPUTE,
                                           .device = options->client_device,
                                           .always_fence = options->always_fence,
                                           .timeout_ns = options->timeout_ns,
                                           .secret_file = world_secret()};
    if (fabric_verbs_open(&server, &world->server, error, sizeof(error)) != PANDO_OK ||
        fabric_verbs_open(&client, &world->client, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    fabric_serve(world->server, options->handler, NULL);
    if (options->prepare != NULL)
        options->prepare(world);
    CHECK_OK(fabric_verbs_start(world->server));
    CHECK_OK(fabric_add_peer(world->client, NODE, FABRIC_MEMORY, fabric_location(world->server)));
}

static inline void world_main(void *arg)
{
    struct world *world = arg;
    CHECK_OK(fabric_connect_co(world->client, NODE, &world->endpoint));
    world->run(world);
    fabric_disconnect_co(world->endpoint);
}

/* Runs it on a loop, with an endpoint connected. */
static inline void world_run(struct world *world, void (*run)(struct world *world))
{
    struct rt_thread *thread;
    world->run = run;
    CHECK_OK(rt_thread_start("client", world_main, world, &thread));
    rt_thread_join(thread);
}

static inline void world_close(struct world *world)
{
    fabric_close(world->client);
    fabric_close(world->server);
}

static inline struct verbs_endpoint *world_endpoint(struct world *world)
{
    return verbs_endpoint_of(world->endpoint);
}

/* One word there and back: it works. */
static inline void expect_works_co(struct world *world)
{
    uint64_t word = rt_random(), seen = 0;
    struct fabric_op ops[] = {fabric_write(AT, &word, 8), fabric_read(AT, &seen, 8)};
    CHECK_OK(fabric_submit_co(world->endpoint, ops, 2));
    CHECK_EQ_U64(seen, word);
}

/* The endpoint is broken, and as good as new when it is connected again. */
static inline void expect_recovers_co(struct world *world)
{
    CHECK(fabric_broken(world->endpoint));
    CHECK_OK(fabric_reconnect_co(world->endpoint));
    expect_works_co(world);
}

#endif
