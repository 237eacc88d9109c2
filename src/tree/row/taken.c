/*
 * taken.c - lists of nodes and blobs, that grow by doubling.
 */
#include "tree/row/taken.h"

#include <stdlib.h>

#include "tree/blob/blob.h"

/* Room for one more. */
static bool grow(void **items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity == 0 ? 1024 : *capacity * 2;
    void *grown = realloc(*items, wanted * item_bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static enum pando_status free_node_co(const struct taken *taken, const struct pool_block *node)
{
    return pool_free_co(taken->session, node, taken->node_bytes, false);
}

/* One that is not as it was written was not written. */
static enum pando_status free_blob_co(const struct taken *taken, fabric_address blob)
{
    enum pando_status status = blob_free_co(taken->session, taken->table, blob);
    return status == PANDO_STALE ? PANDO_OK : status;
}

enum pando_status taken_node_co(struct taken *taken, struct pool_block node)
{
    void *nodes = taken->nodes;
    bool room = grow(&nodes, taken->node_count, &taken->node_capacity, sizeof(*taken->nodes));
    taken->nodes = nodes;
    if (room) {
        taken->nodes[taken->node_count++] = node;
        return PANDO_OK;
    }
    enum pando_status status = free_node_co(taken, &node);
    return status == PANDO_OK ? PANDO_NO_MEMORY : status;
}

enum pando_status taken_blob_co(struct taken *taken, fabric_address blob)
{
    void *blobs = taken->blobs;
    bool room = grow(&blobs, taken->blob_count, &taken->blob_capacity, sizeof(*taken->blobs));
    taken->blobs = blobs;
    if (room) {
        taken->blobs[taken->blob_count++] = blob;
        return PANDO_OK;
    }
    enum pando_status status = free_blob_co(taken, blob);
    return status == PANDO_OK ? PANDO_NO_MEMORY : status;
}

void taken_give_back_co(struct taken *taken)
{
    enum pando_status status = PANDO_OK;
    while (taken->blob_count > 0 && status == PANDO_OK)
        status = free_blob_co(taken, taken->blobs[--taken->blob_count]);
    while (taken->node_count > 0 && status == PANDO_OK)
        status = free_node_co(taken, &taken->nodes[--taken->node_count]);
}

void taken_free(struct taken *taken)
{
    free(taken->nodes);
    free(taken->blobs);
}
