/*
 * fail.c - allocations that fail on purpose, for tests and for the checker: what a full pool does at
 * every place where memory is asked for is tested by failing each of them in turn.
 */
#include "pool/memory_int.h"
#include "pool/pool_int.h"

static void fail(struct pool *pool, uint64_t first, uint64_t count, bool blocks_only)
{
    atomic_store(&pool->fail.on, false);
    atomic_store(&pool->fail.blocks_only, blocks_only);
    atomic_store(&pool->fail.asked, 0);
    atomic_store(&pool->fail.first, first);
    atomic_store(&pool->fail.count, count);
    atomic_store(&pool->fail.on, first > 0);
}

void pool_fail_allocations(struct pool *pool, uint64_t first, uint64_t count)
{
    fail(pool, first, count, false);
}

void pool_fail_blocks(struct pool *pool, uint64_t first, uint64_t count)
{
    fail(pool, first, count, true);
}

uint64_t pool_allocations_asked(const struct pool *pool)
{
    return atomic_load(&pool->fail.asked);
}

bool pool_alloc_fails(struct pool *pool, bool block)
{
    if (!atomic_load_explicit(&pool->fail.on, memory_order_relaxed) ||
        (!block && atomic_load(&pool->fail.blocks_only)))
        return false;
    uint64_t number = atomic_fetch_add(&pool->fail.asked, 1) + 1;
    uint64_t first = atomic_load(&pool->fail.first);
    return number >= first && number - first < atomic_load(&pool->fail.count);
}
