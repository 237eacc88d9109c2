/*
 * A process that is to end waits for nobody any longer than two leases: not for a lock that somebody else
 * holds, nor in a loop that begins again. One that is not to end waits for ten.
 */
#include "sim/pool_world.h"

enum { LOCK = 5, HOLDER = 0, WAITER = 1, BEFORE_LEASES = 3 };

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS;

static struct pool_world place;
static atomic_bool ending;

static struct {
    bool told; /* the process is to end while it waits */
    bool held, done;
} world;

static void holder_task(void *arg)
{
    struct pool_session *session;
    struct pool_lock lock;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    CHECK_OK(pool_lock_co(session, pool_lock_address(pool, 0, LOCK), &lock));
    world.held = true;
    while (!world.done)
        rt_sleep_co(LEASE_NS / 4);
    CHECK_OK(pool_unlock_co(session, &lock));
    pool_world_leave_co(pool, session);
}

static void teller_task(void *arg)
{
    (void)arg;
    rt_sleep_co(BEFORE_LEASES * LEASE_NS);
    atomic_store(&ending, world.told);
}

/* How long a wait that has ended now may have taken. */
static void check_wait(uint64_t begin_ns)
{
    uint64_t leases = (rt_now_ns() - begin_ns) / LEASE_NS;
    CHECK(world.told ? leases >= BEFORE_LEASES && leases <= BEFORE_LEASES + 3 : leases >= 10);
}

static void waiter_task(void *arg)
{
    struct pool_options options = {
        .memory_nodes = 2, .name = "waiter", .lease_ns = LEASE_NS, .ending = &ending};
    struct pool_session *session;
    struct pool_retry retry = {0};
    struct pool_lock lock;
    struct pool *pool;
    enum pando_status status;
    char error[256];

    CHECK_OK(pool_join_co(arg, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &session));
    while (!world.held)
        rt_sleep_co(LEASE_NS / 4);
    CHECK_OK(rt_spawn(rt_loop_self(), teller_task, NULL));
    uint64_t begin_ns = rt_now_ns();
    CHECK_STATUS(pool_lock_co(session, pool_lock_address(pool, 0, LOCK), &lock), PANDO_TIMEOUT);
    check_wait(begin_ns);

    atomic_store(&ending, false);
    CHECK_OK(rt_spawn(rt_loop_self(), teller_task, NULL));
    begin_ns = rt_now_ns();
    while ((status = pool_retry_co(pool, &retry)) == PANDO_OK)
        continue;
    CHECK_STATUS(status, PANDO_TIMEOUT);
    check_wait(begin_ns);
    world.done = true;
    pool_world_leave_co(pool, session);
}

int main(void)
{
    for (int told = 0; told < 2; told++) {
        world.told = told == 1;
        world.held = world.done = false;
        atomic_store(&ending, false);
        pool_world_build_pair(&place, LEASE_NS);
        pool_world_spawn(&place, HOLDER, holder_task);
        pool_world_spawn(&place, WAITER, waiter_task);
        CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
        CHECK(world.done);
        pool_world_destroy(&place);
    }
    return 0;
}
