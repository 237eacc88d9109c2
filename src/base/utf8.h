/*
 * utf8.h - which bytes are UTF-8.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the valid UTF-8 sequence at `p`, 0 if there is none before `end`. */
static inline size_t utf8_length(const uint8_t *p, const uint8_t *end_of_text)
{
    size_t left = (size_t)(end_of_text - p);
    uint8_t low = 0x80, high = 0xbf; /* what the second byte may be */
    size_t length;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        length = 2;
    else if (p[0] >= 0xe0 && p[0] <= 0xef)
        length = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        length = 4;
    else
        return 0;
    if (p[0] == 0xe0)
        low = 0xa0; /* shorter forms exist */
    else if (p[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (p[0] == 0xf0)
        low = 0x90; /* shorter forms exist */
    else if (p[0] == 0xf4)
        high = 0x8f; /* above U+10FFFF */

    if (left < length || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

#endif
