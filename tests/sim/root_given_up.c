/*
 * A member dies at each list of a deletion that makes the tree lower (rules member-recovery, intent-first). Another
 * one, which knows the former root from before, then splits and merges; a third one does, too, by the root that the
 * directory names. Both must work on the same levels: what they put is there, and the tree is sound.
 */
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum { MEMORIES = 2, KEYS = 60, KEPT = 3, STEP = 100, MORE = 60, LISTS_MAX = 64 };
enum { DELETER, KNOWING, FRESH, CLIENTS }; /* compute nodes */

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

static struct pool_world place;

static struct world {
    uint64_t kill_at; /* 0: it does not die */
    uint64_t first,
        last;         /* out, without a death: the posts of the deletion that gives up the root */
    uint64_t unknown; /* the key that was being deleted: nobody was told */
    uint64_t left;    /* those below are still there */
    enum { FILLING, FILLED, KNOWN, DELETED, SPLIT, GROWN, MERGED, DONE } step;
} world;

struct user {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void join_co(struct user *self, struct fabric *fabric, bool create)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256] = "";
    self->pool = pool_world_join_co(&place, fabric, &self->session);
    if (create)
        CHECK_OK(engine_create_co(&sherman_engine, self->session, "t", &number_shape));
    CHECK_OK(engine_open_co(&sherman_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void leave_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_world_leave_co(self->pool, self->session);
}

static void put_co(struct user *self, uint64_t number)
{
    uint64_t key;
    struct slice name = number_key(number, &key);
    enum pando_status status = engine_put_co(self->engine, name, name, ENGINE_UPSERT);
    if (status != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 ": put %" PRIu64 ": %s", world.kill_at, number,
                   pando_status_text(status));
}

static enum pando_status delete_co(struct user *self, uint64_t number)
{
    uint64_t key;
    return engine_delete_co(self->engine, number_key(number, &key));
}

static enum pando_status get_co(struct user *self, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    return engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
}

static void await_co(int step)
{
    while ((int)world.step < step)
        rt_sleep_co(10 * RT_NS_PER_US);
}

static unsigned root_level_co(struct user *self)
{
    struct blink *engine = &sherman_of(self->engine)->blink;
    struct blink_scratch *scratch = blink_scratch_take(engine);
    struct node_header header;
    fabric_address root;

    CHECK(scratch != NULL);
    header.level = 1; /* of one that is dying */
    enum pando_status status = blink_root_co(engine, true, &root);
    if (status == PANDO_OK)
        status = blink_read_co(engine, root, scratch->node, &header);
    CHECK(status == PANDO_OK || world.kill_at > 0);
    blink_scratch_give(engine, scratch);
    return header.level;
}

/* Deletes from the right on until the tree is one level lower: the leftmost leaf stays. */
static void deleter_task(void *arg)
{
    struct fabric *fabric = arg;
    struct user self;

    join_co(&self, fabric, true);
    for (uint64_t i = 0; i < KEYS; i++)
        put_co(&self, i * STEP);
    CHECK_EQ_U64(root_level_co(&self), 1);
    world.step = FILLED;
    await_co(KNOWN);
    if (world.kill_at > 0)
        fabric_sim_kill_at(fabric, world.kill_at);
    for (uint64_t i = KEYS; i-- > KEPT && !fabric_sim_dead(fabric);) {
        uint64_t before = fabric_sim_posted(fabric) + 1;
        world.unknown = world.left = i * STEP;
        if (delete_co(&self, i * STEP) != PANDO_OK)
            continue;
        uint64_t after = fabric_sim_posted(fabric);
        if (root_level_co(&self) == 0) {
            world.first = before;
            world.last = after;
            break;
        }
    }
    CHECK(world.kill_at > 0 || world.last > 0);
    if (!fabric_sim_dead(fabric))
        world.step = DELETED;
    leave_co(&self);
}

static void await_recovery_co(struct user *self)
{
    uint64_t deaths = 0, end_ns = rt_now_ns() + 100 * LEASE_NS;
    while (deaths == 0 && rt_now_ns() < end_ns) {
        CHECK_OK(pool_deaths_co(self->session, &deaths));
        rt_sleep_co(LEASE_NS / 4);
    }
    CHECK_EQ_U64(deaths, 1);
}

/* Knows the root from before, and the leftmost leaf by it: nothing makes it ask for the root again. */
static void knowing_task(void *arg)
{
    struct user self;

    await_co(FILLED);
    join_co(&self, arg, false);
    for (uint64_t i = 0; i < KEPT; i++)
        CHECK_OK(get_co(&self, i * STEP));
    world.step = KNOWN;
    while (world.step < DELETED && !fabric_sim_dead(place.clients[DELETER]))
        rt_sleep_co(10 * RT_NS_PER_US);
    if (world.step < DELETED)
        await_recovery_co(&self);
    for (uint64_t i = 1; i < MORE; i++)
        put_co(&self, i);
    world.step = SPLIT;
    await_co(GROWN);
    for (uint64_t i = 1; i < MORE; i++)
        CHECK_OK(delete_co(&self, i));
    world.step = MERGED;
    await_co(DONE);
    leave_co(&self);
}

static void check_all_co(struct user *self)
{
    struct engine_census census;
    char error[256] = "";
    uint64_t pairs = get_co(self, world.unknown) == PANDO_OK;

    for (uint64_t number = 0; number < world.left; number += STEP, pairs++) {
        enum pando_status status = get_co(self, number);
        if (status != PANDO_OK)
            CHECK_FAIL("death at list %" PRIu64 ": key %" PRIu64 ": %s", world.kill_at, number,
                       pando_status_text(status));
    }
    for (uint64_t i = 1; i < MORE; i++, pairs++) {
        enum pando_status status = get_co(self, STEP + i);
        if (status != PANDO_OK)
            CHECK_FAIL("death at list %" PRIu64 ": key %" PRIu64 ": %s", world.kill_at, STEP + i,
                       pando_status_text(status));
    }
    if (engine_verify_co(self->engine, &census, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 ": %s", world.kill_at, error);
    CHECK_EQ_U64(census.pairs, pairs);
}

static void fresh_task(void *arg)
{
    struct user self;

    await_co(SPLIT);
    join_co(&self, arg, false);
    for (uint64_t i = 1; i < MORE; i++)
        put_co(&self, STEP + i);
    /* What it meets to the right of a leaf, the parent is told. */
    for (uint64_t i = 1; i < MORE; i++)
        CHECK_OK(get_co(&self, i));
    world.step = GROWN;
    await_co(MERGED);
    check_all_co(&self);
    leave_co(&self);
    world.step = DONE;
}

static void run(uint64_t kill_at)
{
    struct pool_world_options options = {.net = {.seed = 3},
                                         .memnode = {.seed = 7},
                                         .memories = MEMORIES,
                                         .clients = CLIENTS,
                                         .memory_bytes = 42 << 20,
                                         .lease_ns = LEASE_NS};
    world = (struct world){.kill_at = kill_at};
    pool_world_build(&place, &options);
    pool_world_spawn(&place, DELETER, deleter_task);
    pool_world_spawn(&place, KNOWING, knowing_task);
    pool_world_spawn(&place, FRESH, fresh_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK_EQ_U64(world.step, DONE);
    pool_world_destroy(&place);
}

int main(void)
{
    run(0);
    uint64_t first = world.first, last = world.last;
    printf("the root is given up: lists %" PRIu64 " to %" PRIu64 "\n", first, last);
    CHECK(first > 0 && last >= first + 4 && last < first + LISTS_MAX);
    for (uint64_t at = first; at <= last; at++)
        run(at);
    return 0;
}
