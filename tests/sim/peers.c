/*
 * Calls between members: two that call each other, one of them killed and started again, calls for
 * another incarnation or a table nobody answers for, an answer that ends while a call of it runs, cut links and
 * pauses, and that the same seed gives the same run.
 */
#include "pool/peer_fmt.h"
#include "sim/pool_world.h"

enum {
    CLIENTS = 3,
    TABLE = 7,
    METHOD_ADD = 1,   /* replies with the body's word plus one, and says who asked */
    METHOD_SLEEP = 2, /* replies after a while */
    METHOD_BIG = 3,   /* replies with as many bytes as there can be */
    METHOD_BACK = 4,  /* calls the caller */
    METHOD_FENCED = 5 /* says FENCED */
};

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;
static const uint64_t CALL_NS = 2 * LEASE_NS; /* until a call that nobody answers has failed */
static const uint64_t SLEEP_NS =
    3 * RT_NS_PER_MS; /* longer than an answer waits between two looks */

struct node {
    struct fabric *fabric;
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
    unsigned answered, running, lives;
    bool up;
};

struct world {
    struct fabric_sim *net;
    struct fabric *memory;
    struct memnode *memnode;
    struct node nodes[CLIENTS];
    unsigned threads;
    int done;
};

static struct world world;
static uint8_t big[FABRIC_CALL_BYTES_MAX], big_reply[FABRIC_CALL_BYTES_MAX];

struct sum {
    uint64_t word;
    struct fabric_identity from;
};

/* ---- answers --------------------------------------------------------------------------------- */

static enum pando_status answer_add(struct pool_session *session, struct fabric_request *request)
{
    struct sum sum = {.from = request->from};
    struct pool_member members[4];
    unsigned count;
    if (request->body.size != sizeof(sum.word))
        return PANDO_INVALID;
    memcpy(&sum.word, request->body.data, sizeof(sum.word));
    sum.word++;
    /* The session is one of the loop it runs on, and works. */
    enum pando_status status = pool_members_co(session, members, 4, &count);
    memcpy(request->reply, &sum, sizeof(sum));
    request->reply_size = sizeof(sum);
    return status;
}

static enum pando_status answer(void *context, struct pool_session *session,
                                struct fabric_request *request)
{
    struct node *node = context;
    enum pando_status status = PANDO_OK;
    uint64_t word = 1;

    CHECK(pool_session_pool(session) == node->pool);
    node->running++;
    switch (request->method) {
    case METHOD_ADD:
        status = answer_add(session, request);
        break;
    case METHOD_SLEEP:
        rt_sleep_co(SLEEP_NS);
        break;
    case METHOD_BIG:
        memset(request->reply, 'b', POOL_CALL_BYTES_MAX);
        request->reply_size = POOL_CALL_BYTES_MAX;
        break;
    case METHOD_BACK:
        status = pool_call_co(session, request->from, TABLE, METHOD_ADD, slice_of(&word, 8),
                              request->reply, POOL_CALL_BYTES_MAX, &request->reply_size);
        break;
    default:
        status = PANDO_FENCED;
    }
    node->running--;
    node->answered++;
    return status;
}

/* ---- the world ------------------------------------------------------------------------------- */

static void build(uint64_t seed, unsigned threads, bool chaos)
{
    struct fabric_sim_options options = {
        .seed = seed, .model = sim_nic_model("cx5"), .call_ns = CALL_NS};
    struct memnode_options memory = {.grace_ns = LEASE_NS, .seed = 1};
    char error[256];

    if (chaos) {
        options.shuffle = true;
        options.race_probability = 0.05;
        options.chaos = (struct fabric_sim_chaos){
            .tear = 0.3, .spread = 0.3, .spread_ns = 3000, .delay = 0.05, .delay_ns = 20000};
    }
    world = (struct world){.net = fabric_sim_create(&options), .threads = threads};
    pool_world_add_memory(world.net, 0, 64 << 20, 1, &world.memory);
    CHECK_OK(memnode_open(world.memory, &memory, &world.memnode, error, sizeof(error)));
    for (unsigned i = 0; i < CLIENTS; i++)
        pool_world_add_client(world.net, i, 64 << 10, threads, &world.nodes[i].fabric);
}

static uint64_t run_to_end(void)
{
    struct sim *sim = fabric_sim_world(world.net);
    CHECK(sim_run(sim, 60 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(sim_live_tasks(sim) == 0);
    CHECK(world.done == 1);
    uint64_t hash = sim_trace_hash(sim);
    fabric_sim_destroy(world.net);
    memnode_close(world.memnode);
    return hash;
}

static void join_co(struct node *node)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = LEASE_NS};
    char error[256];
    CHECK_OK(pool_join_co(node->fabric, &options, &node->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(node->pool, &node->session));
    CHECK_OK(pool_answer(node->pool, TABLE, answer, node));
    node->identity = pool_identity(node->pool);
    node->up = true;
}

static void leave_co(struct node *node)
{
    pool_world_leave_co(node->pool, node->session);
    node->up = false;
}

static void stay_co(const struct node *node)
{
    while (world.done == 0 && !pool_fenced(node->pool) && !fabric_sim_dead(node->fabric))
        rt_sleep_co(LEASE_NS / 8);
}

/* A member that answers until it is told to leave. One that was declared dead joins again first, and then
 * leaves its former life: the new one goes on answering. */
static void member_task(void *arg)
{
    struct node *node = arg;
    join_co(node);
    stay_co(node);
    if (world.done == 0 && !fabric_sim_dead(node->fabric)) {
        struct node former = *node;
        node->up = false;
        join_co(node);
        leave_co(&former);
        node->lives++;
        stay_co(node);
    }
    leave_co(node);
}

static void start(struct node *node)
{
    CHECK_OK(rt_spawn(fabric_sim_loop(node->fabric, 0), member_task, node));
}

static void wait_up_co(const struct node *node)
{
    while (!node->up)
        rt_sleep_co(RT_NS_PER_US);
}

static enum pando_status add_co(struct node *from, struct fabric_identity to, uint64_t word)
{
    struct sum sum = {0};
    uint32_t size = 0;
    enum pando_status status = pool_call_co(from->session, to, TABLE, METHOD_ADD,
                                            slice_of(&word, 8), &sum, sizeof(sum), &size);
    if (status != PANDO_OK)
        return status;
    CHECK_EQ_U64(size, sizeof(sum));
    CHECK_EQ_U64(sum.word, word + 1);
    CHECK_EQ_U64(sum.from.member, from->identity.member);
    CHECK_EQ_U64(sum.from.incarnation, from->identity.incarnation);
    return PANDO_OK;
}

/* ---- what there is to check ------------------------------------------------------------------ */

static void check_plain_co(struct node *self, struct node *other)
{
    struct fabric_counters counters[FABRIC_TARGETS];
    uint32_t size = 0;
    CHECK_OK(add_co(self, other->identity, 1));
    CHECK_OK(add_co(self, other->identity, 2));
    CHECK_OK(add_co(self, self->identity, 3));
    CHECK_EQ_U64(other->answered, 2);
    CHECK_EQ_U64(self->answered, 1);
    pool_session_counters(self->session, counters);
    CHECK_EQ_U64(counters[FABRIC_COMPUTE].calls, 2);

    /* Both ways at once: the other calls back before it answers. */
    struct sum sum;
    CHECK_OK(pool_call_co(self->session, other->identity, TABLE, METHOD_BACK, slice_of(NULL, 0),
                          &sum, sizeof(sum), &size));
    CHECK_EQ_U64(size, sizeof(sum));
    CHECK_EQ_U64(sum.from.member, other->identity.member);

    /* Sizes. */
    CHECK_OK(pool_call_co(self->session, other->identity, TABLE, METHOD_BIG,
                          slice_of(big, POOL_CALL_BYTES_MAX), big_reply, sizeof(big_reply), &size));
    CHECK_EQ_U64(size, POOL_CALL_BYTES_MAX);
    CHECK(big_reply[0] == 'b' && big_reply[POOL_CALL_BYTES_MAX - 1] == 'b');
    CHECK_OK(pool_call_co(self->session, other->identity, TABLE, METHOD_BIG, slice_of(NULL, 0),
                          big_reply, 10, &size));
    CHECK_EQ_U64(size, POOL_CALL_BYTES_MAX);
    CHECK_STATUS(pool_call_co(self->session, other->identity, TABLE, METHOD_ADD,
                              slice_of(big, POOL_CALL_BYTES_MAX + 1), NULL, 0, NULL),
                 PANDO_TOO_LARGE);
    /* What the answer says comes out, but its own end is not taken for ours. */
    CHECK_STATUS(pool_call_co(self->session, other->identity, TABLE, METHOD_ADD, slice_of("x", 1),
                              NULL, 0, NULL),
                 PANDO_INVALID);
    CHECK_STATUS(pool_call_co(self->session, other->identity, TABLE, METHOD_FENCED,
                              slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_BROKEN);
    CHECK(!pool_fenced(self->pool));
}

static void check_refusals_co(struct node *self, struct node *other)
{
    struct fabric_identity wrong = other->identity;
    struct fabric_endpoint *endpoint;
    struct pool_peer_request head = {
        .magic = POOL_PEER_MAGIC, .table = TABLE, .method = METHOD_ADD};
    struct pool_peer_reply reply;
    uint32_t size;

    unsigned answered = other->answered;
    wrong.incarnation++;
    CHECK_STATUS(add_co(self, wrong, 1), PANDO_NOT_FOUND);
    wrong.incarnation = (uint16_t)(other->identity.incarnation - 1);
    CHECK_STATUS(add_co(self, wrong, 1), PANDO_NOT_FOUND);
    wrong = (struct fabric_identity){.member = 99, .incarnation = 1};
    CHECK_STATUS(add_co(self, wrong, 1), PANDO_NOT_FOUND);
    wrong.member = 0;
    CHECK_STATUS(add_co(self, wrong, 1), PANDO_INVALID);
    wrong = self->identity;
    wrong.incarnation++;
    CHECK_STATUS(add_co(self, wrong, 1), PANDO_NOT_FOUND);

    CHECK_STATUS(pool_call_co(self->session, other->identity, TABLE + 1, METHOD_ADD,
                              slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_STALE);
    CHECK_STATUS(pool_call_co(self->session, self->identity, TABLE + 1, METHOD_ADD,
                              slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_STALE);
    CHECK_STATUS(pool_answer(self->pool, TABLE, answer, self), PANDO_EXISTS);

    /* A caller that is wrong about who is there, and such that send something else. */
    CHECK_OK(fabric_connect_co(self->fabric, fabric_self(other->fabric), &endpoint));
    head.member = other->identity.member;
    head.incarnation = (uint16_t)(other->identity.incarnation + 1);
    CHECK_OK(fabric_call_co(endpoint, POOL_PEER_METHOD, slice_of(&head, sizeof(head)), &reply,
                            sizeof(reply), &size));
    CHECK_EQ_U64(reply.status, PANDO_NOT_FOUND);
    head.incarnation--;
    head.magic++;
    CHECK_OK(fabric_call_co(endpoint, POOL_PEER_METHOD, slice_of(&head, sizeof(head)), &reply,
                            sizeof(reply), &size));
    CHECK_EQ_U64(reply.status, PANDO_INVALID);
    head.magic--;
    CHECK_OK(fabric_call_co(endpoint, POOL_PEER_METHOD, slice_of(&head, 7), &reply, sizeof(reply),
                            &size));
    CHECK_EQ_U64(reply.status, PANDO_INVALID);
    /* A compute node is no memory node. */
    CHECK_STATUS(fabric_call_co(endpoint, POOL_STATS, slice_of(NULL, 0), NULL, 0, NULL),
                 PANDO_UNSUPPORTED);
    fabric_disconnect_co(endpoint);
    CHECK_EQ_U64(other->answered, answered);
}

static void sleeper_task(void *arg)
{
    struct node *node = arg;
    CHECK_OK(pool_call_co(node->session, world.nodes[1].identity, TABLE, METHOD_SLEEP,
                          slice_of(NULL, 0), NULL, 0, NULL));
    node->answered += 1000;
}

/* An answer ends while a call of it runs: it is waited for, and the next is not served. */
static void check_no_more_co(struct node *self, struct node *other)
{
    self->answered = 0;
    CHECK_OK(rt_spawn(rt_loop_self(), sleeper_task, self));
    while (other->running == 0)
        rt_sleep_co(RT_NS_PER_US);
    uint64_t begin_ns = rt_now_ns();
    pool_answer_stop_co(other->pool, TABLE);
    CHECK_EQ_U64(other->running, 0);
    CHECK(rt_now_ns() - begin_ns > SLEEP_NS / 2);
    CHECK_STATUS(add_co(self, other->identity, 1), PANDO_STALE);
    while (self->answered == 0)
        rt_sleep_co(RT_NS_PER_US);
    CHECK_EQ_U64(self->answered, 1000);
    pool_answer_stop_co(other->pool, TABLE); /* nobody: nothing to wait for */
    CHECK_OK(pool_answer(other->pool, TABLE, answer, other));
    CHECK_OK(add_co(self, other->identity, 1));
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void check_cut_co(struct node *self, struct node *other)
{
    uint16_t a = fabric_self(self->fabric), b = fabric_self(other->fabric);
    fabric_sim_cut(world.net, a, b);
    enum pando_status status = add_co(self, other->identity, 1);
    CHECK(status == PANDO_BROKEN || status == PANDO_NOT_FOUND);
    fabric_sim_heal(world.net, a, b);
    rt_sleep_co(LEASE_NS / 2);
    CHECK_OK(add_co(self, other->identity, 1));
}

/* Calls it all the time for that long. How many tries to connect were begun. */
static unsigned tries_co(struct node *self, struct node *other, uint64_t duration_ns)
{
    unsigned tries = 0, unheard = fabric_sim_unheard(world.net);
    uint64_t end_ns = rt_now_ns() + duration_ns;
    while (rt_now_ns() < end_ns) {
        uint64_t begin_ns = rt_now_ns();
        CHECK_STATUS(add_co(self, other->identity, 1), PANDO_NOT_FOUND);
        CHECK(rt_now_ns() - begin_ns < CALL_NS / 4);
        unsigned now = fabric_sim_unheard(world.net);
        tries += now > unheard;
        unheard = now;
        rt_sleep_co(LEASE_NS / 16);
    }
    return tries;
}

/* What is sent to it is lost without a word: only the first try to connect is waited for, and the pauses between the
 * others grow to 16 leases. When one has succeeded they begin anew. */
static void check_silence_co(struct node *self, struct node *other)
{
    uint16_t a = fabric_self(self->fabric), b = fabric_self(other->fabric);
    for (int i = 0; i < 2; i++) {
        fabric_sim_silence(world.net, a, b);
        CHECK_STATUS(add_co(self, other->identity, 1), PANDO_TIMEOUT);
        CHECK_STATUS(add_co(self, other->identity, 1), PANDO_NOT_FOUND);
        unsigned soon = tries_co(self, other, 15 * LEASE_NS);
        CHECK(soon == 4); /* after pauses of 1/4, 1/2, 1 and 2 leases; each takes two */
        unsigned late = tries_co(self, other, 60 * LEASE_NS);
        CHECK(late == 4); /* 4, 8, 16 and 16 */
        fabric_sim_heal(world.net, a, b);
        uint64_t begin_ns = rt_now_ns();
        while (add_co(self, other->identity, 1) != PANDO_OK)
            rt_sleep_co(LEASE_NS / 8);
        CHECK(rt_now_ns() - begin_ns < 18 * LEASE_NS);
    }
}

static void killed_task(void *arg)
{
    struct node *node = arg;
    enum pando_status status = pool_call_co(node->session, world.nodes[1].identity, TABLE,
                                            METHOD_SLEEP, slice_of(NULL, 0), NULL, 0, NULL);
    CHECK_STATUS(status, PANDO_BROKEN);
    node->answered += 1000;
}

/* The callee dies with a call in it; until that is known calls fail, and then the member is not there.
 * What starts in its place is somebody else. */
static void check_kill_co(struct node *self, struct node *other)
{
    struct fabric_identity dead = other->identity;
    enum pando_status status;

    self->answered = 0;
    CHECK_OK(rt_spawn(rt_loop_self(), killed_task, self));
    while (other->running == 0)
        rt_sleep_co(RT_NS_PER_US);
    uint64_t begin_ns = rt_now_ns();
    fabric_sim_kill(other->fabric);
    while (self->answered == 0)
        rt_sleep_co(RT_NS_PER_US);
    status = add_co(self, dead, 1);
    CHECK(status == PANDO_BROKEN || status == PANDO_NOT_FOUND);
    CHECK(rt_now_ns() - begin_ns < LEASE_NS);
    while (pool_recoveries(self->pool) + pool_recoveries(world.nodes[2].pool) == 0)
        rt_sleep_co(LEASE_NS / 8);
    CHECK_STATUS(add_co(self, dead, 1), PANDO_NOT_FOUND);

    while (other->up) /* the ghost */
        rt_sleep_co(LEASE_NS / 8);
    CHECK_OK(fabric_sim_restart(other->fabric, false, &other->fabric));
    start(other);
    wait_up_co(other);
    CHECK(other->identity.member != dead.member || other->identity.incarnation != dead.incarnation);
    CHECK_STATUS(add_co(self, dead, 1), PANDO_NOT_FOUND);
    CHECK_OK(add_co(self, other->identity, 5));
    CHECK_OK(add_co(&world.nodes[2], other->identity, 5));
}

/* A caller that stood still and was declared dead is shut out where it calls. */
static void check_fenced_caller_co(struct node *self, struct node *other)
{
    struct node *slow = &world.nodes[2];
    CHECK_OK(add_co(slow, other->identity, 1));
    uint64_t before = pool_recoveries(self->pool) + pool_recoveries(other->pool);
    fabric_sim_pause(slow->fabric, 4 * LEASE_NS);
    while (pool_recoveries(self->pool) + pool_recoveries(other->pool) == before)
        rt_sleep_co(LEASE_NS / 8);
    CHECK(fabric_fenced(other->fabric, slow->identity));
    CHECK(fabric_fenced(self->fabric, slow->identity));
    CHECK(!fabric_fenced(other->fabric, self->identity));

    struct fabric_identity former = slow->identity;
    while (slow->lives == 0)
        rt_sleep_co(LEASE_NS / 8);
    CHECK(slow->up);
    CHECK_STATUS(add_co(self, former, 1), PANDO_NOT_FOUND);
    CHECK_OK(add_co(self, slow->identity, 1));
    CHECK_OK(add_co(slow, other->identity, 1));
}

static void all_task(void *arg)
{
    struct node *self = arg, *other = &world.nodes[1];
    join_co(self);
    start(other);
    start(&world.nodes[2]);
    wait_up_co(other);
    wait_up_co(&world.nodes[2]);
    check_plain_co(self, other);
    check_refusals_co(self, other);
    check_no_more_co(self, other);
    check_cut_co(self, other);
    check_silence_co(self, other);
    check_kill_co(self, other);
    check_fenced_caller_co(self, other);
    world.done = 1;
    leave_co(self);
}

static uint64_t everything(uint64_t seed, unsigned threads, bool chaos)
{
    build(seed, threads, chaos);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.nodes[0].fabric, 0), all_task, &world.nodes[0]));
    return run_to_end();
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    for (unsigned threads = 1; threads <= 2; threads++)
        everything(1, threads, false);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t hash = everything(seed, 2, true);
        if (seed <= 3)
            CHECK_EQ_U64(everything(seed, 2, true), hash);
    }
    printf("peers: ok\n");
    return 0;
}
