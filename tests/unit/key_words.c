/*
 * Keys as words: counted like the keys themselves, whatever they have in common, and by every
 * implementation this processor can run.
 */
#include "tree/blink/cache/key_words.h"

#include <stdlib.h>

#include "base/prng.h"
#include "lib/check.h"
#include "tree/blink/node/search.h"

enum { KEYS_MAX = 300, KEY_BYTES = 80 };

struct keys {
    uint8_t bytes[KEYS_MAX][KEY_BYTES];
    struct slice keys[KEYS_MAX];
    uint64_t words[KEYS_MAX];
    uint32_t count;
};

static struct slice key_at(const void *context, uint32_t index)
{
    const struct keys *keys = context;
    return keys->keys[index];
}

static int by_key(const void *a, const void *b)
{
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

/* A beginning that all have, then few different bytes, so that there are ties of every kind. */
static void random_key(struct prng *prng, uint32_t common, uint32_t fixed, uint8_t *bytes,
                       struct slice *out)
{
    size_t size = fixed != 0 ? fixed : common + prng_below(prng, KEY_BYTES - common);
    memset(bytes, 'c', KEY_BYTES);
    for (size_t i = common; i < size; i++)
        bytes[i] = prng_below(prng, 3) == 0 ? (uint8_t)(prng_below(prng, 3) * 127) : 0;
    *out = slice_of(bytes, size);
}

static void fill(struct keys *keys, struct prng *prng, uint32_t common, uint32_t fixed)
{
    uint32_t drawn = 1 + (uint32_t)prng_below(prng, KEYS_MAX);
    for (uint32_t i = 0; i < drawn; i++)
        random_key(prng, common, fixed, keys->bytes[i], &keys->keys[i]);
    qsort(keys->keys, drawn, sizeof(keys->keys[0]), by_key);
    keys->count = 0;
    for (uint32_t i = 0; i < drawn; i++) {
        if (keys->count == 0 || !slice_equal(keys->keys[keys->count - 1], keys->keys[i]))
            keys->keys[keys->count++] = keys->keys[i];
    }
}

static uint32_t plainly(const struct keys *keys, struct slice key, bool before)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < keys->count; i++) {
        int order = slice_compare(keys->keys[i], key);
        count += before ? order < 0 : order <= 0;
    }
    return count;
}

static void test_words_count_like_keys(void)
{
    static struct keys keys;
    struct prng prng;
    prng_seed(&prng, 1);
    for (int round = 0; round < 3000; round++) {
        uint32_t common = (uint32_t)prng_below(&prng, 70), fixed = round % 3 == 0 ? 8 : 0;
        fill(&keys, &prng, fixed != 0 ? common % 8 : common, fixed);
        uint32_t skip = key_words_common(keys.keys[0], keys.keys[keys.count - 1]);
        for (uint32_t i = 0; i < keys.count; i++)
            keys.words[i] = key_word(keys.keys[i], skip);
        struct key_words words = {.words = keys.words,
                                  .count = keys.count,
                                  .skip = skip,
                                  .common = keys.keys[0].data,
                                  .key_size = fixed,
                                  .key_at = key_at,
                                  .context = &keys};
        for (int i = 0; i < 40; i++) {
            uint8_t bytes[KEY_BYTES];
            struct slice key;
            random_key(&prng, common, prng_below(&prng, 2) ? fixed : 0, bytes, &key);
            if (prng_below(&prng, 4) == 0)
                key = keys.keys[prng_below(&prng, keys.count)];
            if (prng_below(&prng, 8) == 0)
                bytes[prng_below(&prng, KEY_BYTES)] ^= 0x80;
            for (int before = 0; before < 2; before++)
                CHECK_EQ_U64(key_words_to(&words, key, before), plainly(&keys, key, before));
        }
    }
}

static int by_word(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_every_implementation_counts_alike(void)
{
    uint64_t words[KEYS_MAX];
    struct prng prng;
    size_t implementations;
    const struct search_implementation *all = search_implementations(&implementations);

    prng_seed(&prng, 2);
    for (int round = 0; round < 3000; round++) {
        uint32_t count = (uint32_t)prng_below(&prng, KEYS_MAX + 1);
        uint64_t spread = prng_below(&prng, 2) ? UINT64_MAX : 50;
        for (uint32_t i = 0; i < count; i++)
            words[i] = spread == UINT64_MAX ? prng_next(&prng) : prng_below(&prng, spread);
        qsort(words, count, sizeof(words[0]), by_word);
        uint64_t limits[] = {0, UINT64_MAX, prng_next(&prng), prng_below(&prng, 50),
                             count > 0 ? words[prng_below(&prng, count)] : 0};
        for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
            uint32_t expected = 0;
            for (uint32_t i = 0; i < count; i++)
                expected += words[i] < limits[l];
            for (size_t k = 0; k < implementations; k++)
                CHECK_EQ_U64(all[k].below(words, count, limits[l]), expected);
            CHECK_EQ_U64(search_below(words, count, limits[l]), expected);
        }
    }
}

int main(void)
{
    test_words_count_like_keys();
    test_every_implementation_counts_alike();
    return 0;
}
