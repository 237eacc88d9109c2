/*
 * Leaves against a model, written to as a remote writer would: cell by cell, word by word,
 * sometimes dying in the middle. At no moment may a reader find a value that was not there, or miss
 * a pair that was; a leaf that was built anew and is read while half of its words are still the old
 * ones is the hardest case of that.
 */
#include "unit/node_world.h"

/* The old bytes where one word of `at` is still the old one, and that for every word that differs.
 * */
static void check_torn_update(const uint8_t *old, const struct leaf_slot *slot,
                              const struct pair *pair)
{
    static struct pair other;
    uint32_t count;
    uint8_t *mixed = copy_of(world.bytes, world.layout.node_bytes);

    absent_key(&other);
    for (uint32_t at = slot->offset; at < slot->offset + slot->bytes; at += 8) {
        if (memcmp(old + at, world.bytes + at, 8) == 0)
            continue;
        write_word(mixed, at, old + at);
        check_find_is(mixed, key_of(pair), LEAF_TORN);
        check_find_is(mixed, key_of(&other), LEAF_TORN);
        CHECK(!all_entries(mixed, &count));
        write_word(mixed, at, world.bytes + at);
    }
    free(mixed);
}

/* How many bits of two payloads differ. */
static unsigned bits_between(const uint8_t *from, const uint8_t *to, uint32_t cell_bytes)
{
    unsigned bits = 0;
    for (uint32_t i = 8; i < cell_bytes; i++)
        bits += (unsigned)__builtin_popcount(from[i] ^ to[i]);
    return bits;
}

/* A one-word update of which one word of two is there: repair makes it the old value or the new
 * one: the one that is there, but if they differ by one bit, which may as well have flipped. */
static void check_repair(const uint8_t *old, const struct leaf_slot *slot, struct pair *pair,
                         const struct pair *before)
{
    const struct pair after = *pair;
    const uint8_t *from = old + slot->offset, *to = world.bytes + slot->offset;

    if (!leaf_one_word(from, to, slot->bytes))
        return;
    for (int payload_is_new = 0; payload_is_new < 2; payload_is_new++) {
        uint8_t *torn = copy_of(payload_is_new ? world.bytes : old, world.layout.node_bytes);
        write_word(torn, slot->offset, payload_is_new ? from : to);
        if (memcmp(from, to, 8) != 0)
            check_find_is(torn, key_of(pair), LEAF_TORN);
        struct node_header header = read_header(torn);
        int torn_cells = memcmp(from, to, 8) != 0;
        /* Not without a death, and with no more than that. */
        CHECK(leaf_repair(&world.layout, &header, torn, 0) == -torn_cells);
        CHECK(leaf_repair(&world.layout, &header, torn, 1) == torn_cells);
        CHECK(leaf_repair(&world.layout, &header, torn, 1) == 0);
        bool one_bit = bits_between(from, to, slot->bytes) == 1;
        *pair = (payload_is_new != 0) != one_bit ? after : *before;
        check_leaf(torn);
        *pair = after;
        free(torn);
        world.repairs++;
    }
}

static void update_in_place(const struct leaf_slot *slot, struct pair *pair,
                            const struct pair *before)
{
    struct node_entry entry = entry_of(pair);
    struct node_header header = read_header(world.bytes);
    uint8_t *old = copy_of(world.bytes, world.layout.node_bytes);

    leaf_cell_build(&world.layout, &header, slot->offset, slot->bytes, &entry,
                    world.bytes + slot->offset);
    check_torn_update(old, slot, pair);
    check_repair(old, slot, pair, before);
    free(old);
    world.updates++;
}

/* ---- building anew, and reading in the middle of it ------------------------------------------ */

/* No pair that is in both leaves may be reported absent, and none that is in one be found
 * otherwise. */
static void check_mixed(const uint8_t *mixed)
{
    struct leaf_slot slot;
    for (int tries = 0; tries < 20 && world.count > 0; tries++) {
        struct pair *pair = &world.pairs[prng_below(&prng, world.count)];
        struct node_entry entry = entry_of(pair);
        if (!node_covers(&world.header, entry.key))
            continue;
        enum leaf_find found = find(mixed, entry.key, &slot);
        CHECK(found != LEAF_ABSENT);
        CHECK(found == LEAF_TORN || same_entry(&slot.entry, &entry));
    }
}

/* The header is of one leaf; of the rest, some is of the other: one word, one run of words, or any.
 * Pairs of the model are those that both leaves have. */
static void check_half_written(const uint8_t *old, const uint8_t *new)
{
    static struct pair other;
    const uint32_t size = world.layout.node_bytes;
    uint8_t *mixed = allocate(size);

    absent_key(&other);
    for (int round = 0; round < 30; round++) {
        const uint8_t *base = prng_chance(&prng, 0.7) ? new : old, *rest = base == new ? old : new;
        uint32_t first = read_header(base).cell_bytes, words = (size - first) / 8;
        uint32_t from = (uint32_t)prng_below(&prng, words), to = from + 1;
        if (round % 3 == 1)
            to = from + (uint32_t)prng_below(&prng, words - from + 1);
        memcpy(mixed, base, size);
        for (uint32_t i = 0; i < words; i++) {
            if (round % 3 == 2 ? prng_chance(&prng, 0.5) : i >= from && i < to)
                write_word(mixed, first + 8 * i, rest + first + 8 * i);
        }
        check_mixed(mixed);
    }
    free(mixed);
}

/* Every cell of a fixed leaf that is still of the version before makes every miss a torn one. */
static void check_old_slots(const uint8_t *old, const uint8_t *new)
{
    static struct pair other;
    const struct node_layout *layout = &world.layout;
    if (!layout->fixed)
        return;
    absent_key(&other);
    uint8_t *mixed = copy_of(new, layout->node_bytes);
    for (uint32_t i = 0; i < layout->slot_count; i++) {
        uint32_t at = layout->slots_at + i * layout->slot_bytes;
        memcpy(mixed + at, old + at, layout->slot_bytes);
        check_find_is(mixed, key_of(&other), LEAF_TORN);
        memcpy(mixed + at, new + at, layout->slot_bytes);
    }
    free(mixed);
}

static int by_key(const void *a, const void *b)
{
    return slice_compare(((const struct node_entry *)a)->key, ((const struct node_entry *)b)->key);
}

static uint32_t model_entries(void)
{
    for (uint32_t i = 0; i < world.count; i++)
        entries[i] = entry_of(&world.pairs[i]);
    qsort(entries, world.count, sizeof(entries[0]), by_key);
    return world.count;
}

static void build_anew(void)
{
    uint8_t *old = world.bytes;
    uint32_t count = model_entries();

    CHECK(leaf_fits(&world.layout, &world.header, entries, count));
    world.bytes = allocate(world.layout.node_bytes);
    world.header.version++;
    leaf_build(&world.layout, &world.header, entries, count, world.bytes);
    check_half_written(old, world.bytes);
    check_old_slots(old, world.bytes);
    free(old);
    world.rebuilds++;
}

/* Pairs outside the fences go; those of the model are again those of the leaf. */
static void model_trim(void)
{
    for (uint32_t i = world.count; i-- > 0;) {
        if (!node_covers(&world.header, key_of(&world.pairs[i])))
            model_remove(&world.pairs[i]);
    }
}

static uint8_t *build_half(const struct node_header *half, const struct node_entry *part,
                           uint32_t count)
{
    uint8_t *bytes = allocate(world.layout.node_bytes);
    world.header = *half;
    set_fences(half->low, half->high, half->no_high);
    CHECK(leaf_fits(&world.layout, &world.header, part, count));
    leaf_build(&world.layout, &world.header, part, count, bytes);
    model_trim();
    CHECK_EQ_U64(world.count, count);
    check_leaf(bytes);
    return bytes;
}

static void check_split_point(uint32_t left, uint32_t count, bool appending)
{
    CHECK(left >= 1 && left < count);
    if (!world.layout.fixed)
        return;
    if (!appending)
        CHECK(left == count / 2 || left == (count + 1) / 2);
    else if (count >= 20)
        CHECK(left >= count * 8 / 10 && left <= count - 2);
}

/* The leaf was full, and `added` is one more in the model. Both halves are built; the test goes
 * on with the left one, which takes the place of the old. */
static void split(const struct pair *added, bool appending)
{
    static struct pair pairs[PAIRS_MAX];
    static struct node_entry all[PAIRS_MAX];
    static uint8_t high[KEY_MAX];
    const uint32_t count = world.count;

    memcpy(pairs, world.pairs, sizeof(pairs));
    for (uint32_t i = 0; i < count; i++)
        all[i] = entry_of(&pairs[i]);
    qsort(all, count, sizeof(all[0]), by_key);
    uint32_t left_count = leaf_split_point(&world.layout, all, count, appending);
    check_split_point(left_count, count, appending);

    struct node_header left = world.header, right = world.header;
    left.version = right.version = world.header.version + 1;
    left.sibling = right.address = left.address + 0x10000;
    memcpy(high, right.high.data, right.high.size);
    right.high.data = high;
    left.high = right.low = all[left_count].key;
    left.no_high = false;

    struct slice low = left.low;
    static uint8_t low_bytes[KEY_MAX];
    memcpy(low_bytes, low.data, low.size);
    left.low.data = low_bytes;
    free(build_half(&right, all + left_count, count - left_count));
    memcpy(world.pairs, pairs, sizeof(pairs));
    world.count = count;
    uint8_t *old = world.bytes;
    world.bytes = build_half(&left, all, left_count);

    /* A reader in the middle of it may or may not find the new pair, but every other one of the
     * left. */
    struct pair *in_left = model_find(key_of(added));
    if (in_left != NULL)
        model_remove(in_left);
    check_half_written(old, world.bytes);
    if (in_left != NULL)
        world.pairs[world.count++] = *added;
    free(old);
    world.splits++;
}

/* ---- the random test ------------------------------------------------------------------------- */

static bool try_insert(const struct pair *pair)
{
    struct node_header header = read_header(world.bytes);
    uint32_t offset, cell_bytes;
    if (!leaf_place(&world.layout, &header, world.bytes, pair->key_size, pair->value_size, &offset,
                    &cell_bytes))
        return false;
    insert_at(offset, cell_bytes, pair);
    return true;
}

static void put_new(const struct pair *pair)
{
    check_find_is(world.bytes, key_of(pair), LEAF_ABSENT);
    if (try_insert(pair))
        return;
    world.pairs[world.count++] = *pair;
    uint32_t count = model_entries();
    bool last = world.header.no_high && slice_equal(entries[count - 1].key, key_of(pair));
    if (leaf_fits(&world.layout, &world.header, entries, count)) {
        CHECK(!world.layout.fixed);
        world.count--;
        build_anew();
        CHECK(try_insert(pair));
    } else {
        split(pair, last);
    }
}

static void put_again(struct pair *pair)
{
    static struct pair before;
    struct leaf_slot slot;

    before = *pair;
    CHECK(find(world.bytes, key_of(pair), &slot) == LEAF_FOUND);
    if (prng_chance(&prng, 0.5) && pair->value_size >= 8)
        memset(pair->value + prng_below(&prng, pair->value_size / 8) * 8,
               (int)prng_below(&prng, 256), 8);
    else
        random_value(pair);
    if (leaf_cell_bytes(&world.layout, pair->key_size, pair->value_size) <= slot.bytes)
        update_in_place(&slot, pair, &before);
    else
        *pair = before;
}

static void step(void)
{
    static struct pair pair;
    uint64_t what = prng_below(&prng, 100);

    if (what < 62 || world.count == 0) {
        random_key(&pair);
        random_value(&pair);
        if (node_covers(&world.header, key_of(&pair)) && model_find(key_of(&pair)) == NULL)
            put_new(&pair);
    } else if (what < 82) {
        put_again(&world.pairs[prng_below(&prng, world.count)]);
    } else if (what < 97) {
        clear_pair(&world.pairs[prng_below(&prng, world.count)]);
    } else {
        /* Sometimes for the whole range again, or splits would make it smaller and smaller. */
        if (prng_chance(&prng, 0.5))
            set_fences(slice_of(world.low, 0), slice_of(NULL, 0), true);
        build_anew();
    }
}

static void test_random(const struct shape *shape)
{
    begin(shape);
    for (uint32_t i = 0; i < shape->steps; i++) {
        step();
        if (i % 8 == 0 || shape->node_bytes <= 1024)
            check_leaf(world.bytes);
    }
    if (!(world.inserts > 100 && world.updates > 100 && world.clears > 100 && world.splits > 5 &&
          world.deaths > 10 && world.repairs > 20 && world.rebuilds > 10) &&
        shape->node_bytes <= 1024)
        CHECK_FAIL("%s: too little happened: %u inserts, %u updates, %u clears, %u splits, "
                   "%u deaths, %u repairs, %u rebuilds",
                   shape->name, world.inserts, world.updates, world.clears, world.splits,
                   world.deaths, world.repairs, world.rebuilds);
    free(world.bytes);
}

int main(void)
{
    prng_seed(&prng, 3);
    for (int i = 0; i < SHAPES; i++)
        test_random(&shapes[i]);
    return 0;
}
