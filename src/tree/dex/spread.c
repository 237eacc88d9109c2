/*
 * spread.c - who should own what: moving some keys, and spreading all of them evenly over the
 * processes that have the table open. Only an owner gives its keys away, so it is asked to.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tree/dex/call_fmt.h"
#include "tree/dex/dex_int.h"

enum { MEMBERS_MAX = 64, BOUNDS_PER_MEMBER = 8 };

/* Who has the table open: those that answer, and perhaps this process; and how much each had to do
 * lately. */
static enum pando_status participants_co(struct dex *self, bool others, uint64_t out[MEMBERS_MAX],
                                         uint64_t loads[MEMBERS_MAX], unsigned *count)
{
    struct dex_table *table = self->table;
    unsigned found = 0;
    struct pool_member *members = malloc(POOL_MEMBERS * sizeof(*members));
    if (members == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_members_co(self->base.session, members, POOL_MEMBERS, &found);
    *count = 0;
    for (unsigned i = 0; i < found && status == PANDO_OK && *count < MEMBERS_MAX; i++) {
        struct fabric_identity identity = {.member = members[i].member,
                                           .incarnation = members[i].beat.incarnation};
        uint32_t size = 0;
        uint64_t load = atomic_load(&table->load);
        bool us = map_member(identity) == dex_self(table);
        if (members[i].beat.state != POOL_ALIVE)
            continue;
        if (us ? others
               : pool_call_co(self->base.session, identity, table->id, DEX_CALL_PING,
                              slice_of(NULL, 0), &load, sizeof(load), &size) != PANDO_OK ||
                     size != sizeof(load))
            continue;
        loads[*count] = load;
        out[(*count)++] = map_member(identity);
    }
    free(members);
    return status;
}

/* Asks whoever owns the beginning of a range for it. AGAIN: ask again. */
static enum pando_status ask_co(struct dex *self, const struct dex_range *range, uint64_t to)
{
    uint64_t owner;
    enum pando_status status = dex_claim_co(self, range->low, &owner);
    if (status != PANDO_OK || owner == to)
        return status;
    return owner == dex_self(self->table) ? dex_give_co(self, range, to)
                                          : dex_forward_give_co(self, owner, range, to);
}

static enum pando_status ask_until_co(struct dex *self, const struct dex_range *range, uint64_t to)
{
    struct pool_retry retry = {0};
    enum pando_status status;
    while ((status = ask_co(self, range, to)) == PANDO_AGAIN) {
        status = dex_retry_co(self, &retry);
        if (status != PANDO_OK)
            break;
    }
    return status;
}

/* Where the part with a key ends. */
static struct dex_range rest_of_part(struct dex *self, struct slice key,
                                     uint8_t high[PAGE_KEY_ROOM])
{
    struct dex_guard guard;
    struct dex_range range = {.low = key};
    struct slice end;

    dex_enter(self, key, &guard);
    range.no_high = !map_part_high(guard.map, guard.part, &end);
    if (!range.no_high) {
        memcpy(high, end.data, end.size);
        range.high = slice_of(high, end.size);
    }
    dex_leave(self, &guard);
    return range;
}

enum pando_status dex_move_co(struct engine *engine, struct slice key, uint64_t choice)
{
    struct dex *self = dex_of(engine);
    uint64_t members[MEMBERS_MAX], loads[MEMBERS_MAX];
    uint8_t high[PAGE_KEY_ROOM];
    unsigned count;

    enum pando_status status = participants_co(self, false, members, loads, &count);
    if (status != PANDO_OK || count == 0)
        return status;
    struct dex_range range = rest_of_part(self, key, high);
    return ask_until_co(self, &range, members[choice % count]);
}

/* ---- spreading ------------------------------------------------------------------------------- */

/* Keys where pages begin, in order. */
struct bounds {
    uint8_t *keys; /* PAGE_KEY_ROOM each */
    size_t *sizes;
    size_t count, capacity;
};

static bool bounds_add(struct bounds *bounds, struct slice key)
{
    if (bounds->count == bounds->capacity) {
        size_t capacity = bounds->capacity == 0 ? 256 : bounds->capacity * 2;
        uint8_t *keys = realloc(bounds->keys, capacity * PAGE_KEY_ROOM);
        if (keys == NULL)
            return false;
        bounds->keys = keys;
        size_t *sizes = realloc(bounds->sizes, capacity * sizeof(*sizes));
        if (sizes == NULL)
            return false;
        bounds->sizes = sizes;
        bounds->capacity = capacity;
    }
    memcpy(bounds->keys + bounds->count * PAGE_KEY_ROOM, key.data, key.size);
    bounds->sizes[bounds->count++] = key.size;
    return true;
}

static struct slice bounds_at(const struct bounds *bounds, size_t i)
{
    return slice_of(bounds->keys + i * PAGE_KEY_ROOM, bounds->sizes[i]);
}

/* The keys that begin the children of all pages of a level, as the pool has them. */
static enum pando_status collect_co(struct dex *self, fabric_address address, uint8_t level,
                                    struct bounds *bounds)
{
    const struct page_layout *layout = &self->table->layout;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_read_co(self, address, scratch->page);

    if (status == PANDO_STALE)
        status = PANDO_OK; /* merged away meanwhile: a bound less */
    else if (status == PANDO_OK && page_level(scratch->page) > 0) {
        for (uint32_t i = 0; i < page_pairs(scratch->page) && status == PANDO_OK; i++) {
            if (page_level(scratch->page) > level)
                status = collect_co(self, page_child(layout, scratch->page, i), level, bounds);
            else if (!bounds_add(bounds, page_key(layout, scratch->page, i, scratch->key)))
                status = PANDO_NO_MEMORY;
        }
    }
    dex_scratch_give(self, scratch);
    return status;
}

enum pando_status dex_spread_co(struct engine *engine, bool others, unsigned *processes)
{
    struct dex *self = dex_of(engine);
    struct dex_table *table = self->table;
    struct bounds bounds = {0};
    uint64_t members[MEMBERS_MAX], loads[MEMBERS_MAX];
    unsigned count = 0;

    enum pando_status status = participants_co(self, others, members, loads, &count);
    *processes = status == PANDO_OK ? count : 0;
    if (*processes == 0)
        return status;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    if (status == PANDO_OK)
        status = dex_read_co(self, table->root, scratch->page);
    /* As deep as it takes to cut finely enough. */
    for (int level = status == PANDO_OK ? page_level(scratch->page) : 0;
         level > 0 && status == PANDO_OK && bounds.count < (size_t)count * BOUNDS_PER_MEMBER;
         level--) {
        bounds.count = 0;
        status = collect_co(self, table->root, (uint8_t)level, &bounds);
    }
    for (unsigned i = 0; i < count && status == PANDO_OK && bounds.count >= count; i++) {
        size_t next = bounds.count * (i + 1) / count;
        struct dex_range range = {.low = bounds_at(&bounds, bounds.count * i / count),
                                  .no_high = i + 1 == count};
        if (!range.no_high)
            range.high = bounds_at(&bounds, next);
        /* It may have several owners. */
        for (int parts = 0; parts < MAP_PARTS_MAX && status == PANDO_OK; parts++) {
            uint8_t high[PAGE_KEY_ROOM];
            struct dex_range piece = rest_of_part(self, range.low, high);
            bool last =
                piece.no_high || (!range.no_high && slice_compare(piece.high, range.high) >= 0);
            struct dex_range wanted = piece;
            if (!range.no_high && last) {
                wanted.high = range.high;
                wanted.no_high = false;
            }
            status = ask_until_co(self, &wanted, members[i]);
            if (last)
                break;
            memcpy(scratch->key2, piece.high.data, piece.high.size);
            range.low = slice_of(scratch->key2, piece.high.size);
        }
    }
    dex_scratch_give(self, scratch);
    free(bounds.keys);
    free(bounds.sizes);
    return status;
}

/* ---- balance --------------------------------------------------------------------------------- */

/* The key in the middle of the pages of this process; false: there is none to cut at. */
static bool middle_co(struct dex *self, uint8_t key[PAGE_KEY_ROOM], size_t *size)
{
    struct dex_table *table = self->table;
    struct bounds bounds = {0};
    size_t mine = 0, seen = 0;
    struct dex_guard guard;
    uint8_t level = page_level(frame_bytes(&table->frames, table->root_frame));

    for (; level > 0 && bounds.count < BOUNDS_PER_MEMBER * 4; level--) {
        bounds.count = 0;
        if (collect_co(self, table->root, level, &bounds) != PANDO_OK)
            break;
    }
    dex_enter(self, slice_of(NULL, 0), &guard);
    for (size_t i = 0; i < bounds.count; i++)
        mine += dex_mine(table, map_find(guard.map, bounds_at(&bounds, i)));
    *size = 0;
    for (size_t i = 0; i < bounds.count && mine > 1; i++) {
        struct slice bound = bounds_at(&bounds, i);
        if (!dex_mine(table, map_find(guard.map, bound)) || seen++ < mine / 2)
            continue;
        memcpy(key, bound.data, bound.size);
        *size = bound.size;
        break;
    }
    dex_leave(self, &guard);
    free(bounds.keys);
    free(bounds.sizes);
    return *size > 0;
}

void dex_balance_co(struct dex *self)
{
    enum { BUSY_OPERATIONS = 10000, OVER_NUMERATOR = 3, OVER_DENOMINATOR = 2 };
    uint64_t members[MEMBERS_MAX], loads[MEMBERS_MAX], sum = 0;
    uint64_t mine = atomic_load(&self->table->load);
    unsigned count = 0, least = 0;
    uint8_t key[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    size_t size;

    /* With little to do it does not matter who does it. */
    if (mine < BUSY_OPERATIONS || participants_co(self, false, members, loads, &count) != PANDO_OK)
        return;
    for (unsigned i = 0; i < count; i++) {
        sum += loads[i];
        least = loads[i] < loads[least] ? i : least;
    }
    if (count < 2 || mine * count * OVER_DENOMINATOR <= sum * OVER_NUMERATOR ||
        !middle_co(self, key, &size))
        return;
    struct dex_range range = rest_of_part(self, slice_of(key, size), high);
    enum pando_status status = dex_give_co(self, &range, members[least]);
    log_info("gave keys to a process with less to do", log_u64("table", self->table->id),
             log_u64("to", map_identity(members[least]).member), log_status("status", status));
}
