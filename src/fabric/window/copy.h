/*
 * copy.h - copies between shared and private memory.
 *
 * The shared side is accessed by relaxed atomic loads and stores of whole words (of bytes at ragged
 * ends), so that concurrent copies are no data race and an aligned word is never torn. The private
 * side may be aligned in any way.
 */
#ifndef FABRIC_WINDOW_COPY_H
#define FABRIC_WINDOW_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t __attribute__((may_alias)) copy_word;

static inline uint64_t copy_load_word(const uint8_t *shared)
{
    return __atomic_load_n((const copy_word *)shared, __ATOMIC_RELAXED);
}

static inline void copy_store_word(uint8_t *shared, uint64_t word)
{
    __atomic_store_n((copy_word *)shared, word, __ATOMIC_RELAXED);
}

static inline size_t copy_head_bytes(const uint8_t *shared, size_t size)
{
    size_t head = (size_t)(-(uintptr_t)shared & 7);
    return head < size ? head : size;
}

static inline void copy_from_shared(void *to, const uint8_t *shared, size_t size)
{
    uint8_t *out = to;
    size_t head = copy_head_bytes(shared, size);

    for (size_t i = 0; i < head; i++)
        out[i] = __atomic_load_n(shared + i, __ATOMIC_RELAXED);
    out += head;
    shared += head;
    size -= head;
    for (; size >= 32; size -= 32, out += 32, shared += 32) {
        uint64_t words[4] = {copy_load_word(shared), copy_load_word(shared + 8),
                             copy_load_word(shared + 16), copy_load_word(shared + 24)};
        memcpy(out, words, 32);
    }
    for (; size >= 8; size -= 8, out += 8, shared += 8) {
        uint64_t word = copy_load_word(shared);
        memcpy(out, &word, 8);
    }
    for (size_t i = 0; i < size; i++)
        out[i] = __atomic_load_n(shared + i, __ATOMIC_RELAXED);
}

static inline void copy_to_shared(uint8_t *shared, const void *from, size_t size)
{
    const uint8_t *in = from;
    size_t head = copy_head_bytes(shared, size);

    for (size_t i = 0; i < head; i++)
        __atomic_store_n(shared + i, in[i], __ATOMIC_RELAXED);
    in += head;
    shared += head;
    size -= head;
    for (; size >= 8; size -= 8, in += 8, shared += 8) {
        uint64_t word;
        memcpy(&word, in, 8);
        copy_store_word(shared, word);
    }
    for (size_t i = 0; i < size; i++)
        __atomic_store_n(shared + i, in[i], __ATOMIC_RELAXED);
}

#endif
