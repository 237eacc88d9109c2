/*
 * tcp_world.h - what the tests of the tcp fabric's two sides share: a secret, a client's fabric, and a
 * loop to run a test on.
 */
#ifndef TESTS_UNIT_TCP_WORLD_H
#define TESTS_UNIT_TCP_WORLD_H

#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/tcp_int.h"
#include "lib/check.h"

static struct fabric *client;
static char secret_path[] = "/tmp/pando-tcp-XXXXXX";

static inline struct fabric *open_fabric(struct fabric_socket_options options)
{
    struct fabric *fabric;
    char error[256];
    options.secret_file = secret_path;
    CHECK_OK(fabric_tcp_open(&options, &fabric, error, sizeof(error)));
    return fabric;
}

static inline void world_open(uint16_t client_node)
{
    int fd = mkstemp(secret_path);
    CHECK(fd >= 0 && write(fd, "0123456789abcdef0123456789abcdef", 32) == 32);
    close(fd);
    log_set_level(LOG_LEVEL_ERROR);
    client =
        open_fabric((struct fabric_socket_options){.node = client_node, .target = FABRIC_COMPUTE});
}

static inline void world_close(void)
{
    fabric_close(client);
    unlink(secret_path);
}

static inline void run(void (*test)(void *))
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    CHECK_OK(rt_spawn(loop, test, NULL));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
}

#endif
