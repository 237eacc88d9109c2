/*
 * A pool that is full at any allocation: one after the other fails, alone or with all that follow it, while
 * puts split pages, deletes merge them, long values come and go, and keys move between two owners. Whatever
 * was acknowledged is there afterwards, what was refused is not, the tree is sound, and when there is
 * memory again everything can be done.
 */
#include <stdlib.h>

#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum {
    KEYS = 4096,
    RUN = 120, /* keys in a row that are put, or deleted, in a round */
    ALLOCATIONS_MAX = 400,
    LONG_BYTES = 300,
    VALUE_MAX = 512,
};

static const struct engine_shape shapes[] = {
    {.key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024},
    {.key_max = 16, .value_inline = 64, .node_bytes = 1024},
};

struct user {
    struct dex_member member;
    struct engine *engine;
};

/* What a user is to do, on its own loop. */
struct job {
    enum { PUT, DELETE, GET, MOVE, SCAN, VERIFY } kind;
    uint64_t key, value;
    uint8_t bytes[VALUE_MAX];
    size_t size;
    unsigned pairs;
    struct engine_census census;
    char error[256];
    enum pando_status status;
    bool done;
};

static struct world {
    const struct engine_shape *shape;
    const char *without;
    struct user users[2];
    bool ready[2], done;
    struct job *job; /* of the second one */
    struct prng prng;
    uint64_t first, count; /* of the allocations that fail */
    unsigned refused, failed_rounds;

    /* Of every key: 0 is absent. After an unknown outcome it is one of two. */
    uint64_t value[KEYS], maybe[KEYS];
    bool unsure[KEYS];
} world;

static struct slice value_of(uint64_t number, uint8_t bytes[VALUE_MAX])
{
    size_t size = world.shape->value_size != 0 ? 8 : number % 5 == 0 ? LONG_BYTES : 8 + number % 40;
    for (size_t i = 0; i < size; i += 8)
        memcpy(bytes + i, &number, size - i < 8 ? size - i : 8);
    return slice_of(bytes, size);
}

static void work_co(struct engine *engine, struct job *job)
{
    struct engine_range all = {.no_high = true};
    uint64_t room;
    struct slice key = number_key(job->key, &room);

    if (job->kind == PUT)
        job->status = engine_put_co(engine, key, value_of(job->value, job->bytes), ENGINE_UPSERT);
    else if (job->kind == DELETE)
        job->status = engine_delete_co(engine, key);
    else if (job->kind == GET)
        job->status = engine_get_co(engine, key, job->bytes, sizeof(job->bytes), &job->size);
    else if (job->kind == MOVE)
        job->status = engine_move_co(engine, key, job->value);
    else if (job->kind == SCAN)
        job->status = engine_scan_co(engine, &all, count_pair, &job->pairs);
    else
        job->status = engine_verify_co(engine, &job->census, job->error, sizeof(job->error));
    job->done = true;
}

/* By either of them. */
static enum pando_status do_co(struct job *job)
{
    job->done = false;
    if (prng_next(&world.prng) % 2 == 0)
        work_co(world.users[0].engine, job);
    else
        world.job = job;
    while (!job->done)
        rt_sleep_co(RT_NS_PER_US);
    return job->status;
}

/* FULL, TIMEOUT and the like: not done. */
static void note(uint64_t key, uint64_t value, enum pando_status status)
{
    world.refused += status == PANDO_FULL;
    if (status == PANDO_UNKNOWN) {
        world.unsure[key] = true;
        world.maybe[key] = value;
    } else if (status == PANDO_OK || (status == PANDO_NOT_FOUND && value == 0)) {
        CHECK(status == PANDO_OK || world.unsure[key] || world.value[key] == 0);
        world.value[key] = value;
        world.unsure[key] = false;
    }
}

static void put_co(uint64_t key)
{
    struct job job = {.kind = PUT, .key = key, .value = prng_next(&world.prng) | 1};
    note(key, job.value, do_co(&job));
}

static void delete_co(uint64_t key)
{
    struct job job = {.kind = DELETE, .key = key};
    note(key, 0, do_co(&job));
}

static void round_co(bool moves)
{
    uint64_t from = prng_next(&world.prng) % (KEYS - RUN);
    for (uint64_t i = 0; i < RUN; i++)
        put_co(from + i);
    struct job move = {.kind = MOVE, .key = from, .value = prng_next(&world.prng)};
    enum pando_status moved = moves ? do_co(&move) : PANDO_OK;
    (void)moved;
    from = prng_next(&world.prng) % (KEYS - RUN);
    for (uint64_t i = 0; i < RUN; i++)
        delete_co(from + i);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static void check_key_co(uint64_t key)
{
    uint8_t expected[VALUE_MAX];
    struct job job = {.kind = GET, .key = key};
    enum pando_status status = do_co(&job);
    struct slice found = slice_of(job.bytes, job.size);

    if (status == PANDO_OK && world.unsure[key] && world.maybe[key] != 0 &&
        slice_equal(found, value_of(world.maybe[key], expected)))
        world.value[key] = world.maybe[key];
    else if (status == PANDO_NOT_FOUND && world.unsure[key] && world.maybe[key] == 0)
        world.value[key] = 0;
    world.unsure[key] = false;
    if (status != (world.value[key] == 0 ? PANDO_NOT_FOUND : PANDO_OK))
        CHECK_FAIL("after allocation %" PRIu64 " failed: key %" PRIu64 " is %s: %s", world.first,
                   key, world.value[key] == 0 ? "absent" : "there", pando_status_text(status));
    if (status == PANDO_OK)
        CHECK(slice_equal(found, value_of(world.value[key], expected)));
}

static void check_all_co(void)
{
    struct job scan = {.kind = SCAN}, verify = {.kind = VERIFY};
    unsigned pairs = 0;

    for (uint64_t key = 0; key < KEYS; key++) {
        check_key_co(key);
        pairs += world.value[key] != 0;
    }
    CHECK_OK(do_co(&scan));
    CHECK_EQ_U64(scan.pairs, pairs);
    if (do_co(&verify) != PANDO_OK)
        CHECK_FAIL("after allocation %" PRIu64 " failed: %s", world.first, verify.error);
    CHECK_EQ_U64(verify.census.pairs, pairs);
}

static void fail(uint64_t first, uint64_t count, bool blocks_only)
{
    for (int i = 0; i < 2; i++) {
        struct pool *pool = world.users[i].member.pool;
        if (blocks_only)
            pool_fail_blocks(pool, first, count);
        else
            pool_fail_allocations(pool, first, count);
    }
}

/* False: no process came to that allocation any more. When only blocks cannot be had, everything can be read
 * meanwhile; but not who would own keys that are moved, because of the map. */
static bool try_co(uint64_t first, uint64_t count, bool blocks_only)
{
    world.first = first;
    world.count = count;
    fail(first, count, blocks_only);
    round_co(!blocks_only);
    for (uint64_t key = 0; key < KEYS && blocks_only; key++)
        check_key_co(key);
    bool came = false;
    for (int i = 0; i < 2; i++)
        came = came || pool_allocations_asked(world.users[i].member.pool) >= first;
    fail(0, 0, false);
    check_all_co();
    world.failed_rounds += came;
    return came;
}

/* ---- users ----------------------------------------------------------------------------------- */

static void open_co(struct user *self)
{
    CHECK_OK(dex_open_co(&self->member, "t", world.without));
    CHECK_OK(engine_attach_co(self->member.table, self->member.session, &self->engine));
}

static void close_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->member.table, self->member.session);
}

static void first_task(void *arg)
{
    struct user *self = &world.users[0];

    dex_join_co(arg, &self->member);
    CHECK_OK(engine_create_co(&dex_engine, self->member.session, "t", world.shape));
    open_co(self);
    world.ready[0] = true;
    while (!world.ready[1])
        rt_sleep_co(LEASE_NS);
    for (uint64_t key = 0; key < KEYS; key += 2)
        put_co(key);
    CHECK_EQ_U64(world.refused, 0);
    for (uint64_t first = 1; first < ALLOCATIONS_MAX; first++) {
        bool alone = try_co(first, 1, false);
        bool followed = try_co(first, UINT64_MAX, false);
        bool blocks = try_co(first, UINT64_MAX, true);
        if (!alone && !followed && !blocks)
            break;
    }
    CHECK(world.first < ALLOCATIONS_MAX - 1 && world.refused > 0);
    printf("%u rounds with failures, %u operations refused\n", world.failed_rounds, world.refused);
    close_co(self);
    world.done = true;
    dex_leave_co(&self->member);
}

static void second_task(void *arg)
{
    struct user *self = &world.users[1];

    while (!world.ready[0])
        rt_sleep_co(LEASE_NS);
    dex_join_co(arg, &self->member);
    open_co(self);
    world.ready[1] = true;
    while (!world.done) {
        struct job *job = world.job;
        world.job = NULL;
        if (job != NULL)
            work_co(self->engine, job);
        else
            rt_sleep_co(RT_NS_PER_US);
    }
    close_co(self);
    dex_leave_co(&self->member);
}

static void run(uint64_t seed, const struct engine_shape *shape, const char *without)
{
    struct dex_world place;
    dex_world_build(&place, seed, 33);
    world = (struct world){.shape = shape, .without = without};
    prng_seed(&world.prng, seed);
    dex_world_run(&place, first_task, second_task);
    CHECK(world.done);
}

/* Another seed may be given. */
int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 7;
    run(seed, &shapes[0], NULL);
    run(seed, &shapes[1], NULL);
    run(seed, &shapes[1], "cache");
    return 0;
}
