/*
 * A leaf that was emptied between full ones goes, though it is no smaller for them to be together.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/tree.h"

enum { KEYS = 20 * 1000, EVERY = 3 };

static bool done;

static unsigned pairs_per_leaf_co(struct dex *self)
{
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint64_t key;
    CHECK_OK(dex_local_leaf_co(self, number_key(0, &key), false, scratch));
    unsigned pairs = page_pairs(scratch->page);
    dex_scratch_give(self, scratch);
    return pairs;
}

static uint64_t leaves_co(struct engine *engine)
{
    struct engine_census census;
    char error[256];
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    return census.leaves;
}

static void member_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct number_feed feed = {.end = KEYS};

    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&dex_engine, self.session, "t", &number_shape));
    dex_attach_co(&self, &engine);
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 100));
    uint64_t before = leaves_co(engine);
    unsigned pairs = pairs_per_leaf_co(dex_of(engine));
    CHECK(pairs > 10 && before >= KEYS / pairs);
    for (uint64_t number = 0; number < KEYS; number++) {
        uint64_t key;
        if (number / pairs % EVERY == 1)
            CHECK_OK(engine_delete_co(engine, number_key(number, &key)));
    }
    uint64_t after = leaves_co(engine);
    printf("%u pairs a leaf: %" PRIu64 " leaves before, %" PRIu64 " after\n", pairs, before, after);
    /* But for the few that have no neighbour under their own parent. */
    CHECK(after <= before - before / EVERY + before / 50);
    dex_end_co(&self, engine);
    done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 5, 9);
    dex_world_run(&place, member_task, NULL);
    CHECK(done);
    return 0;
}
