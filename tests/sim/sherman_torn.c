/*
 * R19: a cell that somebody left torn when it died is mended by whoever meets it, a scan or a get, also
 * of a key that lies elsewhere in the leaf's range. That somebody died is what its lock word says; each
 * death excuses one cell, and nothing is mended without one.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum { KEYS = 400, TORN = 123 };

static bool done;
static fabric_address lock;

static void check_lock_co(struct engine *engine, uint64_t expected)
{
    uint64_t word;
    struct fabric_op read = fabric_read(fabric_address_offset(lock), &word, sizeof(word));
    CHECK_OK(pool_submit_co(engine->session, fabric_address_node(lock), &read, 1));
    CHECK_EQ_U64(word, expected);
}

/* As a one-word update leaves it when its writer dies: the pair is good, its check is not; and its lock
 * is marked by recovery with so many deaths. */
static void tear_co(struct engine *engine, uint64_t deaths)
{
    struct sherman *self = sherman_of(engine);
    struct scratch *scratch = scratch_take(self);
    struct node_header header;
    struct leaf_slot slot;
    uint64_t bytes, word;
    struct sherman_target target = {.key = number_key(TORN, &bytes)};

    CHECK_OK(sherman_find_co(self, &target, scratch->node, &header));
    CHECK(leaf_find(&self->table->layout, &header, scratch->node, target.key, &slot) == LEAF_FOUND);
    memcpy(&word, scratch->node + slot.offset, sizeof(word));
    word ^= 1;
    struct fabric_op write =
        fabric_write(fabric_address_offset(header.address) + slot.offset, &word, sizeof(word));
    CHECK_OK(pool_submit_co(self->base.session, fabric_address_node(header.address), &write, 1));
    lock = pool_lock_for(self->table->pool, header.address);
    struct fabric_op mark = fabric_write(fabric_address_offset(lock), &deaths, sizeof(deaths));
    CHECK_OK(pool_submit_co(self->base.session, fabric_address_node(lock), &mark, 1));
    scratch_give(self, scratch);
}

static void scan_all_co(struct engine *engine, bool reverse)
{
    struct engine_range range = {.no_high = true, .reverse = reverse};
    unsigned count = 0;
    CHECK_OK(engine_scan_co(engine, &range, count_pair, &count));
    CHECK_EQ_U64(count, KEYS);
}

static void get_co(struct engine *engine, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    CHECK_OK(engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size));
    CHECK_EQ_U64(value, number);
}

/* Nobody died: the pair is not there to be had, everything else is. */
static void corrupt_co(struct engine *engine)
{
    struct engine_range range = {.no_high = true};
    unsigned count = 0;
    uint64_t key, value, begin_ns = rt_now_ns();
    size_t size;

    CHECK_STATUS(engine_get_co(engine, number_key(TORN, &key), &value, sizeof(value), &size),
                 PANDO_CORRUPT);
    CHECK_STATUS(engine_put_co(engine, number_key(TORN, &key), slice_of(&value, sizeof(value)),
                               ENGINE_UPSERT),
                 PANDO_CORRUPT);
    CHECK_STATUS(engine_scan_co(engine, &range, count_pair, &count), PANDO_CORRUPT);
    CHECK(rt_now_ns() - begin_ns < RT_NS_PER_S);
    for (uint64_t i = 0; i < KEYS; i++) {
        if (i != TORN)
            get_co(engine, i);
    }
}

/* Verifying takes marks away, but not while another table may need them. */
static void marks_co(struct dex_member *self, struct engine *engine)
{
    struct engine_census census;
    char error[256];

    CHECK_OK(engine_create_co(&sherman_engine, self->session, "other", &number_shape));
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    check_lock_co(engine, POOL_LOCK_DEATHS_MAX);
    CHECK_OK(pool_table_drop_co(self->session, "other"));
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    check_lock_co(engine, 0);
    tear_co(engine, 2);
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error))); /* mends, too */
    check_lock_co(engine, 1); /* it had changed meanwhile */
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    check_lock_co(engine, 0);
}

static void member_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct engine_config config = {.cache_bytes = 1 << 20};
    struct engine_stats stats;
    char error[256];

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &number_shape));
    CHECK_OK(engine_open_co(&sherman_engine, self.session, "t", &config, &self.table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self.table, self.session, &engine));
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t key;
        CHECK_OK(
            engine_put_co(engine, number_key(i, &key), slice_of(&i, sizeof(i)), ENGINE_INSERT));
    }
    tear_co(engine, 1);
    scan_all_co(engine, false);
    check_lock_co(engine, 0);
    tear_co(engine, 3);
    scan_all_co(engine, true);
    check_lock_co(engine, 2);
    tear_co(engine, POOL_LOCK_DEATHS_MAX);
    get_co(engine, TORN);
    check_lock_co(engine, POOL_LOCK_DEATHS_MAX); /* as many as there may be */
    engine_stats(self.table, &stats);
    CHECK_EQ_U64(stats.repairs, 3);
    CHECK_EQ_U64(stats.damage, 0);
    scan_all_co(engine, false);
    marks_co(&self, engine);
    tear_co(engine, 0);
    corrupt_co(engine);
    engine_stats(self.table, &stats);
    CHECK_EQ_U64(stats.repairs, 4);
    CHECK(stats.damage > 0);
    check_lock_co(engine, 0);
    dex_end_co(&self, engine);
    done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 7, 9);
    dex_world_run(&place, member_task, NULL);
    CHECK(done);
    return 0;
}
