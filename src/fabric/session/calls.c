/*
 * calls.c - calls that wait for their replies, on the client's side.
 */
#include "fabric/session/connect.h"

static const uint64_t CALL_NS = 30 * RT_NS_PER_S;

struct client_call client_call_make(struct client_calls *calls, void *reply, uint32_t capacity)
{
    return (struct client_call){
        .tag = calls->next_tag++, .task = rt_task_self(), .reply = reply, .capacity = capacity};
}

static void call_done(struct client_call *call, enum pando_status status)
{
    list_remove(&call->link);
    call->done = true;
    call->status = status;
    rt_unpark(call->task);
}

enum pando_status client_call_wait_co(struct client_calls *calls, struct client_call *call)
{
    uint64_t deadline = rt_now_ns() + CALL_NS;
    enum pando_status parked = PANDO_OK;

    list_push_back(&calls->waiting, &call->link);
    while (!call->done && parked != PANDO_TIMEOUT)
        parked = rt_park_co(deadline);
    if (call->done)
        return call->status;
    list_remove(&call->link);
    return PANDO_TIMEOUT;
}

enum wire_parse client_calls_reply(struct client_calls *calls, const uint8_t *body, uint32_t size)
{
    struct wire_call reply;
    if (wire_get_call(body, size, &reply) != WIRE_OK || reply.word >= PANDO_STATUS_COUNT)
        return WIRE_BAD;
    list_for_each (link, &calls->waiting) {
        struct client_call *call = container_of(link, struct client_call, link);
        if (call->tag != reply.tag)
            continue;
        uint32_t stored = reply.size < call->capacity ? reply.size : call->capacity;
        if (stored > 0)
            memcpy(call->reply, reply.body, stored);
        call->size = reply.size;
        call_done(call, (enum pando_status)reply.word);
        return WIRE_OK;
    }
    return WIRE_OK; /* its caller gave up */
}

void client_calls_fail(struct client_calls *calls, enum pando_status status)
{
    list_for_each_safe (link, &calls->waiting)
        call_done(container_of(link, struct client_call, link), status);
}
