/*
 * finish.c - freeing dropped tables: steps 2 to 5 of pool/drop.c, for many tables at once, because waiting until
 * all members have noticed a drop takes a part of a lease whether it is of one table or of hundreds.
 *
 * What this process has marked is in a list. Tables whose droppers are gone are found by a look at the
 * directory: when the process has joined, when a member has departed, and every few leases, as long as any table
 * is being dropped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/engines.h"
#include "store/store_int.h"

enum { BATCH = 512, SCAN_LEASES = 4 };

static const uint64_t SOON_NS = 5 * RT_NS_PER_MS; /* while something is waited for */

struct store_drop {
    unsigned slot;
    uint64_t number;
};

struct finish {
    struct store *store;
    unsigned count;
    struct store_drop drops[BATCH];
};

/* ---- what there is to free ------------------------------------------------------------------- */

void store_finish_add(struct store *store, unsigned slot, uint64_t number)
{
    rt_latch_lock(&store->latch);
    if (store->drop_count == store->drop_room) {
        unsigned room = store->drop_room == 0 ? 16 : store->drop_room * 2;
        struct store_drop *grown = realloc(store->drops, room * sizeof(*grown));
        if (grown != NULL) {
            store->drops = grown;
            store->drop_room = room;
        }
    }
    if (store->drop_count < store->drop_room) /* else a later look at the directory finds it */
        store->drops[store->drop_count++] = (struct store_drop){slot, number};
    rt_latch_unlock(&store->latch);
}

static int by_slot(const void *a, const void *b)
{
    unsigned left = ((const struct store_drop *)a)->slot;
    unsigned right = ((const struct store_drop *)b)->slot;
    return (left > right) - (left < right);
}

/* The first of the list, each table once. */
static void take(struct store *store, struct finish *finish)
{
    unsigned kept = 0;
    rt_latch_lock(&store->latch);
    unsigned count = store->drop_count < BATCH ? store->drop_count : BATCH;
    if (count > 0)
        memcpy(finish->drops, store->drops, count * sizeof(finish->drops[0]));
    store->drop_count -= count;
    memmove(store->drops, store->drops + count, store->drop_count * sizeof(finish->drops[0]));
    rt_latch_unlock(&store->latch);
    qsort(finish->drops, count, sizeof(finish->drops[0]), by_slot);
    for (unsigned i = 0; i < count; i++) {
        if (kept == 0 || finish->drops[kept - 1].slot != finish->drops[i].slot ||
            finish->drops[kept - 1].number != finish->drops[i].number)
            finish->drops[kept++] = finish->drops[i];
    }
    finish->count = kept;
}

/* ---- freeing one ----------------------------------------------------------------------------- */

/* Takes a table back by its blocks' tenures. */
static enum pando_status sweep_table_co(struct store *store, unsigned slot,
                                        const struct pool_entry *entry)
{
    enum pando_status status = pool_table_sweep_co(store->session, slot, (uint16_t)entry->table);
    return status == PANDO_OK ? pool_table_remove_co(store->session, slot, entry->table) : status;
}

static enum pando_status sweep_damaged_co(struct store *store, unsigned slot,
                                          const struct pool_entry *entry)
{
    log_warn("a dropped table is damaged: its blocks are taken back one by one",
             log_text("table", entry->name));
    return sweep_table_co(store, slot, entry);
}

/* `settled`: no list of anybody's that is about the table has an unknown outcome. */
static enum pando_status free_table_co(struct store *store, unsigned slot,
                                       const struct pool_entry *entry, bool settled)
{
    struct engine_table *table;
    char name[40], error[256] = "";
    const struct engine_ops *ops = store_engine(entry->engine);
    if (ops == NULL)
        return PANDO_UNSUPPORTED; /* somebody who has that engine will do it */
    uint16_t node;
    if (pool_table_lost(pool_session_pool(store->session), entry, &node))
        return sweep_damaged_co(store, slot, entry);
    uint64_t deaths = entry->deaths;
    if (settled && pool_deaths_co(store->session, &deaths) == PANDO_OK && deaths != entry->deaths)
        return sweep_table_co(store, slot, entry);
    snprintf(name, sizeof(name), "#%llu:%u", (unsigned long long)entry->table, slot);
    struct engine_config config = {.cache_bytes = 1 << 20, .kept = true};
    enum pando_status status =
        engine_open_co(ops, store->session, name, &config, &table, error, sizeof(error));
    if (status == PANDO_OK) {
        status = engine_drop_co(table, store->session);
        engine_close_co(table, store->session);
    }
    return status == PANDO_CORRUPT ? sweep_damaged_co(store, slot, entry) : status;
}

/* ---- all of a batch -------------------------------------------------------------------------- */

/* NOT_FOUND: it is not being dropped any more. */
static enum pando_status read_drop_co(struct store *store, const struct store_drop *drop,
                                      struct pool_entry *entry)
{
    enum pando_status status = pool_table_read_co(store->session, drop->slot, entry);
    if (status != PANDO_OK)
        return status;
    return entry->table == drop->number && pool_entry_dropping(entry->state) ? PANDO_OK
                                                                             : PANDO_NOT_FOUND;
}

/* Of one that is left to others, or to a later look, nothing is said. */
static bool worth_telling(const struct store *store, enum pando_status status)
{
    return status != PANDO_OK && status != PANDO_BUSY && status != PANDO_STALE &&
           status != PANDO_NOT_FOUND && !store->closing;
}

/* A later look at the directory finds it again. */
static void tell_failure(const struct store *store, const char *name, enum pando_status status)
{
    if (worth_telling(store, status))
        log_warn("a dropped table is not freed yet; will try again", log_text("table", name),
                 log_status("status", status));
}

/* Keeps those that this member is to free. */
static void choose_co(struct finish *finish)
{
    struct store *store = finish->store;
    unsigned kept = 0;
    for (unsigned i = 0; i < finish->count; i++) {
        struct pool_entry entry = {0};
        enum pando_status status = read_drop_co(store, &finish->drops[i], &entry);
        if (status == PANDO_OK)
            status = pool_table_take_over_co(store->session, finish->drops[i].slot, entry.state);
        if (status == PANDO_OK)
            finish->drops[kept++] = finish->drops[i];
        else
            tell_failure(store, entry.name, status);
    }
    finish->count = kept;
}

/* Until every member has said that it uses none of them. */
static enum pando_status await_all_co(struct store *store, bool *settled)
{
    uint64_t drops;
    bool all = false;
    enum pando_status status = pool_drops_add_co(store->session, &drops);
    store_keeper_wake(store);
    while (status == PANDO_OK && !all) {
        status = pool_drops_seen_by_all_co(store->session, drops, &all, settled);
        if (status == PANDO_OK && !all) {
            if (store->closing)
                return PANDO_TIMEOUT; /* whoever stays goes on with it */
            rt_sleep_co(SOON_NS);     /* other members are to say it */
        }
    }
    return status;
}

static void finish_task(void *arg)
{
    struct finish *finish = arg;
    struct store *store = finish->store;
    bool settled = false, freed = false;
    choose_co(finish);
    enum pando_status waited = finish->count > 0 ? await_all_co(store, &settled) : PANDO_OK;
    for (unsigned i = 0; i < finish->count; i++) {
        struct pool_entry entry = {0};
        enum pando_status status =
            store->closing ? PANDO_TIMEOUT : waited; /* others go on with it */
        if (status == PANDO_OK)
            status = read_drop_co(store, &finish->drops[i], &entry);
        if (status == PANDO_OK)
            status = free_table_co(store, finish->drops[i].slot, &entry, settled);
        freed = freed || status == PANDO_OK;
        tell_failure(store, entry.name, status);
    }
    store->finishing = false;
    if (freed)
        store_keeper_wake(store); /* there may be more */
    rt_waitq_wake_all(&store->finished);
    free(finish);
}

/* ---- when ------------------------------------------------------------------------------------ */

static bool add_dropping(void *context, unsigned slot, const struct pool_entry *entry)
{
    if (pool_entry_dropping(entry->state))
        store_finish_add(context, slot, entry->table);
    return true;
}

/* Adds what is being dropped by whomever; choose_co leaves what others are at. */
static void scan_co(struct store *store, bool first)
{
    uint64_t now_ns = rt_now_ns(), departures = pool_departures(store->membership->pool);
    struct pool_directory_counts counts;
    if (!first && departures == store->departures &&
        now_ns - store->scanned_ns < SCAN_LEASES * store->lease_ns)
        return;
    enum pando_status status = pool_directory_counts_co(store->session, &counts);
    if (status == PANDO_OK && counts.dropping > 0)
        status = pool_directory_each_co(store->session, add_dropping, store);
    if (status != PANDO_OK)
        return;
    store->scanned_ns = now_ns;
    store->departures = departures;
}

static bool any_drops(struct store *store)
{
    rt_latch_lock(&store->latch);
    bool any = store->drop_count > 0;
    rt_latch_unlock(&store->latch);
    return any;
}

void store_finish_round_co(struct store *store, bool first)
{
    if (store->finishing || store->closing)
        return;
    if (!any_drops(store)) /* else the list would grow with each look */
        scan_co(store, first);
    if (!any_drops(store))
        return;
    struct finish *finish = malloc(sizeof(*finish));
    if (finish == NULL)
        return;
    finish->store = store;
    take(store, finish);
    store->finishing = true;
    if (rt_spawn(rt_loop_self(), finish_task, finish) != PANDO_OK) {
        store->finishing = false;
        for (unsigned i = 0; i < finish->count; i++)
            store_finish_add(store, finish->drops[i].slot, finish->drops[i].number);
        free(finish);
    }
}
