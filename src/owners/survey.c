/*
 * survey.c - asking all members which of them have a table open, and how much each had to do lately.
 *
 * A few tasks ask one member after the other, so that one that does not answer keeps the others from nothing, and
 * whoever began it need not wait for all. They hold the session and use nothing of the table's: it may be closed
 * meanwhile.
 */
#include <stdlib.h>

#include "owners/call_fmt.h"
#include "owners/owners_int.h"

enum { ASKERS = 16 };

struct asked {
    struct fabric_identity member;
    uint64_t load;
    atomic_bool answered; /* it has the table open, and this is its load */
};

struct owners_survey {
    struct pool_session *session;
    uint16_t table;
    _Atomic unsigned users;  /* the asking tasks, and whoever began it: the last one frees it */
    _Atomic unsigned asking; /* tasks */
    atomic_bool released;    /* by whoever began it */
    struct rt_waitq done;
    unsigned next, count; /* the tasks' */
    struct asked asked[];
};

static void give_back(struct owners_survey *survey)
{
    if (atomic_fetch_sub(&survey->users, 1) == 1)
        free(survey);
}

void owners_survey_release(struct owners_survey *survey)
{
    if (survey == NULL)
        return;
    atomic_store(&survey->released, true);
    give_back(survey);
}

static void ask_co(const struct owners_survey *survey, struct asked *asked)
{
    uint64_t load;
    uint32_t size = 0;
    if (atomic_load(&asked->answered))
        return; /* ourselves */
    enum pando_status status =
        pool_call_co(survey->session, asked->member, survey->table, OWNERS_CALL_PING,
                     slice_of(NULL, 0), &load, sizeof(load), &size);
    if (status != PANDO_OK || size != sizeof(load))
        return;
    asked->load = load;
    atomic_store(&asked->answered, true);
}

static void asker_task(void *arg)
{
    struct owners_survey *survey = arg;
    struct pool_session *session = survey->session;
    while (survey->next < survey->count && !atomic_load(&survey->released))
        ask_co(survey, &survey->asked[survey->next++]);
    atomic_fetch_sub(&survey->asking, 1);
    rt_waitq_wake_all(&survey->done);
    give_back(survey);
    pool_session_release(session);
}

static bool start_asker(struct owners_survey *survey)
{
    atomic_fetch_add(&survey->users, 1);
    atomic_fetch_add(&survey->asking, 1);
    pool_session_hold(survey->session);
    if (rt_spawn(rt_loop_self(), asker_task, survey) == PANDO_OK)
        return true;
    pool_session_release(survey->session);
    atomic_fetch_sub(&survey->asking, 1);
    atomic_fetch_sub(&survey->users, 1);
    return false;
}

/* Those that may be asked; and this process, which has answered. */
static void choose(struct owners_survey *survey, const struct owners *owners, bool others,
                   const struct pool_member *members, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct fabric_identity identity = {.member = members[i].member,
                                           .incarnation = members[i].beat.incarnation};
        bool us = map_member(identity) == owners_self(owners);
        if (members[i].beat.state != POOL_ALIVE ||
            (us ? others : members[i].record.location[0] == '\0'))
            continue;
        struct asked *asked = &survey->asked[survey->count++];
        asked->member = identity;
        asked->load = us ? atomic_load(&owners->load) : 0;
        atomic_init(&asked->answered, us);
    }
}

static struct owners_survey *survey_create(const struct owners_handle *self, unsigned members)
{
    struct owners_survey *survey =
        calloc(1, sizeof(*survey) + (size_t)members * sizeof(struct asked));
    if (survey == NULL)
        return NULL;
    survey->session = self->session;
    survey->table = self->owners->id;
    atomic_init(&survey->users, 1);
    rt_waitq_init(&survey->done);
    return survey;
}

enum pando_status owners_survey_start_co(struct owners_handle *self, bool others,
                                         struct owners_survey **out)
{
    unsigned found = 0;
    struct pool_member *members = malloc(POOL_MEMBERS * sizeof(*members));
    if (members == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_members_co(self->session, members, POOL_MEMBERS, &found);
    struct owners_survey *survey = status == PANDO_OK ? survey_create(self, found) : NULL;
    if (survey != NULL)
        choose(survey, self->owners, others, members, found);
    free(members);
    if (survey == NULL)
        return status == PANDO_OK ? PANDO_NO_MEMORY : status;
    unsigned askers = 0;
    while (askers < ASKERS && askers < survey->count && start_asker(survey))
        askers++;
    if (askers == 0 && survey->count > 0) {
        owners_survey_release(survey);
        return PANDO_NO_MEMORY;
    }
    *out = survey;
    return PANDO_OK;
}

bool owners_survey_done(const struct owners_survey *survey)
{
    return atomic_load(&survey->asking) == 0;
}

static bool going_on(const void *context)
{
    return !owners_survey_done(context);
}

void owners_survey_wait_co(struct owners_survey *survey)
{
    (void)rt_waitq_while_co(&survey->done, going_on, survey, RT_NEVER);
}

unsigned owners_survey_answers(const struct owners_survey *survey, uint64_t members[],
                               uint64_t loads[], unsigned capacity)
{
    unsigned count = 0;
    for (unsigned i = 0; i < survey->count && count < capacity; i++) {
        const struct asked *asked = &survey->asked[i];
        if (!atomic_load(&asked->answered))
            continue;
        members[count] = map_member(asked->member);
        loads[count++] = asked->load;
    }
    return count;
}
