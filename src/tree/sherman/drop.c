/*
 * drop.c - freeing a table that nobody uses any more: its long values, and with blink/drop.c its nodes.
 */
#include <string.h>

#include "base/log.h"
#include "tree/sherman/sherman_int.h"

/* The pairs of a leaf. One whose last writer died may have a cell that is invalid: it is repaired
 * in our copy, so that its blobs are found. */
static bool entries_of(struct blink *self, struct blink_scratch *scratch,
                       const struct node_header *header, uint32_t *count)
{
    const struct node_layout *layout = &self->tree->layout;
    if (leaf_entries(layout, header, scratch->node, scratch->entries, count))
        return true;
    (void)leaf_repair(layout, header, scratch->node, LEAF_REPAIRS_MAX);
    return leaf_entries(layout, header, scratch->node, scratch->entries, count);
}

/* A leaf's long values; the leaf itself goes after them. */
enum pando_status sherman_leaf_free_values_co(struct blink *self, struct blink_scratch *scratch,
                                              const struct node_header *header)
{
    uint32_t count;
    enum pando_status status = PANDO_OK;

    if (!entries_of(self, scratch, header, &count)) {
        /* The rest of the table is worth having back. */
        log_warn("lost the memory of long values of a damaged leaf",
                 log_u64("table", self->tree->id), log_hex("leaf", header->address));
        return PANDO_OK;
    }
    for (uint32_t i = 0; i < count && status == PANDO_OK; i++) {
        blob_ref blob;
        if ((scratch->entries[i].flags & NODE_FLAG_BLOB) == 0)
            continue;
        memcpy(&blob, scratch->entries[i].value.data, sizeof(blob));
        status = blob_free_co(self->session, self->tree->id, blob);
        if (status == PANDO_STALE)
            status = PANDO_OK; /* freed by an earlier try */
    }
    return status;
}

enum pando_status sherman_drop_co(struct engine_table *base, struct pool_session *session)
{
    struct engine *engine;
    struct sherman_table *table = container_of(base, struct sherman_table, base);
    enum pando_status status = base->ops->attach_co(base, session, &engine);
    if (status != PANDO_OK)
        return status;
    status = blink_free_all_co(&sherman_of(engine)->blink);
    if (status == PANDO_NOT_FOUND)
        status = PANDO_OK; /* no root: whoever created it died before it had one */
    if (status == PANDO_CORRUPT)
        log_error("cannot free a table that is damaged", log_u64("table", table->blink.id));
    if (status == PANDO_OK)
        status = pool_table_remove_co(session, table->blink.slot, table->blink.id);
    base->ops->detach_co(engine);
    return status;
}
