/*
 * late.c - a WRITE reaches memory before the target's CPU sees it (rule 4): while it is late, reads
 * by the target itself are given what was there before.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"
#include "fabric/window/copy.h"

enum { LATE_MAX = 256 };

static void late_drop(struct machine *machine, struct late_write *late)
{
    list_remove(&late->link);
    machine->late_count--;
    free(late);
}

void sim_late_record(struct fabric_sim *net, struct machine *machine, uint64_t endpoint_id,
                     const struct fabric_op *op)
{
    const struct fabric_sim_chaos *chaos = &net->options.chaos;
    if (chaos->late_cpu == 0 || !prng_chance(sim_prng(net->sim), chaos->late_cpu))
        return;
    if (machine->late_count == LATE_MAX)
        late_drop(machine, container_of(machine->late_writes.next, struct late_write, link));
    struct late_write *late = malloc(sizeof(*late) + op->size);
    pando_assert(late != NULL);
    late->visible_ns =
        sim_now_ns(net->sim) + 1 + prng_below(sim_prng(net->sim), chaos->late_cpu_ns + 1);
    late->offset = op->offset;
    late->size = op->size;
    late->endpoint_id = endpoint_id;
    copy_from_shared(late->old, window_at(&machine->window, op->offset, op->size), op->size);
    list_push_back(&machine->late_writes, &late->link);
    machine->late_count++;
}

void sim_late_flush(struct machine *machine, uint64_t endpoint_id)
{
    list_for_each_safe (link, &machine->late_writes) {
        struct late_write *late = container_of(link, struct late_write, link);
        if (endpoint_id == 0 || late->endpoint_id == endpoint_id)
            late_drop(machine, late);
    }
}

/* The bytes that [offset, size) and a late write have in common. */
static bool overlap(const struct late_write *late, uint64_t offset, size_t size, uint64_t *from,
                    uint64_t *to)
{
    *from = offset > late->offset ? offset : late->offset;
    *to = offset + size < late->offset + late->size ? offset + size : late->offset + late->size;
    return *from < *to;
}

enum pando_status sim_self_read(struct fabric *fabric, uint64_t offset, void *to, size_t size)
{
    struct process *process = container_of(fabric, struct process, base);
    struct machine *machine = process->machine;
    uint64_t now = sim_now_ns(process->net->sim);

    if (process->dead)
        return PANDO_BROKEN;
    enum pando_status status = window_read(&machine->window, offset, to, size);
    if (status != PANDO_OK || machine->late_count == 0)
        return status;
    for (struct list *link = machine->late_writes.prev, *prev; link != &machine->late_writes;
         link = prev) {
        struct late_write *late = container_of(link, struct late_write, link);
        uint64_t first, end;
        prev = link->prev;
        if (late->visible_ns <= now)
            late_drop(machine, late);
        else if (overlap(late, offset, size, &first, &end))
            memcpy((uint8_t *)to + (first - offset), late->old + (first - late->offset),
                   end - first);
    }
    return PANDO_OK;
}

enum pando_status sim_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                 size_t size)
{
    struct process *process = container_of(fabric, struct process, base);
    struct machine *machine = process->machine;

    if (process->dead)
        return PANDO_BROKEN;
    enum pando_status status = window_write(&machine->window, offset, from, size);
    if (status != PANDO_OK)
        return status;
    /* It sees its own stores. */
    list_for_each (link, &machine->late_writes) {
        struct late_write *late = container_of(link, struct late_write, link);
        uint64_t first, end;
        if (overlap(late, offset, size, &first, &end))
            memcpy(late->old + (first - late->offset), (const uint8_t *)from + (first - offset),
                   end - first);
    }
    return PANDO_OK;
}
