/*
 * counters.h - adding structs that are nothing but counters of 64 bits.
 */
#ifndef BASE_COUNTERS_H
#define BASE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

/* Adds each uint64_t of *more to its own in *sum: pointers to the same kind of struct, which has nothing
 * else. */
#define counters_add(sum, more)                                                                    \
    do {                                                                                           \
        _Static_assert(sizeof(*(sum)) % sizeof(uint64_t) == 0 &&                                   \
                           sizeof(*(sum)) == sizeof(*(more)),                                      \
                       "counters alone");                                                          \
        counters_add_words((sum), (more), sizeof(*(sum)) / sizeof(uint64_t));                      \
    } while (0)

static inline void counters_add_words(void *sum, const void *more, size_t count)
{
    uint64_t *to = sum;
    const uint64_t *from = more;
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

#endif
