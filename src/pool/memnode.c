#include "pool/memnode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/memnode_int.h"

static const uint64_t GRACE_NS = 2 * RT_NS_PER_S;

uint64_t memnode_bytes_min(void)
{
    return 32 * 1024 + POOL_CHUNK_TABLE + 4096 + POOL_CHUNK_BYTES;
}

/* ---- superblock ------------------------------------------------------------------------------ */

enum pando_status memnode_word_read(struct memnode *memnode, uint64_t offset, uint64_t *out)
{
    return fabric_self_read(memnode->fabric, offset, out, sizeof(*out));
}

enum pando_status memnode_word_write(struct memnode *memnode, uint64_t offset, uint64_t word)
{
    return fabric_self_write(memnode->fabric, offset, &word, sizeof(word));
}

/* Node 0 has the tables' directory: a part of its window, within bounds. */
static uint64_t directory_groups(uint16_t node, uint64_t window_bytes)
{
    uint64_t groups = window_bytes / POOL_DIRECTORY_PART / POOL_GROUP_BYTES;
    if (node != 0)
        return 0;
    return groups < POOL_GROUPS_MIN ? POOL_GROUPS_MIN
                                    : (groups > POOL_GROUPS_MAX ? POOL_GROUPS_MAX : groups);
}

static uint64_t directory_offset(uint64_t first, uint64_t window_bytes)
{
    uint64_t most = window_bytes / POOL_CHUNK_BYTES;
    uint64_t end = first + POOL_CHUNK_TABLE + most * POOL_CHUNK_ENTRY_BYTES;
    return (end + 4095) / 4096 * 4096;
}

static uint64_t heap_offset(uint16_t node, uint64_t first, uint64_t window_bytes)
{
    return directory_offset(first, window_bytes) +
           directory_groups(node, window_bytes) * POOL_GROUP_BYTES;
}

static enum pando_status format(struct memnode *memnode)
{
    struct fabric *fabric = memnode->fabric;
    struct pool_superblock *super = &memnode->super;
    uint64_t first = memnode->first;

    *super = (struct pool_superblock){
        .version = POOL_VERSION,
        .node = fabric_self(fabric),
        .heap_offset = heap_offset(fabric_self(fabric), first, fabric_window_bytes(fabric)),
        .groups = directory_groups(fabric_self(fabric), fabric_window_bytes(fabric)),
        .locks = POOL_LOCKS,
        .locks_life = 1,
        .replaces = memnode->replace ? 1 : 0,
    };
    super->chunks = (fabric_window_bytes(fabric) - super->heap_offset) / POOL_CHUNK_BYTES;
    if (super->node == 0) {
        super->pool_id = memnode_random(memnode) | 1;
        super->directory = directory_offset(first, fabric_window_bytes(fabric));
    }
    enum pando_status status = fabric_self_write(fabric, first, super, sizeof(*super));
    if (status != PANDO_OK)
        return status;
    /* The magic last: half a format is none. */
    super->magic = POOL_MAGIC;
    return memnode_word_write(memnode, first, super->magic);
}

static enum pando_status check(struct memnode *memnode, char *error, size_t error_bytes)
{
    const struct pool_superblock *super = &memnode->super;
    uint64_t window_bytes = fabric_window_bytes(memnode->fabric);

    if (super->version != POOL_VERSION) {
        snprintf(
            error, error_bytes,
            "pool format version %u, this program has %u; its contents are untouched: dump its "
            "tables with the program that made it (pando dump) and load them with this one (pando "
            "load) into a window under another name",
            super->version, POOL_VERSION);
        return PANDO_VERSION;
    }
    if (super->node != fabric_self(memnode->fabric)) {
        snprintf(error, error_bytes, "the window holds node %u, not node %u; give --node %u",
                 super->node, fabric_self(memnode->fabric), super->node);
        return PANDO_INVALID;
    }
    if (super->heap_offset != heap_offset(super->node, memnode->first, window_bytes) ||
        super->groups != directory_groups(super->node, window_bytes) ||
        (super->groups > 0 && super->directory != directory_offset(memnode->first, window_bytes)) ||
        super->chunks != (window_bytes - super->heap_offset) / POOL_CHUNK_BYTES ||
        super->locks != POOL_LOCKS) {
        snprintf(error, error_bytes, "damaged superblock: its sizes do not fit the window");
        return PANDO_CORRUPT;
    }
    return PANDO_OK;
}

static enum pando_status mark_all_locks(struct memnode *memnode)
{
    enum { WORDS = 512 };
    uint64_t words[WORDS];
    enum pando_status status = PANDO_OK;
    _Static_assert(POOL_LOCKS % WORDS == 0, "whole pieces");

    for (unsigned i = 0; i < WORDS; i++)
        words[i] = POOL_LOCK_DEATHS_MAX;
    for (uint64_t at = 0; at < POOL_LOCKS && status == PANDO_OK; at += WORDS)
        status = fabric_self_write(memnode->fabric, FABRIC_DEVICE + at * 8, words, sizeof(words));
    return status;
}

/* A window that has nothing in it may take the place of a lost one. */
static enum pando_status check_replace(struct memnode *memnode, char *error, size_t error_bytes)
{
    struct pool_superblock *super = &memnode->super;
    uint16_t node = fabric_self(memnode->fabric);

    if (!memnode->replace)
        return PANDO_OK;
    if (node == 0) {
        snprintf(
            error, error_bytes,
            "node 0 has the pool's members and tables and cannot be replaced: if its memory is "
            "lost, so is the pool; to begin anew, start every node with a new --shm name");
        return PANDO_INVALID;
    }
    if (super->magic != POOL_MAGIC || super->replaces == 1)
        return PANDO_OK; /* new, or on the way */
    if (super->pool_id != 0) {
        snprintf(
            error, error_bytes,
            "the window has the memory of a pool in it, which --replace would give up; start it "
            "with --node %u, or name another --shm",
            node);
        return PANDO_INVALID;
    }
    super->replaces = 1;
    return memnode_word_write(memnode, memnode->first + offsetof(struct pool_superblock, replaces),
                              1);
}

static enum pando_status open_superblock(struct memnode *memnode, char *error, size_t error_bytes)
{
    enum pando_status status =
        fabric_self_read(memnode->fabric, memnode->first, &memnode->super, sizeof(memnode->super));
    if (status != PANDO_OK)
        return status;
    /* A format that was cut off is begun anew. One that was whole once has been started. */
    if (memnode->super.magic != POOL_MAGIC && memnode->super.starts > 0) {
        snprintf(
            error, error_bytes,
            "damaged superblock: it has no magic number, but was in use; restore the window, or "
            "start with an empty one");
        return PANDO_CORRUPT;
    }
    status = check_replace(memnode, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    status =
        memnode->super.magic != POOL_MAGIC ? format(memnode) : check(memnode, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    /* Whoever held a lock finds out by this that it holds it no more. Who of them died is lost, too:
     * any word may be one that a holder died with. */
    if (fabric_device_lost(memnode->fabric)) {
        status = mark_all_locks(memnode);
        if (status != PANDO_OK)
            return status;
        memnode->super.locks_life++;
        status = memnode_word_write(memnode,
                                    memnode->first + offsetof(struct pool_superblock, locks_life),
                                    memnode->super.locks_life);
        if (status != PANDO_OK)
            return status;
    }
    memnode->super.starts++;
    return memnode_word_write(memnode, memnode->first + offsetof(struct pool_superblock, starts),
                              memnode->super.starts);
}

/* ---- opening --------------------------------------------------------------------------------- */

uint64_t memnode_random(struct memnode *memnode)
{
    return hash_u64(memnode->seed += 0x9e3779b97f4a7c15u);
}

enum pando_status memnode_open(struct fabric *fabric, const struct memnode_options *options,
                               struct memnode **out, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes, "cannot open the pool's part of the window");
    if (fabric_window_bytes(fabric) < memnode_bytes_min() ||
        fabric_device_bytes(fabric) < MEMNODE_DEVICE_BYTES) {
        snprintf(error, error_bytes,
                 "a memory node needs at least %llu bytes; give a larger --size",
                 (unsigned long long)memnode_bytes_min());
        return PANDO_INVALID;
    }
    struct memnode *memnode = calloc(1, sizeof(*memnode));
    if (memnode == NULL)
        return PANDO_NO_MEMORY;
    memnode->fabric = fabric;
    memnode->first = fabric_window_first(fabric);
    memnode->grace_ns = options->grace_ns == 0 ? GRACE_NS : options->grace_ns;
    memnode->work = options->work;
    memnode->level_at = options->level_at;
    memnode->replace = options->replace;
    memnode->seed = options->seed == 0 ? rt_entropy() : options->seed;
    enum pando_status status = open_superblock(memnode, error, error_bytes);
    if (status == PANDO_OK)
        status = memnode_chunks_load(memnode);
    if (status == PANDO_OK)
        status = memnode_intents_redo(memnode);
    if (status != PANDO_OK) {
        memnode_close(memnode);
        return status;
    }
    memnode_judge_start(memnode);
    fabric_serve(fabric, memnode_serve, memnode);
    fabric_on_window_refusal(fabric, memnode_refusal, memnode);
    *out = memnode;
    return PANDO_OK;
}

void memnode_close(struct memnode *memnode)
{
    memnode_chunks_free(memnode);
    memnode_usage_free(memnode);
    free(memnode);
}
