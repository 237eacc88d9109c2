/*
 * frame.c - filling frames at the end of an output queue.
 */
#include "fabric/tcp/tcp_int.h"

uint8_t *frame_open(struct bytes *out, struct open_frame *frame, enum wire_type type, size_t size)
{
    frame_close(out, frame, type);
    uint8_t *at = bytes_reserve(out, WIRE_FRAME_HEADER + size, TCP_OUT_LIMIT);
    if (at == NULL)
        return NULL;
    bytes_appended(out, WIRE_FRAME_HEADER);
    frame->bytes = WIRE_FRAME_HEADER;
    return at + WIRE_FRAME_HEADER;
}

void frame_close(struct bytes *out, struct open_frame *frame, enum wire_type type)
{
    if (frame->bytes == 0)
        return;
    uint8_t *header = out->data + out->tail - frame->bytes;
    wire_put_frame(header, frame->bytes - WIRE_FRAME_HEADER, type, frame->count);
    *frame = (struct open_frame){0};
}
