/*
 * intents.c - slots for intents, shared by all sessions of a process. Each is a vital block, fetched when all
 * others of that node are in use. The first few come from the node's reserve if they must: without them
 * nobody could take over what a dead member had in a full pool. More are had only while there is room, and those
 * that were not used for a lease go back.
 *
 * A slot that goes back is empty, and nothing that was sent about it is under way: it is given only when the list that
 * empties it has completed. Its block keeps its mark until the node has it, which writes a tenure of its own with one
 * word, before it gives the block to anybody. So it is either a marked block with an empty slot, or none:
 *
 *   the member dies                    its block is             recovery and sweep
 *   before it tells the node           marked, the slot empty   redo nothing, take it
 *   when the call has been carried out the node's, not marked   have nothing to do with it
 *   and the call is in doubt           one of these             as above
 *   the node dies before or after      one of these             as above; what is marked and empty is not redone
 */
#include <stdlib.h>

#include "base/assert.h"
#include "pool/block_fmt.h"
#include "pool/memory_int.h"
#include "pool/pool_int.h"

enum {
    SLOTS_VITAL = 4, /* so many may come from the reserve */
    SLOTS_MIN = 8,
    CHUNKS_PER_SLOT = 4, /* a small node has few */
    ASKS_PER_LEASE = 8,  /* of a node that has no slot left */
};
_Static_assert((int)INTENT_SLOT_BYTES == (int)POOL_INTENT_BYTES, "what engines know of them");

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
    /* One that could not be marked counts, too: that list may arrive late
     * (rule failed-lists-linger), so the block stays this member's until it leaves. */
    slots->count += slot != 0;
    slots->fetching = false;
    atomic_fetch_add(&slots->fetches, 1);
    if (status == PANDO_OK)
        slots->free_slots[slots->free_count++] = slot;
    else
        slots->again_ns = rt_now_ns() + session->pool->lease_ns / ASKS_PER_LEASE;
    rt_latch_unlock(&slots->latch);
    if (status != PANDO_OK && slot != 0)
        stock_lost(session->pool->stock);
    rt_waitq_wake_all(&slots->waiting);
    return status;
}

/* For a slot that is free, or the end of a fetch, or that of this member. */
struct slot_wait {
    const struct pool *pool;
    const struct intent_slots *slots;
    uint32_t fetches; /* when no slot was there */
};

static bool nothing_new(const void *context)
{
    const struct slot_wait *wait = context;
    return atomic_load(&wait->slots->free_count) == 0 &&
           atomic_load(&wait->slots->fetches) == wait->fetches && !pool_fenced(wait->pool);
}

/* A slot is not free any more. Under the latch. */
static fabric_address pop_slot(struct intent_slots *slots, uint32_t index)
{
    fabric_address slot = slots->free_slots[index];
    slots->free_slots[index] = slots->free_slots[--slots->free_count];
    if (slots->free_count < slots->unused)
        slots->unused = slots->free_count;
    return slot;
}

enum pando_status pool_intent_take_co(struct pool_session *session, uint16_t bank,
                                      fabric_address *slot)
{
    uint16_t node = pool_view_node(session->pool, bank);
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
            *slot = pop_slot(slots, slots->free_count - 1);
        struct slot_wait wait = {session->pool, slots, atomic_load(&slots->fetches)};
        bool fetch =
            !found && count < most && !slots->fetching && (count == 0 || now_ns >= slots->again_ns);
        slots->fetching |= fetch;
        uint64_t until_ns = now_ns + session->pool->lease_ns / ASKS_PER_LEASE;
        if (count < most && slots->again_ns > now_ns && slots->again_ns < until_ns)
            until_ns = slots->again_ns;
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
        if (pool_fenced(session->pool))
            return PANDO_FENCED;
        if (pool_past(session->pool, false, &deadline_ns))
            return PANDO_TIMEOUT;
        /* Nobody says when the node may be asked again, or that the process is to end. */
        (void)rt_waitq_while_co(&slots->waiting, nothing_new, &wait, until_ns);
    }
}

void pool_intent_give(struct pool_session *session, fabric_address slot)
{
    struct intent_slots *slots = &session->pool->intents[pool_node_of(session->pool, slot)];
    rt_latch_lock(&slots->latch);
    pando_assert(slots->free_count < slots->count);
    slots->free_slots[slots->free_count++] = slot;
    rt_latch_unlock(&slots->latch);
    (void)rt_waitq_wake_one(&slots->waiting);
}

void pool_intents_wake(struct pool *pool)
{
    for (uint16_t node = 0; node < pool->nodes; node++)
        rt_waitq_wake_all(&pool->intents[node].waiting);
}

/* ---- giving slots back ----------------------------------------------------------------------- */

static void hand_back(struct pool *pool, fabric_address slot)
{
    struct pool_block block = {.address = slot - INTENT_SLOT_AT};
    stock_hand_back(pool->stock, INTENT_SLOT_BLOCK, &block);
}

/* Those with the highest addresses, so that processes keep slots in the same few chunks. Under the latch. */
static void hand_back_spare(struct pool *pool, struct intent_slots *slots)
{
    for (uint32_t spare = slots->unused; spare > 0 && slots->count > SLOTS_VITAL; spare--) {
        uint32_t last = 0;
        for (uint32_t i = 1; i < slots->free_count; i++) {
            if (slots->free_slots[i] > slots->free_slots[last])
                last = i;
        }
        slots->count--;
        hand_back(pool, pop_slot(slots, last));
    }
}

void pool_intents_shrink(struct pool *pool)
{
    for (uint16_t node = 0; node < pool->nodes; node++) {
        struct intent_slots *slots = &pool->intents[node];
        uint64_t now_ns = rt_now_ns();
        rt_latch_lock(&slots->latch);
        if (now_ns >= slots->unused_until_ns) {
            if (slots->unused_until_ns != 0)
                hand_back_spare(pool, slots);
            slots->unused = slots->free_count;
            slots->unused_until_ns = now_ns + pool->lease_ns;
        }
        rt_latch_unlock(&slots->latch);
    }
}

void pool_intents_end(struct pool *pool)
{
    for (uint16_t node = 0; node < pool->nodes; node++) {
        struct intent_slots *slots = &pool->intents[node];
        /* One that was not given back may have an intent in it. */
        if (slots->free_count < slots->count)
            stock_lost(pool->stock);
        while (slots->free_count > 0)
            hand_back(pool, slots->free_slots[--slots->free_count]);
        slots->count = 0;
    }
}
