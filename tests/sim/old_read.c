/*
 * stale-read-limit (R22): what a READ brings later than 100 ms after it was posted is not believed
 * but READ again, however the engine came to READ it; what comes sooner is. The process is paused
 * at each list of an operation in turn.
 */
#include "lib/broken.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum { KEYS = 2000, KEY = 777 };

static const uint64_t LONG_LEASE_NS = RT_NS_PER_S; /* nobody is taken for dead */
static const uint64_t SOON_NS = 60 * RT_NS_PER_MS, LATE_NS = 150 * RT_NS_PER_MS;

struct way {
    const char *name;
    const struct engine_ops *engine;
    const char *without;
    bool scan, reverse;
};

static unsigned done;

static void get_co(struct engine *engine, uint64_t number)
{
    uint64_t key = __builtin_bswap64(number), value;
    size_t size;
    CHECK_OK(engine_get_co(engine, slice_of(&key, sizeof(key)), &value, sizeof(value), &size));
    CHECK_EQ_U64(value, key);
}

static void scan_co(struct engine *engine, bool reverse)
{
    struct engine_range range = {.no_high = true, .reverse = reverse};
    unsigned count = 0;
    CHECK_OK(engine_scan_co(engine, &range, count_pair, &count));
    CHECK_EQ_U64(count, KEYS);
}

static uint64_t reads(const struct pool_session *session)
{
    struct fabric_counters counters[FABRIC_TARGETS];
    pool_session_counters(session, counters);
    return counters[FABRIC_MEMORY].reads;
}

/* How many READs it takes with a pause at its k-th list, counted from 1; 0: without. What precedes all READs of
 * nodes, as where the root is and whose the keys are, was done before. */
static uint64_t reads_co(struct dex_member *self, struct fabric *fabric, const struct way *way,
                         uint64_t k, uint64_t pause_ns, uint64_t *lists)
{
    struct engine_config config = {.cache_bytes = 1 << 20, .without = way->without};
    struct engine *engine;
    char error[256];

    CHECK_OK(engine_open_co(way->engine, self->session, way->engine->name, &config, &self->table,
                            error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    get_co(engine, 0);
    uint64_t posted = fabric_sim_posted(fabric), before = reads(self->session);
    if (k > 0)
        fabric_sim_pause_at(fabric, posted + k, pause_ns);
    if (way->scan)
        scan_co(engine, way->reverse);
    else
        get_co(engine, KEY);
    *lists = fabric_sim_posted(fabric) - posted;
    uint64_t taken = reads(self->session) - before;
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
    return taken;
}

static void way_co(struct dex_member *self, struct fabric *fabric, const struct way *way)
{
    uint64_t lists, ignored, plain = reads_co(self, fabric, way, 0, 0, &lists);
    printf("%s: %" PRIu64 " READs in %" PRIu64 " lists\n", way->name, plain, lists);
    CHECK(plain > 0);
    CHECK_EQ_U64(lists, plain);
    for (uint64_t k = 1; k <= lists; k++) {
        CHECK_EQ_U64(reads_co(self, fabric, way, k, SOON_NS, &ignored), plain);
        CHECK(reads_co(self, fabric, way, k, LATE_NS, &ignored) > plain);
    }
}

static void load_co(struct dex_member *self, const struct engine_ops *ops)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    struct engine *engine;
    struct number_feed feed = {.end = KEYS};
    char error[256];

    CHECK_OK(engine_create_co(ops, self->session, ops->name, &number_shape));
    CHECK_OK(
        engine_open_co(ops, self->session, ops->name, &config, &self->table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 80));
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static void member_task(void *arg)
{
    static const struct way ways[] = {
        {.name = "sherman get", .engine = &sherman_engine},
        {.name = "sherman get, no cache", .engine = &sherman_engine, .without = "cache"},
        {.name = "sherman scan", .engine = &sherman_engine, .scan = true},
        {.name = "sherman scan back", .engine = &sherman_engine, .scan = true, .reverse = true},
        {.name = "dex get", .engine = &dex_engine, .without = "offload"},
        {.name = "dex scan", .engine = &dex_engine, .without = "offload", .scan = true},
        {.name = "dex scan back",
         .engine = &dex_engine,
         .without = "offload",
         .scan = true,
         .reverse = true},
    };
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = LONG_LEASE_NS};
    struct dex_member self;
    char error[256];

    CHECK_OK(pool_join_co(arg, &options, &self.pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self.pool, &self.session));
    load_co(&self, &sherman_engine);
    load_co(&self, &dex_engine);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        way_co(&self, arg, &ways[i]);
    dex_leave_co(&self);
    done++;
}

int main(int argc, char **argv)
{
    struct dex_world place;
    break_rule(argc, argv);
    dex_world_build(&place, 5, 9);
    dex_world_run(&place, member_task, NULL);
    CHECK_EQ_U64(done, 1);
    return 0;
}
