/*
 * The pool attacked: clients move money between accounts in remote memory, under locks and intents,
 * while they are killed and paused at random operations. Whatever happens, in the end the sum is
 * right, no lock is left, every dead member was recovered, and no memory is lost. With every other seed
 * the memory nodes are full, and intents are in single slots from their reserves.
 *
 *   test_sim_pool [FIRST LAST] [--trace]     seeds; a failing one is printed and can be run alone
 *   test_sim_pool --break WHAT FIRST LAST    with something broken on purpose; exits 0 if it was
 * noticed
 */
#include "pool/pool_int.h"

#include "pool/block_fmt.h"
#include "pool/cell.h"
#include "pool/intent.h"
#include "sim/pool_world.h"

enum {
    MEMORIES = 2,
    CLIENTS = 4,
    THREADS = 2,
    TASKS = 2,
    ACCOUNTS = 12,
    BLOCK_BYTES = 256,
    BALANCE = 1000,
    TRANSFERS = 40,
    TABLE = 7,
    KIND = 3,
    CHECKER = CLIENTS, /* the node that sets up and checks; no faults there */
};

/* What can be broken on purpose, to see that the checks notice. */
enum broken { NOTHING, FENCING, INTENTS, RECOVERY, LOCKING };

struct account {
    uint64_t header;
    uint64_t address;
    uint64_t version;
    uint64_t tenure;
    uint64_t balance;
    uint64_t filler[11]; /* long enough to be torn */
};
_Static_assert(sizeof(struct account) == 128, "what the test writes");

struct world {
    uint64_t seed;
    enum broken broken;
    struct pool_world place;
    fabric_address accounts[ACCOUNTS];
    bool ready;
    int clients_running;
    uint64_t transfers;
    const char *violation;
};

static struct world world;
static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

static void violate(const char *what)
{
    if (world.violation == NULL)
        world.violation = what;
}

/* ---- accounts -------------------------------------------------------------------------------- */

static void account_fill(struct pool *pool, struct account *account, fabric_address address,
                         uint64_t version, uint64_t balance)
{
    struct cell_place place = {
        .pool = pool_id(pool), .table = TABLE, .kind = KIND, .address = address};
    struct pool_tenure tenure = {
        .state = POOL_BLOCK_LIVE, .kind = KIND, .table = TABLE, .holder = pool_identity(pool)};
    *account = (struct account){.address = address,
                                .version = version,
                                .tenure = pool_tenure_pack(tenure),
                                .balance = balance};
    for (size_t i = 0; i < sizeof(account->filler) / 8; i++)
        account->filler[i] = balance * 31 + i;
    account->header = cell_header(&place, (uint16_t)version, 0, &account->address,
                                  sizeof(*account) - CELL_HEADER);
}

static bool account_valid(struct pool *pool, const struct account *account, fabric_address address)
{
    struct cell_place place = {
        .pool = pool_id(pool), .table = TABLE, .kind = KIND, .address = address};
    return cell_valid(&place, account, sizeof(*account)) && account->address == address;
}

/* ---- a transfer ------------------------------------------------------------------------------ */

struct side {
    fabric_address address;
    struct pool_lock lock;
    bool own_lock; /* false: the other side's lock is the same word */
    struct account account;
};

/* Lock and read in one list; the READ counts only if the CAS succeeded. */
static enum pando_status side_lock_co(struct pool_session *session, struct side *side)
{
    struct pool *pool = pool_session_pool(session);
    struct pool_backoff backoff = {0};
    side->lock.address = pool_lock_for(pool, side->address);
    side->lock.word = pool_lock_new_word(pool);
    for (;;) {
        struct fabric_op ops[] = {
            fabric_cas(fabric_address_offset(side->lock.address), pool_lock_deaths(side->lock.word),
                       side->lock.word),
            fabric_read(fabric_address_offset(side->address), &side->account,
                        sizeof(side->account)),
        };
        enum pando_status status =
            pool_submit_co(session, fabric_address_node(side->address), ops, 2);
        uint64_t old = ops[0].old;
        bool got = old == pool_lock_deaths(side->lock.word) || old == side->lock.word;
        if (status == PANDO_OK && (got || world.broken == LOCKING))
            return PANDO_OK;
        if (status != PANDO_OK && status != PANDO_BROKEN)
            return status;
        bool marked = status == PANDO_OK && pool_lock_free(old); /* somebody died with it */
        if (marked)
            side->lock.word = pool_lock_taken_from(side->lock.word, old);
        status = pool_lock_backoff_co(session, side->lock.address,
                                      status == PANDO_OK && !marked ? old : 0, &backoff);
        if (status != PANDO_OK)
            return status;
    }
}

static enum pando_status side_read_co(struct pool_session *session, struct side *side)
{
    struct fabric_op read =
        fabric_read(fabric_address_offset(side->address), &side->account, sizeof(side->account));
    return pool_submit_co(session, fabric_address_node(side->address), &read, 1);
}

static void move_money(struct pool *pool, struct side *from, struct side *to)
{
    uint64_t amount = rt_random() % 10;
    if (amount > from->account.balance)
        amount = from->account.balance;
    account_fill(pool, &from->account, from->address, from->account.version + 1,
                 from->account.balance - amount);
    account_fill(pool, &to->account, to->address, to->account.version + 1,
                 to->account.balance + amount);
}

static struct fabric_op write_account(const struct side *side)
{
    return fabric_write(fabric_address_offset(side->address), &side->account,
                        sizeof(side->account));
}

/* Sends a list that must not be repeated unless it was not applied; ends in the release of `home`.
 */
static enum pando_status commit_list_co(struct pool_session *session, struct side *home,
                                        struct fabric_op *ops, uint32_t count)
{
    for (;;) {
        bool applied;
        enum pando_status status =
            pool_submit_co(session, fabric_address_node(home->address), ops, count);
        if (status != PANDO_BROKEN)
            return status;
        status = pool_resolve_co(session, &home->lock, &applied);
        if (status != PANDO_OK || applied)
            return status;
    }
}

static const uint64_t zero;

/* `far` is on another node: intent, far image, near image and end of the intent, far lock, home
 * lock. */
static enum pando_status commit_two_nodes_co(struct pool_session *session, struct side *home,
                                             struct side *far, fabric_address slot,
                                             const uint8_t *intent, uint32_t intent_bytes)
{
    uint16_t home_node = fabric_address_node(home->address);
    uint16_t far_node = fabric_address_node(far->address);
    struct fabric_op put_intent = fabric_write(fabric_address_offset(slot), intent, intent_bytes);
    struct fabric_op put_far = write_account(far);
    struct fabric_op near[] = {write_account(home),
                               fabric_write(fabric_address_offset(slot), &zero, 8)};
    struct fabric_op unlock =
        fabric_write(fabric_address_offset(home->lock.address), pool_lock_release(&home->lock), 8);
    enum pando_status status = PANDO_BROKEN;

    /* All of this may be repeated while both locks are ours. */
    for (int i = 0; i < 5 && status == PANDO_BROKEN; i++) {
        status = pool_submit_co(session, home_node, &put_intent, 1);
        if (status == PANDO_OK)
            status = pool_submit_co(session, far_node, &put_far, 1);
        if (status == PANDO_OK)
            status = pool_submit_co(session, home_node, near, 2);
    }
    if (status == PANDO_OK)
        status = pool_unlock_co(session, &far->lock);
    if (status == PANDO_OK)
        status = commit_list_co(session, home, &unlock, 1);
    return status;
}

static enum pando_status commit_co(struct pool_session *session, struct side *home,
                                   struct side *other, uint8_t *buffer)
{
    struct pool *pool = pool_session_pool(session);
    struct intent_builder builder;
    fabric_address slot;
    uint16_t node = fabric_address_node(home->address);
    enum pando_status status = pool_intent_take_co(session, node, &slot);
    if (status != PANDO_OK)
        return status;
    intent_begin(&builder, buffer, POOL_INTENT_BYTES,
                 (struct intent_lock){home->lock.address, home->lock.word});
    if (other->own_lock)
        intent_add_lock(&builder, (struct intent_lock){other->lock.address, other->lock.word});
    intent_add_image(&builder, home->address, slice_of(&home->account, sizeof(home->account)));
    intent_add_image(&builder, other->address, slice_of(&other->account, sizeof(other->account)));
    uint32_t bytes = (uint32_t)intent_finish(&builder, pool_id(pool), slot);
    CHECK(bytes > 0);
    if (world.broken == INTENTS)
        memset(buffer, 0, bytes);

    if (fabric_address_node(other->address) != node) {
        status = commit_two_nodes_co(session, home, other, slot, buffer, bytes);
    } else {
        struct fabric_op ops[6] = {
            fabric_write(fabric_address_offset(slot), buffer, bytes),
            write_account(home),
            write_account(other),
            fabric_write(fabric_address_offset(slot), &zero, 8),
        };
        uint32_t count = 4;
        if (other->own_lock)
            ops[count++] = fabric_write(fabric_address_offset(other->lock.address),
                                        pool_lock_release(&other->lock), 8);
        ops[count++] = fabric_write(fabric_address_offset(home->lock.address),
                                    pool_lock_release(&home->lock), 8);
        status = commit_list_co(session, home, ops, count);
    }
    if (status == PANDO_OK)
        pool_intent_give(session, slot);
    return status;
}

static enum pando_status transfer_co(struct pool_session *session, uint8_t *buffer)
{
    struct pool *pool = pool_session_pool(session);
    unsigned a = (unsigned)(rt_random() % ACCOUNTS), b = (unsigned)(rt_random() % (ACCOUNTS - 1));
    struct side low = {0}, high = {0};
    if (b >= a)
        b++;
    low.address = world.accounts[a < b ? a : b];
    high.address = world.accounts[a < b ? b : a];
    fabric_address low_lock = pool_lock_for(pool, low.address);
    fabric_address high_lock = pool_lock_for(pool, high.address);
    struct side *first = low_lock <= high_lock ? &low : &high;
    struct side *second = first == &low ? &high : &low;

    enum pando_status status = side_lock_co(session, first);
    if (status != PANDO_OK)
        return status;
    first->own_lock = true;
    second->own_lock = low_lock != high_lock;
    status = second->own_lock ? side_lock_co(session, second) : side_read_co(session, second);
    if (status != PANDO_OK)
        return status;
    if (!account_valid(pool, &low.account, low.address) ||
        !account_valid(pool, &high.account, high.address)) {
        /* A fenced member may see anything; what it does then has no effect. */
        if (!pool_fenced(pool) && !fabric_sim_dead(pool_fabric(pool)))
            violate("an account was damaged under a lock");
        return PANDO_CORRUPT;
    }
    move_money(pool, &low, &high);
    return commit_co(session, first, second, buffer);
}

/* ---- clients --------------------------------------------------------------------------------- */

struct client {
    struct fabric *fabric;
    struct pool *pool;
    int threads_running;
    bool joined;
    int tasks_running[THREADS];
    struct pool_session *sessions[THREADS];
};

struct thread_arg {
    struct client *client;
    int thread;
};

static void transfer_task(void *arg)
{
    struct thread_arg *self = arg;
    struct client *client = self->client;
    uint8_t *buffer = aligned_alloc(8, POOL_INTENT_BYTES);
    struct pool_block block;

    for (int i = 0; i < TRANSFERS; i++) {
        enum pando_status status = transfer_co(client->sessions[self->thread], buffer);
        if (status != PANDO_OK)
            break;
        if (!fabric_sim_dead(client->fabric))
            world.transfers++;
        /* Memory comes and goes meanwhile. */
        if (i % 4 == 0 &&
            pool_alloc_co(client->sessions[self->thread], POOL_ANY_NODE, BLOCK_BYTES, &block) ==
                PANDO_OK &&
            rt_random() % 4 != 0)
            (void)!pool_free_co(client->sessions[self->thread], &block, BLOCK_BYTES, false);
    }
    free(buffer);
    client->tasks_running[self->thread]--;
}

static void thread_task(void *arg)
{
    struct thread_arg *self = arg;
    struct client *client = self->client;

    if (pool_session_open_co(client->pool, &client->sessions[self->thread]) == PANDO_OK) {
        for (int i = 0; i < TASKS; i++) {
            client->tasks_running[self->thread]++;
            CHECK_OK(rt_spawn(rt_loop_self(), transfer_task, self));
        }
        while (client->tasks_running[self->thread] > 0)
            rt_sleep_co(20 * RT_NS_PER_US);
        pool_session_close_co(client->sessions[self->thread]);
    }
    client->threads_running--;
}

static void client_task(void *arg)
{
    struct client client = {.fabric = arg};
    struct thread_arg threads[THREADS];
    char error[256];
    struct pool_options options = {
        .memory_nodes = MEMORIES, .name = "client", .lease_ns = LEASE_NS};

    while (!world.ready)
        rt_sleep_co(10 * RT_NS_PER_US);
    if (pool_join_co(client.fabric, &options, &client.pool, error, sizeof(error)) == PANDO_OK) {
        client.threads_running = THREADS;
        for (int i = 0; i < THREADS; i++) {
            threads[i] = (struct thread_arg){.client = &client, .thread = i};
            CHECK_OK(
                rt_spawn(fabric_sim_loop(client.fabric, (unsigned)i), thread_task, &threads[i]));
        }
        while (client.threads_running > 0)
            rt_sleep_co(20 * RT_NS_PER_US);
        pool_leave_co(client.pool);
    }
    world.clients_running--;
}

/* ---- setting up and checking ----------------------------------------------------------------- */

static void create_accounts_co(struct pool_session *session)
{
    struct pool *pool = pool_session_pool(session);
    for (int i = 0; i < ACCOUNTS; i++) {
        struct pool_block block;
        struct account account;
        CHECK_OK(pool_alloc_co(session, POOL_ANY_NODE, BLOCK_BYTES, &block));
        account_fill(pool, &account, block.address, block.version + 1, BALANCE);
        struct fabric_op write =
            fabric_write(fabric_address_offset(block.address), &account, sizeof(account));
        CHECK_OK(pool_submit_co(session, fabric_address_node(block.address), &write, 1));
        world.accounts[i] = block.address;
    }
}

static void check_accounts_co(struct pool_session *session)
{
    uint64_t sum = 0;
    for (int i = 0; i < ACCOUNTS; i++) {
        struct side side = {.address = world.accounts[i]};
        CHECK_OK(side_read_co(session, &side));
        if (!account_valid(pool_session_pool(session), &side.account, side.address))
            violate("an account is damaged in the end");
        sum += side.account.balance;
    }
    if (sum != (uint64_t)ACCOUNTS * BALANCE)
        violate("the sum of all accounts changed");
}

static void check_locks_co(struct pool_session *session)
{
    static uint64_t words[POOL_LOCKS];
    for (uint16_t node = 0; node < MEMORIES; node++) {
        struct fabric_op read = fabric_read(FABRIC_DEVICE, words, sizeof(words));
        CHECK_OK(pool_submit_co(session, node, &read, 1));
        for (int i = 0; i < POOL_LOCKS; i++) {
            if (!pool_lock_free(words[i]))
                violate("a lock is still held in the end");
        }
    }
}

/* Takes all memory but the reserve; how many chunks that is. */
static uint64_t fill_co(struct pool_session *session)
{
    struct pool_block block;
    uint64_t chunks = 0;
    enum pando_status status = PANDO_OK;
    while (status == PANDO_OK) {
        status = pool_alloc_co(session, POOL_ANY_NODE, POOL_CHUNK_BYTES, &block);
        chunks += status == PANDO_OK;
    }
    CHECK_STATUS(status, PANDO_FULL);
    return chunks;
}

/* Every block is one of the accounts, free in the node's hands, or this member's. */
static void check_memory_co(struct pool_session *session, uint64_t own_chunks)
{
    uint64_t used = 0;
    for (uint16_t node = 0; node < MEMORIES; node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(session, node, &stats));
        used += (stats.chunks - stats.chunks_free) * POOL_CHUNK_BYTES - stats.blocks_free_bytes;
    }
    if (used > own_chunks * POOL_CHUNK_BYTES)
        violate("memory of dead members was not taken back");
}

/* Until everybody else is gone: left, or recovered. */
static void wait_alone_co(struct pool_session *session)
{
    static struct pool_member members[POOL_MEMBERS];
    unsigned count = 0;
    for (int i = 0; i < 400; i++) {
        CHECK_OK(pool_members_co(session, members, POOL_MEMBERS, &count));
        if (count == 1 && world.clients_running == 0)
            return;
        rt_sleep_co(LEASE_NS / 2);
    }
    violate("a dead member was never recovered");
}

static void checker_task(void *arg)
{
    struct fabric *fabric = arg;
    struct pool *pool;
    struct pool_session *session;
    char error[256];
    struct pool_options options = {.memory_nodes = MEMORIES,
                                   .name = "checker",
                                   .lease_ns = LEASE_NS,
                                   .no_recovery = world.broken == RECOVERY};

    CHECK_OK(pool_join_co(fabric, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &session));
    create_accounts_co(session);
    uint64_t own_chunks = MEMORIES;
    if (world.seed % 2 == 1)
        own_chunks += fill_co(session);
    world.ready = true;
    while (world.clients_running > 0)
        rt_sleep_co(LEASE_NS);
    wait_alone_co(session);
    if (world.violation == NULL) {
        check_accounts_co(session);
        check_locks_co(session);
        check_memory_co(session, own_chunks);
    }
    pool_world_leave_co(pool, session);
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void build(void)
{
    static struct sim_nic_model model;
    model = *sim_nic_model("cx5");
    for (int i = 0; i < RT_COST_COUNT; i++)
        model.costs[i] = 50;
    struct pool_world_options options = {
        .net = {.seed = world.seed,
                .model = &model,
                .chaos = {.tear = 0.3,
                          .spread = 0.3,
                          .spread_ns = 3000,
                          .delay = 0.05,
                          .delay_ns = 20000,
                          .late_cpu = 0.2,
                          .late_cpu_ns = 5000,
                          .no_fencing = world.broken == FENCING},
                .shuffle = true,
                .race_probability = 0.05},
        .memnode = {.seed = world.seed + 1},
        .memories = MEMORIES,
        .clients = CLIENTS + 1,
        .memory_bytes = 200 << 20,
        .memory_threads = 2,
        .client_threads = THREADS,
        .lease_ns = LEASE_NS,
    };
    pool_world_build(&world.place, &options);
}

static void plan_faults(void)
{
    struct prng prng;
    prng_seed(&prng, world.seed * 77);
    for (int i = 0; i < CLIENTS; i++) {
        uint64_t at = 1 + prng_below(&prng, 600);
        sim_node_set_drift(fabric_sim_machine(world.place.clients[i]),
                           (int)prng_below(&prng, 4000) - 2000);
        switch (prng_below(&prng, 4)) {
        case 0:
            fabric_sim_kill_at(world.place.clients[i], at);
            break;
        case 1:
            fabric_sim_pause_at(world.place.clients[i], at,
                                LEASE_NS + prng_below(&prng, 5 * LEASE_NS));
            break;
        case 2:
            fabric_sim_pause_at(world.place.clients[i], at, prng_below(&prng, LEASE_NS));
            break;
        default:
            break;
        }
    }
}

static void print_trace(void *context, uint64_t now_ns, const char *what, uint64_t a, uint64_t b,
                        uint64_t c)
{
    (void)context;
    printf("%10.3f us %-8s %llx %llx %llx\n", (double)now_ns / 1000, what, (unsigned long long)a,
           (unsigned long long)b, (unsigned long long)c);
}

/* The trace hash; world.violation says what went wrong. */
static uint64_t run_seed(uint64_t seed, enum broken broken, bool trace)
{
    world = (struct world){.seed = seed, .broken = broken, .clients_running = CLIENTS};
    build();
    plan_faults();
    if (trace)
        sim_set_trace(fabric_sim_world(world.place.net), print_trace, NULL);
    pool_world_spawn(&world.place, CHECKER, checker_task);
    for (int i = 0; i < CLIENTS; i++)
        pool_world_spawn(&world.place, (unsigned)i, client_task);
    bool ended = pool_world_ends(&world.place, 20 * RT_NS_PER_S);
    if (!ended || sim_live_tasks(fabric_sim_world(world.place.net)) != 0)
        violate("it did not end");
    uint64_t hash = sim_trace_hash(fabric_sim_world(world.place.net));
    pool_world_destroy(&world.place);
    return hash;
}

static enum broken broken_named(const char *name)
{
    static const char *const names[] = {"nothing", "fencing", "intents", "recovery", "locking"};
    for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
        if (strcmp(names[i], name) == 0)
            return (enum broken)i;
    }
    CHECK_FAIL("nothing is called %s", name);
}

static __attribute__((unused)) bool noticed(const char *name, uint64_t first, uint64_t last)
{
    for (uint64_t seed = first; seed <= last; seed++) {
        run_seed(seed, broken_named(name), false);
        if (world.violation != NULL) {
            printf("without %s: seed %llu: %s\n", name, (unsigned long long)seed, world.violation);
            return true;
        }
    }
    printf("without %s: nothing noticed in seeds %llu to %llu\n", name, (unsigned long long)first,
           (unsigned long long)last);
    return false;
}

static void run_seeds(uint64_t first, uint64_t last, bool trace)
{
    uint64_t transfers = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        run_seed(seed, NOTHING, trace);
        transfers += world.transfers;
        if (world.violation != NULL)
            CHECK_FAIL("seed %llu: %s; replay: test_sim_pool %llu %llu --trace",
                       (unsigned long long)seed, world.violation, (unsigned long long)seed,
                       (unsigned long long)seed);
    }
    printf("seeds %llu to %llu: %llu transfers, nothing wrong\n", (unsigned long long)first,
           (unsigned long long)last, (unsigned long long)transfers);
}

static __attribute__((unused)) void test_same_seed_same_run(void)
{
    uint64_t first = run_seed(3, NOTHING, false);
    for (int i = 0; i < 10; i++)
        CHECK_EQ_U64(run_seed(3, NOTHING, false), first);
    for (uint64_t seed = 4; seed < 9; seed++)
        CHECK(run_seed(seed, NOTHING, false) != first);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--break") == 0)
        return noticed(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10)) ? 0 : 1;
    if (argc >= 3) {
        run_seeds(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), argc > 3);
        return 0;
    }
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    run_seeds(1, 12, false); /* a sanitizer is watching, and takes its time */
#else
    run_seeds(1, 60, false);
    test_same_seed_same_run();
    CHECK(noticed("fencing", 1, 100));
    CHECK(noticed("intents", 1, 100));
    CHECK(noticed("recovery", 1, 60));
    CHECK(noticed("locking", 1, 20));
#endif
    return 0;
}
