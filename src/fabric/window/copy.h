/*
 * copy.h - copies between shared and private memory.
 *
 * The shared side is accessed by relaxed atomic loads and stores of whole words (of bytes at ragged
 * ends), so that concurrent copies are no data race and an aligned word is never torn. The private
 * side may be aligned in any way.
 *
 * On x86-64 the long part goes by 16-byte vector accesses, written in assembly so that the compiler
 * can neither merge nor repeat them: the processor makes aligned 8-byte accesses of their halves, or
 * better. Under the thread sanitizer, which cannot see those, it goes by words.
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

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define COPY_VECTORS 1
/* 64 bytes; the shared side is aligned to 8. */
static inline void copy_64(void *to, const void *from)
{
    __asm__ volatile("movdqu (%1), %%xmm0\n\t"
                     "movdqu 16(%1), %%xmm1\n\t"
                     "movdqu 32(%1), %%xmm2\n\t"
                     "movdqu 48(%1), %%xmm3\n\t"
                     "movdqu %%xmm0, (%0)\n\t"
                     "movdqu %%xmm1, 16(%0)\n\t"
                     "movdqu %%xmm2, 32(%0)\n\t"
                     "movdqu %%xmm3, 48(%0)\n\t"
                     :
                     : "r"(to), "r"(from)
                     : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
}
#endif

static inline void copy_from_shared(void *to, const uint8_t *shared, size_t size)
{
    uint8_t *out = to;
    size_t head = copy_head_bytes(shared, size);

    for (size_t i = 0; i < head; i++)
        out[i] = __atomic_load_n(shared + i, __ATOMIC_RELAXED);
    out += head;
    shared += head;
    size -= head;
#ifdef COPY_VECTORS
    for (; size >= 64; size -= 64, out += 64, shared += 64)
        copy_64(out, shared);
#endif
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
#ifdef COPY_VECTORS
    for (; size >= 64; size -= 64, in += 64, shared += 64)
        copy_64(shared, in);
#endif
    for (; size >= 8; size -= 8, in += 8, shared += 8) {
        uint64_t word;
        memcpy(&word, in, 8);
        copy_store_word(shared, word);
    }
    for (size_t i = 0; i < size; i++)
        __atomic_store_n(shared + i, in[i], __ATOMIC_RELAXED);
}

#endif
