#include "tree/lock/local_lock.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/list.h"

static const uint64_t RETRY_NS = 2 * RT_NS_PER_US;

struct waiter {
    struct list link;
    struct rt_task *task;
    bool granted; /* under the lock's latch */
    bool handed;
    uint64_t word;
};

struct local_lock {
    struct rt_latch latch;
    bool held;
    uint8_t handovers; /* in a row */
    struct waiter *successor;
    struct list waiters; /* zero until first used */
};

struct local_locks {
    uint16_t nodes;
    struct local_lock_options options;
    uint32_t per_node;
    struct local_lock *locks;
    _Atomic uint64_t waits, handovers;
};

struct local_locks *local_locks_create(const struct pool *pool, struct local_lock_options options)
{
    struct local_locks *locks = calloc(1, sizeof(*locks));
    if (locks == NULL)
        return NULL;
    locks->nodes = pool_nodes(pool);
    locks->per_node = POOL_LOCKS;
    locks->options = options;
    locks->locks = calloc((size_t)locks->nodes * locks->per_node, sizeof(struct local_lock));
    if (locks->locks == NULL) {
        free(locks);
        return NULL;
    }
    return locks;
}

void local_locks_destroy(struct local_locks *locks)
{
    free(locks->locks);
    free(locks);
}

static struct local_lock *lock_at(struct local_locks *locks, fabric_address address)
{
    uint64_t index = (fabric_address_offset(address) - FABRIC_DEVICE) / 8;
    pando_assert(index < locks->per_node && fabric_address_node(address) < locks->nodes);
    return &locks->locks[(uint64_t)fabric_address_node(address) * locks->per_node + index];
}

static bool take_free(struct local_lock *lock)
{
    if (lock->waiters.next == NULL)
        list_init(&lock->waiters);
    if (lock->held)
        return false;
    lock->held = true;
    lock->handovers = 0;
    return true;
}

bool local_lock_try(struct local_locks *locks, fabric_address address,
                    struct local_lock_grant *grant)
{
    struct local_lock *lock = lock_at(locks, address);
    rt_latch_lock(&lock->latch);
    bool taken = take_free(lock);
    rt_latch_unlock(&lock->latch);
    *grant = (struct local_lock_grant){.address = address};
    return taken;
}

/* The ablation without queues: whoever asks first after a release has it. */
static enum pando_status take_by_retry_co(struct local_locks *locks, fabric_address address,
                                          uint64_t deadline_ns, struct local_lock_grant *grant)
{
    while (!local_lock_try(locks, address, grant)) {
        if (rt_now_ns() > deadline_ns)
            return PANDO_TIMEOUT;
        rt_sleep_co(RETRY_NS / 2 + rt_random() % RETRY_NS);
    }
    return PANDO_OK;
}

enum pando_status local_lock_take_co(struct local_locks *locks, fabric_address address,
                                     uint64_t deadline_ns, struct local_lock_grant *grant)
{
    struct local_lock *lock = lock_at(locks, address);
    struct waiter self = {.task = rt_task_self()};
    enum pando_status parked = PANDO_OK;

    *grant = (struct local_lock_grant){.address = address};
    rt_latch_lock(&lock->latch);
    if (take_free(lock)) {
        rt_latch_unlock(&lock->latch);
        return PANDO_OK;
    }
    atomic_fetch_add_explicit(&locks->waits, 1, memory_order_relaxed);
    if (locks->options.no_queue) {
        rt_latch_unlock(&lock->latch);
        return take_by_retry_co(locks, address, deadline_ns, grant);
    }
    list_push_back(&lock->waiters, &self.link);
    for (;;) {
        rt_latch_unlock(&lock->latch);
        parked = rt_park_co(deadline_ns);
        rt_latch_lock(&lock->latch);
        if (self.granted)
            break;
        if (parked == PANDO_TIMEOUT && lock->successor != &self) {
            list_remove(&self.link);
            rt_latch_unlock(&lock->latch);
            return PANDO_TIMEOUT;
        }
        if (parked == PANDO_TIMEOUT)
            deadline_ns = RT_NEVER; /* chosen: the holder's list is under way and will end */
    }
    rt_latch_unlock(&lock->latch);
    grant->handed = self.handed;
    grant->word = self.word;
    return PANDO_OK;
}

bool local_lock_successor(struct local_locks *locks, const struct local_lock_grant *grant)
{
    struct local_lock *lock = lock_at(locks, grant->address);
    bool chosen = false;

    if (locks->options.no_queue || locks->options.no_handover)
        return false;
    rt_latch_lock(&lock->latch);
    if (!list_empty(&lock->waiters) && lock->handovers < LOCAL_LOCK_HANDOVERS) {
        struct list *link = list_pop_front(&lock->waiters);
        lock->successor = container_of(link, struct waiter, link);
        chosen = true;
    }
    rt_latch_unlock(&lock->latch);
    return chosen;
}

void local_lock_release(struct local_locks *locks, const struct local_lock_grant *grant,
                        bool handover)
{
    struct local_lock *lock = lock_at(locks, grant->address);

    rt_latch_lock(&lock->latch);
    struct waiter *next = lock->successor;
    lock->successor = NULL;
    if (next == NULL) {
        struct list *link = list_pop_front(&lock->waiters);
        next = link == NULL ? NULL : container_of(link, struct waiter, link);
    }
    lock->handovers = handover ? (uint8_t)(lock->handovers + 1) : 0;
    if (next == NULL) {
        lock->held = false;
    } else {
        next->granted = true;
        next->handed = handover;
        next->word = grant->word;
        if (handover)
            atomic_fetch_add_explicit(&locks->handovers, 1, memory_order_relaxed);
        rt_charge(RT_COST_HANDOFF);
        /* Under the latch: afterwards the waiter may be gone. */
        rt_unpark(next->task);
    }
    rt_latch_unlock(&lock->latch);
}

void local_locks_stats(struct local_locks *locks, struct local_lock_stats *out)
{
    *out = (struct local_lock_stats){.waits = atomic_load(&locks->waits),
                                     .handovers = atomic_load(&locks->handovers)};
}
