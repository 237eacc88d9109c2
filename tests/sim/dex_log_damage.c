/*
 * A flipped bit in a dead owner's log: whoever takes over must not stop at the damaged record as if the log ended
 * there, nor take the log for one that is not kept or that begins later, and so lose acknowledged changes.
 * Answers for its keys are right or CORRUPT, in time. The last record counts, too, once the maintenance has
 * marked it.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/log/log_fmt.h"

enum { KEYS_MOST = 400, KEYS_FEW = 24, FLIPS = 40, TRIES = 100 };

enum place { IN_RECORDS, IN_MARKED_RECORD, IN_HEADER };

static struct world {
    struct fabric *owner, *memory;
    fabric_address log;
    uint64_t last, end; /* positions: of the last put's record, and behind it */
    uint64_t keys;
    enum place place;
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
    for (uint64_t number = 0; number < world.keys; number++) {
        world.last = table->redo.log != NULL ? dex_log_end(table->redo.log) : 0;
        CHECK_OK(engine_put_co(engine, number_key(number, &key), slice_of(&key, 8), ENGINE_UPSERT));
    }
    world.end = dex_log_end(table->redo.log);
    if (world.place == IN_MARKED_RECORD)
        engine_maintain_co(self.table, self.session);
    world.log = dex_log_address(table->redo.log);
    world.written = true;
    while (!fabric_sim_dead(world.owner))
        rt_sleep_co(LEASE_NS);
    dex_end_co(&self, engine);
}

static void flip(void)
{
    uint64_t at = fabric_address_offset(world.log), bit = world.flip % 8;
    uint64_t begin = world.place == IN_RECORDS ? DEX_LOG_FIRST : world.last;
    uint64_t end = world.place == IN_RECORDS ? world.last : world.end;
    uint8_t byte;
    if (world.place == IN_HEADER)
        at += world.flip / 8;
    else
        at += DEX_LOG_HEADER + begin + (end - begin) * world.flip / FLIPS;
    CHECK_OK(fabric_self_read(world.memory, at, &byte, 1));
    byte ^= (uint8_t)(1 << bit);
    CHECK_OK(fabric_self_write(world.memory, at, &byte, 1));
}

static void verify_names_log_co(struct engine *engine)
{
    struct engine_census census;
    char error[256] = "", wanted[64];
    CHECK_STATUS(engine_verify_co(engine, &census, error, sizeof(error)), PANDO_CORRUPT);
    snprintf(wanted, sizeof(wanted), "redo log at 0x%" PRIx64, world.log);
    if (strstr(error, wanted) == NULL)
        CHECK_FAIL("a damaged log was called: %s", error);
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
    for (uint64_t number = 0; number < world.keys; number++) {
        rt_sleep_co(RT_NS_PER_US);
        status = engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size);
        if (status != PANDO_OK && status != PANDO_CORRUPT)
            CHECK_FAIL("place %d, flip %" PRIu64 ": key %" PRIu64 " is lost: %s", (int)world.place,
                       world.flip, number, pando_status_text(status));
        CHECK(status == PANDO_CORRUPT || value == key);
        world.corrupt += status == PANDO_CORRUPT;
        world.whole += status == PANDO_OK;
    }
    if (world.flip == 0)
        verify_names_log_co(engine);
    dex_end_co(&self, engine);
    world.done = true;
}

/* How many answers were CORRUPT. */
static unsigned run(enum place where, uint64_t keys, uint64_t flips)
{
    unsigned corrupt = 0, whole = 0;
    for (uint64_t i = 0; i < flips; i++) {
        struct dex_world place;
        dex_world_build(&place, i + 1, 17);
        log_set_level(0);
        world = (struct world){.owner = place.members[0],
                               .memory = place.memory,
                               .keys = keys,
                               .place = where,
                               .flip = i};
        dex_world_run(&place, owner_task, heir_task);
        CHECK(world.done);
        corrupt += world.corrupt;
        whole += world.whole;
    }
    printf("%u answers CORRUPT, %u right\n", corrupt, whole);
    return corrupt;
}

int main(void)
{
    CHECK(run(IN_RECORDS, KEYS_MOST, FLIPS) > 0);
    CHECK(run(IN_MARKED_RECORD, KEYS_FEW, FLIPS) > 0);
    /* Each bit that means something is noticed: of six words, and of where the log begins. */
    CHECK_EQ_U64(run(IN_HEADER, KEYS_FEW, DEX_LOG_HEADER * 8), 56 * 8 * KEYS_FEW);
    return 0;
}
