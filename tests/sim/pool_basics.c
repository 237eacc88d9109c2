/*
 * The pool without an adversary: joining, tables, memory until there is none, what a restarted memory node
 * finds again, and pools that do not belong together.
 */
#include "lib/broken.h"
#include "pool/block_fmt.h"
#include "pool/checked_word.h"
#include "pool/intent.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { BLOCK_BYTES = 4096 };

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;
static const uint64_t LONG_LEASE_NS = 4 * RT_NS_PER_S;

static struct pool_world place;
static int done;

static void run(rt_fn main, uint64_t lease_ns)
{
    done = 0;
    pool_world_build_pair(&place, lease_ns);
    pool_world_spawn(&place, 0, main);
    CHECK(pool_world_ends(&place, 600 * RT_NS_PER_S));
    CHECK(sim_live_tasks(fabric_sim_world(place.net)) == 0);
    CHECK(done == 1);
    pool_world_destroy(&place);
}

static struct pool *join_co(struct fabric *fabric, struct pool_session **session)
{
    return pool_world_join_co(&place, fabric, session);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void tables_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = join_co(arg, &session);
    struct pool_table_options options = {.name = "a", .engine = "none", .key_max = 8, .root = 77};
    struct pool_entry entry;
    struct pool_entry *all;
    char name[16];
    unsigned slot, count;
    uint64_t found;

    CHECK_OK(pool_table_create_co(session, &options, &slot, &entry));
    uint64_t first_id = entry.table;
    CHECK_STATUS(pool_table_create_co(session, &options, &slot, &entry), PANDO_EXISTS);
    CHECK_OK(pool_table_open_co(session, "a", &slot, &entry));
    CHECK(entry.root == checked_word_pack(77) && entry.key_max == 8 &&
          strcmp(entry.engine, "none") == 0);
    CHECK_OK(pool_root_swap_co(session, slot, 77, 78, &found));
    CHECK_STATUS(pool_root_swap_co(session, slot, 77, 79, &found), PANDO_STALE);
    CHECK_EQ_U64(found, 78);
    CHECK_STATUS(pool_table_open_co(session, "b", &slot, &entry), PANDO_NOT_FOUND);
    CHECK_OK(pool_table_drop_co(session, "a"));
    CHECK_STATUS(pool_table_drop_co(session, "a"), PANDO_NOT_FOUND);

    options.name = "";
    CHECK_STATUS(pool_table_create_co(session, &options, &slot, &entry), PANDO_INVALID);
    for (unsigned i = 0; i < pool_tables_max(pool); i++) {
        snprintf(name, sizeof(name), "t%d", i);
        options.name = name;
        CHECK_OK(pool_table_create_co(session, &options, &slot, &entry));
        CHECK(entry.table > first_id); /* an id is never used twice */
    }
    options.name = "one more";
    CHECK_STATUS(pool_table_create_co(session, &options, &slot, &entry), PANDO_FULL);
    CHECK_OK(pool_table_list_co(session, &all, &count));
    CHECK(count == pool_tables_max(pool));
    free(all);
    pool_world_leave_co(pool, session);
    done++;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t used_bytes_co(struct pool_session *session)
{
    uint64_t used = 0;
    for (uint16_t node = 0; node < place.options.memories; node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(session, node, &stats));
        used += (stats.chunks - stats.chunks_free) * POOL_CHUNK_BYTES - stats.blocks_free_bytes;
    }
    return used;
}

static void memory_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = join_co(arg, &session);
    enum { MOST = (2 * 42 << 20) / BLOCK_BYTES };
    struct pool_block *blocks = calloc(MOST, sizeof(*blocks));
    struct pool_block again;
    unsigned count = 0;
    enum pando_status status;

    CHECK_STATUS(pool_alloc_co(session, 0, 100, &again), PANDO_INVALID);
    CHECK_STATUS(pool_alloc_co(session, 9, 128, &again), PANDO_RANGE);
    while ((status = pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &blocks[count])) ==
           PANDO_OK)
        count++;
    CHECK_STATUS(status, PANDO_FULL);
    /* Two of 41 chunks are kept for what is vital. */
    CHECK_EQ_U64(count, 2 * 39 * POOL_CHUNK_BYTES / BLOCK_BYTES);
    CHECK_STATUS(pool_alloc_co(session, 0, 64, &again), PANDO_FULL);

    /* What is freed comes back after the grace period and not before, with a higher version. */
    blocks[7].version += 3;
    CHECK_OK(pool_free_co(session, &blocks[7], BLOCK_BYTES, false));
    CHECK_STATUS(pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &again), PANDO_FULL);
    rt_sleep_co(pool_grace_ns(pool) + 1);
    CHECK_OK(pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &again));
    CHECK(again.address == blocks[7].address && again.version == blocks[7].version);

    /* All of it freed: whole chunks are free again, for blocks of any size. */
    for (unsigned i = 0; i < count; i++)
        CHECK_OK(pool_free_co(session, &blocks[i], BLOCK_BYTES, false));
    rt_sleep_co(pool_grace_ns(pool) + 1);
    CHECK_OK(pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &again));
    CHECK(used_bytes_co(session) < (uint64_t)count * BLOCK_BYTES / 2);
    CHECK_OK(pool_free_co(session, &again, BLOCK_BYTES, false));
    free(blocks);
    pool_world_leave_co(pool, session);

    pool = join_co(arg, &session);
    CHECK(used_bytes_co(session) == 0); /* who leaves takes nothing along */
    pool_world_leave_co(pool, session);
    done++;
}

/* ---- who empties a chunk --------------------------------------------------------------------- */

static uint64_t round_trips(const struct pool_session *session)
{
    struct fabric_counters counters[FABRIC_TARGETS];
    uint64_t sum = 0;
    pool_session_counters(session, counters);
    for (unsigned i = 0; i < FABRIC_TARGETS; i++)
        sum += counters[i].lists + counters[i].calls;
    return sum;
}

/* Whoever frees the last block of a chunk pays no more for it than for any other: chunks come back later. With a
 * long lease the task that gives blocks back comes seldom, and finds many that have been freed for long enough. */
static void emptied_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = join_co(arg, &session);
    enum { CHUNKS = 3, PER_CHUNK = POOL_CHUNK_BYTES / BLOCK_BYTES, COUNT = CHUNKS * PER_CHUNK };
    struct pool_block *blocks = calloc(COUNT, sizeof(*blocks));
    struct pool_node_stats before, after;

    CHECK_OK(pool_node_stats_co(session, 0, &before));
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_OK(pool_alloc_co(session, 0, BLOCK_BYTES, &blocks[i]));
    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t trips = round_trips(session);
        CHECK_OK(pool_free_co(session, &blocks[i], BLOCK_BYTES, false));
        CHECK_EQ_U64(round_trips(session) - trips, 1);
        /* The blocks of the first chunks have become usable again by the end. */
        rt_sleep_co(pool_grace_ns(pool) / PER_CHUNK);
    }
    rt_sleep_co(pool_grace_ns(pool) + RT_NS_PER_S);
    CHECK_OK(pool_node_stats_co(session, 0, &after));
    CHECK(after.chunks_free == before.chunks_free);
    free(blocks);
    pool_world_leave_co(pool, session);
    done++;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static uint64_t sweeps_co(struct pool_session *session)
{
    uint64_t sweeps = 0;
    for (uint16_t node = 0; node < place.options.memories; node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(session, node, &stats));
        sweeps += stats.sweeps;
    }
    return sweeps;
}

/* A sweep reads every block of a node: whoever leaves asks for one only if some call of its own failed. */
static void leaving_task(void *arg)
{
    enum { COUNT = 3 * POOL_CHUNK_BYTES / BLOCK_BYTES };
    struct pool_session *session, *other_session;
    struct pool *pool = join_co(arg, &session), *other = join_co(place.clients[1], &other_session);
    struct pool_block *blocks = calloc(COUNT, sizeof(*blocks)), vital;
    uint64_t before = sweeps_co(other_session), used = used_bytes_co(other_session);
    fabric_address slot;

    for (unsigned i = 0; i < COUNT; i++)
        CHECK_OK(pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &blocks[i]));
    CHECK_OK(pool_vital_alloc_co(session, BLOCK_BYTES, &vital));
    CHECK_OK(pool_intent_take_co(session, 0, &slot));
    pool_intent_give(session, slot);
    /* Some are back when it leaves, some are not yet, and some wait for their grace period. */
    for (unsigned i = 0; i < COUNT / 2; i++)
        CHECK_OK(pool_free_co(session, &blocks[i], BLOCK_BYTES, false));
    rt_sleep_co(2 * pool_grace_ns(pool));
    for (unsigned i = COUNT / 2; i < COUNT; i++)
        CHECK_OK(pool_free_co(session, &blocks[i], BLOCK_BYTES, false));
    CHECK_OK(pool_vital_free_co(session, &vital, BLOCK_BYTES, false));
    pool_world_leave_co(pool, session);
    CHECK_EQ_U64(sweeps_co(other_session), before);
    CHECK_EQ_U64(used_bytes_co(other_session), used);

    /* Of this one some call was cut off. */
    pool = join_co(arg, &session);
    CHECK_OK(pool_alloc_co(session, 1, BLOCK_BYTES, &blocks[0]));
    fabric_sim_kill(place.memory[1]);
    CHECK_STATUS(pool_alloc_co(session, 1, 2 * BLOCK_BYTES, &blocks[1]), PANDO_BROKEN);
    pool_world_restart(&place, 1, true);
    rt_sleep_co(2 * pool_grace_ns(pool));
    pool_world_leave_co(pool, session);
    CHECK(sweeps_co(other_session) > before);
    free(blocks);
    pool_world_leave_co(other, other_session);
    done++;
}

/* ---- what is vital --------------------------------------------------------------------------- */

enum { VITAL_TASKS = 4, VITAL_BLOCKS = 8, SIZES = 300 };

struct vital {
    struct pool_session *session;
    struct rt_countdown left;
};

static void vital_alloc_task(void *arg)
{
    struct vital *vital = arg;
    struct pool_block block;
    for (int i = 0; i < VITAL_BLOCKS; i++)
        CHECK_OK(pool_vital_alloc_co(vital->session, BLOCK_BYTES, &block));
    rt_countdown_done(&vital->left);
}

/* One node has nothing left: whoever asks gets it from the other, also when several ask at once. */
static void vital_task(void *arg)
{
    struct vital vital;
    struct pool *pool = join_co(arg, &vital.session);
    struct pool_block block;

    while (pool_alloc_co(vital.session, 0, POOL_CHUNK_BYTES, &block) == PANDO_OK)
        ;
    rt_countdown_init(&vital.left, VITAL_TASKS);
    for (int i = 0; i < VITAL_TASKS; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), vital_alloc_task, &vital));
    rt_countdown_wait_co(&vital.left);
    pool_world_leave_co(pool, vital.session);
    done++;
}

/* A node that cannot be reached when its block is to go back gets it when it can be. */
static void late_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = join_co(arg, &session);
    struct pool_block block = {0};
    uint64_t before = used_bytes_co(session);

    while (fabric_address_node(block.address) != 1)
        CHECK_OK(pool_vital_alloc_co(session, POOL_CHUNK_BYTES, &block));
    uint64_t most = used_bytes_co(session);
    CHECK_OK(pool_vital_free_co(session, &block, POOL_CHUNK_BYTES, false));
    fabric_sim_kill(place.memory[1]);
    rt_sleep_co(2 * pool_grace_ns(pool));
    pool_world_restart(&place, 1, true);
    rt_sleep_co(2 * pool_grace_ns(pool));
    CHECK(most > before);
    CHECK_EQ_U64(used_bytes_co(session), most - POOL_CHUNK_BYTES);
    pool_world_leave_co(pool, session);
    done++;
}

/* More sizes than a node can tell apart at a time: one that is not in use any more is in nobody's way. */
static void sizes_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = join_co(arg, &session);
    struct pool_block block;
    uint64_t before = used_bytes_co(session);

    for (uint32_t i = 1; i <= SIZES; i++) {
        CHECK_OK(pool_vital_alloc_co(session, i * 64, &block));
        CHECK_OK(pool_vital_free_co(session, &block, i * 64, false));
        rt_sleep_co(RT_NS_PER_S);
    }
    rt_sleep_co(2 * pool_grace_ns(pool));
    CHECK_EQ_U64(used_bytes_co(session), before);
    pool_world_leave_co(pool, session);
    done++;
}

/* ---- restarts -------------------------------------------------------------------------------- */

/* All memory of a node but blocks for single slots. */
static void fill_co(struct pool_session *session)
{
    struct pool_block block;
    enum pando_status status = PANDO_OK;
    CHECK_OK(pool_vital_alloc_co(session, INTENT_SLOT_BLOCK, &block));
    CHECK_EQ_U64(fabric_address_node(block.address), 1);
    CHECK_OK(pool_vital_alloc_co(session, INTENT_SLOT_BLOCK, &block));
    CHECK_EQ_U64(fabric_address_node(block.address), 0);
    while (status == PANDO_OK)
        status = pool_alloc_co(session, 0, POOL_CHUNK_BYTES, &block);
    CHECK_STATUS(status, PANDO_FULL);
}

/* A list is cut off after its intent by the death of the memory node: the restarted node finishes what
 * the intent says before anybody reads it (rule new-incarnation), and forgets nothing else. */
static void restart_co(void *arg, bool full)
{
    struct pool_session *session;
    struct pool *pool = join_co(arg, &session);
    struct pool_block block;
    struct pool_lock lock;
    struct pool_entry entry;
    struct pool_node_stats before, after;
    struct intent_builder builder;
    struct pool_table_options options = {.name = "kept", .engine = "none", .root = 5};
    uint64_t old_words[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t new_words[8] = {11, 12, 13, 14, 15, 16, 17, 18}, seen[8];
    uint8_t *buffer = aligned_alloc(8, POOL_INTENT_BYTES);
    fabric_address slot;
    unsigned table;
    char error[256];

    CHECK_OK(pool_table_create_co(session, &options, &table, &entry));
    CHECK_OK(pool_alloc_co(session, 0, BLOCK_BYTES, &block));
    if (full)
        fill_co(session);
    CHECK_OK(pool_lock_co(session, pool_lock_for(pool, block.address), &lock));
    CHECK_OK(pool_intent_take_co(session, 0, &slot));
    uint64_t at = fabric_address_offset(block.address) + 64;
    struct fabric_op write = fabric_write(at, old_words, sizeof(old_words));
    CHECK_OK(pool_submit_co(session, 0, &write, 1));
    intent_begin(&builder, buffer, POOL_INTENT_BYTES,
                 (struct intent_lock){lock.address, lock.word});
    intent_add_image(&builder, block.address + 64, slice_of(new_words, sizeof(new_words)));
    struct fabric_op intent = fabric_write(fabric_address_offset(slot), buffer,
                                           (uint32_t)intent_finish(&builder, pool_id(pool), slot));
    CHECK_OK(pool_submit_co(session, 0, &intent, 1));
    CHECK_OK(pool_node_stats_co(session, 0, &before));

    fabric_sim_kill(place.memory[0]);
    rt_sleep_co(RT_NS_PER_MS / 2);
    pool_world_restart(&place, 0, true);
    CHECK_STATUS(pool_submit_co(session, 0, &intent, 0), PANDO_INVALID);
    struct fabric_op read = fabric_read(at, seen, sizeof(seen));
    CHECK_OK(pool_submit_co(session, 0, &read, 1));
    CHECK(memcmp(seen, new_words, sizeof(seen)) == 0);
    bool applied;
    CHECK_OK(pool_resolve_co(session, &lock, &applied));
    CHECK(!applied); /* the lock is still ours */
    CHECK_OK(pool_unlock_co(session, &lock));
    CHECK_OK(pool_table_open_co(session, "kept", &table, &entry));
    CHECK_OK(pool_node_stats_co(session, 0, &after));
    CHECK(after.chunks_free == before.chunks_free && after.starts == before.starts + 1);
    free(buffer);
    pool_world_leave_co(pool, session);

    /* Empty again: no pool that a client of the old one could go on with. */
    fabric_sim_kill(place.memory[0]);
    pool_world_restart(&place, 0, false);
    struct pool_options join = {.memory_nodes = 2, .lease_ns = LEASE_NS};
    CHECK_STATUS(pool_join_co(arg, &join, &pool, error, sizeof(error)), PANDO_INVALID);
    CHECK(strstr(error, "belongs to another pool") != NULL);
    done++;
}

static void restart_task(void *arg)
{
    restart_co(arg, false);
}

static void restart_full_task(void *arg)
{
    restart_co(arg, true);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void joining_task(void *arg)
{
    struct pool_session *session, *other_session;
    struct pool *pool = join_co(arg, &session), *other;
    struct pool_options options = {.memory_nodes = 1, .lease_ns = LEASE_NS};
    static struct pool_member members[POOL_MEMBERS];
    unsigned count;
    uint64_t version;
    char error[256];

    CHECK_STATUS(pool_join_co(place.clients[1], &options, &other, error, sizeof(error)),
                 PANDO_INVALID);
    CHECK(strstr(error, "name them all") != NULL);
    struct fabric_identity first = pool_identity(pool);
    pool_world_leave_co(pool, session);
    pool = join_co(arg, &session);
    CHECK(pool_identity(pool).member == first.member);
    CHECK(pool_identity(pool).incarnation == first.incarnation + 1);

    /* Declared dead by another, it finds out and does nothing any more. */
    other = join_co(place.clients[1], &other_session);
    CHECK_OK(pool_members_co(other_session, members, POOL_MEMBERS, &count));
    CHECK(count == 2);
    CHECK_STATUS(pool_recover_co(other_session, pool_identity(pool)), PANDO_BUSY); /* it lives */
    CHECK(!pool_fenced(pool) && pool_lease_valid(pool));
    pool_broken.judge = true;
    CHECK_OK(pool_recover_co(other_session, pool_identity(pool)));
    pool_broken.judge = false;
    CHECK_STATUS(pool_recover_co(other_session, pool_identity(pool)), PANDO_NOT_FOUND);
    CHECK_STATUS(pool_root_read_co(session, 0, &version), PANDO_FENCED);
    CHECK(pool_fenced(pool) && !pool_lease_valid(pool));
    pool_world_leave_co(pool, session);
    CHECK_OK(pool_members_co(other_session, members, POOL_MEMBERS, &count));
    CHECK(count == 1);
    pool_world_leave_co(other, other_session);

    /* Another format. */
    uint64_t at = fabric_window_first(place.memory[1]) + 8;
    CHECK_OK(fabric_self_read(place.memory[1], at, &version, 8));
    version++;
    CHECK_OK(fabric_self_write(place.memory[1], at, &version, 8));
    options.memory_nodes = 2;
    CHECK_STATUS(pool_join_co(arg, &options, &pool, error, sizeof(error)), PANDO_VERSION);
    struct memnode *none;
    struct memnode_options memnode = {0};
    CHECK_STATUS(memnode_open(place.memory[1], &memnode, &none, error, sizeof(error)),
                 PANDO_VERSION);
    char wanted[32];
    snprintf(wanted, sizeof(wanted), "format version %d", POOL_VERSION + 1);
    CHECK(strstr(error, wanted) != NULL);
    done++;
}

int main(int argc, char **argv)
{
    break_rule(argc, argv);
    rt_fn tasks[] = {tables_task, memory_task,  leaving_task,      vital_task,  late_task,
                     sizes_task,  restart_task, restart_full_task, joining_task};
    for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
        run(tasks[i], LEASE_NS);
    run(emptied_task, LONG_LEASE_NS);
    return 0;
}
