/*
 * Operations without memory: the k-th allocation of a round of operations fails, or all from it on, for every k.
 * Nothing aborts; an operation is done, or says NO_MEMORY and has changed nothing; later ones work, and the table
 * is sound. The pool is this process's own memory, and malloc is replaced here.
 */
#include <errno.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/prng.h"
#include "engine/engine.h"
#include "lib/check.h"
#include "store/engines.h"
#include "store/env.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
    SKIP("a sanitizer has a malloc of its own");
}

#else

/* ---- memory that runs out ---------------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* Of the thread that the test runs on. */
static _Thread_local struct {
    bool on, all;
    uint64_t asked, fail_at;
} shortage;

static bool refused(void)
{
    if (!shortage.on)
        return false;
    shortage.asked++;
    bool refuse =
        shortage.all ? shortage.asked >= shortage.fail_at : shortage.asked == shortage.fail_at;
    if (refuse)
        errno = ENOMEM;
    return refuse;
}

void *malloc(size_t size)
{
    return refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return refused() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : __libc_memalign(alignment, size);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (refused())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

/* ---- operations -------------------------------------------------------------------------------- */

enum {
    KEYS = 400,
    CHANGES = 24, /* in a round */
    VALUE_MAX = 6000,
    LONG_EVERY = 3,
    ROUNDS_MAX = 2000,
    BATCH = 16,
    NODE_BYTES = 1024,
    STEP = 3, /* joining takes a while: not every allocation of a new member */
};

struct world {
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
    struct prng prng;
    uint32_t model[KEYS]; /* which value; 0: none */
    uint32_t next;
    unsigned refusals;
};

static struct slice key_of(uint64_t number, char out[16])
{
    snprintf(out, 16, "key-%08u", (unsigned)number);
    return slice_of_text(out);
}

static struct slice value_of(uint32_t value, uint8_t out[VALUE_MAX])
{
    size_t size = value % LONG_EVERY == 0 ? 40 + value * 37 % (VALUE_MAX - 40) : 8 + value % 24;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(value + i);
    memcpy(out, &value, sizeof(value));
    return slice_of(out, size);
}

/* Whether it was done. FULL: the memory node is this process, too, and had no memory to cut a chunk; a pool that
 * is full indeed would refuse the round without a shortage as well. */
static bool settled(struct world *world, enum pando_status status, enum pando_status otherwise)
{
    if (status != PANDO_OK && status != otherwise && status != PANDO_FULL)
        CHECK_STATUS(status, PANDO_NO_MEMORY);
    world->refusals += status == PANDO_NO_MEMORY || status == PANDO_FULL;
    return status == PANDO_OK;
}

struct edit {
    uint32_t value;
    uint8_t bytes[VALUE_MAX];
};

static struct engine_change replace(void *context, const struct slice *old)
{
    struct edit *edit = context;
    if (old == NULL)
        return (struct engine_change){.what = ENGINE_KEEP};
    return (struct engine_change){.what = ENGINE_STORE,
                                  .value = value_of(edit->value, edit->bytes)};
}

static void change_co(struct world *world)
{
    static struct edit edit;
    uint64_t number = prng_next(&world->prng) % KEYS, what = prng_next(&world->prng) % 8;
    char text[16];
    struct slice key = key_of(number, text);
    uint32_t *model = &world->model[number];

    edit.value = ++world->next;
    if (what == 0) {
        if (settled(world, engine_delete_co(world->engine, key), PANDO_NOT_FOUND))
            *model = 0;
    } else if (what == 1) {
        if (settled(world, engine_modify_co(world->engine, key, false, replace, &edit), PANDO_OK) &&
            *model != 0)
            *model = edit.value;
    } else if (settled(world,
                       engine_put_co(world->engine, key, value_of(edit.value, edit.bytes),
                                     ENGINE_UPSERT),
                       PANDO_OK)) {
        *model = edit.value;
    }
}

static void get_co(struct world *world, uint64_t number)
{
    static uint8_t got[VALUE_MAX], wanted[VALUE_MAX];
    char text[16];
    size_t size = 0;
    enum pando_status status =
        engine_get_co(world->engine, key_of(number, text), got, sizeof(got), &size);
    if (!settled(world, status, world->model[number] == 0 ? PANDO_NOT_FOUND : PANDO_OK))
        return;
    struct slice value = value_of(world->model[number], wanted);
    CHECK(world->model[number] != 0);
    CHECK(slice_equal(value, slice_of(got, size)));
}

static bool look_at_pair(void *context, struct slice key, struct slice value)
{
    static uint8_t wanted[VALUE_MAX];
    struct world *world = context;
    uint64_t number = strtoul((const char *)key.data + 4, NULL, 10);
    CHECK(number < KEYS && world->model[number] != 0);
    CHECK(slice_equal(value_of(world->model[number], wanted), value));
    return true;
}

static void scan_co(struct world *world, bool reverse)
{
    struct engine_range range = {.no_high = true, .reverse = reverse};
    (void)settled(world, engine_scan_co(world->engine, &range, look_at_pair, world), PANDO_OK);
}

static void batch_co(struct world *world)
{
    static uint8_t values[BATCH][VALUE_MAX];
    struct engine_batch_op ops[BATCH];
    char keys[BATCH][16];
    uint64_t first = prng_next(&world->prng) % (KEYS - BATCH);
    for (uint64_t i = 0; i < BATCH; i++)
        ops[i] = (struct engine_batch_op){.kind = ENGINE_BATCH_PUT,
                                          .key = key_of(first + i, keys[i]),
                                          .value = value_of(++world->next, values[i])};
    uint32_t value = world->next - BATCH;
    engine_batch_co(world->engine, ops, BATCH, BATCH);
    for (uint64_t i = 0; i < BATCH; i++) {
        value++;
        if (settled(world, ops[i].status, PANDO_OK))
            world->model[first + i] = value;
    }
}

static void round_co(struct world *world)
{
    batch_co(world);
    for (unsigned i = 0; i < CHANGES; i++) {
        change_co(world);
        get_co(world, prng_next(&world->prng) % KEYS);
    }
    scan_co(world, false);
    scan_co(world, true);
}

/* False: there are not so many allocations. */
static bool short_round_co(struct world *world, uint64_t fail_at, bool all)
{
    CHECK_OK(engine_attach_co(world->table, world->session, &world->engine));
    shortage.asked = 0;
    shortage.fail_at = fail_at;
    shortage.all = all;
    shortage.on = true;
    round_co(world);
    shortage.on = false;
    uint64_t asked = shortage.asked;
    unsigned refusals = world->refusals;
    round_co(world); /* as if nothing had been */
    CHECK_EQ_U64(world->refusals, refusals);
    engine_detach_co(world->engine);
    return asked >= fail_at;
}

static void open_co(struct world *world, const char *name)
{
    struct engine_shape shape = {.key_max = 16, .value_inline = 32, .node_bytes = NODE_BYTES};
    struct engine_config config = {.cache_bytes = 64 * 1024};
    const struct engine_ops *ops = store_engine(name);
    char error[512];

    prng_seed(&world->prng, 7);
    CHECK_OK(engine_create_co(ops, world->session, name, &shape));
    CHECK_OK(
        engine_open_co(ops, world->session, name, &config, &world->table, error, sizeof(error)));
}

static void drop_co(struct world *world)
{
    struct engine_census census;
    uint64_t pairs = 0;
    char error[512];

    CHECK_OK(engine_attach_co(world->table, world->session, &world->engine));
    for (uint64_t i = 0; i < KEYS; i++)
        pairs += world->model[i] != 0;
    enum pando_status status = engine_verify_co(world->engine, &census, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("not sound: %s", error);
    CHECK_EQ_U64(census.pairs, pairs);
    engine_detach_co(world->engine);
    CHECK_OK(engine_drop_co(world->table, world->session));
    engine_close_co(world->table, world->session);
}

static void one_table_co(struct pool_session *session, const char *name)
{
    struct world world = {.session = session};
    uint64_t rounds[2] = {0, 0};

    open_co(&world, name);
    for (int all = 0; all < 2; all++) {
        while (short_round_co(&world, ++rounds[all], all == 1))
            CHECK(rounds[all] < ROUNDS_MAX);
    }
    printf("%s: %u operations refused; %" PRIu64 " and %" PRIu64 " rounds\n", name, world.refusals,
           rounds[0], rounds[1]);
    CHECK(rounds[0] > 20 && world.refusals > rounds[0] / 2);
    drop_co(&world);
}

static void join_co(struct fabric *fabric, struct pool **pool, struct pool_session **session)
{
    struct pool_options options = {.memory_nodes = 1, .name = "test", .lease_ns = RT_NS_PER_S};
    char error[256];
    CHECK_OK(pool_join_co(fabric, &options, pool, error, sizeof(error)));
    CHECK_OK(pool_session_open_co(*pool, session));
}

static void leave_co(struct pool *pool, struct pool_session *session)
{
    pool_session_close_co(session);
    pool_leave_co(pool);
}

/* Each time as a new member with a new table: what is allocated when something is done for the first time. */
static void new_tables_co(struct fabric *fabric, const char *name)
{
    uint64_t fail_at = 0;
    unsigned refusals = 0;
    bool more = true;

    while (more) {
        struct world world = {0};
        struct pool *pool;
        join_co(fabric, &pool, &world.session);
        open_co(&world, name);
        more = short_round_co(&world, fail_at += STEP, false);
        drop_co(&world);
        leave_co(pool, world.session);
        refusals += world.refusals;
        CHECK(fail_at < ROUNDS_MAX);
    }
    printf("%s: %" PRIu64 " new tables, %u operations refused\n", name, fail_at / STEP, refusals);
    CHECK(refusals > fail_at / STEP / 4);
}

static void main_co(void *context, const struct env_place *place)
{
    struct pool_session *session;
    struct pool *pool;
    (void)context;

    join_co(place->fabric, &pool, &session);
    one_table_co(session, "sherman");
    one_table_co(session, "dex");
    leave_co(pool, session);
    new_tables_co(place->fabric, "sherman");
    new_tables_co(place->fabric, "dex");
}

int main(void)
{
    struct env_options options = {.uri = "embedded:256M"};
    struct env *env;
    char error[256];
    log_set_level(LOG_LEVEL_ERROR);
    CHECK_OK(env_open(&options, &env, error, sizeof(error)));
    CHECK_OK(env_run(env, 1, main_co, NULL));
    env_close(env);
    return 0;
}

#endif
