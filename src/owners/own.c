/*
 * own.c - getting keys.
 *
 * Who owns what is decided by the map in the pool alone, and it changes by CAS. Keys of nobody are
 * claimed by whoever needs them. An owner that died is replaced in three steps, which another may take
 * up when the taker dies, too: the map says who takes over; the taker's engine replays the
 * dead one's log; the map says who owns it.
 */
#include <stdlib.h>

#include "base/log.h"
#include "owners/owners_int.h"

enum { LOOKS_PER_LEASE = 64 }; /* for what nobody tells: that this process is fenced, or to end */

static bool changing(const void *owners)
{
    return atomic_load(&((const struct owners *)owners)->changing);
}

struct step owners_change_begin_co(struct owners *owners)
{
    uint64_t end_ns = 0;
    while (atomic_exchange(&owners->changing, true)) {
        uint64_t now_ns = rt_now_ns();
        end_ns = end_ns == 0 ? now_ns + pool_lease_ns(owners->pool) : end_ns;
        if (pool_fenced(owners->pool))
            return step_of(PANDO_FENCED);
        if (now_ns > end_ns || pool_ending(owners->pool))
            return step_to(STEP_RESTART);
        (void)rt_waitq_while_co(&owners->change, changing, owners,
                                now_ns + pool_lease_ns(owners->pool) / LOOKS_PER_LEASE);
    }
    return step_of(PANDO_OK);
}

void owners_change_end(struct owners *owners)
{
    atomic_store(&owners->changing, false);
    (void)rt_waitq_wake_one(&owners->change); /* whoever takes it then wakes the next */
}

static struct owners_log log_of(const struct owners *owners)
{
    return owners->engine->log(owners);
}

static void set_log(const struct owners *owners, struct map_partition *part)
{
    struct owners_log log = log_of(owners);
    part->log = log.address;
    part->log_version = log.version;
}

/* ---- members --------------------------------------------------------------------------------- */

enum pando_status owners_member_gone_co(struct owners_handle *self, uint64_t member, bool *gone)
{
    struct pool_heartbeat beat;
    struct fabric_identity identity = map_identity(member);
    enum pando_status status = pool_heartbeat_co(self->session, identity.member, &beat);
    *gone = status == PANDO_OK &&
            (beat.state == POOL_FREE || beat.incarnation != identity.incarnation ||
             pool_heartbeat_partial(&beat));
    return status;
}

/* ---- getting --------------------------------------------------------------------------------- */

bool owners_log_named(const struct owners *owners, const struct map *map)
{
    struct owners_log log = log_of(owners);
    bool named = false;
    for (uint32_t i = 0; i < map->count; i++)
        named = named || (log.address != 0 && map->parts[i].log == log.address &&
                          map->parts[i].owner == owners_self(owners));
    return named;
}

enum pando_status owners_map_install_co(struct owners_handle *self, struct map *map)
{
    enum pando_status status = pool_partial_begin_co(self->session);
    if (status == PANDO_OK)
        status = self->owners->engine->map_install_co(self, map->epoch);
    /* Before the first record; a log that a map names and that is not kept has nothing in it. */
    if (status == PANDO_OK && owners_log_named(self->owners, map))
        status = self->owners->engine->retain_log_co(self, true);
    if (status == PANDO_OK)
        owners_map_publish_co(self, map);
    else
        free(map);
    return status;
}

/* Parts that others gave us have no log of ours yet; without, they are not to be worked on. False: there
 * were none. */
static bool name_log(const struct owners_handle *self, struct map *map, uint64_t epoch)
{
    bool any = false;
    for (uint32_t i = 0; i < map->count; i++) {
        struct map_partition *part = &map->parts[i];
        if (part->owner != owners_self(self->owners) || part->log == log_of(self->owners).address)
            continue;
        set_log(self->owners, part);
        part->epoch = epoch;
        any = true;
    }
    return any;
}

struct step owners_map_replace_co(struct owners_handle *self, struct map *from, struct map *to)
{
    struct owners *owners = self->owners;
    (void)name_log(self, to, from->epoch + 1);
    map_join(to);
    enum pando_status status = map_swap_co(self->session, owners->slot, owners->id, from, to);
    free(from);
    log_debug("changed who owns a table's keys", log_u64("table", owners->id),
              log_u64("member", pool_identity(owners->pool).member), log_u64("epoch", to->epoch),
              log_status("status", status));
    if (status == PANDO_OK) {
        status = owners_map_install_co(self, to);
        return status == PANDO_NO_MEMORY ? step_to(STEP_RESTART) : step_of(status);
    }
    free(to);
    return status == PANDO_STALE || status == PANDO_UNKNOWN ? step_to(STEP_RESTART)
                                                            : step_of(status);
}

/* Everything of `from` (0: of nobody) becomes ours, or ours to take over. */
static struct step take_parts_co(struct owners_handle *self, struct map *map, uint64_t from,
                                 bool over)
{
    struct owners *owners = self->owners;
    struct map *next = map_copy(map);
    if (next == NULL) {
        free(map);
        return step_of(PANDO_NO_MEMORY);
    }
    for (uint32_t i = 0; i < next->count; i++) {
        struct map_partition *part = &next->parts[i];
        if (part->owner != from)
            continue;
        part->taker = over ? owners_self(owners) : 0;
        if (!over) {
            part->owner = owners_self(owners);
            set_log(owners, part);
        }
        part->epoch = map->epoch + 1;
    }
    return owners_map_replace_co(self, map, next);
}

static bool owns_any(const struct owners *owners, const struct map *map)
{
    bool any = false;
    for (uint32_t i = 0; i < map->count; i++)
        any = any || map->parts[i].owner == owners_self(owners);
    return any;
}

/* Whether a map has parts of ours that another had until now: it gave them to us. */
static bool gained(const struct owners *owners, const struct map *map)
{
    const struct map *view = owners_map(owners);
    bool any = false;
    for (uint32_t i = 0; i < map->count; i++) {
        uint64_t former = map_find(view, map->parts[i].low)->owner;
        any = any || (map->parts[i].owner == owners_self(owners) && former != owners_self(owners));
    }
    return any;
}

/* Makes a map that was read the view. Consumes it. */
static struct step accept_co(struct owners_handle *self, struct map *map)
{
    /* It is already: then nobody has to wait for those who are at work. */
    if (map->epoch == owners_epoch(self->owners)) {
        free(map);
        return step_of(PANDO_OK);
    }
    if (gained(self->owners, map))
        atomic_store(&self->owners->received_ns, rt_now_ns());
    /* Who owns nothing needs no log: in a pool that is full one can still ask others. */
    enum pando_status status =
        owns_any(self->owners, map) ? self->owners->engine->prepare_co(self) : PANDO_OK;
    struct map *next = status == PANDO_OK ? map_copy(map) : NULL;
    if (next == NULL) {
        free(map);
        return step_of(status == PANDO_OK ? PANDO_NO_MEMORY : status);
    }
    if (name_log(self, next, map->epoch + 1))
        return owners_map_replace_co(self, map, next);
    free(next);
    return step_of(owners_map_install_co(self, map));
}

/* Whether all partitions of a dead owner are ours to take over already; and who is to take over others of them
 * and lives (0: nobody). It may have been given partitions, after its death, that nobody is to take over yet. */
static enum pando_status takers_co(struct owners_handle *self, const struct map *map, uint64_t dead,
                                   bool *ours, uint64_t *living)
{
    uint64_t me = owners_self(self->owners), known = 0;
    enum pando_status status = PANDO_OK;
    bool gone = true;
    *ours = true;
    for (uint32_t i = 0; i < map->count && gone && status == PANDO_OK; i++) {
        const struct map_partition *part = &map->parts[i];
        if (part->owner != dead || part->taker == me)
            continue;
        *ours = false;
        if (part->taker != 0 && part->taker != known)
            status = owners_member_gone_co(self, part->taker, &gone);
        known = part->taker;
    }
    *living = gone ? 0 : known;
    return status;
}

/* Another takes over from a dead owner. If that lasts, it may be unable to because of damage, and knows it: asks,
 * once in a lease. CORRUPT; else it is waited for. */
static struct step await_taker_co(struct owners_handle *self, uint64_t dead, uint64_t taker,
                                  struct slice key)
{
    struct owners *owners = self->owners;
    uint64_t now_ns = rt_now_ns();
    if (owners->awaited_owner == dead && now_ns - owners->awaited_ns <= pool_lease_ns(owners->pool))
        return step_to(STEP_RESTART);
    bool first = owners->awaited_owner != dead;
    owners->awaited_owner = dead;
    owners->awaited_ns = now_ns;
    if (!first && owners_ask_taker_co(self, taker, key) == PANDO_CORRUPT)
        return step_of(PANDO_CORRUPT);
    return step_to(STEP_RESTART);
}

/* Consumes the map. The part's owner is gone. */
static struct step take_over_co(struct owners_handle *self, struct map *map,
                                const struct map_partition *part, struct slice key)
{
    struct owners *owners = self->owners;
    uint64_t dead = part->owner, living;
    struct owners_log log = {0};
    bool ours;

    /* It had one log, but parts that it had just been given do not name it. */
    for (uint32_t i = 0; i < map->count; i++) {
        if (map->parts[i].owner == dead && map->parts[i].log != 0) {
            log.address = map->parts[i].log;
            log.version = map->parts[i].log_version;
        }
    }
    enum pando_status status = takers_co(self, map, dead, &ours, &living);
    if (status != PANDO_OK || living != 0) {
        free(map);
        return status != PANDO_OK ? step_of(status) : await_taker_co(self, dead, living, key);
    }
    /* If the map says already that we do, the view may not: what follows the map's CAS may have failed. A
     * replay goes by the view, and would take every record for another's. */
    struct step step = ours ? accept_co(self, map) : take_parts_co(self, map, dead, true);
    if (!step_ok(step))
        return step;
    owners_count(&owners->takeovers);
    status = owners->engine->replay_co(self, &log);
    /* What it had is done: whoever finds the log named by the map now finds it not kept. (Freed after the map has
     * changed, it would be lost if we died in between.) */
    if (status == PANDO_OK)
        status = owners->engine->free_log_co(self, &log);
    if (status == PANDO_OK)
        status = map_read_co(self->session, owners->slot, owners->id, &map);
    return status == PANDO_OK ? take_parts_co(self, map, dead, false) : step_of(status);
}

/* What keeps us from taking over stays damaged: not everybody who needs one of these keys is to find out anew. */
static void note_damaged(struct owners *owners, uint64_t dead)
{
    owners->damaged_owner = dead;
    owners->damaged_until_ns = rt_now_ns() + pool_lease_ns(owners->pool);
}

static bool known_damaged(const struct owners *owners, uint64_t dead)
{
    return owners->damaged_owner == dead && rt_now_ns() < owners->damaged_until_ns;
}

static struct step claim_fresh_co(struct owners_handle *self, struct slice key, uint64_t *owner)
{
    struct owners *owners = self->owners;
    uint64_t me = owners_self(owners);
    struct map *map;
    bool gone = false;

    enum pando_status status = map_read_co(self->session, owners->slot, owners->id, &map);
    if (status != PANDO_OK)
        return step_of(status);
    const struct map_partition *part = map_find(map, key);
    *owner = part->owner;
    if (part->owner == me)
        return accept_co(self, map);
    if (part->owner != 0)
        status = owners_member_gone_co(self, part->owner, &gone);
    if (status == PANDO_OK && gone && known_damaged(owners, part->owner))
        status = PANDO_CORRUPT;
    if (status == PANDO_OK && (gone || part->owner == 0))
        status = owners->engine->prepare_co(self);
    if (status != PANDO_OK) {
        free(map);
        return step_of(status);
    }
    if (part->owner == 0)
        return take_parts_co(self, map, 0, false);
    if (gone) {
        uint64_t dead = part->owner;
        struct step step = take_over_co(self, map, part, key);
        if (step.status == PANDO_CORRUPT)
            note_damaged(owners, dead);
        return step;
    }
    atomic_store(&owners->map_stale, false);
    return accept_co(self, map);
}

struct step owners_claim_co(struct owners_handle *self, struct slice key, uint64_t *owner)
{
    struct owners *owners = self->owners;
    struct owners_guard guard;

    if (pool_fenced(owners->pool))
        return step_of(PANDO_FENCED);
    owners_enter(self, key, &guard);
    *owner = guard.part->owner;
    bool frozen = guard.part->frozen;
    uint64_t epoch = guard.map->epoch;
    owners_leave(self, &guard);
    if (frozen)
        return step_to(STEP_RESTART);
    if (*owner == owners_self(owners) || (*owner != 0 && !atomic_load(&owners->map_stale)))
        return step_of(PANDO_OK);
    struct step step = owners_change_begin_co(owners);
    if (!step_ok(step))
        return step;
    /* Many wait for the same news: whoever comes second has them. */
    if (epoch == owners_epoch(owners))
        step = claim_fresh_co(self, key, owner);
    owners_change_end(owners);
    /* Whatever it was, it is decided by what the view says now. */
    if (step_ok(step)) {
        owners_enter(self, key, &guard);
        *owner = guard.part->owner;
        owners_leave(self, &guard);
    }
    return step.status == PANDO_BROKEN || step.status == PANDO_TIMEOUT ? step_to(STEP_RESTART)
                                                                       : step;
}
