/*
 * Blocks of long values that are used again while somebody still has an old leaf in hand
 * (rule stale-read-limit).
 *
 * A scan over megabytes on a slow link takes longer than the grace period: blobs that its leaf referred to
 * are freed and become other keys' meanwhile. What it delivers is always the key's own value, and one that the
 * key had during the scan. A forwarded change that is made only if the value is still the one that was seen
 * does not take a later value in the same block for it.
 */
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/sherman/sherman.h"

enum {
    KEYS = 46,
    SHORT_KEYS =
        12, /* those that a scan comes to last have short values, which are replaced all the time */
    LONG_BYTES = 1200 * 1024,
    SHORT_BYTES = 304,
    CHUNKS = 320,
    ADDS = 4,
};

static const uint64_t SLOW_LEASE_NS = 200 * RT_NS_PER_MS;
static const double SLOW_BYTES_PER_NS = 0.01;

static const struct engine_shape shape = {.key_max = 8, .value_inline = 16, .node_bytes = 8192};

static struct state {
    const struct engine_ops *engine;
    bool reverse;
    bool ready, reading, scanned, wrote;
    uint64_t acknowledged[KEYS]; /* the last change of each key */
    uint64_t begun[KEYS];
    uint64_t least[KEYS]; /* as it was when the scan began */
    unsigned pairs, rounds;
    unsigned adds;
} state;

static uint8_t value_bytes[LONG_BYTES];

static bool is_short(uint64_t key)
{
    return state.reverse ? key < SHORT_KEYS : key >= KEYS - SHORT_KEYS;
}

static struct slice value_of(uint64_t key, uint64_t change)
{
    size_t size = is_short(key) ? SHORT_BYTES : LONG_BYTES;
    for (size_t i = 0; i < size; i += 16) {
        memcpy(value_bytes + i, &key, 8);
        memcpy(value_bytes + i + 8, &change, 8);
    }
    return slice_of(value_bytes, size);
}

static bool look_at_pair(void *context, struct slice key, struct slice value)
{
    uint64_t number, word, change;
    (void)context;
    CHECK_EQ_U64(key.size, 8);
    memcpy(&number, key.data, 8);
    number = __builtin_bswap64(number);
    CHECK(number < KEYS);
    CHECK_EQ_U64(value.size, is_short(number) ? SHORT_BYTES : LONG_BYTES);
    memcpy(&change, value.data + 8, 8);
    for (size_t i = 0; i < value.size; i += 16) {
        memcpy(&word, value.data + i, 8);
        CHECK_EQ_U64(word, number); /* its own value */
        memcpy(&word, value.data + i + 8, 8);
        CHECK_EQ_U64(word, change); /* one of them */
    }
    CHECK(change >= state.least[number] && change <= state.begun[number]);
    state.pairs++;
    return true;
}

static void join_co(struct fabric *fabric, struct dex_member *self, const struct engine_ops *ops,
                    bool create, struct engine **engine)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = SLOW_LEASE_NS};
    struct engine_config config = {.cache_bytes = 1 << 20};
    char error[256] = "";

    CHECK_OK(pool_join_co(fabric, &options, &self->pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(self->pool, &self->session));
    if (create)
        CHECK_OK(engine_create_co(ops, self->session, "t", &shape));
    CHECK_OK(engine_open_co(ops, self->session, "t", &config, &self->table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, engine));
}

static void leave_co(struct dex_member *self, struct engine *engine)
{
    engine_detach_co(engine);
    engine_close_co(self->table, self->session);
    dex_leave_co(self);
}

static void put_co(struct engine *engine, uint64_t number)
{
    uint64_t bytes, change = ++state.begun[number];
    CHECK_OK(
        engine_put_co(engine, number_key(number, &bytes), value_of(number, change), ENGINE_UPSERT));
    state.acknowledged[number] = change;
}

/* ---- a slow scan ------------------------------------------------------------------------------ */

/* Replaces the short values, from another key on each time, so that blocks go from key to key. */
static void writer_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct engine_census census;
    char error[256] = "";

    join_co(arg, &self, state.engine, true, &engine);
    for (uint64_t i = 0; i < KEYS; i++)
        put_co(engine, i);
    state.ready = true;
    while (!state.reading)
        rt_sleep_co(RT_NS_PER_MS);
    for (; !state.scanned; state.rounds++) {
        for (uint64_t i = 0; i < SHORT_KEYS && !state.scanned; i++) {
            uint64_t number = (i + 5 * state.rounds) % SHORT_KEYS;
            put_co(engine, state.reverse ? number : number + KEYS - SHORT_KEYS);
        }
        put_co(engine, state.reverse ? KEYS - 1 : 0); /* megabytes, too */
        rt_sleep_co(SLOW_LEASE_NS + RT_NS_PER_S);     /* then all those blocks are used again */
    }
    CHECK_OK(engine_verify_co(engine, &census, error, sizeof(error)));
    CHECK_EQ_U64(census.pairs, KEYS);
    leave_co(&self, engine);
    state.wrote = true;
}

static void reader_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    struct engine_range range = {.no_high = true, .reverse = state.reverse};

    while (!state.ready)
        rt_sleep_co(RT_NS_PER_MS);
    join_co(arg, &self, state.engine, false, &engine);
    memcpy(state.least, state.acknowledged, sizeof(state.least));
    state.reading = true;
    uint64_t begin_ns = rt_now_ns();
    CHECK_OK(engine_scan_co(engine, &range, look_at_pair, NULL));
    CHECK_EQ_U64(state.pairs, KEYS);
    CHECK(rt_now_ns() - begin_ns > SLOW_LEASE_NS + RT_NS_PER_S); /* blocks were used again */
    printf("%s%s: %" PRIu64 " ms, %u rounds\n", state.engine->name,
           state.reverse ? " backwards" : "", (rt_now_ns() - begin_ns) / RT_NS_PER_MS,
           state.rounds);
    CHECK(state.rounds >= 1);
    state.scanned = true;
    leave_co(&self, engine);
}

/* ---- a change that must not be made ------------------------------------------------------------ */

/* Long values that end in a number. */
static struct engine_change add_one(void *context, const struct slice *old)
{
    uint64_t number = 0;
    uint8_t *room = context;
    if (old != NULL)
        memcpy(&number, old->data, sizeof(number));
    number++;
    memcpy(room, &number, sizeof(number));
    return (struct engine_change){.what = ENGINE_STORE, .value = slice_of(room, SHORT_BYTES)};
}

/* Between the two calls of a forwarded change the owner's own go on until the block is used again. */
static struct engine_change add_slowly(void *context, const struct slice *old)
{
    if (!state.reading) {
        state.reading = true;
        while (state.adds < ADDS)
            rt_sleep_co(RT_NS_PER_MS);
    }
    return add_one(context, old);
}

static void owner_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    static uint8_t room[SHORT_BYTES];
    uint64_t bytes, result;
    size_t size;

    join_co(arg, &self, &dex_engine, true, &engine);
    struct slice key = number_key(5, &bytes);
    CHECK_OK(engine_modify_co(engine, key, false, add_one, room));
    state.ready = true;
    while (!state.reading)
        rt_sleep_co(RT_NS_PER_MS);
    for (unsigned i = 0; i < ADDS; i++) {
        CHECK_OK(engine_modify_co(engine, key, false, add_one, room));
        rt_sleep_co(SLOW_LEASE_NS + RT_NS_PER_S + 10 * RT_NS_PER_MS);
        state.adds++;
    }
    while (!state.scanned)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK_OK(engine_get_co(engine, key, &result, sizeof(result), &size));
    CHECK_EQ_U64(size, SHORT_BYTES);
    CHECK_EQ_U64(result, 1 + ADDS + 1);
    leave_co(&self, engine);
    state.wrote = true;
}

static void forwarder_task(void *arg)
{
    struct dex_member self;
    struct engine *engine;
    static uint8_t room[SHORT_BYTES];
    uint64_t bytes;

    while (!state.ready)
        rt_sleep_co(RT_NS_PER_MS);
    join_co(arg, &self, &dex_engine, false, &engine);
    CHECK(!engine_owns(engine, number_key(5, &bytes)));
    CHECK_OK(engine_modify_co(engine, number_key(5, &bytes), false, add_slowly, room));
    state.scanned = true;
    leave_co(&self, engine);
}

static void run(rt_fn first, rt_fn second, double bytes_per_ns)
{
    struct sim_nic_model model = *sim_nic_model("cx5");
    struct dex_world place;
    if (bytes_per_ns > 0)
        model.bytes_per_ns = bytes_per_ns;
    dex_world_build_on(&place, 5, CHUNKS, &model);
    dex_world_run(&place, first, second);
    CHECK(state.wrote && state.scanned);
}

int main(void)
{
    static const struct engine_ops *const engines[] = {&sherman_engine, &dex_engine};
    for (unsigned i = 0; i < 4; i++) {
        state = (struct state){.engine = engines[i / 2], .reverse = i % 2 == 1};
        run(writer_task, reader_task, SLOW_BYTES_PER_NS);
    }
    state = (struct state){0};
    run(owner_task, forwarder_task, 0);
    return 0;
}
