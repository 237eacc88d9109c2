/*
 * A root that has one child left takes its place only if that child is the last of its level. One that
 * was split, and whose other half the root was not told of yet, is not: the half would be beyond the end of
 * the root, where nobody looks. A tree with such a root is reported as damaged, by verify and by whoever
 * asks for a key there. Nor is a half left that its parent has no room for.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/tree.h"

enum { KEYS = 6400, STEP = 100 };

static unsigned done;

struct user {
    struct dex_member member;
    struct engine *engine;
    struct dex_table *table;
    uint8_t page[1024];
};

/* Every key is STEP apart, so that there is room for others between them. */
static bool next_pair(void *context, struct slice *key, struct slice *value)
{
    struct number_feed *feed = context;
    if (feed->next == feed->end)
        return false;
    *key = number_key(STEP * feed->next++, &feed->key);
    *value = *key;
    return true;
}

static void begin_co(struct user *self, struct fabric *fabric)
{
    struct number_feed feed = {.end = KEYS};
    dex_join_co(fabric, &self->member);
    CHECK_OK(engine_create_co(&dex_engine, self->member.session, "t", &number_shape));
    CHECK_OK(dex_open_co(&self->member, "t", NULL));
    CHECK_OK(engine_attach_co(self->member.table, self->member.session, &self->engine));
    self->table = container_of(self->member.table, struct dex_table, base);
    CHECK_OK(engine_bulk_load_co(self->engine, next_pair, &feed, 100));
}

static void end_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->member.table, self->member.session);
    dex_leave_co(&self->member);
    done++;
}

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

static enum pando_status get_co(struct user *self, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    return engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
}

/* Splits the root's last child by puts into its first leaf; there is no slot for telling the root. */
static uint64_t split_last_co(struct user *self)
{
    const struct page_layout *layout = &self->table->layout;
    uint8_t room[PAGE_KEY_ROOM];
    uint64_t key;

    CHECK_EQ_U64(page_level(root_page(self)), 2);
    CHECK_EQ_U64(page_pairs(root_page(self)), 2);
    uint64_t first = number_of(page_key(layout, root_page(self), 1, room));
    uint64_t word = page_child(layout, root_page(self), 1);
    fabric_address last =
        frame_swizzled(word) ? frame_at(&self->table->cache.frames, (uint32_t)word)->address : word;
    CHECK_OK(dex_read_co(dex_of(self->engine), last, self->page));
    for (uint64_t number = first; page_no_high(self->page); number++) {
        CHECK(number < first + 20 * STEP * STEP);
        pool_fail_allocations(self->member.pool, 3, UINT64_MAX);
        enum pando_status status =
            engine_put_co(self->engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT);
        pool_fail_allocations(self->member.pool, 0, 0);
        CHECK(status == PANDO_OK || status == PANDO_FULL);
        CHECK_OK(dex_read_co(dex_of(self->engine), last, self->page));
    }
    CHECK_EQ_U64(page_pairs(root_page(self)), 2);
    return first;
}

static void shrink_task(void *arg)
{
    static struct user user;
    struct user *self = &user;
    struct engine_census census;
    char error[256];
    uint64_t key;

    begin_co(self, arg);
    uint64_t first = split_last_co(self);
    for (uint64_t number = 0; number < first; number += STEP)
        CHECK_OK(engine_delete_co(self->engine, number_key(number, &key)));
    printf("the root has level %u, and %s end\n", page_level(root_page(self)),
           page_no_high(root_page(self)) ? "no" : "an");
    for (uint64_t number = first; number < STEP * KEYS; number += STEP)
        CHECK_OK(get_co(self, number));
    CHECK_OK(engine_verify_co(self->engine, &census, error, sizeof(error)));
    end_co(self);
}

/* The root as it would be: all below its last child is beyond its end. */
static void cut_root_co(struct user *self)
{
    struct dex *engine = dex_of(self->engine);
    struct dex_scratch *scratch = dex_scratch_take(engine);
    const struct page_layout *layout = &self->table->layout;
    uint8_t room[PAGE_KEY_ROOM], low[PAGE_KEY_ROOM];

    dex_image(self->table, self->table->root_frame, scratch->image);
    struct page_header header = {.address = page_address(scratch->image),
                                 .version = page_version(scratch->image) + 1,
                                 .tenure = dex_tenure(self->table, true),
                                 .sibling = page_child(layout, scratch->image, 1),
                                 .stamp = page_stamp(scratch->image),
                                 .level = page_level(scratch->image),
                                 .low = page_low(scratch->image, low),
                                 .high = page_key(layout, scratch->image, 1, room)};
    page_init(layout, &header, scratch->page);
    CHECK(page_append(layout, scratch->page, scratch->image, 0, 1));
    struct dex_page_write change = {.images = {scratch->page}, .count = 1};
    CHECK_OK(dex_write_pages_co(engine, scratch, &change));
    frame_latch_co(&self->table->cache.frames,
                   frame_at(&self->table->cache.frames, self->table->root_frame));
    dex_relink_children_co(engine, self->table->root_frame, scratch->page);
    frame_give_changed(frame_at(&self->table->cache.frames, self->table->root_frame));
    dex_scratch_give(engine, scratch);
}

static void damaged_task(void *arg)
{
    static struct user user;
    struct user *self = &user;
    struct engine_census census;
    char error[256] = "";

    begin_co(self, arg);
    cut_root_co(self);
    uint64_t begin_ns = rt_now_ns();
    CHECK_STATUS(get_co(self, STEP * (KEYS - 1)), PANDO_CORRUPT);
    CHECK(rt_now_ns() < begin_ns + 2 * RT_NS_PER_S);
    CHECK_OK(get_co(self, 0));
    CHECK_STATUS(engine_verify_co(self->engine, &census, error, sizeof(error)), PANDO_CORRUPT);
    printf("verify: %s\n", error);
    end_co(self);
}

/* Below a parent that is full: a leaf is not split before its parent is, as no memory may be left for that. */
static void full_parent_task(void *arg)
{
    static struct user user;
    struct user *self = &user;
    uint64_t key;

    begin_co(self, arg);
    enum pando_status status = PANDO_OK;
    for (uint64_t leaf = 0; status == PANDO_OK; leaf++) {
        CHECK(leaf < 40);
        pool_fail_blocks(self->member.pool, 2, UINT64_MAX); /* enough for one page */
        status = engine_put_co(self->engine, number_key(leaf * 60 * STEP + 1, &key),
                               slice_of(&key, 8), ENGINE_UPSERT);
        for (uint64_t number = 0; number < STEP * KEYS; number += STEP) {
            rt_sleep_co(RT_NS_PER_US); /* the lease is renewed meanwhile */
            CHECK_OK(get_co(self, number));
        }
        pool_fail_blocks(self->member.pool, 0, 0);
    }
    CHECK_STATUS(status, PANDO_FULL);
    CHECK_OK(engine_put_co(self->engine, number_key(1, &key), slice_of(&key, 8), ENGINE_UPSERT));
    end_co(self);
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 5, 33);
    dex_world_run(&place, shrink_task, NULL);
    dex_world_build(&place, 5, 33);
    dex_world_run(&place, damaged_task, NULL);
    dex_world_build(&place, 5, 33);
    dex_world_run(&place, full_parent_task, NULL);
    CHECK(done == 3);
    return 0;
}
