/*
 * blink_int.h - what the files of this folder share.
 */
#ifndef TREE_BLINK_BLINK_INT_H
#define TREE_BLINK_BLINK_INT_H

#include "pool/block_fmt.h"
#include "pool/intent.h"
#include "tree/blink/blink.h"

/* Nodes on a way from the root, down and to the right, that is gone without the cache: more than any
 * sound tree needs. Damaged nodes may refer to each other in a circle. */
enum { BLINK_WAY_MAX = 256 };

/* unmerged.c: any thread. When there are too many to be remembered, all leaves are to be walked. */
struct unmerged *unmerged_create(uint32_t key_max);
void unmerged_destroy(struct unmerged *unmerged);
void unmerged_add(struct unmerged *unmerged, uint8_t level, struct slice key);
uint32_t unmerged_count(struct unmerged *unmerged);
bool unmerged_take(struct unmerged *unmerged, uint8_t *level, uint8_t *key, size_t *size);

/* Whether leaves are to be walked. */
bool unmerged_walks(struct unmerged *unmerged);

/* Where the walk has come to: the key of the next leaf. False: none is to be walked. One task at a time. */
bool unmerged_walk(struct unmerged *unmerged, uint8_t *key, size_t *size);

/* The walk goes on with the leaf that has this key. */
void unmerged_walk_on(struct unmerged *unmerged, struct slice key);

/* It has come to the end. It begins anew if more were forgotten meanwhile. */
void unmerged_walk_end(struct unmerged *unmerged);

#endif
