/*
 * Long values: a reference means one value of one key, and no later one of the same block; versions of their
 * blocks go up for ever (rule stale-read-limit); they are as large as they have to be, and freed as what they
 * are; damaged ones are CORRUPT to all who want them, soon, until they are replaced.
 */
#include "blob/blob.h"
#include "pool/block_fmt.h"
#include "pool/memnode_int.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum {
    LONG_BYTES = 5000,
    SEGMENT_BYTES = BLOB_SEGMENT_BYTES,
    KEYS = 20,
    TABLE = 77,
    LIVES = 5,
    CHUNKS = 72
};

static const uint64_t SOON_NS = 2 * RT_NS_PER_S;
static struct dex_world place;
static unsigned done;
static uint8_t mark; /* values of one table are not those of another, parts of which are lost */

static void grace_co(const struct dex_member *self)
{
    rt_sleep_co(pool_grace_ns(self->pool) + RT_NS_PER_MS);
}

/* ---- references -------------------------------------------------------------------------------- */

static uint8_t got[LONG_BYTES];

static enum pando_status read_co(struct pool_session *session, uint16_t table, struct slice key,
                                 blob_ref ref, size_t capacity, size_t *size)
{
    struct blob_part part = {.to = got, .capacity = capacity};
    enum pando_status status = blob_read_co(session, table, key, ref, &part);
    *size = part.size;
    return status;
}

static void references_co(struct dex_member *self)
{
    static uint8_t value[LONG_BYTES];
    struct pool_session *session = self->session;
    struct slice mine = slice_of_text("mine"), other = slice_of_text("other");
    struct blob_buffer buffer = {0};
    struct slice fetched;
    blob_ref first, ref;
    size_t size;

    memset(value, 3, sizeof(value));
    CHECK_OK(blob_write_co(session, TABLE, mine, slice_of(value, sizeof(value)), &first));
    CHECK_OK(read_co(session, TABLE, mine, first, sizeof(got), &size));
    CHECK_EQ_U64(size, LONG_BYTES);
    CHECK(memcmp(got, value, LONG_BYTES) == 0);
    CHECK_OK(blob_fetch_co(session, TABLE, mine, first, LONG_BYTES, &buffer, &fetched));
    CHECK(slice_equal(fetched, slice_of(value, sizeof(value))));
    CHECK_STATUS(read_co(session, TABLE, other, first, sizeof(got), &size), PANDO_STALE);
    CHECK_STATUS(read_co(session, TABLE + 1, mine, first, sizeof(got), &size), PANDO_STALE);
    for (ref = first; ref == first || blob_ref_address(ref) == blob_ref_address(first);) {
        CHECK_OK(blob_free_co(session, TABLE, ref));
        CHECK_STATUS(read_co(session, TABLE, mine, ref, 1, &size), PANDO_STALE);
        grace_co(self);
        CHECK_OK(blob_write_co(session, TABLE, mine, slice_of(value, sizeof(value)), &ref));
        CHECK(ref != first);
        CHECK_STATUS(read_co(session, TABLE, mine, first, 1, &size), PANDO_STALE);
        CHECK_STATUS(blob_free_co(session, TABLE, first), PANDO_STALE);
        CHECK_OK(read_co(session, TABLE, mine, ref, sizeof(got), &size));
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
    static uint8_t value[2 * SEGMENT_BYTES + SEGMENT_BYTES / 2];
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

/* ---- sizes ------------------------------------------------------------------------------------- */

static uint32_t block_bytes_at(fabric_address address)
{
    uint64_t offset = fabric_address_offset(address) - place.memnode->super.heap_offset;
    return place.memnode->chunks[offset / POOL_CHUNK_BYTES].entry.block_bytes;
}

/* The sum of the blocks that a value of two segments takes, as their node cut them. */
static uint64_t blocks_of(blob_ref ref)
{
    blob_ref refs[2];
    fabric_address head = blob_ref_address(ref);
    uint64_t list =
        fabric_address_offset(head) + sizeof(struct blob_head) + sizeof(struct blob_prefix);
    CHECK_OK(fabric_self_read(place.memory, list, refs, sizeof(refs)));
    return block_bytes_at(head) + block_bytes_at(blob_ref_address(refs[0])) +
           block_bytes_at(blob_ref_address(refs[1]));
}

static void write_and_free_co(struct dex_member *self, struct slice value, bool abort)
{
    struct slice key = slice_of_text("sizes");
    if (abort) {
        struct blob_writer writer;
        CHECK_OK(blob_begin_co(&writer, self->session, TABLE, key, value.size));
        CHECK_OK(blob_append_co(&writer, value));
        blob_abort_co(&writer);
        return;
    }
    uint64_t bytes;
    blob_ref ref;
    CHECK_OK(blob_write_co(self->session, TABLE, key, value, &ref));
    CHECK_EQ_U64(blocks_of(ref), blob_pool_bytes(value.size));
    CHECK_OK(blob_check_co(self->session, TABLE, key, ref, &bytes));
    CHECK_EQ_U64(bytes, blob_pool_bytes(value.size));
    CHECK_OK(blob_free_co(self->session, TABLE, ref));
}

/* What is freed counts as what it is: who took it for more would use it for more. */
static void right_sizes_co(struct dex_member *self)
{
    static uint8_t value[400000];
    static const size_t sizes[] = {262200, 300000, sizeof(value)};
    enum { VALUES = 16, TURNS = 6 };
    uint16_t member = pool_identity(self->pool).member;

    for (unsigned turn = 0; turn < TURNS; turn++) {
        size_t size = sizes[turn % 3];
        CHECK(blob_pool_bytes(size) < size + size / 8);
        grace_co(self);
        for (unsigned i = 0; i < VALUES; i++)
            write_and_free_co(self, slice_of(value, size), turn / 3 == 1);
        rt_sleep_co(pool_grace_ns(self->pool) / 2); /* until the node was told */
        uint64_t freed = VALUES * blob_pool_bytes(size);
        uint64_t waiting = place.memnode->waiting[member].bytes;
        CHECK(waiting + POOL_CHUNK_BYTES > freed && waiting < freed + POOL_CHUNK_BYTES);
    }
}

/* ---- parts ------------------------------------------------------------------------------------- */

enum { PART_SEGMENTS = 3, PART_BYTES = 2 * BLOB_SEGMENT_VALUE + 1000, PREFIX = 9 };

static uint8_t parts_value[PREFIX + PART_BYTES], parts_got[PREFIX + PART_BYTES];

/* Reads a part and compares it. The status is OK or STALE; bytes are right or there are none. */
static enum pando_status part_co(struct pool_session *session, blob_ref ref, uint64_t offset,
                                 size_t size, bool freed_too)
{
    struct blob_part part = {
        .offset = offset, .to = parts_got, .capacity = size, .freed_too = freed_too};
    enum pando_status status = blob_read_co(session, TABLE, slice_of_text("parts"), ref, &part);
    if (status != PANDO_OK) {
        CHECK_STATUS(status, PANDO_STALE);
        return status;
    }
    size_t left = offset < sizeof(parts_value) ? sizeof(parts_value) - offset : 0;
    CHECK_EQ_U64(part.size, sizeof(parts_value));
    CHECK_EQ_U64(part.got, size < left ? size : left);
    CHECK(part.got == 0 || memcmp(parts_got, parts_value + offset, part.got) == 0);
    return PANDO_OK;
}

static blob_ref write_parts_co(struct dex_member *self, bool abort)
{
    struct blob_writer writer;
    blob_ref ref = 0;
    struct slice left = slice_of(parts_value + PREFIX, PART_BYTES);
    CHECK_OK(blob_begin_co(&writer, self->session, TABLE, slice_of_text("parts"), PART_BYTES));
    for (size_t step = 1; left.size > 0; step = step * 3 + 1) {
        step = step < left.size ? step : left.size;
        CHECK_OK(blob_append_co(&writer, slice_of(left.data, step)));
        left = slice_of(left.data + step, left.size - step);
    }
    if (abort)
        blob_abort_co(&writer);
    else
        CHECK_OK(blob_finish_co(&writer, slice_of(parts_value, PREFIX), &ref));
    return ref;
}

static void flip(uint64_t where)
{
    uint8_t byte;
    CHECK_OK(fabric_self_read(place.memory, where, &byte, 1));
    byte ^= 16;
    CHECK_OK(fabric_self_write(place.memory, where, &byte, 1));
}

/* Each segment damaged in turn: what does not touch it is read, what does is STALE. */
static void damage_segments_co(struct dex_member *self, blob_ref ref)
{
    blob_ref refs[PART_SEGMENTS];
    uint64_t head = fabric_address_offset(blob_ref_address(ref));
    uint64_t list = head + sizeof(struct blob_head) + sizeof(struct blob_prefix);
    CHECK_OK(fabric_self_read(place.memory, list, refs, sizeof(refs)));
    for (unsigned i = 0; i < PART_SEGMENTS; i++) {
        uint64_t at = fabric_address_offset(blob_ref_address(refs[i]));
        static const uint64_t places[] = {40, 41, 43, 48, 500, 1047};
        for (unsigned j = 0; j < 6; j++) {
            flip(at + places[j]);
            for (unsigned k = 0; k < PART_SEGMENTS; k++)
                CHECK_STATUS(part_co(self->session, ref,
                                     PREFIX + (uint64_t)k * BLOB_SEGMENT_VALUE + 10, 100, false),
                             k == i ? PANDO_STALE : PANDO_OK);
            CHECK_STATUS(part_co(self->session, ref, 0, sizeof(parts_got), false), PANDO_STALE);
            uint64_t size;
            CHECK_STATUS(blob_check_co(self->session, TABLE, slice_of_text("parts"), ref, &size),
                         PANDO_STALE);
            flip(at + places[j]);
        }
        /* A damaged reference leads to no other segment. */
        flip(list + i * 8 + 3);
        CHECK_STATUS(
            part_co(self->session, ref, PREFIX + (uint64_t)i * BLOB_SEGMENT_VALUE, 1, false),
            PANDO_STALE);
        flip(list + i * 8 + 3);
    }
    for (uint64_t i = 0; i < sizeof(struct blob_head) + sizeof(struct blob_prefix); i++) {
        if (i >= 24 && i < 28)
            continue; /* who wrote it: of no account */
        flip(head + i);
        CHECK_STATUS(part_co(self->session, ref, 0, 20, false), PANDO_STALE);
        flip(head + i);
    }
    blob_ref swapped[PART_SEGMENTS] = {refs[1], refs[0], refs[2]};
    CHECK_OK(fabric_self_write(place.memory, list, swapped, sizeof(swapped)));
    CHECK_STATUS(part_co(self->session, ref, 100, 1, false), PANDO_STALE);
    CHECK_OK(fabric_self_write(place.memory, list, refs, sizeof(refs)));
}

static void parts_co(struct dex_member *self)
{
    for (size_t i = 0; i < sizeof(parts_value); i++)
        parts_value[i] = (uint8_t)(i * 31 + i / 777);
    CHECK_EQ_U64(write_parts_co(self, true), 0);
    blob_ref ref = write_parts_co(self, false);
    static const uint64_t offsets[] = {
        0,         1, 8, 9, 10, BLOB_SEGMENT_VALUE, PREFIX + BLOB_SEGMENT_VALUE, 3 * PART_BYTES,
        PART_BYTES};
    static const size_t sizes[] = {0, 1, 8, 1000, BLOB_SEGMENT_VALUE, sizeof(parts_value)};
    for (unsigned i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        for (unsigned j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++)
            CHECK_OK(part_co(self->session, ref, offsets[i], sizes[j], false));
    damage_segments_co(self, ref);
    CHECK_OK(part_co(self->session, ref, 0, sizeof(parts_got), false));
    CHECK_OK(blob_free_co(self->session, TABLE, ref));
    /* Freed: gone for who comes by its reference now; there for a while for who came before. */
    CHECK_STATUS(part_co(self->session, ref, 0, 1000, false), PANDO_STALE);
    CHECK_OK(part_co(self->session, ref, 0, sizeof(parts_got), true));
    grace_co(self);
    for (int i = 0; i < 4; i++) {
        parts_value[i] ^= 0xff;
        parts_value[PREFIX + i * 100000] ^= 0xff;
        blob_ref next = write_parts_co(self, false);
        parts_value[i] ^= 0xff;
        parts_value[PREFIX + i * 100000] ^= 0xff;
        CHECK(next != ref);
        (void)part_co(self->session, ref, 0, sizeof(parts_got), true); /* right, or STALE */
        CHECK_OK(blob_free_co(self->session, TABLE, next));
        grace_co(self);
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
    static uint8_t room[LONG_BYTES];
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
    right_sizes_co(&self);
    parts_co(&self);
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
