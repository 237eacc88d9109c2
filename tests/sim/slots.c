/*
 * Slots for intents that were not used for a lease go back to their node, but for a few; those that are in use stay,
 * and more are had again when they are needed. A member that dies at any operation of that leaves nothing behind, nor
 * does one whose calls lose their answers.
 */
#include "pool/memnode_int.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum {
    CHUNKS = 120,
    SLOTS = 20,
    HELD = 5,
    USED = 10,
    VITAL = 4,
    TURNS = 40,
    EASY = 3,
    DEATHS = 60
};

static const uint64_t LEASE_NS = 20 * RT_NS_PER_MS;

static struct pool_world place;
static uint64_t chunks_before;
static unsigned done;

/* Blocks that are marked as slots, of whomever. */
static unsigned marked(void)
{
    struct memnode *memnode = place.memnodes[0];
    unsigned count = 0;
    for (uint64_t i = 0; i < memnode->super.chunks; i++) {
        for (uint32_t j = 0; j < memnode->chunks[i].blocks; j++)
            count += intent_slot_tenure(memnode_tenure(memnode, i, j));
    }
    return count;
}

/* When nobody can be reading what was swept. */
static void check_all_back(void)
{
    struct memnode *memnode = place.memnodes[0];
    CHECK_EQ_U64(marked(), 0);
    rt_latch_lock(&memnode->latch);
    memnode_release_whole(memnode);
    rt_latch_unlock(&memnode->latch);
    CHECK_EQ_U64(memnode->chunks_free, chunks_before);
}

static void take_co(struct pool_session *session, fabric_address *slots, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t word = 1;
        CHECK_OK(pool_intent_take_co(session, 0, &slots[i]));
        CHECK_OK(pool_word_read_co(session, slots[i], &word));
        CHECK_EQ_U64(word, 0);
    }
}

static void give(struct pool_session *session, fabric_address *slots, unsigned count)
{
    while (count > 0)
        pool_intent_give(session, slots[--count]);
}

static void idle_task(void *arg)
{
    fabric_address slots[SLOTS];
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);

    for (unsigned again = 0; again < 2; again++) {
        take_co(session, slots, SLOTS);
        rt_sleep_co(3 * LEASE_NS);
        CHECK_EQ_U64(marked(), SLOTS);
        give(session, slots + HELD, SLOTS - HELD);
        rt_sleep_co(3 * LEASE_NS);
        CHECK_EQ_U64(marked(), HELD);
        give(session, slots, HELD);
        rt_sleep_co(3 * LEASE_NS);
        CHECK_EQ_U64(marked(), VITAL);
        CHECK_EQ_U64(place.memnodes[0]->chunks_free, chunks_before - 1);
    }
    /* Those that are used now and then stay, without another message. */
    take_co(session, slots, USED);
    give(session, slots, USED);
    uint64_t grants = place.memnodes[0]->stats.grants;
    for (unsigned i = 0; i < TURNS; i++) {
        take_co(session, slots, USED);
        rt_sleep_co(LEASE_NS / 5);
        give(session, slots, USED);
        rt_sleep_co(LEASE_NS / 3);
    }
    CHECK_EQ_U64(place.memnodes[0]->stats.grants, grants);
    CHECK_EQ_U64(marked(), USED);
    pool_world_leave_co(pool, session);
    CHECK_EQ_U64(place.memnodes[0]->stats.sweeps, 0);
    done++;
}

/* Of two members: those that they keep are in one chunk, in whichever order they came back. */
static void two_task(void *arg)
{
    fabric_address slots[2][2 * VITAL];
    struct pool_session *sessions[2];
    struct pool *pools[2];

    for (unsigned i = 0; i < 2; i++)
        pools[i] = pool_world_join_co(&place, i == 0 ? arg : place.clients[i], &sessions[i]);
    for (unsigned i = 0; i < 4 * VITAL; i++)
        take_co(sessions[i % 2], &slots[i % 2][i / 2], 1);
    CHECK_EQ_U64(place.memnodes[0]->chunks_free, chunks_before - 2);
    for (unsigned i = 0; i < 4 * VITAL; i++)
        pool_intent_give(sessions[i % 2], slots[i % 2][i / 2 * 3 % (2 * VITAL)]);
    rt_sleep_co(3 * LEASE_NS);
    CHECK_EQ_U64(marked(), 2 * VITAL);
    CHECK_EQ_U64(place.memnodes[0]->chunks_free, chunks_before - 1);
    for (unsigned i = 0; i < 2; i++)
        pool_world_leave_co(pools[i], sessions[i]);
    done++;
}

/* Answers are lost on the way: what is in doubt is found when the member leaves. */
static void lost_task(void *arg)
{
    fabric_address slots[SLOTS];
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);

    take_co(session, slots, SLOTS);
    give(session, slots, SLOTS);
    for (unsigned list = 1; list <= DEATHS; list++) {
        fabric_sim_lose_answer(place.net, list % 7 + 1);
        rt_sleep_co(LEASE_NS / 16);
    }
    fabric_sim_lose_answer(place.net, 0);
    rt_sleep_co(5 * LEASE_NS);
    CHECK_EQ_U64(marked(), VITAL);
    take_co(session, slots, SLOTS); /* as many as before */
    give(session, slots, SLOTS);
    uint64_t grace_ns = pool_grace_ns(pool);
    pool_world_leave_co(pool, session);
    rt_sleep_co(grace_ns);
    check_all_back();
    done++;
}

static void dying_task(void *arg)
{
    fabric_address slots[SLOTS];
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    take_co(session, slots, SLOTS);
    give(session, slots, SLOTS);
    rt_sleep_co(LEASE_NS);
    fabric_sim_kill_at(arg, fabric_sim_posted(arg) + 1 + done - EASY);
    rt_sleep_co(4 * LEASE_NS);
    if (!fabric_sim_dead(arg))
        fabric_sim_kill(arg);
    pool_world_leave_co(pool, session);
}

static void heir_task(void *arg)
{
    struct pool_session *session;
    struct pool *pool = pool_world_join_co(&place, arg, &session);
    while (!fabric_sim_dead(place.clients[0]) || pool_recoveries(pool) == 0)
        rt_sleep_co(LEASE_NS);
    rt_sleep_co(2 * pool_grace_ns(pool));
    check_all_back();
    pool_world_leave_co(pool, session);
    done++;
}

static void run(unsigned seed, rt_fn first, rt_fn second)
{
    struct pool_world_options options = {.net = {.seed = seed},
                                         .memnode = {.seed = 100},
                                         .memories = 1,
                                         .clients = 2,
                                         .memory_bytes = (uint64_t)CHUNKS * POOL_CHUNK_BYTES,
                                         .lease_ns = LEASE_NS};
    pool_world_build(&place, &options);
    chunks_before = place.memnodes[0]->chunks_free;
    pool_world_spawn(&place, 0, first);
    if (second != NULL)
        pool_world_spawn(&place, 1, second);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    pool_world_destroy(&place);
}

int main(void)
{
    run(3, idle_task, NULL);
    run(4, two_task, NULL);
    run(5, lost_task, NULL);
    CHECK_EQ_U64(done, EASY);
    for (unsigned i = 0; i < DEATHS; i++)
        run(6 + i, dying_task, heir_task);
    CHECK_EQ_U64(done, EASY + DEATHS);
    return 0;
}
