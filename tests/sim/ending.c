/*
 * A process that is to end waits for nobody any longer than two leases: not for a lock that somebody else
 * holds, nor in a loop that begins again, nor for a slot for an intent; a Sherman operation not for its leaf's lock,
 * whether another process has it or another task; a DEX operation neither for its log's node nor for a
 * change of owners that is under way. One that is not to end waits for ten, all its waits for one lock together.
 */
#include "owners/owners_int.h"
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/dex/dex_int.h"
#include "tree/sherman/sherman.h"

enum {
    LOCK = 5,
    HOLDER = 0,
    WAITER = 1,
    BEFORE_LEASES = 3, /* until the process is told */
    LATER_LEASES = 5,  /* the second who waits for a leaf, if nobody is told anything */
    SLOTS_MOST = 64,
    TABLES_MOST = 8, /* until one has its log on node 1 */
};

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;
static atomic_bool ending;

static struct {
    bool told; /* the process is to end while it waits */
    bool held, done;
    fabric_address leaf; /* which the holder locks, */
    bool leaf_held;      /* and has */
    unsigned waiting;    /* tasks that wait for it */
} world;

/* Of the process that waits. */
struct user {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void holder_task(void *arg)
{
    struct pool_session *session;
    struct pool_lock lock, leaf;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    CHECK_OK(pool_lock_co(session, pool_lock_address(pool, 0, LOCK), &lock));
    world.held = true;
    while (world.leaf == 0)
        rt_sleep_co(LEASE_NS / 4);
    CHECK_OK(pool_lock_co(session, pool_lock_for(pool, world.leaf), &leaf));
    world.leaf_held = true;
    while (!world.done)
        rt_sleep_co(LEASE_NS / 4);
    CHECK_OK(pool_unlock_co(session, &leaf));
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
static void check_wait(const char *what, uint64_t begin_ns)
{
    uint64_t leases = (rt_now_ns() - begin_ns) / LEASE_NS;
    printf("%s: %" PRIu64 " leases%s\n", what, leases, world.told ? ", told" : "");
    CHECK(world.told ? leases >= BEFORE_LEASES && leases <= BEFORE_LEASES + 3 : leases >= 10);
}

/* Begins to wait; the process is told, if it is, a while later. */
static uint64_t begin_wait(void)
{
    atomic_store(&ending, false);
    CHECK_OK(rt_spawn(rt_loop_self(), teller_task, NULL));
    return rt_now_ns();
}

static struct pool *join_co(struct fabric *fabric, struct pool_session **session)
{
    struct pool_options options = {
        .memory_nodes = 2, .name = "waiter", .lease_ns = LEASE_NS, .ending = &ending};
    struct pool *pool;
    char error[256];
    atomic_store(&ending, false);
    CHECK_OK(pool_join_co(fabric, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, session));
    return pool;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void wait_for_pool_co(struct pool *pool, struct pool_session *session)
{
    fabric_address slots[SLOTS_MOST];
    struct pool_retry retry = {0};
    struct pool_lock lock;
    enum pando_status status;
    unsigned count = 0;

    uint64_t begin_ns = begin_wait();
    CHECK_STATUS(pool_lock_co(session, pool_lock_address(pool, 0, LOCK), &lock), PANDO_TIMEOUT);
    check_wait("a lock", begin_ns);

    begin_ns = begin_wait();
    while ((status = pool_retry_co(pool, &retry)) == PANDO_OK)
        continue;
    CHECK_STATUS(status, PANDO_TIMEOUT);
    check_wait("a loop", begin_ns);

    begin_ns = begin_wait();
    while (count < SLOTS_MOST &&
           (status = pool_intent_take_co(session, 1, &slots[count])) == PANDO_OK)
        count++;
    CHECK_STATUS(status, PANDO_TIMEOUT);
    check_wait("a slot", begin_ns);
    while (count > 0)
        pool_intent_give(session, slots[--count]);
}

/* ---- engines --------------------------------------------------------------------------------- */

static enum pando_status put_co(struct user *self, uint64_t number)
{
    uint64_t key;
    return engine_put_co(self->engine, number_key(number, &key), slice_of(&number, sizeof(number)),
                         ENGINE_UPSERT);
}

static void open_co(struct user *self, const struct engine_ops *ops, const char *name)
{
    struct engine_config config = {.kept = true, .cache_bytes = 1 << 20};
    char error[256];
    CHECK_OK(engine_create_co(ops, self->session, name, &number_shape));
    CHECK_OK(engine_open_co(ops, self->session, name, &config, &self->table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void close_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
}

static void put_task(void *arg)
{
    uint64_t begin_ns = rt_now_ns();
    CHECK_STATUS(put_co(arg, 1), PANDO_TIMEOUT);
    check_wait("a leaf", begin_ns);
    CHECK(rt_now_ns() - begin_ns < 12 * LEASE_NS); /* in the process's queue and for its turn */
    world.waiting--;
}

/* Another process has the leaf's lock: one task waits for that, the other one for the first. */
static void wait_for_leaf_co(struct user *self)
{
    struct pool_entry entry;
    unsigned slot;

    open_co(self, &sherman_engine, "s");
    CHECK_OK(put_co(self, 1));
    CHECK_OK(pool_table_open_co(self->session, "s", &slot, &entry));
    CHECK_OK(pool_root_read_co(self->session, slot, &world.leaf));
    while (!world.leaf_held)
        rt_sleep_co(LEASE_NS / 4);
    (void)begin_wait();
    for (; world.waiting < 2; world.waiting++) {
        if (world.waiting > 0 && !world.told)
            rt_sleep_co(LATER_LEASES * LEASE_NS);
        CHECK_OK(rt_spawn(rt_loop_self(), put_task, self));
    }
    while (world.waiting > 0)
        rt_sleep_co(LEASE_NS / 4);
    close_co(self);
}

static struct dex_table *dex_table_of(struct engine_table *table)
{
    return container_of(table, struct dex_table, base);
}

/* Another change of the owners goes on and on, while this one's first operation claims its keys. */
static void wait_for_change_co(struct user *self)
{
    open_co(self, &dex_engine, "d");
    struct dex_table *table = dex_table_of(self->table);
    CHECK(!atomic_exchange(&table->owners.changing, true));
    uint64_t begin_ns = begin_wait();
    CHECK_STATUS(put_co(self, 1), PANDO_TIMEOUT);
    check_wait("a change of owners", begin_ns);
    owners_change_end(&table->owners);
    CHECK_OK(put_co(self, 1));
    close_co(self);
}

/* The log's node cannot be reached: what is not in the log is not acknowledged. The member gives itself up. */
static void wait_for_log_co(struct user *self)
{
    char name[16];
    unsigned opened = 0;
    struct user users[TABLES_MOST];
    fabric_address log;
    do {
        CHECK(opened < TABLES_MOST);
        users[opened] = *self;
        snprintf(name, sizeof(name), "log%u", opened);
        open_co(&users[opened], &dex_engine, name);
        CHECK_OK(put_co(&users[opened], 1));
        log = dex_log_address(dex_table_of(users[opened++].table)->redo.log);
    } while (fabric_address_node(log) != 1);
    fabric_sim_cut(place.net, POOL_WORLD_CLIENT + WAITER, 1);
    uint64_t begin_ns = begin_wait();
    CHECK_STATUS(put_co(&users[opened - 1], 2), PANDO_UNKNOWN);
    check_wait("the log", begin_ns);
    CHECK(pool_fenced(self->pool));
    fabric_sim_heal(place.net, POOL_WORLD_CLIENT + WAITER, 1);
    while (opened > 0)
        close_co(&users[--opened]);
}

static void waiter_task(void *arg)
{
    struct user self = {.pool = join_co(arg, &self.session)};
    while (!world.held)
        rt_sleep_co(LEASE_NS / 4);
    wait_for_pool_co(self.pool, self.session);
    wait_for_leaf_co(&self);
    wait_for_change_co(&self);
    wait_for_log_co(&self);
    world.done = true;
    pool_world_leave_co(self.pool, self.session);
}

int main(void)
{
    for (int told = 0; told < 2; told++) {
        world.told = told == 1;
        world.held = world.done = world.leaf_held = false;
        world.leaf = 0;
        pool_world_build_pair(&place, LEASE_NS);
        pool_world_spawn(&place, HOLDER, holder_task);
        pool_world_spawn(&place, WAITER, waiter_task);
        CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
        CHECK(world.done);
        pool_world_destroy(&place);
    }
    return 0;
}
