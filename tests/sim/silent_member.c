/*
 * Members that live and swallow what is sent to them, as behind a firewall that drops packets, hold up nobody
 * but who needs them. A busy process that asks them how much they have to do, and waits five leases for the answers,
 * gives keys to another meanwhile, opens and drops tables, takes over from one that dies, and joins again when it
 * was declared dead.
 */
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "store/env_int.h"
#include "store/store_int.h"
#include "tree/dex/dex_int.h"

enum { BUSY, SILENT, OTHER_SILENT, VICTIM, PROCESSES };
enum { KEYS = 400, LOAD = 40000, LOAD_PARTS = 16 };

/* The store joins with this one; whoever does not answer is given up after five of them, as on tcp. */
static const uint64_t LEASE_NS = RT_NS_PER_S;
static const uint64_t CALL_NS = 5 * RT_NS_PER_S;
static const uint64_t LOOK_NS = RT_NS_PER_MS;

static struct world {
    struct pool_world place;
    struct env env;
    struct fabric_identity victim;
    bool made, opened, over; /* the table, by its creator and by the one that dies; everything */
    unsigned left;
} world;

struct process {
    struct fabric *fabric;
    struct store *store;
    struct store_thread *thread;
    struct store_table *table;
};

static void open_co(struct process *self, struct fabric *fabric)
{
    struct store_options options = {
        .env = &world.env, .fabric = fabric, .name = "test", .cache_bytes = 1 << 20};
    char error[256];
    *self = (struct process){.fabric = fabric};
    CHECK_OK(store_open_co(&options, &self->store, error, sizeof(error)));
    CHECK_OK(store_thread_open_co(self->store, &self->thread));
}

static void open_table_co(struct process *self)
{
    char error[256];
    CHECK_OK(store_table_open_co(self->thread, "t", &self->table, error, sizeof(error)));
}

static void create_table_co(struct process *self, const char *name)
{
    const struct store_shape shape = {
        .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};
    char error[256];
    CHECK_OK(store_table_create_co(self->thread, name, "dex", &shape, error, sizeof(error)));
}

static void close_co(struct process *self)
{
    store_hurry(self->store);
    store_thread_close_co(self->thread);
    store_close_co(self->store);
    world.left++;
}

static void wait_co(const bool *flag)
{
    while (!*flag)
        rt_sleep_co(LOOK_NS);
}

static struct pool *pool_of(const struct process *self)
{
    return self->store->membership->pool;
}

/* ---- the others ------------------------------------------------------------------------------ */

static void silent_task(void *arg)
{
    struct process self;
    open_co(&self, arg);
    wait_co(&world.over);
    close_co(&self);
}

static void victim_task(void *arg)
{
    struct process self;
    wait_co(&world.made);
    open_co(&self, arg);
    open_table_co(&self);
    world.victim = pool_identity(pool_of(&self));
    world.opened = true;
    while (!fabric_sim_dead(self.fabric))
        rt_sleep_co(LOOK_NS);
    close_co(&self);
}

/* ---- the busy one ---------------------------------------------------------------------------- */

/* Has done so much, as far as anybody can tell. */
static void load_task(void *arg)
{
    const struct process *self = arg;
    while (!world.over) {
        if (self->table->engine != NULL)
            owners_count_operations(&dex_of(self->table->engine)->owners, LOAD / LOAD_PARTS);
        rt_sleep_co(LEASE_NS / LOAD_PARTS);
    }
    world.left++;
}

/* Until it has begun to wait for an answer that does not come. */
static void await_silence_co(void)
{
    while (fabric_sim_unheard(world.place.net) > 0)
        rt_sleep_co(LOOK_NS);
    while (fabric_sim_unheard(world.place.net) == 0)
        rt_sleep_co(LOOK_NS);
}

static void put_co(const struct process *self, uint64_t number)
{
    uint64_t key;
    CHECK_OK(store_put_co(self->table, number_key(number, &key), slice_of(&number, sizeof(number)),
                          STORE_UPSERT));
}

static void check_all_co(const struct process *self)
{
    for (uint64_t number = 0; number < KEYS; number++) {
        uint64_t key, value;
        size_t size;
        CHECK_OK(store_get_co(self->table, number_key(number, &key), &value, sizeof(value), &size));
        CHECK_EQ_U64(value, number);
    }
}

/* Half of the keys to the one that dies. */
static void give_co(const struct process *self)
{
    uint64_t middle;
    const struct owners_range upper = {.low = number_key(KEYS / 2, &middle), .no_high = true};
    CHECK_OK(step_status(
        owners_give_co(&dex_of(self->table->engine)->owners, &upper, map_member(world.victim))));
}

static bool victim_owns_co(const struct process *self)
{
    struct engine_owner owners[PROCESSES + 1];
    unsigned count;
    bool any = false;
    CHECK_OK(store_table_owners_co(self->thread, "t", owners, PROCESSES + 1, &count));
    for (unsigned i = 0; i < count; i++)
        any = any || (owners[i].member.member == world.victim.member &&
                      owners[i].member.incarnation == world.victim.incarnation);
    return any;
}

static void took(const char *what, uint64_t begin_ns, double leases_max)
{
    double leases = (double)(rt_now_ns() - begin_ns) / (double)LEASE_NS;
    printf("%s: %.2f leases\n", what, leases);
    CHECK(leases < leases_max);
}

/* Keys go to one that has answered, a lease after it was asked at the latest. */
static void balances_co(const struct process *self)
{
    const struct owners *owners = &dex_of(self->table->engine)->table->owners;
    uint64_t given = atomic_load(&owners->given);
    await_silence_co();
    uint64_t begin_ns = rt_now_ns();
    while (atomic_load(&owners->given) == given)
        rt_sleep_co(LOOK_NS);
    took("another was given keys after", begin_ns, 1.5);
}

static void opens_co(struct process *self)
{
    struct store_table *other;
    char error[256];
    await_silence_co();
    uint64_t begin_ns = rt_now_ns();
    create_table_co(self, "other");
    CHECK_OK(store_table_open_co(self->thread, "other", &other, error, sizeof(error)));
    took("another table was opened after", begin_ns, 0.5);
    store_table_close(other);
}

/* Others may acknowledge a drop a part of a lease later. */
static void drops_co(struct process *self)
{
    await_silence_co();
    uint64_t begin_ns = rt_now_ns();
    CHECK_OK(store_table_drop_co(self->thread, "other"));
    took("it was dropped after", begin_ns, 2);
}

static void takes_over_co(const struct process *self)
{
    await_silence_co();
    CHECK(victim_owns_co(self));
    uint64_t begin_ns = rt_now_ns();
    fabric_sim_kill(world.place.clients[VICTIM]);
    while (victim_owns_co(self))
        rt_sleep_co(LOOK_NS);
    took("a dead process's keys were taken over after", begin_ns, 3);
    check_all_co(self);
}

static void joins_again_co(const struct process *self)
{
    await_silence_co();
    uint64_t begin_ns = rt_now_ns(), number = atomic_load(&self->store->membership_number);
    pool_resign(pool_of(self));
    while (atomic_load(&self->store->membership_number) == number)
        rt_sleep_co(LOOK_NS);
    took("it had joined again after", begin_ns, 1);
    check_all_co(self);
}

/* Whoever asks for it waits for those that do not answer, but not for one after the other. */
static void spreads_co(const struct process *self)
{
    unsigned processes;
    uint64_t begin_ns = rt_now_ns();
    CHECK_OK(store_spread_co(self->table, &processes));
    took("who could take keys was known after", begin_ns, 6);
    CHECK_EQ_U64(processes, 0);
}

static void silence(const struct process *self, unsigned other)
{
    fabric_sim_silence(world.place.net, fabric_self(self->fabric),
                       fabric_self(world.place.clients[other]));
}

static void busy_task(void *arg)
{
    struct process self;
    open_co(&self, arg);
    create_table_co(&self, "t");
    open_table_co(&self);
    for (uint64_t number = 0; number < KEYS; number++)
        put_co(&self, number);
    world.made = true;
    wait_co(&world.opened);
    give_co(&self);
    silence(&self, SILENT);
    silence(&self, OTHER_SILENT);
    CHECK_OK(rt_spawn(rt_loop_self(), load_task, &self));
    balances_co(&self);
    opens_co(&self);
    drops_co(&self);
    takes_over_co(&self);
    joins_again_co(&self);
    spreads_co(&self);
    world.over = true;
    while (world.left < PROCESSES)
        rt_sleep_co(LOOK_NS);
    close_co(&self);
}

int main(void)
{
    const struct pool_world_options options = {.net = {.seed = 7, .call_ns = CALL_NS},
                                               .memnode = {.seed = 100},
                                               .memories = 1,
                                               .clients = PROCESSES,
                                               .memory_bytes = 64 << 20,
                                               .lease_ns = LEASE_NS};
    world.env.uri.memory = options.memories;
    pool_world_build(&world.place, &options);
    pool_world_spawn(&world.place, BUSY, busy_task);
    pool_world_spawn(&world.place, SILENT, silent_task);
    pool_world_spawn(&world.place, OTHER_SILENT, silent_task);
    pool_world_spawn(&world.place, VICTIM, victim_task);
    CHECK(pool_world_ends(&world.place, 600 * RT_NS_PER_S));
    CHECK_EQ_U64(world.left, PROCESSES + 1);
    pool_world_destroy(&world.place);
    printf("silent_member: ok\n");
    return 0;
}
