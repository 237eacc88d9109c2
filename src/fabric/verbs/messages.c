#include "fabric/verbs/messages.h"

enum {
    IN_LIMIT = 2 * (WIRE_FRAME_HEADER + WIRE_CALL_MAX) + VERBS_PACKET_BYTES,
    OWED_MAX = QUEUE_CREDITS / 2, /* then they are given back at once */
};

void messages_init(struct messages *messages, struct queue *queue, unsigned peer_credits,
                   messages_frame_fn on_frame)
{
    bytes_taken(&messages->in, bytes_used(&messages->in));
    bytes_taken(&messages->out, bytes_used(&messages->out));
    messages->queue = queue;
    messages->on_frame = on_frame;
    messages->credits = peer_credits < QUEUE_CREDITS ? peer_credits : QUEUE_CREDITS;
    messages->owed = 0;
    messages->free_sends = (1u << QUEUE_SENDS) - 1;
}

void messages_fini(struct messages *messages)
{
    bytes_fini(&messages->in);
    bytes_fini(&messages->out);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* One packet, with as many bytes as there are and fit, and all credits owed. */
static bool send_packet(struct messages *messages, size_t bytes)
{
    unsigned place = (unsigned)__builtin_ctz(messages->free_sends);
    uint8_t *packet = queue_send_place(messages->queue, place);

    if (bytes > VERBS_PACKET_ROOM)
        bytes = VERBS_PACKET_ROOM;
    wire_put_u16(packet, (uint16_t)bytes);
    wire_put_u16(packet + 2, (uint16_t)messages->owed);
    wire_put_u32(packet + 4, 0);
    if (bytes > 0)
        memcpy(packet + VERBS_PACKET_HEADER, bytes_front(&messages->out), bytes);
    if (!queue_send(messages->queue, place, VERBS_PACKET_HEADER + (uint32_t)bytes))
        return false;
    messages->free_sends &= ~(1u << place);
    messages->owed = 0;
    if (bytes > 0) {
        messages->credits--;
        bytes_taken(&messages->out, bytes);
    }
    return true;
}

void messages_pump(struct messages *messages)
{
    if (messages->queue->failure != NULL)
        return;
    while (messages->free_sends != 0) {
        size_t waiting = messages->credits > 0 ? bytes_used(&messages->out) : 0;
        if (waiting == 0 && messages->owed < OWED_MAX)
            return;
        if (!send_packet(messages, waiting))
            return;
    }
}

void messages_sent(struct messages *messages, unsigned place)
{
    if (place < QUEUE_SENDS)
        messages->free_sends |= 1u << place;
    messages_pump(messages);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Hands over the frames that are whole. */
static enum wire_parse take_frames(struct messages *messages)
{
    struct bytes *in = &messages->in;
    struct wire_frame frame;

    while (bytes_used(in) > 0) {
        enum wire_parse parse = wire_get_frame(bytes_front(in), bytes_used(in), &frame);
        if (parse != WIRE_OK)
            return parse;
        if (frame.size > WIRE_CALL_MAX)
            return WIRE_BAD;
        if (bytes_used(in) < WIRE_FRAME_HEADER + frame.size)
            return WIRE_MORE;
        if (!messages->on_frame(messages, &frame, bytes_front(in) + WIRE_FRAME_HEADER))
            return WIRE_BAD;
        bytes_taken(in, WIRE_FRAME_HEADER + frame.size);
    }
    return WIRE_OK;
}

/* False: no honest peer sends this. */
static bool take_packet(struct messages *messages, const uint8_t *packet, uint32_t bytes)
{
    if (bytes < VERBS_PACKET_HEADER || bytes > VERBS_PACKET_BYTES)
        return false;
    uint32_t carried = wire_get_u16(packet);
    messages->credits += wire_get_u16(packet + 2);
    if (carried != bytes - VERBS_PACKET_HEADER || messages->credits > QUEUE_CREDITS ||
        messages->owed >= QUEUE_CREDITS)
        return false;
    if (carried == 0)
        return true;
    messages->owed++;
    uint8_t *to = bytes_reserve(&messages->in, carried, IN_LIMIT);
    if (to == NULL)
        return false;
    memcpy(to, packet + VERBS_PACKET_HEADER, carried);
    bytes_appended(&messages->in, carried);
    return take_frames(messages) != WIRE_BAD;
}

void messages_received(struct messages *messages, unsigned place, uint32_t bytes)
{
    if (place >= QUEUE_RECEIVES ||
        !take_packet(messages, queue_receive_place(messages->queue, place), bytes)) {
        queue_fail(messages->queue, "the peer does not speak the protocol");
        return;
    }
    /* The receive is there again before anybody is told of the credit. */
    queue_receive(messages->queue, place);
    messages_pump(messages);
}
