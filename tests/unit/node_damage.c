/*
 * Leaves with flipped bits, cells in the wrong place and words of anything: readers notice, and
 * repair changes nothing but what a dead writer may have left.
 */
#include "pool/cell.h"
#include "tree/blink/node/node_fmt.h"
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

/* ---- damage ---------------------------------------------------------------------------------- */

static void check_flips(uint32_t from, uint32_t bytes, bool header)
{
    static struct pair other;
    struct node_header out;
    struct leaf_slot slot;
    uint32_t count;

    absent_key(&other);
    for (uint32_t bit = 0; bit < bytes * 8; bit++) {
        if (bytes > 128 && !prng_chance(&prng, 0.1))
            continue;
        uint8_t *byte = world.bytes + from + bit / 8;
        *byte ^= (uint8_t)(1u << bit % 8);
        if (header) {
            CHECK(!node_header_read(&world.layout, world.header.address, world.bytes, &out));
            CHECK(!leaf_find_word(&world.layout, world.header.address, world.bytes,
                                  key_of(&world.pairs[0]), NULL, &slot));
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

/* Any words outside the header are overwritten. Without a death nothing is repaired; with some,
 * what is repaired can be read, and finds all cells that were not damaged. */
static void test_repair_damage(const struct shape *shape)
{
    uint32_t count;
    unsigned refused = 0;
    for (int round = 0; round < 200; round++) {
        begin_filled(shape, 3 + (uint32_t)prng_below(&prng, 40));
        struct node_header header = read_header(world.bytes);
        CHECK(leaf_repair(&world.layout, &header, world.bytes, 0) == 0);
        CHECK(leaf_repair(&world.layout, &header, world.bytes, LEAF_REPAIRS_MAX) == 0);
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
        uint8_t *before = copy_of(damaged, world.layout.node_bytes);
        struct node_header again = read_header(damaged);
        CHECK(leaf_repair(&world.layout, &again, damaged, 0) ==
              (all_entries(damaged, &count) ? 0 : -1));
        CHECK(memcmp(damaged, before, world.layout.node_bytes) == 0);
        unsigned most = (unsigned)prng_below(&prng, LEAF_REPAIRS_MAX + 1);
        int repaired = leaf_repair(&world.layout, &again, damaged, most);
        CHECK(repaired <= (int)most);
        if (repaired >= 0)
            CHECK(all_entries(damaged, &count));
        else
            CHECK(memcmp(damaged, before, world.layout.node_bytes) == 0);
        refused += repaired < 0;
        for (uint32_t i = 0; i < world.count && world.layout.fixed && repaired >= 0; i++) {
            struct leaf_slot slot, now;
            CHECK(find(world.bytes, key_of(&world.pairs[i]), &slot) == LEAF_FOUND);
            if (memcmp(world.bytes + slot.offset, damaged + slot.offset, slot.bytes) == 0)
                CHECK(find(damaged, key_of(&world.pairs[i]), &now) == LEAF_FOUND);
        }
        free(before);
        free(damaged);
        free(world.bytes);
    }
    CHECK(refused > 0);
}

/* One flipped bit of a pair's cell, after a death: repaired only where an update of one word, which
 * leaves version, size, flags, key and padding alone, may have been torn; and then the value is
 * what it was. Two such cells are one too many. */
static void test_flips_after_death(const struct shape *shape)
{
    struct leaf_slot slots[2];

    begin_filled(shape, 6);
    struct node_header header = read_header(world.bytes);
    for (int i = 0; i < 2; i++)
        CHECK(find(world.bytes, key_of(&world.pairs[i]), &slots[i]) == LEAF_FOUND);
    for (uint32_t bit = 0; bit < slots[0].bytes * 8; bit++) {
        uint8_t *bytes = copy_of(world.bytes, world.layout.node_bytes);
        bytes[slots[0].offset + bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(leaf_repair(&world.layout, &header, bytes, 0) == -1);
        int repaired = leaf_repair(&world.layout, &header, bytes, 1);
        bool version = bit >= 32 && bit < 48, sizes = bit >= 48 && bit < 60, empty = bit == 63;
        CHECK(repaired == -1 ||
              (repaired == 1 && !version && !empty && (!sizes || !world.layout.fixed)));
        struct leaf_slot now;
        if (repaired == 1)
            CHECK(find(bytes, key_of(&world.pairs[0]), &now) == LEAF_FOUND &&
                  slice_equal(now.entry.value, slots[0].entry.value) &&
                  now.entry.flags == slots[0].entry.flags);
        free(bytes);
    }
    for (unsigned most = 0; most <= 2; most++) {
        uint8_t *bytes = copy_of(world.bytes, world.layout.node_bytes);
        bytes[slots[0].offset] ^= 1;
        bytes[slots[1].offset] ^= 1;
        CHECK(leaf_repair(&world.layout, &header, bytes, most) == (most == 2 ? 2 : -1));
        free(bytes);
    }
    free(world.bytes);
}

/* ---- right checks over wrong bytes ----------------------------------------------------------- */

static void seal(uint8_t *bytes, uint32_t offset, uint8_t kind, uint32_t cell_bytes)
{
    struct cell_place place = {.pool = world.layout.pool,
                               .table = world.layout.table,
                               .kind = kind,
                               .address = world.header.address + offset};
    uint64_t word =
        cell_header(&place, (uint16_t)world.header.version, 0, bytes + offset + 8, cell_bytes - 8);
    memcpy(bytes + offset, &word, 8);
}

/* A header that says where it is not, ends elsewhere, or has sizes that do not go together. */
static void test_malicious_header(const struct shape *shape)
{
    static const struct {
        uint32_t at, size;
        uint64_t change;
    } changes[] = {{POOL_BLOCK_ADDRESS, 8, 64}, {POOL_BLOCK_VERSION, 2, 1},
                   {NODE_FLAGS, 1, 4},          {NODE_FLAGS, 1, NODE_NO_HIGH},
                   {NODE_LOW_SIZE, 2, 8},       {NODE_LOW_SIZE, 2, 0xfff0},
                   {NODE_HIGH_SIZE, 2, 8},      {NODE_COUNT, 2, 1}};
    struct node_header header;

    begin(shape);
    const uint32_t cell_bytes = read_header(world.bytes).cell_bytes;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        uint8_t *bytes = copy_of(world.bytes, world.layout.node_bytes);
        for (uint32_t byte = 0; byte < changes[i].size; byte++)
            bytes[changes[i].at + byte] ^= (uint8_t)(changes[i].change >> 8 * byte);
        seal(bytes, 0, NODE_KIND_LEAF, cell_bytes);
        if (shape->key_size != 8 || changes[i].at != NODE_LOW_SIZE || changes[i].change != 8)
            CHECK(!node_header_read(&world.layout, world.header.address, bytes, &header));
        free(bytes);
    }
    seal(world.bytes, 0, NODE_KIND_LEAF, cell_bytes + 8);
    CHECK(!node_header_read(&world.layout, world.header.address, world.bytes, &header));
    seal(world.bytes, 0, NODE_KIND_LEAF, cell_bytes - 8);
    CHECK(!node_header_read(&world.layout, world.header.address, world.bytes, &header));
    seal(world.bytes, 0, NODE_KIND_LEAF, cell_bytes);
    CHECK(node_header_read(&world.layout, world.header.address, world.bytes, &header));
    free(world.bytes);
}

/* Headers of every kind over slots that are whole: where the short way looks, it believes what the long one does. */
static void test_word(const struct shape *shape)
{
    static const uint16_t sizes[] = {0, 0, 8, 8, 1, 16, 0x108};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    unsigned found = 0;

    begin_filled(shape, 8);
    const uint32_t cell_bytes = read_header(world.bytes).cell_bytes;
    for (int round = 0; round < 20000; round++) {
        uint8_t *bytes = copy_of(world.bytes, world.layout.node_bytes);
        uint16_t low_size = sizes[prng_below(&prng, SIZES)];
        uint16_t high_size = sizes[prng_below(&prng, SIZES)];
        bytes[NODE_LEVEL] = prng_chance(&prng, 0.9) ? 0 : 1;
        bytes[NODE_FLAGS] = prng_chance(&prng, 0.8) ? high_size == 0 : prng_below(&prng, 5);
        memcpy(bytes + NODE_LOW_SIZE, &low_size, 2);
        memcpy(bytes + NODE_HIGH_SIZE, &high_size, 2);
        for (int i = 0; i < 2; i++)
            memcpy(bytes + NODE_FENCES + 8 * i, world.pairs[prng_below(&prng, world.count)].key, 8);
        if (prng_chance(&prng, 0.1))
            bytes[POOL_BLOCK_ADDRESS] ^= 64;
        if (prng_chance(&prng, 0.1))
            bytes[POOL_BLOCK_VERSION] ^= 1;
        if (prng_chance(&prng, 0.1))
            bytes[NODE_COUNT] ^= 1;
        uint32_t slot = cell_bytes + world.layout.slot_bytes * (uint32_t)prng_below(&prng, 8);
        if (prng_chance(&prng, 0.1))
            seal(bytes, slot, NODE_KIND_SLOT, world.layout.slot_bytes - 8);
        seal(bytes, 0, NODE_KIND_LEAF,
             cell_bytes + (prng_chance(&prng, 0.9)   ? 0
                           : prng_chance(&prng, 0.5) ? 8
                                                     : -8));
        if (prng_chance(&prng, 0.1))
            bytes[prng_below(&prng, world.layout.node_bytes)] ^= 1;
        for (uint32_t i = 0; i < world.count; i++)
            found += check_word(bytes, key_of(&world.pairs[i]));
        free(bytes);
    }
    CHECK(found > 1000);
    free(world.bytes);
}

/* A packed cell, the last in its leaf, whose sizes lead out of it. */
static void test_malicious_sizes(const struct shape *shape)
{
    static struct pair other;
    uint32_t count;

    begin(shape);
    struct node_header header = read_header(world.bytes);
    const uint32_t offset = world.layout.node_bytes - 24;
    const uint64_t hole = leaf_cleared_word(&world.layout, &header, offset - header.cell_bytes);
    static const uint64_t sizes[] = {
        9,
        0x400,
        0xffff,                /* a key longer than its cell */
        (uint64_t)1 << 32 | 8, /* a value behind a key that fills it */
        (uint64_t)9 << 32 | 8,
        (uint64_t)UINT32_MAX << 32 | 8,
        (uint64_t)UINT32_MAX << 32 | 1,
        0x10008, /* not zero where it should be */
    };

    memcpy(world.bytes + header.cell_bytes, &hole, 8);
    absent_key(&other);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memcpy(world.bytes + offset + 8, &sizes[i], 8);
        seal(world.bytes, offset, NODE_KIND_SLOT, 24);
        check_find_is(world.bytes, key_of(&other), LEAF_TORN);
        CHECK(!all_entries(world.bytes, &count));
        CHECK(leaf_repair(&world.layout, &header, world.bytes, LEAF_REPAIRS_MAX) == -1);
    }
    /* A cell too short for sizes, at the very end. */
    const uint64_t rest = leaf_cleared_word(&world.layout, &header, 16);
    memcpy(world.bytes + offset, &rest, 8);
    seal(world.bytes, offset + 16, NODE_KIND_SLOT, 8);
    check_find_is(world.bytes, key_of(&other), LEAF_TORN);
    memcpy(world.bytes + offset, &(uint64_t){leaf_cleared_word(&world.layout, &header, 8)}, 8);
    check_leaf(world.bytes);
    free(world.bytes);
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
    CHECK(leaf_repair(&world.layout, &header, world.bytes, LEAF_REPAIRS_MAX) == 0);
    CHECK(!all_entries(world.bytes, &count)); /* for the caller to call damage */
    free(world.bytes);
}

int main(void)
{
    prng_seed(&prng, 4);
    for (int i = 0; i < SHAPES; i++) {
        test_flipped_bits(&shapes[i]);
        test_elsewhere(&shapes[i]);
        test_repair_damage(&shapes[i]);
        test_flips_after_death(&shapes[i]);
        test_malicious_header(&shapes[i]);
        if (shapes[i].key_size == 0 && shapes[i].value_size == 0)
            test_malicious_sizes(&shapes[i]);
        if (world.layout.fixed && shapes[i].key_size == 8 && shapes[i].node_bytes <= 1024)
            test_word(&shapes[i]);
    }
    test_twins();
    return 0;
}
