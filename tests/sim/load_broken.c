/*
 * A load that cannot give back what it has taken: one that has lost its pool for good ends all the same, and one whose
 * connection breaks for a moment gives back nearly all.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum { CHUNKS = 128, TOO_MANY = 1000000, FITS = 100000, VALUE = 200, KILL_AT = 2000 };

static const struct engine_shape shape = {
    .key_size = 8, .value_size = VALUE, .key_max = 8, .value_inline = VALUE, .node_bytes = 8192};

static const uint64_t CUT_AFTER_NS = 500 * RT_NS_PER_US, CUT_NS = 20 * RT_NS_PER_MS;

static const struct engine_ops *ops;
static struct dex_world place;
static const uint8_t zeroes[VALUE];
static const struct slice every_value = {zeroes, VALUE};
static unsigned done;

static void open_co(struct fabric *fabric, struct dex_member *self, struct engine **engine)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = RT_NS_PER_S};
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
    CHECK_OK(engine_create_co(ops, self->session, "t", &shape));
    CHECK_OK(engine_open_co(ops, self->session, "t", &config, &self->table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

static void leave_co(struct dex_member *self, struct engine *engine)
{
    dex_end_co(self, engine);
    done++;
}

static void lost_task(void *arg)
{
    struct fabric *fabric = arg;
    struct dex_member self;
    struct engine *engine;
    struct number_feed feed = {.end = FITS, .value = every_value};

    open_co(fabric, &self, &engine);
    fabric_sim_kill_at(fabric, fabric_sim_posted(fabric) + KILL_AT);
    CHECK(engine_bulk_load_co(engine, number_feed_next, &feed, 90) != PANDO_OK);
    CHECK(fabric_sim_dead(fabric));
    leave_co(&self, engine);
}

/* A while after the pool was found to be full. */
static void cut_task(void *arg)
{
    const struct fabric *fabric = arg;
    uint16_t node = fabric_self(fabric);
    struct pool_node_stats stats = {0};

    while (stats.refusals == 0) {
        rt_sleep_co(10 * RT_NS_PER_US);
        memnode_stats(place.memnode, &stats);
    }
    rt_sleep_co(CUT_AFTER_NS);
    fabric_sim_cut(place.net, node, 0);
    rt_sleep_co(CUT_NS);
    fabric_sim_heal(place.net, node, 0);
}

static void cut_off_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct number_feed feed = {.end = TOO_MANY, .value = every_value};

    open_co(arg, &self, &engine);
    CHECK_OK(rt_spawn(rt_loop_self(), cut_task, arg));
    CHECK_STATUS(engine_bulk_load_co(engine, number_feed_next, &feed, 90), PANDO_FULL);
    CHECK(feed.next > FITS);
    rt_sleep_co(5 * RT_NS_PER_S); /* before it can be had again */
    uint64_t most = feed.next;
    feed = (struct number_feed){.end = most / 4 * 3, .value = every_value};
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 90));
    leave_co(&self, engine);
}

int main(void)
{
    static const struct engine_ops *const engines[] = {&sherman_engine, &dex_engine};
    for (unsigned i = 0; i < 4; i++) {
        ops = engines[i / 2];
        dex_world_build(&place, 21 + i, CHUNKS);
        dex_world_run(&place, i % 2 == 0 ? lost_task : cut_off_task, NULL);
        CHECK_EQ_U64(done, i + 1);
    }
    return 0;
}
