/*
 * A client for cluster tests, through the store.
 *
 *   cluster_store_client URI SECRET create TABLE
 *   cluster_store_client URI SECRET write TABLE FIRST STEP   puts keys for ever on two threads: prints "KEY" for
 *                                                            each acknowledged one, "? KEY" for UNKNOWN
 *   cluster_store_client URI SECRET fill TABLE COUNT         puts that many keys
 *   cluster_store_client URI SECRET verify TABLE             reads keys on stdin; exits 1 if one is missing
 *   cluster_store_client URI SECRET use TABLE                reads and writes until the table is dropped
 *   cluster_store_client URI SECRET hold TABLE               is in the middle of an operation for 0.4 seconds
 *   cluster_store_client URI SECRET drop TABLE
 *   cluster_store_client URI SECRET mark TABLE               begins to drop it and dies
 *   cluster_store_client URI SECRET free                     prints how many chunks of the pool are free
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "store/store.h"

enum { THREADS = 2, TASKS = 8 };

static struct {
    const char *mode, *table;
    uint64_t first, step;
    struct store *store;
    atomic_bool opened;
    _Atomic uint64_t next;
    atomic_int result, threads_done;
} client;

static void fail(const char *what, enum pando_status status)
{
    fprintf(stderr, "store_client: %s: %s\n", what, pando_status_text(status));
    atomic_store(&client.result, 1);
}

static bool mode(const char *name)
{
    return strcmp(client.mode, name) == 0;
}

static enum pando_status put_co(struct store_table *table, uint64_t number)
{
    uint64_t key = __builtin_bswap64(number), value = ~number;
    return store_put_co(table, slice_of(&key, 8), slice_of(&value, 8), STORE_UPSERT);
}

/* A process that got no processor for a lease is taken for dead, joins anew, and does not know what became of its
 * put: once more is the same. */
static enum pando_status put_surely_co(struct store_table *table, uint64_t number)
{
    enum pando_status status;
    do {
        status = put_co(table, number);
    } while (status == PANDO_UNKNOWN);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct writer {
    struct store_table *table;
    struct rt_countdown *done;
};

static void write_task(void *arg)
{
    struct writer *writer = arg;
    while (atomic_load(&client.result) == 0) {
        uint64_t number = client.first + atomic_fetch_add(&client.next, 1) * client.step;
        enum pando_status status = put_co(writer->table, number);
        if (status == PANDO_OK)
            printf("%" PRIu64 "\n", number);
        else if (status == PANDO_UNKNOWN)
            printf("? %" PRIu64 "\n", number);
        else
            fail("put", status);
    }
    rt_countdown_done(writer->done);
}

static void fill_task(void *arg)
{
    struct writer *writer = arg;
    uint64_t number;
    while (atomic_load(&client.result) == 0 &&
           (number = atomic_fetch_add(&client.next, 1)) < client.first) {
        enum pando_status status = put_surely_co(writer->table, number);
        if (status != PANDO_OK)
            fail("put", status);
    }
    rt_countdown_done(writer->done);
}

static void write_co(struct store_table *table, void (*task)(void *))
{
    struct rt_countdown done;
    struct writer writer = {.table = table, .done = &done};
    rt_countdown_init(&done, TASKS);
    for (int i = 0; i < TASKS; i++) {
        if (rt_spawn(rt_loop_self(), task, &writer) != PANDO_OK)
            abort();
    }
    rt_countdown_wait_co(&done);
}

/* ---- the others ------------------------------------------------------------------------------ */

static void verify_co(struct store_table *table)
{
    uint64_t number, checked = 0;
    while (scanf("%" SCNu64 "%*[^\n]", &number) == 1) {
        uint64_t key = __builtin_bswap64(number), value = 0;
        size_t size = 0;
        enum pando_status status =
            store_get_co(table, slice_of(&key, 8), &value, sizeof(value), &size);
        if (status != PANDO_OK || size != 8 || value != ~number) {
            fprintf(stderr, "store_client: key %" PRIu64 " is lost: %s\n", number,
                    pando_status_text(status));
            atomic_store(&client.result, 1);
        }
        checked++;
    }
    printf("%" PRIu64 " keys checked\n", checked);
}

static void use_co(struct store_table *table)
{
    uint64_t done = 0;
    enum pando_status status = PANDO_OK;
    printf("using\n");
    while (!store_table_dropped(table) && (status == PANDO_OK || status == PANDO_NOT_FOUND)) {
        uint64_t number = rt_random() % 4096, key = __builtin_bswap64(number), value;
        size_t size;
        status = done++ % 2 == 0 ? put_surely_co(table, number)
                                 : store_get_co(table, slice_of(&key, 8), &value, 8, &size);
    }
    if (status != PANDO_NOT_FOUND && status != PANDO_OK)
        fail("use", status);
    printf("dropped after %" PRIu64 " operations\n", done);
}

static struct store_change hold_change(void *context, const struct slice *old)
{
    (void)context;
    (void)old;
    printf("holding\n");
    usleep(400 * 1000); /* less than what makes a process look hung */
    printf("held\n");
    return (struct store_change){.what = STORE_KEEP};
}

static void hold_co(struct store_table *table)
{
    enum pando_status status = store_modify_co(table, slice_of("k", 1), true, hold_change, NULL);
    if (status != PANDO_OK)
        fail("hold", status);
}

static void on_table_co(struct store_thread *thread)
{
    struct store_table *table;
    char error[256] = "";
    enum pando_status status =
        store_table_open_co(thread, client.table, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        fail(error, status);
        return;
    }
    if (mode("write"))
        write_co(table, write_task);
    else if (mode("verify"))
        verify_co(table);
    else if (mode("use"))
        use_co(table);
    else if (mode("hold"))
        hold_co(table);
    else
        write_co(table, fill_task);
    store_table_close(table);
}

static void on_pool_co(struct store_thread *thread)
{
    char error[256] = "";
    if (mode("create")) {
        struct store_shape shape = {.key_max = 64, .value_inline = 64};
        enum pando_status status =
            store_table_create_co(thread, client.table, NULL, &shape, error, sizeof(error));
        if (status != PANDO_OK)
            fail(error, status);
    } else if (mode("drop")) {
        enum pando_status status = store_table_drop_co(thread, client.table);
        if (status != PANDO_OK)
            fail("drop", status);
    } else if (mode("mark")) {
        unsigned slot;
        uint64_t number;
        enum pando_status status =
            pool_table_mark_co(store_session(thread), client.table, &slot, &number);
        fprintf(stderr, "store_client: mark: %s\n", pando_status_text(status));
        abort();
    } else if (mode("free")) {
        uint64_t chunks_free = 0;
        struct pool_node_stats stats;
        for (uint16_t node = 0; store_node_stats_co(thread, node, &stats) == PANDO_OK; node++) {
            chunks_free += stats.chunks_free;
            if (node + 1u >= client.step)
                break;
        }
        printf("%" PRIu64 "\n", chunks_free);
    } else {
        on_table_co(thread);
    }
}

static void main_co(void *context, const struct env_place *place)
{
    struct store_thread *thread;
    char error[256] = "";
    (void)context;
    if (place->thread == 0) {
        struct store_options options = {
            .env = place->env, .fabric = place->fabric, .name = "store_client"};
        enum pando_status status = store_open_co(&options, &client.store, error, sizeof(error));
        if (status != PANDO_OK)
            fail(error, status);
        atomic_store(&client.opened, true);
        if (status != PANDO_OK)
            return;
    }
    while (!atomic_load(&client.opened))
        rt_sleep_co(RT_NS_PER_MS);
    if (client.store == NULL)
        return;
    if (place->thread == 0 || mode("write")) {
        enum pando_status status = store_thread_open_co(client.store, &thread);
        if (status != PANDO_OK) {
            fail("thread", status);
        } else {
            on_pool_co(thread);
            store_thread_close_co(thread);
        }
    }
    atomic_fetch_add(&client.threads_done, 1);
    if (place->thread != 0)
        return;
    while (atomic_load(&client.threads_done) < THREADS)
        rt_sleep_co(RT_NS_PER_MS);
    store_close_co(client.store);
}

int main(int argc, char **argv)
{
    struct env *env;
    char error[256];
    if (argc < 4) {
        fprintf(stderr, "see the head of store_client.c\n");
        return 2;
    }
    log_set_level(getenv("STORE_CLIENT_LOG") != NULL ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was acknowledged is known even after kill -9 */
    client.mode = argv[3];
    client.table = argc > 4 ? argv[4] : "test";
    client.first = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    client.step = argc > 6 ? strtoull(argv[6], NULL, 10) : 1;
    struct env_options options = {.uri = argv[1], .secret_file = argv[2]};
    if (env_open(&options, &env, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "store_client: %s\n", error);
        return 1;
    }
    if (mode("free"))
        client.step = env_memory_nodes(env);
    if (env_run(env, THREADS, main_co, NULL) != PANDO_OK)
        return 1;
    env_close(env);
    return atomic_load(&client.result);
}
