/*
 * What a memory node says of a chunk's blocks: each is counted once, whether it is in a member's
 * hands, waits there for its grace period, is held by the node for it, or free.
 */
#include "pool/memnode_int.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { BLOCK = 128 * 1024, BLOCKS = POOL_CHUNK_BYTES / BLOCK, HELD = 3, FREE = 2, TOLD = 2 };
enum { FREED = 24 }; /* by a member that tells of it: three chunks */

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;
static const uint64_t LOOK_NS = 600 * RT_NS_PER_MS; /* the last look is not told again any more */

static struct pool_world place;
static bool done;

struct parcel {
    struct pool_return_request head;
    struct pool_block blocks[BLOCKS];
};

static void return_co(struct pool_session *session, const struct pool_block *blocks, uint32_t count,
                      bool hold)
{
    struct parcel parcel = {.head = {.blocks = count, .hold = hold}};
    memcpy(parcel.blocks, blocks, count * sizeof(blocks[0]));
    memcpy(parcel.head.pass, pool_session_pool(session)->pass.seal, sizeof(parcel.head.pass));
    CHECK_OK(fabric_call_co(
        pool_endpoint(session, 0), POOL_RETURN,
        slice_of(&parcel, offsetof(struct parcel, blocks) + count * sizeof(blocks[0])), NULL, 0,
        NULL));
}

static void check_co(struct pool_session *session, unsigned hands, unsigned held, unsigned spare)
{
    struct pool_usage usage;
    uint64_t bytes = 0;
    rt_sleep_co(2 * RT_NS_PER_S); /* the last look is told again for a while */
    CHECK_OK(pool_usage_co(session, 0, &usage));
    for (uint32_t i = 0; i < usage.head.classes; i++)
        bytes += usage.classes[i].block_bytes == BLOCK ? usage.classes[i].free_bytes : 0;
    CHECK_EQ_U64(usage.head.hands_bytes, (uint64_t)hands * BLOCK);
    CHECK_EQ_U64(usage.head.held_bytes, (uint64_t)held * BLOCK);
    CHECK_EQ_U64(bytes, (uint64_t)spare * BLOCK);
    pool_usage_free(&usage);
}

static enum pando_status tell_co(struct pool_session *session, uint64_t bytes)
{
    struct pool_waiting_request request = {.bytes = bytes};
    return fabric_call_co(pool_endpoint(session, 0), POOL_WAITING,
                          slice_of(&request, sizeof(request)), NULL, 0, NULL);
}

static void check_waiting_co(struct pool_session *session, unsigned hands, unsigned waiting)
{
    struct pool_usage usage;
    rt_sleep_co(LOOK_NS);
    CHECK_OK(pool_usage_co(session, 0, &usage));
    CHECK_EQ_U64(usage.head.hands_bytes, (uint64_t)hands * BLOCK);
    CHECK_EQ_U64(usage.head.waiting_bytes, (uint64_t)waiting * BLOCK);
    pool_usage_free(&usage);
}

/* More than there is is not believed; a sweep ends what it has said. */
static void told_co(struct pool_session *session, unsigned hands)
{
    struct pool_sweep_request sweep = {.member = pool_identity(pool_session_pool(session)).member,
                                       .incarnation =
                                           pool_identity(pool_session_pool(session)).incarnation};

    memcpy(sweep.pass, pool_session_pool(session)->pass.seal, sizeof(sweep.pass));
    CHECK_STATUS(tell_co(session, 1000ull * POOL_CHUNK_BYTES), PANDO_INVALID);
    CHECK_OK(tell_co(session, TOLD * BLOCK));
    check_waiting_co(session, hands - TOLD, TOLD);
    CHECK_OK(tell_co(session, 30ull * POOL_CHUNK_BYTES));
    check_waiting_co(session, 0, hands);
    CHECK_OK(fabric_call_co(pool_endpoint(session, 0), POOL_SWEEP, slice_of(&sweep, sizeof(sweep)),
                            NULL, 0, NULL));
    struct pool_block blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++)
        CHECK_OK(pool_alloc_co(session, 0, BLOCK, &blocks[i]));
    check_waiting_co(session, BLOCKS, 0);
}

/* Freed blocks wait for their grace period in the member's hands, and it tells the node of it by itself. */
static void waiting_co(struct pool *pool, struct pool_session *session)
{
    struct pool_block blocks[FREED];
    for (unsigned i = 0; i < FREED; i++)
        CHECK_OK(pool_alloc_co(session, 0, BLOCK, &blocks[i]));
    check_waiting_co(session, FREED, 0);
    for (unsigned i = 0; i < FREED; i++)
        CHECK_OK(pool_free_co(session, &blocks[i], BLOCK, false));
    check_waiting_co(session, 0, FREED);
    rt_sleep_co(pool_grace_ns(pool));
    check_waiting_co(session, 0, 0);
}

/* One that leaves takes back what it has said. */
static void leaving_task(void *arg)
{
    struct pool_session *session;
    struct pool_block blocks[FREED];
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    waiting_co(pool, session);
    for (unsigned i = 0; i < FREED; i++)
        CHECK_OK(pool_alloc_co(session, 0, BLOCK, &blocks[i]));
    for (unsigned i = 0; i < FREED; i++)
        CHECK_OK(pool_free_co(session, &blocks[i], BLOCK, false));
    rt_sleep_co(LEASE_NS);
    pool_world_leave_co(pool, session);
    pool = pool_world_join_co(&place, place.clients[1], &session);
    for (unsigned i = 0; i < FREED; i++)
        CHECK_OK(pool_alloc_co(session, 0, BLOCK, &blocks[i]));
    check_waiting_co(session, FREED, 0);
    pool_world_leave_co(pool, session);
    done = true;
}

static void client_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    struct pool_grant_request request = {
        .block_bytes = BLOCK, .blocks_max = BLOCKS, .kind = POOL_CHUNK_BLOCKS};
    struct {
        struct pool_grant_reply head;
        struct pool_block blocks[BLOCKS];
    } reply;
    uint32_t size;

    memcpy(request.pass, pool_session_pool(session)->pass.seal, sizeof(request.pass));
    CHECK_OK(fabric_call_co(pool_endpoint(session, 0), POOL_GRANT,
                            slice_of(&request, sizeof(request)), &reply, sizeof(reply), &size));
    CHECK_EQ_U64(reply.head.blocks, BLOCKS);
    check_co(session, BLOCKS, 0, 0);
    return_co(session, reply.blocks, HELD, true);
    return_co(session, reply.blocks + HELD, FREE, false);
    check_co(session, BLOCKS - HELD - FREE, HELD, FREE);
    rt_sleep_co(place.options.memnode.grace_ns);
    check_co(session, BLOCKS - HELD - FREE, 0, HELD + FREE);
    told_co(session, BLOCKS - HELD - FREE);
    pool_world_leave_co(pool, session);
    done = true;
}

static void run(rt_fn task)
{
    struct pool_world_options options = {.net = {.seed = 3},
                                         .memnode = {.seed = 100, .grace_ns = 30 * RT_NS_PER_S},
                                         .memories = 1,
                                         .clients = 2,
                                         .memory_bytes = 40 * POOL_CHUNK_BYTES,
                                         .lease_ns = LEASE_NS};
    done = false;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, task);
    CHECK(pool_world_ends(&place, 200 * RT_NS_PER_S));
    CHECK(done);
    pool_world_destroy(&place);
}

int main(void)
{
    run(client_task);
    run(leaving_task);
    return 0;
}
