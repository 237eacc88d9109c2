/*
 * A lock that a living member may hold is released in the end (R11). The member's link to the memory node
 * is cut for longer than any patience while it takes the lock or releases it, at a random moment, so that
 * the CAS or the WRITE may have been carried out and nobody knows. After the link is healed others get
 * the lock within a lease, and the member is still one.
 *
 *   test_sim_owed_locks [FIRST LAST]     seeds
 */
#include "base/log.h"
#include "engine/engine.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum { MEMORIES = 2, KEYS = 200, LOCK = 5, VICTIM = 0x8000, OTHER = 0x8001, CUT_LEASES = 14 };

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS;
static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

enum moment { LOCKING, UNLOCKING, SHERMAN };

static struct {
    enum moment moment;
    struct prng prng;
    struct fabric_sim *net;
    struct fabric *memory[MEMORIES], *clients[2];
    struct memnode *memnodes[MEMORIES];
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

static void join_co(struct fabric *fabric, struct member *self)
{
    struct pool_options options = {.memory_nodes = MEMORIES, .name = "m", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
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
    pool_session_close_co(self->session);
    pool_leave_co(self->pool);
}

static enum pando_status put_co(struct member *self, uint64_t number)
{
    uint64_t key;
    return engine_put_co(self->engine, number_key(number, &key), slice_of(&number, sizeof(number)),
                         ENGINE_UPSERT);
}

static void memnode_start(int i)
{
    struct memnode_options memnode = {.grace_ns = LEASE_NS, .seed = 7};
    char error[256];
    CHECK_OK(memnode_open(world.memory[i], &memnode, &world.memnodes[i], error, sizeof(error)));
}

/* ---- who is cut off -------------------------------------------------------------------------- */

static void victim_task(void *arg)
{
    struct member self;
    struct pool_lock lock;
    enum pando_status status = PANDO_OK;

    while (!world.ready)
        rt_sleep_co(RT_NS_PER_MS);
    join_co(arg, &self);
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
        fabric_sim_kill(world.memory[1]); /* what is under way to it is lost */
        rt_sleep_co(CUT_LEASES * LEASE_NS);
        memnode_close(world.memnodes[1]);
        CHECK_OK(fabric_sim_restart(world.memory[1], true, &world.memory[1]));
        memnode_start(1);
    } else {
        fabric_sim_cut(world.net, 1, VICTIM);
        rt_sleep_co(CUT_LEASES * LEASE_NS);
        fabric_sim_heal(world.net, 1, VICTIM);
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

    join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &shape));
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
    static struct sim_nic_model model;
    model = *sim_nic_model("cx5");
    memset(&world, 0, sizeof(world));
    world.moment = moment;
    prng_seed(&world.prng, seed);
    struct fabric_sim_options options = {.seed = seed, .model = &model};
    world.net = fabric_sim_create(&options);
    for (uint16_t i = 0; i < MEMORIES; i++) {
        struct fabric_sim_node_options node = {.node = i,
                                               .target = FABRIC_MEMORY,
                                               .host_bytes = 80 << 20,
                                               .device_bytes = MEMNODE_DEVICE_BYTES,
                                               .threads = 1};
        CHECK_OK(fabric_sim_add(world.net, &node, &world.memory[i]));
        memnode_start(i);
    }
    for (uint16_t i = 0; i < 2; i++) {
        struct fabric_sim_node_options node = {.node = (uint16_t)(VICTIM + i),
                                               .target = FABRIC_COMPUTE,
                                               .host_bytes = 1 << 20,
                                               .threads = 1};
        CHECK_OK(fabric_sim_add(world.net, &node, &world.clients[i]));
    }
    CHECK_OK(rt_spawn(fabric_sim_loop(world.clients[0], 0), victim_task, world.clients[0]));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.clients[1], 0), other_task, world.clients[1]));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.memory[0], 0), cutter_task, NULL));
    if (sim_run(fabric_sim_world(world.net), 20 * RT_NS_PER_S) != SIM_QUIET)
        violate("it did not end");
    fabric_sim_destroy(world.net);
    for (int i = 0; i < MEMORIES; i++)
        memnode_close(world.memnodes[i]);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"locking", "unlocking", "sherman"};
    uint64_t first = argc >= 3 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t last = argc >= 3 ? strtoull(argv[2], NULL, 10) : 30;

    log_set_level(LOG_LEVEL_ERROR);
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
