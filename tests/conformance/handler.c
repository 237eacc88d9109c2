/*
 * handler.c - the target's side of the suite. On the real backends it runs in another process; its
 * context is the target's fabric.
 */
#include <string.h>

#include "conformance/suite.h"

/* Copies a fixed body; false when it has another size. */
static bool body_is(const struct fabric_request *request, void *to, size_t size)
{
    if (request->body.size != size)
        return false;
    memcpy(to, request->body.data, size);
    return true;
}

static void reply_word(struct fabric_request *request, uint64_t word)
{
    memcpy(request->reply, &word, sizeof(word));
    request->reply_size = sizeof(word);
}

static void reply_body(struct fabric_request *request)
{
    if (request->body.size > 0)
        memcpy(request->reply, request->body.data, request->body.size);
    request->reply_size = (uint32_t)request->body.size;
}

static enum pando_status serve_status(struct fabric_request *request)
{
    uint32_t status;
    if (!body_is(request, &status, sizeof(status)) || status >= PANDO_STATUS_COUNT)
        return PANDO_INVALID;
    reply_body(request);
    return (enum pando_status)status;
}

static enum pando_status serve_sleep(struct fabric_request *request)
{
    uint64_t duration_ns;
    if (!body_is(request, &duration_ns, sizeof(duration_ns)))
        return PANDO_INVALID;
    rt_sleep_co(duration_ns);
    reply_body(request);
    return PANDO_OK;
}

static enum pando_status serve_size(struct fabric_request *request)
{
    uint32_t size;
    if (!body_is(request, &size, sizeof(size)) || size > FABRIC_CALL_BYTES_MAX)
        return PANDO_INVALID;
    pattern_fill(request->reply, 0, 0, size);
    request->reply_size = size;
    return PANDO_OK;
}

static enum pando_status serve_fenced(struct fabric *fabric, struct fabric_request *request)
{
    struct fabric_identity identity;
    if (!body_is(request, &identity, sizeof(identity)))
        return PANDO_INVALID;
    reply_word(request, fabric_fenced(fabric, identity));
    return PANDO_OK;
}

static enum pando_status self_read(struct fabric *fabric, struct fabric_request *request,
                                   const struct self_range *range)
{
    if (range->size > FABRIC_CALL_BYTES_MAX)
        return PANDO_INVALID;
    enum pando_status status = fabric_self_read(fabric, range->offset, request->reply, range->size);
    request->reply_size = status == PANDO_OK ? (uint32_t)range->size : 0;
    return status;
}

static enum pando_status serve_self_read(struct fabric *fabric, struct fabric_request *request)
{
    struct self_range range;
    if (!body_is(request, &range, sizeof(range)))
        return PANDO_INVALID;
    return self_read(fabric, request, &range);
}

static enum pando_status serve_self_write(struct fabric *fabric, struct fabric_request *request)
{
    uint64_t offset;
    if (request->body.size < sizeof(offset))
        return PANDO_INVALID;
    memcpy(&offset, request->body.data, sizeof(offset));
    return fabric_self_write(fabric, offset, request->body.data + sizeof(offset),
                             request->body.size - sizeof(offset));
}

/* ---- through an endpoint to itself ----------------------------------------------------------- */

static enum pando_status serve_self_faa(struct fabric *fabric, struct fabric_request *request)
{
    struct fabric_endpoint *endpoint;
    struct self_faa faa;

    if (!body_is(request, &faa, sizeof(faa)))
        return PANDO_INVALID;
    enum pando_status status = fabric_connect_co(fabric, fabric_self(fabric), &endpoint);
    if (status != PANDO_OK)
        return status;
    struct fabric_op op = fabric_faa(faa.offset, faa.addend);
    status = fabric_submit_co(endpoint, &op, 1);
    fabric_disconnect_co(endpoint);
    reply_word(request, op.old);
    return status;
}

/* [WRITE 5][CAS 5 to 6][FAA 1][READ]: the reply is what was read, 7. */
static enum pando_status serve_self_lists(struct fabric *fabric, struct fabric_request *request)
{
    struct fabric_endpoint *endpoint;
    uint64_t offset, five = 5, seen = 0;

    if (!body_is(request, &offset, sizeof(offset)))
        return PANDO_INVALID;
    enum pando_status status = fabric_connect_co(fabric, fabric_self(fabric), &endpoint);
    if (status != PANDO_OK)
        return status;
    struct fabric_op ops[] = {fabric_write(offset, &five, 8), fabric_cas(offset, 5, 6)};
    struct fabric_op more[] = {fabric_faa(offset, 1), fabric_read(offset, &seen, 8)};
    status = fabric_submit_co(endpoint, ops, 2);
    if (status == PANDO_OK)
        status = fabric_submit_co(endpoint, more, 2);
    fabric_disconnect_co(endpoint);
    reply_word(request, seen);
    return ops[1].old == 5 && more[0].old == 6 ? status : PANDO_CORRUPT;
}

static enum pando_status serve_self_watch(struct fabric *fabric, struct fabric_request *request)
{
    struct fabric_endpoint *endpoint;
    struct self_watch watch;

    if (!body_is(request, &watch, sizeof(watch)))
        return PANDO_INVALID;
    enum pando_status status = fabric_connect_co(fabric, fabric_self(fabric), &endpoint);
    if (status != PANDO_OK)
        return status;
    struct fabric_op op;
    do {
        rt_sleep_co(500);
        op = fabric_faa(watch.flag, 0);
        status = fabric_submit_co(endpoint, &op, 1);
    } while (status == PANDO_OK && op.old < watch.value);
    fabric_disconnect_co(endpoint);
    return status == PANDO_OK ? self_read(fabric, request, &watch.range) : status;
}

static enum pando_status serve_refusals(struct fabric *fabric, struct fabric_request *request)
{
    uint64_t refusals = fabric_window_refusals(fabric);
    memcpy(request->reply, &refusals, sizeof(refusals));
    request->reply_size = sizeof(refusals);
    return PANDO_OK;
}

static enum pando_status serve_fence_own(struct fabric *fabric, struct fabric_request *request)
{
    struct fabric_identity dead;
    if (!body_is(request, &dead, sizeof(dead)))
        return PANDO_INVALID;
    return fabric_fence_own_co(fabric, dead);
}

static void renew_task(void *arg)
{
    struct fabric *fabric = arg;
    rt_sleep_co(50 * RT_NS_PER_US); /* the reply gets away */
    enum pando_status status = fabric_window_renew_co(fabric);
    CHECK(status == PANDO_OK || (status == PANDO_UNSUPPORTED && fabric_window_stale(fabric)));
}

enum pando_status suite_handler(void *context, struct fabric_request *request)
{
    struct fabric *fabric = context;
    switch ((enum suite_method)request->method) {
    case METHOD_ECHO:
        reply_body(request);
        return PANDO_OK;
    case METHOD_STATUS:
        return serve_status(request);
    case METHOD_SLEEP:
        return serve_sleep(request);
    case METHOD_SIZE:
        return serve_size(request);
    case METHOD_IDENTITY:
        memcpy(request->reply, &request->from, sizeof(request->from));
        request->reply_size = sizeof(request->from);
        return PANDO_OK;
    case METHOD_RENEW:
        return rt_spawn(rt_loop_self(), renew_task, fabric);
    case METHOD_REFUSALS:
        return serve_refusals(fabric, request);
    case METHOD_FENCED:
        return serve_fenced(fabric, request);
    case METHOD_FENCE_OWN:
        return serve_fence_own(fabric, request);
    case METHOD_SELF_READ:
        return serve_self_read(fabric, request);
    case METHOD_SELF_WRITE:
        return serve_self_write(fabric, request);
    case METHOD_SELF_FAA:
        return serve_self_faa(fabric, request);
    case METHOD_SELF_LISTS:
        return serve_self_lists(fabric, request);
    case METHOD_SELF_WATCH:
        return serve_self_watch(fabric, request);
    }
    return PANDO_NOT_FOUND;
}
