/*
 * A client of memory nodes elsewhere, with 64 operations in flight on one thread.
 *
 *   pando memory --listen 127.0.0.1:7000 --size 1G --secret-file SECRET &
 *   ./cluster tcp:127.0.0.1:7000 SECRET
 */
#include <pando/pando.h>
#include <stdio.h>
#include <string.h>

enum { IN_FLIGHT = 64, KEYS = 20000 };

/* What one operation in flight needs; the tag of its completion is its index. */
struct operation {
    char key[24];
    char value[24];
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "cluster: %s: %s\n", what, why);
    return 1;
}

/* Puts, then gets KEYS keys, as many at a time as the queue takes. */
static int run(struct pando_queue *queue, struct pando_table *table, int getting)
{
    static struct operation operations[IN_FLIGHT];
    unsigned idle[IN_FLIGHT], idle_count = IN_FLIGHT, next = 0, done = 0;
    struct pando_completion completions[IN_FLIGHT];

    for (unsigned i = 0; i < IN_FLIGHT; i++)
        idle[i] = i;
    while (done < KEYS) {
        while (idle_count > 0 && next < KEYS) {
            unsigned index = idle[--idle_count];
            struct operation *operation = &operations[index];
            int key_size = snprintf(operation->key, sizeof(operation->key), "key %u", next);
            int value_size = snprintf(operation->value, sizeof(operation->value), "value %u", next);
            enum pando_status status =
                getting ? pando_submit_get(queue, table, operation->key, (size_t)key_size,
                                           operation->value, sizeof(operation->value), index)
                        : pando_submit_put(queue, table, operation->key, (size_t)key_size,
                                           operation->value, (size_t)value_size, index);
            if (status != PANDO_OK)
                return fail("submit", pando_status_text(status));
            next++;
        }
        unsigned count;
        enum pando_status status = pando_queue_poll(queue, completions, IN_FLIGHT, -1, &count);
        if (status != PANDO_OK)
            return fail("poll", pando_status_text(status));
        for (unsigned i = 0; i < count; i++) {
            if (completions[i].status != PANDO_OK)
                return fail(operations[completions[i].tag].key,
                            pando_status_text(completions[i].status));
            idle[idle_count++] = (unsigned)completions[i].tag;
            done++;
        }
    }
    printf("%u keys %s\n", done, getting ? "read" : "written");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr,
                "usage: cluster URI SECRET_FILE, for example cluster tcp:127.0.0.1:7000 s\n");
        return 2;
    }
    struct pando_options options = {
        .size = sizeof(options), .uri = argv[1], .secret_file = argv[2], .name = "cluster example"};
    struct pando_pool *pool;
    struct pando_table *table;
    struct pando_queue *queue;
    char error[256];

    if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK)
        return fail(argv[1], error);
    enum pando_status status = pando_table_create(pool, "example", NULL);
    if (status != PANDO_OK && status != PANDO_EXISTS)
        return fail("create", pando_error_text(pool));
    if (pando_table_open(pool, "example", &table) != PANDO_OK ||
        pando_queue_open(pool, IN_FLIGHT, &queue) != PANDO_OK)
        return fail("open", pando_error_text(pool));

    int result = run(queue, table, 0);
    if (result == 0)
        result = run(queue, table, 1);

    pando_queue_close(queue);
    if (pando_table_close(table) != PANDO_OK || pando_close(pool) != PANDO_OK)
        return fail("close", pando_error_text(pool));
    return result;
}
