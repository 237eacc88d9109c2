/*
 * Memory nodes take turns in proportion to the room that they are known to have, one that is full takes none,
 * and a block that a node had not a moment ago is not asked for again.
 */
#include "lib/check.h"
#include "pool/memory_int.h"
#include "pool/pool_int.h"

enum { NODES = 4, TURNS = 4000 };

static struct pool pool = {.nodes = NODES};
static int32_t credits[NODES];

static void count(unsigned taken[NODES], unsigned turns)
{
    memset(taken, 0, NODES * sizeof(taken[0]));
    for (unsigned i = 0; i < turns; i++)
        taken[pool_turn_next(&pool, credits)]++;
}

static void has(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t chunks[NODES] = {a, b, c, d};
    for (uint16_t node = 0; node < NODES; node++)
        pool_room_granted(&pool, node, chunks[node]);
}

static void check_near(unsigned found, unsigned expected)
{
    if (found + 2 < expected || found > expected + 2)
        CHECK_FAIL("%u turns, not %u", found, expected);
}

static void test_task(void *arg)
{
    unsigned taken[NODES];
    (void)arg;

    has(7, 7, 7, 7);
    for (unsigned i = 0; i < 10; i++) { /* one after the other, always */
        count(taken, NODES);
        for (unsigned node = 0; node < NODES; node++)
            CHECK_EQ_U64(taken[node], 1);
    }
    has(100, 200, 300, 400);
    count(taken, TURNS);
    for (unsigned node = 0; node < NODES; node++)
        check_near(taken[node], TURNS * (node + 1) / 10);
    has(5, 0, 5, 0);
    count(taken, TURNS);
    CHECK_EQ_U64(taken[1] + taken[3], 0);
    check_near(taken[0], TURNS / 2);
    has(0, 0, 0, 0); /* nothing is known to be better than anything else */
    count(taken, TURNS);
    for (unsigned node = 0; node < NODES; node++)
        check_near(taken[node], TURNS / NODES);

    CHECK(!pool_room_none(&pool, 2, 1024));
    pool_room_refused(&pool, 2, 4096);
    CHECK(pool_room_none(&pool, 2, 4096) && pool_room_none(&pool, 2, 8192));
    CHECK(!pool_room_none(&pool, 2, 1024) && !pool_room_none(&pool, 1, 4096));
    pool_room_refused(&pool, 2, 1024);
    CHECK(pool_room_none(&pool, 2, 1024));
}

int main(void)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    CHECK_OK(rt_spawn(loop, test_task, NULL));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
    return 0;
}
