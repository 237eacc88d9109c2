/*
 * alloc.c - the client's part of memory management: blocks from the process's stock, which nodes fill
 * up, and back to it.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/block_fmt.h"
#include "pool/broken.h"
#include "pool/members_int.h"
#include "pool/memory_int.h"
#include "pool/pool_int.h"

enum {
    REFILL_BLOCKS = 256,
    REFILL_BYTES = 1024 * 1024, /* of large ones fewer */
    STEPS_BITS = 3,             /* eight sizes between a power of two and the next */
};

static const uint64_t SILENT_NS = RT_NS_PER_S;

uint32_t pool_block_bytes(uint64_t size)
{
    uint64_t bytes = (size + 63) / 64 * 64;
    if (bytes > POOL_CHUNK_BYTES / 2 || bytes == 0)
        return (uint32_t)bytes; /* a chunk of its own, or several */
    /* As many as fit into a chunk, rounded down so that there are few sizes; then as large as so many can
     * be. */
    uint64_t count = POOL_CHUNK_BYTES / bytes;
    for (uint64_t unit = 1; count / unit >= 2 << STEPS_BITS; unit *= 2)
        count = count / (2 * unit) * (2 * unit);
    return (uint32_t)(POOL_CHUNK_BYTES / count / 64 * 64);
}

/* ---- freeing --------------------------------------------------------------------------------- */

enum pando_status pool_tenure_free_co(struct pool_session *session, const struct pool_block *block)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_FREE, .holder = session->pool->identity};
    uint64_t words[2] = {block->version, pool_tenure_pack(tenure)};
    struct fabric_op write = fabric_write(
        fabric_address_offset(block->address) + POOL_BLOCK_VERSION, words, sizeof(words));
    /* May be repeated: the block is ours until we return it or use it again. */
    enum pando_status status =
        pool_submit_again_co(session, pool_node_of(session->pool, block->address), &write, 1);
    if (status != PANDO_OK)
        stock_lost(session->pool->stock);
    return status;
}

enum pando_status pool_free_co(struct pool_session *session, const struct pool_block *block,
                               uint32_t block_bytes, bool tenure_written)
{
    enum pando_status status = tenure_written ? PANDO_OK : pool_tenure_free_co(session, block);
    return status == PANDO_OK ? stock_free_co(session, block, block_bytes, false) : status;
}

/* ---- allocation ------------------------------------------------------------------------------ */

/* The reply comes from another process: nothing outside the node's heap is taken. */
bool pool_granted_ok(const struct pool *pool, uint16_t node, uint64_t address, uint64_t bytes)
{
    const struct pool_superblock *super = &pool->supers[node];
    uint64_t offset = fabric_address_offset(address);
    uint64_t end = super->heap_offset + super->chunks * POOL_CHUNK_BYTES;
    return pool_node_of(pool, address) == node && offset >= super->heap_offset && offset <= end &&
           bytes <= end - offset;
}

bool pool_address_ok(const struct pool *pool, fabric_address address, uint64_t bytes)
{
    uint16_t node = pool_node_of(pool, address);
    return node < pool->nodes && address % 8 == 0 && pool_granted_ok(pool, node, address, bytes);
}

/* Takes the first block that was granted, and puts the others on their shelf. */
static enum pando_status shelve(struct pool *pool, uint16_t node, uint32_t block_bytes,
                                const uint8_t *bytes, uint32_t size, struct pool_block *first)
{
    struct pool_grant_reply reply;
    struct pool_block block = {0};

    if (size < sizeof(reply))
        return PANDO_CORRUPT;
    memcpy(&reply, bytes, sizeof(reply));
    if (reply.blocks == 0 || reply.blocks > REFILL_BLOCKS ||
        size != sizeof(reply) + (size_t)reply.blocks * sizeof(block))
        return PANDO_CORRUPT;
    /* The node's first is taken first: it came back last, and is most likely in some cache. */
    for (uint32_t i = reply.blocks; i-- > 0;) {
        memcpy(&block, bytes + sizeof(reply) + i * sizeof(block), sizeof(block));
        if (!pool_granted_ok(pool, node, block.address, block_bytes))
            return PANDO_CORRUPT;
        if (i > 0)
            stock_add(pool->stock, block_bytes, &block);
    }
    *first = block;
    pool_room_granted(pool, node, reply.chunks);
    return PANDO_OK;
}

/* Asks the node for the block that is wanted, and for more if they can be kept at hand. */
static enum pando_status refill_co(struct pool_session *session, uint16_t node,
                                   uint32_t block_bytes, struct pool_block *block)
{
    uint32_t most =
        stock_keeps(session->pool->stock, node, block_bytes) ? REFILL_BYTES / block_bytes : 1;
    struct pool_grant_request request = {.block_bytes = block_bytes,
                                         .blocks_max = most > REFILL_BLOCKS ? REFILL_BLOCKS
                                                       : most == 0          ? 1
                                                                            : most,
                                         .kind = POOL_CHUNK_BLOCKS};
    uint32_t capacity = sizeof(struct pool_grant_reply) + REFILL_BLOCKS * sizeof(struct pool_block);
    uint32_t size;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK)
        return status;
    uint8_t *reply = malloc(capacity);
    if (reply == NULL)
        return PANDO_NO_MEMORY;
    status = pool_grant_co(session, node, &request, reply, capacity, &size);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    if (status == PANDO_OK)
        status = shelve(session->pool, node, block_bytes, reply, size, block);
    if (status == PANDO_FULL)
        pool_room_refused(session->pool, node, block_bytes);
    else if (status != PANDO_OK)
        stock_lost(session->pool->stock); /* blocks may have been granted all the same */
    free(reply);
    return status;
}

static enum pando_status alloc_on_co(struct pool_session *session, uint16_t node,
                                     uint32_t block_bytes, struct pool_block *block)
{
    struct pool_stock *stock = session->pool->stock;
    while (!stock_take(stock, node, block_bytes, block)) {
        if (!stock_refill_begin_co(stock, node, block_bytes))
            continue;
        enum pando_status status = refill_co(session, node, block_bytes, block);
        stock_refill_end(stock, node, block_bytes);
        if (status != PANDO_OK)
            return status;
        break;
    }
    if (pool_broken.floor)
        block->version = 0;
    return PANDO_OK;
}

/* Without asking a node that was full a moment ago. */
static enum pando_status alloc_lightly_co(struct pool_session *session, uint16_t node,
                                          uint32_t block_bytes, struct pool_block *block)
{
    struct pool *pool = session->pool;
    if (!pool_room_none(pool, node, block_bytes))
        return alloc_on_co(session, node, block_bytes, block);
    return stock_take(pool->stock, node, block_bytes, block) ? PANDO_OK : PANDO_FULL;
}

/* Whether it is the node's fault alone. */
static bool unreachable(enum pando_status status)
{
    switch (status) {
    case PANDO_OK:
    case PANDO_FULL:
    case PANDO_FENCED:
    case PANDO_NO_MEMORY:
    case PANDO_TOO_LARGE:
        return false;
    default:
        return true;
    }
}

/* Whether a node did not answer a moment ago, or somebody is just finding out whether it does. */
static bool silent(const struct pool_session *session, uint16_t node)
{
    uint64_t until_ns = session->silent_until_ns[node];
    return session->reconnecting[node] || (until_ns != 0 && rt_now_ns() < until_ns);
}

/* Blocks at hand are of no use if their node cannot be reached: that is looked at before. */
static enum pando_status alloc_at_node_co(struct pool_session *session, uint16_t node,
                                          pool_alloc_fn fn, uint32_t block_bytes,
                                          struct pool_block *block)
{
    uint64_t *until_ns = &session->silent_until_ns[node];
    enum pando_status status = PANDO_OK;
    if (fabric_broken(pool_endpoint(session, node)))
        status = pool_reconnect_co(session, node);
    if (status == PANDO_OK)
        status = fn(session, node, block_bytes, block);
    *until_ns = unreachable(status) ? rt_now_ns() + SILENT_NS : 0;
    return status;
}

enum pando_status pool_alloc_anywhere_co(struct pool_session *session, uint16_t first,
                                         pool_alloc_fn fn, uint32_t block_bytes,
                                         struct pool_block *block)
{
    uint16_t nodes = session->pool->nodes, left_out = POOL_ANY_NODE;
    enum pando_status status = PANDO_FULL, failed = PANDO_FULL;

    for (uint16_t i = 0; i < nodes; i++) {
        uint16_t node = (uint16_t)((first + i) % nodes);
        if (silent(session, node)) {
            if (left_out != POOL_ANY_NODE)
                failed = PANDO_BROKEN; /* of several, one is asked below */
            else
                left_out = node;
            continue;
        }
        status = alloc_at_node_co(session, node, fn, block_bytes, block);
        if (unreachable(status))
            failed = status;
        else if (status != PANDO_FULL)
            return status;
    }
    /* The others have nothing: one that was silent may be back. */
    if (left_out != POOL_ANY_NODE) {
        status = alloc_at_node_co(session, left_out, fn, block_bytes, block);
        if (unreachable(status))
            failed = status;
        else if (status != PANDO_FULL)
            return status;
    }
    return failed;
}

/* On any node, whose turn it is first. */
static enum pando_status alloc_any_co(struct pool_session *session, pool_alloc_fn fn,
                                      uint32_t block_bytes, struct pool_block *block)
{
    uint16_t first = pool_turn_next(session->pool, session->credits);
    /* One that does not answer loses its turn. */
    for (uint16_t i = 1; i < session->pool->nodes && silent(session, first); i++)
        first = pool_turn_next(session->pool, session->credits);
    enum pando_status status = pool_alloc_anywhere_co(session, first, fn, block_bytes, block);
    if (status == PANDO_OK && pool_node_of(session->pool, block->address) != first)
        pool_turn_moved(session->pool, session->credits, first,
                        pool_node_of(session->pool, block->address));
    return status;
}

enum pando_status pool_alloc_co(struct pool_session *session, uint16_t bank, uint32_t block_bytes,
                                struct pool_block *block)
{
    bool any = bank == POOL_ANY_NODE;
    uint16_t node = any ? 0 : pool_view_node(session->pool, bank);
    if (block_bytes == 0 || block_bytes % 64 != 0 || block_bytes > POOL_BLOCK_MAX)
        return PANDO_INVALID;
    if (node >= session->pool->nodes)
        return PANDO_RANGE;
    if (pool_alloc_fails(session->pool, true))
        return PANDO_FULL;
    if (!any)
        return silent(session, node)
                   ? PANDO_BROKEN
                   : alloc_at_node_co(session, node, alloc_lightly_co, block_bytes, block);
    enum pando_status status = alloc_any_co(session, alloc_lightly_co, block_bytes, block);
    if (status != PANDO_FULL)
        return status;
    /* Blocks of other sizes that lie here unused may be what is missing; and some node may not be full any
     * more. */
    (void)stock_return_co(session, true);
    return alloc_any_co(session, alloc_on_co, block_bytes, block);
}
