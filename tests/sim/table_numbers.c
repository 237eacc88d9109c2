/*
 * Numbers of tables: 65,535, each higher than all before while there is one, then any that no entry has.
 */
#include "sim/dex_world.h"

enum { STAY = 100, AGAIN = 20000 };

static unsigned done;

static uint64_t create_co(struct dex_member *self, const char *name)
{
    struct pool_table_options options = {.name = name, .engine = "none"};
    struct pool_entry entry;
    unsigned slot;
    CHECK_OK(pool_table_create_co(self->session, &options, &slot, &entry));
    return entry.table;
}

static void member_task(void *arg)
{
    struct dex_member self;
    uint64_t number = 0;

    dex_join_co(arg, &self);
    for (unsigned i = 1; i <= STAY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        CHECK_EQ_U64(create_co(&self, name), i);
    }
    for (unsigned i = STAY + 1; i < POOL_TABLE_NUMBER_MAX; i++) {
        CHECK_EQ_U64(create_co(&self, "goes"), i);
        CHECK_OK(pool_table_drop_co(self.session, "goes"));
    }
    CHECK_EQ_U64(create_co(&self, "the last"), POOL_TABLE_NUMBER_MAX);
    for (unsigned i = 0; i < AGAIN; i++) {
        uint64_t before = number;
        number = create_co(&self, "goes");
        CHECK(number > STAY && number < POOL_TABLE_NUMBER_MAX && number != before);
        CHECK_OK(pool_table_drop_co(self.session, "goes"));
    }
    dex_leave_co(&self);
    done++;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 31, 9);
    dex_world_run(&place, member_task, NULL);
    CHECK_EQ_U64(done, 1);
    return 0;
}
