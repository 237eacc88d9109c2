/*
 * arena.h - a bump allocator: many small allocations, freed together.
 *
 *   first -> [block] -> [block] -> [block] -> NULL
 *                          ^ current: the one being filled
 *
 * For one thread at a time. Nothing is allocated before the first arena_alloc. Under
 * AddressSanitizer memory that was not handed out, or was given back by a reset, is poisoned.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#define ARENA_ALIGNMENT 16

struct arena_block;

struct arena {
    struct arena_block *first, *current;
    size_t block_size;
};

/* `block_size` is what one block holds; a larger allocation gets a block of its own. */
void arena_init(struct arena *arena, size_t block_size);

/*
 * Uninitialised memory aligned to ARENA_ALIGNMENT, valid until the next reset or fini; NULL when
 * out of memory, the arena being as before. Size 0 gives a pointer that may not be dereferenced.
 */
void *arena_alloc(struct arena *arena, size_t size);

/* Takes back everything allocated. The first block is kept, the others are freed. */
void arena_reset(struct arena *arena);

/* Frees everything; the arena is then as after arena_init. */
void arena_fini(struct arena *arena);

#endif
