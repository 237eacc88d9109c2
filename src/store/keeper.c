/*
 * keeper.c - the store's background task: joins again after the process was declared dead, says which
 * dropped tables this process no longer uses, has those freed that it is to free (finish.c), and does what
 * engines need to be done now and then.
 *
 * It is the only one that joins and leaves. README.md has the protocol; pool/drop.c the part of it that
 * lies in the pool.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "store/store_int.h"

enum { ROUNDS_PER_LEASE = 4, GLANCES = 128 };

static const uint64_t SOON_NS = 5 * RT_NS_PER_MS; /* while something is waited for */
static const uint64_t JOIN_PAUSE_NS = 100 * RT_NS_PER_MS;
static const uint64_t JOIN_SAY_NS = 10 * RT_NS_PER_S;

void store_keeper_wake(struct store *store)
{
    atomic_store(&store->nudged, true);
    rt_waitq_wake_all(&store->wake);
}

static bool open(const void *store)
{
    return !atomic_load(&((const struct store *)store)->closing);
}

static bool undisturbed(const void *store)
{
    return open(store) && !atomic_load(&((const struct store *)store)->nudged);
}

static void pause_co(struct store *store, uint64_t duration_ns)
{
    (void)rt_waitq_while_co(&store->wake, undisturbed, store, rt_now_ns() + duration_ns);
    (void)atomic_exchange(&store->nudged, false); /* sees what the nudge was about */
}

static bool finishing(const void *store)
{
    return ((const struct store *)store)->finishing;
}

/* ---- joining again --------------------------------------------------------------------------- */

struct leaving {
    struct store *store;
    struct store_membership *membership;
};

/* The session may have calls under way to a member that does not answer: the keeper does not wait for that. */
static void leave_task(void *arg)
{
    struct leaving *leaving = arg;
    struct store_membership *membership = leaving->membership;
    if (membership->session != NULL)
        pool_session_close_co(membership->session);
    list_remove(&membership->link);
    pool_leave_co(membership->pool);
    free(membership);
    leaving->store->leaving--;
    rt_waitq_wake_all(&leaving->store->finished);
    free(leaving);
}

static void leave_aside(struct store *store, struct store_membership *membership)
{
    struct leaving *leaving = malloc(sizeof(*leaving));
    if (leaving == NULL)
        return; /* a later pass tries again */
    *leaving = (struct leaving){store, membership};
    membership->leaving = rt_spawn(rt_loop_self(), leave_task, leaving) == PANDO_OK;
    store->leaving += membership->leaving;
    if (!membership->leaving)
        free(leaving);
}

/* Leaves former memberships that no thread has a session of any more. */
static void leave_former(struct store *store)
{
    list_for_each (link, &store->former) {
        struct store_membership *membership = container_of(link, struct store_membership, link);
        rt_latch_lock(&store->latch);
        bool empty = membership->threads == 0;
        rt_latch_unlock(&store->latch);
        if (empty && !membership->leaving)
            leave_aside(store, membership);
    }
}

static bool leaving(const void *store)
{
    return ((const struct store *)store)->leaving > 0;
}

/* When the store closes: no thread has a session any more. */
static void leave_all_co(struct store *store)
{
    for (;;) {
        leave_former(store);
        if (store->leaving == 0 && list_empty(&store->former))
            return;
        if (store->leaving == 0)
            rt_sleep_co(RT_NS_PER_MS); /* there was no memory for a task */
        (void)rt_waitq_while_co(&store->finished, leaving, store, RT_NEVER);
    }
}

static enum pando_status join_co(struct store *store, struct store_membership *membership,
                                 char *error, size_t error_bytes)
{
    enum pando_status status =
        pool_join_co(store->fabric, &store->pool_options, &membership->pool, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    status = pool_session_open_co(membership->pool, &store->session);
    if (status != PANDO_OK) {
        store->session = NULL;
        pool_leave_co(membership->pool);
    }
    return status;
}

static void rejoin_co(struct store *store)
{
    char error[512] = "out of memory";
    struct store_membership *membership = calloc(1, sizeof(*membership));
    enum pando_status status = PANDO_NO_MEMORY;

    (void)rt_waitq_while_co(&store->finished, finishing, store, RT_NEVER);
    if (store->session != NULL)
        store->membership->session = store->session;
    store->session = NULL;
    if (membership != NULL) {
        membership->number = store->membership->number + 1;
        store_lock_co(store);
        status = join_co(store, membership, error, sizeof(error));
        if (status == PANDO_OK) {
            list_push_back(&store->former, &store->membership->link);
            store->membership = membership;
            store->rounds = 0; /* begins anew: it has said nothing yet */
            atomic_store(&store->membership_number, membership->number);
        }
        store_unlock(store);
    }
    if (status == PANDO_OK) {
        log_info("joined the pool again",
                 log_u64("member", pool_identity(membership->pool).member));
        store->join_said_ns = 0;
        rt_waitq_wake_all(&store->rejoined);
        return;
    }
    free(membership);
    uint64_t now_ns = rt_now_ns();
    if (store->join_said_ns == 0 || now_ns - store->join_said_ns > JOIN_SAY_NS) {
        log_warn("cannot join the pool again; will try", log_text("why", error));
        store->join_said_ns = now_ns;
    }
    /* A nudge does not shorten this: whoever waits for the next membership nudges. */
    (void)rt_waitq_while_co(&store->wake, open, store, now_ns + JOIN_PAUSE_NS);
}

/* ---- noticing -------------------------------------------------------------------------------- */

static void note_dropped(struct store *store, struct shared_table *shared)
{
    atomic_store(&shared->dropped, true);
    rt_latch_lock(&store->latch);
    list_for_each (link, &shared->attached)
        atomic_store(&container_of(link, struct store_table, shared_link)->thread->dropped, true);
    rt_latch_unlock(&store->latch);
}

static enum pando_status glance_co(struct store *store, struct shared_table **tables,
                                   unsigned count)
{
    unsigned slots[GLANCES] = {0};
    struct pool_glance glances[GLANCES];
    for (unsigned i = 0; i < count; i++)
        slots[i] = tables[i]->slot;
    enum pando_status status = pool_table_glance_co(store->session, slots, glances, count);
    for (unsigned i = 0; i < count && status == PANDO_OK; i++) {
        if (glances[i].state != POOL_ENTRY_LIVE || glances[i].table != tables[i]->number)
            note_dropped(store, tables[i]);
    }
    return status;
}

/* Marks this process's tables that are live no more. Under the store's lock: a table that is being
 * opened now is in the list already, or its opener will read the directory after us. */
static enum pando_status mark_dropped_tables_co(struct store *store)
{
    struct shared_table *tables[GLANCES];
    enum pando_status status = PANDO_OK;
    unsigned count = 0;
    store_lock_co(store);
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (status != PANDO_OK || atomic_load(&shared->dropped))
            continue;
        tables[count++] = shared;
        if (count == GLANCES) {
            status = glance_co(store, tables, count);
            count = 0;
        }
    }
    if (status == PANDO_OK && count > 0)
        status = glance_co(store, tables, count);
    store_unlock(store);
    return status;
}

/* Whether no operation is under way on a dropped table. Partner of store_table_enter_co: it counts
 * itself in and then looks at `dropped`; here it is the other way round. */
static bool quiet(struct store *store, struct shared_table *shared)
{
    bool quiet = true;
    rt_latch_lock(&store->latch);
    list_for_each (at, &shared->attached)
        quiet &= atomic_load(&container_of(at, struct store_table, shared_link)->active) == 0;
    rt_latch_unlock(&store->latch);
    return quiet;
}

/* Lets go of dropped tables; AGAIN: some are in use. Under the store's lock: none is being closed. Those of
 * a former membership cannot be written any more. */
static enum pando_status retire_dropped_co(struct store *store)
{
    enum pando_status status = PANDO_OK;
    store_lock_co(store);
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (!atomic_load(&shared->dropped) || shared->retired)
            continue;
        enum pando_status one = PANDO_AGAIN;
        if (quiet(store, shared))
            one = shared->membership == store->membership->number
                      ? engine_retire_co(shared->engine_table, store->session)
                      : PANDO_OK;
        shared->retired = one == PANDO_OK;
        if (one != PANDO_OK)
            status = one;
    }
    store_unlock(store);
    return status;
}

static enum pando_status acknowledge_drops_co(struct store *store)
{
    uint64_t drops;
    enum pando_status status = pool_drops_co(store->session, &drops);
    if (status != PANDO_OK)
        return status;
    bool first = store->rounds++ == 0;
    if (first || drops != store->drops_looked) {
        status = mark_dropped_tables_co(store);
        if (status != PANDO_OK)
            return status;
        store->seen_due = true;
        store->retired_ns = 0;
        store->drops_looked = drops;
    }
    store_finish_round_co(store, first);
    if (!store->seen_due)
        return PANDO_OK;
    status = retire_dropped_co(store);
    if (status != PANDO_OK)
        return status;
    uint64_t now_ns = rt_now_ns();
    if (store->retired_ns == 0)
        store->retired_ns = now_ns;
    /* Not for ever: a memory node may be away. The dropper then frees what it can walk through. */
    bool settled = pool_settled(store->membership->pool, store->retired_ns);
    if (!settled && now_ns - store->retired_ns < store->lease_ns)
        return PANDO_AGAIN;
    status = pool_drops_seen_co(store->session, store->drops_looked, settled);
    store->seen_due = status != PANDO_OK;
    store->retired_ns = 0;
    return status;
}

/* ---- what tables need now and then ----------------------------------------------------------- */

static void maintain_tables_co(struct store *store)
{
    store_lock_co(store); /* none is opened or closed meanwhile */
    list_for_each (link, &store->tables) {
        struct shared_table *shared = container_of(link, struct shared_table, link);
        if (shared->membership == store->membership->number && !atomic_load(&shared->dropped))
            engine_maintain_co(shared->engine_table, store->session);
    }
    store_unlock(store);
}

/* ---- the task -------------------------------------------------------------------------------- */

static void keeper_task(void *arg)
{
    struct store *store = arg;
    uint64_t period_ns = store->lease_ns / ROUNDS_PER_LEASE;

    while (!store->closing) {
        if (store->session == NULL || pool_fenced(store->membership->pool)) {
            rejoin_co(store);
            continue;
        }
        enum pando_status status = acknowledge_drops_co(store);
        (void)status; /* an endpoint that is broken now: the next pass tries again */
        maintain_tables_co(store);
        leave_former(store);
        pause_co(store, store->seen_due ? SOON_NS : period_ns);
    }
    (void)rt_waitq_while_co(&store->finished, finishing, store, RT_NEVER);
    leave_all_co(store);
    if (store->session != NULL)
        pool_session_close_co(store->session);
    if (store->membership->session != NULL)
        pool_session_close_co(store->membership->session);
    rt_waitq_clear(&store->wake, &store->keeping);
}

enum pando_status store_keeper_start(struct store *store)
{
    enum pando_status status = pool_session_open_co(store->membership->pool, &store->session);
    if (status != PANDO_OK)
        return status;
    status = rt_spawn(rt_loop_self(), keeper_task, store);
    if (status != PANDO_OK)
        pool_session_close_co(store->session);
    else
        atomic_store(&store->keeping, true);
    return status;
}

static bool keeping(const void *store)
{
    return atomic_load(&((const struct store *)store)->keeping);
}

void store_keeper_stop_co(struct store *store)
{
    atomic_store(&store->closing, true);
    store_keeper_wake(store);
    (void)rt_waitq_while_co(&store->wake, keeping, store, RT_NEVER);
}
