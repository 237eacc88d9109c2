/*
 * The pieces of a node by themselves: layouts, fences, the bytes of the format, search and its
 * twins.
 */
#include "base/prng.h"
#include "lib/check.h"
#include "tree/blink/node/node.h"
#include "tree/blink/node/search.h"

static struct prng prng;
static struct node_entry entries[NODE_ENTRIES_MAX];

/* ---- pieces ---------------------------------------------------------------------------------- */

static void test_layout(void)
{
    struct node_layout layout = {.node_bytes = 1024, .key_size = 8, .value_size = 8};
    CHECK_OK(node_layout_init(&layout, 8, 8));
    CHECK(layout.fixed && layout.slots_at == 64 && layout.slot_bytes == 24 &&
          layout.slot_count == 40);

    layout = (struct node_layout){.node_bytes = 1024};
    CHECK_OK(node_layout_init(&layout, 20, 64));
    CHECK(!layout.fixed && layout.slot_count == 0);
    CHECK_EQ_U64(leaf_cell_bytes(&layout, 20, 64), 104);

    static const struct {
        uint32_t key_size, value_size, key_max, value_max, node_bytes;
    } wrong[] = {
        {.key_max = 8, .value_max = 8, .node_bytes = 192},
        {.key_max = 8, .value_max = 8, .node_bytes = 1000},
        {.key_max = 8, .value_max = 8, .node_bytes = 65536},
        {.key_max = 0, .value_max = 8, .node_bytes = 1024},
        {.key_max = 1025, .value_max = 8, .node_bytes = 32768},
        {.key_max = 16, .value_max = 16, .node_bytes = 256},
        {.key_max = 1024, .value_max = 512, .node_bytes = 8320 - 64},
        {.key_size = 9, .key_max = 8, .value_max = 8, .node_bytes = 1024},
        {.key_size = 8, .value_size = 256, .key_max = 8, .value_max = 256, .node_bytes = 1024},
        {.key_size = 8, .value_size = 9, .key_max = 8, .value_max = 8, .node_bytes = 1024},
        {.key_max = 8, .value_max = UINT32_MAX, .node_bytes = 1024},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        layout = (struct node_layout){.node_bytes = wrong[i].node_bytes,
                                      .key_size = wrong[i].key_size,
                                      .value_size = wrong[i].value_size};
        CHECK_STATUS(node_layout_init(&layout, wrong[i].key_max, wrong[i].value_max),
                     PANDO_INVALID);
    }
}

static void test_fences(void)
{
    static const char *keys[] = {"", "a", "aa", "ab", "b"};
    struct node_header header = {.low = slice_of_text("aa"), .high = slice_of_text("b")};
    static const bool covered[] = {false, false, true, true, false};
    for (int i = 0; i < 5; i++) {
        CHECK(node_covers(&header, slice_of_text(keys[i])) == covered[i]);
        CHECK(node_right_of(&header, slice_of_text(keys[i])) == (i == 4));
    }
    header.no_high = true;
    CHECK(node_covers(&header, slice_of_text("b")) && !node_right_of(&header, slice_of_text("b")));

    /* As bytes, not as integers of this machine. */
    header = (struct node_header){.low = slice_of("\0\0\0\0\0\0\1\0", 8),
                                  .high = slice_of("\1\0\0\0\0\0\0\0", 8)};
    CHECK(node_covers(&header, slice_of("\0\0\0\0\0\0\1\0", 8)));
    CHECK(node_covers(&header, slice_of("\0\0\0\0\0\0\2\0", 8)));
    CHECK(!node_covers(&header, slice_of("\0\0\0\0\0\0\0\377", 8)));
    CHECK(!node_covers(&header, slice_of("\1\0\0\0\0\0\0\0", 8)));
}

/* Pairs outside the fences are there for nobody. */
static void test_outside_fences(void)
{
    struct node_layout layout = {.node_bytes = 256};
    struct node_header header = {
        .address = 64, .low = slice_of_text("b"), .high = slice_of_text("d")};
    struct node_entry all[] = {{.key = slice_of_text("a"), .value = slice_of_text("1")},
                               {.key = slice_of_text("b"), .value = slice_of_text("2")},
                               {.key = slice_of_text("cc"), .value = slice_of_text("3")},
                               {.key = slice_of_text("d"), .value = slice_of_text("4")}};
    uint8_t bytes[256];
    uint32_t count;

    CHECK_OK(node_layout_init(&layout, 8, 8));
    leaf_build(&layout, &header, all, 4, bytes);
    CHECK(node_header_read(&layout, 64, bytes, &header));
    CHECK(leaf_entries(&layout, &header, bytes, entries, &count));
    CHECK_EQ_U64(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(slice_equal(entries[i].key, all[i + 1].key));
        CHECK(slice_equal(entries[i].value, all[i + 1].value));
    }
}

static void test_one_word(void)
{
    uint8_t from[32] = {0}, to[32] = {0};
    CHECK(leaf_one_word(from, to, 32));
    from[0] = 1; /* the check */
    to[8] = to[15] = 1;
    CHECK(leaf_one_word(from, to, 32));
    to[16] = 1;
    CHECK(!leaf_one_word(from, to, 32));
    to[16] = 0;
    to[7] = 0x10; /* a flag */
    CHECK(!leaf_one_word(from, to, 32));
}

/* Words as they were when the format was made (the checks by another program): whoever changes
 * them raises NODE_FORMAT_VERSION. */
static void check_words(const uint8_t *bytes, const uint64_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, bytes + 8 * i, 8);
        if (word != expected[i])
            CHECK_FAIL("word %zu is 0x%016" PRIx64 ", not 0x%016" PRIx64, i, word, expected[i]);
    }
}

static const struct node_header format_header = {.address = 0x40000,
                                                 .version = 0x12345,
                                                 .tenure = 0x0200000700010001,
                                                 .sibling = 0x50000,
                                                 .low = {(const uint8_t *)"aaaaaaaa", 8},
                                                 .high = {(const uint8_t *)"zzzzzzzz", 8}};

static void test_format_slots(void)
{
    static const uint64_t expected[] = {0x000723458d666ab0,
                                        0x0000000000040000,
                                        0x0000000000012345,
                                        0x0200000700010001,
                                        0x0000000000050000,
                                        0x0000000800080000,
                                        0x6161616161616161,
                                        0x7a7a7a7a7a7a7a7a,
                                        0x00022345ba985a2d,
                                        0x6262626262626262,
                                        0x3131313131313131,
                                        0x80022345a75f53d7,
                                        0,
                                        0,
                                        0x80022345a75f53d7};
    struct node_layout layout = {
        .pool = 7, .table = 7, .node_bytes = 256, .key_size = 8, .value_size = 8};
    struct node_entry entry = {.key = slice_of_text("bbbbbbbb"),
                               .value = slice_of_text("11111111")};
    uint8_t bytes[256];

    memset(bytes, 0xa5, sizeof(bytes));
    CHECK_OK(node_layout_init(&layout, 8, 8));
    leaf_build(&layout, &format_header, &entry, 1, bytes);
    check_words(bytes, expected, sizeof(expected) / 8);
}

static void test_format_packed(void)
{
    static const uint64_t expected[] = {
        0x000723458d666ab0, 0x0000000000040000, 0x0000000000012345, 0x0200000700010001,
        0x0000000000050000, 0x0000000800080000, 0x6161616161616161, 0x7a7a7a7a7a7a7a7a,
        0x100323454961faa9, 0x0000000800000002, 0x0000000000006262, 0x3131313131313131,
        0x800023453527a999, 0x800023453527a999, 0x800023453527a999, 0x800023453527a999,
        0x800023453527a999, 0x800023453527a999, 0x800023453527a999, 0x800023453527a999,
        0x800023453527a999, 0x800023453527a999, 0x800023453527a999, 0x800023453527a999,
        0x800023453527a999, 0x800023453527a999, 0x800023453527a999, 0x800023453527a999,
        0x800023453527a999, 0x800023453527a999, 0x800023453527a999, 0x800023453527a999};
    struct node_layout layout = {.pool = 7, .table = 7, .node_bytes = 256};
    struct node_entry entry = {
        .key = slice_of_text("bb"), .value = slice_of_text("11111111"), .flags = NODE_FLAG_BLOB};
    uint8_t bytes[256];

    memset(bytes, 0xa5, sizeof(bytes));
    CHECK_OK(node_layout_init(&layout, 8, 8));
    leaf_build(&layout, &format_header, &entry, 1, bytes);
    check_words(bytes, expected, sizeof(expected) / 8);
}

static void test_format_inner(void)
{
    static const uint64_t fixed[] = {0x000a234508043935, 0x0000000000040000, 0x0000000000012345,
                                     0x0200000700010001, 0x0000000000050000, 0x0001000800080001,
                                     0x6161616161616161, 0x7a7a7a7a7a7a7a7a, 0x0000000000060000,
                                     0x6262626262626262, 0x0000000000070000, 0};
    static const uint64_t any[] = {0x000b234550285945,
                                   0x0000000000040000,
                                   0x0000000000012345,
                                   0x0200000700010001,
                                   0x0000000000050000,
                                   0x0001000800080001,
                                   0x6161616161616161,
                                   0x7a7a7a7a7a7a7a7a,
                                   0x0000000000060000,
                                   0x0000000000070000,
                                   0x6262626200080054,
                                   0x0000000062626262,
                                   0};
    struct node_layout layout = {.pool = 7, .table = 7, .node_bytes = 256, .key_size = 8};
    struct node_header header = format_header;
    struct inner_entry entry = {.key = slice_of_text("bbbbbbbb"), .child = 0x70000};
    uint8_t bytes[256];

    header.level = 1;
    CHECK_OK(node_layout_init(&layout, 8, 8));
    inner_build(&layout, &header, 0x60000, &entry, 1, bytes);
    check_words(bytes, fixed, sizeof(fixed) / 8);

    memset(bytes, 0xa5, sizeof(bytes));
    layout.key_size = 0;
    CHECK_OK(node_layout_init(&layout, 8, 8));
    inner_build(&layout, &header, 0x60000, &entry, 1, bytes);
    check_words(bytes, any, sizeof(any) / 8);
}

static void test_search(void)
{
    size_t implementations;
    const struct search_implementation *all = search_implementations(&implementations);
    static const uint32_t sizes[] = {24, 16, 32, 80};

    CHECK(implementations >= 1);
    for (int round = 0; round < 20000; round++) {
        uint32_t slot_bytes = sizes[prng_below(&prng, 4) * prng_below(&prng, 2)];
        uint32_t count = (uint32_t)prng_below(&prng, SEARCH_SLOTS_MAX + 1);
        uint64_t expected = 0, key = prng_next(&prng);
        uint8_t *slots = malloc(count == 0 ? 1 : count * slot_bytes);
        CHECK(slots != NULL);
        for (uint32_t i = 0; i < count * slot_bytes; i += 8) {
            /* The key also where it does not count: as a header or a value. */
            uint64_t word = prng_chance(&prng, 0.1) ? key : prng_next(&prng);
            memcpy(slots + i, &word, 8);
            if (i % slot_bytes == 8 && word == key)
                expected |= (uint64_t)1 << i / slot_bytes;
        }
        for (size_t i = 0; i < implementations; i++)
            CHECK_EQ_U64(all[i].slots(slots, slot_bytes, count, key), expected);
        CHECK_EQ_U64(search_slots(slots, slot_bytes, count, key), expected);
        free(slots);
    }
}

int main(void)
{
    prng_seed(&prng, 3);
    test_layout();
    test_fences();
    test_outside_fences();
    test_one_word();
    test_format_slots();
    test_format_packed();
    test_format_inner();
    test_search();
    return 0;
}
