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

enum { NUMBERS = POOL_TABLE_NUMBER_MAX + 1, TABLES_FIRST = 256 };

struct counted {
    struct pool_usage_table of;
    uint32_t next; /* of the same table, + 1 */
};

struct tally {
    struct pool_usage_head head;
    struct pool_usage_class classes[POOL_USAGE_CLASSES];
    struct counted *tables;
    uint32_t room;
    uint32_t first[NUMBERS]; /* by table, + 1 */
};

/* NULL: no memory for it. */
static struct pool_usage_table *table_of(struct tally *tally, uint16_t table, uint8_t kind,
                                         uint8_t inner)
{
    for (uint32_t i = tally->tables == NULL ? 0 : tally->first[table]; i != 0;
         i = tally->tables[i - 1].next) {
        if (tally->tables[i - 1].of.kind == kind && tally->tables[i - 1].of.inner == inner)
            return &tally->tables[i - 1].of;
    }
    if (tally->head.tables == tally->room) {
        uint32_t room = tally->room == 0 ? TABLES_FIRST : tally->room * 2;
        struct counted *grown = realloc(tally->tables, room * sizeof(*grown));
        if (grown == NULL)
            return NULL;
        tally->tables = grown;
        tally->room = room;
    }
    struct counted *found = &tally->tables[tally->head.tables++];
    *found = (struct counted){.of = {.table = table, .kind = kind, .inner = inner},
                              .next = tally->first[table]};
    tally->first[table] = tally->head.tables;
    return &found->of;
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

/* 1 for a block above the leaves. A page that is being written may be taken for what it was before. */
static uint8_t inner_of(struct memnode *memnode, uint64_t index, uint32_t block, uint8_t kind)
{
    uint32_t at = memnode->level_at == NULL ? 0 : memnode->level_at(kind);
    if (at == 0 || at >= memnode->chunks[index].entry.block_bytes)
        return 0;
    uint64_t word = memnode_load(memnode, memnode_block_offset(memnode, index, block) + at / 8 * 8);
    return (word >> at % 8 * 8 & 0xff) != 0;
}

static void count_chunk(struct memnode *memnode, uint64_t index, struct tally *tally)
{
    const struct chunk *chunk = &memnode->chunks[index];
    uint32_t bytes = chunk->entry.block_bytes;
    uint32_t held = chunk->not_before_ns > rt_now_ns() ? chunk->held : 0;
    if (chunk->blocks == 0)
        return;
    struct pool_usage_class *class = class_of(tally, &chunk->entry);
    if (class != NULL) {
        class->chunks += bytes > POOL_CHUNK_BYTES ? (bytes - 1) / POOL_CHUNK_BYTES + 1 : 1;
        class->free_bytes += (uint64_t)(chunk->free_count - held) * bytes;
    }
    tally->head.held_bytes += (uint64_t)held * bytes;
    for (uint32_t block = 0; block < chunk->blocks; block++) {
        struct pool_tenure tenure = memnode_tenure(memnode, index, block);
        struct pool_usage_table *table = NULL;
        if (tenure.state == POOL_BLOCK_LIVE)
            table = table_of(tally, tenure.table, tenure.kind,
                             inner_of(memnode, index, block, tenure.kind));
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

/* Tells what waits for a grace period from what else is in members' hands: tenures do not. */
static void count_waiting(const struct memnode *memnode, struct tally *tally)
{
    uint64_t bytes = 0;
    for (unsigned member = 0; member < POOL_MEMBERS; member++)
        bytes += memnode->waiting[member].bytes;
    /* Each member tells of it in its own time. */
    tally->head.waiting_bytes = bytes < tally->head.hands_bytes ? bytes : tally->head.hands_bytes;
    tally->head.hands_bytes -= tally->head.waiting_bytes;
}

static int by_order(const void *a, const void *b)
{
    uint32_t left = pool_usage_order(&((const struct counted *)a)->of);
    uint32_t right = pool_usage_order(&((const struct counted *)b)->of);
    return (left > right) - (left < right);
}

void memnode_usage_free(struct memnode *memnode)
{
    if (memnode->usage != NULL)
        free(memnode->usage->tables);
    free(memnode->usage);
    memnode->usage = NULL;
}

/* The tables from `from` on, as many as a reply has room for. */
static uint32_t pack(const struct tally *tally, uint32_t from, uint8_t *reply)
{
    struct pool_usage_head head = tally->head;
    uint8_t *at = reply + sizeof(head);
    memcpy(at, tally->classes, head.classes * sizeof(tally->classes[0]));
    at += head.classes * sizeof(tally->classes[0]);
    head.tables = 0;
    for (uint32_t i = 0; i < tally->head.tables && head.tables < POOL_USAGE_TABLES; i++) {
        if (pool_usage_order(&tally->tables[i].of) < from)
            continue;
        memcpy(at, &tally->tables[i].of, sizeof(tally->tables[i].of));
        at += sizeof(tally->tables[i].of);
        head.tables++;
    }
    memcpy(reply, &head, sizeof(head));
    return (uint32_t)(at - reply);
}

static enum pando_status count_blocks_co(struct memnode *memnode)
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
    if (tally->head.tables > 0)
        qsort(tally->tables, tally->head.tables, sizeof(tally->tables[0]), by_order);
    rt_latch_lock(&memnode->latch);
    count_waiting(memnode, tally);
    memnode_usage_free(memnode);
    memnode->usage = tally;
    memnode->usage_until_ns = now_ns + (rest_ns < REST_NS_MIN ? REST_NS_MIN : rest_ns);
    rt_latch_unlock(&memnode->latch);
    return PANDO_OK;
}

enum pando_status memnode_usage_co(struct memnode *memnode, uint32_t from, uint8_t *reply,
                                   uint32_t *size)
{
    rt_latch_lock(&memnode->latch);
    bool look = !memnode->usage_looking && rt_now_ns() >= memnode->usage_until_ns;
    memnode->usage_looking |= look;
    rt_latch_unlock(&memnode->latch);
    enum pando_status status = look ? count_blocks_co(memnode) : PANDO_OK;
    rt_latch_lock(&memnode->latch);
    if (look)
        memnode->usage_looking = false;
    if (status == PANDO_OK && memnode->usage == NULL)
        status = PANDO_AGAIN; /* the first look is under way */
    if (status == PANDO_OK)
        *size = pack(memnode->usage, from, reply);
    rt_latch_unlock(&memnode->latch);
    return status;
}

enum pando_status memnode_waiting(struct memnode *memnode, struct fabric_identity from,
                                  uint64_t bytes)
{
    if (from.member == 0 || from.member >= POOL_MEMBERS)
        return PANDO_DENIED;
    if (bytes > memnode->super.chunks * POOL_CHUNK_BYTES)
        return PANDO_INVALID;
    rt_latch_lock(&memnode->latch);
    memnode->waiting[from.member] =
        (struct member_waiting){.incarnation = from.incarnation, .bytes = bytes};
    rt_latch_unlock(&memnode->latch);
    return PANDO_OK;
}

void memnode_waiting_end(struct memnode *memnode, struct fabric_identity gone)
{
    struct member_waiting *waiting = &memnode->waiting[gone.member % POOL_MEMBERS];
    if (waiting->incarnation == gone.incarnation)
        waiting->bytes = 0;
}
