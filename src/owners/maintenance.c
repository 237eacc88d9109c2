/*
 * maintenance.c - what is done now and then: takes over from owners that died, also when nobody
 * asks for their keys. By a task of the table's, or by whoever opened it (engine_maintain_co): a
 * process may have many tables, and threads that come and go.
 */
#include <stdlib.h>

#include "base/log.h"
#include "owners/owners_int.h"

enum {
    ROUNDS_PER_LEASE = 4,
    ROUNDS_UNASKED = 64,
    ROUNDS_PER_BALANCE = 16, /* not too often: each move is felt by who uses these keys */
};

static bool open(const void *owners)
{
    return !atomic_load(&((const struct owners *)owners)->closing);
}

static bool maintained(const void *owners)
{
    return atomic_load(&((const struct owners *)owners)->maintained);
}

/* The lowest key of a partition whose owner is gone, if there is one; false: it cannot be told. */
static bool find_dead_owner_co(struct owners_handle *self, uint8_t key[ENGINE_KEY_MAX],
                               size_t *size, bool *found)
{
    struct owners *owners = self->owners;
    struct map *map;
    uint64_t alive = owners_self(owners);
    bool gone = false, told = true;

    if (map_read_co(self->session, owners->slot, owners->id, &map) != PANDO_OK)
        return false;
    for (uint32_t i = 0; i < map->count && !gone; i++) {
        const struct map_partition *part = &map->parts[i];
        if (part->owner == 0 || part->owner == alive)
            continue;
        told = owners_member_gone_co(self, part->owner, &gone) == PANDO_OK;
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
static bool look_due(struct owners *owners, uint64_t departures)
{
    return !owners->looked || departures != owners->departures_known ||
           owners->rounds % ROUNDS_UNASKED == 0;
}

static void take_over_dead_co(struct owners_handle *self)
{
    struct owners *owners = self->owners;
    uint64_t departures = pool_departures(owners->pool);
    uint8_t key[ENGINE_KEY_MAX];
    size_t size = 0;
    bool found = false;

    if (pool_fenced(owners->pool) || !look_due(owners, departures) ||
        !find_dead_owner_co(self, key, &size, &found))
        return;
    owners->looked = true;
    if (!found) {
        owners->departures_known = departures;
        return;
    }
    uint64_t owner;
    atomic_store(&owners->map_stale, true);
    struct step step = owners_claim_co(self, slice_of(key, size), &owner);
    owners->looked = false; /* there may be more */
    if (step.next == STEP_DONE && step.status != PANDO_OK && step.status != PANDO_FENCED)
        log_warn("cannot take over a dead owner's keys", log_u64("table", owners->id),
                 log_status("status", step.status));
}

/* What all threads have done since the last time. */
static void measure(struct owners *owners)
{
    uint64_t now = owners_operations(owners);
    atomic_store(&owners->load, now - owners->operations_known);
    owners->operations_known = now;
}

static void maintain_once_co(struct owners_handle *self)
{
    struct owners *owners = self->owners;
    if (++owners->rounds % ROUNDS_PER_LEASE == 0)
        measure(owners);
    if (!atomic_load(&owners->closing))
        take_over_dead_co(self);
    if (!atomic_load(&owners->closing))
        owners->engine->maintain_co(self);
    if (!atomic_load(&owners->closing))
        owners_join_partitions_co(self);
    if (owners->balance && !atomic_load(&owners->closing))
        owners_balance_co(self, owners->rounds % ROUNDS_PER_BALANCE == 0);
}

void owners_maintain_co(struct owners *owners)
{
    if (!owners->retired)
        maintain_once_co(owners->maintainer);
}

static void maintenance_task(void *arg)
{
    struct owners *owners = arg;
    uint64_t pause_ns = pool_lease_ns(owners->pool) / ROUNDS_PER_LEASE;

    while (!atomic_load(&owners->closing) && !pool_fenced(owners->pool)) {
        (void)rt_waitq_while_co(&owners->wake, open, owners, rt_now_ns() + pause_ns);
        maintain_once_co(owners->maintainer);
    }
    rt_waitq_clear(&owners->wake, &owners->maintained);
}

enum pando_status owners_maintenance_start(struct owners *owners)
{
    enum pando_status status = rt_spawn(rt_loop_self(), maintenance_task, owners);
    atomic_store(&owners->maintained,
                 status == PANDO_OK); /* the task runs after this one suspends */
    return status;
}

void owners_maintenance_stop_co(struct owners *owners)
{
    atomic_store(&owners->closing, true);
    rt_waitq_wake_all(&owners->wake);
    (void)rt_waitq_while_co(&owners->wake, maintained, owners, RT_NEVER);
}
