/*
 * memnode_chunks.c - the chunks of this node: free, or cut into blocks of one size.
 *
 * The node cuts them and gives out single blocks (memnode_blocks.c), so that a chunk is shared by all who
 * need its size, and is free again as soon as all its blocks are back. A block that is larger than a chunk
 * takes several in a row: the first has its entry, the others say that they are the rest.
 *
 * The chunk table in the window is written so that a crash at any point leaves a chunk free, or all its
 * blocks in the node's hands:
 *   opening    the headers of the blocks, the entries of the rest, the first entry
 *   releasing  the first entry, the entries of the rest
 * A rest without a first chunk is what a crash in between leaves; it is free.
 *
 * The reserve: the last free chunks are for vital blocks only, slots for intents among them. Without them
 * nobody could free memory in a node that is full, nor begin to serve what it holds. So that they do for
 * every size that is asked for, the last half of them are cut into blocks that are large enough for a slot,
 * and who needs less gets one of these.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/memnode_int.h"

static uint64_t chunk_offset(const struct memnode *memnode, uint64_t index)
{
    return memnode->super.heap_offset + index * POOL_CHUNK_BYTES;
}

uint64_t memnode_block_offset(const struct memnode *memnode, uint64_t index, uint32_t block)
{
    return chunk_offset(memnode, index) +
           (uint64_t)block * memnode->chunks[index].entry.block_bytes;
}

static uint64_t entry_offset(const struct memnode *memnode, uint64_t index)
{
    return memnode->first + POOL_CHUNK_TABLE + index * POOL_CHUNK_ENTRY_BYTES;
}

/* How many chunks a block of that size takes: 1 if several fit into one. */
static uint64_t chunks_for(uint32_t block_bytes)
{
    return (block_bytes + (uint64_t)POOL_CHUNK_BYTES - 1) / POOL_CHUNK_BYTES;
}

/* Offsets come from the chunk table, whose sizes were checked: these cannot be out of range. In a
 * simulation the node may be dead, and then nothing it does matters. */
uint64_t memnode_load(struct memnode *memnode, uint64_t offset)
{
    uint64_t word = 0;
    enum pando_status status = memnode_word_read(memnode, offset, &word);
    pando_assert(status == PANDO_OK || status == PANDO_BROKEN);
    return word;
}

void memnode_store(struct memnode *memnode, uint64_t offset, uint64_t word)
{
    enum pando_status status = memnode_word_write(memnode, offset, word);
    pando_assert(status == PANDO_OK || status == PANDO_BROKEN);
}

static void entry_store(struct memnode *memnode, uint64_t index)
{
    const struct pool_chunk *entry = &memnode->chunks[index].entry;
    memnode_store(memnode, entry_offset(memnode, index) + 8, entry->version_floor);
    memnode_store(memnode, entry_offset(memnode, index), pool_chunk_pack(entry));
}

static void set_kind(struct memnode *memnode, uint64_t index, enum pool_chunk_kind kind,
                     uint32_t block_bytes)
{
    struct pool_chunk *entry = &memnode->chunks[index].entry;
    entry->kind = kind;
    entry->block_bytes = block_bytes;
    entry_store(memnode, index);
}

/* ---- free blocks of a chunk ------------------------------------------------------------------ */

/* The class of a kind and size, or one without chunks that may become it; NULL: all are others'. */
static struct block_class *class_find(struct memnode *memnode, enum pool_chunk_kind kind,
                                      uint32_t block_bytes)
{
    struct block_class *unused = NULL;
    for (size_t i = 0; i < CLASSES_MAX; i++) {
        struct block_class *class = &memnode->classes[i];
        if (class->kind == kind && class->block_bytes == block_bytes)
            return class;
        if (unused == NULL && list_empty(&class->chunks))
            unused = class;
    }
    return unused;
}

/* Another size needs a class, and all have chunks: one gives its place. Its chunks are found again when that
 * size is asked for. Not a vital one, if there is another: larger blocks are looked for in those. */
static struct block_class *class_displace(struct memnode *memnode)
{
    struct block_class *class = NULL;
    for (size_t i = 0; i < CLASSES_MAX; i++) {
        class = &memnode->classes[memnode->class_next++ % CLASSES_MAX];
        if (class->kind != POOL_CHUNK_VITAL)
            break;
    }
    while (list_pop_front(&class->chunks) != NULL) {
    }
    memnode->classes_short = true;
    return class;
}

struct block_class *memnode_class(struct memnode *memnode, enum pool_chunk_kind kind,
                                  uint32_t block_bytes)
{
    struct block_class *class = class_find(memnode, kind, block_bytes);
    if (class == NULL)
        class = class_displace(memnode);
    if (class->kind == kind && class->block_bytes == block_bytes)
        return class;
    class->kind = kind;
    class->block_bytes = block_bytes;
    for (uint64_t i = 0; i < memnode->super.chunks && memnode->classes_short; i++) {
        struct chunk *chunk = &memnode->chunks[i];
        if (chunk->free_count > 0 && chunk->entry.kind == kind &&
            chunk->entry.block_bytes == block_bytes && list_empty(&chunk->link))
            list_push_back(&class->chunks, &chunk->link);
    }
    return class;
}

/* The block's tenure says already that the node has it. False when memory is gone: it stays unused until a
 * restart; or when all are here, because a client has changed the tenure of one that was. */
bool memnode_block_push(struct memnode *memnode, uint64_t index, uint32_t block)
{
    struct chunk *chunk = &memnode->chunks[index];
    if (chunk->free_count == chunk->blocks)
        return false;
    if (chunk->free_blocks == NULL) {
        chunk->free_blocks = malloc(chunk->blocks * sizeof(chunk->free_blocks[0]));
        if (chunk->free_blocks == NULL)
            return false;
    }
    chunk->free_blocks[chunk->free_count++] = (uint16_t)block;
    if (!list_empty(&chunk->link))
        return true;
    if (class_find(memnode, chunk->entry.kind, chunk->entry.block_bytes) == NULL) {
        memnode->classes_short = true; /* it is in none until its size is asked for */
        return true;
    }
    struct block_class *class = memnode_class(memnode, chunk->entry.kind, chunk->entry.block_bytes);
    if (list_empty(&chunk->link)) /* the class may have found it already */
        list_push_back(&class->chunks, &chunk->link);
    return true;
}

/* ---- opening and releasing ------------------------------------------------------------------- */

/* The first of `count` free chunks in a row, from the lowest on; super.chunks if there are none. */
static uint64_t find_free(struct memnode *memnode, uint64_t count)
{
    uint64_t run = 0, index = memnode->lowest_free;
    bool first = true;
    for (; index < memnode->super.chunks && run < count; index++) {
        bool is_free = memnode->chunks[index].entry.kind == POOL_CHUNK_FREE;
        if (is_free && first) {
            memnode->lowest_free = index;
            first = false;
        }
        run = is_free ? run + 1 : 0;
    }
    return run == count ? index - count : memnode->super.chunks;
}

/* What a chunk was before must not be seen: no old tenure, no old cell. */
static void format_blocks(struct memnode *memnode, uint64_t index)
{
    const struct chunk *chunk = &memnode->chunks[index];
    uint64_t header[POOL_BLOCK_HEADER / 8] = {
        [POOL_BLOCK_VERSION / 8] = chunk->entry.version_floor,
        [POOL_BLOCK_TENURE / 8] = pool_tenure_pack((struct pool_tenure){.state = POOL_BLOCK_FREE}),
    };
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        enum pando_status status = fabric_self_write(
            memnode->fabric, memnode_block_offset(memnode, index, block), header, sizeof(header));
        pando_assert(status == PANDO_OK || status == PANDO_BROKEN);
    }
}

bool memnode_chunk_open(struct memnode *memnode, enum pool_chunk_kind kind, uint32_t block_bytes,
                        bool from_reserve)
{
    uint64_t count = chunks_for(block_bytes), kept = from_reserve ? 0 : memnode->reserve;
    if (memnode->chunks_free < count + kept)
        return false;
    uint64_t index = find_free(memnode, count);
    if (index == memnode->super.chunks)
        return false;

    struct chunk *chunk = &memnode->chunks[index];
    chunk->entry.kind = kind;
    chunk->entry.block_bytes = block_bytes;
    chunk->blocks = pool_chunk_blocks(&chunk->entry);
    format_blocks(memnode, index);
    for (uint64_t i = 1; i < count; i++)
        set_kind(memnode, index + i, POOL_CHUNK_REST, 0);
    entry_store(memnode, index);
    memnode->chunks_free -= count;
    for (uint32_t block = chunk->blocks; block > 0; block--)
        (void)memnode_block_push(memnode, index, block - 1);
    return true;
}

void memnode_chunk_release(struct memnode *memnode, uint64_t index)
{
    struct chunk *chunk = &memnode->chunks[index];
    uint64_t count = chunks_for(chunk->entry.block_bytes);

    for (uint32_t block = 0; block < chunk->blocks; block++) {
        uint64_t version =
            memnode_load(memnode, memnode_block_offset(memnode, index, block) + POOL_BLOCK_VERSION);
        if (version + 1 > chunk->entry.version_floor)
            chunk->entry.version_floor = version + 1;
    }
    if (!list_empty(&chunk->link))
        list_remove(&chunk->link);
    free(chunk->free_blocks);
    chunk->free_blocks = NULL;
    chunk->free_count = chunk->blocks = chunk->held = 0;
    for (uint64_t i = 0; i < count; i++)
        set_kind(memnode, index + i, POOL_CHUNK_FREE, 0);
    memnode->chunks_free += count;
    if (index < memnode->lowest_free)
        memnode->lowest_free = index;
}

/* ---- beginning, end, statistics -------------------------------------------------------------- */

static bool entry_plausible(const struct memnode *memnode, uint64_t index)
{
    const struct pool_chunk *entry = &memnode->chunks[index].entry;
    if (entry->kind == POOL_CHUNK_FREE || entry->kind == POOL_CHUNK_REST)
        return entry->block_bytes == 0;
    return entry->kind != POOL_CHUNK_DAMAGED && entry->block_bytes >= 64 &&
           entry->block_bytes <= POOL_BLOCK_MAX &&
           chunks_for(entry->block_bytes) <= memnode->super.chunks - index;
}

static void set_damaged(struct memnode *memnode, uint64_t index)
{
    memnode->chunks[index].entry = (struct pool_chunk){.kind = POOL_CHUNK_DAMAGED};
    memnode->stats.chunks_damaged++;
}

static enum pando_status load_entry(struct memnode *memnode, uint64_t index)
{
    struct chunk *chunk = &memnode->chunks[index];
    uint64_t words[2];
    list_init(&chunk->link);
    enum pando_status status =
        fabric_self_read(memnode->fabric, entry_offset(memnode, index), words, sizeof(words));
    if (status != PANDO_OK)
        return status;
    chunk->entry = pool_chunk_unpack(words[0], words[1]);
    if (!entry_plausible(memnode, index)) {
        /* What lies there can be read, and be written by who has it; none of it is given out again. */
        log_error("damaged chunk table entry: the chunk is not used any more",
                  log_u64("chunk", index), log_hex("word", words[0]));
        set_damaged(memnode, index);
    }
    return PANDO_OK;
}

/* Checks that the chunks of a large block say that they are its rest. They do after any crash, so anything
 * else is damage, of the first entry or of one of the others. Nobody can tell of which: none of the chunks
 * that the block may have is given out, except those that are in use as chunks of their own. */
static void check_rests(struct memnode *memnode, uint64_t index)
{
    uint64_t end = index + chunks_for(memnode->chunks[index].entry.block_bytes), rest = index + 1;
    while (rest < end && memnode->chunks[rest].entry.kind == POOL_CHUNK_REST)
        rest++;
    if (rest == end)
        return;
    log_error("damaged chunk table: a large block's chunks are not used any more",
              log_u64("chunk", index), log_u64("disagrees", rest));
    for (uint64_t i = index; i < end; i++) {
        enum pool_chunk_kind kind = memnode->chunks[i].entry.kind;
        if (i == index || kind == POOL_CHUNK_FREE || kind == POOL_CHUNK_REST)
            set_damaged(memnode, i);
    }
}

/* Rests that no block claims are free: a crash left them. Behind a damaged entry they may be part of a block
 * that is in use, and count as damaged. */
static void load_rests(struct memnode *memnode)
{
    uint64_t claimed = 0, damaged = 0;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        const struct pool_chunk *entry = &memnode->chunks[index].entry;
        if (pool_chunk_blocks(entry) > 0)
            check_rests(memnode, index);
        if (pool_chunk_blocks(entry) > 0)
            claimed = index + chunks_for(entry->block_bytes);
        if (entry->kind == POOL_CHUNK_DAMAGED)
            damaged = index + POOL_BLOCK_MAX / POOL_CHUNK_BYTES;
        if (entry->kind == POOL_CHUNK_REST && index >= claimed) {
            if (index < damaged)
                set_damaged(memnode, index);
            else
                set_kind(memnode, index, POOL_CHUNK_FREE, 0);
        }
    }
}

static void load_blocks(struct memnode *memnode, uint64_t index)
{
    struct chunk *chunk = &memnode->chunks[index];
    chunk->blocks = pool_chunk_blocks(&chunk->entry);
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        struct pool_tenure tenure = memnode_tenure(memnode, index, block);
        if (tenure.state == POOL_BLOCK_FREE && tenure.holder.member == 0)
            (void)memnode_block_push(memnode, index, block);
    }
    if (chunk->blocks > 0 && chunk->free_count == chunk->blocks)
        memnode_chunk_release(memnode, index);
}

enum pando_status memnode_chunks_load(struct memnode *memnode)
{
    memnode->reserve = pool_reserve_chunks(memnode->super.chunks);
    for (size_t i = 0; i < CLASSES_MAX; i++)
        list_init(&memnode->classes[i].chunks);
    memnode->chunks = calloc(memnode->super.chunks, sizeof(struct chunk));
    if (memnode->chunks == NULL)
        return PANDO_NO_MEMORY;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        enum pando_status status = load_entry(memnode, index);
        if (status != PANDO_OK)
            return status;
    }
    load_rests(memnode);
    for (uint64_t index = 0; index < memnode->super.chunks; index++)
        memnode->chunks_free += memnode->chunks[index].entry.kind == POOL_CHUNK_FREE;
    for (uint64_t index = 0; index < memnode->super.chunks; index++)
        load_blocks(memnode, index);
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
    memnode_release_whole(memnode);
    *out = memnode->stats;
    out->chunks = memnode->super.chunks;
    out->chunks_free = memnode->chunks_free;
    out->chunks_reserved =
        memnode->chunks_free < memnode->reserve ? memnode->chunks_free : memnode->reserve;
    out->starts = memnode->super.starts;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        const struct chunk *chunk = &memnode->chunks[index];
        bool whole = chunk->blocks > 0 && chunk->free_count == chunk->blocks;
        out->blocks_free_bytes += whole ? chunks_for(chunk->entry.block_bytes) * POOL_CHUNK_BYTES
                                        : (uint64_t)chunk->free_count * chunk->entry.block_bytes;
    }
    rt_latch_unlock(&memnode->latch);
}
