/*
 * row.c - rows grow by doubling.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tree/row/row.h"

bool row_add(struct row *row, struct slice key, fabric_address address)
{
    if (row->count == row->capacity) {
        size_t capacity = row->capacity == 0 ? 1024 : row->capacity * 2;
        struct row_node *nodes = realloc(row->nodes, capacity * sizeof(*nodes));
        if (nodes == NULL)
            return false;
        row->nodes = nodes;
        row->capacity = capacity;
    }
    if (row->keys_size + key.size > row->keys_capacity) {
        size_t capacity = row->keys_capacity * 2 + ENGINE_KEY_MAX * 16;
        uint8_t *keys = realloc(row->keys, capacity);
        if (keys == NULL)
            return false;
        row->keys = keys;
        row->keys_capacity = capacity;
    }
    if (key.size > 0)
        memcpy(row->keys + row->keys_size, key.data, key.size);
    row->nodes[row->count++] = (struct row_node){
        .key = row->keys_size, .key_size = (uint32_t)key.size, .address = address};
    row->keys_size += key.size;
    return true;
}

struct slice row_key(const struct row *row, size_t index)
{
    return slice_of(row->keys + row->nodes[index].key, row->nodes[index].key_size);
}

void row_free(struct row *row)
{
    free(row->keys);
    free(row->nodes);
    *row = (struct row){0};
}
