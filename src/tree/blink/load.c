/*
 * load.c - one level after the other; see load.h.
 */
#include "tree/blink/load.h"
#include "tree/blink/blink_int.h"

enum pando_status blink_load_block_co(struct blink_load *load, struct pool_block *block)
{
    enum pando_status status =
        pool_table_alloc_co(load->self->session, load->self->tree->id, POOL_ANY_NODE,
                            load->self->tree->layout.node_bytes, block);
    if (status != PANDO_OK)
        return status;
    return taken_node_co(&load->taken, (struct pool_block){.address = block->address,
                                                           .version = block->version + 1});
}

enum pando_status blink_load_post(struct blink_load *load, const struct node_header *header,
                                  uint8_t *buffer, struct row *row)
{
    if (!links_add(&load->links, header->address, buffer))
        return PANDO_NO_MEMORY;
    row_writer_post(&load->writer, header->address);
    return row_add(row, header->low, header->address) ? PANDO_OK : PANDO_NO_MEMORY;
}

/* ---- inner nodes ----------------------------------------------------------------------------- */

/* Builds the level above `below`. */
static enum pando_status load_level_co(struct blink_load *load, const struct row *below,
                                       uint8_t level, struct row *above)
{
    struct blink *self = load->self;
    const struct node_layout *layout = &self->tree->layout;
    struct inner_entry *entries = load->scratch->separators;
    struct pool_block block;
    enum pando_status status = blink_load_block_co(load, &block);

    for (size_t at = 0; at < below->count && status == PANDO_OK;) {
        struct node_header header = blink_header(self, block.address, block.version + 1, level);
        size_t first = at++;
        uint32_t count = 0, most = layout->node_bytes * load->fill / 100;
        uint32_t used = 128;
        header.low = row_key(below, first);
        while (at < below->count && count < NODE_ENTRIES_MAX) {
            entries[count] =
                (struct inner_entry){.key = row_key(below, at), .child = below->nodes[at].address};
            used += (uint32_t)((entries[count].key.size + 7) / 8 * 8 + 16);
            /* The high fence will be the next key, of unknown size: count this one's twice. */
            header.high = entries[count].key;
            if ((count > 0 && used > most) || !inner_fits(layout, &header, entries, count + 1))
                break;
            count++;
            at++;
        }
        struct pool_block following = {0};
        header.no_high = at == below->count;
        if (!header.no_high) {
            status = blink_load_block_co(load, &following);
            if (status != PANDO_OK)
                break;
            header.high = row_key(below, at);
            header.sibling = following.address;
        }
        uint8_t *buffer = row_writer_buffer_co(&load->writer);
        inner_build(layout, &header, below->nodes[first].address, entries, count, buffer);
        status = blink_load_post(load, &header, buffer, above);
        block = following;
        if (load->writer.status != PANDO_OK)
            status = load->writer.status;
    }
    return status;
}

/* The old root was an empty leaf; nobody needs it. *placed: the new one is known to others, or may be. */
static enum pando_status swap_root_co(struct blink_load *load, const struct node_header *old,
                                      fabric_address root, bool *placed)
{
    struct blink *self = load->self;
    struct blink_tree *tree = self->tree;
    uint64_t found = 0;
    enum pando_status status =
        pool_root_swap_co(self->session, tree->slot, old->address, root, &found);
    *placed = status != PANDO_STALE || found == root;
    if (status != PANDO_OK)
        return status == PANDO_STALE ? PANDO_EXISTS : status;
    atomic_store_explicit(&tree->root, root, memory_order_release);
    links_link_co(self, &load->links);
    struct pool_block block = {.address = old->address, .version = old->version + 1};
    return pool_free_co(self->session, &block, tree->layout.node_bytes, false);
}

static enum pando_status empty_root_co(struct blink *self, struct blink_scratch *scratch,
                                       struct node_header *header)
{
    fabric_address root;
    uint32_t count;
    enum pando_status status = blink_settled_root_co(self, scratch->node, &root);
    if (status == PANDO_OK)
        status = blink_read_co(self, root, scratch->node, header);
    if (status != PANDO_OK)
        return status;
    if (header->level != 0 ||
        !leaf_entries(&self->tree->layout, header, scratch->node, scratch->entries, &count) ||
        count > 0)
        return PANDO_EXISTS;
    return PANDO_OK;
}

enum pando_status blink_load_co(struct blink_load *load, blink_leaves_fn leaves_co, void *context)
{
    struct row rows[2] = {{0}, {0}};
    struct node_header old;
    uint8_t level = 0;
    bool placed = false;
    enum pando_status status = empty_root_co(load->self, load->scratch, &old);

    if (status == PANDO_OK)
        status = leaves_co(context, &rows[0]);
    while (status == PANDO_OK && rows[level % 2].count > 1) {
        status =
            load_level_co(load, &rows[level % 2], (uint8_t)(level + 1), &rows[(level + 1) % 2]);
        row_free(&rows[level % 2]);
        level++;
    }
    enum pando_status written = row_writer_finish_co(&load->writer);
    if (status == PANDO_OK)
        status = written;
    if (status == PANDO_OK)
        status = swap_root_co(load, &old, rows[level % 2].nodes[0].address, &placed);
    if (status != PANDO_OK && !placed)
        taken_give_back_co(&load->taken);
    row_free(&rows[0]);
    row_free(&rows[1]);
    return status;
}

enum pando_status blink_load_init(struct blink_load *load, struct blink *self, unsigned fill)
{
    load->self = self;
    load->fill = fill;
    load->taken = (struct taken){.session = self->session,
                                 .table = self->tree->id,
                                 .node_bytes = self->tree->layout.node_bytes};
    load->scratch = blink_scratch_take(self);
    if (load->scratch == NULL)
        return PANDO_NO_MEMORY;
    return row_writer_init(&load->writer, self->session, self->tree->layout.node_bytes);
}

void blink_load_fini(struct blink_load *load)
{
    row_writer_fini(&load->writer);
    taken_free(&load->taken);
    links_free(&load->links);
    if (load->scratch != NULL)
        blink_scratch_give(load->self, load->scratch);
}
