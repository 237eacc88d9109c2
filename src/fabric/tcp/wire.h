/*
 * wire.h - encoding and decoding frames: bytes in, structs out, no I/O. What is decoded comes from
 * outside: every length is checked against what is there and against the limits.
 */
#ifndef FABRIC_TCP_WIRE_H
#define FABRIC_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "fabric/tcp/wire_fmt.h"

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

/* ---- lists --------------------------------------------------------------------------------------
 */

/* Bytes a list takes in a LISTS frame. */
uint32_t wire_list_bytes(const struct fabric_op *ops, uint32_t count);
void wire_put_list(uint8_t *to, uint32_t bytes, uint16_t tag, const struct fabric_op *ops,
                   uint32_t count);

struct wire_list {
    uint32_t bytes; /* taken from the input */
    uint32_t count;
    uint16_t tag;
    uint32_t result_bytes; /* of its result, header included, if it succeeds */
};

/* Decodes one list; `limit` is what is left of the frame. WRITE operations point into the input.
 * ops has room for FABRIC_LIST_OPS_MAX. */
enum wire_parse wire_get_list(const uint8_t *from, size_t available, size_t limit,
                              struct wire_list *out, struct fabric_op *ops);

/* Points the READ operations at their places in a result that starts at `to`. */
void wire_place_reads(uint8_t *to, struct fabric_op *ops, uint32_t count);

/* Completes a result after the list was executed: header, padding, old words. With a status other
 * than OK it is the header only. Returns its bytes. */
uint32_t wire_finish_result(uint8_t *to, const struct wire_list *list, const struct fabric_op *ops,
                            enum pando_status status);

/* Bytes of the result that a list is owed. */
uint32_t wire_result_bytes(const struct fabric_op *ops, uint32_t count);

/* Takes a result for this list; results go to the list's buffers only if everything fits. */
enum wire_parse wire_get_result(const uint8_t *from, size_t available, size_t limit, uint16_t tag,
                                struct fabric_op *ops, uint32_t count, uint32_t *bytes,
                                enum pando_status *status);

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
