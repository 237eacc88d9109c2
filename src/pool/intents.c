/*
 * intents.c - slots for intents: a chunk per session and node, fetched when first needed and kept for
 * the next session when one closes.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "pool/pool_int.h"

struct intent_set *intent_set_create(uint16_t nodes)
{
    struct intent_set *set = calloc(1, sizeof(*set) + nodes * sizeof(set->slots[0]));
    if (set == NULL)
        return NULL;
    list_init(&set->link);
    for (uint16_t node = 0; node < nodes; node++)
        rt_waitq_init(&set->slots[node].waiting);
    return set;
}

void intent_set_destroy(struct intent_set *set, uint16_t nodes)
{
    for (uint16_t node = 0; node < nodes; node++)
        free(set->slots[node].free_slots);
    free(set);
}

static enum pando_status fetch_chunk_co(struct pool_session *session, uint16_t node)
{
    struct intent_slots *slots = &session->intents->slots[node];
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
    struct intent_slots *slots = &session->intents->slots[node];
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
    struct intent_slots *slots = &session->intents->slots[fabric_address_node(slot)];
    slots->free_slots[slots->free_count++] = (uint32_t)((slot - slots->chunk) / POOL_INTENT_BYTES);
    (void)rt_waitq_wake_one(&slots->waiting);
}
