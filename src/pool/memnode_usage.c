/*
 * memnode_usage.c - what this node's memory is used for, by a look at every block's tenure. That takes a while in
 * a large node, so the last result is told again for twenty times as long as it took.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/intent_fmt.h"
#include "pool/memnode_int.h"

enum { REST_PART = 20, CHUNKS_A_TURN = 16 };

static const uint64_t REST_NS_MIN = RT_NS_PER_S / 2;

struct tally {
    struct pool_usage_head head;
    struct pool_usage_class classes[POOL_USAGE_CLASSES];
    struct pool_usage_table tables[POOL_USAGE_TABLES];
};

/* NULL: there are too many. */
static struct pool_usage_table *table_of(struct tally *tally, uint16_t table, uint8_t kind)
{
    for (uint32_t i = tally->head.tables; i-- > 0;) { /* neighbours are mostly alike */
        if (tally->tables[i].table == table && tally->tables[i].kind == kind)
            return &tally->tables[i];
    }
    if (tally->head.tables == POOL_USAGE_TABLES)
        return NULL;
    struct pool_usage_table *found = &tally->tables[tally->head.tables++];
    *found = (struct pool_usage_table){.table = table, .kind = kind};
    return found;
}

static struct pool_usage_class *class_of(struct tally *tally, const struct pool_chunk *entry)
{
    for (uint32_t i = 0; i < tally->head.classes; i++) {
        struct pool_usage_class *class = &tally->classes[i];
        if (class->block_bytes == entry->block_bytes && class->kind == (uint32_t)entry->kind)
            return class;
    }
    if (tally->head.classes == POOL_USAGE_CLASSES)
        return NULL;
    struct pool_usage_class *class = &tally->classes[tally->head.classes++];
    *class = (struct pool_usage_class){.block_bytes = entry->block_bytes, .kind = entry->kind};
    return class;
}

static void count_chunk(struct memnode *memnode, uint64_t index, struct tally *tally)
{
    const struct chunk *chunk = &memnode->chunks[index];
    uint32_t bytes = chunk->entry.block_bytes;
    if (chunk->blocks == 0)
        return;
    struct pool_usage_class *class = class_of(tally, &chunk->entry);
    if (class != NULL) {
        class->chunks += bytes > POOL_CHUNK_BYTES ? (bytes - 1) / POOL_CHUNK_BYTES + 1 : 1;
        class->free_bytes += (uint64_t)chunk->free_count * bytes;
    }
    if (chunk->not_before_ns > rt_now_ns())
        tally->head.held_bytes += (uint64_t)chunk->held * bytes;
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        struct pool_tenure tenure = memnode_tenure(memnode, index, block);
        struct pool_usage_table *table = NULL;
        if (tenure.state == POOL_BLOCK_LIVE)
            table = table_of(tally, tenure.table, tenure.kind);
        if (table != NULL) {
            table->bytes += bytes;
            table->blocks++;
        } else if (intent_slot_tenure(tenure)) {
            tally->head.slots_bytes += bytes;
        } else if (tenure.state == POOL_BLOCK_FREE && tenure.holder.member != 0) {
            tally->head.hands_bytes += bytes;
        }
    }
}

static void pack(struct memnode *memnode, const struct tally *tally)
{
    uint8_t *at = memnode->usage;
    memcpy(at, &tally->head, sizeof(tally->head));
    at += sizeof(tally->head);
    memcpy(at, tally->classes, tally->head.classes * sizeof(tally->classes[0]));
    at += tally->head.classes * sizeof(tally->classes[0]);
    memcpy(at, tally->tables, tally->head.tables * sizeof(tally->tables[0]));
    at += tally->head.tables * sizeof(tally->tables[0]);
    memnode->usage_bytes = (uint32_t)(at - memnode->usage);
}

static enum pando_status look_co(struct memnode *memnode)
{
    struct tally *tally = calloc(1, sizeof(*tally));
    uint64_t begin_ns = rt_now_ns();
    if (tally == NULL)
        return PANDO_NO_MEMORY;
    for (uint64_t index = 0; index < memnode->super.chunks; index++) {
        rt_latch_lock(&memnode->latch);
        count_chunk(memnode, index, tally);
        rt_latch_unlock(&memnode->latch);
        if (index % CHUNKS_A_TURN == CHUNKS_A_TURN - 1)
            rt_yield_co();
    }
    uint64_t now_ns = rt_now_ns(), rest_ns = (now_ns - begin_ns) * REST_PART;
    rt_latch_lock(&memnode->latch);
    pack(memnode, tally);
    memnode->usage_until_ns = now_ns + (rest_ns < REST_NS_MIN ? REST_NS_MIN : rest_ns);
    rt_latch_unlock(&memnode->latch);
    free(tally);
    return PANDO_OK;
}

enum pando_status memnode_usage_co(struct memnode *memnode, uint8_t *reply, uint32_t *size)
{
    rt_latch_lock(&memnode->latch);
    bool look = !memnode->usage_looking && rt_now_ns() >= memnode->usage_until_ns;
    memnode->usage_looking |= look;
    rt_latch_unlock(&memnode->latch);
    enum pando_status status = look ? look_co(memnode) : PANDO_OK;
    rt_latch_lock(&memnode->latch);
    if (look)
        memnode->usage_looking = false;
    if (status == PANDO_OK && memnode->usage_bytes == 0)
        status = PANDO_AGAIN; /* the first look is under way */
    *size = memnode->usage_bytes;
    memcpy(reply, memnode->usage, memnode->usage_bytes);
    rt_latch_unlock(&memnode->latch);
    return status;
}
