/*
 * join.c - making one part of neighbouring ones. Keys that came to an owner at different times are different
 * parts of the map: each has the epoch since when it is its owner's, which its records and pages carry. Moves cut
 * parts, so that the map would fill up. An owner joins its own when the map is half full: it lets nobody
 * work on them for a moment, so that no record with the former epoch follows one with the new one, and gives
 * all of a row the highest epoch in it.
 *
 *   until          what is left if the process dies
 *   the map's CAS  the map as it was
 *   the end        the map with fewer parts; pages with lower epochs than their part, as after a take-over
 */
#include <stdlib.h>

#include "base/log.h"
#include "tree/dex/dex_int.h"

/* Whether a part is ours, and can be joined with its neighbours. */
static bool joins(const struct dex_table *table, const struct map_part *part)
{
    return part->owner == dex_self(table) && part->taker == 0 &&
           (table->log == NULL || part->log == dex_log_address(table->log));
}

/* Evens the epochs of parts in a row; false: there is no such row. */
static bool even_epochs(const struct dex_table *table, struct map *map)
{
    bool any = false;
    uint32_t end;
    for (uint32_t i = 0; i < map->count; i = end + 1) {
        uint64_t epoch = 0;
        for (end = i; end < map->count && joins(table, &map->parts[end]); end++)
            epoch = map->parts[end].epoch > epoch ? map->parts[end].epoch : epoch;
        for (uint32_t j = i; j < end; j++)
            map->parts[j].epoch = epoch;
        any = any || end > i + 1;
    }
    return any;
}

/* Nobody works on parts of ours. OK: the view is the map in the pool, and they may be worked on. Otherwise
 * *unsure says whether that map may have changed. */
static enum pando_status join_frozen_co(struct dex *self, bool *unsure)
{
    struct dex_table *table = self->table;
    struct pool_retry retry = {0};
    enum pando_status status;

    do {
        struct map *map, *next = NULL;
        status = map_read_co(self->base.session, table->slot, table->id, &map);
        if (status == PANDO_OK) {
            next = map_copy(map);
            if (next == NULL) {
                free(map);
                return PANDO_NO_MEMORY;
            }
            if (even_epochs(table, next)) {
                status = dex_swap_co(self, map, next);
                *unsure = *unsure || status != PANDO_FULL; /* NO_MEMORY may follow the CAS */
            } else {
                free(next);
                status = dex_adopt_co(self, map);
            }
        }
        if (status == PANDO_AGAIN || status == PANDO_BROKEN || status == PANDO_TIMEOUT) {
            status = dex_retry_co(self, &retry);
            status = status == PANDO_OK ? PANDO_AGAIN : status;
        }
    } while (status == PANDO_AGAIN);
    return status;
}

/* The view, and the same with a stop to what is ours. */
static bool views(const struct dex_table *table, struct map **thawed, struct map **frozen)
{
    const struct map *map = atomic_load_explicit(&table->map, memory_order_acquire);
    *thawed = map_copy(map);
    *frozen = map_copy(map);
    if (*thawed == NULL || *frozen == NULL) {
        free(*thawed);
        free(*frozen);
        return false;
    }
    for (uint32_t i = 0; i < (*frozen)->count; i++)
        (*frozen)->parts[i].frozen = (*frozen)->parts[i].owner == dex_self(table);
    return true;
}

static bool worthwhile(const struct dex_table *table)
{
    const struct map *map = atomic_load_explicit(&table->map, memory_order_acquire);
    bool row = false;
    if (!map_crowded(map) && !table->on.join_eagerly)
        return false;
    for (uint32_t i = 1; i < map->count; i++)
        row = row || (joins(table, &map->parts[i - 1]) && joins(table, &map->parts[i]));
    return row;
}

void dex_join_parts_co(struct dex *self)
{
    struct dex_table *table = self->table;
    struct map *thawed, *frozen;

    dex_change_begin_co(table);
    if (!worthwhile(table) || !views(table, &thawed, &frozen)) {
        dex_change_end(table);
        return;
    }
    uint32_t before = thawed->count;
    dex_publish_co(self, frozen);
    bool unsure = false;
    enum pando_status status = join_frozen_co(self, &unsure);
    if (status != PANDO_OK && !unsure) {
        dex_publish_co(self, thawed);
    } else {
        free(thawed);
        if (status != PANDO_OK)
            pool_give_up(table->pool); /* these keys would stand still for ever */
    }
    log_info("joined parts of a table's map", log_u64("table", table->id),
             log_u64("before", before),
             log_u64("after", atomic_load_explicit(&table->map, memory_order_acquire)->count),
             log_status("status", status));
    dex_change_end(table);
}
