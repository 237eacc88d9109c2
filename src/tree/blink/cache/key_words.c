#include "tree/blink/cache/key_words.h"

#include <string.h>

#include "tree/blink/node/search.h"

uint32_t key_words_common(struct slice first, struct slice last)
{
    const uint8_t *a = first.data, *b = last.data;
    uint32_t common = 0;
    while (common < KEY_WORDS_SKIP_MAX && common < first.size && common < last.size &&
           a[common] == b[common])
        common++;
    return common;
}

/* Among [from, to), whose words are the key's. */
static uint32_t among_equals(const struct key_words *words, struct slice key, bool before,
                             uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t middle = (from + to) / 2;
        int order = slice_compare(words->key_at(words->context, middle), key);
        if (before ? order < 0 : order <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Whether the key begins with what all have in common: nearly always. */
static inline bool begins_alike(const struct key_words *words, struct slice key)
{
    const uint8_t *a = key.data, *b = words->common;
    uint64_t first[2], last[2];

    if (key.size < words->skip || words->skip > 16)
        return false;
    if (words->skip < 8)
        return memcmp(a, b, words->skip) == 0;
    memcpy(&first[0], a, 8);
    memcpy(&first[1], b, 8);
    memcpy(&last[0], a + words->skip - 8, 8);
    memcpy(&last[1], b + words->skip - 8, 8);
    return first[0] == first[1] && last[0] == last[1];
}

uint32_t key_words_to(const struct key_words *words, struct slice key, bool before)
{
    if (words->skip > 0 && !begins_alike(words, key)) {
        size_t size = key.size < words->skip ? key.size : words->skip;
        int order = size == 0 ? 0 : memcmp(key.data, words->common, size);
        if (order < 0 || (order == 0 && size < words->skip))
            return 0;
        if (order > 0)
            return words->count;
    }
    uint64_t word = key_word(key, words->skip);
    uint32_t from = search_below(words->words, words->count, word), to = words->count;
    if (from == words->count || words->words[from] != word)
        return from;
    if (word != UINT64_MAX)
        to = search_below(words->words, words->count, word + 1);
    if (words->key_size != 0) { /* the zeroes behind a shorter one were not its own */
        bool count_them = key.size == words->key_size ? !before : key.size > words->key_size;
        return count_them ? to : from;
    }
    return among_equals(words, key, before, from, to);
}
