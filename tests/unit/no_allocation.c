/*
 * After a warm-up, operations allocate nothing, though a buffer may still grow once or twice: on the
 * embedded window, over tcp (client and server are both in this process) and in the simulator.
 * Counted by malloc itself, replaced here.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/shm.h"
#include "fabric/sim/fabric_sim.h"
#include "fabric/tcp/tcp.h"
#include "lib/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
    SKIP("a sanitizer has a malloc of its own");
}

#else

static atomic_ulong allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, size);
}

enum { TASKS = 16, WARM = 200, ROUNDS = 2000, GROWTH_MAX = 4, NODE = 0 };

struct run {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    int running;
    uint64_t rounds;
};

static void lists_task(void *arg)
{
    struct run *run = arg;
    uint8_t bytes[1024] = {0};
    uint64_t at = (1 << 20) + rt_random() % 512 * 1024;

    for (uint64_t i = 0; i < run->rounds; i++) {
        struct fabric_op ops[] = {fabric_cas(at, 0, 0), fabric_write(at, bytes, 64),
                                  fabric_read(at, bytes, sizeof(bytes))};
        CHECK_OK(fabric_submit_co(run->endpoint, ops, 3));
    }
    run->running--;
}

static void round_co(struct run *run, uint64_t rounds)
{
    run->rounds = rounds;
    run->running = TASKS;
    for (int i = 0; i < TASKS; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), lists_task, run));
    while (run->running > 0)
        rt_sleep_co(RT_NS_PER_MS);
}

static void main_task(void *arg)
{
    struct run run = {.fabric = arg};
    CHECK_OK(fabric_connect_co(run.fabric, NODE, &run.endpoint));
    round_co(&run, WARM);
    unsigned long before = atomic_load(&allocations);
    round_co(&run, ROUNDS);
    unsigned long during = atomic_load(&allocations) - before;
    fabric_disconnect_co(run.endpoint);
    if (during > GROWTH_MAX)
        CHECK_FAIL("%lu allocations in %d operations", during, TASKS * ROUNDS * 3);
}

static void run_real(struct fabric *fabric)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK_OK(rt_spawn(loop, main_task, fabric));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
}

static void test_embedded(void)
{
    struct fabric_shm_options options = {
        .node = NODE, .target = FABRIC_MEMORY, .host_bytes = 4 << 20, .device_bytes = 4096};
    struct fabric *fabric;
    char error[256];
    CHECK_OK(fabric_shm_open(&options, &fabric, error, sizeof(error)));
    run_real(fabric);
    fabric_close(fabric);
}

static void test_tcp(void)
{
    char secret[] = "/tmp/pando-secret-XXXXXX";
    int fd = mkstemp(secret);
    CHECK(fd >= 0 && fchmod(fd, 0600) == 0);
    CHECK(write(fd, "a secret of more than sixteen bytes", 35) == 35);
    close(fd);
    struct fabric_socket_options options = {.node = NODE,
                                            .target = FABRIC_MEMORY,
                                            .listen = "127.0.0.1:0",
                                            .secret_file = secret,
                                            .host_bytes = 4 << 20,
                                            .device_bytes = 4096};
    struct fabric_socket_options client_options = {.node = 99, .secret_file = secret};
    struct fabric *server, *client;
    char error[256];
    CHECK_OK(fabric_tcp_open(&options, &server, error, sizeof(error)));
    CHECK_OK(fabric_tcp_start(server));
    CHECK_OK(fabric_tcp_open(&client_options, &client, error, sizeof(error)));
    CHECK_OK(fabric_add_peer(client, NODE, FABRIC_MEMORY, fabric_location(server)));
    run_real(client);
    fabric_close(client);
    fabric_close(server);
    unlink(secret);
}

static void test_sim(void)
{
    struct fabric_sim_options options = {.seed = 1, .model = sim_nic_model("cx5")};
    struct fabric_sim *net = fabric_sim_create(&options);
    struct fabric *memory, *client;
    struct fabric_sim_node_options nodes[] = {
        {.node = NODE, .target = FABRIC_MEMORY, .host_bytes = 4 << 20, .threads = 1},
        {.node = 100, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1},
    };
    CHECK_OK(fabric_sim_add(net, &nodes[0], &memory));
    CHECK_OK(fabric_sim_add(net, &nodes[1], &client));
    CHECK_OK(rt_spawn(fabric_sim_loop(client, 0), main_task, client));
    CHECK(sim_run(fabric_sim_world(net), RT_NEVER) == SIM_QUIET);
    fabric_sim_destroy(net);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    test_embedded();
    test_tcp();
    test_sim();
    return 0;
}

#endif
