/*
 * give.c - giving keys away: an owner stops working on them, writes back what it changed, and changes
 * the map. The others notice nothing; who asks for these keys waits that long.
 */
#include <stdlib.h>
#include <string.h>

#include "owners/call_fmt.h"
#include "owners/owners_int.h"

enum { GIVE_TRIES = 8 };

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Leaves have one owner: keys are given from where a leaf begins to where one does. */

static bool leaf_is_ours(struct owners_handle *self, struct slice key)
{
    const struct map *map = atomic_load_explicit(&self->owners->map, memory_order_acquire);
    return map_find(map, key)->owner == owners_self(self->owners);
}

/* Moves a bound to the end of the leaf of ours that it is in. *none: that is the end of all keys. */
static enum pando_status align_co(struct owners_handle *self, struct slice *bound, bool *none,
                                  uint8_t to[ENGINE_KEY_MAX])
{
    if (*none || bound->size == 0 || !leaf_is_ours(self, *bound))
        return PANDO_OK;
    return self->owners->engine->align_co(self, bound, none, to);
}

/* STALE: no leaf begins there any more. */
static enum pando_status check_bound_co(struct owners_handle *self, struct slice bound)
{
    if (bound.size == 0 || !leaf_is_ours(self, bound))
        return PANDO_OK;
    return self->owners->engine->check_bound_co(self, bound);
}

/* ---- stopping -------------------------------------------------------------------------------- */

/* A copy of the view in which what is ours of a range has that owner, and is stopped or not. */
static struct map *view_with(struct owners_handle *self, const struct owners_range *range,
                             uint64_t owner, bool frozen, bool *any)
{
    const struct owners *owners = self->owners;
    struct map *map = map_copy(atomic_load_explicit(&owners->map, memory_order_acquire));
    *any = false;
    if (map == NULL)
        return NULL;
    if (map_cut(map, range->low) != PANDO_OK ||
        (!range->no_high && map_cut(map, range->high) != PANDO_OK)) {
        free(map);
        return NULL;
    }
    for (uint32_t i = 0; i < map->count; i++) {
        struct map_partition *part = &map->parts[i];
        if (part->owner != owners_self(owners) || !owners_range_has(range, part->low))
            continue;
        if (owner != part->owner)
            part->log = part->log_version = 0;
        part->owner = owner;
        part->frozen = frozen;
        *any = true;
    }
    map_join(map);
    return map;
}

/* If it fails, *unsure says whether the map in the pool may have changed all the same. */
static enum pando_status give_in_pool_co(struct owners_handle *self,
                                         const struct owners_range *range, uint64_t to,
                                         bool *unsure)
{
    struct owners *owners = self->owners;
    struct pool_retry retry = {0};
    struct step step;

    do {
        struct map *map, *next;
        step = step_of(map_read_co(self->session, owners->slot, owners->id, &map));
        if (step_ok(step)) {
            next = map_copy(map);
            if (next == NULL || map_cut(next, range->low) != PANDO_OK ||
                (!range->no_high && map_cut(next, range->high) != PANDO_OK)) {
                free(map);
                free(next);
                return PANDO_FULL;
            }
            for (uint32_t i = 0; i < next->count; i++) {
                struct map_partition *part = &next->parts[i];
                if (part->owner != owners_self(owners) || !owners_range_has(range, part->low))
                    continue;
                part->owner = to;
                part->log = part->log_version = 0;
                part->epoch = map->epoch + 1;
            }
            /* All that the log has of these keys is in their pages. If there are no others, it is not
             * needed any more, and after the change nobody would know of it. */
            if (owners->engine->log(owners).address != 0 && !owners_log_named(owners, next))
                step = step_of(owners->engine->retain_log_co(self, false));
            if (step_ok(step)) {
                step = owners_map_replace_co(self, map, next);
                *unsure = *unsure || (step.status != PANDO_FULL && step.status != PANDO_NO_MEMORY);
            } else {
                free(map);
                free(next);
            }
        }
        if (step.status == PANDO_BROKEN || step.status == PANDO_TIMEOUT)
            step = step_to(STEP_RESTART);
    } while (owners_again_co(owners, &retry, &step));
    return step.status;
}

/* Reads in the pool whether the keys that are stopped here were given away. One CAS gives all of
 * them, and nobody but its owner changes the owner or the epoch of a partition. They may even be
 * ours again, given back: then the epoch is another. */
static enum pando_status given_co(struct owners_handle *self, bool *given)
{
    const struct owners *owners = self->owners;
    const struct map *view = atomic_load_explicit(&owners->map, memory_order_acquire);
    struct pool_retry retry = {0};
    struct map *map;
    enum pando_status status;

    do {
        status = map_read_co(self->session, owners->slot, owners->id, &map);
    } while ((status == PANDO_BROKEN || status == PANDO_TIMEOUT || status == PANDO_NO_MEMORY) &&
             owners_retry_co(self->owners, &retry) == PANDO_OK);
    if (status != PANDO_OK)
        return status;
    *given = false;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct map_partition *part = &view->parts[i], *now = map_find(map, part->low);
        *given =
            *given || (part->frozen && (now->owner != part->owner || now->epoch != part->epoch));
    }
    free(map);
    return PANDO_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum pando_status give_frozen_co(struct owners_handle *self,
                                        const struct owners_range *range, uint64_t to, bool *unsure)
{
    /* Since nobody works on these keys, no leaf grows over their ends any more. */
    enum pando_status status = check_bound_co(self, range->low);
    if (status == PANDO_OK && !range->no_high)
        status = check_bound_co(self, range->high);
    if (status == PANDO_OK)
        status = self->owners->engine->drop_co(self, range);
    return status == PANDO_OK ? give_in_pool_co(self, range, to, unsure) : status;
}

/* Ends a giving that failed with that status. If `unsure`, the CAS may have given the keys away before
 * something else failed; then this member must not work on them. OK: they were given away. */
static enum pando_status resolve_give_co(struct owners_handle *self,
                                         const struct owners_range *range, uint64_t to, bool unsure,
                                         enum pando_status status)
{
    struct owners *owners = self->owners;
    struct map *view = NULL;
    struct pool_retry retry = {0};
    bool given = false, any;

    /* It is no larger than the one in force: it fails for want of memory only, which may pass. */
    if (!unsure || given_co(self, &given) == PANDO_OK) {
        do
            view = view_with(self, range, given ? to : owners_self(owners), false, &any);
        while (view == NULL && owners_retry_co(owners, &retry) == PANDO_OK);
    }
    if (view != NULL && (!owners_log_named(owners, view) ||
                         owners->engine->retain_log_co(self, true) == PANDO_OK)) {
        owners_map_publish_co(self, view);
    } else {
        free(view);
        pool_resign(owners->pool); /* these keys would stand still for ever */
    }
    return given ? PANDO_OK : status;
}

static enum pando_status give_once_co(struct owners_handle *self, const struct owners_range *wanted,
                                      uint64_t to)
{
    struct owners_range range = *wanted;
    uint8_t low[ENGINE_KEY_MAX], high[ENGINE_KEY_MAX];
    bool empty = false, any;

    enum pando_status status = align_co(self, &range.low, &empty, low);
    if (status == PANDO_OK)
        status = align_co(self, &range.high, &range.no_high, high);
    if (status != PANDO_OK || empty ||
        (!range.no_high && slice_compare(range.low, range.high) >= 0))
        return status;
    if (to != 0 && to != owners_self(self->owners))
        status = self->owners->engine->can_give_co(self);
    if (status != PANDO_OK)
        return status;
    struct map *view = view_with(self, &range, owners_self(self->owners), true, &any);
    if (view == NULL || !any) {
        free(view);
        return view == NULL ? PANDO_FULL : PANDO_OK;
    }
    /* What can be written before: who asks for these keys waits from then on. */
    status = self->owners->engine->flush_co(self, &range);
    if (status != PANDO_OK) {
        free(view);
        return status;
    }
    owners_map_publish_co(self, view);
    /* Nobody reads or changes these keys here any more; when they come back they may be others. */
    self->owners->engine->stopped(self);
    bool unsure = false;
    status = give_frozen_co(self, &range, to, &unsure);
    if (status != PANDO_OK)
        status = resolve_give_co(self, &range, to, unsure, status);
    if (status == PANDO_OK)
        owners_count(&self->owners->given);
    return status;
}

/* ---- telling --------------------------------------------------------------------------------- */

/* Whoever got keys shall know it before somebody asks for them. It need not hear it, and nobody waits for that: it
 * may be one that does not answer. */
struct news {
    struct pool_session *session;
    uint64_t to;
    uint16_t table;
    size_t low_size;
    uint8_t low[ENGINE_KEY_MAX];
};

static void tell_task(void *arg)
{
    struct news *news = arg;
    struct pool_session *session = news->session;
    uint32_t size;
    enum pando_status status =
        pool_call_co(session, map_identity(news->to), news->table, OWNERS_CALL_TAKE,
                     slice_of(news->low, news->low_size), NULL, 0, &size);
    (void)status;
    free(news);
    pool_session_release(session);
}

static void tell(struct owners_handle *self, const struct owners_range *range, uint64_t to)
{
    struct news *news = malloc(sizeof(*news));
    if (news == NULL)
        return;
    *news = (struct news){
        .session = self->session, .to = to, .table = self->owners->id, .low_size = range->low.size};
    if (range->low.size > 0)
        memcpy(news->low, range->low.data, range->low.size);
    pool_session_hold(self->session);
    if (rt_spawn(rt_loop_self(), tell_task, news) == PANDO_OK)
        return;
    pool_session_release(self->session);
    free(news);
}

struct step owners_give_quietly_co(struct owners_handle *self, const struct owners_range *range,
                                   uint64_t to)
{
    struct step step = owners_change_begin_co(self->owners);
    if (!step_ok(step))
        return step;
    enum pando_status status = PANDO_STALE;
    for (int tries = 0; tries < GIVE_TRIES && status == PANDO_STALE; tries++)
        status = give_once_co(self, range, to);
    owners_change_end(self->owners);
    return step_of(status);
}

struct step owners_give_co(struct owners_handle *self, const struct owners_range *range,
                           uint64_t to)
{
    struct step step = owners_give_quietly_co(self, range, to);
    if (step_ok(step) && to != 0 && to != owners_self(self->owners))
        tell(self, range, to);
    return step;
}
