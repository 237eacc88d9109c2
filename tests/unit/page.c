/*
 * The pairs of pages against a sorted array: random inserts, updates, removals, splits and merges in
 * pages of words and packed pages; what page_room says of a pair is so, in both directions.
 */
#include "unit/page_world.h"

static struct {
    uint32_t inserts, updates, grown, removes, compactions, refused, splits, merges;
} done;

/* ---- single changes -------------------------------------------------------------------------- */

/* What did not fit has changed nothing. */
static bool insert_whole(uint32_t index, const struct pair *pair)
{
    struct page_pair in = page_pair_of(pair);
    memcpy(world.scratch, world.bytes, world.layout.page_bytes);
    if (page_insert(&world.layout, world.bytes, index, &in))
        return true;
    CHECK(memcmp(world.scratch, world.bytes, world.layout.page_bytes) == 0);
    return false;
}

static bool compact_and_insert(uint32_t index, const struct pair *pair)
{
    page_compact(&world.layout, world.bytes, world.scratch);
    done.compactions++;
    return insert_whole(index, pair);
}

static bool insert(const struct pair *pair)
{
    uint32_t index;
    CHECK(!model_find(key_of(pair), &index));
    bool room = page_room(&world.layout, world.bytes, UINT32_MAX, pair->key_size, pair->value_size);
    bool fits = insert_whole(index, pair);
    CHECK(room || !fits);
    if (!fits)
        CHECK(compact_and_insert(index, pair) == room);
    if (!room) {
        check_page(world.bytes);
        done.refused++;
        return false;
    }
    model_insert(index, pair);
    done.inserts++;
    return true;
}

/* An update that the page refuses is a removal and an insert, if there is room without the old. */
static void update_apart(uint32_t index, const struct pair *pair, bool room)
{
    static struct pair old;
    old = *world.pairs[index];
    page_remove(&world.layout, world.bytes, index);
    bool fits = insert_whole(index, pair) || compact_and_insert(index, pair);
    CHECK(fits == room);
    if (!fits) {
        CHECK(insert_whole(index, &old));
        done.refused++;
        return;
    }
    *world.pairs[index] = *pair;
    done.grown++;
}

static void update(uint32_t index)
{
    static struct pair pair;
    pair = *world.pairs[index];
    random_value(&pair);
    bool room = page_room(&world.layout, world.bytes, index, pair.key_size, pair.value_size);
    struct page_pair in = page_pair_of(&pair);
    memcpy(world.scratch, world.bytes, world.layout.page_bytes);
    if (page_update(&world.layout, world.bytes, index, &in)) {
        CHECK(room);
        *world.pairs[index] = pair;
        done.updates++;
        return;
    }
    CHECK(memcmp(world.scratch, world.bytes, world.layout.page_bytes) == 0);
    update_apart(index, &pair, room);
}

static void remove_pair(uint32_t index)
{
    page_remove(&world.layout, world.bytes, index);
    model_remove(index, index + 1);
    done.removes++;
}

static void set_child(uint32_t index)
{
    uint64_t child = prng_next(&prng);
    page_set_child(&world.layout, world.bytes, index, child);
    memcpy(world.pairs[index]->value, &child, 8);
}

/* ---- splits and merges ----------------------------------------------------------------------- */

/* A page of its own with some of the pairs and these fences. */
static uint8_t *build_part(struct slice low, struct slice high, bool no_high, uint32_t from,
                           uint32_t to)
{
    uint8_t *bytes = allocate(world.layout.page_bytes);
    struct page_header header = world.header;
    header.low = low;
    header.high = high;
    header.no_high = no_high;
    page_init(&world.layout, &header, bytes);
    CHECK(page_append(&world.layout, bytes, world.bytes, from, to));
    CHECK_EQ_U64(page_pairs(bytes), to - from);
    CHECK_EQ_U64(page_used(&world.layout, bytes), model_used(from, to));
    return bytes;
}

/* The key that begins the right half: of leaves of variable keys as short as it may be. */
static struct slice cut_key(uint32_t keep)
{
    struct slice left = key_of(world.pairs[keep - 1]), right = key_of(world.pairs[keep]);
    size_t same = 0;
    if (is_inner() || world.shape->key_size != 0)
        return right;
    while (same < left.size && left.data[same] == right.data[same])
        same++;
    right.size = same + 1;
    return right;
}

static void check_balance(uint32_t keep)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < world.count; i++)
        largest = model_bytes(world.pairs[i]) > largest ? model_bytes(world.pairs[i]) : largest;
    uint32_t left = model_used(0, keep), right = model_used(keep, world.count);
    CHECK(keep >= 1 && keep < world.count);
    CHECK(left <= right + 2 * largest && right <= left + 2 * largest);
}

static void check_merged(const uint8_t *left, const uint8_t *right)
{
    uint8_t *merged = allocate(world.layout.page_bytes);
    page_init(&world.layout, &world.header, merged);
    CHECK(page_append(&world.layout, merged, left, 0, page_pairs(left)));
    CHECK(page_append(&world.layout, merged, right, 0, page_pairs(right)));
    check_page(merged);
    free(merged);
    done.merges++;
}

/* Goes on with one of the halves. */
static void keep_half(uint8_t *half, struct slice cut, uint32_t keep, bool left)
{
    free(world.bytes);
    world.bytes = half;
    if (left) {
        set_fences(world.header.low, cut, false);
        model_remove(keep, world.count);
    } else {
        set_fences(cut, world.header.high, world.header.no_high);
        model_remove(0, keep);
    }
    world.common = 0;
    while (!world.header.no_high && world.common < world.header.low.size &&
           world.common < world.header.high.size &&
           world.low[world.common] == world.high[world.common])
        world.common++;
    check_page(world.bytes);
    done.splits++;
}

static void split(void)
{
    static uint8_t cut_bytes[KEY_MAX];
    uint32_t keep = page_split_point(&world.layout, world.bytes);
    check_balance(keep);
    struct slice cut = cut_key(keep);
    memcpy(cut_bytes, cut.data, cut.size);
    cut.data = cut_bytes;
    uint8_t *left = build_part(world.header.low, cut, false, 0, keep);
    uint8_t *right = build_part(cut, world.header.high, world.header.no_high, keep, world.count);
    check_merged(left, right);
    bool go_left = prng_chance(&prng, 0.5);
    free(go_left ? right : left);
    keep_half(go_left ? left : right, cut, keep, go_left);
}

/* Of as many pairs as one likes page_append takes what page_used and page_space say. */
static void check_append_exact(void)
{
    const struct page_header *header = &world.header;
    uint8_t *bytes = allocate(world.layout.page_bytes);
    uint32_t more = (uint32_t)prng_below(&prng, world.count + 1ul);
    uint32_t space = page_space(&world.layout, header->level, header->low.size,
                                header->no_high ? 0 : header->high.size);

    page_init(&world.layout, header, bytes);
    CHECK_EQ_U64(page_used(&world.layout, bytes), 0);
    CHECK(page_append(&world.layout, bytes, world.bytes, 0, world.count));
    bool fits = page_append(&world.layout, bytes, world.bytes, 0, more);
    CHECK(fits == (model_used(0, world.count) + model_used(0, more) <= space));
    free(bytes);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void step(void)
{
    static struct pair pair;
    uint32_t index, first = is_inner() ? 1 : 0;
    uint64_t choice = prng_below(&prng, 100);

    if (world.count > first && choice < 25) {
        update((uint32_t)prng_below(&prng, world.count));
    } else if (world.count > first && choice < 40) {
        remove_pair(first + (uint32_t)prng_below(&prng, world.count - first));
    } else if (is_inner() && choice < 50) {
        set_child((uint32_t)prng_below(&prng, world.count));
    } else if (random_key(&pair) && !model_find(key_of(&pair), &index)) {
        random_value(&pair);
        if (!insert(&pair) && world.count >= 2 && prng_chance(&prng, 0.3))
            split();
    }
}

static void test_model(const struct shape *shape)
{
    uint32_t often = shape->page_bytes > 4096 ? 40 : 7;
    memset(&done, 0, sizeof(done));
    begin(shape);
    for (uint32_t i = 0; i < shape->steps / SLOWER; i++) {
        step();
        if (i % often == 0) {
            check_page(world.bytes);
            check_append_exact();
        }
        if (i % 400 == 399)
            begin(shape); /* other fences */
    }
    page_seal(&world.layout, world.bytes);
    CHECK(page_check(&world.layout, ADDRESS, world.bytes));
    printf("%s: %u inserts, %u + %u updates, %u removes, %u compactions, %u refused, %u splits\n",
           shape->name, done.inserts, done.updates, done.grown, done.removes, done.compactions,
           done.refused, done.splits);
    CHECK(done.inserts > 0 && done.updates > 0 && done.removes > 0);
    if (shape->page_bytes <= 1024 && SLOWER == 1)
        CHECK(done.refused > 0 && done.splits > 0 && done.merges == done.splits);
}

/* Filled up without removals, until hardly anything fits: its halves fit. */
static void test_fill(const struct shape *shape)
{
    static struct pair pair;
    begin(shape);
    for (int misses = 0; misses < 300;) {
        uint32_t index;
        bool fresh = random_key(&pair) && !model_find(key_of(&pair), &index);
        random_value(&pair);
        if (!fresh || !insert(&pair))
            misses++;
    }
    check_page(world.bytes);
    if (world.count >= 2)
        split();
}

int main(void)
{
    prng_seed(&prng, 20240611);
    for (uint32_t i = 0; i < SHAPES; i++) {
        test_model(&shapes[i]);
        for (int round = 0; round < 5; round++)
            test_fill(&shapes[i]);
    }
    end_world();
    return 0;
}
