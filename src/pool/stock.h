/*
 * stock.h - the blocks that a process has at hand, shared by all its sessions: granted ones that nobody has
 * taken yet, and freed ones until nobody can be reading them any more. What is not used soon goes back to its
 * node, where it may be of use to others, and where a chunk is free as soon as all its blocks are back.
 */
#ifndef POOL_STOCK_H
#define POOL_STOCK_H

#include "pool/pool.h"

struct pool_stock;

/* `freed_max` as in pool_options. NULL: no memory. */
struct pool_stock *stock_create(uint16_t nodes, uint32_t freed_max);
void stock_destroy(struct pool_stock *stock);

/* Takes a block of that size on a node if there is one. Any thread. */
bool stock_take(struct pool_stock *stock, uint16_t node, uint32_t block_bytes,
                struct pool_block *out);

/* Whether the caller is to ask the node for more, which it then does, and says so when it has. If not, another
 * task is at it: waits until some task has ended such a thing. */
bool stock_refill_begin_co(struct pool_stock *stock, uint16_t node, uint32_t block_bytes);
void stock_refill_end(struct pool_stock *stock, uint16_t node, uint32_t block_bytes);

/* Whether blocks of that size can be kept at hand: not if too many sizes are in use. */
bool stock_keeps(struct pool_stock *stock, uint16_t node, uint32_t block_bytes);

/* Adds a block that a node has granted. One that cannot be kept at hand goes back to its node; if there is no memory
 * for that either, it is swept one day. */
void stock_add(struct pool_stock *stock, uint32_t block_bytes, const struct pool_block *block);

/* Has a block go back to its node as soon as that can be: nobody can be reading it. If there is no memory for that it
 * is swept one day. */
void stock_hand_back(struct pool_stock *stock, uint32_t block_bytes,
                     const struct pool_block *block);

/* Adds a block that was freed: it goes back, or is used again, after the grace period. A vital one goes back.
 * Waits if there are very many. TIMEOUT, after ten leases, and NO_MEMORY: it is swept when this member leaves. */
PANDO_MUST_CHECK enum pando_status stock_free_co(struct pool_session *session,
                                                 const struct pool_block *block,
                                                 uint32_t block_bytes, bool vital);

/* Some block of this member's is in nobody's hands: its memory is swept when it leaves. */
void stock_lost(struct pool_stock *stock);

/* Gives back what was freed long enough ago, but for a few blocks of sizes that are in use; `all`: also all that
 * nobody has taken. How many blocks. One at a time: 0 if another task is at it. */
uint64_t stock_return_co(struct pool_session *session, bool all);

/* Gives everything back, whatever may still be read by others to be held by its node for a while. Nobody takes
 * or frees blocks any more. False: some may be left with this member, for a sweep. */
bool stock_return_all_co(struct pool_session *session);

/* This member is fenced: those who wait look again. Any thread. */
void stock_wake(struct pool_stock *stock);

/* Tells each node how many of its bytes were freed and are not given back yet, if it was told another figure
 * before: what is less than a chunk off is let be, unless nothing waits any more. The member's own task. */
void stock_tell_co(struct pool_session *session);

#endif
