/*
 * balance.c - giving keys to a process that has less to do. The others are asked how much that is by tasks of
 * their own (survey.c), and a later round decides with what has been answered: maintenance never waits for
 * another member.
 */
#include <string.h>

#include "base/log.h"
#include "owners/owners_int.h"

enum {
    BUSY_OPERATIONS = 10000, /* in a lease: with less to do it does not matter who does it */
    OVER_NUMERATOR = 3,
    OVER_DENOMINATOR = 2,
    BOUNDS = 32,
};

/* The key in the middle of the pages of this process; false: there is none to cut at. */
static bool middle_co(struct owners_handle *self, uint8_t key[ENGINE_KEY_MAX], size_t *size)
{
    struct owners *owners = self->owners;
    struct owners_bounds bounds = {0};
    size_t mine = 0, seen = 0;
    struct owners_guard guard;
    enum pando_status status = owners->engine->bounds_co(self, BOUNDS, false, &bounds);
    (void)status; /* what there is will do */

    owners_enter(self, slice_of(NULL, 0), &guard);
    for (size_t i = 0; i < bounds.count; i++)
        mine += owners_mine(owners, map_find(guard.map, owners_bounds_at(&bounds, i)));
    *size = 0;
    for (size_t i = 0; i < bounds.count && mine > 1; i++) {
        struct slice bound = owners_bounds_at(&bounds, i);
        if (!owners_mine(owners, map_find(guard.map, bound)) || seen++ < mine / 2)
            continue;
        memcpy(key, bound.data, bound.size);
        *size = bound.size;
        break;
    }
    owners_leave(self, &guard);
    owners_bounds_free(&bounds);
    return *size > 0;
}

/* Whoever has not answered is given nothing. */
static void decide_co(struct owners_handle *self, const struct owners_survey *survey)
{
    uint64_t members[OWNERS_PARTICIPANTS_MAX], loads[OWNERS_PARTICIPANTS_MAX], sum = 0;
    uint64_t mine = atomic_load(&self->owners->load);
    unsigned count = owners_survey_answers(survey, members, loads, OWNERS_PARTICIPANTS_MAX);
    unsigned least = 0;
    uint8_t key[ENGINE_KEY_MAX], high[ENGINE_KEY_MAX];
    size_t size;

    for (unsigned i = 0; i < count; i++) {
        sum += loads[i];
        least = loads[i] < loads[least] ? i : least;
    }
    if (count < 2 || members[least] == owners_self(self->owners) || mine < BUSY_OPERATIONS ||
        mine * count * OVER_DENOMINATOR <= sum * OVER_NUMERATOR || !middle_co(self, key, &size))
        return;
    struct owners_range range = owners_rest_of_part(self, slice_of(key, size), high);
    struct step step = owners_give_co(self, &range, members[least]);
    log_info("gave keys to a process with less to do", log_u64("table", self->owners->id),
             log_u64("to", map_identity(members[least]).member),
             log_status("status", step_status(step)));
}

static void begin_co(struct owners_handle *self)
{
    struct owners *owners = self->owners;
    if (atomic_load(&owners->load) < BUSY_OPERATIONS ||
        owners_survey_start_co(self, false, &owners->survey) != PANDO_OK)
        return;
    owners->surveyed_ns = rt_now_ns();
    owners->decided = false;
}

void owners_balance_co(struct owners_handle *self, bool due)
{
    struct owners *owners = self->owners;
    if (owners->survey == NULL) {
        if (due)
            begin_co(self);
        return;
    }
    bool done = owners_survey_done(owners->survey);
    uint64_t waited_ns = rt_now_ns() - owners->surveyed_ns;
    if (!owners->decided && (done || waited_ns > pool_lease_ns(owners->pool))) {
        owners->decided = true;
        decide_co(self, owners->survey);
    }
    if (done) {
        owners_survey_release(owners->survey);
        owners->survey = NULL;
    }
}
