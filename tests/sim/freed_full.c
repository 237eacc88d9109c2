/*
 * As many freed blocks as may wait for their grace period do, and their node goes away. Blocks of the other node
 * are freed at once all the same; one more of that node waits for ten leases at most, and is swept when the
 * member leaves.
 */
#include "sim/pool_world.h"

enum { AWAY = 1, FREED_MOST = 2048, AWAY_BLOCKS = 4 * FREED_MOST, BLOCK_BYTES = 1024, MORE = 300 };

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS;

static struct pool_world place;
static bool done;

static void alloc_co(struct pool_session *session, uint16_t node, struct pool_block *blocks,
                     unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        CHECK_OK(pool_alloc_co(session, node, BLOCK_BYTES, &blocks[i]));
        CHECK(fabric_address_node(blocks[i].address) == node);
    }
}

static void client_task(void *arg)
{
    struct pool_options options = {.memory_nodes = 2,
                                   .name = "test",
                                   .lease_ns = LEASE_NS,
                                   .no_recovery = true,
                                   .freed_max = FREED_MOST};
    static struct pool_block away[AWAY_BLOCKS], other[MORE];
    struct pool_session *session;
    struct pool *pool;
    char error[256];

    CHECK_OK(pool_join_co(arg, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &session));
    alloc_co(session, AWAY, away, AWAY_BLOCKS);
    alloc_co(session, 0, other, MORE);
    for (unsigned i = 0; i < FREED_MOST; i++)
        CHECK_OK(pool_free_co(session, &away[i], BLOCK_BYTES, false));
    fabric_sim_kill(place.memory[AWAY]);
    rt_sleep_co(2 * LEASE_NS);

    uint64_t begin_ns = rt_now_ns();
    for (unsigned i = 0; i < MORE; i++)
        CHECK_OK(pool_free_co(session, &other[i], BLOCK_BYTES, false));
    CHECK(rt_now_ns() - begin_ns < LEASE_NS);

    /* As if their tenures had been written just before. Some are lost with the calls that find the node gone. */
    enum pando_status status = PANDO_OK;
    unsigned count = FREED_MOST;
    for (; status == PANDO_OK && count < AWAY_BLOCKS; count++) {
        begin_ns = rt_now_ns();
        status = pool_free_co(session, &away[count], BLOCK_BYTES, true);
    }
    CHECK_STATUS(status, PANDO_TIMEOUT);
    uint64_t leases = (rt_now_ns() - begin_ns) / LEASE_NS;
    printf("waited for %" PRIu64 " leases\n", leases);
    CHECK(leases >= 10 && leases < 20);

    pool_world_restart(&place, AWAY, true);
    pool_world_leave_co(pool, session);
    done = true;
}

int main(void)
{
    pool_world_build_pair(&place, LEASE_NS);
    pool_world_spawn(&place, 0, client_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(done);
    pool_world_destroy(&place);
    return 0;
}
