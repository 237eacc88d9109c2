/*
 * drop.c - freeing a whole tree that nobody uses any more.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

static enum pando_status free_node_co(struct sherman *self, const struct node_header *header)
{
    struct pool_block block = {.address = header->address, .version = header->version + 1};
    return pool_free_co(self->base.session, &block, self->table->layout.node_bytes, false);
}

/* A leaf's long values; the leaf itself goes after them. */
static enum pando_status free_blobs_co(struct sherman *self, struct scratch *scratch,
                                       const struct node_header *header)
{
    uint32_t count;
    enum pando_status status = PANDO_OK;

    if (!leaf_entries(&self->table->layout, header, scratch->node, scratch->entries, &count))
        return PANDO_CORRUPT;
    for (uint32_t i = 0; i < count && status == PANDO_OK; i++) {
        fabric_address blob;
        if ((scratch->entries[i].flags & NODE_FLAG_BLOB) == 0)
            continue;
        memcpy(&blob, scratch->entries[i].value.data, sizeof(blob));
        status = sherman_blob_free_co(self, blob);
        if (status == PANDO_STALE)
            status = PANDO_CORRUPT;
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

    enum pando_status status = sherman_read_co(self, address, scratch->node, &header);
    if (status == PANDO_STALE ||
        (status == PANDO_OK && (header.dead || (level >= 0 && header.level != level))))
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
    struct pool_entry entry;
    fabric_address root;
    struct sherman_table *table = container_of(base, struct sherman_table, base);
    enum pando_status status = base->ops->attach_co(base, session, &engine);
    if (status != PANDO_OK)
        return status;
    struct sherman *self = sherman_of(engine);
    uint64_t offset = fabric_window_first(pool_fabric(table->pool)) + POOL_DIRECTORY +
                      (uint64_t)table->slot * POOL_ENTRY_BYTES;
    struct fabric_op read = fabric_read(offset, &entry, sizeof(entry));
    status = pool_submit_co(session, 0, &read, 1);
    if (status == PANDO_OK)
        status = sherman_root_co(self, true, &root);
    if (status == PANDO_OK)
        status = free_range_co(self, root, -1, slice_of(NULL, 0), true);
    entry.name[POOL_NAME_MAX - 1] = '\0';
    if (status == PANDO_OK)
        status = pool_table_drop_co(session, entry.name);
    base->ops->detach_co(engine);
    return status;
}
