/*
 * What goes wrong with RDMA, made to go wrong: the caller gets an error or a person one clear line, and
 * the process lives on. Runs in the guest: `softroce_faults CASE`, or all cases.
 */
#include <dlfcn.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/log.h"
#include "pool/memnode_int.h"
#include "softroce/world.h"

enum { LISTS = 40, METHOD_ECHO = 1, METHOD_SLEEP = 2 };

static const struct world_options plain;

static enum pando_status handler(void *context, struct fabric_request *request)
{
    (void)context;
    if (request->method == METHOD_SLEEP)
        rt_sleep_co(400 * RT_NS_PER_MS);
    memcpy(request->reply, request->body.data, request->body.size);
    request->reply_size = (uint32_t)request->body.size;
    return PANDO_OK;
}

static void run_in_world(const struct world_options *options, void (*run)(struct world *world))
{
    struct world world = {0};
    struct world_options with_handler = *options;
    with_handler.handler = handler;
    world_open(&world, &with_handler);
    world_run(&world, run);
    world_close(&world);
}

/* ---- one chain, one doorbell, one completion ------------------------------------------------- */

static void counting_co(struct world *world)
{
    const struct fabric_verbs_counters *counters = fabric_verbs_counters(world->endpoint);
    uint8_t large[1000] = {0}, in[1000];
    uint64_t word = 7;

    for (uint64_t n = 1; n <= LISTS; n++) {
        struct fabric_op ops[] = {fabric_cas(AT + 2048, 0, 0), fabric_read(AT, in, sizeof(in)),
                                  fabric_read(AT, in, 8), fabric_write(AT, large, sizeof(large)),
                                  fabric_write(AT, &word, 8)};
        CHECK_OK(fabric_submit_co(world->endpoint, ops, 5));
        CHECK_EQ_U64(counters->lists, n);
        CHECK_EQ_U64(counters->work_requests, 5 * n);
        CHECK_EQ_U64(counters->doorbells, n);
        CHECK_EQ_U64(counters->signalled, n);
        CHECK_EQ_U64(counters->completions, n);
        CHECK_EQ_U64(counters->inlined, n);
        CHECK_EQ_U64(counters->fences, 0);
    }
    CHECK_EQ_U64(counters->waits, 0);
    expect_works_co(world);
}

/* The same when many are in flight, and more than the queue has places for. */
static void counting_many_co(struct world *world)
{
    enum { MANY = 2000 };
    const struct fabric_verbs_counters *counters = fabric_verbs_counters(world->endpoint);
    struct fabric_list *lists = calloc(MANY, sizeof(*lists));
    struct fabric_op *ops = calloc(2 * MANY, sizeof(*ops));
    CHECK(lists != NULL && ops != NULL);
    for (unsigned i = 0; i < MANY; i++) {
        ops[2 * i] = fabric_faa(AT, 1);
        ops[2 * i + 1] = fabric_faa(AT + 8, 2);
        lists[i] = (struct fabric_list){.ops = &ops[2 * i], .count = 2};
        fabric_post(world->endpoint, &lists[i]);
    }
    for (unsigned i = 0; i < MANY; i++)
        CHECK_OK(fabric_wait_co(&lists[i]));
    CHECK_EQ_U64(counters->lists, MANY);
    CHECK_EQ_U64(counters->work_requests, 2 * MANY);
    CHECK_EQ_U64(counters->doorbells, MANY);
    CHECK_EQ_U64(counters->signalled, MANY);
    CHECK_EQ_U64(counters->completions, MANY);
    CHECK(counters->waits > 0);
    free(ops);
    free(lists);
}

/* On a device that is not known to be ordered a READ behind an atomic is fenced, and nothing else. */
static void fencing_co(struct world *world)
{
    const struct fabric_verbs_counters *counters = fabric_verbs_counters(world->endpoint);
    uint64_t word = 0, seen[2];
    struct fabric_op locked[] = {fabric_cas(AT, 0, 1), fabric_read(AT + 8, &seen[0], 8),
                                 fabric_read(AT, &seen[1], 8)};
    struct fabric_op plain_ops[] = {fabric_read(AT, &seen[0], 8), fabric_write(AT + 8, &word, 8),
                                    fabric_cas(AT, 1, 0), fabric_write(AT + 16, &word, 8)};
    CHECK_OK(fabric_submit_co(world->endpoint, locked, 3));
    CHECK_EQ_U64(counters->fences, 1);
    CHECK_EQ_U64(seen[1], 1);
    CHECK_OK(fabric_submit_co(world->endpoint, plain_ops, 4));
    CHECK_EQ_U64(counters->fences, 1);
}

static void test_counters(void)
{
    run_in_world(&plain, counting_co);
    run_in_world(&plain, counting_many_co);
    run_in_world(&(struct world_options){.always_fence = true}, fencing_co);
}

/* ---- what the target refuses ----------------------------------------------------------------- */

static void refused_co(struct world *world, struct fabric_op *op)
{
    struct fabric_op good = fabric_faa(AT, 1);
    struct fabric_list lists[2] = {{.ops = op, .count = 1}, {.ops = &good, .count = 1}};
    for (int i = 0; i < 2; i++)
        fabric_post(world->endpoint, &lists[i]);
    CHECK_STATUS(fabric_wait_co(&lists[0]), PANDO_BROKEN);
    CHECK_STATUS(fabric_wait_co(&lists[1]), PANDO_BROKEN);
    expect_recovers_co(world);
}

static void wrong_key_co(struct world *world)
{
    struct verbs_remote_window *window = &world_endpoint(world)->target.window;
    uint64_t word = 1;
    struct fabric_op ops[] = {fabric_read(AT, &word, 8), fabric_write(AT, &word, 8),
                              fabric_cas(AT, 0, 1)};
    for (int i = 0; i < 3; i++) {
        window->host_key ^= 0x5500;
        refused_co(world, &ops[i]);
    }
}

/* A client that thinks the window is larger than it is, or begins earlier. */
static void outside_co(struct world *world)
{
    struct chain_target *target = &world_endpoint(world)->target;
    uint64_t word = UINT64_MAX;
    struct fabric_op past = fabric_write(WORLD_HOST_BYTES, &word, 8);
    target->host_bytes += 4096;
    refused_co(world, &past);

    struct fabric_op before = fabric_write(WINDOW_FIRST, &word, 8);
    target->window.host_address -= WINDOW_FIRST - WINDOW_FENCES;
    refused_co(world, &before);
    CHECK(!fabric_fenced(world->server, (struct fabric_identity){.member = 1}));
}

/* By itself it does not even ask. */
static void polite_co(struct world *world)
{
    uint64_t word = 1;
    struct fabric_op op = fabric_write(WORLD_HOST_BYTES - 4, &word, 8);
    CHECK_STATUS(fabric_submit_co(world->endpoint, &op, 1), PANDO_RANGE);
    CHECK(!fabric_broken(world->endpoint));
    expect_works_co(world);
}

static void test_refused(void)
{
    run_in_world(&plain, wrong_key_co);
    run_in_world(&plain, outside_co);
    run_in_world(&plain, polite_co);
}

/* ---- queue pairs in error -------------------------------------------------------------------- */

static void in_error_co(struct world *world)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct fabric_op ops[LISTS];
    struct fabric_list lists[LISTS];
    unsigned broken = 0;

    for (int i = 0; i < LISTS; i++) {
        ops[i] = fabric_faa(AT, 1);
        lists[i] = (struct fabric_list){.ops = &ops[i], .count = 1};
        if (i == LISTS / 2)
            CHECK(ibv_modify_qp(world_endpoint(world)->queue.pair, &error, IBV_QP_STATE) == 0);
        fabric_post(world->endpoint, &lists[i]);
    }
    for (int i = 0; i < LISTS; i++) {
        enum pando_status status = fabric_wait_co(&lists[i]);
        CHECK(status == PANDO_OK || status == PANDO_BROKEN);
        broken += status == PANDO_BROKEN;
    }
    CHECK(broken >= LISTS / 2);
    expect_recovers_co(world);
}

static void test_error_state(void)
{
    run_in_world(&plain, in_error_co);
}

/* ---- packets --------------------------------------------------------------------------------- */

static void echo_co(struct world *world, uint32_t size)
{
    uint8_t *body = malloc(size + 1), *reply = malloc(size + 1);
    uint32_t reply_size = 0;
    memset(body, (int)size, size);
    CHECK_OK(fabric_call_co(world->endpoint, METHOD_ECHO, slice_of(body, size), reply, size,
                            &reply_size));
    CHECK_EQ_U64(reply_size, size);
    CHECK(memcmp(body, reply, size) == 0);
    free(reply);
    free(body);
}

/* A client that sends what is no packet, or more than it has credits for. */
static void garbage_co(struct world *world)
{
    for (int round = 0; round < 3; round++) {
        struct queue *queue = &world_endpoint(world)->queue;
        uint8_t *packet = queue_send_place(queue, 0);
        memset(packet, 0xff, VERBS_PACKET_BYTES);
        if (round == 1)
            memset(packet, 0, VERBS_PACKET_HEADER); /* says 0 bytes, brings 100 */
        if (round == 2) {
            memset(packet, 0, 100 + VERBS_PACKET_HEADER);
            packet[0] = 100; /* a frame of type 0 */
        }
        CHECK(queue_send(queue, 0, 100 + VERBS_PACKET_HEADER));
        for (int i = 0; i < 500 && !fabric_broken(world->endpoint); i++)
            rt_sleep_co(10 * RT_NS_PER_MS);
        expect_recovers_co(world);
        echo_co(world, 60000);
    }
}

/* More packets than the other side has receives for, which it does not renew. */
static const char *not_ready;

static void on_list(struct queue *queue)
{
    (void)queue;
}

static void on_sent(struct queue *queue, unsigned place)
{
    if (queue->failure == NULL)
        (void)queue_send(queue, place, 8);
}

static void on_received(struct queue *queue, unsigned place, uint32_t bytes)
{
    (void)queue;
    (void)place;
    (void)bytes;
}

static bool on_busy(const struct queue *queue)
{
    return queue->failure == NULL;
}

static void on_failed(struct queue *queue, const char *why)
{
    not_ready = strdup(why);
    queue_destroy(queue);
}

static void not_ready_co(struct world *world)
{
    static const struct queue_ops ops = {.list_done = on_list,
                                         .sent = on_sent,
                                         .received = on_received,
                                         .busy = on_busy,
                                         .failed = on_failed};
    struct lane *lane = world_endpoint(world)->lane;
    struct queue sender, receiver;
    struct verbs_end ends[2];

    CHECK_OK(verbs_queue_create_co(&sender, lane, QUEUE_ASKS));
    CHECK_OK(verbs_queue_create_co(&receiver, lane, QUEUE_ASKS));
    queue_tell(&sender, &ends[0]);
    queue_tell(&receiver, &ends[1]);
    CHECK_OK(verbs_queue_connect_co(&receiver, &ends[0], RT_NS_PER_S));
    CHECK_OK(verbs_queue_connect_co(&sender, &ends[1], RT_NS_PER_S));
    queue_open(&sender, &ops);
    CHECK(queue_send(&sender, 0, 8));
    uint64_t deadline_ns = rt_now_ns() + 10 * RT_NS_PER_S;
    while (not_ready == NULL) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(RT_NS_PER_MS);
    }
    printf("  a peer that is not ready: %s\n", not_ready);
    CHECK(strstr(not_ready, "RNR") != NULL);
    queue_destroy(&receiver);
    expect_works_co(world);
}

static void test_packets(void)
{
    run_in_world(&plain, garbage_co);
    run_in_world(&plain, not_ready_co);
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * RT_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Nothing to do: no time is used. A reply that comes late wakes the loop. */
static void sleeping_co(struct world *world)
{
    expect_works_co(world);
    rt_sleep_co(50 * RT_NS_PER_MS);
    uint64_t before_ns = cpu_ns();
    rt_sleep_co(RT_NS_PER_S);
    uint64_t idle_ns = cpu_ns() - before_ns;
    printf("  idle for a second: %.1f ms of processor time\n", (double)idle_ns / 1e6);
    CHECK(idle_ns < 50 * RT_NS_PER_MS);

    uint64_t sleeps = rt_loop_sleeps(rt_loop_self()), start_ns = rt_now_ns();
    CHECK_OK(fabric_call_co(world->endpoint, METHOD_SLEEP, slice_of("x", 1), NULL, 0, NULL));
    uint64_t took_ns = rt_now_ns() - start_ns;
    printf("  a reply after 400 ms came after %.1f ms, with %llu sleeps\n", (double)took_ns / 1e6,
           (unsigned long long)(rt_loop_sleeps(rt_loop_self()) - sleeps));
    CHECK(rt_loop_sleeps(rt_loop_self()) > sleeps);
    CHECK(took_ns >= 400 * RT_NS_PER_MS && took_ns < 900 * RT_NS_PER_MS);
}

static void test_sleeping(void)
{
    run_in_world(&plain, sleeping_co);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void expect_line(const struct fabric_socket_options *options, enum pando_status expected,
                        const char *hint)
{
    char error[512] = "";
    struct fabric *fabric;
    enum pando_status status = fabric_verbs_open(options, &fabric, error, sizeof(error));
    printf("  %s\n", error);
    CHECK_STATUS(status, expected);
    if (strstr(error, hint) == NULL || strchr(error, '\n') != NULL)
        CHECK_FAIL("no '%s' in one line: %s", hint, error);
}

static void test_names(void)
{
    struct fabric_socket_options options = {.secret_file = world_secret(), .device = "mlx9_9"};
    expect_line(&options, PANDO_NOT_FOUND, "no RDMA device 'mlx9_9'");
    options.device = "rxe0/2";
    expect_line(&options, PANDO_IO, "no active port");
    options.device = "rxe0,gid=200";
    expect_line(&options, PANDO_NOT_FOUND, "no GID 200");
    options.device = "rxe0,gid=x";
    expect_line(&options, PANDO_INVALID, "mlx5_0/1,gid=3");
    options.device = "rxe0/1,gid=1";
    struct fabric *fabric;
    char error[512];
    CHECK_OK(fabric_verbs_open(&options, &fabric, error, sizeof(error)));
    printf("  %s\n", fabric_verbs_device(fabric));
    CHECK(strstr(fabric_verbs_device(fabric), "GID 1 10.0.0.1") != NULL);
    fabric_close(fabric);
}

/* Without the right to lock more than the limit. */
static void test_locked_memory(void)
{
    struct rlimit limit = {.rlim_cur = 64 * 1024, .rlim_max = 64 * 1024};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};
    struct fabric_socket_options options = {.secret_file = world_secret(),
                                            .listen = "127.0.0.1:0",
                                            .host_bytes = WORLD_HOST_BYTES,
                                            .device_bytes = WORLD_DEVICE_BYTES};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    sets[CAP_IPC_LOCK / 32].effective &= ~(1u << CAP_IPC_LOCK % 32);
    sets[CAP_IPC_LOCK / 32].permitted &= ~(1u << CAP_IPC_LOCK % 32);
    CHECK(syscall(SYS_capset, &header, sets) == 0);
    expect_line(&options, PANDO_NO_MEMORY, "ulimit -l unlimited");
    /* The window that a compute node was asked for (--window). */
    options.target = FABRIC_COMPUTE;
    options.host_bytes = 1024 * 1024;
    options.device_bytes = 0;
    options.window_reserved = true;
    expect_line(&options, PANDO_NO_MEMORY, "ulimit -l unlimited");
    options.host_bytes = (uint64_t)1 << 46;
    expect_line(&options, PANDO_NO_MEMORY, "has free; ask for a smaller one");
}

/* rxe1's interface has no IPv4 address: it works by IPv6 with its like, and says so with others. */
static void mixed_task(void *arg)
{
    struct world *world = arg;
    struct fabric_endpoint *endpoint;
    CHECK_STATUS(fabric_connect_co(world->client, NODE, &endpoint), PANDO_UNSUPPORTED);
}

static void test_no_ipv4(void)
{
    struct world world = {0};
    struct rt_thread *thread;
    run_in_world(&(struct world_options){.server_device = "rxe1", .client_device = "rxe1"},
                 in_error_co);
    world_open(&world, &(struct world_options){.server_device = "rxe1", .client_device = "rxe0"});
    printf("  %s\n", fabric_verbs_device(world.server));
    CHECK_OK(rt_thread_start("client", mixed_task, &world, &thread));
    rt_thread_join(thread);
    world_close(&world);
}

/* ---- a wire that is cut ---------------------------------------------------------------------- */

enum { CUT_WORDS = 32 };

static void cut(bool open)
{
    CHECK(system(open ? "ip netns exec switch bridge link set dev portb state 3"
                      : "ip netns exec switch bridge link set dev portb state 0") == 0);
}

static void words_co(struct world *world, uint64_t words[CUT_WORDS])
{
    struct fabric_op op = fabric_read(AT, words, CUT_WORDS * 8);
    CHECK_OK(fabric_submit_co(world->endpoint, &op, 1));
}

/* The card gives up, everything outstanding fails, and nothing of it arrives once the endpoint is
 * connected again. */
static void cut_co(struct world *world)
{
    struct fabric_op ops[CUT_WORDS];
    struct fabric_list lists[CUT_WORDS];
    uint64_t values[CUT_WORDS], first[CUT_WORDS], later[CUT_WORDS], start_ns = rt_now_ns();

    expect_works_co(world);
    for (unsigned i = 0; i < CUT_WORDS; i++) {
        if (i == CUT_WORDS / 2)
            cut(false);
        values[i] = i + 1;
        ops[i] = fabric_write(AT + 8 * i, &values[i], 8);
        lists[i] = (struct fabric_list){.ops = &ops[i], .count = 1};
        fabric_post(world->endpoint, &lists[i]);
    }
    unsigned broken = 0;
    for (unsigned i = 0; i < CUT_WORDS; i++)
        broken += fabric_wait_co(&lists[i]) == PANDO_BROKEN;
    printf("  wire cut: %u of %u lists broken after %.1f s\n", broken, (unsigned)CUT_WORDS,
           (double)(rt_now_ns() - start_ns) / 1e9);
    CHECK(broken >= CUT_WORDS / 2 && fabric_broken(world->endpoint));
    CHECK(rt_now_ns() - start_ns < 15 * RT_NS_PER_S);
    cut(true);
    rt_sleep_co(100 * RT_NS_PER_MS);
    CHECK_OK(fabric_reconnect_co(world->endpoint));
    words_co(world, first);
    rt_sleep_co(500 * RT_NS_PER_MS);
    words_co(world, later);
    CHECK(memcmp(first, later, sizeof(first)) == 0);
    expect_works_co(world);
}

static void test_cut(void)
{
    run_in_world(&(struct world_options){.server_device = "rxeb",
                                         .client_device = "rxea",
                                         .timeout_ns = 2 * RT_NS_PER_S},
                 cut_co);
}

/* ---- a device that goes away ----------------------------------------------------------------- */

/* In the place of the library's own: that a port went down is passed on as what the kernel says when a
 * card is pulled out, or wrong for good. */
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    static int (*own)(struct ibv_context *, struct ibv_async_event *);
    if (own == NULL)
        *(void **)&own = dlsym(RTLD_NEXT, "ibv_get_async_event");
    int result = own(context, event);
    if (result == 0 && event->event_type == IBV_EVENT_PORT_ERR)
        event->event_type = IBV_EVENT_DEVICE_FATAL;
    return result;
}

static void fatal_co(struct world *world)
{
    struct fabric_endpoint *other;
    enum pando_status status;
    uint64_t deadline_ns = rt_now_ns() + 10 * RT_NS_PER_S;

    expect_works_co(world);
    CHECK(system("ip link set wire2 down") == 0);
    do {
        struct fabric_op op = fabric_faa(AT, 1);
        status = fabric_submit_co(world->endpoint, &op, 1);
        CHECK(rt_now_ns() < deadline_ns);
    } while (status == PANDO_OK);
    CHECK_STATUS(status, PANDO_BROKEN);
    status = fabric_reconnect_co(world->endpoint);
    printf("  after a fatal event: %s\n", pando_status_text(status));
    CHECK(status != PANDO_OK);
    CHECK(fabric_connect_co(world->client, NODE, &other) != PANDO_OK);
}

/* Soft-RoCE itself stays until its last user has closed it, and works till then. */
static void removed_co(struct world *world)
{
    expect_works_co(world);
    CHECK(system("rdma link delete rxe2 &") == 0);
    rt_sleep_co(300 * RT_NS_PER_MS);
    expect_works_co(world);
}

static void test_removed(void)
{
    struct world_options options = {.server_device = "rxe2", .client_device = "rxe2"};
    run_in_world(&options, fatal_co);
    CHECK(system("ip link set wire2 up") == 0);
    run_in_world(&options, removed_co);
    for (int i = 0; i < 100 && access("/sys/class/infiniband/rxe2", F_OK) == 0; i++)
        usleep(20000);
    CHECK(access("/sys/class/infiniband/rxe2", F_OK) != 0);
    expect_line(&(struct fabric_socket_options){.secret_file = world_secret(), .device = "rxe2"},
                PANDO_NOT_FOUND, "no RDMA device 'rxe2'");
}

/* ---- queue pairs of a memory node's own ------------------------------------------------------- */

enum { METHOD_SPOIL = 1000, BARRIERS = 50 };

static struct memnode *memnode;

/* Queue pairs of the memory node's own go wrong while nobody uses them: two, so that a second try with one
 * that was kept would fail, too. */
static enum pando_status spoil_co(struct fabric *fabric)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct fabric_endpoint *endpoints[2];
    for (unsigned i = 0; i < 2; i++)
        CHECK_OK(fabric_connect_co(fabric, NODE, &endpoints[i]));
    for (unsigned i = 0; i < 2; i++) {
        struct queue *mirror = &verbs_endpoint_of(endpoints[i])->mirror;
        CHECK(ibv_modify_qp(mirror->pair, &error, IBV_QP_STATE) == 0);
        fabric_disconnect_co(endpoints[i]);
    }
    return PANDO_OK;
}

static enum pando_status memnode_handler(void *context, struct fabric_request *request)
{
    struct world *world = context;
    return request->method == METHOD_SPOIL ? spoil_co(world->server)
                                           : memnode_serve(memnode, request);
}

static void open_memnode(struct world *world)
{
    struct memnode_options options = {0};
    char error[256] = "";
    if (memnode_open(world->server, &options, &memnode, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    fabric_serve(world->server, memnode_handler, world);
    fabric_set_identity(world->client, (struct fabric_identity){.member = 1, .incarnation = 1});
}

/* Calls before which the memory node makes sure that it sees what was written
 * (rule cpu-visibility). */
static void barriers_co(struct world *world, unsigned count)
{
    struct pool_return_request nothing = {0};
    struct fabric_ticket pass;
    CHECK_OK(fabric_seal_make(world->server, FABRIC_SEAL_MEMBER,
                              (struct fabric_identity){.member = 1, .incarnation = 1}, &pass));
    memcpy(nothing.pass, pass.seal, sizeof(nothing.pass));
    for (unsigned i = 0; i < count; i++)
        CHECK_OK(fabric_call_co(world->endpoint, POOL_RETURN, slice_of(&nothing, sizeof(nothing)),
                                NULL, 0, NULL));
}

static void kept_co(struct world *world)
{
    uint64_t first = fabric_verbs_pairs_made(world->server);
    barriers_co(world, BARRIERS);
    uint64_t made = fabric_verbs_pairs_made(world->server) - first;
    printf("  %u calls: %u queue pairs made\n", BARRIERS, (unsigned)made);
    CHECK_EQ_U64(made, 2);
    CHECK_OK(fabric_call_co(world->endpoint, METHOD_SPOIL, slice_of("", 0), NULL, 0, NULL));
    CHECK_EQ_U64(fabric_verbs_pairs_made(world->server) - first, 4);
    barriers_co(world, BARRIERS);
    made = fabric_verbs_pairs_made(world->server) - first;
    printf("  two of them broken, %u more calls: %u\n", BARRIERS, (unsigned)made);
    CHECK_EQ_U64(made, 6);
}

static void test_kept(void)
{
    struct world world = {0};
    struct world_options options = {.device_bytes = MEMNODE_DEVICE_BYTES, .prepare = open_memnode};
    world_open(&world, &options);
    world_run(&world, kept_co);
    world_close(&world);
    memnode_close(memnode);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"counters", test_counters},
    {"refused", test_refused},
    {"error_state", test_error_state},
    {"packets", test_packets},
    {"sleeping", test_sleeping},
    {"names", test_names},
    {"no_ipv4", test_no_ipv4},
    {"locked_memory", test_locked_memory},
    {"removed", test_removed},
    {"cut", test_cut},
    {"kept", test_kept},
};

int main(int argc, char **argv)
{
    bool found = false;
    log_set_level(LOG_LEVEL_ERROR);
    alarm(60);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        found = true;
        cases[i].run();
    }
    return found ? 0 : 2;
}
