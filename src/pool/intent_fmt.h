/*
 * intent_fmt.h - what a writer leaves behind before it changes more than one word in place, so that
 * others can finish it.
 *
 * A slot lies INTENT_SLOT_AT bytes behind the beginning of a vital block of at least INTENT_SLOT_BLOCK.
 * The block's tenure is FREE, held by the slot's member, with the kind INTENT_SLOT_KIND. A block without
 * that kind has no slot, whatever its bytes are. In a slot:
 *    0  4  CRC32C of the rest, seeded with pool and slot address; with the next 4 bytes zero:
 *          no intent
 *    4  4  bytes of the rest
 *    8  8  home lock: its address       16  8  the word it was taken with
 *   24  2  further locks   26  2  images   28  4  zero
 *   32     further locks: address 8, word 8
 *          images: address 8, bytes 4, zero 4, then the bytes, padded to 8
 *
 * A home lock at address 0 is none: what only one member ever writes needs no lock. Its word still says
 * who that is. Such an intent counts as long as it is there. If it has images for several nodes, it lies on node
 * 0, without which there is no recovery; or on that of an image through which alone the others are found,
 * so that nobody comes to them while that node, and the intent with it, cannot be read.
 *
 * Any other counts only while its home lock still holds its word. It is cleared before any of its
 * locks is released, and the home lock is released last.
 *
 * One without images is a guard. An intent may name locks on other nodes than its own. Each of these has a
 * guard, which names the locks there, the first of them as home lock. A guard is written before the
 * intent and cleared after it, before its locks are released. So a node that lost its lock table finds
 * on itself every lock word that an intent may still rely on.
 */
#ifndef POOL_INTENT_FMT_H
#define POOL_INTENT_FMT_H

#include "pool/block_fmt.h"
#include "pool/pool_fmt.h"

enum {
    INTENT_HEADER = 32,
    INTENT_LOCK_BYTES = 16,
    INTENT_IMAGE_HEADER = 16,
    INTENT_LOCKS_MAX = 8,
    INTENT_IMAGES_MAX = 64,

    INTENT_SLOT_AT = 64,
    INTENT_SLOT_BLOCK = 128 * 1024, /* eight in a chunk */
    INTENT_SLOT_BYTES = INTENT_SLOT_BLOCK - INTENT_SLOT_AT,
    INTENT_SLOT_KIND = 0x49,
};

static inline bool intent_slot_tenure(struct pool_tenure tenure)
{
    return tenure.state == POOL_BLOCK_FREE && tenure.kind == INTENT_SLOT_KIND;
}

/* Whether slots may lie in such a chunk. */
static inline bool intent_chunk(const struct pool_chunk *chunk)
{
    return chunk->kind == POOL_CHUNK_VITAL && pool_chunk_blocks(chunk) > 0 &&
           chunk->block_bytes >= INTENT_SLOT_BLOCK;
}

#endif
