/*
 * lab.c - the laboratory's way to the pool's memory.
 */
#include "pool/lab.h"

#include "pool/pool_int.h"

struct fabric_endpoint *pool_lab_endpoint(struct pool_session *session, fabric_address at)
{
    return pool_endpoint(session, pool_node_of(pool_session_pool(session), at));
}

enum pando_status pool_lab_submit_co(struct pool_session *session, fabric_address at,
                                     struct fabric_op *ops, uint32_t count)
{
    return pool_submit_co(session, pool_node_of(pool_session_pool(session), at), ops, count);
}
