/*
 * A memory node comes up with damage in its window: a chunk whose entry is wrong is not given out any more,
 * an intent that cannot be read is left out, and the rest is served. Every bit of an entry is found to be
 * wrong. A superblock without its magic number is not taken for an empty window.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { CHUNKS = 17, KEYS = 2000 };

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static struct world {
    struct dex_world place;
    bool done;
} world;

static enum pando_status open_node(struct fabric *fabric, struct memnode **out)
{
    struct memnode_options options = {.grace_ns = LEASE_NS, .seed = 100, .work = dex_memory_work};
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

/* Starts the node with one bit of each chunk's entry flipped, and once as it is. */
static void damage_entries(struct fabric *fabric)
{
    uint64_t table = fabric_window_first(fabric) + POOL_CHUNK_TABLE;
    struct pool_node_stats before, after;
    struct memnode *memnode;

    CHECK_OK(open_node(fabric, &memnode));
    memnode_stats(memnode, &before);
    CHECK_EQ_U64(before.chunks_damaged, 0);
    memnode_close(memnode);
    for (unsigned bit = 0; bit < 64; bit++) {
        for (unsigned chunk = 0; chunk < before.chunks; chunk += 3) {
            uint64_t at = table + (uint64_t)chunk * POOL_CHUNK_ENTRY_BYTES;
            uint64_t word = word_at(fabric, at);
            set_word(fabric, at, word ^ (uint64_t)1 << bit);
            CHECK_OK(open_node(fabric, &memnode));
            memnode_stats(memnode, &after);
            CHECK_EQ_U64(after.chunks_damaged, 1);
            CHECK_EQ_U64(after.chunks_free, before.chunks_free - (word == 0));
            memnode_close(memnode);
            set_word(fabric, at, word);
        }
    }
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
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &shape));
    CHECK_OK(dex_open_co(&self, "t", NULL));
    CHECK_OK(engine_attach_co(self.table, self.session, &engine));
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 100));
    sim_stop(fabric_sim_world(world.place.net)); /* goes on when the node is up again */
    rt_sleep_co(RT_NS_PER_US);
    for (uint64_t number = 0; number < KEYS; number++)
        CHECK_OK(engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size));
    CHECK_OK(engine_put_co(engine, number_key(KEYS, &key), slice_of(&key, 8), ENGINE_UPSERT));
    engine_detach_co(engine);
    engine_close_co(self.table, self.session);
    dex_leave_co(&self);
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
    damage_magic(place->memory);
    CHECK_OK(open_node(place->memory, &place->memnode));
    CHECK(sim_run(fabric_sim_world(place->net), 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(world.done);
    fabric_sim_destroy(place->net);
    memnode_close(place->memnode);
    return 0;
}
