/*
 * rpc.c - what needs the target's help: connecting, fencing, calls.
 *
 * An rpc is one request and one reply. It belongs to the network until both the caller has its
 * answer and nothing of it is under way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"

/* What happens next. Queues are entered at the time they are come to, as by transfers: whoever sends may
 * be ahead of the world's time, and must not hold up what others send before that. */
enum rpc_stage { RPC_LEAVE, RPC_ARRIVE, RPC_REPLY_LEAVE, RPC_REPLY_ARRIVE };

struct rpc {
    struct sim_event event;
    struct list link; /* in net->rpcs */
    struct fabric_sim *net;
    enum rpc_kind kind;
    int references; /* the caller, and the network while a message or a server task is under way */
    enum rpc_stage stage;
    bool done;
    bool answered; /* by its server, whatever the status */
    bool unheard;  /* a message was lost, and its caller does not know */
    struct rt_task *caller;
    struct process *source;
    struct machine *target;
    struct process *server;
    uint32_t target_life;
    uint32_t served_life;
    uint64_t expected_window; /* by its id, 0 for any; and the one that there is */
    uint64_t served_window;
    struct fabric_identity identity; /* who asks */
    struct fabric_ticket ticket;     /* of a fence: who is fenced */
    uint64_t endpoint_id;
    enum pando_status status;       /* what the caller is told, once done */
    enum pando_status reply_status; /* what the server's reply says */
    uint16_t method;
    uint32_t request_bytes, body_size, reply_size;
    uint8_t *body, *reply;
};

static void rpc_release(struct rpc *rpc)
{
    if (--rpc->references > 0)
        return;
    sim_event_cancel(&rpc->event);
    list_remove(&rpc->link);
    rpc->net->unheard -= rpc->unheard;
    free(rpc->body);
    free(rpc->reply);
    free(rpc);
}

static void rpc_finish(struct rpc *rpc, enum pando_status status)
{
    if (rpc->done)
        return;
    rpc->done = true;
    rpc->status = status;
    if (rpc->caller != NULL)
        sim_unpark(rpc->caller);
}

/* A message of it did not come through the link. */
static void rpc_lost(struct rpc *rpc)
{
    rpc->unheard = !rpc->done && sim_silent(rpc->net, rpc->source->machine, rpc->target);
    rpc->net->unheard += rpc->unheard;
    if (!rpc->unheard)
        rpc_finish(rpc, PANDO_BROKEN);
    rpc_release(rpc);
}

static void send_reply(struct rpc *rpc, enum pando_status status)
{
    rpc->reply_status = status;
    rpc->stage = RPC_REPLY_LEAVE;
    sim_event_at(&rpc->event, sim_now_ns(rpc->net->sim) + (uint64_t)sim_jitter(rpc->net));
}

/* A task on one of the target's loops. */
static void serve_task(void *arg)
{
    struct rpc *rpc = arg;
    struct process *process = rpc->server; /* a ghost, if it died meanwhile */

    rt_charge(RT_COST_CALL);
    rpc->reply = malloc(FABRIC_CALL_BYTES_MAX);
    pando_assert(rpc->reply != NULL);
    struct fabric_request request = {
        .from = rpc->identity,
        .method = rpc->method,
        .body = slice_of(rpc->body, rpc->body_size),
        .reply = rpc->reply,
    };
    enum pando_status status = fabric_serve_request(&process->base, &request);
    rpc->reply_size = request.reply_size;
    if (process->dead)
        rpc_release(rpc); /* nobody answers; the caller's wait ends by itself */
    else
        send_reply(rpc, status);
}

static void fence_at(struct machine *target, struct fabric_identity dead)
{
    window_fence(&target->window, dead);
    if (!target->process->net->options.chaos.no_fencing)
        sim_transfers_fence(target, dead);
}

static enum pando_status serve_fence(struct rpc *rpc)
{
    enum pando_status status = fabric_fence_check(&rpc->target->process->base, &rpc->ticket);
    if (status != PANDO_OK)
        return status;
    fence_at(rpc->target, rpc->ticket.who);
    return PANDO_OK;
}

/* As on shm: one process at a time is a member, until it has disconnected or is fenced. */
static bool other_process_is_member(const struct rpc *rpc)
{
    struct fabric_sim *net = rpc->net;
    uint16_t member = rpc->identity.member;

    list_for_each (link, &net->processes) {
        const struct process *process = container_of(link, struct process, link);
        if (member == 0 || process->dead || process == rpc->source)
            continue;
        list_for_each (at, &process->endpoints) {
            const struct endpoint *endpoint = container_of(at, struct endpoint, link);
            if (endpoint->target == rpc->target && endpoint->base.identity.member == member &&
                !endpoint->base.broken && endpoint->target_life == rpc->served_life &&
                !window_fenced(&rpc->target->window, endpoint->base.identity))
                return true;
        }
    }
    return false;
}

static void rpc_serve(struct rpc *rpc)
{
    struct process *process = rpc->target->process;
    bool known = rpc->kind == RPC_CONNECT || rpc->kind == RPC_RECONNECT;

    sim_trace(rpc->net->sim, "rpc", (uint64_t)rpc->source->base.node << 16 | process->base.node,
              rpc->kind, (uint64_t)rpc->method << 32 | rpc->body_size);
    if (process->dead || (!known && process->life != rpc->target_life)) {
        rpc_finish(rpc, PANDO_BROKEN);
        rpc_release(rpc);
        return;
    }
    rpc->served_life = process->life;
    rpc->served_window = window_id(&rpc->target->window);
    if (rpc->kind == RPC_RECONNECT)
        sim_transfers_end_session(rpc->target, rpc->endpoint_id);
    if (fabric_window_admit(&process->base, rpc->expected_window, rpc->identity,
                            sim_now_ns(rpc->net->sim)) != PANDO_OK) {
        send_reply(rpc, PANDO_INVALID);
        return;
    }
    if (rpc->kind != RPC_FENCE && window_fenced(&rpc->target->window, rpc->identity)) {
        send_reply(rpc, PANDO_FENCED);
        return;
    }
    if (rpc->kind == RPC_FENCE) {
        send_reply(rpc, serve_fence(rpc));
        return;
    }
    if (rpc->kind != RPC_CALL) {
        send_reply(rpc, other_process_is_member(rpc) ? PANDO_BUSY : PANDO_OK);
        return;
    }
    sim_late_flush(rpc->target, rpc->endpoint_id);
    rpc->server = process;
    struct rt_loop *loop = process->loops[process->next_thread++ % process->threads];
    if (rt_spawn(loop, serve_task, rpc) != PANDO_OK)
        send_reply(rpc, PANDO_NO_MEMORY);
}

static void leave(struct rpc *rpc, struct machine *from, uint32_t bytes, enum rpc_stage next)
{
    double now = (double)sim_now_ns(rpc->net->sim);
    rpc->stage = next;
    sim_event_at(&rpc->event, (uint64_t)sim_port_send(rpc->net, &from->port, now, bytes, 1));
}

static void rpc_fire(struct rt_timer *timer)
{
    struct rpc *rpc = container_of(timer, struct rpc, event.timer);
    bool arrives = rpc->stage == RPC_ARRIVE || rpc->stage == RPC_REPLY_ARRIVE;
    if (arrives && !sim_linked(rpc->net, rpc->source->machine, rpc->target)) {
        rpc_lost(rpc);
        return;
    }
    switch (rpc->stage) {
    case RPC_LEAVE:
        leave(rpc, rpc->source->machine, rpc->request_bytes, RPC_ARRIVE);
        return;
    case RPC_ARRIVE:
        rpc_serve(rpc);
        return;
    case RPC_REPLY_LEAVE:
        leave(rpc, rpc->target, rpc->reply_size, RPC_REPLY_ARRIVE);
        return;
    case RPC_REPLY_ARRIVE:
        rpc->answered = !rpc->done;
        rpc_finish(rpc, rpc->reply_status);
        rpc_release(rpc);
        return;
    }
}

static struct rpc *rpc_send(struct process *source, struct machine *target, enum rpc_kind kind,
                            uint32_t body_size)
{
    struct fabric_sim *net = source->net;
    struct rpc *rpc = calloc(1, sizeof(*rpc));
    pando_assert(rpc != NULL);
    rpc->net = net;
    rpc->kind = kind;
    rpc->references = 2;
    rpc->caller = rt_task_self();
    rpc->source = source;
    rpc->target = target;
    rpc->request_bytes = body_size;
    sim_event_init(&rpc->event, net->sim, rpc_fire);
    list_push_back(&net->rpcs, &rpc->link);
    rt_charge(RT_COST_VERB);
    uint64_t leave_ns = sim_now_ns(net->sim) + (uint64_t)sim_jitter(net);
    uint64_t late_ns = source->dead ? 0 : sim_process_posts(source);
    rpc->stage = RPC_LEAVE;
    sim_event_at(&rpc->event, leave_ns + late_ns);
    if (source->dead) {
        /* A ghost: nothing was sent, and it learns so after a while. */
        sim_event_cancel(&rpc->event);
        rpc->stage = RPC_REPLY_ARRIVE;
        rpc->reply_status = PANDO_BROKEN;
        sim_event_at(&rpc->event, leave_ns + net->options.break_ns);
    }
    return rpc;
}

static enum pando_status rpc_wait_co(struct rpc *rpc)
{
    uint64_t deadline = rt_now_ns() + rpc->net->options.call_ns;
    enum pando_status parked = PANDO_OK;
    while (!rpc->done && parked != PANDO_TIMEOUT)
        parked = rt_park_co(deadline);
    rpc->caller = NULL;
    return rpc->done ? rpc->status : PANDO_TIMEOUT;
}

enum pando_status sim_rpc_co(struct process *source, struct machine *target, enum rpc_kind kind,
                             struct fabric_identity identity, uint64_t endpoint_id,
                             uint32_t *target_life, uint64_t *window)
{
    struct rpc *rpc = rpc_send(source, target, kind, 64);
    rpc->identity = identity;
    rpc->endpoint_id = endpoint_id;
    if (target_life != NULL)
        rpc->target_life = *target_life;
    if (window != NULL)
        rpc->expected_window = *window;
    enum pando_status status = rpc_wait_co(rpc);
    if (target_life != NULL)
        *target_life = rpc->served_life;
    if (window != NULL)
        *window = rpc->served_window;
    rpc_release(rpc);
    return status;
}

enum pando_status sim_fence_co(struct fabric_endpoint *base, const struct fabric_ticket *ticket)
{
    struct endpoint *endpoint = container_of(base, struct endpoint, base);
    struct rpc *rpc = rpc_send(endpoint->source, endpoint->target, RPC_FENCE, 64);
    rpc->ticket = *ticket;
    rpc->target_life = endpoint->target_life;
    enum pando_status status = rpc_wait_co(rpc);
    rpc_release(rpc);
    return status;
}

enum pando_status sim_fence_own_co(struct fabric *fabric, struct fabric_identity dead)
{
    struct process *process = container_of(fabric, struct process, base);
    if (process->dead)
        return PANDO_BROKEN;
    fence_at(process->machine, dead);
    return PANDO_OK;
}

enum pando_status sim_call_co(struct fabric_endpoint *base, uint16_t method, struct slice body,
                              void *reply, uint32_t reply_capacity, uint32_t *reply_size)
{
    struct endpoint *endpoint = container_of(base, struct endpoint, base);
    struct rpc *rpc = rpc_send(endpoint->source, endpoint->target, RPC_CALL, (uint32_t)body.size);

    rpc->identity = base->identity;
    rpc->endpoint_id = endpoint->id;
    rpc->target_life = endpoint->target_life;
    rpc->method = method;
    rpc->body_size = (uint32_t)body.size;
    rpc->body = malloc(body.size + 1);
    pando_assert(rpc->body != NULL);
    if (body.size > 0)
        memcpy(rpc->body, body.data, body.size);
    enum pando_status status = rpc_wait_co(rpc);
    if (rpc->answered && rpc->reply != NULL) {
        uint32_t stored = rpc->reply_size < reply_capacity ? rpc->reply_size : reply_capacity;
        if (stored > 0)
            memcpy(reply, rpc->reply, stored);
        *reply_size = rpc->reply_size;
    }
    if (rpc->unheard)
        sim_endpoint_break(endpoint); /* as where silence for that long does */
    rpc_release(rpc);
    return status;
}

void sim_rpcs_of_dead(struct process *process)
{
    list_for_each_safe (link, &process->net->rpcs) {
        struct rpc *rpc = container_of(link, struct rpc, link);
        if (rpc->source == process || rpc->target == process->machine)
            rpc_finish(rpc, PANDO_BROKEN);
    }
}

void sim_rpcs_destroy(struct fabric_sim *net)
{
    struct list *link;
    while ((link = list_pop_front(&net->rpcs)) != NULL) {
        struct rpc *rpc = container_of(link, struct rpc, link);
        free(rpc->body);
        free(rpc->reply);
        free(rpc);
    }
}
