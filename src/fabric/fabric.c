#include "fabric/fabric.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/counters.h"
#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/window/window.h"

/* ---- lists -------------------------------------------------------------------------------------
 */

/* The shape of one operation. */
static inline enum pando_status op_check(const struct fabric_op *op)
{
    if (op->kind == FABRIC_CAS || op->kind == FABRIC_FAA) {
        if (op->size != 8)
            return PANDO_INVALID;
        if (op->offset % 8 != 0)
            return PANDO_RANGE;
    } else if (op->kind != FABRIC_READ && op->kind != FABRIC_WRITE) {
        return PANDO_INVALID;
    }
    if (op->size == 0)
        return PANDO_INVALID;
    if (op->offset != fabric_address_offset(op->offset))
        return PANDO_RANGE; /* no window is that large */
    return PANDO_OK;
}

static inline void op_count(struct fabric_counters *counters, const struct fabric_op *op)
{
    switch (op->kind) {
    case FABRIC_READ:
        counters->reads++;
        counters->bytes_in += op->size;
        break;
    case FABRIC_WRITE:
        counters->writes++;
        counters->bytes_out += op->size;
        break;
    case FABRIC_CAS:
    case FABRIC_FAA:
        counters->atomics++;
        counters->bytes_in += 8;
        counters->bytes_out += op->kind == FABRIC_CAS ? 16 : 8;
        break;
    }
}

/* Most lists are a single READ: the same checks and counts, in a few instructions. */
static inline bool read_admit(struct fabric_endpoint *endpoint, const struct fabric_list *list)
{
    const struct fabric_op *op = list->ops;
    if (list->count != 1 || op->kind != FABRIC_READ || op->size - 1 >= FABRIC_LIST_BYTES_MAX ||
        op->offset != fabric_address_offset(op->offset) || endpoint->broken ||
        endpoint->outstanding >= FABRIC_OUTSTANDING_MAX)
        return false;
    endpoint->counters.lists++;
    endpoint->counters.reads++;
    endpoint->counters.bytes_in += op->size;
    return true;
}

/* Also counts it: what is refused here never leaves, and is not counted. */
static enum pando_status list_admit(struct fabric_endpoint *endpoint,
                                    const struct fabric_list *list)
{
    uint64_t bytes = 0;

    if (list->count == 0 || list->count > FABRIC_LIST_OPS_MAX)
        return PANDO_INVALID;
    for (uint32_t i = 0; i < list->count; i++) {
        enum pando_status status = op_check(&list->ops[i]);
        if (status != PANDO_OK)
            return status;
        bytes += list->ops[i].size;
    }
    if (bytes > FABRIC_LIST_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (endpoint->broken)
        return PANDO_BROKEN;
    if (endpoint->outstanding >= FABRIC_OUTSTANDING_MAX)
        return PANDO_AGAIN;
    endpoint->counters.lists++;
    for (uint32_t i = 0; i < list->count; i++)
        op_count(&endpoint->counters, &list->ops[i]);
    return PANDO_OK;
}

void fabric_post(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    list->waiter = NULL;
    list->status = read_admit(endpoint, list) ? PANDO_OK : list_admit(endpoint, list);
    list->pending = list->status == PANDO_OK;
    if (!list->pending)
        return;
    endpoint->outstanding++;
    endpoint->ops->post(endpoint, list);
}

enum pando_status fabric_wait_co(struct fabric_list *list)
{
    if (list->pending) {
        list->waiter = rt_task_self();
        while (list->pending)
            (void)rt_park_co(RT_NEVER);
    }
    return list->status;
}

enum pando_status fabric_submit_co(struct fabric_endpoint *endpoint, struct fabric_op *ops,
                                   uint32_t count)
{
    struct fabric_list list = {.ops = ops, .count = count};
    fabric_post(endpoint, &list);
    return fabric_wait_co(&list);
}

/* ---- endpoints and calls --------------------------------------------------------------------- */

void fabric_init(struct fabric *fabric, const struct fabric_ops *ops, uint16_t node,
                 enum fabric_target target)
{
    fabric->ops = ops;
    fabric->node = node;
    fabric->target = target;
    rt_waitq_init(&fabric->ended);
}

void fabric_set_identity(struct fabric *fabric, struct fabric_identity identity)
{
    uint32_t packed = (uint32_t)identity.incarnation << 16 | identity.member;
    atomic_store_explicit(&fabric->identity, packed, memory_order_release);
}

struct fabric_identity fabric_identity_now(const struct fabric *fabric)
{
    uint32_t packed = atomic_load_explicit(&fabric->identity, memory_order_acquire);
    return (struct fabric_identity){.member = (uint16_t)packed,
                                    .incarnation = (uint16_t)(packed >> 16)};
}

const char *fabric_location(const struct fabric *fabric)
{
    return fabric->location;
}

enum pando_status fabric_add_peer(struct fabric *fabric, uint16_t node, enum fabric_target target,
                                  const char *location)
{
    if (strlen(location) >= FABRIC_LOCATION_MAX)
        return PANDO_TOO_LARGE;
    return fabric->ops->add_peer(fabric, node, target, location);
}

enum pando_status fabric_connect_co(struct fabric *fabric, uint16_t node,
                                    struct fabric_endpoint **out)
{
    return fabric->ops->connect_co(fabric, node, 0, out);
}

enum pando_status fabric_connect_window_co(struct fabric *fabric, uint16_t node, uint64_t window,
                                           struct fabric_endpoint **out)
{
    return fabric->ops->connect_co(fabric, node, window, out);
}

void fabric_disconnect_co(struct fabric_endpoint *endpoint)
{
    pando_assert(endpoint->outstanding == 0);
    endpoint->ops->disconnect_co(endpoint);
}

bool fabric_broken(const struct fabric_endpoint *endpoint)
{
    return endpoint->broken;
}

enum pando_status fabric_reconnect_co(struct fabric_endpoint *endpoint)
{
    return endpoint->ops->reconnect_co(endpoint);
}

enum pando_status fabric_fence_co(struct fabric_endpoint *endpoint,
                                  const struct fabric_ticket *ticket)
{
    if (ticket->who.member == 0 || ticket->who.member >= FABRIC_MEMBERS_MAX)
        return PANDO_INVALID;
    if (endpoint->broken)
        return PANDO_BROKEN;
    return endpoint->ops->fence_co(endpoint, ticket);
}

enum pando_status fabric_fence_own_co(struct fabric *fabric, struct fabric_identity dead)
{
    if (dead.member == 0 || dead.member >= FABRIC_MEMBERS_MAX)
        return PANDO_INVALID;
    return fabric->window == NULL ? PANDO_OK : fabric->ops->fence_own_co(fabric, dead);
}

void fabric_serve(struct fabric *fabric, fabric_handler handler, void *context)
{
    fabric->handler = handler;
    fabric->handler_context = context;
}

void fabric_answer(struct fabric *fabric, struct fabric_answerer *answerer)
{
    rt_latch_lock(&fabric->answer_latch);
    fabric->answerer = answerer;
    rt_latch_unlock(&fabric->answer_latch);
}

static bool answers(const void *answerer)
{
    return atomic_load(&((const struct fabric_answerer *)answerer)->running) > 0;
}

void fabric_answer_end_co(struct fabric *fabric, struct fabric_answerer *answerer)
{
    rt_latch_lock(&fabric->answer_latch);
    if (fabric->answerer == answerer)
        fabric->answerer = NULL;
    rt_latch_unlock(&fabric->answer_latch);
    (void)rt_waitq_while_co(&fabric->ended, answers, answerer, RT_NEVER);
}

/* Who answers that method, counted in; NULL: the process's handler. */
static struct fabric_answerer *answerer_take(struct fabric *fabric, uint16_t method)
{
    rt_latch_lock(&fabric->answer_latch);
    struct fabric_answerer *answerer = fabric->answerer;
    if (answerer != NULL && answerer->method != method)
        answerer = NULL;
    if (answerer != NULL)
        atomic_fetch_add(&answerer->running, 1);
    rt_latch_unlock(&fabric->answer_latch);
    return answerer;
}

/* It may be gone when this returns. Somebody can wait for its end only if it is not asked any more. */
static void answerer_give(struct fabric *fabric, struct fabric_answerer *answerer)
{
    rt_latch_lock(&fabric->answer_latch);
    bool ended = atomic_fetch_sub(&answerer->running, 1) == 1 && fabric->answerer != answerer;
    rt_latch_unlock(&fabric->answer_latch);
    if (ended)
        rt_waitq_wake_all(&fabric->ended);
}

enum pando_status fabric_serve_request(struct fabric *fabric, struct fabric_request *request)
{
    enum pando_status status;
    struct fabric_answerer *answerer = answerer_take(fabric, request->method);

    request->reply_size = 0;
    if (answerer != NULL) {
        status = answerer->handler(answerer->context, request);
        answerer_give(fabric, answerer);
    } else if (fabric->handler != NULL) {
        status = fabric->handler(fabric->handler_context, request);
    } else {
        status = PANDO_UNSUPPORTED;
    }
    pando_assert(request->reply_size <= FABRIC_CALL_BYTES_MAX);
    return status;
}

enum pando_status fabric_self_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                      struct slice body, void *reply, uint32_t reply_capacity,
                                      uint32_t *reply_size)
{
    uint8_t *buffer = malloc(FABRIC_CALL_BYTES_MAX);
    if (buffer == NULL)
        return PANDO_NO_MEMORY;
    struct fabric_request request = {
        .from = endpoint->identity, .method = method, .body = body, .reply = buffer};
    enum pando_status status = fabric_serve_request(endpoint->fabric, &request);
    uint32_t stored = request.reply_size < reply_capacity ? request.reply_size : reply_capacity;
    if (stored > 0)
        memcpy(reply, buffer, stored);
    *reply_size = request.reply_size;
    free(buffer);
    return status;
}

enum pando_status fabric_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                 struct slice body, void *reply, uint32_t reply_capacity,
                                 uint32_t *reply_size)
{
    uint32_t ignored;
    if (reply_size == NULL)
        reply_size = &ignored;
    *reply_size = 0;
    if (body.size > FABRIC_CALL_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (endpoint->broken)
        return PANDO_BROKEN;
    endpoint->counters.calls++;
    endpoint->counters.bytes_out += body.size;
    enum pando_status status =
        endpoint->ops->call_co(endpoint, method, body, reply, reply_capacity, reply_size);
    endpoint->counters.bytes_in += *reply_size;
    return status;
}

/* ---- the window and the rest ----------------------------------------------------------------- */

uint16_t fabric_self(const struct fabric *fabric)
{
    return fabric->node;
}

void fabric_set_node(struct fabric *fabric, uint16_t node)
{
    if (fabric->node == FABRIC_NODE_UNKNOWN)
        fabric->node_later = true;
    if (fabric->node_later)
        fabric->node = node;
}

uint64_t fabric_window_bytes(const struct fabric *fabric)
{
    return fabric->window_bytes;
}

uint64_t fabric_device_bytes(const struct fabric *fabric)
{
    return fabric->device_bytes;
}

uint64_t fabric_window_id(const struct fabric *fabric)
{
    return fabric->window == NULL ? 0 : window_id(fabric->window);
}

bool fabric_device_lost(const struct fabric *fabric)
{
    return fabric->device_lost;
}

uint64_t fabric_window_first(const struct fabric *fabric)
{
    (void)fabric;
    return WINDOW_FIRST;
}

enum pando_status fabric_self_read(struct fabric *fabric, uint64_t offset, void *to, size_t size)
{
    return fabric->ops->self_read(fabric, offset, to, size);
}

enum pando_status fabric_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                    size_t size)
{
    return fabric->ops->self_write(fabric, offset, from, size);
}

bool fabric_window_stale(const struct fabric *fabric)
{
    return atomic_load_explicit(&fabric->window_stale, memory_order_acquire);
}

enum pando_status fabric_window_renew_co(struct fabric *fabric)
{
    return fabric->window == NULL ? PANDO_OK : fabric->ops->renew_co(fabric);
}

bool fabric_fenced(const struct fabric *fabric, struct fabric_identity identity)
{
    return fabric->window != NULL && window_fenced(fabric->window, identity);
}

void fabric_note_member(const struct fabric *fabric, struct fabric_identity identity)
{
    if (fabric->window != NULL)
        window_note_member(fabric->window, identity);
}

enum pando_status fabric_reload(struct fabric *fabric, char *text, size_t text_bytes)
{
    text[0] = '\0';
    if (fabric->ops->reload == NULL)
        return PANDO_UNSUPPORTED;
    return fabric->ops->reload(fabric, text, text_bytes);
}

void fabric_connect_error(struct fabric *fabric, uint16_t node, char *out, size_t size)
{
    out[0] = '\0';
    if (fabric->ops->trouble != NULL)
        fabric->ops->trouble(fabric, node, out, size);
}

void fabric_close(struct fabric *fabric)
{
    fabric_attend_close(fabric);
    fabric->ops->close(fabric);
}

enum fabric_target fabric_endpoint_target(const struct fabric_endpoint *endpoint)
{
    return endpoint->target;
}

uint16_t fabric_endpoint_node(const struct fabric_endpoint *endpoint)
{
    return endpoint->node;
}

uint64_t fabric_endpoint_window(const struct fabric_endpoint *endpoint)
{
    return endpoint->window;
}

enum pando_status fabric_window_check(uint16_t node, enum fabric_target target, uint64_t before,
                                      uint64_t found)
{
    if (target != FABRIC_MEMORY || before == 0 || before == found)
        return PANDO_OK;
    log_debug("a memory node has come back with another window", log_u64("node", node),
              log_hex("window", found), log_hex("expected", before));
    return PANDO_INVALID;
}

enum pando_status fabric_window_admit(struct fabric *fabric, uint64_t expected,
                                      struct fabric_identity from, uint64_t now_ns)
{
    struct fabric_refusal refusal = {.from = from, .expected = expected, .at_ns = now_ns};
    if (fabric->target != FABRIC_MEMORY || expected == 0 || expected == fabric_window_id(fabric))
        return PANDO_OK;
    atomic_fetch_add_explicit(&fabric->refusals, 1, memory_order_relaxed);
    if (fabric->on_refusal != NULL)
        fabric->on_refusal(fabric->refusal_context, &refusal);
    return PANDO_INVALID;
}

void fabric_on_window_refusal(struct fabric *fabric, fabric_refusal_fn told, void *context)
{
    fabric->on_refusal = told;
    fabric->refusal_context = context;
}

uint64_t fabric_window_refusals(const struct fabric *fabric)
{
    return atomic_load_explicit(&fabric->refusals, memory_order_relaxed);
}

struct fabric_counters *fabric_endpoint_counters(struct fabric_endpoint *endpoint)
{
    return &endpoint->counters;
}

void fabric_counters_add(struct fabric_counters *sum, const struct fabric_counters *more)
{
    counters_add(sum, more);
}
