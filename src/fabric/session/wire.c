#include "fabric/session/wire.h"

void wire_put_frame(uint8_t *to, uint32_t size, enum wire_type type, uint16_t count)
{
    wire_put_u32(to, size);
    to[4] = (uint8_t)type;
    to[5] = 0;
    wire_put_u16(to + 6, count);
}

enum wire_parse wire_get_frame(const uint8_t *from, size_t available, struct wire_frame *out)
{
    if (available < WIRE_FRAME_HEADER)
        return WIRE_MORE;
    out->size = wire_get_u32(from);
    out->type = from[4];
    out->count = wire_get_u16(from + 6);
    if (from[5] != 0 || out->size % 8 != 0 || out->size > WIRE_FRAME_MAX)
        return WIRE_BAD;
    return WIRE_OK;
}

uint8_t *wire_append_frame(struct bytes *out, enum wire_type type, uint32_t size, size_t limit)
{
    uint8_t *at = bytes_reserve(out, WIRE_FRAME_HEADER + size, limit);
    if (at == NULL)
        return NULL;
    wire_put_frame(at, size, type, 0);
    bytes_appended(out, WIRE_FRAME_HEADER + size);
    return at + WIRE_FRAME_HEADER;
}

/* ---- calls ----------------------------------------------------------------------------------- */

void wire_put_call(uint8_t *to, uint64_t tag, uint16_t word, const void *body, uint32_t size)
{
    wire_put_u64(to, tag);
    wire_put_u16(to + 8, word);
    wire_put_u16(to + 10, 0);
    wire_put_u32(to + 12, size);
    if (size == 0)
        return;
    wire_put_u64(to + WIRE_CALL_HEADER + wire_padded(size) - 8, 0);
    memcpy(to + WIRE_CALL_HEADER, body, size);
}

enum wire_parse wire_get_call(const uint8_t *from, uint32_t frame_size, struct wire_call *out)
{
    if (frame_size < WIRE_CALL_HEADER)
        return WIRE_BAD;
    out->tag = wire_get_u64(from);
    out->word = wire_get_u16(from + 8);
    out->size = wire_get_u32(from + 12);
    out->body = from + WIRE_CALL_HEADER;
    if (out->size > FABRIC_CALL_BYTES_MAX ||
        frame_size != WIRE_CALL_HEADER + wire_padded(out->size))
        return WIRE_BAD;
    return WIRE_OK;
}

void wire_put_fence(uint8_t *to, uint64_t tag, const struct fabric_ticket *ticket)
{
    wire_put_u64(to, tag);
    wire_put_u16(to + 8, ticket->who.member);
    wire_put_u16(to + 10, ticket->who.incarnation);
    wire_put_u32(to + 12, 0);
    memcpy(to + 16, ticket->seal, sizeof(ticket->seal));
}

uint64_t wire_get_fence(const uint8_t *from, struct fabric_ticket *ticket)
{
    ticket->who.member = wire_get_u16(from + 8);
    ticket->who.incarnation = wire_get_u16(from + 10);
    memcpy(ticket->seal, from + 16, sizeof(ticket->seal));
    return wire_get_u64(from);
}
