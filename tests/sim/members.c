/*
 * Who is declared dead, and who is not (R13, R14): nobody that lives is, after an outage of the node
 * that holds the heartbeats, nor after a stop of those who watch; nobody whose lease is valid by its
 * own clock ever is; and members that recover each other are recovered by a third.
 *
 *   test_sim_members [FIRST LAST]     seeds
 */
#include "base/log.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "pool/pool.h"

enum { MEMORIES = 2, CLIENTS = 4 };

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

struct client {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
    bool no_recovery;
    bool done; /* left; or nothing more is wanted of it */
};

static struct {
    uint64_t seed;
    struct prng prng;
    struct fabric_sim *net;
    struct fabric *memory[MEMORIES];
    struct memnode *memnodes[MEMORIES];
    struct client clients[CLIENTS];
    int joined, running;
    bool end;
    const char *violation;
} world;

static void violate(const char *what)
{
    if (world.violation == NULL)
        world.violation = what;
}

static uint64_t random_ns(uint64_t most_ns)
{
    return prng_below(&world.prng, most_ns);
}

/* ---- the world ------------------------------------------------------------------------------- */

static void memnode_start(int i)
{
    char error[256];
    struct memnode_options options = {.grace_ns = LEASE_NS, .seed = world.seed + 1};
    CHECK_OK(memnode_open(world.memory[i], &options, &world.memnodes[i], error, sizeof(error)));
}

static void build(uint64_t seed)
{
    static struct sim_nic_model model;
    model = *sim_nic_model("cx5");
    world.seed = seed;
    prng_seed(&world.prng, seed * 31 + 7);
    struct fabric_sim_options options = {
        .seed = seed,
        .model = &model,
        .chaos = {.spread = 0.3, .spread_ns = 3000, .delay = 0.1, .delay_ns = LEASE_NS / 8},
        .shuffle = true,
        .race_probability = 0.05,
    };
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
    for (uint16_t i = 0; i < CLIENTS; i++) {
        struct fabric_sim_node_options node = {.node = (uint16_t)(0x8000 + i),
                                               .target = FABRIC_COMPUTE,
                                               .host_bytes = 1 << 20,
                                               .threads = 2};
        CHECK_OK(fabric_sim_add(world.net, &node, &world.clients[i].fabric));
    }
}

/* Joins, and leaves when the end has come. */
static void member_task(void *arg)
{
    struct client *client = arg;
    char error[256];
    struct pool_options options = {.memory_nodes = MEMORIES,
                                   .name = "member",
                                   .lease_ns = LEASE_NS,
                                   .no_recovery = client->no_recovery};

    rt_sleep_co(random_ns(LEASE_NS) + 1);
    CHECK_OK(pool_join_co(client->fabric, &options, &client->pool, error, sizeof(error)));
    client->identity = pool_identity(client->pool);
    CHECK_OK(pool_session_open_co(client->pool, &client->session));
    world.joined++;
    while (!world.end)
        rt_sleep_co(LEASE_NS / 4);
    pool_session_close_co(client->session);
    pool_leave_co(client->pool);
    client->done = true;
    world.running--;
}

static void run(rt_fn scenario)
{
    world.running = CLIENTS;
    for (int i = 0; i < CLIENTS; i++)
        CHECK_OK(
            rt_spawn(fabric_sim_loop(world.clients[i].fabric, 0), member_task, &world.clients[i]));
    CHECK_OK(rt_spawn(fabric_sim_loop(world.memory[1], 0), scenario, NULL));
    if (sim_run(fabric_sim_world(world.net), 20 * RT_NS_PER_S) != SIM_QUIET)
        violate("it did not end");
    fabric_sim_destroy(world.net);
    for (int i = 0; i < MEMORIES; i++)
        memnode_close(world.memnodes[i]);
}

static void all_joined_co(void)
{
    while (world.joined < CLIENTS)
        rt_sleep_co(LEASE_NS / 8);
    rt_sleep_co(3 * LEASE_NS + random_ns(LEASE_NS));
}

static void nobody_was_declared_dead_co(void)
{
    rt_sleep_co(6 * LEASE_NS);
    for (int i = 0; i < CLIENTS; i++) {
        if (pool_fenced(world.clients[i].pool))
            violate("a living member was declared dead");
        if (!pool_lease_valid(world.clients[i].pool))
            violate("a living member has no lease long after the outage");
    }
    world.end = true;
}

/* ---- nobody that lives is declared dead ------------------------------------------------------ */

static void cut_all(bool cut)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (cut)
            fabric_sim_cut(world.net, 0, (uint16_t)(0x8000 + i));
        else
            fabric_sim_heal(world.net, 0, (uint16_t)(0x8000 + i));
    }
}

/* Nobody reaches the heartbeats for a while. */
static void cut_scenario(void *arg)
{
    (void)arg;
    all_joined_co();
    cut_all(true);
    rt_sleep_co(LEASE_NS / 4 + random_ns(8 * LEASE_NS));
    cut_all(false);
    nobody_was_declared_dead_co();
}

/* The node dies, and comes back. */
static void restart_scenario(void *arg)
{
    (void)arg;
    all_joined_co();
    fabric_sim_kill(world.memory[0]);
    rt_sleep_co(LEASE_NS / 4 + random_ns(8 * LEASE_NS));
    memnode_close(world.memnodes[0]);
    CHECK_OK(fabric_sim_restart(world.memory[0], true, &world.memory[0]));
    memnode_start(0);
    nobody_was_declared_dead_co();
}

/* All of them stop at once, as virtual machines of one host do, those who watch with the rest. */
static void pause_scenario(void *arg)
{
    (void)arg;
    all_joined_co();
    uint64_t pause_ns = LEASE_NS / 4 + random_ns(6 * LEASE_NS);
    for (int i = 0; i < CLIENTS; i++)
        fabric_sim_pause(world.clients[i].fabric, pause_ns);
    rt_sleep_co(pause_ns);
    nobody_was_declared_dead_co();
}

/* ---- nobody whose lease is valid is declared dead -------------------------------------------- */

static uint64_t beat_now(uint16_t member)
{
    uint64_t word;
    uint64_t at = fabric_window_first(world.memory[0]) + POOL_HEARTBEATS + (uint64_t)member * 8;
    CHECK_OK(fabric_self_read(world.memory[0], at, &word, sizeof(word)));
    return word;
}

static void look_at_all(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &world.clients[i];
        if (client->session == NULL || client->done)
            continue;
        struct pool_heartbeat beat = pool_heartbeat_unpack(beat_now(client->identity.member));
        bool same = beat.incarnation == client->identity.incarnation;
        if ((!same || beat.state == POOL_FENCED) && pool_lease_valid(client->pool))
            violate("a member was declared dead while its lease was valid");
    }
}

/* One link to the heartbeats or one machine after the other fails for about a lease. */
static void lease_scenario(void *arg)
{
    (void)arg;
    while (world.joined < CLIENTS)
        rt_sleep_co(LEASE_NS / 8);
    for (int i = 0; i < 40; i++) {
        int victim = (int)random_ns(CLIENTS);
        uint64_t fault_ns = random_ns(LEASE_NS + LEASE_NS / 2), until = rt_now_ns() + fault_ns;
        bool cut = random_ns(3) != 0;
        if (cut)
            fabric_sim_cut(world.net, 0, (uint16_t)(0x8000 + victim));
        else
            fabric_sim_pause(world.clients[victim].fabric, fault_ns);
        while (rt_now_ns() < until) {
            look_at_all();
            rt_sleep_co(LEASE_NS / 400);
        }
        if (cut)
            fabric_sim_heal(world.net, 0, (uint16_t)(0x8000 + victim));
        for (uint64_t end = rt_now_ns() + random_ns(LEASE_NS); rt_now_ns() < end;) {
            look_at_all();
            rt_sleep_co(LEASE_NS / 400);
        }
    }
    world.end = true;
}

/* ---- members that recover each other --------------------------------------------------------- */

struct mutual {
    struct client *by, *dead;
    bool done;
};

static void recover_task(void *arg)
{
    struct mutual *mutual = arg;
    enum pando_status status = pool_recover_co(mutual->by->session, mutual->dead->identity);
    (void)status;
    mutual->done = true;
}

/* Each claims the other, and then stands still or dies in the middle of it. */
static void mutual_scenario(void *arg)
{
    (void)arg;
    struct client *a = &world.clients[0], *b = &world.clients[1];
    struct mutual both[] = {{.by = a, .dead = b}, {.by = b, .dead = a}};

    while (world.joined < CLIENTS)
        rt_sleep_co(LEASE_NS / 8);
    fabric_sim_kill_at(a->fabric, fabric_sim_posted(a->fabric) + 2 + random_ns(20));
    fabric_sim_kill_at(b->fabric, fabric_sim_posted(b->fabric) + 2 + random_ns(20));
    for (int i = 0; i < 2; i++)
        CHECK_OK(rt_spawn(fabric_sim_loop(both[i].by->fabric, 0), recover_task, &both[i]));
    uint64_t deadline_ns = rt_now_ns() + 12 * LEASE_NS;
    bool freed = false;
    while (!freed && rt_now_ns() < deadline_ns) {
        rt_sleep_co(LEASE_NS / 4);
        freed = true;
        for (int i = 0; i < 2; i++) {
            struct pool_heartbeat beat =
                pool_heartbeat_unpack(beat_now(both[i].by->identity.member));
            freed = freed && beat.state == POOL_FREE;
        }
    }
    if (!freed)
        violate("members that recovered each other were never recovered");
    while (!both[0].done || !both[1].done)
        rt_sleep_co(LEASE_NS);
    world.end = true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    rt_fn fn;
} scenarios[] = {{"cut", cut_scenario},
                 {"restart", restart_scenario},
                 {"pause", pause_scenario},
                 {"lease", lease_scenario},
                 {"mutual", mutual_scenario}};

static void run_seed(size_t which, uint64_t seed)
{
    memset(&world, 0, sizeof(world));
    build(seed);
    /* In the last one the two in question do nothing of themselves. */
    for (int i = 0; i < 2; i++)
        world.clients[i].no_recovery = scenarios[which].fn == mutual_scenario;
    run(scenarios[which].fn);
    if (world.violation != NULL)
        CHECK_FAIL("%s, seed %llu: %s", scenarios[which].name, (unsigned long long)seed,
                   world.violation);
}

int main(int argc, char **argv)
{
    uint64_t first = argc >= 3 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t last = argc >= 3 ? strtoull(argv[2], NULL, 10) : 40;

    log_set_level(LOG_LEVEL_ERROR);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (argc >= 4 && strcmp(argv[3], scenarios[i].name) != 0)
            continue;
        for (uint64_t seed = first; seed <= last; seed++)
            run_seed(i, seed);
        printf("%s: seeds %llu to %llu, nothing wrong\n", scenarios[i].name,
               (unsigned long long)first, (unsigned long long)last);
    }
    return 0;
}
