/*
 * join.c - several processes in one run. They meet through names in the pool's
 * directory: process i holds "TABLE.i"; the first that comes is 0, loads the table and makes
 * "TABLE.loaded"; all begin when that and the last name are there. Where they wait for each other
 * later, each makes another name. The first takes all of them away when all are done.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench_int.h"

static const uint64_t POLL_NS = 20 * RT_NS_PER_MS;
static const uint64_t PATIENCE_NS = 600 * RT_NS_PER_S;

static void name_of(const struct bench_run *run, unsigned process, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s.%u", run->plan->table, process);
}

static void meeting_name(const struct bench_run *run, enum bench_meeting meeting, unsigned process,
                         char *out, size_t out_bytes)
{
    static const char *const names[BENCH_MEETINGS] = {
        [BENCH_OPENED] = "opened", [BENCH_SPREAD] = "spread", [BENCH_DONE] = "done"};
    snprintf(out, out_bytes, "%s.%s.%u", run->plan->table, names[meeting], process);
}

bool bench_join_claim_co(struct bench_run *run, struct pool_session *session)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    if (run->plan->processes == 1)
        return true;
    for (unsigned i = 0; i < run->plan->processes; i++) {
        struct pool_table_options options = {.name = name, .engine = "bench", .key_max = 8};
        struct pool_entry entry;
        unsigned slot;
        name_of(run, i, name, sizeof(name));
        enum pando_status status = pool_table_create_co(session, &options, &slot, &entry);
        if (status == PANDO_OK) {
            run->process = i;
            return true;
        }
        if (status != PANDO_EXISTS) {
            bench_fail(run, "%s: %s", name, pando_status_text(status));
            return false;
        }
    }
    bench_fail(run,
               "--processes %u: as many have joined already, or an earlier run left its names; "
               "choose another --table",
               run->plan->processes);
    return false;
}

static bool name_present_co(struct pool_session *session, const char *name)
{
    struct pool_entry entry;
    unsigned slot;
    return pool_table_open_co(session, name, &slot, &entry) == PANDO_OK;
}

static bool present_co(struct bench_run *run, struct pool_session *session, unsigned process)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    name_of(run, process, name, sizeof(name));
    return name_present_co(session, name);
}

void bench_join_loaded_co(struct bench_run *run, struct pool_session *session)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    struct pool_table_options options = {.name = name, .engine = "bench", .key_max = 8};
    struct pool_entry entry;
    unsigned slot;
    if (run->plan->processes == 1)
        return;
    snprintf(name, sizeof(name), "%s.loaded", run->plan->table);
    enum pando_status status = pool_table_create_co(session, &options, &slot, &entry);
    if (status != PANDO_OK)
        bench_fail(run, "%s: %s", name, pando_status_text(status));
}

bool bench_join_wait_co(struct bench_run *run, struct pool_session *session)
{
    char loaded[BENCH_TABLE_NAME_MAX + 16];
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_NS;
    if (run->plan->processes == 1)
        return true;
    snprintf(loaded, sizeof(loaded), "%s.loaded", run->plan->table);
    while (!present_co(run, session, run->plan->processes - 1) ||
           !name_present_co(session, loaded)) {
        if (rt_now_ns() > deadline_ns) {
            bench_fail(run, "--processes %u: the others did not come", run->plan->processes);
            return false;
        }
        rt_sleep_co(POLL_NS);
    }
    return true;
}

/* Says that this process has come so far. */
static bool name_make_co(struct bench_run *run, struct pool_session *session,
                         enum bench_meeting meeting)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    struct pool_table_options options = {.name = name, .engine = "bench", .key_max = 8};
    struct pool_entry entry;
    unsigned slot;

    meeting_name(run, meeting, run->process, name, sizeof(name));
    enum pando_status status = pool_table_create_co(session, &options, &slot, &entry);
    if (status != PANDO_OK)
        bench_fail(run, "%s: %s", name, pando_status_text(status));
    return status == PANDO_OK;
}

bool bench_join_meet_co(struct bench_run *run, struct pool_session *session,
                        enum bench_meeting meeting)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_NS;

    if (run->plan->processes == 1)
        return true;
    if (!name_make_co(run, session, meeting))
        return false;
    for (unsigned i = 0; i < run->plan->processes; i++) {
        meeting_name(run, meeting, i, name, sizeof(name));
        while (!name_present_co(session, name)) {
            if (rt_now_ns() > deadline_ns || bench_failed(run)) {
                bench_fail(run, "--processes %u: process %u did not come", run->plan->processes, i);
                return false;
            }
            rt_sleep_co(POLL_NS);
        }
    }
    return true;
}

/* All of a process's names; some meetings may not have taken place. */
static void forget_co(struct bench_run *run, struct pool_session *session, unsigned process)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    enum pando_status status;
    for (int i = 0; i < BENCH_MEETINGS; i++) {
        meeting_name(run, (enum bench_meeting)i, process, name, sizeof(name));
        status = pool_table_drop_co(session, name);
        (void)status;
    }
    name_of(run, process, name, sizeof(name));
    status = pool_table_drop_co(session, name);
    (void)status;
}

/* Nobody takes away a name that another may still be waiting for: the others only say that they are
 * done, and the first takes all names away when all have said so. */
void bench_join_leave_co(struct bench_run *run, struct pool_session *session)
{
    char name[BENCH_TABLE_NAME_MAX + 16];
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_NS;
    if (run->plan->processes == 1)
        return;
    if (run->process != 0) {
        (void)name_make_co(run, session, BENCH_DONE);
        return;
    }
    for (unsigned i = 1; i < run->plan->processes; i++) {
        meeting_name(run, BENCH_DONE, i, name, sizeof(name));
        while (present_co(run, session, i) && !name_present_co(session, name) &&
               rt_now_ns() < deadline_ns)
            rt_sleep_co(POLL_NS);
    }
    for (unsigned i = 0; i < run->plan->processes; i++)
        forget_co(run, session, i);
    snprintf(name, sizeof(name), "%s.loaded", run->plan->table);
    enum pando_status status = pool_table_drop_co(session, name);
    (void)status; /* not there if the load failed */
}
