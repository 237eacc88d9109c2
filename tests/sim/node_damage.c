/*
 * A memory node comes up with damage in its window: a chunk whose entry is wrong is not given out any more,
 * an intent that cannot be read is left out, and the rest is served. Every bit of an entry is found to be
 * wrong, and so is an entry that claims the chunks of others. A superblock without its magic number is not
 * taken for an empty window.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { CHUNKS = 17, KEYS = 2000 };

static struct world {
    struct dex_world place;
    bool done;
} world;

static enum pando_status open_node(struct fabric *fabric, struct memnode **out)
{
    struct memnode_options options = {
        .grace_ns = LEASE_NS, .seed = 100, .work = dex_memory_pushdown};
    char error[256] = "";
    enum pando_status status = memnode_open(fabric, &options, out, error, sizeof(error));
    if (status != PANDO_OK)
        printf("refused: %s\n", error);
    return status;
}

static uint64_t word_at(struct fabric *fabric, uint64_t offset)
{
    uint64_t word = 0;
    CHECK_OK(fabric_self_read(fabric, offset, &word, sizeof(word)));
    return word;
}

static void set_word(struct fabric *fabric, uint64_t offset, uint64_t word)
{
    CHECK_OK(fabric_self_write(fabric, offset, &word, sizeof(word)));
}

/* Starts the node: what it counts then. */
static struct pool_node_stats start(struct fabric *fabric)
{
    struct pool_node_stats stats;
    struct memnode *memnode;
    CHECK_OK(open_node(fabric, &memnode));
    memnode_stats(memnode, &stats);
    memnode_close(memnode);
    return stats;
}

/* Starts the node with one bit of each chunk's entry flipped, and once as it is. */
static void damage_entries(struct fabric *fabric)
{
    uint64_t table = fabric_window_first(fabric) + POOL_CHUNK_TABLE;
    struct pool_node_stats before = start(fabric);

    CHECK_EQ_U64(before.chunks_damaged, 0);
    for (unsigned bit = 0; bit < 64; bit++) {
        for (unsigned chunk = 0; chunk < before.chunks; chunk += 3) {
            uint64_t at = table + (uint64_t)chunk * POOL_CHUNK_ENTRY_BYTES;
            uint64_t word = word_at(fabric, at);
            set_word(fabric, at, word ^ (uint64_t)1 << bit);
            struct pool_node_stats after = start(fabric);
            CHECK_EQ_U64(after.chunks_damaged, 1);
            CHECK_EQ_U64(after.chunks_free, before.chunks_free - (word == 0));
            set_word(fabric, at, word);
        }
    }
}

/* Starts the node with an entry that is well formed, and wrong: each chunk in turn says that it begins a large
 * block, whose other chunks are free or in use. Free ones are not given out; what is in use stays so. */
static void claim_others(struct fabric *fabric)
{
    enum { LARGE_CHUNKS = 3 };
    struct pool_chunk large = {.kind = POOL_CHUNK_BLOCKS,
                               .block_bytes = LARGE_CHUNKS * POOL_CHUNK_BYTES};
    uint64_t table = fabric_window_first(fabric) + POOL_CHUNK_TABLE;
    struct pool_node_stats before = start(fabric);
    unsigned over_free = 0, over_used = 0;

    for (unsigned chunk = 0; chunk + LARGE_CHUNKS <= before.chunks; chunk++) {
        uint64_t at = table + (uint64_t)chunk * POOL_CHUNK_ENTRY_BYTES;
        uint64_t word = word_at(fabric, at), rests_free = 0;
        for (unsigned rest = 1; rest < LARGE_CHUNKS; rest++)
            rests_free += word_at(fabric, at + (uint64_t)rest * POOL_CHUNK_ENTRY_BYTES) == 0;
        set_word(fabric, at, pool_chunk_pack(&large));
        struct pool_node_stats after = start(fabric);
        CHECK_EQ_U64(after.chunks_damaged, 1 + rests_free);
        CHECK_EQ_U64(after.chunks_free, before.chunks_free - (word == 0) - rests_free);
        set_word(fabric, at, word);
        *(rests_free == LARGE_CHUNKS - 1 ? &over_free : &over_used) += 1;
    }
    CHECK(over_free > 0 && over_used > 0);
}

/* The offset of the first slot for an intent. */
static uint64_t intents_at(struct fabric *fabric)
{
    uint64_t first = fabric_window_first(fabric), words[2];
    uint32_t blocks;
    struct pool_superblock super;
    CHECK_OK(fabric_self_read(fabric, first, &super, sizeof(super)));
    for (uint64_t i = 0; i < super.chunks; i++) {
        CHECK_OK(fabric_self_read(fabric, first + POOL_CHUNK_TABLE + i * POOL_CHUNK_ENTRY_BYTES,
                                  words, sizeof(words)));
        struct pool_chunk chunk = pool_chunk_unpack(words[0], words[1]);
        blocks = intent_chunk(&chunk) ? pool_chunk_blocks(&chunk) : 0;
        for (uint32_t j = 0; j < blocks; j++) {
            uint64_t block = super.heap_offset + i * POOL_CHUNK_BYTES + j * chunk.block_bytes;
            if (intent_slot_tenure(pool_tenure_unpack(word_at(fabric, block + POOL_BLOCK_TENURE))))
                return block + INTENT_SLOT_AT;
        }
    }
    CHECK_FAIL("there is no slot for an intent");
}

/* Starts the node with something in an intent's place that is none. */
static void damage_intent(struct fabric *fabric)
{
    uint64_t at = intents_at(fabric), word = word_at(fabric, at);

    CHECK_EQ_U64(start(fabric).intents_damaged, 0);
    set_word(fabric, at, word ^ 4);
    CHECK_EQ_U64(start(fabric).intents_damaged, 1);
    set_word(fabric, at, word);
}

static void damage_magic(struct fabric *fabric)
{
    uint64_t at = fabric_window_first(fabric), word = word_at(fabric, at);
    struct memnode *memnode;
    set_word(fabric, at, word ^ 4);
    CHECK_STATUS(open_node(fabric, &memnode), PANDO_CORRUPT);
    set_word(fabric, at, word);
}

static void user_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct number_feed feed = {.end = KEYS};
    uint64_t key, value;
    size_t size;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    dex_attach_co(&self, &engine);
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 100));
    sim_stop(fabric_sim_world(world.place.net)); /* goes on when the node is up again */
    rt_sleep_co(RT_NS_PER_US);
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size));
    CHECK_OK(engine_put_co(engine, number_key(KEYS, &key), slice_of(&key, 8), ENGINE_UPSERT));
    dex_end_co(&self, engine);
    world.done = true;
}

int main(void)
{
    struct dex_world *place = &world.place;

    dex_world_build(place, 3, CHUNKS);
    CHECK_OK(rt_spawn(fabric_sim_loop(place->members[0], 0), user_task, place->members[0]));
    CHECK(sim_run(fabric_sim_world(place->net), 60 * RT_NS_PER_S) == SIM_STOPPED);
    memnode_close(place->memnode);
    damage_entries(place->memory);
    claim_others(place->memory);
    damage_intent(place->memory);
    damage_magic(place->memory);
    CHECK_OK(open_node(place->memory, &place->memnode));
    CHECK(sim_run(fabric_sim_world(place->net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    fabric_sim_destroy(place->net);
    memnode_close(place->memnode);
    return 0;
}
