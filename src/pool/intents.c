/*
 * intents.c - slots for intents: a chunk per session and node, fetched when first needed.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "pool/pool_int.h"

enum pando_status intent_slots_init(struct pool_session *session)
{
    session->intents = calloc(session->pool->nodes, sizeof(*session->intents));
    if (session->intents == NULL)
        return PANDO_NO_MEMORY;
    for (uint16_t node = 0; node < session->pool->nodes; node++)
        rt_waitq_init(&session->intents[node].waiting);
    return PANDO_OK;
}

void intent_slots_fini(struct pool_session *session)
{
    for (uint16_t node = 0; session->intents != NULL && node < session->pool->nodes; node++)
        free(session->intents[node].free_slots);
    free(session->intents);
    session->intents = NULL;
}

static enum pando_status fetch_chunk_co(struct pool_session *session, uint16_t node)
{
    struct intent_slots *slots = &session->intents[node];
    struct pool_grant_request request = {.block_bytes = POOL_INTENT_BYTES,
                                         .kind = POOL_CHUNK_INTENTS};
    struct pool_grant_reply reply;
    uint32_t size;

    slots->free_slots = malloc(INTENT_SLOTS * sizeof(uint32_t));
    if (slots->free_slots == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status == PANDO_OK)
        status = fabric_call_co(pool_endpoint(session, node), POOL_GRANT,
                                slice_of(&request, sizeof(request)), &reply, sizeof(reply), &size);
    if (status == PANDO_OK && (size != sizeof(reply) || reply.chunk == 0))
        status = PANDO_CORRUPT;
    if (status != PANDO_OK) {
        free(slots->free_slots);
        slots->free_slots = NULL;
        return status;
    }
    slots->chunk = reply.chunk;
    for (uint32_t i = 0; i < INTENT_SLOTS; i++)
        slots->free_slots[slots->free_count++] = INTENT_SLOTS - 1 - i;
    return PANDO_OK;
}

enum pando_status pool_intent_take_co(struct pool_session *session, uint16_t node,
                                      fabric_address *slot)
{
    pando_assert(node < session->pool->nodes);
    struct intent_slots *slots = &session->intents[node];
    enum pando_status status = PANDO_OK;

    while (slots->free_count == 0 && status == PANDO_OK) {
        if (slots->chunk == 0 && !slots->fetching) {
            slots->fetching = true;
            status = fetch_chunk_co(session, node);
            slots->fetching = false;
            rt_waitq_wake_all(&slots->waiting);
        } else {
            status = rt_waitq_wait_co(&slots->waiting, rt_now_ns() + session->pool->lease_ns * 10);
        }
    }
    if (status != PANDO_OK)
        return status;
    *slot = slots->chunk + (uint64_t)slots->free_slots[--slots->free_count] * POOL_INTENT_BYTES;
    return PANDO_OK;
}

void pool_intent_give(struct pool_session *session, fabric_address slot)
{
    struct intent_slots *slots = &session->intents[fabric_address_node(slot)];
    slots->free_slots[slots->free_count++] = (uint32_t)((slot - slots->chunk) / POOL_INTENT_BYTES);
    (void)rt_waitq_wake_one(&slots->waiting);
}
