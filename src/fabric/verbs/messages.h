/*
 * messages.h - a stream of frames over SEND and RECEIVE, both ways, with credits: a packet is sent
 * only when the other side has a receive for it, so nobody is ever told "not ready". What has been
 * taken is given back with the next packet, or, when half of all credits are owed and nothing else
 * is to be sent, by a packet without bytes, for which there are receives besides.
 *
 * A side sends at most QUEUE_CREDITS packets with bytes until it hears of new credits, so the other
 * has at most two packets without bytes on their way: fewer than the receives kept for them.
 */
#ifndef FABRIC_VERBS_MESSAGES_H
#define FABRIC_VERBS_MESSAGES_H

#include "fabric/session/wire.h"
#include "fabric/verbs/queue.h"

enum { MESSAGES_OUT_LIMIT = 16 * (WIRE_FRAME_HEADER + WIRE_CALL_MAX) };

struct messages;

/* A whole frame. False: no honest peer sends this. Must not destroy the queue. */
typedef bool (*messages_frame_fn)(struct messages *messages, const struct wire_frame *frame,
                                  const uint8_t *body);

struct messages {
    struct queue *queue;
    messages_frame_fn on_frame;
    struct bytes in, out;
    unsigned credits;    /* packets with bytes that may be sent */
    unsigned owed;       /* that were taken and not yet given back */
    unsigned free_sends; /* a bit for each place */
};

/* `peer_credits` is what the other side said it has receives for. */
void messages_init(struct messages *messages, struct queue *queue, unsigned peer_credits,
                   messages_frame_fn on_frame);
void messages_fini(struct messages *messages);

/* Room for a frame at the end of the stream, as wire_append_frame; messages_pump sends it. */
static inline uint8_t *messages_append(struct messages *messages, enum wire_type type,
                                       uint32_t size)
{
    return wire_append_frame(&messages->out, type, size, MESSAGES_OUT_LIMIT);
}

/* Sends what can be sent. */
void messages_pump(struct messages *messages);

/* From the queue's completions. */
void messages_sent(struct messages *messages, unsigned place);
void messages_received(struct messages *messages, unsigned place, uint32_t bytes);

#endif
