/*
 * Recovery and members that hold something in their windows: nothing of the dead lands there once
 * the recovery is done, though the recoverer cannot reach that window; a holder that dies holds
 * nothing up for longer than that is found out; one that begins to hold shuts out who is being
 * recovered; and where nobody holds, nothing is waited for or counted.
 *
 * Given "window-fence" it runs without that wait, and has to fail.
 */
#include "lib/broken.h"
#include "pool/member_lists.h"
#include "pool/members_int.h"
#include "pool/peer_fmt.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { RECOVERER, HOLDER, FIRST, SECOND, THIRD, FOURTH, ACTORS };
static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;
static const uint64_t HOLDER_LEASES = 16, PAUSE_LEASES = 8;
static const uint64_t AT = POOL_SLABS_FIRST + 4096;
enum { GOOD = 1, LATE = 666 };

enum order { ORDER_NONE, ORDER_JOIN, ORDER_HOLD, ORDER_WRITE, ORDER_LEAVE, ORDER_END };
struct actor {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
    uint64_t lease_ns;
    bool no_recovery;
    enum order order;
    uint64_t word;            /* to be written to the holder's window, */
    enum pando_status status; /* and what came of it */
};

static struct pool_world world;
static struct actor actors[ACTORS];
static int done;

/* ---- the others ------------------------------------------------------------------------------ */

static void join_co(struct actor *actor)
{
    struct pool_options options = {.memory_nodes = 2,
                                   .name = "test",
                                   .lease_ns = actor->lease_ns,
                                   .no_recovery = actor->no_recovery};
    char error[256];
    CHECK_OK(pool_join_co(actor->fabric, &options, &actor->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(actor->pool, &actor->session));
    actor->identity = pool_identity(actor->pool);
}

static void obey_co(struct actor *actor)
{
    struct fabric_op write = fabric_write(AT, &actor->word, 8);
    switch (actor->order) {
    case ORDER_JOIN:
        join_co(actor);
        break;
    case ORDER_HOLD:
        CHECK_OK(pool_window_hold_co(actor->session));
        CHECK_OK(pool_window_hold_co(actor->session));
        break;
    case ORDER_WRITE:
        actor->status = pool_member_submit_co(actor->session, actors[HOLDER].identity, &write, 1);
        break;
    case ORDER_LEAVE:
        pool_world_leave_co(actor->pool, actor->session);
        break;
    default:
        break;
    }
}

static void actor_task(void *arg)
{
    struct actor *actor = arg;
    struct fabric *fabric = actor->fabric;
    while (actor->order != ORDER_END && !fabric_sim_dead(fabric)) {
        obey_co(actor);
        actor->order = ORDER_NONE;
        while (actor->order == ORDER_NONE && !fabric_sim_dead(fabric))
            rt_sleep_co(20 * RT_NS_PER_US);
    }
    if (fabric_sim_dead(fabric)) /* a ghost frees what it has */
        pool_world_leave_co(actor->pool, actor->session);
}

static void tell_co(unsigned who, enum order order)
{
    actors[who].order = order;
    while (order != ORDER_END && actors[who].order != ORDER_NONE)
        rt_sleep_co(20 * RT_NS_PER_US);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint16_t node_of(unsigned who)
{
    return fabric_self(actors[who].fabric);
}

static struct pool_heartbeat beat_co(unsigned who)
{
    struct pool_heartbeat beat;
    CHECK_OK(pool_heartbeat_co(actors[RECOVERER].session, actors[who].identity.member, &beat));
    return beat;
}

static void wait_for_co(unsigned who, enum pool_member_state state, uint64_t leases)
{
    uint64_t deadline_ns = rt_now_ns() + leases * LEASE_NS;
    while (beat_co(who).state != state) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(20 * RT_NS_PER_US);
    }
}

static uint64_t fences_co(void)
{
    uint64_t count;
    struct pool *pool = actors[RECOVERER].pool;
    CHECK_OK(pool_word_read_co(actors[RECOVERER].session,
                               fabric_address_make(0, pool->first + POOL_FENCES), &count));
    return count;
}

/* It has 40 bits in the records, and a word on node 0 that may be any. */
static void count_from_co(uint64_t count)
{
    struct pool *pool = actors[RECOVERER].pool;
    struct fabric_op write = fabric_write(pool->first + POOL_FENCES, &count, sizeof(count));
    CHECK_OK(pool_submit_co(actors[RECOVERER].session, 0, &write, 1));
}

static void expect_good_co(void)
{
    uint64_t word = 0;
    struct fabric_op read = fabric_read(AT, &word, 8);
    CHECK_OK(pool_member_submit_co(actors[RECOVERER].session, actors[HOLDER].identity, &read, 1));
    CHECK_EQ_U64(word, GOOD);
}

/* Has a WRITE of it on its way to the holder, which arrives when their link is healed. */
static void write_late_co(unsigned who)
{
    actors[who].word = GOOD;
    tell_co(who, ORDER_WRITE);
    CHECK_OK(actors[who].status);
    fabric_sim_cut(world.net, node_of(who), node_of(HOLDER));
    actors[who].word = LATE;
    tell_co(who, ORDER_WRITE);
    CHECK_STATUS(actors[who].status, PANDO_BROKEN);
}

/* ---- what happens ---------------------------------------------------------------------------- */

/* A bit of a record that is not what its member wrote. */
static void flip_holds_co(unsigned who)
{
    struct pool *pool = actors[RECOVERER].pool;
    fabric_address at = pool_record_address(pool, actors[who].identity.member) +
                        offsetof(struct pool_record, fences);
    uint64_t word;
    CHECK_OK(pool_word_read_co(actors[RECOVERER].session, at, &word));
    word ^= POOL_FENCES_HOLDS;
    struct fabric_op write = fabric_write(fabric_address_offset(at), &word, sizeof(word));
    CHECK_OK(pool_submit_co(actors[RECOVERER].session, 0, &write, 1));
}

/* Damage that says that a member holds does not stop recoveries for ever. */
static void damaged_record_co(void)
{
    flip_holds_co(SECOND);
    fabric_sim_kill(actors[FIRST].fabric);
    wait_for_co(FIRST, POOL_FREE, 8);
    CHECK_OK(fabric_sim_restart(actors[FIRST].fabric, false, &actors[FIRST].fabric));
    CHECK_OK(rt_spawn(fabric_sim_loop(actors[FIRST].fabric, 0), actor_task, &actors[FIRST]));
    tell_co(FIRST, ORDER_JOIN);
    count_from_co(0);
}

static void nobody_holds_co(void)
{
    fabric_sim_kill(actors[FIRST].fabric);
    wait_for_co(FIRST, POOL_FREE, 4);
    CHECK_EQ_U64(fences_co(), 0);
}

/* The holder cannot be reached by whoever recovers, and stands still while the other dies. */
static void late_write_co(void)
{
    const unsigned others[] = {RECOVERER, THIRD, FOURTH};
    tell_co(HOLDER, ORDER_HOLD);
    flip_holds_co(HOLDER); /* it says so again */
    rt_sleep_co(HOLDER_LEASES * LEASE_NS);
    write_late_co(SECOND);
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        fabric_sim_silence(world.net, node_of(others[i]), node_of(HOLDER));
    fabric_sim_kill(actors[SECOND].fabric);
    fabric_sim_pause(actors[HOLDER].fabric, PAUSE_LEASES * LEASE_NS);
    uint64_t begin_ns = rt_now_ns();
    wait_for_co(SECOND, POOL_FENCED, 4);
    wait_for_co(SECOND, POOL_FREE, 2 * HOLDER_LEASES);
    uint64_t took_ns = rt_now_ns() - begin_ns;
    fabric_sim_heal(world.net, node_of(SECOND), node_of(HOLDER));
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        fabric_sim_heal(world.net, node_of(others[i]), node_of(HOLDER));
    rt_sleep_co(2 * HOLDER_LEASES * LEASE_NS);
    expect_good_co();
    CHECK(took_ns >= PAUSE_LEASES * LEASE_NS);
    CHECK(took_ns < (PAUSE_LEASES + 6) * LEASE_NS);
    CHECK(fences_co() > 0);
    CHECK(beat_co(HOLDER).state == POOL_ALIVE);
}

/* One that is asked does not wait until it looks by itself. Nor does a count that wraps stop anybody, or
 * let anybody go on too soon. */
static void asked_co(void)
{
    count_from_co(((uint64_t)1 << 40) - 1);
    rt_sleep_co(HOLDER_LEASES * LEASE_NS); /* the holder has seen that */
    fabric_sim_kill(actors[THIRD].fabric);
    uint64_t begin_ns = rt_now_ns();
    wait_for_co(THIRD, POOL_FENCED, 4);
    uint64_t fenced_ns = rt_now_ns();
    wait_for_co(THIRD, POOL_FREE, 4);
    CHECK(rt_now_ns() - fenced_ns < LEASE_NS / 2);
    CHECK(rt_now_ns() - begin_ns < 2 * LEASE_NS);
    CHECK(fabric_fenced(actors[HOLDER].fabric, actors[THIRD].identity));
}

/* A recovery that has to wait for a memory node has read the records before this one holds, and
 * could not reach it. */
static void begins_to_hold_co(void)
{
    struct actor *late = &actors[THIRD];
    uint64_t before = fences_co();
    CHECK_OK(fabric_sim_restart(late->fabric, false, &late->fabric));
    CHECK_OK(rt_spawn(fabric_sim_loop(late->fabric, 0), actor_task, late));
    late->no_recovery = true;
    tell_co(THIRD, ORDER_JOIN);
    write_late_co(FOURTH);
    fabric_sim_silence(world.net, node_of(RECOVERER), node_of(THIRD));
    fabric_sim_kill(world.memory[1]);
    fabric_sim_kill(actors[FOURTH].fabric);
    uint64_t deadline_ns = rt_now_ns() + 64 * LEASE_NS;
    for (struct pool_heartbeat beat = {0}; !pool_heartbeat_partial(&beat); beat = beat_co(FOURTH)) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(100 * RT_NS_PER_US);
    }
    CHECK(fences_co() > before);
    CHECK(!fabric_fenced(late->fabric, actors[FOURTH].identity));
    tell_co(THIRD, ORDER_HOLD);
    CHECK(fabric_fenced(late->fabric, actors[FOURTH].identity));
    fabric_sim_heal(world.net, node_of(RECOVERER), node_of(THIRD));
    fabric_sim_heal(world.net, node_of(FOURTH), node_of(HOLDER));
    pool_world_restart(&world, 1, true);
    wait_for_co(FOURTH, POOL_FREE, 64);
    expect_good_co();
}

/* Two that hold die together: they do not wait for each other, and the one whose death is seen soon
 * only until the other's is. */
static void holders_die_co(void)
{
    uint64_t begin_ns = rt_now_ns();
    fabric_sim_kill(actors[HOLDER].fabric);
    fabric_sim_kill(actors[THIRD].fabric);
    wait_for_co(THIRD, POOL_FENCED, 4);
    while (beat_co(THIRD).state == POOL_FENCED) {
        CHECK(rt_now_ns() - begin_ns < 3 * HOLDER_LEASES * LEASE_NS);
        rt_sleep_co(100 * RT_NS_PER_US);
    }
    CHECK(rt_now_ns() - begin_ns > (HOLDER_LEASES - 2) * LEASE_NS);
    CHECK(beat_co(HOLDER).state != POOL_ALIVE);
    wait_for_co(HOLDER, POOL_FREE, 8);
}

static void first_task(void *arg)
{
    (void)arg;
    join_co(&actors[RECOVERER]);
    for (unsigned i = HOLDER; i < ACTORS; i++)
        tell_co(i, ORDER_JOIN);
    damaged_record_co();
    nobody_holds_co();
    late_write_co();
    asked_co();
    begins_to_hold_co();
    holders_die_co();
    pool_world_leave_co(actors[RECOVERER].pool, actors[RECOVERER].session);
    done++;
}

int main(int argc, char **argv)
{
    struct pool_world_options options = pool_world_pair(LEASE_NS);
    break_rule(argc, argv);
    options.net.call_ns = 2 * LEASE_NS;
    options.clients = 0;
    pool_world_build(&world, &options);
    for (unsigned i = 0; i < ACTORS; i++) {
        actors[i].lease_ns = i == HOLDER ? HOLDER_LEASES * LEASE_NS : LEASE_NS;
        pool_world_add_client(world.net, i, 1 << 20, 1, &actors[i].fabric);
    }
    for (unsigned i = 1; i < ACTORS; i++)
        CHECK_OK(rt_spawn(fabric_sim_loop(actors[i].fabric, 0), actor_task, &actors[i]));
    CHECK_OK(rt_spawn(fabric_sim_loop(actors[RECOVERER].fabric, 0), first_task, NULL));
    CHECK(pool_world_ends(&world, 60 * RT_NS_PER_S));
    CHECK(done == 1);
    pool_world_destroy(&world);
    printf("fences of windows: ok\n");
    return 0;
}
