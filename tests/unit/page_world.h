/*
 * page_world.h - a page and what should be in it, for the tests of pages: shapes of tables, random
 * fences, keys and values, and reading a page back with every check.
 */
#ifndef TESTS_UNIT_PAGE_WORLD_H
#define TESTS_UNIT_PAGE_WORLD_H

#include "base/prng.h"
#include "lib/check.h"
#include "tree/dex/page/page.h"

enum {
    KEY_MAX = 1024,
    VALUE_MAX = 512,
    PAIRS_MAX = PAGE_PAIRS_MAX + 1,
    ADDRESS = 0x10000,
    LONGER = 12
};

/* These tests have one thread; for the sanitizer of threads less will do. */
#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 8 };
#else
enum { SLOWER = 1 };
#endif

struct shape {
    const char *name;
    uint8_t level;
    uint32_t key_size, value_size, key_max, value_max, page_bytes;
    uint32_t steps;
    bool words;
};

static const struct shape shapes[] = {
    {"8/8, 256 B", 0, 8, 8, 8, 8, 256, 4000, true},
    {"8/8, 1 KiB", 0, 8, 8, 8, 8, 1024, 4000, true},
    {"8/8, 32 KiB", 0, 8, 8, 8, 8, 32768, 2600, true},
    {"8/16, 1 KiB", 0, 8, 16, 8, 16, 1024, 4000, true},
    {"8/3, 320 B", 0, 8, 3, 8, 3, 320, 3000, true},
    {"inner of 8/8, 256 B", 1, 8, 8, 8, 8, 256, 4000, true},
    {"inner of 8/8, 1 KiB", 2, 8, 8, 8, 8, 1024, 4000, true},
    {"inner of 8/0..100, 1 KiB", 1, 8, 0, 8, 100, 1024, 3000, true},
    {"8/0..100, 1 KiB", 0, 8, 0, 8, 100, 1024, 4000, false},
    {"16/8, 1 KiB", 0, 16, 8, 16, 8, 1024, 3000, false},
    {"0..16/0..8, 320 B", 0, 0, 0, 16, 8, 320, 6000, false},
    {"0..64/0..64, 1 KiB", 0, 0, 0, 64, 64, 1024, 6000, false},
    {"inner of 0..64, 1 KiB", 1, 0, 0, 64, 64, 1024, 4000, false},
    {"0..1024/0..512, 8,384 B", 0, 0, 0, 1024, 512, 8384, 2500, false},
    {"inner of 0..1024, 8,384 B", 3, 0, 0, 1024, 512, 8384, 2500, false},
    {"0..1024/0..512, 32 KiB", 0, 0, 0, 1024, 512, 32768, 1500, false},
    {"0..4/0..8, 32 KiB", 0, 0, 0, 4, 8, 32768, 1500, false},
};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

struct pair {
    uint8_t key[KEY_MAX + LONGER], value[VALUE_MAX];
    uint32_t key_size, value_size;
    bool blob;
};

/* The page under test, in memory of exactly its size, and what should be in it, sorted. */
struct world {
    const struct shape *shape;
    struct page_layout layout;
    struct page_header header; /* its fences are in low and high */
    uint8_t low[KEY_MAX], high[KEY_MAX];
    uint32_t common; /* bytes that most random keys have in common with the fences */
    uint8_t *bytes, *scratch;
    struct pair *pairs[PAIRS_MAX]; /* owned */
    uint32_t count;
};

static struct prng prng;
static struct world world;

static uint8_t *allocate(size_t size)
{
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    CHECK(bytes != NULL);
    return bytes;
}

static uint32_t pad(size_t size)
{
    return ((uint32_t)size + 7) & ~7u;
}

static struct slice key_of(const struct pair *pair)
{
    return slice_of(pair->key, pair->key_size);
}

static struct page_pair page_pair_of(const struct pair *pair)
{
    return (struct page_pair){
        .key = key_of(pair), .value = slice_of(pair->value, pair->value_size), .blob = pair->blob};
}

static bool is_inner(void)
{
    return world.shape->level > 0;
}

/* What page_side has to say of a key: the definition. */
static int side_of(const struct page_header *header, struct slice key)
{
    if (slice_compare(key, header->low) < 0)
        return -1;
    return !header->no_high && slice_compare(key, header->high) >= 0 ? 1 : 0;
}

/* ---- what goes in ---------------------------------------------------------------------------- */

/* Few bytes and many lengths: prefixes of each other, zeroes at the end, bytes above 127. */
static void random_bytes(uint8_t *to, uint32_t size)
{
    static const uint8_t alphabet[] = {0, 0, 1, 127, 128, 255};
    for (uint32_t i = 0; i < size; i++)
        to[i] = alphabet[prng_below(&prng, sizeof(alphabet))];
}

static uint32_t random_size(uint32_t most)
{
    uint32_t longest = prng_chance(&prng, 0.7) && most > 20 ? 20 : most;
    return (uint32_t)prng_below(&prng, longest + 1ul);
}

/* Any string up to key_max, half of the time one that begins like the fences. */
static void random_string(struct pair *pair)
{
    uint32_t most = world.shape->key_max;
    uint32_t same = prng_chance(&prng, 0.9) ? world.common : 0;

    memcpy(pair->key, world.low, same);
    uint32_t more = random_size(most - same);
    random_bytes(pair->key + same, more);
    pair->key_size = same + more;
}

/* A key as the table has them, between the fences. False: none was found. */
static bool random_key(struct pair *pair)
{
    uint32_t fixed = world.shape->key_size;
    for (int i = 0; i < 200; i++) {
        random_string(pair);
        if (fixed != 0) {
            uint32_t have = pair->key_size < fixed ? pair->key_size : fixed;
            random_bytes(pair->key + have, fixed - have);
            pair->key_size = fixed;
        }
        if (side_of(&world.header, key_of(pair)) == 0)
            return true;
    }
    return false;
}

static void random_value(struct pair *pair)
{
    const struct shape *shape = world.shape;
    uint32_t fixed = is_inner() ? 8 : shape->value_size;

    pair->blob = false;
    pair->value_size = fixed != 0 ? fixed : random_size(shape->value_max);
    if (!is_inner() && !shape->words && prng_chance(&prng, 0.15)) {
        pair->blob = true;
        pair->value_size = 8;
    }
    for (uint32_t i = 0; i < pair->value_size; i++)
        pair->value[i] = (uint8_t)prng_next(&prng);
}

/* How many keys of the model are below this one; whether the next is it. */
static bool model_find(struct slice key, uint32_t *index)
{
    uint32_t low = 0, high = world.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (slice_compare(key_of(world.pairs[middle]), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *index = low;
    return low < world.count && slice_equal(key_of(world.pairs[low]), key);
}

static void model_insert(uint32_t index, const struct pair *pair)
{
    CHECK(world.count < PAIRS_MAX);
    memmove(&world.pairs[index + 1], &world.pairs[index],
            (world.count - index) * sizeof(world.pairs[0]));
    world.pairs[index] = malloc(sizeof(*pair));
    CHECK(world.pairs[index] != NULL);
    *world.pairs[index] = *pair;
    world.count++;
}

/* Forgets pairs from .. to-1. */
static void model_remove(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        free(world.pairs[i]);
    memmove(&world.pairs[from], &world.pairs[to], (world.count - to) * sizeof(world.pairs[0]));
    world.count -= to - from;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static struct page_layout layout_of(const struct shape *shape)
{
    struct page_layout layout = {.pool = 9,
                                 .table = 7,
                                 .page_bytes = shape->page_bytes,
                                 .key_size = shape->key_size,
                                 .value_size = shape->value_size,
                                 .key_max = shape->key_max,
                                 .value_max = shape->value_max};
    CHECK_OK(page_layout_check(&layout));
    return layout;
}

static void set_fences(struct slice low, struct slice high, bool no_high)
{
    memmove(world.low, low.data, low.size);
    if (!no_high)
        memmove(world.high, high.data, high.size);
    world.header.low = slice_of(world.low, low.size);
    world.header.high = slice_of(world.high, no_high ? 0 : high.size);
    world.header.no_high = no_high;
}

/* Of every kind: none, short, long, with much in common. */
static void random_fences(void)
{
    static struct pair a, b;
    world.common = 0;
    if (prng_chance(&prng, 0.3)) {
        set_fences(slice_of(world.low, 0), slice_of(world.high, 0), true);
        return;
    }
    a.key_size = (uint32_t)prng_below(&prng, world.shape->key_max);
    random_bytes(a.key, a.key_size);
    memcpy(world.low, a.key, a.key_size);
    world.common = prng_chance(&prng, 0.5) ? a.key_size : a.key_size / 2;
    if (prng_chance(&prng, 0.3)) {
        set_fences(key_of(&a), slice_of(world.high, 0), true);
        world.common = 0;
        return;
    }
    do
        random_string(&b);
    while (slice_equal(key_of(&a), key_of(&b)));
    if (prng_chance(&prng, 0.2))
        a.key_size = 0, world.common = 0;
    bool above = slice_compare(key_of(&a), key_of(&b)) < 0;
    set_fences(key_of(above ? &a : &b), key_of(above ? &b : &a), false);
    if (world.common > world.header.low.size)
        world.common = (uint32_t)world.header.low.size;
}

static void end_world(void)
{
    model_remove(0, world.count);
    free(world.bytes);
    free(world.scratch);
    world.bytes = world.scratch = NULL;
}

static void begin_empty(const struct shape *shape)
{
    end_world();
    world.shape = shape;
    world.layout = layout_of(shape);
    world.bytes = allocate(shape->page_bytes);
    world.scratch = allocate(shape->page_bytes);
    world.header = (struct page_header){.address = ADDRESS,
                                        .version = prng_next(&prng),
                                        .tenure = prng_next(&prng),
                                        .sibling = prng_next(&prng),
                                        .stamp = {prng_next(&prng), prng_next(&prng)},
                                        .level = shape->level};
    random_fences();
    page_init(&world.layout, &world.header, world.bytes);
}

/* An inner page's first child begins where the page does. */
static void begin(const struct shape *shape)
{
    static struct pair first;
    begin_empty(shape);
    if (!is_inner())
        return;
    memcpy(first.key, world.low, world.header.low.size);
    first.key_size = (uint32_t)world.header.low.size;
    random_value(&first);
    struct page_pair pair = page_pair_of(&first);
    CHECK(page_push(&world.layout, world.bytes, &pair));
    model_insert(0, &first);
}

/* ---- reading back ---------------------------------------------------------------------------- */

/* Bytes that a pair takes, and all do. */
static uint32_t model_bytes(const struct pair *pair)
{
    if (world.shape->words)
        return 8 + pad(pair->value_size);
    return PAGE_SLOT + pad(pair->key_size) + pad(pair->value_size);
}

static uint32_t model_used(uint32_t from, uint32_t to)
{
    uint32_t used = 0;
    for (uint32_t i = from; i < to; i++)
        used += model_bytes(world.pairs[i]);
    return used;
}

static void check_pair(const uint8_t *bytes, uint32_t index, const struct pair *pair)
{
    static uint8_t key[PAGE_KEY_ROOM], value[VALUE_MAX + 8];
    bool blob;

    CHECK(slice_equal(page_key(&world.layout, bytes, index, key), key_of(pair)));
    CHECK_EQ_U64(page_value(&world.layout, bytes, index, value, sizeof(value), &blob),
                 pair->value_size);
    CHECK(blob == pair->blob && memcmp(value, pair->value, pair->value_size) == 0);
    uint32_t capacity = (uint32_t)prng_below(&prng, pair->value_size + 1ul);
    memset(value, 0xee, sizeof(value));
    CHECK_EQ_U64(page_value(&world.layout, bytes, index, value, capacity, &blob), pair->value_size);
    CHECK(memcmp(value, pair->value, capacity) == 0 && value[pad(capacity)] == 0xee);
    if (is_inner()) {
        uint64_t child;
        memcpy(&child, pair->value, 8);
        CHECK_EQ_U64(page_child(&world.layout, bytes, index), child);
        const uint8_t *place = page_child_place(&world.layout, bytes, index);
        CHECK(place >= bytes && place + 8 <= bytes + world.layout.page_bytes);
        CHECK(memcmp(place, pair->value, 8) == 0);
    }
}

/* Where a key is, or a bound of any length, said of the model and of the page. */
static void check_find(const uint8_t *bytes, struct slice key)
{
    uint32_t expected, index;
    bool found = model_find(key, &expected);
    if (!is_inner()) {
        CHECK(page_find(&world.layout, bytes, key, &index) == found);
        CHECK_EQ_U64(index, expected);
        return;
    }
    if (!found)
        expected = expected > 0 ? expected - 1 : 0;
    CHECK_EQ_U64(page_child_index(&world.layout, bytes, key), expected);
}

static void check_fences(const uint8_t *bytes, const struct page_header *header)
{
    static uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM];
    struct slice end;
    CHECK(slice_equal(page_low(bytes, low), header->low));
    CHECK(page_high(bytes, high, &end) == !header->no_high);
    CHECK(page_no_high(bytes) == header->no_high);
    if (!header->no_high)
        CHECK(slice_equal(end, header->high));
}

/* A bound of a scan: any string, also a key that is there, cut off or continued. */
static void random_bound(struct pair *bound)
{
    random_string(bound);
    if (world.count > 0 && prng_chance(&prng, 0.6)) {
        *bound = *world.pairs[prng_below(&prng, world.count)];
        if (prng_chance(&prng, 0.5))
            bound->key_size = (uint32_t)prng_below(&prng, bound->key_size + 1ul);
    }
    if (prng_chance(&prng, 0.5)) {
        uint32_t more = 1 + (uint32_t)prng_below(&prng, LONGER);
        random_bytes(bound->key + bound->key_size, more);
        bound->key_size += more;
    }
}

static void check_page(const uint8_t *bytes)
{
    static struct pair other;

    CHECK_EQ_U64(page_pairs(bytes), world.count);
    CHECK_EQ_U64(page_level(bytes), world.shape->level);
    check_fences(bytes, &world.header);
    for (uint32_t i = 0; i < world.count; i++) {
        check_pair(bytes, i, world.pairs[i]);
        check_find(bytes, key_of(world.pairs[i]));
    }
    for (int i = 0; i < 20; i++) {
        if (random_key(&other))
            check_find(bytes, key_of(&other));
        random_bound(&other);
        CHECK_EQ_U64(page_side(bytes, key_of(&other)) + 1,
                     side_of(&world.header, key_of(&other)) + 1);
        if (side_of(&world.header, key_of(&other)) == 0)
            check_find(bytes, key_of(&other));
    }
    CHECK_EQ_U64(page_used(&world.layout, bytes), model_used(0, world.count));
}

#endif
