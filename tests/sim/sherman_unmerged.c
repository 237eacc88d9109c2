/*
 * More nodes of a Sherman table are left unmerged than can be remembered, as when many delete side by side and are in
 * each other's way: maintenance walks over all leaves once, and merges what is worth it. What is written meanwhile
 * stays.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/blink/blink_int.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

enum {
    KEYS = 20000,
    KEPT_EACH = 1000,
    CHUNKS = 32,
    FORGOTTEN = 10000,
    ROUNDS_MAX = 4000,
    LEAVES_MANY = 500,
    LEAVES_FEW = 4
};

static const struct engine_shape shapes[] = {
    {.key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 512},
    {.key_max = 8, .value_inline = 16, .node_bytes = 512},
};

static struct dex_world place;
static const struct engine_shape *shape;
static unsigned done;

static void open_co(struct dex_member *self, const char *without, struct engine **engine)
{
    struct engine_config config = {.kept = true, .cache_bytes = 1 << 20, .without = without};
    char error[256];
    CHECK_OK(engine_open_co(&sherman_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

static void close_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static uint64_t leaves_co(struct engine *engine, uint64_t pairs)
{
    struct engine_census census;
    char error[256];
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    CHECK_EQ_U64(census.pairs, pairs);
    return census.leaves;
}

/* Some keys in a row stay, all others go, and nothing is merged. */
static void delete_most_co(struct dex_member *self)
{
    struct engine *engine;
    uint64_t key;
    open_co(self, "merge", &engine);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(
            engine_put_co(engine, number_key(i, &key), slice_of(&i, sizeof(i)), ENGINE_INSERT));
    for (uint64_t i = 0; i < KEYS; i++) {
        if (i % KEPT_EACH != 0)
            CHECK_OK(engine_delete_co(engine, number_key(i, &key)));
    }
    CHECK(leaves_co(engine, KEYS / KEPT_EACH) > LEAVES_MANY);
    close_co(self, engine);
}

/* Has more nodes forgotten than are remembered, and maintenance do what is left; keys come and go meanwhile. */
static void forget_and_maintain_co(struct dex_member *self, struct engine *engine,
                                   struct blink_tree *tree)
{
    uint64_t key;
    unsigned rounds = 0;
    for (unsigned i = 0; i < FORGOTTEN; i++)
        unmerged_add(tree->unmerged, 0, number_key(7, &key));
    CHECK(unmerged_walks(tree->unmerged));
    for (; unmerged_walks(tree->unmerged); rounds++) {
        uint64_t number = KEYS + rounds;
        CHECK(rounds < ROUNDS_MAX);
        engine_maintain_co(self->table, self->session);
        CHECK_OK(engine_put_co(engine, number_key(number, &key), slice_of(&number, sizeof(number)),
                               ENGINE_UPSERT));
        CHECK_OK(engine_delete_co(engine, number_key(number, &key)));
    }
}

/* First somebody is in the way of all that would change the root, so that parents of single leaves stay behind. */
static void walk_co(struct dex_member *self)
{
    struct engine *engine;
    struct pool_lock lock;
    uint64_t word;
    open_co(self, NULL, &engine);
    struct blink_tree *tree = &container_of(self->table, struct sherman_table, base)->blink;
    CHECK_OK(pool_root_read_co(self->session, tree->slot, &word));
    CHECK_OK(pool_lock_co(self->session, pool_lock_for(self->pool, word), &lock));
    forget_and_maintain_co(self, engine, tree);
    CHECK_OK(pool_unlock_co(self->session, &lock));
    uint64_t leaves = leaves_co(engine, KEYS / KEPT_EACH);
    CHECK(leaves > LEAVES_FEW && leaves < LEAVES_MANY / 4);
    forget_and_maintain_co(self, engine, tree);
    CHECK(leaves_co(engine, KEYS / KEPT_EACH) <= LEAVES_FEW);
    close_co(self, engine);
}

static void member_task(void *arg)
{
    struct dex_member self;
    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", shape));
    delete_most_co(&self);
    walk_co(&self);
    dex_leave_co(&self);
    done++;
}

int main(void)
{
    for (unsigned i = 0; i < 2; i++) {
        shape = &shapes[i];
        dex_world_build(&place, 5 + i, CHUNKS);
        dex_world_run(&place, member_task, NULL);
    }
    CHECK_EQ_U64(done, 2);
    return 0;
}
