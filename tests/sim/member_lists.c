/*
 * One-sided lists from member to member: what they do, where they may go, several at once, a member
 * that cannot be reached, and that none reaches a later life of a member.
 */
#include "pool/member_lists.h"
#include "pool/peer_fmt.h"
#include "sim/pool_world.h"

enum { ACTORS = 4, ALONE = 3, WINDOW_BYTES = 1 << 20 };
static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;
static const uint64_t AT = POOL_SLABS_FIRST + 4096, AT_LOCK = POOL_SLABS_FIRST + 8192;
static const uint64_t SLABS = WINDOW_BYTES - POOL_SLABS_FIRST;

/* A process that does what the first task tells it to, on its own loop. */
enum order { ORDER_NONE, ORDER_JOIN, ORDER_LEAVE, ORDER_REJOIN, ORDER_END };
struct actor {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
    enum order order;
};

static struct pool_world world;
static struct actor actors[ACTORS];
static int done;

/* ---- the others ------------------------------------------------------------------------------ */

static void join_co(struct actor *actor)
{
    actor->pool = pool_world_join_co(&world, actor->fabric, &actor->session);
    actor->identity = pool_identity(actor->pool);
}

static void actor_task(void *arg)
{
    struct actor *actor = arg;
    while (actor->order != ORDER_END) {
        if (actor->order == ORDER_LEAVE || actor->order == ORDER_REJOIN)
            pool_world_leave_co(actor->pool, actor->session);
        if (actor->order == ORDER_JOIN || actor->order == ORDER_REJOIN)
            join_co(actor);
        actor->order = ORDER_NONE;
        while (actor->order == ORDER_NONE)
            rt_sleep_co(20 * RT_NS_PER_US);
    }
}

static void tell_co(struct actor *actor, enum order order)
{
    while (actor->order != ORDER_NONE)
        rt_sleep_co(20 * RT_NS_PER_US);
    actor->order = order;
    while (order != ORDER_END && actor->order != ORDER_NONE)
        rt_sleep_co(20 * RT_NS_PER_US);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static enum pando_status put_co(struct actor *from, struct fabric_identity to, uint64_t at,
                                uint64_t word)
{
    struct fabric_op write = fabric_write(at, &word, sizeof(word));
    return pool_member_submit_co(from->session, to, &write, 1);
}

static uint64_t get_co(struct actor *from, struct fabric_identity of, uint64_t at)
{
    uint64_t word = 0;
    struct fabric_op read = fabric_read(at, &word, sizeof(word));
    CHECK_OK(pool_member_submit_co(from->session, of, &read, 1));
    return word;
}

/* What lies in an actor's window, seen by a third one. */
static uint64_t seen_co(const struct actor *of)
{
    return get_co(&actors[2], of->identity, AT);
}

/* ---- what they do ---------------------------------------------------------------------------- */

static void test_operations_co(struct actor *a, struct actor *b)
{
    uint64_t word = 41, read = 0;
    struct fabric_op ops[] = {fabric_write(AT, &word, 8), fabric_faa(AT, 1),
                              fabric_cas(AT_LOCK, 0, 7), fabric_read(AT, &read, 8)};
    CHECK_OK(pool_member_submit_co(a->session, b->identity, ops, 4));
    CHECK_EQ_U64(ops[1].old, 41);
    CHECK_EQ_U64(ops[2].old, 0);
    CHECK_EQ_U64(read, 42);
    CHECK_EQ_U64(seen_co(b), 42);
    /* One's own is another window, by loopback. */
    CHECK_EQ_U64(get_co(a, a->identity, AT), 0);
    CHECK_OK(put_co(a, a->identity, AT, 5));
    CHECK_EQ_U64(seen_co(a), 5);
    struct fabric_counters counters[FABRIC_TARGETS];
    pool_session_counters(a->session, counters);
    CHECK_EQ_U64(counters[FABRIC_COMPUTE].lists, 3);
}

static void test_places_co(struct actor *a, struct actor *b)
{
    const uint64_t outside[] = {0, 32768, POOL_SLABS_FIRST - 8, WINDOW_BYTES, FABRIC_DEVICE};
    uint64_t bytes;
    CHECK_OK(pool_member_window_co(a->session, b->identity, &bytes));
    CHECK_EQ_U64(bytes, SLABS);
    CHECK_OK(pool_member_window_co(a->session, a->identity, &bytes));
    CHECK_EQ_U64(bytes, SLABS);
    CHECK_OK(pool_member_window_co(a->session, actors[ALONE].identity, &bytes));
    CHECK_EQ_U64(bytes, 0);
    for (unsigned i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        CHECK_STATUS(put_co(a, b->identity, outside[i], 1), PANDO_RANGE);
        CHECK_STATUS(put_co(a, a->identity, outside[i], 1), PANDO_RANGE);
    }
    CHECK_OK(put_co(a, b->identity, POOL_SLABS_FIRST, 1));
    CHECK_OK(put_co(a, b->identity, WINDOW_BYTES - 8, 1));
    struct fabric_identity wrong = b->identity;
    wrong.incarnation++;
    CHECK_STATUS(put_co(a, wrong, AT, 1), PANDO_NOT_FOUND);
    CHECK_STATUS(pool_member_window_co(a->session, wrong, &bytes), PANDO_NOT_FOUND);
    wrong = a->identity;
    wrong.incarnation--;
    CHECK_STATUS(put_co(a, wrong, AT, 1), PANDO_NOT_FOUND);
    CHECK_STATUS(put_co(a, (struct fabric_identity){0}, AT, 1), PANDO_INVALID);
    /* Whose window is for calls alone has nothing for lists, its own neither. */
    CHECK_STATUS(put_co(&actors[ALONE], actors[ALONE].identity, AT, 1), PANDO_UNSUPPORTED);
    CHECK_STATUS(put_co(a, actors[ALONE].identity, AT, 1), PANDO_RANGE);
}

/* ---- several at once ------------------------------------------------------------------------- */

static uint64_t at_once_co(struct actor *a, struct pool_member_list *lists, unsigned count)
{
    uint64_t begin_ns = rt_now_ns();
    pool_member_lists_begin(a->session, lists, count);
    pool_member_lists_wait_co(a->session, lists, count);
    return rt_now_ns() - begin_ns;
}

static void test_at_once_co(struct actor *a, struct actor *b, struct actor *c)
{
    uint64_t words[3] = {0};
    struct fabric_op ops[3];
    struct pool_member_list lists[3];
    const struct fabric_identity members[] = {b->identity, c->identity, a->identity};
    for (unsigned i = 0; i < 3; i++) {
        CHECK_OK(put_co(a, members[i], AT, 100 + i));
        ops[i] = fabric_read(AT, &words[i], 8);
        lists[i] = (struct pool_member_list){.member = members[i], .ops = &ops[i], .count = 1};
    }
    uint64_t one_ns = at_once_co(a, lists, 1), all_ns = at_once_co(a, lists, 3);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_OK(lists[i].status);
        CHECK_EQ_U64(words[i], 100 + i);
    }
    CHECK(all_ns < 5 * one_ns / 2); /* one after the other they take 3 */

    /* One swallows what is sent to it: its first list breaks, and then nothing waits for it. */
    uint16_t node = fabric_self(a->fabric), silent = fabric_self(c->fabric);
    fabric_sim_silence(world.net, node, silent);
    (void)at_once_co(a, lists, 3);
    CHECK_STATUS(lists[1].status, PANDO_BROKEN);
    for (unsigned i = 0; i < 10; i++) {
        uint64_t took_ns = at_once_co(a, lists, 3);
        CHECK(took_ns < 20 * RT_NS_PER_US); /* connecting takes milliseconds */
        CHECK_OK(lists[0].status);
        CHECK_STATUS(lists[1].status, PANDO_NOT_FOUND);
        CHECK_OK(lists[2].status);
        rt_sleep_co(LEASE_NS / 2);
    }
    uint64_t begin_ns = rt_now_ns();
    CHECK_STATUS(put_co(a, c->identity, AT, 1), PANDO_NOT_FOUND);
    CHECK(rt_now_ns() - begin_ns < 20 * RT_NS_PER_US);
    fabric_sim_heal(world.net, node, silent);
    uint64_t deadline_ns = rt_now_ns() + 64 * LEASE_NS;
    do {
        rt_sleep_co(LEASE_NS);
        (void)at_once_co(a, lists, 3);
        CHECK(rt_now_ns() < deadline_ns);
    } while (lists[1].status != PANDO_OK);
    CHECK_OK(pool_member_reach_co(a->session, c->identity));
}

/* ---- later lives ----------------------------------------------------------------------------- */

/* A list on its way to a member that leaves and joins again, with the same process and slot, is
 * lost; and nothing that was connected leads to the new one. */
static void test_rejoined_co(struct actor *a, struct actor *b)
{
    struct fabric_identity former = b->identity;
    uint64_t word = 666;
    struct fabric_op write = fabric_write(AT, &word, 8);
    struct pool_member_list late = {.member = former, .ops = &write, .count = 1};

    CHECK_OK(put_co(a, former, AT, 1));
    CHECK_OK(put_co(&actors[2], former, AT, 2));
    fabric_sim_cut(world.net, fabric_self(a->fabric), fabric_self(b->fabric));
    pool_member_lists_begin(a->session, &late, 1);
    pool_member_lists_wait_co(a->session, &late, 1);
    CHECK_STATUS(late.status, PANDO_BROKEN);
    tell_co(b, ORDER_REJOIN);
    CHECK(b->identity.member == former.member && b->identity.incarnation != former.incarnation);
    fabric_sim_heal(world.net, fabric_self(a->fabric), fabric_self(b->fabric));
    rt_sleep_co(4 * LEASE_NS);
    CHECK_EQ_U64(seen_co(b), 2);
    /* This one's endpoint was never cut. */
    enum pando_status status = put_co(&actors[2], former, AT, 667);
    CHECK(status == PANDO_BROKEN || status == PANDO_NOT_FOUND);
    CHECK_STATUS(put_co(a, former, AT, 668), PANDO_NOT_FOUND);
    CHECK_STATUS(pool_member_reach_co(actors[2].session, former), PANDO_NOT_FOUND);
    CHECK_EQ_U64(seen_co(b), 2);
    CHECK_OK(put_co(a, b->identity, AT, 3));
    CHECK_EQ_U64(seen_co(b), 3);
}

/* The same of a process that resigned: its old heartbeat still says that it lives. */
static void test_resigned_co(struct actor *a, struct actor *b)
{
    struct fabric_identity former = b->identity;
    CHECK_OK(put_co(a, former, AT, 4));
    pool_resign(b->pool);
    tell_co(b, ORDER_REJOIN);
    CHECK(b->identity.member != former.member);
    enum pando_status status = put_co(a, former, AT, 669);
    CHECK(status == PANDO_BROKEN || status == PANDO_NOT_FOUND);
    CHECK_STATUS(put_co(a, former, AT, 670), PANDO_NOT_FOUND);
    /* Who has never been connected to the former one is not let through to this one in its name. */
    CHECK_STATUS(put_co(&actors[ALONE], former, AT, 671), PANDO_NOT_FOUND);
    CHECK_EQ_U64(seen_co(b), 4);
}

static void first_task(void *arg)
{
    struct actor *a = &actors[0];
    (void)arg;
    join_co(a);
    for (unsigned i = 1; i < ACTORS; i++)
        tell_co(&actors[i], ORDER_JOIN);
    test_operations_co(a, &actors[1]);
    test_places_co(a, &actors[1]);
    test_at_once_co(a, &actors[1], &actors[2]);
    test_rejoined_co(a, &actors[1]);
    test_resigned_co(a, &actors[1]);
    for (unsigned i = 1; i < ACTORS; i++) {
        tell_co(&actors[i], ORDER_LEAVE);
        tell_co(&actors[i], ORDER_END);
    }
    pool_world_leave_co(a->pool, a->session);
    done++;
}

int main(void)
{
    struct pool_world_options options = {.net = {.seed = 5, .call_ns = 2 * LEASE_NS},
                                         .memnode = {.seed = 100},
                                         .memories = 1,
                                         .clients = ALONE,
                                         .memory_bytes = 42 << 20,
                                         .lease_ns = LEASE_NS};
    pool_world_build(&world, &options);
    for (unsigned i = 0; i < ALONE; i++)
        actors[i].fabric = world.clients[i];
    pool_world_add_client(world.net, ALONE, POOL_SLABS_FIRST, 1, &actors[ALONE].fabric);
    for (unsigned i = 1; i < ACTORS; i++)
        CHECK_OK(rt_spawn(fabric_sim_loop(actors[i].fabric, 0), actor_task, &actors[i]));
    CHECK_OK(rt_spawn(fabric_sim_loop(actors[0].fabric, 0), first_task, NULL));
    CHECK(pool_world_ends(&world, 60 * RT_NS_PER_S));
    CHECK(done == 1);
    pool_world_destroy(&world);
    printf("lists to members: ok\n");
    return 0;
}
