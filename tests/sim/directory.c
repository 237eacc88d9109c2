/*
 * The directory of tables: filled to its last entry, names that collide, many who create and drop and list at
 * once, and one that dies at each of its operations. What its head says is counted again each time.
 */
#include <stdio.h>

#include "pool/directory_int.h"
#include "pool/pool_int.h"
#include "sim/dex_world.h"

enum { CHUNKS = 42, COLLIDING = 40, STAYING = 60, ROUNDS = 150, NOTHING_MORE = 5, SEEDS = 4 };

static enum pando_status create_co(struct pool_session *session, const char *name, unsigned *slot,
                                   uint64_t *number)
{
    struct pool_table_options options = {.name = name, .engine = "none", .root = 7};
    struct pool_entry entry = {0};
    enum pando_status status = pool_table_create_co(session, &options, slot, &entry);
    if (number != NULL)
        *number = entry.table;
    return status;
}

static enum pando_status make_co(struct pool_session *session, const char *name)
{
    unsigned slot;
    return create_co(session, name, &slot, NULL);
}

static bool there_co(struct pool_session *session, const char *name)
{
    struct pool_entry entry;
    unsigned slot;
    enum pando_status status = pool_table_open_co(session, name, &slot, &entry);
    CHECK(status == PANDO_NOT_FOUND || (status == PANDO_OK && strcmp(entry.name, name) == 0));
    return status == PANDO_OK;
}

/* ---- the head -------------------------------------------------------------------------------- */

struct counts {
    struct pool *pool;
    struct pool_change change;
};

static bool count(void *context, unsigned slot, const struct pool_entry *entry)
{
    struct counts *counts = context;
    struct pool_change *change = &counts->change;
    unsigned groups[2], group = slot / POOL_GROUP_ENTRIES;
    pool_entry_groups(counts->pool, entry->name, groups);
    change->head.used++;
    change->head.astray += group != groups[0] && group != groups[1];
    change->head.dropping += pool_entry_dropping(entry->state);
    change->head.groups[group / 64] |= (uint64_t)1 << group % 64;
    CHECK((change->numbers[entry->table / 64] >> entry->table % 64 & 1) == 0);
    change->numbers[entry->table / 64] |= (uint64_t)1 << entry->table % 64;
    return true;
}

/* What it says is so; how many are astray. */
static uint64_t check_head_co(struct pool_session *session, uint64_t used)
{
    struct pool *pool = session->pool;
    static struct counts counts;
    static struct pool_change found;
    struct fabric_op ops[] = {
        fabric_read(pool->first + POOL_DIRECTORY, &found.head, sizeof(found.head)),
        fabric_read(pool->first + POOL_NUMBERS, found.numbers, sizeof(found.numbers)),
    };
    counts = (struct counts){.pool = pool};
    CHECK_OK(pool_groups_each_co(session, NULL, count, &counts));
    CHECK_OK(pool_submit_co(session, 0, ops, 2));
    CHECK_EQ_U64(found.head.changing, 0);
    CHECK_EQ_U64(found.head.used, used);
    CHECK_EQ_U64(counts.change.head.used, used);
    CHECK_EQ_U64(found.head.astray, counts.change.head.astray);
    CHECK_EQ_U64(found.head.dropping, counts.change.head.dropping);
    CHECK(memcmp(found.head.groups, counts.change.head.groups, sizeof(found.head.groups)) == 0);
    CHECK(memcmp(found.numbers, counts.change.numbers, sizeof(found.numbers)) == 0);
    return found.head.astray;
}

/* ---- filling it ------------------------------------------------------------------------------ */

static void name_of(char name[24], const char *prefix, unsigned i)
{
    snprintf(name, 24, "%s%u", prefix, i);
}

/* Each name once, in order. */
static void check_list_co(struct pool_session *session, unsigned expected)
{
    struct pool_entry *all;
    unsigned listed;
    CHECK_OK(pool_table_list_co(session, &all, &listed));
    CHECK_EQ_U64(listed, expected);
    for (unsigned i = 1; i < listed; i++)
        CHECK(strcmp(all[i - 1].name, all[i].name) < 0);
    free(all);
}

static void fill_task(void *arg)
{
    struct dex_member self;
    char name[24];
    dex_join_co(arg, &self);
    unsigned most = pool_tables_max(self.pool), dropped = 0;
    CHECK_EQ_U64(most, CHUNKS * POOL_CHUNK_BYTES / POOL_DIRECTORY_PART / POOL_GROUP_BYTES *
                           POOL_GROUP_ENTRIES);
    for (unsigned i = 0; i < most; i++) {
        name_of(name, "t", i);
        CHECK_OK(make_co(self.session, name));
    }
    CHECK_STATUS(make_co(self.session, "one more"), PANDO_FULL);
    CHECK_STATUS(make_co(self.session, "t0"), PANDO_EXISTS);
    uint64_t astray = check_head_co(self.session, most);
    CHECK(astray > 0 && astray < most / 10);
    check_list_co(self.session, most);
    for (unsigned i = 0; i < most; i += 3, dropped++) {
        name_of(name, "t", i);
        CHECK_OK(pool_table_drop_co(self.session, name));
        CHECK_STATUS(pool_table_drop_co(self.session, name), PANDO_NOT_FOUND);
    }
    (void)check_head_co(self.session, most - dropped);
    for (unsigned i = 0; i < most; i++) {
        name_of(name, "t", i);
        CHECK(there_co(self.session, name) == (i % 3 != 0));
    }
    for (unsigned i = 0; i < dropped; i++) {
        name_of(name, "again", i);
        CHECK_OK(make_co(self.session, name));
    }
    CHECK_STATUS(make_co(self.session, "one more"), PANDO_FULL);
    (void)check_head_co(self.session, most);
    for (unsigned i = 0; i < most; i++) {
        name_of(name, i % 3 != 0 ? "t" : "again", i % 3 != 0 ? i : i / 3);
        CHECK_OK(pool_table_drop_co(self.session, name));
    }
    CHECK_EQ_U64(check_head_co(self.session, 0), 0);
    check_list_co(self.session, 0);
    dex_leave_co(&self);
}

/* Forty names that all want the same two groups, which have room for 32. */
static void collide_task(void *arg)
{
    static char names[COLLIDING][24];
    struct dex_member self;
    unsigned wanted[2], groups[2], found = 0;
    dex_join_co(arg, &self);
    pool_entry_groups(self.pool, "first", wanted);
    for (unsigned i = 0; found < COLLIDING; i++) {
        name_of(names[found], "n", i);
        pool_entry_groups(self.pool, names[found], groups);
        found += groups[0] == wanted[0] && groups[1] == wanted[1];
    }
    for (unsigned i = 0; i < COLLIDING; i++)
        CHECK_OK(make_co(self.session, names[i]));
    CHECK_EQ_U64(check_head_co(self.session, COLLIDING), COLLIDING - 2 * POOL_GROUP_ENTRIES);
    for (unsigned i = 0; i < COLLIDING; i++) {
        CHECK(there_co(self.session, names[i]));
        CHECK_STATUS(make_co(self.session, names[i]), PANDO_EXISTS);
    }
    CHECK(!there_co(self.session, "first"));
    /* One in the groups goes: who is astray is found all the same, and its name is taken. */
    CHECK_OK(pool_table_drop_co(self.session, names[0]));
    CHECK_STATUS(make_co(self.session, names[COLLIDING - 1]), PANDO_EXISTS);
    CHECK_OK(make_co(self.session, names[0]));
    CHECK_EQ_U64(check_head_co(self.session, COLLIDING), COLLIDING - 2 * POOL_GROUP_ENTRIES);
    for (unsigned i = 0; i < COLLIDING; i++)
        CHECK_OK(pool_table_drop_co(self.session, names[i]));
    CHECK_EQ_U64(check_head_co(self.session, 0), 0);
    dex_leave_co(&self);
}

/* ---- many at once ---------------------------------------------------------------------------- */

static unsigned workers, lists;

static void list_while_they_work_co(struct pool_session *session)
{
    struct pool_entry *all;
    unsigned listed, staying = 0;
    CHECK_OK(pool_table_list_co(session, &all, &listed));
    for (unsigned i = 0; i < listed; i++) {
        staying += strncmp(all[i].name, "stays", 5) == 0;
        CHECK(i == 0 || strcmp(all[i - 1].name, all[i].name) < 0);
    }
    CHECK_EQ_U64(staying, STAYING);
    free(all);
    lists++;
}

static void worker_task(void *arg)
{
    struct dex_member self;
    char name[24];
    bool second = workers++ > 0;
    unsigned last = 0;
    uint64_t number;
    dex_join_co(arg, &self);
    for (unsigned i = 0; !second && i < STAYING; i++) {
        name_of(name, "stays", i);
        CHECK_OK(make_co(self.session, name));
    }
    while (!there_co(self.session, "stays59"))
        rt_sleep_co(RT_NS_PER_MS / 8);
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* The same names by both: one of them makes it, and either drops it. */
        name_of(name, "both", i % 7);
        enum pando_status status = create_co(self.session, name, &last, &number);
        CHECK(status == PANDO_OK || status == PANDO_EXISTS);
        name_of(name, "both", (i + 3) % 7);
        status = pool_table_drop_co(self.session, name);
        CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
        if (second)
            list_while_they_work_co(self.session);
    }
    for (unsigned i = 0; i < 7; i++) {
        name_of(name, "both", i);
        enum pando_status status = pool_table_drop_co(self.session, name);
        CHECK(status == PANDO_OK || status == PANDO_NOT_FOUND);
    }
    if (--workers == 0)
        CHECK_EQ_U64(check_head_co(self.session, STAYING), 0);
    dex_leave_co(&self);
}

/* ---- dying in the middle --------------------------------------------------------------------- */

static struct death {
    struct fabric *who;
    uint64_t after;
    bool drops, whole, done;
} death;

static void dying_task(void *arg)
{
    struct dex_member self;
    uint64_t number;
    unsigned slot;
    dex_join_co(arg, &self);
    CHECK_OK(make_co(self.session, "before"));
    if (death.drops)
        CHECK_OK(make_co(self.session, "t"));
    fabric_sim_kill_at(death.who, fabric_sim_posted(death.who) + death.after);
    enum pando_status status = death.drops ? pool_table_mark_co(self.session, "t", &slot, &number)
                                           : make_co(self.session, "t");
    if (status == PANDO_OK && death.drops)
        status = pool_table_remove_co(self.session, slot, number);
    death.whole = !fabric_sim_dead(death.who);
    CHECK(!death.whole || status == PANDO_OK);
    fabric_sim_kill(death.who);
    dex_leave_co(&self);
}

static void survivor_task(void *arg)
{
    struct dex_member self;
    dex_join_co(arg, &self);
    while (!fabric_sim_dead(death.who))
        rt_sleep_co(LEASE_NS);
    /* Waits until the dead one's lock is free; counts again what it left. */
    CHECK_OK(make_co(self.session, "after"));
    CHECK(there_co(self.session, "before") && there_co(self.session, "after"));
    struct pool_entry *all;
    unsigned listed;
    CHECK_OK(pool_table_list_co(self.session, &all, &listed));
    free(all);
    bool t = there_co(self.session, "t");
    CHECK_EQ_U64(listed, 2 + t);
    CHECK(!death.whole || t != death.drops);
    struct pool_directory_counts counts;
    CHECK_OK(pool_directory_counts_co(self.session, &counts));
    uint64_t dropping = counts.dropping;
    CHECK(death.drops ? dropping + t <= 1 : dropping == 0);
    CHECK_EQ_U64(check_head_co(self.session, listed + dropping), 0);
    if (!t)
        CHECK_OK(make_co(self.session, "t"));
    CHECK_OK(pool_table_drop_co(self.session, "t"));
    (void)check_head_co(self.session, 2 + dropping);
    dex_leave_co(&self);
    death.done = true;
}

static bool die(uint64_t seed, uint64_t after, bool drops)
{
    struct dex_world place;
    dex_world_build(&place, seed * 1000 + after, 9);
    death = (struct death){.who = place.members[0], .after = after, .drops = drops};
    dex_world_run(&place, dying_task, survivor_task);
    CHECK(death.done);
    return death.whole;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 3, CHUNKS);
    dex_world_run(&place, fill_task, NULL);
    dex_world_build(&place, 4, CHUNKS);
    dex_world_run(&place, collide_task, NULL);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        workers = lists = 0;
        dex_world_build(&place, seed, CHUNKS);
        dex_world_run(&place, worker_task, worker_task);
        CHECK_EQ_U64(lists, ROUNDS);
        for (int drops = 0; drops < 2; drops++) {
            unsigned whole = 0;
            for (uint64_t after = 1; whole < NOTHING_MORE; after++)
                whole += die(seed, after, drops != 0);
        }
    }
    return 0;
}
