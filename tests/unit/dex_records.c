/*
 * Single pairs: what is kept is found, what is forgotten is not, a ticket is worthless once its bucket
 * was changed, what is used stays longer; and with many threads no record is older than its pair.
 */
#include "tree/dex/records.h"

#include <pthread.h>
#include <stdio.h>

#include "base/prng.h"
#include "lib/check.h"

enum { SLOTS = 7, THREADS = 4, KEYS = 200 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 20 * 1000 };
#else
enum { ROUNDS = 300 * 1000 };
#endif

static struct records records;

static void create(size_t bytes, uint32_t key_size, uint32_t value_size)
{
    struct records_options options = {.bytes = bytes,
                                      .key_size = key_size,
                                      .value_size = value_size,
                                      .key_max = key_size != 0 ? key_size : 100,
                                      .value_max = value_size != 0 ? value_size : 300};
    CHECK_OK(records_create(&records, &options));
}

static bool get(struct slice key, uint64_t *value, struct records_ticket *ticket)
{
    size_t size = 0;
    bool found = records_get(&records, records_hash(&records, key), key, value, sizeof(*value),
                             &size, ticket);
    CHECK(!found || size == sizeof(*value));
    return found;
}

static struct records_ticket ticket_for(uint64_t key)
{
    struct records_ticket ticket;
    uint64_t value;
    (void)get(slice_of(&key, sizeof(key)), &value, &ticket);
    return ticket;
}

static void keep(uint64_t key, uint64_t value, const struct records_ticket *ticket)
{
    struct slice bytes = slice_of(&key, sizeof(key));
    records_keep(&records, records_hash(&records, bytes), ticket, bytes,
                 slice_of(&value, sizeof(value)));
}

static void keep_now(uint64_t key, uint64_t value)
{
    struct records_ticket ticket = ticket_for(key);
    keep(key, value, &ticket);
}

static bool has(uint64_t key, uint64_t expected)
{
    struct records_ticket ticket;
    uint64_t value = 0;
    if (!get(slice_of(&key, sizeof(key)), &value, &ticket))
        return false;
    CHECK_EQ_U64(value, expected);
    return true;
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void test_tickets(void)
{
    uint64_t seven = 7;
    create(1, 8, 8);
    CHECK(records.memory == NULL); /* no room: nothing is kept, nothing fails */
    keep_now(1, 10);
    CHECK(!has(1, 10));
    (void)records_forget(&records, slice_of(&seven, sizeof(seven)));
    records_destroy(&records);

    create(128, 8, 8); /* one bucket */
    CHECK_EQ_U64(records.count, 1);
    struct records_ticket old = ticket_for(1);
    CHECK(old.room);
    keep_now(1, 10);
    CHECK(has(1, 10));
    keep(2, 20, &old); /* something was kept there since */
    CHECK(!has(2, 20));
    keep_now(1, 11);
    CHECK(has(1, 11));
    old = ticket_for(7);
    (void)records_forget(&records, slice_of(&seven, sizeof(seven)));
    keep(7, 70, &old); /* it was changed since, though it was not there */
    CHECK(!has(7, 70));
    CHECK(has(1, 11));
    uint64_t one = 1;
    (void)records_forget(&records, slice_of(&one, sizeof(one)));
    CHECK(!has(1, 11));
    keep_now(7, 71);
    old = ticket_for(8);
    records_forget_all(&records);
    CHECK(!has(7, 71));
    keep(8, 80, &old); /* of a key that stayed: what it replaces is gone all the same */
    CHECK(has(8, 80) && !has(7, 71));
    records_destroy(&records);
}

static void test_replacement(void)
{
    create(128, 8, 8);
    for (uint64_t key = 0; key < SLOTS; key++)
        keep_now(key, key);
    CHECK(!ticket_for(100).room);
    for (uint64_t key = 0; key < SLOTS; key++)
        CHECK(has(key, key) == (key < SLOTS));
    keep_now(100, 100); /* all were used: one goes, and none counts as used any more */
    CHECK(has(100, 100));
    unsigned left = 0;
    uint64_t used = SLOTS;
    for (uint64_t key = 0; key < SLOTS && left < 3; key++) {
        if (has(key, key)) {
            left++;
            used = key;
        }
    }
    for (uint64_t key = 200; key < 203; key++)
        keep_now(key, key);
    CHECK(has(used, used) && has(100, 100)); /* there were others to replace */
    records_destroy(&records);
}

/* What was forgotten is not found again, whatever else lies beside it: of keys whose hashes begin alike. */
static void test_forgotten(void)
{
    uint64_t keys[12], known[12] = {0}; /* a value that may be found; 0: none */
    struct prng prng;
    unsigned found = 0, count = 0;

    prng_seed(&prng, 1);
    create(128, 8, 8);
    for (uint64_t key = 0; count < 12; key++) {
        if (records_hash(&records, slice_of(&key, sizeof(key))) >> 57 == 0)
            keys[count++] = key;
    }
    for (uint64_t i = 1; i < 100 * 1000; i++) {
        uint64_t number = prng_next(&prng) % 12, key = keys[number], value = 0;
        struct slice bytes = slice_of(&key, sizeof(key));
        struct records_ticket ticket;
        if (prng_next(&prng) % 2 == 0) {
            (void)records_forget(&records, bytes);
            known[number] = 0;
        } else if (get(bytes, &value, &ticket)) {
            CHECK_EQ_U64(value, known[number]);
            found++;
        } else {
            keep(key, i, &ticket);
            known[number] = i;
        }
    }
    CHECK(found > 100);
    records_destroy(&records);
}

/* Keys that begin alike and whose hashes have the same tag are told apart by the rest of them. */
static void test_alike(uint32_t key_size)
{
    struct {
        uint64_t begin, rest;
    } kept = {1, 0}, other = {1, 1};
    struct slice a = slice_of(&kept, sizeof(kept)), b = slice_of(&other, sizeof(other));
    struct records_ticket ticket;
    uint64_t value = 5, out = 0;

    create(1024, key_size, key_size != 0 ? 8 : 0);
    records.count = 1;
    uint64_t hash = records_hash(&records, a);
    while (records_hash(&records, b) >> 56 != hash >> 56)
        other.rest++;
    CHECK(!get(a, &out, &ticket));
    records_keep(&records, hash, &ticket, a, slice_of(&value, sizeof(value)));
    CHECK(get(a, &out, &ticket) && out == value);
    CHECK(!get(b, &out, &ticket));
    (void)records_forget(&records, b);
    CHECK(get(a, &out, &ticket) && out == value);
    records_destroy(&records);
}

static void test_varying(void)
{
    uint8_t value[300] = {1, 2, 3}, out[300];
    char key[100];
    size_t size;
    struct records_ticket ticket;

    create(64 * 1024, 0, 0);
    for (int i = 0; i < 100; i++) {
        struct slice bytes = slice_of(key, (size_t)snprintf(key, sizeof(key), "%0*d", i, i));
        struct slice pair = slice_of(value, (size_t)i * 3);
        uint64_t hash = records_hash(&records, bytes);
        CHECK(!records_get(&records, hash, bytes, out, sizeof(out), &size, &ticket));
        records_keep(&records, hash, &ticket, bytes, pair);
        bool fits = bytes.size + pair.size <= 124;
        CHECK(records_get(&records, hash, bytes, out, sizeof(out), &size, &ticket) == fits);
        CHECK(!fits || slice_equal(slice_of(out, size), pair));
    }
    struct slice empty = slice_of(NULL, 0);
    uint64_t hash = records_hash(&records, empty);
    (void)records_get(&records, hash, empty, out, sizeof(out), &size, &ticket);
    records_keep(&records, hash, &ticket, empty, slice_of(value, 3));
    CHECK(records_get(&records, hash, empty, out, 2, &size, &ticket) && size == 3);
    (void)records_forget(&records, empty);
    CHECK(!records_get(&records, hash, empty, out, 2, &size, &ticket));
    records_destroy(&records);
}

/* ---- many ------------------------------------------------------------------------------------ */

/* A pair as in a leaf: read and changed under its latch. */
static struct pair {
    pthread_mutex_t latch;
    uint64_t value;
    _Atomic uint64_t told; /* a change that its writer has ended */
} pairs[KEYS];

static void *work(void *argument)
{
    struct prng prng;
    prng_seed(&prng, (uint64_t)(uintptr_t)argument);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t key = prng_next(&prng) % KEYS, value = 0;
        struct slice bytes = slice_of(&key, sizeof(key));
        struct pair *pair = &pairs[key];
        struct records_ticket ticket;
        if (prng_next(&prng) % 4 == 0) {
            pthread_mutex_lock(&pair->latch);
            (void)records_forget(&records, bytes);
            uint64_t mine = ++pair->value;
            pthread_mutex_unlock(&pair->latch);
            uint64_t told = atomic_load(&pair->told);
            while (told < mine && !atomic_compare_exchange_weak(&pair->told, &told, mine))
                ;
            continue;
        }
        uint64_t told = atomic_load(&pair->told);
        if (!get(bytes, &value, &ticket)) {
            pthread_mutex_lock(&pair->latch);
            value = pair->value;
            pthread_mutex_unlock(&pair->latch);
            keep(key, value, &ticket);
        }
        CHECK(value >= told);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    create(8 * 128, 8, 8); /* a few more pairs than fit */
    for (int i = 0; i < KEYS; i++)
        pthread_mutex_init(&pairs[i].latch, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    records_destroy(&records);
}

int main(void)
{
    test_tickets();
    test_replacement();
    test_forgotten();
    test_alike(16);
    test_alike(0);
    test_varying();
    test_threads();
    return 0;
}
