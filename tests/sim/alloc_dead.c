/*
 * Allocation while memory nodes are down: blocks come from the nodes that answer, a node that does not is
 * not waited for at every allocation, and it is used again when it is back. FULL means that nodes are full.
 */
#include "sim/pool_world.h"

enum { MEMORIES = 3, CHUNKS = 96, BLOCK_BYTES = 64 * 1024, SOME = 300, DEAD = 1 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;
/* One look at a dead node (three tries to reconnect), and far less than one for each allocation. */
static const uint64_t ONE_LOOK_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;
static bool done;

/* How many of `count` blocks come from each node; stops at the first failure. */
static enum pando_status take_co(struct pool_session *session, bool vital, unsigned count,
                                 unsigned from[MEMORIES])
{
    enum pando_status status = PANDO_OK;
    memset(from, 0, MEMORIES * sizeof(from[0]));
    for (unsigned i = 0; i < count && status == PANDO_OK; i++) {
        struct pool_block block;
        status = vital ? pool_vital_alloc_co(session, BLOCK_BYTES, &block)
                       : pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &block);
        if (status == PANDO_OK)
            from[fabric_address_node(block.address)]++;
    }
    return status;
}

static void one_dead_co(struct pool_session *session)
{
    unsigned from[MEMORIES];
    CHECK_OK(take_co(session, false, 30, from)); /* blocks of all three are at hand */
    CHECK(from[0] == 10 && from[1] == 10 && from[2] == 10);
    fabric_sim_kill(place.memory[DEAD]);
    rt_sleep_co(RT_NS_PER_MS);
    uint64_t begin_ns = rt_now_ns();
    CHECK_OK(take_co(session, true, 10, from));
    CHECK(from[DEAD] == 0 && from[0] > 0 && from[2] > 0);
    CHECK_OK(take_co(session, false, SOME, from));
    CHECK(from[DEAD] == 0 && from[0] >= SOME / 3 && from[2] >= SOME / 3);
    printf("%u blocks with a node down in %" PRIu64 " ms\n", SOME + 10,
           (rt_now_ns() - begin_ns) / RT_NS_PER_MS);
    CHECK(rt_now_ns() - begin_ns < ONE_LOOK_NS);
}

static void all_full_co(struct pool_session *session)
{
    unsigned from[MEMORIES];
    enum pando_status status = take_co(session, false, MEMORIES * CHUNKS * 16, from);
    CHECK(from[0] > 0 && from[2] > 0 && from[DEAD] == 0);
    CHECK_STATUS(status, PANDO_BROKEN); /* the others are full, but not the pool */
}

static void back_again_co(struct pool_session *session)
{
    unsigned from[MEMORIES];
    pool_world_restart(&place, DEAD, true);
    CHECK_OK(take_co(session, false, 100, from));
    CHECK_EQ_U64(from[DEAD], 100);
    CHECK_STATUS(take_co(session, false, MEMORIES * CHUNKS * 16, from), PANDO_FULL);
}

static void client_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);

    one_dead_co(session);
    all_full_co(session);
    back_again_co(session);
    pool_world_leave_co(pool, session);
    done = true;
}

int main(void)
{
    struct pool_world_options options = {.net = {.seed = 3},
                                         .memnode = {.seed = 100},
                                         .memories = MEMORIES,
                                         .clients = 1,
                                         .memory_bytes = CHUNKS * POOL_CHUNK_BYTES,
                                         .lease_ns = LEASE_NS};
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, client_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(done);
    pool_world_destroy(&place);
    return 0;
}
