/*
 * locks.c - locks alone: the experiments of Sherman's figures 2 and 16. Each client
 * takes a lock of memory node 0 and releases it, with nothing in between.
 */
#include "bench/bench_int.h"
#include "pool/lab.h"

static enum pando_status global_lock_co(struct bench_client *client, struct pool_lock *lock)
{
    struct bench_thread *thread = client->thread;
    struct pool_backoff backoff = {0};

    lock->word = pool_lock_new_word(thread->node->pool);
    for (;;) {
        struct fabric_op cas = fabric_cas(fabric_address_offset(lock->address), 0, lock->word);
        enum pando_status status = pool_lab_submit_co(thread->session, lock->address, &cas, 1);
        if (status != PANDO_OK || cas.old == 0)
            return status;
        pool_count_retry(thread->session, lock->address);
        if (thread->stop && !thread->run->plan->backoff && thread->run->failed)
            return PANDO_TIMEOUT;
        if (thread->run->plan->backoff)
            status = pool_lock_backoff_co(thread->session, lock->address, cas.old, &backoff);
        if (status != PANDO_OK)
            return status;
    }
}

static enum pando_status global_unlock_co(struct bench_client *client, const struct pool_lock *lock)
{
    struct bench_thread *thread = client->thread;
    uint64_t zero = 0, offset = fabric_address_offset(lock->address);
    struct fabric_op release = thread->run->plan->write_unlock
                                   ? fabric_write(offset, &zero, sizeof(zero))
                                   : fabric_faa(offset, -lock->word);
    return pool_lab_submit_co(thread->session, lock->address, &release, 1);
}

enum pando_status bench_lock_co(struct bench_client *client, uint64_t number)
{
    struct bench_node *node = client->thread->node;
    const struct bench_plan *plan = client->thread->run->plan;
    struct pool_lock lock = {.address = pool_lock_address(node->pool, 0, 1 + (uint32_t)number)};
    struct local_lock_grant grant = {0};
    enum pando_status status = PANDO_OK;
    uint64_t deadline_ns = 0;

    if (plan->hierarchical)
        status = local_lock_take_co(node->locks, lock.address, &deadline_ns,
                                    &(struct local_lock_offer){0}, &grant);
    if (status != PANDO_OK)
        return status;
    if (grant.handed)
        lock.word = grant.word;
    else
        status = global_lock_co(client, &lock);
    bool taken = status == PANDO_OK;
    grant.word = lock.word;
    bool handover = taken && plan->hierarchical && local_lock_successor(node->locks, &grant);
    if (taken && !handover)
        status = global_unlock_co(client, &lock);
    if (plan->hierarchical)
        local_lock_release(node->locks, &grant, handover, (struct local_lock_bytes){0});
    return status;
}
