/*
 * A member dies at each list of a merge whose nodes lie on two memory nodes, and then one of these comes
 * back without its lock table (rules new-incarnation, intent-first). The merge's intent lies on the
 * other, and whoever recovers the member writes what it says: so nobody may have changed any of
 * these nodes in between, although their locks were lost. A pair that is put into the right one and
 * acknowledged is there in the end.
 */
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum { MEMORIES = 2, KEYS = 400, STEP = 10, LISTS_MAX = 64 };
enum { MERGER, OTHER, LOSER, CLIENTS }; /* compute nodes */

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

static struct pool_world place;

static struct world {
    uint64_t kill_at;     /* 0: it does not die */
    uint16_t lost;        /* the memory node whose lock table is lost */
    uint64_t first, last; /* out, without a death: the posts of the deletion that merges */
    uint64_t low, high;   /* of the right node: its pairs are from the one to before the other */
    uint64_t from, last_deleted; /* what is deleted is of the left one */
    bool ready, done;
} world;

struct user {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void attach_co(struct user *self)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256] = "";
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

static enum pando_status put_co(struct user *self, uint64_t number)
{
    uint64_t key;
    struct slice name = number_key(number, &key);
    return engine_put_co(self->engine, name, name, ENGINE_UPSERT);
}

static enum pando_status get_co(struct user *self, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    return engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
}

/* ---- the merge ------------------------------------------------------------------------------- */

static uint64_t number_of(struct slice key)
{
    uint64_t word;
    CHECK_EQ_U64(key.size, sizeof(word));
    memcpy(&word, key.data, sizeof(word));
    return __builtin_bswap64(word);
}

/* Looks for two neighbours on the two memory nodes, the left one on node 0. */
static void choose_co(struct user *self)
{
    struct blink *engine = &sherman_of(self->engine)->blink;
    struct blink_scratch *scratch = blink_scratch_take(engine);
    struct node_header left, right;
    uint64_t key, at = (uint64_t)STEP * KEYS / 4;

    CHECK(scratch != NULL);
    do {
        struct blink_target target = {.key = number_key(at, &key)};
        CHECK_OK(blink_find_co(engine, &target, scratch->node, &left));
        world.from = number_of(left.low);
        world.low = at = number_of(left.high);
    } while (fabric_address_node(left.address) != 0 || fabric_address_node(left.sibling) != 1);
    struct blink_target target = {.key = number_key(at, &key)};
    CHECK_OK(blink_find_co(engine, &target, scratch->node, &right));
    CHECK(right.address == left.sibling && !right.no_high);
    world.high = number_of(right.high);
    blink_scratch_give(engine, scratch);
}

static enum pando_status merge_co(struct user *self, struct fabric *fabric)
{
    struct engine_stats stats;
    enum pando_status status = PANDO_OK;
    uint64_t key;

    for (uint64_t number = world.from; status == PANDO_OK; number += STEP) {
        CHECK(number < world.low);
        world.last_deleted = number;
        world.first = fabric_sim_posted(fabric) + 1;
        status = engine_delete_co(self->engine, number_key(number, &key));
        world.last = fabric_sim_posted(fabric);
        engine_stats(self->table, &stats);
        if (stats.merges > 0 || fabric_sim_dead(fabric))
            break;
    }
    return status;
}

static void merger_task(void *arg)
{
    struct fabric *fabric = arg;
    struct user self;

    self.pool = pool_world_join_co(&place, fabric, &self.session);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &number_shape));
    attach_co(&self);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(put_co(&self, i * STEP));
    choose_co(&self);
    if (world.kill_at > 0)
        fabric_sim_kill_at(fabric, world.kill_at);
    enum pando_status status = merge_co(&self, fabric);
    CHECK(world.kill_at > 0 || status == PANDO_OK);
    world.ready = world.kill_at == 0;
    leave_co(&self);
}

/* ---- after its death ------------------------------------------------------------------------- */

static void loser_task(void *arg)
{
    uint16_t node = world.lost;
    (void)arg;
    while (!fabric_sim_dead(place.clients[MERGER]) && !world.ready)
        rt_sleep_co(RT_NS_PER_US);
    if (world.ready)
        return;
    fabric_sim_kill(place.memory[node]);
    rt_sleep_co(RT_NS_PER_MS);
    memnode_close(place.memnodes[node]);
    CHECK_OK(fabric_sim_restart(place.memory[node], true, &place.memory[node]));
    fabric_sim_lose_device(place.memory[node]);
    pool_world_start(&place, node);
    world.ready = true;
}

static void check_there_co(struct user *self, uint64_t number)
{
    enum pando_status status = get_co(self, number);
    if (status != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 ", lock table of node %u lost: key %" PRIu64 ": %s",
                   world.kill_at, world.lost, number, pando_status_text(status));
}

static void check_all_co(struct user *self, const uint64_t *put, unsigned count)
{
    struct engine_census census;
    char error[256] = "";
    uint64_t pairs = 0;

    for (uint64_t number = 0; number < STEP * KEYS; number += STEP) {
        if (number == world.last_deleted) {
            pairs += get_co(self, number) == PANDO_OK; /* nobody was told */
        } else if (number < world.from || number > world.last_deleted) {
            check_there_co(self, number);
            pairs++;
        }
    }
    for (unsigned i = 0; i < count; i++)
        check_there_co(self, put[i]);
    if (engine_verify_co(self->engine, &census, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 ", lock table of node %u lost: %s", world.kill_at,
                   world.lost, error);
    CHECK_EQ_U64(census.pairs, pairs + count);
}

static void other_task(void *arg)
{
    struct user self;

    while (!world.ready)
        rt_sleep_co(10 * RT_NS_PER_US);
    self.pool = pool_world_join_co(&place, arg, &self.session);
    attach_co(&self);
    const uint64_t put[] = {world.low + 1, world.from + 1, world.high - STEP + 1, world.high + 1};
    for (unsigned i = 0; i < sizeof(put) / sizeof(put[0]); i++)
        CHECK_OK(put_co(&self, put[i]));
    uint64_t end_ns = rt_now_ns() + 100 * LEASE_NS;
    while (world.kill_at > 0 && pool_recoveries(self.pool) == 0 && rt_now_ns() < end_ns)
        rt_sleep_co(LEASE_NS / 4);
    CHECK(world.kill_at == 0 || pool_recoveries(self.pool) == 1);
    check_all_co(&self, put, sizeof(put) / sizeof(put[0]));
    leave_co(&self);
    world.done = true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void run(uint64_t kill_at, uint16_t lost)
{
    struct pool_world_options options = {.net = {.seed = 3},
                                         .memnode = {.seed = 7},
                                         .memories = MEMORIES,
                                         .clients = CLIENTS,
                                         .memory_bytes = 80 << 20,
                                         .lease_ns = LEASE_NS};
    world = (struct world){.kill_at = kill_at, .lost = lost};
    pool_world_build(&place, &options);
    pool_world_spawn(&place, MERGER, merger_task);
    pool_world_spawn(&place, OTHER, other_task);
    pool_world_spawn(&place, LOSER, loser_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(world.done);
    pool_world_destroy(&place);
}

int main(void)
{
    run(0, 0);
    uint64_t first = world.first, last = world.last;
    printf("the merge: lists %" PRIu64 " to %" PRIu64 "\n", first, last);
    CHECK(first > 0 && last >= first + 8 && last < first + LISTS_MAX);
    for (uint64_t at = first; at <= last; at++) {
        for (uint16_t lost = 0; lost < MEMORIES; lost++)
            run(at, lost);
    }
    return 0;
}
