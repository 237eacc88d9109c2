/*
 * failure.c - the target dies or cannot be reached: rule 5 of fabric.h, and
 * failed-lists-linger (R4) for the sender that reconnects.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "conformance/suite.h"
#include "lib/fence.h"

enum {
    IN_FLIGHT = 100,
    AT_BALLAST = 8 * 1024 * 1024,
};

struct flight {
    struct fabric_list list;
    struct fabric_op ops[2];
    uint64_t value;
};

static const uint8_t ballast[64 * 1024];

/* WRITEs value to the word of that number, behind some ballast to keep the target busy. */
static void flight_post(struct client *client, struct flight *flight, unsigned word, uint64_t value,
                        uint32_t ballast_bytes)
{
    flight->value = value;
    flight->ops[0] = fabric_write(AT_BALLAST, ballast, ballast_bytes);
    flight->ops[1] = fabric_write(AT + 8 * word, &flight->value, 8);
    flight->list = (struct fabric_list){.ops = flight->ops, .count = 2};
    fabric_post(client->endpoint, &flight->list);
}

/* Uses the endpoint until it has found out: one that is asked for nothing need not. */
static void wait_broken_co(struct client *client)
{
    uint64_t deadline_ns = rt_now_ns() + client->env->ops->patience_ns;
    enum pando_status status;
    do {
        struct fabric_op op = fabric_faa(AT_PROBE, 1);
        status = fabric_submit_co(client->endpoint, &op, 1);
        CHECK(rt_now_ns() < deadline_ns);
        if (status == PANDO_OK)
            moment_co();
    } while (status == PANDO_OK);
    CHECK_STATUS(status, PANDO_BROKEN);
}

/* Lists, calls and fences fail at once. */
static void expect_broken_co(struct client *client)
{
    struct fabric_op op = fabric_faa(AT_FLAG, 1);
    struct fabric_list list = {.ops = &op, .count = 1};

    CHECK(fabric_broken(client->endpoint));
    fabric_post(client->endpoint, &list);
    CHECK(!list.pending);
    CHECK_STATUS(list.status, PANDO_BROKEN);
    CHECK_STATUS(fabric_wait_co(&list), PANDO_BROKEN);
    uint64_t start_ns = rt_now_ns();
    CHECK_STATUS(fabric_call_co(client->endpoint, METHOD_ECHO, slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_BROKEN);
    CHECK_STATUS(fence_co(client->endpoint, (struct fabric_identity){900, 1}), PANDO_BROKEN);
    CHECK(rt_now_ns() - start_ns < RT_NS_PER_S);
}

/* ---- the target is killed -------------------------------------------------------------------- */

struct doomed_call {
    struct client *client;
    enum pando_status status;
    bool done;
};

static void doomed_call(void *arg)
{
    struct doomed_call *call = arg;
    uint64_t duration_ns = 3600 * RT_NS_PER_S;
    call->status = fabric_call_co(call->client->endpoint, METHOD_SLEEP,
                                  slice_of(&duration_ns, sizeof(duration_ns)), NULL, 0, NULL);
    call->done = true;
}

/* Each ends, in bounded time; those that were OK are there after the restart. */
static void killed_with_lists_co(struct client *client, struct flight *flights)
{
    struct doomed_call call = {.client = client};
    uint64_t patience_ns = client->env->ops->patience_ns;

    CHECK_OK(rt_spawn(rt_loop_self(), doomed_call, &call));
    suite_sleep_co(client->env, 20); /* the call is being served */
    for (unsigned i = 0; i < IN_FLIGHT / 2; i++)
        flight_post(client, &flights[i], i, i + 1, 8);
    if (client->env->ops->simulated)
        rt_sleep_co(rt_random() % 10000);
    for (unsigned i = IN_FLIGHT / 2; i < IN_FLIGHT; i++)
        flight_post(client, &flights[i], i, i + 1, 8);
    env_kill_target(client->env);

    uint64_t start_ns = rt_now_ns();
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        enum pando_status status = fabric_wait_co(&flights[i].list);
        CHECK(status == PANDO_OK || status == PANDO_BROKEN);
    }
    while (!call.done)
        moment_co();
    CHECK(call.status == PANDO_BROKEN || call.status == PANDO_TIMEOUT);
    CHECK(rt_now_ns() - start_ns < patience_ns);
}

static void killed_client(struct client *client)
{
    struct flight *flights = allocate(IN_FLIGHT * sizeof(*flights));
    uint64_t patience_ns = client->env->ops->patience_ns, start_ns, found[IN_FLIGHT];

    put_co(client, AT_FLAG, 4711);
    put_co(client, at_device(client->env), 4712);
    killed_with_lists_co(client, flights);
    wait_broken_co(client);
    expect_broken_co(client);

    for (int i = 0; i < 3; i++) {
        start_ns = rt_now_ns();
        enum pando_status status = fabric_reconnect_co(client->endpoint);
        CHECK(status == PANDO_BROKEN || status == PANDO_TIMEOUT);
        CHECK(rt_now_ns() - start_ns < patience_ns);
        expect_broken_co(client);
    }
    env_restart_target(client->env);
    start_ns = rt_now_ns();
    CHECK_OK(fabric_reconnect_co(client->endpoint));
    CHECK(rt_now_ns() - start_ns < patience_ns);
    CHECK(!fabric_broken(client->endpoint));

    bool kept = !client->env->ops->compute;
    CHECK_EQ_U64(get_co(client, AT_FLAG), kept ? 4711 : 0);
    CHECK_EQ_U64(get_co(client, at_device(client->env)), kept ? 4712 : 0);
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        found[i] = get_co(client, AT + 8 * i);
        if (kept)
            CHECK(found[i] == i + 1 || (found[i] == 0 && flights[i].list.status == PANDO_BROKEN));
        else
            CHECK_EQ_U64(found[i], 0); /* nothing of before comes into the new window */
    }
    CHECK_OK(fabric_call_co(client->endpoint, METHOD_ECHO, slice_of("x", 1), NULL, 0, NULL));
    rt_sleep_co(client->env->ops->linger_ns);
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        CHECK_EQ_U64(get_co(client, AT + 8 * i), found[i]);
    free(flights);
}

static void target_killed(struct env *env)
{
    suite_clients(env, 1, killed_client, NULL);
}

/* Others notice too. */
static void bystander_client(struct client *client)
{
    if (client->index == 0) {
        suite_sleep_co(client->env, 20);
        env_kill_target(client->env);
    }
    wait_broken_co(client);
    expect_broken_co(client);
}

static void reconnect_client(struct client *client)
{
    struct fabric_op op = fabric_faa(AT, 1);
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
}

static void everyone_notices(struct env *env)
{
    suite_clients(env, 3, bystander_client, NULL);
    env_restart_target(env);
    suite_clients(env, 3, reconnect_client, NULL);
}

/* ---- the target is gone for a while ---------------------------------------------------------- */

/* Nothing that failed is applied after the reconnect has returned: the words stay as first seen. */
static void expect_still_co(struct client *client)
{
    uint64_t first[IN_FLIGHT], later[IN_FLIGHT];
    uint64_t end_ns = rt_now_ns() + client->env->ops->linger_ns;

    read_co(client, AT, first, sizeof(first));
    while (rt_now_ns() < end_ns) {
        read_co(client, AT, later, sizeof(later));
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            if (later[i] != first[i])
                CHECK_FAIL("after the reconnect word %u changed from %" PRIu64 " to %" PRIu64, i,
                           first[i], later[i]);
        }
        moment_co();
    }
}

static void reconnect_soon_co(struct client *client)
{
    uint64_t deadline_ns = rt_now_ns() + client->env->ops->patience_ns;
    enum pando_status status;
    while ((status = fabric_reconnect_co(client->endpoint)) != PANDO_OK) {
        CHECK(status == PANDO_BROKEN || status == PANDO_TIMEOUT);
        CHECK(rt_now_ns() < deadline_ns);
        moment_co();
    }
}

/* Loses sight of the target with lists on their way; how many of them failed. */
static unsigned lose_target_co(struct client *client, struct flight *flights, uint64_t value)
{
    uint64_t start_ns = rt_now_ns();
    uint32_t ballast_bytes = client->env->ops->simulated ? 256 : sizeof(ballast);
    unsigned failed = 0;

    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        if (i == IN_FLIGHT / 2)
            env_hide_target(client->env);
        flight_post(client, &flights[i], (unsigned)(rt_random() % IN_FLIGHT), value + i,
                    ballast_bytes);
    }
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        enum pando_status status = fabric_wait_co(&flights[i].list);
        CHECK(status == PANDO_OK || status == PANDO_BROKEN);
        failed += status == PANDO_BROKEN;
    }
    wait_broken_co(client);
    CHECK(rt_now_ns() - start_ns < client->env->ops->patience_ns);
    expect_broken_co(client);
    return failed;
}

static void lost_client(struct client *client)
{
    struct flight *flights = allocate(IN_FLIGHT * sizeof(*flights));
    unsigned failed = 0;

    fill_words_co(client, AT, 0, IN_FLIGHT);
    for (unsigned round = 0; round < 3; round++) {
        failed += lose_target_co(client, flights, (uint64_t)(round + 1) * 1000000);
        env_show_target(client->env);
        reconnect_soon_co(client);
        expect_still_co(client);
        put_co(client, AT, 1);
        CHECK_EQ_U64(get_co(client, AT), 1);
    }
    /* On shm the sender's own processor does all the work, and nothing is ever on its way. */
    CHECK(failed > 0 || client->env->ops->fence_kills);
    free(flights);
}

static void nothing_late_after_reconnect(struct env *env)
{
    struct fabric *fabric =
        env_client_with(env, (struct env_client){.identity = {5, 1}, .far = true});
    suite_threads(env, fabric, 1, lost_client, NULL);
}

/* Two threads with an endpoint each: one reconnecting leaves the other be. */
static void lost_sibling_client(struct client *client)
{
    _Atomic unsigned *broken = client->arg;

    if (client->index == 0) {
        suite_sleep_co(client->env, 5);
        env_hide_target(client->env);
    }
    wait_broken_co(client);
    atomic_fetch_add(broken, 1);
    if (client->index == 0) {
        while (atomic_load(broken) < 2)
            moment_co();
        env_show_target(client->env);
    }
    reconnect_soon_co(client);
    for (uint64_t n = 1; n <= env_rounds(client->env, 20); n++) {
        put_co(client, AT + 8 * client->index, n);
        CHECK_EQ_U64(get_co(client, AT + 8 * client->index), n);
    }
}

static void siblings_reconnect(struct env *env)
{
    _Atomic unsigned broken = 0;
    struct fabric *fabric =
        env_client_with(env, (struct env_client){.identity = {5, 1}, .far = true});
    suite_threads(env, fabric, 2, lost_sibling_client, &broken);
}

/* ---- a new life of the target's window ------------------------------------------------------- */

/* What is connected leads nowhere from then on, until it connects again. */
static void renewed_client(struct client *client)
{
    uint64_t before = fabric_endpoint_window(client->endpoint);
    uint64_t deadline_ns = rt_now_ns() + client->env->ops->patience_ns;
    enum pando_status status = PANDO_OK;

    if (client->index == 0)
        status = fabric_call_co(client->endpoint, METHOD_RENEW, slice_of("", 0), NULL, 0, NULL);
    CHECK(status == PANDO_OK || status == PANDO_BROKEN); /* the reply came too late */
    do {
        struct fabric_op op = fabric_faa(AT, 1);
        status = fabric_submit_co(client->endpoint, &op, 1);
        CHECK(rt_now_ns() < deadline_ns);
        moment_co();
    } while (status == PANDO_OK);
    CHECK_STATUS(status, PANDO_BROKEN);
    for (unsigned i = 0; i < 3; i++) {
        struct fabric_op op = fabric_faa(AT, 1);
        CHECK_STATUS(fabric_submit_co(client->endpoint, &op, 1), PANDO_BROKEN);
    }
    reconnect_soon_co(client);
    CHECK(fabric_endpoint_window(client->endpoint) != before);
    put_co(client, AT_FLAG + 8 * client->index, before);
    CHECK_EQ_U64(get_co(client, AT_FLAG + 8 * client->index), before);
}

static void window_renewed(struct env *env)
{
    suite_clients(env, 3, renewed_client, NULL);
}

const struct suite_case failure_cases[] = {
    {.name = "target_killed", .run = target_killed},
    {.name = "everyone_notices", .run = everyone_notices},
    {.name = "nothing_late_after_reconnect", .run = nothing_late_after_reconnect},
    {.name = "siblings_reconnect", .run = siblings_reconnect},
    {.name = "window_renewed", .run = window_renewed, .flags = CASE_COMPUTE},
    {0},
};
