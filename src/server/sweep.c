/*
 * sweep.c - what has expired is gone for every command at once; here its memory is given back.
 *
 * A slow walk over all databases, again and again: some keys, a pause. After one that gave memory
 * back the next follows soon: more has expired behind it. When a whole walk met nothing that will
 * ever expire, and nobody here has set an expiry since, the next one comes much later. Several servers on one pool do the same work twice, which does no harm.
 */
#include <stdlib.h>

#include "server/cursor.h"
#include "server/long.h"
#include "server/parallel.h"
#include "server/walk.h"

enum { SWEEP_KEYS = 1024, DATABASES_ALL = SERVER_DATABASES };

static const uint64_t STEP_PAUSE_NS = 40 * RT_NS_PER_MS;
static const uint64_t BUSY_PAUSE_NS = RT_NS_PER_MS;
static const uint64_t WALK_PAUSE_NS = RT_NS_PER_S;
static const uint64_t QUIET_PAUSE_NS = 60 * RT_NS_PER_S;

static struct store_change remove_expired(void *context, const struct slice *old)
{
    bool *removed = context;
    struct value value;
    *removed = old != NULL && value_read(*old, &value) && value_expired(&value);
    return *removed ? edit_remove() : edit_keep();
}

/* Sleeps, less if the server stops. */
static void pause_co(struct server_thread *thread, uint64_t duration_ns, bool wakes)
{
    uint64_t until_ns = rt_now_ns() + duration_ns;
    while (!server_stopping(thread->server) && rt_now_ns() < until_ns) {
        uint64_t left_ns = until_ns - rt_now_ns();
        (void)rt_park_co(rt_now_ns() + (left_ns < RT_NS_PER_S ? left_ns : RT_NS_PER_S));
        if (wakes && atomic_load_explicit(&thread->server->expiry_written, memory_order_relaxed))
            return;
    }
}

/* The keys that one step found expired. */
struct sweep {
    struct server_thread *thread;
    const struct database *database;
    const struct walk *walk;
    size_t removed;
};

static bool remove_one_co(void *context, size_t index)
{
    struct sweep *sweep = context;
    struct slice key = sweep->walk->entries[index].key;
    struct store_table *table = sweep->database->tables[key.size > KEYSPACE_SHORT_MAX];
    bool removed = false;
    enum pando_status status = store_modify_co(table, key, STORE_SHORT, remove_expired, &removed);
    if (status == PANDO_RANGE)
        status = long_remove_co(table, key, true, &removed);
    if (status == PANDO_OK && removed) {
        stats_add(&sweep->thread->stats.expired, 1);
        sweep->removed++;
    }
    return status == PANDO_OK || status == PANDO_NOT_FOUND;
}

/* What a walk met. */
struct swept {
    size_t expiring, removed;
};

static void sweep_database_co(struct server_thread *thread, const struct database *database,
                              struct swept *swept)
{
    struct walk walk;
    if (!walk_begin(&walk, database, NULL))
        return;
    walk.which = WALK_EXPIRED;
    while (!walk.over && !server_stopping(thread->server)) {
        if (walk_step_co(&walk, SWEEP_KEYS) != PANDO_OK)
            break;
        struct sweep sweep = {.thread = thread, .database = database, .walk = &walk};
        parallel_co(thread, walk.count, remove_one_co, &sweep);
        /* While much has expired, memory is to come back as fast as it was used. */
        pause_co(thread, sweep.removed > 0 ? BUSY_PAUSE_NS : STEP_PAUSE_NS, false);
        swept->removed += sweep.removed;
    }
    swept->expiring += walk.expiring;
    walk_end(&walk);
}

static void sweep_task(void *arg)
{
    struct server_thread *thread = arg;
    struct server *server = thread->server;

    thread->sweep = rt_task_self();
    while (!server_stopping(server)) {
        struct swept swept = {0};
        atomic_store_explicit(&server->expiry_written, false, memory_order_relaxed);
        for (unsigned i = 0; i < DATABASES_ALL && !server_stopping(server); i++) {
            if (keyspace_find_co(thread, i) == PANDO_OK)
                sweep_database_co(thread, &thread->databases[i], &swept);
        }
        cursors_sweep_co(thread);
        pause_co(thread, swept.removed > 0 ? STEP_PAUSE_NS : WALK_PAUSE_NS, false);
        if (swept.expiring == 0)
            pause_co(thread, QUIET_PAUSE_NS, true);
    }
    thread->sweep = NULL;
    rt_unpark(thread->task);
}

void sweep_start(struct server_thread *thread)
{
    enum pando_status status = rt_spawn(thread->loop, sweep_task, thread);
    (void)status; /* without it memory of expired values is not given back */
}

void sweep_stop_co(struct server_thread *thread)
{
    while (thread->sweep != NULL) {
        rt_unpark(thread->sweep);
        (void)rt_park_co(rt_now_ns() + RT_NS_PER_S);
    }
}
