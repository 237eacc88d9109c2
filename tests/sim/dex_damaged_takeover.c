/*
 * Taking over from a dead owner whose tree is damaged. A leaf: its keys are CORRUPT, and what the log
 * says of all others is done all the same. A leaf that was damaged a moment ago, and is not any more:
 * nothing is lost. The root: all keys are CORRUPT, and nobody waits long for being told, however many
 * ask at once.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/tree.h"

enum { KEYS = 400, ASKERS = 32, PAGE = 1024, TRIES = 4 };

static const uint64_t PATIENCE_NS = 8 * LEASE_NS;

enum place { IN_LEAF, IN_ROOT, NO_LONGER };

static struct world {
    struct fabric *owner, *memory;
    fabric_address page;
    uint64_t low, high; /* numbers of the keys below the damage */
    enum place place;
    struct engine *engine; /* the heir's */
    struct rt_countdown left;
    bool written, done;
    unsigned corrupt, whole;
    uint64_t slowest_ns;
} world;

static uint64_t number_of(struct slice key)
{
    uint64_t word = 0;
    memcpy(&word, key.data, key.size);
    return __builtin_bswap64(word);
}

static void put_all_co(struct engine *engine, uint64_t times)
{
    for (uint64_t number = 0; number < KEYS; number++) {
        uint64_t key, value = number * times;
        CHECK_OK(
            engine_put_co(engine, number_key(number, &key), slice_of(&value, 8), ENGINE_UPSERT));
    }
}

/* The root, or a leaf in its middle. */
static void choose_co(struct dex *dex)
{
    uint8_t page[PAGE], room[PAGE_KEY_ROOM];
    struct slice high;

    world.page = dex->table->root;
    world.high = KEYS;
    CHECK_OK(dex_read_co(dex, world.page, page));
    CHECK(page_level(page) == 1 && page_pairs(page) > 4);
    if (world.place == IN_ROOT)
        return;
    world.page = page_child(&dex->table->layout, page, 2);
    CHECK_OK(dex_read_co(dex, world.page, page));
    world.low = number_of(page_low(page, room));
    CHECK(page_high(page, room, &high));
    world.high = number_of(high);
}

/* All pairs are in their pages, then all get other values, which are in the log. */
static void owner_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    dex_attach_co(&self, &engine);
    put_all_co(engine, 1);
    CHECK_OK(dex_flush_co(dex_of(engine), NULL));
    choose_co(dex_of(engine));
    put_all_co(engine, 2);
    world.written = true;
    while (!fabric_sim_dead(world.owner))
        rt_sleep_co(LEASE_NS);
    dex_end_co(&self, engine);
}

static void flip(void)
{
    uint64_t at = fabric_address_offset(world.page) + PAGE / 2;
    uint8_t byte;
    CHECK_OK(fabric_self_read(world.memory, at, &byte, 1));
    byte ^= 8;
    CHECK_OK(fabric_self_write(world.memory, at, &byte, 1));
}

/* The heir has found that the leaf is damaged. It is not, now. */
static void believe_co(struct dex *dex)
{
    struct dex_suspect suspect = {0};
    struct step step;
    do
        step = dex_suspect_co(dex, world.page, 0, &suspect);
    while (step.next != STEP_DONE);
    CHECK_STATUS(step.status, PANDO_CORRUPT);
    dex_suspect_end(&suspect);
    world.high = world.low; /* no key is below damage */
}

static void ask_co(uint64_t number)
{
    uint64_t key, value = 0, begin_ns = rt_now_ns();
    size_t size;
    bool below = number >= world.low && number < world.high;
    enum pando_status status =
        engine_get_co(world.engine, number_key(number, &key), &value, sizeof(value), &size);
    uint64_t took_ns = rt_now_ns() - begin_ns;

    if (status != (below ? PANDO_CORRUPT : PANDO_OK))
        CHECK_FAIL("place %d: key %" PRIu64 " is %s", (int)world.place, number,
                   pando_status_text(status));
    if (!below && value != 2 * number)
        CHECK_FAIL("place %d: key %" PRIu64 " has a value of before", (int)world.place, number);
    world.corrupt += below;
    world.whole += !below;
    world.slowest_ns = took_ns > world.slowest_ns ? took_ns : world.slowest_ns;
}

static void asker_task(void *arg)
{
    for (uint64_t number = (uintptr_t)arg; number < KEYS; number += ASKERS)
        ask_co(number);
    rt_countdown_done(&world.left);
}

static void heir_task(void *arg)
{
    struct dex_member self;

    while (!world.written)
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self);
    dex_attach_co(&self, &world.engine);
    if (world.place == NO_LONGER)
        believe_co(dex_of(world.engine));
    fabric_sim_kill(world.owner);
    if (world.place != NO_LONGER)
        flip();
    /* Until it is known to be dead, and its log is replayed, its keys are waited for. */
    uint64_t key, value;
    size_t size;
    enum pando_status status = PANDO_TIMEOUT;
    for (int i = 0; i < TRIES && status == PANDO_TIMEOUT; i++)
        status = engine_get_co(world.engine, number_key(0, &key), &value, sizeof(value), &size);
    rt_countdown_init(&world.left, ASKERS);
    for (uintptr_t i = 0; i < ASKERS; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), asker_task, (void *)i));
    rt_countdown_wait_co(&world.left);
    dex_end_co(&self, world.engine);
    world.done = true;
}

static void run(enum place where)
{
    struct dex_world place;
    dex_world_build(&place, 1, 17);
    log_set_level(0);
    world = (struct world){.owner = place.members[0], .memory = place.memory, .place = where};
    dex_world_run(&place, owner_task, heir_task);
    CHECK(world.done);
    printf("%u answers CORRUPT, %u right, the slowest after %" PRIu64 " us\n", world.corrupt,
           world.whole, world.slowest_ns / RT_NS_PER_US);
    if (world.slowest_ns > PATIENCE_NS)
        CHECK_FAIL("place %d: an answer took %" PRIu64 " us", (int)where,
                   world.slowest_ns / RT_NS_PER_US);
}

int main(void)
{
    run(IN_LEAF);
    run(IN_ROOT);
    run(NO_LONGER);
    return 0;
}
