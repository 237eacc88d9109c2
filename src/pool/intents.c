/*
 * intents.c - slots for intents: a chunk per process and node, fetched when first needed. All sessions
 * share it: there are a few of them in every process, and 8 MiB for each would be most of a small pool.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "pool/pool_int.h"

enum { PATIENCE_LEASES = 10 };
static const uint64_t LOOK_NS = RT_NS_PER_MS; /* a slot that came back between a look and a wait */

struct intent_slots *intent_slots_create(uint16_t nodes)
{
    struct intent_slots *slots = calloc(nodes, sizeof(*slots));
    for (uint16_t node = 0; slots != NULL && node < nodes; node++)
        rt_waitq_init(&slots[node].waiting);
    return slots;
}

void intent_slots_destroy(struct intent_slots *slots, uint16_t nodes)
{
    for (uint16_t node = 0; slots != NULL && node < nodes; node++)
        free(slots[node].free_slots);
    free(slots);
}

static enum pando_status grant_co(struct pool_session *session, uint16_t node,
                                  fabric_address *chunk)
{
    struct pool_grant_request request = {.block_bytes = POOL_INTENT_BYTES,
                                         .kind = POOL_CHUNK_INTENTS};
    struct pool_grant_reply reply;
    uint32_t size;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status == PANDO_OK)
        status = fabric_call_co(pool_endpoint(session, node), POOL_GRANT,
                                slice_of(&request, sizeof(request)), &reply, sizeof(reply), &size);
    if (status == PANDO_OK && (size != sizeof(reply) || reply.chunk == 0))
        status = PANDO_CORRUPT;
    *chunk = status == PANDO_OK ? reply.chunk : 0;
    return status;
}

/* One task of the process at a time. */
static enum pando_status fetch_chunk_co(struct pool_session *session, uint16_t node)
{
    struct intent_slots *slots = &session->pool->intents[node];
    fabric_address chunk = 0;
    uint32_t *free_slots = malloc(INTENT_SLOTS * sizeof(uint32_t));
    enum pando_status status =
        free_slots == NULL ? PANDO_NO_MEMORY : grant_co(session, node, &chunk);

    rt_latch_lock(&slots->latch);
    slots->fetching = false;
    if (status == PANDO_OK) {
        slots->chunk = chunk;
        slots->free_slots = free_slots;
        for (uint32_t i = 0; i < INTENT_SLOTS; i++)
            slots->free_slots[slots->free_count++] = INTENT_SLOTS - 1 - i;
    }
    rt_latch_unlock(&slots->latch);
    if (status != PANDO_OK)
        free(free_slots);
    rt_waitq_wake_all(&slots->waiting);
    return status;
}

enum pando_status pool_intent_take_co(struct pool_session *session, uint16_t node,
                                      fabric_address *slot)
{
    pando_assert(node < session->pool->nodes);
    struct intent_slots *slots = &session->pool->intents[node];
    uint64_t deadline_ns = 0;

    if (pool_alloc_fails(session->pool, false))
        return PANDO_FULL;
    for (;;) {
        rt_latch_lock(&slots->latch);
        bool found = slots->free_count > 0;
        if (found)
            *slot =
                slots->chunk + (uint64_t)slots->free_slots[--slots->free_count] * POOL_INTENT_BYTES;
        bool fetch = !found && slots->chunk == 0 && !slots->fetching;
        slots->fetching |= fetch;
        rt_latch_unlock(&slots->latch);
        if (found)
            return PANDO_OK;
        if (fetch) {
            enum pando_status status = fetch_chunk_co(session, node);
            if (status != PANDO_OK)
                return status;
            continue;
        }
        uint64_t now_ns = rt_now_ns();
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
    slots->free_slots[slots->free_count++] = (uint32_t)((slot - slots->chunk) / POOL_INTENT_BYTES);
    rt_latch_unlock(&slots->latch);
    (void)rt_waitq_wake_one(&slots->waiting);
}
