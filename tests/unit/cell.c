/*
 * Cells and intents: sound ones are recognised, and every single flipped bit, every missing or
 * exchanged word, and every other place is noticed.
 */
#include "pool/cell.h"

#include "base/prng.h"
#include "lib/check.h"
#include "pool/intent.h"

static struct prng prng;

static void test_cell(void)
{
    struct cell_place place = {.pool = 1, .table = 2, .kind = 3, .address = 0x1000};
    uint64_t cell[8], copy[8];

    for (int i = 1; i < 8; i++)
        cell[i] = prng_next(&prng);
    cell[0] = cell_header(&place, 0xbeef, 5, cell + 1, 56);
    CHECK(cell_valid(&place, cell, sizeof(cell)));
    CHECK(cell_version(cell[0]) == 0xbeef && cell_flags(cell[0]) == 5 &&
          cell_payload_bytes(cell[0]) == 56);
    CHECK(!cell_valid(&place, cell, sizeof(cell) - 8));
    CHECK(!cell_valid(&place, cell, 4));

    for (int bit = 0; bit < 512; bit++) {
        memcpy(copy, cell, sizeof(cell));
        copy[bit / 64] ^= (uint64_t)1 << bit % 64;
        CHECK(!cell_valid(&place, copy, sizeof(copy)));
    }
    for (int i = 0; i < 8; i++) {
        memcpy(copy, cell, sizeof(cell));
        copy[i] = prng_next(&prng);
        CHECK(!cell_valid(&place, copy, sizeof(copy)));
    }
    struct cell_place others[] = {place, place, place, place};
    others[0].pool++;
    others[1].table++;
    others[2].kind++;
    others[3].address += 64;
    for (int i = 0; i < 4; i++)
        CHECK(!cell_valid(&others[i], cell, sizeof(cell)));
    memset(cell, 0, sizeof(cell));
    CHECK(!cell_valid(&place, cell, sizeof(cell)));
}

/* A flipped bit is found wherever it is; of two of them there is no telling. */
static void test_flip(void)
{
    static const size_t sizes[] = {8, 16, 24, 136, 4096};
    struct cell_place place = {.pool = 7, .table = 8, .kind = 2, .address = 0x1000040};
    static uint64_t cell[512];

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t words = sizes[i] / 8, found = 0;
        for (size_t word = 1; word < words; word++)
            cell[word] = prng_next(&prng);
        cell[0] = cell_header(&place, 9, 1, cell + 1, sizes[i] - 8);
        for (size_t bit = 0; bit < sizes[i] * 8; bit++) {
            cell[bit / 64] ^= (uint64_t)1 << bit % 64;
            bool sizes_too = bit >= 48 && bit < 60; /* it is another cell then */
            enum cell_flip flip = cell_flip_find(&place, cell, sizes[i], &found);
            CHECK(sizes_too || flip == (bit < 32   ? CELL_FLIP_CHECK
                                        : bit < 64 ? CELL_FLIP_HEADER
                                                   : CELL_FLIP_PAYLOAD));
            CHECK(flip != CELL_FLIP_PAYLOAD || found == bit - 64);
            size_t other = prng_below(&prng, sizes[i] * 8);
            cell[other / 64] ^= (uint64_t)1 << other % 64;
            CHECK(other == bit || sizes_too || (other >= 48 && other < 60) ||
                  cell_flip_find(&place, cell, sizes[i], &found) == CELL_FLIP_NONE);
            cell[other / 64] ^= (uint64_t)1 << other % 64;
            cell[bit / 64] ^= (uint64_t)1 << bit % 64;
        }
    }
}

static void test_intent(void)
{
    static uint64_t buffer[2048], copy[2048];
    static struct intent intent;
    struct intent_builder builder;
    const struct intent_lock home = {0x8000, 42}, other = {0x8008, 43};
    const char image[] = "the bytes of a node, of any length";

    intent_begin(&builder, buffer, sizeof(buffer), home);
    intent_add_lock(&builder, other);
    intent_add_image(&builder, 0x10000, slice_of(image, sizeof(image)));
    intent_add_image(&builder, 0x20000, slice_of(image, 8));
    size_t size = intent_finish(&builder, 7, 0x4000);
    CHECK(size > 0 && size % 8 == 0);

    CHECK(intent_read(&intent, 7, 0x4000, buffer, sizeof(buffer)));
    CHECK(intent.home.address == home.address && intent.home.word == home.word);
    CHECK(intent.lock_count == 1 && intent.locks[0].word == other.word);
    CHECK(intent.image_count == 2 && intent.images[1].address == 0x20000);
    CHECK(slice_equal(intent.images[0].bytes, slice_of(image, sizeof(image))));

    CHECK(!intent_read(&intent, 8, 0x4000, buffer, sizeof(buffer)));
    CHECK(!intent_read(&intent, 7, 0x4008, buffer, sizeof(buffer)));
    CHECK(!intent_read(&intent, 7, 0x4000, buffer, size - 8));
    for (size_t word = 0; word < size / 8; word++) {
        memcpy(copy, buffer, sizeof(buffer));
        copy[word] ^= (uint64_t)1 << prng_below(&prng, 64);
        CHECK(!intent_read(&intent, 7, 0x4000, copy, sizeof(copy)));
    }
    buffer[0] = 0;
    CHECK(!intent_read(&intent, 7, 0x4000, buffer, sizeof(buffer)));

    intent_begin(&builder, buffer, 64, home);
    intent_add_image(&builder, 0x10000, slice_of(image, sizeof(image)));
    CHECK(intent_finish(&builder, 7, 0x4000) == 0);
}

int main(void)
{
    prng_seed(&prng, 5);
    test_cell();
    test_flip();
    test_intent();
    return 0;
}
