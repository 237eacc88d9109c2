/*
 * keys.h - neighbours of keys in their order, for ranges.
 */
#ifndef STORE_KEYS_H
#define STORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The least string above all that begin with this one, in place; false if there is none. */
static inline bool key_after_prefix(uint8_t *key, size_t *size)
{
    while (*size > 0 && key[*size - 1] == 0xff)
        --*size;
    if (*size == 0)
        return false;
    key[*size - 1]++;
    return true;
}

/* The least key above this one, where none is longer than `most`; there is room for it. */
static inline bool key_after(uint8_t *key, size_t *size, size_t most)
{
    if (*size >= most)
        return key_after_prefix(key, size);
    key[(*size)++] = 0;
    return true;
}

#endif
