/*
 * sweep.c - what has expired is gone for every command at once; here its memory is given back.
 *
 * A slow walk over all databases, again and again: a few hundred keys, a pause. When a whole walk
 * met nothing that will ever expire, and nobody here has set an expiry since, the next one comes much
 * later. Several servers on one pool do the same work twice, which does no harm.
 */
#include <stdlib.h>

#include "server/cursor.h"
#include "server/walk.h"

enum { SWEEP_KEYS = 256, DATABASES_ALL = SERVER_DATABASES };

static const uint64_t STEP_PAUSE_NS = 10 * RT_NS_PER_MS;
static const uint64_t WALK_PAUSE_NS = RT_NS_PER_S;
static const uint64_t QUIET_PAUSE_NS = 60 * RT_NS_PER_S;

static struct engine_change remove_expired(void *context, const struct slice *old)
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

static size_t sweep_database_co(struct server_thread *thread, const struct database *database)
{
    struct walk walk;
    size_t expiring = 0;
    if (!walk_begin(&walk, database, NULL))
        return 0;
    walk.only_expired = true;
    while (!walk.over && !server_stopping(thread->server)) {
        if (walk_step_co(&walk, SWEEP_KEYS) != PANDO_OK)
            break;
        for (size_t i = 0; i < walk.count; i++) {
            struct slice key = walk.entries[i].key;
            bool removed = false;
            if (store_modify_co(database->tables[key.size > KEYSPACE_SHORT_MAX], key, false,
                                remove_expired, &removed) == PANDO_OK &&
                removed)
                stats_add(&thread->stats.expired, 1);
        }
        pause_co(thread, STEP_PAUSE_NS, false);
    }
    expiring = walk.expiring;
    walk_end(&walk);
    return expiring;
}

static void sweep_task(void *arg)
{
    struct server_thread *thread = arg;
    struct server *server = thread->server;

    thread->sweep = rt_task_self();
    while (!server_stopping(server)) {
        size_t expiring = 0;
        atomic_store_explicit(&server->expiry_written, false, memory_order_relaxed);
        for (unsigned i = 0; i < DATABASES_ALL && !server_stopping(server); i++) {
            if (keyspace_find_co(thread, i) == PANDO_OK)
                expiring += sweep_database_co(thread, &thread->databases[i]);
        }
        cursors_sweep_co(thread);
        pause_co(thread, WALK_PAUSE_NS, false);
        if (expiring == 0)
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
