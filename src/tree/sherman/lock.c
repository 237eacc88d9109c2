/*
 * lock.c - hierarchical locks: first the process's own, then the word on the memory node (R9 to
 * R12).
 */
#include <string.h>

#include "base/assert.h"
#include "tree/sherman/sherman_int.h"

enum {
    PATIENCE_LEASES = 10,
    AT_ONCE = 4, /* tries without a pause, when a free word was another than expected */
};

static fabric_address lock_address(const struct sherman *self, fabric_address node)
{
    return pool_lock_for(self->table->pool, node);
}

static void lock_forget(struct sherman *self, struct sherman_lock *lock)
{
    if (self->table->on.hierarchical)
        local_lock_release(self->table->locks, &lock->local, false, (struct local_lock_gift){0});
    lock->held = false;
}

enum { MARKED = 1 }; /* a free word, which nobody's is */

/* One try: CAS, and the node's READ behind it or in a list of its own. The first expects 0. *found is 0 if
 * the lock is ours; MARKED if it was free with another word than expected, which the next try expects; else
 * who has it. */
static enum pando_status try_co(struct sherman *self, struct sherman_lock *lock,
                                fabric_address node, uint8_t *bytes, uint64_t *found)
{
    struct sherman_table *table = self->table;
    uint16_t target = fabric_address_node(lock->global.address);
    uint64_t expected = pool_lock_deaths(lock->global.word);
    struct fabric_op ops[] = {
        fabric_cas(fabric_address_offset(lock->global.address), expected, lock->global.word),
        fabric_read(fabric_address_offset(node), bytes, table->layout.node_bytes),
    };
    bool together = table->on.lockread && bytes != NULL;
    enum pando_status status = pool_submit_co(self->base.session, target, ops, together ? 2 : 1);
    if (status != PANDO_OK)
        return status;
    /* After a broken endpoint an earlier try of ours may have gone through. */
    if (ops[0].old == expected || ops[0].old == lock->global.word)
        return together || bytes == NULL ? PANDO_OK
                                         : pool_submit_co(self->base.session, target, &ops[1], 1);
    *found = ops[0].old;
    if (pool_lock_free(ops[0].old)) {
        lock->global.word = pool_lock_taken_from(lock->global.word, ops[0].old);
        *found = MARKED;
    }
    return PANDO_OK;
}

static enum pando_status global_lock_co(struct sherman *self, struct sherman_lock *lock,
                                        fabric_address node, uint8_t *bytes)
{
    struct pool_backoff backoff = {.few = self->table->on.hierarchical};
    uint64_t deadline_ns = rt_coarse_ns() + PATIENCE_LEASES * pool_lease_ns(self->table->pool);
    unsigned marks = 0;
    enum pando_status status;
    bool unknown = false; /* whether it is ours */

    lock->global.word = pool_lock_new_word(self->table->pool);
    for (;;) {
        uint64_t found = 0;
        status = try_co(self, lock, node, bytes, &found);
        if (status == PANDO_OK && found == 0)
            return PANDO_OK;
        unknown = status != PANDO_OK;
        if ((status != PANDO_OK && status != PANDO_BROKEN) || !self->table->on.locks)
            break;
        if (found == MARKED) {
            found = 0;
            if (marks++ < AT_ONCE)
                continue;
        }
        fabric_endpoint_counters(
            pool_endpoint(self->base.session, fabric_address_node(lock->global.address)))
            ->retries++;
        if (self->table->on.backoff || status == PANDO_BROKEN)
            status =
                pool_lock_backoff_co(self->base.session, lock->global.address, found, &backoff);
        else
            status = rt_now_ns() > deadline_ns ? PANDO_TIMEOUT : PANDO_OK;
        if (status != PANDO_OK)
            break;
    }
    if (unknown)
        pool_lock_owe(self->base.session, &lock->global);
    return status;
}

/* The node's READ alone, with nothing to finish if it fails: then both locks are let go of. */
static enum pando_status read_locked_co(struct sherman *self, struct sherman_lock *lock,
                                        uint8_t *bytes)
{
    struct fabric_op read =
        fabric_read(fabric_address_offset(lock->node), bytes, self->table->layout.node_bytes);
    enum pando_status status = sherman_write_co(self, fabric_address_node(lock->node), &read, 1);
    if (status == PANDO_OK)
        return PANDO_OK;
    enum pando_status released = sherman_unlock_co(self, lock);
    (void)released;
    return status;
}

/* After the local lock. */
static enum pando_status lock_rest_co(struct sherman *self, struct sherman_lock *lock, bool alone,
                                      uint8_t *bytes)
{
    lock->held = true;
    lock->alone = alone;
    if (lock->local.handed && (lock->local.word != 0 || alone)) {
        lock->global.word = lock->local.word;
        lock->alone = lock->global.word == 0;
        if (lock->local.node == lock->node)
            return PANDO_OK; /* its bytes are there, and nobody else could have changed it */
        return read_locked_co(self, lock, bytes);
    }
    if (alone)
        return read_locked_co(self, lock, bytes);
    enum pando_status status = global_lock_co(self, lock, lock->node, bytes);
    if (status != PANDO_OK)
        lock_forget(self, lock);
    return status;
}

static enum pando_status lock_co(struct sherman *self, bool alone, uint8_t *bytes, void *work,
                                 struct sherman_lock *lock)
{
    struct sherman_table *table = self->table;

    if (table->on.hierarchical) {
        uint64_t deadline_ns = rt_coarse_ns() + PATIENCE_LEASES * pool_lease_ns(table->pool);
        struct local_lock_offer offer = {
            .bytes = bytes, .node = lock->node, .work = table->on.adopt ? work : NULL};
        enum pando_status status = local_lock_take_co(table->locks, lock->global.address,
                                                      deadline_ns, &offer, &lock->local);
        if (status != PANDO_OK || lock->local.done)
            return status;
    }
    return lock_rest_co(self, lock, alone, bytes);
}

enum pando_status sherman_lock_co(struct sherman *self, fabric_address node, uint8_t *bytes,
                                  struct sherman_lock *lock)
{
    *lock = (struct sherman_lock){.global.address = lock_address(self, node), .node = node};
    return lock_co(self, false, bytes, NULL, lock);
}

enum pando_status sherman_lock_leaf_co(struct sherman *self, fabric_address node, uint8_t *bytes,
                                       void *work, struct sherman_lock *lock)
{
    *lock = (struct sherman_lock){.global.address = lock_address(self, node), .node = node};
    return lock_co(self, self->table->on.alone, bytes, work, lock);
}

enum pando_status sherman_try_lock_co(struct sherman *self, fabric_address node,
                                      struct sherman_lock *lock)
{
    struct sherman_table *table = self->table;
    uint64_t found = 0;

    *lock = (struct sherman_lock){.global.address = lock_address(self, node), .node = node};
    if (table->on.hierarchical && !local_lock_try(table->locks, lock->global.address, &lock->local))
        return PANDO_BUSY;
    lock->held = true;
    lock->global.word = pool_lock_new_word(table->pool);
    enum pando_status status = try_co(self, lock, node, NULL, &found);
    if (status == PANDO_OK && found == MARKED) {
        found = 0;
        status = try_co(self, lock, node, NULL, &found);
    }
    if (status == PANDO_BROKEN) {
        /* It may have been taken: find out, and let go of it. */
        bool free_now;
        status = pool_resolve_co(self->base.session, &lock->global, &free_now);
        if (status == PANDO_OK && !free_now)
            return PANDO_OK;
        if (status == PANDO_OK)
            status = PANDO_BUSY;
        else
            pool_lock_owe(self->base.session, &lock->global);
    } else if (status == PANDO_OK && found != 0) {
        status = PANDO_BUSY;
    }
    if (status != PANDO_OK)
        lock_forget(self, lock);
    return status;
}

/* ---- writing under a lock -------------------------------------------------------------------- */

enum pando_status sherman_write_co(struct sherman *self, uint16_t node, struct fabric_op *ops,
                                   uint32_t count)
{
    return pool_persist_co(self->base.session, node, ops, count, NULL);
}

/* The node as these writes have left it, for the next holder. */
static struct local_lock_gift gift_of(const struct sherman *self, const struct sherman_lock *lock,
                                      const struct fabric_op *ops, uint32_t count)
{
    uint32_t node_bytes = self->table->layout.node_bytes;
    uint64_t begin = fabric_address_offset(lock->node);

    if (!self->table->on.reuse || lock->known == NULL)
        return (struct local_lock_gift){0};
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].offset >= begin && ops[i].offset < begin + node_bytes)
            memcpy(lock->known + (ops[i].offset - begin), ops[i].write_from, ops[i].size);
    }
    return (struct local_lock_gift){lock->node, lock->known, node_bytes};
}

/* R9: the release writes back what was found, less the deaths that were found to have left a torn cell. */
static const uint64_t *free_word(const struct sherman_lock *lock)
{
    unsigned deaths = pool_lock_deaths(lock->global.word);
    if (lock->last == LAST_MENDS && deaths < POOL_LOCK_DEATHS_MAX)
        deaths -= lock->mended < deaths ? lock->mended : deaths;
    return &pool_lock_frees[deaths];
}

/* Broken on purpose (R12): the next holder begins before this one's list has completed. */
static enum pando_status hand_over_early_co(struct sherman *self, struct sherman_lock *lock,
                                            struct fabric_op *ops, uint32_t count)
{
    local_lock_release(self->table->locks, &lock->local, true, (struct local_lock_gift){0});
    lock->held = false;
    if (count == 0)
        return PANDO_OK;
    return sherman_write_co(self, fabric_address_node(lock->global.address), ops, count);
}

/* Broken on purpose (R9): the lock is free before what was done under it has arrived. */
static enum pando_status release_early_co(struct sherman *self, struct sherman_lock *lock,
                                          struct fabric_op *ops, uint32_t count)
{
    enum pando_status status = pool_unlock_co(self->base.session, &lock->global);
    if (status == PANDO_OK && count > 0)
        status = sherman_write_co(self, fabric_address_node(lock->global.address), ops, count);
    lock_forget(self, lock);
    return status;
}

/* The sibling, which is first, is not written again once the node is replaced, by one of the next version. */
static enum pando_status commit_split_co(struct sherman *self, const struct sherman_lock *lock,
                                         struct fabric_op *ops, uint32_t count)
{
    struct pool_once once = {.count = 1, .word_at = lock->node + POOL_BLOCK_VERSION};
    uint32_t node = 1;

    while (node < count && ops[node].offset != fabric_address_offset(lock->node))
        node++;
    pando_assert(node < count);
    memcpy(&once.word, (const uint8_t *)ops[node].write_from + POOL_BLOCK_VERSION,
           sizeof(once.word));
    once.word--;
    return pool_persist_unlock_once_co(self->base.session, &lock->global, ops, count, &once, NULL);
}

enum pando_status sherman_commit_co(struct sherman *self, struct sherman_lock *lock,
                                    struct fabric_op *ops, uint32_t count)
{
    struct sherman_table *table = self->table;
    uint16_t node = fabric_address_node(lock->global.address);
    enum pando_status status = PANDO_OK;
    uint64_t word_at = fabric_address_offset(lock->global.address);

    pando_assert(lock->held);
    lock->local.word = lock->global.word;
    bool handover = table->on.hierarchical && lock->last == LAST_PLAIN &&
                    local_lock_successor(table->locks, &lock->local);
    if (handover && !table->on.completed)
        return hand_over_early_co(self, lock, ops, count);
    if (handover || lock->alone || !table->on.combine) {
        if (!handover && !lock->alone && !table->on.release)
            return release_early_co(self, lock, ops, count);
        if (count > 0)
            status = sherman_write_co(self, node, ops, count);
        if (status == PANDO_OK && !handover && !lock->alone) {
            struct fabric_op unlock = fabric_write(word_at, free_word(lock), sizeof(uint64_t));
            status = pool_persist_unlock_co(self->base.session, &lock->global, &unlock, 1, NULL);
        }
    } else {
        fabric_write_at(&ops[count], word_at, free_word(lock), sizeof(uint64_t));
        status =
            lock->last == LAST_SPLITS
                ? commit_split_co(self, lock, ops, count + 1)
                : pool_persist_unlock_co(self->base.session, &lock->global, ops, count + 1, NULL);
    }
    struct local_lock_gift gift = {0};
    if (handover && status == PANDO_OK)
        gift = gift_of(self, lock, ops, count);
    if (table->on.hierarchical)
        local_lock_release(table->locks, &lock->local, handover && status == PANDO_OK, gift);
    lock->held = false;
    return status;
}
