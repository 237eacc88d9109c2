/*
 * frame.c - filling frames at the end of an output queue.
 */
#include "fabric/tcp/tcp_int.h"

uint8_t *frame_room(struct bytes *out, struct open_frame *frame, enum wire_type type, size_t size)
{
    if (frame->bytes > 0 && (frame->bytes + size > TCP_FRAME_BYTES || frame->count == UINT16_MAX))
        frame_close(out, frame, type);
    if (frame->bytes > 0)
        return bytes_reserve(out, size, TCP_OUT_LIMIT);
    uint8_t *at = bytes_reserve(out, WIRE_FRAME_HEADER + size, TCP_OUT_LIMIT);
    if (at == NULL)
        return NULL;
    bytes_appended(out, WIRE_FRAME_HEADER);
    frame->bytes = WIRE_FRAME_HEADER;
    frame->count = 0;
    return at + WIRE_FRAME_HEADER;
}

void frame_added(struct bytes *out, struct open_frame *frame, size_t size)
{
    bytes_appended(out, size);
    frame->bytes += (uint32_t)size;
    frame->count++;
}

void frame_close(struct bytes *out, struct open_frame *frame, enum wire_type type)
{
    if (frame->bytes == 0)
        return;
    uint8_t *header = out->data + out->tail - frame->bytes;
    wire_put_frame(header, frame->bytes - WIRE_FRAME_HEADER, type, frame->count);
    *frame = (struct open_frame){0};
}
