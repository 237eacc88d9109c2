#include "tree/blink/lock/local_lock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/list.h"

static const uint64_t RETRY_NS = 2 * RT_NS_PER_US;
enum { LOOKS_PER_LEASE = 4 }; /* whether a wait has lasted too long */

struct local_lock_waiter {
    struct list link;
    struct rt_task *task;
    struct local_lock_offer offer;
    /* Under the lock's latch: */
    bool granted;
    bool adopted, done;
    bool handed;
    uint64_t word;
    fabric_address node;
};

/*
 * A lock is a word, small so that all of them stay in the processor's caches, and a queue beside it
 * that is looked at only when somebody waits.
 *
 *   bit 0  latched: whoever set it may touch the queue
 *   bit 1  held
 *   bit 2  the queue has waiters, or a successor that was not yet given the lock
 *   8..15  handovers in a row
 *
 * A free lock is 0. Taking a free one and releasing one that nobody waits for is one CAS each.
 */
enum { LATCHED = 1, HELD = 2, QUEUED = 4, HANDOVERS_SHIFT = 8 };

struct queue {
    struct local_lock_waiter *successor;
    struct list waiters; /* zero until first used */
};

struct lock {
    _Atomic uint32_t *word;
    struct queue *queue;
};

struct local_locks {
    const struct pool *pool;
    uint16_t banks;
    struct local_lock_options options;
    uint32_t per_bank;
    _Atomic uint32_t *words;
    struct queue *queues;
    _Atomic uint64_t waits, handovers, adopted;
};

struct local_locks *local_locks_create(const struct pool *pool, struct local_lock_options options)
{
    struct local_locks *locks = calloc(1, sizeof(*locks));
    if (locks == NULL)
        return NULL;
    locks->pool = pool;
    locks->banks = pool_banks(pool);
    locks->per_bank = POOL_LOCKS;
    locks->options = options;
    size_t count = (size_t)locks->banks * locks->per_bank;
    /* Of a table that is little used few are ever touched. */
    locks->words = rt_pages_map_sparse(count * sizeof(*locks->words));
    locks->queues = rt_pages_map_sparse(count * sizeof(*locks->queues));
    if (locks->words == NULL || locks->queues == NULL) {
        local_locks_destroy(locks);
        return NULL;
    }
    return locks;
}

void local_locks_destroy(struct local_locks *locks)
{
    size_t count = (size_t)locks->banks * locks->per_bank;
    rt_pages_unmap_sparse(locks->words, count * sizeof(*locks->words));
    rt_pages_unmap_sparse(locks->queues, count * sizeof(*locks->queues));
    free(locks);
}

static uint32_t index_of(const struct local_locks *locks, fabric_address address)
{
    uint64_t index = (fabric_address_offset(address) - FABRIC_DEVICE) / 8;
    pando_assert(index < locks->per_bank && pool_bank(address) < locks->banks);
    return pool_bank(address) * locks->per_bank + (uint32_t)index;
}

static struct lock lock_at(struct local_locks *locks, uint32_t index)
{
    return (struct lock){.word = &locks->words[index], .queue = &locks->queues[index]};
}

/* ---- the word -------------------------------------------------------------------------------- */

static bool word_swap(struct lock lock, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(lock.word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* The word without the bit; held for a few instructions by whoever has it. */
static uint32_t latch(struct lock lock)
{
    unsigned spins = 0;
    rt_race_point();
    for (;;) {
        uint32_t word = atomic_load_explicit(lock.word, memory_order_relaxed);
        if ((word & LATCHED) == 0 && word_swap(lock, word, word | LATCHED)) {
            if (lock.queue->waiters.next == NULL)
                list_init(&lock.queue->waiters);
            return word;
        }
        rt_relax(&spins);
    }
}

static void unlatch(struct lock lock, uint32_t held, uint32_t handovers)
{
    bool queued = lock.queue->successor != NULL || !list_empty(&lock.queue->waiters);
    uint32_t word = held | (queued ? QUEUED : 0) | handovers << HANDOVERS_SHIFT;
    atomic_store_explicit(lock.word, word, memory_order_release);
}

bool local_lock_try(struct local_locks *locks, fabric_address address,
                    struct local_lock_grant *grant)
{
    *grant = (struct local_lock_grant){.index = index_of(locks, address)};
    rt_race_point();
    return word_swap(lock_at(locks, grant->index), 0, HELD);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The ablation without queues: whoever asks first after a release has it. */
static enum pando_status take_by_retry_co(struct local_locks *locks, fabric_address address,
                                          uint64_t *deadline_ns, struct local_lock_grant *grant)
{
    while (!local_lock_try(locks, address, grant)) {
        if (pool_past(locks->pool, false, deadline_ns))
            return PANDO_TIMEOUT;
        rt_sleep_co(RETRY_NS / 2 + rt_random() % RETRY_NS); /* what the queues are compared with */
    }
    return PANDO_OK;
}

enum pando_status local_lock_take_co(struct local_locks *locks, fabric_address address,
                                     uint64_t *deadline_ns, const struct local_lock_offer *offer,
                                     struct local_lock_grant *grant)
{
    if (local_lock_try(locks, address, grant))
        return PANDO_OK;

    struct lock lock = lock_at(locks, grant->index);
    struct local_lock_waiter self = {.task = rt_task_self(), .offer = *offer};
    uint64_t look_ns = pool_lease_ns(locks->pool) / LOOKS_PER_LEASE;
    atomic_fetch_add_explicit(&locks->waits, 1, memory_order_relaxed);
    if (locks->options.no_queue)
        return take_by_retry_co(locks, address, deadline_ns, grant);
    uint32_t word = latch(lock);
    if (word == 0) {
        unlatch(lock, HELD, 0);
        return PANDO_OK;
    }
    list_push_back(&lock.queue->waiters, &self.link);
    for (;;) {
        unlatch(lock, word & HELD, word >> HANDOVERS_SHIFT);
        bool past = rt_park_co(rt_coarse_ns() + look_ns) == PANDO_TIMEOUT &&
                    pool_past(locks->pool, false, deadline_ns);
        word = latch(lock);
        if (self.granted || self.done)
            break;
        /* Whoever was chosen goes on waiting: the holder's list is under way and will end. */
        if (past && lock.queue->successor != &self && !self.adopted) {
            list_remove(&self.link);
            unlatch(lock, word & HELD, word >> HANDOVERS_SHIFT);
            return PANDO_TIMEOUT;
        }
    }
    unlatch(lock, word & HELD, word >> HANDOVERS_SHIFT);
    grant->done = self.done;
    grant->handed = self.handed;
    grant->word = self.word;
    grant->node = self.node;
    return PANDO_OK;
}

struct local_lock_waiter *local_lock_adopt(struct local_locks *locks,
                                           const struct local_lock_grant *grant,
                                           fabric_address node)
{
    struct lock lock = lock_at(locks, grant->index);
    struct local_lock_waiter *found = NULL;

    if ((atomic_load_explicit(lock.word, memory_order_relaxed) & QUEUED) == 0)
        return NULL;
    uint32_t word = latch(lock);
    list_for_each (link, &lock.queue->waiters) {
        struct local_lock_waiter *waiter = container_of(link, struct local_lock_waiter, link);
        if (waiter->offer.work != NULL && waiter->offer.node == node) {
            found = waiter;
            break;
        }
    }
    if (found != NULL) {
        list_remove(&found->link);
        found->adopted = true;
    }
    unlatch(lock, HELD, word >> HANDOVERS_SHIFT);
    return found;
}

void *local_lock_work(const struct local_lock_waiter *waiter)
{
    return waiter->offer.work;
}

void local_lock_put_back(struct local_locks *locks, const struct local_lock_grant *grant,
                         struct local_lock_waiter *waiter)
{
    struct lock lock = lock_at(locks, grant->index);
    uint32_t word = latch(lock);
    waiter->adopted = false;
    waiter->offer.work = NULL; /* not again: it needs the lock */
    list_push_front(&lock.queue->waiters, &waiter->link);
    unlatch(lock, HELD, word >> HANDOVERS_SHIFT);
}

void local_lock_done(struct local_locks *locks, const struct local_lock_grant *grant,
                     struct local_lock_waiter *waiter)
{
    struct lock lock = lock_at(locks, grant->index);
    uint32_t word = latch(lock);
    waiter->done = true;
    atomic_fetch_add_explicit(&locks->adopted, 1, memory_order_relaxed);
    rt_charge(RT_COST_HANDOFF);
    /* Under the latch: afterwards the waiter may be gone. */
    rt_unpark(waiter->task);
    unlatch(lock, word & HELD, word >> HANDOVERS_SHIFT);
}

bool local_lock_successor(struct local_locks *locks, const struct local_lock_grant *grant)
{
    struct lock lock = lock_at(locks, grant->index);
    bool chosen = false;

    if (locks->options.no_queue || locks->options.no_handover ||
        (atomic_load_explicit(lock.word, memory_order_relaxed) & QUEUED) == 0)
        return false;
    uint32_t word = latch(lock), handovers = word >> HANDOVERS_SHIFT;
    if (!list_empty(&lock.queue->waiters) && handovers < LOCAL_LOCK_HANDOVERS) {
        struct list *link = list_pop_front(&lock.queue->waiters);
        lock.queue->successor = container_of(link, struct local_lock_waiter, link);
        chosen = true;
    }
    unlatch(lock, HELD, handovers);
    return chosen;
}

void local_lock_release(struct local_locks *locks, const struct local_lock_grant *grant,
                        bool handover, struct local_lock_bytes handed)
{
    struct lock lock = lock_at(locks, grant->index);
    uint32_t word = atomic_load_explicit(lock.word, memory_order_relaxed);

    if ((word & (QUEUED | LATCHED)) == 0 && word_swap(lock, word, 0))
        return;
    word = latch(lock);
    struct local_lock_waiter *next = lock.queue->successor;
    lock.queue->successor = NULL;
    if (next == NULL) {
        struct list *link = list_pop_front(&lock.queue->waiters);
        next = link == NULL ? NULL : container_of(link, struct local_lock_waiter, link);
    }
    if (next == NULL) {
        unlatch(lock, 0, 0);
        return;
    }
    next->granted = true;
    next->handed = handover;
    next->word = grant->word;
    if (handover)
        atomic_fetch_add_explicit(&locks->handovers, 1, memory_order_relaxed);
    if (handover && handed.node != 0 && next->offer.bytes != NULL) {
        memcpy(next->offer.bytes, handed.bytes, handed.size);
        next->node = handed.node;
    }
    rt_charge(RT_COST_HANDOFF);
    /* Under the latch: afterwards the waiter may be gone. */
    rt_unpark(next->task);
    unlatch(lock, HELD, handover ? (word >> HANDOVERS_SHIFT) + 1 : 0);
}

void local_locks_stats(struct local_locks *locks, struct local_lock_stats *out)
{
    *out = (struct local_lock_stats){.waits = atomic_load(&locks->waits),
                                     .handovers = atomic_load(&locks->handovers),
                                     .adopted = atomic_load(&locks->adopted)};
}
