/*
 * order.c - what is ordered, in a list and between lists: rules 2 and 4 of fabric.h; and, in the
 * simulator, that what is not ordered does get out of order.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "conformance/suite.h"

/* ---- one client sees its own effects in order ------------------------------------------------ */

static void own_data_client(struct client *client)
{
    uint8_t out[256], in[256];

    for (unsigned round = 1; round <= env_rounds(client->env, 50); round++) {
        uint64_t value = 2 * (uint64_t)round, next = value + 1;
        uint64_t seen[3] = {0}, device = at_device(client->env);

        pattern_fill(out, round, 0, sizeof(out));
        struct fabric_op ops[] = {
            fabric_write(AT, out, sizeof(out)),   fabric_read(AT, in, sizeof(in)),
            fabric_write(AT_FLAG, &value, 8),     fabric_faa(AT_FLAG, 1),
            fabric_read(AT_FLAG, &seen[0], 8),    fabric_write(AT_FLAG + 8, &value, 8),
            fabric_cas(AT_FLAG + 8, value, next), fabric_read(AT_FLAG + 8, &seen[1], 8),
            fabric_write(device, &next, 8),       fabric_read(device, &seen[2], 8),
        };
        CHECK_OK(fabric_submit_co(client->endpoint, ops, sizeof(ops) / sizeof(ops[0])));
        pattern_check(in, round, 0, sizeof(in));
        CHECK_EQ_U64(ops[3].old, value);
        CHECK_EQ_U64(seen[0], next);
        CHECK_EQ_U64(ops[6].old, value);
        CHECK_EQ_U64(seen[1], next);
        CHECK_EQ_U64(seen[2], next);
    }
}

static void own_effects_in_order(struct env *env)
{
    suite_clients(env, 1, own_data_client, NULL);
}

/* The last of overlapping WRITEs in a list stays. */
static void overlapping_client(struct client *client)
{
    uint8_t first[200], second[100], in[200];

    for (unsigned round = 0; round < env_rounds(client->env, 50); round++) {
        memset(first, (int)(2 * round), sizeof(first));
        memset(second, (int)(2 * round + 1), sizeof(second));
        struct fabric_op ops[] = {fabric_write(AT + 3, first, 200),
                                  fabric_write(AT + 50, second, 100)};
        CHECK_OK(fabric_submit_co(client->endpoint, ops, 2));
        read_co(client, AT + 3, in, 200);
        memcpy(first + 47, second, 100);
        CHECK(memcmp(in, first, 200) == 0);
    }
}

static void overlapping_writes_in_order(struct env *env)
{
    suite_clients(env, 1, overlapping_client, NULL);
}

/* ---- whoever sees the flag sees the data ----------------------------------------------------- */

enum {
    FLAG_WORDS = 32,
    FLAG_CLIENTS = 3, /* the first one writes */
};

/* How the flag is set, behind WRITEs of the data in one list; and how it is looked at: by a READ
 * and the data in a later list, or by an atomic and the data in the same. */
enum flag_kind { FLAG_PLAIN, FLAG_CAS, FLAG_FAA, FLAG_KINDS };

struct flag_run {
    enum flag_kind set;
    enum flag_kind look;
    uint64_t flag;
    uint64_t rounds;
};

/* Rising numbers, in two ranges. */
static void flag_writer(struct client *client, const struct flag_run *run)
{
    uint64_t words[2 * FLAG_WORDS];
    for (uint64_t n = 1; n <= run->rounds; n++) {
        for (unsigned i = 0; i < 2 * FLAG_WORDS; i++)
            words[i] = n;
        struct fabric_op ops[] = {fabric_write(AT + 4096, words, FLAG_WORDS * 8),
                                  fabric_write(AT, words + FLAG_WORDS, FLAG_WORDS * 8),
                                  fabric_write(run->flag, &n, 8)};
        if (run->set == FLAG_CAS)
            ops[2] = fabric_cas(run->flag, n - 1, n);
        else if (run->set == FLAG_FAA)
            ops[2] = fabric_faa(run->flag, 1);
        CHECK_OK(fabric_submit_co(client->endpoint, ops, 3));
        if (run->set != FLAG_PLAIN)
            CHECK_EQ_U64(ops[2].old, n - 1);
    }
}

static uint64_t flag_look_co(struct client *client, const struct flag_run *run, uint64_t *words)
{
    struct fabric_op ops[] = {fabric_faa(run->flag, 0), fabric_read(AT, words, FLAG_WORDS * 8),
                              fabric_read(AT + 4096, words + FLAG_WORDS, FLAG_WORDS * 8)};
    if (run->look == FLAG_PLAIN) {
        uint64_t flag = get_co(client, run->flag);
        CHECK_OK(fabric_submit_co(client->endpoint, &ops[1], 2));
        return flag;
    }
    if (run->look == FLAG_CAS)
        ops[0] = fabric_cas(run->flag, UINT64_MAX, 0); /* it fails */
    CHECK_OK(fabric_submit_co(client->endpoint, ops, 3));
    return ops[0].old;
}

static void flag_client(struct client *client)
{
    const struct flag_run *run = client->arg;
    uint64_t words[2 * FLAG_WORDS], flag;

    if (client->index == 0) {
        flag_writer(client, run);
        return;
    }
    do {
        flag = flag_look_co(client, run, words);
        for (unsigned i = 0; i < 2 * FLAG_WORDS; i++) {
            if (words[i] < flag)
                CHECK_FAIL("saw flag %" PRIu64 ", set by %d, looked at by %d, and then %" PRIu64
                           " in word %u",
                           flag, run->set, run->look, words[i], i);
        }
    } while (flag < run->rounds);
}

static void flag_reset(struct client *client)
{
    const struct flag_run *run = client->arg;
    put_co(client, run->flag, 0);
    fill_words_co(client, AT, 0, FLAG_WORDS);
    fill_words_co(client, AT + 4096, 0, FLAG_WORDS);
}

static void flags_at(struct env *env, uint64_t flag)
{
    for (int set = 0; set < FLAG_KINDS; set++) {
        for (int look = 0; look < FLAG_KINDS; look++) {
            struct flag_run run = {.set = (enum flag_kind)set,
                                   .look = (enum flag_kind)look,
                                   .flag = flag,
                                   .rounds = env_rounds(env, 25)};
            suite_clients(env, 1, flag_reset, &run);
            suite_clients(env, FLAG_CLIENTS, flag_client, &run);
        }
    }
}

static void flag_behind_data(struct env *env)
{
    flags_at(env, AT_FLAG);
}

static void flag_behind_data_device(struct env *env)
{
    flags_at(env, at_device(env));
}

/* ---- a lock ---------------------------------------------------------------------------------- */

enum {
    LOCK_WORDS = 48,
    LOCK_CLIENTS = 3,
};

struct guarded_run {
    uint64_t lock;
    unsigned rounds;
};

/* [CAS lock][READ data] and [WRITE data][WRITE 0 to the lock]. All words are the same number
 * whenever nobody holds the lock. */
static void guarded_client(struct client *client)
{
    const struct guarded_run *run = client->arg;
    uint64_t words[2 * LOCK_WORDS], zero = 0;

    for (unsigned done = 0; done < run->rounds;) {
        struct fabric_op take[] = {
            fabric_cas(run->lock, 0, client->index + 1),
            fabric_read(AT, words, LOCK_WORDS * 8),
            fabric_read(AT + 8192, words + LOCK_WORDS, LOCK_WORDS * 8),
        };
        CHECK_OK(fabric_submit_co(client->endpoint, take, 3));
        if (take[0].old != 0) {
            moment_co();
            continue;
        }
        for (unsigned i = 1; i < 2 * LOCK_WORDS; i++) {
            if (words[i] != words[0])
                CHECK_FAIL("under the lock word %u is %" PRIu64 " and word 0 is %" PRIu64, i,
                           words[i], words[0]);
        }
        uint64_t next = words[0] + 1;
        for (unsigned i = 0; i < 2 * LOCK_WORDS; i++)
            words[i] = next;
        struct fabric_op release[] = {
            fabric_write(AT, words, LOCK_WORDS * 8),
            fabric_write(AT + 8192, words + LOCK_WORDS, LOCK_WORDS * 8),
            fabric_write(run->lock, &zero, 8),
        };
        CHECK_OK(fabric_submit_co(client->endpoint, release, 3));
        done++;
    }
}

static void guarded_check(struct client *client)
{
    const struct guarded_run *run = client->arg;
    CHECK_EQ_U64(get_co(client, AT), LOCK_CLIENTS * run->rounds);
    CHECK_EQ_U64(get_co(client, AT + 8192 + 8 * (LOCK_WORDS - 1)), LOCK_CLIENTS * run->rounds);
}

static void guarded_reset(struct client *client)
{
    fill_words_co(client, AT, 0, LOCK_WORDS);
    fill_words_co(client, AT + 8192, 0, LOCK_WORDS);
}

static void read_behind_lock(struct env *env)
{
    const uint64_t locks[] = {AT_LOCK, at_device(env)};
    for (unsigned i = 0; i < 2; i++) {
        struct guarded_run run = {.lock = locks[i], .rounds = env_rounds(env, 30)};
        suite_clients(env, 1, guarded_reset, &run);
        suite_clients(env, LOCK_CLIENTS, guarded_client, &run);
        suite_clients(env, 1, guarded_check, &run);
    }
}

/* ---- Dekker ---------------------------------------------------------------------------------- */

struct dekker_run {
    unsigned rounds;
    uint64_t *saw[2]; /* saw[i][n]: what client i read of the other's word in its round n */
};

/* [WRITE n to own word][READ the other's word]. */
static void dekker_client(struct client *client)
{
    struct dekker_run *run = client->arg;
    unsigned me = client->index;

    for (uint64_t n = 1; n <= run->rounds; n++) {
        struct fabric_op ops[] = {fabric_write(AT + 4096 * me, &n, 8),
                                  fabric_read(AT + 4096 * (1 - me), &run->saw[me][n], 8)};
        CHECK_OK(fabric_submit_co(client->endpoint, ops, 2));
    }
}

/* In round n of one, it had not seen the other's round m = saw + 1. So that round m came later, and
 * its READ comes after the WRITE of round n. */
static void dekker_check(const struct dekker_run *run)
{
    for (int me = 0; me < 2; me++) {
        for (uint64_t n = 1; n <= run->rounds; n++) {
            uint64_t m = run->saw[me][n] + 1;
            CHECK(run->saw[me][n] >= run->saw[me][n - 1]);
            if (m <= run->rounds && run->saw[1 - me][m] < n)
                CHECK_FAIL("client %d wrote %" PRIu64 " and did not see %" PRIu64
                           ", and the other the other way round",
                           me, n, m);
        }
    }
}

static void dekker(struct env *env)
{
    struct dekker_run run = {.rounds = env_rounds(env, 200)};
    for (int i = 0; i < 2; i++)
        run.saw[i] = allocate((run.rounds + 1) * sizeof(uint64_t));
    suite_clients(env, 2, dekker_client, &run);
    dekker_check(&run);
    for (int i = 0; i < 2; i++)
        free(run.saw[i]);
}

/* ---- between lists --------------------------------------------------------------------------- */

struct relay_run {
    uint64_t rounds;
    _Atomic uint64_t turn; /* rounds that are done, and the WRITE of the last one has completed */
};

static void relay_read_co(struct client *client, struct fabric_endpoint *endpoint, uint64_t stream)
{
    uint8_t bytes[300];
    struct client through = *client;
    through.endpoint = endpoint;
    memset(bytes, 0, sizeof(bytes));
    read_co(&through, AT + 1, bytes, sizeof(bytes));
    pattern_check(bytes, stream, 0, sizeof(bytes));
}

/* Two clients write in turns, each through one of its two endpoints, and tell each other outside of
 * the fabric. Whoever is told finds the bytes, through any endpoint. */
static void relay_client(struct client *client)
{
    struct relay_run *run = client->arg;
    struct fabric_endpoint *second;
    uint8_t bytes[300];

    CHECK_OK(fabric_connect_co(client->fabric, ENV_TARGET, &second));
    struct fabric_endpoint *endpoints[2] = {client->endpoint, second};
    for (uint64_t n = client->index; n < run->rounds; n += 2) {
        while (atomic_load(&run->turn) < n)
            moment_co();
        if (n > 0) {
            relay_read_co(client, endpoints[n / 2 % 2], n - 1);
            relay_read_co(client, endpoints[1 - n / 2 % 2], n - 1);
        }
        pattern_fill(bytes, n, 0, sizeof(bytes));
        struct fabric_op op = fabric_write(AT + 1, bytes, sizeof(bytes));
        CHECK_OK(fabric_submit_co(endpoints[n / 2 % 2], &op, 1));
        relay_read_co(client, endpoints[1 - n / 2 % 2], n);
        atomic_store(&run->turn, n + 1);
    }
    fabric_disconnect_co(second);
}

static void completed_write_is_visible(struct env *env)
{
    struct relay_run run = {.rounds = env_call_rounds(env, 60)};
    suite_clients(env, 2, relay_client, &run);
    CHECK_EQ_U64(run.turn, run.rounds);
}

/* ---- what is not ordered --------------------------------------------------------------------- */

struct loose_run {
    uint64_t rounds;
    _Atomic bool stop;
    uint64_t read_write; /* a READ saw a later WRITE of its own list */
    uint64_t cas_write;  /* so did a CAS */
    uint64_t atomics;    /* the second FAA of a list came first */
    uint64_t lists;      /* of two lists the one posted first came last */
    uint64_t read_read;  /* the second READ of a list saw less than the first */
};

static void loose_writer(struct client *client, struct loose_run *run)
{
    for (uint64_t n = 1; n <= run->rounds; n++) {
        uint64_t seen = 0, other = n + 1000000;

        struct fabric_op read_write[] = {fabric_read(AT, &seen, 8), fabric_write(AT, &n, 8)};
        CHECK_OK(fabric_submit_co(client->endpoint, read_write, 2));
        CHECK(seen == n - 1 || seen == n);
        run->read_write += seen == n;

        struct fabric_op cas_write[] = {fabric_cas(AT + 512, 0, other),
                                        fabric_write(AT + 512, &n, 8)};
        CHECK_OK(fabric_submit_co(client->endpoint, cas_write, 2));
        CHECK(cas_write[0].old == n - 1 || cas_write[0].old == n);
        run->cas_write += cas_write[0].old == n;

        struct fabric_op faas[] = {fabric_faa(AT + 1024, 1), fabric_faa(AT + 1024, 1)};
        CHECK_OK(fabric_submit_co(client->endpoint, faas, 2));
        CHECK_EQ_U64(faas[0].old + faas[1].old, 4 * n - 3);
        run->atomics += faas[0].old > faas[1].old;

        struct fabric_op first = fabric_write(AT + 1536, &n, 8);
        struct fabric_op second = fabric_write(AT + 1536, &other, 8);
        struct fabric_list lists[2] = {{.ops = &first, .count = 1}, {.ops = &second, .count = 1}};
        fabric_post(client->endpoint, &lists[0]);
        fabric_post(client->endpoint, &lists[1]);
        CHECK_OK(fabric_wait_co(&lists[0]));
        CHECK_OK(fabric_wait_co(&lists[1]));
        run->lists += get_co(client, AT + 1536) == n;

        struct fabric_op writes[] = {fabric_write(AT + 2048, &n, 8),
                                     fabric_write(AT + 2560, &n, 8)};
        CHECK_OK(fabric_submit_co(client->endpoint, writes, 2));
    }
    atomic_store(&run->stop, true);
}

static void loose_reader(struct client *client, struct loose_run *run)
{
    while (!atomic_load(&run->stop)) {
        uint64_t second = 0, first = 0;
        struct fabric_op ops[] = {fabric_read(AT + 2560, &second, 8),
                                  fabric_read(AT + 2048, &first, 8)};
        CHECK_OK(fabric_submit_co(client->endpoint, ops, 2));
        run->read_read += first < second;
    }
}

static void loose_client(struct client *client)
{
    if (client->index == 0)
        loose_writer(client, client->arg);
    else
        loose_reader(client, client->arg);
}

static void unordered_pairs_move(struct env *env)
{
    struct loose_run run = {.rounds = 400};
    suite_clients(env, 3, loose_client, &run);
    CHECK(run.read_write > 0);
    CHECK(run.cas_write > 0);
    CHECK(run.atomics > 0);
    CHECK(run.lists > 0);
    CHECK(run.read_read > 0);
}

const struct suite_case order_cases[] = {
    {.name = "own_effects_in_order", .run = own_effects_in_order},
    {.name = "overlapping_writes_in_order", .run = overlapping_writes_in_order},
    {.name = "flag_behind_data", .run = flag_behind_data},
    {.name = "flag_behind_data_device", .run = flag_behind_data_device},
    {.name = "read_behind_lock", .run = read_behind_lock},
    {.name = "dekker", .run = dekker},
    {.name = "completed_write_is_visible", .run = completed_write_is_visible},
    {
        .name = "unordered_pairs_move",
        .run = unordered_pairs_move,
        .flags = CASE_CHAOS,
    },
    {0},
};
