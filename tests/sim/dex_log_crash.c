/*
 * The redo log attacked: tasks on two threads of an owner append, wait and truncate, and the
 * owner is killed, paused or cut off at some operation, on a fabric that tears and delays.
 * Another member then replays. What was acknowledged is there, in order; what is there was
 * appended, and there.
 *
 *   test_sim_dex_log_crash [FIRST LAST] [--trace]   seeds; a failing one is printed
 */
#include "dex_log_world.h"
#include "pool/checked_word.h"
#include "pool/pool_int.h"

enum {
    TASKS = 4,
    ROUNDS = 60,
    RECORDS_MAX = 2 * THREADS * TASKS * ROUNDS,
    BYTES = 8 * 1024,
    OPERATIONS = 150
};

struct known {
    uint64_t lsn; /* 0: not appended */
    bool acknowledged;
};

struct run {
    uint64_t seed;
    struct pool_world world;
    struct pool *pool; /* the owner's */
    struct fabric_identity owner;
    struct dex_log *log;
    fabric_address address; /* 0: no log yet */
    struct known known[RECORDS_MAX];
    uint64_t numbers; /* given away; not in the order of the positions */
    uint64_t truncate_asked, truncate_done;
    int threads_running;
    bool owner_ended;
    uint64_t acknowledged, replayed, refused;
    const char *violation;
};

static struct run run;

static void violate(const char *what)
{
    if (run.violation == NULL)
        run.violation = what;
}

static bool owner_dead(void)
{
    return fabric_sim_dead(run.world.clients[0]);
}

/* ---- the owner ------------------------------------------------------------------------------- */

/* Makes room, but keeps a good part of what there is. */
static enum pando_status truncate_co(struct pool_session *session)
{
    uint64_t target = dex_log_begin(run.log) + dex_log_capacity(run.log) / 2;
    uint64_t lsn = dex_log_end(run.log);
    for (uint64_t i = 0; i < run.numbers; i++) {
        if (run.known[i].lsn < lsn && run.known[i].lsn >= target)
            lsn = run.known[i].lsn;
    }
    if (lsn > run.truncate_asked && !owner_dead())
        run.truncate_asked = lsn;
    enum pando_status status = dex_log_truncate_co(run.log, session, lsn);
    if (status == PANDO_OK && !owner_dead() && lsn > run.truncate_done)
        run.truncate_done = lsn;
    return status;
}

static enum pando_status change_co(struct pool_session *session)
{
    uint8_t bytes[KNOWN_BYTES];
    uint64_t lsn, end, number = run.numbers++;
    struct dex_log_record record = known_record(number, bytes);
    enum pando_status status = dex_log_append(run.log, &record, &lsn, &end);

    CHECK(number < RECORDS_MAX);
    while (status == PANDO_FULL) {
        status = truncate_co(session);
        if (status == PANDO_OK)
            status = dex_log_append(run.log, &record, &lsn, &end);
    }
    if (status != PANDO_OK)
        return status;
    run.known[number].lsn = lsn;
    status = dex_log_wait_co(run.log, session, end);
    if (status == PANDO_OK && !dex_log_durable(run.log, end))
        violate("a wait ended before its record was durable");
    if (status == PANDO_OK && !owner_dead()) {
        run.known[number].acknowledged = true;
        run.acknowledged++;
    }
    if (status != PANDO_OK) {
        run.refused++;
        if (!pool_fenced(run.pool))
            violate("a living member was refused");
        if (status != PANDO_FENCED && status != PANDO_UNKNOWN)
            violate("a wait ended with another status");
    }
    return status;
}

struct thread {
    struct pool_session *session;
    int tasks_running;
};

static void change_task(void *arg)
{
    struct thread *thread = arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (change_co(thread->session) != PANDO_OK)
            break;
        if (rt_random() % 4 == 0)
            rt_sleep_co(rt_random() % (3 * RT_NS_PER_US));
    }
    thread->tasks_running--;
}

static void thread_task(void *arg)
{
    struct thread thread = {.tasks_running = TASKS};
    (void)arg;
    if (pool_session_open_co(run.pool, &thread.session) == PANDO_OK) {
        for (int i = 0; i < TASKS; i++)
            CHECK_OK(rt_spawn(rt_loop_self(), change_task, &thread));
        while (thread.tasks_running > 0)
            rt_sleep_co(20 * RT_NS_PER_US);
        pool_session_close_co(thread.session);
    }
    run.threads_running--;
}

static void owner_task(void *arg)
{
    struct fabric *fabric = arg;
    struct pool_session *session;
    struct pool_options options = {.memory_nodes = MEMORIES, .name = "owner", .lease_ns = LEASE_NS};
    char error[256];

    if (pool_join_co(fabric, &options, &run.pool, error, sizeof(error)) != PANDO_OK)
        goto end;
    run.owner = pool_identity(run.pool);
    if (pool_session_open_co(run.pool, &session) != PANDO_OK)
        goto end_pool;
    if (dex_log_create_co(session, TABLE, BYTES, &run.log) == PANDO_OK) {
        bool kept = dex_log_retain_co(run.log, session, true) == PANDO_OK;
        if (kept && !owner_dead())
            run.address = dex_log_address(run.log);
        run.threads_running = kept ? THREADS : 0;
        for (unsigned i = 0; kept && i < THREADS; i++)
            CHECK_OK(rt_spawn(fabric_sim_loop(fabric, i), thread_task, NULL));
        while (run.threads_running > 0)
            rt_sleep_co(20 * RT_NS_PER_US);
        CHECK_OK(dex_log_destroy_co(run.log, session, true));
    }
    pool_session_close_co(session);
end_pool:
    pool_leave_co(run.pool);
end:
    run.owner_ended = true;
}

/* ---- who comes after ------------------------------------------------------------------------- */

struct replay {
    uint64_t next; /* position */
    uint64_t count, acknowledged;
};

static enum pando_status replay_one(void *context, const struct dex_log_record *record)
{
    struct replay *replay = context;
    uint64_t number = 0;

    if (record->key.size >= sizeof(number))
        memcpy(&number, record->key.data, sizeof(number));
    if (number >= run.numbers || !record_is(record, number))
        violate("a record was never appended");
    else if (run.known[number].lsn != record->lsn)
        violate("a record is in another place");
    else if (replay->next != 0 && record->lsn != replay->next)
        violate("records are not in order");
    else if (replay->next == 0 &&
             (record->lsn > run.truncate_asked || record->lsn < run.truncate_done))
        violate("it begins elsewhere");
    else
        replay->acknowledged += run.known[number].acknowledged;
    replay->next = record_end(record);
    replay->count++;
    return run.violation == NULL ? PANDO_OK : PANDO_CORRUPT;
}

static uint64_t acknowledged_from(uint64_t lsn)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < run.numbers; i++)
        count += run.known[i].acknowledged && run.known[i].lsn >= lsn;
    return count;
}

static struct replay replay_co(struct pool_session *session)
{
    struct replay replay = {0};
    uint64_t begin;
    struct fabric_op read =
        fabric_read(fabric_address_offset(run.address) + DEX_LOG_BEGIN, &begin, sizeof(begin));
    CHECK_OK(pool_submit_co(session, fabric_address_node(run.address), &read, 1));
    CHECK(checked_word_unpack(begin, &begin));
    enum pando_status status = dex_log_replay_co(session, TABLE, run.address, replay_one, &replay);
    if (run.violation == NULL && status != PANDO_OK)
        violate(pando_status_text(status));
    if (replay.acknowledged != acknowledged_from(begin))
        violate("an acknowledged record is lost");
    return replay;
}

static bool owner_is_member_co(struct pool_session *session)
{
    static struct pool_member members[POOL_MEMBERS];
    unsigned count = 0;
    CHECK_OK(pool_members_co(session, members, POOL_MEMBERS, &count));
    return count > 1;
}

static void successor_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&run.world, arg, &session);

    while (run.owner.member == 0 && !run.owner_ended && !owner_dead())
        rt_sleep_co(10 * RT_NS_PER_US);
    for (int i = 0; owner_is_member_co(session); i++) {
        if (i == 400) {
            violate("a dead member was never recovered");
            break;
        }
        rt_sleep_co(LEASE_NS / 2);
    }
    if (run.address != 0 && run.violation == NULL) {
        struct replay at_once = replay_co(session);
        for (int i = 0; !run.owner_ended && i < 1000; i++)
            rt_sleep_co(LEASE_NS);
        /* Whatever of it goes on has no effect, and is not told otherwise. */
        struct replay later = replay_co(session);
        if (later.count != at_once.count || later.next != at_once.next)
            violate("a dead member's log has changed");
        run.replayed = later.count;
        CHECK_OK(dex_log_free_co(session, TABLE, run.address));
    }
    pool_world_leave_co(pool, session);
}

/* ---- one seed -------------------------------------------------------------------------------- */

struct cutter {
    struct sim_event event;
    bool heals;
    uint16_t node;
    uint64_t duration_ns;
};

static void cutter_fire(struct rt_timer *timer)
{
    struct sim_event *event = container_of(timer, struct sim_event, timer);
    struct cutter *cutter = container_of(event, struct cutter, event);
    if (cutter->heals) {
        fabric_sim_heal(run.world.net, 0x8000, cutter->node);
        return;
    }
    fabric_sim_cut(run.world.net, 0x8000, cutter->node);
    cutter->heals = true;
    sim_event_at(event, sim_now_ns(fabric_sim_world(run.world.net)) + cutter->duration_ns);
}

static struct cutter cutter;

static void plan_faults(void)
{
    struct fabric *owner = run.world.clients[0];
    struct prng prng;
    prng_seed(&prng, run.seed * 77);
    uint64_t at = 1 + run.seed % OPERATIONS; /* one after the other */

    sim_node_set_drift(fabric_sim_machine(owner), (int)prng_below(&prng, 4000) - 2000);
    sim_event_init(&cutter.event, fabric_sim_world(run.world.net), cutter_fire);
    cutter.heals = false;
    cutter.node = (uint16_t)prng_below(&prng, MEMORIES);
    cutter.duration_ns = prng_below(&prng, LEASE_NS / 2);
    switch (prng_below(&prng, 8)) {
    case 0:
        fabric_sim_pause_at(owner, at, LEASE_NS + prng_below(&prng, 5 * LEASE_NS));
        break;
    case 1:
        fabric_sim_pause_at(owner, at, prng_below(&prng, LEASE_NS));
        break;
    case 2: /* it lives, and is told nothing wrong */
        sim_event_at(&cutter.event, 100 * RT_NS_PER_US + prng_below(&prng, RT_NS_PER_MS));
        break;
    case 3: /* cut off and killed */
        sim_event_at(&cutter.event, 100 * RT_NS_PER_US + prng_below(&prng, RT_NS_PER_MS));
        fabric_sim_kill_at(owner, at);
        break;
    default:
        fabric_sim_kill_at(owner, at);
        break;
    }
}

static void print_trace(void *context, uint64_t now_ns, const char *what, uint64_t a, uint64_t b,
                        uint64_t c)
{
    (void)context;
    printf("%10.3f us %-8s %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", (double)now_ns / 1000, what, a,
           b, c);
}

static void run_seed(uint64_t seed, bool trace)
{
    static struct sim_nic_model model;
    model = *sim_nic_model("cx5");
    for (int i = 0; i < RT_COST_COUNT; i++)
        model.costs[i] = 50;
    struct fabric_sim_options options = {
        .seed = seed,
        .model = &model,
        .chaos = {.tear = 0.3,
                  .spread = 0.3,
                  .spread_ns = 3000,
                  .delay = 0.05,
                  .delay_ns = 20000,
                  .late_cpu = 0.2,
                  .late_cpu_ns = 5000},
        .shuffle = true,
        .race_probability = 0.05,
    };
    run =
        (struct run){.seed = seed, .truncate_asked = DEX_LOG_FIRST, .truncate_done = DEX_LOG_FIRST};
    world_build(&run.world, &options);
    plan_faults();
    if (trace)
        sim_set_trace(fabric_sim_world(run.world.net), print_trace, NULL);
    for (int i = 0; i < CLIENTS; i++)
        pool_world_spawn(&run.world, (unsigned)i, i == 0 ? owner_task : successor_task);
    bool ended = pool_world_ends(&run.world, 20 * RT_NS_PER_S);
    if (!ended || sim_live_tasks(fabric_sim_world(run.world.net)) != 0)
        violate("it did not end");
    pool_world_destroy(&run.world);
}

static void run_seeds(uint64_t first, uint64_t last, bool trace)
{
    uint64_t acknowledged = 0, replayed = 0, refused = 0, truncated = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        run_seed(seed, trace);
        acknowledged += run.acknowledged;
        replayed += run.replayed;
        refused += run.refused;
        truncated += run.truncate_done > DEX_LOG_FIRST;
        if (run.violation != NULL)
            CHECK_FAIL("seed %" PRIu64 ": %s; replay: test_sim_dex_log_crash %" PRIu64 " %" PRIu64
                       " --trace",
                       seed, run.violation, seed, seed);
    }
    printf("seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " acknowledged, %" PRIu64
           " refused, %" PRIu64 " replayed, %" PRIu64 " logs truncated, nothing wrong\n",
           first, last, acknowledged, refused, replayed, truncated);
}

int main(int argc, char **argv)
{
    if (argc >= 3) {
        run_seeds(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), argc > 3);
        return 0;
    }
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    run_seeds(1, 60, false); /* a sanitizer is watching, and takes its time */
#else
    run_seeds(1, 600, false);
#endif
    return 0;
}
