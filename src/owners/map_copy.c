/*
 * map_copy.c - who owns what, as this process knows it. Operations read the map without a lock; a change
 * puts a new one in its place and waits until every operation that may know the old one has ended.
 * Each thread counts its operations by itself, in two counters that take turns.
 */
#include <stdlib.h>

#include "owners/owners_int.h"

/* Of a change: to see an operation end that does not tell. It looks whether it is waited for without a fence behind
 * its count, which all operations would pay for; so one that ends at the moment at which the change begins may miss it. */
static const uint64_t DRAIN_LOOK_NS = 100 * RT_NS_PER_US;

/* Only its own thread changes it: no need of an atomic addition. */
static void count_by(_Atomic uint32_t *active, int by, memory_order order)
{
    uint32_t value = atomic_load_explicit(active, memory_order_relaxed);
    atomic_store_explicit(active, value + (uint32_t)by, order);
}

/* Counts an operation out, and tells whoever waits for it. */
static void count_out(struct owners_handle *self, unsigned parity)
{
    struct owners *owners = self->owners;
    count_by(&self->active[parity], -1, memory_order_release);
    if ((atomic_load_explicit(&owners->generation, memory_order_relaxed) & 1) == parity)
        return;
    atomic_fetch_add(&owners->drained, 1);
    rt_waitq_wake_all(&owners->drain);
}

void owners_enter(struct owners_handle *self, struct slice key, struct owners_guard *guard)
{
    struct owners *owners = self->owners;
    for (;;) {
        uint32_t generation = atomic_load_explicit(&owners->generation, memory_order_acquire);
        guard->parity = generation & 1;
        count_by(&self->active[guard->parity], 1, memory_order_relaxed);
        /* Whoever changes the generation after this sees the count. */
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&owners->generation, memory_order_acquire) == generation)
            break;
        count_out(self, guard->parity);
    }
    guard->map = atomic_load_explicit(&owners->map, memory_order_acquire);
    guard->part = map_find(guard->map, key);
}

void owners_leave(struct owners_handle *self, struct owners_guard *guard)
{
    count_out(self, guard->parity);
    guard->map = NULL;
    guard->part = NULL;
}

bool owners_owns(struct owners_handle *self, struct slice key)
{
    struct owners_guard guard;
    owners_enter(self, key, &guard);
    bool mine = owners_mine(self->owners, guard.part);
    owners_leave(self, &guard);
    return mine;
}

static bool drained(struct owners *owners, unsigned parity)
{
    bool none = true;
    rt_latch_lock(&owners->handles_latch);
    list_for_each (link, &owners->handles) {
        struct owners_handle *handle = container_of(link, struct owners_handle, link);
        none = none && atomic_load(&handle->active[parity]) == 0;
    }
    rt_latch_unlock(&owners->handles_latch);
    return none;
}

struct drain {
    const struct owners *owners;
    uint32_t drained; /* before the last look */
};

static bool none_ended(const void *context)
{
    const struct drain *drain = context;
    return atomic_load(&drain->owners->drained) == drain->drained;
}

void owners_map_publish_co(struct owners_handle *self, struct map *map)
{
    struct owners *owners = self->owners;
    owners->engine->published(owners);
    struct map *former = atomic_exchange(&owners->map, map);
    uint32_t generation = atomic_fetch_add(&owners->generation, 1);

    struct drain drain = {owners, atomic_load(&owners->drained)};
    while (!drained(owners, generation & 1)) {
        (void)rt_waitq_while_co(&owners->drain, none_ended, &drain, rt_now_ns() + DRAIN_LOOK_NS);
        drain.drained = atomic_load(&owners->drained);
    }
    free(former);
}
