/*
 * uses.c - which nodes a table has memory on, so that it is known what is lost with a node.
 *
 * The entry's word `uses` says: at epoch E of the pool the table had blocks on these nodes and on no
 * others, and all of them were in the windows that the pool had then. A bit is set before the first
 * block that the table gets from a node is written, by
 *
 *     READ the word and the epoch    the epoch is still the one at which this member joined
 *     CAS the word                   {nodes, E} -> {nodes and one more, this member's epoch}
 *     READ the epoch, behind it      unchanged: the bit was there before any later replacement
 *
 * and whoever replaces a window moves the epoch on (windows.c). So a table is damaged if, and but for a
 * death in the middle of these steps only if, it had blocks in a window that is gone: some node among
 * its nodes has a window since an epoch later than E. A table whose bit could only be set for a
 * window that has come since is sound. Pools of more than 40 nodes share bits, on the safe side.
 *
 * The bits that are known to be set are kept here, so that this costs round trips once per table,
 * node and process.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pool/directory_int.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

enum { MARK_TRIES = 64 };

/* What is known of a table's word, by the table's number: slot + 1, and the bits that are set. */
static uint64_t known_pack(unsigned slot, uint64_t nodes)
{
    return (uint64_t)(slot + 1) << POOL_USES_NODES | nodes;
}

_Atomic uint64_t *pool_uses_create(void)
{
    return calloc(POOL_TABLE_NUMBER_MAX + 1, sizeof(_Atomic uint64_t));
}

static bool lost(const struct pool *pool, struct pool_uses uses, uint16_t *node)
{
    for (*node = 0; *node < pool->nodes; (*node)++) {
        if ((uses.nodes & pool_uses_bit(*node)) != 0 && pool->windows[*node].since > uses.epoch)
            return true;
    }
    return false;
}

bool pool_table_lost(const struct pool *pool, const struct pool_entry *entry, uint16_t *node)
{
    return lost(pool, pool_uses_unpack(entry->uses), node);
}

void pool_uses_learn(struct pool *pool, unsigned slot, const struct pool_entry *entry)
{
    struct pool_uses uses = pool_uses_unpack(entry->uses);
    uint16_t node;
    if (entry->table <= POOL_TABLE_NUMBER_MAX) /* one that is damaged gets no memory */
        atomic_store(&pool->uses[entry->table],
                     known_pack(slot, lost(pool, uses, &node) ? 0 : uses.nodes));
}

/* ---- marking --------------------------------------------------------------------------------- */

struct mark {
    uint64_t word, epoch, table;
};

static enum pando_status read_uses_co(struct pool_session *session, unsigned slot,
                                      struct mark *mark)
{
    struct pool *pool = session->pool;
    uint64_t entry = pool_entry_offset(pool, slot);
    struct fabric_op ops[] = {
        fabric_read(entry + offsetof(struct pool_entry, uses), &mark->word, sizeof(mark->word)),
        fabric_read(entry + offsetof(struct pool_entry, table), &mark->table, sizeof(mark->table)),
        fabric_read(pool->first + POOL_EPOCH, &mark->epoch, sizeof(mark->epoch)),
    };
    return pool_submit_co(session, 0, ops, 3);
}

/* One try; AGAIN: somebody else changed the word. */
static enum pando_status mark_once_co(struct pool_session *session, unsigned slot, uint64_t table,
                                      uint64_t bit, uint64_t *nodes)
{
    struct pool *pool = session->pool;
    struct mark mark;
    uint16_t node;
    enum pando_status status = read_uses_co(session, slot, &mark);
    if (status != PANDO_OK)
        return status;
    if (mark.epoch != pool->epoch)
        return pool_epoch_over(pool);
    if (mark.table != table)
        return PANDO_STALE;
    struct pool_uses uses = pool_uses_unpack(mark.word);
    if (lost(pool, uses, &node))
        return PANDO_CORRUPT;
    *nodes = uses.nodes | bit;
    if (*nodes == uses.nodes)
        return PANDO_OK;
    uint64_t at = pool_entry_offset(pool, slot) + offsetof(struct pool_entry, uses);
    uint64_t next = pool_uses_pack((struct pool_uses){.nodes = *nodes, .epoch = pool->epoch});
    struct fabric_op ops[] = {
        fabric_cas(at, mark.word, next),
        fabric_read(pool->first + POOL_EPOCH, &mark.epoch, sizeof(mark.epoch)),
    };
    status = pool_submit_co(session, 0, ops, 2);
    if (status != PANDO_OK)
        return status;
    if (ops[0].old != mark.word)
        return PANDO_AGAIN;
    if (mark.epoch == pool->epoch)
        return PANDO_OK;
    /* A window was replaced in between, and the table has nothing there. */
    struct fabric_op undo = fabric_cas(at, next, mark.word);
    status = pool_submit_co(session, 0, &undo, 1);
    (void)status;
    return pool_epoch_over(pool);
}

struct numbered {
    struct pool *pool;
    uint64_t table;
};

static bool learn_number(void *context, unsigned slot, const struct pool_entry *entry)
{
    const struct numbered *numbered = context;
    if (entry->table != numbered->table)
        return true;
    pool_uses_learn(numbered->pool, slot, entry);
    return false;
}

/* A table that was neither opened nor created here. One that is in no directory has nothing to lose by
 * name: all bits are known to be set. */
static enum pando_status find_co(struct pool_session *session, uint16_t table, uint64_t *known)
{
    struct pool *pool = session->pool;
    struct numbered numbered = {.pool = pool, .table = table};
    uint64_t unknown = 0;
    enum pando_status status = pool_directory_each_co(session, learn_number, &numbered);
    if (status == PANDO_OK)
        (void)atomic_compare_exchange_strong(
            &pool->uses[table], &unknown,
            known_pack(pool_tables_max(pool), ((uint64_t)1 << POOL_USES_NODES) - 1));
    *known = atomic_load(&pool->uses[table]);
    return status;
}

enum pando_status pool_table_uses_co(struct pool_session *session, uint16_t table, uint16_t node)
{
    struct pool *pool = session->pool;
    uint64_t bit = pool_uses_bit(node), nodes = 0;
    uint64_t known = atomic_load_explicit(&pool->uses[table], memory_order_relaxed);
    enum pando_status status = PANDO_AGAIN;

    if ((known & bit) != 0)
        return PANDO_OK;
    if (known >> POOL_USES_NODES == 0) {
        status = find_co(session, table, &known);
        if (status != PANDO_OK || (known & bit) != 0)
            return status;
        status = PANDO_AGAIN;
    }
    unsigned slot = (unsigned)(known >> POOL_USES_NODES) - 1;
    for (int i = 0; i < MARK_TRIES && status == PANDO_AGAIN; i++)
        status = mark_once_co(session, slot, table, bit, &nodes);
    if (status == PANDO_OK)
        atomic_fetch_or(&pool->uses[table], nodes);
    return status == PANDO_AGAIN ? PANDO_TIMEOUT : status;
}

enum pando_status pool_table_marked_co(struct pool_session *session, unsigned slot, uint64_t table,
                                       uint16_t bank, bool *marked)
{
    uint16_t node = pool_view_node(session->pool, bank);
    struct mark mark;
    enum pando_status status = read_uses_co(session, slot, &mark);
    if (status == PANDO_OK && mark.table != table)
        status = PANDO_STALE;
    *marked = status == PANDO_OK && (pool_uses_unpack(mark.word).nodes & pool_uses_bit(node)) != 0;
    return status;
}

/* ---- memory for a table ---------------------------------------------------------------------- */

enum pando_status pool_table_alloc_co(struct pool_session *session, uint16_t table, uint16_t bank,
                                      uint32_t block_bytes, struct pool_block *block)
{
    enum pando_status status = pool_alloc_co(session, bank, block_bytes, block);
    if (status != PANDO_OK)
        return status;
    status = pool_table_uses_co(session, table, pool_node_of(session->pool, block->address));
    if (status != PANDO_OK) {
        enum pando_status freed = pool_free_co(session, block, block_bytes, false);
        (void)freed; /* swept with this member one day */
    }
    return status;
}

enum pando_status pool_table_vital_alloc_co(struct pool_session *session, uint16_t table,
                                            uint32_t block_bytes, struct pool_block *block)
{
    enum pando_status status = pool_vital_alloc_co(session, block_bytes, block);
    if (status != PANDO_OK)
        return status;
    status = pool_table_uses_co(session, table, pool_node_of(session->pool, block->address));
    if (status != PANDO_OK) {
        enum pando_status freed = pool_vital_free_co(session, block, block_bytes, false);
        (void)freed;
    }
    return status;
}

/* ---- freeing what is damaged ----------------------------------------------------------------- */

/* Node 0 sees in the directory that this member drops it, and gives the seal by which the others know. */
enum pando_status pool_table_sweep_co(struct pool_session *session, unsigned slot, uint16_t table)
{
    struct pool_sweep_request request = {.table = table, .slot = slot};
    struct pool_sweep_reply reply = {0};
    enum pando_status status = pool_sweep_co(session, 0, &request, &reply);

    memcpy(request.drop, reply.drop, sizeof(request.drop));
    for (uint16_t node = 1; node < session->pool->nodes && status == PANDO_OK; node++)
        status = pool_sweep_co(session, node, &request, &reply);
    return status;
}
