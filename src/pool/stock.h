/*
 * stock.h - the blocks that a process has at hand, shared by all its sessions: granted ones that nobody has
 * taken yet, and freed ones until nobody can be reading them any more. What is not used soon goes back to its
 * node, where it may be of use to others, and where a chunk is free as soon as all its blocks are back.
 */
#ifndef POOL_STOCK_H
#define POOL_STOCK_H

#include "pool/pool.h"

struct pool_stock;

struct pool_stock *stock_create(uint16_t nodes);
void stock_destroy(struct pool_stock *stock);

/* Takes a block of that size on a node if there is one. Any thread. */
bool stock_take(struct pool_stock *stock, uint16_t node, uint32_t block_bytes,
                struct pool_block *out);

/* Whether the caller is to ask the node for more, which it then does, and says so when it has. If not, another
 * task is at it: waits for a moment. */
bool stock_refill_begin_co(struct pool_stock *stock, uint16_t node, uint32_t block_bytes);
void stock_refill_end(struct pool_stock *stock, uint16_t node, uint32_t block_bytes);

/* Adds blocks that a node has granted. False: there is no memory to keep track of it; it is swept one day. */
bool stock_add(struct pool_stock *stock, uint32_t block_bytes, const struct pool_block *block);

/* Adds a block that was freed: it goes back, or is used again, after the grace period. A vital one goes back.
 * Waits if there are very many. NO_MEMORY: it is swept when this member leaves. */
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

/* Freed and not yet given back. */
uint64_t stock_waiting_bytes(struct pool_stock *stock);

#endif
