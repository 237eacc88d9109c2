/*
 * Memory nodes that come back without their memory: neither a member that is connected nor one that
 * joins takes an empty or foreign window for the one that the pool knows.
 */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/block_fmt.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { BLOCK_BYTES = 4096 };

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

static struct pool_world place;
static int done;

/* Kills a memory node and starts it again. */
static void restart_as(unsigned i, bool keep, bool replace)
{
    place.options.memnode.replace = replace;
    fabric_sim_kill(place.memory[i]);
    pool_world_restart(&place, i, keep);
}

static void restart(unsigned i, bool keep)
{
    restart_as(i, keep, false);
}

/* Endpoints to a node that was killed break after `break_ns`, 0 for what is usual. */
static void run_breaking(rt_fn main, uint64_t break_ns)
{
    struct pool_world_options options = pool_world_pair(LEASE_NS);
    options.net.break_ns = break_ns;
    done = 0;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, main);
    CHECK(pool_world_ends(&place, 600 * RT_NS_PER_S));
    CHECK(done == 1);
    pool_world_destroy(&place);
}

static void run(rt_fn main)
{
    run_breaking(main, 0);
}

static enum pando_status join_co(struct fabric *fabric, uint64_t expected, struct pool **pool,
                                 char error[512])
{
    struct pool_options options = {
        .memory_nodes = 2, .name = "test", .lease_ns = LEASE_NS, .pool = expected};
    return pool_join_co(fabric, &options, pool, error, 512);
}

/* A joiner is refused, with these words. */
static void refused_co(struct fabric *fabric, uint64_t expected, const char *words)
{
    struct pool *pool;
    char error[512] = "";
    CHECK_STATUS(join_co(fabric, expected, &pool, error), PANDO_INVALID);
    if (strstr(error, words) == NULL)
        fprintf(stderr, "not '%s': %s\n", words, error);
    CHECK(strstr(error, words) != NULL);
}

/* ---- node 1 ---------------------------------------------------------------------------------- */

static void empty_task(void *arg)
{
    struct pool *pool;
    struct pool_session *session;
    struct pool_block block;
    uint64_t word = 4711, foreign = 99, seen;
    char error[512];

    CHECK_OK(join_co(arg, 0, &pool, error));
    CHECK_OK(pool_session_open_co(pool, &session));
    CHECK_OK(pool_alloc_co(session, 1, BLOCK_BYTES, &block));
    uint64_t at = fabric_address_offset(block.address) + 64;
    struct fabric_op write = fabric_write(at, &word, sizeof(word));
    struct fabric_op read = fabric_read(at, &seen, sizeof(seen));
    CHECK_OK(pool_submit_co(session, 1, &write, 1));

    /* With its memory it goes on. */
    restart(1, true);
    rt_sleep_co(RT_NS_PER_MS / 4);
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < 3 && status != PANDO_OK; i++)
        status = pool_submit_co(session, 1, &read, 1);
    CHECK_OK(status);
    CHECK(seen == word);

    /* Without, nothing is read from it or written to it, by those that are there or by others. */
    restart(1, false);
    rt_sleep_co(RT_NS_PER_MS / 4);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(pool_submit_co(session, 1, &read, 1), PANDO_BROKEN);
        CHECK_STATUS(pool_submit_co(session, 1, &write, 1), PANDO_BROKEN);
    }
    /* The node itself has refused them, each time. */
    uint64_t refusals = fabric_window_refusals(place.memory[1]);
    CHECK(refusals >= 6);
    struct pool_session *another;
    CHECK_STATUS(pool_session_open_co(pool, &another), PANDO_BROKEN);
    CHECK(fabric_window_refusals(place.memory[1]) > refusals);
    refusals = fabric_window_refusals(place.memory[1]);
    CHECK_OK(fabric_self_read(place.memory[1], at, &seen, sizeof(seen)));
    CHECK(seen == 0);
    refused_co(place.clients[1], 0, "memory node 1 has come back empty");
    CHECK(fabric_window_refusals(place.memory[1]) > refusals);
    refused_co(place.clients[1], 0, "pando memory --replace 1");
    CHECK(!pool_fenced(pool));

    /* Another pool's window. */
    uint64_t id_at =
        fabric_window_first(place.memory[1]) + offsetof(struct pool_superblock, pool_id);
    CHECK_OK(fabric_self_write(place.memory[1], id_at, &foreign, sizeof(foreign)));
    refused_co(place.clients[1], 0, "memory node 1 belongs to another pool");
    CHECK_STATUS(pool_submit_co(session, 1, &read, 1), PANDO_BROKEN);
    CHECK_OK(pool_submit_co(session, 0, &read, 1)); /* node 0 is as it was */
    pool_world_leave_co(pool, session);
    done++;
}

/* ---- node 0 ---------------------------------------------------------------------------------- */

static void first_task(void *arg)
{
    struct pool *pool;
    char error[512];

    CHECK_OK(join_co(arg, 0, &pool, error));
    uint64_t id = pool_id(pool);
    restart(0, false);
    pool_leave_co(pool);
    refused_co(arg, id, "memory node 0 has come back empty");
    refused_co(arg, 0, "If node 0 has come back empty");

    /* To begin anew takes an empty window for every node. A member of the old pool is not a part of it. */
    restart(0, false);
    restart(1, false);
    refused_co(arg, id, "memory node 0 has come back empty");
    CHECK_OK(join_co(arg, 0, &pool, error));
    CHECK(pool_id(pool) != id);
    pool_leave_co(pool);
    done++;
}

/* ---- what a node says ------------------------------------------------------------------------ */

static char log_path[] = "/tmp/pando-windows-XXXXXX";

/* How many lines with these words are in the log. */
static unsigned said(const char *words)
{
    char line[LOG_LINE_MAX + 1];
    unsigned lines = 0;
    FILE *file = fopen(log_path, "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        lines += strstr(line, words) != NULL;
    fclose(file);
    return lines;
}

static void refuse_co(struct fabric *from, uint16_t node, uint64_t expected)
{
    struct fabric_endpoint *endpoint;
    CHECK_STATUS(fabric_connect_window_co(from, node, expected, &endpoint), PANDO_INVALID);
}

static void admit_co(struct fabric *from, uint16_t node, uint64_t expected)
{
    struct fabric_endpoint *endpoint;
    CHECK_OK(fabric_connect_window_co(from, node, expected, &endpoint));
    fabric_disconnect_co(endpoint);
}

static void says_task(void *arg)
{
    enum { TRIES = 50 };
    uint64_t second = fabric_window_id(place.memory[1]), foreign = 99;
    const uint64_t id_at =
        fabric_window_first(place.memory[1]) + offsetof(struct pool_superblock, pool_id);
    unsigned before = said("refused a client");

    /* Who expects the window that there is, or none, is let in; so is any at a member. */
    admit_co(arg, 1, second);
    admit_co(arg, 1, 0);
    admit_co(arg, fabric_self(place.clients[1]), second);
    CHECK(fabric_window_refusals(place.memory[1]) == 0);

    /* The others are refused by the node, which says so once a minute. */
    restart(1, false);
    for (unsigned i = 0; i < TRIES; i++)
        refuse_co(arg, 1, second);
    CHECK(fabric_window_refusals(place.memory[1]) == TRIES);
    CHECK(said("refused a client") == before + 1);
    CHECK(said("this one is empty. What memory node 1 held is lost unless") == 1);
    CHECK(said("`pando memory --replace 1`: tables") == 1);
    rt_sleep_co(61 * RT_NS_PER_S);
    refuse_co(arg, 1, second);
    refuse_co(arg, 1, second);
    CHECK(said("refused a client") == before + 2);
    CHECK(said("unsaid=49") == 1);

    restart(1, false);
    CHECK_OK(fabric_self_write(place.memory[1], id_at, &foreign, sizeof(foreign)));
    refuse_co(arg, 1, second);
    CHECK(said("this one is another pool's, or was replaced. What memory node 1 held") == 1);
    restart(0, false);
    refuse_co(arg, 0, second);
    CHECK(said("The pool that the client is of is lost unless") == 1);
    CHECK(said("refused a client") == before + 4);

    /* One that was started to be another one has nothing to ask for. */
    restart_as(1, false, true);
    refuse_co(arg, 1, second);
    CHECK(said("refused a client") == before + 4);
    done++;
}

/* ---- replacing ------------------------------------------------------------------------------- */

struct member {
    struct pool *pool;
    struct pool_session *session;
};

static struct member enter_co(struct fabric *fabric)
{
    struct member member;
    char error[512] = "";
    enum pando_status status = join_co(fabric, 0, &member.pool, error);
    if (status != PANDO_OK)
        fprintf(stderr, "%s\n", error);
    CHECK_OK(status);
    CHECK_OK(pool_session_open_co(member.pool, &member.session));
    return member;
}

static void leave_co(struct member member)
{
    pool_world_leave_co(member.pool, member.session);
}

/* A live block of a table on one node. */
static void block_create_co(struct member member, uint16_t table, uint16_t node,
                            struct pool_block *block)
{
    CHECK_OK(pool_table_alloc_co(member.session, table, node, BLOCK_BYTES, block));
    struct pool_tenure tenure = {
        .state = POOL_BLOCK_LIVE, .table = table, .holder = pool_identity(member.pool)};
    uint64_t words[4] = {0, block->address, ++block->version, pool_tenure_pack(tenure)};
    struct fabric_op write =
        fabric_write(fabric_address_offset(block->address), words, sizeof(words));
    CHECK_OK(pool_submit_co(member.session, node, &write, 1));
}

static uint16_t table_create_co(struct member member, const char *name)
{
    struct pool_table_options options = {.name = name, .engine = "none", .key_max = 8, .root = 77};
    struct pool_entry entry;
    unsigned slot;
    CHECK_OK(pool_table_create_co(member.session, &options, &slot, &entry));
    return (uint16_t)entry.table;
}

/* "here" has a block on node 0 only, "there" one on each node. */
static void tables_create_co(struct member member, struct pool_block *there)
{
    struct pool_block block;
    block_create_co(member, table_create_co(member, "here"), 0, &block);
    uint16_t table = table_create_co(member, "there");
    block_create_co(member, table, 1, there);
    block_create_co(member, table, 0, &block);
}

static struct pool_entry entry_co(struct member member, const char *name)
{
    struct pool_entry entry;
    unsigned slot;
    CHECK_OK(pool_table_open_co(member.session, name, &slot, &entry));
    return entry;
}

static bool lost_co(struct member member, const char *name)
{
    uint16_t node;
    struct pool_entry entry = entry_co(member, name);
    return pool_table_lost(member.pool, &entry, &node) && node == 1;
}

static uint64_t epoch_now(void)
{
    uint64_t epoch, at = fabric_window_first(place.memory[0]) + POOL_EPOCH;
    CHECK_OK(fabric_self_read(place.memory[0], at, &epoch, sizeof(epoch)));
    return epoch;
}

static uint64_t replaces_now(void)
{
    uint64_t word, first = fabric_window_first(place.memory[1]);
    CHECK_OK(fabric_self_read(place.memory[1], first + offsetof(struct pool_superblock, replaces),
                              &word, sizeof(word)));
    return word;
}

static void wait_fenced_co(struct pool *pool)
{
    for (int i = 0; i < 1000 && !pool_fenced(pool); i++)
        rt_sleep_co(LEASE_NS / 20);
    CHECK(pool_fenced(pool));
}

/* The pool after node 1 was replaced: "here" is sound, "there" is lost and can be freed. */
static void check_replaced_co(struct member member, uint64_t epoch)
{
    struct pool_block block;
    struct pool_node_stats before, after;
    struct pool_entry here = entry_co(member, "here"), there = entry_co(member, "there");

    CHECK(epoch_now() % 2 == 0 && epoch_now() > epoch);
    CHECK(replaces_now() == 0);
    CHECK(pool_window(member.pool, 1).id == fabric_window_id(place.memory[1]));
    CHECK(!lost_co(member, "here") && lost_co(member, "there"));
    CHECK_STATUS(pool_table_alloc_co(member.session, (uint16_t)there.table, 1, BLOCK_BYTES, &block),
                 PANDO_CORRUPT);
    /* A table that had nothing there may get memory on the new node, and stays sound. */
    CHECK_OK(pool_table_alloc_co(member.session, (uint16_t)here.table, 1, BLOCK_BYTES, &block));
    CHECK(fabric_address_node(block.address) == 1);
    CHECK(!lost_co(member, "here"));
    CHECK_OK(pool_node_stats_co(member.session, 0, &before));
    unsigned slot;
    uint64_t number;
    CHECK_OK(pool_table_mark_co(member.session, "there", &slot, &number));
    CHECK(number == there.table);
    CHECK_OK(pool_table_sweep_co(member.session, slot, (uint16_t)number));
    CHECK_OK(pool_node_stats_co(member.session, 0, &after));
    CHECK(after.blocks_free_bytes == before.blocks_free_bytes + BLOCK_BYTES);
    CHECK_OK(pool_table_remove_co(member.session, slot, number));
}

static void replace_task(void *arg)
{
    struct pool_block there;
    struct member member = enter_co(arg), other = enter_co(place.clients[1]);
    uint64_t epoch = epoch_now();

    tables_create_co(member, &there);

    /* Nobody takes it without having been told. */
    restart(1, false);
    uint64_t words[4];
    struct fabric_op read = fabric_read(fabric_address_offset(there.address), words, sizeof(words));
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(pool_submit_co(member.session, 1, &read, 1), PANDO_BROKEN);
    rt_sleep_co(LEASE_NS);
    CHECK(!pool_fenced(member.pool) && epoch_now() == epoch);

    /* Told, those that are there join again, also one that needs nothing of that node. */
    restart_as(1, true, true);
    wait_fenced_co(member.pool);
    leave_co(member);
    member = enter_co(arg);
    wait_fenced_co(other.pool);
    leave_co(other);
    check_replaced_co(member, epoch);
    leave_co(member);

    /* Another start of it is an ordinary one, and --replace would give up what is in it. */
    restart(1, true);
    member = enter_co(arg);
    CHECK(!lost_co(member, "here"));
    leave_co(member);
    done++;
}

/* Who has not noticed the replacement yet marks no table as one with memory there. */
static void late_task(void *arg)
{
    struct pool_block block;
    struct member member = enter_co(arg);

    tables_create_co(member, &block);
    uint16_t here = (uint16_t)entry_co(member, "here").table;
    restart_as(1, false, true);
    struct member other = enter_co(place.clients[1]);
    CHECK(!pool_fenced(member.pool));
    CHECK_STATUS(pool_table_alloc_co(member.session, here, 1, BLOCK_BYTES, &block), PANDO_FENCED);
    CHECK(!lost_co(other, "here") && lost_co(other, "there"));
    leave_co(member);
    leave_co(other);
    done++;
}

/* A member stands still at each step of an allocation in turn, while the node is replaced. A mark that it
 * sets afterwards is taken back: the table had nothing in the lost window. */
static struct standstill {
    unsigned step, marks; /* marks: that came too late in some run */
    uint64_t posted;      /* by the member when it began */
    uint16_t table;
    bool began, ended;
    enum pando_status status;
} still;

static void slow_task(void *arg)
{
    struct pool_block block;
    struct member member = enter_co(arg);

    tables_create_co(member, &block);
    still.table = (uint16_t)entry_co(member, "here").table;
    still.posted = fabric_sim_posted(arg);
    fabric_sim_pause_at(arg, still.posted + still.step, LEASE_NS / 2);
    still.began = true;
    still.status = pool_table_alloc_co(member.session, still.table, 1, BLOCK_BYTES, &block);
    still.ended = true;
    leave_co(member);
}

static void meanwhile_task(void *arg)
{
    CHECK_OK(rt_spawn(fabric_sim_loop(place.clients[0], 0), slow_task, place.clients[0]));
    while (!still.began ||
           (!still.ended && fabric_sim_posted(place.clients[0]) < still.posted + still.step))
        rt_sleep_co(RT_NS_PER_US);
    restart_as(1, false, true);
    struct member other = enter_co(arg);
    bool ended = still.ended, before = lost_co(other, "here");
    while (!still.ended)
        rt_sleep_co(RT_NS_PER_US);
    CHECK(lost_co(other, "here") == before);
    CHECK(lost_co(other, "there"));
    still.marks += !ended && !before && still.status == PANDO_FENCED;
    leave_co(other);
    done++;
}

static void run_standstills(void)
{
    enum { STEPS = 8, SEEDS = 12 };
    for (unsigned i = 0; i < STEPS * SEEDS; i++) {
        struct pool_world_options options = pool_world_pair(LEASE_NS);
        options.net.seed = 1 + i / STEPS;
        options.net.break_ns = 5 * LEASE_NS;
        still = (struct standstill){.step = 1 + i % STEPS, .marks = still.marks};
        done = 0;
        pool_world_build(&place, &options);
        pool_world_spawn(&place, 1, meanwhile_task);
        CHECK(pool_world_ends(&place, 600 * RT_NS_PER_S));
        CHECK(done == 1);
        pool_world_destroy(&place);
    }
    CHECK(still.marks > 0);
    printf("%u marks came too late\n", still.marks);
}

/* Somebody dies at each step of a replacement in turn; the next who joins goes on with it. */
static unsigned crash_step;
static bool crashed;

static void doomed_task(void *arg)
{
    struct pool *pool;
    char error[512];
    if (join_co(arg, 0, &pool, error) == PANDO_OK)
        pool_leave_co(pool);
    crashed = fabric_sim_dead(arg);
}

static void crash_task(void *arg)
{
    struct pool_block there;
    struct member member = enter_co(arg);
    uint64_t epoch = epoch_now();

    tables_create_co(member, &there);
    leave_co(member);

    restart_as(1, false, true);
    fabric_sim_kill_at(place.clients[1], crash_step);
    CHECK_OK(rt_spawn(fabric_sim_loop(place.clients[1], 0), doomed_task, place.clients[1]));
    rt_sleep_co(20 * LEASE_NS);
    member = enter_co(arg);
    check_replaced_co(member, epoch);
    leave_co(member);
    done++;
}

int main(void)
{
    char error[256];
    int log = mkstemp(log_path);
    CHECK(log >= 0);
    CHECK_OK(log_open_file(log_path, error, sizeof(error)));
    run(says_task);
    run(empty_task);
    run(first_task);
    run(replace_task);
    run_breaking(late_task, RT_NS_PER_MS); /* so that its endpoint does not tell it */
    run_standstills();
    do {
        crash_step++;
        crashed = false;
        run(crash_task);
    } while (crashed);
    CHECK(crash_step > 15);
    printf("%u steps\n", crash_step);
    close(log);
    (void)unlink(log_path);
    return 0;
}
