/*
 * Flipped bits in what a table has in the pool: leaves, inner pages, the root, the map, the directory's word
 * for it. Each answer is right or
 * CORRUPT, in less than two seconds; keys that do not lie below the damage are served; verify names it and
 * ends; and the table is closed in time. A root that is damaged while it is cached serves what lies below it;
 * only what would have to change it is CORRUPT.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { KEYS = 20000, EVERY = 487, PAGE = 1024 };

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = PAGE};
static const uint64_t SECOND_NS = RT_NS_PER_S;

static struct world {
    struct fabric *memory;
    fabric_address root, inner, leaf, map;
    unsigned slot;
    uint64_t inner_low, inner_high, leaf_low, leaf_high;
    uint64_t slowest_ns;
    unsigned flips, corrupt;
    bool done;
} world;

struct user {
    struct dex_member member;
    struct engine *engine;
};

static void join_co(struct fabric *fabric, struct user *self)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = SECOND_NS};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, &self->member.pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->member.pool, &self->member.session));
}

static enum pando_status open_without_co(struct user *self, const char *without)
{
    enum pando_status status = dex_open_co(&self->member, "t", without);
    if (status == PANDO_OK)
        CHECK_OK(engine_attach_co(self->member.table, self->member.session, &self->engine));
    return status;
}

static enum pando_status open_co(struct user *self)
{
    return open_without_co(self, NULL);
}

static void close_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->member.table, self->member.session);
}

static uint64_t fence_number(struct slice key)
{
    uint64_t word = 0;
    memcpy(&word, key.data, key.size);
    return __builtin_bswap64(word);
}

/* A page in the middle of the tree, and a leaf below another one. */
static void choose_co(struct user *self)
{
    struct dex *dex = dex_of(self->engine);
    const struct page_layout *layout = &dex->table->layout;
    uint8_t page[PAGE], room[PAGE_KEY_ROOM];
    struct slice high;

    world.root = dex->table->root;
    world.slot = dex->table->slot;
    CHECK_OK(dex_read_co(dex, world.root, page));
    CHECK(page_level(page) == 2 && page_pairs(page) > 3);
    world.inner = page_child(layout, page, 1);
    fabric_address other = page_child(layout, page, 2);
    CHECK_OK(dex_read_co(dex, world.inner, page));
    world.inner_low = fence_number(page_low(page, room));
    CHECK(page_high(page, room, &high));
    world.inner_high = fence_number(high);
    CHECK_OK(dex_read_co(dex, other, page));
    world.leaf = page_child(layout, page, 5);
    CHECK_OK(dex_read_co(dex, world.leaf, page));
    world.leaf_low = fence_number(page_low(page, room));
    CHECK(page_high(page, room, &high));
    world.leaf_high = fence_number(high);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static uint64_t begin_ns;

static enum pando_status in_time(enum pando_status status)
{
    uint64_t took_ns = rt_now_ns() - begin_ns;
    if (took_ns > 2 * SECOND_NS)
        CHECK_FAIL("an answer took %" PRIu64 " ms", took_ns / RT_NS_PER_MS);
    if (took_ns > world.slowest_ns)
        world.slowest_ns = took_ns;
    begin_ns = rt_now_ns();
    return status;
}

static bool is_below(uint64_t number, uint64_t low, uint64_t high)
{
    return number >= low && number < high;
}

static void ask_co(struct user *self, uint64_t number, bool damaged)
{
    uint64_t key, value = 0;
    size_t size = 0;
    begin_ns = rt_now_ns();
    enum pando_status status = in_time(
        engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size));
    CHECK_STATUS(status, damaged ? PANDO_CORRUPT : PANDO_OK);
    CHECK(damaged || value == key);
    status = in_time(
        engine_put_co(self->engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
    /* A put that a memory node was asked to do has a record in the log by then. */
    CHECK(damaged ? status == PANDO_CORRUPT || status == PANDO_UNKNOWN : status == PANDO_OK);
    world.corrupt += damaged;
}

/* With what is at [low, high) damaged. */
static void ask_all_co(struct user *self, uint64_t low, uint64_t high)
{
    struct engine_range all = {.no_high = true}, left = {.high = {0}};
    struct engine_census census;
    char error[256] = "";
    unsigned pairs = 0;
    uint64_t key;

    for (uint64_t number = 0; number < KEYS; number += EVERY)
        ask_co(self, number, is_below(number, low, high));
    ask_co(self, low, true);
    ask_co(self, high - 1, true);
    begin_ns = rt_now_ns();
    CHECK_STATUS(in_time(engine_scan_co(self->engine, &all, count_pair, &pairs)), PANDO_CORRUPT);
    CHECK_EQ_U64(pairs, low);
    left.high = number_key(low, &key);
    pairs = 0;
    CHECK_OK(in_time(engine_scan_co(self->engine, &left, count_pair, &pairs)));
    CHECK_STATUS(in_time(engine_verify_co(self->engine, &census, error, sizeof(error))),
                 PANDO_CORRUPT);
    CHECK(error[0] != '\0' && census.damaged > 0);
}

/* ---- flipping -------------------------------------------------------------------------------- */

static uint8_t flip(fabric_address address, uint32_t at)
{
    uint8_t byte;
    uint64_t offset = fabric_address_offset(address) + at;
    CHECK_OK(fabric_self_read(world.memory, offset, &byte, 1));
    byte ^= (uint8_t)(1 << (at + world.flips++) % 8);
    CHECK_OK(fabric_self_write(world.memory, offset, &byte, 1));
    return byte;
}

static void flips_co(struct user *self, fabric_address address, uint64_t low, uint64_t high,
                     size_t step)
{
    static const uint32_t places[] = {0, 4, 7, 8, 13, 16, 24, 31, 33, 40, 56, 70, 100, 500, 1023};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i += step) {
        unsigned count = world.flips;
        (void)flip(address, places[i]);
        CHECK_OK(open_co(self));
        ask_all_co(self, low, high);
        begin_ns = rt_now_ns();
        close_co(self);
        (void)in_time(PANDO_OK);
        world.flips = count;
        (void)flip(address, places[i]); /* as it was */
        world.flips = count + 1;
    }
}

/* Nothing can be done without it, and that is said at once. */
static void without_co(struct user *self, fabric_address address)
{
    for (uint32_t at = 0; at < 80; at += 7) {
        unsigned count = world.flips;
        (void)flip(address, at);
        begin_ns = rt_now_ns();
        CHECK_STATUS(in_time(open_co(self)), PANDO_CORRUPT);
        world.flips = count;
        (void)flip(address, at);
        world.flips = count + 1;
    }
}

/* The directory's word: nobody opens the table; an owner goes on, and verify reads the map anew. */
static void root_word_co(struct user *self)
{
    fabric_address word = pool_root_address(self->member.pool, world.slot);
    struct engine_census census;
    unsigned count = world.flips;
    char error[256];

    for (uint32_t bit = 0; bit < 64; bit++) {
        CHECK_OK(open_co(self));
        ask_co(self, world.leaf_low, false);
        world.flips = bit % 8 - bit / 8; /* so that flip() takes this bit */
        (void)flip(word, bit / 8);
        ask_co(self, world.leaf_low, false);
        if (bit % 16 == 0) {
            begin_ns = rt_now_ns();
            error[0] = '\0';
            CHECK_STATUS(in_time(engine_verify_co(self->engine, &census, error, sizeof(error))),
                         PANDO_CORRUPT);
            CHECK(strstr(error, "map") != NULL && census.damaged > 0);
        }
        close_co(self);
        begin_ns = rt_now_ns();
        CHECK_STATUS(in_time(open_co(self)), PANDO_CORRUPT);
        world.flips = bit % 8 - bit / 8;
        (void)flip(word, bit / 8);
        world.flips = ++count;
    }
}

static enum pando_status put_co(struct user *self, uint64_t number)
{
    uint64_t key;
    begin_ns = rt_now_ns();
    return in_time(
        engine_put_co(self->engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
}

/* Puts at the end of all keys until the root has to be told of a page. It is read again before it is
 * changed, as others might have changed it. */
static void grow_co(struct user *self)
{
    unsigned count = world.flips;
    uint64_t number = KEYS;
    enum pando_status status;

    CHECK_OK(open_without_co(self, "partition"));
    ask_co(self, world.leaf_low, false);
    (void)flip(world.root, 500);
    do {
        status = put_co(self, number++);
    } while (status == PANDO_OK && number < 2 * KEYS);
    CHECK_STATUS(status, PANDO_CORRUPT);
    world.corrupt++;
    ask_co(self, world.leaf_low, false);
    world.flips = count;
    (void)flip(world.root, 500);
    CHECK_OK(put_co(self, number - 1));
    close_co(self);
}

static void user_task(void *arg)
{
    struct user self;
    struct number_feed feed = {.end = KEYS};

    join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.member.session, "t", &shape));
    CHECK_OK(open_co(&self));
    CHECK_OK(engine_bulk_load_co(self.engine, number_feed_next, &feed, 100));
    choose_co(&self);
    close_co(&self);
    flips_co(&self, world.leaf, world.leaf_low, world.leaf_high, 1);
    flips_co(&self, world.inner, world.inner_low, world.inner_high, 4);
    without_co(&self, world.root);
    CHECK_OK(pool_root_read_co(self.member.session, world.slot, &world.map));
    without_co(&self, world.map);
    root_word_co(&self);
    grow_co(&self);
    CHECK_OK(open_co(&self));
    ask_co(&self, world.leaf_low, false);
    close_co(&self);
    dex_leave_co(&self.member);
    world.done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 5, 33);
    world.memory = place.memory;
    CHECK_OK(rt_spawn(fabric_sim_loop(place.members[0], 0), user_task, place.members[0]));
    CHECK(sim_run(fabric_sim_world(place.net), 3600 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    printf("%u flips, %u answers CORRUPT, the slowest after %" PRIu64 " ms\n", world.flips,
           world.corrupt, world.slowest_ns / RT_NS_PER_MS);
    fabric_sim_destroy(place.net);
    memnode_close(place.memnode);
    return 0;
}
