/*
 * A client that uses a pool as an application would, and goes on when a memory node was away:
 *
 *   softroce_kv URI SECRET write COUNT   puts keys 0 .. COUNT-1, each until it is acknowledged; COUNT 0:
 *                                        without end, and prints those that are
 *   softroce_kv URI SECRET check COUNT   gets keys 0 .. COUNT-1 and scans them all, in both directions
 *
 * The device may be said in PANDO_TEST_CLIENT_DEVICE.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "lib/check.h"
#include "store/store.h"

enum { TRIES = 600 };

struct client {
    const char *mode;
    uint64_t count;
};

static void key_of(uint64_t number, uint8_t key[8])
{
    uint64_t word = __builtin_bswap64(number);
    memcpy(key, &word, 8);
}

static void put_co(struct store_table *table, uint64_t number)
{
    uint64_t value = ~number;
    uint8_t key[8];
    key_of(number, key);
    for (int i = 0; i < TRIES; i++) {
        enum pando_status status =
            store_put_co(table, slice_of(key, 8), slice_of(&value, 8), STORE_UPSERT);
        if (status == PANDO_OK)
            return;
        fprintf(stderr, "put %" PRIu64 ": %s, again\n", number, pando_status_text(status));
        rt_sleep_co(50 * RT_NS_PER_MS);
    }
    CHECK_FAIL("put %" PRIu64 " does not succeed", number);
}

static void write_co(struct store_table *table, uint64_t count)
{
    for (uint64_t i = 0; count == 0 || i < count; i++) {
        put_co(table, i);
        if (count == 0)
            printf("%" PRIu64 "\n", i);
    }
    printf("%" PRIu64 " keys written\n", count);
}

struct scan {
    uint64_t next, seen;
    bool reverse;
};

static bool on_pair(void *context, struct slice key, struct slice value)
{
    struct scan *scan = context;
    uint64_t number, word;
    CHECK(key.size == 8 && value.size == 8);
    memcpy(&number, key.data, 8);
    number = __builtin_bswap64(number);
    memcpy(&word, value.data, 8);
    CHECK(word == ~number);
    if (scan->seen > 0)
        CHECK_EQ_U64(number, scan->next);
    scan->next = scan->reverse ? number - 1 : number + 1;
    scan->seen++;
    return true;
}

/* There may be more: put and not yet acknowledged when the writer was killed. */
static void check_co(struct store_table *table, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = 0;
        size_t size = 0;
        uint8_t key[8];
        key_of(i, key);
        enum pando_status status =
            store_get_co(table, slice_of(key, 8), &value, sizeof(value), &size);
        if (status != PANDO_OK || size != 8 || value != ~i)
            CHECK_FAIL("key %" PRIu64 " is lost: %s", i, pando_status_text(status));
    }
    for (int reverse = 0; reverse < 2; reverse++) {
        struct scan scan = {.reverse = reverse == 1};
        struct store_range range = {.no_high = true, .reverse = scan.reverse};
        CHECK_OK(store_scan_co(table, &range, on_pair, &scan));
        CHECK(scan.seen >= count);
        CHECK_EQ_U64(scan.next, reverse == 1 ? UINT64_MAX : scan.seen);
    }
    printf("%" PRIu64 " keys are there, by get and by scan\n", count);
}

static void use_co(struct client *client, struct store_thread *thread)
{
    struct store_shape shape = {.key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8};
    struct store_table *table;
    char error[256] = "";

    enum pando_status status =
        store_table_create_co(thread, "kv", NULL, &shape, error, sizeof(error));
    if (status != PANDO_OK && status != PANDO_EXISTS)
        CHECK_FAIL("%s", error);
    if (store_table_open_co(thread, "kv", &table, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    if (strcmp(client->mode, "write") == 0)
        write_co(table, client->count);
    else
        check_co(table, client->count);
    store_table_close(table);
}

static void main_co(void *context, const struct env_place *place)
{
    struct store_options options = {.env = place->env, .fabric = place->fabric, .name = "kv"};
    struct store_thread *thread;
    struct store *store;
    char error[256] = "";

    if (store_open_co(&options, &store, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    CHECK_OK(store_thread_open_co(store, &thread));
    use_co(context, thread);
    store_thread_close_co(thread);
    store_close_co(store);
}

int main(int argc, char **argv)
{
    struct client client;
    struct env *env;
    char error[256] = "";

    if (argc != 5) {
        fprintf(stderr, "see the head of kv.c\n");
        return 2;
    }
    log_set_level(LOG_LEVEL_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was acknowledged is known even after kill -9 */
    client = (struct client){.mode = argv[3], .count = strtoull(argv[4], NULL, 10)};
    struct env_options options = {
        .uri = argv[1], .secret_file = argv[2], .verbs = getenv("PANDO_TEST_CLIENT_DEVICE")};
    if (env_open(&options, &env, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s", error);
    CHECK_OK(env_run(env, 1, main_co, &client));
    env_close(env);
    return 0;
}
