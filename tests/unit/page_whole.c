/*
 * Pages as a whole: layouts, headers, fences of every kind, which side of them a key lies, and what
 * page_check refuses: every flipped byte, pages of other places, and sealed pages whose parts
 * contradict each other.
 */
#include "pool/cell.h"
#include "unit/page_world.h"

/* ---- layouts --------------------------------------------------------------------------------- */

/* Four of the largest pairs, in a leaf and in an inner page, between the longest fences. */
static void check_holds_four(const struct page_layout *layout, uint8_t level)
{
    static uint8_t low[KEY_MAX], high[KEY_MAX], value[VALUE_MAX];
    struct page_header header = {.level = level,
                                 .low = slice_of(low, layout->key_max),
                                 .high = slice_of(high, layout->key_max)};
    uint8_t *bytes = allocate(layout->page_bytes);

    memset(high, 0xff, sizeof(high));
    page_init(layout, &header, bytes);
    uint32_t largest = layout->value_size != 0 ? layout->value_size : layout->value_max;
    struct page_pair pair = {.key = header.low, .value = slice_of(value, level > 0 ? 8 : largest)};
    for (int i = 0; i < 4; i++)
        CHECK(page_push(layout, bytes, &pair));
    free(bytes);
}

static void test_layouts(const struct shape *shape)
{
    struct page_layout layout = layout_of(shape);
    while (page_layout_check(&layout) == PANDO_OK) {
        check_holds_four(&layout, 0);
        check_holds_four(&layout, 1);
        layout.page_bytes -= 64;
    }
    CHECK(layout.page_bytes >= PAGE_BYTES_MIN - 64);
    layout = layout_of(shape);
    layout.page_bytes += 8;
    CHECK_STATUS(page_layout_check(&layout), PANDO_INVALID);
    layout.page_bytes = PAGE_BYTES_MAX + 64;
    CHECK_STATUS(page_layout_check(&layout), PANDO_INVALID);
    layout.page_bytes = PAGE_BYTES_MAX;
    layout.key_max = PAGE_KEY_ROOM + 1;
    CHECK_STATUS(page_layout_check(&layout), PANDO_INVALID);
}

/* ---- headers and fences ---------------------------------------------------------------------- */

static void check_header(const struct page_header *header)
{
    const uint8_t *bytes = world.bytes;
    CHECK_EQ_U64(page_address(bytes), header->address);
    CHECK_EQ_U64(page_version(bytes), header->version);
    CHECK_EQ_U64(page_word(bytes, POOL_BLOCK_TENURE), header->tenure);
    CHECK_EQ_U64(page_sibling(bytes), header->sibling);
    CHECK_EQ_U64(page_stamp(bytes).epoch, header->stamp.epoch);
    CHECK_EQ_U64(page_stamp(bytes).lsn, header->stamp.lsn);
    CHECK_EQ_U64(page_level(bytes), header->level);
    CHECK_EQ_U64(page_pairs(bytes), world.count);
    check_fences(bytes, header);
}

static void test_header(const struct shape *shape)
{
    begin(shape);
    check_header(&world.header);
    CHECK(!page_dead(world.bytes));

    world.header.version++;
    world.header.sibling = 77;
    world.header.stamp = (struct page_stamp){5, 6};
    page_set_version(world.bytes, world.header.version);
    page_set_sibling(world.bytes, 77);
    page_set_stamp(world.bytes, world.header.stamp);
    check_header(&world.header);

    world.header.tenure = 99;
    page_set_dead(world.bytes, 99);
    CHECK(page_dead(world.bytes));
    check_header(&world.header);

    CHECK(page_stamp_below((struct page_stamp){1, 9}, (struct page_stamp){2, 0}));
    CHECK(page_stamp_below((struct page_stamp){1, 8}, (struct page_stamp){1, 9}));
    CHECK(!page_stamp_below((struct page_stamp){1, 9}, (struct page_stamp){1, 9}));
}

/* A key close to a fence: cut off, continued, or with another byte. */
static struct slice near_fence(struct slice fence, uint8_t to[2 * KEY_MAX])
{
    size_t size = fence.size;
    memcpy(to, fence.data, size);
    switch (prng_below(&prng, 4)) {
    case 0:
        return slice_of(to, prng_below(&prng, size + 1));
    case 1:
        random_bytes(to + size, 20);
        return slice_of(to, size + 1 + prng_below(&prng, 20));
    case 2:
        if (size > 0)
            to[prng_below(&prng, size)] ^= (uint8_t)(1u << prng_below(&prng, 8));
        return slice_of(to, size);
    default:
        return slice_of(to, size);
    }
}

static int sign(int number)
{
    return (number > 0) - (number < 0);
}

/* Bounds may be shorter and longer than any key, in pages of words too. */
static void check_sides(void)
{
    static uint8_t buffer[2 * KEY_MAX];
    for (int i = 0; i < 60; i++) {
        struct slice key =
            near_fence(prng_chance(&prng, 0.5) ? world.header.low : world.header.high, buffer);
        uint8_t *exact = memcpy(allocate(key.size), buffer, key.size);
        key.data = exact;
        if (sign(page_side(world.bytes, key)) != side_of(&world.header, key))
            CHECK_FAIL("%s: side %d of a key of %zu bytes, fences of %zu and %zu",
                       world.shape->name, page_side(world.bytes, key), key.size,
                       world.header.low.size, world.header.high.size);
        free(exact);
    }
}

static void test_fences(const struct shape *shape)
{
    static uint8_t low[KEY_MAX], high[KEY_MAX];
    for (int i = 0; i < 200; i++) {
        begin(shape);
        check_fences(world.bytes, &world.header);
        check_sides();
    }
    /* As long as they may be, and alike up to the last byte. */
    memset(low, 'a', sizeof(low));
    memcpy(high, low, sizeof(high));
    high[shape->key_max - 1]++;
    set_fences(slice_of(low, shape->key_max), slice_of(high, shape->key_max), false);
    page_init(&world.layout, &world.header, world.bytes);
    check_fences(world.bytes, &world.header);
    check_sides();
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void begin_filled(const struct shape *shape, uint32_t pairs)
{
    static struct pair pair;
    uint32_t index;
    begin(shape);
    for (int i = 0; i < 1000 && world.count < pairs; i++) {
        if (!random_key(&pair) || model_find(key_of(&pair), &index))
            continue;
        random_value(&pair);
        struct page_pair in = page_pair_of(&pair);
        if (page_insert(&world.layout, world.bytes, index, &in))
            model_insert(index, &pair);
    }
    check_page(world.bytes);
    page_seal(&world.layout, world.bytes);
}

static bool checks(const struct page_layout *layout, fabric_address address)
{
    return page_check(layout, address, world.bytes);
}

static void test_flips(const struct shape *shape)
{
    begin_filled(shape, 12);
    CHECK(checks(&world.layout, ADDRESS));
    uint32_t step = shape->page_bytes <= 1024 && SLOWER == 1 ? 1 : 37;
    for (uint32_t i = 0; i < shape->page_bytes; i++) {
        for (uint32_t flip = 1 + i % step; flip < 256; flip += step) {
            world.bytes[i] ^= (uint8_t)flip;
            if (checks(&world.layout, ADDRESS))
                CHECK_FAIL("%s: byte %u was changed by %u, and nobody noticed", shape->name, i,
                           flip);
            world.bytes[i] ^= (uint8_t)flip;
        }
    }
    CHECK(checks(&world.layout, ADDRESS));
}

/* Seals it for another place, leaving all bytes but the first four as they are. */
static void seal_for(const struct cell_place *place)
{
    uint64_t word = cell_header(place, (uint16_t)page_version(world.bytes), 0,
                                world.bytes + CELL_HEADER, world.layout.page_bytes - CELL_HEADER);
    page_word_set(world.bytes, 0, word);
}

static void test_places(const struct shape *shape)
{
    struct cell_place right = {.pool = 9, .table = 7, .kind = PAGE_KIND, .address = ADDRESS};
    struct cell_place wrong[4] = {right, right, right, right};
    wrong[0].pool++, wrong[1].table++, wrong[2].kind++, wrong[3].address += 64;

    begin_filled(shape, 5);
    CHECK(!checks(&world.layout, ADDRESS + 64));
    for (int i = 0; i < 4; i++) {
        seal_for(&wrong[i]);
        CHECK(!checks(&world.layout, ADDRESS));
    }
    /* A page that says it lies elsewhere, in a cell that lies here. */
    page_word_set(world.bytes, POOL_BLOCK_ADDRESS, ADDRESS + 64);
    seal_for(&right);
    CHECK(!checks(&world.layout, ADDRESS));
    page_word_set(world.bytes, POOL_BLOCK_ADDRESS, ADDRESS);
    seal_for(&right);
    CHECK(checks(&world.layout, ADDRESS));
    /* One of another size. */
    page_word_set(world.bytes, 0,
                  cell_header(&right, (uint16_t)page_version(world.bytes), 0,
                              world.bytes + CELL_HEADER, world.layout.page_bytes - 72));
    CHECK(!checks(&world.layout, ADDRESS));
    memset(world.bytes, 0, world.layout.page_bytes);
    CHECK(!checks(&world.layout, ADDRESS));
    CHECK(!checks(&world.layout, 0));
}

/* Believed without their CRC they are still not led astray by. */
static void test_unchecked(const struct shape *shape)
{
    begin_filled(shape, 5);
    world.layout.unchecked = true;
    world.bytes[0] ^= 1;
    CHECK(checks(&world.layout, ADDRESS));
    CHECK(!checks(&world.layout, ADDRESS + 64));
    page_word_set(world.bytes, PAGE_SHAPE,
                  page_word(world.bytes, PAGE_SHAPE) | (uint64_t)0xffff << 16);
    CHECK(!checks(&world.layout, ADDRESS));
}

/* ---- sealed, and yet no page ----------------------------------------------------------------- */

/* Sets a field of `bits` bits in a word, and seals the page. What it was is put back. */
static bool accepts(uint32_t word, uint32_t shift, uint32_t bits, uint64_t value)
{
    uint64_t mask = ((UINT64_C(1) << bits) - 1) << shift, old = page_word(world.bytes, word);
    page_word_set(world.bytes, word, (old & ~mask) | (value << shift & mask));
    page_seal(&world.layout, world.bytes);
    bool accepted = checks(&world.layout, ADDRESS);
    page_word_set(world.bytes, word, old);
    page_seal(&world.layout, world.bytes);
    CHECK(checks(&world.layout, ADDRESS));
    return accepted;
}

static void test_hostile_shapes(const struct shape *shape)
{
    begin_filled(shape, 5);
    CHECK(!accepts(PAGE_SHAPE, 16, 16, 0xffff));
    CHECK(!accepts(PAGE_SHAPE, 16, 16, shape->page_bytes / 16));
    CHECK(!accepts(PAGE_SHAPE, 32, 16, shape->key_max + 1));
    CHECK(!accepts(PAGE_SHAPE, 48, 16, shape->key_max + 1));
    CHECK(!accepts(PAGE_SHAPE, 32, 16, 0xffff));
}

/* Packed: what slots and heap say of each other. */
static void test_hostile_slots(const struct shape *shape)
{
    begin_filled(shape, 5);
    if (shape->words || world.count < 2)
        return;
    uint32_t slots = PAGE_FENCES + pad(world.header.low.size) + pad(world.header.high.size);
    uint64_t heap = page_word(world.bytes, PAGE_PACKED);
    uint64_t first = page_word(world.bytes, slots + 8);

    CHECK(!accepts(PAGE_PACKED, 0, 16, world.header.low.size + 1));  /* prefix */
    CHECK(!accepts(PAGE_PACKED, 16, 16, shape->page_bytes + 8));     /* heap behind the page */
    CHECK(!accepts(PAGE_PACKED, 16, 16, slots));                     /* heap over the slots */
    CHECK(!accepts(PAGE_PACKED, 16, 16, (heap >> 16 & 0xffff) + 4)); /* not of words */
    CHECK(!accepts(PAGE_PACKED, 32, 16, 8));                         /* garbage there is not */
    CHECK(!accepts(PAGE_PACKED, 32, 16, 0xfff8));
    CHECK(!accepts(slots + 8, 0, 16, shape->page_bytes + 8));
    CHECK(!accepts(slots + 8, 0, 16, (first & 0xffff) + 1));
    CHECK(!accepts(slots + 8, 0, 16, slots));
    CHECK(!accepts(slots + 8, 16, 16, shape->key_max + 1));
    CHECK(!accepts(slots + 8, 32, 31, shape->page_bytes));
    CHECK(!accepts(slots + 8, 32, 31, 0x7fffffff));
    CHECK(!accepts(slots + 8, 32, 32, PAGE_VALUE_BLOB | 9));
    /* Many that claim the same bytes would not fit when they are put apart. */
    page_word_set(world.bytes, slots + 8, page_word(world.bytes, slots + PAGE_SLOT + 8));
    page_seal(&world.layout, world.bytes);
    uint32_t apart = model_bytes(world.pairs[0]) != model_bytes(world.pairs[1]);
    CHECK(!apart || !checks(&world.layout, ADDRESS));
}

int main(void)
{
    prng_seed(&prng, 4711);
    for (uint32_t i = 0; i < SHAPES; i++) {
        test_layouts(&shapes[i]);
        test_header(&shapes[i]);
        test_fences(&shapes[i]);
        test_flips(&shapes[i]);
        test_places(&shapes[i]);
        test_unchecked(&shapes[i]);
        for (int round = 0; round < 20; round++) {
            test_hostile_shapes(&shapes[i]);
            test_hostile_slots(&shapes[i]);
        }
    }
    end_world();
    return 0;
}
