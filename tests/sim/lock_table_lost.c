/*
 * A memory node whose lock table lies on its card comes back without it (rules resolve-unknown,
 * new-incarnation). Who held a lock there must neither write under it any more nor release it,
 * since another may have it; and what it had begun under an intent is finished before anybody is
 * let in, and stays locked until it is recovered.
 */
#include "lib/broken.h"
#include "pool/intent.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { BLOCK_BYTES = 256 };

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;

static struct pool_world place;

static struct {
    bool with_intent;
    fabric_address block;
    int step; /* 1 locked, 2 lost, 3 locked by the other, 4 the holder has tried */
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

/* An intent for two words of the block, of which the first is written and the second is not. */
static void half_change_co(struct pool_session *session, const struct pool_lock *lock)
{
    static uint8_t buffer[POOL_INTENT_BYTES];
    static const uint64_t values[] = {11, 12};
    struct intent_builder builder;
    fabric_address slot;

    CHECK_OK(pool_intent_take_co(session, 1, &slot));
    intent_begin(&builder, buffer, sizeof(buffer), (struct intent_lock){lock->address, lock->word});
    intent_add_image(&builder, world.block, slice_of(&values[0], 8));
    intent_add_image(&builder, world.block + 128, slice_of(&values[1], 8));
    uint32_t bytes = (uint32_t)intent_finish(&builder, pool_id(pool_session_pool(session)), slot);
    struct fabric_op ops[] = {
        fabric_write(fabric_address_offset(slot), buffer, bytes),
        fabric_write(fabric_address_offset(world.block), &values[0], 8),
    };
    CHECK_OK(pool_submit_co(session, 1, ops, 2));
}

static void holder_task(void *arg)
{
    struct pool *pool;
    struct pool_session *session;
    struct pool_block block;
    struct pool_lock lock;
    uint64_t mine = 1111, free_value = 0;

    pool = pool_world_join_co(&place, arg, &session);
    CHECK_OK(pool_alloc_co(session, 1, BLOCK_BYTES, &block));
    world.block = block.address;
    CHECK_OK(pool_lock_co(session, pool_lock_for(pool, block.address), &lock));
    if (world.with_intent)
        half_change_co(session, &lock);
    world.step = 1;
    reach_co(world.with_intent ? 2 : 3);
    struct fabric_op ops[] = {
        fabric_write(fabric_address_offset(block.address), &mine, 8),
        fabric_write(fabric_address_offset(lock.address), &free_value, 8),
    };
    /* The first try finds out that the endpoint broke, the next one connects again. */
    for (int i = 0; i < 3; i++)
        CHECK(pool_submit_co(session, 1, ops, 2) != PANDO_OK);
    CHECK(pool_fenced(pool));
    if (!world.with_intent)
        world.step = 4;
    pool_world_leave_co(pool, session);
}

/* Takes the lock and must keep it, whatever its former holder does. */
static void other_plain_co(struct pool *pool, struct pool_session *session)
{
    struct pool_lock lock;
    uint64_t mine = 2222;
    CHECK_OK(pool_lock_co(session, pool_lock_for(pool, world.block), &lock));
    struct fabric_op write = fabric_write(fabric_address_offset(world.block), &mine, 8);
    CHECK_OK(pool_submit_co(session, 1, &write, 1));
    world.step = 3;
    reach_co(4);
    CHECK_EQ_U64(word_at(world.block), mine);
    CHECK_EQ_U64(word_at(lock.address), lock.word);
    CHECK_OK(pool_unlock_co(session, &lock));
}

/* The change is whole; its lock is had when its holder has been recovered. */
static void other_intent_co(struct pool *pool, struct pool_session *session)
{
    struct pool_lock lock;
    CHECK_EQ_U64(word_at(world.block), 11);
    CHECK_EQ_U64(word_at(world.block + 128), 12);
    uint64_t begin_ns = rt_now_ns();
    CHECK_OK(pool_lock_co(session, pool_lock_for(pool, world.block), &lock));
    CHECK(rt_now_ns() - begin_ns > LEASE_NS / 2);
    CHECK_EQ_U64(word_at(world.block), 11);
    CHECK_EQ_U64(word_at(world.block + 128), 12);
    CHECK_OK(pool_unlock_co(session, &lock));
}

static void other_task(void *arg)
{
    struct pool *pool;
    struct pool_session *session;
    reach_co(2);
    pool = pool_world_join_co(&place, arg, &session);
    if (world.with_intent)
        other_intent_co(pool, session);
    else
        other_plain_co(pool, session);
    world.done = true;
    pool_world_leave_co(pool, session);
}

static void loser_task(void *arg)
{
    (void)arg;
    reach_co(1);
    fabric_sim_kill(place.memory[1]);
    rt_sleep_co(RT_NS_PER_MS);
    memnode_close(place.memnodes[1]);
    CHECK_OK(fabric_sim_restart(place.memory[1], true, &place.memory[1]));
    fabric_sim_lose_device(place.memory[1]);
    pool_world_start(&place, 1);
    world.step = 2;
}

static void run(bool with_intent)
{
    struct pool_world_options options = {.net = {.seed = 1},
                                         .memnode = {.seed = 7},
                                         .memories = 2,
                                         .clients = 2,
                                         .memory_bytes = 80 << 20,
                                         .lease_ns = LEASE_NS};
    memset(&world, 0, sizeof(world));
    world.with_intent = with_intent;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, holder_task);
    pool_world_spawn(&place, 1, other_task);
    pool_world_spawn_memory(&place, 0, loser_task);
    CHECK(pool_world_ends(&place, 20 * RT_NS_PER_S));
    CHECK(world.done);
    pool_world_destroy(&place);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "lost-locks") == 0) {
        break_rule(argc, argv);
        argc = 1;
    }
    if (argc < 2 || strcmp(argv[1], "plain") == 0)
        run(false);
    if (argc < 2 || strcmp(argv[1], "intent") == 0)
        run(true);
    return 0;
}
