/*
 * key_words.h - rising keys reduced to words: the 8 bytes that follow what all of them have in
 * common at the beginning, as big-endian numbers. Their order is that of the keys, but for keys
 * whose words are equal; only for those the keys themselves are looked at.
 *
 *   session:0000001|7...      common "session:0000001", words "7......."
 *   session:0000001|9...
 */
#ifndef TREE_BLINK_CACHE_KEY_WORDS_H
#define TREE_BLINK_CACHE_KEY_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum { KEY_WORDS_SKIP_MAX = 64 };

/* Key `index` of those that the words stand for. */
typedef struct slice (*key_words_key_fn)(const void *context, uint32_t index);

struct key_words {
    const uint64_t *words;
    uint32_t count;
    uint32_t skip;         /* bytes in common, at most KEY_WORDS_SKIP_MAX */
    const uint8_t *common; /* these */
    uint32_t key_size;     /* all keys have this one and end within their words; 0: otherwise */
    key_words_key_fn key_at;
    const void *context;
};

static inline uint64_t key_word(struct slice key, uint32_t skip)
{
    uint64_t word = 0;
    if (key.size >= (size_t)skip + 8)
        memcpy(&word, (const uint8_t *)key.data + skip, 8);
    else if (key.size > skip)
        memcpy(&word, (const uint8_t *)key.data + skip, key.size - skip);
    return __builtin_bswap64(word);
}

/* How much the first and the last of rising keys have in common, and so all between them. */
uint32_t key_words_common(struct slice first, struct slice last);

/* How many of the keys are at or below this one; with `before`, below it. */
uint32_t key_words_to(const struct key_words *words, struct slice key, bool before);

#endif
