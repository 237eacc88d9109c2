/*
 * pando_error_text after every failure: of all functions of pando.h, with the statuses that each can return.
 * Before each, another failure is made whose text must not be what is read.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/check.h"

#define TEXT(text) (text), sizeof(text) - 1

enum { FUNCTIONS_MAX = 64, WRITTEN = 1000000 };

static struct pando_pool *pool;
static struct pando_table *table, *small, *dropped; /* small: keys of 4 bytes, values of 2 */
static struct pando_iterator *iterator;
static struct pando_queue *queue;
static struct pando_writer *writer; /* of a long value */
static uint8_t large[2000];

/* Functions whose failures were looked at, and statuses. */
static const char *seen[FUNCTIONS_MAX];
static unsigned seen_count;
static bool status_seen[PANDO_STATUS_COUNT];

/* The call as it is written, up to the brackets. */
static void see(const char *call)
{
    size_t size = strcspn(call, "(") + 1;
    for (unsigned i = 0; i < seen_count; i++) {
        if (strncmp(seen[i], call, size) == 0)
            return;
    }
    CHECK(seen_count < FUNCTIONS_MAX);
    seen[seen_count++] = call;
}

static struct pando_pool *open_pool(const char *uri)
{
    struct pando_options options = {.size = sizeof(options), .uri = uri};
    struct pando_pool *opened;
    char error[256];
    if (pando_open(&options, &opened, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s: %s", uri, error);
    return opened;
}

/* Leaves a text that must be gone after the next failure. */
static void poison(struct pando_pool *of)
{
    struct pando_table *none;
    CHECK_STATUS(pando_table_open(of, "poison", &none), PANDO_NOT_FOUND);
    CHECK(strstr(pando_error_text(of), "poison") != NULL);
}

static void check_text(const struct pando_pool *of, const char *call, const char *part, int line)
{
    const char *text = pando_error_text(of);
    if (text[0] == '\0' || strstr(text, "poison") != NULL || strchr(text, '\n') != NULL ||
        strstr(text, part) == NULL)
        CHECK_FAIL("line %d: %s: '%s' does not say '%s'", line, call, text, part);
}

/* A call of `function` on `of` fails so, and its text has both parts: what it is about, and why or what to do. */
#define FAILS(of, call, expected, about, why)                                                      \
    do {                                                                                           \
        poison(of);                                                                                \
        CHECK_STATUS(call, expected);                                                              \
        check_text(of, #call, about, __LINE__);                                                    \
        check_text(of, #call, why, __LINE__);                                                      \
        see(#call);                                                                                \
        status_seen[expected] = true;                                                              \
    } while (0)

/* ---- tables ---------------------------------------------------------------------------------- */

static void test_tables(void)
{
    struct pando_table *none;
    struct pando_table_options options = {.size = sizeof(options)};
    struct pando_table_info infos[1];
    size_t count;
    char longest[80];

    memset(longest, 'n', sizeof(longest));
    longest[64] = '\0';
    FAILS(pool, pando_table_create(pool, NULL, NULL), PANDO_INVALID, "create", "name is NULL");
    FAILS(pool, pando_table_create(pool, "#1", NULL), PANDO_INVALID, "'#1'", "do not begin with");
    FAILS(pool, pando_table_create(pool, longest, NULL), PANDO_INVALID, "nnn", "1 to 63 bytes");
    FAILS(pool, pando_table_create(pool, "t", NULL), PANDO_EXISTS, "'t'", "open it, or drop it");
    options.engine = "steam";
    FAILS(pool, pando_table_create(pool, "x", &options), PANDO_INVALID, "'steam'", "sherman");
    options = (struct pando_table_options){.size = sizeof(options), .key_max = 5000};
    FAILS(pool, pando_table_create(pool, "x", &options), PANDO_TOO_LARGE, "'x'", "most is 1024");
    options = (struct pando_table_options){.size = sizeof(options), .key_max = 8, .key_size = 4};
    FAILS(pool, pando_table_create(pool, "x", &options), PANDO_INVALID, "'x'", "give one of them");
    options =
        (struct pando_table_options){.size = sizeof(options), .value_size = 8, .value_inline = 4};
    FAILS(pool, pando_table_create(pool, "x", &options), PANDO_INVALID, "'x'", "leave it out");
    options = (struct pando_table_options){.size = sizeof(options), .value_size = 30000};
    FAILS(pool, pando_table_create(pool, "x", &options), PANDO_TOO_LARGE, "'x'", "use less");
    options.size = 1;
    FAILS(pool, pando_table_create(pool, "x", &options), PANDO_INVALID, "create", "their size");
    FAILS(pool, pando_table_open(pool, "x", &none), PANDO_NOT_FOUND, "'x'", "pando_table_create");
    FAILS(pool, pando_table_open(pool, NULL, &none), PANDO_INVALID, "open", "name is NULL");
    FAILS(pool, pando_table_open(pool, "t", NULL), PANDO_INVALID, "open", "NULL");
    FAILS(pool, pando_table_drop(pool, "x"), PANDO_NOT_FOUND, "'x'", "pando_table_list");
    FAILS(pool, pando_table_drop(pool, NULL), PANDO_INVALID, "drop", "name is NULL");
    FAILS(pool, pando_table_list(pool, infos, 1, NULL), PANDO_INVALID, "list", "NULL");
    FAILS(pool, pando_table_list(pool, NULL, 1, &count), PANDO_INVALID, "list", "NULL");
    FAILS(pool, pando_table_close(table), PANDO_BUSY, "'t'", "2 iterators");
    FAILS(pool, pando_close(pool), PANDO_BUSY, "3 tables, 1 iterators, 1 queues and 1 writers",
          "close them");
}

/* ---- one key --------------------------------------------------------------------------------- */

static enum pando_change bad_change(void *context, const struct pando_slice *old,
                                    struct pando_slice *value)
{
    (void)context, (void)old, (void)value;
    return (enum pando_change)7;
}

static enum pando_change large_change(void *context, const struct pando_slice *old,
                                      struct pando_slice *value)
{
    (void)context, (void)old;
    *value = (struct pando_slice){.data = large, .size = 3};
    return PANDO_STORE;
}

static void test_reads(void)
{
    char value[8];
    void *copy;
    size_t size;
    FAILS(pool, pando_get(table, TEXT("none"), NULL, 0, NULL), PANDO_NOT_FOUND, "'t'",
          "no such key");
    FAILS(pool, pando_get(table, NULL, 3, NULL, 0, NULL), PANDO_INVALID, "'t'", "key is NULL");
    FAILS(pool, pando_get(table, TEXT("k"), NULL, 9, NULL), PANDO_INVALID, "'t'", "memory");
    FAILS(pool, pando_get(table, large, 2000, value, 8, NULL), PANDO_TOO_LARGE, "'t'",
          "2000 bytes, and the table's longest 1024");
    FAILS(pool, pando_get(small, "abc", 3, value, 8, NULL), PANDO_INVALID, "'small'",
          "3 bytes, and all keys of the table have 4");
    FAILS(pool, pando_get(dropped, "abc", 3, value, 8, NULL), PANDO_NOT_FOUND, "'dropped'",
          "was dropped");
    FAILS(pool, pando_get_copy(table, TEXT("none"), &copy, &size), PANDO_NOT_FOUND, "'t'",
          "no such key");
    FAILS(pool, pando_get_copy(table, TEXT("k"), NULL, &size), PANDO_INVALID, "'t'", "NULL");
    FAILS(pool, pando_get_copy(table, TEXT("k"), &copy, NULL), PANDO_INVALID, "'t'", "size");
    FAILS(pool, pando_get_copy(table, large, 1025, &copy, &size), PANDO_TOO_LARGE, "'t'", "1025");
    FAILS(pool, pando_get_part(table, TEXT("none"), 0, value, 8, NULL), PANDO_NOT_FOUND, "'t'",
          "no such key");
    FAILS(pool, pando_get_part(table, TEXT("k"), 0, NULL, 8, NULL), PANDO_INVALID, "'t'", "memory");
    FAILS(pool, pando_get_part(dropped, TEXT("k"), 0, value, 8, NULL), PANDO_NOT_FOUND, "'dropped'",
          "was dropped");
}

static void test_writes(void)
{
    FAILS(pool, pando_put(table, large, 1030, "v", 1), PANDO_TOO_LARGE, "put into table 't'",
          "1030");
    FAILS(pool, pando_put(table, "k", 1, large, (size_t)PANDO_VALUE_MAX + 1), PANDO_TOO_LARGE,
          "'t'", "536870913 bytes, and the table's longest 536870912");
    FAILS(pool, pando_put(table, "k", 1, NULL, 1), PANDO_INVALID, "'t'", "value is NULL");
    FAILS(pool, pando_put(small, "abcd", 4, "v", 1), PANDO_INVALID, "'small'",
          "1 bytes, and all values of the table have 2");
    FAILS(pool, pando_put(small, "abcd", 4, "vwx", 3), PANDO_TOO_LARGE, "'small'", "3 bytes");
    FAILS(pool, pando_put_if(table, PANDO_IF_ABSENT, "k", 1, "v", 1), PANDO_EXISTS, "'t'",
          "is there");
    FAILS(pool, pando_put_if(table, PANDO_IF_PRESENT, "none", 4, "v", 1), PANDO_NOT_FOUND, "'t'",
          "no such key");
    FAILS(pool, pando_put_if(table, (enum pando_condition)9, "k", 1, "v", 1), PANDO_INVALID, "'t'",
          "9 is no condition");
    FAILS(pool, pando_delete(table, "none", 4), PANDO_NOT_FOUND, "delete from table 't'",
          "no such");
    FAILS(pool, pando_delete(table, NULL, 4), PANDO_INVALID, "'t'", "key is NULL");
    FAILS(pool, pando_compare_and_put(table, "k", 1, "w", 1, "x", 1), PANDO_STALE, "'t'",
          "not the expected one");
    FAILS(pool, pando_compare_and_put(table, "none", 4, "w", 1, "x", 1), PANDO_NOT_FOUND, "'t'",
          "no such key");
    FAILS(pool, pando_compare_and_put(table, "k", 1, NULL, 1, "x", 1), PANDO_INVALID, "'t'",
          "expected value is NULL");
    FAILS(pool, pando_compare_and_put(small, "abcd", 4, "vw", 2, "x", 1), PANDO_INVALID, "'small'",
          "1 bytes");
    FAILS(pool, pando_modify(table, "k", 1, NULL, NULL), PANDO_INVALID, "'t'", "callback is NULL");
    FAILS(pool, pando_modify(table, "k", 1, bad_change, NULL), PANDO_INVALID, "'t'",
          "pando_change");
    FAILS(pool, pando_modify(small, "abcd", 4, large_change, NULL), PANDO_TOO_LARGE, "'small'",
          "3 bytes");
    FAILS(pool, pando_modify(dropped, "k", 1, bad_change, NULL), PANDO_NOT_FOUND, "'dropped'",
          "was dropped");
    FAILS(pool, pando_add(table, "k", 1, 1, NULL), PANDO_INVALID, "'t'", "1 bytes, and a number 8");
    CHECK_OK(pando_add(table, "n", 1, INT64_MAX, NULL));
    FAILS(pool, pando_add(table, "n", 1, 1, NULL), PANDO_RANGE, "add to a number in table 't'",
          "sum with 1");
}

static void test_many(void)
{
    struct pando_operation operations[3] = {{.kind = PANDO_GET, .key = {"k", 1}},
                                            {.kind = PANDO_GET, .key = {large, 1100}},
                                            {.kind = PANDO_PUT, .key = {"k", 1}}};
    FAILS(pool, pando_multi_get(table, operations, 2), PANDO_TOO_LARGE, "operation 2 of 2", "1100");
    FAILS(pool, pando_multi_get(table, operations, 3), PANDO_INVALID, "operation 3 of 3",
          "not a get");
    FAILS(pool, pando_multi_get(table, NULL, 3), PANDO_INVALID, "'t'", "operations is NULL");
    FAILS(pool, pando_multi_get(dropped, operations, 1), PANDO_NOT_FOUND, "'dropped'",
          "was dropped");
    FAILS(pool, pando_write_batch(table, operations, 3), PANDO_INVALID, "operation 1 of 3",
          "neither");
    operations[0].kind = operations[1].kind = PANDO_PUT;
    FAILS(pool, pando_write_batch(table, operations, 3), PANDO_TOO_LARGE, "operation 2 of 3",
          "1100");
    FAILS(pool, pando_write_batch(dropped, operations, 1), PANDO_NOT_FOUND, "'dropped'",
          "was dropped");
    CHECK_OK(pando_put(table, "k", 1, "v", 1));
    FAILS(pool, pando_delete_prefix(table, NULL, 1, NULL), PANDO_INVALID, "'t'", "prefix is NULL");
    FAILS(pool, pando_delete_prefix(dropped, "k", 1, NULL), PANDO_NOT_FOUND, "'dropped'",
          "dropped");
}

/* ---- values in pieces ------------------------------------------------------------------------ */

static void test_writers(void)
{
    struct pando_writer *one;
    FAILS(pool, pando_writer_open(table, NULL, 1, 9, &one), PANDO_INVALID, "'t'", "key is NULL");
    FAILS(pool, pando_writer_open(table, TEXT("k"), 9, NULL), PANDO_INVALID, "'t'", "is NULL");
    FAILS(pool, pando_writer_open(table, large, 2000, 9, &one), PANDO_TOO_LARGE, "'t'", "1024");
    FAILS(pool, pando_writer_open(table, TEXT("k"), PANDO_VALUE_MAX + 1, &one), PANDO_TOO_LARGE,
          "'t'", "divide it");
    FAILS(pool, pando_writer_open(table, TEXT("k"), PANDO_VALUE_MAX, &one), PANDO_FULL, "'t'",
          "larger pool");
    FAILS(pool, pando_writer_open(small, TEXT("abcd"), WRITTEN, &one), PANDO_INVALID, "'small'",
          "all values of the table have 2");
    FAILS(pool, pando_writer_open(dropped, TEXT("k"), WRITTEN, &one), PANDO_NOT_FOUND, "'dropped'",
          "was dropped");
    FAILS(pool, pando_writer_add(writer, NULL, 1), PANDO_INVALID, "'t'", "piece is NULL");
    FAILS(pool, pando_writer_add(writer, large, WRITTEN + 1), PANDO_INVALID, "'t'", "too many");
    FAILS(pool, pando_writer_commit(writer, 0), PANDO_INVALID, "'t'", "1000000 bytes are missing");
    FAILS(pool, pando_writer_commit(writer, 7), PANDO_INVALID, "'t'", "7 is no condition");

    CHECK_OK(pando_writer_open(table, "k", 1, 1, &one));
    CHECK_OK(pando_writer_add(one, "v", 1));
    FAILS(pool, pando_writer_commit(one, PANDO_IF_ABSENT), PANDO_EXISTS, "'t'", "key is there");
    CHECK_OK(pando_writer_commit(one, PANDO_IF_PRESENT));
    FAILS(pool, pando_writer_commit(one, 0), PANDO_INVALID, "'t'", "has been committed");
    pando_writer_close(one);
}

/* ---- iterators, queues, counters ------------------------------------------------------------- */

static void test_iterators(void)
{
    struct pando_iterator_options options = {.size = sizeof(options), .prefetch = 5000};
    struct pando_iterator *other;
    FAILS(pool, pando_iterator_open(table, &options, &other), PANDO_INVALID, "'t'", "most is 4096");
    options = (struct pando_iterator_options){.size = sizeof(options), .prefix = {NULL, 2}};
    FAILS(pool, pando_iterator_open(table, &options, &other), PANDO_INVALID, "'t'",
          "prefix is NULL");
    FAILS(pool, pando_iterator_open(table, NULL, NULL), PANDO_INVALID, "'t'", "NULL");
    options.size = 0;
    FAILS(pool, pando_iterator_open(table, &options, &other), PANDO_INVALID, "'t'", "their size");
    FAILS(pool, pando_iterator_next(iterator), PANDO_INVALID, "'t'", "stands on no pair");
    FAILS(pool, pando_iterator_prev(iterator), PANDO_INVALID, "'t'", "stands on no pair");
    FAILS(pool, pando_iterator_seek(iterator, NULL, 1), PANDO_INVALID, "'t'", "key is NULL");
    FAILS(pool, pando_iterator_seek_for_prev(iterator, NULL, 1), PANDO_INVALID, "'t'",
          "key is NULL");
    FAILS(pool, pando_iterator_seek(iterator, "zzz", 3), PANDO_NOT_FOUND, "'t'",
          "no pair is there");
    FAILS(pool, pando_iterator_seek_for_prev(iterator, "", 0), PANDO_NOT_FOUND, "'t'", "no pair");
    CHECK_OK(pando_iterator_last(iterator));
    FAILS(pool, pando_iterator_next(iterator), PANDO_NOT_FOUND, "'t'", "no pair is there");
    CHECK_OK(pando_iterator_first(iterator));
    FAILS(pool, pando_iterator_prev(iterator), PANDO_NOT_FOUND, "'t'", "no pair is there");
    CHECK_OK(pando_iterator_open(dropped, NULL, &other));
    FAILS(pool, pando_iterator_first(other), PANDO_NOT_FOUND, "'dropped'", "was dropped");
    FAILS(pool, pando_iterator_last(other), PANDO_NOT_FOUND, "'dropped'", "was dropped");
    pando_iterator_close(other);
}

/* What one operation of the queue comes to, and its text. */
#define COMES_TO(submit, expected, about, why)                                                     \
    do {                                                                                           \
        struct pando_completion came_;                                                             \
        unsigned got;                                                                              \
        poison(pool);                                                                              \
        CHECK_OK(submit);                                                                          \
        CHECK_OK(pando_queue_poll(queue, &came_, 1, -1, &got));                                    \
        CHECK(got == 1);                                                                           \
        CHECK_STATUS(came_.status, expected);                                                      \
        check_text(pool, #submit, about, __LINE__);                                                \
        check_text(pool, #submit, why, __LINE__);                                                  \
    } while (0)

static void test_queues(void)
{
    struct pando_queue *other;
    struct pando_completion done[2];
    unsigned count;
    FAILS(pool, pando_queue_open(pool, 0, &other), PANDO_INVALID, "open a queue", "1 to 1024");
    FAILS(pool, pando_queue_open(pool, 1, NULL), PANDO_INVALID, "open a queue", "NULL");
    FAILS(pool, pando_queue_poll(queue, done, 0, 0, &count), PANDO_INVALID, "poll", "no room");
    FAILS(pool, pando_submit_get(queue, NULL, "k", 1, NULL, 0, 0), PANDO_INVALID, "get", "NULL");
    FAILS(pool, pando_submit_get(queue, table, NULL, 1, NULL, 0, 0), PANDO_INVALID, "'t'", "key");
    FAILS(pool, pando_submit_put(queue, table, "k", 1, NULL, 1, 0), PANDO_INVALID, "'t'", "value");
    FAILS(pool, pando_submit_put_if(queue, table, 9, "k", 1, "v", 1, 0), PANDO_INVALID, "'t'",
          "9 is no condition");
    FAILS(pool, pando_submit_delete(queue, table, NULL, 1, 0), PANDO_INVALID, "'t'", "key is NULL");
    struct pando_pool *elsewhere = open_pool("embedded:64M");
    struct pando_table *foreign;
    CHECK_OK(pando_table_create(elsewhere, "far", NULL));
    CHECK_OK(pando_table_open(elsewhere, "far", &foreign));
    FAILS(pool, pando_submit_delete(queue, foreign, "k", 1, 0), PANDO_INVALID, "'far'",
          "another pool");
    /* Each pool has a text of its own. */
    CHECK_STATUS(pando_delete(foreign, "k", 1), PANDO_NOT_FOUND);
    CHECK(strstr(pando_error_text(elsewhere), "delete from table 'far'") != NULL);
    CHECK(strstr(pando_error_text(pool), "another pool") != NULL);
    CHECK_OK(pando_table_close(foreign));
    CHECK_OK(pando_close(elsewhere));

    COMES_TO(pando_submit_get(queue, table, "none", 4, NULL, 0, 0), PANDO_NOT_FOUND,
             "get from table 't'", "no such key");
    COMES_TO(pando_submit_put(queue, table, large, 1200, "v", 1, 0), PANDO_TOO_LARGE,
             "put into table 't'", "1200");
    COMES_TO(pando_submit_put_if(queue, table, PANDO_IF_ABSENT, "k", 1, "v", 1, 0), PANDO_EXISTS,
             "put into table 't'", "is there");
    COMES_TO(pando_submit_delete(queue, dropped, "k", 1, 0), PANDO_NOT_FOUND,
             "delete from table 'dropped'", "was dropped");
    for (int i = 0; i < 2; i++)
        CHECK_OK(pando_submit_get(queue, table, "k", 1, NULL, 0, 0));
    FAILS(pool, pando_submit_get(queue, table, "k", 1, NULL, 0, 0), PANDO_AGAIN, "'t'", "poll it");
    FAILS(pool, pando_submit_put(queue, table, "k", 1, "v", 1, 0), PANDO_AGAIN, "'t'",
          "2 operations");
    for (unsigned left = 2; left > 0; left -= count)
        CHECK_OK(pando_queue_poll(queue, done, 2, -1, &count));
    check_text(pool, "polling what succeeded", "2 operations", __LINE__); /* leaves it alone */
}

static void test_counters(void)
{
    struct pando_counters counters = {.size = 0};
    struct pando_table_counters of_table = {.size = 0};
    FAILS(pool, pando_counters(pool, &counters), PANDO_INVALID, "pando_counters", "size");
    FAILS(pool, pando_counters(pool, NULL), PANDO_INVALID, "pando_counters", "size");
    FAILS(pool, pando_table_counters(table, &of_table), PANDO_INVALID, "'t'", "size is not set");
    of_table.size = sizeof(of_table);
    FAILS(pool, pando_table_counters(dropped, &of_table), PANDO_NOT_FOUND, "'dropped'", "dropped");
}

/* ---- without a handle, from inside a callback, in a child ------------------------------------ */

/* Every function that can fail, called in a way that would be right. */
struct any {
    const char *name;
    enum pando_status (*call)(struct pando_pool *pool, struct pando_table *table,
                              struct pando_iterator *iterator, struct pando_queue *queue,
                              struct pando_writer *writer);
};

#define ANY(function, ...)                                                                         \
    static enum pando_status any_##function(struct pando_pool *p, struct pando_table *t,           \
                                            struct pando_iterator *i, struct pando_queue *q,       \
                                            struct pando_writer *w)                                \
    {                                                                                              \
        (void)p, (void)t, (void)i, (void)q, (void)w;                                               \
        return function(__VA_ARGS__);                                                              \
    }

static enum pando_change keep(void *context, const struct pando_slice *old,
                              struct pando_slice *value)
{
    (void)context, (void)old, (void)value;
    return PANDO_KEEP;
}

static struct pando_table *out_table;
static struct pando_iterator *out_iterator;
static struct pando_queue *out_queue;
static struct pando_writer *out_writer;
static void *out_value;
static size_t out_size;
static unsigned out_count;
static struct pando_operation one_get = {.kind = PANDO_GET, .key = {"k", 1}};
static struct pando_operation one_put = {.kind = PANDO_PUT, .key = {"b", 1}, .value = {"v", 1}};
static struct pando_completion out_completion;
static struct pando_counters out_counters = {.size = sizeof(out_counters)};
static struct pando_table_counters out_of_table = {.size = sizeof(out_of_table)};

ANY(pando_table_create, p, "another", NULL)
ANY(pando_table_open, p, "t", &out_table)
ANY(pando_table_drop, p, "another")
ANY(pando_table_list, p, NULL, 0, &out_size)
ANY(pando_get, t, "k", 1, NULL, 0, NULL)
ANY(pando_get_copy, t, "k", 1, &out_value, &out_size)
ANY(pando_get_part, t, "k", 1, 0, NULL, 0, NULL)
ANY(pando_put, t, "k", 1, "v", 1)
ANY(pando_put_if, t, PANDO_IF_PRESENT, "k", 1, "v", 1)
ANY(pando_compare_and_put, t, "k", 1, "v", 1, "v", 1)
ANY(pando_delete, t, "k", 1)
ANY(pando_modify, t, "k", 1, keep, NULL)
ANY(pando_add, t, "m", 1, 1, NULL)
ANY(pando_writer_open, t, "k", 1, WRITTEN, &out_writer)
ANY(pando_writer_add, w, large, WRITTEN + 1)
ANY(pando_writer_commit, w, 0)
ANY(pando_multi_get, t, &one_get, 1)
ANY(pando_write_batch, t, &one_put, 1)
ANY(pando_delete_prefix, t, "b", 1, NULL)
ANY(pando_iterator_open, t, NULL, &out_iterator)
ANY(pando_iterator_first, i)
ANY(pando_iterator_last, i)
ANY(pando_iterator_seek, i, "a", 1)
ANY(pando_iterator_seek_for_prev, i, "z", 1)
ANY(pando_iterator_next, i)
ANY(pando_iterator_prev, i)
ANY(pando_queue_open, p, 1, &out_queue)
ANY(pando_submit_get, q, t, "k", 1, NULL, 0, 0)
ANY(pando_submit_put, q, t, "k", 1, "v", 1, 0)
ANY(pando_submit_put_if, q, t, PANDO_IF_PRESENT, "k", 1, "v", 1, 0)
ANY(pando_submit_delete, q, t, "none", 4, 0)
ANY(pando_queue_poll, q, &out_completion, 1, 0, &out_count)
ANY(pando_counters, p, &out_counters)
ANY(pando_table_counters, t, &out_of_table)
ANY(pando_table_close, t)
ANY(pando_close, p)

#define ENTRY(function)                                                                            \
    {                                                                                              \
#function, any_##function                                                                  \
    }
static const struct any functions[] = {
    ENTRY(pando_table_create),
    ENTRY(pando_table_open),
    ENTRY(pando_table_drop),
    ENTRY(pando_table_list),
    ENTRY(pando_get),
    ENTRY(pando_get_copy),
    ENTRY(pando_get_part),
    ENTRY(pando_put),
    ENTRY(pando_put_if),
    ENTRY(pando_compare_and_put),
    ENTRY(pando_delete),
    ENTRY(pando_modify),
    ENTRY(pando_add),
    ENTRY(pando_writer_open),
    ENTRY(pando_writer_add),
    ENTRY(pando_writer_commit),
    ENTRY(pando_multi_get),
    ENTRY(pando_write_batch),
    ENTRY(pando_delete_prefix),
    ENTRY(pando_iterator_open),
    ENTRY(pando_iterator_first),
    ENTRY(pando_iterator_last),
    ENTRY(pando_iterator_seek),
    ENTRY(pando_iterator_seek_for_prev),
    ENTRY(pando_iterator_next),
    ENTRY(pando_iterator_prev),
    ENTRY(pando_queue_open),
    ENTRY(pando_submit_get),
    ENTRY(pando_submit_put),
    ENTRY(pando_submit_put_if),
    ENTRY(pando_submit_delete),
    ENTRY(pando_queue_poll),
    ENTRY(pando_counters),
    ENTRY(pando_table_counters),
    ENTRY(pando_table_close),
    ENTRY(pando_close),
};
enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

static void test_null_handles(void)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        const struct any *any = &functions[i];
        if (any->call == any_pando_close || any->call == any_pando_table_close)
            continue; /* OK */
        poison(pool);
        CHECK_STATUS(any->call(NULL, NULL, NULL, NULL, NULL), PANDO_INVALID);
        check_text(pool, any->name, any->name, __LINE__);
        check_text(pool, any->name, " is NULL", __LINE__);
        check_text(NULL, any->name, any->name, __LINE__);
    }
    poison(pool); /* and the next failure has its own again */
}

/* Called by pando_modify. */
static enum pando_change call_all(void *context, const struct pando_slice *old,
                                  struct pando_slice *value)
{
    (void)context, (void)old, (void)value;
    for (int i = 0; i < FUNCTIONS; i++) {
        CHECK_STATUS(functions[i].call(pool, table, iterator, queue, writer), PANDO_INVALID);
        check_text(pool, functions[i].name, "from inside a callback", __LINE__);
    }
    return PANDO_KEEP;
}

static void test_inside(void)
{
    poison(pool);
    CHECK_OK(pando_modify(table, "k", 1, call_all, NULL));
    poison(pool);
}

static void test_child(void)
{
#ifdef __SANITIZE_THREAD__
    return; /* it does not follow threads of a child */
#endif
    poison(pool);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < FUNCTIONS; i++) {
            if (functions[i].call(pool, table, iterator, queue, writer) != PANDO_INVALID ||
                strstr(pando_error_text(pool), "before a fork()") == NULL)
                _exit(1 + i);
        }
        _exit(0);
    }
    int result;
    CHECK(waitpid(child, &result, 0) == child);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0)
        CHECK_FAIL("function %d in a child", WIFEXITED(result) ? WEXITSTATUS(result) - 1 : -1);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
    (void)arg;
    CHECK_EQ_TEXT(pando_error_text(pool), ""); /* others' failures are not this thread's */
    CHECK_STATUS(pando_delete(table, "mine", 4), PANDO_NOT_FOUND);
    CHECK(strstr(pando_error_text(pool), "delete from table 't'") != NULL);
    return NULL;
}

/* A thread that cannot have a place in the pool. */
static void *late_main(void *arg)
{
    (void)arg;
    CHECK_STATUS(pando_get(table, "k", 1, NULL, 0, NULL), PANDO_AGAIN);
    check_text(pool, "the first call of one thread too many", "get from table 't'", __LINE__);
    check_text(pool, "the first call of one thread too many", "256 threads", __LINE__);
    return NULL;
}

static void run_thread(void *(*main)(void *arg))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, main, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void test_threads(void)
{
    static struct pando_queue *queues[PANDO_THREADS_MAX];
    unsigned count = 0;
    enum pando_status status;
    poison(pool);
    run_thread(thread_main);
    CHECK(strstr(pando_error_text(pool), "poison") != NULL);
    while ((status = pando_queue_open(pool, 1, &queues[count])) == PANDO_OK)
        CHECK(++count < PANDO_THREADS_MAX);
    CHECK_STATUS(status, PANDO_AGAIN);
    check_text(pool, "one queue too many", "open a queue", __LINE__);
    check_text(pool, "one queue too many", "256 threads", __LINE__);
    run_thread(late_main);
    while (count > 0)
        pando_queue_close(queues[--count]);
}

/* ---- without memory -------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void test_no_memory(void)
{
}
#else
/* The thread's allocations fail from this one on; negative: none does. */
static _Thread_local int allocations_left = -1;
static _Thread_local unsigned allocations_failed;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static bool may_allocate(void)
{
    if (allocations_left != 0) {
        allocations_left -= allocations_left > 0;
        return true;
    }
    allocations_failed++;
    return false;
}

void *malloc(size_t size)
{
    return may_allocate() ? __libc_malloc(size) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return may_allocate() ? __libc_calloc(count, size) : NULL;
}

void *realloc(void *memory, size_t size)
{
    return may_allocate() ? __libc_realloc(memory, size) : NULL;
}

/* Every function with every one of its allocations refused; in a thread that has called before, and in one
 * that has not. */
static void one_function(const struct any *any, bool fresh)
{
    for (int left = 0; left < 100; left++) {
        if (!fresh)
            poison(pool);
        allocations_failed = 0;
        allocations_left = left;
        enum pando_status status = any->call(pool, table, iterator, queue, writer);
        allocations_left = -1;
        if (status == PANDO_OK && any->call == any_pando_get_copy)
            pando_free(out_value);
        if (status == PANDO_OK && any->call == any_pando_table_open)
            CHECK_OK(pando_table_close(out_table));
        if (status == PANDO_OK && any->call == any_pando_iterator_open)
            pando_iterator_close(out_iterator);
        if (status == PANDO_OK && any->call == any_pando_queue_open)
            pando_queue_close(out_queue);
        if (status == PANDO_OK && any->call == any_pando_writer_open)
            pando_writer_close(out_writer);
        if (allocations_failed == 0)
            return;
        if (status == PANDO_NO_MEMORY) {
            check_text(pool, any->name, "out of memory", __LINE__);
            status_seen[status] = true;
        }
        if (fresh)
            return; /* once per thread */
    }
    CHECK_FAIL("%s allocates without end", any->name);
}

static const struct any *for_fresh;

static void *fresh_main(void *arg)
{
    (void)arg;
    one_function(for_fresh, true);
    return NULL;
}

static void test_no_memory(void)
{
    unsigned count;
    for (int i = 0; i < FUNCTIONS; i++) {
        if (functions[i].call == any_pando_close || functions[i].call == any_pando_table_close)
            continue;
        (void)!pando_put(table, "k", 1, "v", 1);
        one_function(&functions[i], false);
        for_fresh = &functions[i];
        run_thread(fresh_main);
        while (pando_queue_in_flight(queue) > 0)
            CHECK_OK(pando_queue_poll(queue, &out_completion, 1, -1, &count));
    }
}
#endif

/* ---- a pool that is full, one that is damaged, one that is gone ------------------------------ */

static void test_full(void)
{
    struct pando_pool *little = open_pool("embedded:64M");
    struct pando_table *full;
    static uint8_t value[100000];
    enum pando_status status = PANDO_OK;
    struct pando_operation put = {.kind = PANDO_PUT, .key = {"b", 1}, .value = {value, 90000}};
    CHECK_OK(pando_table_create(little, "full", NULL));
    CHECK_OK(pando_table_open(little, "full", &full));
    for (unsigned i = 0; i < 10000 && status == PANDO_OK; i++)
        status = pando_put(full, &i, sizeof(i), value, sizeof(value));
    CHECK_STATUS(status, PANDO_FULL);
    FAILS(little, pando_put(full, "a", 1, value, 100000), PANDO_FULL, "'full'", "larger pool");
    FAILS(little, pando_write_batch(full, &put, 1), PANDO_FULL, "operation 1 of 1", "larger pool");
    CHECK_OK(pando_table_close(full));
    CHECK_OK(pando_close(little));
}

/* The program of this build. */
static void find_pando(char program[4096])
{
    ssize_t size = readlink("/proc/self/exe", program, 4096 - 16);
    CHECK(size > 0);
    program[size] = '\0';
    char *slash = strrchr(program, '/');
    CHECK(slash != NULL);
    *slash = '\0';
    slash = strrchr(program, '/');
    CHECK(slash != NULL);
    strcpy(slash, "/pando");
    if (access(program, X_OK) != 0)
        SKIP("there is no pando beside the folder of this test; build it");
}

static pid_t start_memory(const char *name)
{
    char program[4096];
    find_pando(program);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(program, program, "memory", "--shm", name, "--size", "64M", (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Where these bytes are in the memory node's window. */
static long place_of(FILE *file, const void *wanted, size_t size)
{
    static uint8_t bytes[1 << 16];
    for (long at = 0;; at += (long)(sizeof(bytes) / 2)) {
        CHECK(fseek(file, at, SEEK_SET) == 0);
        size_t got = fread(bytes, 1, sizeof(bytes), file);
        CHECK(got > size);
        uint8_t *place = memmem(bytes, got, wanted, size);
        if (place != NULL)
            return at + (place - bytes);
    }
}

/* Changes a byte so far behind where the wanted ones begin. */
static void damage(const char *path, const void *wanted, size_t size, long behind, int change)
{
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL);
    long at = place_of(file, wanted, size) + behind;
    CHECK(fseek(file, at, SEEK_SET) == 0);
    int was = fgetc(file);
    CHECK(was != EOF && fseek(file, at, SEEK_SET) == 0);
    CHECK(fputc(was ^ change, file) != EOF);
    CHECK(fclose(file) == 0);
}

/* Tables that another version of Pando may have made; pool_fmt.h has the offsets from an entry's name. */
static void test_foreign_tables(struct pando_pool *of, const char *path)
{
    enum { NAME_BYTES = 64, ENGINE = 64, FORMAT = 96 + 3 * 8 };
    const char name[NAME_BYTES] = "foreign";
    CHECK_OK(pando_table_create(of, "foreign", NULL));
    damage(path, name, sizeof(name), ENGINE, 1);
    FAILS(of, pando_table_open(of, "foreign", &out_table), PANDO_UNSUPPORTED, "'foreign'",
          "use a program that has it");
    damage(path, name, sizeof(name), ENGINE, 1);
    damage(path, name, sizeof(name), FORMAT, 1);
    FAILS(of, pando_table_open(of, "foreign", &out_table), PANDO_VERSION, "'foreign'", "dump it");
    damage(path, name, sizeof(name), FORMAT, 1);
    CHECK_OK(pando_table_open(of, "foreign", &out_table));
    CHECK_OK(pando_table_close(out_table));
}

/* No memory node answers. */
static void gone(const struct pando_pool *of, enum pando_status status, const char *about)
{
    if (status != PANDO_BROKEN && status != PANDO_TIMEOUT && status != PANDO_UNKNOWN)
        CHECK_FAIL("%s: %s", about, pando_status_text(status));
    check_text(of, about, about, __LINE__);
    check_text(of, about, status == PANDO_UNKNOWN ? "outcome unknown" : "memory node", __LINE__);
    status_seen[status] = true;
}

static void test_memory_node(void)
{
    char name[64], uri[80], path[96], value[1000];
    struct pando_pool *shared = NULL;
    struct pando_table *there;
    struct pando_queue *lane;
    struct pando_iterator *walk;
    snprintf(name, sizeof(name), "test-errors-%d", (int)getpid());
    snprintf(uri, sizeof(uri), "shm:%s", name);
    snprintf(path, sizeof(path), "/dev/shm/pando-%s", name);
    pid_t node = start_memory(name);
    struct pando_options options = {.size = sizeof(options), .uri = uri};
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < 600 && status != PANDO_OK; i++) {
        status = pando_open(&options, &shared, value, sizeof(value));
        CHECK(status == PANDO_OK || (value[0] != '\0' && strchr(value, '\n') == NULL));
        if (status != PANDO_OK)
            usleep(50 * 1000);
    }
    CHECK_OK(status);
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (char)(i * 7 + i / 256);
    CHECK_OK(pando_table_create(shared, "other", NULL));
    CHECK_OK(pando_table_create(shared, "there", NULL));
    CHECK_OK(pando_table_open(shared, "there", &there));
    CHECK_OK(pando_put(there, "long", 4, value, sizeof(value)));
    CHECK_OK(pando_put(there, "short", 5, "v", 1));
    CHECK_OK(pando_queue_open(shared, 4, &lane));
    CHECK_OK(pando_iterator_open(there, NULL, &walk));
    test_foreign_tables(shared, path);
    damage(path, value, sizeof(value), 200, 1);
    FAILS(shared, pando_get(there, "long", 4, value, 8, NULL), PANDO_CORRUPT, "'there'", "verify");
    FAILS(shared, pando_iterator_first(walk), PANDO_CORRUPT, "'there'", "verify");

    CHECK(kill(node, SIGKILL) == 0);
    CHECK(waitpid(node, NULL, 0) == node);
    /* Of a pool that is gone each call takes seconds: some of each kind. */
    struct pando_completion done;
    unsigned count;
    /* Its memory is mapped here, and can be read until its death is noticed. */
    size_t tables;
    status = PANDO_OK;
    for (int i = 0; i < 3000 && status == PANDO_OK; i++) {
        status = pando_table_list(shared, NULL, 0, &tables);
        usleep(10 * 1000);
    }
    gone(shared, status, "list the tables");
    gone(shared, pando_table_open(shared, "other", &out_table), "'other'");
    gone(shared, pando_put(there, "k", 1, "v", 1), "put into table 'there'");
    CHECK_OK(pando_submit_put(lane, there, "k", 1, "v", 1, 0));
    CHECK_OK(pando_queue_poll(lane, &done, 1, -1, &count));
    gone(shared, done.status, "put into table 'there'");
    pando_iterator_close(walk);
    pando_queue_close(lane);
    CHECK_OK(pando_table_close(there));
    CHECK_OK(pando_close(shared));
    (void)unlink(path);
}

/* ---- a memory node that is stopped, killed, and back with another secret ----------------------- */

/* A memory node that is reached by TCP, and what it is started with. */
struct remote {
    char folder[64], secret[80], other_secret[80], window[80];
    char address[64]; /* with port 0 before its first start */
    pid_t node;
};

static struct remote remote;

static void write_secret(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fchmod(fileno(file), 0600) == 0 && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Waits for "ready at tcp:ADDRESS". */
static void remote_start(const char *secret)
{
    char program[4096], line[512];
    int ends[2];
    find_pando(program);
    CHECK(pipe(ends) == 0);
    remote.node = fork();
    CHECK(remote.node >= 0);
    if (remote.node == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl(program, program, "memory", "--listen", remote.address, "--shm", remote.window,
              "--size", "64M", "--secret-file", secret, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    CHECK(said != NULL);
    char *found = NULL;
    while (found == NULL && fgets(line, sizeof(line), said) != NULL)
        found = strstr(line, "ready at tcp:");
    CHECK(found != NULL && sscanf(found, "ready at tcp:%63[0-9.:]", remote.address) == 1);
    fclose(said);
}

static void remote_kill(void)
{
    CHECK(kill(remote.node, SIGKILL) == 0);
    CHECK(waitpid(remote.node, NULL, 0) == remote.node);
}

/* A put in the middle of which the memory node stops: its write is sent, and nobody says that it came. */
static enum pando_change stop_node(void *context, const struct pando_slice *old,
                                   struct pando_slice *value)
{
    (void)context, (void)old;
    CHECK(kill(remote.node, SIGSTOP) == 0);
    CHECK(waitpid(remote.node, NULL, WUNTRACED) == remote.node);
    *value = (struct pando_slice){.data = "w", .size = 1};
    return PANDO_STORE;
}

/* Until the pool is as before. */
static void await_put(struct pando_table *far)
{
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < 600 && status != PANDO_OK; i++) {
        status = pando_put(far, "k", 1, "v", 1);
        usleep(100 * 1000);
    }
    CHECK_OK(status);
}

/* Gets and opens until one of the two fails with this status: what does depends on how much of its lease the process has
 * left, and a get may need no memory node. False: it does not come to that. */
static bool fails_with(struct pando_pool *of, struct pando_table *far, enum pando_status wanted,
                       const char *why)
{
    enum pando_status status = PANDO_OK;
    const char *about = NULL;
    for (int i = 0; i < 20 && status != wanted; i++) {
        about = i % 2 == 0 ? "get from table 'far'" : "'another'";
        status = i % 2 == 0 ? pando_get(far, "k", 1, NULL, 0, NULL)
                            : pando_table_open(of, "another", &out_table);
        if (status == PANDO_TIMEOUT && status != wanted)
            return false; /* it has lost its membership, and now all do, each after many seconds */
    }
    CHECK_STATUS(status, wanted);
    check_text(of, about, about, __LINE__);
    check_text(of, about, why, __LINE__);
    status_seen[wanted] = true;
    return true;
}

/* What fails with this status while the memory node is away, or is another (NULL: there is none). */
static void without_node(struct pando_pool *of, struct pando_table *far, const char *secret,
                         enum pando_status wanted, const char *why)
{
    bool met = false;
    for (int i = 0; i < 10 && !met; i++) {
        remote_kill();
        if (secret != NULL)
            remote_start(secret);
        met = fails_with(of, far, wanted, why);
        if (secret != NULL)
            remote_kill();
        remote_start(remote.secret);
        await_put(far);
    }
    CHECK(met);
}

static void remote_prepare(void)
{
    snprintf(remote.folder, sizeof(remote.folder), "/tmp/test-errors-XXXXXX");
    CHECK(mkdtemp(remote.folder) != NULL);
    snprintf(remote.secret, sizeof(remote.secret), "%s/one.secret", remote.folder);
    snprintf(remote.other_secret, sizeof(remote.other_secret), "%s/two.secret", remote.folder);
    snprintf(remote.window, sizeof(remote.window), "%s/window", remote.folder);
    snprintf(remote.address, sizeof(remote.address), "127.0.0.1:0");
    write_secret(remote.secret, "the secret of this pool\n");
    write_secret(remote.other_secret, "another secret, which is not known\n");
}

static void test_remote_node(void)
{
    char uri[80], error[256];
    struct pando_pool *far_pool;
    struct pando_table *far;
    remote_prepare();
    remote_start(remote.secret);
    snprintf(uri, sizeof(uri), "tcp:%s", remote.address);
    struct pando_options options = {
        .size = sizeof(options), .uri = uri, .secret_file = remote.secret};
    if (pando_open(&options, &far_pool, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s: %s", uri, error);
    CHECK_OK(pando_table_create(far_pool, "far", NULL));
    CHECK_OK(pando_table_open(far_pool, "far", &far));
    CHECK_OK(pando_put(far, "k", 1, "v", 1));

    FAILS(far_pool, pando_modify(far, "k", 1, stop_node, NULL), PANDO_UNKNOWN,
          "modify in table 'far'", "read and see");
    CHECK(fails_with(far_pool, far, PANDO_TIMEOUT, "memory node"));
    CHECK(kill(remote.node, SIGCONT) == 0);
    await_put(far);
    without_node(far_pool, far, NULL, PANDO_BROKEN, "are all memory nodes running?");
    without_node(far_pool, far, remote.other_secret, PANDO_DENIED, "secret");

    CHECK_OK(pando_table_close(far));
    CHECK_OK(pando_close(far_pool));
    remote_kill();
    CHECK(unlink(remote.secret) == 0 && unlink(remote.other_secret) == 0);
    (void)unlink(remote.window);
    CHECK(rmdir(remote.folder) == 0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* A function of pando.h that returns a status and whose failures nobody looked at is a hole in this test. */
static void test_complete(void)
{
    char path[4096], line[512];
    snprintf(path, sizeof(path), "%s", __FILE__);
    char *end = strstr(path, "tests/library/errors.c");
    CHECK(end != NULL);
    strcpy(end, "include/pando/pando.h");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        CHECK_FAIL("cannot read %s", path);
    unsigned count = 0;
    for (bool status = false; fgets(line, sizeof(line), file) != NULL;) {
        status |= strncmp(line, "PANDO_API PANDO_MUST_CHECK enum pando_status", 44) == 0;
        char *paren = strchr(line, '('), *name = strstr(line, "enum pando_status pando_");
        if (name != NULL)
            name += strlen("enum pando_status ");
        else if (strncmp(line, "pando_", 6) == 0)
            name = line;
        if (!status || paren == NULL || name == NULL)
            continue;
        status = false;
        *paren = '\0';
        count++;
        bool known = strcmp(name, "pando_open") == 0; /* it has an error of its own */
        for (unsigned i = 0; i < seen_count; i++)
            known |= strncmp(seen[i], name, strlen(name)) == 0 && seen[i][strlen(name)] == '(';
        if (!known)
            CHECK_FAIL("nobody looks at failures of %s", name);
    }
    CHECK(fclose(file) == 0);
    if (count != FUNCTIONS + 1)
        CHECK_FAIL("%u functions of pando.h return a status, and %d are called here", count,
                   FUNCTIONS + 1);
}

/* Statuses that no call on a pool returns. */
static const struct {
    enum pando_status status;
    const char *why;
} never[] = {
    {PANDO_FENCED, "a process that was declared dead joins again: TIMEOUT if it cannot"},
    {PANDO_IO, "of files that pando_open reads, which has an error of its own"},
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    {PANDO_NO_MEMORY, "allocations cannot be made to fail here"},
#endif
};

static void test_statuses(void)
{
    for (int status = PANDO_OK + 1; status < PANDO_STATUS_COUNT; status++) {
        bool listed = false;
        for (unsigned i = 0; i < sizeof(never) / sizeof(never[0]); i++)
            listed |= (int)never[i].status == status;
        if (status_seen[status] == listed)
            CHECK_FAIL("'%s' was %s", pando_status_text(status),
                       listed ? "returned, and is listed as one that never is"
                              : "returned by nothing here");
    }
}

int main(void)
{
    struct pando_table_options options = {.size = sizeof(options), .key_size = 4, .value_size = 2};
    pool = open_pool("embedded:256M");
    CHECK_EQ_TEXT(pando_error_text(pool), "");
    CHECK_OK(pando_table_create(pool, "t", NULL));
    CHECK_OK(pando_table_create(pool, "small", &options));
    CHECK_OK(pando_table_create(pool, "dropped", NULL));
    CHECK_OK(pando_table_open(pool, "t", &table));
    CHECK_OK(pando_table_open(pool, "small", &small));
    CHECK_OK(pando_table_open(pool, "dropped", &dropped));
    CHECK_OK(pando_put(table, "k", 1, "v", 1));
    CHECK_OK(pando_put(small, "abcd", 4, "vw", 2));
    CHECK_OK(pando_table_drop(pool, "dropped"));
    CHECK_OK(pando_iterator_open(table, NULL, &iterator));
    CHECK_OK(pando_queue_open(pool, 2, &queue));
    CHECK_OK(pando_writer_open(table, "w", 1, WRITTEN, &writer));
    test_tables();
    test_reads();
    test_writes();
    test_writers();
    test_many();
    test_iterators();
    test_queues();
    test_counters();
    test_null_handles();
    test_inside();
    test_child();
    test_threads();
    test_no_memory();
    test_full();
    test_memory_node();
    test_remote_node();
    test_complete();
    test_statuses();
    pando_writer_close(writer);
    pando_queue_close(queue);
    pando_iterator_close(iterator);
    CHECK_OK(pando_table_close(table));
    CHECK_OK(pando_table_close(small));
    CHECK_OK(pando_table_close(dropped));
    CHECK_OK(pando_close(pool));
    return 0;
}
