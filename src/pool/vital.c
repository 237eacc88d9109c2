/*
 * vital.c - blocks from the part of the pool that is kept for what makes it possible to serve and to
 * free memory. None is kept at hand: the reserve is small and everybody's.
 */
#include <string.h>

#include "pool/members_int.h"
#include "pool/memory_int.h"
#include "pool/pool_int.h"

enum pando_status pool_vital_ask_co(struct pool_session *session, uint16_t node,
                                    uint32_t block_bytes, bool modest, struct pool_block *block)
{
    struct pool_grant_request request = {
        .block_bytes = block_bytes, .blocks_max = 1, .kind = POOL_CHUNK_VITAL, .modest = modest};
    uint8_t bytes[sizeof(struct pool_grant_reply) + sizeof(*block)];
    struct pool_grant_reply reply;
    uint32_t size = 0;

    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK)
        return status;
    status = pool_grant_co(session, node, &request, bytes, sizeof(bytes), &size);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    if (status != PANDO_OK) {
        if (status != PANDO_FULL)
            stock_lost(session->pool->stock); /* one may have been granted all the same */
        return status;
    }
    if (size != sizeof(bytes))
        return PANDO_CORRUPT;
    memcpy(&reply, bytes, sizeof(reply));
    memcpy(block, bytes + sizeof(reply), sizeof(*block));
    return reply.blocks == 1 && pool_granted_ok(session->pool, node, block->address, block_bytes)
               ? PANDO_OK
               : PANDO_CORRUPT;
}

static enum pando_status alloc_on_co(struct pool_session *session, uint16_t node,
                                     uint32_t block_bytes, struct pool_block *block)
{
    return pool_vital_ask_co(session, node, block_bytes, false, block);
}

enum pando_status pool_vital_alloc_co(struct pool_session *session, uint32_t block_bytes,
                                      struct pool_block *block)
{
    struct pool *pool = session->pool;
    if (block_bytes == 0 || block_bytes % 64 != 0 || block_bytes > POOL_BLOCK_MAX)
        return PANDO_INVALID;
    if (pool_alloc_fails(pool, true))
        return PANDO_FULL;
    /* Different processes begin at different nodes. */
    uint16_t turn = atomic_fetch_add(&pool->vital_node, 1);
    uint16_t first = (uint16_t)((pool->identity.member + turn) % pool->nodes);
    enum pando_status status =
        pool_alloc_anywhere_co(session, first, alloc_on_co, block_bytes, block);
    if (status == PANDO_FULL && stock_return_co(session, true) > 0)
        status = pool_alloc_anywhere_co(session, first, alloc_on_co, block_bytes, block);
    return status;
}

enum pando_status pool_vital_free_co(struct pool_session *session, const struct pool_block *block,
                                     uint32_t block_bytes, bool tenure_written)
{
    enum pando_status status = tenure_written ? PANDO_OK : pool_tenure_free_co(session, block);
    return status == PANDO_OK ? stock_free_co(session, block, block_bytes, true) : status;
}
