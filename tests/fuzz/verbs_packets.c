/*
 * Arbitrary bytes where packets of a peer are expected, and where it says what its end of a queue pair is.
 * The queue pair is one that only counts: receives that were given back, packets that were sent.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/verbs/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned receives, sends;

static int post_receive(struct ibv_qp *pair, struct ibv_recv_wr *request, struct ibv_recv_wr **bad)
{
    (void)pair;
    (void)bad;
    pando_assert(request->sg_list->length == VERBS_PACKET_BYTES);
    receives++;
    return 0;
}

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
    (void)pair;
    (void)bad;
    pando_assert(request->sg_list->length >= VERBS_PACKET_HEADER &&
                 request->sg_list->length <= VERBS_PACKET_BYTES);
    sends++;
    return 0;
}

/* As a server: calls are decoded, and answered with as many bytes. */
static bool on_frame(struct messages *messages, const struct wire_frame *frame, const uint8_t *body)
{
    struct wire_call call;
    pando_assert(frame->size <= WIRE_CALL_MAX);
    if (frame->type != WIRE_CALL || wire_get_call(body, frame->size, &call) != WIRE_OK)
        return false;
    uint8_t *to = messages_append(messages, WIRE_REPLY, WIRE_CALL_HEADER + wire_padded(call.size));
    if (to != NULL)
        wire_put_call(to, call.tag, PANDO_OK, call.body, call.size);
    return true;
}

static void end_of_queue_pair(const uint8_t *data, size_t size)
{
    struct verbs_end end;
    if (size < VERBS_END_BYTES || !verbs_get_end(data, &end))
        return;
    pando_assert(end.mtu >= IBV_MTU_256 && end.mtu <= IBV_MTU_4096 && end.credits > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t memory[(QUEUE_RECEIVES + QUEUE_SENDS) * VERBS_PACKET_BYTES];
    struct ibv_context context = {.ops = {.post_recv = post_receive, .post_send = post_send}};
    struct ibv_qp pair = {.context = &context};
    struct ibv_mr region = {.lkey = 1};
    struct queue queue = {.pair = &pair, .packets = {.base = memory, .region = &region}};
    struct messages messages = {0};

    end_of_queue_pair(data, size);
    messages_init(&messages, &queue, QUEUE_CREDITS, on_frame);
    receives = sends = 0;
    /* Each packet: two bytes say how long it is, then it follows, as far as there is something. */
    for (unsigned i = 0; size >= 2 && queue.failure == NULL; i++) {
        uint32_t bytes = wire_get_u16(data) % (VERBS_PACKET_BYTES + 1);
        unsigned place = i % QUEUE_RECEIVES;
        data += 2;
        size -= 2;
        uint32_t there = bytes < size ? bytes : (uint32_t)size;
        memcpy(queue_receive_place(&queue, place), data, there);
        data += there;
        size -= there;
        unsigned before = receives;
        messages_received(&messages, place, bytes);
        pando_assert(queue.failure != NULL || receives == before + 1);
        pando_assert(messages.credits <= QUEUE_CREDITS || queue.failure != NULL);
        for (unsigned sent = 0; sent < QUEUE_SENDS; sent++)
            messages_sent(&messages, sent);
    }
    messages_fini(&messages);
    return 0;
}
