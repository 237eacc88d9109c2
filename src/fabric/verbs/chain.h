/*
 * chain.h - a list as a chain of work requests: pure, no device. One work request for each
 * operation, in their order, the last one signalled.
 *
 * The order that fabric.h promises, on a reliable connection:
 *  - a WRITE before anything: the responder executes requests in the order of their posting, and a
 *    WRITE is done before what follows it;
 *  - an atomic before a READ: a responder may begin a READ while it is still at an atomic, so the
 *    READ carries IBV_SEND_FENCE, which keeps it back until the atomic has been answered. Devices
 *    known not to do that are spared the round trip.
 * Nothing else is promised, so nothing else is fenced.
 */
#ifndef FABRIC_VERBS_CHAIN_H
#define FABRIC_VERBS_CHAIN_H

#include <infiniband/verbs.h>

#include "fabric/fabric.h"
#include "fabric/verbs/verbs_fmt.h"

struct chain_target {
    struct verbs_remote_window window;
    uint64_t host_bytes, device_bytes;
    uint32_t inline_max; /* bytes of a WRITE that go with its work request */
    bool fence_reads;
};

/* OK, or RANGE when an operation is not within the target's window. */
PANDO_MUST_CHECK enum pando_status chain_check(const struct chain_target *target,
                                               const struct fabric_op *ops, uint32_t count);

/* Bytes of registered memory that the list needs; 0 for none. */
uint32_t chain_buffer_bytes(const struct chain_target *target, const struct fabric_op *ops,
                            uint32_t count);

/* Where the work requests are built; room for FABRIC_LIST_OPS_MAX of each. */
struct chain {
    struct ibv_send_wr *requests;
    struct ibv_sge *pieces;
    uint32_t fences, inlined; /* out */
};

/* `buffer` and `key` are the registered memory; WRITEs are copied there, and `id` is the completion's. */
void chain_build(const struct chain_target *target, const struct fabric_op *ops, uint32_t count,
                 uint8_t *buffer, uint32_t key, uint64_t id, struct chain *chain);

/* Copies what came back to where the operations want it. */
void chain_finish(const struct chain_target *target, struct fabric_op *ops, uint32_t count,
                  const uint8_t *buffer);

#endif
