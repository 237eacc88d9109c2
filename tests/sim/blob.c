/*
 * Long values: a reference means one value of one key, and no later one of the same block; versions of their
 * blocks go up for ever (R22); damaged ones are CORRUPT to all who want them, soon, until they are replaced.
 */
#include "tree/blob/blob.h"
#include "pool/block_fmt.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum { LONG_BYTES = 5000, SEGMENT_BYTES = 1 << 18, KEYS = 20, TABLE = 77, LIVES = 5, CHUNKS = 72 };

static const uint64_t SOON_NS = 2 * RT_NS_PER_S;
static struct dex_world place;
static unsigned done;
static uint8_t mark; /* values of one table are not those of another, parts of which are lost */

static void grace_co(const struct dex_member *self)
{
    rt_sleep_co(pool_grace_ns(self->pool) + RT_NS_PER_MS);
}

/* ---- references -------------------------------------------------------------------------------- */

static void references_co(struct dex_member *self)
{
    static uint8_t value[LONG_BYTES], got[LONG_BYTES];
    struct pool_session *session = self->session;
    struct slice mine = slice_of_text("mine"), other = slice_of_text("other");
    struct blob_buffer buffer = {0};
    struct slice fetched;
    blob_ref first, ref;
    size_t size;

    memset(value, 3, sizeof(value));
    CHECK_OK(blob_write_co(session, TABLE, mine, slice_of(value, sizeof(value)), &first));
    CHECK_OK(blob_read_co(session, TABLE, mine, first, got, sizeof(got), &size));
    CHECK_EQ_U64(size, LONG_BYTES);
    CHECK(memcmp(got, value, LONG_BYTES) == 0);
    CHECK_OK(blob_fetch_co(session, TABLE, mine, first, &buffer, &fetched));
    CHECK(slice_equal(fetched, slice_of(value, sizeof(value))));
    CHECK_STATUS(blob_read_co(session, TABLE, other, first, got, sizeof(got), &size), PANDO_STALE);
    CHECK_STATUS(blob_read_co(session, TABLE + 1, mine, first, got, sizeof(got), &size),
                 PANDO_STALE);
    for (ref = first; ref == first || blob_ref_address(ref) == blob_ref_address(first);) {
        CHECK_OK(blob_free_co(session, TABLE, ref));
        CHECK_STATUS(blob_read_co(session, TABLE, mine, ref, got, 1, &size), PANDO_STALE);
        grace_co(self);
        CHECK_OK(blob_write_co(session, TABLE, mine, slice_of(value, sizeof(value)), &ref));
        CHECK(ref != first);
        CHECK_STATUS(blob_read_co(session, TABLE, mine, first, got, 1, &size), PANDO_STALE);
        CHECK_STATUS(blob_free_co(session, TABLE, first), PANDO_STALE);
        CHECK_OK(blob_read_co(session, TABLE, mine, ref, got, sizeof(got), &size));
        if (++done == LIVES) {
            CHECK(blob_ref_address(ref) == blob_ref_address(first)); /* or nothing was shown */
            break;
        }
    }
    CHECK_OK(blob_free_co(session, TABLE, ref));
    free(buffer.bytes);
}

/* The blocks of a value of several segments do not begin at the version of its first block. */
static void segments_co(struct dex_member *self)
{
    struct pool_block block, again;
    static uint8_t value[SEGMENT_BYTES + SEGMENT_BYTES / 2];
    blob_ref ref;

    CHECK_OK(pool_alloc_co(self->session, 0, SEGMENT_BYTES, &block));
    block.version += 1000;
    CHECK_OK(pool_free_co(self->session, &block, SEGMENT_BYTES, false));
    grace_co(self);
    CHECK_OK(blob_write_co(self->session, TABLE, slice_of_text("key"),
                           slice_of(value, sizeof(value)), &ref));
    CHECK_OK(blob_free_co(self->session, TABLE, ref));
    grace_co(self);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pool_alloc_co(self->session, 0, SEGMENT_BYTES, &again));
        if (again.address == block.address)
            CHECK_EQ_U64(again.version, block.version + 1);
    }
}

/* ---- damage ------------------------------------------------------------------------------------ */

static struct slice value_of(uint64_t number, uint8_t room[LONG_BYTES])
{
    memset(room, (uint8_t)(mark + number), LONG_BYTES);
    return slice_of(room, LONG_BYTES);
}

/* The long value of that key: none other has its bytes. */
static uint64_t find_blob(const struct dex_member *self, uint64_t number)
{
    const struct pool_superblock *super = pool_superblock(self->pool, 0);
    uint64_t end = super->heap_offset + super->chunks * POOL_CHUNK_BYTES;
    uint64_t words[8];
    for (uint64_t offset = super->heap_offset; offset + 8192 < end; offset += 64) {
        uint8_t byte;
        CHECK_OK(fabric_self_read(place.memory, offset, words, sizeof(words)));
        CHECK_OK(fabric_self_read(place.memory, offset + 4000, &byte, 1));
        if (words[1] == offset && pool_tenure_unpack(words[3]).state == POOL_BLOCK_LIVE &&
            words[4] == LONG_BYTES && byte == (uint8_t)(mark + number))
            return offset;
    }
    CHECK_FAIL("no long value of key %" PRIu64, number);
}

static struct engine_change keep(void *context, const struct slice *old)
{
    (void)context;
    (void)old;
    return (struct engine_change){.what = ENGINE_KEEP};
}

static void damage_co(struct dex_member *self, struct engine *engine, uint64_t number, uint64_t at)
{
    static uint8_t room[LONG_BYTES], got[LONG_BYTES];
    struct engine_range range = {.no_high = true};
    struct engine_census census;
    char error[1024];
    uint64_t bytes, other, where = find_blob(self, number) + at, begin_ns = rt_now_ns();
    struct slice key = number_key(number, &bytes);
    unsigned count = 0;
    size_t size;
    uint8_t byte;

    CHECK_OK(fabric_self_read(place.memory, where, &byte, 1));
    byte ^= 4;
    CHECK_OK(fabric_self_write(place.memory, where, &byte, 1));
    CHECK_STATUS(engine_get_co(engine, key, got, sizeof(got), &size), PANDO_CORRUPT);
    CHECK_STATUS(engine_modify_co(engine, key, false, keep, NULL), PANDO_CORRUPT);
    CHECK_STATUS(engine_scan_co(engine, &range, count_pair, &count), PANDO_CORRUPT);
    CHECK_EQ_U64(count, number);
    range.reverse = true;
    CHECK_STATUS(engine_scan_co(engine, &range, count_pair, &count), PANDO_CORRUPT);
    CHECK_EQ_U64(count, KEYS - 1);
    CHECK_STATUS(engine_verify_co(engine, &census, error, sizeof(error)), PANDO_CORRUPT);
    CHECK(rt_now_ns() - begin_ns < SOON_NS);
    CHECK_OK(engine_get_co(engine, number_key(number + 1, &other), got, sizeof(got), &size));
    CHECK_OK(engine_put_co(engine, key, value_of(number, room), ENGINE_UPSERT));
    CHECK_OK(engine_get_co(engine, key, got, sizeof(got), &size));
    CHECK(size == LONG_BYTES && memcmp(got, room, LONG_BYTES) == 0);
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
}

static void damages_co(struct dex_member *self, const struct engine_ops *ops)
{
    static const struct engine_shape shape = {.key_max = 8, .value_inline = 16, .node_bytes = 1024};
    struct engine_config config = {.cache_bytes = 1 << 20};
    static uint8_t room[LONG_BYTES];
    struct engine *engine;
    uint64_t bytes;
    char error[256];

    mark += 100;
    CHECK_OK(engine_create_co(ops, self->session, ops->name, &shape));
    CHECK_OK(
        engine_open_co(ops, self->session, ops->name, &config, &self->table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(engine_put_co(engine, number_key(i, &bytes), value_of(i, room), ENGINE_UPSERT));
    static const uint64_t places[] = {0, 8, 16, 24, 32, 40, 48, 56, 2000};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        damage_co(self, engine, i + 3, places[i]);
    engine_detach_co(engine);
    CHECK_OK(engine_drop_co(self->table, self->session));
    engine_close_co(self->table, self->session);
}

static void member_task(void *arg)
{
    struct dex_member self;
    dex_join_co(arg, &self);
    references_co(&self);
    segments_co(&self);
    damages_co(&self, &sherman_engine);
    damages_co(&self, &dex_engine);
    dex_leave_co(&self);
    done++;
}

int main(void)
{
    dex_world_build(&place, 5, CHUNKS);
    dex_world_run(&place, member_task, NULL);
    CHECK_EQ_U64(done, LIVES + 1);
    return 0;
}
