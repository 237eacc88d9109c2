/*
 * calls.c - requests and replies, and what the target's own processor sees: rule 4 of fabric.h.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "conformance/suite.h"

static enum pando_status call_co(struct client *client, enum suite_method method, const void *body,
                                 size_t size, void *reply, uint32_t capacity, uint32_t *reply_size)
{
    return fabric_call_co(client->endpoint, (uint16_t)method, slice_of(body, size), reply, capacity,
                          reply_size);
}

/* ---- bodies, statuses, sizes ----------------------------------------------------------------- */

static void echo_co(struct client *client, uint32_t size, uint64_t stream)
{
    uint8_t *body = allocate(size), *reply = allocate(size + 1);
    uint32_t reply_size = UINT32_MAX;

    pattern_fill(body, stream, 0, size);
    CHECK_OK(call_co(client, METHOD_ECHO, body, size, reply, size + 1, &reply_size));
    CHECK_EQ_U64(reply_size, size);
    pattern_check(reply, stream, 0, size);
    CHECK(reply[size] == 0);
    free(reply);
    free(body);
}

static void echo_client(struct client *client)
{
    static const uint32_t sizes[] = {0, 1, 7, 8, 9, 1000, 4096, 65535, FABRIC_CALL_BYTES_MAX};
    uint8_t *large = allocate(FABRIC_CALL_BYTES_MAX + 1);

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        echo_co(client, sizes[i], i);
    CHECK_OK(call_co(client, METHOD_ECHO, NULL, 0, NULL, 0, NULL));
    CHECK_OK(call_co(client, METHOD_ECHO, large, 100, NULL, 0, NULL));
    CHECK_STATUS(call_co(client, METHOD_ECHO, large, FABRIC_CALL_BYTES_MAX + 1, NULL, 0, NULL),
                 PANDO_TOO_LARGE);
    echo_co(client, 1, 99);
    free(large);
}

static void call_bodies(struct env *env)
{
    suite_clients(env, 1, echo_client, NULL);
}

/* Also those that a transport may have: they say nothing about the endpoint. */
static void status_client(struct client *client)
{
    for (uint32_t status = 0; status < PANDO_STATUS_COUNT; status++) {
        uint32_t reply = UINT32_MAX, reply_size = 0;
        CHECK_STATUS(call_co(client, METHOD_STATUS, &status, 4, &reply, 4, &reply_size),
                     (enum pando_status)status);
        CHECK_EQ_U64(reply_size, 4);
        CHECK_EQ_U64(reply, status);
        CHECK(!fabric_broken(client->endpoint));
    }
    CHECK_STATUS(call_co(client, (enum suite_method)60000, NULL, 0, NULL, 0, NULL),
                 PANDO_NOT_FOUND);
    struct fabric_identity from = {0};
    CHECK_OK(call_co(client, METHOD_IDENTITY, NULL, 0, &from, sizeof(from), NULL));
    CHECK_EQ_U64(from.member, 10);
    CHECK_EQ_U64(from.incarnation, 1);
}

static void call_statuses(struct env *env)
{
    suite_clients(env, 1, status_client, NULL);
}

/* The size is that of the reply, and bytes beyond the capacity stay as they were. */
static void long_reply_client(struct client *client)
{
    static const uint32_t capacities[] = {0, 1, 8, 100, 4095, 4096};
    static const uint32_t sizes[] = {4096, FABRIC_CALL_BYTES_MAX};

    for (unsigned i = 0; i < 2; i++) {
        for (unsigned j = 0; j < sizeof(capacities) / sizeof(capacities[0]); j++) {
            uint8_t *reply = allocate(sizes[i]);
            uint32_t reply_size = 0;
            memset(reply, 0xee, sizes[i]);
            CHECK_OK(call_co(client, METHOD_SIZE, &sizes[i], 4, reply, capacities[j], &reply_size));
            CHECK_EQ_U64(reply_size, sizes[i]);
            pattern_check(reply, 0, 0, capacities[j]);
            for (uint32_t at = capacities[j]; at < sizes[i]; at++)
                CHECK(reply[at] == 0xee);
            free(reply);
        }
    }
}

static void call_long_replies(struct env *env)
{
    suite_clients(env, 1, long_reply_client, NULL);
}

static void no_handler_client(struct client *client)
{
    uint32_t reply_size = 1;
    CHECK_STATUS(call_co(client, METHOD_ECHO, "x", 1, NULL, 0, &reply_size), PANDO_UNSUPPORTED);
    CHECK_EQ_U64(reply_size, 0);
    CHECK(!fabric_broken(client->endpoint));
    put_co(client, AT, 1);
}

static void call_without_handler(struct env *env)
{
    suite_clients(env, 1, no_handler_client, NULL);
}

/* ---- many at once ---------------------------------------------------------------------------- */

enum {
    CALLERS = 200, /* tasks on each loop */
    CALL_CLIENTS = 2,
};

struct callers {
    struct client *client;
    unsigned left;
    struct rt_waitq done;
};

static void caller(void *arg)
{
    struct callers *callers = arg;
    unsigned rounds = env_call_rounds(callers->client->env, 2);

    for (unsigned i = 0; i < rounds; i++)
        echo_co(callers->client, (uint32_t)(rt_random() % 3000), rt_random());
    if (--callers->left == 0)
        rt_waitq_wake_all(&callers->done);
}

static void callers_client(struct client *client)
{
    struct callers callers = {.client = client, .left = CALLERS};
    rt_waitq_init(&callers.done);
    for (unsigned i = 0; i < CALLERS; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), caller, &callers));
    CHECK_OK(rt_waitq_wait_co(&callers.done, RT_NEVER));
    CHECK_EQ_U64(fabric_endpoint_counters(client->endpoint)->calls,
                 CALLERS * env_call_rounds(client->env, 2));
}

static void many_calls(struct env *env)
{
    suite_clients(env, CALL_CLIENTS, callers_client, NULL);
}

/* ---- a handler that takes its time ----------------------------------------------------------- */

struct sleeper {
    struct client *client;
    uint64_t duration_ns;
    bool asleep;
    bool done;
};

static void sleeper_task(void *arg)
{
    struct sleeper *sleeper = arg;
    sleeper->asleep = true;
    CHECK_OK(call_co(sleeper->client, METHOD_SLEEP, &sleeper->duration_ns, 8, NULL, 0, NULL));
    sleeper->done = true;
}

static void sleeping_client(struct client *client)
{
    bool simulated = client->env->ops->simulated;
    struct sleeper sleeper = {.client = client,
                              .duration_ns = simulated ? RT_NS_PER_S : 400 * RT_NS_PER_MS};
    uint64_t start_ns = rt_now_ns();

    CHECK_OK(rt_spawn(rt_loop_self(), sleeper_task, &sleeper));
    while (!sleeper.asleep)
        rt_sleep_co(1000);
    suite_sleep_co(client->env, 20); /* the request is there by now */
    for (uint64_t n = 1; n <= 100; n++) {
        put_co(client, AT, n);
        CHECK_EQ_U64(get_co(client, AT), n);
    }
    echo_co(client, 100, 1); /* nor does it hold up other calls */
    if (rt_now_ns() - start_ns < sleeper.duration_ns)
        CHECK(!sleeper.done);
    else
        printf("  too slow here to tell\n");
    while (!sleeper.done)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK(rt_now_ns() - start_ns >= sleeper.duration_ns);
}

static void sleeping_handler(struct env *env)
{
    suite_clients(env, 1, sleeping_client, NULL);
}

/* ---- the target's own processor -------------------------------------------------------------- */

enum { SEEN_BYTES = 300 };

struct seen_run {
    uint64_t rounds;
};

static void self_read_co(struct client *client, uint64_t offset, uint64_t stream)
{
    struct self_range range = {.offset = offset, .size = SEEN_BYTES};
    uint8_t reply[SEEN_BYTES] = {0};
    uint32_t reply_size = 0;
    CHECK_OK(
        call_co(client, METHOD_SELF_READ, &range, sizeof(range), reply, SEEN_BYTES, &reply_size));
    CHECK_EQ_U64(reply_size, SEEN_BYTES);
    pattern_check(reply, stream, 0, SEEN_BYTES);
}

/* Each writes to a place of its own and calls behind it, on the same endpoint. */
static void seen_client(struct client *client)
{
    struct seen_run *run = client->arg;
    uint64_t at = AT + 3 + client->index * 1024;
    uint8_t bytes[SEEN_BYTES];

    for (uint64_t n = 1; n <= run->rounds; n++) {
        pattern_fill(bytes, n, 0, SEEN_BYTES);
        write_co(client, at, bytes, SEEN_BYTES);
        self_read_co(client, at, n);
    }
}

static void handler_sees_completed_writes(struct env *env)
{
    struct seen_run run = {.rounds = env_call_rounds(env, 20)};
    suite_clients(env, 2, seen_client, &run);
}

/* Behind WRITEs of others there is no such promise, and in the simulator no such luck. */
struct late_run {
    uint64_t rounds;
    uint64_t stale;
    _Atomic uint64_t written;
    _Atomic uint64_t looked;
};

static void late_client(struct client *client)
{
    struct late_run *run = client->arg;
    struct self_range range = {.offset = AT, .size = 8};

    for (uint64_t n = 1; n <= run->rounds; n++) {
        if (client->index == 0) {
            put_co(client, AT, n);
            atomic_store(&run->written, n);
            while (atomic_load(&run->looked) < n)
                moment_co();
        } else {
            uint64_t seen = 0;
            while (atomic_load(&run->written) < n)
                moment_co();
            CHECK_OK(call_co(client, METHOD_SELF_READ, &range, sizeof(range), &seen, 8, NULL));
            CHECK(seen <= n);
            run->stale += seen < n;
            CHECK_EQ_U64(get_co(client, AT), n);
            atomic_store(&run->looked, n);
        }
    }
}

static void handler_sees_others_late(struct env *env)
{
    struct late_run run = {.rounds = 100};
    suite_clients(env, 2, late_client, &run);
    CHECK(run.stale > 0);
}

/* What the target writes by itself is there for READs posted after its reply. */
static void self_write_client(struct client *client)
{
    struct {
        uint64_t offset;
        uint8_t bytes[SEEN_BYTES];
    } body;
    uint8_t bytes[SEEN_BYTES];

    for (uint64_t n = 1; n <= env_call_rounds(client->env, 5); n++) {
        body.offset = AT + n % 16;
        pattern_fill(body.bytes, n, 0, SEEN_BYTES);
        CHECK_OK(call_co(client, METHOD_SELF_WRITE, &body, 8 + SEEN_BYTES, NULL, 0, NULL));
        read_co(client, body.offset, bytes, SEEN_BYTES);
        pattern_check(bytes, n, 0, SEEN_BYTES);
        self_read_co(client, body.offset, n);
    }
    struct self_range outside[] = {{0, 8}, {ENV_HOST_BYTES - 4, 8}, {UINT64_MAX - 3, 8}};
    for (unsigned i = 0; i < 3; i++) {
        CHECK_STATUS(
            call_co(client, METHOD_SELF_READ, &outside[i], sizeof(outside[i]), NULL, 0, NULL),
            PANDO_RANGE);
        body.offset = outside[i].offset;
        CHECK_STATUS(call_co(client, METHOD_SELF_WRITE, &body, 8 + 8, NULL, 0, NULL), PANDO_RANGE);
    }
}

static void handler_writes_are_visible(struct env *env)
{
    suite_clients(env, 1, self_write_client, NULL);
}

/* ---- the target's endpoint to itself --------------------------------------------------------- */

static void self_lists_client(struct client *client)
{
    const uint64_t offsets[] = {AT, at_device(client->env)};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t seen = 0;
        CHECK_OK(call_co(client, METHOD_SELF_LISTS, &offsets[i], 8, &seen, 8, NULL));
        CHECK_EQ_U64(seen, 7);
        CHECK_EQ_U64(get_co(client, offsets[i]), 7);
    }
}

/* The target's atomics and those of others are of one kind. */
static void self_faa_client(struct client *client)
{
    struct self_faa faa = {.offset = AT + 64, .addend = 3};
    for (unsigned i = 0; i < env_call_rounds(client->env, 10); i++) {
        if (client->index == 0) {
            CHECK_OK(call_co(client, METHOD_SELF_FAA, &faa, sizeof(faa), NULL, 0, NULL));
        } else {
            struct fabric_op op = fabric_faa(AT + 64, 1);
            CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
        }
    }
}

static void self_faa_check(struct client *client)
{
    CHECK_EQ_U64(get_co(client, AT + 64), (3 + 1 + 1) * (uint64_t)env_call_rounds(client->env, 10));
}

/* "After an atomic of its own on its own window": the call was there long before the WRITE. */
static void watching_client(struct client *client)
{
    uint8_t bytes[SEEN_BYTES];
    for (uint64_t n = 1; n <= 5; n++) {
        struct self_watch watch = {
            .flag = AT_FLAG, .value = n, .range = {.offset = AT + 3, .size = SEEN_BYTES}};
        if (client->index == 0) {
            CHECK_OK(
                call_co(client, METHOD_SELF_WATCH, &watch, sizeof(watch), bytes, SEEN_BYTES, NULL));
            pattern_check(bytes, n, 0, SEEN_BYTES);
            put_co(client, AT_FLAG + 8, n);
        } else {
            suite_sleep_co(client->env, 5);
            pattern_fill(bytes, n, 0, SEEN_BYTES);
            write_co(client, AT + 3, bytes, SEEN_BYTES);
            put_co(client, AT_FLAG, n);
            while (get_co(client, AT_FLAG + 8) < n)
                moment_co();
        }
    }
}

static void endpoint_to_itself(struct env *env)
{
    suite_clients(env, 1, self_lists_client, NULL);
    suite_clients(env, 3, self_faa_client, NULL);
    suite_clients(env, 1, self_faa_check, NULL);
    suite_clients(env, 2, watching_client, NULL);
}

const struct suite_case calls_cases[] = {
    {.name = "call_bodies", .run = call_bodies},
    {.name = "call_statuses", .run = call_statuses},
    {.name = "call_long_replies", .run = call_long_replies},
    {.name = "call_without_handler", .run = call_without_handler, .flags = CASE_NO_HANDLER},
    {.name = "many_calls", .run = many_calls},
    {.name = "sleeping_handler", .run = sleeping_handler},
    {.name = "handler_sees_completed_writes", .run = handler_sees_completed_writes},
    {.name = "handler_sees_others_late", .run = handler_sees_others_late, .flags = CASE_CHAOS},
    {.name = "handler_writes_are_visible", .run = handler_writes_are_visible},
    {.name = "endpoint_to_itself", .run = endpoint_to_itself},
    {0},
};
