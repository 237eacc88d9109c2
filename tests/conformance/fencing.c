/*
 * fencing.c - a peer that may be dead is shut out before anybody takes over from it:
 * fabric_fence_co, and rule binding-fence.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/suite.h"
#include "lib/fence.h"

enum {
    MEMBER = 300,
    INCARNATION = 7,
};

static const struct fabric_identity WRITER = {.member = MEMBER, .incarnation = INCARNATION};

#define CHANGED "the fenced writer changed word"

/* ---- what a fence does to the one that is fenced --------------------------------------------- */

static void wait_for_writer_co(struct client *client)
{
    uint64_t deadline_ns = rt_now_ns() + client->env->ops->patience_ns;
    while (get_co(client, AT) < 50) {
        CHECK(rt_now_ns() < deadline_ns);
        moment_co();
    }
}

struct range {
    uint64_t words[ENV_WRITER_BYTES / 8];
};

static void range_read_co(struct client *client, struct range *range)
{
    read_co(client, AT, range->words, ENV_WRITER_BYTES);
}

static void expect_same_co(struct client *client, const struct range *range)
{
    struct range now;
    range_read_co(client, &now);
    for (unsigned i = 0; i < ENV_WRITER_BYTES / 8; i++) {
        if (now.words[i] != range->words[i])
            CHECK_FAIL(CHANGED " %u from %" PRIu64 " to %" PRIu64, i, range->words[i],
                       now.words[i]);
    }
}

static void expect_frozen_co(struct client *client, const struct range *range)
{
    uint64_t end_ns = rt_now_ns() + client->env->ops->linger_ns;
    while (rt_now_ns() < end_ns) {
        expect_same_co(client, range);
        moment_co();
    }
}

static enum env_end expected_end(const struct client *client)
{
    return client->env->ops->fence_kills ? ENV_END_DEAD : ENV_END_FENCED;
}

/* The target does it by itself. */
static enum pando_status fence_own_co(struct fabric_endpoint *endpoint, struct fabric_identity dead)
{
    return fabric_call_co(endpoint, METHOD_FENCE_OWN, slice_of(&dead, sizeof(dead)), NULL, 0, NULL);
}

typedef enum pando_status (*fence_fn)(struct fabric_endpoint *endpoint,
                                      struct fabric_identity dead);

static void fence_paused_by_co(struct client *client, fence_fn how)
{
    struct range range;

    wait_for_writer_co(client);
    env_writer_pause_co(client->env);
    CHECK_OK(how(client->endpoint, WRITER));
    range_read_co(client, &range);
    CHECK_OK(how(client->endpoint, WRITER)); /* once more is no harm */
    expect_same_co(client, &range);
    env_writer_resume_co(client->env);
    expect_frozen_co(client, &range);
    CHECK(env_writer_end_co(client->env) == expected_end(client));
    expect_same_co(client, &range);
}

static void fence_paused_client(struct client *client)
{
    fence_paused_by_co(client, fence_co);
}

static void fence_own_client(struct client *client)
{
    fence_paused_by_co(client, fence_own_co);
    CHECK_STATUS(fence_own_co(client->endpoint, (struct fabric_identity){0, 1}), PANDO_INVALID);
}

/* It does not have to be paused: a fence cuts off whoever is at it. */
static void fence_running_client(struct client *client)
{
    struct range range;

    wait_for_writer_co(client);
    CHECK_OK(fence_co(client->endpoint, WRITER));
    range_read_co(client, &range);
    expect_frozen_co(client, &range);
    CHECK(env_writer_end_co(client->env) == expected_end(client));
    expect_same_co(client, &range);
}

static void fence_dead_client(struct client *client)
{
    struct range range;

    wait_for_writer_co(client);
    env_writer_kill_co(client->env);
    CHECK(env_writer_end_co(client->env) == ENV_END_DEAD);
    CHECK_OK(fence_co(client->endpoint, WRITER));
    range_read_co(client, &range);
    expect_frozen_co(client, &range);
    put_co(client, AT, 1);
    CHECK_EQ_U64(get_co(client, AT), 1);
}

/* ---- who is let in afterwards ---------------------------------------------------------------- */

struct entry {
    struct fabric *fabric;
    enum pando_status expected;
};

static void entry_task(void *arg)
{
    struct entry *entry = arg;
    struct fabric_endpoint *endpoint;

    enum pando_status status = fabric_connect_co(entry->fabric, ENV_TARGET, &endpoint);
    CHECK_STATUS(status, entry->expected);
    if (status != PANDO_OK)
        return;
    struct fabric_op op = fabric_faa(AT_FLAG, 1);
    CHECK_OK(fabric_submit_co(endpoint, &op, 1));
    fabric_disconnect_co(endpoint);
}

static void expect_entry(struct env *env, struct fabric_identity identity,
                         enum pando_status expected)
{
    struct entry entry = {.fabric = env_client(env, identity), .expected = expected};
    struct env_task task = {.fabric = entry.fabric, .fn = entry_task, .arg = &entry};
    env_run(env, &task, 1);
}

/* What the target itself says. */
static void expect_fenced_co(struct client *client, struct fabric_identity identity, bool fenced)
{
    uint64_t reply = UINT64_MAX;
    CHECK_OK(fabric_call_co(client->endpoint, METHOD_FENCED, slice_of(&identity, sizeof(identity)),
                            &reply, sizeof(reply), NULL));
    CHECK_EQ_U64(reply, fenced);
}

static void fenced_client(struct client *client)
{
    expect_fenced_co(client, WRITER, true);
    expect_fenced_co(client, (struct fabric_identity){MEMBER, INCARNATION - 1}, true);
    expect_fenced_co(client, (struct fabric_identity){MEMBER, INCARNATION + 1}, false);
    expect_fenced_co(client, (struct fabric_identity){MEMBER + 1, INCARNATION}, false);
    expect_fenced_co(client, (struct fabric_identity){0, 0}, false);
}

static void expect_entries(struct env *env)
{
    suite_clients(env, 1, fenced_client, NULL);
    expect_entry(env, WRITER, PANDO_FENCED);
    expect_entry(env, (struct fabric_identity){MEMBER, INCARNATION - 1}, PANDO_FENCED);
    expect_entry(env, (struct fabric_identity){MEMBER, 0}, PANDO_FENCED);
    expect_entry(env, (struct fabric_identity){MEMBER, INCARNATION + 1}, PANDO_OK);
    expect_entry(env, (struct fabric_identity){MEMBER + 1, INCARNATION}, PANDO_OK);
    expect_entry(env, (struct fabric_identity){MEMBER - 1, INCARNATION}, PANDO_OK);
    expect_entry(env, (struct fabric_identity){0, 0}, PANDO_OK);
}

static void fence(struct env *env, client_fn how)
{
    env_writer_start(env, WRITER, AT);
    suite_clients(env, 1, how, NULL);
    expect_entries(env);
}

/* A restarted target still knows. */
static void fence_paused_peer(struct env *env)
{
    fence(env, fence_paused_client);
    if (env->ops->compute)
        return; /* its fences go with its window */
    env_kill_target(env);
    env_restart_target(env);
    expect_entries(env);
}

static void fence_by_owner(struct env *env)
{
    fence(env, fence_own_client);
}

/* A call of it may wait for what is free again only when it is recovered: the owner does not wait for
 * the call. */
static void fence_caller_client(struct client *client)
{
    uint64_t call_ns = 2 * RT_NS_PER_S, begin_ns = rt_now_ns();
    if (client->index == 0) {
        enum pando_status status = fabric_call_co(
            client->endpoint, METHOD_SLEEP, slice_of(&call_ns, sizeof(call_ns)), NULL, 0, NULL);
        (void)status; /* whether the answer still gets through is the fabric's to say */
        return;
    }
    suite_sleep_co(client->env, 100); /* the call is there by now */
    CHECK_OK(fence_own_co(client->endpoint, (struct fabric_identity){10, 1}));
    CHECK(rt_now_ns() - begin_ns < call_ns);
    expect_fenced_co(client, (struct fabric_identity){10, 1}, true);
}

static void fence_caller_by_owner(struct env *env)
{
    if (!env->ops->fence_kills) /* that is this process */
        suite_clients(env, 2, fence_caller_client, NULL);
}

static void fence_running_peer(struct env *env)
{
    fence(env, fence_running_client);
}

static void fence_dead_peer(struct env *env)
{
    fence(env, fence_dead_client);
}

/* ---- fences of members that are not there ---------------------------------------------------- */

static void absent_client(struct client *client)
{
    struct fabric_endpoint *endpoint = client->endpoint;

    CHECK_STATUS(fence_co(endpoint, (struct fabric_identity){0, 1}), PANDO_INVALID);
    CHECK_STATUS(fence_co(endpoint, (struct fabric_identity){FABRIC_MEMBERS_MAX, 1}),
                 PANDO_INVALID);
    CHECK_STATUS(fence_co(endpoint, (struct fabric_identity){UINT16_MAX, 1}), PANDO_INVALID);

    CHECK_OK(fence_co(endpoint, (struct fabric_identity){MEMBER, INCARNATION - 1}));
    CHECK_OK(fence_co(endpoint, WRITER));
    CHECK_OK(fence_co(endpoint, WRITER));
    /* An older fence is contained in it and takes nothing back. */
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){MEMBER, INCARNATION - 2}));
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){FABRIC_MEMBERS_MAX - 1, 3}));
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){1, 0}));
    put_co(client, AT, 1); /* who fences others goes on */
}

static void fence_absent_peer(struct env *env)
{
    suite_clients(env, 1, absent_client, NULL);
    expect_entries(env);
    expect_entry(env, (struct fabric_identity){FABRIC_MEMBERS_MAX - 1, 3}, PANDO_FENCED);
    expect_entry(env, (struct fabric_identity){FABRIC_MEMBERS_MAX - 1, 4}, PANDO_OK);
    expect_entry(env, (struct fabric_identity){1, 0}, PANDO_FENCED);
    expect_entry(env, (struct fabric_identity){1, 1}, PANDO_OK);
}

/* ---- one process, its next life -------------------------------------------------------------- */

/* A new identity counts for endpoints connected from then on. */
static void rejoin_client(struct client *client)
{
    struct fabric *fabric = client->fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_identity from = {0};
    struct slice nothing = slice_of(NULL, 0);

    fabric_set_identity(fabric, (struct fabric_identity){MEMBER, INCARNATION + 5});
    CHECK_OK(fabric_connect_co(fabric, ENV_TARGET, &endpoint));
    CHECK_OK(fabric_call_co(endpoint, METHOD_IDENTITY, nothing, &from, sizeof(from), NULL));
    CHECK_EQ_U64(from.member, MEMBER);
    CHECK_EQ_U64(from.incarnation, INCARNATION + 5);
    CHECK_OK(fabric_call_co(client->endpoint, METHOD_IDENTITY, nothing, &from, sizeof(from), NULL));
    CHECK_EQ_U64(from.incarnation, INCARNATION);
    fabric_disconnect_co(endpoint);
}

static void next_incarnation(struct env *env)
{
    suite_threads(env, env_client(env, WRITER), 1, rejoin_client, NULL);
}

/* ---- the check itself ------------------------------------------------------------------------ */

/* All that comes, of which the beginning is kept. */
static void read_text(int fd, char *text, size_t bytes)
{
    char rest[512];
    size_t used = 0;
    ssize_t got;

    while ((got = read(fd, used < bytes - 1 ? text + used : rest,
                       used < bytes - 1 ? bytes - 1 - used : sizeof(rest))) > 0) {
        if (used < bytes - 1)
            used += (size_t)got;
    }
    text[used] = '\0';
}

/* Runs a case in a new process, which is to fail; what it says. */
static void run_to_fail(struct env *env, const struct suite_case *test,
                        const struct env_options *options, char *says, size_t bytes)
{
    int out[2], how;

    CHECK(pipe2(out, O_CLOEXEC) == 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (dup2(out[1], 2) != 2)
            _exit(3);
        suite_run_case(env->ops, test, options);
        _exit(0);
    }
    close(out[1]);
    read_text(out[0], says, bytes);
    close(out[0]);
    CHECK(waitpid(child, &how, 0) == child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) == 0)
        CHECK_FAIL("%s ended with status 0x%x and did not fail: %s", test->name, (unsigned)how,
                   says);
}

/* On a fabric whose fences do nothing, the case above has to fail. */
static void fencing_check_can_fail(struct env *env)
{
    struct suite_case test = {.name = "fence_paused_peer", .run = fence_paused_peer};
    struct env_options options = env->options;
    char says[512];

    options.no_fencing = true;
    run_to_fail(env, &test, &options, says, sizeof(says));
    if (strstr(says, CHANGED) == NULL)
        CHECK_FAIL("%s failed, but for another reason: %s", test.name, says);
}

const struct suite_case fencing_cases[] = {
    {.name = "fence_paused_peer", .run = fence_paused_peer},
    {.name = "fence_by_owner", .run = fence_by_owner},
    {.name = "fence_caller_by_owner", .run = fence_caller_by_owner},
    {.name = "fence_running_peer", .run = fence_running_peer},
    {.name = "fence_dead_peer", .run = fence_dead_peer},
    {.name = "fence_absent_peer", .run = fence_absent_peer},
    {.name = "next_incarnation", .run = next_incarnation},
    {.name = "fencing_check_can_fail", .run = fencing_check_can_fail, .flags = CASE_SIM},
    {0},
};
