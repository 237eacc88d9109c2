/*
 * row.h - a level of a tree that is being built bottom-up: low fences and addresses of its nodes, in
 * order. The level above is made from it.
 */
#ifndef TREE_ROW_ROW_H
#define TREE_ROW_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "fabric/fabric.h"

/* All zero to begin with. Keys lie one after the other. */
struct row {
    uint8_t *keys;
    size_t keys_size, keys_capacity;
    struct row_node {
        size_t key;
        uint32_t key_size;
        fabric_address address;
    } * nodes;
    size_t count, capacity;
};

/* The key is copied. False: no memory, and the row is as it was. */
PANDO_MUST_CHECK bool row_add(struct row *row, struct slice key, fabric_address address);

/* Lives until the next row_add. */
struct slice row_key(const struct row *row, size_t index);

/* Empty again, and may be used again. */
void row_free(struct row *row);

#endif
