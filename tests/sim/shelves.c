/*
 * More block sizes in use than a process keeps blocks of at hand: each is had all the same, one at a time, and
 * granted blocks that cannot be kept go back at once, before those that wait for their grace period. So no block is
 * lost, and nobody searches for any when the process leaves.
 */
#include "pool/memnode_int.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { SIZES = 200, GRANTED = 8, CHUNKS = SIZES + 90 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;
static struct pool_block blocks[SIZES];
static uint64_t before;
static bool done;

static uint32_t size_of(unsigned i)
{
    return 64 * (40 + i);
}

static struct pool_node_stats stats_now(void)
{
    struct pool_node_stats stats;
    memnode_stats(place.memnodes[0], &stats);
    return stats;
}

/* Blocks of that chunk that the node has given out. */
static uint32_t blocks_out(fabric_address address)
{
    const struct memnode *memnode = place.memnodes[0];
    uint64_t offset = fabric_address_offset(address) - memnode->super.heap_offset;
    const struct chunk *chunk = &memnode->chunks[offset / POOL_CHUNK_BYTES];
    return chunk->blocks - chunk->free_count;
}

/* Blocks of one more size, as an answer to a request brings them. */
static void grant_and_add_co(struct pool_session *session)
{
    struct pool_grant_request request = {
        .block_bytes = size_of(SIZES), .blocks_max = GRANTED, .kind = POOL_CHUNK_BLOCKS};
    struct {
        struct pool_grant_reply head;
        struct pool_block blocks[GRANTED];
    } reply;
    uint32_t size;
    memcpy(request.pass, pool_session_pool(session)->pass.seal, sizeof(request.pass));
    CHECK_OK(fabric_call_co(pool_endpoint(session, 0), POOL_GRANT,
                            slice_of(&request, sizeof(request)), &reply, sizeof(reply), &size));
    CHECK_EQ_U64(reply.head.blocks, GRANTED);
    for (unsigned i = 0; i < GRANTED; i++)
        stock_add(pool_session_pool(session)->stock, size_of(SIZES), &reply.blocks[i]);
}

static void client_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);

    before = stats_now().chunks_free;
    for (unsigned i = 0; i < SIZES; i++)
        CHECK_OK(pool_alloc_co(session, 0, size_of(i), &blocks[i]));
    CHECK_EQ_U64(stats_now().chunks_free, before - SIZES);
    CHECK(!stock_keeps(pool->stock, 0, size_of(SIZES))); /* or nothing is shown */
    CHECK_EQ_U64(blocks_out(blocks[SIZES - 1].address), 1);
    for (unsigned i = 0; i < SIZES; i++)
        CHECK_OK(pool_free_co(session, &blocks[i], size_of(i), false));
    grant_and_add_co(session);
    CHECK_EQ_U64(stats_now().chunks_free, before - SIZES - 1);
    rt_sleep_co(LEASE_NS);
    CHECK(LEASE_NS < pool_grace_ns(pool));
    CHECK_EQ_U64(stats_now().chunks_free, before - SIZES);
    pool_world_leave_co(pool, session);
    done = true;
}

int main(void)
{
    struct pool_world_options options = {.net = {.seed = 3},
                                         .memnode = {.seed = 100},
                                         .memories = 1,
                                         .clients = 1,
                                         .memory_bytes = (uint64_t)CHUNKS * POOL_CHUNK_BYTES,
                                         .lease_ns = LEASE_NS};
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, client_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(done);
    CHECK_EQ_U64(place.memnodes[0]->stats.sweeps, 0);
    pool_world_destroy(&place);
    return 0;
}
