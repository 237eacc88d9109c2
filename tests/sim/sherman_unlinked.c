/*
 * unlinked-sibling (R21): the sibling of a split is not believed before the split is done, neither
 * by readers nor by writers, though a stale pointer leads to it: a leaf is merged away and its
 * block is used again for the sibling of a split of the same keys, while another client still has
 * the address in its cache. The splitter is killed, or paused, between the write of the sibling and
 * that of the node. What the other client then writes is there for everybody. Likewise the leaves
 * of a load that dies before its root is in place: nobody finds them.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum { KEYS = 48, KEPT = 32, LAST = KEYS - 1, NEW = 777 };

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 512};

enum fault { NOTHING, KILLED, PAUSED, FAULTS };
static const char *const names[FAULTS] = {"nothing", "killed", "paused"};

static struct dex_world place;
static enum fault fault;
static enum { BEGIN, FILLED, CACHED, MERGED } stage;
static fabric_address block; /* of the leaf that is merged away */
static bool split_seen, done;

static void reach_co(int wanted)
{
    while ((int)stage < wanted)
        rt_sleep_co(10 * RT_NS_PER_US);
}

static struct engine *open_co(struct dex_member *self, const char *without)
{
    struct engine_config config = {.cache_bytes = 1 << 20, .without = without};
    struct engine *engine;
    char error[256];
    CHECK_OK(engine_open_co(&sherman_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    return engine;
}

static void close_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static enum pando_status put_co(struct engine *engine, uint64_t number, uint64_t value)
{
    uint64_t key;
    return engine_put_co(engine, number_key(number, &key), slice_of(&value, sizeof(value)),
                         ENGINE_UPSERT);
}

/* ---- the splitter ---------------------------------------------------------------------------- */

static void splitter_task(void *arg)
{
    struct dex_member self;
    uint64_t key;
    enum pando_status status = PANDO_OK;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &shape));
    struct engine *engine = open_co(&self, "combine");
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(put_co(engine, i, i));
    stage = FILLED;
    reach_co(CACHED);
    for (uint64_t i = KEPT; i < KEYS; i++)
        CHECK_OK(engine_delete_co(engine, number_key(i, &key)));
    rt_sleep_co(pool_grace_ns(self.pool) + 2 * LEASE_NS);
    stage = MERGED;
    for (uint64_t i = KEPT; i < LAST && status == PANDO_OK; i++)
        status = put_co(engine, i, i);
    if (fault != KILLED) {
        CHECK_OK(status);
        while (!done)
            rt_sleep_co(LEASE_NS);
    }
    close_co(&self, engine);
    dex_leave_co(&self);
}

/* ---- the client with the old pointer --------------------------------------------------------- */

static void learn_co(struct engine *engine)
{
    struct sherman *self = sherman_of(engine);
    struct blink_scratch *scratch = blink_scratch_take(&self->blink);
    uint64_t key, value;
    size_t size;
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(engine_get_co(engine, number_key(i, &key), &value, sizeof(value), &size));
    CHECK_OK(blink_locate_co(&self->blink, number_key(LAST, &key), 0, scratch->node, &block));
    blink_scratch_give(&self->blink, scratch);
}

/* The moment at which the block is part of the table again. */
static void await_sibling_co(void)
{
    uint64_t word = 0;
    for (int i = 0; i < 2000000; i++) {
        CHECK_OK(fabric_self_read(place.memory, fabric_address_offset(block) + POOL_BLOCK_TENURE,
                                  &word, sizeof(word)));
        split_seen = pool_tenure_unpack(word).state == POOL_BLOCK_LIVE;
        if (split_seen)
            return;
        rt_sleep_co(50);
    }
}

static void client_task(void *arg)
{
    struct dex_member self, other;
    uint64_t key, value = 0;
    size_t size;

    reach_co(FILLED);
    dex_join_co(arg, &self);
    struct engine *engine = open_co(&self, NULL);
    other = self;
    learn_co(engine);
    stage = CACHED;
    reach_co(MERGED);
    await_sibling_co();
    if (fault == KILLED)
        fabric_sim_kill(place.members[0]);
    if (fault == PAUSED)
        fabric_sim_pause(place.members[0], LEASE_NS / 2);
    CHECK_OK(put_co(engine, LAST, NEW));
    struct engine *fresh = open_co(&other, "cache");
    CHECK_OK(engine_get_co(fresh, number_key(LAST, &key), &value, sizeof(value), &size));
    CHECK_EQ_U64(value, NEW);
    for (uint64_t i = 0; i < KEPT; i++) {
        CHECK_OK(engine_get_co(fresh, number_key(i, &key), &value, sizeof(value), &size));
        CHECK_EQ_U64(value, i);
    }
    CHECK_OK(engine_get_co(engine, number_key(LAST, &key), &value, sizeof(value), &size));
    CHECK_EQ_U64(value, NEW);
    close_co(&other, fresh);
    close_co(&self, engine);
    done = true;
    dex_leave_co(&self);
}

/* ---- a load that dies ------------------------------------------------------------------------ */

static uint64_t fed;

/* Gives pairs until all leaves but the last are written, then dies. */
static bool feed_and_die(void *context, struct slice *key, struct slice *value)
{
    static uint64_t bytes, number;
    if (fed == KEYS) {
        rt_sleep_co(RT_NS_PER_MS / 4);
        fabric_sim_kill(context);
        return false;
    }
    number = NEW + fed;
    *key = number_key(fed++, &bytes);
    *value = slice_of(&number, sizeof(number));
    return true;
}

static void loader_task(void *arg)
{
    struct dex_member self;
    uint64_t key;

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &shape));
    struct engine *engine = open_co(&self, NULL);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(put_co(engine, i, i));
    stage = FILLED;
    reach_co(CACHED);
    for (uint64_t i = KEYS; i-- > 0;)
        CHECK_OK(engine_delete_co(engine, number_key(i, &key)));
    rt_sleep_co(pool_grace_ns(self.pool) + 2 * LEASE_NS);
    fed = 0;
    enum pando_status status = engine_bulk_load_co(engine, feed_and_die, arg, 80);
    CHECK(status != PANDO_OK);
    stage = MERGED;
    close_co(&self, engine);
    dex_leave_co(&self);
}

static void reader_task(void *arg)
{
    struct dex_member self;
    uint64_t key, value;
    size_t size;

    reach_co(FILLED);
    dex_join_co(arg, &self);
    struct engine *engine = open_co(&self, NULL);
    learn_co(engine);
    stage = CACHED;
    reach_co(MERGED);
    rt_sleep_co(20 * LEASE_NS);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_STATUS(engine_get_co(engine, number_key(i, &key), &value, sizeof(value), &size),
                     PANDO_NOT_FOUND);
    close_co(&self, engine);
    dex_leave_co(&self);
    done = true;
}

int main(void)
{
    printf("a load dies\n");
    dex_world_build(&place, 7, 9);
    dex_world_run(&place, loader_task, reader_task);
    CHECK(done);
    for (fault = NOTHING; fault < FAULTS; fault++) {
        printf("the splitter: %s\n", names[fault]);
        stage = BEGIN;
        split_seen = done = false;
        dex_world_build(&place, 7 + fault, 9);
        dex_world_run(&place, splitter_task, client_task);
        CHECK(split_seen && done);
    }
    return 0;
}
