/*
 * lab.h - for measurements alone: any list to the pool's memory, and the endpoints themselves.
 *
 * What an engine is compared with must cost nothing but its operations, and may do what no engine may. Engines
 * have lists.h; scripts/check-layers keeps this out of their rooms.
 */
#ifndef POOL_LAB_H
#define POOL_LAB_H

#include "pool/pool.h"

/* The endpoint to the memory of an address, broken or not. On the session's loop, until it is closed. */
struct fabric_endpoint *pool_lab_endpoint(struct pool_session *session, fabric_address at);

/* A list there; connects a broken endpoint again first, in bounded time. Not repeated. */
PANDO_MUST_CHECK enum pando_status pool_lab_submit_co(struct pool_session *session,
                                                      fabric_address at, struct fabric_op *ops,
                                                      uint32_t count);

#endif
