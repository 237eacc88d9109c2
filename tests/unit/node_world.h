/*
 * node_world.h - a leaf and what should be in it, for the tests of leaves: random pairs, reading
 * with every check, and inserting and clearing as a remote writer does it.
 */
#ifndef TESTS_UNIT_NODE_WORLD_H
#define TESTS_UNIT_NODE_WORLD_H

#include "base/prng.h"
#include "lib/check.h"
#include "tree/blink/node/node.h"
#include "tree/blink/node/search.h"

enum { KEY_MAX = 1024, VALUE_MAX = 512, PAIRS_MAX = 800 };

struct shape {
    const char *name;
    uint32_t key_size, value_size, key_max, value_max, node_bytes;
    uint32_t steps;
};

static const struct shape shapes[] = {
    {"8/8, 256 B", 8, 8, 8, 8, 256, 3000},
    {"8/8, 1 KiB", 8, 8, 8, 8, 1024, 3000},
    {"8/8, 16 KiB", 8, 8, 8, 8, 16384, 1500},
    {"8/64, 1 KiB", 8, 64, 8, 64, 1024, 2000},
    {"16/8, 1 KiB", 16, 8, 16, 8, 1024, 2000},
    {"5/3, 256 B", 5, 3, 5, 3, 256, 2000},
    {"1..16/0..8, 256 B", 0, 0, 16, 8, 256, 3000},
    {"1..64/0..64, 1 KiB", 0, 0, 64, 64, 1024, 3000},
    {"1..20/8, 1 KiB", 0, 8, 20, 8, 1024, 2000},
    {"8/0..100, 1 KiB", 8, 0, 8, 100, 1024, 2000},
    {"1..1024/0..512, 8,320 B", 0, 0, 1024, 512, 8320, 1500},
    {"1..1024/0..512, 16 KiB", 0, 0, 1024, 512, 16384, 1500},
    {"1..4/0..8, 16 KiB", 0, 0, 4, 8, 16384, 1500},
};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

struct pair {
    uint8_t key[KEY_MAX], value[VALUE_MAX];
    uint32_t key_size, value_size;
    uint8_t flags;
};

/* The leaf under test: its bytes, in memory of exactly their size, and what should be in it. */
struct world {
    const struct shape *shape;
    struct node_layout layout;
    struct node_header header; /* its fences are in low and high */
    uint8_t low[KEY_MAX], high[KEY_MAX];
    uint8_t *bytes;
    struct pair pairs[PAIRS_MAX];
    uint32_t count;
    uint32_t inserts, updates, clears, rebuilds, splits, deaths, repairs;
};

static struct prng prng;
static struct world world;
static struct node_entry entries[NODE_ENTRIES_MAX + 1];

static uint8_t *allocate(size_t size)
{
    uint8_t *bytes = malloc(size);
    CHECK(bytes != NULL);
    return bytes;
}

static uint8_t *copy_of(const uint8_t *bytes, size_t size)
{
    return memcpy(allocate(size), bytes, size);
}

static struct slice key_of(const struct pair *pair)
{
    return slice_of(pair->key, pair->key_size);
}

static struct node_entry entry_of(const struct pair *pair)
{
    return (struct node_entry){.key = key_of(pair),
                               .value = slice_of(pair->value, pair->value_size),
                               .flags = pair->flags};
}

static bool same_entry(const struct node_entry *a, const struct node_entry *b)
{
    return slice_equal(a->key, b->key) && slice_equal(a->value, b->value) && a->flags == b->flags;
}

/* ---- what goes in ------------------------------------------------------------------------------
 * */

/* Few bytes and many lengths: prefixes of each other, zeroes, bytes above 127. */
static void random_key(struct pair *pair)
{
    static const uint8_t alphabet[] = {0, 1, 127, 128, 255};
    const struct shape *shape = world.shape;
    uint32_t longest = prng_chance(&prng, 0.7) && shape->key_max > 24 ? 24 : shape->key_max;

    pair->key_size =
        shape->key_size != 0 ? shape->key_size : 1 + (uint32_t)prng_below(&prng, longest);
    for (uint32_t i = 0; i < pair->key_size; i++)
        pair->key[i] = alphabet[prng_below(&prng, sizeof(alphabet))];
}

static void random_value(struct pair *pair)
{
    const struct shape *shape = world.shape;
    uint32_t longest = prng_chance(&prng, 0.5) && shape->value_max > 16 ? 16 : shape->value_max;

    pair->flags = 0;
    pair->value_size =
        shape->value_size != 0 ? shape->value_size : (uint32_t)prng_below(&prng, longest + 1);
    if (shape->value_size == 0 && prng_chance(&prng, 0.1)) {
        pair->flags = NODE_FLAG_BLOB;
        pair->value_size = 8;
    }
    for (uint32_t i = 0; i < pair->value_size; i++)
        pair->value[i] = (uint8_t)prng_next(&prng);
    if (prng_chance(&prng, 0.1)) /* words that look like those of empty cells */
        memset(pair->value, 0, pair->value_size);
}

static struct pair *model_find(struct slice key)
{
    for (uint32_t i = 0; i < world.count; i++) {
        if (slice_equal(key_of(&world.pairs[i]), key))
            return &world.pairs[i];
    }
    return NULL;
}

static void model_remove(struct pair *pair)
{
    *pair = world.pairs[--world.count];
}

static void set_fences(struct slice low, struct slice high, bool no_high)
{
    static uint8_t copy[2][KEY_MAX];
    memcpy(copy[0], low.data, low.size);
    if (!no_high)
        memcpy(copy[1], high.data, high.size);
    memcpy(world.low, copy[0], low.size);
    memcpy(world.high, copy[1], no_high ? 0 : high.size);
    world.header.low = slice_of(world.low, low.size);
    world.header.high = slice_of(world.high, no_high ? 0 : high.size);
    world.header.no_high = no_high;
}

static void begin(const struct shape *shape)
{
    world = (struct world){.shape = shape};
    world.layout = (struct node_layout){.pool = prng_next(&prng),
                                        .table = (uint16_t)prng_next(&prng),
                                        .node_bytes = shape->node_bytes,
                                        .key_size = shape->key_size,
                                        .value_size = shape->value_size};
    CHECK_OK(node_layout_init(&world.layout, shape->key_max, shape->value_max));
    /* Versions near 0 of their low 16 bits, whose words look most like zeroes. */
    world.header = (struct node_header){.address = fabric_address_make(1, 0x40000),
                                        .version = 0x1fff0 + prng_below(&prng, 32),
                                        .tenure = prng_next(&prng),
                                        .sibling = prng_next(&prng),
                                        .level = 0};
    set_fences(slice_of(world.low, 0), slice_of(NULL, 0), true);
    world.bytes = allocate(shape->node_bytes);
    memset(world.bytes, 0xa5, shape->node_bytes);
    leaf_build(&world.layout, &world.header, NULL, 0, world.bytes);
}

/* ---- reading --------------------------------------------------------------------------------- */

static struct node_header read_header(const uint8_t *bytes)
{
    struct node_header header;
    CHECK(node_header_read(&world.layout, world.header.address, bytes, &header));
    return header;
}

/* The short way says the same as the long one, where it knows the layout: whether the key was found. */
static bool check_word(const uint8_t *bytes, struct slice key)
{
    const struct node_layout *layout = &world.layout;
    bool known = layout->fixed && layout->key_size == 8 && layout->slot_count <= SEARCH_SLOTS_MAX;
    struct leaf_slot slot, other;
    struct node_header header, again;
    bool there = node_header_read(layout, world.header.address, bytes, &header) &&
                 header.level == 0 && !header.dead && node_covers(&header, key) &&
                 leaf_find(layout, &header, bytes, key, &slot) == LEAF_FOUND;
    bool found = leaf_find_word(layout, world.header.address, bytes, key, &again, &other);
    CHECK(found == (known && there));
    if (found) {
        CHECK(slot.offset == other.offset && slot.bytes == other.bytes &&
              same_entry(&slot.entry, &other.entry));
        CHECK(header.address == again.address && header.version == again.version &&
              header.tenure == again.tenure && header.sibling == again.sibling &&
              again.level == 0 && !again.dead && header.no_high == again.no_high &&
              slice_equal(header.low, again.low) && slice_equal(header.high, again.high) &&
              header.cell_bytes == again.cell_bytes);
    }
    return found;
}

static enum leaf_find find(const uint8_t *bytes, struct slice key, struct leaf_slot *slot)
{
    struct node_header header = read_header(bytes);
    uint8_t *exact = copy_of(key.data, key.size);
    memset(slot, 0, sizeof(*slot));
    enum leaf_find found =
        leaf_find(&world.layout, &header, bytes, slice_of(exact, key.size), slot);
    (void)check_word(bytes, slice_of(exact, key.size));
    free(exact);
    if (found == LEAF_FOUND)
        CHECK(slot->offset >= header.cell_bytes && slot->bytes % 8 == 0 &&
              slot->offset + slot->bytes <= world.layout.node_bytes);
    return found;
}

/* A reader of these bytes gets exactly this for the key of `then`. */
static void check_finds(const uint8_t *bytes, const struct pair *then)
{
    struct leaf_slot slot;
    struct node_entry entry = entry_of(then);
    CHECK(find(bytes, key_of(then), &slot) == LEAF_FOUND);
    CHECK(same_entry(&slot.entry, &entry));
}

static void check_find_is(const uint8_t *bytes, struct slice key, enum leaf_find expected)
{
    struct leaf_slot slot;
    CHECK(find(bytes, key, &slot) == expected);
}

static bool all_entries(const uint8_t *bytes, uint32_t *count)
{
    struct node_header header = read_header(bytes);
    return leaf_entries(&world.layout, &header, bytes, entries, count);
}

static void absent_key(struct pair *pair)
{
    do
        random_key(pair);
    while (model_find(key_of(pair)) != NULL);
}

static void check_leaf(const uint8_t *bytes)
{
    static struct pair other;
    uint32_t count;

    for (uint32_t i = 0; i < world.count; i++)
        check_finds(bytes, &world.pairs[i]);
    absent_key(&other);
    check_find_is(bytes, key_of(&other), LEAF_ABSENT);

    CHECK(all_entries(bytes, &count));
    CHECK_EQ_U64(count, world.count);
    for (uint32_t i = 0; i < count; i++) {
        struct pair *pair = model_find(entries[i].key);
        CHECK(pair != NULL);
        struct node_entry entry = entry_of(pair);
        CHECK(same_entry(&entries[i], &entry));
        CHECK(i == 0 || slice_compare(entries[i - 1].key, entries[i].key) < 0);
    }
}

/* ---- writing, word by word ------------------------------------------------------------------- */

static void write_word(uint8_t *bytes, uint32_t at, const uint8_t *from)
{
    memcpy(bytes + at, from, 8);
}

/* Some of the payload of a cell that never got its header word. */
static void die_inserting(uint32_t offset, const uint8_t *cell, uint32_t cell_bytes)
{
    for (uint32_t at = 8; at < cell_bytes; at += 8) {
        if (prng_chance(&prng, 0.8))
            write_word(world.bytes, offset + at, cell + at);
    }
    world.deaths++;
    check_leaf(world.bytes);
}

static void insert_at(uint32_t offset, uint32_t cell_bytes, const struct pair *pair)
{
    struct node_entry entry = entry_of(pair);
    struct node_header header = read_header(world.bytes);
    uint8_t *cell = allocate(cell_bytes);

    CHECK(offset % 8 == 0 && offset + cell_bytes <= world.layout.node_bytes);
    CHECK(cell_bytes >= leaf_cell_bytes(&world.layout, pair->key_size, pair->value_size));
    leaf_cell_build(&world.layout, &header, offset, cell_bytes, &entry, cell);
    if (prng_chance(&prng, 0.1)) {
        die_inserting(offset, cell, cell_bytes);
    } else {
        memcpy(world.bytes + offset + 8, cell + 8, cell_bytes - 8);
        check_find_is(world.bytes, key_of(pair), LEAF_ABSENT);
        memcpy(world.bytes + offset, cell, 8);
        world.pairs[world.count++] = *pair;
        world.inserts++;
    }
    free(cell);
}

static void clear_pair(struct pair *pair)
{
    static struct pair gone;
    struct node_header header = read_header(world.bytes);
    struct leaf_slot slot;

    CHECK(find(world.bytes, key_of(pair), &slot) == LEAF_FOUND);
    uint64_t word = leaf_cleared_word(&world.layout, &header, slot.bytes);
    memcpy(world.bytes + slot.offset, &word, 8);
    gone = *pair;
    model_remove(pair);
    check_find_is(world.bytes, key_of(&gone), LEAF_ABSENT);
    world.clears++;
}

#endif
