/*
 * bytes.h - a queue of bytes in one piece of memory: appended at the end, taken from the front.
 */
#ifndef FABRIC_STREAM_BYTES_H
#define FABRIC_STREAM_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *data;
    size_t head, tail, capacity;
    bool secret; /* passwords may be among the first BYTES_SECRET: no copy of them is left behind
                    when bytes move or end */
};
enum { BYTES_SECRET = 32 * 1024 };

/* capacity may be 0. */
int bytes_init(struct bytes *bytes, size_t capacity);
void bytes_fini(struct bytes *bytes);

/* Overwrites all of the memory, whatever was taken from it; it is empty afterwards. */
void bytes_wipe(struct bytes *bytes);

static inline size_t bytes_used(const struct bytes *bytes)
{
    return bytes->tail - bytes->head;
}

static inline uint8_t *bytes_front(struct bytes *bytes)
{
    return bytes->data + bytes->head;
}

/* Room for `size` more bytes at the end, in one piece: moves or grows what is there. NULL when that
 * would take more than `limit` in all, or memory is gone. Pointers into the queue become invalid.
 * The front stays at a multiple of 8. */
uint8_t *bytes_reserve_slow(struct bytes *bytes, size_t size, size_t limit);

static inline uint8_t *bytes_reserve(struct bytes *bytes, size_t size, size_t limit)
{
    if (bytes->capacity - bytes->tail >= size && bytes->tail - bytes->head + size <= limit)
        return bytes->data + bytes->tail;
    return bytes_reserve_slow(bytes, size, limit);
}

static inline void bytes_appended(struct bytes *bytes, size_t size)
{
    bytes->tail += size;
}

static inline void bytes_taken(struct bytes *bytes, size_t size)
{
    bytes->head += size;
    if (bytes->head == bytes->tail)
        bytes->head = bytes->tail = 0;
}

#endif
