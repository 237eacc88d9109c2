/*
 * node.h - nodes of a B-link tree as bytes: reading, searching, building, splitting, repairing.
 * Bytes in, bytes out, no I/O, no allocation. Formats in node_fmt.h.
 *
 * What is read comes from remote memory: it may be torn, old, damaged or malicious. Readers here
 * check everything they touch (rules cell-check, validated-reads) and never read outside the node.
 *
 *   leaf    header cell, then cells, each valid or not by itself: a pair, or empty; unsorted
 *   inner   one cell: header, separators in order, children
 *
 * Every node has a low fence (inclusive) and a high fence (exclusive, or none: the rightmost), a
 * level (leaves 0), a right sibling and its own address. A dead node was merged away, and has its
 * tenure FREE; or it was the root and was given up, and then still names its only child.
 */
#ifndef TREE_BLINK_NODE_NODE_H
#define TREE_BLINK_NODE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "fabric/fabric.h"
#include "pando/pando.h"

enum {
    NODE_BYTES_MIN = 256,
    NODE_BYTES_MAX = 32 * 1024,
    NODE_ENTRIES_MAX = NODE_BYTES_MAX / 24,
};

/* Sizes of a table's nodes, and what goes into the check of every cell. */
struct node_layout {
    uint64_t pool;
    uint16_t table;
    uint32_t node_bytes; /* a multiple of 64 */
    uint32_t key_size;   /* 0: variable */
    uint32_t value_size; /* inline bytes of all values; 0: variable. Slots need both sizes. */
    bool unchecked;      /* test only: believes cells, to show that a checker notices */
    /* Derived by node_layout_init. */
    bool fixed;          /* slots of one size at fixed places */
    uint32_t slot_bytes; /* of a fixed slot: cell header, key, value, padded */
    uint32_t slots_at;   /* end of the fences where keys have one size: offset of the first slot */
    uint32_t slot_count;
    uint32_t leaf_room; /* for pairs, in a leaf with the longest fences */
};

/* Fills in the derived members; INVALID when a node would not hold at least four of the largest
 * pairs of key_max and value_max bytes. */
PANDO_MUST_CHECK enum pando_status node_layout_init(struct node_layout *layout, uint32_t key_max,
                                                    uint32_t value_max);

/* ---- headers --------------------------------------------------------------------------------- */

struct node_header {
    fabric_address address;
    uint64_t version;
    uint64_t tenure;        /* as in pool/block_fmt.h */
    fabric_address sibling; /* 0: none */
    uint8_t level;
    bool dead;
    bool no_high;
    struct slice low, high; /* in the node's bytes, or the builder's */
    uint32_t cell_bytes;    /* of the header cell of a leaf; of the whole cell of an inner node */
};

/* Reads and checks the header cell (of an inner node: the whole cell) of a node that was read from
 * `address`. False: torn, or not a node of this table. */
bool node_header_read(const struct node_layout *layout, fabric_address address,
                      const uint8_t *bytes, struct node_header *out);

/* unlinked-sibling (R21): a node is written unlinked before anything refers to it. The check of its
 * header is inverted, so that nobody whom a stale pointer leads there takes it for a node. Whoever
 * knows that something refers to it by now links it, with one CAS of the header word between these
 * two. */
static inline uint64_t node_link_word(uint64_t header_word)
{
    return header_word ^ UINT32_MAX;
}

/* Marks a node that was built, before it is written. */
void node_unlink(uint8_t *bytes);

/* As node_header_read, of an unlinked node; true: its header word in `bytes` is then the linked one. */
bool node_unlinked(const struct node_layout *layout, fabric_address address, uint8_t *bytes,
                   struct node_header *out);

/* The fences alone, of a node whose header was checked before; false: no high fence. */
struct slice node_low_fence(const struct node_layout *layout, const uint8_t *bytes);
bool node_high_fence(const struct node_layout *layout, const uint8_t *bytes, struct slice *high);

/* Whether the key lies between the fences. */
bool node_covers(const struct node_header *header, struct slice key);

/* Key at or beyond the high fence: it moved right. */
bool node_right_of(const struct node_header *header, struct slice key);

/* ---- leaves ---------------------------------------------------------------------------------- */

enum { NODE_FLAG_BLOB = 1 }; /* the value is one word: a reference to a blob */

struct node_entry {
    struct slice key;
    struct slice value;
    uint8_t flags;
};

/* A pair's cell inside a leaf. */
struct leaf_slot {
    uint32_t offset;         /* of its cell header */
    uint32_t bytes;          /* of the whole cell */
    struct node_entry entry; /* slices in the leaf's bytes */
};

enum leaf_find {
    LEAF_FOUND,
    LEAF_ABSENT, /* every cell, the empty ones too, was valid and of the header's version, and none
                    has the key */
    LEAF_TORN,   /* read it again */
};

/* validated-reads (R20). The header was read from the same bytes, here and below, and the key lies
 * between its fences. */
enum leaf_find leaf_find(const struct node_layout *layout, const struct node_header *header,
                         const uint8_t *bytes, struct slice key, struct leaf_slot *slot);

/* What that mostly comes to, with the header's check before it: true if the leaf that was read from `address` is
 * live and covers the key, and both its header and the pair's cell are whole. False says nothing: also for what
 * it does not know, which is all but fixed slots with 8-byte keys. The header may be NULL. */
bool leaf_find_word(const struct node_layout *layout, fabric_address address, const uint8_t *bytes,
                    struct slice key, struct node_header *header, struct leaf_slot *slot);

/* A free place for a new pair: its offset, and the size of the cell to build there (at least what
 * the pair needs). False: there is none; if leaf_fits says so of the pairs and the new one,
 * building the leaf anew makes one. The leaf is locked, and leaf_find said that the key is absent.
 * Write the payload first, then the header word (rule cell-check). */
bool leaf_place(const struct node_layout *layout, const struct node_header *header,
                const uint8_t *bytes, uint32_t key_size, uint32_t value_size, uint32_t *offset,
                uint32_t *cell_bytes);

/* Bytes of a cell for a pair, header included. */
uint32_t leaf_cell_bytes(const struct node_layout *layout, uint32_t key_size, uint32_t value_size);

/* Builds a cell of cell_bytes at `offset` of the leaf into `out`. Of the header only address and
 * version matter. */
void leaf_cell_build(const struct node_layout *layout, const struct node_header *header,
                     uint32_t offset, uint32_t cell_bytes, const struct node_entry *entry,
                     uint8_t *out);

/* Whether writing one cell over another at the same place changes at most one word of its payload,
 * and neither flags nor version nor size: then it needs no intent (rule intent-first). */
bool leaf_one_word(const uint8_t *from, const uint8_t *to, uint32_t cell_bytes);

/* The header word that marks a cell of that size as empty (cell-check (R17): clearing writes this word only). It
 * is checked and carries the version like any other, see node_fmt.h. */
uint64_t leaf_cleared_word(const struct node_layout *layout, const struct node_header *header,
                           uint32_t cell_bytes);

/* All pairs in the order of their keys. False: torn, or a key twice. Pairs outside the fences are
 * left out. */
bool leaf_entries(const struct node_layout *layout, const struct node_header *header,
                  const uint8_t *bytes, struct node_entry entries[NODE_ENTRIES_MAX],
                  uint32_t *count);

/* Whether these pairs fit into one leaf with those fences. */
bool leaf_fits(const struct node_layout *layout, const struct node_header *header,
               const struct node_entry *entries, uint32_t count);

/* Builds a whole leaf; header gives address, version, tenure, sibling, fences. `bytes` may not
 * overlap what the entries point to. */
void leaf_build(const struct node_layout *layout, const struct node_header *header,
                const struct node_entry *entries, uint32_t count, uint8_t *bytes);

/* How many of the sorted entries, that is at least two, stay in the left half: about half of the
 * bytes, at least one on each side. Appending workloads (the last entry is the new one and the node
 * is the rightmost) keep more. Both halves of what was a leaf's and one more fit. */
uint32_t leaf_split_point(const struct node_layout *layout, const struct node_entry *entries,
                          uint32_t count, bool appending);

/* intent-first (R18), proven-repair (R19): after its writer died in the middle of a one-word
 * update, a cell has a payload that is right and a check that is not. Repairs up to `most` such
 * cells, as many as holders of the leaf's lock have died: puts one bit of the value back if that
 * makes the check fit, else recomputes the check. Returns how many there were; -1, and nothing
 * changed, if the leaf has more of them, or anything that such an update cannot have left: then it
 * is damaged. The header cell must be valid, the leaf locked, and its intents redone. */
enum { LEAF_REPAIRS_MAX = 7 };
int leaf_repair(const struct node_layout *layout, const struct node_header *header, uint8_t *bytes,
                unsigned most);

/* ---- inner nodes ----------------------------------------------------------------------------- */

/* An inner node has count separators and count + 1 children: child i has the keys below separator i
 * (and at or above separator i-1, or the low fence). */
struct inner_entry {
    struct slice key;
    fabric_address child; /* to the right of the key */
};

/* Whether the separators rise and lie between the fences, and every child is an address. Reading
 * does not depend on it; for verifying and tests. */
bool inner_sound(const struct node_layout *layout, const struct node_header *header,
                 const uint8_t *bytes);

uint32_t inner_count(const struct node_layout *layout, const uint8_t *bytes);

/* The child that covers the key, and which (0 .. count). The cell was checked by node_header_read.
 */
fabric_address inner_child(const struct node_layout *layout, const uint8_t *bytes, struct slice key,
                           uint32_t *index);

/* The child that has the keys just below `key`. */
fabric_address inner_child_before(const struct node_layout *layout, const uint8_t *bytes,
                                  struct slice key, uint32_t *index);
fabric_address inner_child_at(const struct node_layout *layout, const uint8_t *bytes,
                              uint32_t index);

/* Separator i, 0 .. count-1. */
struct slice inner_key_at(const struct node_layout *layout, const uint8_t *bytes, uint32_t index);

/* All of it; the leftmost child apart. */
void inner_entries(const struct node_layout *layout, const uint8_t *bytes, fabric_address *leftmost,
                   struct inner_entry entries[NODE_ENTRIES_MAX], uint32_t *count);

bool inner_fits(const struct node_layout *layout, const struct node_header *header,
                const struct inner_entry *entries, uint32_t count);
void inner_build(const struct node_layout *layout, const struct node_header *header,
                 fabric_address leftmost, const struct inner_entry *entries, uint32_t count,
                 uint8_t *bytes);

/* Which separator moves up: the left keeps those before it. At least three. */
uint32_t inner_split_point(const struct node_layout *layout, const struct inner_entry *entries,
                           uint32_t count);

#endif
