/*
 * The redo log without an adversary: laps, truncation, group commit, what an earlier lap or life
 * has left, damaged bytes, and a memory node out of reach.
 */
#include "dex_log_world.h"
#include "pool/block_fmt.h"
#include "pool/checked_word.h"
#include "pool/pool_int.h"

enum { RECORDS_MAX = 40000, BYTES = 16 * 1024, LARGE_BYTES = 1024 * 1024 };

static struct pool_world world;
static int done;

/* Position i is where record i was put. */
static uint64_t positions[RECORDS_MAX + 1];
static uint64_t appended;

static enum pando_status append(struct dex_log *log)
{
    uint8_t bytes[KNOWN_BYTES];
    struct dex_log_record record = known_record(appended, bytes);
    uint64_t lsn = 0, end = 0;
    enum pando_status status = dex_log_append(log, &record, &lsn, &end);
    if (status != PANDO_OK) {
        CHECK(lsn == 0 && end == 0);
        return status;
    }
    CHECK(lsn == (appended == 0 ? DEX_LOG_FIRST : positions[appended]));
    CHECK(end == dex_log_end(log) && appended < RECORDS_MAX);
    positions[appended++] = lsn;
    positions[appended] = end;
    return PANDO_OK;
}

static struct dex_log *create_co(struct pool_session *session, uint32_t bytes)
{
    struct dex_log *log;
    appended = 0;
    CHECK_OK(dex_log_create_co(session, TABLE, bytes, &log));
    CHECK_OK(dex_log_retain_co(log, session, true));
    CHECK(dex_log_capacity(log) == bytes - DEX_LOG_HEADER);
    CHECK(dex_log_begin(log) == DEX_LOG_FIRST && dex_log_end(log) == DEX_LOG_FIRST);
    return log;
}

static uint64_t replayed_next;

static enum pando_status replay_one(void *context, const struct dex_log_record *record)
{
    (void)context;
    if (replayed_next >= appended || record->lsn != positions[replayed_next] ||
        !record_is(record, replayed_next))
        CHECK_FAIL("record %" PRIu64 " at %" PRIu64 " is another", replayed_next, record->lsn);
    replayed_next++;
    return PANDO_OK;
}

/* Exactly records `first` to before `last` are there. */
static void check_replay_co(struct pool_session *session, fabric_address address, uint64_t first,
                            uint64_t last)
{
    replayed_next = first;
    CHECK_OK(dex_log_replay_co(session, TABLE, address, replay_one, NULL));
    CHECK_EQ_U64(replayed_next, last);
}

static uint64_t lists_of(const struct pool_session *session)
{
    struct fabric_counters counters[FABRIC_TARGETS];
    pool_session_counters(session, counters);
    return counters[FABRIC_MEMORY].lists;
}

static void poke_co(struct pool_session *session, fabric_address address, uint64_t word)
{
    struct fabric_op write = fabric_write(fabric_address_offset(address), &word, sizeof(word));
    CHECK_OK(pool_submit_co(session, fabric_address_node(address), &write, 1));
}

static uint64_t peek_co(struct pool_session *session, fabric_address address)
{
    uint64_t word;
    struct fabric_op read = fabric_read(fabric_address_offset(address), &word, sizeof(word));
    CHECK_OK(pool_submit_co(session, fabric_address_node(address), &read, 1));
    return word;
}

static fabric_address ring_address(const struct dex_log *log, uint64_t position)
{
    return dex_log_address(log) + DEX_LOG_HEADER + position % dex_log_capacity(log);
}

/* ---- many laps ------------------------------------------------------------------------------- */

static void laps_co(struct pool_session *session, struct pool_session *other)
{
    struct dex_log *log = create_co(session, BYTES);
    uint64_t first = 0, fulls = 0;

    check_replay_co(other, dex_log_address(log), 0, 0);
    while (positions[appended] < 40 * dex_log_capacity(log)) {
        uint64_t durable = appended;
        if (append(log) == PANDO_OK) {
            if (rt_random() % 4 != 0)
                continue;
            CHECK(!dex_log_durable(log, positions[appended]));
            check_replay_co(other, dex_log_address(log), first, replayed_next);
            CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
            CHECK(dex_log_durable(log, positions[appended]));
            check_replay_co(other, dex_log_address(log), first, appended);
            continue;
        }
        /* Full: truncated to somewhere, sometimes to where it has not yet been sent. */
        fulls++;
        first += 1 + rt_random() % (appended - first);
        if (fulls % 8 == 0)
            first = durable;
        CHECK_OK(dex_log_truncate_co(log, session, positions[first]));
        CHECK_EQ_U64(dex_log_begin(log), positions[first]);
        CHECK(dex_log_durable(log, positions[first]));
        CHECK_OK(dex_log_truncate_co(log, session, positions[first / 2])); /* never back */
        CHECK_EQ_U64(dex_log_begin(log), positions[first]);
        CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
        check_replay_co(other, dex_log_address(log), first, appended);
    }
    CHECK(fulls > 20);
    CHECK_OK(dex_log_destroy_co(log, session, false));
}

struct watch {
    struct dex_log *log;
    bool over;
};

/* Appends all the while; what is not yet in the pool must not be given up for it. */
static void watch_task(void *arg)
{
    struct watch *watch = arg;
    for (; !watch->over; rt_sleep_co(100)) {
        CHECK(dex_log_durable(watch->log, dex_log_begin(watch->log)));
        if (appended < RECORDS_MAX)
            (void)!append(watch->log);
    }
    watch->log = NULL;
}

/* More than a list may carry, and more than a reader takes at a time. */
static void large_co(struct pool_session *session, struct pool_session *other)
{
    struct dex_log *log = create_co(session, LARGE_BYTES);
    while (append(log) == PANDO_OK) {
    }
    uint64_t all = appended, lists = lists_of(session);
    CHECK_OK(dex_log_wait_co(log, session, positions[all]));
    CHECK(lists_of(session) - lists >= LARGE_BYTES / (64 * 1024));
    CHECK(lists_of(session) - lists <= LARGE_BYTES / (56 * 1024));
    check_replay_co(other, dex_log_address(log), 0, all);
    CHECK_OK(dex_log_truncate_co(log, session, positions[all / 2]));
    while (append(log) == PANDO_OK) {
    }
    CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
    check_replay_co(other, dex_log_address(log), all / 2, appended);

    CHECK_OK(dex_log_truncate_co(log, session, positions[appended]));
    while (append(log) == PANDO_OK) {
    }
    struct watch watch = {.log = log};
    CHECK_OK(rt_spawn(rt_loop_self(), watch_task, &watch));
    uint64_t first = appended - 3;
    CHECK_OK(dex_log_truncate_co(log, session, positions[first]));
    watch.over = true;
    while (watch.log != NULL)
        rt_sleep_co(RT_NS_PER_US);
    CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
    check_replay_co(other, dex_log_address(log), first, appended);
    CHECK_OK(dex_log_destroy_co(log, session, false));
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void limits_co(struct pool_session *session, struct pool_session *other)
{
    static uint8_t bytes[DEX_LOG_VALUE_MAX + 1];
    struct dex_log *log = NULL;
    uint64_t lsn, end;

    CHECK_STATUS(dex_log_create_co(session, TABLE, 4096, &log), PANDO_INVALID);
    CHECK_STATUS(dex_log_create_co(session, TABLE, 16 * 1024 + 8, &log), PANDO_INVALID);
    CHECK_STATUS(dex_log_create_co(session, TABLE, 8 << 20, &log), PANDO_INVALID);
    CHECK(log == NULL);
    log = create_co(session, DEX_LOG_BYTES_MIN);

    struct dex_log_record record = {.key = slice_of(bytes, DEX_LOG_KEY_MAX + 1)};
    CHECK_STATUS(dex_log_append(log, &record, &lsn, &end), PANDO_TOO_LARGE);
    record = (struct dex_log_record){.value = slice_of(bytes, DEX_LOG_VALUE_MAX + 1)};
    CHECK_STATUS(dex_log_append(log, &record, &lsn, &end), PANDO_TOO_LARGE);
    CHECK(dex_log_end(log) == DEX_LOG_FIRST);

    while (append(log) == PANDO_OK) {
    }
    uint64_t last = appended;
    CHECK_STATUS(append(log), PANDO_FULL);
    CHECK_OK(dex_log_wait_co(log, session, dex_log_end(log)));
    CHECK_STATUS(append(log), PANDO_FULL); /* being durable makes no room */
    check_replay_co(other, dex_log_address(log), 0, last);
    CHECK_OK(dex_log_truncate_co(log, session, dex_log_end(log)));
    check_replay_co(other, dex_log_address(log), last, last); /* nothing of the lap before */

    /* Full to the last byte, nowhere an end. */
    uint64_t start = dex_log_end(log);
    record = (struct dex_log_record){.key = slice_of(bytes, 8), .value = slice_of(bytes, 8)};
    while (dex_log_append(log, &record, &lsn, &end) == PANDO_OK) {
    }
    CHECK(end - start == dex_log_capacity(log));
    CHECK_OK(dex_log_wait_co(log, session, end));
    CHECK_OK(dex_log_destroy_co(log, session, true));
}

/* A lap of records of one size lies under the next: what follows the last record has the right
 * shape. */
static enum pando_status count_one(void *context, const struct dex_log_record *record)
{
    (void)record;
    ++*(uint64_t *)context;
    return PANDO_OK;
}

static uint64_t count_co(struct pool_session *session, fabric_address address)
{
    uint64_t count = 0;
    CHECK_OK(dex_log_replay_co(session, TABLE, address, count_one, &count));
    return count;
}

static void same_records(struct dex_log *log, uint64_t count)
{
    struct dex_log_record record = {.key = slice_of("12345678", 8),
                                    .value = slice_of("abcdefgh", 8)};
    uint64_t lsn, end;
    for (uint64_t i = 0; i < count; i++)
        CHECK_OK(dex_log_append(log, &record, &lsn, &end));
}

static void stale_co(struct pool_session *session, struct pool_session *other)
{
    /* Neighbours on both nodes: memory that nobody uses any more comes back elsewhere. */
    struct dex_log *neighbours[MEMORIES];
    for (int i = 0; i < MEMORIES; i++)
        neighbours[i] = create_co(session, DEX_LOG_BYTES_MIN);
    struct dex_log *log = create_co(session, DEX_LOG_BYTES_MIN);
    uint64_t lap = dex_log_capacity(log) / 32;
    fabric_address address = dex_log_address(log);

    same_records(log, lap);
    CHECK_OK(dex_log_wait_co(log, session, dex_log_end(log)));
    CHECK_EQ_U64(count_co(other, address), lap);
    CHECK_OK(dex_log_truncate_co(log, session, dex_log_end(log)));
    CHECK_EQ_U64(count_co(other, address), 0);
    same_records(log, 3);
    CHECK_OK(dex_log_wait_co(log, session, dex_log_end(log)));
    CHECK_EQ_U64(count_co(other, address), 3);

    /* The block's next life: the same records at the same positions, of the same epoch. */
    CHECK_OK(dex_log_destroy_co(log, session, false));
    CHECK_STATUS(dex_log_replay_co(other, TABLE, address, count_one, NULL), PANDO_CORRUPT);
    CHECK_STATUS(dex_log_free_co(other, TABLE, address), PANDO_CORRUPT);
    rt_sleep_co(pool_grace_ns(pool_session_pool(session)) +
                pool_lease_ns(pool_session_pool(session))); /* it goes back to its node */
    struct dex_log *elsewhere = create_co(session, DEX_LOG_BYTES_MIN); /* nodes take turns */
    log = create_co(session, DEX_LOG_BYTES_MIN);
    CHECK_EQ_U64(dex_log_address(log), address);
    CHECK_OK(dex_log_destroy_co(elsewhere, session, false));
    poke_co(session, address + DEX_LOG_BEGIN, checked_word_pack(DEX_LOG_FIRST + 32 * 8));
    CHECK_EQ_U64(count_co(other, address), 0);
    poke_co(session, address + DEX_LOG_BEGIN, checked_word_pack(DEX_LOG_FIRST));
    same_records(log, 2);
    CHECK_OK(dex_log_wait_co(log, session, dex_log_end(log)));
    CHECK_EQ_U64(count_co(other, address), 2);

    /* Freed by another, as a dead one's. */
    CHECK_OK(dex_log_free_co(other, TABLE, address));
    CHECK_STATUS(dex_log_destroy_co(log, session, false), PANDO_CORRUPT);
    for (int i = 0; i < MEMORIES; i++)
        CHECK_OK(dex_log_destroy_co(neighbours[i], session, false));
}

struct freer {
    struct pool_session *session;
    fabric_address address;
    int *running, *freed;
};

static void free_task(void *arg)
{
    struct freer *freer = arg;
    enum pando_status status = dex_log_free_co(freer->session, TABLE, freer->address);
    if (status == PANDO_OK)
        ++*freer->freed;
    else
        CHECK_STATUS(status, PANDO_CORRUPT);
    --*freer->running;
}

/* Several at the same time, of two members: one has it. */
static void freed_once_co(struct pool_session *session, struct pool_session *other)
{
    struct dex_log *log = create_co(session, BYTES);
    int running = 4, freed = 0;
    struct freer freers[2] = {{session, dex_log_address(log), &running, &freed},
                              {other, dex_log_address(log), &running, &freed}};
    CHECK_OK(dex_log_destroy_co(log, session, true));
    for (int i = 0; i < 4; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), free_task, &freers[i % 2]));
    while (running > 0)
        rt_sleep_co(RT_NS_PER_US);
    CHECK(freed == 1);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static enum pando_status refuse_third(void *context, const struct dex_log_record *record)
{
    (void)record;
    return ++*(int *)context == 3 ? PANDO_BUSY : PANDO_OK;
}

/* Whatever word of a record has not arrived, the ones before it are all there is. */
static void torn_co(struct pool_session *session, struct pool_session *other)
{
    struct dex_log *log = create_co(session, BYTES);
    fabric_address address = dex_log_address(log);
    int calls = 0;

    for (int i = 0; i < 30; i++)
        CHECK_OK(append(log));
    CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
    for (uint64_t number = 0; number < appended; number += 7) {
        for (uint64_t at = positions[number]; at < positions[number + 1]; at += 8) {
            uint64_t word = peek_co(other, ring_address(log, at));
            poke_co(other, ring_address(log, at), word ^ (uint64_t)1 << rt_random() % 64);
            check_replay_co(other, address, 0, number);
            poke_co(other, ring_address(log, at), word);
        }
    }
    check_replay_co(other, address, 0, appended);
    CHECK_STATUS(dex_log_replay_co(other, TABLE, address, refuse_third, &calls), PANDO_BUSY);
    CHECK(calls == 3);
    CHECK_OK(dex_log_destroy_co(log, session, false));
}

static void hostile_co(struct pool_session *session, struct pool_session *other)
{
    struct dex_log *log = create_co(session, BYTES);
    fabric_address address = dex_log_address(log);
    const fabric_address nowhere[] = {0,
                                      8,
                                      address + 64,
                                      address + 1,
                                      UINT64_MAX,
                                      fabric_address_make(1, 42 << 20),
                                      FABRIC_DEVICE,
                                      fabric_address_make(9, 1 << 20)};
    const uint64_t beginnings[] = {0,
                                   checked_word_pack(7),
                                   checked_word_pack(DEX_LOG_FIRST + 1),
                                   DEX_LOG_FIRST,
                                   UINT64_MAX,
                                   UINT64_MAX - 7,
                                   (uint64_t)1 << 63};

    for (int i = 0; i < 30; i++)
        CHECK_OK(append(log));
    CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
    for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
        CHECK_STATUS(dex_log_replay_co(other, TABLE, nowhere[i], count_one, NULL), PANDO_CORRUPT);
        CHECK_STATUS(dex_log_free_co(other, TABLE, nowhere[i]), PANDO_CORRUPT);
    }
    CHECK_STATUS(dex_log_replay_co(other, TABLE + 1, address, count_one, NULL), PANDO_CORRUPT);
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        poke_co(other, address + DEX_LOG_BEGIN, beginnings[i]);
        CHECK_STATUS(dex_log_replay_co(other, TABLE, address, count_one, NULL), PANDO_CORRUPT);
    }
    poke_co(other, address + DEX_LOG_BEGIN, checked_word_pack(CHECKED_WORD_MAX - 7));
    CHECK_EQ_U64(count_co(other, address), 0);
    poke_co(other, address + DEX_LOG_BEGIN, checked_word_pack(DEX_LOG_FIRST));
    for (int i = 0; i < 6; i++) { /* each word that the cell covers, and its header */
        uint64_t word = peek_co(other, address + 8 * (uint64_t)i);
        poke_co(other, address + 8 * (uint64_t)i, word ^ (uint64_t)1 << rt_random() % 64);
        CHECK_STATUS(dex_log_replay_co(other, TABLE, address, count_one, NULL), PANDO_CORRUPT);
        CHECK_STATUS(dex_log_free_co(other, TABLE, address), PANDO_CORRUPT);
        poke_co(other, address + 8 * (uint64_t)i, word);
    }
    check_replay_co(other, address, 0, appended);
    CHECK_OK(dex_log_destroy_co(log, session, false));
}

/* ---- group commit ---------------------------------------------------------------------------- */

enum { TASKS = 64, ROUNDS = 50 };

struct group {
    struct dex_log *log;
    struct pool_session *session;
    int running;
};

static void commit_task(void *arg)
{
    struct group *group = arg;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(append(group->log));
        CHECK_OK(dex_log_wait_co(group->log, group->session, positions[appended]));
    }
    group->running--;
}

static void group_co(struct pool_session *session, struct pool_session *other)
{
    struct group group = {.log = create_co(session, LARGE_BYTES), .session = session};

    uint64_t lists = lists_of(session), start_ns = rt_now_ns();
    group.running = 1;
    CHECK_OK(rt_spawn(rt_loop_self(), commit_task, &group));
    while (group.running > 0)
        rt_sleep_co(RT_NS_PER_US);
    CHECK_EQ_U64(lists_of(session) - lists, ROUNDS); /* alone: one each */
    uint64_t alone_ns = rt_now_ns() - start_ns;

    lists = lists_of(session), start_ns = rt_now_ns();
    group.running = TASKS;
    for (int i = 0; i < TASKS; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), commit_task, &group));
    while (group.running > 0)
        rt_sleep_co(RT_NS_PER_US);
    lists = lists_of(session) - lists;
    printf("group commit: %d waits by one task in %.1f us; %d by %d tasks: %" PRIu64
           " lists, %.1f us\n",
           ROUNDS, (double)alone_ns / 1000, TASKS * ROUNDS, TASKS, lists,
           (double)(rt_now_ns() - start_ns) / 1000);
    CHECK(lists <= ROUNDS * 3 / 2); /* those who can run are waited for */
    check_replay_co(other, dex_log_address(group.log), 0, appended);
    CHECK_OK(dex_log_destroy_co(group.log, session, false));
}

/* ---- a memory node out of reach -------------------------------------------------------------- */

struct cut {
    uint16_t node;
    uint64_t duration_ns;
};

static void heal_task(void *arg)
{
    struct cut *cut = arg;
    rt_sleep_co(cut->duration_ns);
    fabric_sim_heal(world.net, 0x8000, cut->node);
}

static void waits_task(void *arg)
{
    struct group *group = arg;
    uint64_t end = positions[appended];
    CHECK_STATUS(dex_log_wait_co(group->log, group->session, end), PANDO_UNKNOWN);
    group->running--;
}

/* Node 0 has the heartbeats: the log on node 1 can be cut off from a member that lives. */
static struct dex_log *create_on_node_1_co(struct pool_session *session)
{
    struct dex_log *log = create_co(session, BYTES);
    if (fabric_address_node(dex_log_address(log)) == 1)
        return log;
    CHECK_OK(dex_log_destroy_co(log, session, false));
    log = create_co(session, BYTES);
    CHECK(fabric_address_node(dex_log_address(log)) == 1);
    return log;
}

static void unreachable_co(struct pool_session *session, struct pool_session *other)
{
    struct dex_log *log = create_on_node_1_co(session);
    struct group group = {.log = log, .session = session, .running = 8};
    struct cut cut = {.node = 1, .duration_ns = 3 * LEASE_NS};

    CHECK_OK(append(log));
    fabric_sim_cut(world.net, 0x8000, 1);
    CHECK_OK(rt_spawn(rt_loop_self(), heal_task, &cut));
    uint64_t start_ns = rt_now_ns();
    CHECK_OK(dex_log_wait_co(log, session, positions[appended]));
    CHECK(rt_now_ns() - start_ns >= cut.duration_ns);
    check_replay_co(other, dex_log_address(log), 0, appended);

    /* For ever: it gives itself up, in bounded time, and all who wait hear of it. */
    uint64_t durable = appended;
    for (int i = 0; i < 5; i++)
        CHECK_OK(append(log));
    fabric_sim_cut(world.net, 0x8000, 1);
    start_ns = rt_now_ns();
    for (int i = 0; i < group.running; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), waits_task, &group));
    while (group.running > 0)
        rt_sleep_co(LEASE_NS);
    uint64_t took_ns = rt_now_ns() - start_ns; /* connecting again takes a while by itself */
    CHECK(took_ns >= 10 * LEASE_NS && took_ns < 10 * LEASE_NS + 100 * RT_NS_PER_MS);
    CHECK(pool_fenced(pool_session_pool(session)));
    CHECK_OK(dex_log_wait_co(log, session, positions[durable])); /* that was, and is */
    CHECK_OK(append(log));
    CHECK_STATUS(dex_log_wait_co(log, session, positions[appended]), PANDO_FENCED); /* never sent */
    CHECK_STATUS(dex_log_truncate_co(log, session, positions[1]), PANDO_UNKNOWN);
    fabric_sim_heal(world.net, 0x8000, 1);
    fabric_address address = dex_log_address(log);
    while (pool_recoveries(pool_session_pool(other)) == 0)
        rt_sleep_co(LEASE_NS);
    replayed_next = 0;
    CHECK_OK(dex_log_replay_co(other, TABLE, address, replay_one, NULL));
    CHECK(replayed_next >= durable && replayed_next < appended);
    CHECK_OK(dex_log_destroy_co(log, session, true));
    CHECK_OK(dex_log_free_co(other, TABLE, address));
}

/* ---- all of it ------------------------------------------------------------------------------- */

typedef void (*case_fn)(struct pool_session *session, struct pool_session *other);
static case_fn current;

static void case_task(void *arg)
{
    struct pool_session *session, *other_session;
    struct pool *pool = pool_world_join_co(&world, arg, &session);
    struct pool *other = pool_world_join_co(&world, world.clients[1], &other_session);
    current(session, other_session);
    pool_world_leave_co(other, other_session);
    pool_world_leave_co(pool, session);
    done++;
}

int main(void)
{
    case_fn cases[] = {laps_co, large_co,   limits_co, stale_co,      freed_once_co,
                       torn_co, hostile_co, group_co,  unreachable_co};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fabric_sim_options options = {.seed = 5 + i};
        world_build(&world, &options);
        current = cases[i];
        done = 0;
        pool_world_spawn(&world, 0, case_task);
        CHECK(pool_world_ends(&world, 60 * RT_NS_PER_S));
        CHECK(sim_live_tasks(fabric_sim_world(world.net)) == 0 && done == 1);
        pool_world_destroy(&world);
    }
    return 0;
}
