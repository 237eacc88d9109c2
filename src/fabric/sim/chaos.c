/*
 * chaos.c - executing a list in pieces, as unkindly as rules 1 and 2 of fabric.h allow.
 *
 * On arrival every operation is cut into pieces and every piece gets a time. An operation starts
 * after the end of those it is ordered behind, and at any time with respect to the others.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"
#include "fabric/window/copy.h"

bool sim_chaos_on(const struct fabric_sim *net)
{
    const struct fabric_sim_chaos *chaos = &net->options.chaos;
    return chaos->tear > 0 || chaos->spread > 0 || chaos->late_cpu > 0;
}

/* Rule 2. */
static bool ordered(enum fabric_kind first, enum fabric_kind second)
{
    return first == FABRIC_WRITE ||
           ((first == FABRIC_CAS || first == FABRIC_FAA) && second == FABRIC_READ);
}

static void step_add(struct transfer *transfer, double at_ns, uint32_t op, uint32_t from,
                     uint32_t to)
{
    if (transfer->step_count == transfer->step_capacity) {
        uint32_t capacity = transfer->step_capacity == 0 ? 16 : transfer->step_capacity * 2;
        struct step *steps = realloc(transfer->steps, capacity * sizeof(*steps));
        pando_assert(steps != NULL);
        transfer->steps = steps;
        transfer->step_capacity = capacity;
    }
    transfer->steps[transfer->step_count++] =
        (struct step){.at_ns = at_ns, .op = op, .from = from, .to = to};
}

/* Cuts at word boundaries of the target's memory. */
static uint32_t cut_point(struct prng *prng, const struct fabric_op *op)
{
    uint64_t first = op->offset / 8 + 1;
    uint64_t last = (op->offset + op->size - 1) / 8;
    if (last < first)
        return 0;
    return (uint32_t)((first + prng_below(prng, last - first + 1)) * 8 - op->offset);
}

/* Adds the pieces of one operation that may start at `start`; the time of the last one. */
static double plan_operation(struct transfer *transfer, uint32_t index, double start)
{
    struct fabric_sim *net = transfer->net;
    struct prng *prng = sim_prng(net->sim);
    const struct fabric_sim_chaos *chaos = &net->options.chaos;
    const struct fabric_op *op = &transfer->ops[index];
    double end = start;
    uint32_t from = 0;

    if (op->kind == FABRIC_CAS || op->kind == FABRIC_FAA || op->size <= 8 ||
        !prng_chance(prng, chaos->tear)) {
        step_add(transfer, start, index, 0, op->size);
        return start;
    }
    for (int i = 0; i < STEPS_PER_OP && from < op->size; i++) {
        uint32_t to = i == STEPS_PER_OP - 1 ? op->size : cut_point(prng, op);
        if (to <= from)
            continue;
        double at = start + (double)prng_below(prng, chaos->spread_ns + 1);
        step_add(transfer, at, index, from, to);
        end = at > end ? at : end;
        from = to;
    }
    if (from < op->size)
        step_add(transfer, end, index, from, op->size);
    return end;
}

static int step_compare(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

void sim_chaos_plan(struct transfer *transfer, double at_ns)
{
    struct fabric_sim *net = transfer->net;
    struct prng *prng = sim_prng(net->sim);
    const struct fabric_sim_chaos *chaos = &net->options.chaos;
    double ends[FABRIC_LIST_OPS_MAX];

    transfer->step_count = transfer->step_next = 0;
    for (uint32_t i = 0; i < transfer->count; i++) {
        double start = at_ns;
        for (uint32_t j = 0; j < i; j++) {
            if (ordered(transfer->ops[j].kind, transfer->ops[i].kind) && ends[j] > start)
                start = ends[j];
        }
        if (prng_chance(prng, chaos->spread))
            start += (double)prng_below(prng, chaos->spread_ns + 1);
        ends[i] = plan_operation(transfer, i, start);
    }
    qsort(transfer->steps, transfer->step_count, sizeof(struct step), step_compare);
    transfer->stage = TRANSFER_STEP;
    sim_event_at(&transfer->event, (uint64_t)transfer->steps[0].at_ns);
}

static enum pando_status execute_step(struct transfer *transfer, const struct step *step)
{
    struct fabric_op *op = &transfer->ops[step->op];
    const struct window *window = &transfer->target->window;
    uint8_t *at = window_at(window, op->offset, op->size);

    if (at == NULL)
        return PANDO_RANGE;
    switch (op->kind) {
    case FABRIC_READ:
        if (op->read_to != NULL)
            copy_from_shared((uint8_t *)op->read_to + step->from, at + step->from,
                             step->to - step->from);
        return PANDO_OK;
    case FABRIC_WRITE: {
        struct fabric_op piece =
            fabric_write(op->offset + step->from, (const uint8_t *)op->write_from + step->from,
                         step->to - step->from);
        sim_late_record(transfer->net, transfer->target, transfer->endpoint_id, &piece);
        copy_to_shared(at + step->from, piece.write_from, piece.size);
        return PANDO_OK;
    }
    default:
        if (transfer->source == transfer->target)
            sim_late_flush(transfer->target, 0);
        return window_execute(window, op, 1);
    }
}

/* An operation that is refused stops the list: what comes behind it does not happen. What the model
 * leaves unordered may have happened before, which is why ranges are checked for the whole list. */
static enum pando_status ranges_ok(const struct transfer *transfer, uint32_t *bad)
{
    for (uint32_t i = 0; i < transfer->count; i++) {
        if (window_at(&transfer->target->window, transfer->ops[i].offset, transfer->ops[i].size) ==
            NULL) {
            *bad = i;
            return PANDO_RANGE;
        }
    }
    *bad = transfer->count;
    return PANDO_OK;
}

void sim_chaos_step(struct transfer *transfer)
{
    struct fabric_sim *net = transfer->net;
    uint32_t bad;
    uint64_t now = sim_now_ns(net->sim);

    if (sim_transfer_lost(transfer)) {
        /* The target died with the list half done. Nobody answers it, also not when the machine is
         * up again: held until the endpoint breaks. */
        if (transfer->list == NULL) {
            sim_transfer_drop(transfer);
            return;
        }
        transfer->held_stage = TRANSFER_STEP;
        transfer->stage = TRANSFER_HELD;
        sim_endpoint_break_later(transfer->endpoint);
        return;
    }
    transfer->status = ranges_ok(transfer, &bad);
    while (transfer->step_next < transfer->step_count) {
        const struct step *step = &transfer->steps[transfer->step_next];
        if ((uint64_t)step->at_ns > now)
            break;
        transfer->step_next++;
        if (step->op >= bad)
            continue;
        if (transfer->step_limit-- == 0) {
            sim_transfer_drop(transfer);
            return;
        }
        enum pando_status status = execute_step(transfer, step);
        pando_assert(status == PANDO_OK);
        transfer->bytes_run += step->to - step->from;
    }
    if (transfer->step_next < transfer->step_count) {
        sim_event_at(&transfer->event, (uint64_t)transfer->steps[transfer->step_next].at_ns);
        return;
    }
    sim_transfer_respond(transfer, (double)now);
}
