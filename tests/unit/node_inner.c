/*
 * Inner nodes against a sorted array: finding children, splitting, and noticing every torn or
 * damaged word.
 */
#include "base/prng.h"
#include "lib/check.h"
#include "pool/cell.h"
#include "tree/blink/node/node.h"
#include "tree/blink/node/node_fmt.h"

enum { KEY_MAX = 1024, KEYS_MAX = 1400 };

struct shape {
    uint32_t key_size, key_max, node_bytes, rounds;
};

static const struct shape shapes[] = {
    {8, 8, 256, 400},   {8, 8, 1024, 200},    {8, 8, 32768, 10},  {16, 16, 1024, 200},
    {5, 5, 256, 200},   {0, 16, 256, 400},    {0, 64, 1024, 200}, {0, 1024, 8320, 60},
    {0, 20, 16384, 20}, {0, 1024, 16384, 40}, {0, 2, 32768, 10},
};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* What was built: keys[0] is the low fence and keys[count + 1] the high one. */
struct model {
    struct node_layout layout;
    struct node_header header;
    uint8_t keys[KEYS_MAX][KEY_MAX];
    struct inner_entry entries[KEYS_MAX];
    uint32_t count;
    fabric_address leftmost;
};

static struct prng prng;
static struct model model;
static struct inner_entry read_back[NODE_ENTRIES_MAX];

static struct slice random_key(const struct shape *shape, uint8_t *bytes)
{
    static const uint8_t alphabet[] = {0, 1, 128, 255};
    uint32_t longest = prng_chance(&prng, 0.7) && shape->key_max > 24 ? 24 : shape->key_max;
    uint32_t size =
        shape->key_size != 0 ? shape->key_size : 1 + (uint32_t)prng_below(&prng, longest);
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = shape->key_max <= 2 ? (uint8_t)prng_next(&prng)
                                       : alphabet[prng_below(&prng, sizeof(alphabet))];
    return slice_of(bytes, size);
}

static int by_key(const void *a, const void *b)
{
    return slice_compare(((const struct inner_entry *)a)->key,
                         ((const struct inner_entry *)b)->key);
}

/* Up to `most` separators, each once, in order; fewer where there are not so many keys. */
static void random_model(const struct shape *shape, uint32_t most)
{
    uint32_t count = 0;
    model.layout = (struct node_layout){.pool = prng_next(&prng),
                                        .table = (uint16_t)prng_next(&prng),
                                        .node_bytes = shape->node_bytes,
                                        .key_size = shape->key_size};
    CHECK_OK(node_layout_init(&model.layout, shape->key_max, 8));
    for (uint32_t i = 0; i < most + 2; i++)
        model.entries[i] = (struct inner_entry){.key = random_key(shape, model.keys[i]),
                                                .child = 1 + (prng_next(&prng) >> 1)};
    qsort(model.entries, most + 2, sizeof(model.entries[0]), by_key);
    for (uint32_t i = 0; i < most + 2; i++) {
        if (count == 0 || slice_compare(model.entries[count - 1].key, model.entries[i].key) < 0)
            model.entries[count++] = model.entries[i];
    }
    CHECK(count >= 3);
    model.header = (struct node_header){.address = fabric_address_make(2, 0x10000),
                                        .version = prng_next(&prng),
                                        .tenure = prng_next(&prng),
                                        .sibling = prng_next(&prng),
                                        .level = (uint8_t)(1 + prng_below(&prng, 255)),
                                        .no_high = prng_chance(&prng, 0.3)};
    if (prng_chance(&prng, 0.7))
        model.header.low = model.entries[0].key;
    if (!model.header.no_high)
        model.header.high = model.entries[count - 1].key;
    model.leftmost = 1 + (prng_next(&prng) >> 1);
    model.count = count - 2;
    memmove(model.entries, model.entries + 1, model.count * sizeof(model.entries[0]));
}

/* As many of the model's separators as fit, in memory of exactly the node's size. */
static uint8_t *build(void)
{
    uint8_t *bytes = malloc(model.layout.node_bytes);
    CHECK(bytes != NULL);
    while (!inner_fits(&model.layout, &model.header, model.entries, model.count))
        model.count--;
    memset(bytes, 0xa5, model.layout.node_bytes);
    inner_build(&model.layout, &model.header, model.leftmost, model.entries, model.count, bytes);
    return bytes;
}

static fabric_address model_child(struct slice key, uint32_t *index)
{
    fabric_address child = model.leftmost;
    *index = 0;
    for (; *index < model.count && slice_compare(model.entries[*index].key, key) <= 0; ++*index)
        child = model.entries[*index].child;
    return child;
}

static void check_child(const uint8_t *bytes, struct slice key)
{
    uint32_t index, expected_index;
    uint8_t *exact = malloc(key.size);
    CHECK(exact != NULL);
    memcpy(exact, key.data, key.size);
    fabric_address child = inner_child(&model.layout, bytes, slice_of(exact, key.size), &index);
    CHECK_EQ_U64(child, model_child(key, &expected_index));
    CHECK_EQ_U64(index, expected_index);
    CHECK_EQ_U64(inner_child_at(&model.layout, bytes, index), child);

    /* The keys just below are in the child before, if this is where a child begins. */
    uint32_t before = expected_index;
    if (before > 0 && slice_equal(model.entries[before - 1].key, key))
        before--;
    child = inner_child_before(&model.layout, bytes, slice_of(exact, key.size), &index);
    CHECK_EQ_U64(index, before);
    CHECK_EQ_U64(child, before == 0 ? model.leftmost : model.entries[before - 1].child);
    free(exact);
}

static void check_inner(const struct shape *shape, const uint8_t *bytes)
{
    static uint8_t key[KEY_MAX];
    struct node_header header;
    fabric_address leftmost;
    uint32_t count;

    CHECK(node_header_read(&model.layout, model.header.address, bytes, &header));
    CHECK(inner_sound(&model.layout, &header, bytes));
    CHECK(header.version == model.header.version && header.tenure == model.header.tenure &&
          header.sibling == model.header.sibling && header.level == model.header.level &&
          header.no_high == model.header.no_high && !header.dead);
    CHECK(slice_equal(header.low, model.header.low) && slice_equal(header.high, model.header.high));
    struct slice high;
    CHECK(slice_equal(node_low_fence(&model.layout, bytes), header.low));
    CHECK(node_high_fence(&model.layout, bytes, &high) == !header.no_high);
    CHECK(slice_equal(high, header.high));

    inner_entries(&model.layout, bytes, &leftmost, read_back, &count);
    CHECK(count == model.count && inner_count(&model.layout, bytes) == count);
    CHECK_EQ_U64(leftmost, model.leftmost);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(slice_equal(read_back[i].key, model.entries[i].key));
        CHECK(slice_equal(inner_key_at(&model.layout, bytes, i), model.entries[i].key));
        CHECK_EQ_U64(read_back[i].child, model.entries[i].child);
        if (count < 100 || i % 16 == 0)
            check_child(bytes, model.entries[i].key);
    }
    for (int i = 0; i < 50; i++)
        check_child(bytes, random_key(shape, key));
}

static bool readable(const uint8_t *bytes)
{
    struct node_header header;
    return node_header_read(&model.layout, model.header.address, bytes, &header);
}

/* ---- torn and damaged ------------------------------------------------------------------------ */

static void check_flips(uint8_t *bytes)
{
    struct node_header header;
    CHECK(node_header_read(&model.layout, model.header.address, bytes, &header));
    for (uint32_t i = 0; i < 300; i++) {
        uint64_t bit = prng_below(&prng, (uint64_t)header.cell_bytes * 8);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(!readable(bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CHECK(readable(bytes));
    model.header.address += 64;
    CHECK(!readable(bytes));
    model.header.address -= 64;
    model.layout.table++;
    CHECK(!readable(bytes));
    model.layout.table--;
}

/* One word of the node as it was before a child was replaced. */
static void check_torn(const uint8_t *bytes)
{
    uint8_t *after = malloc(model.layout.node_bytes);
    CHECK(after != NULL);
    model.header.version++;
    model.leftmost++;
    inner_build(&model.layout, &model.header, model.leftmost, model.entries, model.count, after);
    for (uint32_t at = 0; at < model.layout.node_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, after + at, 8);
        if (memcmp(bytes + at, &word, 8) == 0)
            continue;
        memcpy(after + at, bytes + at, 8);
        CHECK(!readable(after));
        memcpy(after + at, &word, 8);
    }
    CHECK(readable(after));
    free(after);
    model.header.version--;
    model.leftmost--;
}

/* A right check over wrong bytes. */
static void seal(uint8_t *bytes, uint32_t cell_bytes)
{
    struct cell_place place = {.pool = model.layout.pool,
                               .table = model.layout.table,
                               .kind = NODE_KIND_INNER,
                               .address = model.header.address};
    uint64_t word =
        cell_header(&place, (uint16_t)model.header.version, 0, bytes + 8, cell_bytes - 8);
    memcpy(bytes, &word, 8);
}

/* Whoever can compute a check still cannot make a reader leave the node. */
static void check_malicious(uint8_t *bytes)
{
    struct node_header header;
    const uint16_t sizes[] = {NODE_LOW_SIZE, NODE_HIGH_SIZE, NODE_COUNT};
    uint16_t old, new;

    CHECK(node_header_read(&model.layout, model.header.address, bytes, &header));
    for (int i = 0; i < 3; i++) {
        memcpy(&old, bytes + sizes[i], 2);
        new = (uint16_t)(old + 64);
        memcpy(bytes + sizes[i], &new, 2);
        if (model.layout.key_size != 0 || i == 2)
            seal(bytes, header.cell_bytes);
        CHECK(!readable(bytes));
        memcpy(bytes + sizes[i], &old, 2);
    }
    bytes[NODE_FLAGS] ^= 4;
    seal(bytes, header.cell_bytes);
    CHECK(!readable(bytes));
    bytes[NODE_FLAGS] ^= 4;
    seal(bytes, header.cell_bytes);
    CHECK(readable(bytes));
    if (model.layout.key_size != 0 || model.count == 0)
        return;

    uint32_t places =
        (uint32_t)(inner_key_at(&model.layout, bytes, 0).data - bytes) - 4 * model.count;
    for (int i = 0; i < 50; i++) {
        uint32_t at = places + 4 * (uint32_t)prng_below(&prng, model.count), place, wrong;
        memcpy(&place, bytes + at, 4);
        wrong = place;
        switch (prng_below(&prng, 3)) {
        case 0: /* before the keys */
            wrong = (place & 0xffff0000) | (uint32_t)prng_below(&prng, places + 4 * model.count);
            break;
        case 1: /* beyond the cell */
            wrong =
                (place & 0xffff0000) | (header.cell_bytes + 1 + (uint32_t)prng_below(&prng, 99));
            break;
        case 2: /* too long */
            wrong = place | 0xffff0000;
            break;
        }
        memcpy(bytes + at, &wrong, 4);
        seal(bytes, header.cell_bytes);
        CHECK(!readable(bytes));
        memcpy(bytes + at, &place, 4);
    }
    seal(bytes, header.cell_bytes);
    CHECK(readable(bytes));
}

static bool sound_with(uint8_t *bytes)
{
    struct node_header header;
    inner_build(&model.layout, &model.header, model.leftmost, model.entries, model.count, bytes);
    CHECK(node_header_read(&model.layout, model.header.address, bytes, &header));
    return inner_sound(&model.layout, &header, bytes);
}

static void check_soundness(uint8_t *bytes)
{
    uint32_t i = (uint32_t)prng_below(&prng, model.count);
    struct inner_entry entry = model.entries[i];
    struct node_header header = model.header;

    CHECK(sound_with(bytes));
    model.entries[i].child = prng_chance(&prng, 0.5) ? 0 : model.header.address;
    CHECK(!sound_with(bytes));
    model.entries[i] = entry;
    if (model.count >= 2) {
        uint32_t j = i == 0 ? 1 : i - 1;
        model.entries[i].key = model.entries[j].key;
        if (inner_fits(&model.layout, &model.header, model.entries, model.count))
            CHECK(!sound_with(bytes));
        model.entries[i] = entry;
    }
    model.header.low = model.entries[0].key;
    CHECK(!inner_fits(&model.layout, &model.header, model.entries, model.count) ||
          !sound_with(bytes));
    model.header = header;
    model.header.no_high = false;
    model.header.high = model.entries[model.count - 1].key;
    CHECK(!inner_fits(&model.layout, &model.header, model.entries, model.count) ||
          !sound_with(bytes));
    model.header = header;
    CHECK(sound_with(bytes));
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* One more than fits, with no fences before and the longest after. */
static void check_split(const struct shape *shape)
{
    static uint8_t longest[KEY_MAX];
    struct node_header header = {.level = 1, .no_high = true};
    struct slice fence = slice_of(longest, shape->key_size != 0 ? shape->key_size : shape->key_max);
    uint32_t count = 0;

    while (count < model.count && inner_fits(&model.layout, &header, model.entries, count))
        count++;
    if (inner_fits(&model.layout, &header, model.entries, count))
        return; /* there were not enough */
    uint32_t up = inner_split_point(&model.layout, model.entries, count);
    CHECK(up >= 1 && up <= count - 2);
    if (shape->key_size != 0)
        CHECK(up == count / 2 || up == (count - 1) / 2);
    struct node_header left = {.level = 1, .low = fence, .high = model.entries[up].key};
    struct node_header right = {.level = 1, .low = model.entries[up].key, .high = fence};
    CHECK(inner_fits(&model.layout, &left, model.entries, up));
    CHECK(inner_fits(&model.layout, &right, model.entries + up + 1, count - up - 1));
}

static void test_shape(const struct shape *shape)
{
    for (uint32_t round = 0; round < shape->rounds; round++) {
        uint32_t most = shape->node_bytes / (prng_chance(&prng, 0.5) ? 16 : 64);
        if (most > KEYS_MAX - 2)
            most = KEYS_MAX - 2;
        random_model(shape, 1 + (uint32_t)prng_below(&prng, most));
        check_split(shape);
        uint8_t *bytes = build();
        CHECK(model.count > 0);
        check_inner(shape, bytes);
        check_flips(bytes);
        check_torn(bytes);
        check_malicious(bytes);
        check_soundness(bytes);
        check_inner(shape, bytes);
        free(bytes);
    }
}

/* An empty one, as the root is before its second child, and a dead one. */
static void test_empty(void)
{
    struct node_layout layout = {.pool = 1, .table = 1, .node_bytes = 256};
    struct node_header header = {.address = 512, .level = 1, .no_high = true}, out;
    uint8_t bytes[256];
    uint32_t index;

    CHECK_OK(node_layout_init(&layout, 8, 8));
    inner_build(&layout, &header, 77, NULL, 0, bytes);
    CHECK(node_header_read(&layout, 512, bytes, &out) && inner_sound(&layout, &out, bytes));
    CHECK(inner_child(&layout, bytes, slice_of_text("x"), &index) == 77 && index == 0);
    header.dead = true;
    inner_build(&layout, &header, 0, NULL, 0, bytes);
    CHECK(node_header_read(&layout, 512, bytes, &out) && out.dead);
}

int main(void)
{
    prng_seed(&prng, 6);
    test_empty();
    for (int i = 0; i < SHAPES; i++)
        test_shape(&shapes[i]);
    return 0;
}
