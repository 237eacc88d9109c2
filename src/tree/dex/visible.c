#include "tree/dex/visible.h"

#include "base/prng.h"

/* Often enough that few pages were written since the last, seldom enough to cost nothing. */
static const uint64_t EVERY_NS = 100000;

static void raise_to(_Atomic uint64_t *at, uint64_t value)
{
    uint64_t old = atomic_load(at);
    while (old < value && !atomic_compare_exchange_weak(at, &old, value)) {
    }
}

static unsigned stamp_of(fabric_address page)
{
    return (unsigned)(hash_u64(page) % VISIBLE_STAMPS);
}

void visible_wrote(struct visible *visible, fabric_address page)
{
    uint16_t node = fabric_address_node(page);
    if (node < VISIBLE_NODES)
        raise_to(&visible->stamps[stamp_of(page)], atomic_load(&visible->nodes[node].begun));
}

void visible_forget(struct visible *visible)
{
    for (unsigned i = 0; i < VISIBLE_NODES; i++)
        raise_to(&visible->nodes[i].floor, atomic_load(&visible->nodes[i].begun));
}

bool visible_is(const struct visible *visible, fabric_address page)
{
    uint16_t node = fabric_address_node(page);
    if (node >= VISIBLE_NODES)
        return false;
    uint64_t ended = atomic_load(&visible->nodes[node].ended);
    return ended > atomic_load(&visible->nodes[node].floor) &&
           ended > atomic_load(&visible->stamps[stamp_of(page)]);
}

uint64_t visible_begin(struct visible *visible, uint16_t node)
{
    return node < VISIBLE_NODES ? atomic_fetch_add(&visible->nodes[node].begun, 1) + 1 : 0;
}

void visible_ended(struct visible *visible, uint16_t node, uint64_t number)
{
    if (node < VISIBLE_NODES)
        raise_to(&visible->nodes[node].ended, number);
}

bool visible_due(struct visible *visible, uint16_t node, uint64_t now_ns)
{
    if (node >= VISIBLE_NODES)
        return false;
    uint64_t due_ns = atomic_load(&visible->nodes[node].due_ns);
    return now_ns >= due_ns &&
           atomic_compare_exchange_strong(&visible->nodes[node].due_ns, &due_ns, now_ns + EVERY_NS);
}
