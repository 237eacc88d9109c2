/*
 * wire.h - encoding and decoding frames: bytes in, structs out, no I/O. What is decoded comes from
 * outside: every length is checked against what is there and against the limits.
 */
#ifndef FABRIC_SESSION_WIRE_H
#define FABRIC_SESSION_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "fabric/session/wire_fmt.h"
#include "fabric/stream/bytes.h"

struct wire_frame {
    uint32_t size;
    enum wire_type type;
    uint16_t count;
};

enum wire_parse {
    WIRE_OK,
    WIRE_MORE, /* the rest has not arrived */
    WIRE_BAD,  /* no honest peer sends this */
};

static inline uint32_t wire_padded(uint32_t size)
{
    return (size + 7) & ~(uint32_t)7;
}

void wire_put_frame(uint8_t *to, uint32_t size, enum wire_type type, uint16_t count);
enum wire_parse wire_get_frame(const uint8_t *from, size_t available, struct wire_frame *out);

/* Room for a whole frame with a body of `size` bytes at the end of a queue, its header already
 * written. NULL when the queue would grow over `limit`. */
uint8_t *wire_append_frame(struct bytes *out, enum wire_type type, uint32_t size, size_t limit);

/* ---- calls ----------------------------------------------------------------------------------- */

struct wire_call {
    uint64_t tag;
    uint16_t word; /* method or status */
    uint32_t size;
    const uint8_t *body;
};

/* Header and body of a CALL or REPLY frame's body. */
void wire_put_call(uint8_t *to, uint64_t tag, uint16_t word, const void *body, uint32_t size);
enum wire_parse wire_get_call(const uint8_t *from, uint32_t frame_size, struct wire_call *out);

/* The body of a FENCE frame; `from` has WIRE_FENCE_BYTES. */
void wire_put_fence(uint8_t *to, uint64_t tag, const struct fabric_ticket *ticket);
uint64_t wire_get_fence(const uint8_t *from, struct fabric_ticket *ticket);

/* ---- plain integers -------------------------------------------------------------------------- */

static inline void wire_put_u16(uint8_t *to, uint16_t value)
{
    memcpy(to, &value, 2);
}

static inline void wire_put_u32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, 4);
}

static inline void wire_put_u64(uint8_t *to, uint64_t value)
{
    memcpy(to, &value, 8);
}

static inline uint16_t wire_get_u16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, 2);
    return value;
}

static inline uint32_t wire_get_u32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return value;
}

static inline uint64_t wire_get_u64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, 8);
    return value;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little endian");

#endif
