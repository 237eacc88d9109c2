/*
 * The redo log on real threads: all append, wait and truncate at the same time, each with a
 * session of its own; and what appending costs. Then everything is there.
 */
#include "tree/dex/log/log.h"

#include <stdatomic.h>

#include "base/log.h"
#include "lib/check.h"
#include "pool/pool.h"
#include "store/env.h"

enum {
    THREADS = 3,
    TASKS = 8,
    TABLE = 7,
    BYTES = 64 * 1024,
    SPEED_BYTES = DEX_LOG_BYTES_MAX,
    SPEED_BATCHES = 20,
    SPEED_APPENDS = 100 * 1000,
    BARRIERS = 3,
};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 300 };
#else
enum { ROUNDS = 3000 };
#endif

static struct pool *pool;
static struct dex_log *shared;
static _Atomic int arrived[BARRIERS];

static void barrier_co(int which)
{
    atomic_fetch_add(&arrived[which], 1);
    while (atomic_load(&arrived[which]) < THREADS)
        rt_sleep_co(RT_NS_PER_MS);
}

/* ---- all at the same time -------------------------------------------------------------------- */

struct worker {
    struct pool_session *session;
    uint64_t task;
    int *running;
};

static void append_co(const struct worker *worker, uint64_t number, uint64_t *lsn, uint64_t *end)
{
    uint64_t key[2] = {worker->task, number}, value[20] = {number};
    struct dex_log_record record = {.epoch = 1,
                                    .key = slice_of(key, sizeof(key)),
                                    .value = slice_of(value, 8 + number % sizeof(value) / 2)};
    enum pando_status status;
    while ((status = dex_log_append(shared, &record, lsn, end)) == PANDO_FULL)
        CHECK_OK(dex_log_truncate_co(shared, worker->session, dex_log_end(shared)));
    CHECK_OK(status);
}

static void worker_task(void *arg)
{
    struct worker *worker = arg;
    uint64_t lsn, end, before = 0;

    for (uint64_t number = 1; number <= ROUNDS; number++) {
        append_co(worker, number, &lsn, &end);
        CHECK(lsn >= before && end > lsn);
        before = end;
        if (number % 16 == 0) {
            rt_yield_co(); /* several records for one wait */
            continue;
        }
        CHECK_OK(dex_log_wait_co(shared, worker->session, end));
        CHECK(dex_log_durable(shared, end));
    }
    CHECK_OK(dex_log_wait_co(shared, worker->session, end));
    --*worker->running;
}

struct replay {
    uint64_t numbers[THREADS * TASKS];
    uint64_t next, count;
};

static enum pando_status replay_one(void *context, const struct dex_log_record *record)
{
    struct replay *replay = context;
    uint64_t key[2];

    CHECK(record->key.size == sizeof(key) && record->epoch == 1 && record->kind == DEX_LOG_PUT);
    memcpy(key, record->key.data, sizeof(key));
    CHECK(key[0] < THREADS * TASKS);
    CHECK(replay->next == 0 || record->lsn == replay->next);
    CHECK(replay->numbers[key[0]] == 0 || key[1] == replay->numbers[key[0]] + 1);
    CHECK(memcmp(record->value.data, &key[1], 8) == 0);
    replay->numbers[key[0]] = key[1];
    replay->next = record->lsn + dex_log_record_bytes(record->key.size, record->value.size);
    replay->count++;
    return PANDO_OK;
}

static void check_replay_co(struct pool_session *session)
{
    struct replay replay = {0};
    CHECK_OK(dex_log_replay_co(session, TABLE, dex_log_address(shared), replay_one, &replay));
    CHECK(replay.count > 0 && replay.next == dex_log_end(shared));
    for (int i = 0; i < THREADS * TASKS; i++)
        CHECK(replay.numbers[i] == 0 || replay.numbers[i] == ROUNDS);
}

static uint64_t lists_of(const struct pool_session *session)
{
    struct fabric_counters counters[FABRIC_TARGETS];
    pool_session_counters(session, counters);
    return counters[FABRIC_MEMORY].lists + counters[FABRIC_COMPUTE].lists;
}

static void work_co(struct pool_session *session, unsigned thread)
{
    struct worker workers[TASKS];
    int running = TASKS;
    uint64_t lists = lists_of(session);

    for (unsigned i = 0; i < TASKS; i++) {
        workers[i] = (struct worker){session, thread * TASKS + i, &running};
        CHECK_OK(rt_spawn(rt_loop_self(), worker_task, &workers[i]));
    }
    while (running > 0)
        rt_sleep_co(RT_NS_PER_MS);
    printf("thread %u: %d records, %" PRIu64 " lists\n", thread, TASKS * ROUNDS,
           lists_of(session) - lists);
}

/* ---- speed ----------------------------------------------------------------------------------- */

static void speed_co(struct pool_session *session)
{
    struct dex_log *log;
    uint64_t lsn, end, best = UINT64_MAX, sum = 0;

    CHECK_OK(dex_log_create_co(session, TABLE, SPEED_BYTES, &log));
    CHECK_OK(dex_log_retain_co(log, session, true));
    for (int batch = 0; batch < SPEED_BATCHES; batch++) {
        uint64_t start_ns = rt_now_ns();
        for (uint64_t i = 0; i < SPEED_APPENDS; i++) {
            struct dex_log_record record = {
                .epoch = 1, .key = slice_of(&i, 8), .value = slice_of(&start_ns, 8)};
            CHECK_OK(dex_log_append(log, &record, &lsn, &end));
        }
        uint64_t took = rt_now_ns() - start_ns;
        sum += took;
        best = took < best ? took : best;
        CHECK_OK(dex_log_truncate_co(log, session, end));
    }
    printf("append of 8/8 bytes: %.1f ns (best of %d batches), %.1f ns on average\n",
           (double)best / SPEED_APPENDS, SPEED_BATCHES,
           (double)sum / SPEED_APPENDS / SPEED_BATCHES);
    CHECK_OK(dex_log_destroy_co(log, session, false));
}

/* ---- threads --------------------------------------------------------------------------------- */

static void main_co(void *context, const struct env_place *place)
{
    struct pool_session *session;
    (void)context;

    if (place->thread == 0) {
        struct pool_options options = {
            .memory_nodes = 1, .name = "test", .lease_ns = RT_NS_PER_S * 5};
        char error[256];
        CHECK_OK(pool_join_co(place->fabric, &options, &pool, error, sizeof(error)));
    }
    barrier_co(0);
    CHECK_OK(pool_session_open_co(pool, &session));
    if (place->thread == 0) {
        speed_co(session);
        CHECK_OK(dex_log_create_co(session, TABLE, BYTES, &shared));
        CHECK_OK(dex_log_retain_co(shared, session, true));
    }
    barrier_co(1);
    work_co(session, place->thread);
    if (place->thread != 0)
        pool_session_close_co(session);
    barrier_co(2);
    if (place->thread != 0)
        return;
    check_replay_co(session);
    CHECK_OK(dex_log_destroy_co(shared, session, false));
    pool_session_close_co(session);
    pool_leave_co(pool);
}

int main(void)
{
    struct env_options options = {.uri = "embedded:64M"};
    struct env *env;
    char error[256];

    log_set_level(LOG_LEVEL_ERROR);
    CHECK_OK(env_open(&options, &env, error, sizeof(error)));
    CHECK_OK(env_run(env, THREADS, main_co, NULL));
    env_close(env);
    return 0;
}
