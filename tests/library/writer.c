/*
 * Values that are written in pieces, of all sizes around those at which they are stored in another way, with both
 * engines: nobody sees them before the commit, whoever goes on with a writer; several threads write at once; what
 * was written and not committed comes back.
 */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "lib/check.h"

enum {
    MIB = 1 << 20,
    SEGMENT = 256 * 1024 - 48,
    LARGE = 64 * MIB, /* more than half of the pool */
    ABANDONED = 2,
    THREADS = 4,
    ROUNDS = 12,
    TRIES = 5,
    GRACE_S = 4 /* and time for a busy machine */
};

static struct pando_pool *pool;
static struct pando_table *table;

static uint8_t byte_at(uint64_t at, unsigned seed)
{
    return (uint8_t)((at * 31 + at / 251 + seed) & 0xff);
}

static enum pando_status add(struct pando_writer *writer, uint64_t from, uint64_t to, size_t step,
                             unsigned seed)
{
    enum pando_status status = PANDO_OK;
    uint8_t *piece = malloc(step);
    CHECK(piece != NULL);
    while (from < to && status == PANDO_OK) {
        size_t size = to - from < step ? (size_t)(to - from) : step;
        for (size_t i = 0; i < size; i++)
            piece[i] = byte_at(from + i, seed);
        status = pando_writer_add(writer, piece, size);
        from += size;
    }
    free(piece);
    return status;
}

static void check_value(const char *key, uint64_t size, unsigned seed)
{
    void *value;
    size_t got;
    CHECK_OK(pando_get_copy(table, key, strlen(key), &value, &got));
    CHECK_EQ_U64(got, size);
    for (uint64_t i = 0; i < size; i++)
        CHECK(((uint8_t *)value)[i] == byte_at(i, seed));
    pando_free(value);
}

static void test_sizes(void)
{
    const uint64_t sizes[] = {0,       1,           64,          65,      5000,
                              SEGMENT, SEGMENT + 1, 2 * SEGMENT, MIB + 7, 5 * MIB};
    const size_t steps[] = {1000, SEGMENT, SEGMENT + 3, 2 * MIB};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned j = 0; j < sizeof(steps) / sizeof(steps[0]); j++) {
            struct pando_writer *writer;
            CHECK_OK(pando_put(table, "k", 1, "old", 3));
            CHECK_OK(pando_writer_open(table, "k", 1, sizes[i], &writer));
            CHECK_OK(add(writer, 0, sizes[i], steps[j], j));
            char old[3];
            size_t size;
            CHECK_OK(pando_get(table, "k", 1, old, sizeof(old), &size));
            CHECK(size == 3 && memcmp(old, "old", 3) == 0);
            CHECK_OK(pando_writer_commit(writer, 0));
            pando_writer_close(writer);
            check_value("k", sizes[i], j);
        }
    }
    CHECK_OK(pando_delete(table, "k", 1));
}

static void test_conditions(uint64_t size)
{
    struct pando_writer *writer, *other;
    CHECK_OK(pando_writer_open(table, "c", 1, size, &writer));
    CHECK_OK(pando_writer_open(table, "c", 1, size, &other));
    CHECK_OK(add(writer, 0, size, 9999, 1));
    CHECK_OK(add(other, 0, size, 9999, 2));
    CHECK_STATUS(pando_writer_commit(writer, PANDO_IF_PRESENT), PANDO_NOT_FOUND);
    CHECK_OK(pando_writer_commit(other, PANDO_IF_ABSENT));
    check_value("c", size, 2);
    CHECK_STATUS(pando_writer_commit(writer, PANDO_IF_ABSENT), PANDO_EXISTS);
    CHECK_OK(pando_writer_commit(writer, PANDO_IF_PRESENT));
    check_value("c", size, 1);
    CHECK_STATUS(pando_writer_commit(writer, 0), PANDO_INVALID);
    CHECK_STATUS(pando_writer_add(writer, "x", 1), PANDO_INVALID);
    pando_writer_close(writer);
    pando_writer_close(other);
    check_value("c", size, 1);
    CHECK_OK(pando_delete(table, "c", 1));
}

/* What a writer that is closed had of the pool can be used again, when its grace period is over. One that finds the
 * pool full has taken all that was free: the next try is when that is over. */
static void test_abandoned(void)
{
    for (int i = 0; i < ABANDONED; i++) {
        struct pando_writer *writer;
        enum pando_status status = PANDO_FULL;
        for (int tries = 0; status == PANDO_FULL && tries < TRIES; tries++) {
            if (tries > 0)
                sleep(GRACE_S);
            CHECK_OK(pando_writer_open(table, "a", 1, LARGE, &writer));
            status = add(writer, 0, LARGE - (i % 2), MIB, 0);
            if (status == PANDO_FULL)
                CHECK_STATUS(pando_writer_add(writer, "x", 1), PANDO_INVALID);
            pando_writer_close(writer);
        }
        CHECK_OK(status);
    }
    CHECK_STATUS(pando_get(table, "a", 1, NULL, 0, NULL), PANDO_NOT_FOUND);
}

static void *continue_main(void *writer)
{
    CHECK_OK(add(writer, MIB, 3 * MIB, 77777, 5));
    return NULL;
}

static void *open_main(void *arg)
{
    struct pando_writer **writer = arg;
    CHECK_OK(pando_writer_open(table, "t", 1, 3 * MIB, writer));
    CHECK_OK(add(*writer, 0, MIB, 12345, 5));
    return NULL;
}

static void run_thread(void *(*main)(void *arg), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, main, arg) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Begun by a thread that ends, gone on with by another that ends, committed by this one. */
static void test_handed_on(void)
{
    struct pando_writer *writer;
    run_thread(open_main, &writer);
    run_thread(continue_main, writer);
    CHECK_STATUS(pando_table_close(table), PANDO_BUSY);
    CHECK_STATUS(pando_close(pool), PANDO_BUSY);
    CHECK_OK(pando_writer_commit(writer, 0));
    pando_writer_close(writer);
    check_value("t", 3 * MIB, 5);
    CHECK_OK(pando_delete(table, "t", 1));
}

static void *worker_main(void *arg)
{
    unsigned self = *(unsigned *)arg;
    char own[16];
    size_t own_size = (size_t)snprintf(own, sizeof(own), "own%u", self);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t size = i % 3 == 0 ? 3000 : SEGMENT + 1000 * i + self;
        const char *key = i % 2 == 0 ? own : "shared";
        struct pando_writer *writer;
        CHECK_OK(pando_writer_open(table, key, strlen(key), size, &writer));
        CHECK_OK(add(writer, 0, size, 50000, self));
        if (i % 5 != 4)
            CHECK_OK(pando_writer_commit(writer, 0));
        pando_writer_close(writer);
        if (i % 2 == 0 && i % 5 != 4)
            check_value(own, size, self);
    }
    CHECK_OK(pando_delete(table, own, own_size));
    return NULL;
}

/* A key that all of them write has a value that is whole one of theirs. */
static void test_threads(void)
{
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, worker_main, &numbers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    uint8_t first;
    size_t size;
    CHECK_OK(pando_get(table, "shared", 6, &first, 1, &size));
    check_value("shared", size, first);
    CHECK_OK(pando_delete(table, "shared", 6));
}

static void test_dropped(void)
{
    struct pando_table *gone;
    struct pando_writer *writer;
    CHECK_OK(pando_table_create(pool, "gone", NULL));
    CHECK_OK(pando_table_open(pool, "gone", &gone));
    CHECK_OK(pando_writer_open(gone, "k", 1, 2 * MIB, &writer));
    CHECK_OK(add(writer, 0, MIB, MIB, 0));
    CHECK_OK(pando_table_drop(pool, "gone"));
    enum pando_status status = add(writer, MIB, 2 * MIB, MIB, 0);
    if (status == PANDO_OK)
        status = pando_writer_commit(writer, 0);
    CHECK_STATUS(status, PANDO_NOT_FOUND);
    pando_writer_close(writer);
    CHECK_OK(pando_table_close(gone));
}

int main(void)
{
    struct pando_options options = {.size = sizeof(options), .uri = "embedded:128M"};
    char error[256];
    const char *engines[] = {"sherman", "dex"};
    for (int i = 0; i < 2; i++) {
        struct pando_table_options shape = {.size = sizeof(shape), .engine = engines[i]};
        if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK)
            CHECK_FAIL("%s", error);
        CHECK_OK(pando_table_create(pool, "t", &shape));
        CHECK_OK(pando_table_open(pool, "t", &table));
        test_sizes();
        test_conditions(10);
        test_conditions(MIB);
        test_handed_on();
        test_threads();
        test_dropped();
        test_abandoned(); /* the pool has no room for long afterwards */
        CHECK_OK(pando_table_close(table));
        CHECK_OK(pando_close(pool));
    }
    return 0;
}
