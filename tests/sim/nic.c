/*
 * The NIC model against the figures it was fitted to: Sherman, sections 3.2.2, 3.2.3, 4.3 and 5.7.
 * All rates and times are simulated (model cx5).
 */
#include <math.h>
#include <time.h>

#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"

enum { NODES_MAX = 8, THREADS_MAX = 22, MEMORY = 0, LOCKS = 10240 };

struct run {
    struct fabric_sim *net;
    struct fabric *memory;
    struct fabric *clients[NODES_MAX];
    int nodes, threads, depth;
    uint64_t end_ns;
    uint64_t done, latency_ns;
    struct fabric_op (*make)(uint64_t random, void *buffer);
    uint64_t lock_base;
    double cumulative[LOCKS];
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOW = 5 }; /* a sanitizer is watching: less virtual time */
#else
enum { SLOW = 1 };
#endif

static struct run *run;

static void start(int nodes, int threads, int depth, bool free_cpu)
{
    static struct sim_nic_model model;
    model = *sim_nic_model("cx5");
    if (free_cpu)
        memset(model.costs, 0, sizeof(model.costs));
    struct fabric_sim_options options = {.seed = 42, .model = &model};
    run = calloc(1, sizeof(*run));
    run->nodes = nodes;
    run->threads = threads;
    run->depth = depth;
    run->net = fabric_sim_create(&options);
    struct fabric_sim_node_options memory = {.node = MEMORY,
                                             .target = FABRIC_MEMORY,
                                             .host_bytes = 16 << 20,
                                             .device_bytes = 256 << 10,
                                             .threads = 1};
    CHECK_OK(fabric_sim_add(run->net, &memory, &run->memory));
    for (int i = 0; i < nodes; i++) {
        struct fabric_sim_node_options client = {.node = (uint16_t)(100 + i),
                                                 .target = FABRIC_COMPUTE,
                                                 .host_bytes = 1 << 20,
                                                 .threads = (unsigned)threads};
        CHECK_OK(fabric_sim_add(run->net, &client, &run->clients[i]));
    }
}

static void finish(rt_fn task, uint64_t end_ns)
{
    run->end_ns = end_ns;
    for (int n = 0; n < run->nodes; n++) {
        for (int t = 0; t < run->threads; t++) {
            for (int d = 0; d < run->depth; d++)
                CHECK_OK(
                    rt_spawn(fabric_sim_loop(run->clients[n], (unsigned)t), task, run->clients[n]));
        }
    }
    CHECK(sim_run(fabric_sim_world(run->net), RT_NEVER) == SIM_QUIET);
    CHECK(sim_live_tasks(fabric_sim_world(run->net)) == 0);
}

static void stop(void)
{
    fabric_sim_destroy(run->net);
    free(run);
}

static void one_sided_task(void *arg)
{
    struct fabric_endpoint *endpoint;
    uint8_t buffer[1024] = {0};
    CHECK_OK(fabric_connect_co(arg, MEMORY, &endpoint));
    while (rt_now_ns() < run->end_ns) {
        struct fabric_op op = run->make(rt_random(), buffer);
        uint64_t begin = rt_now_ns();
        CHECK_OK(fabric_submit_co(endpoint, &op, 1));
        run->latency_ns += rt_now_ns() - begin;
        run->done++;
    }
    fabric_disconnect_co(endpoint);
}

static struct fabric_op make_read(uint64_t random, void *buffer)
{
    return fabric_read((1 << 20) + random % 4096 * 1024, buffer, 1024);
}

static struct fabric_op make_write_128(uint64_t random, void *buffer)
{
    return fabric_write((1 << 20) + random % 4096 * 1024, buffer, 128);
}

static struct fabric_op make_write_512(uint64_t random, void *buffer)
{
    return fabric_write((1 << 20) + random % 4096 * 1024, buffer, 512);
}

static struct fabric_op make_cas_chip(uint64_t random, void *buffer)
{
    (void)buffer;
    return fabric_cas(FABRIC_DEVICE + random % 32768 * 8, 0, 0);
}

static struct fabric_op make_cas_one_word(uint64_t random, void *buffer)
{
    (void)buffer;
    (void)random;
    return fabric_cas(1 << 20, 0, 0);
}

static double rate(int nodes, int threads, int depth, struct fabric_op (*make)(uint64_t, void *))
{
    uint64_t end_ns = 2 * RT_NS_PER_MS / SLOW;
    start(nodes, threads, depth, true);
    run->make = make;
    finish(one_sided_task, end_ns);
    double mops = (double)run->done * 1000 / (double)end_ns;
    stop();
    return mops;
}

static void test_single_verbs(void)
{
    start(1, 1, 1, true);
    run->make = make_read;
    finish(one_sided_task, 5 * RT_NS_PER_MS);
    double read_us = (double)run->latency_ns / (double)run->done / 1000;
    stop();
    printf("simulated, cx5: unloaded READ of 1 KB %.2f us\n", read_us);
    CHECK(read_us > 1.9 && read_us < 2.15);

    double write_128 = rate(8, 22, 4, make_write_128);
    double write_512 = rate(8, 22, 4, make_write_512);
    double cas_chip = rate(8, 22, 4, make_cas_chip);
    double cas_one = rate(8, 22, 4, make_cas_one_word);
    printf("simulated, cx5, M/s at one NIC: WRITE 128 B %.1f, WRITE 512 B %.1f, on-chip CAS %.1f, "
           "host CAS on one word %.2f\n",
           write_128, write_512, cas_chip, cas_one);
    CHECK(write_128 > 50);
    CHECK(write_512 < 12.5e3 / 512); /* bound by bandwidth */
    CHECK(cas_chip > 90 && cas_chip < 120);
    CHECK(cas_one > 6 && cas_one < 9 + 2 * (SLOW - 1));
}

/* ---- the lock experiment of section 5.7 ------------------------------------------------------ */

static uint64_t zipf_lock(void)
{
    double u = (double)(rt_random() >> 11) * 0x1.0p-53;
    int low = 0, high = LOCKS - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (run->cumulative[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return hash_u64((uint64_t)low + 1) % LOCKS;
}

static void lock_task(void *arg)
{
    struct fabric_endpoint *endpoint;
    CHECK_OK(fabric_connect_co(arg, MEMORY, &endpoint));
    while (rt_now_ns() < run->end_ns) {
        uint64_t offset = run->lock_base + zipf_lock() * 8;
        struct fabric_op lock = fabric_cas(offset, 0, 1);
        do {
            CHECK_OK(fabric_submit_co(endpoint, &lock, 1));
        } while (lock.old != 0 && rt_now_ns() < run->end_ns);
        if (lock.old != 0)
            break;
        uint64_t zero = 0;
        struct fabric_op unlock = fabric_write(offset, &zero, 8);
        CHECK_OK(fabric_submit_co(endpoint, &unlock, 1));
        run->done++;
    }
    fabric_disconnect_co(endpoint);
}

static double lock_rate(uint64_t base, uint64_t end_ns)
{
    double sum = 0, at = 0;
    start(8, 22, 1, false);
    run->lock_base = base;
    for (int i = 0; i < LOCKS; i++)
        sum += pow(i + 1, -0.99);
    for (int i = 0; i < LOCKS; i++) {
        at += pow(i + 1, -0.99) / sum;
        run->cumulative[i] = at;
    }
    finish(lock_task, end_ns);
    double mops = (double)run->done * 1000 / (double)end_ns;
    stop();
    return mops;
}

static void test_lock_experiment(void)
{
    double host = lock_rate(1 << 20, 60 * RT_NS_PER_MS / SLOW);
    double chip = lock_rate(FABRIC_DEVICE, 30 * RT_NS_PER_MS / SLOW);
    printf("simulated, cx5: 176 threads, 10,240 locks, zipf 0.99: host %.2f, on-chip %.2f M/s, "
           "%.2fx (paper 2.89x)\n",
           host, chip, chip / host);
    CHECK(SLOW > 1 || (chip / host > 2.3 && chip / host < 3.5));
}

/* A benchmark, not a test: how fast the simulator itself is. */
static void print_real_speed(void)
{
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    start(8, 22, 4, true);
    run->make = make_read;
    finish(one_sided_task, 100 * RT_NS_PER_MS / SLOW / SLOW);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double seconds =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    printf("simulator: %.2f M operations a second of real time\n",
           (double)run->done / seconds / 1e6);
    stop();
}

int main(void)
{
    test_single_verbs();
    test_lock_experiment();
    print_real_speed();
    return 0;
}
