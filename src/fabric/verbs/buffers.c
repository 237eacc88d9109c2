#include "fabric/verbs/buffers.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

void buffers_init(struct buffers *buffers, uint8_t *base)
{
    *buffers = (struct buffers){.base = base};
}

static uint32_t blocks_of(uint32_t size)
{
    return (size + BUFFERS_BLOCK_BYTES - 1) / BUFFERS_BLOCK_BYTES;
}

static bool is_taken(const struct buffers *buffers, uint32_t block)
{
    return (buffers->taken[block / 64] >> block % 64 & 1) != 0;
}

/* The first free block at or after `from`; BUFFERS_BLOCKS when there is none. */
static uint32_t next_free(const struct buffers *buffers, uint32_t from)
{
    while (from < BUFFERS_BLOCKS) {
        uint64_t free = ~buffers->taken[from / 64] >> from % 64;
        if (free != 0)
            return from + (uint32_t)__builtin_ctzll(free);
        from = (from / 64 + 1) * 64;
    }
    return BUFFERS_BLOCKS;
}

/* The beginning of `count` free blocks in [from, to + count); BUFFERS_BLOCKS when there are none. */
static uint32_t find(const struct buffers *buffers, uint32_t from, uint32_t to, uint32_t count)
{
    uint32_t start = next_free(buffers, from);
    while (start < to && start + count <= BUFFERS_BLOCKS) {
        uint32_t length = 1;
        while (length < count && !is_taken(buffers, start + length))
            length++;
        if (length == count)
            return start;
        start = next_free(buffers, start + length + 1);
    }
    return BUFFERS_BLOCKS;
}

static void mark(struct buffers *buffers, uint32_t start, uint32_t count, bool taken)
{
    for (uint32_t block = start; block < start + count; block++) {
        pando_dassert(is_taken(buffers, block) != taken);
        buffers->taken[block / 64] ^= (uint64_t)1 << block % 64;
    }
    buffers->used = taken ? buffers->used + count : buffers->used - count;
}

uint8_t *buffers_take(struct buffers *buffers, uint32_t size)
{
    uint32_t count = blocks_of(size);
    pando_assert(count > 0 && count <= BUFFERS_BLOCKS);
    if (count > BUFFERS_BLOCKS - buffers->used)
        return NULL;
    uint32_t start = find(buffers, buffers->next, BUFFERS_BLOCKS, count);
    if (start == BUFFERS_BLOCKS)
        start = find(buffers, 0, buffers->next, count);
    if (start == BUFFERS_BLOCKS)
        return NULL;
    mark(buffers, start, count, true);
    buffers->next = (start + count) % BUFFERS_BLOCKS;
    return buffers->base + (size_t)start * BUFFERS_BLOCK_BYTES;
}

void buffers_give(struct buffers *buffers, uint8_t *piece, uint32_t size)
{
    size_t offset = (size_t)(piece - buffers->base);
    pando_assert(offset % BUFFERS_BLOCK_BYTES == 0 && offset < BUFFERS_BYTES);
    mark(buffers, (uint32_t)(offset / BUFFERS_BLOCK_BYTES), blocks_of(size), false);
}
