/*
 * keeper.c - the store's background task: joins again after the process was declared dead, says which
 * dropped tables this process no longer uses, frees those that it is to free, and does what engines
 * need to be done now and then.
 *
 * It is the only one that joins and leaves. README.md has the protocol; pool/drop.c the part of it that
 * lies in the pool.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "store/engines.h"
#include "store/store_int.h"

enum {
    PASSES_PER_LEASE = 4,
    DIRECTORY_PASSES =
        16, /* looked at so rarely if nothing was heard: a dropper may have died early */
};

static const uint64_t SOON_NS = 5 * RT_NS_PER_MS; /* while something is waited for */
static const uint64_t JOIN_PAUSE_NS = 100 * RT_NS_PER_MS;
static const uint64_t JOIN_SAY_NS = 10 * RT_NS_PER_S;

void store_keeper_nudge(struct store *store)
{
    atomic_store(&store->nudged, true);
    rt_waitq_wake_all(&store->wake);
}

static void pause_co(struct store *store, uint64_t duration_ns)
{
    uint64_t deadline_ns = rt_now_ns() + duration_ns;
    /* A nudge between the look and the wait would be missed: look again soon. */
    while (!store->closing && !atomic_exchange(&store->nudged, false) &&
           rt_now_ns() < deadline_ns) {
        uint64_t soon_ns = rt_now_ns() + 50 * RT_NS_PER_MS;
        (void)rt_waitq_wait_co(&store->wake, soon_ns < deadline_ns ? soon_ns : deadline_ns);
    }
}

/* ---- joining again --------------------------------------------------------------------------- */

/* Leaves former lives that no thread has a session of any more. */
static void bury_co(struct store *store)
{
    list_for_each_safe (link, &store->former) {
        struct store_life *life = container_of(link, struct store_life, link);
        rt_latch_lock(&store->latch);
        bool empty = life->threads == 0;
        rt_latch_unlock(&store->latch);
        if (!empty)
            continue;
        list_remove(&life->link);
        pool_leave_co(life->pool);
        free(life);
    }
}

static enum pando_status join_co(struct store *store, struct store_life *life, char *error,
                                 size_t error_bytes)
{
    enum pando_status status =
        pool_join_co(store->fabric, &store->pool_options, &life->pool, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    status = pool_session_open_co(life->pool, &store->session);
    if (status != PANDO_OK) {
        store->session = NULL;
        pool_leave_co(life->pool);
    }
    return status;
}

static void rejoin_co(struct store *store)
{
    char error[512] = "out of memory";
    struct store_life *life = calloc(1, sizeof(*life));
    enum pando_status status = PANDO_NO_MEMORY;

    while (store->finishing)
        rt_sleep_co(RT_NS_PER_MS);
    if (store->session != NULL)
        pool_session_close_co(store->session);
    store->session = NULL;
    if (life != NULL) {
        life->number = store->life->number + 1;
        store_lock_co(store);
        status = join_co(store, life, error, sizeof(error));
        if (status == PANDO_OK) {
            list_push_back(&store->former, &store->life->link);
            store->life = life;
            store->passes = 0; /* begins anew: it has said nothing yet */
            atomic_store(&store->life_number, life->number);
        }
        store_unlock(store);
    }
    if (status == PANDO_OK) {
        log_info("joined the pool again", log_u64("member", pool_identity(life->pool).member));
        store->join_said_ns = 0;
        rt_waitq_wake_all(&store->reborn);
        return;
    }
    free(life);
    uint64_t now_ns = rt_now_ns();
    if (store->join_said_ns == 0 || now_ns - store->join_said_ns > JOIN_SAY_NS) {
        log_warn("cannot join the pool again; will try", log_text("why", error));
        store->join_said_ns = now_ns;
    }
    /* A nudge does not shorten this: whoever waits for the next life nudges all the time. */
    while (!store->closing && rt_now_ns() < now_ns + JOIN_PAUSE_NS)
        rt_sleep_co(RT_NS_PER_MS);
}

/* ---- freeing --------------------------------------------------------------------------------- */

struct finish {
    struct store *store;
    unsigned slot;
    struct pool_entry entry;
};

/* Takes a table back by its blocks' tenures. */
static enum pando_status sweep_table_co(struct store *store, unsigned slot,
                                        const struct pool_entry *entry)
{
    enum pando_status status = pool_table_sweep_co(store->session, (uint16_t)entry->table);
    return status == PANDO_OK ? pool_table_remove_co(store->session, slot, entry->table) : status;
}

static enum pando_status sweep_damaged_co(struct store *store, unsigned slot,
                                          const struct pool_entry *entry)
{
    log_warn("a dropped table is damaged: its blocks are taken back one by one",
             log_text("table", entry->name));
    return sweep_table_co(store, slot, entry);
}

/* `settled`: no list of anybody's that is about the table is in doubt. */
static enum pando_status free_table_co(struct store *store, unsigned slot,
                                       const struct pool_entry *entry, bool settled)
{
    struct engine_table *table;
    char name[32], error[256] = "";
    const struct engine_ops *ops = store_engine(entry->engine);
    if (ops == NULL)
        return PANDO_UNSUPPORTED; /* somebody who has that engine will do it */
    uint16_t node;
    if (pool_table_lost(pool_session_pool(store->session), entry, &node))
        return sweep_damaged_co(store, slot, entry);
    uint64_t deaths = entry->deaths;
    if (settled && pool_deaths_co(store->session, &deaths) == PANDO_OK && deaths != entry->deaths)
        return sweep_table_co(store, slot, entry);
    snprintf(name, sizeof(name), "#%llu", (unsigned long long)entry->table);
    struct engine_config config = {.cache_bytes = 1 << 20, .kept = true};
    enum pando_status status =
        engine_open_co(ops, store->session, name, &config, &table, error, sizeof(error));
    if (status == PANDO_OK) {
        status = engine_drop_co(table, store->session);
        engine_close_co(table, store->session);
    }
    return status == PANDO_CORRUPT ? sweep_damaged_co(store, slot, entry) : status;
}

/* Steps 2 to 5 of drop.c. */
static enum pando_status finish_co(struct finish *finish)
{
    struct store *store = finish->store;
    uint64_t drops;
    bool all = false, settled = false;
    enum pando_status status =
        pool_table_take_over_co(store->session, finish->slot, finish->entry.state);
    if (status == PANDO_OK)
        status = pool_drops_add_co(store->session, &drops);
    store_keeper_nudge(store);
    while (status == PANDO_OK && !all) {
        status = pool_drops_seen_by_all_co(store->session, drops, &all, &settled);
        if (status == PANDO_OK && !all) {
            if (store->closing)
                return PANDO_TIMEOUT; /* whoever stays goes on with it */
            rt_sleep_co(SOON_NS);
        }
    }
    return status == PANDO_OK ? free_table_co(store, finish->slot, &finish->entry, settled)
                              : status;
}

static void finish_task(void *arg)
{
    struct finish *finish = arg;
    struct store *store = finish->store;
    enum pando_status status = finish_co(finish);
    if (status != PANDO_OK && status != PANDO_BUSY && status != PANDO_STALE && !store->closing)
        log_warn("a dropped table is not freed yet; will try again",
                 log_text("table", finish->entry.name), log_status("status", status));
    store->finishing = false;
    if (status == PANDO_OK)
        store_keeper_nudge(store); /* there may be more */
    free(finish);
}

/* One at a time. Those whose dropper lives are left to it. */
static void finish_start(struct store *store, unsigned slot, const struct pool_entry *entry)
{
    if (store->finishing || store->closing)
        return;
    struct finish *finish = malloc(sizeof(*finish));
    if (finish == NULL)
        return;
    *finish = (struct finish){.store = store, .slot = slot, .entry = *entry};
    store->finishing = true;
    store->finish_from = slot + 1;
    if (rt_spawn(rt_loop_self(), finish_task, finish) != PANDO_OK) {
        store->finishing = false;
        free(finish);
    }
}

/* ---- noticing -------------------------------------------------------------------------------- */

static bool entry_is(const struct pool_entry *entries, const struct shared_table *shared)
{
    for (unsigned slot = 0; slot < POOL_TABLES; slot++) {
        if (entries[slot].state == POOL_ENTRY_LIVE && entries[slot].table == shared->number)
            return true;
    }
    return false;
}

/* Marks this process's tables that are live no more. Under the store's lock: a table that is being
 * opened now is in the list already, or its opener will read the directory after us. */
static enum pando_status look_co(struct store *store, struct pool_entry *entries)
{
    store_lock_co(store);
    enum pando_status status = pool_directory_co(store->session, entries);
    if (status == PANDO_OK) {
        list_for_each (link, &store->tables) {
            struct shared_table *shared = container_of(link, struct shared_table, link);
            if (!entry_is(entries, shared))
                atomic_store(&shared->dropped, true);
        }
    }
    store_unlock(store);
    return status;
}

/* Whether no operation is under way on a dropped table. Partner of store_table_enter_co: it counts
 * itself in and then looks at `dropped`; here it is the other way round. */
static bool quiet(struct store *store, struct shared_table *shared)
{
    bool quiet = true;
    rt_latch_lock(&store->latch);
    list_for_each (at, &shared->attached)
        quiet &= atomic_load(&container_of(at, struct store_table, shared_link)->active) == 0;
    rt_latch_unlock(&store->latch);
    return quiet;
}

/* Lets go of dropped tables; AGAIN: some are in use. Under the store's lock: none is being closed. Those of
 * a former life cannot be written any more. */
static enum pando_status retire_dropped_co(struct store *store)
{
    enum pando_status status = PANDO_OK;
    store_lock_co(store);
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (!atomic_load(&shared->dropped) || shared->retired)
            continue;
        enum pando_status one = PANDO_AGAIN;
        if (quiet(store, shared))
            one = shared->life == store->life->number
                      ? engine_retire_co(shared->engine_table, store->session)
                      : PANDO_OK;
        shared->retired = one == PANDO_OK;
        if (one != PANDO_OK)
            status = one;
    }
    store_unlock(store);
    return status;
}

static enum pando_status keep_drops_co(struct store *store, struct pool_entry *entries)
{
    uint64_t drops;
    enum pando_status status = pool_drops_co(store->session, &drops);
    if (status != PANDO_OK)
        return status;
    bool first = store->passes++ == 0;
    if (first || drops != store->drops_looked || store->dropping ||
        store->passes % DIRECTORY_PASSES == 0) {
        status = look_co(store, entries);
        if (status != PANDO_OK)
            return status;
        store->seen_due |= first || drops != store->drops_looked;
        if (drops != store->drops_looked)
            store->retired_ns = 0;
        store->drops_looked = drops;
        store->dropping = false;
        /* In turn: one that cannot be freed is in nobody's way. */
        for (unsigned i = 0, from = store->finish_from; i < POOL_TABLES; i++) {
            unsigned slot = (from + i) % POOL_TABLES;
            if (!pool_entry_dropping(entries[slot].state))
                continue;
            store->dropping = true;
            finish_start(store, slot, &entries[slot]);
        }
    }
    if (!store->seen_due)
        return PANDO_OK;
    status = retire_dropped_co(store);
    if (status != PANDO_OK)
        return status;
    uint64_t now_ns = rt_now_ns();
    if (store->retired_ns == 0)
        store->retired_ns = now_ns;
    /* Not for ever: a memory node may be away. The dropper then frees what it can walk through. */
    bool settled = pool_settled(store->life->pool, store->retired_ns);
    if (!settled && now_ns - store->retired_ns < store->lease_ns)
        return PANDO_AGAIN;
    status = pool_drops_seen_co(store->session, store->drops_looked, settled);
    store->seen_due = status != PANDO_OK;
    store->retired_ns = 0;
    return status;
}

/* ---- what tables need now and then ------------------------------------------------------------ */

static void keep_tables_co(struct store *store)
{
    store_lock_co(store); /* none is opened or closed meanwhile */
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (shared->life == store->life->number && !atomic_load(&shared->dropped))
            engine_keep_co(shared->engine_table, store->session);
    }
    store_unlock(store);
}

/* ---- the task -------------------------------------------------------------------------------- */

static void keeper_task(void *arg)
{
    struct store *store = arg;
    struct pool_entry *entries = malloc(POOL_TABLES * sizeof(*entries));
    uint64_t period_ns = store->lease_ns / PASSES_PER_LEASE;

    while (!store->closing) {
        if (store->session == NULL || pool_fenced(store->life->pool)) {
            rejoin_co(store);
            continue;
        }
        if (entries != NULL) {
            enum pando_status status = keep_drops_co(store, entries);
            (void)status; /* an endpoint that is broken now: the next pass tries again */
        }
        keep_tables_co(store);
        bury_co(store);
        pause_co(store, store->seen_due ? SOON_NS : period_ns);
    }
    while (store->finishing)
        rt_sleep_co(RT_NS_PER_MS);
    bury_co(store);
    free(entries);
    if (store->session != NULL)
        pool_session_close_co(store->session);
    store->keeper_done = true;
}

enum pando_status store_keeper_start(struct store *store)
{
    enum pando_status status = pool_session_open_co(store->life->pool, &store->session);
    if (status != PANDO_OK)
        return status;
    status = rt_spawn(rt_loop_self(), keeper_task, store);
    if (status != PANDO_OK)
        pool_session_close_co(store->session);
    return status;
}

void store_keeper_stop_co(struct store *store)
{
    store->closing = true;
    while (!store->keeper_done) {
        store_keeper_nudge(store);
        rt_sleep_co(RT_NS_PER_MS / 4);
    }
}
