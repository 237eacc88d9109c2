/*
 * The shm fabric: an endpoint to oneself, lists, a server in another process, its death and
 * restart.
 */
#include "lib/fence.h"
#include "shm_world.h"

/* ---- an endpoint to oneself ------------------------------------------------------------------ */

static void check_operations(struct fabric_endpoint *endpoint)
{
    const uint64_t at = WINDOW_FIRST + 4096, chip = FABRIC_DEVICE + 64;
    uint64_t written = 7, seen = 0, words[2];
    uint8_t ragged[100], back[100] = {0};

    write_word(endpoint, at, 5);
    write_word(endpoint, chip, 1);
    struct fabric_op list[] = {
        fabric_write(at, &written, 8), fabric_cas(at, 7, 9),      fabric_faa(at, 10),
        fabric_cas(at, 7, 100),        fabric_read(at, &seen, 8), fabric_faa(chip, 2),
        fabric_read(chip, &words, 16),
    };
    CHECK_OK(fabric_submit_co(endpoint, list, 7));
    CHECK_EQ_U64(list[1].old, 7);
    CHECK_EQ_U64(list[2].old, 9);
    CHECK_EQ_U64(list[3].old, 19);
    CHECK_EQ_U64(seen, 19);
    CHECK_EQ_U64(list[5].old, 1);
    CHECK_EQ_U64(words[0], 3);

    for (size_t i = 0; i < sizeof(ragged); i++)
        ragged[i] = (uint8_t)(i + 1);
    struct fabric_op odd[] = {fabric_write(at + 3, ragged, 99), fabric_read(at + 3, back, 99)};
    CHECK_OK(fabric_submit_co(endpoint, odd, 2));
    CHECK(memcmp(ragged, back, 99) == 0);
}

static void check_ranges(struct fabric_endpoint *endpoint)
{
    uint64_t word = 1, read_back;
    const uint64_t outside[] = {
        0,
        WINDOW_FENCES,
        WINDOW_ATTACHMENTS,
        WINDOW_FIRST - 8,
        WINDOW_FIRST - 1,
        HOST_BYTES - 7,
        HOST_BYTES,
        FABRIC_DEVICE - 8,
        FABRIC_DEVICE + DEVICE_BYTES - 7,
        UINT64_MAX - 3,
    };
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        struct fabric_op read_op = fabric_read(outside[i], &read_back, 8);
        CHECK_STATUS(fabric_submit_co(endpoint, &read_op, 1), PANDO_RANGE);
        struct fabric_op write_op = fabric_write(outside[i], &word, 8);
        CHECK_STATUS(fabric_submit_co(endpoint, &write_op, 1), PANDO_RANGE);
        struct fabric_op add_op = fabric_faa(outside[i] & ~(uint64_t)7, 1);
        if (outside[i] % 8 == 0)
            CHECK_STATUS(fabric_submit_co(endpoint, &add_op, 1), PANDO_RANGE);
    }
    /* What comes after the refused operation leaves nothing behind. */
    write_word(endpoint, WINDOW_FIRST, 0);
    struct fabric_op list[] = {fabric_write(0, &word, 8), fabric_write(WINDOW_FIRST, &word, 8)};
    CHECK_STATUS(fabric_submit_co(endpoint, list, 2), PANDO_RANGE);
    CHECK_EQ_U64(read_word(endpoint, WINDOW_FIRST), 0);
    write_word(endpoint, HOST_BYTES - 8, 1);
    write_word(endpoint, FABRIC_DEVICE + DEVICE_BYTES - 8, 1);
}

static void self_task(void *arg)
{
    struct fabric *fabric = arg;
    struct fabric_endpoint *endpoint;
    uint64_t word = 77;

    CHECK_STATUS(fabric_connect_co(fabric, 55, &endpoint), PANDO_NOT_FOUND);
    fabric_set_identity(fabric, (struct fabric_identity){5, 2});
    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    CHECK(fabric_endpoint_target(endpoint) == FABRIC_MEMORY && !fabric_broken(endpoint));
    check_operations(endpoint);
    check_ranges(endpoint);
    check_calls(endpoint);
    CHECK_OK(fabric_self_write(fabric, WINDOW_FIRST, &word, 8));
    CHECK_EQ_U64(read_word(endpoint, WINDOW_FIRST), 77);
    CHECK_STATUS(fabric_self_read(fabric, 0, &word, 8), PANDO_RANGE);
    /* Others and its own past can be fenced; itself it cannot. */
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){6, 1}));
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){5, 1}));
    CHECK_OK(fabric_reconnect_co(endpoint));
    CHECK_STATUS(fence_co(endpoint, (struct fabric_identity){5, 2}), PANDO_UNSUPPORTED);
    CHECK_STATUS(fabric_reconnect_co(endpoint), PANDO_FENCED);
    fabric_disconnect_co(endpoint);
}

static void test_self(void)
{
    struct fabric *fabric = open_window(NULL, false);
    CHECK_OK(fabric_shm_start(fabric));
    CHECK_EQ_TEXT(fabric_location(fabric), "");
    CHECK_EQ_U64(fabric_window_bytes(fabric), HOST_BYTES);
    CHECK(!fabric_shm_reused(fabric));
    run(self_task, fabric);
    fabric_close(fabric);
}

/* ---- lists that wait for the end of the turn ------------------------------------------------- */

enum { ADDERS = 32, ADDS = 1000 };

struct crowd {
    struct fabric_endpoint *endpoint;
    int left;
    bool timer_fired;
};

static void adder_task(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < ADDS; i++) {
        uint64_t before = 0, after = 0;
        struct fabric_op ops[] = {fabric_read(WINDOW_FIRST, &before, 8),
                                  fabric_faa(WINDOW_FIRST, 1),
                                  fabric_read(WINDOW_FIRST, &after, 8)};
        CHECK_OK(fabric_submit_co(crowd->endpoint, ops, 3));
        CHECK_EQ_U64(after, ops[1].old + 1);
        CHECK_EQ_U64(before, ops[1].old);
    }
    crowd->left--;
}

static void sleeper_task(void *arg)
{
    struct crowd *crowd = arg;
    rt_sleep_co(2 * RT_NS_PER_MS);
    crowd->timer_fired = true;
}

static void crowd_task(void *arg)
{
    struct fabric *fabric = arg;
    struct crowd crowd = {.left = ADDERS};

    CHECK_OK(fabric_connect_co(fabric, NODE, &crowd.endpoint));
    for (int i = 0; i < ADDERS; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), adder_task, &crowd));
    /* With others runnable a list is only begun by fabric_post. */
    uint64_t word = 0;
    struct fabric_op op = fabric_read(WINDOW_FIRST, &word, 8);
    struct fabric_list list = {.ops = &op, .count = 1};
    fabric_post(crowd.endpoint, &list);
    CHECK(list.pending);
    CHECK_OK(fabric_wait_co(&list));
    while (crowd.left > 0)
        rt_yield_co();
    CHECK_EQ_U64(read_word(crowd.endpoint, WINDOW_FIRST), ADDERS * ADDS);

    /* Alone it is done at once, but not for ever: timers get their turn. */
    fabric_post(crowd.endpoint, &list);
    CHECK(!list.pending);
    CHECK_OK(rt_spawn(rt_loop_self(), sleeper_task, &crowd));
    rt_yield_co();
    for (uint64_t i = 0; !crowd.timer_fired; i++) {
        CHECK(i < 100 * 1000 * 1000);
        (void)read_word(crowd.endpoint, WINDOW_FIRST);
    }
    fabric_disconnect_co(crowd.endpoint);
}

static void test_deferred_lists(void)
{
    struct fabric *fabric = open_window(NULL, false);
    run(crowd_task, fabric);
    fabric_close(fabric);
}

/* ---- a server in another process ------------------------------------------------------------- */

static void peer_task(void *arg)
{
    (void)arg;
    struct fabric *fabric = open_client((struct fabric_identity){9, 4});
    struct fabric *other = open_client(nobody);
    struct fabric_endpoint *first, *second, *wrong;
    struct fabric_identity who = {0};

    CHECK_OK(fabric_connect_co(fabric, NODE, &first));
    CHECK_OK(fabric_connect_co(other, NODE, &second));
    check_operations(first);
    check_ranges(first);
    check_calls(first);
    check_many_calls(first);
    CHECK_OK(fabric_call_co(first, METHOD_WHO, slice_of(NULL, 0), &who, sizeof(who), NULL));
    CHECK(who.member == 9 && who.incarnation == 4);
    CHECK(fabric_endpoint_target(first) == FABRIC_MEMORY);
    write_word(first, WINDOW_FIRST + 8, 1234);
    CHECK_EQ_U64(read_word(second, WINDOW_FIRST + 8), 1234);
    CHECK_EQ_U64(fabric_endpoint_counters(second)->lists, 1);
    /* Whoever is there must be the node that was asked for. */
    CHECK_OK(fabric_add_peer(fabric, NODE + 1, FABRIC_MEMORY, window_path));
    CHECK_STATUS(fabric_connect_co(fabric, NODE + 1, &wrong), PANDO_INVALID);
    fabric_disconnect_co(first);
    fabric_disconnect_co(second);
    fabric_close(fabric);
    fabric_close(other);
    /* It said goodbye, so ending member 9 does not end this process. */
    other = open_client(nobody);
    CHECK_OK(fabric_connect_co(other, NODE, &second));
    CHECK_OK(fence_co(second, (struct fabric_identity){9, 4}));
    fabric_disconnect_co(second);
    fabric_close(other);
}

static void test_peer(void)
{
    struct child server = start("server", "");
    run(peer_task, NULL);
    stop(server);
    struct stat info;
    CHECK(stat(window_path, &info) == 0 && (info.st_mode & 0777) == 0600);
}

/* ---- death and restart ----------------------------------------------------------------------- */

static void doomed_call_task(void *arg)
{
    struct fabric_endpoint *endpoint = arg;
    CHECK_STATUS(fabric_call_co(endpoint, METHOD_ECHO, slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_BROKEN);
    calls_left--;
}

static void restart_task(void *arg)
{
    struct child *server = arg;
    struct fabric *fabric = open_client((struct fabric_identity){11, 1});
    struct fabric_endpoint *endpoint;
    uint64_t word = 0;

    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    write_word(endpoint, WINDOW_FIRST + 16, 4711);
    /* A server that stands still is not dead: the call waits. */
    pause_hard(*server);
    CHECK_STATUS(try_connect(nobody), PANDO_TIMEOUT);
    calls_left = 1;
    CHECK_OK(rt_spawn(rt_loop_self(), doomed_call_task, endpoint));
    rt_sleep_co(20 * RT_NS_PER_MS);
    CHECK(calls_left == 1 && !fabric_broken(endpoint));

    kill_hard(*server);
    wait_until_broken(endpoint);
    while (calls_left > 0)
        rt_yield_co();
    struct fabric_op op = fabric_read(WINDOW_FIRST + 16, &word, 8);
    CHECK_STATUS(fabric_submit_co(endpoint, &op, 1), PANDO_BROKEN);
    CHECK_STATUS(fabric_call_co(endpoint, METHOD_ECHO, slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_BROKEN);
    CHECK_STATUS(fabric_reconnect_co(endpoint), PANDO_BROKEN);
    CHECK_STATUS(try_connect(nobody), PANDO_BROKEN);

    *server = start("server", "");
    CHECK_OK(fabric_reconnect_co(endpoint));
    CHECK(!fabric_broken(endpoint));
    CHECK_EQ_U64(read_word(endpoint, WINDOW_FIRST + 16), 4711);
    check_calls(endpoint);

    /* The file replaced by another one: who was connected to the first is not to the second. */
    uint64_t window = fabric_endpoint_window(endpoint);
    kill_hard(*server);
    wait_until_broken(endpoint);
    CHECK(unlink(window_path) == 0);
    *server = start("server", "");
    CHECK_STATUS(fabric_reconnect_co(endpoint), PANDO_INVALID);
    CHECK(fabric_broken(endpoint) && fabric_endpoint_window(endpoint) == window);
    fabric_disconnect_co(endpoint);
    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    CHECK(fabric_endpoint_window(endpoint) != window);
    CHECK_EQ_U64(read_word(endpoint, WINDOW_FIRST + 16), 0);
    fabric_disconnect_co(endpoint);
    fabric_close(fabric);
}

static void test_restart(void)
{
    struct child server = start("server", "");
    run(restart_task, &server);
    stop(server);
}

int main(int argc, char **argv)
{
    world_begin(argc, argv);
    test_self();
    test_deferred_lists();
    test_peer();
    test_restart();
    world_end();
    return 0;
}
