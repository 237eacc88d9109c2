/*
 * join.c - making one partition of neighbouring ones. Keys that came to an owner at different times
 * are different partitions of the map: each has the epoch since when it is its owner's, which its
 * records and pages carry. Moves cut partitions, so that the map would fill up. An owner joins its
 * own when the map is half full: it lets nobody work on them for a moment, so that no record with
 * the former epoch follows one with the new one, and gives all of a row the highest epoch in it.
 *
 *   until          what is left if the process dies
 *   the map's CAS  the map as it was
 *   the end        the map with fewer partitions; pages with lower epochs than their partition, as after a take-over
 */
#include <stdlib.h>

#include "base/log.h"
#include "owners/owners_int.h"

/* Whether a partition is ours, and can be joined with its neighbours. */
static bool joins(const struct owners *owners, const struct map_partition *part)
{
    fabric_address log = owners->engine->log(owners).address;
    return part->owner == owners_self(owners) && part->taker == 0 && (log == 0 || part->log == log);
}

/* Evens the epochs of partitions in a row; false: there is no such row. */
static bool even_epochs(const struct owners *owners, struct map *map)
{
    bool any = false;
    uint32_t end;
    for (uint32_t i = 0; i < map->count; i = end + 1) {
        uint64_t epoch = 0;
        for (end = i; end < map->count && joins(owners, &map->parts[end]); end++)
            epoch = map->parts[end].epoch > epoch ? map->parts[end].epoch : epoch;
        for (uint32_t j = i; j < end; j++)
            map->parts[j].epoch = epoch;
        any = any || end > i + 1;
    }
    return any;
}

/* Nobody works on partitions of ours. OK: the view is the map in the pool, and they may be worked
 * on. Otherwise *unsure says whether that map may have changed. NO_MEMORY: it has not, or there was
 * none for ten leases. */
static enum pando_status join_frozen_co(struct owners_handle *self, bool *unsure)
{
    struct owners *owners = self->owners;
    struct pool_retry retry = {0};
    struct step step;

    do {
        struct map *map, *next = NULL;
        step = step_of(map_read_co(self->session, owners->slot, owners->id, &map));
        if (step_ok(step)) {
            next = map_copy(map);
            if (next == NULL) {
                free(map);
                step = step_of(PANDO_NO_MEMORY);
            } else if (even_epochs(owners, next)) {
                step = owners_map_replace_co(self, map, next);
                *unsure = *unsure || (step.status != PANDO_FULL && step.status != PANDO_NO_MEMORY);
            } else {
                free(next);
                step = step_of(owners_map_install_co(self, map));
            }
        }
        /* Without memory, and without knowing whether it was changed, this cannot be left. */
        if (step.status == PANDO_BROKEN || step.status == PANDO_TIMEOUT ||
            (step.status == PANDO_NO_MEMORY && *unsure))
            step = step_to(STEP_RESTART);
    } while (owners_again_co(owners, &retry, &step));
    return step.status;
}

/* The view, and the same with a stop to what is ours. */
static bool views(const struct owners *owners, struct map **thawed, struct map **frozen)
{
    const struct map *map = atomic_load_explicit(&owners->map, memory_order_acquire);
    *thawed = map_copy(map);
    *frozen = map_copy(map);
    if (*thawed == NULL || *frozen == NULL) {
        free(*thawed);
        free(*frozen);
        return false;
    }
    for (uint32_t i = 0; i < (*frozen)->count; i++)
        (*frozen)->parts[i].frozen = (*frozen)->parts[i].owner == owners_self(owners);
    return true;
}

static bool worthwhile(const struct owners *owners)
{
    const struct map *map = atomic_load_explicit(&owners->map, memory_order_acquire);
    bool row = false;
    if (!map_crowded(map) && !owners->join_eagerly)
        return false;
    for (uint32_t i = 1; i < map->count; i++)
        row = row || (joins(owners, &map->parts[i - 1]) && joins(owners, &map->parts[i]));
    return row;
}

void owners_join_partitions_co(struct owners_handle *self)
{
    struct owners *owners = self->owners;
    struct map *thawed, *frozen;

    if (!step_ok(owners_change_begin_co(owners)))
        return; /* a later pass does it */
    if (!worthwhile(owners) || !views(owners, &thawed, &frozen)) {
        owners_change_end(owners);
        return;
    }
    uint32_t before = thawed->count;
    owners_map_publish_co(self, frozen);
    bool unsure = false;
    enum pando_status status = join_frozen_co(self, &unsure);
    if (status != PANDO_OK && !unsure) {
        owners_map_publish_co(self, thawed);
    } else {
        free(thawed);
        if (status != PANDO_OK)
            pool_resign(owners->pool); /* these keys would stand still for ever */
    }
    log_info("joined parts of a table's map", log_u64("table", owners->id),
             log_u64("before", before),
             log_u64("after", atomic_load_explicit(&owners->map, memory_order_acquire)->count),
             log_status("status", status));
    owners_change_end(owners);
}
