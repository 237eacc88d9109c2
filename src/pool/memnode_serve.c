/*
 * memnode_serve.c - calls, taken apart and checked.
 */
#include <stdatomic.h>
#include <string.h>

#include "pool/memnode_int.h"

/* Whether whoever asks has joined: one that never did, or claims to be another, has no pass. */
static enum pando_status check_pass(const struct memnode *memnode,
                                    const struct fabric_request *request,
                                    const uint8_t seal[FABRIC_SEAL_BYTES])
{
    struct fabric_ticket pass = {.who = request->from};
    if (pass.who.member == 0)
        return PANDO_DENIED;
    memcpy(pass.seal, seal, sizeof(pass.seal));
    return fabric_seal_check(memnode->fabric, FABRIC_SEAL_MEMBER, &pass);
}

static enum pando_status serve_grant(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_grant_request asked;
    struct pool_grant_reply reply = {0};

    if (request->body.size != sizeof(asked))
        return PANDO_INVALID;
    memcpy(&asked, request->body.data, sizeof(asked));
    /* Memory belongs to members, so that it can be taken back: nobody recovers one that never joined. */
    enum pando_status status = check_pass(memnode, request, asked.pass);
    if (status != PANDO_OK)
        return status;
    if (asked.block_bytes == 0 || asked.block_bytes % 64 != 0 ||
        asked.block_bytes > POOL_BLOCK_MAX || asked.blocks_max > POOL_GRANT_BLOCKS_MAX ||
        (asked.kind != POOL_CHUNK_BLOCKS && asked.kind != POOL_CHUNK_VITAL))
        return PANDO_INVALID;
    struct pool_block *blocks = (struct pool_block *)(request->reply + sizeof(reply));
    status = memnode_grant(memnode, request->from, &asked, &reply, blocks);
    if (status != PANDO_OK)
        return status;
    memcpy(request->reply, &reply, sizeof(reply));
    request->reply_size =
        (uint32_t)(sizeof(reply) + (size_t)reply.blocks * sizeof(struct pool_block));
    return PANDO_OK;
}

static enum pando_status serve_return_co(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_return_request given;
    struct pool_block blocks[POOL_GRANT_BLOCKS_MAX];

    if (request->body.size < sizeof(given))
        return PANDO_INVALID;
    memcpy(&given, request->body.data, sizeof(given));
    enum pando_status status = check_pass(memnode, request, given.pass);
    if (status != PANDO_OK)
        return status;
    if (given.blocks > POOL_GRANT_BLOCKS_MAX ||
        request->body.size != sizeof(given) + given.blocks * sizeof(struct pool_block))
        return PANDO_INVALID;
    memcpy(blocks, request->body.data + sizeof(given), given.blocks * sizeof(struct pool_block));
    return memnode_return_co(memnode, request->from, &given, blocks);
}

static enum pando_status serve_usage_co(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_usage_request asked;
    if (request->body.size != sizeof(asked))
        return PANDO_INVALID;
    memcpy(&asked, request->body.data, sizeof(asked));
    return memnode_usage_co(memnode, asked.from, request->reply, &request->reply_size);
}

static enum pando_status serve_waiting(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_waiting_request told;
    if (request->body.size != sizeof(told))
        return PANDO_INVALID;
    memcpy(&told, request->body.data, sizeof(told));
    return memnode_waiting(memnode, request->from, told.bytes);
}

/* Node 0 has the directory, and tells the others by a seal. */
static enum pando_status check_drop_co(struct memnode *memnode,
                                       const struct fabric_request *request,
                                       const struct pool_sweep_request *asked,
                                       struct fabric_ticket *drop)
{
    *drop = (struct fabric_ticket){.who = request->from};
    memcpy(drop->seal, asked->drop, sizeof(drop->seal));
    if (memnode->super.node != 0)
        return fabric_seal_check_drop(memnode->fabric, asked->table, drop);
    enum pando_status status = memnode_barrier_co(memnode);
    if (status != PANDO_OK)
        return status;
    if (!memnode_drops(memnode, request->from, asked->slot, asked->table))
        return PANDO_DENIED;
    return fabric_seal_make_drop(memnode->fabric, request->from, asked->table, drop);
}

static enum pando_status sweep_table_co(struct memnode *memnode,
                                        const struct fabric_request *request,
                                        const struct pool_sweep_request *asked,
                                        struct pool_sweep_reply *reply)
{
    struct fabric_ticket drop;
    if (asked->table == 0 || asked->table > POOL_TABLE_NUMBER_MAX || asked->incarnation != 0)
        return PANDO_DENIED;
    enum pando_status status = check_drop_co(memnode, request, asked, &drop);
    if (status != PANDO_OK)
        return status;
    memcpy(reply->drop, drop.seal, sizeof(reply->drop));
    return memnode_sweep_table_co(memnode, (uint16_t)asked->table, reply);
}

/* Oneself, or one that cannot come back: a living member's memory is not anybody's. To be fenced here took
 * node 0's ticket, or the same slot's next incarnation. */
static enum pando_status sweep_member_co(struct memnode *memnode,
                                         const struct fabric_request *request,
                                         const struct pool_sweep_request *asked,
                                         struct pool_sweep_reply *reply)
{
    struct fabric_identity dead = {.member = asked->member, .incarnation = asked->incarnation};
    bool itself =
        request->from.member == dead.member && request->from.incarnation == dead.incarnation;
    if (!itself && !fabric_fenced(memnode->fabric, dead))
        return PANDO_DENIED;
    return memnode_sweep_co(memnode, dead, reply);
}

static enum pando_status serve_sweep_co(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_sweep_request asked;
    struct pool_sweep_reply reply = {0};

    if (request->body.size != sizeof(asked))
        return PANDO_INVALID;
    memcpy(&asked, request->body.data, sizeof(asked));
    enum pando_status status = check_pass(memnode, request, asked.pass);
    if (status != PANDO_OK)
        return status;
    status = asked.member == 0 ? sweep_table_co(memnode, request, &asked, &reply)
                               : sweep_member_co(memnode, request, &asked, &reply);
    if (status != PANDO_OK)
        return status;
    memcpy(request->reply, &reply, sizeof(reply));
    request->reply_size = sizeof(reply);
    return PANDO_OK;
}

static enum pando_status serve_pushdown_co(struct memnode *memnode, struct fabric_request *request)
{
    struct memnode_place place = {.fabric = memnode->fabric,
                                  .bank = memnode->super.node,
                                  .latches = memnode->pushdown_latches};
    if (memnode->work == NULL)
        return PANDO_UNSUPPORTED;
    if (request->from.member == 0)
        return PANDO_DENIED;
    enum pando_status status =
        request->method == POOL_PUSHDOWN_SEEN ? PANDO_OK : memnode_barrier_co(memnode);
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
        return serve_return_co(memnode, request);
    case POOL_SWEEP:
        return serve_sweep_co(memnode, request);
    case POOL_STATS: {
        struct pool_node_stats stats;
        memnode_stats(memnode, &stats);
        memcpy(request->reply, &stats, sizeof(stats));
        request->reply_size = sizeof(stats);
        return PANDO_OK;
    }
    case POOL_PASS:
        return memnode_pass_co(memnode, request);
    case POOL_TICKET:
        return memnode_ticket_co(memnode, request);
    case POOL_USAGE:
        return serve_usage_co(memnode, request);
    case POOL_WAITING:
        return serve_waiting(memnode, request);
    case POOL_PUSHDOWN:
    case POOL_PUSHDOWN_SEEN:
        return serve_pushdown_co(memnode, request);
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
