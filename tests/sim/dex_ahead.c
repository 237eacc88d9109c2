/*
 * Scans READ ahead in both directions, also when the cache is full and few leaves are kept: in virtual time, against
 * the same without `prefetch`. Many of them share the smallest cache there is without waiting for each other's frames.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"

enum { KEYS = 20 * 1000, CACHE_BYTES = 100 * 1024, CROWD = 16 };

static unsigned done;

/* The second time: the first fills the cache. */
static uint64_t scan_ns_co(struct dex_member *self, bool reverse, const char *without)
{
    struct engine_range range = {.no_high = true, .reverse = reverse};
    struct engine_config config = {.cache_bytes = CACHE_BYTES, .without = without};
    struct engine *engine;
    uint64_t took_ns = 0;
    char error[256];

    CHECK_OK(engine_open_co(&dex_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &engine));
    for (int i = 0; i < 2; i++) {
        unsigned count = 0;
        uint64_t begin_ns = rt_now_ns();
        CHECK_OK(engine_scan_co(engine, &range, count_pair, &count));
        CHECK_EQ_U64(count, KEYS);
        took_ns = rt_now_ns() - begin_ns;
    }
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
    return took_ns;
}

/* ---- a crowd --------------------------------------------------------------------------------- */

struct crowd {
    struct engine *engine;
    unsigned done;
};

static void scan_task(void *arg)
{
    struct crowd *crowd = arg;
    struct engine_range range = {.no_high = true, .reverse = crowd->done % 2 == 0};
    unsigned count = 0;
    CHECK_OK(engine_scan_co(crowd->engine, &range, count_pair, &count));
    CHECK_EQ_U64(count, KEYS);
    crowd->done++;
}

static void crowd_co(struct dex_member *self)
{
    struct engine_config config = {.cache_bytes = 1};
    struct crowd crowd = {0};
    char error[256];

    CHECK_OK(engine_open_co(&dex_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &crowd.engine));
    for (int i = 0; i < CROWD; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), scan_task, &crowd));
    while (crowd.done < CROWD)
        rt_sleep_co(RT_NS_PER_MS);
    engine_detach_co(crowd.engine);
    engine_close_co(self->table, self->session);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void load_co(struct dex_member *self)
{
    struct engine *engine;
    struct number_feed feed = {.end = KEYS};
    CHECK_OK(engine_create_co(&dex_engine, self->session, "t", &number_shape));
    dex_attach_co(self, &engine);
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 80));
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
}

static void member_task(void *arg)
{
    struct dex_member self;
    dex_join_co(arg, &self);
    load_co(&self);
    for (int reverse = 0; reverse < 2; reverse++) {
        uint64_t one_by_one = scan_ns_co(&self, reverse, "prefetch");
        uint64_t ahead = scan_ns_co(&self, reverse, NULL);
        printf("%s: %" PRIu64 " us one by one, %" PRIu64 " us ahead\n",
               reverse ? "reverse" : "forward", one_by_one / 1000, ahead / 1000);
        CHECK(ahead < one_by_one / 4 * 3);
    }
    crowd_co(&self);
    dex_leave_co(&self);
    done++;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 3, 9);
    dex_world_run(&place, member_task, NULL);
    CHECK_EQ_U64(done, 1);
    return 0;
}
