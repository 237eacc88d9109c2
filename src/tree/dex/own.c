/*
 * own.c - getting keys.
 *
 * Who owns what is decided by the map in the pool alone, and it changes by CAS. Keys of nobody are
 * claimed by whoever needs them. An owner that died is replaced in three steps, which another may take
 * up when the taker dies, too: the map says who takes over; the taker replays the dead one's log into
 * the pages, which says for itself how far it has come (each page carries the place in the log of its
 * last change); the map says who owns it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "tree/dex/dex_int.h"

enum {
    LOG_BYTES_SMALL = 16 * 1024,
    LOG_BYTES_MIN = 64 * 1024,
    LOG_BYTES_MAX = 4 * 1024 * 1024,
    LOG_PART_OF_POOL = 1024
};

static const uint64_t CHANGING_PAUSE_NS = 20 * RT_NS_PER_US;

void dex_change_begin_co(struct dex_table *table)
{
    while (atomic_exchange(&table->changing, true))
        rt_sleep_co(CHANGING_PAUSE_NS);
}

void dex_change_end(struct dex_table *table)
{
    atomic_store(&table->changing, false);
}

static enum pando_status log_ensure_co(struct dex *self)
{
    struct dex_table *table = self->table;
    uint64_t bytes = 0;

    if (table->log != NULL || !table->on.log)
        return PANDO_OK;
    /* A small pool gets a small one. */
    for (uint16_t node = 0; node < pool_nodes(table->pool); node++)
        bytes += pool_superblock(table->pool, node)->chunks * POOL_CHUNK_BYTES;
    bytes = bytes / LOG_PART_OF_POOL / LOG_BYTES_MIN * LOG_BYTES_MIN;
    bytes = bytes < LOG_BYTES_MIN ? LOG_BYTES_MIN : bytes > LOG_BYTES_MAX ? LOG_BYTES_MAX : bytes;
    if (table->on.small_log)
        bytes = LOG_BYTES_SMALL;
    for (;;) {
        enum pando_status status =
            dex_log_create_co(self->base.session, table->id, (uint32_t)bytes, &table->log);
        if (status != PANDO_FULL || bytes <= LOG_BYTES_MIN)
            return status;
        bytes = LOG_BYTES_MIN; /* whatever block is left of the reserve has room for that */
    }
}

static fabric_address log_address(const struct dex_table *table)
{
    return table->log != NULL ? dex_log_address(table->log) : 0;
}

static void set_log(const struct dex_table *table, struct map_part *part)
{
    part->log = log_address(table);
    part->log_version = table->log != NULL ? dex_log_version(table->log) : 0;
}

/* ---- members --------------------------------------------------------------------------------- */

enum pando_status dex_gone_co(struct dex *self, uint64_t member, bool *gone)
{
    struct pool_heartbeat beat;
    struct fabric_identity identity = map_identity(member);
    enum pando_status status = pool_heartbeat_co(self->base.session, identity.member, &beat);
    *gone = status == PANDO_OK &&
            (beat.state == POOL_FREE || beat.incarnation != identity.incarnation ||
             pool_heartbeat_partial(&beat));
    return status;
}

/* ---- replaying ------------------------------------------------------------------------------- */

struct replay {
    struct dex *self;
    struct dex_scratch *scratch;
    uint64_t records, applied;
};

static bool taken_by_us(const struct dex *self, struct slice key)
{
    const struct map *map = atomic_load_explicit(&self->table->map, memory_order_acquire);
    return map_find(map, key)->taker == dex_self(self->table);
}

/* Under the leaf's latch. False: it has no room. */
static bool apply_record(struct replay *replay, uint32_t index, const struct dex_log_record *record)
{
    struct dex_table *table = replay->self->table;
    const struct page_layout *layout = &table->layout;
    struct frame *frame = frame_at(&table->frames, index);
    uint8_t *bytes = frame_bytes(&table->frames, index);
    struct page_stamp stamp = {record->epoch, record->lsn};
    struct page_pair pair = {record->key, record->value, record->kind == DEX_LOG_BLOB};
    uint32_t at;

    if (!page_stamp_below(page_stamp(bytes), stamp) && table->on.stamps)
        return true;
    bool found = page_find(layout, bytes, record->key, &at);
    if (record->kind != DEX_LOG_DELETE) {
        if (!page_room(layout, bytes, found ? at : UINT32_MAX, pair.key.size, pair.value.size))
            return record->kind == DEX_LOG_ASKED; /* nor was it done then */
        page_put(layout, bytes, at, found, &pair, replay->scratch->other);
    } else if (found) {
        page_remove(layout, bytes, at);
    }
    page_set_stamp(bytes, stamp);
    if (!frame->dirty) {
        /* Not in our log: nothing of that may be forgotten because of it. */
        atomic_store(&frame->first, UINT64_MAX);
        atomic_store(&frame->dirty, true);
    }
    replay->applied++;
    return true;
}

static enum pando_status replay_record_co(void *context, const struct dex_log_record *record)
{
    struct replay *replay = context;
    struct dex *self = replay->self;
    struct dex_table *table = self->table;
    struct dex_target target = {.key = record->key, .keep = true};
    struct pool_retry retry = {0};

    replay->records++;
    if (record->key.size > table->layout.key_max || !taken_by_us(self, record->key))
        return PANDO_OK;
    for (;;) {
        struct dex_spot spot;
        enum pando_status status = dex_find_co(self, &target, &spot);
        if (status != PANDO_OK)
            return status;
        struct frame *frame = frame_at(&table->frames, spot.frame);
        bool done = false;
        if (frame_take(frame, spot.version)) {
            done = apply_record(replay, spot.frame, record);
            frame_give(frame, true);
            if (done)
                return PANDO_OK;
            status = dex_split_co(self, record->key, 0);
        }
        if (status == PANDO_OK)
            status = dex_retry_co(self, &retry);
        if (status != PANDO_OK)
            return status;
    }
}

static enum pando_status replay_co(struct dex *self, fabric_address log, uint64_t version)
{
    struct replay replay = {.self = self, .scratch = dex_scratch_take(self)};
    enum pando_status status = PANDO_OK;
    uint64_t begin_ns = rt_now_ns();
    bool kept = false;

    if (replay.scratch == NULL)
        return PANDO_NO_MEMORY;
    if (log != 0)
        status = dex_log_kept_co(self->base.session, self->table->id, log, version, &kept);
    if (kept && self->table->on.replay)
        status =
            dex_log_replay_co(self->base.session, self->table->id, log, replay_record_co, &replay);
    dex_scratch_give(self, replay.scratch);
    uint64_t replayed_ns = rt_now_ns();
    if (status == PANDO_OK)
        status = dex_flush_co(self, NULL);
    if (status != PANDO_OK) { /* repeated many times a second while a memory node is away */
        log_debug("cannot replay a dead owner's log; will try", log_u64("table", self->table->id),
                  log_status("status", status));
        return status;
    }
    log_info("replayed a dead owner's log", log_u64("table", self->table->id),
             log_u64("kept", kept), log_u64("records", replay.records),
             log_u64("applied", replay.applied),
             log_u64("replay_ms", (replayed_ns - begin_ns) / RT_NS_PER_MS),
             log_u64("flush_ms", (rt_now_ns() - replayed_ns) / RT_NS_PER_MS));
    return PANDO_OK;
}

/* ---- getting --------------------------------------------------------------------------------- */

/* The root is cached for good: when it is a leaf, it is current only for its owner. */
static enum pando_status refresh_root_co(struct dex *self, uint64_t epoch)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->frames, table->root_frame);
    struct dex_scratch *scratch = dex_scratch_take(self);
    enum pando_status status = PANDO_OK;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    frame_latch_co(frame);
    if (!frame->dirty) {
        status = dex_read_co(self, frame->address, scratch->page);
        if (status == PANDO_OK) {
            dex_replace_co(self, table->root_frame, scratch->page);
            frame->epoch = epoch;
        }
    }
    frame_give(frame, true);
    dex_scratch_give(self, scratch);
    return status == PANDO_STALE ? PANDO_CORRUPT : status;
}

bool dex_log_named(const struct dex_table *table, const struct map *map)
{
    bool named = false;
    for (uint32_t i = 0; i < map->count; i++)
        named = named || (table->log != NULL && map->parts[i].log == log_address(table) &&
                          map->parts[i].owner == dex_self(table));
    return named;
}

enum pando_status dex_adopt_co(struct dex *self, struct map *map)
{
    enum pando_status status = pool_partial_begin_co(self->base.session);
    if (status == PANDO_OK)
        status = refresh_root_co(self, map->epoch);
    /* Before the first record; a log that a map names and that is not kept has nothing in it. */
    if (status == PANDO_OK && dex_log_named(self->table, map))
        status = dex_log_keep_co(self->table->log, self->base.session, true);
    if (status == PANDO_OK)
        dex_publish_co(self, map);
    else
        free(map);
    return status;
}

/* Parts that others gave us have no log of ours yet; without, they are not to be worked on. False: there
 * were none. */
static bool name_log(const struct dex *self, struct map *map, uint64_t epoch)
{
    bool any = false;
    for (uint32_t i = 0; i < map->count; i++) {
        struct map_part *part = &map->parts[i];
        if (part->owner != dex_self(self->table) || part->log == log_address(self->table))
            continue;
        set_log(self->table, part);
        part->epoch = epoch;
        any = true;
    }
    return any;
}

enum pando_status dex_swap_co(struct dex *self, struct map *from, struct map *to)
{
    struct dex_table *table = self->table;
    (void)name_log(self, to, from->epoch + 1);
    map_join(to);
    enum pando_status status = map_swap_co(self->base.session, table->slot, table->id, from, to);
    free(from);
    log_debug("changed who owns a table's keys", log_u64("table", table->id),
              log_u64("member", pool_identity(table->pool).member), log_u64("epoch", to->epoch),
              log_status("status", status));
    if (status == PANDO_OK)
        return dex_adopt_co(self, to);
    free(to);
    return status == PANDO_STALE || status == PANDO_UNKNOWN ? PANDO_AGAIN : status;
}

/* Everything of `from` (0: of nobody) becomes ours, or ours to take over. */
static enum pando_status take_parts_co(struct dex *self, struct map *map, uint64_t from, bool over)
{
    struct dex_table *table = self->table;
    struct map *next = map_copy(map);
    if (next == NULL) {
        free(map);
        return PANDO_NO_MEMORY;
    }
    for (uint32_t i = 0; i < next->count; i++) {
        struct map_part *part = &next->parts[i];
        if (part->owner != from)
            continue;
        part->taker = over ? dex_self(table) : 0;
        if (!over) {
            part->owner = dex_self(table);
            set_log(table, part);
        }
        part->epoch = map->epoch + 1;
    }
    return dex_swap_co(self, map, next);
}

/* All that it had is in the pages: whoever finds it named by the map now finds it not kept. (Freed after
 * the map has changed, it would be lost if we died in between.) */
static enum pando_status free_log_co(struct dex *self, fabric_address log, uint64_t version)
{
    bool kept = false;
    enum pando_status status = PANDO_OK;
    if (log != 0)
        status = dex_log_kept_co(self->base.session, self->table->id, log, version, &kept);
    if (status == PANDO_OK && kept)
        status = dex_log_free_co(self->base.session, self->table->id, log);
    return status;
}

static bool owns_any(const struct dex_table *table, const struct map *map)
{
    bool any = false;
    for (uint32_t i = 0; i < map->count; i++)
        any = any || map->parts[i].owner == dex_self(table);
    return any;
}

/* Makes a map that was read the view. Consumes it. */
static enum pando_status accept_co(struct dex *self, struct map *map)
{
    /* It is already: then nobody has to wait for those who are at work. */
    if (map->epoch == dex_epoch(self->table)) {
        free(map);
        return PANDO_OK;
    }
    /* Who owns nothing needs no log: in a pool that is full one can still ask others. */
    enum pando_status status = owns_any(self->table, map) ? log_ensure_co(self) : PANDO_OK;
    struct map *next = status == PANDO_OK ? map_copy(map) : NULL;
    if (next == NULL) {
        free(map);
        return status == PANDO_OK ? PANDO_NO_MEMORY : status;
    }
    if (name_log(self, next, map->epoch + 1))
        return dex_swap_co(self, map, next);
    free(next);
    return dex_adopt_co(self, map);
}

/* Consumes the map. The part's owner is gone. */
static enum pando_status take_over_co(struct dex *self, struct map *map,
                                      const struct map_part *part)
{
    struct dex_table *table = self->table;
    uint64_t dead = part->owner, taker = part->taker;
    fabric_address log = 0;
    uint64_t version = 0;
    bool gone = true;
    enum pando_status status = PANDO_OK;

    /* It had one log, but parts that it had just been given do not name it. */
    for (uint32_t i = 0; i < map->count; i++) {
        if (map->parts[i].owner == dead && map->parts[i].log != 0) {
            log = map->parts[i].log;
            version = map->parts[i].log_version;
        }
    }
    if (taker != 0 && taker != dex_self(table))
        status = dex_gone_co(self, taker, &gone);
    if (status != PANDO_OK || !gone) {
        free(map);
        return status == PANDO_OK ? PANDO_AGAIN : status;
    }
    /* If the map says already that we do, the view may not: what follows the map's CAS may have failed. A
     * replay goes by the view, and would take every record for another's. */
    status = taker != dex_self(table) ? take_parts_co(self, map, dead, true) : accept_co(self, map);
    if (status != PANDO_OK)
        return status;
    dex_count(&table->stats.takeovers);
    status = replay_co(self, log, version);
    if (status == PANDO_OK)
        status = free_log_co(self, log, version);
    if (status == PANDO_OK)
        status = map_read_co(self->base.session, table->slot, table->id, &map);
    return status == PANDO_OK ? take_parts_co(self, map, dead, false) : status;
}

static enum pando_status claim_fresh_co(struct dex *self, struct slice key, uint64_t *owner)
{
    struct dex_table *table = self->table;
    uint64_t me = dex_self(table);
    struct map *map;
    bool gone = false;

    enum pando_status status = map_read_co(self->base.session, table->slot, table->id, &map);
    if (status != PANDO_OK)
        return status;
    const struct map_part *part = map_find(map, key);
    *owner = part->owner;
    if (part->owner == me)
        return accept_co(self, map);
    if (part->owner != 0)
        status = dex_gone_co(self, part->owner, &gone);
    if (status == PANDO_OK && (gone || part->owner == 0))
        status = log_ensure_co(self);
    if (status != PANDO_OK) {
        free(map);
        return status;
    }
    if (part->owner == 0)
        return take_parts_co(self, map, 0, false);
    if (gone)
        return take_over_co(self, map, part);
    atomic_store(&table->doubt, false);
    return accept_co(self, map);
}

enum pando_status dex_claim_co(struct dex *self, struct slice key, uint64_t *owner)
{
    struct dex_table *table = self->table;
    struct dex_guard guard;

    if (pool_fenced(table->pool))
        return PANDO_FENCED;
    dex_enter(self, key, &guard);
    *owner = guard.part->owner;
    bool frozen = guard.part->frozen;
    uint64_t epoch = guard.map->epoch;
    dex_leave(self, &guard);
    if (frozen)
        return PANDO_AGAIN;
    if (*owner == dex_self(table) || (*owner != 0 && !atomic_load(&table->doubt)))
        return PANDO_OK;
    dex_change_begin_co(table);
    /* Many wait for the same news: whoever comes second has them. */
    enum pando_status status =
        epoch == dex_epoch(table) ? claim_fresh_co(self, key, owner) : PANDO_OK;
    dex_change_end(table);
    /* Whatever it was, it is decided by what the view says now. */
    if (status == PANDO_OK) {
        dex_enter(self, key, &guard);
        *owner = guard.part->owner;
        dex_leave(self, &guard);
    }
    return status == PANDO_BROKEN || status == PANDO_TIMEOUT ? PANDO_AGAIN : status;
}
