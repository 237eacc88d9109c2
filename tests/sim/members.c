/*
 * Who is declared dead, and who is not (rules heartbeat-lease, member-recovery): nobody that lives
 * is, after an outage of the node that holds the heartbeats, nor after a stop of those who watch;
 * nobody whose lease is valid by its own clock ever is; nobody is while it leaves, however long
 * that takes; and members that recover each other are recovered by a third.
 *
 *   test_sim_members [FIRST LAST]     seeds
 */
#include "pool/broken.h"
#include "sim/pool_world.h"

enum { CLIENTS = 4 };

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

struct client {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
    bool no_recovery;
    bool leaves; /* before the end */
    bool done;   /* left; or nothing more is wanted of it */
};

static struct pool_world place;

static struct {
    struct prng prng;
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

static void build(uint64_t seed)
{
    struct pool_world_options options = {
        .net = {.seed = seed,
                .chaos = {.spread = 0.3, .spread_ns = 3000, .delay = 0.1, .delay_ns = LEASE_NS / 8},
                .shuffle = true,
                .race_probability = 0.05},
        .memnode = {.seed = seed + 1},
        .memories = 2,
        .clients = CLIENTS,
        .memory_bytes = 80 << 20,
        .client_threads = 2,
        .lease_ns = LEASE_NS,
    };
    prng_seed(&world.prng, seed * 31 + 7);
    pool_world_build(&place, &options);
    for (int i = 0; i < CLIENTS; i++)
        world.clients[i].fabric = place.clients[i];
}

/* Joins, and leaves when the end has come. */
static void member_task(void *arg)
{
    struct client *client = arg;
    char error[256];
    struct pool_options options = {.memory_nodes = 2,
                                   .name = "member",
                                   .lease_ns = LEASE_NS,
                                   .no_recovery = client->no_recovery};

    rt_sleep_co(random_ns(LEASE_NS) + 1);
    CHECK_OK(pool_join_co(client->fabric, &options, &client->pool, error, sizeof(error)));
    client->identity = pool_identity(client->pool);
    CHECK_OK(pool_session_open_co(client->pool, &client->session));
    world.joined++;
    while (!world.end && !client->leaves)
        rt_sleep_co(LEASE_NS / 4);
    pool_world_leave_co(client->pool, client->session);
    client->done = true;
    world.running--;
}

static void run(rt_fn scenario)
{
    world.running = CLIENTS;
    for (int i = 0; i < CLIENTS; i++)
        CHECK_OK(
            rt_spawn(fabric_sim_loop(world.clients[i].fabric, 0), member_task, &world.clients[i]));
    pool_world_spawn_memory(&place, 1, scenario);
    if (!pool_world_ends(&place, 20 * RT_NS_PER_S))
        violate("it did not end");
    pool_world_destroy(&place);
}

static void all_joined_co(void)
{
    while (world.joined < CLIENTS)
        rt_sleep_co(LEASE_NS / 8);
    rt_sleep_co(3 * LEASE_NS + random_ns(LEASE_NS));
}

static uint64_t beat_now(uint16_t member)
{
    uint64_t word;
    uint64_t at = fabric_window_first(place.memory[0]) + POOL_HEARTBEATS + (uint64_t)member * 8;
    CHECK_OK(fabric_self_read(place.memory[0], at, &word, sizeof(word)));
    return word;
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
            fabric_sim_cut(place.net, 0, (uint16_t)(POOL_WORLD_CLIENT + i));
        else
            fabric_sim_heal(place.net, 0, (uint16_t)(POOL_WORLD_CLIENT + i));
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
    fabric_sim_kill(place.memory[0]);
    rt_sleep_co(LEASE_NS / 4 + random_ns(8 * LEASE_NS));
    pool_world_restart(&place, 0, true);
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

/* One leaves, and a memory node takes long to take its memory back. */
static void leave_scenario(void *arg)
{
    (void)arg;
    all_joined_co();
    world.clients[0].leaves = true;
    fabric_sim_pause(place.memory[1], 3 * LEASE_NS + random_ns(2 * LEASE_NS));
    while (!world.clients[0].done)
        rt_sleep_co(LEASE_NS / 4);
    for (int i = 1; i < CLIENTS; i++) {
        if (pool_recoveries(world.clients[i].pool) > 0)
            violate("a member was declared dead while it left");
    }
    if (pool_heartbeat_unpack(beat_now(world.clients[0].identity.member)).state != POOL_FREE)
        violate("a member left without freeing its slot");
    world.end = true;
}

/* ---- nobody whose lease is valid is declared dead -------------------------------------------- */

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
            fabric_sim_cut(place.net, 0, (uint16_t)(POOL_WORLD_CLIENT + victim));
        else
            fabric_sim_pause(world.clients[victim].fabric, fault_ns);
        while (rt_now_ns() < until) {
            look_at_all();
            rt_sleep_co(LEASE_NS / 400);
        }
        if (cut)
            fabric_sim_heal(place.net, 0, (uint16_t)(POOL_WORLD_CLIENT + victim));
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
    pool_broken.judge = true; /* both are alive when they begin */
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
} scenarios[] = {{"cut", cut_scenario},     {"restart", restart_scenario},
                 {"pause", pause_scenario}, {"leave", leave_scenario},
                 {"lease", lease_scenario}, {"mutual", mutual_scenario}};

static void run_seed(size_t which, uint64_t seed)
{
    memset(&world, 0, sizeof(world));
    build(seed);
    /* In the last one the two in question do nothing of themselves. */
    for (int i = 0; i < 2; i++)
        world.clients[i].no_recovery = scenarios[which].fn == mutual_scenario;
    run(scenarios[which].fn);
    pool_broken.judge = false;
    if (world.violation != NULL)
        CHECK_FAIL("%s, seed %llu: %s", scenarios[which].name, (unsigned long long)seed,
                   world.violation);
}

int main(int argc, char **argv)
{
    uint64_t first = argc >= 3 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t last = argc >= 3 ? strtoull(argv[2], NULL, 10) : 40;

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
