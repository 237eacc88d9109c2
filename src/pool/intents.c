/*
 * intents.c - slots for intents, shared by all sessions of a process. Each is a vital block, fetched when all
 * others of that node are in use. The first few come from the node's reserve if they must: without them
 * nobody could take over what a dead member had in a full pool. More are had only while there is room.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "pool/block_fmt.h"
#include "pool/pool_int.h"

enum {
    PATIENCE_LEASES = 10,
    SLOTS_VITAL = 4, /* so many may come from the reserve */
    SLOTS_MIN = 8,
    CHUNKS_PER_SLOT = 4, /* a small node has few */
};
_Static_assert((int)INTENT_SLOT_BYTES == (int)POOL_INTENT_BYTES, "what engines know of them");
static const uint64_t LOOK_NS = RT_NS_PER_MS; /* a slot that came back between a look and a wait */

struct intent_slots *intent_slots_create(uint16_t nodes)
{
    struct intent_slots *slots = calloc(nodes, sizeof(*slots));
    for (uint16_t node = 0; slots != NULL && node < nodes; node++)
        rt_waitq_init(&slots[node].waiting);
    return slots;
}

void intent_slots_destroy(struct intent_slots *slots)
{
    free(slots);
}

static uint32_t slots_max(const struct pool *pool, uint16_t node)
{
    uint64_t most = pool->supers[node].chunks / CHUNKS_PER_SLOT;
    return most > INTENT_SLOTS_MAX ? INTENT_SLOTS_MAX
           : most < SLOTS_MIN      ? SLOTS_MIN
                                   : (uint32_t)most;
}

/* Empties the slot before its block is marked as one: recovery redoes what lies in marked blocks. *slot is
 * not 0 if there is one, marked or not. */
static enum pando_status fetch_slot_co(struct pool_session *session, uint16_t node, bool modest,
                                       fabric_address *slot)
{
    static const uint64_t zero;
    struct pool_tenure tenure = {
        .state = POOL_BLOCK_FREE, .kind = INTENT_SLOT_KIND, .holder = session->pool->identity};
    uint64_t word = pool_tenure_pack(tenure);
    struct pool_block block;
    enum pando_status status = pool_vital_ask_co(session, node, INTENT_SLOT_BLOCK, modest, &block);
    if (status != PANDO_OK)
        return status;
    uint64_t at = fabric_address_offset(block.address);
    struct fabric_op ops[] = {
        fabric_write(at + INTENT_SLOT_AT, &zero, sizeof(zero)),
        fabric_write(at + POOL_BLOCK_TENURE, &word, sizeof(word)),
    };
    *slot = block.address + INTENT_SLOT_AT;
    return pool_submit_co(session, node, ops, 2);
}

/* One task of the process at a time. FULL: the node has none now. */
static enum pando_status fetch_co(struct pool_session *session, uint16_t node, bool modest)
{
    struct intent_slots *slots = &session->pool->intents[node];
    fabric_address slot = 0;
    enum pando_status status = fetch_slot_co(session, node, modest, &slot);

    rt_latch_lock(&slots->latch);
    /* One that could not be marked counts, too: that list may arrive late (R4), so the block stays this
     * member's until it leaves. */
    slots->count += slot != 0;
    slots->fetching = false;
    if (status == PANDO_OK)
        slots->free_slots[slots->free_count++] = slot;
    else
        slots->again_ns = rt_now_ns() + session->pool->lease_ns / 8;
    rt_latch_unlock(&slots->latch);
    if (status != PANDO_OK && slot != 0)
        stock_lost(session->pool->stock);
    rt_waitq_wake_all(&slots->waiting);
    return status;
}

enum pando_status pool_intent_take_co(struct pool_session *session, uint16_t node,
                                      fabric_address *slot)
{
    pando_assert(node < session->pool->nodes);
    struct intent_slots *slots = &session->pool->intents[node];
    uint32_t most = slots_max(session->pool, node);
    uint64_t deadline_ns = 0;

    if (pool_alloc_fails(session->pool, false))
        return PANDO_FULL;
    for (;;) {
        uint64_t now_ns = rt_now_ns();
        rt_latch_lock(&slots->latch);
        uint32_t count = slots->count;
        bool found = slots->free_count > 0;
        if (found)
            *slot = slots->free_slots[--slots->free_count];
        bool fetch =
            !found && count < most && !slots->fetching && (count == 0 || now_ns >= slots->again_ns);
        slots->fetching |= fetch;
        rt_latch_unlock(&slots->latch);
        if (found)
            return PANDO_OK;
        if (fetch) {
            enum pando_status status = fetch_co(session, node, count >= SLOTS_VITAL);
            /* A process that has slots waits until one of them is given back. */
            if (status != PANDO_OK && (status != PANDO_FULL || count == 0))
                return status;
            if (status == PANDO_OK)
                continue;
        }
        if (deadline_ns == 0)
            deadline_ns = now_ns + session->pool->lease_ns * PATIENCE_LEASES;
        if (now_ns > deadline_ns)
            return PANDO_TIMEOUT;
        (void)rt_waitq_wait_co(&slots->waiting, now_ns + LOOK_NS);
    }
}

void pool_intent_give(struct pool_session *session, fabric_address slot)
{
    struct intent_slots *slots = &session->pool->intents[fabric_address_node(slot)];
    rt_latch_lock(&slots->latch);
    pando_assert(slots->free_count < slots->count);
    slots->free_slots[slots->free_count++] = slot;
    rt_latch_unlock(&slots->latch);
    (void)rt_waitq_wake_one(&slots->waiting);
}

void pool_intents_end(struct pool *pool)
{
    for (uint16_t node = 0; node < pool->nodes; node++) {
        struct intent_slots *slots = &pool->intents[node];
        /* One that was not given back may have an intent in it. */
        if (slots->free_count < slots->count)
            stock_lost(pool->stock);
        while (slots->free_count > 0) {
            struct pool_block block = {.address =
                                           slots->free_slots[--slots->free_count] - INTENT_SLOT_AT};
            (void)stock_add(pool->stock, INTENT_SLOT_BLOCK, &block);
        }
        slots->count = 0;
    }
}
