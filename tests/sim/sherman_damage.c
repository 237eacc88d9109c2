/*
 * Flipped bits anywhere in a Sherman table whose users all live, and in the directory's word for its root: every answer is right or CORRUPT,
 * in bounded time, other keys go on, and verify names the node. Nothing is ever repaired: when the
 * bit is back, everything is as it was.
 */
#include "base/prng.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/blink/node/node_fmt.h"
#include "tree/sherman/sherman.h"

enum { KEYS = 600, NODE_BYTES = 512, ROUNDS = 60, SAMPLES = 12 };

static const struct engine_shape shapes[] = {
    {.key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = NODE_BYTES},
    {.key_max = 8, .value_inline = 16, .node_bytes = NODE_BYTES},
};

static struct dex_world place;
static struct prng prng;
static unsigned shape_index, corrupt, right, said, done;

static struct engine *engine;
static uint64_t values[KEYS];

/* ---- operations ------------------------------------------------------------------------------ */

static struct slice value_of(uint64_t number)
{
    return slice_of(&values[number], sizeof(values[number]));
}

static bool expected(enum pando_status status)
{
    CHECK(status == PANDO_OK || status == PANDO_CORRUPT);
    corrupt += status == PANDO_CORRUPT;
    right += status == PANDO_OK;
    return status == PANDO_OK;
}

/* Whether it could be read. */
static bool get_co(uint64_t number)
{
    uint64_t key, value = 0, begin_ns = rt_now_ns();
    size_t size;
    enum pando_status status =
        engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size);
    CHECK(rt_now_ns() - begin_ns < 2 * RT_NS_PER_S);
    if (!expected(status))
        return false;
    CHECK_EQ_U64(value, values[number]);
    return true;
}

static void put_co(uint64_t number)
{
    uint64_t key, old = values[number], begin_ns = rt_now_ns();
    values[number] = prng_next(&prng);
    enum pando_status status =
        engine_put_co(engine, number_key(number, &key), value_of(number), ENGINE_UPSERT);
    CHECK(rt_now_ns() - begin_ns < 2 * RT_NS_PER_S);
    if (!expected(status))
        values[number] = old;
}

static bool check_pair(void *context, struct slice key, struct slice value)
{
    uint64_t number, *next = context;
    memcpy(&number, key.data, sizeof(number));
    CHECK_EQ_U64(__builtin_bswap64(number), *next);
    CHECK(slice_equal(value, value_of(*next)));
    ++*next;
    return true;
}

static void scan_co(void)
{
    struct engine_range range = {.no_high = true};
    uint64_t next = 0;
    if (expected(engine_scan_co(engine, &range, check_pair, &next)))
        CHECK_EQ_U64(next, KEYS);
}

static enum pando_status verify_co(char *error, size_t error_bytes)
{
    struct engine_census census;
    error[0] = '\0';
    return engine_verify_co(engine, &census, error, error_bytes);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* A live node of the table, any of them. */
static uint64_t any_node(uint64_t heap)
{
    enum { NODES = 400 };
    uint64_t nodes[NODES];
    unsigned count = 0;
    for (uint64_t offset = heap; offset < heap + POOL_CHUNK_BYTES && count < NODES;
         offset += NODE_BYTES) {
        uint64_t words[4];
        CHECK_OK(fabric_self_read(place.memory, offset, words, sizeof(words)));
        if (words[1] == offset && pool_tenure_unpack(words[3]).state == POOL_BLOCK_LIVE)
            nodes[count++] = offset;
    }
    CHECK(count > 10);
    return nodes[prng_below(&prng, count)];
}

static void flip(uint64_t offset, unsigned bit)
{
    uint8_t byte;
    CHECK_OK(fabric_self_read(place.memory, offset + bit / 8, &byte, 1));
    byte ^= (uint8_t)(1u << bit % 8);
    CHECK_OK(fabric_self_write(place.memory, offset + bit / 8, &byte, 1));
}

static void round_co(uint64_t heap)
{
    char error[4096], where[64];
    uint64_t node = any_node(heap);
    /* The beginning of the header as often as all the rest. */
    unsigned bit = (unsigned)prng_below(&prng, prng_chance(&prng, 0.5) ? 512 : NODE_BYTES * 8);
    unsigned lost = 0;

    flip(node, bit);
    for (unsigned i = 0; i < SAMPLES; i++)
        put_co(prng_below(&prng, KEYS));
    scan_co();
    for (uint64_t i = 0; i < KEYS; i++)
        lost += !get_co(i);
    enum pando_status status = verify_co(error, sizeof(error));
    if (lost > 0)
        CHECK(status == PANDO_CORRUPT);
    if (status == PANDO_CORRUPT) {
        snprintf(where, sizeof(where), "memory node 0, offset 0x%" PRIx64 ",", node);
        if (strstr(error, where) == NULL)
            CHECK_FAIL("damage at %" PRIx64 " was called:\n  %s", node, error);
        said++;
    } else {
        CHECK_OK(status);
    }
    flip(node, bit);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK(get_co(i));
    CHECK_OK(verify_co(error, sizeof(error)));
}

/* ---- the root's word in the directory -------------------------------------------------------- */

static enum pando_status open_co(struct dex_member *self, char *error, size_t error_bytes)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    enum pando_status status = engine_open_co(&sherman_engine, self->session, "t", &config,
                                              &self->table, error, error_bytes);
    if (status == PANDO_OK)
        CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    return status;
}

static void close_co(struct dex_member *self)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static void verify_names_root_co(uint64_t word)
{
    char error[4096], where[64];
    CHECK_STATUS(verify_co(error, sizeof(error)), PANDO_CORRUPT);
    snprintf(where, sizeof(where), "memory node 0, offset 0x%" PRIx64 ",", word);
    if (strstr(error, where) == NULL)
        CHECK_FAIL("a damaged root at %" PRIx64 " was called:\n  %s", word, error);
}

/* Whoever knows the root goes on; whoever has to read it answers CORRUPT, and so does an open. */
static void root_flip_co(struct dex_member *self, uint64_t word, unsigned bit)
{
    char error[256];
    bool known = bit % 4 == 0;

    CHECK_OK(open_co(self, error, sizeof(error)));
    if (known)
        CHECK(get_co(1));
    flip(word, bit);
    for (unsigned i = 0; i < SAMPLES; i++) {
        put_co(prng_below(&prng, KEYS));
        CHECK(get_co(prng_below(&prng, KEYS)) == known);
    }
    if (!known)
        scan_co();
    if (bit % 8 == 0)
        verify_names_root_co(word);
    close_co(self);
    CHECK_STATUS(open_co(self, error, sizeof(error)), PANDO_CORRUPT);
    CHECK(strstr(error, "table 't'") != NULL);
    flip(word, bit);
    CHECK_OK(open_co(self, error, sizeof(error)));
    for (uint64_t i = 0; i < KEYS; i += 7)
        CHECK(get_co(i));
    close_co(self);
}

static void member_task(void *arg)
{
    struct dex_member self;
    struct pool_entry entry;
    unsigned slot;
    char error[256];

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &shapes[shape_index]));
    CHECK_OK(open_co(&self, error, sizeof(error)));
    for (uint64_t i = 0; i < KEYS; i++)
        put_co(i);
    for (unsigned i = 0; i < ROUNDS; i++)
        round_co(pool_superblock(self.pool, 0)->heap_offset);
    close_co(&self);
    CHECK_OK(pool_table_open_co(self.session, "t", &slot, &entry));
    for (unsigned bit = 0; bit < 64; bit++)
        root_flip_co(&self, fabric_address_offset(pool_root_address(self.pool, slot)), bit);
    CHECK_OK(open_co(&self, error, sizeof(error)));
    CHECK_OK(verify_co(error, sizeof(error)));
    dex_end_co(&self, engine);
    done++;
}

int main(void)
{
    for (; shape_index < 2; shape_index++) {
        prng_seed(&prng, 11 + shape_index);
        dex_world_build(&place, 7, 9);
        log_set_level(0);
        dex_world_run(&place, member_task, NULL);
    }
    CHECK_EQ_U64(done, 2);
    printf("%u right, %u corrupt, %u of %u named by verify\n", right, corrupt, said, 2 * ROUNDS);
    CHECK(corrupt > 0 && said > ROUNDS / 2);
    return 0;
}
