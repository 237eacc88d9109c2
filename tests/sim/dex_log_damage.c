/*
 * A flipped bit in a dead owner's log: whoever takes over must not stop at the damaged record as if the log ended
 * there, and so lose acknowledged changes behind it. Answers for its keys are right or CORRUPT, in time.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/log_fmt.h"

enum { KEYS = 400, FLIPS = 40, TRIES = 100 };

static struct world {
    struct fabric *owner, *memory;
    fabric_address log;
    uint64_t end; /* of the log when the last but one put was acknowledged */
    uint64_t flip;
    bool written, done;
    unsigned corrupt, whole;
} world;

static void owner_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t key;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    dex_attach_co(&self, &engine);
    struct dex_table *table = dex_of(engine)->table;
    for (uint64_t number = 0; number < KEYS; number++) {
        world.end = table->log != NULL ? dex_log_end(table->log) : 0;
        CHECK_OK(engine_put_co(engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
    }
    world.log = dex_log_address(table->log);
    world.written = true;
    while (!fabric_sim_dead(world.owner))
        rt_sleep_co(LEASE_NS);
    dex_end_co(&self, engine);
}

static void flip(void)
{
    uint64_t at = fabric_address_offset(world.log) + DEX_LOG_HEADER + DEX_LOG_FIRST;
    uint8_t byte;
    at += (world.end - DEX_LOG_FIRST) * world.flip / FLIPS;
    CHECK_OK(fabric_self_read(world.memory, at, &byte, 1));
    byte ^= (uint8_t)(1 << world.flip % 8);
    CHECK_OK(fabric_self_write(world.memory, at, &byte, 1));
}

static void heir_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    uint64_t key, value;
    size_t size;
    enum pando_status status = PANDO_TIMEOUT;

    while (!world.written)
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self);
    dex_attach_co(&self, &engine);
    fabric_sim_kill(world.owner);
    flip();
    for (int i = 0; i < TRIES && status == PANDO_TIMEOUT; i++)
        status = engine_get_co(engine, number_key(0, &key), &value, sizeof(value), &size);
    for (uint64_t number = 0; number < KEYS; number++) {
        rt_sleep_co(RT_NS_PER_US);
        status = engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size);
        if (status != PANDO_OK && status != PANDO_CORRUPT)
            CHECK_FAIL("flip %" PRIu64 ": key %" PRIu64 " is lost: %s", world.flip, number,
                       pando_status_text(status));
        CHECK(status == PANDO_CORRUPT || value == key);
        world.corrupt += status == PANDO_CORRUPT;
        world.whole += status == PANDO_OK;
    }
    dex_end_co(&self, engine);
    world.done = true;
}

int main(void)
{
    unsigned corrupt = 0, whole = 0;
    for (uint64_t i = 0; i < FLIPS; i++) {
        struct dex_world place;
        dex_world_build(&place, i + 1, 17);
        world = (struct world){.owner = place.members[0], .memory = place.memory, .flip = i};
        dex_world_run(&place, owner_task, heir_task);
        CHECK(world.done);
        corrupt += world.corrupt;
        whole += world.whole;
    }
    printf("%u answers CORRUPT, %u right\n", corrupt, whole);
    CHECK(corrupt > 0);
    return 0;
}
