/*
 * fence-ticket (R61): a member that beats cannot be fenced, whoever asks, and no ticket or pass can
 * be used for what it was not made for. What node 0 has to say first costs a take-over no time, and
 * its restart in the middle of one does not stop it.
 */
#include "lib/broken.h"
#include "lib/fence.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"
#include "sim/pool_world.h"

enum { MEMORIES = 2, CLIENTS = 3, FAR = 20000, SEEDS = 8, PATIENCE_LEASES = 8 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;
static bool done;
static uint64_t took_ns; /* from a death to the end of its recovery */

struct member {
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
};

/* One that never declares anybody dead by itself, unless it is a watcher. */
static struct member join_co(unsigned client, bool watcher)
{
    struct pool_options options = {
        .memory_nodes = MEMORIES, .lease_ns = LEASE_NS, .no_recovery = !watcher};
    struct member self;
    char error[256] = "";
    if (pool_join_co(place.clients[client], &options, &self.pool, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("cannot join: %s", error);
    CHECK_OK(pool_session_open_co(self.pool, &self.session));
    self.identity = pool_identity(self.pool);
    return self;
}

static void leave_co(struct member *self)
{
    pool_world_leave_co(self->pool, self->session);
}

static struct pool_heartbeat beat_of(struct fabric_identity who)
{
    uint64_t word, at = fabric_window_first(place.memory[0]) + POOL_HEARTBEATS + who.member * 8u;
    CHECK_OK(fabric_self_read(place.memory[0], at, &word, sizeof(word)));
    return pool_heartbeat_unpack(word);
}

static bool gone(struct fabric_identity who)
{
    struct pool_heartbeat beat = beat_of(who);
    return beat.state == POOL_FREE || beat.incarnation != who.incarnation;
}

static void wait_gone_co(struct fabric_identity who)
{
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_LEASES * LEASE_NS;
    while (!gone(who)) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(LEASE_NS / 500);
    }
}

static void run(rt_fn task, uint64_t seed)
{
    struct pool_world_options options = {.net = {.seed = seed},
                                         .memnode = {.seed = 31},
                                         .memories = MEMORIES,
                                         .clients = CLIENTS,
                                         .memory_bytes = 42 << 20,
                                         .lease_ns = LEASE_NS};
    done = false;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 2, task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(done);
    pool_world_destroy(&place);
}

/* ---- tickets --------------------------------------------------------------------------------- */

static void refused_co(struct member *self, const struct fabric_ticket *ticket)
{
    for (uint16_t node = 0; node < MEMORIES; node++)
        CHECK_STATUS(fabric_fence_co(pool_endpoint(self->session, node), ticket), PANDO_DENIED);
}

/* What node 0 gives, made here. */
static struct fabric_ticket ticket_for(struct fabric_identity who)
{
    struct fabric_ticket ticket;
    CHECK_OK(fabric_seal_make(place.memory[0], FABRIC_SEAL_FENCE, who, &ticket));
    return ticket;
}

static void refuse_forged_co(struct member *self, struct member *victim)
{
    struct fabric_ticket ticket = {.who = victim->identity};
    refused_co(self, &ticket); /* none */
    ticket = victim->pool->pass;
    refused_co(self, &ticket); /* a pass */
    ticket = ticket_for((struct fabric_identity){900, victim->identity.incarnation});
    ticket.who = victim->identity;
    refused_co(self, &ticket); /* another member's */
    ticket = ticket_for((struct fabric_identity){victim->identity.member, 0});
    ticket.who = victim->identity;
    refused_co(self, &ticket); /* an earlier incarnation's */
    ticket = ticket_for(victim->identity);
    ticket.seal[FABRIC_SEAL_BYTES - 1] ^= 1;
    refused_co(self, &ticket);
    fabric_set_pool(place.clients[1], pool_id(self->pool) + 2);
    CHECK_OK(fabric_seal_make(place.clients[1], FABRIC_SEAL_FENCE, victim->identity, &ticket));
    fabric_set_pool(place.clients[1], pool_id(self->pool));
    refused_co(self, &ticket); /* another pool's */
}

/* Only living members are given tickets. */
static void refuse_nobody_co(struct fabric_identity who)
{
    struct pool_ticket_request request = {.member = who.member, .incarnation = who.incarnation};
    const struct fabric_identity askers[] = {{0, 0}, {77, 1}};
    struct fabric_endpoint *endpoint;
    uint8_t reply[64];

    for (size_t i = 0; i < sizeof(askers) / sizeof(askers[0]); i++) {
        fabric_set_identity(place.clients[2], askers[i]);
        CHECK_OK(fabric_connect_co(place.clients[2], 0, &endpoint));
        CHECK_STATUS(fabric_call_co(endpoint, POOL_TICKET, slice_of(&request, sizeof(request)),
                                    reply, sizeof(reply), NULL),
                     i == 0 ? PANDO_DENIED : PANDO_FENCED);
        fabric_disconnect_co(endpoint);
    }
}

static void tickets_task(void *arg)
{
    struct member victim = join_co(0, false), self = join_co(1, false);
    struct fabric_ticket ticket;
    bool claimed = true;
    uint64_t word;
    (void)arg;

    for (int i = 0; i < 20; i++) {
        CHECK_STATUS(pool_ticket_co(self.session, victim.identity, &ticket, &claimed), PANDO_BUSY);
        CHECK_STATUS(pool_recover_co(self.session, victim.identity), PANDO_BUSY);
        rt_sleep_co(LEASE_NS / 7);
    }
    refuse_forged_co(&self, &victim);
    refuse_nobody_co(victim.identity);
    CHECK(!pool_fenced(victim.pool) && beat_of(victim.identity).state == POOL_ALIVE);
    CHECK_OK(pool_root_read_co(victim.session, 0, &word));

    /* It dies: node 0 first says that it may be declared dead, and gives the ticket when it is. */
    fabric_sim_kill(place.clients[0]);
    CHECK_STATUS(pool_ticket_co(self.session, victim.identity, &ticket, &claimed), PANDO_BUSY);
    rt_sleep_co(2 * LEASE_NS);
    CHECK_OK(pool_ticket_co(self.session, victim.identity, &ticket, &claimed));
    CHECK(!claimed);
    ticket.who = victim.identity;
    refused_co(&self, &ticket);
    CHECK_OK(pool_recover_co(self.session, victim.identity));
    for (uint16_t node = 0; node < MEMORIES; node++)
        CHECK(fabric_fenced(place.memory[node], victim.identity));
    CHECK_STATUS(pool_ticket_co(self.session, victim.identity, &ticket, &claimed), PANDO_NOT_FOUND);
    leave_co(&victim);
    leave_co(&self);
    done = true;
}

/* ---- members that are too quick to call others dead -------------------------------------------- */

static void hasty_task(void *arg)
{
    struct member members[CLIENTS];
    (void)arg;
    pool_broken.hasty = true;
    for (unsigned i = 0; i < CLIENTS; i++)
        members[i] = join_co(i, true);
    rt_sleep_co(40 * LEASE_NS);
    for (unsigned i = 0; i < CLIENTS; i++) {
        CHECK(!pool_fenced(members[i].pool));
        CHECK_EQ_U64(pool_recoveries(members[i].pool), 0);
    }
    /* One that is dead is recovered all the same. */
    fabric_sim_kill(place.clients[0]);
    wait_gone_co(members[0].identity);
    for (unsigned i = 0; i < CLIENTS; i++)
        leave_co(&members[i]);
    pool_broken.hasty = false;
    done = true;
}

/* ---- how long it takes ------------------------------------------------------------------------- */

static void takeover_task(void *arg)
{
    struct member victim = join_co(0, true), self = join_co(1, true);
    (void)arg;
    rt_sleep_co(3 * LEASE_NS + rt_random() % LEASE_NS);
    uint64_t begin_ns = rt_now_ns();
    fabric_sim_kill(place.clients[0]);
    wait_gone_co(victim.identity);
    took_ns += rt_now_ns() - begin_ns;
    leave_co(&victim);
    leave_co(&self);
    done = true;
}

static void compare_takeovers(void)
{
    uint64_t judged_ns, unjudged_ns;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(takeover_task, seed);
    judged_ns = took_ns / SEEDS;
    took_ns = 0;
    pool_broken.judge = true;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(takeover_task, seed);
    pool_broken.judge = false;
    unjudged_ns = took_ns / SEEDS;
    printf(
        "a take-over with a lease of %llu ms takes %llu ms, and %llu ms if node 0 always agrees\n",
        (unsigned long long)(LEASE_NS / RT_NS_PER_MS),
        (unsigned long long)(judged_ns / RT_NS_PER_MS),
        (unsigned long long)(unjudged_ns / RT_NS_PER_MS));
    CHECK(judged_ns < unjudged_ns + LEASE_NS / 20);
}

/* ---- node 0 restarts while a member is recovered ------------------------------------------------ */

static void restart_task(void *arg)
{
    struct member victim = join_co(0, true), self = join_co(1, true);
    uint64_t deadline_ns = rt_now_ns() + PATIENCE_LEASES * LEASE_NS;
    (void)arg;
    rt_sleep_co(2 * LEASE_NS);
    fabric_sim_kill(place.clients[0]);
    while (beat_of(victim.identity).state != POOL_FENCED) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(RT_NS_PER_US / 2);
    }
    fabric_sim_kill(place.memory[0]);
    rt_sleep_co(LEASE_NS / 4);
    pool_world_restart(&place, 0, true);
    wait_gone_co(victim.identity);
    for (uint16_t node = 0; node < MEMORIES; node++)
        CHECK(fabric_fenced(place.memory[node], victim.identity));
    CHECK(!pool_fenced(self.pool));
    /* The next one does not wait longer for it: node 0 watches again. */
    leave_co(&victim);
    leave_co(&self);
    done = true;
}

/* ---- identities that never joined --------------------------------------------------------------- */

static enum pando_status grant_co(struct fabric_endpoint *endpoint, const uint8_t *pass)
{
    struct pool_grant_request request = {
        .block_bytes = 65536, .blocks_max = 16, .kind = POOL_CHUNK_BLOCKS};
    uint8_t reply[4096];
    if (pass != NULL)
        memcpy(request.pass, pass, sizeof(request.pass));
    return fabric_call_co(endpoint, POOL_GRANT, slice_of(&request, sizeof(request)), reply,
                          sizeof(reply), NULL);
}

static void claim_to_be_co(struct member *honest, struct fabric_identity who, uint16_t node)
{
    struct fabric_endpoint *endpoint;
    uint64_t lease_ns = LEASE_NS;
    fabric_set_identity(place.clients[2], who);
    enum pando_status status = fabric_connect_co(place.clients[2], node, &endpoint);
    if (status == PANDO_BUSY || status == PANDO_FENCED)
        return;
    CHECK_OK(status);
    CHECK_STATUS(grant_co(endpoint, NULL), PANDO_DENIED);
    CHECK_STATUS(grant_co(endpoint, honest->pool->pass.seal), PANDO_DENIED);
    if (node == 0)
        CHECK_STATUS(fabric_call_co(endpoint, POOL_PASS, slice_of(&lease_ns, sizeof(lease_ns)),
                                    NULL, 0, NULL),
                     PANDO_DENIED);
    else
        CHECK_STATUS(fabric_call_co(endpoint, POOL_PASS,
                                    slice_of(&honest->pool->pass, sizeof(honest->pool->pass)), NULL,
                                    0, NULL),
                     PANDO_DENIED);
    fabric_disconnect_co(endpoint);
}

static uint64_t chunks_free_co(struct member *self)
{
    uint64_t all = 0;
    for (uint16_t node = 0; node < MEMORIES; node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(self->session, node, &stats));
        all += stats.chunks_free;
    }
    return all;
}

static void strangers_task(void *arg)
{
    struct member dead = join_co(0, true), self = join_co(1, true);
    (void)arg;
    /* A slot that was fenced once. */
    fabric_sim_kill(place.clients[0]);
    wait_gone_co(dead.identity);
    leave_co(&dead);
    uint64_t before = chunks_free_co(&self);
    for (uint16_t member = 1; member < POOL_MEMBERS; member++) {
        for (uint16_t node = 0; node < MEMORIES; node++)
            claim_to_be_co(&self, (struct fabric_identity){member, FAR}, node);
    }
    CHECK_EQ_U64(chunks_free_co(&self), before);
    CHECK(!pool_fenced(self.pool));
    struct member next = join_co(2, true);
    CHECK_EQ_U64(next.identity.member, dead.identity.member);
    struct pool_block block;
    CHECK_OK(pool_alloc_co(next.session, POOL_ANY_NODE, 65536, &block));
    /* A pass that nobody takes any more, as after a change of the secret, is asked for again. */
    next.pool->pass.seal[0] ^= 1;
    CHECK_OK(pool_alloc_co(next.session, POOL_ANY_NODE, 4096, &block));
    leave_co(&next);
    leave_co(&self);
    done = true;
}

int main(int argc, char **argv)
{
    break_rule(argc, argv);
    run(tickets_task, 1);
    run(hasty_task, 2);
    run(strangers_task, 3);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(restart_task, seed);
    compare_takeovers();
    return 0;
}
