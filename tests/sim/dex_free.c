/*
 * Free frames: handles that take them, give them back, and lend them to records, in a cache that is full.
 * None is lost, and none is in two hands.
 */
#include "sim/dex_world.h"
#include "tree/dex/dex_int.h"

enum {
    HANDLES = 4,
    KEYS = 20 * 1000,
    OPERATIONS = 3000,
    CACHE_BYTES = 200 * 1024,
    SCAN_PAIRS = 300
};

static struct world {
    struct dex_member member;
    struct dex_table *table;
    struct rt_countdown running;
    unsigned next;
    bool done;
} world;

static struct slice random_key(struct prng *prng, uint64_t *bytes)
{
    *bytes = __builtin_bswap64(prng_next(prng) % KEYS);
    return slice_of(bytes, sizeof(*bytes));
}

static bool go_on(void *context, struct slice key, struct slice value)
{
    (void)context;
    (void)key;
    (void)value;
    return true;
}

static void operate_co(struct engine *engine, struct prng *prng)
{
    uint64_t bytes, value = 7;
    size_t size;
    uint64_t choice = prng_next(prng) % 16;
    struct slice key = random_key(prng, &bytes);
    struct engine_range range = {.low = key, .no_high = true, .limit = SCAN_PAIRS};

    if (choice == 0) {
        CHECK_OK(engine_scan_co(engine, &range, go_on, NULL));
    } else if (choice < 8) {
        CHECK_OK(engine_put_co(engine, key, slice_of(&value, sizeof(value)), ENGINE_UPSERT));
    } else {
        enum pando_status status = engine_get_co(engine, key, &value, sizeof(value), &size);
        CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
    }
}

static void user_task(void *arg)
{
    struct engine *engine;
    struct prng prng;
    (void)arg;

    prng_seed(&prng, ++world.next);
    for (unsigned times = 0; times < 2; times++) { /* what one leaves is the next one's */
        CHECK_OK(engine_attach_co(&world.table->base, world.member.session, &engine));
        for (unsigned i = 0; i < OPERATIONS; i++)
            operate_co(engine, &prng);
        engine_detach_co(engine);
    }
    rt_countdown_done(&world.running);
}

static void fill_co(void)
{
    struct engine_range all = {.no_high = true};
    struct engine *engine;
    CHECK_OK(engine_attach_co(&world.table->base, world.member.session, &engine));
    for (uint64_t i = 0; i < KEYS; i += 2) {
        uint64_t key = __builtin_bswap64(i);
        CHECK_OK(engine_put_co(engine, slice_of(&key, 8), slice_of(&i, 8), ENGINE_UPSERT));
    }
    CHECK_OK(engine_scan_co(engine, &all, go_on, NULL));
    engine_detach_co(engine);
}

/* Leaves that are merged away leave frames that nobody needs. */
static void thin_out_co(void)
{
    struct engine *engine;
    CHECK_OK(engine_attach_co(&world.table->base, world.member.session, &engine));
    for (uint64_t i = 0; i < KEYS / 10; i++) {
        uint64_t key = __builtin_bswap64(i);
        enum pando_status status = engine_delete_co(engine, slice_of(&key, 8));
        CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
    }
    engine_detach_co(engine);
}

static void open_co(struct fabric *fabric)
{
    struct engine_shape shape = {
        .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};
    struct engine_config config = {.kept = true, .cache_bytes = CACHE_BYTES, .with = "lend-wildly"};
    struct engine_table *table;
    char error[256] = "";

    dex_join_co(fabric, &world.member);
    CHECK_OK(engine_create_co(&dex_engine, world.member.session, "t", &shape));
    CHECK_OK(engine_open_co(&dex_engine, world.member.session, "t", &config, &table, error,
                            sizeof(error)));
    world.table = container_of(table, struct dex_table, base);
}

static void owner_task(void *arg)
{
    open_co(arg);
    fill_co();
    CHECK_EQ_U64(atomic_load(&world.table->cache.fresh),
                 world.table->cache.frames.count); /* it is full */
    rt_countdown_init(&world.running, HANDLES);
    for (unsigned i = 0; i < HANDLES; i++)
        CHECK_OK(rt_spawn(fabric_sim_loop(arg, 0), user_task, NULL));
    rt_countdown_wait_co(&world.running);
    thin_out_co();
    dex_frames_leave(world.table->maintainer);
    CHECK(atomic_load(&world.table->cache.free_count) > 0);
    CHECK(dex_frames_whole(world.table));
    engine_close_co(&world.table->base, world.member.session);
    dex_leave_co(&world.member);
    world.done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 3, 33);
    dex_world_run(&place, owner_task, NULL);
    CHECK(world.done);
    return 0;
}
