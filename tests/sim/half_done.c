/*
 * The simulated fabric answers a list with OK only if every byte of it was executed: a target that
 * dies with a list half done never answers it, and the simulator stops itself where it would.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/sim/sim_int.h"
#include "lib/check.h"

enum { MEMORY = 0, WRITER = 100, OTHER = 101, BYTES = 4096, SEEDS = 40 };

static const uint64_t SPREAD_NS = RT_NS_PER_MS;

static struct fabric_sim *net;
static struct fabric *memory, *writer;
static uint64_t first;
static enum pando_status status;
static bool done;

static void build(uint64_t seed)
{
    struct fabric_sim_options options = {
        .seed = seed,
        .model = sim_nic_model("cx5"),
        .chaos = {.tear = 1, .spread = 1, .spread_ns = SPREAD_NS},
        .break_ns = 20 * RT_NS_PER_MS,
    };
    struct fabric_sim_node_options nodes[] = {
        {.node = MEMORY, .target = FABRIC_MEMORY, .host_bytes = 1 << 20, .threads = 1},
        {.node = WRITER, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1},
        {.node = OTHER, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1},
    };
    struct fabric *other;
    net = fabric_sim_create(&options);
    CHECK(net != NULL);
    CHECK_OK(fabric_sim_add(net, &nodes[0], &memory));
    CHECK_OK(fabric_sim_add(net, &nodes[1], &writer));
    CHECK_OK(fabric_sim_add(net, &nodes[2], &other));
    first = fabric_window_first(memory);
    done = false;
}

static void write_task(void *arg)
{
    static uint8_t ones[BYTES];
    struct fabric_endpoint *endpoint;
    (void)arg;
    memset(ones, 1, sizeof(ones));
    CHECK_OK(fabric_connect_co(writer, MEMORY, &endpoint));
    struct fabric_op ops[] = {fabric_write(first, ones, BYTES),
                              fabric_write(first + BYTES, ones, BYTES)};
    status = fabric_submit_co(endpoint, ops, 2);
    done = true;
    fabric_disconnect_co(endpoint);
}

static void run_until(uint64_t ns)
{
    (void)sim_run(fabric_sim_world(net), ns);
}

static unsigned bytes_written(void)
{
    static uint8_t bytes[2 * BYTES];
    unsigned count = 0;
    CHECK_OK(fabric_self_read(memory, first, bytes, sizeof(bytes)));
    for (unsigned i = 0; i < sizeof(bytes); i++)
        count += bytes[i];
    return count;
}

/* The target dies and is back at once; a link of somebody else heals, which sends on all that waits. */
static bool one_death(uint64_t seed)
{
    build(seed);
    CHECK_OK(rt_spawn(fabric_sim_loop(writer, 0), write_task, NULL));
    fabric_sim_cut(net, MEMORY, OTHER);
    run_until(SPREAD_NS / 2 + seed * SPREAD_NS / SEEDS);
    fabric_sim_kill(memory);
    CHECK_OK(fabric_sim_restart(memory, true, &memory));
    unsigned before = bytes_written();
    run_until(5 * SPREAD_NS);
    fabric_sim_heal(net, MEMORY, OTHER);
    CHECK(sim_run(fabric_sim_world(net), RT_NEVER) == SIM_QUIET);
    CHECK(done);
    CHECK_EQ_U64(bytes_written(), before);
    bool half = before > 0 && before < 2 * BYTES;
    if (before < 2 * BYTES)
        CHECK_STATUS(status, PANDO_BROKEN);
    fabric_sim_destroy(net);
    return half;
}

static void test_half_done_is_not_answered(void)
{
    unsigned half = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        half += one_death(seed);
    printf("%u of %d lists were half done\n", half, SEEDS);
    CHECK(half >= SEEDS / 4);
}

/* A list that is made to be answered before it is executed. */
static void answer_too_early(void)
{
    build(1);
    CHECK_OK(rt_spawn(fabric_sim_loop(writer, 0), write_task, NULL));
    while (list_empty(&net->transfers))
        run_until(sim_now_ns(net->sim) + RT_NS_PER_US);
    struct transfer *transfer = container_of(net->transfers.next, struct transfer, link);
    transfer->stage = TRANSFER_RESPOND;
    (void)sim_run(net->sim, RT_NEVER);
}

static void test_self_check(void)
{
    int how;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr); /* the assertion's line is meant to come */
        answer_too_early();
        _exit(0);
    }
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
}

int main(void)
{
    test_half_done_is_not_answered();
    test_self_check();
    return 0;
}
