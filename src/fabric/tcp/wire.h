/*
 * wire.h - encoding and decoding lists and results: bytes in, structs out, no I/O. What is decoded
 * comes from outside: every length is checked against what is there and against the limits.
 */
#ifndef FABRIC_TCP_WIRE_H
#define FABRIC_TCP_WIRE_H

#include "fabric/session/wire.h"
#include "fabric/tcp/wire_fmt.h"

/* ---- lists --------------------------------------------------------------------------------------
 */

/* Bytes a list takes in a LISTS frame. */
uint32_t wire_list_bytes(const struct fabric_op *ops, uint32_t count);
void wire_put_list(uint8_t *to, uint32_t bytes, uint16_t tag, const struct fabric_op *ops,
                   uint32_t count);

/*
 * A list of a single READ, as most are, has three words, and the first of them is a constant but for
 * its tag: it can be told and made in a few instructions. Its result likewise begins with one word.
 */
enum { WIRE_READ_LIST = WIRE_LIST_HEADER + WIRE_OP };

static inline uint64_t wire_header_word(uint32_t bytes, uint16_t middle, uint16_t tag)
{
    return (uint64_t)tag << 48 | (uint64_t)middle << 32 | bytes;
}

static inline void wire_put_read(uint8_t *to, uint16_t tag, const struct fabric_op *op)
{
    wire_put_u64(to, wire_header_word(WIRE_READ_LIST, 1, tag));
    wire_put_u64(to + 8, op->offset);
    wire_put_u64(to + 16, op->size);
}

/* Its words; false: it is something else, or something wrong. WIRE_READ_LIST bytes are there. Where
 * it reads is not checked. */
static inline bool wire_get_read(const uint8_t *from, uint16_t *tag, uint64_t *offset,
                                 uint64_t *size)
{
    uint64_t header = wire_get_u64(from);
    *tag = (uint16_t)(header >> 48);
    *offset = wire_get_u64(from + 8);
    *size = wire_get_u64(from + 16);
    return header == wire_header_word(WIRE_READ_LIST, 1, *tag) &&
           *offset == fabric_address_offset(*offset) && *size - 1 < FABRIC_LIST_BYTES_MAX;
}

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

#endif
