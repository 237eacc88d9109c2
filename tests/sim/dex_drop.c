/*
 * A table whose dropper dies, at any of its operations: another one frees the rest and removes it.
 */
#include <stdio.h>

#include "sim/dex_world.h"

enum { KEYS = 200, NOTHING_MORE = 5, TRIES = 1000 };

static struct world {
    struct fabric *dropper;
    uint64_t after; /* the dropper dies at this operation of the drop */
    uint64_t table;
    bool dropped, done;
} world;

static void fill_co(struct dex_member *self)
{
    struct engine_shape shape = {
        .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 512};
    struct engine *engine;

    CHECK_OK(engine_create_co(&dex_engine, self->session, "t", &shape));
    dex_attach_co(self, &engine);
    for (uint64_t key = 1; key <= KEYS; key++)
        CHECK_OK(engine_put_co(engine, slice_of(&key, sizeof(key)), slice_of(&key, sizeof(key)),
                               ENGINE_UPSERT));
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static void dropper_task(void *arg)
{
    struct dex_member self;
    char name[32];
    unsigned slot;

    dex_join_co(arg, &self);
    fill_co(&self);
    CHECK_OK(pool_table_mark_co(self.session, "t", &slot, &world.table));
    snprintf(name, sizeof(name), "#%llu", (unsigned long long)world.table);
    CHECK_OK(dex_open_co(&self, name, NULL));
    fabric_sim_kill_at(world.dropper, fabric_sim_posted(world.dropper) + world.after);
    enum pando_status status = engine_drop_co(self.table, self.session);
    world.dropped = !fabric_sim_dead(world.dropper);
    CHECK(!world.dropped || status == PANDO_OK);
    fabric_sim_kill(world.dropper);
    engine_close_co(self.table, self.session);
    dex_leave_co(&self);
}

static bool there_co(struct dex_member *self, unsigned *slot, struct pool_entry *entry)
{
    char name[32];
    snprintf(name, sizeof(name), "#%llu", (unsigned long long)world.table);
    enum pando_status status = pool_table_open_co(self->session, name, slot, entry);
    CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
    return status == PANDO_OK;
}

static void heir_task(void *arg)
{
    struct dex_member self;
    struct pool_entry entry;
    char name[32];
    unsigned slot;
    enum pando_status status = PANDO_BUSY;

    dex_join_co(arg, &self);
    while (!fabric_sim_dead(world.dropper))
        rt_sleep_co(LEASE_NS);
    rt_sleep_co(2 * RT_NS_PER_S); /* memory that it has freed is used again */
    if (there_co(&self, &slot, &entry)) {
        for (int i = 0; i < TRIES && status == PANDO_BUSY; i++) {
            rt_sleep_co(LEASE_NS);
            status = pool_table_take_over_co(self.session, slot, entry.state);
        }
        CHECK_OK(status);
        snprintf(name, sizeof(name), "#%llu", (unsigned long long)world.table);
        CHECK_OK(dex_open_co(&self, name, NULL));
        CHECK_OK(engine_drop_co(self.table, self.session));
        engine_close_co(self.table, self.session);
        CHECK(!there_co(&self, &slot, &entry));
    }
    dex_leave_co(&self);
    world.done = true;
}

/* Whether the drop had ended before. */
static bool run(uint64_t after)
{
    struct dex_world place;
    dex_world_build(&place, 5 + after, 9);
    world = (struct world){.dropper = place.members[0], .after = after};
    dex_world_run(&place, dropper_task, heir_task);
    CHECK(world.done);
    return world.dropped;
}

int main(void)
{
    unsigned ended = 0;
    for (uint64_t after = 1; ended < NOTHING_MORE; after++)
        ended += run(after);
    return 0;
}
