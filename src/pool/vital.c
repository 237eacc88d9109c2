/*
 * vital.c - blocks from the part of the pool that is kept for what makes it possible to serve and to
 * free memory. They belong to the process: whoever frees one is seldom the thread that needs the next,
 * and none is kept here, because the reserve is small and everybody's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/pool_int.h"

enum { FREED_MAX = 256 }; /* more at a time stay this member's, until it leaves */

struct freed {
    struct pool_block block;
    uint32_t block_bytes;
    uint64_t ready_ns;
};

struct vital_blocks {
    struct rt_latch latch;
    uint16_t next_node; /* they take turns */
    uint32_t head, count;
    struct freed freed[FREED_MAX]; /* a ring, oldest first */
};

struct vital_blocks *vital_blocks_create(void)
{
    return calloc(1, sizeof(struct vital_blocks));
}

void vital_blocks_destroy(struct vital_blocks *vital)
{
    free(vital);
}

/* ---- getting --------------------------------------------------------------------------------- */

static enum pando_status alloc_on_co(struct pool_session *session, uint16_t node,
                                     uint32_t block_bytes, struct pool_block *block)
{
    struct pool_grant_request request = {
        .block_bytes = block_bytes, .blocks_max = 1, .kind = POOL_CHUNK_VITAL};
    uint8_t bytes[sizeof(struct pool_grant_reply) + sizeof(*block)];
    struct pool_grant_reply reply;
    uint32_t size = 0;

    enum pando_status status = pool_reconnect_co(session, node);
    if (status == PANDO_OK)
        status = fabric_call_co(pool_endpoint(session, node), POOL_GRANT,
                                slice_of(&request, sizeof(request)), bytes, sizeof(bytes), &size);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    if (status != PANDO_OK)
        return status;
    if (size != sizeof(bytes))
        return PANDO_CORRUPT;
    memcpy(&reply, bytes, sizeof(reply));
    memcpy(block, bytes + sizeof(reply), sizeof(*block));
    return reply.blocks == 1 && pool_granted_ok(session->pool, node, block->address, block_bytes)
               ? PANDO_OK
               : PANDO_CORRUPT;
}

/* Different processes begin at different ones. */
static uint16_t next_node(const struct pool *pool)
{
    rt_latch_lock(&pool->vital->latch);
    uint16_t next = pool->vital->next_node++;
    rt_latch_unlock(&pool->vital->latch);
    return (uint16_t)((pool->identity.member + next) % pool->nodes);
}

enum pando_status pool_vital_alloc_co(struct pool_session *session, uint32_t block_bytes,
                                      struct pool_block *block)
{
    struct pool *pool = session->pool;
    if (block_bytes == 0 || block_bytes % 64 != 0 || block_bytes > POOL_CHUNK_BYTES)
        return PANDO_INVALID;
    if (pool_alloc_fails(pool, true))
        return PANDO_FULL;
    pool_vital_return_co(session);
    return pool_alloc_anywhere_co(session, next_node(pool), alloc_on_co, block_bytes, block);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static void put_off(struct pool *pool, const struct pool_block *block, uint32_t block_bytes)
{
    struct vital_blocks *vital = pool->vital;
    rt_latch_lock(&vital->latch);
    if (vital->count < FREED_MAX)
        vital->freed[(vital->head + vital->count++) % FREED_MAX] =
            (struct freed){*block, block_bytes, rt_now_ns() + pool_grace_ns(pool)};
    rt_latch_unlock(&vital->latch);
}

enum pando_status pool_vital_free_co(struct pool_session *session, const struct pool_block *block,
                                     uint32_t block_bytes, bool tenure_written)
{
    struct pool *pool = session->pool;
    enum pando_status status = tenure_written ? PANDO_OK : pool_tenure_free_co(session, block);

    if (status != PANDO_OK)
        return status;
    put_off(pool, block, block_bytes);
    return PANDO_OK;
}

static bool take_ripe(struct vital_blocks *vital, struct freed *out)
{
    rt_latch_lock(&vital->latch);
    bool ripe = vital->count > 0 && vital->freed[vital->head].ready_ns <= rt_now_ns();
    if (ripe) {
        *out = vital->freed[vital->head];
        vital->head = (vital->head + 1) % FREED_MAX;
        vital->count--;
    }
    rt_latch_unlock(&vital->latch);
    return ripe;
}

void pool_vital_return_co(struct pool_session *session)
{
    struct freed freed;
    while (take_ripe(session->pool->vital, &freed)) {
        struct {
            struct pool_return_request head;
            struct pool_block block;
        } body = {.head = {.block_bytes = freed.block_bytes, .blocks = 1}, .block = freed.block};
        _Static_assert(sizeof(body) == sizeof(body.head) + sizeof(body.block),
                       "as the call wants it");
        uint16_t node = fabric_address_node(freed.block.address);
        enum pando_status status = pool_reconnect_co(session, node);
        if (status != PANDO_OK) {
            /* It was told nothing: later. Nor are the others waited for now. */
            put_off(session->pool, &freed.block, freed.block_bytes);
            return;
        }
        status = fabric_call_co(pool_endpoint(session, node), POOL_RETURN,
                                slice_of(&body, sizeof(body)), NULL, 0, NULL);
        /* Not again if that failed: the node may have it, and have given it to us anew. It is swept
         * when this member leaves. */
        (void)status;
    }
}
