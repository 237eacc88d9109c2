/*
 * memnode_serve.c - calls, taken apart and checked.
 */
#include <stdatomic.h>
#include <string.h>

#include "pool/memnode_int.h"

static enum pando_status serve_grant(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_grant_request asked;
    struct pool_grant_reply reply = {0};

    if (request->body.size != sizeof(asked))
        return PANDO_INVALID;
    memcpy(&asked, request->body.data, sizeof(asked));
    if (request->from.member == 0)
        return PANDO_DENIED; /* memory belongs to members, so that it can be taken back */
    if (asked.block_bytes == 0 || asked.block_bytes % 64 != 0 ||
        asked.block_bytes > POOL_BLOCK_MAX || asked.blocks_max > POOL_GRANT_BLOCKS_MAX ||
        (asked.kind != POOL_CHUNK_BLOCKS && asked.kind != POOL_CHUNK_VITAL))
        return PANDO_INVALID;
    struct pool_block *blocks = (struct pool_block *)(request->reply + sizeof(reply));
    enum pando_status status = memnode_grant(memnode, request->from, &asked, &reply, blocks);
    if (status != PANDO_OK)
        return status;
    memcpy(request->reply, &reply, sizeof(reply));
    request->reply_size =
        (uint32_t)(sizeof(reply) + (size_t)reply.blocks * sizeof(struct pool_block));
    return PANDO_OK;
}

static enum pando_status serve_return(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_return_request given;
    struct pool_block blocks[POOL_GRANT_BLOCKS_MAX];

    if (request->body.size < sizeof(given))
        return PANDO_INVALID;
    memcpy(&given, request->body.data, sizeof(given));
    if (request->from.member == 0)
        return PANDO_DENIED; /* nobody holds the blocks that are here already */
    if (given.blocks > POOL_GRANT_BLOCKS_MAX ||
        request->body.size != sizeof(given) + given.blocks * sizeof(struct pool_block))
        return PANDO_INVALID;
    memcpy(blocks, request->body.data + sizeof(given), given.blocks * sizeof(struct pool_block));
    return memnode_return_co(memnode, request->from, &given, blocks);
}

static enum pando_status serve_sweep(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_sweep_request asked;
    struct pool_sweep_reply reply = {0};

    if (request->body.size != sizeof(asked))
        return PANDO_INVALID;
    memcpy(&asked, request->body.data, sizeof(asked));
    struct fabric_identity dead = {.member = asked.member, .incarnation = asked.incarnation};
    /* Oneself, or one that cannot come back: a living member's memory is not anybody's. */
    if (dead.member == 0 && asked.table != 0 && asked.table <= POOL_TABLE_NUMBER_MAX) {
        if (request->from.member == 0)
            return PANDO_DENIED;
        enum pando_status swept = memnode_sweep_table_co(memnode, (uint16_t)asked.table, &reply);
        memcpy(request->reply, &reply, sizeof(reply));
        request->reply_size = sizeof(reply);
        return swept;
    }
    bool itself =
        request->from.member == dead.member && request->from.incarnation == dead.incarnation;
    if (dead.member == 0 || (!itself && !fabric_fenced(memnode->fabric, dead)))
        return PANDO_DENIED;
    enum pando_status status = memnode_sweep_co(memnode, dead, &reply);
    memcpy(request->reply, &reply, sizeof(reply));
    request->reply_size = sizeof(reply);
    return status;
}

static enum pando_status serve_work_co(struct memnode *memnode, struct fabric_request *request)
{
    struct memnode_place place = {
        .fabric = memnode->fabric, .node = memnode->super.node, .latches = memnode->work_latches};
    if (memnode->work == NULL)
        return PANDO_UNSUPPORTED;
    if (request->from.member == 0)
        return PANDO_DENIED;
    enum pando_status status =
        request->method == POOL_WORK_SEEN ? PANDO_OK : memnode_barrier_co(memnode);
    /* The first client of a pool writes its id. */
    if (status == PANDO_OK)
        status = memnode_word_read(
            memnode, memnode->first + offsetof(struct pool_superblock, pool_id), &place.pool);
    return status == PANDO_OK ? memnode->work(&place, request) : status;
}

static enum pando_status serve(struct memnode *memnode, struct fabric_request *request)
{
    switch (request->method) {
    case POOL_GRANT:
        return serve_grant(memnode, request);
    case POOL_RETURN:
        return serve_return(memnode, request);
    case POOL_SWEEP:
        return serve_sweep(memnode, request);
    case POOL_STATS: {
        struct pool_node_stats stats;
        memnode_stats(memnode, &stats);
        memcpy(request->reply, &stats, sizeof(stats));
        request->reply_size = sizeof(stats);
        return PANDO_OK;
    }
    case POOL_USAGE:
        return memnode_usage_co(memnode, request->reply, &request->reply_size);
    case POOL_WORK:
    case POOL_WORK_SEEN:
        return serve_work_co(memnode, request);
    default:
        return PANDO_UNSUPPORTED;
    }
}

enum pando_status memnode_serve(void *context, struct fabric_request *request)
{
    struct memnode *memnode = context;
    enum pando_status status = serve(memnode, request);
    unsigned method = request->method < POOL_METHODS ? request->method : 0;
    atomic_fetch_add_explicit(&memnode->calls[method], 1, memory_order_relaxed);
    if (status != PANDO_OK)
        atomic_fetch_add_explicit(&memnode->call_errors, 1, memory_order_relaxed);
    return status;
}
