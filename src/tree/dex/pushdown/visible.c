#include "tree/dex/pushdown/visible.h"

#include "base/prng.h"
#include "pool/view.h"

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
    uint16_t bank = pool_bank(page);
    if (bank < VISIBLE_BANKS)
        raise_to(&visible->stamps[stamp_of(page)], atomic_load(&visible->banks[bank].begun));
}

void visible_forget(struct visible *visible)
{
    for (unsigned i = 0; i < VISIBLE_BANKS; i++)
        raise_to(&visible->banks[i].floor, atomic_load(&visible->banks[i].begun));
}

bool visible_is(const struct visible *visible, fabric_address page)
{
    uint16_t bank = pool_bank(page);
    if (bank >= VISIBLE_BANKS)
        return false;
    uint64_t ended = atomic_load(&visible->banks[bank].ended);
    return ended > atomic_load(&visible->banks[bank].floor) &&
           ended > atomic_load(&visible->stamps[stamp_of(page)]);
}

uint64_t visible_begin(struct visible *visible, uint16_t bank)
{
    return bank < VISIBLE_BANKS ? atomic_fetch_add(&visible->banks[bank].begun, 1) + 1 : 0;
}

void visible_ended(struct visible *visible, uint16_t bank, uint64_t number)
{
    if (bank < VISIBLE_BANKS)
        raise_to(&visible->banks[bank].ended, number);
}

bool visible_due(struct visible *visible, uint16_t bank, uint64_t now_ns)
{
    if (bank >= VISIBLE_BANKS)
        return false;
    uint64_t due_ns = atomic_load(&visible->banks[bank].due_ns);
    return now_ns >= due_ns &&
           atomic_compare_exchange_strong(&visible->banks[bank].due_ns, &due_ns, now_ns + EVERY_NS);
}
