/*
 * More block sizes than a memory node has classes for, each with blocks that are free: every size
 * is granted while there is room, and every block that comes back counts, so that all chunks are
 * free in the end.
 */
#include "pool/memnode_int.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { SIZES = CLASSES_MAX + 60, CHUNKS = SIZES + 40, ROUNDS = 3, PER_SIZE = 2 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;
static struct pool_block blocks[SIZES][PER_SIZE];
static bool done;

static uint32_t size_of(unsigned i)
{
    return 64 * (40 + i);
}

static void grant_co(struct pool_session *session, unsigned i)
{
    struct pool_grant_request request = {
        .block_bytes = size_of(i), .blocks_max = PER_SIZE, .kind = POOL_CHUNK_BLOCKS};
    struct {
        struct pool_grant_reply head;
        struct pool_block blocks[PER_SIZE];
    } reply;
    uint32_t size;
    memcpy(request.pass, pool_session_pool(session)->pass.seal, sizeof(request.pass));
    CHECK_OK(fabric_call_co(pool_endpoint(session, 0), POOL_GRANT,
                            slice_of(&request, sizeof(request)), &reply, sizeof(reply), &size));
    CHECK_EQ_U64(reply.head.blocks, PER_SIZE);
    memcpy(blocks[i], reply.blocks, sizeof(reply.blocks));
}

static void return_co(struct pool_session *session, unsigned i)
{
    struct {
        struct pool_return_request head;
        struct pool_block blocks[PER_SIZE];
    } request = {.head = {.blocks = PER_SIZE}};
    memcpy(request.blocks, blocks[i], sizeof(request.blocks));
    memcpy(request.head.pass, pool_session_pool(session)->pass.seal, sizeof(request.head.pass));
    CHECK_OK(fabric_call_co(pool_endpoint(session, 0), POOL_RETURN,
                            slice_of(&request, sizeof(request)), NULL, 0, NULL));
}

static uint64_t chunks_free(void)
{
    struct pool_node_stats stats;
    memnode_stats(place.memnodes[0], &stats);
    return stats.chunks_free;
}

static void client_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    uint64_t before = chunks_free();

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SIZES; i++)
            grant_co(session, i);
        CHECK_EQ_U64(chunks_free(), before - SIZES);
        /* Of a size that is in no class now: from the chunk that it has. */
        for (unsigned i = 0; i < SIZES; i++) {
            struct pool_block first[PER_SIZE];
            memcpy(first, blocks[i], sizeof(first));
            grant_co(session, i);
            CHECK(first[0].address / POOL_CHUNK_BYTES == blocks[i][0].address / POOL_CHUNK_BYTES);
            return_co(session, i);
            memcpy(blocks[i], first, sizeof(first));
        }
        CHECK_EQ_U64(chunks_free(), before - SIZES);
        for (unsigned i = 0; i < SIZES; i++)
            return_co(session, (i + round * 100) % SIZES);
        CHECK_EQ_U64(chunks_free(), before);
    }
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
    pool_world_destroy(&place);
    return 0;
}
