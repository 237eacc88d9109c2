/*
 * Keys are moved between two owners again and again, while both work on all of them. Each move cuts the map;
 * neighbouring parts of one owner become one again, so that it never fills up, and nothing is lost. In a second
 * round there often is no memory to write a map with: then it stays as it was, and nobody gives up
 * its membership.
 */
#include <stdlib.h>

#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { KEYS = 8000, MOVES = 600, PER_MOVE = 12, SHORT_EVERY = 3 };

/* ---- memory that runs out -------------------------------------------------------------------- */

static bool is_short; /* of memory for maps that are to be written */
static unsigned refused;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static unsigned asked;

void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
    if (is_short && size == MAP_BYTES && asked++ % SHORT_EVERY == 0) {
        refused++;
        return NULL;
    }
    return __libc_malloc(size);
}

#endif

/* ---- moves ----------------------------------------------------------------------------------- */

static struct world {
    struct fabric *fabrics[2];
    bool ready[2];
    unsigned done, moved, refused, most;
    bool is_short; /* of memory for maps, once both work */
    uint64_t value[KEYS];
} world;

struct user {
    struct dex_member member;
    struct engine *engine;
    unsigned number;
    struct prng prng;
};

static void open_co(struct user *self)
{
    CHECK_OK(dex_open_co(&self->member, "t", NULL));
    CHECK_OK(engine_attach_co(self->member.table, self->member.session, &self->engine));
}

/* Keys whose number is even are the first one's to change, the others the second one's. */
static uint64_t own_key(struct user *self)
{
    return prng_next(&self->prng) % (KEYS / 2) * 2 + self->number;
}

static void check_co(struct user *self, uint64_t number)
{
    uint64_t key, value = 0;
    size_t size;
    enum pando_status status;
    do
        status =
            engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
    while (is_short && status == PANDO_NO_MEMORY);
    CHECK_OK(status);
    CHECK_EQ_U64(value, world.value[number]);
}

static void work_co(struct user *self)
{
    const struct dex_table *table = dex_of(self->engine)->table;
    uint64_t key;

    for (unsigned i = 0; i < PER_MOVE; i++) {
        uint64_t number = own_key(self), value = prng_next(&self->prng);
        enum pando_status status;
        do
            status = engine_put_co(self->engine, number_key(number, &key),
                                   slice_of(&value, sizeof(value)), ENGINE_UPSERT);
        while (is_short && status == PANDO_NO_MEMORY);
        CHECK_OK(status);
        world.value[number] = value;
        check_co(self, own_key(self));
    }
    enum pando_status status = engine_move_co(
        self->engine, number_key(prng_next(&self->prng) % KEYS, &key), prng_next(&self->prng));
    world.moved += status == PANDO_OK;
    world.refused += status == PANDO_FULL;
    uint32_t count = atomic_load(&table->owners.map)->count;
    world.most = count > world.most ? count : world.most;
    engine_maintain_co(self->member.table, self->member.session);
}

static void user_task(void *arg)
{
    struct user self = {.number = arg == world.fabrics[1]};
    struct number_feed feed = {.end = KEYS};

    prng_seed(&self.prng, self.number + 1);
    dex_join_co(arg, &self.member);
    while (self.number == 1 && !world.ready[0])
        rt_sleep_co(LEASE_NS);
    if (self.number == 0)
        CHECK_OK(engine_create_co(&dex_engine, self.member.session, "t", &number_shape));
    open_co(&self);
    if (self.number == 0) {
        CHECK_OK(engine_bulk_load_co(self.engine, number_feed_next, &feed, 70));
        for (uint64_t i = 0; i < KEYS; i++)
            world.value[i] = __builtin_bswap64(i);
    }
    world.ready[self.number] = true;
    while (!world.ready[1 - self.number])
        rt_sleep_co(LEASE_NS);
    is_short = world.is_short;
    for (unsigned i = 0; i < MOVES; i++) {
        work_co(&self);
        CHECK(!pool_fenced(self.member.pool));
    }
    for (uint64_t number = self.number; number < KEYS; number += 2)
        check_co(&self, number);
    world.done++;
    while (world.done < 2)
        rt_sleep_co(LEASE_NS);
    engine_detach_co(self.engine);
    engine_close_co(self.member.table, self.member.session);
    dex_leave_co(&self.member);
}

int main(void)
{
    for (int round = 0; round < 2; round++) {
        struct dex_world place;
        world = (struct world){0};
        dex_world_build(&place, 5, 33);
        for (int i = 0; i < 2; i++)
            world.fabrics[i] = place.members[i];
        world.is_short = round == 1;
        dex_world_run(&place, user_task, user_task);
        is_short = false;
        CHECK(world.done == 2);
        printf("%u moves, %u refused, at most %u parts; %u maps without memory\n", world.moved,
               world.refused, world.most, refused);
        CHECK(world.refused == 0 && world.moved > (round == 0 ? MOVES : MOVES / 4));
    }
    return 0;
}
