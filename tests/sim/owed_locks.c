/*
 * A lock that a living member may hold is released in the end (rule resolve-unknown). The member's
 * link to the memory node is cut for longer than any patience while it takes the lock or releases
 * it, at a random moment, so that the CAS or the WRITE may have been carried out and nobody knows.
 * After the link is healed others get the lock within a lease, and the member is still one.
 *
 *   test_sim_owed_locks [FIRST LAST]     seeds
 */
#include "engine/engine.h"
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/sherman/sherman.h"

enum { KEYS = 200, LOCK = 5, VICTIM = POOL_WORLD_CLIENT, CUT_LEASES = 14 };

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS;

enum moment { LOCKING, UNLOCKING, SHERMAN };

static struct pool_world place;

static struct {
    enum moment moment;
    struct prng prng;
    bool ready, begun, back, done;
    const char *violation;
} world;

struct member {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void violate(const char *what)
{
    if (world.violation == NULL)
        world.violation = what;
}

static void open_co(struct member *self)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256];
    CHECK_OK(engine_open_co(&sherman_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void leave_co(struct member *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_world_leave_co(self->pool, self->session);
}

static enum pando_status put_co(struct member *self, uint64_t number)
{
    uint64_t key;
    return engine_put_co(self->engine, number_key(number, &key), slice_of(&number, sizeof(number)),
                         ENGINE_UPSERT);
}

/* ---- who is cut off -------------------------------------------------------------------------- */

static void victim_task(void *arg)
{
    struct member self;
    struct pool_lock lock;
    enum pando_status status = PANDO_OK;

    while (!world.ready)
        rt_sleep_co(RT_NS_PER_MS);
    self.pool = pool_world_join_co(&place, arg, &self.session);
    open_co(&self);
    fabric_address at = pool_lock_address(self.pool, 1, LOCK);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(put_co(&self, i));
    if (world.moment == UNLOCKING)
        CHECK_OK(pool_lock_co(self.session, at, &lock));
    world.begun = true;
    rt_sleep_co(3 * RT_NS_PER_US);
    if (world.moment == LOCKING)
        status = pool_lock_co(self.session, at, &lock);
    if (world.moment == SHERMAN) {
        for (uint64_t i = 0; i < KEYS && status == PANDO_OK; i += 7)
            status = put_co(&self, i);
    } else if (status == PANDO_OK) {
        status = pool_unlock_co(self.session, &lock);
    }
    world.back = true;
    while (!world.done)
        rt_sleep_co(RT_NS_PER_MS);
    /* Something half changed is a reason to give oneself up, a lock alone is none. */
    if (pool_fenced(self.pool) && world.moment != SHERMAN)
        violate("a member gave itself up for a lock");
    leave_co(&self);
}

static void cutter_task(void *arg)
{
    (void)arg;
    while (!world.begun)
        rt_sleep_co(100);
    rt_sleep_co(prng_below(&world.prng, (world.moment == SHERMAN ? 60 : 8) * RT_NS_PER_US));
    if (world.moment == UNLOCKING) {
        fabric_sim_kill(place.memory[1]); /* what is under way to it is lost */
        rt_sleep_co(CUT_LEASES * LEASE_NS);
        pool_world_restart(&place, 1, true);
    } else {
        fabric_sim_cut(place.net, 1, VICTIM);
        rt_sleep_co(CUT_LEASES * LEASE_NS);
        fabric_sim_heal(place.net, 1, VICTIM);
    }
    while (!world.back)
        rt_sleep_co(RT_NS_PER_MS);
    rt_sleep_co(world.moment == SHERMAN ? 4 * LEASE_NS : LEASE_NS);
    world.ready = false; /* the other one's turn */
}

/* ---- who wants the lock then ------------------------------------------------------------------ */

static void other_task(void *arg)
{
    struct member self;
    struct pool_lock lock;

    self.pool = pool_world_join_co(&place, arg, &self.session);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &number_shape));
    open_co(&self);
    world.ready = true;
    while (world.ready)
        rt_sleep_co(RT_NS_PER_MS);
    uint64_t begin_ns = rt_now_ns();
    if (world.moment == SHERMAN) {
        for (uint64_t i = 0; i < KEYS; i++) {
            if (put_co(&self, i) != PANDO_OK)
                violate("a key cannot be written long after the cut");
        }
    } else if (pool_lock_co(self.session, pool_lock_address(self.pool, 1, LOCK), &lock) !=
               PANDO_OK) {
        violate("a lock is held long after the cut");
    } else {
        CHECK_OK(pool_unlock_co(self.session, &lock));
    }
    if (rt_now_ns() - begin_ns > LEASE_NS)
        violate("a lock had to be waited for");
    world.done = true;
    leave_co(&self);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void run_seed(enum moment moment, uint64_t seed)
{
    struct pool_world_options options = {.net = {.seed = seed},
                                         .memnode = {.seed = 7},
                                         .memories = 2,
                                         .clients = 2,
                                         .memory_bytes = 80 << 20,
                                         .lease_ns = LEASE_NS};
    memset(&world, 0, sizeof(world));
    world.moment = moment;
    prng_seed(&world.prng, seed);
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, victim_task);
    pool_world_spawn(&place, 1, other_task);
    pool_world_spawn_memory(&place, 0, cutter_task);
    if (!pool_world_ends(&place, 20 * RT_NS_PER_S))
        violate("it did not end");
    pool_world_destroy(&place);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"locking", "unlocking", "sherman"};
    uint64_t first = argc >= 3 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t last = argc >= 3 ? strtoull(argv[2], NULL, 10) : 30;

    for (int moment = LOCKING; moment <= SHERMAN; moment++) {
        if (argc >= 4 && strcmp(argv[3], names[moment]) != 0)
            continue;
        for (uint64_t seed = first; seed <= last; seed++) {
            run_seed((enum moment)moment, seed);
            if (world.violation != NULL)
                CHECK_FAIL("%s, seed %llu: %s", names[moment], (unsigned long long)seed,
                           world.violation);
        }
        printf("%s: seeds %llu to %llu, nothing wrong\n", names[moment], (unsigned long long)first,
               (unsigned long long)last);
    }
    return 0;
}
