/*
 * Tables through the store on threads of one process: dropped and created again under the hands of
 * others that read, write and scan; nothing of a dropped table is seen in the next of its name, and its
 * memory comes back. A dropped table that cannot be freed is in nobody's way.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/check.h"
#include "store/store_int.h"

enum { THREADS = 3, TASKS = 4, ROUNDS = 60, KEYS = 2000 };

static struct store *store;
static _Atomic int opened, left_threads;
static _Atomic uint64_t round_now; /* written into every value */
static atomic_bool stop;
static _Atomic uint64_t worked, refused;

static void key_of(uint64_t number, uint8_t key[8])
{
    uint64_t word = __builtin_bswap64(number);
    memcpy(key, &word, 8);
}

static enum pando_status open_table_co(struct store_thread *thread, struct store_table **table)
{
    char error[256];
    return store_table_open_co(thread, "t", table, error, sizeof(error));
}

static void create_co(struct store_thread *thread)
{
    char error[256];
    struct store_shape shape = {.key_max = 64, .value_inline = 64};
    CHECK_OK(store_table_create_co(thread, "t", NULL, &shape, error, sizeof(error)));
}

struct counted {
    uint64_t pairs, least_round;
};

static bool count_pair(void *context, struct slice key, struct slice value)
{
    struct counted *counted = context;
    uint64_t round;
    (void)key;
    CHECK(value.size >= sizeof(round));
    memcpy(&round, value.data, sizeof(round));
    if (round < counted->least_round)
        counted->least_round = round;
    counted->pairs++;
    return true;
}

/* Everything that may happen to a user of a table that is dropped: OK and NOT_FOUND. */
static void use_co(struct store_thread *thread, uint64_t *random)
{
    struct store_table *table;
    uint64_t before = atomic_load(&round_now);
    enum pando_status status = open_table_co(thread, &table);
    if (status == PANDO_NOT_FOUND) {
        rt_sleep_co(RT_NS_PER_MS);
        return;
    }
    CHECK_OK(status);
    while (!atomic_load(&stop)) {
        static _Thread_local uint8_t large[4000];
        uint8_t key[8], value[128];
        size_t size;
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        key_of(*random >> 33 & (KEYS - 1), key);
        uint64_t round = atomic_load(&round_now);
        memcpy(large, &round, sizeof(round));
        switch (*random >> 60) {
        case 0: {
            struct store_range range = {.no_high = true};
            struct counted counted = {.least_round = UINT64_MAX};
            status = store_scan_co(table, &range, count_pair, &counted);
            /* What was written into an older table of the name must not be here. The round goes up
             * after the drop and before the next is created. */
            if (status == PANDO_OK && counted.pairs > 0)
                CHECK(counted.least_round >= before);
            break;
        }
        case 1:
            status =
                store_put_co(table, slice_of(key, 8), slice_of(large, sizeof(large)), STORE_UPSERT);
            break;
        case 2:
            status = store_delete_co(table, slice_of(key, 8));
            break;
        case 3:
        case 4:
        case 5:
        case 6:
            status = store_put_co(table, slice_of(key, 8), slice_of(&round, 8), STORE_UPSERT);
            break;
        default:
            status = store_get_co(table, slice_of(key, 8), value, sizeof(value), &size);
        }
        if (status != PANDO_OK && status != PANDO_NOT_FOUND)
            CHECK_FAIL("an operation on a table that may be dropped: %s",
                       pando_status_text(status));
        if (store_table_dropped(table)) {
            CHECK_STATUS(store_get_co(table, slice_of(key, 8), value, 8, &size), PANDO_NOT_FOUND);
            CHECK_STATUS(store_put_co(table, slice_of(key, 8), slice_of(key, 8), STORE_UPSERT),
                         PANDO_NOT_FOUND);
            atomic_fetch_add(&refused, 1);
            break;
        }
        atomic_fetch_add(&worked, 1);
        rt_yield_co();
    }
    store_table_close(table);
}

struct user {
    struct store_thread *thread;
    uint64_t random;
    struct rt_countdown *done;
};

static void user_task(void *arg)
{
    struct user *user = arg;
    while (!atomic_load(&stop))
        use_co(user->thread, &user->random);
    rt_countdown_done(user->done);
}

static void use_thread_co(unsigned index)
{
    struct store_thread *thread;
    struct user users[TASKS];
    struct rt_countdown done;
    CHECK_OK(store_thread_open_co(store, &thread));
    rt_countdown_init(&done, TASKS);
    for (unsigned i = 0; i < TASKS; i++) {
        users[i] = (struct user){.thread = thread, .random = index * 100 + i, .done = &done};
        CHECK_OK(rt_spawn(rt_loop_self(), user_task, &users[i]));
    }
    rt_countdown_wait_co(&done);
    store_thread_close_co(thread);
}

static void fill_co(struct store_thread *thread)
{
    struct store_table *table;
    CHECK_OK(open_table_co(thread, &table));
    uint64_t round = atomic_load(&round_now);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint8_t key[8];
        key_of(i, key);
        enum pando_status status =
            store_put_co(table, slice_of(key, 8), slice_of(&round, 8), STORE_UPSERT);
        CHECK_OK(status);
    }
    store_table_close(table);
}

/* ---- an operation that is under way ---------------------------------------------------------- */

static atomic_int inside; /* 1: in the callback; 2: it has ended */

static struct store_change slow_change(void *context, const struct slice *old)
{
    (void)context;
    (void)old;
    atomic_store(&inside, 1);
    usleep(300 * 1000);
    atomic_store(&inside, 2);
    return (struct store_change){.what = STORE_REPLACE, .value = slice_of("v", 1)};
}

/* On another thread. */
static void be_slow_co(void)
{
    struct store_thread *thread;
    struct store_table *table;
    char error[256];
    CHECK_OK(store_thread_open_co(store, &thread));
    CHECK_OK(store_table_open_co(thread, "slow", &table, error, sizeof(error)));
    CHECK_OK(store_modify_co(table, slice_of("k", 1), true, slow_change, NULL));
    store_table_close(table);
    store_thread_close_co(thread);
}

static void drop_waits_co(struct store_thread *thread)
{
    while (atomic_load(&inside) == 0)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK_OK(store_table_drop_co(thread, "slow"));
    CHECK(atomic_load(&inside) == 2);
}

/* Of an engine that this program does not have. */
static void leave_stuck_co(struct store_thread *thread)
{
    struct pool_table_options options = {.name = "stuck", .engine = "none"};
    struct pool_entry entry;
    unsigned slot;
    uint64_t number;
    CHECK_OK(pool_table_create_co(thread->session, &options, &slot, &entry));
    CHECK_OK(pool_table_mark_co(thread->session, "stuck", &slot, &number));
}

static uint64_t free_chunks_co(struct store_thread *thread)
{
    struct pool_node_stats stats;
    CHECK_OK(store_node_stats_co(thread, 0, &stats));
    return stats.chunks_free;
}

/* Round after round in a pool that would be full after a few if nothing came back. */
static void drop_co(struct store_thread *thread)
{
    create_co(thread);
    for (int i = 0; i < ROUNDS; i++) {
        fill_co(thread);
        rt_sleep_co(30 * RT_NS_PER_MS);
        CHECK_OK(store_table_drop_co(thread, "t"));
        CHECK_STATUS(store_table_drop_co(thread, "t"), PANDO_NOT_FOUND);
        atomic_fetch_add(&round_now, 1);
        create_co(thread);
    }
}

static void names_co(struct store_thread *thread)
{
    struct store_shape shape = {.key_max = 16, .value_inline = 8};
    struct store_table *table;
    char error[256] = "";
    char longest[80];
    memset(longest, 'x', sizeof(longest));
    longest[79] = '\0';
    const char *bad[] = {"", "#1", "#", longest};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_STATUS(store_table_create_co(thread, bad[i], NULL, &shape, error, sizeof(error)),
                     PANDO_INVALID);
        CHECK(error[0] != '\0');
        CHECK_STATUS(store_table_open_co(thread, bad[i], &table, error, sizeof(error)),
                     PANDO_NOT_FOUND);
        CHECK_STATUS(store_table_drop_co(thread, bad[i]), PANDO_NOT_FOUND);
    }
}

/* A process that is to end does not wait for its next membership, which takes twenty leases if none
 * comes. */
static void hurry_co(void)
{
    uint64_t begin_ns = rt_now_ns();
    store_hurry(store);
    CHECK_STATUS(store_await_membership_co(store, atomic_load(&store->membership_number)),
                 PANDO_TIMEOUT);
    CHECK(rt_now_ns() - begin_ns < STORE_REJOIN_LEASES * store->lease_ns);
}

static void main_co(void *context, const struct env_place *place)
{
    struct store_thread *thread;
    char error[256];
    (void)context;
    if (place->thread != 0) {
        while (!atomic_load(&opened))
            rt_sleep_co(RT_NS_PER_MS);
        if (place->thread == 1)
            be_slow_co();
        use_thread_co(place->thread);
        atomic_fetch_add(&left_threads, 1);
        return;
    }
    struct store_options options = {.env = place->env, .fabric = place->fabric, .name = "test"};
    CHECK_OK(store_open_co(&options, &store, error, sizeof(error)));
    CHECK_OK(store_thread_open_co(store, &thread));
    struct store_shape shape = {.key_max = 16, .value_inline = 8};
    CHECK_OK(store_table_create_co(thread, "slow", NULL, &shape, error, sizeof(error)));
    atomic_store(&opened, 1);
    drop_waits_co(thread);
    names_co(thread);
    leave_stuck_co(thread);
    drop_co(thread);
    atomic_store(&stop, true);
    while (atomic_load(&left_threads) < THREADS - 1)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK_OK(store_table_drop_co(thread, "t"));
    printf("%llu chunks free, %llu operations, %llu met a drop\n",
           (unsigned long long)free_chunks_co(thread), (unsigned long long)atomic_load(&worked),
           (unsigned long long)atomic_load(&refused));
    CHECK(atomic_load(&worked) > 1000 && atomic_load(&refused) > ROUNDS);
    hurry_co();
    store_thread_close_co(thread);
    store_close_co(store);
}

int main(void)
{
    struct env *env;
    char error[256];
    struct env_options options = {.uri = "embedded:512M"};
    log_set_level(LOG_LEVEL_ERROR);
    CHECK_OK(env_open(&options, &env, error, sizeof(error)));
    CHECK_OK(env_run(env, THREADS, main_co, NULL));
    env_close(env);
    return 0;
}
