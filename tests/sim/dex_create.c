/*
 * Tables whose creator does not come to an end: whoever opens one makes its tree, but never that of
 * another table that has got its place in the directory; and a creator that fails takes back only
 * what nobody uses.
 */
#include "engine/entry.h"
#include <limits.h>
#include <stdio.h>

#include "sim/dex_world.h"
#include "tree/dex/page/page_fmt.h"

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static struct world {
    const char *name; /* that the opener is to open; NULL: none */
    enum pando_status opened;
    bool over;
    unsigned done;
} world;

static enum pando_status try_open_co(struct dex_member *self, const char *name)
{
    enum pando_status status = dex_open_co(self, name, NULL);
    if (status == PANDO_OK)
        engine_close_co(self->table, self->session);
    return status;
}

static void opener_task(void *arg)
{
    struct dex_member self;
    dex_join_co(arg, &self);
    while (!world.over) {
        rt_sleep_co(LEASE_NS / 8);
        if (world.name == NULL)
            continue;
        world.opened = try_open_co(&self, world.name);
        world.name = NULL;
    }
    dex_leave_co(&self);
    world.done++;
}

/* A name without a tree. */
static struct engine_entry enter_co(struct dex_member *self, const char *name)
{
    struct engine_entry entry;
    CHECK_OK(engine_entry_create_co(self->session, name, &dex_engine, PAGE_FORMAT_VERSION, &shape,
                                    &entry));
    return entry;
}

static void creator_task(void *arg)
{
    struct dex_member self;
    struct pool_entry found;
    unsigned slot;
    uint64_t root;

    dex_join_co(arg, &self);

    /* While it is waited for, its place becomes another's. */
    struct engine_entry first = enter_co(&self, "first");
    world.name = "first";
    rt_sleep_co(LEASE_NS);
    CHECK_OK(pool_table_drop_co(self.session, "first"));
    char name[24] = "";
    struct engine_entry second = {.slot = UINT_MAX};
    for (int i = 0; second.slot != first.slot; i++) {
        if (i > 0)
            CHECK_OK(pool_table_drop_co(self.session, name));
        snprintf(name, sizeof(name), "second%d", i);
        second = enter_co(&self, name);
    }
    CHECK(second.table != first.table);
    while (world.name != NULL)
        rt_sleep_co(LEASE_NS);
    CHECK_STATUS(world.opened, PANDO_NOT_FOUND);
    CHECK_OK(pool_root_read_co(self.session, second.slot, &root));
    CHECK_EQ_U64(root, 0);
    CHECK_OK(try_open_co(&self, name));

    /* Somebody has made the tree meanwhile. */
    struct engine_entry third = enter_co(&self, "third");
    world.name = "third";
    while (world.name != NULL)
        rt_sleep_co(LEASE_NS);
    CHECK_OK(world.opened);
    CHECK_STATUS(pool_table_undo_co(self.session, third.slot, third.table), PANDO_EXISTS);
    CHECK_OK(try_open_co(&self, "third"));

    /* Nobody has; and then the name is another's. */
    struct engine_entry fourth = enter_co(&self, "fourth");
    CHECK_OK(pool_table_undo_co(self.session, fourth.slot, fourth.table));
    CHECK_STATUS(pool_table_open_co(self.session, "fourth", &slot, &found), PANDO_NOT_FOUND);
    (void)enter_co(&self, "fourth");
    CHECK_STATUS(pool_table_undo_co(self.session, fourth.slot, fourth.table), PANDO_NOT_FOUND);
    CHECK_OK(pool_table_open_co(self.session, "fourth", &slot, &found));
    world.over = true;
    dex_leave_co(&self);
    world.done++;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 5, 9);
    dex_world_run(&place, creator_task, opener_task);
    CHECK(world.done == 2);
    return 0;
}
