/*
 * serve.c - requests of a session that run as tasks. Each holds the session until it is done; by
 * then it may be closed, and the answer goes nowhere.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/session/session.h"

struct request {
    struct session *session;
    uint64_t tag;
    uint16_t method;
    struct fabric_identity identity;
    uint32_t size;
    uint8_t body[];
};

static void answer(struct session *session, uint64_t tag, enum pando_status status,
                   const uint8_t *body, uint32_t size)
{
    if (session->state == SESSION_OPEN)
        session->thread->server->ops->answer(session, tag, status, body, size);
}

static bool request_start(struct session *session, rt_fn task, uint64_t tag, uint16_t method,
                          struct fabric_identity identity, const uint8_t *body, uint32_t size)
{
    struct request *request = malloc(sizeof(*request) + size);
    if (request == NULL)
        return false;
    request->session = session;
    request->tag = tag;
    request->method = method;
    request->identity = identity;
    request->size = size;
    if (size > 0)
        memcpy(request->body, body, size);
    if (rt_spawn(session_loop(session->thread), task, request) != PANDO_OK) {
        free(request);
        return false;
    }
    session_hold(session);
    return true;
}

static void request_end(struct request *request)
{
    session_release(request->session);
    free(request);
}

/* Most calls come one after the other, and so much memory is not had or given back in no time. */
static uint8_t *reply_take(struct session_thread *thread)
{
    uint8_t *reply = thread->reply;
    thread->reply = NULL;
    return reply != NULL ? reply : malloc(FABRIC_CALL_BYTES_MAX);
}

static void reply_give(struct session_thread *thread, uint8_t *reply)
{
    if (thread->reply == NULL)
        thread->reply = reply;
    else
        free(reply);
}

static void call_task(void *arg)
{
    struct request *request = arg;
    struct session *session = request->session;
    struct session_thread *thread = session->thread;
    uint8_t *reply = reply_take(thread);
    struct fabric_request served = {
        .from = session->identity,
        .method = request->method,
        .body = slice_of(request->body, request->size),
        .reply = reply,
    };
    enum pando_status status =
        reply == NULL ? PANDO_NO_MEMORY : fabric_serve_request(thread->server->fabric, &served);
    answer(session, request->tag, status, reply, served.reply_size);
    reply_give(thread, reply);
    request_end(request);
}

bool session_serve_call(struct session *session, const struct wire_call *call)
{
    /* Calls only: a fence must get through, whatever else is waiting. */
    if (session->holds >= FABRIC_CALLS_MAX) {
        answer(session, call->tag, PANDO_AGAIN, NULL, 0);
        return true;
    }
    return request_start(session, call_task, call->tag, call->word, session->identity, call->body,
                         call->size);
}

enum pando_status session_fence_co(struct session_server *server, struct fabric_identity identity)
{
    struct session_filter filter = {.identity = identity};

    /* First the record, so that nobody new gets in; then those that are. A thread handles the drop
     * between two lists, so none is left running when it has answered. */
    window_fence(server->window, identity);
    enum pando_status status = session_drop_co(server, &filter);
    log_info("member fenced", log_u64("member", identity.member),
             log_u64("incarnation", identity.incarnation), log_status("status", status));
    return status;
}

enum pando_status session_self_fence_co(struct session_server *server, const struct window *window,
                                        struct fabric_identity identity)
{
    if (server != NULL)
        return session_fence_co(server, identity);
    window_fence(window, identity);
    return PANDO_OK;
}

static void fence_task(void *arg)
{
    struct request *request = arg;
    enum pando_status status =
        session_fence_co(request->session->thread->server, request->identity);
    answer(request->session, request->tag, status, NULL, 0);
    request_end(request);
}

bool session_serve_fence(struct session *session, const uint8_t *body)
{
    struct fabric_identity identity = {.member = wire_get_u16(body + 8),
                                       .incarnation = wire_get_u16(body + 10)};
    if (identity.member == 0 || identity.member >= FABRIC_MEMBERS_MAX)
        return false;
    return request_start(session, fence_task, wire_get_u64(body), 0, identity, NULL, 0);
}
