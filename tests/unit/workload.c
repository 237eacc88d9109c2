/*
 * Workloads of `pando bench`: distributions against what they should be, keys that are unique.
 */
#include "bench/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/check.h"

static void test_table(void)
{
    size_t count = 0;
    for (; workload_at(count) != NULL; count++) {
        const struct workload *workload = workload_at(count);
        struct workload_dist dist;
        unsigned sum = 0;
        for (int i = 0; i < WORKLOAD_KINDS; i++)
            sum += workload->percent[i];
        CHECK_EQ_U64(sum, 100);
        CHECK(workload_dist_parse(workload->dist, &dist));
        CHECK(workload_find(workload->name) == workload);
    }
    CHECK(count == 23);
    CHECK(workload_find("frobnicate") == NULL);
}

static void test_dist_names(void)
{
    static const char *const wrong[] = {"",        "zipf",      "zipf:",   "zipf:x", "zipf:-1",
                                        "zipf:99", "zipf:1.2.", "Uniform", "latest "};
    struct workload_dist dist = {.theta = 7};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK(!workload_dist_parse(wrong[i], &dist));
    CHECK(dist.theta == 7);
    CHECK(workload_dist_parse("zipf:0.9", &dist) && dist.kind == WORKLOAD_ZIPF);
    CHECK(dist.theta == 0.9);
    CHECK(workload_dist_parse("zipf:0", &dist) && dist.kind == WORKLOAD_UNIFORM);
}

/* Shares of the first ranks against 1 / (rank^theta * sum). */
static void test_zipf(double theta, uint64_t n)
{
    enum { DRAWS = 400000, FIRST = 8 };
    uint64_t found[FIRST] = {0};
    double sum = 0;
    struct prng prng;
    struct zipf zipf;

    for (uint64_t i = 1; i <= n; i++)
        sum += pow((double)i, -theta);
    prng_seed(&prng, 5);
    zipf_init(&zipf, theta, n);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t rank = zipf_next(&zipf, &prng);
        CHECK(rank < n);
        if (rank < FIRST)
            found[rank]++;
    }
    for (int i = 0; i < FIRST; i++) {
        double expected = DRAWS * pow(i + 1, -theta) / sum;
        double off = fabs((double)found[i] - expected);
        CHECK(off < 5 * sqrt(expected) + 5);
    }
}

static void test_scramble(uint64_t n)
{
    struct scramble scramble;
    uint8_t *seen = calloc(n, 1);
    scramble_init(&scramble, n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = scramble_of(&scramble, i);
        CHECK(at < n && !seen[at]);
        seen[at] = 1;
    }
    free(seen);
}

static void test_keys(void)
{
    uint8_t a[32], b[32];
    for (uint64_t i = 0; i < 1000; i++) {
        workload_key(i, 65535, a, sizeof(a));
        workload_key(i + 1, 0, b, sizeof(b));
        CHECK(memcmp(a, b, sizeof(a)) < 0);
        workload_key(i, 0, b, 8);
        CHECK(memcmp(b, a, 8) < 0);
    }
}

static bool loaded(const struct workload_space *space, uint64_t position)
{
    return !space->sparse || position % 3 != 2;
}

/* Records are where the clients think they are. */
static void test_space(const char *name)
{
    struct workload_space space;
    uint64_t last = 0;
    workload_space_init(&space, workload_find(name), 1000);
    for (uint64_t i = 0; i < space.records; i++) {
        uint64_t position = workload_loaded_position(&space, i);
        CHECK(position < space.positions && loaded(&space, position));
        CHECK(i == 0 || position > last);
        last = position;
    }
}

static void test_mix(void)
{
    enum { OPS = 100000 };
    const struct workload *workload = workload_find("write-intensive");
    struct workload_dist dist = {.kind = WORKLOAD_UNIFORM};
    struct workload_space space;
    struct workload_client client;
    struct workload_op op;
    uint64_t writes = 0, updates = 0;

    workload_space_init(&space, workload, 10000);
    workload_client_init(&client, workload, &space, dist, 0, 1, 1);
    for (int i = 0; i < OPS; i++) {
        CHECK(workload_next(&client, &op));
        if (op.kind == WORKLOAD_READ) {
            CHECK(loaded(&space, op.position));
            continue;
        }
        CHECK(op.kind == WORKLOAD_UPSERT);
        writes++;
        updates += loaded(&space, op.position);
    }
    CHECK(writes > OPS * 0.49 && writes < OPS * 0.51);
    CHECK((double)updates > (double)writes * 0.65 && (double)updates < (double)writes * 0.68);
}

/* Clients together do every key once. */
static void test_once(const char *name, uint64_t records, uint64_t per_client)
{
    enum { CLIENTS = 3 };
    const struct workload *workload = workload_find(name);
    struct workload_dist dist;
    struct workload_space space;
    struct workload_client client;
    struct workload_op op;
    uint64_t total = 0;

    workload_space_init(&space, workload, records);
    uint8_t *seen = calloc(records * 8, 1);
    CHECK(workload_dist_parse(workload->dist, &dist));
    for (uint64_t number = 0; number < CLIENTS; number++) {
        workload_client_init(&client, workload, &space, dist, number, CLIENTS, 9);
        for (uint64_t i = 0; i < per_client && workload_next(&client, &op); i++) {
            CHECK(op.serial < 8);
            uint64_t at = op.serial * records + op.position;
            CHECK(!seen[at]);
            seen[at] = 1;
            total++;
        }
    }
    CHECK_EQ_U64(total,
                 workload->fill || strcmp(name, "delete") == 0 ? records : CLIENTS * per_client);
    free(seen);
}

/* Reads what was inserted, and mostly the newest. */
static void test_latest(void)
{
    enum { OPS = 50000 };
    const struct workload *workload = workload_find("d");
    struct workload_dist dist;
    struct workload_space space;
    struct workload_client client;
    struct workload_op op;
    uint64_t own = 0, reads = 0;

    workload_space_init(&space, workload, 100000);
    CHECK(workload_dist_parse("latest", &dist));
    workload_client_init(&client, workload, &space, dist, 1, 4, 3);
    for (int i = 0; i < OPS; i++) {
        CHECK(workload_next(&client, &op));
        if (op.kind == WORKLOAD_INSERT)
            continue;
        reads++;
        own += op.serial > 0;
        CHECK(op.serial <= 1);
    }
    CHECK(own * 2 > reads);
}

/* A fifth of the positions; nothing below 0. */
static bool in_fifth(void *context, uint64_t position, uint64_t serial)
{
    const int *fifth = context;
    (void)serial;
    return *fifth >= 0 && position % 5 == (uint64_t)*fifth;
}

/* Clients that want only some keys get those, each once, in the same mix; one that wants none does
 * nothing, and is not kept from ending. */
static void test_wants(void)
{
    enum { OPS = 50000, RECORDS = 10000 };
    const struct workload *workload = workload_find("insert-intensive");
    struct workload_dist dist;
    struct workload_space space;
    struct workload_client client;
    struct workload_op op;
    uint64_t inserts = 0;
    int fifth = 3;

    workload_space_init(&space, workload, RECORDS);
    CHECK(workload_dist_parse("zipf:0.99", &dist));
    workload_client_init(&client, workload, &space, dist, 0, 1, 1);
    client.wants = in_fifth;
    client.wants_context = &fifth;
    uint8_t *seen = calloc(RECORDS * 64, 1);
    for (int i = 0; i < OPS; i++) {
        CHECK(workload_next(&client, &op) && !op.none && op.position % 5 == 3);
        if (op.kind != WORKLOAD_INSERT)
            continue;
        CHECK(op.serial < 64 && !seen[op.serial * RECORDS + op.position]);
        seen[op.serial * RECORDS + op.position] = 1;
        inserts++;
    }
    free(seen);
    CHECK(inserts > OPS * 0.49 && inserts < OPS * 0.51);
    fifth = -1;
    CHECK(workload_next(&client, &op) && op.none);
}

int main(void)
{
    test_table();
    test_dist_names();
    test_zipf(0.99, 1000);
    test_zipf(0.5, 100);
    test_zipf(1.0, 5000);
    test_zipf(1.5, 100000);
    for (uint64_t n = 1; n < 70; n++)
        test_scramble(n);
    test_scramble(100003);
    test_keys();
    test_wants();
    test_space("search");
    test_space("write-intensive");
    test_mix();
    test_once("load", 1001, 100000);
    test_once("delete", 1000, 100000);
    test_once("insert", 100, 200);
    test_latest();
    return 0;
}
