/*
 * bulk.c - filling an empty table bottom-up: leaves from left to right, then one level after the
 * other. The root pointer is swapped when all is written, so that a load that fails half-way changes
 * nothing: what it has written is given back. Until then nodes are unlinked (R21): the table may have had
 * others in the same blocks, whose addresses clients still know. Then they are linked; what a death leaves
 * unlinked is linked by whoever comes by it from the root.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tree/row/row.h"
#include "tree/row/row_writer.h"
#include "tree/row/taken.h"
#include "tree/sherman/links.h"
#include "tree/sherman/sherman_int.h"

struct bulk {
    struct sherman *self;
    struct scratch *scratch;
    unsigned fill;
    struct row_writer writer;
    struct taken taken;
    struct links links;
};

static enum pando_status block_co(struct bulk *bulk, struct pool_block *block)
{
    enum pando_status status =
        pool_table_alloc_co(bulk->self->base.session, bulk->self->table->id, POOL_ANY_NODE,
                            bulk->self->table->layout.node_bytes, block);
    if (status != PANDO_OK)
        return status;
    return taken_node_co(&bulk->taken, (struct pool_block){.address = block->address,
                                                           .version = block->version + 1});
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Pairs of the leaf being filled; their bytes are copied, because the feed's live only until the
 * next. */
struct filling {
    struct node_entry *entries;
    uint32_t count, used;
    uint8_t *bytes;
    size_t size;
    uint8_t low[ENGINE_KEY_MAX];
    size_t low_size;
    struct pool_block block;
};

static void filling_add(struct filling *filling, const struct node_entry *entry)
{
    struct node_entry *to = &filling->entries[filling->count++];
    memcpy(filling->bytes + filling->size, entry->key.data, entry->key.size);
    to->key = slice_of(filling->bytes + filling->size, entry->key.size);
    filling->size += entry->key.size;
    memcpy(filling->bytes + filling->size, entry->value.data, entry->value.size);
    to->value = slice_of(filling->bytes + filling->size, entry->value.size);
    filling->size += entry->value.size;
    to->flags = entry->flags;
}

/* Writes the leaf; `next` is the key that begins the following one, or NULL. */
static enum pando_status leaf_flush_co(struct bulk *bulk, struct filling *filling, struct row *row,
                                       const struct slice *next)
{
    struct sherman *self = bulk->self;
    struct pool_block following = {0};
    enum pando_status status = next == NULL ? PANDO_OK : block_co(bulk, &following);
    if (status != PANDO_OK)
        return status;
    struct node_header header =
        sherman_header(self, filling->block.address, filling->block.version + 1, 0);
    header.low = slice_of(filling->low, filling->low_size);
    header.no_high = next == NULL;
    if (next != NULL) {
        header.high = *next;
        header.sibling = following.address;
    }
    uint8_t *buffer = row_writer_buffer_co(&bulk->writer);
    leaf_build(&self->table->layout, &header, filling->entries, filling->count, buffer);
    if (!links_add(&bulk->links, header.address, buffer))
        return PANDO_NO_MEMORY;
    row_writer_post(&bulk->writer, header.address);
    if (!row_add(row, header.low, header.address))
        return PANDO_NO_MEMORY;
    filling->count = filling->used = 0;
    filling->size = 0;
    filling->block = following;
    if (next != NULL) {
        memcpy(filling->low, next->data, next->size);
        filling->low_size = next->size;
    }
    return bulk->writer.status;
}

static enum pando_status make_entry_co(struct bulk *bulk, struct slice key, struct slice value,
                                       uint64_t *blob, struct node_entry *entry)
{
    struct sherman *self = bulk->self;
    const struct engine_shape *shape = &self->table->base.shape;
    *entry = (struct node_entry){.key = key, .value = value};
    if (key.size > shape->key_max || (shape->key_size != 0 && key.size != shape->key_size) ||
        (shape->value_size != 0 && value.size != shape->value_size) ||
        value.size > ENGINE_VALUE_MAX)
        return PANDO_TOO_LARGE;
    if (value.size <= shape->value_inline)
        return PANDO_OK;
    enum pando_status status = blob_write_co(self->base.session, self->table->id, key, value, blob);
    entry->value = slice_of(blob, sizeof(*blob));
    entry->flags = NODE_FLAG_BLOB;
    return status == PANDO_OK ? taken_blob_co(&bulk->taken, *blob) : status;
}

static enum pando_status load_leaves_co(struct bulk *bulk, struct filling *filling,
                                        engine_feed_fn next, void *context, struct row *row)
{
    struct sherman *self = bulk->self;
    const struct node_layout *layout = &self->table->layout;
    uint32_t room =
        layout->fixed ? layout->slot_count * layout->slot_bytes : layout->node_bytes - 64;
    uint32_t most = room * bulk->fill / 100;
    /* Fences take room, too, and the high one is the first key of the next leaf: of any size. */
    static const uint8_t filler[ENGINE_KEY_MAX];
    struct slice longest = slice_of(filler, self->table->base.shape.key_max);
    struct slice key, value;
    enum pando_status status = block_co(bulk, &filling->block);

    while (status == PANDO_OK && next(context, &key, &value)) {
        struct node_entry entry;
        uint64_t blob;
        status = make_entry_co(bulk, key, value, &blob, &entry);
        if (status != PANDO_OK)
            break;
        if (filling->count > 0 && slice_compare(filling->entries[filling->count - 1].key, key) >= 0)
            return PANDO_INVALID;
        uint32_t bytes =
            leaf_cell_bytes(layout, (uint32_t)entry.key.size, (uint32_t)entry.value.size);
        filling->entries[filling->count] = entry;
        struct node_header header = {.low = slice_of(filling->low, filling->low_size),
                                     .high = longest};
        bool full = filling->used + bytes > most ||
                    !leaf_fits(layout, &header, filling->entries, filling->count + 1);
        if (filling->count > 0 && full)
            status = leaf_flush_co(bulk, filling, row, &key);
        if (status == PANDO_OK) {
            filling_add(filling, &entry);
            filling->used += bytes;
        }
    }
    return status == PANDO_OK ? leaf_flush_co(bulk, filling, row, NULL) : status;
}

/* ---- inner nodes ----------------------------------------------------------------------------- */

/* Builds the level above `below`. */
static enum pando_status load_level_co(struct bulk *bulk, const struct row *below, uint8_t level,
                                       struct row *above)
{
    struct sherman *self = bulk->self;
    const struct node_layout *layout = &self->table->layout;
    struct inner_entry *entries = bulk->scratch->separators;
    struct pool_block block;
    enum pando_status status = block_co(bulk, &block);

    for (size_t at = 0; at < below->count && status == PANDO_OK;) {
        struct node_header header = sherman_header(self, block.address, block.version + 1, level);
        size_t first = at++;
        uint32_t count = 0, most = layout->node_bytes * bulk->fill / 100;
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
            status = block_co(bulk, &following);
            if (status != PANDO_OK)
                break;
            header.high = row_key(below, at);
            header.sibling = following.address;
        }
        uint8_t *buffer = row_writer_buffer_co(&bulk->writer);
        inner_build(layout, &header, below->nodes[first].address, entries, count, buffer);
        if (!links_add(&bulk->links, header.address, buffer)) {
            status = PANDO_NO_MEMORY;
            break;
        }
        row_writer_post(&bulk->writer, header.address);
        if (!row_add(above, header.low, header.address))
            status = PANDO_NO_MEMORY;
        block = following;
        if (bulk->writer.status != PANDO_OK)
            status = bulk->writer.status;
    }
    return status;
}

/* The old root was an empty leaf; nobody needs it. *placed: the new one is known to others, or may be. */
static enum pando_status swap_root_co(struct bulk *bulk, const struct node_header *old,
                                      fabric_address root, bool *placed)
{
    struct sherman *self = bulk->self;
    struct sherman_table *table = self->table;
    uint64_t found = 0;
    enum pando_status status =
        pool_root_swap_co(self->base.session, table->slot, old->address, root, &found);
    *placed = status != PANDO_STALE || found == root;
    if (status != PANDO_OK)
        return status == PANDO_STALE ? PANDO_EXISTS : status;
    atomic_store_explicit(&table->root, root, memory_order_release);
    links_link_co(self, &bulk->links);
    struct pool_block block = {.address = old->address, .version = old->version + 1};
    return pool_free_co(self->base.session, &block, table->layout.node_bytes, false);
}

static enum pando_status empty_root_co(struct sherman *self, struct scratch *scratch,
                                       struct node_header *header)
{
    fabric_address root;
    uint32_t count;
    enum pando_status status = sherman_root_co(self, true, &root);
    if (status == PANDO_OK)
        status = sherman_read_co(self, root, scratch->node, header);
    if (status != PANDO_OK)
        return status;
    if (header->level != 0 ||
        !leaf_entries(&self->table->layout, header, scratch->node, scratch->entries, &count) ||
        count > 0)
        return PANDO_EXISTS;
    return PANDO_OK;
}

static enum pando_status load_co(struct bulk *bulk, engine_feed_fn next, void *context)
{
    struct sherman *self = bulk->self;
    struct row rows[2] = {{0}, {0}};
    struct node_header old;
    struct filling filling = {.entries = bulk->scratch->entries};
    uint8_t level = 0;
    bool placed = false;
    enum pando_status status = empty_root_co(self, bulk->scratch, &old);

    filling.bytes = malloc(2 * (size_t)self->table->layout.node_bytes);
    if (status == PANDO_OK)
        status = filling.bytes == NULL ? PANDO_NO_MEMORY
                                       : load_leaves_co(bulk, &filling, next, context, &rows[0]);
    while (status == PANDO_OK && rows[level % 2].count > 1) {
        status =
            load_level_co(bulk, &rows[level % 2], (uint8_t)(level + 1), &rows[(level + 1) % 2]);
        row_free(&rows[level % 2]);
        level++;
    }
    enum pando_status written = row_writer_finish_co(&bulk->writer);
    if (status == PANDO_OK)
        status = written;
    if (status == PANDO_OK)
        status = swap_root_co(bulk, &old, rows[level % 2].nodes[0].address, &placed);
    if (status != PANDO_OK && !placed)
        taken_give_back_co(&bulk->taken);
    free(filling.bytes);
    row_free(&rows[0]);
    row_free(&rows[1]);
    return status;
}

enum pando_status sherman_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                       unsigned fill)
{
    struct sherman *self = sherman_of(engine);
    if (fill < 10 || fill > 100)
        return PANDO_INVALID;
    struct bulk *bulk = calloc(1, sizeof(*bulk));
    if (bulk == NULL)
        return PANDO_NO_MEMORY;
    bulk->self = self;
    bulk->fill = fill;
    bulk->taken = (struct taken){.session = self->base.session,
                                 .table = self->table->id,
                                 .node_bytes = self->table->layout.node_bytes};
    bulk->scratch = scratch_take(self);
    if (bulk->scratch == NULL) {
        free(bulk);
        return PANDO_NO_MEMORY;
    }
    enum pando_status status =
        row_writer_init(&bulk->writer, self->base.session, self->table->layout.node_bytes);
    if (status == PANDO_OK)
        status = load_co(bulk, next, context);
    row_writer_fini(&bulk->writer);
    taken_free(&bulk->taken);
    links_free(&bulk->links);
    scratch_give(self, bulk->scratch);
    free(bulk);
    return status;
}
