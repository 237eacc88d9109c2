/*
 * memory_int.h - blocks and slots for intents, for the files of the pool.
 */
#ifndef POOL_MEMORY_INT_H
#define POOL_MEMORY_INT_H

#include "pool/pool_int.h"

/* room.c. Any thread, but for the look, which is the member's own task's. */
void pool_rooms_init(struct pool *pool);

/* A node has told how many chunks it could still open; and that it has no block of that size. */
void pool_room_granted(struct pool *pool, uint16_t node, uint32_t chunks);
void pool_room_refused(struct pool *pool, uint16_t node, uint32_t block_bytes);

/* Whether a node had no such block a moment ago. */
bool pool_room_none(const struct pool *pool, uint16_t node, uint32_t block_bytes);

/* Sessions begin at different nodes, also those that need one block only. */
void pool_turns_begin(const struct pool *pool, int32_t *credits);

/* A turn was not taken by the node that it was for, but by another. */
void pool_turn_moved(const struct pool *pool, int32_t *credits, uint16_t from, uint16_t to);

/* Asks all nodes, if turns were taken since the last time, and that is a lease ago. */
void pool_rooms_refresh_co(struct pool *pool);

/* intents.c */
struct intent_slots *intent_slots_create(uint16_t nodes);
void intent_slots_destroy(struct intent_slots *slots);

/* The member is fenced: nobody waits for a slot any more. */
void pool_intents_wake(struct pool *pool);

/* Has slots that were not used for a lease go back to their nodes, but for a few. */
void pool_intents_shrink(struct pool *pool);

/* Nobody has an intent any more: the slots' blocks go back to their nodes with the rest. */
void pool_intents_end(struct pool *pool);

/* vital.c */

/* A vital block on that node; `modest`: not if it has only its reserve. Errors as pool_vital_alloc_co. */
PANDO_MUST_CHECK enum pando_status pool_vital_ask_co(struct pool_session *session, uint16_t node,
                                                     uint32_t block_bytes, bool modest,
                                                     struct pool_block *block);

/* fail.c: whether an allocation is to be refused with FULL. */
bool pool_alloc_fails(struct pool *pool, bool block);

/* alloc.c: marks a block as free and in this member's hands */
enum pando_status pool_tenure_free_co(struct pool_session *session, const struct pool_block *block);

/* Asks one node after the other, from `first` on, until one has a block: pool_alloc_co says how. */
typedef enum pando_status (*pool_alloc_fn)(struct pool_session *session, uint16_t node,
                                           uint32_t block_bytes, struct pool_block *block);
enum pando_status pool_alloc_anywhere_co(struct pool_session *session, uint16_t first,
                                         pool_alloc_fn fn, uint32_t block_bytes,
                                         struct pool_block *block);

/* Whether so many bytes at an address that a node named are in its heap. */
bool pool_granted_ok(const struct pool *pool, uint16_t node, uint64_t address, uint64_t bytes);

#endif
