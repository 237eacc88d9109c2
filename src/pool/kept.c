#include "pool/kept.h"

static void keep(struct kept_locks *kept, fabric_address lock)
{
    if (lock == 0 || kept_has(kept, lock))
        return;
    if (kept->count == KEPT_LOCKS_MAX)
        kept->all = true;
    else
        kept->locks[kept->count++] = lock;
}

void kept_intent(struct kept_locks *kept, const struct intent *intent)
{
    keep(kept, intent->home.address);
    for (uint32_t i = 0; i < intent->lock_count; i++)
        keep(kept, intent->locks[i].address);
}

void kept_node(struct kept_locks *kept, uint16_t node)
{
    if (node < POOL_NODES_MAX)
        kept->nodes[node] = true;
    else
        kept->all = true;
}

bool kept_has(const struct kept_locks *kept, fabric_address lock)
{
    uint16_t node = fabric_address_node(lock);
    if (kept->all || node >= POOL_NODES_MAX || kept->nodes[node])
        return true;
    for (unsigned i = 0; i < kept->count; i++) {
        if (kept->locks[i] == lock)
            return true;
    }
    return false;
}
