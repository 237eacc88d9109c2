/*
 * A DEX table that grows by inserts, in a pool of four memory nodes: none gets more than 1.3 times its share of
 * the table's bytes, in whatever order the keys come. What is deleted again leaves next to nothing, although pages
 * that merge lie on several nodes by then. Memory nodes with little room get little, and one that is full
 * is left alone.
 */
#include <stdlib.h>

#include "blob/blob_fmt.h"
#include "pool/directory_int.h"
#include "pool/pool_int.h"
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/dex/dex.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/pushdown/memory_side.h"

enum { NODES = 4, KEYS = 200000, MEMORY_MIB = 64, SHARE_PERCENT = 130 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;
static const uint64_t USAGE_NS = RT_NS_PER_S; /* what a node says of its use is not older */

enum order { RANDOM, RISING, FALLING, FALLING_INSIDE, SWEEPS, ORDERS };
static const char *const order_names[] = {"random", "rising", "falling", "falling inside",
                                          "sweeps"};

static struct pool_world place;
static enum order order;
static unsigned done;

struct user {
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
};

static void begin_co(struct user *self, struct fabric *fabric, const struct engine_shape *shape)
{
    struct engine_config config = {.cache_bytes = 16 << 20};
    char error[256] = "";
    self->pool = pool_world_join_co(&place, fabric, &self->session);
    CHECK_OK(engine_create_co(&dex_engine, self->session, "t", shape));
    CHECK_OK(engine_open_co(&dex_engine, self->session, "t", &config, &self->table, error,
                            sizeof(error)));
    CHECK_OK(engine_attach_co(self->table, self->session, &self->engine));
}

static void end_co(struct user *self)
{
    engine_detach_co(self->engine);
    engine_close_co(self->table, self->session);
    pool_world_leave_co(self->pool, self->session);
    done++;
}

/* The n-th key that is put. */
static uint64_t key_of(uint64_t n)
{
    switch (order) {
    case RISING:
        return n;
    case FALLING:
        return KEYS - n;
    case FALLING_INSIDE: /* behind some that are there already */
        return n < KEYS / 10 ? n : 2 * KEYS - n;
    case SWEEPS: /* rising, again and again, each time between those that are there */
        return n * 48271 % 2147483647;
    default: /* each once */
        n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
        return (n ^ n >> 27) * 0x94d049bb133111eb;
    }
}

/* Bytes of pages, and of long values unless only pages are meant, on each node. (An owner has one log, and a
 * table one map.) */
static uint64_t usage_co(struct user *self, bool pages_only, uint64_t bytes[NODES])
{
    uint64_t sum = 0;
    rt_sleep_co(USAGE_NS);
    for (uint16_t node = 0; node < NODES; node++) {
        struct pool_usage usage;
        bytes[node] = 0;
        CHECK_OK(pool_usage_co(self->session, node, &usage));
        for (uint32_t i = 0; i < usage.head.tables; i++) {
            if (usage.tables[i].kind == PAGE_KIND ||
                (usage.tables[i].kind == BLOB_KIND && !pages_only))
                bytes[node] += usage.tables[i].bytes;
        }
        pool_usage_free(&usage);
        sum += bytes[node];
    }
    return sum;
}

static void check_shares_co(struct user *self, const char *what)
{
    uint64_t bytes[NODES], sum = usage_co(self, false, bytes), most = 0;
    const struct dex_table *table = dex_of(self->engine)->table;
    for (int i = 0; i < NODES; i++)
        most = bytes[i] > most ? bytes[i] : most;
    printf("%s: %" PRIu64 " kB on each node of", what, sum / NODES / 1000);
    for (int i = 0; i < NODES; i++)
        printf(" %" PRIu64, bytes[i] / 1000);
    printf(", the most is %.2f of its share; %" PRIu64 " splits\n",
           (double)most * NODES / (double)sum, atomic_load(&table->stats.splits));
    if (most * NODES * 100 > sum * SHARE_PERCENT && getenv("SOFT") == NULL)
        CHECK_FAIL("%s: a node has %" PRIu64 " of %" PRIu64 " bytes", what, most, sum);
}

static void put_co(struct user *self, uint64_t number, struct slice value)
{
    uint64_t key;
    struct slice name = number_key(number, &key);
    CHECK_OK(engine_put_co(self->engine, name, value.size > 0 ? value : name, ENGINE_UPSERT));
}

static void verify_co(struct user *self, uint64_t pairs, struct engine_census *census)
{
    char error[256] = "";
    if (engine_verify_co(self->engine, census, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("%s: %s", order_names[order], error);
    CHECK_EQ_U64(census->pairs, pairs);
}

/* Grows, and shrinks again. */
static void order_task(void *arg)
{
    struct user self;
    struct engine_census census;
    uint64_t bytes[NODES], key;

    begin_co(&self, arg, &number_shape);
    for (uint64_t n = 0; n < KEYS; n++) {
        put_co(&self, key_of(n), slice_of(NULL, 0));
        if (n == KEYS / 4 || n == KEYS / 2)
            check_shares_co(&self, order_names[order]);
    }
    verify_co(&self, KEYS, &census);
    check_shares_co(&self, order_names[order]);
    CHECK_EQ_U64(usage_co(&self, true, bytes), census.nodes * number_shape.node_bytes);
    for (uint64_t n = 0; n < KEYS; n++)
        CHECK_OK(engine_delete_co(self.engine, number_key(key_of(n), &key)));
    verify_co(&self, 0, &census);
    printf("%s: %" PRIu64 " pages are left\n", order_names[order], census.nodes);
    CHECK(census.nodes <= 8);
    CHECK_EQ_U64(usage_co(&self, true, bytes), census.nodes * number_shape.node_bytes);
    end_co(&self);
}

/* Long values are spread, too, without regard to their keys. */
static void values_task(void *arg)
{
    enum { VALUES = 1500, BYTES = 20000 };
    static uint8_t value[BYTES];
    static const struct engine_shape shape = {
        .key_max = 16, .value_inline = 64, .node_bytes = 1024};
    struct user self;

    begin_co(&self, arg, &shape);
    for (uint64_t n = 0; n < VALUES; n++)
        put_co(&self, key_of(n), slice_of(value, BYTES));
    check_shares_co(&self, "long values");
    end_co(&self);
}

static uint64_t refusals_co(struct user *self, uint16_t node)
{
    struct pool_node_stats stats;
    CHECK_OK(pool_node_stats_co(self->session, node, &stats));
    return stats.refusals;
}

/* Takes chunks of a node until that many are left. */
static void occupy_co(struct user *self, uint16_t node, uint64_t left)
{
    struct pool_node_stats stats;
    CHECK_OK(pool_node_stats_co(self->session, node, &stats));
    for (uint64_t room = stats.chunks_free - stats.chunks_reserved; room > left; room--) {
        struct pool_block block;
        CHECK_OK(pool_alloc_co(self->session, node, POOL_CHUNK_BYTES, &block));
    }
}

/* One node has no room at all, and one a third of what the others have. All that there is can be used, and
 * whoever puts waits for no node that is full. */
static void unlike_task(void *arg)
{
    enum { BYTES = 20000, THIRD_MIB = MEMORY_MIB / 3, MUCH_MIB = 60 };
    static uint8_t value[BYTES];
    static const struct engine_shape shape = {
        .key_max = 16, .value_inline = 64, .node_bytes = 1024};
    struct user self;
    uint64_t bytes[NODES], n = 0, key;
    struct pool_node_stats stats;
    enum pando_status status = PANDO_OK;

    begin_co(&self, arg, &shape);
    occupy_co(&self, 1, 0);
    occupy_co(&self, 2, THIRD_MIB);
    uint64_t begin_ns = rt_now_ns();
    for (; n < ((uint64_t)MUCH_MIB << 20) / BYTES; n++)
        put_co(&self, key_of(n), slice_of(value, BYTES));
    uint64_t seconds = (rt_now_ns() - begin_ns) / RT_NS_PER_S + 1;
    uint64_t refused = refusals_co(&self, 1);
    (void)usage_co(&self, false, bytes);
    printf("unlike nodes:");
    for (uint16_t node = 0; node < NODES; node++)
        printf(" %" PRIu64 " kB", bytes[node] / 1000);
    printf("; the full one was asked %" PRIu64 " times in %" PRIu64 " s\n", refused, seconds);
    CHECK(bytes[1] < bytes[2] / 10 && bytes[2] < bytes[0] / 2 && bytes[2] < bytes[3] / 2);
    CHECK(refused <= 8 * seconds); /* a few sizes, once a second each */
    for (; status == PANDO_OK; n++)
        status = engine_put_co(self.engine, number_key(key_of(n), &key), slice_of(value, BYTES),
                               ENGINE_UPSERT);
    CHECK_STATUS(status, PANDO_FULL);
    for (uint16_t node = 0; node < NODES; node++) {
        CHECK_OK(pool_node_stats_co(self.session, node, &stats));
        printf("%" PRIu64 " chunks are left, %" PRIu64 " kB free in others\n", stats.chunks_free,
               stats.blocks_free_bytes / 1000);
        CHECK_EQ_U64(stats.chunks_free, stats.chunks_reserved);
    }
    end_co(&self);
}

/* Pages on a node of which the pool does not know that the table uses it would be lost unnoticed with it. */
static void marks_task(void *arg)
{
    enum { FEW = 6000 };
    struct user self;
    struct engine_census census;
    char error[256] = "";
    const uint64_t none = 0;

    begin_co(&self, arg, &number_shape);
    for (uint64_t n = 0; n < FEW; n++)
        put_co(&self, key_of(n), slice_of(NULL, 0));
    verify_co(&self, FEW, &census);
    uint64_t at = pool_entry_offset(self.pool, dex_of(self.engine)->table->slot) +
                  offsetof(struct pool_entry, uses);
    struct fabric_op write = fabric_write(at, &none, sizeof(none));
    CHECK_OK(pool_submit_co(self.session, 0, &write, 1));
    CHECK_STATUS(engine_verify_co(self.engine, &census, error, sizeof(error)), PANDO_CORRUPT);
    printf("verify: %s\n", error);
    end_co(&self);
}

static void run(rt_fn task, unsigned seed)
{
    struct pool_world_options options = {.net = {.seed = seed},
                                         .memnode = {.seed = 7, .work = dex_memory_pushdown},
                                         .memories = NODES,
                                         .clients = 1,
                                         .memory_bytes = (uint64_t)MEMORY_MIB << 20,
                                         .lease_ns = LEASE_NS};
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 0, task);
    unsigned before = done;
    CHECK(pool_world_ends(&place, 600 * RT_NS_PER_S));
    CHECK_EQ_U64(done, before + 1);
    pool_world_destroy(&place);
}

int main(void)
{
    for (order = RANDOM; order < ORDERS; order++)
        run(order_task, 3 + order);
    order = RANDOM;
    run(values_task, 11);
    run(unlike_task, 12);
    run(marks_task, 13);
    return 0;
}
