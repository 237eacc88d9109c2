/*
 * Arbitrary bytes where a page is expected: as it was read from remote memory, and as a reader finds
 * it in a frame that another thread is changing. The first byte chooses the table's layout and what
 * is made right first, so that what lies behind the checks is reached; the rest is the page, in
 * memory of exactly its size. Or else it is a partition map.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "owners/map.h"
#include "pool/cell.h"
#include "tree/dex/page/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POOL = 9, TABLE = 1, ADDRESS = 0x10000, SEAL = 0x80, UNCHECKED = 0x40, MAP = 0x20 };
enum { CUTS_MAX = 2 * MAP_PARTITIONS_MAX };

static const struct page_layout layouts[] = {
    {.page_bytes = 256, .key_size = 8, .value_size = 8, .key_max = 8, .value_max = 8},
    {.page_bytes = 320, .key_max = 12, .value_max = 16},
    {.page_bytes = 320, .key_size = 8, .key_max = 8, .value_max = 16},
    {.page_bytes = 320, .key_size = 8, .value_size = 12, .key_max = 8, .value_max = 12},
    {.page_bytes = 384, .key_size = 16, .value_size = 8, .key_max = 16, .value_max = 8},
    {.page_bytes = 1024, .key_max = 64, .value_max = 64},
};

enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

static struct page_layout layout;

static uint8_t *allocate(size_t size)
{
    uint8_t *bytes = calloc(1, size > 0 ? size : 1);
    pando_assert(bytes != NULL);
    return bytes;
}

/* ---- readers, of whatever there is ----------------------------------------------------------- */

static void check_key(struct slice key, const uint8_t *to)
{
    pando_assert(key.data == to && key.size <= PAGE_KEY_ROOM);
}

static void read_pair(const uint8_t *bytes, uint32_t index)
{
    static uint8_t *key, *value; /* once: each has to be of its own size only */
    bool blob;
    if (key == NULL) {
        key = allocate(PAGE_KEY_ROOM);
        value = allocate(16);
    }
    check_key(page_key(&layout, bytes, index, key), key);
    (void)page_value(&layout, bytes, index, value, 13, &blob);
    (void)page_value(&layout, bytes, index, value, 0, &blob);
    (void)page_child(&layout, bytes, index);
    const uint8_t *place = page_child_place(&layout, bytes, index);
    pando_assert(place >= bytes && place + 8 <= bytes + layout.page_bytes);
}

/* Sizes of fences are one word with the count of pairs, and only words of pages of this table that
 * were sound get into a frame: these readers, who do not know the layout, may rely on that. */
static void read_fences(const uint8_t *bytes, struct slice key)
{
    uint8_t *fences = allocate(layout.page_bytes), *to = allocate(PAGE_KEY_ROOM);
    struct slice high;
    memcpy(fences, bytes, layout.page_bytes);
    uint64_t shape = page_word(bytes, PAGE_SHAPE);
    uint64_t low_size = (shape >> 32 & 0xffff) % (layout.key_max + 1);
    uint64_t high_size = (shape >> 48) % (layout.key_max + 1);
    page_word_set(fences, PAGE_SHAPE, (shape & UINT32_MAX) | low_size << 32 | high_size << 48);
    int side = page_side(fences, key);
    pando_assert(side >= -1 && side <= 1);
    check_key(page_low(fences, to), to);
    pando_assert(page_high(fences, to, &high) == !page_no_high(fences));
    check_key(high, to);
    free(fences);
    free(to);
}

static void read_all(const uint8_t *bytes, struct slice key)
{
    uint32_t index, pairs = page_pairs(bytes);

    (void)page_used(&layout, bytes);
    (void)page_find(&layout, bytes, key, &index);
    pando_assert(index <= pairs);
    read_pair(bytes, index);
    index = page_child_index(&layout, bytes, key);
    pando_assert(index <= pairs);
    read_pair(bytes, index);
    for (uint32_t i = 0; i < pairs && i < 128; i++)
        read_pair(bytes, i);
    read_pair(bytes, pairs);
    read_pair(bytes, PAGE_PAIRS_MAX);
    read_pair(bytes, UINT16_MAX);
    read_fences(bytes, key);
}

/* ---- a page that was found sound ------------------------------------------------------------- */

/* Stores a pair as an engine does it. */
static void store(uint8_t *bytes, uint8_t *scratch, struct slice key)
{
    static const uint8_t zeroes[64];
    uint32_t index, size = page_level(bytes) > 0 ? 8 : layout.value_size;
    if (size == 0)
        size = key.size > 0 ? key.data[0] % (layout.value_max + 1) : 0;
    struct page_pair pair = {.key = key, .value = slice_of(zeroes, size)};
    bool found = page_find(&layout, bytes, key, &index);
    if (!page_room(&layout, bytes, found ? index : UINT32_MAX, key.size, size))
        return;
    if (found && page_update(&layout, bytes, index, &pair))
        return;
    if (found)
        page_remove(&layout, bytes, index);
    if (page_insert(&layout, bytes, index, &pair))
        return;
    page_compact(&layout, bytes, scratch);
    pando_assert(page_insert(&layout, bytes, index, &pair));
}

/* Both halves between the fences that an engine would give them. */
static void split(const uint8_t *bytes, uint8_t *half)
{
    uint8_t low[PAGE_KEY_ROOM], high[PAGE_KEY_ROOM], cut[PAGE_KEY_ROOM];
    uint32_t pairs = page_pairs(bytes), keep = page_split_point(&layout, bytes);
    pando_assert(keep >= 1 && keep < pairs);
    struct page_header left = {.level = page_level(bytes), .low = page_low(bytes, low)};
    left.high = page_key(&layout, bytes, keep, cut);
    page_init(&layout, &left, half);
    pando_assert(page_append(&layout, half, bytes, 0, keep));
    struct page_header right = {.level = left.level, .low = left.high};
    right.no_high = !page_high(bytes, high, &right.high);
    page_init(&layout, &right, half);
    (void)page_append(&layout, half, bytes, keep, pairs); /* fits if there was little room */
}

static void use_sound(uint8_t *bytes, struct slice key)
{
    uint8_t *scratch = allocate(layout.page_bytes);
    uint32_t used = page_used(&layout, bytes), pairs = page_pairs(bytes);

    pando_assert(used <= layout.page_bytes);
    if (pairs >= 2)
        split(bytes, scratch);
    page_compact(&layout, bytes, scratch);
    pando_assert(page_used(&layout, bytes) == used && page_pairs(bytes) == pairs);
    store(bytes, scratch, key);
    store(bytes, scratch, key);
    while (page_pairs(bytes) > 0)
        page_remove(&layout, bytes, page_pairs(bytes) / 2);
    pando_assert(page_used(&layout, bytes) == 0);
    page_seal(&layout, bytes);
    pando_assert(page_check(&layout, ADDRESS, bytes));
    free(scratch);
}

static void use_page(uint8_t choice, const uint8_t *data, size_t size)
{
    static const uint8_t zeroes[64];
    layout = layouts[choice % LAYOUTS];
    layout.pool = POOL;
    layout.table = TABLE;
    pando_assert(page_layout_check(&layout) == PANDO_OK);

    uint8_t *bytes = allocate(layout.page_bytes);
    memcpy(bytes, data, size < layout.page_bytes ? size : layout.page_bytes);
    size_t key_size = layout.key_size != 0 ? layout.key_size : choice % (layout.key_max + 1u);
    uint8_t *key = allocate(key_size);
    memcpy(key, size > key_size ? data + size - key_size : zeroes, key_size);

    /* Bounds of any length, too. */
    read_all(bytes, slice_of(key, key_size));
    read_all(bytes, slice_of(key, key_size / 2));
    layout.unchecked = (choice & UNCHECKED) != 0;
    if (choice & SEAL) {
        page_word_set(bytes, POOL_BLOCK_ADDRESS, ADDRESS);
        page_seal(&layout, bytes);
    }
    if (page_check(&layout, ADDRESS, bytes)) {
        read_all(bytes, slice_of(key, key_size));
        use_sound(bytes, slice_of(key, key_size));
    }
    free(key);
    free(bytes);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void check_same(const struct map *a, const struct map *b)
{
    pando_assert(a->address == b->address && a->version == b->version && a->epoch == b->epoch &&
                 a->root == b->root && a->count == b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct map_partition *x = &a->parts[i], *y = &b->parts[i];
        pando_assert(slice_equal(x->low, y->low) && x->owner == y->owner && x->taker == y->taker &&
                     x->epoch == y->epoch && x->log == y->log && x->log_version == y->log_version);
    }
}

/* What was decoded can be used, and is what it would be encoded to. */
static void use_map(const struct map *map)
{
    uint8_t *bytes = allocate(MAP_BYTES);
    struct map *again = map_create(), *copy = map_copy(map);
    pando_assert(again != NULL && copy != NULL);
    for (uint32_t i = 0; i < map->count; i++) {
        const struct map_partition *part = &map->parts[i];
        pando_assert(part->low.data >= map->keys && part->low.size <= PANDO_KEY_MAX &&
                     part->low.data + part->low.size <= map->keys + sizeof(map->keys));
        pando_assert(map_find(map, part->low) == part);
    }
    check_same(map, copy);
    uint32_t used = map_encode(copy, POOL, TABLE, 0, bytes);
    pando_assert(used > 0 && used <= MAP_BYTES);
    pando_assert(map_decode(again, POOL, TABLE, map->address, bytes));
    check_same(map, again);
    free(again);
    free(copy);
    free(bytes);
}

/* Cuts a map where the input says: a size, and three bytes that are repeated to it, so that little
 * input makes maps that are full. */
static void build_map(const uint8_t *data, size_t size)
{
    uint8_t key[UINT8_MAX * 8];
    struct map *map = map_create();
    pando_assert(map != NULL);
    map->address = ADDRESS;
    for (unsigned cuts = 0; size >= 4 && cuts < CUTS_MAX; data += 4, size -= 4, cuts++) {
        /* By copies: a loop over bytes is a hundred times slower with coverage in it. */
        memcpy(key, data + 1, 3);
        for (size_t filled = 3; filled < data[0] * 4u; filled *= 2)
            memcpy(key + filled, key, filled);
        if (map_cut(map, slice_of(key, data[0] * 4u)) == PANDO_OK)
            map->parts[data[0] % map->count].owner = data[1];
    }
    use_map(map);
    map_join(map);
    use_map(map);
    free(map);
}

static void use_map_bytes(uint8_t choice, const uint8_t *data, size_t size)
{
    struct cell_place place = {.pool = POOL, .table = TABLE, .kind = MAP_KIND, .address = ADDRESS};
    uint8_t *bytes = allocate(MAP_BYTES);
    struct map *map = map_create();
    struct map_head_fmt head;

    pando_assert(map != NULL);
    memcpy(bytes, data, size < MAP_BYTES ? size : MAP_BYTES);
    memcpy(&head, bytes, sizeof(head));
    if ((choice & SEAL) && head.bytes % 8 == 0 && head.bytes >= MAP_HEADER &&
        head.bytes <= MAP_BYTES) {
        head.address = ADDRESS;
        memcpy(bytes, &head, sizeof(head));
        head.cell = cell_header(&place, 0, 0, bytes + CELL_HEADER, head.bytes - CELL_HEADER);
        memcpy(bytes, &head, sizeof(head));
    }
    if (map_decode(map, POOL, TABLE, ADDRESS, bytes))
        use_map(map);
    free(map);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t choice = data[0];
    if ((choice & MAP) == 0)
        use_page(choice, data + 1, size - 1);
    else if (choice & UNCHECKED)
        build_map(data + 1, size - 1);
    else
        use_map_bytes(choice, data + 1, size - 1);
    return 0;
}
