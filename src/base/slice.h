/*
 * slice.h - a pointer and a length; it owns nothing. Whoever returns one says how long it lives.
 */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct slice {
    const uint8_t *data;
    size_t size;
};

static inline struct slice slice_of(const void *data, size_t size)
{
    return (struct slice){.data = data, .size = size};
}

static inline struct slice slice_of_text(const char *text)
{
    return slice_of(text, strlen(text));
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Byte order, a shorter prefix first: negative, zero or positive. */
static inline int slice_compare(struct slice a, struct slice b)
{
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    if (order != 0)
        return order;
    return (a.size > b.size) - (a.size < b.size);
}

#endif
