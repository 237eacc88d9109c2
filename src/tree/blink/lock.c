/*
 * lock.c - hierarchical locks: first the process's own, then the word on the memory node
 * (rules lock-word, verify-after-lock, resolve-unknown, local-handover).
 */
#include <string.h>

#include "base/assert.h"
#include "tree/blink/blink_int.h"

enum {
    AT_ONCE = 4, /* tries without a pause, when a free word was another than expected */
};

/* The node's address may come from a node, a cache or the directory, so it may be any. */
static enum pando_status lock_init(struct blink *self, fabric_address node, struct blink_lock *lock)
{
    struct blink_tree *tree = self->tree;
    *lock = (struct blink_lock){.node = node};
    if (!pool_address_ok(tree->pool, node, tree->layout.node_bytes))
        return blink_damaged(self, node, slice_of(NULL, 0),
                             "an address outside the pool is linked");
    lock->global.address = pool_lock_for(tree->pool, node);
    return PANDO_OK;
}

static void lock_forget(struct blink *self, struct blink_lock *lock)
{
    if (self->tree->on.hierarchical)
        local_lock_release(self->tree->locks, &lock->local, false, (struct local_lock_bytes){0});
    lock->held = false;
}

enum { MARKED = 1 }; /* a free word, which nobody's is */

/* One try: CAS, and the node's READ behind it or in a list of its own. The first expects 0. *found is 0 if
 * the lock is ours; MARKED if it was free with another word than expected, which the next try expects; else
 * who has it. */
static enum pando_status cas_and_read_co(struct blink *self, struct blink_lock *lock,
                                         fabric_address node, uint8_t *bytes, uint64_t *found)
{
    struct blink_tree *tree = self->tree;
    uint64_t expected = pool_lock_deaths(lock->global.word);
    struct fabric_op ops[] = {
        fabric_cas(fabric_address_offset(lock->global.address), expected, lock->global.word),
        fabric_read(fabric_address_offset(node), bytes, tree->layout.node_bytes),
    };
    bool together = tree->on.lockread && bytes != NULL;
    enum pando_status status =
        pool_cas_list_co(self->session, lock->global.address, ops, together ? 2 : 1);
    if (status != PANDO_OK)
        return status;
    /* After a broken endpoint an earlier try of ours may have gone through. */
    if (ops[0].old == expected || ops[0].old == lock->global.word)
        return together || bytes == NULL ? PANDO_OK
                                         : pool_read_list_co(self->session, node, &ops[1], 1);
    *found = ops[0].old;
    if (pool_lock_free(ops[0].old)) {
        lock->global.word = pool_lock_taken_from(lock->global.word, ops[0].old);
        *found = MARKED;
    }
    return PANDO_OK;
}

/* `deadline_ns` as of pool_past. */
static enum pando_status global_lock_co(struct blink *self, struct blink_lock *lock,
                                        fabric_address node, uint8_t *bytes, uint64_t deadline_ns)
{
    struct pool_backoff backoff = {.few = self->tree->on.hierarchical, .deadline_ns = deadline_ns};
    unsigned marks = 0;
    enum pando_status status;
    bool unknown = false; /* whether it is ours */

    lock->global.word = pool_lock_new_word(self->tree->pool);
    for (;;) {
        uint64_t found = 0;
        status = cas_and_read_co(self, lock, node, bytes, &found);
        if (status == PANDO_OK && found == 0)
            return PANDO_OK;
        unknown = status != PANDO_OK;
        if ((status != PANDO_OK && status != PANDO_BROKEN) || !self->tree->on.locks)
            break;
        if (found == MARKED) {
            found = 0;
            if (marks++ < AT_ONCE)
                continue;
        }
        pool_count_retry(self->session, lock->global.address);
        if (self->tree->on.backoff || status == PANDO_BROKEN)
            status = pool_lock_backoff_co(self->session, lock->global.address, found, &backoff);
        else
            status =
                pool_past(self->tree->pool, false, &backoff.deadline_ns) ? PANDO_TIMEOUT : PANDO_OK;
        if (status != PANDO_OK)
            break;
    }
    if (unknown)
        pool_lock_owe(self->session, &lock->global);
    return status;
}

/* The node's READ alone, with nothing to finish if it fails: then both locks are let go of. */
static enum pando_status read_locked_co(struct blink *self, struct blink_lock *lock, uint8_t *bytes)
{
    struct fabric_op read =
        fabric_read(fabric_address_offset(lock->node), bytes, self->tree->layout.node_bytes);
    enum pando_status status = pool_read_list_co(self->session, lock->node, &read, 1);
    if (status == PANDO_OK)
        return PANDO_OK;
    enum pando_status released = blink_unlock_co(self, lock);
    (void)released;
    return status;
}

/* After the local lock, which may have been waited for: both waits have one deadline. */
static enum pando_status take_global_co(struct blink *self, struct blink_lock *lock, bool alone,
                                        uint64_t deadline_ns, uint8_t *bytes)
{
    lock->held = true;
    lock->alone = alone;
    if (lock->local.handed && (lock->local.word != 0 || alone)) {
        lock->global.word = lock->local.word;
        lock->alone = lock->global.word == 0;
        /* Its bytes are there, and nobody else could have changed it while this member lives (rule
         * heartbeat-lease). What changes nothing is answered without a word to the node, which would refuse
         * one that is dead. */
        if (lock->local.node == lock->node && pool_lease_valid(self->tree->pool))
            return PANDO_OK;
        return read_locked_co(self, lock, bytes);
    }
    if (alone)
        return read_locked_co(self, lock, bytes);
    enum pando_status status = global_lock_co(self, lock, lock->node, bytes, deadline_ns);
    if (status != PANDO_OK)
        lock_forget(self, lock);
    return status;
}

enum pando_status blink_lock_with_co(struct blink *self, fabric_address node, uint8_t *bytes,
                                     const struct blink_lock_options *options,
                                     struct blink_lock *lock)
{
    struct blink_tree *tree = self->tree;
    uint64_t deadline_ns = 0;

    enum pando_status status = lock_init(self, node, lock);
    if (status != PANDO_OK)
        return status;
    if (tree->on.hierarchical) {
        struct local_lock_offer offer = {.bytes = bytes, .node = node, .work = options->work};
        status = local_lock_take_co(tree->locks, lock->global.address, &deadline_ns, &offer,
                                    &lock->local);
        if (status != PANDO_OK || lock->local.done)
            return status;
    }
    return take_global_co(self, lock, options->alone, deadline_ns, bytes);
}

enum pando_status blink_lock_co(struct blink *self, fabric_address node, uint8_t *bytes,
                                struct blink_lock *lock)
{
    static const struct blink_lock_options usual = {0};
    return blink_lock_with_co(self, node, bytes, &usual, lock);
}

enum pando_status blink_try_lock_co(struct blink *self, fabric_address node,
                                    struct blink_lock *lock)
{
    struct blink_tree *tree = self->tree;
    uint64_t found = 0;
    enum pando_status status = lock_init(self, node, lock);

    if (status != PANDO_OK)
        return status;
    if (tree->on.hierarchical && !local_lock_try(tree->locks, lock->global.address, &lock->local))
        return PANDO_BUSY;
    lock->held = true;
    lock->global.word = pool_lock_new_word(tree->pool);
    status = cas_and_read_co(self, lock, node, NULL, &found);
    if (status == PANDO_OK && found == MARKED) {
        found = 0;
        status = cas_and_read_co(self, lock, node, NULL, &found);
    }
    if (status == PANDO_BROKEN) {
        /* It may have been taken: find out, and let go of it. */
        bool free_now;
        status = pool_resolve_co(self->session, &lock->global, &free_now);
        if (status == PANDO_OK && !free_now)
            return PANDO_OK;
        if (status == PANDO_OK)
            status = PANDO_BUSY;
        else
            pool_lock_owe(self->session, &lock->global);
    } else if (status == PANDO_OK && found != 0) {
        status = PANDO_BUSY;
    }
    if (status != PANDO_OK)
        lock_forget(self, lock);
    return status;
}

enum pando_status blink_unlock_with_co(struct blink *self, struct blink_lock *lock,
                                       enum pando_status status)
{
    enum pando_status released = blink_unlock_co(self, lock);
    return released == PANDO_OK ? status : released;
}

/* ---- writing under a lock -------------------------------------------------------------------- */

enum pando_status blink_submit_co(struct blink *self, fabric_address at, struct fabric_op *ops,
                                  uint32_t count)
{
    return pool_persist_co(self->session, at, ops, count, NULL);
}

/* The node as these writes have left it, for the next holder. */
static struct local_lock_bytes handed_bytes(const struct blink *self, const struct blink_lock *lock,
                                            const struct fabric_op *ops, uint32_t count)
{
    uint32_t node_bytes = self->tree->layout.node_bytes;
    uint64_t begin = fabric_address_offset(lock->node);

    if (!self->tree->on.reuse || lock->known == NULL)
        return (struct local_lock_bytes){0};
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].offset >= begin && ops[i].offset < begin + node_bytes)
            memcpy(lock->known + (ops[i].offset - begin), ops[i].write_from, ops[i].size);
    }
    return (struct local_lock_bytes){lock->node, lock->known, node_bytes};
}

/* lock-word (R9): the release writes back what was found, less the deaths that were found to have
 * left a torn cell. */
static const uint64_t *free_word(const struct blink_lock *lock)
{
    unsigned deaths = pool_lock_deaths(lock->global.word);
    if (lock->last == LAST_REPAIRS && deaths < POOL_LOCK_DEATHS_MAX)
        deaths -= lock->repaired < deaths ? lock->repaired : deaths;
    return &pool_lock_frees[deaths];
}

/* Broken on purpose (rule local-handover): the next holder begins before this one's list has
 * completed. */
static enum pando_status hand_over_early_co(struct blink *self, struct blink_lock *lock,
                                            struct fabric_op *ops, uint32_t count)
{
    local_lock_release(self->tree->locks, &lock->local, true, (struct local_lock_bytes){0});
    lock->held = false;
    if (count == 0)
        return PANDO_OK;
    return blink_submit_co(self, lock->global.address, ops, count);
}

/* Broken on purpose (rule lock-word): the lock is free before what was done under it has
 * arrived. */
static enum pando_status release_early_co(struct blink *self, struct blink_lock *lock,
                                          struct fabric_op *ops, uint32_t count)
{
    enum pando_status status = pool_unlock_co(self->session, &lock->global);
    if (status == PANDO_OK && count > 0)
        status = blink_submit_co(self, lock->global.address, ops, count);
    lock_forget(self, lock);
    return status;
}

/* The sibling, which is first, is not written again once the node is replaced, by one of the next version. */
static enum pando_status commit_split_co(struct blink *self, const struct blink_lock *lock,
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
    return pool_persist_unlock_once_co(self->session, &lock->global, ops, count, &once, NULL);
}

enum pando_status blink_commit_co(struct blink *self, struct blink_lock *lock,
                                  struct fabric_op *ops, uint32_t count)
{
    struct blink_tree *tree = self->tree;
    enum pando_status status = PANDO_OK;
    uint64_t word_at = fabric_address_offset(lock->global.address);

    pando_assert(lock->held);
    lock->local.word = lock->global.word;
    bool handover = tree->on.hierarchical && lock->last == LAST_PLAIN &&
                    local_lock_successor(tree->locks, &lock->local);
    if (handover && !tree->on.completed)
        return hand_over_early_co(self, lock, ops, count);
    if (handover || lock->alone || !tree->on.combine) {
        if (!handover && !lock->alone && !tree->on.release)
            return release_early_co(self, lock, ops, count);
        if (count > 0)
            status = blink_submit_co(self, lock->global.address, ops, count);
        if (status == PANDO_OK && !handover && !lock->alone) {
            struct fabric_op unlock = fabric_write(word_at, free_word(lock), sizeof(uint64_t));
            status = pool_persist_unlock_co(self->session, &lock->global, &unlock, 1, NULL);
        }
    } else {
        fabric_write_at(&ops[count], word_at, free_word(lock), sizeof(uint64_t));
        status = lock->last == LAST_SPLITS
                     ? commit_split_co(self, lock, ops, count + 1)
                     : pool_persist_unlock_co(self->session, &lock->global, ops, count + 1, NULL);
    }
    struct local_lock_bytes handed = {0};
    if (handover && status == PANDO_OK)
        handed = handed_bytes(self, lock, ops, count);
    if (tree->on.hierarchical)
        local_lock_release(tree->locks, &lock->local, handover && status == PANDO_OK, handed);
    lock->held = false;
    return status;
}
