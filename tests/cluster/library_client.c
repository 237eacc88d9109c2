/*
 * A client for cluster tests, of the C library: three threads put keys one after the other and one keeps 64 in
 * flight, for some seconds or until SIGTERM, whatever happens to the memory nodes. In the end every key that
 * was acknowledged must be there.
 *
 *   cluster_library_client URI SECRET SECONDS [IDLE_SECONDS]
 *
 * does nothing for IDLE_SECONDS before it reads; prints "running", "met" and what with the first failure of a kind, how
 * many there were of each in the end, and how many keys it checked.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pando/pando.h"

enum { THREADS = 4, IN_FLIGHT = 64, KEYS_MAX = 1 << 20, PATIENCE_S = 60 };

struct writer {
    pthread_t thread;
    uint64_t index, count; /* after KEYS_MAX it begins anew: a key has always the same value */
    uint8_t *acknowledged; /* by number of the key */
};

static uint64_t next_number(struct writer *writer)
{
    return writer->count++ % KEYS_MAX;
}

static struct pando_pool *pool;
static struct pando_table *table;
static atomic_bool stop;
static atomic_ullong failures[PANDO_STATUS_COUNT];
static char text_of[PANDO_STATUS_COUNT][320];

static void give_up(const char *what, enum pando_status status)
{
    fprintf(stderr, "library_client: %s: %s: %s\n", what, pando_status_text(status),
            pando_error_text(pool));
    exit(1);
}

static void note(enum pando_status status)
{
    if (atomic_fetch_add(&failures[status], 1) == 0) {
        snprintf(text_of[status], sizeof(text_of[status]), "%s", pando_error_text(pool));
        printf("met %s\n", pando_status_text(status));
        fflush(stdout);
    }
    if (status != PANDO_BROKEN && status != PANDO_TIMEOUT && status != PANDO_UNKNOWN)
        give_up("put", status);
}

static uint64_t name_of(const struct writer *writer, uint64_t number)
{
    return number * THREADS + writer->index;
}

static void *write_main(void *arg)
{
    struct writer *writer = arg;
    while (!atomic_load(&stop)) {
        uint64_t number = next_number(writer), name = name_of(writer, number), value = ~name;
        enum pando_status status = pando_put(table, &name, 8, &value, 8);
        if (status != PANDO_OK)
            note(status);
        writer->acknowledged[number] |= status == PANDO_OK;
    }
    return NULL;
}

static void *queue_main(void *arg)
{
    struct writer *writer = arg;
    struct pando_queue *queue;
    struct pando_completion completions[IN_FLIGHT];
    uint64_t names[IN_FLIGHT], values[IN_FLIGHT], numbers[IN_FLIGHT];
    unsigned idle[IN_FLIGHT], idle_count = IN_FLIGHT, count;

    if (pando_queue_open(pool, IN_FLIGHT, &queue) != PANDO_OK)
        give_up("queue", PANDO_INVALID);
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        idle[i] = i;
    while (!atomic_load(&stop) || idle_count < IN_FLIGHT) {
        while (!atomic_load(&stop) && idle_count > 0) {
            unsigned slot = idle[--idle_count];
            numbers[slot] = next_number(writer);
            names[slot] = name_of(writer, numbers[slot]);
            values[slot] = ~names[slot];
            enum pando_status status =
                pando_submit_put(queue, table, &names[slot], 8, &values[slot], 8, slot);
            if (status != PANDO_OK)
                give_up("submit", status);
        }
        enum pando_status status = pando_queue_poll(queue, completions, IN_FLIGHT, 100, &count);
        if (status != PANDO_OK)
            give_up("poll", status);
        for (unsigned i = 0; i < count; i++) {
            if (completions[i].status != PANDO_OK)
                note(completions[i].status);
            writer->acknowledged[numbers[completions[i].tag]] |= completions[i].status == PANDO_OK;
            idle[idle_count++] = (unsigned)completions[i].tag;
        }
    }
    pando_queue_close(queue);
    return NULL;
}

/* Reading may meet the end of an outage still. */
static enum pando_status get_patiently(uint64_t name, uint64_t *value)
{
    enum pando_status status;
    time_t begun = time(NULL);
    do
        status = pando_get(table, &name, 8, value, 8, NULL);
    while ((status == PANDO_BROKEN || status == PANDO_TIMEOUT) && time(NULL) - begun < PATIENCE_S);
    return status;
}

enum { PIECE = 512 };

/* Many at a time; those that did not come, patiently. How many are lost. */
static unsigned long long verify_piece(const uint64_t *names, size_t count)
{
    struct pando_operation operations[PIECE];
    uint64_t values[PIECE] = {0};
    unsigned long long lost = 0;
    for (size_t i = 0; i < count; i++)
        operations[i] = (struct pando_operation){
            .kind = PANDO_GET, .key = {&names[i], 8}, .buffer = &values[i], .capacity = 8};
    enum pando_status status = pando_multi_get(table, operations, count);
    (void)status; /* each has its own */
    for (size_t i = 0; i < count; i++) {
        status = operations[i].status;
        if (status == PANDO_BROKEN || status == PANDO_TIMEOUT)
            status = get_patiently(names[i], &values[i]);
        if (status == PANDO_OK && values[i] == ~names[i])
            continue;
        fprintf(stderr, "library_client: key %llu is lost: %s\n", (unsigned long long)names[i],
                pando_status_text(status));
        lost++;
    }
    return lost;
}

static int verify(const struct writer *writers)
{
    unsigned long long checked = 0, lost = 0;
    uint64_t names[PIECE];
    size_t count = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        for (uint64_t number = 0; number < writers[i].count && number < KEYS_MAX; number++) {
            if (!writers[i].acknowledged[number])
                continue;
            names[count++] = name_of(&writers[i], number);
            if (count < PIECE)
                continue;
            lost += verify_piece(names, count);
            checked += count;
            count = 0;
        }
    }
    lost += verify_piece(names, count);
    checked += count;
    printf("%llu keys checked, %llu lost\n", checked, lost);
    return lost > 0;
}

/* It ends the sleep. */
static void on_signal(int number)
{
    (void)number;
}

int main(int argc, char **argv)
{
    struct writer writers[THREADS];
    char error[256];
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "see the head of library_client.c\n");
        return 2;
    }
    struct pando_options options = {
        .size = sizeof(options), .uri = argv[1], .secret_file = argv[2]};
    options.tls_ca = getenv("LIBRARY_CLIENT_CA"); /* with it: TLS */
    options.tls = options.tls_ca != NULL;
    if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "library_client: %s\n", error);
        return 1;
    }
    enum pando_status status = pando_table_create(pool, "t", NULL);
    if ((status != PANDO_OK && status != PANDO_EXISTS) ||
        (status = pando_table_open(pool, "t", &table)) != PANDO_OK)
        give_up("open", status);
    for (unsigned i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){.index = i, .acknowledged = calloc(KEYS_MAX, 1)};
        if (pthread_create(&writers[i].thread, NULL, i == 0 ? queue_main : write_main,
                           &writers[i]) != 0)
            return 1;
    }
    (void)signal(SIGTERM, on_signal);
    printf("running\n");
    fflush(stdout);
    sleep((unsigned)atoi(argv[3]));
    atomic_store(&stop, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(writers[i].thread, NULL);
    for (unsigned i = 0; i < PANDO_STATUS_COUNT; i++) {
        if (atomic_load(&failures[i]) > 0)
            printf("%llu times %s, first: %s\n", atomic_load(&failures[i]),
                   pando_status_text((enum pando_status)i), text_of[i]);
    }
    if (argc == 5)
        sleep((unsigned)atoi(argv[4]));
    int result = verify(writers);
    if (pando_table_close(table) != PANDO_OK || pando_close(pool) != PANDO_OK)
        give_up("close", PANDO_BUSY);
    return result;
}
