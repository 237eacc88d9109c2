/*
 * memnode_blocks.c - who has which block of this node.
 *
 * Blocks that come back are kept on a stack per chunk and given out again before a new chunk is opened; a
 * chunk all of whose blocks are back is free again. Every transfer is written into the window before anybody
 * is told, so that after a crash at any point a block is in nobody's hands at the worst until a sweep of that
 * member, and never in two.
 */
#include <string.h>

#include "base/log.h"
#include "pool/broken.h"
#include "pool/intent_fmt.h"
#include "pool/memnode_int.h"

enum { SHORT_PART = 8 }; /* a node that is short of memory gives this part of what is asked for */

struct pool_tenure memnode_tenure(struct memnode *memnode, uint64_t index, uint32_t block)
{
    return pool_tenure_unpack(
        memnode_load(memnode, memnode_block_offset(memnode, index, block) + POOL_BLOCK_TENURE));
}

static void tenure_store(struct memnode *memnode, uint64_t index, uint32_t block,
                         struct fabric_identity holder)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_FREE, .holder = holder};
    memnode_store(memnode, memnode_block_offset(memnode, index, block) + POOL_BLOCK_TENURE,
                  pool_tenure_pack(tenure));
}

static bool not_later(struct fabric_identity one, struct fabric_identity than)
{
    return one.member == than.member &&
           (int16_t)(uint16_t)(one.incarnation - than.incarnation) <= 0;
}

static bool same(struct fabric_identity a, struct fabric_identity b)
{
    return a.member == b.member && a.incarnation == b.incarnation;
}

static uint32_t held_blocks(struct chunk *chunk)
{
    if (chunk->held > 0 && chunk->not_before_ns <= rt_now_ns())
        chunk->held = 0;
    return chunk->held;
}

/* The block that was just pushed goes below those that may be given out. */
static void hold_block(const struct memnode *memnode, struct chunk *chunk)
{
    uint16_t *last = &chunk->free_blocks[chunk->free_count - 1], block = *last;
    uint16_t *first = &chunk->free_blocks[held_blocks(chunk)];
    *last = *first;
    *first = block;
    chunk->held++;
    chunk->not_before_ns = rt_now_ns() + (pool_broken.grace ? 0 : memnode->grace_ns);
}

/* Takes a block back, whose tenure the caller has looked at. False: it cannot be kept track of. */
static bool take_in(struct memnode *memnode, uint64_t index, uint32_t block, bool hold)
{
    struct chunk *chunk = &memnode->chunks[index];
    tenure_store(memnode, index, block, (struct fabric_identity){0});
    if (!memnode_block_push(memnode, index, block))
        return false;
    if (hold)
        hold_block(memnode, chunk);
    return true;
}

/* A chunk is free when all its blocks are back, and none may be read by others any more. */
static bool release_if_whole(struct memnode *memnode, uint64_t index)
{
    struct chunk *chunk = &memnode->chunks[index];
    if (chunk->blocks == 0 || chunk->free_count < chunk->blocks)
        return false;
    if (held_blocks(chunk) > 0) {
        memnode->whole_held = true;
        return false;
    }
    memnode_chunk_release(memnode, index);
    return true;
}

void memnode_release_whole(struct memnode *memnode)
{
    if (!memnode->whole_held)
        return;
    memnode->whole_held = false;
    for (uint64_t index = 0; index < memnode->super.chunks; index++)
        (void)release_if_whole(memnode, index);
}

/* Opens a chunk, for which others may have to be released first. */
static bool open_chunk(struct memnode *memnode, enum pool_chunk_kind kind, uint32_t block_bytes,
                       bool from_reserve)
{
    if (memnode_chunk_open(memnode, kind, block_bytes, from_reserve))
        return true;
    memnode_release_whole(memnode);
    return memnode_chunk_open(memnode, kind, block_bytes, from_reserve);
}

/* ---- giving out ------------------------------------------------------------------------------ */

static uint32_t grant_blocks(struct memnode *memnode, struct fabric_identity to,
                             enum pool_chunk_kind kind, uint32_t block_bytes, uint32_t most,
                             struct pool_block *out)
{
    struct block_class *class = memnode_class(memnode, kind, block_bytes);
    uint32_t count = 0;
    list_for_each_safe (link, &class->chunks) {
        struct chunk *chunk = container_of(link, struct chunk, link);
        uint64_t index = (uint64_t)(chunk - memnode->chunks);
        uint32_t held = held_blocks(chunk);
        while (count < most && chunk->free_count > held) {
            uint32_t block = chunk->free_blocks[--chunk->free_count];
            uint64_t offset = memnode_block_offset(memnode, index, block);
            tenure_store(memnode, index, block, to);
            out[count++] = (struct pool_block){
                .address = fabric_address_make(memnode->super.node, offset),
                .version = memnode_load(memnode, offset + POOL_BLOCK_VERSION),
            };
        }
        if (chunk->free_count == 0)
            list_remove(&chunk->link);
        if (count == most)
            break;
    }
    return count;
}

/* A node that has no chunk to open any more gives few at a time: others need some, too. */
static uint32_t grant_some(struct memnode *memnode, struct fabric_identity to,
                           const struct pool_grant_request *request, struct pool_block *out)
{
    uint32_t bytes = request->block_bytes, most = request->blocks_max;
    if (memnode->chunks_free <= memnode->reserve)
        most = (most + SHORT_PART - 1) / SHORT_PART;
    uint32_t count = grant_blocks(memnode, to, POOL_CHUNK_BLOCKS, bytes, most, out);
    if (count == 0 && most > 0 && open_chunk(memnode, POOL_CHUNK_BLOCKS, bytes, false))
        count = grant_blocks(memnode, to, POOL_CHUNK_BLOCKS, bytes, most, out);
    return count;
}

/* The smallest vital block that is larger. */
static uint32_t grant_larger(struct memnode *memnode, struct fabric_identity to,
                             uint32_t block_bytes, struct pool_block *out)
{
    uint32_t count = 0;
    while (count == 0) {
        const struct block_class *next = NULL;
        for (size_t i = 0; i < CLASSES_MAX; i++) {
            const struct block_class *class = &memnode->classes[i];
            if (class->kind == POOL_CHUNK_VITAL && class->block_bytes > block_bytes &&
                !list_empty(&class->chunks) &&
                (next == NULL || class->block_bytes < next->block_bytes))
                next = class;
        }
        if (next == NULL)
            return 0;
        block_bytes = next->block_bytes;
        count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    }
    return count;
}

/* Of its own kind first; in need any block of that size, or a larger one, and at last one from the last
 * chunks. */
static uint32_t grant_vital(struct memnode *memnode, struct fabric_identity to,
                            uint32_t block_bytes, struct pool_block *out)
{
    uint64_t needs = (block_bytes + (uint64_t)POOL_CHUNK_BYTES - 1) / POOL_CHUNK_BYTES;
    bool last = memnode->reserve > 0 && memnode->chunks_free < needs + (memnode->reserve + 1) / 2;
    uint32_t count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    if (count == 0 && !last && open_chunk(memnode, POOL_CHUNK_VITAL, block_bytes, true))
        count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    /* Slots are looked for in vital chunks only (intent_chunk). */
    if (count == 0 && block_bytes < INTENT_SLOT_BLOCK)
        count = grant_blocks(memnode, to, POOL_CHUNK_BLOCKS, block_bytes, 1, out);
    if (count == 0)
        count = grant_larger(memnode, to, block_bytes, out);
    if (count == 0 && last && block_bytes <= INTENT_SLOT_BLOCK &&
        open_chunk(memnode, POOL_CHUNK_VITAL, INTENT_SLOT_BLOCK, true))
        count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, INTENT_SLOT_BLOCK, 1, out);
    return count;
}

static uint32_t grant_modest(struct memnode *memnode, struct fabric_identity to,
                             uint32_t block_bytes, struct pool_block *out)
{
    if (memnode->chunks_free <= memnode->reserve)
        return 0;
    uint32_t count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    if (count == 0 && open_chunk(memnode, POOL_CHUNK_VITAL, block_bytes, false))
        count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    return count;
}

enum pando_status memnode_grant(struct memnode *memnode, struct fabric_identity to,
                                const struct pool_grant_request *request,
                                struct pool_grant_reply *reply, struct pool_block *blocks)
{
    uint32_t bytes = request->block_bytes;

    rt_latch_lock(&memnode->latch);
    memnode->stats.grants++;
    if (request->kind == POOL_CHUNK_BLOCKS)
        reply->blocks = grant_some(memnode, to, request, blocks);
    else
        reply->blocks = request->modest != 0 ? grant_modest(memnode, to, bytes, blocks)
                                             : grant_vital(memnode, to, bytes, blocks);
    memnode->stats.refusals += reply->blocks == 0;
    reply->chunks = memnode->chunks_free > memnode->reserve
                        ? (uint32_t)(memnode->chunks_free - memnode->reserve)
                        : 0;
    rt_latch_unlock(&memnode->latch);
    return reply->blocks > 0 ? PANDO_OK : PANDO_FULL;
}

/* ---- coming back ----------------------------------------------------------------------------- */

/* Finds the chunk and the block of an address that a client names; false when no block begins there. */
static bool locate(const struct memnode *memnode, fabric_address address, uint64_t *index,
                   uint32_t *block)
{
    uint64_t offset = fabric_address_offset(address);
    if (fabric_address_node(address) != memnode->super.node || offset < memnode->super.heap_offset)
        return false;
    offset -= memnode->super.heap_offset;
    *index = offset / POOL_CHUNK_BYTES;
    offset %= POOL_CHUNK_BYTES;
    if (*index >= memnode->super.chunks)
        return false;
    const struct chunk *chunk = &memnode->chunks[*index];
    if (chunk->blocks == 0 || offset % chunk->entry.block_bytes != 0)
        return false;
    *block = (uint32_t)(offset / chunk->entry.block_bytes);
    return *block < chunk->blocks;
}

/* Only what it holds: a block that is live, or another's, or here already is not taken. */
static bool take_back(struct memnode *memnode, struct fabric_identity from,
                      const struct pool_block *given, bool hold)
{
    uint64_t index;
    uint32_t block;
    if (!locate(memnode, given->address, &index, &block))
        return false;
    struct pool_tenure tenure = memnode_tenure(memnode, index, block);
    if (tenure.state != POOL_BLOCK_FREE || !same(tenure.holder, from) || given->version >> 63 != 0)
        return false;
    uint64_t version_offset = memnode_block_offset(memnode, index, block) + POOL_BLOCK_VERSION;
    if (given->version > memnode_load(memnode, version_offset))
        memnode_store(memnode, version_offset, given->version);
    if (take_in(memnode, index, block, hold))
        (void)release_if_whole(memnode, index);
    return true;
}

/* cpu-visibility (R8): the dead one's last WRITEs went through its own connections. An atomic of
 * ours behind them makes this CPU see them; without it a block just linked could look free. */
static enum pando_status barrier_once_co(struct memnode *memnode)
{
    struct fabric_endpoint *endpoint;
    enum pando_status status = fabric_connect_co(memnode->fabric, memnode->super.node, &endpoint);
    if (status != PANDO_OK)
        return status;
    struct fabric_op add =
        fabric_faa(memnode->first + offsetof(struct pool_superblock, barrier), 1);
    status = fabric_submit_co(endpoint, &add, 1);
    fabric_disconnect_co(endpoint);
    return status;
}

/* An endpoint that the fabric has kept may turn out to be broken; the next is a new one then. */
enum pando_status memnode_barrier_co(struct memnode *memnode)
{
    enum pando_status status = barrier_once_co(memnode);
    return status == PANDO_BROKEN ? barrier_once_co(memnode) : status;
}

enum pando_status memnode_return_co(struct memnode *memnode, struct fabric_identity from,
                                    const struct pool_return_request *request,
                                    const struct pool_block *blocks)
{
    enum pando_status status = memnode_barrier_co(memnode);
    if (status != PANDO_OK)
        return status;
    rt_latch_lock(&memnode->latch);
    memnode->stats.returns++;
    for (uint32_t i = 0; i < request->blocks; i++) {
        if (!take_back(memnode, from, &blocks[i], request->hold != 0))
            status = PANDO_INVALID;
    }
    rt_latch_unlock(&memnode->latch);
    if (status != PANDO_OK)
        log_warn("a client returned blocks that are not its own", log_u64("member", from.member));
    return status;
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* Whose blocks are taken back: a member's that is no more, or a table's that nobody uses any more. */
struct sweep {
    struct fabric_identity dead;
    uint16_t table; /* if not 0 */
};

static bool swept(const struct sweep *sweep, struct pool_tenure tenure)
{
    if (sweep->table != 0)
        return tenure.state == POOL_BLOCK_LIVE && tenure.table == sweep->table;
    return tenure.state == POOL_BLOCK_FREE && not_later(tenure.holder, sweep->dead);
}

static void sweep_chunk(struct memnode *memnode, uint64_t index, const struct sweep *sweep,
                        struct pool_sweep_reply *reply)
{
    struct chunk *chunk = &memnode->chunks[index];
    uint32_t left = chunk->blocks - chunk->free_count; /* the others are here already */
    for (uint32_t block = 0; block < chunk->blocks && left > 0; block++) {
        struct pool_tenure tenure = memnode_tenure(memnode, index, block);
        left -= tenure.state != POOL_BLOCK_FREE || tenure.holder.member != 0;
        if (swept(sweep, tenure))
            reply->blocks += take_in(memnode, index, block, true);
    }
    reply->chunks += release_if_whole(memnode, index);
}

static enum pando_status sweep_co(struct memnode *memnode, const struct sweep *sweep,
                                  struct pool_sweep_reply *reply)
{
    enum pando_status status = memnode_barrier_co(memnode);
    for (uint64_t index = 0; index < memnode->super.chunks && status == PANDO_OK; index++) {
        rt_latch_lock(&memnode->latch);
        sweep_chunk(memnode, index, sweep, reply);
        rt_latch_unlock(&memnode->latch);
        if (index % 16 == 15)
            rt_yield_co();
    }
    return status;
}

enum pando_status memnode_sweep_co(struct memnode *memnode, struct fabric_identity dead,
                                   struct pool_sweep_reply *reply)
{
    struct sweep sweep = {.dead = dead};
    enum pando_status status = sweep_co(memnode, &sweep, reply);
    rt_latch_lock(&memnode->latch);
    memnode->stats.sweeps += status == PANDO_OK;
    if (status == PANDO_OK)
        memnode_waiting_end(memnode, dead);
    rt_latch_unlock(&memnode->latch);
    return status;
}

enum pando_status memnode_sweep_table_co(struct memnode *memnode, uint16_t table,
                                         struct pool_sweep_reply *reply)
{
    struct sweep sweep = {.table = table};
    return sweep_co(memnode, &sweep, reply);
}
