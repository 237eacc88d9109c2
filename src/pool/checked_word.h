/*
 * checked_word.h - a number of 56 bits with a check over it, for words that are changed in place and must
 * stay one word: the check in the upper byte, a CRC-8 with the polynomial x^8 + x^2 + x + 1. It tells up to
 * three flipped bits. 0 is packed as 0.
 */
#ifndef POOL_CHECKED_WORD_H
#define POOL_CHECKED_WORD_H

#include <stdbool.h>
#include <stdint.h>

#define CHECKED_WORD_MAX (((uint64_t)1 << 56) - 1)

static inline uint64_t checked_word_pack(uint64_t value)
{
    uint8_t check = 0;
    for (int shift = 48; shift >= 0; shift -= 8) {
        check ^= (uint8_t)(value >> shift);
        for (int bit = 0; bit < 8; bit++)
            check = (uint8_t)(check << 1 ^ (check >> 7) * 0x07);
    }
    return value | (uint64_t)check << 56;
}

/* False: the word is damaged, and *value is not to be believed. */
static inline bool checked_word_unpack(uint64_t word, uint64_t *value)
{
    *value = word & CHECKED_WORD_MAX;
    return checked_word_pack(*value) == word;
}

#endif
