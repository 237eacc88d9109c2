/*
 * Operations in flight against a model: per key one at a time, so that its outcome is known; and a thread
 * that does not poll holds nobody up.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "lib/check.h"

enum { DEPTH = 64, KEYS = 500, OPERATIONS = 60000 };

struct key {
    bool present, busy;
    uint64_t value; /* what it holds if it is present */
};

struct in_flight {
    unsigned key;
    int kind;
    uint64_t value, got;
    char name[24];
    size_t name_size;
};

static struct pando_pool *pool;
static struct pando_table *table;
static struct key keys[KEYS];
static struct in_flight flying[DEPTH];

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static enum pando_status launch(struct pando_queue *queue, unsigned slot, uint64_t *random)
{
    struct in_flight *operation = &flying[slot];
    do
        operation->key = (unsigned)(next_random(random) % KEYS);
    while (keys[operation->key].busy);
    operation->kind = (int)(next_random(random) % 6);
    operation->value = next_random(random);
    operation->got = 0;
    operation->name_size =
        (size_t)snprintf(operation->name, sizeof(operation->name), "key %u", operation->key);
    const char *name = operation->name;
    size_t size = operation->name_size;
    enum pando_status status;
    switch (operation->kind) {
    case 0:
        status = pando_submit_delete(queue, table, name, size, slot);
        break;
    case 1:
        status = pando_submit_put_if(queue, table, PANDO_IF_ABSENT, name, size, &operation->value,
                                     8, slot);
        break;
    case 2:
        status = pando_submit_put_if(queue, table, PANDO_IF_PRESENT, name, size, &operation->value,
                                     8, slot);
        break;
    case 3:
        status = pando_submit_put(queue, table, name, size, &operation->value, 8, slot);
        break;
    default:
        status = pando_submit_get(queue, table, name, size, &operation->got, 8, slot);
    }
    if (status == PANDO_OK)
        keys[operation->key].busy = true;
    return status;
}

static void land(const struct pando_completion *completion)
{
    CHECK(completion->tag < DEPTH);
    struct in_flight *operation = &flying[completion->tag];
    struct key *key = &keys[operation->key];
    bool present = key->present;
    CHECK(key->busy);
    key->busy = false;
    switch (operation->kind) {
    case 0:
        CHECK_STATUS(completion->status, present ? PANDO_OK : PANDO_NOT_FOUND);
        key->present = false;
        return;
    case 1:
        CHECK_STATUS(completion->status, present ? PANDO_EXISTS : PANDO_OK);
        break;
    case 2:
        CHECK_STATUS(completion->status, present ? PANDO_OK : PANDO_NOT_FOUND);
        break;
    case 3:
        CHECK_OK(completion->status);
        break;
    default:
        CHECK_STATUS(completion->status, present ? PANDO_OK : PANDO_NOT_FOUND);
        if (present)
            CHECK(completion->value_size == 8 && operation->got == key->value);
        return;
    }
    if (completion->status == PANDO_OK) {
        key->present = true;
        key->value = operation->value;
    }
}

static void test_model(void)
{
    struct pando_queue *queue;
    struct pando_completion completions[DEPTH];
    unsigned idle[DEPTH], idle_count = DEPTH, launched = 0, landed = 0, out_of_order = 0, count;
    uint64_t random = 42, last_tag = 0;

    CHECK_OK(pando_queue_open(pool, DEPTH, &queue));
    for (unsigned i = 0; i < DEPTH; i++)
        idle[i] = i;
    while (landed < OPERATIONS) {
        while (idle_count > 0 && launched < OPERATIONS) {
            CHECK_OK(launch(queue, idle[--idle_count], &random));
            launched++;
        }
        if (launched < OPERATIONS) {
            CHECK_EQ_U64(pando_queue_in_flight(queue), DEPTH);
            CHECK_STATUS(pando_submit_delete(queue, table, "x", 1, 0), PANDO_AGAIN);
        }
        int timeout_ms = (int)(next_random(&random) % 3) - 1;
        unsigned most = 1 + (unsigned)(next_random(&random) % DEPTH);
        CHECK_OK(pando_queue_poll(queue, completions, most, timeout_ms, &count));
        CHECK(count <= most && (timeout_ms != -1 || count > 0));
        for (unsigned i = 0; i < count; i++) {
            land(&completions[i]);
            out_of_order += completions[i].tag < last_tag;
            last_tag = completions[i].tag;
            idle[idle_count++] = (unsigned)completions[i].tag;
        }
        landed += count;
    }
    CHECK_EQ_U64(pando_queue_in_flight(queue), 0);
    CHECK_OK(pando_queue_poll(queue, completions, DEPTH, -1, &count));
    CHECK(count == 0);
    pando_queue_close(queue);
    for (unsigned i = 0; i < KEYS; i++) {
        char name[24];
        uint64_t value = 0;
        size_t size = (size_t)snprintf(name, sizeof(name), "key %u", i);
        CHECK_STATUS(pando_get(table, name, size, &value, 8, NULL),
                     keys[i].present ? PANDO_OK : PANDO_NOT_FOUND);
        CHECK(!keys[i].present || value == keys[i].value);
    }
}

/* Submits and goes away, for longer than a lease; another thread meanwhile works on the same keys. */
static void test_not_polled(void)
{
    enum { SHARED = 16 };
    struct pando_queue *queue;
    struct pando_completion completions[DEPTH];
    unsigned count, landed = 0;
    static uint64_t names[DEPTH];
    CHECK_OK(pando_queue_open(pool, DEPTH, &queue));
    for (unsigned i = 0; i < DEPTH; i++) {
        names[i] = i % SHARED;
        CHECK_OK(pando_submit_put(queue, table, &names[i], 8, "value", 5, i));
    }
    for (unsigned round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < SHARED; i++)
            CHECK_OK(pando_put(table, &i, 8, "other", 5));
        usleep(100 * 1000);
    }
    CHECK_STATUS(pando_table_close(table), PANDO_BUSY);
    CHECK_STATUS(pando_close(pool), PANDO_BUSY);
    while (landed < DEPTH) {
        CHECK_OK(pando_queue_poll(queue, completions, DEPTH, 0, &count));
        CHECK(count > 0); /* they have long been done */
        for (unsigned i = 0; i < count; i++)
            CHECK_OK(completions[i].status);
        landed += count;
    }
    for (unsigned i = 0; i < DEPTH; i++) /* closed with all in flight */
        CHECK_OK(pando_submit_put(queue, table, &names[i], 8, "value", 5, i));
    pando_queue_close(queue);
    pando_queue_close(NULL);
}

static void test_bad(void)
{
    struct pando_queue *queue;
    struct pando_completion completion;
    unsigned count;
    char key[2000] = {0};
    CHECK_STATUS(pando_queue_open(pool, 0, &queue), PANDO_INVALID);
    CHECK_STATUS(pando_queue_open(pool, PANDO_QUEUE_DEPTH_MAX + 1, &queue), PANDO_INVALID);
    CHECK_OK(pando_queue_open(pool, 1, &queue));
    CHECK_STATUS(pando_submit_get(queue, NULL, "k", 1, NULL, 0, 1), PANDO_INVALID);
    CHECK_STATUS(pando_submit_get(queue, table, NULL, 1, NULL, 0, 1), PANDO_INVALID);
    CHECK_STATUS(pando_submit_get(queue, table, "k", 1, NULL, 5, 1), PANDO_INVALID);
    CHECK_STATUS(pando_submit_put(queue, table, "k", 1, NULL, 5, 1), PANDO_INVALID);
    CHECK_STATUS(pando_queue_poll(queue, &completion, 0, 0, &count), PANDO_INVALID);
    CHECK_OK(pando_submit_put(queue, table, key, sizeof(key), "v", 1, 77));
    CHECK_OK(pando_queue_poll(queue, &completion, 1, 5000, &count));
    CHECK(count == 1 && completion.tag == 77 && completion.status == PANDO_TOO_LARGE);
    CHECK_OK(pando_queue_poll(queue, &completion, 1, 20, &count));
    CHECK(count == 0);
    pando_queue_close(queue);
}

/* A queue per thread. */
static void *queue_thread(void *arg)
{
    struct pando_queue *queue;
    struct pando_completion completions[16];
    static _Thread_local uint64_t names[16];
    unsigned count;
    CHECK_OK(pando_queue_open(pool, 16, &queue));
    for (uint64_t round = 0; round < 200; round++) {
        for (uint64_t i = 0; i < 16; i++) {
            names[i] = (uint64_t)(uintptr_t)arg << 32 | (round * 16 + i);
            CHECK_OK(pando_submit_put(queue, table, &names[i], 8, &names[i], 8, i));
        }
        for (unsigned landed = 0; landed < 16; landed += count) {
            CHECK_OK(pando_queue_poll(queue, completions, 16, -1, &count));
            for (unsigned i = 0; i < count; i++)
                CHECK_OK(completions[i].status);
        }
    }
    pando_queue_close(queue);
    return NULL;
}

static void test_queues(void)
{
    enum { QUEUES = 4 };
    pthread_t threads[QUEUES];
    for (uintptr_t i = 0; i < QUEUES; i++)
        CHECK(pthread_create(&threads[i], NULL, queue_thread, (void *)(i + 1)) == 0);
    for (int i = 0; i < QUEUES; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (uint64_t i = 1; i <= QUEUES; i++) {
        for (uint64_t j = 0; j < 200 * 16; j++) {
            uint64_t name = i << 32 | j, value = 0;
            CHECK_OK(pando_get(table, &name, 8, &value, 8, NULL));
            CHECK_EQ_U64(value, name);
        }
    }
}

int main(void)
{
    struct pando_options options = {.size = sizeof(options), .uri = "embedded:256M"};
    CHECK_OK(pando_open(&options, &pool, NULL, 0));
    CHECK_OK(pando_table_create(pool, "t", NULL));
    CHECK_OK(pando_table_open(pool, "t", &table));
    test_model();
    test_not_polled();
    test_bad();
    test_queues();
    CHECK_OK(pando_table_close(table));
    CHECK_OK(pando_close(pool));
    return 0;
}
