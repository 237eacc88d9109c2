/*
 * drop.c - freeing a whole tree that nobody uses any more.
 */
#include <string.h>

#include "base/log.h"
#include "tree/sherman/sherman_int.h"

static enum pando_status free_node_co(struct sherman *self, const struct node_header *header)
{
    struct pool_block block = {.address = header->address, .version = header->version + 1};
    return pool_free_co(self->base.session, &block, self->table->layout.node_bytes, false);
}

/* The pairs of a leaf. One whose last writer died may have a cell that is invalid: it is mended in
 * our copy, so that its blobs are found. */
static bool entries_of(struct sherman *self, struct scratch *scratch,
                       const struct node_header *header, uint32_t *count)
{
    const struct node_layout *layout = &self->table->layout;
    if (leaf_entries(layout, header, scratch->node, scratch->entries, count))
        return true;
    (void)leaf_repair(layout, header, scratch->node, LEAF_REPAIRS_MAX);
    return leaf_entries(layout, header, scratch->node, scratch->entries, count);
}

/* A leaf's long values; the leaf itself goes after them. */
static enum pando_status free_blobs_co(struct sherman *self, struct scratch *scratch,
                                       const struct node_header *header)
{
    uint32_t count;
    enum pando_status status = PANDO_OK;

    if (!entries_of(self, scratch, header, &count)) {
        /* The rest of the table is worth having back. */
        log_warn("lost the memory of long values of a damaged leaf",
                 log_u64("table", self->table->id), log_hex("leaf", header->address));
        return PANDO_OK;
    }
    for (uint32_t i = 0; i < count && status == PANDO_OK; i++) {
        blob_ref blob;
        if ((scratch->entries[i].flags & NODE_FLAG_BLOB) == 0)
            continue;
        memcpy(&blob, scratch->entries[i].value.data, sizeof(blob));
        status = blob_free_co(self->base.session, self->table->id, blob);
        if (status == PANDO_STALE)
            status = PANDO_OK; /* freed by an earlier try */
    }
    return status;
}

static enum pando_status free_range_co(struct sherman *self, fabric_address address, int level,
                                       struct slice high, bool no_high);

static enum pando_status free_children_co(struct sherman *self, struct scratch *scratch,
                                          const struct node_header *header)
{
    const struct inner_entry *separators = scratch->separators;
    fabric_address leftmost;
    uint32_t count;
    enum pando_status status = PANDO_OK;

    inner_entries(&self->table->layout, scratch->node, &leftmost, scratch->separators, &count);
    for (uint32_t i = 0; i <= count && status == PANDO_OK; i++) {
        bool last = i == count;
        status = free_range_co(self, i == 0 ? leftmost : separators[i - 1].child, header->level - 1,
                               last ? header->high : separators[i].key, last && header->no_high);
    }
    return status;
}

/* A node, all below it, and what is to its right below `high`: the halves of splits that their
 * parent was never told of. */
static enum pando_status free_range_co(struct sherman *self, fabric_address address, int level,
                                       struct slice high, bool no_high)
{
    struct scratch *scratch = scratch_take(self);
    struct node_header header;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    /* Nobody changes the table any more: every pointer in it is a true one. */
    enum pando_status status =
        sherman_read_linked_co(self, address, rt_coarse_ns(), scratch->node, &header);
    if (status == PANDO_STALE || (status == PANDO_OK && header.dead)) {
        /* Freed by an earlier try, after all that hung on it; or by whoever merged it. */
        scratch_give(self, scratch);
        return PANDO_OK;
    }
    if (status == PANDO_OK && level >= 0 && header.level != level)
        status = PANDO_CORRUPT;
    if (status == PANDO_OK)
        status = header.level == 0 ? free_blobs_co(self, scratch, &header)
                                   : free_children_co(self, scratch, &header);
    bool more = status == PANDO_OK && !header.no_high && header.sibling != 0 &&
                (no_high || slice_compare(header.high, high) < 0);
    if (more)
        status = free_range_co(self, header.sibling, header.level, high, no_high);
    if (status == PANDO_OK)
        status = free_node_co(self, &header);
    scratch_give(self, scratch);
    return status;
}

enum pando_status sherman_drop_co(struct engine_table *base, struct pool_session *session)
{
    struct engine *engine;
    fabric_address root;
    struct sherman_table *table = container_of(base, struct sherman_table, base);
    enum pando_status status = base->ops->attach_co(base, session, &engine);
    if (status != PANDO_OK)
        return status;
    status = sherman_root_co(sherman_of(engine), true, &root);
    if (status == PANDO_OK)
        status = free_range_co(sherman_of(engine), root, -1, slice_of(NULL, 0), true);
    if (status == PANDO_NOT_FOUND)
        status = PANDO_OK; /* no root: whoever created it died before it had one */
    if (status == PANDO_CORRUPT)
        log_error("cannot free a table that is damaged", log_u64("table", table->id));
    if (status == PANDO_OK)
        status = pool_table_remove_co(session, table->slot, table->id);
    base->ops->detach_co(engine);
    return status;
}
