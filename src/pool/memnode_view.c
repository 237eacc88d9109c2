/*
 * memnode_view.c - what a memory node can say of itself and of the pool's members.
 */
#include <stdatomic.h>

#include "pool/memnode_int.h"

void memnode_members(struct memnode *memnode, struct pool_member *out, unsigned capacity,
                     unsigned *count)
{
    *count = 0;
    if (memnode->super.node != 0)
        return;
    for (unsigned i = 1; i < POOL_MEMBERS && *count < capacity; i++) {
        uint64_t word;
        struct pool_member *member = &out[*count];
        uint64_t record = memnode->first + POOL_RECORDS + (uint64_t)i * POOL_RECORD_BYTES;
        if (memnode_word_read(memnode, memnode->first + POOL_HEARTBEATS + 8 * (uint64_t)i, &word) !=
            PANDO_OK)
            return;
        member->beat = pool_heartbeat_unpack(word);
        if (member->beat.state == POOL_FREE ||
            fabric_self_read(memnode->fabric, record, &member->record, sizeof(member->record)) !=
                PANDO_OK)
            continue;
        member->member = (uint16_t)i;
        member->record.name[POOL_NAME_MAX - 1] = '\0';
        member->record.location[FABRIC_LOCATION_MAX - 1] = '\0';
        ++*count;
    }
}

void memnode_calls(const struct memnode *memnode, struct memnode_calls *out)
{
    for (unsigned i = 0; i < POOL_METHODS; i++)
        out->answered[i] = atomic_load_explicit(&memnode->calls[i], memory_order_relaxed);
    out->errors = atomic_load_explicit(&memnode->call_errors, memory_order_relaxed);
}
