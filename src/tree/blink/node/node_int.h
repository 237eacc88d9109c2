/*
 * node_int.h - what the files of this folder share.
 */
#ifndef TREE_BLINK_NODE_NODE_INT_H
#define TREE_BLINK_NODE_NODE_INT_H

#include <string.h>

#include "pool/cell.h"
#include "tree/blink/node/node.h"
#include "tree/blink/node/node_fmt.h"

static inline uint32_t pad8(uint32_t size)
{
    return (size + 7) & ~(uint32_t)7;
}

static inline uint64_t load_u64(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static inline uint32_t load_u32(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static inline uint16_t load_u16(const uint8_t *bytes)
{
    uint16_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static inline void store_u64(uint8_t *bytes, uint64_t word)
{
    memcpy(bytes, &word, sizeof(word));
}

static inline void store_u32(uint8_t *bytes, uint32_t word)
{
    memcpy(bytes, &word, sizeof(word));
}

static inline void store_u16(uint8_t *bytes, uint16_t word)
{
    memcpy(bytes, &word, sizeof(word));
}

/* Copies a slice, and zeroes behind it to `room` bytes. */
static inline void store_padded(uint8_t *bytes, struct slice slice, uint32_t room)
{
    if (slice.size > 0)
        memcpy(bytes, slice.data, slice.size);
    memset(bytes + slice.size, 0, room - slice.size);
}

/* The order of bytes of an 8-byte key as the order of integers. */
static inline uint64_t key_u64(const uint8_t *key)
{
    return __builtin_bswap64(load_u64(key));
}

static inline int key_compare(struct slice a, struct slice b)
{
    if (a.size == 8 && b.size == 8) {
        uint64_t x = key_u64(a.data), y = key_u64(b.data);
        return (x > y) - (x < y);
    }
    return slice_compare(a, b);
}

static inline struct cell_place node_place(const struct node_layout *layout, enum node_kind kind,
                                           fabric_address address)
{
    return (struct cell_place){
        .pool = layout->pool, .table = layout->table, .kind = kind, .address = address};
}

/* ---- headers: header.c ----------------------------------------------------------------------- */

/* Bytes of the header up to the end of its fences; slots_at where keys have one size. */
static inline uint32_t node_fences_end(const struct node_layout *layout, uint32_t low_size,
                                       uint32_t high_size)
{
    return layout->key_size != 0 ? layout->slots_at
                                 : NODE_FENCES + pad8(low_size) + pad8(high_size);
}

/* Writes everything up to the end of the fences, and returns where that is. The cell header is made
 * by node_header_seal when the rest of the cell is there too. */
uint32_t node_header_write(const struct node_layout *layout, const struct node_header *header,
                           uint32_t count, uint8_t *bytes);
void node_header_seal(const struct node_layout *layout, const struct node_header *header,
                      uint32_t cell_bytes, uint8_t *bytes);

/* Whether what follows the fences of a valid cell lies within it: inner.c. */
bool inner_within(const struct node_layout *layout, const uint8_t *bytes, uint32_t fences_end,
                  uint32_t cell_bytes);

/* ---- cells of a leaf: leaf.c ----------------------------------------------------------------- */

/* What begins at an offset, going by its header word, which is not yet checked. */
enum leaf_cell {
    LEAF_CELL_PAIR,
    LEAF_CELL_EMPTY,
    LEAF_CELL_END,    /* the end of the node, or the word that ends a packed leaf */
    LEAF_CELL_BROKEN, /* no cell of a leaf has this word here */
};

static inline uint32_t leaf_first(const struct node_layout *layout,
                                  const struct node_header *header)
{
    return layout->fixed ? layout->slots_at : header->cell_bytes;
}

/* The cell at an offset (of a slot, or where the cell before it ended) and its size. Unless it says
 * END or BROKEN all of the cell is inside the node; a BROKEN cell has a size only in a leaf of
 * fixed slots. */
enum leaf_cell leaf_cell_at(const struct node_layout *layout, const uint8_t *bytes, uint32_t offset,
                            uint32_t *cell_bytes);

/* The pair in a LEAF_CELL_PAIR, which has at least one word of payload. False: its sizes are
 * impossible. */
bool leaf_cell_entry(const struct node_layout *layout, const uint8_t *bytes, uint32_t offset,
                     uint32_t cell_bytes, struct node_entry *entry);

/* Whether a pair's cell is whole and of the header's version. */
bool leaf_cell_valid(const struct node_layout *layout, const struct node_header *header,
                     const uint8_t *bytes, uint32_t offset, uint32_t cell_bytes);

/* Whether a cell, as leaf_cell_at said it is, is whole and of the header's version, and its sizes fit. */
bool leaf_cell_sound(const struct node_layout *layout, const struct node_header *header,
                     const uint8_t *bytes, uint32_t offset, uint32_t cell_bytes,
                     enum leaf_cell cell);

/* Whether the cells end at the end of the node, or with the right word. */
bool leaf_end_valid(const struct node_layout *layout, const struct node_header *header,
                    const uint8_t *bytes, uint32_t offset);

/* The word that ends a packed leaf. */
static inline uint64_t leaf_end_word(const struct node_layout *layout,
                                     const struct node_header *header)
{
    return leaf_cleared_word(layout, header, CELL_HEADER);
}

#endif
