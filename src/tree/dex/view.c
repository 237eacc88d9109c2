/*
 * view.c - who owns what, as this process knows it. Operations read the map without a lock; a change
 * puts a new one in its place and waits until every operation that may know the old one has ended.
 * Each thread counts its operations by itself, in two counters that take turns.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "tree/dex/dex_int.h"

static const uint64_t DRAIN_PAUSE_NS = 5 * RT_NS_PER_US;

/* Only its own thread changes it: no need of an atomic addition. */
static void count_by(_Atomic uint32_t *active, int by, memory_order order)
{
    uint32_t value = atomic_load_explicit(active, memory_order_relaxed);
    atomic_store_explicit(active, value + (uint32_t)by, order);
}

void dex_enter(struct dex *self, struct slice key, struct dex_guard *guard)
{
    struct dex_table *table = self->table;
    for (;;) {
        uint32_t generation = atomic_load_explicit(&table->generation, memory_order_acquire);
        guard->parity = generation & 1;
        count_by(&self->active[guard->parity], 1, memory_order_relaxed);
        /* Whoever changes the generation after this sees the count. */
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&table->generation, memory_order_acquire) == generation)
            break;
        count_by(&self->active[guard->parity], -1, memory_order_release);
    }
    guard->map = atomic_load_explicit(&table->map, memory_order_acquire);
    guard->part = map_find(guard->map, key);
}

void dex_leave(struct dex *self, struct dex_guard *guard)
{
    count_by(&self->active[guard->parity], -1, memory_order_release);
    guard->map = NULL;
    guard->part = NULL;
}

bool dex_owns(struct engine *engine, struct slice key)
{
    struct dex *self = dex_of(engine);
    struct dex_guard guard;
    dex_enter(self, key, &guard);
    bool mine = dex_mine(self->table, guard.part);
    dex_leave(self, &guard);
    return mine;
}

static bool drained(struct dex_table *table, unsigned parity)
{
    bool none = true;
    rt_latch_lock(&table->handles_latch);
    list_for_each (link, &table->handles) {
        struct dex *handle = container_of(link, struct dex, link);
        none = none && atomic_load(&handle->active[parity]) == 0;
    }
    rt_latch_unlock(&table->handles_latch);
    return none;
}

void dex_publish_co(struct dex *self, struct map *map)
{
    struct dex_table *table = self->table;
    visible_forget(&table->visible); /* what has become ours was written by others */
    struct map *former = atomic_exchange(&table->map, map);
    uint32_t generation = atomic_fetch_add(&table->generation, 1);

    while (!drained(table, generation & 1))
        rt_sleep_co(DRAIN_PAUSE_NS);
    free(former);
}

bool dex_alone(const struct dex *self, uint32_t frame)
{
    const struct dex_table *table = self->table;
    const uint8_t *bytes = frame_bytes(&table->frames, frame);
    uint64_t read = frame_at(&table->frames, frame)->epoch;
    const struct map *map = atomic_load_explicit(&table->map, memory_order_acquire);
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    uint64_t me = dex_self(table);
    struct slice end;
    bool bounded = page_high(bytes, high, &end);

    if (!table->on.partition)
        return page_level(bytes) == 0;
    for (const struct map_part *part = map_find(map, page_low(bytes, low));
         part < map->parts + map->count; part++) {
        if (bounded && slice_compare(part->low, end) >= 0)
            break;
        /* What is being given away may have another writer before the operation that asks has ended. */
        if (part->frozen || (part->owner != me && part->taker != me) || part->epoch > read)
            return false;
    }
    return true;
}
