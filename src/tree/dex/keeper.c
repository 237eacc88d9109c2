/*
 * keeper.c - the table's background task: takes over from owners that died, also when nobody asks for
 * their keys.
 */
#include <stdlib.h>

#include "base/log.h"
#include "tree/dex/dex_int.h"

enum { PASSES_PER_LEASE = 4 };

static void pause_co(struct dex_table *table, uint64_t duration_ns)
{
    uint64_t deadline_ns = rt_now_ns() + duration_ns;
    while (!atomic_load(&table->closing) && rt_now_ns() < deadline_ns)
        (void)rt_waitq_wait_co(&table->wake, deadline_ns);
}

/* The lowest key of a part whose owner is gone; false: there is none. */
static bool find_orphan_co(struct dex *self, uint8_t key[PAGE_KEY_ROOM], size_t *size)
{
    struct dex_table *table = self->table;
    struct map *map;
    uint64_t alive = dex_self(table);
    bool gone = false;

    if (map_read_co(self->base.session, table->slot, table->id, &map) != PANDO_OK)
        return false;
    for (uint32_t i = 0; i < map->count && !gone; i++) {
        const struct map_part *part = &map->parts[i];
        if (part->owner == 0 || part->owner == alive)
            continue;
        if (dex_gone_co(self, part->owner, &gone) != PANDO_OK)
            break;
        alive = part->owner;
        *size = part->low.size;
        memcpy(key, part->low.data, part->low.size);
    }
    free(map);
    return gone;
}

/* What all threads have done since the last time. */
static void measure(struct dex_table *table, uint64_t *before)
{
    uint64_t now = dex_operations(table);
    atomic_store(&table->load, now - *before);
    *before = now;
}

static void keeper_task(void *arg)
{
    struct dex_table *table = arg;
    struct dex *self = table->keeper;
    uint64_t pause_ns = pool_lease_ns(table->pool) / PASSES_PER_LEASE;
    uint8_t key[PAGE_KEY_ROOM];
    size_t size = 0;
    uint64_t operations = 0;
    unsigned passes = 0;

    while (!atomic_load(&table->closing) && !pool_fenced(table->pool)) {
        pause_co(table, pause_ns);
        if (++passes % PASSES_PER_LEASE == 0)
            measure(table, &operations);
        /* Not too often: each move is felt by who uses these keys. */
        if (passes % (PASSES_PER_LEASE * 4) == 0 && table->on.balance &&
            !atomic_load(&table->closing))
            dex_balance_co(self);
        if (atomic_load(&table->closing) || !find_orphan_co(self, key, &size))
            continue;
        uint64_t owner;
        atomic_store(&table->doubt, true);
        enum pando_status status = dex_claim_co(self, slice_of(key, size), &owner);
        if (status != PANDO_OK && status != PANDO_AGAIN)
            log_warn("cannot take over a dead owner's keys", log_u64("table", table->id),
                     log_status("status", status));
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
