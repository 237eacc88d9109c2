/*
 * A member dies at each list of a merge, with another lock held as well, and a memory node of the
 * merge goes away in the same moment. What the recovery may release without that node is released: a
 * leaf on a living node that the dead one had locked is served at once. What an intent on the missing
 * node may still name stays locked until that node is back, and is right afterwards (rules
 * member-recovery, intent-first). Nor does it matter at which list the recoverer dies, too. If the guard
 * that says what is named is damaged, all locks of its node stay locked.
 */
#include "lib/broken.h"
#include "pool/pool_int.h"
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum { MEMORIES = 2, AWAY = 1, KEYS = 400, STEP = 10, LISTS_MAX = 64, RECOVERY_LISTS = 120 };
enum { MERGER, OTHER, HELPER, CLIENTS }; /* compute nodes */

static const uint64_t LEASE_NS = 10 * RT_NS_PER_MS;
static const uint64_t PATIENCE_NS = 2 * RT_NS_PER_S;

static struct pool_world place;

/* Over all runs. */
static struct {
    unsigned held, free, put;
    unsigned early, late; /* deaths of recoverers before the recovery was partial, and after */
} seen;

static struct world {
    uint64_t begin;       /* what the merger had posted before its first deletion */
    uint64_t kill_at;     /* counted from there; 0: it does not die */
    uint64_t kill_helper; /* so many lists after the merger's death; 0: it is not there */
    uint16_t left_on;     /* the memory node of the left one; the right one's is the other */
    uint64_t first, last; /* out, without a death: the posts of the deletion that merges */
    uint64_t low, high;   /* of the right node: its pairs are from the one to before the other */
    uint64_t from, last_deleted; /* what is deleted is of the left one */
    uint64_t plain;              /* in a leaf on node 0 with a lock of its own */
    fabric_address here;         /* the lock on node 0 of the left or right one */
    uint64_t at_here;            /* a number in that one */
    struct fabric_identity merger, helper;
    int step;    /* 1 the tree is there, 2 the other one has read it, 3 the merger is dead */
    bool damage; /* of the guard on node 0, when the merger is dead */
    bool merged, done;
} world;

struct user {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void reach_co(int step)
{
    while (world.step < step)
        rt_sleep_co(RT_NS_PER_US);
}

static void attach_co(struct user *self)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256] = "";
    CHECK_OK(engine_open_co(&sherman_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void leave_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_world_leave_co(self->pool, self->session);
}

static enum pando_status put_co(struct user *self, uint64_t number)
{
    uint64_t key;
    struct slice name = number_key(number, &key);
    return engine_put_co(self->engine, name, name, ENGINE_UPSERT);
}

static enum pando_status get_co(struct user *self, uint64_t number)
{
    uint64_t key, value;
    size_t size;
    return engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size);
}

/* ---- the merge ------------------------------------------------------------------------------- */

static uint64_t number_of(struct slice key)
{
    uint64_t word;
    CHECK_EQ_U64(key.size, sizeof(word));
    memcpy(&word, key.data, sizeof(word));
    return __builtin_bswap64(word);
}

static struct node_header find_co(struct user *self, uint64_t number, uint8_t level)
{
    struct blink *engine = &sherman_of(self->engine)->blink;
    struct blink_scratch *scratch = blink_scratch_take(engine);
    struct node_header header;
    uint64_t key;
    struct blink_target target = {.key = number_key(number, &key), .level = level};

    CHECK(scratch != NULL);
    CHECK_OK(blink_find_co(engine, &target, scratch->node, &header));
    /* Its fences are in the scratch, which stays as it is until the next search. */
    blink_scratch_give(engine, scratch);
    return header;
}

/* Looks for two neighbours on the two memory nodes, and for a leaf on node 0 whose lock is neither
 * theirs nor their parent's. */
static fabric_address choose_co(struct user *self)
{
    uint64_t at = (uint64_t)STEP * KEYS / 4;
    struct node_header left = find_co(self, at, 0);

    for (;;) {
        world.from = number_of(left.low);
        world.low = number_of(left.high);
        if (fabric_address_node(left.address) == world.left_on &&
            fabric_address_node(left.sibling) != world.left_on)
            break;
        left = find_co(self, world.low, 0);
    }
    struct node_header right = find_co(self, world.low, 0);
    CHECK(right.address == left.sibling && !right.no_high);
    world.high = number_of(right.high);
    struct node_header parent = find_co(self, world.low, 1);
    const fabric_address taken[] = {pool_lock_for(self->pool, left.address),
                                    pool_lock_for(self->pool, right.address),
                                    pool_lock_for(self->pool, parent.address)};
    world.here = world.left_on == 0 ? taken[0] : taken[1];
    world.at_here = world.left_on == 0 ? world.from + 1 : world.low + 1;
    for (world.plain = world.high;;) {
        struct node_header leaf = find_co(self, world.plain, 0);
        fabric_address lock = pool_lock_for(self->pool, leaf.address);
        if (fabric_address_node(lock) == 0 && lock != taken[0] && lock != taken[1] &&
            lock != taken[2])
            return lock;
        CHECK(!leaf.no_high);
        world.plain = number_of(leaf.high);
    }
}

static enum pando_status merge_co(struct user *self, struct fabric *fabric)
{
    struct engine_stats stats;
    enum pando_status status = PANDO_OK;
    uint64_t key;

    for (uint64_t number = world.from; status == PANDO_OK; number += STEP) {
        CHECK(number < world.low);
        world.last_deleted = number;
        world.first = fabric_sim_posted(fabric) - world.begin + 1;
        status = engine_delete_co(self->engine, number_key(number, &key));
        world.last = fabric_sim_posted(fabric) - world.begin;
        engine_stats(self->table, &stats);
        if (stats.merges > 0 || fabric_sim_dead(fabric))
            break;
    }
    return status;
}

static void merger_task(void *arg)
{
    struct fabric *fabric = arg;
    struct user self;
    struct pool_lock plain;

    self.pool = pool_world_join_co(&place, fabric, &self.session);
    world.merger = pool_identity(self.pool);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &number_shape));
    attach_co(&self);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(put_co(&self, i * STEP));
    fabric_address lock = choose_co(&self);
    world.step = 1;
    reach_co(2);
    CHECK_OK(pool_lock_co(self.session, lock, &plain));
    world.begin = fabric_sim_posted(fabric);
    if (world.kill_at > 0)
        fabric_sim_kill_at(fabric, world.begin + world.kill_at);
    enum pando_status status = merge_co(&self, fabric);
    if (world.kill_at == 0) {
        CHECK_OK(status);
        CHECK_OK(pool_unlock_co(self.session, &plain));
        world.merged = true;
    }
    leave_co(&self);
}

/* ---- after its death ------------------------------------------------------------------------- */

/* The merger's heartbeat word, as it lies on node 0. */
static struct pool_heartbeat word_of_merger(void)
{
    uint64_t word, offset = fabric_window_first(place.memory[0]) + POOL_HEARTBEATS +
                            world.merger.member * sizeof(word);
    CHECK_OK(fabric_self_read(place.memory[0], offset, &word, sizeof(word)));
    return pool_heartbeat_unpack(word);
}

/* Kills the helper so many lists after it has claimed the recovery, or at once if it does not get it. */
static void kill_helper_co(void)
{
    struct fabric *helper = place.clients[HELPER];
    struct pool_heartbeat beat = word_of_merger();
    while (beat.state != POOL_FENCED) {
        rt_sleep_co(RT_NS_PER_US);
        beat = word_of_merger();
    }
    if (pool_recoverer(&beat).member != world.helper.member) {
        fabric_sim_kill(helper);
        return;
    }
    fabric_sim_kill_at(helper, fabric_sim_posted(helper) + world.kill_helper);
    while (!fabric_sim_dead(helper))
        rt_sleep_co(RT_NS_PER_US);
    beat = word_of_merger();
    seen.early += !pool_heartbeat_partial(&beat);
    seen.late += pool_heartbeat_partial(&beat);
}

/* Flips a bit of the guard on node 0. */
static void damage_guard(void)
{
    static uint8_t bytes[INTENT_SLOT_BYTES];
    static struct intent intent;
    struct fabric *node = place.memory[0];
    struct pool_superblock super;

    CHECK_OK(fabric_self_read(node, fabric_window_first(node), &super, sizeof(super)));
    uint64_t slot = super.heap_offset + INTENT_SLOT_AT;
    uint64_t end = super.heap_offset + super.chunks * POOL_CHUNK_BYTES;
    for (; slot < end; slot += INTENT_SLOT_BLOCK) {
        CHECK_OK(fabric_self_read(node, slot, bytes, sizeof(bytes)));
        if (intent_read(&intent, super.pool_id, fabric_address_make(0, slot), bytes,
                        sizeof(bytes)) &&
            intent_is_guard(&intent))
            break;
    }
    CHECK(slot < end);
    bytes[INTENT_HEADER - 8] ^= 1;
    CHECK_OK(fabric_self_write(node, slot, bytes, INTENT_HEADER));
}

static void away_task(void *arg)
{
    (void)arg;
    while (!fabric_sim_dead(place.clients[MERGER]) && !world.merged)
        rt_sleep_co(RT_NS_PER_US);
    if (!world.merged)
        fabric_sim_kill(place.memory[AWAY]);
    if (world.damage)
        damage_guard();
    world.step = 3;
    if (!world.merged && world.kill_helper > 0)
        kill_helper_co();
}

/* Asks as soon as node 0 can agree: before the other one's monitor does. Its own does nothing. */
static void helper_task(void *arg)
{
    struct pool_options options = {
        .memory_nodes = MEMORIES, .name = "helper", .lease_ns = LEASE_NS, .no_recovery = true};
    struct pool_session *session;
    struct pool *pool;
    char error[256];
    CHECK_OK(pool_join_co(arg, &options, &pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(pool, &session));
    world.helper = pool_identity(pool);
    reach_co(3);
    while (!fabric_sim_dead(arg)) {
        enum pando_status status = pool_recover_co(session, world.merger);
        CHECK(status != PANDO_OK);
        rt_sleep_co(LEASE_NS / 128);
    }
    pool_world_leave_co(pool, session);
}

static void check_there_co(struct user *self, uint64_t number)
{
    enum pando_status status = get_co(self, number);
    if (status != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 " (%" PRIu64 "), left on node %u: key %" PRIu64 ": %s",
                   world.kill_at, world.kill_helper, world.left_on, number,
                   pando_status_text(status));
}

static void check_all_co(struct user *self, const uint64_t *put, unsigned count)
{
    struct engine_census census;
    char error[256] = "";
    uint64_t pairs = 0;

    for (uint64_t number = 0; number < STEP * KEYS; number += STEP) {
        if (number == world.last_deleted) {
            pairs += get_co(self, number) == PANDO_OK; /* nobody was told */
        } else if (number < world.from || number > world.last_deleted) {
            check_there_co(self, number);
            pairs++;
        }
    }
    for (unsigned i = 0; i < count; i++)
        check_there_co(self, put[i]);
    if (engine_verify_co(self->engine, &census, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 " (%" PRIu64 "), left on node %u: %s", world.kill_at,
                   world.kill_helper, world.left_on, error);
    CHECK_EQ_U64(census.pairs, pairs + count);
}

static struct pool_heartbeat beat_co(struct user *self, struct fabric_identity who)
{
    struct pool_heartbeat beat;
    CHECK_OK(pool_heartbeat_co(self->session, who.member, &beat));
    if (beat.incarnation != who.incarnation)
        beat.state = POOL_FREE;
    return beat;
}

static bool partial_co(struct user *self)
{
    struct pool_heartbeat beat = beat_co(self, world.merger);
    bool helped = world.kill_helper == 0 || fabric_sim_dead(place.clients[HELPER]);
    return pool_heartbeat_partial(&beat) && helped;
}

static bool gone_co(struct user *self)
{
    return beat_co(self, world.merger).state == POOL_FREE &&
           (world.kill_helper == 0 || beat_co(self, world.helper).state == POOL_FREE);
}

static void await_co(struct user *self, bool (*is_co)(struct user *self))
{
    uint64_t end_ns = rt_now_ns() + PATIENCE_NS;
    while (!is_co(self) && rt_now_ns() < end_ns)
        rt_sleep_co(LEASE_NS / 16);
    CHECK(rt_now_ns() < end_ns);
}

static bool held_co(struct user *self, fabric_address lock)
{
    uint64_t word;
    struct fabric_op read = fabric_read(fabric_address_offset(lock), &word, sizeof(word));
    CHECK_OK(pool_submit_co(self->session, fabric_address_node(lock), &read, 1));
    return !pool_lock_free(word);
}

/* While the node is away. True: a pair was put into the node of the merge that lives. */
static bool without_node_co(struct user *self)
{
    enum pando_status status = put_co(self, world.plain + 1);
    if (world.damage) { /* it may have named any lock there */
        CHECK(status != PANDO_OK && held_co(self, world.here));
        return false;
    }
    if (status != PANDO_OK)
        CHECK_FAIL("death at list %" PRIu64 ", left on node %u: a leaf that nothing names: %s",
                   world.kill_at, world.left_on, pando_status_text(status));
    check_there_co(self, world.plain + 1);
    bool held = held_co(self, world.here);
    status = put_co(self, world.at_here);
    /* What is locked stays as it is. What is free may be merged by now: with what is away. */
    CHECK(!held || status != PANDO_OK);
    CHECK(!held || held_co(self, world.here));
    seen.held += held;
    seen.free += !held;
    seen.put += status == PANDO_OK;
    return status == PANDO_OK;
}

static void read_all_co(struct user *self)
{
    for (uint64_t number = 0; number < STEP * KEYS; number += STEP)
        check_there_co(self, number);
}

static void other_task(void *arg)
{
    struct user self;

    reach_co(1);
    self.pool = pool_world_join_co(&place, arg, &self.session);
    attach_co(&self);
    read_all_co(&self); /* it knows the inner nodes from now on */
    while (world.kill_helper > 0 && world.helper.member == 0)
        rt_sleep_co(RT_NS_PER_US);
    world.step = 2;
    reach_co(3);
    if (!world.merged) {
        await_co(&self, partial_co);
        bool put = without_node_co(&self);
        pool_world_restart(&place, AWAY, true);
        await_co(&self, gone_co);
        CHECK(!held_co(&self, world.here));
        if (put)
            check_there_co(&self, world.at_here);
    }
    const uint64_t put[] = {world.low + 1, world.from + 1, world.high - STEP + 1, world.plain + 1};
    for (unsigned i = 0; i < sizeof(put) / sizeof(put[0]); i++)
        CHECK_OK(put_co(&self, put[i]));
    check_all_co(&self, put, sizeof(put) / sizeof(put[0]));
    leave_co(&self);
    world.done = true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void run_world(const struct world *with)
{
    struct pool_world_options options = {.net = {.seed = 3},
                                         .memnode = {.seed = 7},
                                         .memories = MEMORIES,
                                         .clients = CLIENTS,
                                         .memory_bytes = 80 << 20,
                                         .lease_ns = LEASE_NS};
    world = *with;
    pool_world_build(&place, &options);
    pool_world_spawn(&place, MERGER, merger_task);
    pool_world_spawn(&place, OTHER, other_task);
    if (with->kill_helper > 0)
        pool_world_spawn(&place, HELPER, helper_task);
    pool_world_spawn_memory(&place, 0, away_task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(world.done);
    pool_world_destroy(&place);
}

static void run(uint16_t left_on, uint64_t kill_at, uint64_t kill_helper)
{
    run_world(&(struct world){.left_on = left_on, .kill_at = kill_at, .kill_helper = kill_helper});
}

/* Returns the last list after which something is kept. */
static uint64_t each_list(uint16_t left_on)
{
    uint64_t middle = 0;
    run(left_on, 0, 0);
    uint64_t first = world.first, last = world.last;
    CHECK(first > 0 && last >= first + 8 && last < first + LISTS_MAX);
    memset(&seen, 0, sizeof(seen));
    for (uint64_t at = first; at <= last; at++) {
        unsigned held = seen.held;
        run(left_on, at, 0);
        if (seen.held > held)
            middle = at;
    }
    printf("the left one on node %u, deaths at lists %" PRIu64 " to %" PRIu64
           ": %u times locked, %u times free, %u pairs put\n",
           left_on, first, last, seen.held, seen.free, seen.put);
    CHECK(seen.held >= 2 && seen.put > 0);
    return middle;
}

int main(int argc, char **argv)
{
    break_rule(argc, argv);
    for (uint16_t left_on = 0; left_on < MEMORIES; left_on++) {
        uint64_t at = each_list(left_on) - 1;
        memset(&seen, 0, sizeof(seen));
        for (uint64_t list = 1; list <= RECOVERY_LISTS; list++)
            run(left_on, at, list);
        printf("%u times locked; recoverers died %u times before it was partial, %u after\n",
               seen.held, seen.early, seen.late);
        CHECK(seen.held > 0 && seen.early > 0 && seen.late > 0);
        if (left_on == AWAY)
            run_world(&(struct world){.left_on = left_on, .kill_at = at, .damage = true});
    }
    return 0;
}
