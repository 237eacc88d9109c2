/*
 * bare_tree.h - how fast a lookup can be: a B+tree in the memory of one process that is loaded once
 * and then only searched. No locks, no checks, no keys but 8-byte numbers, and every key that is
 * looked up is there.
 *
 * All nodes have one size. The children of a node lie side by side, so that an inner node needs no
 * pointers but one, and twice as many keys fit (the CSB+-tree of Rao and Ross, 2000):
 *
 *   inner   [first child] [least 1] [least 2] ... [least n-1]   n = bytes / 8 children
 *   leaf    [key 0 .. key n-1] [value 0 .. value n-1]           n = bytes / 16 pairs
 *
 * least i is one less than the least key of child i. A child is a number, and smaller than any key
 * (work_key): the whole node is searched as if its first word were a key as well.
 *
 * Lookups go down in groups of WORK_IN_FLIGHT, level by level: while one searches its node, the
 * nodes of the others are on their way into the cache.
 */
#ifndef VS_LMDB_BARE_TREE_H
#define VS_LMDB_BARE_TREE_H

#include "work.h"

struct bare_tree;

/* Whether there is a tree with such nodes: of 128, 256, 384, 512 and 1024 bytes. */
bool bare_tree_has(size_t node_bytes);

/* The tree that is the fastest here of those with nodes of that size, or of any size if it is 0;
 * NULL without memory. `shown` is called after each that was tried. */
struct bare_tree *bare_tree_create(uint64_t records, size_t node_bytes,
                                   void (*shown)(const struct bare_tree *tree, double rate));
void bare_tree_destroy(struct bare_tree *tree);

size_t bare_tree_node_bytes(const struct bare_tree *tree);
bool bare_tree_late_values(const struct bare_tree *tree);
bool bare_tree_wide(const struct bare_tree *tree); /* searches nodes by AVX-512 */

/* A round of WORK_BATCH; its count is a multiple of WORK_IN_FLIGHT. */
void bare_tree_run(const struct bare_tree *tree, const struct work_round *round,
                   struct work_result *result);

#endif
