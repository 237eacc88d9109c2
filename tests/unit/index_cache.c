/*
 * The index cache against a plain list of the nodes it was given: any key, at the fences, between
 * them, at the ends of what words can say, and the keys just below it.
 */
#include "tree/blink/cache/index_cache.h"

#include "base/prng.h"
#include "lib/check.h"

enum { KEYS_MAX = 12000, KEY_BYTES = 24, NODE_BYTES = 512, NODES_MAX = 1500, SEPARATORS_MAX = 12 };

struct key {
    uint8_t bytes[KEY_BYTES];
    uint32_t size;
};

/* keys[first] is its low fence, keys[last] its high one; its separators lie between. */
struct node {
    uint32_t first, last;
    bool cached;
};

static struct prng prng;
static struct node_layout layout;
static struct key keys[KEYS_MAX]; /* rising; the first is empty, as the first node's low fence */
static uint32_t key_count, node_count;
static struct node nodes[NODES_MAX];
static struct index_cache_reader reader;

static struct slice key_of(const struct key *key)
{
    return slice_of(key->bytes, key->size);
}

static int by_key(const void *a, const void *b)
{
    return slice_compare(key_of(a), key_of(b));
}

/* Few different bytes, so that neighbours, equal words and the ends are met often. */
static struct key random_key(void)
{
    static const uint8_t alphabet[] = {0, 1, 127, 128, 254, 255};
    struct key key = {.size = layout.key_size};
    if (key.size == 0) {
        key.size = 5 + (uint32_t)prng_below(&prng, KEY_BYTES - 4);
        memset(key.bytes, 'p', 5);
    }
    uint32_t common = layout.key_size == 0 ? 5 : 0;
    for (uint32_t i = common; i < key.size; i++)
        key.bytes[i] = alphabet[prng_below(&prng, sizeof(alphabet))];
    return key;
}

static void draw_keys(uint32_t wanted)
{
    for (uint32_t i = 1; i < wanted; i++)
        keys[i] = random_key();
    keys[0] = (struct key){.size = 0};
    qsort(keys, wanted, sizeof(keys[0]), by_key);
    key_count = 0;
    for (uint32_t i = 0; i < wanted; i++) {
        if (key_count == 0 || by_key(&keys[key_count - 1], &keys[i]) != 0)
            keys[key_count++] = keys[i];
    }
}

static fabric_address child_of(const struct node *node, uint32_t index)
{
    return fabric_address_make(1, ((uint64_t)(node - nodes) * 64 + index + 1) * 64);
}

static void put(struct index_cache *cache, struct node *node)
{
    static uint8_t bytes[NODE_BYTES];
    struct inner_entry entries[SEPARATORS_MAX];
    uint32_t count = 0;
    struct node_header header = {.address = fabric_address_make(2, 0x10000),
                                 .level = 1,
                                 .no_high = node->last == key_count,
                                 .low = key_of(&keys[node->first])};
    if (!header.no_high)
        header.high = key_of(&keys[node->last]);
    for (uint32_t i = node->first + 1; i < node->last; i++, count++)
        entries[count] =
            (struct inner_entry){.key = key_of(&keys[i]), .child = child_of(node, count + 1)};
    CHECK(inner_fits(&layout, &header, entries, count));
    inner_build(&layout, &header, child_of(node, 0), entries, count, bytes);
    CHECK(node_header_read(&layout, header.address, bytes, &header));
    index_cache_put(cache, &header, bytes);
    node->cached = true;
}

static void cut_nodes(void)
{
    node_count = 0;
    for (uint32_t at = 0; at < key_count && node_count < NODES_MAX; node_count++) {
        uint32_t left = key_count - at, size = 2 + (uint32_t)prng_below(&prng, SEPARATORS_MAX - 1);
        nodes[node_count] = (struct node){.first = at, .last = at + (size < left ? size : left)};
        at = nodes[node_count].last;
    }
}

/* At or below the key; with `before`, below it. */
static bool counts(const struct key *key, struct slice than, bool before)
{
    int order = slice_compare(key_of(key), than);
    return before ? order < 0 : order <= 0;
}

static const struct node *plainly(struct slice key, bool before, uint32_t *index)
{
    for (const struct node *node = nodes; node < nodes + node_count; node++) {
        if (!node->cached || !counts(&keys[node->first], key, before) ||
            (node->last < key_count && counts(&keys[node->last], key, before)))
            continue;
        *index = 0;
        for (uint32_t i = node->first + 1; i < node->last; i++)
            *index += counts(&keys[i], key, before);
        return node;
    }
    return NULL;
}

static void check_find(struct slice key, bool before)
{
    struct index_cache_hit hit = {0};
    uint32_t index;
    const struct node *expected = plainly(key, before, &index);
    bool found = index_cache_find(&reader, key, 0, before, &hit);
    CHECK(found == (expected != NULL));
    if (!found)
        return;
    CHECK_EQ_U64(hit.child, child_of(expected, index));
    CHECK_EQ_U64(hit.child_level, 0);
}

static void check_all(uint32_t samples)
{
    static const struct key ends[] = {{.size = 8},
                                      {.bytes = {0, 0, 0, 0, 0, 0, 0, 1}, .size = 8},
                                      {.bytes = {255, 255, 255, 255, 255, 255, 255, 254}, 8},
                                      {.bytes = {255, 255, 255, 255, 255, 255, 255, 255}, 8}};
    for (uint32_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        check_find(key_of(&ends[i]), false);
        check_find(key_of(&ends[i]), true);
    }
    for (uint32_t i = 0; i < samples; i++) {
        struct key drawn =
            prng_chance(&prng, 0.5) ? keys[1 + prng_below(&prng, key_count - 1)] : random_key();
        check_find(key_of(&drawn), false);
        check_find(key_of(&drawn), true);
    }
}

/* What was found in it is not found any more. */
static void drop(struct index_cache *cache, struct node *node)
{
    struct slice key = key_of(&keys[node->last - 1]);
    check_find(key, false);
    index_cache_drop(cache, 1, key);
    node->cached = false;
    check_find(key, false);
}

static struct index_cache *cache_begin(void)
{
    struct index_cache *cache = index_cache_create(&layout, (uint64_t)1 << 30, 1);
    CHECK(cache != NULL);
    reader = (struct index_cache_reader){0};
    index_cache_join(cache, &reader);
    return cache;
}

static void cache_end(struct index_cache *cache)
{
    index_cache_part(&reader);
    index_cache_destroy(cache);
}

/* Each node lies below all that were there before. */
static void downwards(uint32_t wanted)
{
    layout = (struct node_layout){.pool = 7, .node_bytes = NODE_BYTES, .key_size = 8};
    CHECK_OK(node_layout_init(&layout, 8, 8));
    draw_keys(wanted);
    cut_nodes();
    struct index_cache *cache = cache_begin();
    for (uint32_t i = node_count; i-- > 0;) {
        put(cache, &nodes[i]);
        check_find(key_of(&keys[nodes[i].last - 1]), false);
        if (i % 3 == 0)
            drop(cache, &nodes[i]);
    }
    check_all(200);
    cache_end(cache);
}

static void round_of(uint32_t key_size, uint32_t wanted)
{
    layout = (struct node_layout){.pool = 7, .node_bytes = NODE_BYTES, .key_size = key_size};
    CHECK_OK(node_layout_init(&layout, key_size != 0 ? key_size : KEY_BYTES, 8));
    draw_keys(wanted);
    cut_nodes();
    struct index_cache *cache = cache_begin();
    for (uint32_t i = 0; i < 2 * node_count; i++) {
        struct node *node = &nodes[prng_below(&prng, node_count)];
        if (!node->cached) {
            put(cache, node);
        } else if (prng_chance(&prng, 0.3)) {
            drop(cache, node);
        }
        if (i % 64 == 0)
            check_all(4);
    }
    check_all(200);
    for (uint32_t i = 0; i < node_count; i++) {
        if (!nodes[i].cached)
            put(cache, &nodes[i]);
    }
    check_all(200);
    cache_end(cache);
}

int main(void)
{
    prng_seed(&prng, 1);
    for (int i = 0; i < 20; i++) {
        round_of(8, 3 + (uint32_t)prng_below(&prng, 100));
        round_of(0, 3 + (uint32_t)prng_below(&prng, 100));
    }
    for (int i = 0; i < 3; i++) {
        round_of(8, KEYS_MAX);
        round_of(0, KEYS_MAX);
        round_of(16, KEYS_MAX);
        downwards(KEYS_MAX);
    }
    return 0;
}
