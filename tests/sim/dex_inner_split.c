/*
 * Two processes own keys below one inner page, X. The second has X in its cache, and below it a leaf with a change that
 * is not in the pool. The first splits X: the half with that leaf is a new page, all of whose keys are the second
 * one's. When that reads the root again it finds the new page there, which it does not cache. It must not ask the memory
 * node to go on from it: that would tell what the leaf was before the change.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/tree.h"

enum { KEYS = 12800, STEP = 100, VALUE = 12345 };

static struct world {
    uint64_t end; /* of X */
    bool loaded, joined, moved, looked, changed, split, done;
} world;

struct user {
    struct dex_member member;
    struct engine *engine;
    struct dex_table *table;
    uint8_t page[1024];
};

static bool next_pair(void *context, struct slice *key, struct slice *value)
{
    struct number_feed *feed = context;
    if (feed->next == feed->end)
        return false;
    *key = number_key(STEP * feed->next++, &feed->key);
    *value = *key;
    return true;
}

static void await_co(const bool *what)
{
    while (!*what)
        rt_sleep_co(LEASE_NS / 4);
}

static void open_co(struct user *self, const char *with)
{
    CHECK_OK(dex_open_switched_co(&self->member, "t", NULL, with));
    CHECK_OK(engine_attach_co(self->member.table, self->member.session, &self->engine));
    self->table = container_of(self->member.table, struct dex_table, base);
}

/* ---- looking at pages ------------------------------------------------------------------------ */

static const uint8_t *root_page(const struct user *self)
{
    return frame_bytes(&self->table->cache.frames, self->table->root_frame);
}

static uint64_t number_of(struct slice key)
{
    uint64_t word = 0;
    memcpy(&word, key.data, key.size);
    return __builtin_bswap64(word);
}

/* The frame of the page of that level with a key of X's; FRAME_NONE: it is not cached. */
static uint32_t cached(const struct user *self, uint64_t number, uint8_t level)
{
    const struct frames *frames = &self->table->cache.frames;
    uint64_t key;
    for (uint32_t i = 0; i < atomic_load(&self->table->cache.fresh); i++) {
        uint8_t state = atomic_load(&frame_at(frames, i)->state);
        const uint8_t *bytes = frame_bytes(frames, i);
        if ((state == FRAME_HOT || state == FRAME_COOLING) && page_level(bytes) == level &&
            page_side(bytes, number_key(number, &key)) == 0)
            return i;
    }
    return FRAME_NONE;
}

/* How many pages the pool's root has. */
static uint32_t children_co(struct user *self)
{
    CHECK_OK(dex_read_co(dex_of(self->engine), self->table->root, self->page));
    return page_pairs(self->page);
}

static void put_co(struct user *self, uint64_t number, uint64_t value)
{
    uint64_t key;
    CHECK_OK(
        engine_put_co(self->engine, number_key(number, &key), slice_of(&value, 8), ENGINE_UPSERT));
}

static uint64_t get_co(struct user *self, uint64_t number)
{
    uint64_t key, value = 0;
    size_t size;
    CHECK_OK(engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size));
    return value;
}

/* Puts between the keys from there on until the pool's root has one more page. */
static void split_co(struct user *self, uint64_t from)
{
    uint32_t before = children_co(self);
    for (uint64_t number = from + 1; children_co(self) == before; number++) {
        CHECK(number < from + (uint64_t)20 * STEP * STEP);
        put_co(self, number, number);
    }
}

/* ---- the two --------------------------------------------------------------------------------- */

/* A key of the half that is split off. */
static uint64_t watched(void)
{
    return world.end / STEP * 3 / 4 * STEP;
}

static void first_task(void *arg)
{
    static struct user user;
    struct user *self = &user;
    struct number_feed feed = {.end = KEYS};
    uint8_t room[PAGE_KEY_ROOM];
    uint64_t key;

    dex_join_co(arg, &self->member);
    CHECK_OK(engine_create_co(&dex_engine, self->member.session, "t", &number_shape));
    open_co(self, NULL);
    CHECK_OK(engine_bulk_load_co(self->engine, next_pair, &feed, 100));
    CHECK_EQ_U64(page_level(root_page(self)), 2);
    CHECK(page_pairs(root_page(self)) >= 2);
    world.end = number_of(page_key(&self->table->layout, root_page(self), 1, room));
    world.loaded = true;
    await_co(&world.joined);
    /* From a fourth of X on everything is the second one's. */
    CHECK_OK(engine_move_co(self->engine, number_key(world.end / 4, &key), 1));
    CHECK(engine_owns(self->engine, number_key(0, &key)));
    CHECK(!engine_owns(self->engine, number_key(world.end / 3, &key)));
    world.moved = true;
    await_co(&world.looked);
    put_co(self, watched(), VALUE); /* forwarded: the second one does not push it down */
    world.changed = true;
    split_co(self, 0);
    world.split = true;
    await_co(&world.done);
    dex_end_co(&self->member, self->engine);
}

static void second_task(void *arg)
{
    static struct user user;
    struct user *self = &user;
    struct frames *frames;
    struct engine_census census;
    char error[256];

    await_co(&world.loaded);
    dex_join_co(arg, &self->member);
    open_co(self, "offload-only");
    frames = &self->table->cache.frames;
    (void)get_co(self, 0);
    world.joined = true;
    await_co(&world.moved);
    (void)get_co(self, world.end / STEP / 3 * STEP);
    world.looked = true;
    await_co(&world.split);
    uint32_t x = cached(self, watched(), 1), leaf = cached(self, watched(), 0);
    CHECK(x != FRAME_NONE && leaf != FRAME_NONE);
    CHECK_EQ_U64(frame_at(frames, leaf)->parent, x);
    CHECK(frame_at(frames, leaf)->dirty);
    uint32_t before = page_pairs(root_page(self));
    split_co(self, world.end * 2); /* of another page: it tells the root, and so reads it */
    CHECK(page_pairs(root_page(self)) >= before + 2);
    CHECK(frame_at(frames, leaf)->dirty);
    CHECK(cached(self, watched(), 1) == x);

    CHECK_EQ_U64(get_co(self, watched()), VALUE);
    /* Whoever comes to X reads it again, and memory nodes can be asked as before. */
    (void)get_co(self, world.end / STEP * 2 / 5 * STEP + STEP);
    CHECK_EQ_U64(atomic_load(&self->table->cache.orphans), 0);
    CHECK_EQ_U64(get_co(self, watched()), VALUE);
    CHECK_OK(engine_verify_co(self->engine, &census, error, sizeof(error)));
    world.done = true;
    dex_end_co(&self->member, self->engine);
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 5, 33);
    dex_world_run(&place, first_task, second_task);
    CHECK(world.done);
    return 0;
}
