/*
 * buffers.h - pieces of one registered range: where READs arrive and WRITEs leave from. Blocks of
 * 1 KiB in a bitmap; a piece is as many in a row as it needs, looked for from where the last one
 * ended. One loop's.
 */
#ifndef FABRIC_VERBS_BUFFERS_H
#define FABRIC_VERBS_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

enum {
    BUFFERS_BLOCK_BYTES = 1024,
    BUFFERS_BLOCKS = 4096,
    BUFFERS_BYTES = BUFFERS_BLOCKS * BUFFERS_BLOCK_BYTES,
};

struct buffers {
    uint8_t *base;
    uint32_t next; /* block to begin looking at */
    uint32_t used; /* blocks */
    uint64_t taken[BUFFERS_BLOCKS / 64];
};

void buffers_init(struct buffers *buffers, uint8_t *base);

/* NULL when there is no such piece now. `size` is from 1 to BUFFERS_BYTES. */
uint8_t *buffers_take(struct buffers *buffers, uint32_t size);
void buffers_give(struct buffers *buffers, uint8_t *piece, uint32_t size);

#endif
