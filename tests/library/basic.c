/*
 * Every function of pando.h once the usual way, and with what should be refused.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/check.h"

static struct pando_pool *pool;
static struct pando_table *table;

static struct pando_pool *open_pool(const char *uri)
{
    struct pando_options options = {.size = sizeof(options), .uri = uri};
    struct pando_pool *opened;
    char error[256];
    enum pando_status status = pando_open(&options, &opened, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("%s: %s", uri, error);
    CHECK_EQ_TEXT(error, "");
    return opened;
}

#define TEXT(text) (text), sizeof(text) - 1

static void check_value(const char *key, const char *expected)
{
    char value[256];
    size_t size;
    CHECK_OK(pando_get(table, key, strlen(key), value, sizeof(value), &size));
    CHECK(size == strlen(expected) && memcmp(value, expected, size) == 0);
}

static void check_text(const char *part)
{
    if (strstr(pando_error_text(pool), part) == NULL)
        CHECK_FAIL("'%s' is not in '%s'", part, pando_error_text(pool));
    CHECK(strchr(pando_error_text(pool), '\n') == NULL);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void test_open(void)
{
    struct pando_pool *none = NULL;
    char error[256];
    const char *bad[] = {
        "",     "nonsense",   "embedded:", "embedded:1K",   "embedded:12Q",       "sim:seed=1",
        "shm:", "shm:/../..", "tcp:",      "tcp:127.0.0.1", "tcp:127.0.0.1:99999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pando_options options = {.size = sizeof(options), .uri = bad[i]};
        error[0] = '\0';
        CHECK(pando_open(&options, &none, error, sizeof(error)) != PANDO_OK);
        CHECK(none == NULL && error[0] != '\0');
        CHECK(pando_open(&options, &none, NULL, 0) != PANDO_OK);
    }
    struct pando_options options = {.uri = "embedded:64M"}; /* no size */
    CHECK_STATUS(pando_open(&options, &none, error, sizeof(error)), PANDO_INVALID);
    CHECK_STATUS(pando_open(NULL, &none, error, sizeof(error)), PANDO_INVALID);
    options = (struct pando_options){.size = sizeof(options)};
    CHECK_STATUS(pando_open(&options, &none, error, sizeof(error)), PANDO_INVALID);
    CHECK(strstr(error, "uri") != NULL);
    options.uri = "embedded:64M";
    options.durability = "maybe";
    CHECK_STATUS(pando_open(&options, &none, error, sizeof(error)), PANDO_INVALID);
    CHECK(strstr(error, "maybe") != NULL);
    options = (struct pando_options){
        .size = sizeof(options), .uri = "embedded:64M", .window_bytes = 1024 * 1024};
    CHECK_STATUS(pando_open(&options, &none, error, sizeof(error)), PANDO_INVALID);
    CHECK(strstr(error, "a window of 1.0 MiB is of no use in an embedded pool") != NULL);
    options.uri = "shm:nobody";
    options.window_bytes = (uint64_t)1 << 46;
    CHECK_STATUS(pando_open(&options, &none, error, sizeof(error)), PANDO_NO_MEMORY);
    CHECK(strstr(error, "has free; ask for a smaller one") != NULL);
    CHECK_OK(pando_close(NULL));
    CHECK_STATUS(pando_table_create(NULL, "t", NULL), PANDO_INVALID);
    CHECK(strcmp(pando_version(), "") != 0);
    CHECK(strstr(pando_error_text(NULL), "the pool is NULL") != NULL);
    for (int i = 0; i < 3; i++) /* and again, and again */
        CHECK_OK(pando_close(open_pool("embedded:64M")));
}

static void test_older_program(void)
{
    /* One that knows the first members only. */
    struct {
        size_t size;
        const char *uri;
    } old = {.size = sizeof(old), .uri = "embedded:64M"};
    struct pando_pool *opened;
    CHECK_OK(pando_open((struct pando_options *)&old, &opened, NULL, 0));
    CHECK_OK(pando_close(opened));
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void test_tables(void)
{
    struct pando_table *other = NULL;
    struct pando_table_info infos[4];
    size_t count;
    char longest[80];

    memset(longest, 'n', sizeof(longest));
    longest[64] = '\0';
    CHECK_STATUS(pando_table_create(pool, "", NULL), PANDO_INVALID);
    CHECK_STATUS(pando_table_create(pool, "#1", NULL), PANDO_INVALID);
    CHECK_STATUS(pando_table_create(pool, longest, NULL), PANDO_INVALID);
    CHECK_STATUS(pando_table_create(pool, NULL, NULL), PANDO_INVALID);
    longest[63] = '\0';
    CHECK_OK(pando_table_create(pool, longest, NULL));
    CHECK_STATUS(pando_table_create(pool, longest, NULL), PANDO_EXISTS);
    struct pando_table_options options = {.size = sizeof(options), .engine = "no such"};
    CHECK_STATUS(pando_table_create(pool, "x", &options), PANDO_INVALID);
    check_text("no such");
    options = (struct pando_table_options){.size = sizeof(options), .key_max = 5000};
    CHECK_STATUS(pando_table_create(pool, "x", &options), PANDO_TOO_LARGE);
    CHECK_STATUS(pando_table_open(pool, "x", &other), PANDO_NOT_FOUND);
    check_text("'x'");
    CHECK_STATUS(pando_table_open(pool, NULL, &other), PANDO_INVALID);
    CHECK_STATUS(pando_table_drop(pool, "x"), PANDO_NOT_FOUND);
    CHECK_OK(pando_table_list(pool, infos, 4, &count));
    CHECK(count == 1 && strcmp(infos[0].name, longest) == 0 && infos[0].key_max == 1024 &&
          infos[0].value_inline == 64);
    CHECK_OK(pando_table_list(pool, NULL, 0, &count));

    CHECK_OK(pando_table_open(pool, longest, &other));
    CHECK_STATUS(pando_close(pool), PANDO_BUSY);
    CHECK_OK(pando_put(other, TEXT("a"), TEXT("1")));
    CHECK(pando_table_dropped(other) == 0);
    CHECK_OK(pando_table_drop(pool, longest));
    CHECK_STATUS(pando_put(other, TEXT("a"), TEXT("1")), PANDO_NOT_FOUND);
    check_text("dropped");
    CHECK(pando_table_dropped(other) == 1);
    CHECK_OK(pando_table_create(pool, longest, NULL));
    CHECK_STATUS(pando_get(other, TEXT("a"), NULL, 0, NULL), PANDO_NOT_FOUND); /* another table */
    CHECK_OK(pando_table_close(other));
    CHECK_OK(pando_table_open(pool, longest, &other));
    CHECK_STATUS(pando_get(other, TEXT("a"), NULL, 0, NULL), PANDO_NOT_FOUND);
    CHECK(pando_table_dropped(other) == 0);
    CHECK_OK(pando_table_close(other));
    CHECK_OK(pando_table_close(NULL));
    CHECK_OK(pando_table_drop(pool, longest));
}

static void test_many_handles(void)
{
    static struct pando_table *handles[PANDO_TABLES_MAX];
    struct pando_table *more;
    unsigned count = 0;
    enum pando_status status = PANDO_OK;
    while (count < PANDO_TABLES_MAX &&
           (status = pando_table_open(pool, "t", &handles[count])) == PANDO_OK)
        count++;
    CHECK(count == PANDO_TABLES_MAX - 1); /* `table` is open */
    CHECK_STATUS(pando_table_open(pool, "t", &more), PANDO_FULL);
    check_text("close some");
    for (unsigned i = 0; i < count; i++) {
        CHECK_OK(pando_put(handles[i], TEXT("k"), TEXT("v")));
        CHECK_OK(pando_table_close(handles[i]));
    }
}

/* ---- one key --------------------------------------------------------------------------------- */

static void test_keys(void)
{
    static const uint8_t binary[] = {0, 0xff, 0, '\n', 0x80};
    char key[PANDO_KEY_MAX + 1], value[16];
    size_t size = 99;

    CHECK_OK(pando_put(table, "", 0, TEXT("empty key")));
    check_value("", "empty key");
    CHECK_OK(pando_put(table, NULL, 0, NULL, 0)); /* both empty */
    CHECK_OK(pando_get(table, "", 0, value, sizeof(value), &size));
    CHECK(size == 0);
    CHECK_OK(pando_put(table, binary, sizeof(binary), TEXT("bytes")));
    CHECK_OK(pando_get(table, binary, sizeof(binary), value, 3, &size));
    CHECK(size == 5 && memcmp(value, "byt", 3) == 0);
    CHECK_STATUS(pando_get(table, binary, sizeof(binary) - 1, value, 3, &size), PANDO_NOT_FOUND);
    check_text("no such key");
    memset(key, 0xff, sizeof(key));
    CHECK_OK(pando_put(table, key, PANDO_KEY_MAX, TEXT("longest")));
    CHECK_OK(pando_get(table, key, PANDO_KEY_MAX, NULL, 0, NULL));
    CHECK_STATUS(pando_put(table, key, PANDO_KEY_MAX + 1, TEXT("x")), PANDO_TOO_LARGE);
    check_text("1025");
    CHECK_STATUS(pando_get(table, key, PANDO_KEY_MAX + 1, NULL, 0, NULL), PANDO_TOO_LARGE);
    CHECK_STATUS(pando_delete(table, key, PANDO_KEY_MAX + 1), PANDO_TOO_LARGE);
    CHECK_STATUS(pando_put(table, NULL, 4, TEXT("x")), PANDO_INVALID);
    CHECK_STATUS(pando_put(table, "k", 1, NULL, 4), PANDO_INVALID);
    CHECK_STATUS(pando_get(table, "k", 1, NULL, 4, NULL), PANDO_INVALID);
    CHECK_STATUS(pando_put(NULL, "k", 1, TEXT("x")), PANDO_INVALID);
    CHECK_OK(pando_delete(table, key, PANDO_KEY_MAX));
    CHECK_STATUS(pando_delete(table, key, PANDO_KEY_MAX), PANDO_NOT_FOUND);
    CHECK_OK(pando_delete(table, "", 0));
    CHECK_OK(pando_delete(table, binary, sizeof(binary)));
}

static void test_small_table(void)
{
    struct pando_table_options options = {.size = sizeof(options), .key_size = 8, .value_size = 8};
    struct pando_table *small;
    CHECK_OK(pando_table_create(pool, "small", &options));
    CHECK_OK(pando_table_open(pool, "small", &small));
    CHECK_OK(pando_put(small, TEXT("12345678"), TEXT("abcdefgh")));
    CHECK_STATUS(pando_put(small, TEXT("1234567"), TEXT("abcdefgh")), PANDO_INVALID);
    CHECK_STATUS(pando_put(small, TEXT("123456789"), TEXT("abcdefgh")), PANDO_TOO_LARGE);
    check_text("all keys of the table have 8");
    CHECK_STATUS(pando_put(small, TEXT("12345678"), TEXT("abc")), PANDO_INVALID);
    CHECK_STATUS(pando_put(small, TEXT("12345678"), TEXT("abcdefghi")), PANDO_TOO_LARGE);
    CHECK_OK(pando_table_close(small));
    CHECK_OK(pando_table_drop(pool, "small"));
}

static void test_values(void)
{
    static uint8_t large[3 << 20], got[3 << 20];
    void *copy;
    size_t size;
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (uint8_t)(i * 7 + i / 1000);
    CHECK_OK(pando_put(table, TEXT("large"), large, sizeof(large)));
    CHECK_OK(pando_get(table, TEXT("large"), got, sizeof(got), &size));
    CHECK(size == sizeof(large) && memcmp(large, got, size) == 0);
    CHECK_OK(pando_get_copy(table, TEXT("large"), &copy, &size));
    CHECK(size == sizeof(large) && memcmp(large, copy, size) == 0);
    pando_free(copy);
    CHECK_OK(pando_get_part(table, TEXT("large"), 1000000, got, 500000, &size));
    CHECK(size == sizeof(large) && memcmp(large + 1000000, got, 500000) == 0);
    CHECK_OK(pando_get_part(table, TEXT("large"), sizeof(large) - 3, got, sizeof(got), &size));
    CHECK(size == sizeof(large) && memcmp(large + sizeof(large) - 3, got, 3) == 0);
    CHECK_OK(pando_get_part(table, TEXT("large"), sizeof(large) + 3, got, sizeof(got), &size));
    CHECK(size == sizeof(large));
    CHECK_STATUS(pando_get_part(table, TEXT("none"), 0, got, 1, &size), PANDO_NOT_FOUND);
    CHECK_OK(pando_put(table, TEXT("large"), "", 0));
    CHECK_OK(pando_get_copy(table, TEXT("large"), &copy, &size));
    CHECK(size == 0 && copy != NULL);
    pando_free(copy);
    CHECK_STATUS(pando_get_copy(table, TEXT("none"), &copy, &size), PANDO_NOT_FOUND);
    CHECK_STATUS(pando_put(table, TEXT("large"), large, (size_t)PANDO_VALUE_MAX + 1),
                 PANDO_TOO_LARGE);
    check_text("536870913");
    CHECK_OK(pando_delete(table, TEXT("large")));
}

static void test_conditions(void)
{
    CHECK_STATUS(pando_put_if(table, PANDO_IF_PRESENT, TEXT("c"), TEXT("1")), PANDO_NOT_FOUND);
    CHECK_OK(pando_put_if(table, PANDO_IF_ABSENT, TEXT("c"), TEXT("2")));
    CHECK_STATUS(pando_put_if(table, PANDO_IF_ABSENT, TEXT("c"), TEXT("3")), PANDO_EXISTS);
    CHECK_OK(pando_put_if(table, PANDO_IF_PRESENT, TEXT("c"), TEXT("4")));
    CHECK_STATUS(pando_put_if(table, (enum pando_condition)9, TEXT("c"), TEXT("5")), PANDO_INVALID);
    CHECK_STATUS(pando_compare_and_put(table, TEXT("c"), TEXT("x"), TEXT("6")), PANDO_STALE);
    CHECK_OK(pando_compare_and_put(table, TEXT("c"), TEXT("4"), TEXT("7")));
    check_value("c", "7");
    CHECK_OK(pando_delete(table, TEXT("c")));
    CHECK_STATUS(pando_compare_and_put(table, TEXT("c"), TEXT("7"), TEXT("8")), PANDO_NOT_FOUND);
}

struct doubling {
    char text[64];
    int calls;
    enum pando_status inside;
};

static enum pando_change doubled(void *context, const struct pando_slice *old,
                                 struct pando_slice *value)
{
    struct doubling *doubling = context;
    doubling->calls++;
    doubling->inside = pando_put(table, "q", 1, "q", 1); /* not from here */
    if (old == NULL) {
        *value = (struct pando_slice){"x", 1};
        return PANDO_STORE;
    }
    if (old->size >= 4)
        return PANDO_REMOVE;
    memcpy(doubling->text, old->data, old->size);
    memcpy(doubling->text + old->size, old->data, old->size);
    *value = (struct pando_slice){doubling->text, 2 * old->size};
    return PANDO_STORE;
}

static enum pando_change kept(void *context, const struct pando_slice *old,
                              struct pando_slice *value)
{
    (void)value;
    *(int *)context = old != NULL;
    return PANDO_KEEP;
}

static enum pando_change nonsense(void *context, const struct pando_slice *old,
                                  struct pando_slice *value)
{
    (void)context;
    (void)old;
    (void)value;
    return (enum pando_change)17;
}

static void test_modify(void)
{
    struct doubling doubling = {0};
    int there = -1;
    const char *expected[] = {"x", "xx", "xxxx"};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pando_modify(table, TEXT("m"), doubled, &doubling));
        check_value("m", expected[i]);
    }
    CHECK(doubling.calls >= 3 && doubling.inside == PANDO_INVALID);
    CHECK_OK(pando_modify(table, TEXT("m"), doubled, &doubling));
    CHECK_STATUS(pando_get(table, TEXT("m"), NULL, 0, NULL), PANDO_NOT_FOUND);
    CHECK_OK(pando_modify(table, TEXT("m"), kept, &there));
    CHECK(there == 0);
    CHECK_STATUS(pando_modify(table, TEXT("m"), nonsense, NULL), PANDO_INVALID);
    CHECK_STATUS(pando_modify(table, TEXT("m"), NULL, NULL), PANDO_INVALID);
}

static void test_add(void)
{
    int64_t sum = 0;
    CHECK_OK(pando_add(table, TEXT("n"), 5, &sum));
    CHECK_OK(pando_add(table, TEXT("n"), -12, &sum));
    CHECK(sum == -7);
    CHECK_OK(pando_add(table, TEXT("n"), INT64_MIN + 7, NULL));
    CHECK_STATUS(pando_add(table, TEXT("n"), -1, &sum), PANDO_RANGE);
    CHECK_OK(pando_add(table, TEXT("n"), INT64_MAX, &sum));
    CHECK(sum == -1);
    CHECK_OK(pando_put(table, TEXT("n"), TEXT("text")));
    CHECK_STATUS(pando_add(table, TEXT("n"), 1, &sum), PANDO_INVALID);
    CHECK_OK(pando_delete(table, TEXT("n")));
}

/* ---- many keys ------------------------------------------------------------------------------- */

enum { MANY = 3000 };

static void test_batches(void)
{
    static struct pando_operation operations[MANY];
    static char keys[MANY][16], values[MANY][16];
    uint64_t deleted = 0;

    for (int i = 0; i < MANY; i++) {
        int size = snprintf(keys[i], sizeof(keys[i]), "batch %d", i);
        operations[i] = (struct pando_operation){
            .kind = PANDO_PUT, .key = {keys[i], (size_t)size}, .value = {keys[i], (size_t)size}};
    }
    CHECK_STATUS(pando_multi_get(table, operations, MANY), PANDO_INVALID);
    CHECK_OK(pando_write_batch(table, operations, MANY));
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(operations[i].status);
        operations[i].kind = PANDO_GET;
        operations[i].buffer = values[i];
        operations[i].capacity = sizeof(values[i]);
    }
    CHECK_STATUS(pando_write_batch(table, operations, MANY), PANDO_INVALID);
    operations[7].key.size = 3; /* not there */
    CHECK_OK(pando_multi_get(table, operations, MANY));
    for (int i = 0; i < MANY; i++) {
        CHECK_STATUS(operations[i].status, i == 7 ? PANDO_NOT_FOUND : PANDO_OK);
        if (i != 7)
            CHECK(operations[i].value_size == operations[i].key.size &&
                  memcmp(values[i], keys[i], operations[i].key.size) == 0);
    }
    operations[9].key.size = 2000;
    operations[9].key.data = memset(malloc(2000), 'x', 2000);
    CHECK_STATUS(pando_multi_get(table, operations, 20), PANDO_TOO_LARGE);
    CHECK_STATUS(operations[9].status, PANDO_TOO_LARGE);
    CHECK_OK(operations[10].status);
    check_text("2000");
    free((void *)operations[9].key.data);
    CHECK_OK(pando_multi_get(table, NULL, 0));
    CHECK_STATUS(pando_multi_get(table, NULL, 1), PANDO_INVALID);

    CHECK_OK(pando_put(table, TEXT("batcg\xff"), TEXT("before")));
    CHECK_OK(pando_put(table, TEXT("batci"), TEXT("after")));
    CHECK_OK(pando_delete_prefix(table, TEXT("batch "), &deleted));
    CHECK_EQ_U64(deleted, MANY);
    CHECK_OK(pando_delete_prefix(table, TEXT("batch "), &deleted));
    CHECK_EQ_U64(deleted, 0);
    check_value("batcg\xff", "before");
    check_value("batci", "after");
    CHECK_OK(pando_put(table, TEXT("\xff\xff"), TEXT("1")));
    CHECK_OK(pando_put(table, TEXT("\xff\xff\xff"), TEXT("2")));
    CHECK_OK(pando_delete_prefix(table, TEXT("\xff\xff"), &deleted));
    CHECK_EQ_U64(deleted, 2);
    char longest[2000] = {0};
    CHECK_OK(pando_delete_prefix(table, longest, sizeof(longest), &deleted));
    CHECK_EQ_U64(deleted, 0);
    CHECK_STATUS(pando_delete_prefix(table, NULL, 3, NULL), PANDO_INVALID);
    CHECK_OK(pando_delete_prefix(table, NULL, 0, &deleted)); /* everything */
    CHECK(deleted >= 2);
    struct pando_iterator *iterator;
    CHECK_OK(pando_iterator_open(table, NULL, &iterator));
    CHECK_STATUS(pando_iterator_first(iterator), PANDO_NOT_FOUND);
    pando_iterator_close(iterator);
}

static void test_counters(void)
{
    struct pando_counters counters = {.size = sizeof(counters)};
    struct pando_table_counters of_table = {.size = sizeof(of_table)};
    CHECK_OK(pando_counters(pool, &counters));
    CHECK(counters.round_trips > 0 && counters.reads > 0 && counters.bytes_in > 0);
    CHECK_OK(pando_table_counters(table, &of_table));
    CHECK(of_table.cache_hits > 0);
    counters.size = 0;
    CHECK_STATUS(pando_counters(pool, &counters), PANDO_INVALID);
}

/* ---- a pool that is full --------------------------------------------------------------------- */

static void test_full(void)
{
    struct pando_pool *small = open_pool("embedded:64M");
    struct pando_table *full;
    static uint8_t value[100000], got[100000];
    unsigned stored = 0;
    size_t size;
    enum pando_status status = PANDO_OK;
    CHECK_OK(pando_table_create(small, "t", NULL));
    CHECK_OK(pando_table_open(small, "t", &full));
    while (stored < 10000) {
        memcpy(value, &stored, sizeof(stored));
        status = pando_put(full, &stored, sizeof(stored), value, sizeof(value));
        if (status != PANDO_OK)
            break;
        stored++;
    }
    CHECK_STATUS(status, PANDO_FULL);
    CHECK(strstr(pando_error_text(small), "larger pool") != NULL);
    for (unsigned i = 0; i < stored; i++) { /* nothing acknowledged is lost */
        memcpy(value, &i, sizeof(i));
        CHECK_OK(pando_get(full, &i, sizeof(i), got, sizeof(got), &size));
        CHECK(size == sizeof(value) && memcmp(got, value, size) == 0);
    }
    CHECK_STATUS(pando_get(full, &stored, sizeof(stored), NULL, 0, NULL), PANDO_NOT_FOUND);
    for (unsigned i = 0; i < 50; i++)
        CHECK_OK(pando_delete(full, &i, sizeof(i)));
    for (int tries = 0; (status = pando_put(full, TEXT("again"), value, sizeof(value))) != PANDO_OK;
         tries++) {
        CHECK_STATUS(status, PANDO_FULL);
        CHECK(tries < 100); /* freed memory is used again after its grace period */
        usleep(100 * 1000);
    }
    CHECK_OK(pando_table_close(full));
    CHECK_OK(pando_close(small));
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void test_fork(void)
{
#ifdef __SANITIZE_THREAD__
    return; /* it does not follow threads of a child */
#endif
    CHECK_OK(pando_put(table, TEXT("fork"), TEXT("parent")));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct pando_table *other;
        if (pando_put(table, TEXT("fork"), TEXT("child")) != PANDO_INVALID ||
            pando_table_open(pool, "t", &other) != PANDO_INVALID ||
            pando_close(pool) != PANDO_INVALID || strstr(pando_error_text(pool), "fork") == NULL)
            _exit(1);
        /* But a pool of its own. */
        struct pando_options options = {.size = sizeof(options), .uri = "embedded:64M"};
        struct pando_pool *own;
        if (pando_open(&options, &own, NULL, 0) != PANDO_OK ||
            pando_table_create(own, "t", NULL) != PANDO_OK || pando_close(own) != PANDO_OK)
            _exit(2);
        _exit(0);
    }
    int result;
    CHECK(waitpid(child, &result, 0) == child);
    CHECK(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    check_value("fork", "parent");
}

int main(void)
{
    test_open();
    test_older_program();
    pool = open_pool("embedded:256M");
    CHECK_EQ_TEXT(pando_error_text(pool), "");
    test_tables();
    CHECK_OK(pando_table_create(pool, "t", NULL));
    CHECK_OK(pando_table_open(pool, "t", &table));
    test_many_handles();
    test_keys();
    test_small_table();
    test_values();
    test_conditions();
    test_modify();
    test_add();
    test_batches();
    test_counters();
    test_full();
    test_fork();
    CHECK_OK(pando_table_close(table));
    CHECK_OK(pando_close(pool));
    return 0;
}
