/*
 * Lists by address (pool/lists.h). What is begun without waiting keeps the rules that hold for every list:
 * nothing is sent while the endpoint is being connected again, whose node may have lost its lock table
 * (rule resolve-unknown); nothing by who has resigned; nothing to a node that is kept off because a recovery
 * has not come there. What could not be sent, and what broke on its way, is sent again if it may be.
 */
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { BLOCK_BYTES = 256, AT = 128 };

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

static struct pool_world place;

static struct {
    fabric_address block; /* on memory node 1 */
    int step;             /* 1 the block is there, 2 the node was away and is back */
    bool lose;            /* its lock table */
    int left;             /* tasks beside the member's */
    bool done;
} world;

static void reach_co(int step)
{
    while (world.step < step)
        rt_sleep_co(10 * RT_NS_PER_US);
}

static uint64_t word_at(fabric_address address)
{
    uint64_t word;
    CHECK_OK(fabric_self_read(place.memory[1], fabric_address_offset(address), &word, 8));
    return word;
}

static void block_take_co(struct pool_session *session)
{
    struct pool_block block;
    uint64_t zero = 0;
    CHECK_OK(pool_alloc_co(session, 1, BLOCK_BYTES, &block));
    world.block = block.address;
    struct fabric_op write =
        fabric_write(fabric_address_offset(block.address) + AT, &zero, sizeof(zero));
    CHECK_OK(pool_write_unseen_co(session, block.address, &write, 1));
}

static struct pool_read begun_read_co(struct pool_session *session, fabric_address address)
{
    uint64_t word;
    struct pool_read read = {.address = address, .to = &word, .size = sizeof(word)};
    pool_reads_begin(session, &read, 1);
    pool_reads_wait_co(session, &read, 1);
    return read;
}

static bool fast_read_co(struct pool_session *session, fabric_address address)
{
    uint64_t word;
    return pool_read_fast_co(session, address, &word, sizeof(word));
}

static enum pando_status begun_write_co(struct pool_session *session, fabric_address address,
                                        uint64_t word)
{
    struct pool_write write = {.address = address, .from = &word, .size = sizeof(word)};
    pool_write_begin(session, &write);
    return pool_write_wait_co(session, &write);
}

/* ---- while another task connects again ------------------------------------------------------- */

/* At every moment from when the node is back, also those at which the endpoint is whole and nobody knows yet
 * what the node has lost. */
static void reader_task(void *arg)
{
    struct pool_session *session = arg;
    reach_co(2);
    while (!pool_fenced(pool_session_pool(session))) {
        CHECK(!fast_read_co(session, world.block + AT));
        CHECK_STATUS(begun_read_co(session, world.block + AT).status, PANDO_BROKEN);
        rt_sleep_co(100);
    }
    world.left--;
}

static void writer_task(void *arg)
{
    struct pool_session *session = arg;
    reach_co(2);
    while (!pool_fenced(pool_session_pool(session))) {
        if (!fabric_broken(pool_endpoint(session, 1)))
            CHECK_STATUS(begun_write_co(session, world.block + AT, 7), PANDO_FENCED);
        rt_sleep_co(100);
    }
    world.left--;
}

static void loser_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    block_take_co(session);
    world.left = 2;
    CHECK_OK(rt_spawn(rt_loop_self(), reader_task, session));
    CHECK_OK(rt_spawn(rt_loop_self(), writer_task, session));
    world.step = 1;
    reach_co(2);
    uint64_t word;
    struct fabric_op read = fabric_read(fabric_address_offset(world.block) + AT, &word, 8);
    CHECK_STATUS(pool_read_list_co(session, world.block, &read, 1), PANDO_FENCED);
    while (world.left > 0)
        rt_sleep_co(RT_NS_PER_US);
    rt_sleep_co(RT_NS_PER_MS);
    CHECK_EQ_U64(word_at(world.block + AT), 0);
    world.done = true;
    pool_world_leave_co(pool, session);
}

/* ---- what broke on its way ------------------------------------------------------------------- */

static void repeater_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    uint64_t words[2] = {8, 0};
    block_take_co(session);
    struct pool_write write = {.address = world.block + AT, .from = words, .size = 8};
    struct pool_read read = {.address = world.block + AT, .to = &words[1], .size = 8};
    world.step = 1;
    reach_co(2);
    /* Nothing has noticed that the node was away. */
    pool_reads_begin(session, &read, 1);
    pool_write_begin(session, &write);
    pool_reads_wait_co(session, &read, 1);
    CHECK_STATUS(read.status, PANDO_BROKEN);
    CHECK_OK(pool_write_wait_co(session, &write));
    CHECK_EQ_U64(word_at(world.block + AT), 8);
    CHECK_OK(begun_read_co(session, world.block + AT).status);
    world.done = true;
    pool_world_leave_co(pool, session);
}

static void away_task(void *arg)
{
    (void)arg;
    reach_co(1);
    fabric_sim_kill(place.memory[1]);
    rt_sleep_co(RT_NS_PER_MS);
    memnode_close(place.memnodes[1]);
    CHECK_OK(fabric_sim_restart(place.memory[1], true, &place.memory[1]));
    if (world.lose)
        fabric_sim_lose_device(place.memory[1]);
    pool_world_start(&place, 1);
    world.step = 2;
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    fabric_address nowhere = fabric_address_make(60000, 4096);
    uint64_t word;

    block_take_co(session);
    CHECK(fast_read_co(session, world.block + AT));
    struct pool_read read = begun_read_co(session, world.block + AT);
    CHECK(read.status == PANDO_OK && read.recent);

    /* An address may come from damaged bytes. */
    struct fabric_op op = fabric_read(4096, &word, sizeof(word));
    CHECK(!fast_read_co(session, nowhere));
    CHECK(begun_read_co(session, nowhere).status != PANDO_OK);
    CHECK_STATUS(begun_write_co(session, nowhere, 1), PANDO_RANGE);
    CHECK_STATUS(pool_read_list_co(session, nowhere, &op, 1), PANDO_RANGE);

    /* Somebody whose recovery has not come to node 1 might still write there. */
    atomic_store(&pool->avoided, 1u << 1);
    atomic_store(&pool->avoided_until_ns, rt_now_ns() + RT_NS_PER_S);
    CHECK(!fast_read_co(session, world.block + AT));
    CHECK_STATUS(begun_read_co(session, world.block + AT).status, PANDO_BROKEN);
    CHECK_STATUS(begun_write_co(session, world.block + AT, 1), PANDO_BROKEN);
    CHECK_EQ_U64(word_at(world.block + AT), 0);
    atomic_store(&pool->avoided, 0);
    CHECK_OK(begun_write_co(session, world.block + AT, 2));
    CHECK_EQ_U64(word_at(world.block + AT), 2);

    pool_resign(pool);
    CHECK(!fast_read_co(session, world.block + AT));
    CHECK(begun_read_co(session, world.block + AT).status != PANDO_OK);
    CHECK_STATUS(begun_write_co(session, world.block + AT, 3), PANDO_FENCED);
    CHECK_EQ_U64(word_at(world.block + AT), 2);
    world.done = true;
    pool_world_leave_co(pool, session);
}

static void run(rt_fn member_task, bool away, bool lose)
{
    memset(&world, 0, sizeof(world));
    world.lose = lose;
    pool_world_build_pair(&place, LEASE_NS);
    pool_world_spawn(&place, 0, member_task);
    if (away)
        pool_world_spawn_memory(&place, 0, away_task);
    CHECK(pool_world_ends(&place, 20 * RT_NS_PER_S));
    CHECK(world.done);
    pool_world_destroy(&place);
}

int main(void)
{
    run(loser_task, true, true);
    run(repeater_task, true, false);
    run(refused_task, false, false);
    return 0;
}
