/*
 * drop.c - freeing all nodes of a tree that nobody uses any more.
 */
#include "tree/blink/blink_int.h"

static enum pando_status free_node_co(struct blink *self, const struct node_header *header)
{
    struct pool_block block = {.address = header->address, .version = header->version + 1};
    return pool_free_co(self->session, &block, self->tree->layout.node_bytes, false);
}

static enum pando_status free_range_co(struct blink *self, fabric_address address, int level,
                                       struct slice high, bool no_high);

static enum pando_status free_children_co(struct blink *self, struct blink_scratch *scratch,
                                          const struct node_header *header)
{
    const struct inner_entry *separators = scratch->separators;
    fabric_address leftmost;
    uint32_t count;
    enum pando_status status = PANDO_OK;

    inner_entries(&self->tree->layout, scratch->node, &leftmost, scratch->separators, &count);
    for (uint32_t i = 0; i <= count && status == PANDO_OK; i++) {
        bool last = i == count;
        status = free_range_co(self, i == 0 ? leftmost : separators[i - 1].child, header->level - 1,
                               last ? header->high : separators[i].key, last && header->no_high);
    }
    return status;
}

/* A node, all below it, and what is to its right below `high`: the halves of splits that their
 * parent does not have. */
static enum pando_status free_range_co(struct blink *self, fabric_address address, int level,
                                       struct slice high, bool no_high)
{
    struct blink_scratch *scratch = blink_scratch_take(self);
    struct node_header header;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    /* Nobody changes the table any more: every pointer in it is a true one. */
    enum pando_status status =
        blink_read_linked_co(self, address, rt_coarse_ns(), scratch->node, &header);
    if (status == PANDO_STALE || (status == PANDO_OK && header.dead)) {
        /* Freed by an earlier try, after all that hung on it; or by whoever merged it. */
        blink_scratch_give(self, scratch);
        return PANDO_OK;
    }
    if (status == PANDO_OK && level >= 0 && header.level != level)
        status = PANDO_CORRUPT;
    if (status == PANDO_OK)
        status = header.level == 0 ? self->tree->leaves->free_values_co(self, scratch, &header)
                                   : free_children_co(self, scratch, &header);
    bool more = status == PANDO_OK && !header.no_high && header.sibling != 0 &&
                (no_high || slice_compare(header.high, high) < 0);
    if (more)
        status = free_range_co(self, header.sibling, header.level, high, no_high);
    if (status == PANDO_OK)
        status = free_node_co(self, &header);
    blink_scratch_give(self, scratch);
    return status;
}

enum pando_status blink_free_all_co(struct blink *self)
{
    struct blink_scratch *scratch = blink_scratch_take(self);
    fabric_address root;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = blink_settled_root_co(self, scratch->node, &root);
    blink_scratch_give(self, scratch);
    return status == PANDO_OK ? free_range_co(self, root, -1, slice_of(NULL, 0), true) : status;
}
