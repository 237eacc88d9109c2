/*
 * peers.c - connecting: who is there, who is let in, several endpoints and threads of one process.
 */
#include "conformance/suite.h"

/* ---- what an endpoint says about itself ------------------------------------------------------ */

static void facts_client(struct client *client)
{
    CHECK_EQ_U64(fabric_endpoint_node(client->endpoint), ENV_TARGET);
    CHECK(fabric_endpoint_target(client->endpoint) == env_target_kind(client->env->ops));
    CHECK(!fabric_broken(client->endpoint));
    CHECK(fabric_self(client->fabric) != ENV_TARGET);
    CHECK(fabric_window_first(client->fabric) >= 8);
    fabric_address address = fabric_address_make(513, FABRIC_DEVICE + 8);
    CHECK_EQ_U64(fabric_address_node(address), 513);
    CHECK_EQ_U64(fabric_address_offset(address), FABRIC_DEVICE + 8);
}

static void endpoint_facts(struct env *env)
{
    suite_clients(env, 1, facts_client, NULL);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void nobody_client(struct client *client)
{
    struct fabric_endpoint *endpoint;
    CHECK_STATUS(fabric_connect_co(client->fabric, 4242, &endpoint), PANDO_NOT_FOUND);
    put_co(client, AT, 1);
}

static void connect_to_nobody(struct env *env)
{
    suite_clients(env, 1, nobody_client, NULL);
}

/* A wrong location, and then the right one for the same node. */
struct moved_run {
    struct fabric *fabric;
    bool found;
};

static void moved_task(void *arg)
{
    struct moved_run *run = arg;
    struct fabric_endpoint *endpoint;
    uint64_t start_ns = rt_now_ns();

    enum pando_status status = fabric_connect_co(run->fabric, ENV_TARGET, &endpoint);
    CHECK(rt_now_ns() - start_ns < 15 * RT_NS_PER_S);
    if (!run->found) {
        CHECK(status == PANDO_BROKEN || status == PANDO_TIMEOUT);
        return;
    }
    CHECK_OK(status);
    struct fabric_op op = fabric_faa(AT, 1);
    CHECK_OK(fabric_submit_co(endpoint, &op, 1));
    fabric_disconnect_co(endpoint);
}

static void peer_is_found_elsewhere(struct env *env)
{
    struct moved_run run = {.fabric = env_client(env, (struct fabric_identity){5, 1})};
    struct env_task task = {.fabric = run.fabric, .fn = moved_task, .arg = &run};

    env_misplace_target(env, run.fabric);
    env_run(env, &task, 1);
    env_place_target(env, run.fabric);
    run.found = true;
    env_run(env, &task, 1);
}

static void denied_task(void *arg)
{
    struct fabric_endpoint *endpoint;
    CHECK_STATUS(fabric_connect_co(arg, ENV_TARGET, &endpoint), PANDO_DENIED);
}

static void wrong_secret_is_denied(struct env *env)
{
    struct fabric *stranger =
        env_client_with(env, (struct env_client){.identity = {5, 1}, .wrong_secret = true});
    struct env_task task = {.fabric = stranger, .fn = denied_task, .arg = stranger};
    env_run(env, &task, 1);
    suite_clients(env, 1, facts_client, NULL);
}

/* ---- which window is there ------------------------------------------------------------------- */

static uint64_t refusals_co(struct client *client)
{
    uint64_t refusals = 0;
    uint32_t size = 0;
    CHECK_OK(fabric_call_co(client->endpoint, METHOD_REFUSALS, slice_of("", 0), &refusals,
                            sizeof(refusals), &size));
    CHECK_EQ_U64(size, sizeof(refusals));
    return refusals;
}

/* Refused by the target itself; who expects none is let in. Compute nodes let everybody in: their
 * windows come and go. */
static void window_client(struct client *client)
{
    uint64_t window = fabric_endpoint_window(client->endpoint);
    const uint64_t expected[] = {window, 0, window ^ 2, window, window ^ (uint64_t)1 << 63};
    struct fabric_endpoint *endpoint;

    CHECK(window != 0);
    for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        bool right = client->env->ops->compute || expected[i] == 0 || expected[i] == window;
        enum pando_status status =
            fabric_connect_window_co(client->fabric, ENV_TARGET, expected[i], &endpoint);
        CHECK_STATUS(status, right ? PANDO_OK : PANDO_INVALID);
        if (right) {
            CHECK_EQ_U64(fabric_endpoint_window(endpoint), window);
            fabric_disconnect_co(endpoint);
        }
    }
    CHECK_EQ_U64(refusals_co(client), client->env->ops->compute ? 0 : 2);
    put_co(client, AT, 1); /* what was connected has not suffered */
}

static void another_window_is_refused(struct env *env)
{
    suite_clients(env, 1, window_client, NULL);
}

/* ---- many endpoints -------------------------------------------------------------------------- */

static void again_client(struct client *client)
{
    enum { AT_ONCE = 20 };
    struct fabric_endpoint *endpoints[AT_ONCE];
    unsigned rounds = client->env->ops->simulated ? 3 : 10;

    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < AT_ONCE; i++)
            CHECK_OK(fabric_connect_co(client->fabric, ENV_TARGET, &endpoints[i]));
        for (unsigned i = 0; i < AT_ONCE; i++) {
            struct fabric_op op = fabric_faa(AT, 1);
            CHECK_OK(fabric_submit_co(endpoints[i], &op, 1));
            CHECK_EQ_U64(op.old, round * AT_ONCE + i);
            CHECK_EQ_U64(fabric_endpoint_counters(endpoints[i])->lists, 1);
        }
        for (unsigned i = 0; i < AT_ONCE; i++)
            fabric_disconnect_co(endpoints[i]);
    }
}

static void connect_again_and_again(struct env *env)
{
    suite_clients(env, 1, again_client, NULL);
}

static void thread_client(struct client *client)
{
    uint8_t bytes[100], in[100];
    for (unsigned i = 0; i < env_rounds(client->env, 50); i++) {
        struct fabric_op faa = fabric_faa(AT_FLAG, 1);
        CHECK_OK(fabric_submit_co(client->endpoint, &faa, 1));
        pattern_fill(bytes, i, client->index, sizeof(bytes));
        write_co(client, AT + 1000 * client->index, bytes, sizeof(bytes));
        read_co(client, AT + 1000 * client->index, in, sizeof(in));
        pattern_check(in, i, client->index, sizeof(in));
    }
}

static void thread_check(struct client *client)
{
    CHECK_EQ_U64(get_co(client, AT_FLAG), 3 * (uint64_t)env_rounds(client->env, 50));
}

static void threads_of_one_process(struct env *env)
{
    struct fabric *fabric = env_client(env, (struct fabric_identity){5, 1});
    suite_threads(env, fabric, 3, thread_client, NULL);
    suite_clients(env, 1, thread_check, NULL);
}

const struct suite_case peers_cases[] = {
    {.name = "endpoint_facts", .run = endpoint_facts},
    {.name = "connect_to_nobody", .run = connect_to_nobody},
    {.name = "peer_is_found_elsewhere", .run = peer_is_found_elsewhere, .flags = CASE_REAL},
    {.name = "another_window_is_refused", .run = another_window_is_refused},
    {.name = "wrong_secret_is_denied", .run = wrong_secret_is_denied, .flags = CASE_SECRET},
    {.name = "connect_again_and_again", .run = connect_again_and_again},
    {.name = "threads_of_one_process", .run = threads_of_one_process},
    {0},
};
