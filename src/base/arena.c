#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISONS 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_POISONS 1
#endif

#ifdef ARENA_POISONS
#include <sanitizer/asan_interface.h>
#define poison(data, size)   ASAN_POISON_MEMORY_REGION(data, size)
#define unpoison(data, size) ASAN_UNPOISON_MEMORY_REGION(data, size)
#else
#define poison(data, size)   ((void)(data), (void)(size))
#define unpoison(data, size) ((void)(data), (void)(size))
#endif

struct arena_block {
    struct arena_block *next;
    size_t capacity, used;
    _Alignas(ARENA_ALIGNMENT) unsigned char data[];
};

_Static_assert(_Alignof(max_align_t) >= ARENA_ALIGNMENT, "malloc aligns blocks well enough");

void arena_init(struct arena *arena, size_t block_size)
{
    pando_assert(block_size > 0 && block_size <= SIZE_MAX / 2);
    *arena = (struct arena){.block_size = block_size};
}

static size_t round_up(size_t size)
{
    return (size + ARENA_ALIGNMENT - 1) & ~(size_t)(ARENA_ALIGNMENT - 1);
}

static size_t block_room(const struct arena_block *block)
{
    return block->capacity - block->used;
}

/* Room for at least `size`, linked after the current block, but not made current. */
static struct arena_block *block_add(struct arena *arena, size_t size)
{
    size_t capacity = round_up(arena->block_size);
    if (capacity < size)
        capacity = size;

    struct arena_block *block = malloc(sizeof(*block) + capacity);
    if (block == NULL)
        return NULL;
    block->capacity = capacity;
    block->used = 0;
    poison(block->data, capacity);
    if (arena->current == NULL) {
        block->next = NULL;
        arena->first = arena->current = block;
    } else {
        block->next = arena->current->next;
        arena->current->next = block;
    }
    return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t rounded = round_up(size);
    struct arena_block *block = arena->current;

    if (block == NULL || block_room(block) < rounded) {
        block = block_add(arena, rounded);
        if (block == NULL)
            return NULL;
    }
    void *data = block->data + block->used;
    block->used += rounded;
    unpoison(data, size);

    /* Go on filling whichever has more left, so that a large allocation wastes no fresh block. */
    if (block_room(block) > block_room(arena->current))
        arena->current = block;
    return data;
}

static void free_chain(struct arena_block *block)
{
    while (block != NULL) {
        struct arena_block *next = block->next;
        unpoison(block->data, block->capacity);
        free(block);
        block = next;
    }
}

void arena_reset(struct arena *arena)
{
    struct arena_block *first = arena->first;
    if (first == NULL)
        return;
    free_chain(first->next);
    first->next = NULL;
    first->used = 0;
    poison(first->data, first->capacity);
    arena->current = first;
}

void arena_fini(struct arena *arena)
{
    free_chain(arena->first);
    arena->first = arena->current = NULL;
}
