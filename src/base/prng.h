/*
 * prng.h - a small seeded generator (xoshiro256**), the same sequence for the same seed everywhere.
 * Not for secrets. Code above rt asks rt_random() instead, so that a simulation decides.
 */
#ifndef BASE_PRNG_H
#define BASE_PRNG_H

#include <stdbool.h>
#include <stdint.h>

struct prng {
    uint64_t state[4];
};

/* Mixes 64 bits so that close inputs give far outputs (splitmix64's finaliser). */
static inline uint64_t hash_u64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline void prng_seed(struct prng *prng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        prng->state[i] = hash_u64(seed);
    }
}

static inline uint64_t prng_rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static inline uint64_t prng_next(struct prng *prng)
{
    uint64_t *s = prng->state;
    uint64_t result = prng_rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = prng_rotate(s[3], 45);
    return result;
}

/* Uniform in [0, bound); bound 0 gives 0. The bias is below 2^-32 for bounds below 2^32. */
static inline uint64_t prng_below(struct prng *prng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)prng_next(prng) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double prng_unit(struct prng *prng)
{
    return (double)(prng_next(prng) >> 11) * 0x1.0p-53;
}

static inline bool prng_chance(struct prng *prng, double probability)
{
    return prng_unit(prng) < probability;
}

#endif
