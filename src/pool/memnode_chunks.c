/*
 * memnode_chunks.c - who has which memory of this node.
 *
 * A chunk is free, or was given to a client in blocks of one size, or holds a client's intents, or is
 * given out by the node itself, block by block: what is vital. Blocks that come back are kept on a
 * stack per chunk and given out again before a new chunk is; a chunk all of whose blocks are back is
 * free again. Every transfer is written into the window before anybody is told, so that after a crash
 * at any point a block is in nobody's hands at the worst until a sweep of that member, and never in
 * two.
 *
 * The reserve: the last free chunks are for intents and vital blocks only. Without them nobody could
 * free memory in a node that is full, nor begin to serve what it holds.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/broken.h"
#include "pool/memnode_int.h"

enum { RESERVE_PART = 8, RESERVE_CHUNKS_MAX = 16 };

static uint64_t chunk_offset(const struct memnode *memnode, uint64_t index)
{
    return memnode->super.heap_offset + index * POOL_CHUNK_BYTES;
}

static uint64_t block_offset(const struct memnode *memnode, uint64_t index, uint32_t block)
{
    return chunk_offset(memnode, index) +
           (uint64_t)block * memnode->chunks[index].entry.block_bytes;
}

static uint64_t entry_offset(const struct memnode *memnode, uint64_t index)
{
    return memnode->first + POOL_CHUNK_TABLE + index * POOL_CHUNK_ENTRY_BYTES;
}

/* Offsets come from the chunk table, whose sizes were checked: these cannot be out of range. In a
 * simulation the node may be dead, and then nothing it does matters. */
static uint64_t load(struct memnode *memnode, uint64_t offset)
{
    uint64_t word = 0;
    enum pando_status status = memnode_word_read(memnode, offset, &word);
    pando_assert(status == PANDO_OK || status == PANDO_BROKEN);
    return word;
}

static void store(struct memnode *memnode, uint64_t offset, uint64_t word)
{
    enum pando_status status = memnode_word_write(memnode, offset, word);
    pando_assert(status == PANDO_OK || status == PANDO_BROKEN);
}

static void entry_store(struct memnode *memnode, uint64_t index)
{
    const struct pool_chunk *entry = &memnode->chunks[index].entry;
    store(memnode, entry_offset(memnode, index) + 8, entry->version_floor);
    store(memnode, entry_offset(memnode, index), pool_chunk_pack(entry));
}

static struct pool_tenure tenure_load(struct memnode *memnode, uint64_t index, uint32_t block)
{
    return pool_tenure_unpack(
        load(memnode, block_offset(memnode, index, block) + POOL_BLOCK_TENURE));
}

static void tenure_store(struct memnode *memnode, uint64_t index, uint32_t block,
                         struct fabric_identity holder)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_FREE, .holder = holder};
    store(memnode, block_offset(memnode, index, block) + POOL_BLOCK_TENURE,
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

/* ---- free blocks ----------------------------------------------------------------------------- */

static struct block_class *class_of(struct memnode *memnode, enum pool_chunk_kind kind,
                                    uint32_t block_bytes)
{
    for (size_t i = 0; i < memnode->class_count; i++) {
        struct block_class *class = &memnode->classes[i];
        if (class->kind == kind && class->block_bytes == block_bytes)
            return class;
    }
    if (memnode->class_count == CLASSES_MAX)
        return NULL;
    struct block_class *class = &memnode->classes[memnode->class_count++];
    class->kind = kind;
    class->block_bytes = block_bytes;
    list_init(&class->chunks);
    return class;
}

static void chunk_release(struct memnode *memnode, uint64_t index)
{
    struct chunk *chunk = &memnode->chunks[index];
    uint64_t floor = chunk->entry.version_floor;

    if (chunk->entry.kind != POOL_CHUNK_INTENTS) {
        for (uint32_t block = 0; block < chunk->blocks; block++) {
            uint64_t version =
                load(memnode, block_offset(memnode, index, block) + POOL_BLOCK_VERSION);
            floor = version + 1 > floor ? version + 1 : floor;
        }
    }
    if (!list_empty(&chunk->link))
        list_remove(&chunk->link);
    free(chunk->free_blocks);
    chunk->free_blocks = NULL;
    chunk->free_count = chunk->blocks = chunk->held = 0;
    chunk->entry = (struct pool_chunk){.kind = POOL_CHUNK_FREE, .version_floor = floor};
    entry_store(memnode, index);
    memnode->chunks_free++;
}

/* The block's tenure says so already. False when memory is gone: it stays unused until a restart; or when all are here,
 * because a client has changed the tenure of one that was. */
static bool block_push(struct memnode *memnode, uint64_t index, uint32_t block)
{
    struct chunk *chunk = &memnode->chunks[index];
    struct block_class *class = class_of(memnode, chunk->entry.kind, chunk->entry.block_bytes);
    if (class == NULL || chunk->free_count == chunk->blocks)
        return false;
    if (chunk->free_blocks == NULL) {
        chunk->free_blocks = malloc(chunk->blocks * sizeof(uint32_t));
        if (chunk->free_blocks == NULL)
            return false;
    }
    chunk->free_blocks[chunk->free_count++] = block;
    if (list_empty(&chunk->link))
        list_push_back(&class->chunks, &chunk->link);
    return true;
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
    uint32_t *last = &chunk->free_blocks[chunk->free_count - 1], block = *last;
    uint32_t *first = &chunk->free_blocks[held_blocks(chunk)];
    *last = *first;
    *first = block;
    chunk->held++;
    chunk->not_before_ns = rt_now_ns() + (pool_broken.grace ? 0 : memnode->grace_ns);
}

static uint32_t grant_blocks(struct memnode *memnode, struct fabric_identity to,
                             enum pool_chunk_kind kind, uint32_t block_bytes, uint32_t most,
                             struct pool_block *out)
{
    struct block_class *class = class_of(memnode, kind, block_bytes);
    uint32_t count = 0;
    if (class == NULL)
        return 0;
    list_for_each_safe (link, &class->chunks) {
        struct chunk *chunk = container_of(link, struct chunk, link);
        uint64_t index = (uint64_t)(chunk - memnode->chunks);
        uint32_t held = held_blocks(chunk);
        while (count < most && chunk->free_count > held) {
            uint32_t block = chunk->free_blocks[--chunk->free_count];
            uint64_t offset = block_offset(memnode, index, block);
            tenure_store(memnode, index, block, to);
            out[count++] = (struct pool_block){
                .address = fabric_address_make(memnode->super.node, offset),
                .version = load(memnode, offset + POOL_BLOCK_VERSION),
            };
        }
        if (chunk->free_count == 0)
            list_remove(&chunk->link);
        if (count == most)
            break;
    }
    return count;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A chunk that was used before must not look like it: no old tenure, no old intent. */
static void chunk_clear(struct memnode *memnode, uint64_t index, uint32_t block_bytes)
{
    static const uint8_t zeroes[POOL_BLOCK_HEADER];
    uint64_t at = chunk_offset(memnode, index);
    for (uint64_t done = 0; done + block_bytes <= POOL_CHUNK_BYTES; done += block_bytes) {
        enum pando_status status =
            fabric_self_write(memnode->fabric, at + done, zeroes, sizeof(zeroes));
        pando_assert(status == PANDO_OK || status == PANDO_BROKEN);
    }
}

static bool take_chunk(struct memnode *memnode, enum pool_chunk_kind kind, uint32_t block_bytes,
                       uint64_t *out)
{
    uint64_t kept = kind == POOL_CHUNK_BLOCKS ? memnode->reserve : 0;
    if (memnode->chunks_free <= kept)
        return false;
    uint64_t index = memnode->next_chunk;
    while (memnode->chunks[index].entry.kind != POOL_CHUNK_FREE)
        index = (index + 1) % memnode->super.chunks;
    memnode->next_chunk = (index + 1) % memnode->super.chunks;

    struct chunk *chunk = &memnode->chunks[index];
    chunk_clear(memnode, index, block_bytes);
    chunk->blocks = POOL_CHUNK_BYTES / block_bytes;
    chunk->entry.kind = kind;
    chunk->entry.block_bytes = block_bytes;
    memnode->chunks_free--;
    *out = index;
    return true;
}

static bool grant_chunk(struct memnode *memnode, struct fabric_identity to,
                        enum pool_chunk_kind kind, uint32_t block_bytes,
                        struct pool_grant_reply *reply)
{
    uint64_t index;
    if (!take_chunk(memnode, kind, block_bytes, &index))
        return false;
    struct chunk *chunk = &memnode->chunks[index];
    chunk->entry.owner = to;
    entry_store(memnode, index);
    reply->chunk = fabric_address_make(memnode->super.node, chunk_offset(memnode, index));
    reply->version_floor = chunk->entry.version_floor;
    return true;
}

/* A chunk whose blocks this node gives out itself. They are marked before the chunk is. */
static bool open_vital(struct memnode *memnode, uint32_t block_bytes)
{
    uint64_t index;
    /* Blocks of a size that has no class could not be given out, and the chunk would be lost. */
    if (class_of(memnode, POOL_CHUNK_VITAL, block_bytes) == NULL ||
        !take_chunk(memnode, POOL_CHUNK_VITAL, block_bytes, &index))
        return false;
    struct chunk *chunk = &memnode->chunks[index];
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        store(memnode, block_offset(memnode, index, block) + POOL_BLOCK_VERSION,
              chunk->entry.version_floor);
        tenure_store(memnode, index, block, (struct fabric_identity){0});
    }
    entry_store(memnode, index);
    for (uint32_t block = chunk->blocks; block > 0; block--)
        (void)block_push(memnode, index, block - 1);
    return true;
}

/* Of its own kind first; in need any block of that size. */
static uint32_t grant_vital(struct memnode *memnode, struct fabric_identity to,
                            uint32_t block_bytes, struct pool_block *out)
{
    uint32_t count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    if (count == 0 && open_vital(memnode, block_bytes))
        count = grant_blocks(memnode, to, POOL_CHUNK_VITAL, block_bytes, 1, out);
    if (count == 0)
        count = grant_blocks(memnode, to, POOL_CHUNK_BLOCKS, block_bytes, 1, out);
    return count;
}

enum pando_status memnode_grant(struct memnode *memnode, struct fabric_identity to,
                                const struct pool_grant_request *request,
                                struct pool_grant_reply *reply, struct pool_block *blocks)
{
    enum pando_status status = PANDO_OK;
    enum pool_chunk_kind kind = (enum pool_chunk_kind)request->kind;

    rt_latch_lock(&memnode->latch);
    memnode->stats.grants++;
    if (kind == POOL_CHUNK_BLOCKS)
        reply->blocks =
            grant_blocks(memnode, to, kind, request->block_bytes, request->blocks_max, blocks);
    if (kind == POOL_CHUNK_VITAL)
        reply->blocks = grant_vital(memnode, to, request->block_bytes, blocks);
    if (reply->blocks == 0 && (kind == POOL_CHUNK_VITAL ||
                               !grant_chunk(memnode, to, kind, request->block_bytes, reply))) {
        memnode->stats.refusals++;
        status = PANDO_FULL;
    }
    rt_latch_unlock(&memnode->latch);
    return status;
}

/* ---- coming back ----------------------------------------------------------------------------- */

/* Finds the chunk and the block of an address that a client names; false when there is none such.
 */
static bool locate(const struct memnode *memnode, fabric_address address, uint32_t block_bytes,
                   uint64_t *index, uint32_t *block)
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
    bool blocks = chunk->entry.kind == POOL_CHUNK_BLOCKS || chunk->entry.kind == POOL_CHUNK_VITAL;
    if (!blocks || chunk->entry.block_bytes != block_bytes || offset % block_bytes != 0)
        return false;
    *block = (uint32_t)(offset / block_bytes);
    return *block < chunk->blocks;
}

/* Only what it holds: a block that is live, or another's, or here already is not taken. */
static bool take_back(struct memnode *memnode, struct fabric_identity from, uint32_t block_bytes,
                      const struct pool_block *given)
{
    uint64_t index;
    uint32_t block;
    if (block_bytes == 0 || !locate(memnode, given->address, block_bytes, &index, &block))
        return false;
    struct chunk *chunk = &memnode->chunks[index];
    struct pool_tenure tenure = tenure_load(memnode, index, block);
    bool raw = tenure.state == POOL_BLOCK_RAW && same(chunk->entry.owner, from);
    if (!raw && (tenure.state != POOL_BLOCK_FREE || !same(tenure.holder, from)))
        return false;
    uint64_t version_offset = block_offset(memnode, index, block) + POOL_BLOCK_VERSION;
    uint64_t version = load(memnode, version_offset);
    if (raw && version < chunk->entry.version_floor)
        version = chunk->entry.version_floor;
    if (given->version > version)
        version = given->version;
    store(memnode, version_offset, version);
    tenure_store(memnode, index, block, (struct fabric_identity){0});
    if (!block_push(memnode, index, block))
        return true;
    if (chunk->free_count == chunk->blocks)
        chunk_release(memnode, index);
    return true;
}

/* R8: the dead one's last WRITEs went through its own connections. An atomic of ours behind them
 * makes this CPU see them; without it a block just linked could look free. */
enum pando_status memnode_barrier_co(struct memnode *memnode)
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

enum pando_status memnode_return_co(struct memnode *memnode, struct fabric_identity from,
                                    uint32_t block_bytes, const struct pool_block *blocks,
                                    uint32_t count)
{
    enum pando_status status = memnode_barrier_co(memnode);
    if (status != PANDO_OK)
        return status;
    rt_latch_lock(&memnode->latch);
    memnode->stats.returns++;
    for (uint32_t i = 0; i < count; i++) {
        if (!take_back(memnode, from, block_bytes, &blocks[i]))
            status = PANDO_INVALID;
    }
    rt_latch_unlock(&memnode->latch);
    if (status != PANDO_OK)
        log_warn("a client returned blocks that are not its own", log_u64("member", from.member));
    return status;
}

/* ---- after a death --------------------------------------------------------------------------- */

static void sweep_chunk(struct memnode *memnode, uint64_t index, struct fabric_identity dead,
                        struct pool_sweep_reply *reply)
{
    struct chunk *chunk = &memnode->chunks[index];
    bool owned = not_later(chunk->entry.owner, dead);

    if (chunk->entry.kind == POOL_CHUNK_FREE || chunk->entry.kind == POOL_CHUNK_DAMAGED)
        return;
    if (chunk->entry.kind == POOL_CHUNK_INTENTS) {
        if (owned) {
            chunk_release(memnode, index);
            reply->chunks++;
        }
        return;
    }
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        struct pool_tenure tenure = tenure_load(memnode, index, block);
        bool raw = tenure.state == POOL_BLOCK_RAW && owned;
        if (!raw && (tenure.state != POOL_BLOCK_FREE || !not_later(tenure.holder, dead)))
            continue;
        if (raw)
            store(memnode, block_offset(memnode, index, block) + POOL_BLOCK_VERSION,
                  chunk->entry.version_floor);
        tenure_store(memnode, index, block, (struct fabric_identity){0});
        if (!block_push(memnode, index, block))
            continue;
        hold_block(memnode, chunk);
        reply->blocks++;
    }
    if (owned) {
        chunk->entry.owner = (struct fabric_identity){0};
        entry_store(memnode, index);
    }
    if (chunk->free_count == chunk->blocks) {
        chunk_release(memnode, index);
        reply->chunks++;
    }
}

enum pando_status memnode_sweep_co(struct memnode *memnode, struct fabric_identity dead,
                                   struct pool_sweep_reply *reply)
{
    enum pando_status status = memnode_barrier_co(memnode);
    if (status != PANDO_OK)
        return status;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        rt_latch_lock(&memnode->latch);
        sweep_chunk(memnode, index, dead, reply);
        rt_latch_unlock(&memnode->latch);
        if (index % 16 == 15)
            rt_yield_co();
    }
    rt_latch_lock(&memnode->latch);
    memnode->stats.sweeps++;
    rt_latch_unlock(&memnode->latch);
    return PANDO_OK;
}

/* ---- after a table --------------------------------------------------------------------------- */

static void sweep_table_chunk(struct memnode *memnode, uint64_t index, uint16_t table,
                              struct pool_sweep_reply *reply)
{
    struct chunk *chunk = &memnode->chunks[index];

    if (chunk->entry.kind != POOL_CHUNK_BLOCKS && chunk->entry.kind != POOL_CHUNK_VITAL)
        return;
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        struct pool_tenure tenure = tenure_load(memnode, index, block);
        if (tenure.state != POOL_BLOCK_LIVE || tenure.table != table)
            continue;
        tenure_store(memnode, index, block, (struct fabric_identity){0});
        if (!block_push(memnode, index, block))
            continue;
        hold_block(memnode, chunk);
        reply->blocks++;
    }
    if (chunk->free_count == chunk->blocks) {
        chunk_release(memnode, index);
        reply->chunks++;
    }
}

enum pando_status memnode_sweep_table_co(struct memnode *memnode, uint16_t table,
                                         struct pool_sweep_reply *reply)
{
    enum pando_status status = memnode_barrier_co(memnode);
    for (uint64_t index = 0; index < memnode->super.chunks && status == PANDO_OK; index++) {
        rt_latch_lock(&memnode->latch);
        sweep_table_chunk(memnode, index, table, reply);
        rt_latch_unlock(&memnode->latch);
        if (index % 16 == 15)
            rt_yield_co();
    }
    return status;
}

/* ---- beginning, end, statistics -------------------------------------------------------------- */

static bool entry_plausible(const struct pool_chunk *entry)
{
    return entry->kind <= POOL_CHUNK_VITAL &&
           (entry->kind == POOL_CHUNK_FREE ||
            (entry->block_bytes >= 64 && entry->block_bytes <= POOL_CHUNK_BYTES));
}

static void load_blocks(struct memnode *memnode, uint64_t index)
{
    struct chunk *chunk = &memnode->chunks[index];
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        struct pool_tenure tenure = tenure_load(memnode, index, block);
        if (tenure.state == POOL_BLOCK_FREE && tenure.holder.member == 0)
            (void)block_push(memnode, index, block);
    }
}

enum pando_status memnode_chunks_load(struct memnode *memnode)
{
    memnode->reserve = memnode->super.chunks / RESERVE_PART;
    if (memnode->reserve > RESERVE_CHUNKS_MAX)
        memnode->reserve = RESERVE_CHUNKS_MAX;
    memnode->chunks = calloc(memnode->super.chunks, sizeof(struct chunk));
    if (memnode->chunks == NULL)
        return PANDO_NO_MEMORY;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        struct chunk *chunk = &memnode->chunks[index];
        uint64_t words[2];
        list_init(&chunk->link);
        enum pando_status status =
            fabric_self_read(memnode->fabric, entry_offset(memnode, index), words, sizeof(words));
        if (status != PANDO_OK)
            return status;
        chunk->entry = pool_chunk_unpack(words[0], words[1]);
        if (!entry_plausible(&chunk->entry)) {
            /* What lies there can be read, and be written by who has it; none of it is given out again. */
            log_error("damaged chunk table entry: the chunk is not used any more",
                      log_u64("chunk", index), log_hex("word", words[0]));
            memnode->stats.chunks_damaged++;
            chunk->entry = (struct pool_chunk){.kind = POOL_CHUNK_DAMAGED};
            continue;
        }
        if (chunk->entry.kind == POOL_CHUNK_FREE) {
            memnode->chunks_free++;
            continue;
        }
        chunk->blocks = POOL_CHUNK_BYTES / chunk->entry.block_bytes;
        if (chunk->entry.kind != POOL_CHUNK_INTENTS)
            load_blocks(memnode, index);
    }
    return PANDO_OK;
}

void memnode_chunks_free(struct memnode *memnode)
{
    if (memnode->chunks == NULL)
        return;
    for (uint64_t index = 0; index < memnode->super.chunks; index++)
        free(memnode->chunks[index].free_blocks);
    free(memnode->chunks);
}

void memnode_stats(struct memnode *memnode, struct pool_node_stats *out)
{
    rt_latch_lock(&memnode->latch);
    *out = memnode->stats;
    out->chunks = memnode->super.chunks;
    out->chunks_free = memnode->chunks_free;
    out->chunks_reserved =
        memnode->chunks_free < memnode->reserve ? memnode->chunks_free : memnode->reserve;
    out->starts = memnode->super.starts;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        const struct chunk *chunk = &memnode->chunks[index];
        out->blocks_free_bytes += (uint64_t)chunk->free_count * chunk->entry.block_bytes;
    }
    rt_latch_unlock(&memnode->latch);
}
