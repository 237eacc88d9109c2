/*
 * fence.h - fences in tests of what is below the pool: each makes the ticket that it needs, as node 0 would.
 */
#ifndef TESTS_LIB_FENCE_H
#define TESTS_LIB_FENCE_H

#include "fabric/fabric_int.h"
#include "lib/check.h"

static inline enum pando_status fence_co(struct fabric_endpoint *endpoint,
                                         struct fabric_identity who)
{
    struct fabric_ticket ticket;
    CHECK_OK(fabric_seal_make(endpoint->fabric, FABRIC_SEAL_FENCE, who, &ticket));
    return fabric_fence_co(endpoint, &ticket);
}

#endif
