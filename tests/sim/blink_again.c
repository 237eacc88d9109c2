/*
 * A search of a tree that begins again while the fabric takes no more lists: it waits, and neither
 * ends nor says that it has found something.
 */
#include <stdlib.h>

#include "pool/pool_int.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/blink/blink_int.h"
#include "tree/sherman/sherman.h"
#include "tree/sherman/sherman_int.h"

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 512};

static struct {
    struct fabric_op op;
    struct fabric_list list;
    uint64_t word;
} * reads;

/* As many as fit on the endpoint that all this session's lists to node 0 go over. */
static void fill(struct dex_member *self)
{
    struct fabric_endpoint *endpoint = pool_endpoint(self->session, 0);
    uint64_t at = self->pool->first + POOL_EPOCH;
    for (unsigned i = 0; i < FABRIC_OUTSTANDING_MAX; i++) {
        reads[i].op = fabric_read(at, &reads[i].word, sizeof(reads[i].word));
        reads[i].list = (struct fabric_list){.ops = &reads[i].op, .count = 1};
        fabric_post(endpoint, &reads[i].list);
    }
}

static void search_co(struct dex_member *self, struct engine *engine)
{
    uint64_t key, word;
    struct blink_target target = {.key = number_key(1, &key)};
    struct pool_retry retry = {0};
    struct step step = step_to(STEP_RESTART);

    fill(self);
    CHECK_STATUS(pool_word_read_co(self->session, fabric_address_make(0, self->pool->first), &word),
                 PANDO_AGAIN);
    bool again = blink_again_co(&sherman_of(engine)->blink, &target, &retry, &step);
    if (!again && step.status == PANDO_OK)
        CHECK_FAIL("a search that found nothing has ended with OK");
    CHECK(again);
    for (unsigned i = 0; i < FABRIC_OUTSTANDING_MAX; i++)
        CHECK_OK(fabric_wait_co(&reads[i].list));
}

static void member_task(void *arg)
{
    struct engine_config config = {.kept = true, .cache_bytes = 1 << 20};
    struct dex_member self;
    struct engine *engine;
    char error[256];
    dex_join_co(arg, &self);
    CHECK_OK(engine_create_co(&sherman_engine, self.session, "t", &shape));
    CHECK_OK(engine_open_co(&sherman_engine, self.session, "t", &config, &self.table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self.table, self.session, &engine));
    search_co(&self, engine);
    engine_detach_co(engine);
    engine_close_co(self.table, self.session);
    dex_leave_co(&self);
}

int main(void)
{
    static struct dex_world place;
    reads = calloc(FABRIC_OUTSTANDING_MAX, sizeof(*reads));
    CHECK(reads != NULL);
    dex_world_build(&place, 5, 8);
    dex_world_run(&place, member_task, NULL);
    free(reads);
    return 0;
}
