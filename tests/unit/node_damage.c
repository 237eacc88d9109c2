/*
 * Leaves with flipped bits, cells in the wrong place and words of anything: readers notice, and repair makes
 * something of it that can be read.
 */
#include "unit/node_world.h"

/* A leaf with some pairs and some empty cells. */
static void begin_filled(const struct shape *shape, uint32_t pairs)
{
    static struct pair pair;
    begin(shape);
    while (world.count < pairs) {
        struct node_header header = read_header(world.bytes);
        uint32_t offset, cell_bytes;
        absent_key(&pair);
        random_value(&pair);
        if (!leaf_place(&world.layout, &header, world.bytes, pair.key_size, pair.value_size,
                        &offset, &cell_bytes))
            break;
        insert_at(offset, cell_bytes, &pair);
    }
    CHECK(world.count >= 2);
    clear_pair(&world.pairs[0]);
    check_leaf(world.bytes);
}

/* ---- damage
 * ---------------------------------------------------------------------------------------- */

static void check_flips(uint32_t from, uint32_t bytes, bool header)
{
    static struct pair other;
    struct node_header out;
    uint32_t count;

    absent_key(&other);
    for (uint32_t bit = 0; bit < bytes * 8; bit++) {
        if (bytes > 128 && !prng_chance(&prng, 0.1))
            continue;
        uint8_t *byte = world.bytes + from + bit / 8;
        *byte ^= (uint8_t)(1u << bit % 8);
        if (header) {
            CHECK(!node_header_read(&world.layout, world.header.address, world.bytes, &out));
        } else {
            check_find_is(world.bytes, key_of(&other), LEAF_TORN);
            CHECK(!all_entries(world.bytes, &count));
        }
        *byte ^= (uint8_t)(1u << bit % 8);
    }
}

static void test_flipped_bits(const struct shape *shape)
{
    begin_filled(shape, 12);
    check_flips(0, read_header(world.bytes).cell_bytes, true);
    for (uint32_t i = 0; i < world.count; i++) {
        struct leaf_slot slot;
        CHECK(find(world.bytes, key_of(&world.pairs[i]), &slot) == LEAF_FOUND);
        check_flips(slot.offset, slot.bytes, false);
    }
    /* And the header word of a cell that was cleared. */
    struct leaf_slot slot;
    CHECK(find(world.bytes, key_of(&world.pairs[0]), &slot) == LEAF_FOUND);
    clear_pair(&world.pairs[0]);
    check_flips(slot.offset, 8, false);
    check_leaf(world.bytes);
    free(world.bytes);
}

/* Another address, table, pool: nothing here. A cell in another place, or an old empty word: torn.
 * */
static void test_elsewhere(const struct shape *shape)
{
    begin_filled(shape, 6);
    struct node_header header;
    fabric_address address = world.header.address;
    struct node_layout pool = world.layout, table = world.layout;
    pool.pool++;
    table.table++;
    CHECK(node_header_read(&world.layout, address, world.bytes, &header));
    CHECK(!node_header_read(&world.layout, address + 64, world.bytes, &header));
    CHECK(!node_header_read(&pool, address, world.bytes, &header));
    CHECK(!node_header_read(&table, address, world.bytes, &header));

    static struct pair other;
    struct leaf_slot from, to;
    absent_key(&other);
    CHECK(find(world.bytes, key_of(&world.pairs[0]), &from) == LEAF_FOUND);
    for (uint32_t i = 1; i < world.count; i++) {
        CHECK(find(world.bytes, key_of(&world.pairs[i]), &to) == LEAF_FOUND);
        if (to.bytes != from.bytes)
            continue;
        uint8_t *mixed = copy_of(world.bytes, world.layout.node_bytes);
        memcpy(mixed + to.offset, mixed + from.offset, from.bytes);
        check_find_is(mixed, key_of(&other), LEAF_TORN);
        memcpy(mixed, world.bytes, world.layout.node_bytes);
        memset(mixed + to.offset, 0, 8);
        check_find_is(mixed, key_of(&other), LEAF_TORN);
        free(mixed);
    }
    free(world.bytes);
}

/* Damage of any kind outside the header: afterwards the leaf can be read, and in a leaf of fixed
 * slots every
 * slot that was not damaged has its pair. */
static void test_repair_damage(const struct shape *shape)
{
    uint32_t count;
    for (int round = 0; round < 200; round++) {
        begin_filled(shape, 3 + (uint32_t)prng_below(&prng, 40));
        struct node_header header = read_header(world.bytes);
        CHECK_EQ_U64(leaf_repair(&world.layout, &header, world.bytes), 0);
        uint8_t *damaged = copy_of(world.bytes, world.layout.node_bytes);
        uint32_t words = (world.layout.node_bytes - header.cell_bytes) / 8;
        for (uint64_t i = prng_below(&prng, 6); i > 0; i--) {
            uint64_t word = prng_next(&prng) >> prng_below(&prng, 64);
            uint32_t at = header.cell_bytes + 8 * (uint32_t)prng_below(&prng, words);
            if (prng_chance(&prng,
                            0.5)) /* a word of the same leaf, such as another cell's header */
                memcpy(&word, world.bytes + header.cell_bytes + 8 * prng_below(&prng, words), 8);
            memcpy(damaged + at, &word, 8);
        }
        struct node_header again = read_header(damaged);
        leaf_repair(&world.layout, &again, damaged);
        CHECK(all_entries(damaged, &count));
        CHECK_EQ_U64(leaf_repair(&world.layout, &again, damaged), 0);
        for (uint32_t i = 0; i < world.count && world.layout.fixed; i++) {
            struct leaf_slot slot, now;
            CHECK(find(world.bytes, key_of(&world.pairs[i]), &slot) == LEAF_FOUND);
            if (memcmp(world.bytes + slot.offset, damaged + slot.offset, slot.bytes) == 0)
                CHECK(find(damaged, key_of(&world.pairs[i]), &now) == LEAF_FOUND);
        }
        free(damaged);
        free(world.bytes);
    }
}

/* A key that was cleared in one slot and put into another while the leaf was read: both cells are
 * whole. */
static void test_twins(void)
{
    static struct pair pair;
    uint32_t count, offset, cell_bytes;

    begin_filled(&shapes[0], 4);
    pair = world.pairs[0];
    struct node_header header = read_header(world.bytes);
    struct node_entry entry = entry_of(&pair);
    CHECK(leaf_place(&world.layout, &header, world.bytes, 8, 8, &offset, &cell_bytes));
    leaf_cell_build(&world.layout, &header, offset, cell_bytes, &entry, world.bytes + offset);
    check_finds(world.bytes, &pair);
    CHECK(!all_entries(world.bytes, &count));
    CHECK_EQ_U64(leaf_repair(&world.layout, &header, world.bytes), 1);
    check_leaf(world.bytes);
    free(world.bytes);
}

int main(void)
{
    prng_seed(&prng, 4);
    for (int i = 0; i < SHAPES; i++) {
        test_flipped_bits(&shapes[i]);
        test_elsewhere(&shapes[i]);
        test_repair_damage(&shapes[i]);
    }
    test_twins();
    return 0;
}
