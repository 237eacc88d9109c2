/*
 * Fences on the shm fabric: a fenced process is dead, and its identity is not let in again.
 */
#include "shm_world.h"

enum { MEMBER = 21, OTHER_MEMBER = 22 };

static void check_word_rests(struct fabric_endpoint *endpoint)
{
    uint64_t word = read_word(endpoint, count_at(MEMBER));
    rt_sleep_co(20 * RT_NS_PER_MS);
    CHECK_EQ_U64(read_word(endpoint, count_at(MEMBER)), word);
}

static void fence_task(void *arg)
{
    struct child *server = arg;
    const struct fabric_identity victim = {MEMBER, 1};
    struct fabric *fabric = open_client(nobody);
    struct fabric_endpoint *endpoint;

    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    struct child writer = start("writer", "21");
    /* Nobody else is this member while that process lives. */
    CHECK_STATUS(try_connect((struct fabric_identity){MEMBER, 2}), PANDO_BUSY);
    uint64_t word = read_word(endpoint, count_at(MEMBER));
    for (int i = 0; i < 1000 && read_word(endpoint, count_at(MEMBER)) == word; i++)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK(read_word(endpoint, count_at(MEMBER)) != word);

    /* An earlier life of it is another matter. */
    CHECK_OK(fabric_fence_co(endpoint, (struct fabric_identity){MEMBER, 0}));
    CHECK(waitpid(writer.process, NULL, WNOHANG) == 0);

    pause_hard(writer);
    CHECK_OK(fabric_fence_co(endpoint, victim));
    expect_killed(writer);
    check_word_rests(endpoint);
    CHECK_STATUS(try_connect(victim), PANDO_FENCED);
    CHECK_OK(fabric_fence_co(endpoint, victim));
    CHECK_OK(try_connect((struct fabric_identity){MEMBER, 2}));

    /* The server restarts: it still refuses the dead, and still knows whom it had let in. */
    writer = start("writer", "22");
    kill_hard(*server);
    *server = start("server", "");
    CHECK_OK(fabric_reconnect_co(endpoint));
    CHECK_STATUS(try_connect(victim), PANDO_FENCED);
    /* That one parts in order from the new server, but it had not parted from the old one. */
    while (read_word(endpoint, sign_at(OTHER_MEMBER)) == 0)
        rt_sleep_co(RT_NS_PER_MS);
    rt_sleep_co(20 * RT_NS_PER_MS);
    CHECK_OK(fabric_fence_co(endpoint, (struct fabric_identity){OTHER_MEMBER, 1}));
    expect_killed(writer);
    fabric_disconnect_co(endpoint);
    fabric_close(fabric);
}

static void test_fence(void)
{
    struct child server = start("server", "");
    run(fence_task, &server);
    stop(server);
}

/* The owner of the window fences, through its endpoint to itself. */
static void owner_fence_task(void *arg)
{
    struct fabric *fabric = arg;
    struct fabric *client = open_client((struct fabric_identity){31, 1});
    struct fabric_endpoint *self, *endpoint;

    CHECK_OK(fabric_connect_co(fabric, NODE, &self));
    struct child writer = start("writer", "21");
    CHECK_OK(fabric_fence_co(self, (struct fabric_identity){MEMBER, 1}));
    expect_killed(writer);
    check_word_rests(self);
    CHECK(fabric_fenced(fabric, (struct fabric_identity){MEMBER, 1}));
    CHECK(!fabric_fenced(fabric, (struct fabric_identity){MEMBER, 2}));

    /* Attached by this very process: it will not kill itself. Its connection ends all the same. */
    CHECK_OK(fabric_connect_co(client, NODE, &endpoint));
    CHECK_STATUS(fabric_fence_co(self, (struct fabric_identity){31, 1}), PANDO_UNSUPPORTED);
    wait_until_broken(endpoint);
    CHECK_STATUS(fabric_reconnect_co(endpoint), PANDO_FENCED);
    fabric_disconnect_co(endpoint);
    fabric_disconnect_co(self);
    fabric_close(client);
}

/* Not serving yet: recovery after a restart comes first. */
static void early_fence_task(void *arg)
{
    struct child *writer = arg;
    struct fabric *fabric = open_window(window_path, false);
    struct fabric_endpoint *self;

    CHECK(fabric_shm_reused(fabric));
    CHECK_OK(fabric_connect_co(fabric, NODE, &self));
    CHECK_OK(fabric_fence_co(self, (struct fabric_identity){OTHER_MEMBER, 1}));
    expect_killed(*writer);
    fabric_disconnect_co(self);
    fabric_close(fabric);
}

static void test_owner_fence(void)
{
    unlink(window_path);
    struct fabric *fabric = open_window(window_path, false);
    CHECK_OK(fabric_shm_start(fabric));
    run(owner_fence_task, fabric);
    fabric_close(fabric);

    struct child server = start("server", "");
    struct child writer = start("writer", "22");
    kill_hard(server);
    run(early_fence_task, &writer);
}

int main(int argc, char **argv)
{
    world_begin(argc, argv);
    test_fence();
    test_owner_fence();
    world_end();
    return 0;
}
