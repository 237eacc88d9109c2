/*
 * view.h - banks, and which memory node each of them is.
 *
 * The upper 16 bits of an address name a bank: what lies there, wherever that is kept. A view maps banks to
 * memory nodes, and pool_view_node is the only place where one becomes the other. Bank i is memory node i
 * today. Windows of members are no banks and go through no view (pool_call_co).
 */
#ifndef POOL_VIEW_H
#define POOL_VIEW_H

#include "fabric/fabric.h"

struct pool;

static inline uint16_t pool_bank(fabric_address address)
{
    return fabric_address_node(address);
}

/* How many there are, numbered from 0. Any thread. */
uint16_t pool_banks(const struct pool *pool);

/* The memory node that is that bank. One that there is not is no node's. */
static inline uint16_t pool_view_node(const struct pool *pool, uint16_t bank)
{
    (void)pool;
    return bank;
}

static inline uint16_t pool_node_of(const struct pool *pool, fabric_address address)
{
    return pool_view_node(pool, pool_bank(address));
}

#endif
