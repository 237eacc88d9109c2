/*
 * Many threads on one pool: they come and go, add to shared numbers, own keys that nobody else writes, open
 * and drop tables under each other's hands. And what is refused: too many threads, closing what is in use.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "lib/check.h"

enum { THREADS = 8, WAVES = 4, OPERATIONS = 1500, NUMBERS = 5 };

static struct pando_pool *pool;
static struct pando_table *table;
static atomic_ullong refused;

struct worker {
    pthread_t thread;
    unsigned index, wave;
};

static size_t own_key(char *key, size_t bytes, const struct worker *worker, unsigned i)
{
    return (size_t)snprintf(key, bytes, "own %u %u", worker->index, i);
}

static void work_own(const struct worker *worker, unsigned i)
{
    char key[32], value[32], got[32];
    size_t key_size = own_key(key, sizeof(key), worker, i % 100), size;
    size_t value_size = (size_t)snprintf(value, sizeof(value), "%u %u", worker->wave, i);
    CHECK_OK(pando_put(table, key, key_size, value, value_size));
    CHECK_OK(pando_get(table, key, key_size, got, sizeof(got), &size));
    CHECK(size == value_size && memcmp(got, value, size) == 0);
    if (i % 7 == 0) {
        CHECK_OK(pando_delete(table, key, key_size));
        CHECK_STATUS(pando_get(table, key, key_size, got, sizeof(got), &size), PANDO_NOT_FOUND);
    }
}

/* A table that everybody creates, uses and drops. */
static void work_contested(unsigned i)
{
    struct pando_table *contested;
    enum pando_status status = pando_table_create(pool, "contested", NULL);
    CHECK(status == PANDO_OK || status == PANDO_EXISTS);
    status = pando_table_open(pool, "contested", &contested);
    if (status == PANDO_NOT_FOUND)
        return;
    CHECK_OK(status);
    for (int j = 0; j < 20; j++) {
        status = pando_put(contested, &i, sizeof(i), "v", 1);
        if (status == PANDO_NOT_FOUND) {
            CHECK(pando_table_dropped(contested));
            atomic_fetch_add(&refused, 1);
            break;
        }
        CHECK_OK(status);
    }
    CHECK_OK(pando_table_close(contested));
    status = pando_table_drop(pool, "contested");
    CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    for (unsigned i = 0; i < OPERATIONS; i++) {
        char number[16];
        size_t size = (size_t)snprintf(number, sizeof(number), "number %u", i % NUMBERS);
        CHECK_OK(pando_add(table, number, size, 1, NULL));
        work_own(worker, i);
        if (i % 500 == 100)
            work_contested(i);
    }
    return NULL;
}

static void test_waves(void)
{
    struct worker workers[THREADS];
    for (unsigned wave = 0; wave < WAVES; wave++) {
        for (unsigned i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){.index = i, .wave = wave};
            CHECK(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
            CHECK(pthread_join(workers[i].thread, NULL) == 0);
    }
    int64_t all = 0;
    for (unsigned i = 0; i < NUMBERS; i++) {
        char number[16];
        int64_t sum;
        size_t size = (size_t)snprintf(number, sizeof(number), "number %u", i);
        CHECK_OK(pando_add(table, number, size, 0, &sum));
        all += sum;
    }
    CHECK_EQ_U64((uint64_t)all, (uint64_t)THREADS * WAVES * OPERATIONS);
    printf("%llu operations met a drop\n", atomic_load(&refused));
}

/* ---- refused --------------------------------------------------------------------------------- */

static atomic_uint standing, turned_away;
static atomic_bool may_end, may_go_on;

static void *stand(void *arg)
{
    (void)arg;
    enum pando_status status = pando_put(table, "s", 1, "s", 1);
    if (status == PANDO_AGAIN)
        atomic_fetch_add(&turned_away, 1);
    else
        CHECK_OK(status);
    atomic_fetch_add(&standing, 1);
    while (!atomic_load(&may_end))
        usleep(1000);
    return NULL;
}

static void test_too_many(void)
{
    enum { TOO_MANY = PANDO_THREADS_MAX + 10 };
    static pthread_t threads[TOO_MANY];
    for (unsigned i = 0; i < TOO_MANY; i++) {
        CHECK(pthread_create(&threads[i], NULL, stand, NULL) == 0);
        while (atomic_load(&standing) <= i)
            usleep(100);
    }
    CHECK_EQ_U64(atomic_load(&turned_away), TOO_MANY - PANDO_THREADS_MAX + 1); /* this one counts */
    /* All stand idle, for longer than a lease: nobody waits for their loops to turn. */
    sleep(2);
    CHECK_OK(pando_put(table, "s", 1, "t", 1));
    atomic_store(&may_end, true);
    for (unsigned i = 0; i < TOO_MANY; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_create(&threads[0], NULL, stand, NULL) == 0); /* there is room again */
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK_EQ_U64(atomic_load(&turned_away), TOO_MANY - PANDO_THREADS_MAX + 1);
}

static enum pando_change slow(void *context, const struct pando_slice *old,
                              struct pando_slice *value)
{
    (void)old;
    (void)value;
    atomic_store((atomic_bool *)context, true);
    while (!atomic_load(&may_go_on))
        usleep(1000);
    return PANDO_KEEP;
}

static void *be_inside(void *arg)
{
    CHECK_OK(pando_modify(table, "slow", 4, slow, arg));
    return NULL;
}

static void test_busy(void)
{
    pthread_t thread;
    atomic_bool inside = false;
    struct pando_table *again;
    CHECK(pthread_create(&thread, NULL, be_inside, &inside) == 0);
    while (!atomic_load(&inside))
        usleep(100);
    CHECK_STATUS(pando_close(pool), PANDO_BUSY);
    atomic_store(&may_go_on, true);
    CHECK(pthread_join(thread, NULL) == 0);
    struct pando_iterator *iterator;
    CHECK_OK(pando_iterator_open(table, NULL, &iterator));
    CHECK_STATUS(pando_table_close(table), PANDO_BUSY);
    pando_iterator_close(iterator);
    CHECK_OK(pando_table_open(pool, "t", &again));
    CHECK_OK(pando_table_close(again));
}

/* Threads that end while the pool is closed, and after. */
static void *use_and_stay(void *arg)
{
    CHECK_OK(pando_put(table, "e", 1, "e", 1));
    atomic_fetch_add(&standing, 1);
    while (!atomic_load((atomic_bool *)arg))
        usleep(10);
    return NULL;
}

static void test_ends_around_close(void)
{
    enum { ENDING = 16 };
    pthread_t threads[ENDING];
    atomic_bool go = false;
    atomic_store(&standing, 0);
    for (int i = 0; i < ENDING; i++)
        CHECK(pthread_create(&threads[i], NULL, use_and_stay, &go) == 0);
    while (atomic_load(&standing) < ENDING)
        usleep(100);
    CHECK_OK(pando_table_close(table));
    atomic_store(&go, true);
    CHECK_OK(pando_close(pool));
    for (int i = 0; i < ENDING; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    struct pando_options options = {.size = sizeof(options), .uri = "embedded:512M"};
    CHECK_OK(pando_open(&options, &pool, NULL, 0));
    CHECK_OK(pando_table_create(pool, "t", NULL));
    CHECK_OK(pando_table_open(pool, "t", &table));
    test_waves();
    test_too_many();
    test_busy();
    test_ends_around_close();
    return 0;
}
