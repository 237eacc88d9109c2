/*
 * Damaged bytes of a table are found by verifying it, and it is said where they are. The table's pool
 * is this process's own memory, so that any byte of it can be changed.
 */
#include "base/log.h"
#include "base/prng.h"
#include "engine/engine.h"
#include "lib/check.h"
#include "store/engines.h"
#include "store/env.h"
#include "tree/blink/node/node_fmt.h"

enum { KEYS = 3000, LONG_EVERY = 50, LONG_BYTES = 5000, NODE_BYTES = 1024 };

struct world {
    struct fabric *fabric;
    struct pool_session *session;
    struct engine *engine;
    uint64_t heap, end;
};

static struct slice key_of(unsigned number, char out[16])
{
    snprintf(out, 16, "key-%08u", number);
    return slice_of_text(out);
}

static void fill_co(struct world *world)
{
    static uint8_t value[LONG_BYTES];
    char key[16];
    for (unsigned i = 0; i < KEYS; i++) {
        memset(value, (int)(i * 7 + 1), sizeof(value));
        CHECK_OK(engine_put_co(world->engine, key_of(i, key),
                               slice_of(value, i % LONG_EVERY == 0 ? LONG_BYTES : 20),
                               ENGINE_UPSERT));
    }
}

static enum pando_status verify_co(struct world *world, struct engine_census *census, char *error,
                                   size_t error_bytes)
{
    error[0] = '\0';
    return engine_verify_co(world->engine, census, error, error_bytes);
}

static uint8_t byte_at(struct world *world, uint64_t offset)
{
    uint8_t byte;
    CHECK_OK(fabric_self_read(world->fabric, offset, &byte, 1));
    return byte;
}

/* The first live node of that level (-1: a long value) at or after `from`. */
static uint64_t find_node(struct world *world, uint64_t from, int level)
{
    uint8_t node[64];
    for (uint64_t offset = from; offset + NODE_BYTES < world->end; offset += 64) {
        uint64_t word;
        CHECK_OK(fabric_self_read(world->fabric, offset, node, sizeof(node)));
        memcpy(&word, node + 8, 8);
        if (word !=
            offset) /* a block has its own address in its second word; node 0's is the offset */
            continue;
        memcpy(&word, node + 24, 8);
        struct pool_tenure tenure = pool_tenure_unpack(word);
        if (tenure.state != POOL_BLOCK_LIVE)
            continue;
        if (level < 0 ? tenure.kind != 0 : tenure.kind == 0 && node[NODE_LEVEL] == level)
            return offset;
    }
    CHECK_FAIL("no node of level %d", level);
}

/* A byte of some pair's key in that leaf: the third key that lies there, behind the fences. */
static uint64_t find_key(struct world *world, uint64_t leaf)
{
    static uint8_t bytes[NODE_BYTES];
    int seen = 0;
    CHECK_OK(fabric_self_read(world->fabric, leaf, bytes, sizeof(bytes)));
    for (uint64_t at = NODE_FENCES; at + 8 < NODE_BYTES; at++) {
        if (memcmp(bytes + at, "key-", 4) == 0 && ++seen == 3)
            return at;
    }
    CHECK_FAIL("no keys in the leaf at %" PRIx64, leaf);
}

/* Changes one byte, looks, and puts it back. */
static void damage_co(struct world *world, uint64_t node, uint64_t at, uint64_t said,
                      const char *complaint)
{
    char error[4096], where[64];
    struct engine_census census;
    uint8_t good = byte_at(world, node + at), bad = good ^ 0x40;

    CHECK_OK(fabric_self_write(world->fabric, node + at, &bad, 1));
    CHECK_STATUS(verify_co(world, &census, error, sizeof(error)), PANDO_CORRUPT);
    CHECK_EQ_U64(census.damaged, 1);
    CHECK(census.pairs < KEYS); /* what is behind the damage is not counted; the rest is */
    snprintf(where, sizeof(where), "memory node 0, offset 0x%" PRIx64 ",", said);
    if ((said != 0 && strstr(error, where) == NULL) || strstr(error, complaint) == NULL)
        CHECK_FAIL("damage at %" PRIx64 " + %" PRIu64 " was called:\n  %s", node, at, error);
    printf("  %s\n", error);
    CHECK_OK(fabric_self_write(world->fabric, node + at, &good, 1));
    CHECK_OK(verify_co(world, &census, error, sizeof(error)));
    CHECK_EQ_U64(census.pairs, KEYS);
}

static void several_co(struct world *world)
{
    enum { LEAVES = 5 };
    char error[4096];
    struct engine_census census;
    uint64_t leaf[LEAVES], from = world->heap;
    uint8_t good[LEAVES];
    unsigned lines = 1;

    for (int i = 0; i < LEAVES; i++) {
        leaf[i] = find_node(world, from, 0);
        from = leaf[i] + 20 * NODE_BYTES;
        good[i] = byte_at(world, leaf[i]);
        uint8_t bad = good[i] ^ 1;
        CHECK_OK(fabric_self_write(world->fabric, leaf[i], &bad, 1));
    }
    CHECK_STATUS(verify_co(world, &census, error, sizeof(error)), PANDO_CORRUPT);
    CHECK_EQ_U64(census.damaged, LEAVES);
    for (const char *p = error; *p != '\0'; p++)
        lines += *p == '\n';
    CHECK_EQ_U64(lines, LEAVES);
    for (int i = 0; i < LEAVES; i++)
        CHECK_OK(fabric_self_write(world->fabric, leaf[i], &good[i], 1));
    CHECK_OK(verify_co(world, &census, error, sizeof(error)));
}

static void cases_co(struct world *world)
{
    char error[4096];
    struct engine_census census;
    fill_co(world);
    CHECK_OK(verify_co(world, &census, error, sizeof(error)));
    CHECK_EQ_U64(census.pairs, KEYS);
    CHECK(census.leaves > 50 && census.nodes > census.leaves);

    uint64_t leaf = find_node(world, world->heap, 0);
    uint64_t inner = find_node(world, world->heap, 1), blob = find_node(world, world->heap, -1);
    damage_co(world, leaf, NODE_SIBLING, leaf, "no valid node");
    damage_co(world, leaf, find_key(world, leaf), leaf, "a cell of this leaf");
    damage_co(world, inner, NODE_FENCES + 40, inner, "no valid node");
    damage_co(world, blob, 40, 0, "a long value");
    damage_co(world, blob, 4000, 0, "a long value");
    several_co(world);
}

static void main_co(void *context, const struct env_place *place)
{
    struct world *world = context;
    struct pool_options options = {
        .memory_nodes = 1, .name = "test", .lease_ns = 50 * RT_NS_PER_MS};
    struct engine_shape shape = {.key_max = 32, .value_inline = 32, .node_bytes = NODE_BYTES};
    struct engine_config config = {0};
    struct engine_table *table;
    struct pool *pool;
    char error[256];

    world->fabric = place->fabric;
    CHECK_OK(pool_join_co(place->fabric, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &world->session));
    world->heap = pool_superblock(pool, 0)->heap_offset;
    world->end = world->heap + pool_superblock(pool, 0)->chunks * POOL_CHUNK_BYTES;
    const struct engine_ops *ops = store_engine("sherman");
    CHECK_OK(engine_create_co(ops, world->session, "damage", &shape));
    CHECK_OK(engine_open_co(ops, world->session, "damage", &config, &table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(table, world->session, &world->engine));
    cases_co(world);
    engine_detach_co(world->engine);
    CHECK_OK(engine_drop_co(table, world->session));
    engine_close_co(table, world->session);
    pool_session_close_co(world->session);
    pool_leave_co(pool);
}

int main(void)
{
    struct env_options options = {.uri = "embedded:64M"};
    struct world world = {0};
    struct env *env;
    char error[256];
    CHECK_OK(env_open(&options, &env, error, sizeof(error)));
    CHECK_OK(env_run(env, 1, main_co, &world));
    env_close(env);
    return 0;
}
