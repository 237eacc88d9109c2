/*
 * An owner dies at each of the lists by which a page is split whose other half goes to another memory node,
 * and by which two pages merge that lie on several nodes. Whoever takes over finds all that was acknowledged, and
 * no block that is lost or in use twice. So it is if one of these nodes cannot be reached for a while after
 * the death: nobody changes what an intent is still to change.
 */
#include <stdlib.h>

#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/dex/dex.h"
#include "tree/dex/pushdown/memory_side.h"
#include "tree/dex/tree.h"

enum { NODES = 4, LOADED = 4500, STEP = 100, KEYS = 200, LISTS_MAX = 64 };

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS;

static struct pool_world place;

/* What is done while the owner may die: keys around one leaf are put, or deleted. */
enum work { SPLIT, SPLIT_INNER, MERGE, WORKS };
static const char *const work_names[] = {"split", "inner split", "merge"};

static struct world {
    enum work work;
    uint64_t kill_at;     /* 0: it does not die */
    int away;             /* this memory node cannot be reached after the death; -1: all can */
    uint64_t first, last; /* out, without a death: the posts of the change that is meant */
    bool owned, opened, dead, done;
    uint64_t number, highest; /* the last that was put or deleted; of all that were put */
    unsigned disturbed;       /* puts while a node was away */
    bool there[STEP * LOADED], unsure[STEP * LOADED];
} world;

struct user {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

/* The range whose pages are split and merged begins here, in the middle of a level-1 page. */
static const uint64_t BASE = (uint64_t)STEP * 3700;

static bool next_pair(void *context, struct slice *key, struct slice *value)
{
    struct number_feed *feed = context;
    if (feed->next == feed->end)
        return false;
    *key = number_key(STEP * feed->next++, &feed->key);
    *value = *key;
    return true;
}

static void attach_co(struct user *self)
{
    struct engine_config config = {.kept = true, .cache_bytes = 8 << 20};
    char error[256] = "";
    CHECK_OK(engine_open_co(&dex_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void leave_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_world_leave_co(self->pool, self->session);
}

/* New pages below the parent of a key's page go to another node than that page's own. */
static void divert_co(struct user *self, uint64_t number, uint8_t level)
{
    struct dex *engine = dex_of(self->engine);
    struct frames *frames = &engine->table->cache.frames;
    uint64_t key;
    struct dex_target target = {.key = number_key(number, &key), .level = level, .keep = true};
    struct dex_spot spot;
    CHECK_OK(dex_find_co(engine, &target, &spot));
    uint16_t node = fabric_address_node(frame_at(frames, spot.frame)->address);
    frame_at(frames, spot.parent)->grows = (uint8_t)((node + 2) % NODES + 1);
}

static enum pando_status put_co(struct user *self, uint64_t number)
{
    uint64_t key;
    world.number = number;
    world.highest = number > world.highest ? number : world.highest;
    struct slice name = number_key(number, &key);
    enum pando_status status = engine_put_co(self->engine, name, name, ENGINE_UPSERT);
    if (status == PANDO_OK)
        world.there[number] = true;
    else
        world.unsure[number] = true;
    return status;
}

static enum pando_status delete_co(struct user *self, uint64_t number)
{
    uint64_t key;
    world.number = number;
    enum pando_status status = engine_delete_co(self->engine, number_key(number, &key));
    if (status == PANDO_OK)
        world.there[number] = false;
    else
        world.unsure[number] = true;
    return status;
}

/* Puts until a page is split whose other half goes to another node; notes the posts of that put. */
static enum pando_status split_co(struct user *self, struct fabric *fabric, uint8_t level)
{
    struct dex_table *table = dex_of(self->engine)->table;
    enum pando_status status = PANDO_OK;
    uint64_t splits = 0;

    for (uint64_t number = BASE + 1; status == PANDO_OK; number++) {
        CHECK(number < BASE + STEP * KEYS);
        if (number % STEP == 0)
            continue;
        if (atomic_load(&table->stats.splits) > splits + level)
            break;
        splits = atomic_load(&table->stats.splits);
        divert_co(self, number, level);
        world.first = fabric_sim_posted(fabric) + 1;
        status = put_co(self, number);
        world.last = fabric_sim_posted(fabric);
    }
    return status;
}

/* Deletes until two pages merge, of which one is a half that lies on another node. */
static enum pando_status merge_co(struct user *self, struct fabric *fabric)
{
    struct dex_table *table = dex_of(self->engine)->table;
    enum pando_status status = split_co(self, fabric, 0);
    uint64_t end = world.number, merges = 0;

    for (uint64_t number = BASE; status == PANDO_OK; number++) {
        CHECK(number < end + STEP * KEYS);
        if (!world.there[number])
            continue;
        if (atomic_load(&table->stats.merges) > merges)
            break;
        world.first = fabric_sim_posted(fabric) + 1;
        status = delete_co(self, number);
        world.last = fabric_sim_posted(fabric);
    }
    return status;
}

static enum pando_status work_co(struct user *self, struct fabric *fabric)
{
    return world.work == MERGE ? merge_co(self, fabric)
                               : split_co(self, fabric, world.work == SPLIT_INNER ? 1 : 0);
}

static void owner_task(void *arg)
{
    struct fabric *fabric = arg;
    struct number_feed feed = {.end = LOADED};
    struct user self;

    self.pool = pool_world_join_co(&place, fabric, &self.session);
    /* Maps and logs take turns: after this one, those of "t" do not lie where the other half goes. */
    CHECK_OK(engine_create_co(&dex_engine, self.session, "u", &number_shape));
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    attach_co(&self);
    CHECK_OK(engine_bulk_load_co(self.engine, next_pair, &feed, 100));
    for (uint64_t i = 0; i < LOADED; i++)
        world.there[STEP * i] = true;
    world.owned = true;
    while (!world.opened)
        rt_sleep_co(LEASE_NS / 4);
    if (world.kill_at > 0)
        fabric_sim_kill_at(fabric, world.kill_at);
    enum pando_status status = work_co(&self, fabric);
    CHECK((status == PANDO_OK) == (world.kill_at == 0));
    world.dead = true;
    leave_co(&self);
}

/* Cuts the heir off from a memory node as soon as the owner is dead. */
static void cutter_task(void *arg)
{
    (void)arg;
    while (!fabric_sim_dead(place.clients[0]))
        rt_sleep_co(RT_NS_PER_US);
    fabric_sim_cut(place.net, (uint16_t)world.away, POOL_WORLD_CLIENT + 1);
}

static enum pando_status get_co(struct user *self, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    rt_sleep_co(RT_NS_PER_US); /* the lease is renewed meanwhile */
    return engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
}

static void await_co(const bool *flag)
{
    while (!*flag)
        rt_sleep_co(LEASE_NS / 4);
}

/* While a node cannot be reached some keys can not either. Others are put, if their pages are served. */
static void disturb_co(struct user *self)
{
    enum { FEW = 4, PATIENCE_LEASES = 300 };
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_LEASES * LEASE_NS, key;
    enum pando_status status = PANDO_BROKEN;
    while (status != PANDO_OK && status != PANDO_NOT_FOUND && rt_now_ns() < deadline_ns)
        status = get_co(self, BASE - 1);
    for (uint64_t number = BASE - FEW; number < BASE && rt_now_ns() < deadline_ns; number++) {
        struct slice name = number_key(number, &key);
        status = engine_put_co(self->engine, name, name, ENGINE_UPSERT);
        world.there[number] = status == PANDO_OK;
        world.unsure[number] = status != PANDO_OK;
        world.disturbed += status == PANDO_OK;
    }
    if (dex_flush_co(dex_of(self->engine), NULL) != PANDO_OK)
        return; /* not all of it can be written now */
}

static void check_co(struct user *self)
{
    struct engine_census census;
    uint64_t pages = 0, pairs = 0;
    char error[256] = "";

    for (uint64_t number = 0; number < STEP * LOADED; number++) {
        bool near = number + 4 * STEP > BASE && number <= world.highest;
        if (!near && number % STEP != 0)
            continue;
        enum pando_status status = get_co(self, number);
        if (world.unsure[number] && status == (world.there[number] ? PANDO_NOT_FOUND : PANDO_OK))
            world.there[number] = status == PANDO_OK;
        if (status != (world.there[number] ? PANDO_OK : PANDO_NOT_FOUND))
            CHECK_FAIL("%s, death at list %" PRIu64 ": key %" PRIu64 " is %s: %s",
                       work_names[world.work], world.kill_at, number,
                       world.there[number] ? "there" : "absent", pando_status_text(status));
        pairs += status == PANDO_OK;
    }
    if (engine_verify_co(self->engine, &census, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s, death at list %" PRIu64 ": %s", work_names[world.work], world.kill_at,
                   error);
    CHECK_EQ_U64(census.pairs, pairs);
    for (uint16_t node = 0; node < NODES; node++) {
        struct pool_usage usage;
        CHECK_OK(pool_usage_co(self->session, node, &usage));
        for (uint32_t i = 0; i < usage.head.tables; i++)
            pages += usage.tables[i].table == dex_of(self->engine)->table->id &&
                             usage.tables[i].kind == PAGE_KIND
                         ? usage.tables[i].blocks
                         : 0;
        pool_usage_free(&usage);
    }
    if (pages != census.nodes)
        CHECK_FAIL("%s, death at list %" PRIu64 ": %" PRIu64
                   " pages are in use, the tree has %" PRIu64,
                   work_names[world.work], world.kill_at, pages, census.nodes);
}

static void heir_task(void *arg)
{
    struct user self;
    uint64_t deadline_ns = 0;

    await_co(&world.owned);
    self.pool = pool_world_join_co(&place, arg, &self.session);
    attach_co(&self);
    CHECK_OK(get_co(&self, BASE));
    world.opened = true;
    await_co(&world.dead);
    if (world.away >= 0) {
        disturb_co(&self);
        fabric_sim_heal(place.net, (uint16_t)world.away, POOL_WORLD_CLIENT + 1);
    }
    deadline_ns = rt_now_ns() + 100 * LEASE_NS;
    while (get_co(&self, BASE) != PANDO_OK && get_co(&self, BASE) != PANDO_NOT_FOUND &&
           rt_now_ns() < deadline_ns)
        rt_sleep_co(LEASE_NS);
    rt_sleep_co(4 * LEASE_NS);
    check_co(&self);
    leave_co(&self);
    world.done = true;
}

static void run(enum work work, uint64_t kill_at, int away)
{
    struct pool_world_options options = {.net = {.seed = 5},
                                         .memnode = {.seed = 7, .work = dex_memory_pushdown},
                                         .memories = NODES,
                                         .clients = 2,
                                         .memory_bytes = 40 << 20,
                                         .lease_ns = LEASE_NS};
    memset(&world, 0, sizeof(world));
    world.work = work;
    world.kill_at = kill_at;
    world.away = away;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, owner_task);
    pool_world_spawn(&place, 1, heir_task);
    if (away >= 0)
        pool_world_spawn_memory(&place, 0, cutter_task);
    CHECK(pool_world_ends(&place, 600 * RT_NS_PER_S));
    CHECK(world.done);
    pool_world_destroy(&place);
}

int main(void)
{
    for (enum work work = SPLIT; work < WORKS; work++) {
        run(work, 0, -1);
        uint64_t first = world.first, last = world.last;
        printf("%s: lists %" PRIu64 " to %" PRIu64 "\n", work_names[work], first, last);
        unsigned disturbed = 0;
        CHECK(first > 0 && last >= first + 3 && last < first + LISTS_MAX);
        for (uint64_t at = first; at <= last; at++) {
            run(work, at, -1);
            for (int away = 1; away < NODES; away++) {
                run(work, at, away);
                disturbed += world.disturbed;
            }
        }
        printf("%u puts while a node was away\n", disturbed);
        CHECK(disturbed > 0);
    }
    return 0;
}
