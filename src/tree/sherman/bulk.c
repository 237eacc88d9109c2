/*
 * bulk.c - filling an empty table: its leaves. The levels above are blink/load.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "tree/blink/load.h"
#include "tree/sherman/sherman_int.h"

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

struct bulk {
    struct sherman *self;
    struct blink_load load;
    struct filling filling;
    engine_feed_fn next;
    void *context;
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
static enum pando_status leaf_flush_co(struct bulk *bulk, struct row *row, const struct slice *next)
{
    struct sherman *self = bulk->self;
    struct filling *filling = &bulk->filling;
    struct pool_block following = {0};
    enum pando_status status =
        next == NULL ? PANDO_OK : blink_load_block_co(&bulk->load, &following);
    if (status != PANDO_OK)
        return status;
    struct node_header header =
        blink_header(&self->blink, filling->block.address, filling->block.version + 1, 0);
    header.low = slice_of(filling->low, filling->low_size);
    header.no_high = next == NULL;
    if (next != NULL) {
        header.high = *next;
        header.sibling = following.address;
    }
    uint8_t *buffer = row_writer_buffer_co(&bulk->load.writer);
    leaf_build(&self->table->blink.layout, &header, filling->entries, filling->count, buffer);
    status = blink_load_post(&bulk->load, &header, buffer, row);
    if (status != PANDO_OK)
        return status;
    filling->count = filling->used = 0;
    filling->size = 0;
    filling->block = following;
    if (next != NULL) {
        memcpy(filling->low, next->data, next->size);
        filling->low_size = next->size;
    }
    return bulk->load.writer.status;
}

static enum pando_status make_entry_co(struct bulk *bulk, struct slice key, struct slice value,
                                       uint64_t *blob, struct node_entry *entry)
{
    struct sherman *self = bulk->self;
    const struct engine_shape *shape = &self->table->base.shape;
    *entry = (struct node_entry){.key = key, .value = value};
    bool staged = value.data == NULL && value.size != 0;
    if (key.size > shape->key_max || (shape->key_size != 0 && key.size != shape->key_size) ||
        (shape->value_size != 0 && value.size != shape->value_size) ||
        (!staged && value.size > ENGINE_VALUE_MAX))
        return PANDO_TOO_LARGE;
    if (!staged && value.size <= shape->value_inline)
        return PANDO_OK;
    enum pando_status status = PANDO_OK;
    *blob = value.size;
    if (!staged)
        status = blob_write_co(self->base.session, self->table->blink.id, key, value, blob);
    entry->value = slice_of(blob, sizeof(*blob));
    entry->flags = NODE_FLAG_BLOB;
    return status == PANDO_OK ? taken_blob_co(&bulk->load.taken, *blob) : status;
}

static enum pando_status load_leaves_co(void *context, struct row *row)
{
    struct bulk *bulk = context;
    struct sherman *self = bulk->self;
    struct filling *filling = &bulk->filling;
    const struct node_layout *layout = &self->table->blink.layout;
    uint32_t room =
        layout->fixed ? layout->slot_count * layout->slot_bytes : layout->node_bytes - 64;
    uint32_t most = room * bulk->load.fill / 100;
    /* Fences take room, too, and the high one is the first key of the next leaf: of any size. */
    static const uint8_t filler[ENGINE_KEY_MAX];
    struct slice longest = slice_of(filler, self->table->base.shape.key_max);
    struct slice key, value;
    enum pando_status status = blink_load_block_co(&bulk->load, &filling->block);

    while (status == PANDO_OK && bulk->next(bulk->context, &key, &value)) {
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
            status = leaf_flush_co(bulk, row, &key);
        if (status == PANDO_OK) {
            filling_add(filling, &entry);
            filling->used += bytes;
        }
    }
    return status == PANDO_OK ? leaf_flush_co(bulk, row, NULL) : status;
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
    bulk->next = next;
    bulk->context = context;
    enum pando_status status = blink_load_init(&bulk->load, &self->blink, fill);
    bulk->filling.bytes = malloc(2 * (size_t)self->table->blink.layout.node_bytes);
    if (status == PANDO_OK && bulk->filling.bytes == NULL)
        status = PANDO_NO_MEMORY;
    if (status == PANDO_OK) {
        bulk->filling.entries = bulk->load.scratch->entries;
        status = blink_load_co(&bulk->load, load_leaves_co, bulk);
    }
    blink_load_fini(&bulk->load);
    free(bulk->filling.bytes);
    free(bulk);
    return status;
}
