/*
 * transfer.c - a list's way through the network: out of the poster's NIC, into the target's,
 * executed there, and back.
 *
 * A transfer whose endpoint broke becomes an orphan: its list is handed back as BROKEN, and the
 * transfer goes on with copies, because rule 5 says that it may still be applied.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"

static void transfer_fire(struct rt_timer *timer);

static struct transfer *transfer_create(struct fabric_sim *net)
{
    struct list *link = list_pop_front(&net->free_transfers);
    if (link != NULL)
        return container_of(link, struct transfer, link);
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    pando_assert(transfer != NULL);
    transfer->net = net;
    sim_event_init(&transfer->event, net->sim, transfer_fire);
    return transfer;
}

static void transfer_end(struct transfer *transfer)
{
    free(transfer->orphan_ops);
    transfer->orphan_ops = NULL;
    list_remove(&transfer->link);
    list_push_front(&transfer->net->free_transfers, &transfer->link);
}

static uint64_t operation_bytes(const struct transfer *transfer)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < transfer->count; i++)
        bytes += transfer->ops[i].size;
    return bytes;
}

bool sim_transfer_lost(const struct transfer *transfer)
{
    const struct process *process = transfer->target->process;
    return process->dead || process->life != transfer->target_life;
}

static void list_hand_back(struct transfer *transfer, enum pando_status status)
{
    struct fabric_list *list = transfer->list;
    struct endpoint *endpoint = transfer->endpoint;

    /* The simulator checks itself: OK says that every byte of every operation was executed. */
    pando_assert(status != PANDO_OK || transfer->bytes_run == operation_bytes(transfer));
    transfer->list = NULL;
    transfer->endpoint = NULL;
    endpoint->base.outstanding--;
    list->status = status;
    list->pending = false;
    if (list->waiter != NULL)
        sim_unpark(list->waiter);
}

/* Copies the operations and what they write; results go to nobody from now on. */
static void copy_operations(struct transfer *transfer)
{
    size_t bytes = transfer->count * sizeof(struct fabric_op);
    for (uint32_t i = 0; i < transfer->count; i++) {
        if (transfer->ops[i].kind == FABRIC_WRITE)
            bytes += transfer->ops[i].size;
    }
    transfer->orphan_ops = malloc(bytes);
    pando_assert(transfer->orphan_ops != NULL);
    memcpy(transfer->orphan_ops, transfer->ops, transfer->count * sizeof(struct fabric_op));
    uint8_t *data = (uint8_t *)(transfer->orphan_ops + transfer->count);
    for (uint32_t i = 0; i < transfer->count; i++) {
        struct fabric_op *op = &transfer->orphan_ops[i];
        if (op->kind == FABRIC_WRITE) {
            memcpy(data, op->write_from, op->size);
            op->write_from = data;
            data += op->size;
        } else if (op->kind == FABRIC_READ) {
            op->read_to = NULL;
        }
    }
    transfer->ops = transfer->orphan_ops;
}

void sim_transfer_orphan(struct transfer *transfer)
{
    copy_operations(transfer);
    list_hand_back(transfer, PANDO_BROKEN);
    if (transfer->stage == TRANSFER_RESPOND) {
        sim_event_cancel(&transfer->event);
        transfer_end(transfer); /* it has been executed: nothing is left to happen */
    }
}

void sim_transfer_drop(struct transfer *transfer)
{
    sim_event_cancel(&transfer->event);
    if (transfer->list != NULL)
        list_hand_back(transfer, PANDO_BROKEN);
    transfer_end(transfer);
}

/* ---- posting --------------------------------------------------------------------------------- */

void sim_post(struct fabric_endpoint *base, struct fabric_list *list)
{
    struct endpoint *endpoint = container_of(base, struct endpoint, base);
    struct process *process = endpoint->source;
    struct fabric_sim *net = process->net;
    struct transfer *transfer = transfer_create(net);
    double request_bytes = 0;

    rt_charge(RT_COST_VERB);
    transfer->stage = TRANSFER_LEAVE;
    transfer->endpoint = endpoint;
    transfer->list = list;
    transfer->ops = list->ops;
    transfer->count = list->count;
    transfer->identity = base->identity;
    transfer->endpoint_id = endpoint->id;
    transfer->source = process->machine;
    transfer->target = endpoint->target;
    transfer->target_life = endpoint->target_life;
    transfer->status = PANDO_OK;
    transfer->step_count = transfer->step_next = 0;
    transfer->step_limit = UINT32_MAX;
    transfer->bytes_run = 0;
    list_push_back(&net->transfers, &transfer->link);
    pando_assert(!process->dead); /* its endpoints are broken */
    for (uint32_t i = 0; i < list->count; i++)
        request_bytes += list->ops[i].kind == FABRIC_READ    ? 0
                         : list->ops[i].kind == FABRIC_WRITE ? list->ops[i].size
                                                             : 16;
    transfer->request_bytes = request_bytes;
    transfer->received = false;
    /* Queues are entered at the time they are come to: the poster's own time may be ahead of the
     * world's, and what it posts must not hold up what others post before that. */
    uint64_t leave_ns = sim_now_ns(net->sim) + (uint64_t)sim_jitter(net);
    sim_event_at(&transfer->event, leave_ns);
    /* Last, because the process may die of it, and this very transfer with it. */
    uint64_t late_ns = sim_process_posts(process);
    if (late_ns > 0 && heap_contains(&transfer->event.timer.node) && transfer->list == list) {
        sim_event_cancel(&transfer->event);
        sim_event_at(&transfer->event, leave_ns + late_ns);
    }
}

static void leave(struct transfer *transfer)
{
    struct fabric_sim *net = transfer->net;
    transfer->stage = TRANSFER_ARRIVE;
    sim_event_at(&transfer->event,
                 (uint64_t)sim_port_send(net, &transfer->source->port, (double)sim_now_ns(net->sim),
                                         transfer->request_bytes, transfer->count));
}

/* ---- at the target --------------------------------------------------------------------------- */

void sim_transfer_respond(struct transfer *transfer, double at_ns)
{
    struct fabric_sim *net = transfer->net;
    if (transfer->list == NULL) {
        transfer_end(transfer);
        return;
    }
    struct port *from = &transfer->target->port;
    double serial_ns =
        (transfer->response_bytes + net->model.header_bytes) / net->model.bytes_per_ns;
    from->link_out_free = (at_ns > from->link_out_free ? at_ns : from->link_out_free) + serial_ns;
    transfer->stage = TRANSFER_RESPOND;
    sim_event_at(&transfer->event,
                 (uint64_t)(from->link_out_free + net->model.wire_ns + transfer->extra_ns));
}

static double kind_extra_ns(const struct sim_nic_model *model, const struct fabric_op *op)
{
    switch (op->kind) {
    case FABRIC_READ:
        return model->read_extra_ns;
    case FABRIC_WRITE:
        return model->write_extra_ns;
    default:
        return op->offset >= FABRIC_DEVICE ? model->atomic_chip_extra_ns
                                           : model->atomic_host_extra_ns;
    }
}

/* Queues each operation at the target's NIC and says when the last one starts. */
static double queue_operations(struct transfer *transfer)
{
    struct fabric_sim *net = transfer->net;
    struct port *port = &transfer->target->port;
    double at = sim_port_receive(net, port, (double)sim_now_ns(net->sim), transfer->request_bytes,
                                 transfer->count);
    double atomic_extra = 0, copy_extra = 0;

    transfer->response_bytes = 0;
    for (uint32_t i = 0; i < transfer->count; i++) {
        struct fabric_op *op = &transfer->ops[i];
        double extra = kind_extra_ns(&net->model, op);
        if (op->kind == FABRIC_READ || op->kind == FABRIC_WRITE) {
            at = sim_port_message(net, port, at);
            copy_extra = extra > copy_extra ? extra : copy_extra;
            transfer->response_bytes += op->kind == FABRIC_READ ? op->size : 0;
        } else {
            double *bucket;
            at = sim_port_atomic(net, port, at, op->offset, &bucket);
            /* Whether it will succeed is asked before it is executed: nothing comes in between. */
            const uint8_t *word = window_at(&transfer->target->window, op->offset, 8);
            bool fails = word != NULL && op->kind == FABRIC_CAS &&
                         __atomic_load_n((const uint64_t *)word, __ATOMIC_RELAXED) != op->expected;
            *bucket = at + (op->offset >= FABRIC_DEVICE ? net->model.bucket_chip_ns
                            : fails                     ? net->model.bucket_host_fail_ns
                                                        : net->model.bucket_host_ok_ns);
            atomic_extra = extra > atomic_extra ? extra : atomic_extra;
            transfer->response_bytes += 8;
        }
    }
    transfer->extra_ns = atomic_extra + copy_extra;
    return at;
}

static void arrive(struct transfer *transfer)
{
    struct fabric_sim *net = transfer->net;
    struct fabric_op *first = &transfer->ops[0];

    sim_trace(net->sim, "list", (uint64_t)transfer->source->node << 16 | transfer->target->node,
              first->offset << 8 | first->kind, (uint64_t)transfer->count << 32 | first->size);
    if (sim_transfer_lost(transfer)) {
        if (transfer->list == NULL)
            transfer_end(transfer);
        else {
            transfer->held_stage = TRANSFER_ARRIVE;
            transfer->stage = TRANSFER_HELD;
            sim_endpoint_break_later(transfer->endpoint);
        }
        return;
    }
    if (window_fenced(&transfer->target->window, transfer->identity) &&
        !net->options.chaos.no_fencing) {
        transfer->status = PANDO_FENCED;
        transfer->response_bytes = transfer->extra_ns = 0;
        sim_transfer_respond(transfer, (double)sim_now_ns(net->sim));
        return;
    }
    double at = queue_operations(transfer);
    if (sim_chaos_on(net) || transfer->list == NULL) {
        sim_chaos_plan(transfer, at);
        return;
    }
    transfer->status = window_execute(&transfer->target->window, transfer->ops, transfer->count);
    if (transfer->status == PANDO_OK)
        transfer->bytes_run = operation_bytes(transfer);
    sim_transfer_respond(transfer, at);
}

static bool answer_lost(struct fabric_sim *net)
{
    if (net->answer_lost > 0 && --net->answer_lost == 0)
        return true;
    return net->answers_lost > 0 && prng_chance(sim_prng(net->sim), net->answers_lost);
}

static void respond(struct transfer *transfer)
{
    struct fabric_sim *net = transfer->net;
    if (!transfer->received) {
        uint64_t at =
            (uint64_t)sim_port_receive(net, &transfer->source->port, (double)sim_now_ns(net->sim),
                                       transfer->response_bytes, 1);
        transfer->received = true;
        if (at > sim_now_ns(net->sim)) {
            sim_event_at(&transfer->event, at);
            return;
        }
    }
    if (transfer->list != NULL && answer_lost(net)) {
        sim_endpoint_break(transfer->endpoint); /* ends this transfer, too */
        return;
    }
    if (transfer->list != NULL)
        list_hand_back(transfer, transfer->status);
    transfer_end(transfer);
}

static void transfer_fire(struct rt_timer *timer)
{
    struct transfer *transfer = container_of(timer, struct transfer, event.timer);
    struct fabric_sim *net = transfer->net;

    if (transfer->stage != TRANSFER_STEP && !sim_linked(net, transfer->source, transfer->target)) {
        transfer->held_stage = transfer->stage;
        transfer->stage = TRANSFER_HELD;
        if (transfer->endpoint != NULL)
            sim_endpoint_break_later(transfer->endpoint);
        return;
    }
    switch (transfer->stage) {
    case TRANSFER_LEAVE:
        leave(transfer);
        break;
    case TRANSFER_ARRIVE:
        arrive(transfer);
        break;
    case TRANSFER_STEP:
        sim_chaos_step(transfer);
        break;
    case TRANSFER_RESPOND:
        respond(transfer);
        break;
    case TRANSFER_HELD:
        break;
    }
}

/* ---- what happens to them from outside ------------------------------------------------------- */

void sim_transfers_release(struct fabric_sim *net)
{
    list_for_each_safe (link, &net->transfers) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        if (transfer->stage != TRANSFER_HELD)
            continue;
        if (transfer->held_stage == TRANSFER_RESPOND && transfer->list == NULL) {
            transfer_end(transfer);
            continue;
        }
        transfer->stage = transfer->held_stage;
        sim_event_at(&transfer->event, sim_now_ns(net->sim) + 1);
    }
}

/* Lost, cut short or sent after all, as happens to what a dying process had handed to its NIC. */
void sim_transfers_of_dead(struct process *process)
{
    struct prng *prng = sim_prng(process->net->sim);
    list_for_each_safe (link, &process->net->transfers) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        if (transfer->endpoint == NULL || transfer->endpoint->source != process)
            continue;
        uint64_t choice = prng_below(prng, 3);
        if (choice == 0 && transfer->stage != TRANSFER_RESPOND) {
            sim_transfer_drop(transfer);
            continue;
        }
        if (choice == 1)
            transfer->step_limit = (uint32_t)prng_below(prng, transfer->count * 3 + 1);
        sim_transfer_orphan(transfer);
    }
}

static void refuse(struct transfer *transfer)
{
    if (transfer->list == NULL) {
        sim_transfer_drop(transfer);
        return;
    }
    if (transfer->stage != TRANSFER_STEP)
        return; /* not there yet: refused on arrival. Or done. */
    sim_event_cancel(&transfer->event);
    transfer->status = PANDO_FENCED;
    sim_transfer_respond(transfer, (double)sim_now_ns(transfer->net->sim));
}

void sim_transfers_fence(struct machine *target, struct fabric_identity identity)
{
    struct fabric_sim *net = target->process->net;
    list_for_each_safe (link, &net->transfers) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        int16_t ahead = (int16_t)(uint16_t)(transfer->identity.incarnation - identity.incarnation);
        if (transfer->target == target && transfer->identity.member == identity.member &&
            ahead <= 0)
            refuse(transfer);
    }
}

void sim_transfers_end_session(struct machine *target, uint64_t endpoint_id)
{
    list_for_each_safe (link, &target->process->net->transfers) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        if (transfer->target == target && transfer->endpoint_id == endpoint_id)
            sim_transfer_drop(transfer);
    }
}

void sim_transfers_end_others(struct machine *target)
{
    list_for_each_safe (link, &target->process->net->transfers) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        if (transfer->target == target && transfer->source != target)
            sim_transfer_drop(transfer);
    }
}

void sim_transfers_destroy(struct fabric_sim *net)
{
    struct list *link;
    while ((link = list_pop_front(&net->transfers)) != NULL)
        list_push_front(&net->free_transfers, link);
    while ((link = list_pop_front(&net->free_transfers)) != NULL) {
        struct transfer *transfer = container_of(link, struct transfer, link);
        free(transfer->orphan_ops);
        free(transfer->steps);
        free(transfer);
    }
}
