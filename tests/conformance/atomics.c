/*
 * atomics.c - CAS and FAA among each other and with aligned 8-byte WRITEs: rule 3 of fabric.h.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "conformance/suite.h"

enum { COUNTERS_CLIENTS = 4 };

/* ---- one client: what they return ------------------------------------------------------------ */

static void results_at_co(struct client *client, uint64_t offset)
{
    struct fabric_op op;

    put_co(client, offset, 10);
    put_co(client, offset + 8, 77);
    op = fabric_cas(offset, 11, 12);
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
    CHECK_EQ_U64(op.old, 10);
    CHECK_EQ_U64(get_co(client, offset), 10);

    op = fabric_cas(offset, 10, UINT64_MAX - 1);
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
    CHECK_EQ_U64(op.old, 10);
    CHECK_EQ_U64(get_co(client, offset), UINT64_MAX - 1);

    op = fabric_faa(offset, 5); /* wraps, into no other word */
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
    CHECK_EQ_U64(op.old, UINT64_MAX - 1);
    CHECK_EQ_U64(get_co(client, offset), 3);

    op = fabric_faa(offset, (uint64_t)-4);
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
    CHECK_EQ_U64(op.old, 3);
    CHECK_EQ_U64(get_co(client, offset), UINT64_MAX);
    CHECK_EQ_U64(get_co(client, offset + 8), 77);
}

static void results_client(struct client *client)
{
    results_at_co(client, AT);
    results_at_co(client, at_device(client->env));
    results_at_co(client, env_device(client->env) + ENV_DEVICE_BYTES - 32);
    results_at_co(client, fabric_window_first(client->fabric));
    results_at_co(client, ENV_HOST_BYTES - 16);
}

static void atomics_results(struct env *env)
{
    suite_clients(env, 1, results_client, NULL);
}

/* ---- several clients: counters --------------------------------------------------------------- */

struct count_run {
    uint64_t offset;
    unsigned rounds;
    uint8_t *seen; /* which values were returned */
};

/* Each old value is given out once. */
static void faa_client(struct client *client)
{
    struct count_run *run = client->arg;
    for (unsigned i = 0; i < run->rounds; i++) {
        struct fabric_op ops[2] = {fabric_faa(run->offset, 1),
                                   fabric_faa(run->offset + 8, client->index + 1)};
        CHECK_OK(fabric_submit_co(client->endpoint, ops, 2));
        CHECK(ops[0].old < (uint64_t)COUNTERS_CLIENTS * run->rounds);
        CHECK(__atomic_exchange_n(&run->seen[ops[0].old], 1, __ATOMIC_RELAXED) == 0);
    }
}

static void cas_client(struct client *client)
{
    struct count_run *run = client->arg;
    uint64_t expected = 0;
    for (unsigned done = 0; done < run->rounds;) {
        struct fabric_op op = fabric_cas(run->offset + 16, expected, expected + 1);
        CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
        if (op.old == expected) {
            expected++;
            done++;
        } else {
            CHECK(op.old > expected);
            expected = op.old;
        }
    }
}

static void count_check(struct client *client)
{
    struct count_run *run = client->arg;
    uint64_t all = (uint64_t)COUNTERS_CLIENTS * run->rounds;
    CHECK_EQ_U64(get_co(client, run->offset), all);
    CHECK_EQ_U64(get_co(client, run->offset + 8), (1 + 2 + 3 + 4) * (uint64_t)run->rounds);
    CHECK_EQ_U64(get_co(client, run->offset + 16), all);
    for (uint64_t i = 0; i < all; i++)
        CHECK(run->seen[i] == 1);
}

static void atomics_count(struct env *env, uint64_t offset)
{
    struct count_run run = {.offset = offset, .rounds = env_rounds(env, 50)};
    run.seen = allocate((size_t)COUNTERS_CLIENTS * run.rounds);
    suite_clients(env, COUNTERS_CLIENTS, faa_client, &run);
    suite_clients(env, COUNTERS_CLIENTS, cas_client, &run);
    suite_clients(env, 1, count_check, &run);
    free(run.seen);
}

static void atomics_count_host(struct env *env)
{
    atomics_count(env, AT);
}

static void atomics_count_device(struct env *env)
{
    atomics_count(env, at_device(env));
}

/* ---- atomics against WRITEs ------------------------------------------------------------------ */

enum { LOCK_CLIENTS = 3 };

struct lock_run {
    uint64_t lock;
    uint64_t counter; /* changed only by who holds the lock, by READ and WRITE */
    _Atomic unsigned inside;
    _Atomic uint64_t contended;
};

static void lock_client(struct client *client)
{
    struct lock_run *run = client->arg;
    uint64_t zero = 0;

    for (unsigned done = 0; done < env_rounds(client->env, 20);) {
        struct fabric_op take = fabric_cas(run->lock, 0, client->index + 1);
        CHECK_OK(fabric_submit_co(client->endpoint, &take, 1));
        if (take.old != 0) {
            CHECK(take.old <= LOCK_CLIENTS && take.old != client->index + 1);
            atomic_fetch_add(&run->contended, 1);
            moment_co();
            continue;
        }
        CHECK(atomic_fetch_add(&run->inside, 1) == 0);
        put_co(client, run->counter, get_co(client, run->counter) + 1);
        CHECK(atomic_fetch_sub(&run->inside, 1) == 1);
        struct fabric_op release = fabric_write(run->lock, &zero, 8);
        CHECK_OK(fabric_submit_co(client->endpoint, &release, 1));
        done++;
    }
}

static void lock_check(struct client *client)
{
    struct lock_run *run = client->arg;
    CHECK_EQ_U64(get_co(client, run->counter), LOCK_CLIENTS * env_rounds(client->env, 20));
    CHECK_EQ_U64(get_co(client, run->lock), 0);
}

static void lock_by_cas_and_write(struct env *env)
{
    const uint64_t locks[] = {AT_LOCK, at_device(env)};
    for (unsigned i = 0; i < 2; i++) {
        struct lock_run run = {.lock = locks[i], .counter = AT + 8 * i};
        suite_clients(env, LOCK_CLIENTS, lock_client, &run);
        suite_clients(env, 1, lock_check, &run);
        CHECK(run.contended > 0 || !env->ops->simulated);
    }
}

/* One client WRITEs a word and expects to find what it wrote, while others try a CAS that cannot
 * succeed and add nothing: neither may bring an old value back. */
struct intact_run {
    uint64_t offset;
    _Atomic bool stop;
};

static void intact_client(struct client *client)
{
    struct intact_run *run = client->arg;
    if (client->index == 0) {
        for (uint64_t n = 1; n <= env_rounds(client->env, 100); n++) {
            put_co(client, run->offset, n);
            CHECK_EQ_U64(get_co(client, run->offset), n);
        }
        atomic_store(&run->stop, true);
        return;
    }
    uint64_t last = 0;
    while (!atomic_load(&run->stop)) {
        struct fabric_op op = client->index == 1 ? fabric_cas(run->offset, UINT64_MAX, 1u << 31)
                                                 : fabric_faa(run->offset, 0);
        CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
        CHECK(op.old >= last);
        last = op.old;
    }
}

static void writes_survive_atomics(struct env *env)
{
    struct intact_run run = {.offset = AT};
    suite_clients(env, 3, intact_client, &run);
    run = (struct intact_run){.offset = at_device(env)};
    suite_clients(env, 3, intact_client, &run);
}

const struct suite_case atomics_cases[] = {
    {.name = "atomics_results", .run = atomics_results},
    {.name = "atomics_count_host", .run = atomics_count_host},
    {.name = "atomics_count_device", .run = atomics_count_device},
    {.name = "lock_by_cas_and_write", .run = lock_by_cas_and_write},
    {.name = "writes_survive_atomics", .run = writes_survive_atomics},
    {0},
};
