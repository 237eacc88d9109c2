/*
 * A dead owner can be given more keys by one that does not know of its death: some of its parts then
 * have a member that takes them over, and others have none. Whoever asks for a key of those others
 * must not become the taker of all while the former one lives: two would work on the same pages. It
 * asks the former one, which then takes over; when that has died, too, it takes over itself.
 */
#include <stdlib.h>

#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { MIDDLE = 1000, TRIES = 20 };

/* A member that is no more: its slot was never used. */
static const struct fabric_identity dead = {.member = 77, .incarnation = 3};

static struct world {
    struct dex_world place;
    bool divided, ending, seen;
} world;

static void read_co(struct dex_member *self, const struct dex_table *table, struct map **map)
{
    CHECK_OK(map_read_co(self->session, table->slot, table->id, map));
}

/* All keys are the dead one's; those below the middle are ours to take over. */
static void divide_co(struct dex_member *self, const struct dex_table *table)
{
    struct map *map, *next;
    uint64_t key;
    read_co(self, table, &map);
    next = map_copy(map);
    CHECK(next != NULL);
    CHECK_OK(map_cut(next, number_key(MIDDLE, &key)));
    CHECK(next->count == 2);
    for (uint32_t i = 0; i < next->count; i++) {
        next->parts[i].owner = map_member(dead);
        next->parts[i].taker = i == 0 ? owners_self(&table->owners) : 0;
        next->parts[i].epoch = map->epoch + 1;
    }
    CHECK_OK(map_swap_co(self->session, table->slot, table->id, map, next));
    free(map);
    free(next);
}

static void taker_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    dex_attach_co(&self, &engine);
    divide_co(&self, dex_of(engine)->table);
    world.divided = true;
    while (!world.ending)
        rt_sleep_co(LEASE_NS / 4);
    fabric_sim_kill(arg);
    dex_end_co(&self, engine);
}

static enum pando_status get_co(struct engine *engine, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    return engine_get_co(engine, number_key(number, &key), &value, sizeof(value), &size);
}

static uint64_t owner_co(struct dex_member *self, const struct dex_table *table, uint64_t number)
{
    struct map *map;
    uint64_t key;
    read_co(self, table, &map);
    const struct map_partition *part = map_find(map, number_key(number, &key));
    uint64_t owner = part->owner;
    CHECK(part->taker != owners_self(&table->owners));
    free(map);
    return owner;
}

static void asker_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    enum pando_status status = PANDO_TIMEOUT;
    while (!world.divided)
        rt_sleep_co(LEASE_NS / 4);
    dex_join_co(arg, &self);
    dex_attach_co(&self, &engine);
    const struct dex_table *table = dex_of(engine)->table;

    uint64_t me = owners_self(&table->owners);

    for (int i = 0; i < TRIES && status != PANDO_NOT_FOUND; i++) {
        status = get_co(engine, MIDDLE + 1);
        CHECK(owner_co(&self, table, 1) != me && owner_co(&self, table, MIDDLE + 1) != me);
    }
    CHECK_STATUS(status, PANDO_NOT_FOUND);
    CHECK(owner_co(&self, table, 1) != map_member(dead));
    CHECK_EQ_U64(owner_co(&self, table, MIDDLE + 1), owner_co(&self, table, 1));

    world.ending = true;
    while (!fabric_sim_dead(world.place.members[0]))
        rt_sleep_co(LEASE_NS / 4);
    status = PANDO_TIMEOUT;
    for (int i = 0; i < TRIES && status != PANDO_NOT_FOUND; i++)
        status = get_co(engine, MIDDLE + 1);
    CHECK_STATUS(status, PANDO_NOT_FOUND);
    CHECK_STATUS(get_co(engine, 1), PANDO_NOT_FOUND);
    CHECK(owner_co(&self, table, 1) == me && owner_co(&self, table, MIDDLE + 1) == me);
    world.seen = true;
    dex_end_co(&self, engine);
}

int main(void)
{
    dex_world_build(&world.place, 3, 33);
    dex_world_run(&world.place, taker_task, asker_task);
    CHECK(world.seen);
    return 0;
}
