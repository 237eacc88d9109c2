/*
 * taken.c - lists of nodes and blobs, that grow by doubling.
 */
#include "tree/row/taken.h"

#include <stdlib.h>

#include "blob/blob.h"

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

static enum pando_status free_blob_co(const struct taken *taken, blob_ref blob)
{
    return blob_free_co(taken->session, taken->table, blob);
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

enum pando_status taken_blob_co(struct taken *taken, blob_ref blob)
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

/* One that could not be freed is not tried again, as it may have been: it is lost, and the next one tried. */
void taken_give_back_co(struct taken *taken)
{
    struct pool_retry retry = {0};
    enum pando_status status = PANDO_OK;

    while (status == PANDO_OK && taken->blob_count + taken->node_count > 0) {
        enum pando_status freed = taken->blob_count > 0
                                      ? free_blob_co(taken, taken->blobs[--taken->blob_count])
                                      : free_node_co(taken, &taken->nodes[--taken->node_count]);
        if (freed == PANDO_OK)
            retry = (struct pool_retry){0};
        else
            status = pool_retry_co(pool_session_pool(taken->session), &retry);
    }
}

void taken_free(struct taken *taken)
{
    free(taken->nodes);
    free(taken->blobs);
}
