/*
 * What finds no room gives back what it has taken: a load of more than the pool holds, with blobs and
 * without, and a long value of which only some segments fit.
 */
#include "blob/blob.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum {
    CHUNKS = 16,
    TOO_MANY = 1000000,
    VALUE = 200,
    SEGMENT_BYTES = 256 * 1024, /* as in blob.c */
};

static const struct engine_shape shapes[] = {
    {.key_size = 8, .value_size = VALUE, .key_max = 8, .value_inline = VALUE, .node_bytes = 8192},
    {.key_size = 8, .key_max = 8, .value_inline = 64, .node_bytes = 8192},
};

static const uint64_t WAIT_NS = 1200 * RT_NS_PER_MS; /* more than the grace period */

static const uint8_t zeroes[VALUE];
static const struct slice every_value = {zeroes, VALUE};
static unsigned done;

struct test {
    const struct engine_ops *ops; /* NULL: blobs alone */
    const struct engine_shape *shape;
};
static struct test test;

static void open_co(struct dex_member *self, const char *name, struct engine **engine)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256];
    CHECK_OK(engine_create_co(test.ops, self->session, name, test.shape));
    CHECK_OK(
        engine_open_co(test.ops, self->session, name, &config, &self->table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

static void drop_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    CHECK_OK(engine_drop_co(self->table, self->session));
    engine_close_co(self->table, self->session);
}

/* Two loads into one table: what the first gave back is enough for the second. */
static void loads_co(struct dex_member *self)
{
    struct engine *engine;
    struct number_feed feed = {.end = TOO_MANY, .value = every_value};

    open_co(self, "t", &engine);
    CHECK_STATUS(engine_bulk_load_co(engine, number_feed_next, &feed, 90), PANDO_FULL);
    uint64_t most = feed.next;
    CHECK(most > 10000);
    rt_sleep_co(WAIT_NS); /* before it can be had again */
    feed = (struct number_feed){.end = most / 4 * 3, .value = every_value};
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 90));
    drop_co(self, engine);
}

/* How many segments the pool has room for. */
static unsigned count_segments_co(struct dex_member *self)
{
    static struct pool_block blocks[CHUNKS * 8];
    unsigned count = 0;
    while (count < CHUNKS * 8 &&
           pool_alloc_co(self->session, POOL_ANY_NODE, SEGMENT_BYTES, &blocks[count]) == PANDO_OK)
        count++;
    for (unsigned i = 0; i < count; i++)
        CHECK_OK(pool_free_co(self->session, &blocks[i], SEGMENT_BYTES, false));
    rt_sleep_co(WAIT_NS);
    return count;
}

static void blobs_co(struct dex_member *self)
{
    enum { TABLE = 7, SEGMENTS_MIN = 11, SEGMENTS_MAX = 16, BLOBS_MAX = CHUNKS };
    static uint8_t bytes[SEGMENTS_MAX * SEGMENT_BYTES];
    struct slice key = slice_of_text("key");
    blob_ref small, blobs[BLOBS_MAX];
    unsigned segments = SEGMENTS_MIN, count = 0;

    /* Its block is as large as a list of so many segments: there is a chunk of those from now on. */
    CHECK_OK(blob_write_co(self->session, TABLE, key, slice_of(bytes, 130), &small));
    unsigned room = count_segments_co(self);
    while (room % segments == 0)
        segments++;
    CHECK(segments <= SEGMENTS_MAX);
    struct slice value = slice_of(bytes, (size_t)segments * BLOB_SEGMENT_VALUE);
    enum pando_status status = PANDO_OK;
    for (; status == PANDO_OK && count < BLOBS_MAX; count++)
        status = blob_write_co(self->session, TABLE, key, value, &blobs[count]);
    CHECK_STATUS(status, PANDO_FULL);
    CHECK_EQ_U64(blobs[--count], 0);
    CHECK_EQ_U64(count, room / segments);
    while (count > 0)
        CHECK_OK(blob_free_co(self->session, TABLE, blobs[--count]));
    rt_sleep_co(WAIT_NS);
    CHECK_EQ_U64(count_segments_co(self), room);
}

static void member_task(void *arg)
{
    struct dex_member self;
    dex_join_co(arg, &self);
    if (test.ops != NULL)
        loads_co(&self);
    else
        blobs_co(&self);
    dex_leave_co(&self);
    done++;
}

int main(void)
{
    static const struct engine_ops *const engines[] = {&sherman_engine, &dex_engine};
    unsigned runs = 0;
    for (unsigned i = 0; i < 5; i++, runs++) {
        struct dex_world place;
        test = (struct test){.ops = i < 4 ? engines[i / 2] : NULL, .shape = &shapes[i % 2]};
        dex_world_build(&place, 11 + i, CHUNKS);
        dex_world_run(&place, member_task, NULL);
    }
    CHECK_EQ_U64(done, runs);
    return 0;
}
