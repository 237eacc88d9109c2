/*
 * The index cache under threads: readers search all the time while others put nodes of ever other
 * ranges, drop them, and make the cache too small for them, so that nodes, pages, tops and tables
 * of hints are replaced, evicted and freed under the readers. Each child says for which keys it is,
 * so that every hit tells whether it is right; memory that is freed too early is ASan's and TSan's
 * to find.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/prng.h"
#include "lib/check.h"
#include "tree/blink/cache/index_cache.h"

enum {
    KEYS = 20000, /* of which some are fences */
    NODE_BYTES = 512,
    SEPARATORS_MAX = 12,
    READERS = 2,
    WRITERS = 2,
    CHANGES = 30000,    /* of each writer */
    SEARCHES = 100000,  /* of each reader, at least */
    SEARCHES_JOIN = 97, /* then a reader goes, and comes again */
    HIGHER = 2,         /* the level of some of the nodes */
};

static struct node_layout layout;
static struct index_cache *cache;
static _Atomic unsigned writing, reading;
static _Atomic uint64_t hits, ahead;

/* Key n of the table, 8 bytes or more. */
struct key {
    uint8_t bytes[32];
    struct slice slice;
};

static struct slice key_of(struct key *key, uint32_t n)
{
    uint64_t word = __builtin_bswap64((uint64_t)n << 20);
    if (layout.key_size == 8) {
        memcpy(key->bytes, &word, sizeof(word));
        return slice_of(key->bytes, sizeof(word));
    }
    /* Beginnings in common of several lengths, and words that are equal. */
    int size =
        snprintf((char *)key->bytes, sizeof(key->bytes), "user:%u:session:%05u", n / 5000, n);
    return slice_of(key->bytes, (size_t)size);
}

/* For the keys from `from` on, below `to`. */
static fabric_address child_of(uint32_t from, uint32_t to)
{
    return fabric_address_make(1, ((uint64_t)from << 21 | to) * 64);
}

static void check_child(fabric_address child, uint32_t n, bool before)
{
    uint64_t word = fabric_address_offset(child) / 64;
    uint32_t from = (uint32_t)(word >> 21), to = (uint32_t)(word & ((1 << 21) - 1));
    /* Below key 0 is what has no low fence. */
    CHECK(before ? (from < n || n == 0) && n <= to : from <= n && n < to);
}

/* ---- writers --------------------------------------------------------------------------------- */

static void put(struct prng *prng, uint32_t first, uint8_t level)
{
    struct key keys[SEPARATORS_MAX + 2];
    struct inner_entry entries[SEPARATORS_MAX];
    uint32_t at[SEPARATORS_MAX + 2], count = 1 + (uint32_t)prng_below(prng, SEPARATORS_MAX);
    uint8_t bytes[NODE_BYTES];
    uint32_t step = 1 + (uint32_t)prng_below(prng, level == HIGHER ? 400 : 8);

    for (uint32_t i = 0; i < count + 2; i++)
        at[i] = first + i * step;
    bool no_high = at[count + 1] >= KEYS;
    if (no_high)
        at[count + 1] = (1 << 21) - 1;
    struct node_header header = {.address = fabric_address_make(2, 0x10000),
                                 .level = level,
                                 .no_high = no_high,
                                 .low = first == 0 ? slice_of(NULL, 0) : key_of(&keys[0], first)};
    if (!no_high)
        header.high = key_of(&keys[count + 1], at[count + 1]);
    for (uint32_t i = 1; i <= count; i++)
        entries[i - 1] = (struct inner_entry){.key = key_of(&keys[i], at[i]),
                                              .child = child_of(at[i], at[i + 1])};
    if (!inner_fits(&layout, &header, entries, count))
        return;
    inner_build(&layout, &header, child_of(at[0], at[1]), entries, count, bytes);
    CHECK(node_header_read(&layout, header.address, bytes, &header));
    index_cache_put(cache, &header, bytes);
}

static void *write_main(void *arg)
{
    struct prng prng;
    prng_seed(&prng, 100 + (uint64_t)(uintptr_t)arg);
    for (uint32_t i = 0; i < CHANGES || atomic_load(&reading) > 0; i++) {
        uint32_t first = prng_chance(&prng, 0.02) ? 0 : (uint32_t)prng_below(&prng, KEYS);
        uint8_t level = prng_chance(&prng, 0.02) ? HIGHER : 1;
        struct key key;
        if (prng_chance(&prng, 0.8))
            put(&prng, first, level);
        else
            index_cache_drop(cache, level, key_of(&key, first));
        /* Down to almost nothing, now and then. */
        if (i % 5000 == 4999) {
            for (uint32_t n = 0; n < KEYS; n += 16)
                index_cache_drop(cache, 1, key_of(&key, n));
        }
    }
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

/* ---- readers --------------------------------------------------------------------------------- */

static void look(struct index_cache_reader *reader, struct prng *prng)
{
    enum { AHEAD = 4 };
    uint32_t n = (uint32_t)prng_below(prng, KEYS);
    bool before = prng_chance(prng, 0.3);
    struct index_cache_hit hit;
    fabric_address children[AHEAD];
    struct key key;

    if (index_cache_find(reader, key_of(&key, n), 0, before, &hit)) {
        check_child(hit.child, n, before);
        CHECK(hit.child_level <= 1);
        atomic_fetch_add_explicit(&hits, 1, memory_order_relaxed);
    }
    if (!prng_chance(prng, 0.2))
        return;
    uint32_t count = index_cache_next_leaves(reader, key_of(&key, n), children, AHEAD);
    CHECK(count <= AHEAD);
    for (uint32_t i = 0; i < count; i++)
        CHECK(fabric_address_offset(children[i]) / 64 >> 21 > n);
    atomic_fetch_add_explicit(&ahead, count, memory_order_relaxed);
}

static void *read_main(void *arg)
{
    struct prng prng;
    bool counted = true;
    prng_seed(&prng, 200 + (uint64_t)(uintptr_t)arg);
    for (uint32_t searches = 0; atomic_load(&writing) > 0;) {
        struct index_cache_reader *reader = calloc(1, sizeof(*reader));
        CHECK(reader != NULL);
        index_cache_join(cache, reader);
        for (uint32_t i = 0; i < SEARCHES_JOIN; i++, searches++)
            look(reader, &prng);
        index_cache_part(reader);
        free(reader);
        if (counted && searches >= SEARCHES) {
            counted = false;
            atomic_fetch_sub(&reading, 1);
        }
    }
    return NULL;
}

/* ---- a reader that stands still -------------------------------------------------------------- */

static void change_much(struct prng *prng)
{
    struct key key;
    for (uint32_t i = 0; i < 2000; i++) {
        put(prng, (uint32_t)prng_below(prng, KEYS), 1);
        index_cache_drop(cache, 1, key_of(&key, (uint32_t)prng_below(prng, KEYS)));
    }
}

/* What waits to be freed is bounded, and none of it waits when the reader has gone on. */
static void stands_still(void)
{
    struct index_cache_reader reader = {0};
    struct index_cache_stats stats;
    struct prng prng;
    struct key key;

    prng_seed(&prng, 3);
    layout = (struct node_layout){.pool = 7, .node_bytes = NODE_BYTES, .key_size = 8};
    CHECK_OK(node_layout_init(&layout, 8, 8));
    cache = index_cache_create(&layout, (uint64_t)1 << 30, 1);
    CHECK(cache != NULL);
    index_cache_join(cache, &reader);
    put(&prng, 0, 1);
    atomic_store(&reader.reads.since, 1); /* in the middle of a search */
    change_much(&prng);
    index_cache_stats(cache, &stats);
    CHECK(stats.waiting > GRACE_ITEMS - 4 && stats.waiting <= GRACE_ITEMS);
    atomic_store(&reader.reads.since, 0);
    change_much(&prng);
    index_cache_stats(cache, &stats);
    CHECK_EQ_U64(stats.waiting, 0);
    CHECK(stats.nodes > 0);
    for (uint32_t n = 0; n < KEYS; n++)
        index_cache_drop(cache, 1, key_of(&key, n));
    index_cache_stats(cache, &stats);
    CHECK_EQ_U64(stats.nodes, 0);
    index_cache_part(&reader);
    index_cache_destroy(cache);
}

static void run(uint32_t key_size, uint64_t budget)
{
    pthread_t threads[READERS + WRITERS];
    struct index_cache_stats stats;

    layout = (struct node_layout){.pool = 7, .node_bytes = NODE_BYTES, .key_size = key_size};
    CHECK_OK(node_layout_init(&layout, key_size != 0 ? key_size : sizeof(struct key), 8));
    cache = index_cache_create(&layout, budget, 1);
    CHECK(cache != NULL);
    atomic_store(&hits, 0);
    atomic_store(&ahead, 0);
    atomic_store(&writing, WRITERS);
    atomic_store(&reading, READERS);
    for (uintptr_t i = 0; i < READERS + WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, i < READERS ? read_main : write_main, (void *)i) ==
              0);
    for (unsigned i = 0; i < READERS + WRITERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&hits) > 0 && atomic_load(&ahead) > 0);
    index_cache_stats(cache, &stats);
    CHECK(budget >= (uint64_t)1 << 30 || stats.evictions > 0);
    printf("key_size %u: %llu hits, %llu leaves ahead, %llu evictions, %llu nodes\n", key_size,
           (unsigned long long)atomic_load(&hits), (unsigned long long)atomic_load(&ahead),
           (unsigned long long)stats.evictions, (unsigned long long)stats.nodes);
    index_cache_destroy(cache);
}

int main(void)
{
    run(8, (uint64_t)1 << 30);
    run(8, 32 * 1024);
    run(0, (uint64_t)1 << 30);
    run(0, 64 * 1024);
    stands_still();
    return 0;
}
