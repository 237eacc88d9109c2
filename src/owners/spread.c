/*
 * spread.c - who should own what: moving some keys, and spreading all of them evenly over the
 * processes that have the table open. Only an owner gives its keys away, so it is asked to.
 */
#include <stdlib.h>
#include <string.h>

#include "owners/owners_int.h"

enum { BOUNDS_PER_MEMBER = 8 };

/* Who has the table open: those that answer, and perhaps this process. */
static enum pando_status participants_co(struct owners_handle *self, bool others,
                                         uint64_t out[OWNERS_PARTICIPANTS_MAX], unsigned *count)
{
    uint64_t loads[OWNERS_PARTICIPANTS_MAX];
    struct owners_survey *survey;
    *count = 0;
    enum pando_status status = owners_survey_start_co(self, others, &survey);
    if (status != PANDO_OK)
        return status;
    owners_survey_wait_co(survey);
    *count = owners_survey_answers(survey, out, loads, OWNERS_PARTICIPANTS_MAX);
    owners_survey_release(survey);
    return PANDO_OK;
}

/* Asks whoever owns the beginning of a range for it. */
static struct step request_range_co(struct owners_handle *self, const struct owners_range *range,
                                    uint64_t to)
{
    uint64_t owner;
    struct step step = owners_claim_co(self, range->low, &owner);
    if (!step_ok(step) || owner == to)
        return step;
    return owner == owners_self(self->owners) ? owners_give_co(self, range, to)
                                              : owners_forward_give_co(self, owner, range, to);
}

static enum pando_status request_range_until_co(struct owners_handle *self,
                                                const struct owners_range *range, uint64_t to)
{
    struct pool_retry retry = {0};
    struct step step;
    do
        step = request_range_co(self, range, to);
    while (owners_again_co(self->owners, &retry, &step));
    return step.status;
}

struct owners_range owners_rest_of_part(struct owners_handle *self, struct slice key,
                                        uint8_t high[ENGINE_KEY_MAX])
{
    struct owners_guard guard;
    struct owners_range range = {.low = key};
    struct slice end;

    owners_enter(self, key, &guard);
    range.no_high = !map_partition_high(guard.map, guard.part, &end);
    if (!range.no_high) {
        memcpy(high, end.data, end.size);
        range.high = slice_of(high, end.size);
    }
    owners_leave(self, &guard);
    return range;
}

enum pando_status owners_move_co(struct owners_handle *self, struct slice key, uint64_t choice)
{
    uint64_t members[OWNERS_PARTICIPANTS_MAX];
    uint8_t high[ENGINE_KEY_MAX];
    unsigned count;

    enum pando_status status = participants_co(self, false, members, &count);
    if (status != PANDO_OK || count == 0)
        return status;
    struct owners_range range = owners_rest_of_part(self, key, high);
    return request_range_until_co(self, &range, members[choice % count]);
}

/* ---- spreading ------------------------------------------------------------------------------- */

bool owners_bounds_add(struct owners_bounds *bounds, struct slice key)
{
    if (bounds->count == bounds->capacity) {
        size_t capacity = bounds->capacity == 0 ? 256 : bounds->capacity * 2;
        uint8_t *keys = realloc(bounds->keys, capacity * ENGINE_KEY_MAX);
        if (keys == NULL)
            return false;
        bounds->keys = keys;
        size_t *sizes = realloc(bounds->sizes, capacity * sizeof(*sizes));
        if (sizes == NULL)
            return false;
        bounds->sizes = sizes;
        bounds->capacity = capacity;
    }
    memcpy(bounds->keys + bounds->count * ENGINE_KEY_MAX, key.data, key.size);
    bounds->sizes[bounds->count++] = key.size;
    return true;
}

struct slice owners_bounds_at(const struct owners_bounds *bounds, size_t i)
{
    return slice_of(bounds->keys + i * ENGINE_KEY_MAX, bounds->sizes[i]);
}

void owners_bounds_free(struct owners_bounds *bounds)
{
    free(bounds->keys);
    free(bounds->sizes);
}

enum pando_status owners_spread_co(struct owners_handle *self, bool others, unsigned *processes)
{
    struct owners *owners = self->owners;
    struct owners_bounds bounds = {0};
    uint64_t members[OWNERS_PARTICIPANTS_MAX];
    uint8_t low[ENGINE_KEY_MAX];
    unsigned count = 0;

    enum pando_status status = participants_co(self, others, members, &count);
    *processes = status == PANDO_OK ? count : 0;
    if (*processes == 0)
        return status;
    /* As finely as it takes. */
    status = owners->engine->bounds_co(self, (size_t)count * BOUNDS_PER_MEMBER, true, &bounds);
    for (unsigned i = 0; i < count && status == PANDO_OK && bounds.count >= count; i++) {
        size_t next = bounds.count * (i + 1) / count;
        struct owners_range range = {.low = owners_bounds_at(&bounds, bounds.count * i / count),
                                     .no_high = i + 1 == count};
        if (!range.no_high)
            range.high = owners_bounds_at(&bounds, next);
        /* It may have several owners. */
        for (int parts = 0; parts < MAP_PARTITIONS_MAX && status == PANDO_OK; parts++) {
            uint8_t high[ENGINE_KEY_MAX];
            struct owners_range piece = owners_rest_of_part(self, range.low, high);
            bool last =
                piece.no_high || (!range.no_high && slice_compare(piece.high, range.high) >= 0);
            struct owners_range wanted = piece;
            if (!range.no_high && last) {
                wanted.high = range.high;
                wanted.no_high = false;
            }
            status = request_range_until_co(self, &wanted, members[i]);
            if (last)
                break;
            memcpy(low, piece.high.data, piece.high.size);
            range.low = slice_of(low, piece.high.size);
        }
    }
    owners_bounds_free(&bounds);
    return status;
}
