/*
 * intent_fmt.h - what a writer leaves behind before it changes more than one word in place, so that
 * others can finish it.
 *
 * A slot of an intent chunk (its size is the chunk's block size):
 *    0  4  CRC32C of the rest, seeded with pool and slot address; with the next 4 bytes zero:
 *          no intent
 *    4  4  bytes of the rest
 *    8  8  home lock: its address       16  8  the word it was taken with
 *   24  2  further locks   26  2  images   28  4  zero
 *   32     further locks: address 8, word 8
 *          images: address 8, bytes 4, zero 4, then the bytes, padded to 8
 *
 * A home lock at address 0 is none: what only one member ever writes needs no lock. Its word still says
 * who that is. Such an intent counts as long as it is there.
 *
 * Any other counts only while its home lock still holds its word. It is cleared before any of its
 * locks is released, and the home lock is released last.
 */
#ifndef POOL_INTENT_FMT_H
#define POOL_INTENT_FMT_H

enum {
    INTENT_HEADER = 32,
    INTENT_LOCK_BYTES = 16,
    INTENT_IMAGE_HEADER = 16,
    INTENT_LOCKS_MAX = 8,
    INTENT_IMAGES_MAX = 64,
};

#endif
