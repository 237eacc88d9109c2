/*
 * Iterators against a model: alone, every move from every place; and with writers beside them that put and
 * delete other keys, which must not disturb those that stay.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "lib/check.h"

enum { KEYS = 2000, MOVES = 30000 };

static struct pando_pool *pool;
static struct pando_table *table;

struct model_key {
    uint8_t bytes[1100];
    size_t size;
};

static struct model_key model[KEYS];
static int model_count;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int compare(const void *one, const void *two)
{
    const struct model_key *a = one, *b = two;
    size_t common = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, common);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* Keys that share long beginnings, with zeroes and 0xff: where an order goes wrong if it can. */
static struct model_key random_key(uint64_t *random)
{
    static const uint8_t bytes[] = {0, 1, 'a', 'b', 0xfe, 0xff};
    struct model_key key = {.size = next_random(random) % 7};
    for (size_t i = 0; i < key.size; i++)
        key.bytes[i] = bytes[next_random(random) % sizeof(bytes)];
    if (next_random(random) % 50 == 0) { /* as long as keys can be, or longer */
        size_t size = 1020 + next_random(random) % 8;
        memset(key.bytes + key.size, next_random(random) % 2 == 0 ? 0xff : 'a', size - key.size);
        key.size = size;
    }
    return key;
}

static void fill_model(void)
{
    uint64_t random = 7;
    for (int i = 0; i < KEYS; i++) {
        model[model_count] = random_key(&random);
        if (model[model_count].size <= PANDO_KEY_MAX)
            model_count++;
    }
    qsort(model, (size_t)model_count, sizeof(model[0]), compare);
    int distinct = 0;
    for (int i = 0; i < model_count; i++) {
        if (i == 0 || compare(&model[i], &model[distinct - 1]) != 0)
            model[distinct++] = model[i];
    }
    model_count = distinct;
    for (int i = 0; i < model_count; i++)
        CHECK_OK(pando_put(table, model[i].bytes, model[i].size, &i, sizeof(i)));
}

/* The first of the model's that is not below the key. */
static int model_seek(const struct model_key *key)
{
    int at = 0;
    while (at < model_count && compare(&model[at], key) < 0)
        at++;
    return at;
}

static void check_at(struct pando_iterator *iterator, enum pando_status status, int at, int low,
                     int high)
{
    bool inside = at >= low && at < high;
    CHECK_STATUS(status, inside ? PANDO_OK : PANDO_NOT_FOUND);
    CHECK(pando_iterator_valid(iterator) == inside);
    struct pando_slice key = pando_iterator_key(iterator), value = pando_iterator_value(iterator);
    if (!inside) {
        CHECK(key.data == NULL && value.data == NULL);
        CHECK_STATUS(pando_iterator_next(iterator), PANDO_INVALID);
        CHECK_STATUS(pando_iterator_prev(iterator), PANDO_INVALID);
        return;
    }
    CHECK(key.size == model[at].size && memcmp(key.data, model[at].bytes, key.size) == 0);
    CHECK(value.size == sizeof(at) && memcmp(value.data, &at, sizeof(at)) == 0);
}

/* Random moves within bounds. `at` is where it must be; outside of [low, high) it is nowhere. */
static void wander(struct pando_iterator *iterator, int low, int high, uint64_t *random, int moves)
{
    int at = -1;
    if (low > high)
        low = high;
    for (int i = 0; i < moves; i++) {
        bool valid = pando_iterator_valid(iterator);
        uint64_t move = next_random(random) % (valid ? 40 : 4);
        enum pando_status status;
        struct model_key key = random_key(random);
        if (move == 0) {
            status = pando_iterator_first(iterator);
            at = low;
        } else if (move == 1) {
            status = pando_iterator_last(iterator);
            at = high - 1;
        } else if (move == 2) {
            status = pando_iterator_seek(iterator, key.bytes, key.size);
            at = model_seek(&key);
            at = at < low ? low : at;
        } else if (move == 3) {
            status = pando_iterator_seek_for_prev(iterator, key.bytes, key.size);
            at = model_seek(&key);
            if (at == model_count || compare(&model[at], &key) != 0)
                at--;
            at = at >= high ? high - 1 : at;
        } else if (move % 4 == 0 || (i / 300 % 2 == 0 && move % 4 < 3)) {
            status = pando_iterator_prev(iterator);
            at--;
        } else {
            status = pando_iterator_next(iterator);
            at++;
        }
        check_at(iterator, status, at, low, high);
    }
}

static struct pando_slice slice_of(const struct model_key *key)
{
    return (struct pando_slice){key->bytes, key->size};
}

static void test_alone(void)
{
    uint64_t random = 3;
    struct pando_iterator *iterator;
    CHECK_OK(pando_iterator_open(table, NULL, &iterator));
    CHECK(!pando_iterator_valid(iterator));
    CHECK_STATUS(pando_iterator_next(iterator), PANDO_INVALID);
    wander(iterator, 0, model_count, &random, MOVES);
    pando_iterator_close(iterator);

    for (int i = 0; i < 150; i++) {
        struct model_key lower = random_key(&random), upper = random_key(&random);
        struct pando_iterator_options options = {.size = sizeof(options),
                                                 .prefetch = (unsigned)(next_random(&random) % 20)};
        int low = 0, high = model_count;
        if (i % 2 == 0) {
            options.lower = slice_of(&lower);
            low = model_seek(&lower);
        }
        if (i % 3 != 0) {
            options.upper = slice_of(&upper);
            high = model_seek(&upper);
        }
        struct model_key prefix = random_key(&random);
        if (i % 5 == 0 && prefix.size > 0) {
            options.prefix = slice_of(&prefix);
            int first = model_seek(&prefix), last = first;
            while (last < model_count && model[last].size >= prefix.size &&
                   memcmp(model[last].bytes, prefix.bytes, prefix.size) == 0)
                last++;
            low = first > low ? first : low;
            high = last < high ? last : high;
        }
        CHECK_OK(pando_iterator_open(table, &options, &iterator));
        wander(iterator, low, high, &random, 200);
        pando_iterator_close(iterator);
    }
    pando_iterator_close(NULL);
    struct pando_iterator_options bad = {.size = sizeof(bad), .prefetch = 100000};
    CHECK_STATUS(pando_iterator_open(table, &bad, &iterator), PANDO_INVALID);
    CHECK_STATUS(pando_iterator_open(NULL, NULL, &iterator), PANDO_INVALID);
}

/* Pairs larger than what is read ahead. */
static void test_large(void)
{
    static uint8_t large[400000];
    struct pando_iterator *iterator;
    struct pando_iterator_options options = {.size = sizeof(options), .prefix = {"large", 5}};
    int count = 0;
    for (int i = 0; i < 10; i++) {
        char key[16];
        size_t size = (size_t)snprintf(key, sizeof(key), "large %d", i);
        memset(large, i, sizeof(large));
        CHECK_OK(pando_put(table, key, size, large, sizeof(large)));
    }
    CHECK_OK(pando_iterator_open(table, &options, &iterator));
    enum pando_status status = pando_iterator_first(iterator);
    for (; status == PANDO_OK; status = pando_iterator_next(iterator)) {
        struct pando_slice value = pando_iterator_value(iterator);
        CHECK(value.size == sizeof(large) && ((const uint8_t *)value.data)[77] == count);
        count++;
    }
    CHECK_STATUS(status, PANDO_NOT_FOUND);
    CHECK(count == 10);
    pando_iterator_close(iterator);
    CHECK_OK(pando_delete_prefix(table, "large", 5, NULL));
}

/* ---- beside writers -------------------------------------------------------------------------- */

enum { STAYING = 3000, WRITERS = 2 };
static atomic_bool stop;
static struct pando_table *busy;

/* Even numbers stay; odd ones come and go. */
static size_t number_key(char *key, size_t bytes, unsigned number)
{
    return (size_t)snprintf(key, bytes, "%08u", number);
}

static void *writer_main(void *arg)
{
    uint64_t random = (uint64_t)(uintptr_t)arg;
    char key[16];
    while (!atomic_load(&stop)) {
        unsigned number = (unsigned)(next_random(&random) % STAYING) * 2 + 1;
        size_t size = number_key(key, sizeof(key), number);
        if (next_random(&random) % 2 == 0) {
            CHECK_OK(pando_put(busy, key, size, &number, sizeof(number)));
        } else {
            enum pando_status status = pando_delete(busy, key, size);
            CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
        }
    }
    return NULL;
}

/* One way through all: every key that stays, once and in order. */
static void pass(struct pando_iterator *iterator, bool up)
{
    enum pando_status status = up ? pando_iterator_first(iterator) : pando_iterator_last(iterator);
    long last = up ? -1 : 2L * STAYING, stayed = 0;
    while (status == PANDO_OK) {
        struct pando_slice key = pando_iterator_key(iterator);
        char text[16] = {0};
        CHECK(key.size == 8);
        memcpy(text, key.data, key.size);
        long number = strtol(text, NULL, 10);
        unsigned value;
        CHECK(pando_iterator_value(iterator).size == sizeof(value));
        memcpy(&value, pando_iterator_value(iterator).data, sizeof(value));
        CHECK((long)value == number);
        CHECK(up ? number > last : number < last);
        last = number;
        stayed += number % 2 == 0;
        status = up ? pando_iterator_next(iterator) : pando_iterator_prev(iterator);
    }
    CHECK_STATUS(status, PANDO_NOT_FOUND);
    CHECK_EQ_U64((uint64_t)stayed, STAYING);
}

static void test_beside_writers(void)
{
    pthread_t writers[WRITERS];
    struct pando_iterator *iterator;
    CHECK_OK(pando_table_create(pool, "busy", NULL));
    CHECK_OK(pando_table_open(pool, "busy", &busy));
    for (unsigned i = 0; i < STAYING; i++) {
        char key[16];
        unsigned number = i * 2;
        size_t size = number_key(key, sizeof(key), number);
        CHECK_OK(pando_put(busy, key, size, &number, sizeof(number)));
    }
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&writers[i], NULL, writer_main, (void *)(i + 1)) == 0);
    CHECK_OK(pando_iterator_open(busy, NULL, &iterator));
    for (int i = 0; i < 40; i++)
        pass(iterator, i % 2 == 0);
    atomic_store(&stop, true);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_join(writers[i], NULL) == 0);
    CHECK_OK(pando_table_drop(pool, "busy"));
    CHECK_STATUS(pando_iterator_first(iterator), PANDO_NOT_FOUND);
    CHECK(pando_table_dropped(busy));
    pando_iterator_close(iterator);
    CHECK_OK(pando_table_close(busy));
}

int main(void)
{
    struct pando_options options = {.size = sizeof(options), .uri = "embedded:256M"};
    CHECK_OK(pando_open(&options, &pool, NULL, 0));
    CHECK_OK(pando_table_create(pool, "t", NULL));
    CHECK_OK(pando_table_open(pool, "t", &table));
    test_large();
    fill_model();
    test_alone();
    test_beside_writers();
    CHECK_OK(pando_table_close(table));
    CHECK_OK(pando_close(pool));
    return 0;
}
