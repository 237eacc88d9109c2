/*
 * keeper.c - what is done now and then: takes over from owners that died, also when nobody asks for
 * their keys. By a task of the table's, or by whoever opened it (engine_keep_co): a process may have many
 * tables, and threads that come and go.
 */
#include <stdlib.h>

#include "base/log.h"
#include "tree/dex/dex_int.h"

enum { PASSES_PER_LEASE = 4, PASSES_UNASKED = 64 };

static void pause_co(struct dex_table *table, uint64_t duration_ns)
{
    uint64_t deadline_ns = rt_now_ns() + duration_ns;
    while (!atomic_load(&table->closing) && rt_now_ns() < deadline_ns)
        (void)rt_waitq_wait_co(&table->wake, deadline_ns);
}

/* The lowest key of a part whose owner is gone, if there is one; false: it cannot be told. */
static bool find_orphan_co(struct dex *self, uint8_t key[PAGE_KEY_ROOM], size_t *size, bool *found)
{
    struct dex_table *table = self->table;
    struct map *map;
    uint64_t alive = dex_self(table);
    bool gone = false, told = true;

    if (map_read_co(self->base.session, table->slot, table->id, &map) != PANDO_OK)
        return false;
    for (uint32_t i = 0; i < map->count && !gone; i++) {
        const struct map_part *part = &map->parts[i];
        if (part->owner == 0 || part->owner == alive)
            continue;
        told = dex_gone_co(self, part->owner, &gone) == PANDO_OK;
        if (!told)
            break;
        alive = part->owner;
        *size = part->low.size;
        memcpy(key, part->low.data, part->low.size);
    }
    free(map);
    *found = gone;
    return told;
}

/* Nobody became an orphan while no member has gone. Now and then it looks all the same. */
static bool look_due(struct dex_table *table, uint64_t departures)
{
    return !table->looked || departures != table->departures_known ||
           table->passes % PASSES_UNASKED == 0;
}

static void take_orphans_co(struct dex *self)
{
    struct dex_table *table = self->table;
    uint64_t departures = pool_departures(table->pool);
    uint8_t key[PAGE_KEY_ROOM];
    size_t size = 0;
    bool found = false;

    if (pool_fenced(table->pool) || !look_due(table, departures) ||
        !find_orphan_co(self, key, &size, &found))
        return;
    table->looked = true;
    if (!found) {
        table->departures_known = departures;
        return;
    }
    uint64_t owner;
    atomic_store(&table->doubt, true);
    enum pando_status status = dex_claim_co(self, slice_of(key, size), &owner);
    table->looked = false; /* there may be more */
    if (status != PANDO_OK && status != PANDO_AGAIN && status != PANDO_FENCED)
        log_warn("cannot take over a dead owner's keys", log_u64("table", table->id),
                 log_status("status", status));
}

/* What all threads have done since the last time. */
static void measure(struct dex_table *table)
{
    uint64_t now = dex_operations(table);
    atomic_store(&table->load, now - table->operations_known);
    table->operations_known = now;
}

static void pass_co(struct dex *self)
{
    struct dex_table *table = self->table;
    if (++table->passes % PASSES_PER_LEASE == 0)
        measure(table);
    /* Not too often: each move is felt by who uses these keys. */
    if (table->passes % (PASSES_PER_LEASE * 4) == 0 && table->on.balance &&
        !atomic_load(&table->closing))
        dex_balance_co(self);
    if (!atomic_load(&table->closing))
        dex_join_parts_co(self);
    if (!atomic_load(&table->closing))
        take_orphans_co(self);
}

void dex_keep_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    if (table->retired)
        return;
    table->keeper->base.session = session;
    pass_co(table->keeper);
}

static void keeper_task(void *arg)
{
    struct dex_table *table = arg;
    uint64_t pause_ns = pool_lease_ns(table->pool) / PASSES_PER_LEASE;

    while (!atomic_load(&table->closing) && !pool_fenced(table->pool)) {
        pause_co(table, pause_ns);
        pass_co(table->keeper);
    }
    atomic_store(&table->keeper_done, true);
    rt_waitq_wake_all(&table->wake);
}

enum pando_status dex_keeper_start(struct dex_table *table)
{
    enum pando_status status = rt_spawn(rt_loop_self(), keeper_task, table);
    table->keeper_started = status == PANDO_OK;
    return status;
}

void dex_keeper_stop_co(struct dex_table *table)
{
    static const uint64_t LOOK_NS = 10 * RT_NS_PER_US;
    atomic_store(&table->closing, true);
    rt_waitq_wake_all(&table->wake);
    while (table->keeper_started && !atomic_load(&table->keeper_done))
        rt_sleep_co(LOOK_NS);
}
