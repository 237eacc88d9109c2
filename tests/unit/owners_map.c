/*
 * Partition maps: cutting, joining and finding against a list of marks, copies, round trips through
 * bytes, limits, and bytes that were sealed by somebody who means harm.
 */
#include "owners/map.h"

#include "base/prng.h"
#include "lib/check.h"
#include "pool/cell.h"

enum { POOL = 9, TABLE = 7, ADDRESS = 0x10000, TENURE = 5, ROUNDS = 300 };

static struct prng prng;

static struct map *new_map(void)
{
    struct map *map = map_create();
    CHECK(map != NULL);
    map->address = ADDRESS;
    map->version = prng_next(&prng);
    map->epoch = prng_next(&prng);
    map->root = prng_next(&prng);
    return map;
}

static struct map *copy_of(const struct map *map)
{
    struct map *copy = map_copy(map);
    CHECK(copy != NULL);
    return copy;
}

static void random_part(struct map_partition *part)
{
    part->owner = prng_below(&prng, 3);
    part->taker = prng_below(&prng, 2);
    part->epoch = prng_below(&prng, 2);
    part->log = prng_below(&prng, 2);
    part->log_version = prng_below(&prng, 2);
}

/* Few bytes: many are prefixes of others or end in zeroes. Never empty. */
static struct slice random_key(uint8_t to[PANDO_KEY_MAX])
{
    static const uint8_t alphabet[] = {0, 1, 128, 255};
    size_t size = 1 + prng_below(&prng, prng_chance(&prng, 0.9) ? 6 : PANDO_KEY_MAX);
    for (size_t i = 0; i < size; i++)
        to[i] = alphabet[prng_below(&prng, sizeof(alphabet))];
    return slice_of(to, size);
}

static bool same_part(const struct map_partition *a, const struct map_partition *b)
{
    return slice_equal(a->low, b->low) && a->owner == b->owner && a->taker == b->taker &&
           a->epoch == b->epoch && a->log == b->log && a->log_version == b->log_version;
}

/* What holds of every map. */
static void check_map(const struct map *map)
{
    CHECK(map->count >= 1 && map->count <= MAP_PARTITIONS_MAX && map->parts[0].low.size == 0);
    for (uint32_t i = 0; i < map->count; i++) {
        const struct map_partition *part = &map->parts[i];
        struct slice high;
        CHECK(part->low.data >= map->keys &&
              part->low.data + part->low.size <= map->keys + map->key_bytes);
        CHECK(i == 0 || slice_compare(map->parts[i - 1].low, part->low) < 0);
        CHECK(map_partition_high(map, part, &high) == (i + 1 < map->count));
        CHECK(i + 1 == map->count || slice_equal(high, map->parts[i + 1].low));
        CHECK(map_find(map, part->low) == part);
    }
}

/* The part of a key, by the definition. */
static const struct map_partition *part_of(const struct map *map, struct slice key)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < map->count; i++) {
        if (slice_compare(map->parts[i].low, key) <= 0)
            at = i;
    }
    return &map->parts[at];
}

static void check_same(const struct map *a, const struct map *b)
{
    CHECK_EQ_U64(a->address, b->address);
    CHECK_EQ_U64(a->version, b->version);
    CHECK_EQ_U64(a->epoch, b->epoch);
    CHECK_EQ_U64(a->root, b->root);
    CHECK_EQ_U64(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++)
        CHECK(same_part(&a->parts[i], &b->parts[i]));
}

/* ---- cutting and joining --------------------------------------------------------------------- */

/* A cut changes nothing for any key but where its part begins. */
static void check_cut(struct map *map, struct slice key)
{
    struct map *before = copy_of(map);
    enum pando_status status = map_cut(map, key);
    check_map(map);
    if (status != PANDO_OK) {
        CHECK_STATUS(status, PANDO_FULL);
        check_same(map, before);
        free(before);
        return;
    }
    bool there = slice_equal(part_of(before, key)->low, key);
    CHECK_EQ_U64(map->count, before->count + (there ? 0 : 1));
    CHECK(slice_equal(map_find(map, key)->low, key));
    for (uint32_t i = 0; i < map->count; i++) {
        struct map_partition expected = *part_of(before, map->parts[i].low);
        expected.low = map->parts[i].low;
        CHECK(same_part(&map->parts[i], &expected));
    }
    for (uint32_t i = 0; i < before->count; i++)
        CHECK(slice_equal(map_find(map, before->parts[i].low)->low, before->parts[i].low));
    free(before);
}

/* Joining changes nobody's owner, and leaves no neighbours that are alike. The epoch of what nobody owns may
 * rise. */
static void check_join(struct map *map)
{
    struct map *before = copy_of(map);
    map_join(map);
    check_map(map);
    for (uint32_t i = 0; i < before->count; i++) {
        struct map_partition now = *map_find(map, before->parts[i].low);
        now.low = before->parts[i].low;
        CHECK(now.epoch >= before->parts[i].epoch);
        if (now.owner == 0)
            now.epoch = before->parts[i].epoch;
        CHECK(same_part(&now, &before->parts[i]));
    }
    for (uint32_t i = 1; i < map->count; i++) {
        struct map_partition left = map->parts[i - 1];
        left.low = map->parts[i].low;
        if (left.owner == 0)
            left.epoch = map->parts[i].epoch;
        CHECK(!same_part(&left, &map->parts[i]) || left.frozen != map->parts[i].frozen);
    }
    free(before);
}

static void test_cuts(void)
{
    uint8_t key[PANDO_KEY_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        struct map *map = new_map();
        uint64_t cuts = prng_below(&prng, 30);
        for (uint64_t i = 0; i < cuts; i++) {
            check_cut(map, random_key(key));
            random_part(&map->parts[prng_below(&prng, map->count)]);
            struct slice other = random_key(key);
            CHECK(map_find(map, other) == part_of(map, other));
        }
        check_cut(map, slice_of(key, 0)); /* there is always a part that begins there */
        check_join(map);
        check_join(map);
        free(map);
    }
}

static void test_join(void)
{
    struct map *map = new_map();
    CHECK_OK(map_cut(map, slice_of_text("b")));
    CHECK_OK(map_cut(map, slice_of_text("c")));
    CHECK_OK(map_cut(map, slice_of_text("a")));
    CHECK_EQ_U64(map->count, 4);
    map->parts[2].frozen = true; /* what is given away is told from what stays */
    map_join(map);
    CHECK_EQ_U64(map->count, 3);
    CHECK(slice_equal(map->parts[1].low, slice_of_text("b")));
    map->parts[1].frozen = false;
    map_join(map);
    CHECK_EQ_U64(map->count, 1);
    free(map);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void test_copies(void)
{
    uint8_t key[PANDO_KEY_MAX];
    struct map *map = new_map();
    for (int i = 0; i < 20; i++) {
        CHECK_OK(map_cut(map, random_key(key)));
        random_part(&map->parts[prng_below(&prng, map->count)]);
    }
    map->parts[1].frozen = true;
    struct map *copy = copy_of(map);
    check_map(copy);
    check_same(map, copy);
    CHECK(copy->parts[1].frozen);
    memset(map, 0xee, sizeof(*map)); /* the copy has nothing in it */
    free(map);
    check_map(copy);
    free(copy);
}

/* Maps live on as copies of copies: what was joined takes no room for ever. */
static void test_cut_for_ever(void)
{
    uint8_t key[PANDO_KEY_MAX] = {1};
    struct map *map = new_map();
    for (uint64_t i = 0; i < 200; i++) {
        struct map *next = copy_of(map);
        memcpy(key + 1, &i, sizeof(i));
        CHECK_OK(map_cut(next, slice_of(key, sizeof(key))));
        check_map(next);
        map_join(next);
        CHECK_EQ_U64(next->count, 1);
        free(map);
        map = next;
    }
    free(map);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void check_round_trip(const struct map *map)
{
    static uint8_t bytes[MAP_BYTES];
    struct map *again = map_create();
    CHECK(again != NULL);
    uint32_t used = map_encode(map, POOL, TABLE, TENURE, bytes);
    CHECK(used >= MAP_HEADER + map->count * MAP_PART && used <= MAP_BYTES && used % 8 == 0);
    CHECK(map_block_bytes(used) >= used && map_block_bytes(used) <= MAP_BYTES);
    CHECK(map_decode(again, POOL, TABLE, ADDRESS, bytes));
    CHECK_EQ_U64(again->bytes, used);
    check_map(again);
    check_same(map, again);
    /* Nothing behind it counts. */
    memset(bytes + used, 0xee, MAP_BYTES - used);
    CHECK(map_decode(again, POOL, TABLE, ADDRESS, bytes));
    check_same(map, again);
    free(again);
}

static void test_round_trips(void)
{
    uint8_t key[PANDO_KEY_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        struct map *map = new_map();
        uint64_t cuts = prng_below(&prng, 40);
        for (uint64_t i = 0; i < cuts; i++) {
            enum pando_status status = map_cut(map, random_key(key));
            CHECK(status == PANDO_OK || status == PANDO_FULL);
            random_part(&map->parts[prng_below(&prng, map->count)]);
        }
        check_round_trip(map);
        free(map);
    }
}

static void test_damage(void)
{
    static uint8_t bytes[MAP_BYTES];
    struct map *map = new_map(), *again = map_create();
    CHECK(again != NULL);
    CHECK_OK(map_cut(map, slice_of_text("in the middle")));
    uint32_t used = map_encode(map, POOL, TABLE, TENURE, bytes);
    CHECK(map_decode(again, POOL, TABLE, ADDRESS, bytes));
    CHECK(!map_decode(again, POOL + 1, TABLE, ADDRESS, bytes));
    CHECK(!map_decode(again, POOL, TABLE + 1, ADDRESS, bytes));
    CHECK(!map_decode(again, POOL, TABLE, ADDRESS + 64, bytes));
    for (uint32_t i = 0; i < used; i++) {
        for (uint32_t flip = 1; flip < 256; flip++) {
            bytes[i] ^= (uint8_t)flip;
            CHECK(!map_decode(again, POOL, TABLE, ADDRESS, bytes));
            bytes[i] ^= (uint8_t)flip;
        }
    }
    memset(bytes, 0, sizeof(bytes));
    CHECK(!map_decode(again, POOL, TABLE, ADDRESS, bytes));
    free(map);
    free(again);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Cuts at keys of a size until it is full: whatever was taken can be encoded. */
static uint32_t fill(size_t key_size)
{
    uint8_t key[PANDO_KEY_MAX] = {1};
    struct map *map = new_map();
    enum pando_status status = PANDO_OK;
    uint32_t cuts = 0;
    for (uint32_t i = 0; status == PANDO_OK && i < 2 * MAP_PARTITIONS_MAX; i++) {
        uint32_t number = __builtin_bswap32(i * 2654435761u);
        memcpy(key + (key_size > 4), &number, sizeof(number));
        status = map_cut(map, slice_of(key, key_size));
        cuts += status == PANDO_OK;
        check_map(map);
        check_round_trip(map);
    }
    CHECK_STATUS(status, PANDO_FULL);
    CHECK_OK(map_cut(map, map->parts[map->count / 2].low)); /* that it has already */
    CHECK_EQ_U64(map->count, cuts + 1);
    free(map);
    return cuts;
}

/* As many as the format has room for, and not one more. */
static void test_limits(void)
{
    CHECK_EQ_U64(fill(8), MAP_PARTITIONS_MAX - 1);
    CHECK_EQ_U64(fill(80), (MAP_BYTES - MAP_HEADER - MAP_PART) / (MAP_PART + 80));
    CHECK_EQ_U64(fill(81), (MAP_BYTES - MAP_HEADER - MAP_PART) / (MAP_PART + 88));
    CHECK_EQ_U64(fill(PANDO_KEY_MAX),
                 (MAP_BYTES - MAP_HEADER - MAP_PART) / (MAP_PART + PANDO_KEY_MAX));

    static uint8_t longer[PANDO_KEY_MAX + 1];
    struct map *map = new_map();
    CHECK_STATUS(map_cut(map, slice_of(longer, sizeof(longer))), PANDO_INVALID);
    CHECK_EQ_U64(map->count, 1);
    free(map);
}

/* ---- sealed by somebody who means harm ------------------------------------------------------- */

struct hostile {
    struct map_head_fmt head;
    struct map_part_fmt parts[MAP_PARTITIONS_MAX];
    uint8_t rest[MAP_BYTES - MAP_HEADER - MAP_PARTITIONS_MAX * MAP_PART];
};
_Static_assert(sizeof(struct hostile) == MAP_BYTES, "as large as they get");

/* Three parts: "", "b", "c", as they should be. */
static void hostile_begin(struct hostile *map)
{
    struct map *good = new_map();
    CHECK_OK(map_cut(good, slice_of_text("b")));
    CHECK_OK(map_cut(good, slice_of_text("c")));
    CHECK(map_encode(good, POOL, TABLE, TENURE, (uint8_t *)map) > 0);
    free(good);
}

static bool hostile_accepted(struct hostile *map)
{
    struct cell_place place = {.pool = POOL, .table = TABLE, .kind = MAP_KIND, .address = ADDRESS};
    struct map *out = map_create();
    CHECK(out != NULL);
    uint32_t bytes = map->head.bytes <= MAP_BYTES && map->head.bytes >= MAP_HEADER
                         ? map->head.bytes & ~7u
                         : MAP_BYTES;
    map->head.cell = cell_header(&place, 0, 0, (uint8_t *)map + CELL_HEADER, bytes - CELL_HEADER);
    bool accepted = map_decode(out, POOL, TABLE, ADDRESS, (const uint8_t *)map);
    if (accepted)
        check_map(out);
    free(out);
    return accepted;
}

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        hostile_begin(map);                                                                        \
        CHECK(hostile_accepted(map));                                                              \
        change;                                                                                    \
        CHECK(!hostile_accepted(map));                                                             \
    } while (0)

static void test_hostile_fields(struct hostile *map)
{
    REFUSED(map->head.address += 64);
    REFUSED(map->head.parts = 0);
    REFUSED(map->head.parts = MAP_PARTITIONS_MAX + 1);
    REFUSED(map->head.parts = UINT32_MAX);
    REFUSED(map->head.parts = 4);
    REFUSED(map->head.bytes += 4);
    REFUSED(map->head.bytes += 8);
    REFUSED(map->head.bytes = MAP_BYTES + 8);
    REFUSED(map->head.bytes = MAP_HEADER);
    REFUSED(map->parts[0].key_size = 1);
    REFUSED(map->parts[1].key_size = 0);
    REFUSED(map->parts[1].key_size = UINT32_MAX);
    REFUSED(map->parts[1].key_at = UINT32_MAX);
    REFUSED(map->parts[1].key_at = UINT32_MAX - 8);
    REFUSED(map->parts[2].key_at = map->head.bytes);
    REFUSED(map->parts[2].key_at = map->parts[1].key_at); /* not rising */
    REFUSED(map->parts[1].key_at = map->parts[2].key_at);
    REFUSED(map->parts[0].key_at = 0);
}

/* Keys that lie over each other have more bytes together than the block: prefixes of one string. */
static void test_hostile_overlap(struct hostile *map)
{
    hostile_begin(map);
    map->head.parts = MAP_PARTITIONS_MAX;
    map->head.bytes = MAP_BYTES;
    memset(map->parts, 0, sizeof(map->parts));
    memset(map->rest, 'a', sizeof(map->rest));
    for (uint32_t i = 0; i < MAP_PARTITIONS_MAX; i++) {
        map->parts[i].key_at = MAP_BYTES - sizeof(map->rest);
        map->parts[i].key_size = i == 0 ? 0 : 800 + i;
    }
    CHECK(!hostile_accepted(map));
}

/* Whoever copies a key has room for the longest that there may be. */
static void test_hostile_long_key(struct hostile *map)
{
    for (uint32_t size = PANDO_KEY_MAX; size <= PANDO_KEY_MAX + 8; size += 8) {
        uint32_t at = MAP_HEADER + 2 * MAP_PART;
        hostile_begin(map);
        memset(map->parts, 0, sizeof(map->parts));
        map->head.parts = 2;
        map->head.bytes = at + size;
        map->parts[0].key_at = map->parts[1].key_at = at;
        map->parts[1].key_size = size;
        CHECK(hostile_accepted(map) == (size == PANDO_KEY_MAX));
    }
}

static void test_hostile(void)
{
    struct hostile *map = calloc(1, sizeof(*map));
    CHECK(map != NULL);
    test_hostile_fields(map);
    test_hostile_overlap(map);
    test_hostile_long_key(map);
    free(map);
}

int main(void)
{
    prng_seed(&prng, 31337);
    test_cuts();
    test_join();
    test_copies();
    test_round_trips();
    test_damage();
    test_limits();
    test_cut_for_ever();
    test_hostile();
    return 0;
}
