/*
 * client.c - a simulated client process: it joins, opens the table, and its threads' tasks
 * work until nothing is left to do, or it dies. Fenced, it joins again. The tasks of a dead one go
 * on without any effect until they notice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "check/check_int.h"
#include "check/faults.h"

enum { STORM_OPS = 10, SERVED_PUTS = 2 };

static const uint64_t THINK_NS = 40 * RT_NS_PER_US;
static const uint64_t STORM_NS = CHECK_LEASE_NS / 4;
static const uint64_t INTERMISSION_NS = 2500 * RT_NS_PER_MS; /* longer than freed memory waits */

struct client {
    struct cluster *cluster;
    struct check_slot *slot;
    struct fabric *fabric; /* of this life: the slot may get another */
    struct pool *pool;
    struct engine_table *table;
    struct rt_countdown threads;
    bool rested;
    uint64_t rest_until_ns;
    uint64_t closed_ns; /* when it last had the table open, or its operations were over */
    struct check_doing doing;
    char error[256]; /* why it has not got the table open */
};

struct thread {
    struct client *client;
    unsigned number;
    struct engine *engine;
    struct rt_countdown tasks;
};

struct worker {
    struct thread *thread;
    unsigned number;
};

static bool can_go_on(const struct client *client)
{
    return (client->slot->ops_left > 0 || !client->slot->served) &&
           !fabric_sim_dead(client->fabric) && !client->cluster->result->violated;
}

/* Everybody works at the same time, and then for a while nobody: a run has to last several leases,
 * and operations have to overlap. */
static void think_co(struct client *client)
{
    if (rt_random() % STORM_OPS == 0)
        rt_sleep_co(STORM_NS - sim_now_ns(client->cluster->sim) % STORM_NS);
    if (rt_random() % 2 == 0)
        rt_sleep_co(rt_random() % THINK_NS);
    const struct check_options *options = client->cluster->options;
    if (client->cluster->intermission && !client->rested &&
        client->slot->ops_left < options->ops / options->nodes / 2) {
        client->rested = true;
        client->rest_until_ns = rt_now_ns() + INTERMISSION_NS;
    }
    if (rt_now_ns() < client->rest_until_ns)
        rt_sleep_co(client->rest_until_ns - rt_now_ns());
}

/* ---- after the faults ------------------------------------------------------------------------ */

/* Tries again until it is served, or somebody else says why not. */
static bool try_again_co(struct check_actor *actor, enum pando_status status, uint64_t end_ns,
                         const char *what, unsigned key)
{
    struct cluster *cluster = actor->cluster;
    struct pool *pool = pool_session_pool(actor->engine->session);

    if (status == PANDO_OK || status == PANDO_NOT_FOUND || fabric_sim_dead(actor->fabric) ||
        pool_fenced(pool) || cluster->result->violated)
        return false;
    /* UNKNOWN: whoever takes over might do a change of a damaged leaf that a memory node refused. */
    if (check_lost(cluster) ||
        ((status == PANDO_CORRUPT || status == PANDO_UNKNOWN) && check_damaged(cluster)))
        return false;
    if (status == PANDO_FULL && (cluster->faults & CHECK_FAULTS_FULL) != 0)
        return false;
    if (sim_now_ns(cluster->sim) >= end_ns) {
        check_violate(cluster,
                      "client %" PRIu32 ": a %s of key %u is not served %.1f s after the last "
                      "fault: %s",
                      actor->number, what, key,
                      (double)(sim_now_ns(cluster->sim) - cluster->healed_ns) / 1e9,
                      pando_status_text(status));
        return false;
    }
    rt_sleep_co(CHECK_LEASE_NS / 4);
    return true;
}

static void served_key_co(struct check_actor *actor, unsigned key, bool put, uint64_t end_ns)
{
    enum pando_status status;
    do
        status = put ? check_put_co(actor, key, ENGINE_UPSERT) : check_get_co(actor, key);
    while (try_again_co(actor, status, end_ns, put ? "put" : "get", key));
}

/* No fault is left: this client, too, is served everything that there is. Clients share the keys;
 * each scans all of them. */
static void served_co(struct client *client, struct check_actor *actor)
{
    struct cluster *cluster = client->cluster;
    unsigned nodes = cluster->options->nodes, number = client->slot->number;
    enum pando_status status;

    while (!cluster->healed && can_go_on(client) && !pool_fenced(client->pool))
        rt_sleep_co(CHECK_LEASE_NS / 4);
    uint64_t end_ns = sim_now_ns(cluster->sim) + cluster->served_within_ns;
    /* Each operation of a dead client takes all its patience: with many keys it would never end. */
    for (unsigned key = number; key < cluster->key_count && !fabric_sim_dead(client->fabric);
         key += nodes)
        served_key_co(actor, key, false, end_ns);
    for (unsigned i = 0; i < SERVED_PUTS && !fabric_sim_dead(client->fabric); i++)
        served_key_co(actor, (unsigned)(rt_random() % cluster->key_count), true, end_ns);
    do
        status = check_scan_all_co(actor, number % 2 == 1);
    while (try_again_co(actor, status, end_ns, "scan", 0));
    if (fabric_sim_dead(client->fabric) || pool_fenced(client->pool) || cluster->result->violated)
        return;
    client->slot->served = true;
    cluster->result->served++;
}

/* ---- at work --------------------------------------------------------------------------------- */

static void worker_task(void *arg)
{
    struct worker *worker = arg;
    struct thread *thread = worker->thread;
    struct client *client = thread->client;
    struct check_actor actor = {
        .cluster = client->cluster,
        .number = client->slot->number * 100 + thread->number * 10 + worker->number,
        .fabric = client->fabric,
        .engine = thread->engine,
    };

    check_doing_init(client->cluster, &actor.doing, actor.number, actor.fabric);
    while (can_go_on(client) && client->slot->ops_left > 0 && !pool_fenced(client->pool)) {
        client->slot->ops_left--;
        if (!check_operate_co(&actor))
            break;
        think_co(client);
    }
    if (thread->number == 0 && worker->number == 0 && can_go_on(client) &&
        !pool_fenced(client->pool))
        served_co(client, &actor);
    check_doing_fini(&actor.doing);
    rt_countdown_done(&thread->tasks);
}

static void run_workers_co(struct thread *thread)
{
    struct worker workers[CHECK_TASKS_MAX];
    rt_countdown_init(&thread->tasks, thread->client->cluster->options->tasks);
    for (unsigned i = 0; i < thread->client->cluster->options->tasks; i++) {
        workers[i] = (struct worker){.thread = thread, .number = i};
        enum pando_status status = rt_spawn(rt_loop_self(), worker_task, &workers[i]);
        pando_assert(status == PANDO_OK);
    }
    rt_countdown_wait_co(&thread->tasks);
}

static void thread_task(void *arg)
{
    struct thread *thread = arg;
    struct client *client = thread->client;
    struct pool_session *session;

    if (pool_session_open_co(client->pool, &session) == PANDO_OK) {
        if (engine_attach_co(client->table, session, &thread->engine) == PANDO_OK) {
            run_workers_co(thread);
            engine_detach_co(thread->engine);
        }
        pool_session_close_co(session);
    }
    rt_countdown_done(&client->threads);
}

static void run_threads_co(struct client *client)
{
    struct thread threads[CHECK_THREADS_MAX];
    rt_countdown_init(&client->threads, client->cluster->options->threads);
    for (unsigned i = 0; i < client->cluster->options->threads; i++) {
        threads[i] = (struct thread){.client = client, .number = i};
        enum pando_status status =
            rt_spawn(fabric_sim_loop(client->fabric, i), thread_task, &threads[i]);
        pando_assert(status == PANDO_OK);
    }
    rt_countdown_wait_co(&client->threads);
}

static void add_stats(struct client *client)
{
    struct check_result *result = client->cluster->result;
    struct engine_stats stats;
    engine_stats(client->table, &stats);
    result->splits += stats.splits;
    result->merges += stats.merges;
    result->repairs += stats.repairs;
    result->moves += stats.moves;
    result->forwarded += stats.forwarded;
    result->recoveries += pool_recoveries(client->pool);
}

/* Nobody gets at the table any more: an error is the right answer to all that is left. */
static void give_up(struct client *client)
{
    client->slot->served = true;
    client->slot->ops_left = 0;
}

static void as_member_co(struct client *client)
{
    struct cluster *cluster = client->cluster;
    struct engine_config config = {.without = cluster->options->without,
                                   .with = cluster->options->with,
                                   .cache_bytes = cluster->cache_bytes};
    struct pool_session *session;
    char *error = client->error;

    check_doing_begin(cluster, &client->doing, "open", 0);
    enum pando_status status = pool_session_open_co(client->pool, &session);
    if (status != PANDO_OK) {
        snprintf(error, sizeof(client->error), "no session: %s", pando_status_text(status));
        return;
    }
    error[0] = '\0';
    status = engine_open_co(cluster->options->engine, session, CHECK_TABLE, &config, &client->table,
                            error, sizeof(client->error));
    check_doing_end(&client->doing);
    if (error[0] == '\0')
        snprintf(error, sizeof(client->error), "%s", pando_status_text(status));
    if (status == PANDO_OK) {
        run_threads_co(client);
        add_stats(client);
        check_doing_begin(cluster, &client->doing, "close", 0);
        engine_close_co(client->table, session);
        client->closed_ns = sim_now_ns(cluster->sim);
    } else if (check_lost(cluster) || (status == PANDO_CORRUPT && check_damaged(cluster))) {
        cluster->result->corrupt += status == PANDO_CORRUPT;
        give_up(client);
    } else if (status == PANDO_INVALID || status == PANDO_NOT_FOUND || status == PANDO_CORRUPT) {
        if (!fabric_sim_dead(client->fabric) && !pool_fenced(client->pool))
            check_violate(cluster, "client %u cannot open the table: %s", client->slot->number,
                          error);
    }
    pool_session_close_co(session);
}

/* A client that is alive gets to its table, once no fault is left. */
static void check_opens(const struct client *client)
{
    struct cluster *cluster = client->cluster;
    uint64_t from_ns =
        client->closed_ns > cluster->healed_ns ? client->closed_ns : cluster->healed_ns;
    if (!cluster->healed || fabric_sim_dead(client->fabric) ||
        sim_now_ns(cluster->sim) < from_ns + cluster->served_within_ns)
        return;
    check_violate(cluster, "client %u cannot use the table %.1f s after the last fault: %s",
                  client->slot->number, (double)cluster->served_within_ns / 1e9, client->error);
}

static void client_task(void *arg)
{
    struct client *client = arg;
    struct cluster *cluster = client->cluster;
    struct pool_options options = {.memory_nodes = (uint16_t)cluster->options->memory,
                                   .name = "client",
                                   .lease_ns = cluster->lease_ns,
                                   .no_recovery = cluster->options->no_recovery};

    check_doing_init(cluster, &client->doing, client->slot->number, client->fabric);
    while (can_go_on(client)) {
        check_trace(cluster, "client %u joins", client->slot->number);
        check_doing_begin(cluster, &client->doing, "join", 0);
        if (pool_join_co(client->fabric, &options, &client->pool, client->error,
                         sizeof(client->error)) == PANDO_OK) {
            check_faults_joined(cluster, client->slot, client->pool);
            as_member_co(client);
            check_doing_begin(cluster, &client->doing, "leave", 0);
            pool_leave_co(client->pool);
        } else if (check_lost(cluster)) {
            give_up(client);
        }
        check_doing_end(&client->doing);
        check_trace(cluster, "client %u has left", client->slot->number);
        rt_sleep_co(rt_random() % CHECK_LEASE_NS);
        check_opens(client);
    }
    check_doing_fini(&client->doing);
    cluster->running--;
    free(client);
}

void check_client_start(struct cluster *cluster, struct check_slot *slot)
{
    struct client *client = calloc(1, sizeof(*client));
    pando_assert(client != NULL);
    *client = (struct client){.cluster = cluster, .slot = slot, .fabric = slot->fabric};
    client->closed_ns = sim_now_ns(cluster->sim);
    cluster->running++;
    enum pando_status status = rt_spawn(fabric_sim_loop(slot->fabric, 0), client_task, client);
    pando_assert(status == PANDO_OK);
}
