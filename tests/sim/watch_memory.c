/*
 * A member that has no memory to watch the others with, when it begins to, watches them later: one that dies is
 * recovered.
 */
#include "sim/pool_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
    SKIP("a sanitizer has a malloc of its own");
}

#else

enum { WATCHER = 0, VICTIM = 1, REFUSED = 5 };

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

static unsigned refused;
static bool is_short;

void *__libc_calloc(size_t count, size_t size);

/* Of a member for each of the others. */
void *calloc(size_t count, size_t size)
{
    if (is_short && count == POOL_MEMBERS && refused < REFUSED) {
        refused++;
        return NULL;
    }
    return __libc_calloc(count, size);
}

static struct pool_world place;
static bool joined, done;

static void victim_task(void *arg)
{
    struct pool_session *session;
    (void)pool_world_join_co(&place, arg, &session);
    joined = true;
}

static void watcher_task(void *arg)
{
    struct pool_session *session;
    while (!joined)
        rt_sleep_co(LEASE_NS / 4);
    is_short = true;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    fabric_sim_kill(place.clients[VICTIM]);
    rt_sleep_co(10 * LEASE_NS);
    CHECK_EQ_U64(refused, REFUSED);
    CHECK(pool_departures(pool) > 0 && pool_recoveries(pool) == 1);
    pool_world_leave_co(pool, session);
    done = true;
}

int main(void)
{
    pool_world_build_pair(&place, LEASE_NS);
    pool_world_spawn(&place, VICTIM, victim_task);
    pool_world_spawn(&place, WATCHER, watcher_task);
    (void)pool_world_ends(&place, RT_NS_PER_S); /* what is left of the dead one goes on */
    CHECK(done);
    pool_world_destroy(&place);
    return 0;
}

#endif
