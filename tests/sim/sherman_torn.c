/*
 * proven-repair (R19): a cell that somebody left torn when it died is repaired by whoever meets it,
 * a scan or a get, also of a key that lies elsewhere in the leaf's range. That somebody died is
 * what its lock word says; each death excuses one cell, and nothing is repaired without one. Nor is
 * a flipped bit made valid data by it.
 */
#include "pool/pool_int.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum { KEYS = 400, TORN = 123 };

static bool done;
static fabric_address lock;
static struct fabric_op flipped; /* undoes the last flip */
static uint64_t flipped_word;
static uint16_t flipped_node;

static void check_lock_co(struct engine *engine, uint64_t expected)
{
    uint64_t word;
    struct fabric_op read = fabric_read(fabric_address_offset(lock), &word, sizeof(word));
    CHECK_OK(pool_submit_co(engine->session, fabric_address_node(lock), &read, 1));
    CHECK_EQ_U64(word, expected);
}

/* Flips a bit of a pair's cell, whose lock is marked by recovery with so many deaths. How many bits the
 * cell has. */
static uint32_t flip_co(struct engine *engine, uint64_t deaths, uint32_t bit)
{
    struct sherman *self = sherman_of(engine);
    struct blink_scratch *scratch = blink_scratch_take(&self->blink);
    struct node_header header;
    struct leaf_slot slot;
    uint64_t bytes, word;
    struct blink_target target = {.key = number_key(TORN, &bytes)};

    CHECK_OK(blink_find_co(&self->blink, &target, scratch->node, &header));
    CHECK(leaf_find(&self->table->blink.layout, &header, scratch->node, target.key, &slot) ==
          LEAF_FOUND);
    uint32_t at = slot.offset + bit / 64 * 8, bits = slot.bytes * 8;
    memcpy(&word, scratch->node + at, sizeof(word));
    flipped_word = word;
    flipped_node = fabric_address_node(header.address);
    flipped = fabric_write(fabric_address_offset(header.address) + at, &flipped_word, sizeof(word));
    word ^= (uint64_t)1 << bit % 64;
    struct fabric_op write =
        fabric_write(fabric_address_offset(header.address) + at, &word, sizeof(word));
    CHECK_OK(pool_submit_co(self->base.session, fabric_address_node(header.address), &write, 1));
    lock = pool_lock_for(self->table->blink.pool, header.address);
    struct fabric_op mark = fabric_write(fabric_address_offset(lock), &deaths, sizeof(deaths));
    CHECK_OK(pool_submit_co(self->base.session, fabric_address_node(lock), &mark, 1));
    blink_scratch_give(&self->blink, scratch);
    return bits;
}

/* As a one-word update leaves it when its writer dies: the pair is good, its check is not. */
static void tear_co(struct engine *engine, uint64_t deaths)
{
    (void)flip_co(engine, deaths, 0);
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
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error))); /* repairs, too */
    check_lock_co(engine, 1); /* it had changed meanwhile */
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    check_lock_co(engine, 0);
}

/* One flipped bit under a lock that somebody died with is not taken for that one's update: the value is
 * what it was, or cannot be had. */
static void flips_co(struct engine *engine)
{
    enum { CELL_BITS = 24 * 8 };
    uint64_t key, value, right = 0;
    size_t size;

    for (uint32_t bit = 0; bit < CELL_BITS; bit++) {
        CHECK_EQ_U64(flip_co(engine, 1, bit), CELL_BITS);
        enum pando_status status =
            engine_get_co(engine, number_key(TORN, &key), &value, sizeof(value), &size);
        if (status == PANDO_OK) {
            CHECK_EQ_U64(value, TORN);
            right++;
            continue;
        }
        CHECK_STATUS(status, PANDO_CORRUPT);
        CHECK_OK(pool_submit_co(engine->session, flipped_node, &flipped, 1));
    }
    CHECK(right >= 64); /* the value's own bits, at least */
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
    flips_co(engine);
    engine_stats(self.table, &stats);
    uint64_t repairs = stats.repairs, damage = stats.damage;
    tear_co(engine, 0);
    corrupt_co(engine);
    engine_stats(self.table, &stats);
    CHECK_EQ_U64(stats.repairs, repairs);
    CHECK(stats.damage > damage);
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
