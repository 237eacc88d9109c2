/*
 * bulk.c - filling an empty table bottom-up: leaves from left to right, then one level after the
 * other. The root page is written last, so that a load that fails half-way changes nothing: what it
 * has written is given back.
 *
 * Pages of one subtree lie on one memory node, and memory nodes take turns (place.c). Small tables have
 * small subtrees, so that they are spread, too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tree/dex/tree.h"
#include "tree/row/row.h"
#include "tree/row/row_writer.h"
#include "tree/row/taken.h"

struct bulk {
    struct dex *self;
    unsigned fill;
    struct row_writer writer;
    struct taken taken;
    uint64_t subtree; /* that is being filled, and its bank */
    uint16_t bank;
};

/* ---- pages ----------------------------------------------------------------------------------- */

/* The page being filled: its pairs are put into a buffer with the longest fences, and into the real
 * page when its upper fence is known. */
struct filling {
    uint8_t *pairs;
    struct page_header header;
    uint8_t low[PAGE_KEY_ROOM];
    uint32_t limit; /* bytes of pairs that it shall have */
};

static enum pando_status block_co(struct bulk *bulk, uint16_t bank, struct page_header *header)
{
    enum pando_status status = dex_alloc_co(bulk->self, bank, header);
    struct pool_block block = {.address = header->address, .version = header->version};
    return status == PANDO_OK ? taken_node_co(&bulk->taken, block) : status;
}

/* Begins a page whose block is known. */
static void filling_begin(struct bulk *bulk, struct filling *filling, struct slice low)
{
    const struct page_layout *layout = &bulk->self->table->layout;
    struct page_header widest = filling->header;
    uint32_t space = page_space(layout, filling->header.level, layout->key_max, layout->key_max);

    if (low.data != NULL && low.size > 0)
        memcpy(filling->low, low.data, low.size);
    filling->header.low = slice_of(filling->low, low.size);
    filling->limit = (uint32_t)((uint64_t)space * bulk->fill / 100);
    widest.no_high = true;
    page_init(layout, &widest, filling->pairs);
}

/* Ends it: `next` is what the following begins with, NULL for the last; `following` its block. */
static enum pando_status filling_end_co(struct bulk *bulk, struct filling *filling, struct row *row,
                                        const struct slice *next, fabric_address following)
{
    const struct page_layout *layout = &bulk->self->table->layout;
    uint8_t *bytes = row_writer_buffer_co(&bulk->writer);

    filling->header.no_high = next == NULL;
    filling->header.sibling = following;
    if (next != NULL)
        filling->header.high = *next;
    page_init(layout, &filling->header, bytes);
    bool fits = page_append(layout, bytes, filling->pairs, 0, page_pairs(filling->pairs));
    pando_assert(fits);
    page_seal(layout, bytes);
    row_writer_post(&bulk->writer, filling->header.address);
    if (!row_add(row, filling->header.low, filling->header.address))
        return PANDO_NO_MEMORY;
    return bulk->writer.status;
}

static bool filling_full(const struct bulk *bulk, const struct filling *filling,
                         const struct page_pair *pair)
{
    const struct page_layout *layout = &bulk->self->table->layout;
    uint32_t used = page_used(layout, filling->pairs);
    /* However little of a page is to be used, a level has fewer pages than the one below. */
    uint32_t least = filling->header.level > 0 ? 4 : 1;
    return page_pairs(filling->pairs) > 0 &&
           ((used >= filling->limit && page_pairs(filling->pairs) >= least) ||
            !page_room(layout, filling->pairs, UINT32_MAX, pair->key.size + 2 * layout->key_max,
                       pair->value.size));
}

/* The first page of a level. Closed also if this fails. */
static enum pando_status filling_open_co(struct bulk *bulk, struct filling *filling, uint8_t level,
                                         uint16_t bank)
{
    *filling = (struct filling){
        .pairs = aligned_alloc(64, bulk->self->table->layout.page_bytes),
        .header = {.level = level},
    };
    if (filling->pairs == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = block_co(bulk, bank, &filling->header);
    if (status == PANDO_OK)
        filling_begin(bulk, filling, slice_of(NULL, 0));
    return status;
}

/* The next one, which begins with that key. */
static enum pando_status filling_turn_co(struct bulk *bulk, struct filling *filling,
                                         struct row *row, struct slice key, uint16_t bank)
{
    struct page_header following = {.level = filling->header.level};
    enum pando_status status = block_co(bulk, bank, &following);
    if (status == PANDO_OK)
        status = filling_end_co(bulk, filling, row, &key, following.address);
    filling->header = following;
    if (status == PANDO_OK)
        filling_begin(bulk, filling, key);
    return status;
}

static enum pando_status filling_push(const struct bulk *bulk, struct filling *filling,
                                      const struct page_pair *pair)
{
    bool fits = page_push(&bulk->self->table->layout, filling->pairs, pair);
    return fits ? PANDO_OK : PANDO_TOO_LARGE;
}

/* The last one ends, unless something failed. */
static enum pando_status filling_close_co(struct bulk *bulk, struct filling *filling,
                                          struct row *row, enum pando_status status)
{
    if (status == PANDO_OK)
        status = filling_end_co(bulk, filling, row, NULL, 0);
    free(filling->pairs);
    return status;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Which bank the n-th leaf lies in: subtrees of the paper's size once there are many leaves,
 * smaller ones before. */
static uint16_t bank_of(struct bulk *bulk, size_t leaf, uint32_t fanout)
{
    uint64_t banks = pool_banks(bulk->self->table->pool), group = fanout;
    for (int level = 2; level <= DEX_SUBTREE_LEVEL && leaf >= banks * group * fanout; level++)
        group *= fanout;
    if (leaf == 0 || leaf / group != bulk->subtree)
        bulk->bank = dex_place_turn(bulk->self, 1);
    bulk->subtree = leaf / group;
    return bulk->bank;
}

static enum pando_status pair_value_co(struct bulk *bulk, struct page_pair *pair, blob_ref *blob)
{
    struct dex_table *table = bulk->self->table;
    const struct engine_shape *shape = &table->base.shape;
    bool staged = pair->value.data == NULL && pair->value.size != 0;
    if (shape->value_size != 0 ? pair->value.size != shape->value_size
                               : !staged && pair->value.size > ENGINE_VALUE_MAX)
        return PANDO_INVALID;
    if (!staged && pair->value.size <= table->inline_max)
        return PANDO_OK;
    enum pando_status status = PANDO_OK;
    *blob = pair->value.size;
    if (!staged)
        status = blob_write_co(bulk->self->base.session, table->id, pair->key, pair->value, blob);
    pair->value = slice_of(blob, sizeof(*blob));
    pair->blob = true;
    return status == PANDO_OK ? taken_blob_co(&bulk->taken, *blob) : status;
}

static bool key_follows(const struct engine_shape *shape, const struct slice *last,
                        struct slice key)
{
    return key.size <= shape->key_max && (shape->key_size == 0 || key.size == shape->key_size) &&
           (last->data == NULL || slice_compare(*last, key) < 0);
}

static enum pando_status leaves_co(struct bulk *bulk, engine_feed_fn next, void *context,
                                   struct row *row)
{
    struct dex *self = bulk->self;
    const struct page_layout *layout = &self->table->layout;
    struct filling filling;
    uint32_t fanout = page_space(layout, 1, 0, 0) * bulk->fill / 100 /
                      (layout->key_size == 8 ? 16 : 24 + layout->key_max);
    uint8_t last_bytes[PAGE_KEY_ROOM];
    struct slice last = {0};
    struct page_pair pair = {0};

    if (fanout < 4)
        fanout = 4;
    enum pando_status status = filling_open_co(bulk, &filling, 0, bank_of(bulk, 0, fanout));
    while (status == PANDO_OK && next(context, &pair.key, &pair.value)) {
        fabric_address blob = 0;
        pair.blob = false;
        if (!key_follows(&self->table->base.shape, &last, pair.key)) {
            status = PANDO_INVALID;
            break;
        }
        memcpy(last_bytes, pair.key.data, pair.key.size);
        last = slice_of(last_bytes, pair.key.size);
        status = pair_value_co(bulk, &pair, &blob);
        if (status == PANDO_OK && filling_full(bulk, &filling, &pair))
            status = filling_turn_co(bulk, &filling, row, pair.key,
                                     bank_of(bulk, row->count + 1, fanout));
        if (status == PANDO_OK)
            status = filling_push(bulk, &filling, &pair);
    }
    return filling_close_co(bulk, &filling, row, status);
}

/* ---- inner levels ---------------------------------------------------------------------------- */

static enum pando_status level_co(struct bulk *bulk, const struct row *below, uint8_t level,
                                  struct row *row)
{
    struct filling filling;
    enum pando_status status =
        filling_open_co(bulk, &filling, level, pool_bank(below->nodes[0].address));
    for (size_t i = 0; i < below->count && status == PANDO_OK; i++) {
        struct page_pair pair = {.key = row_key(below, i),
                                 .value = slice_of(&below->nodes[i].address, 8)};
        uint16_t bank = level <= DEX_SUBTREE_LEVEL ? pool_bank(below->nodes[i].address)
                                                   : (uint16_t)POOL_ANY_NODE;
        if (filling_full(bulk, &filling, &pair))
            status = filling_turn_co(bulk, &filling, row, pair.key, bank);
        if (status == PANDO_OK)
            status = filling_push(bulk, &filling, &pair);
    }
    return filling_close_co(bulk, &filling, row, status);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The root gets what the top level's only page has; that page goes. *placed: others know of it, or may. */
static enum pando_status finish_root_co(struct bulk *bulk, fabric_address top, bool *placed)
{
    struct dex *self = bulk->self;
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, table->root_frame);
    struct dex_scratch *scratch = dex_scratch_take(self);

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    frame_latch_co(&table->cache.frames, frame);
    enum pando_status status = dex_read_co(self, top, scratch->page);
    if (status == PANDO_OK) {
        page_copy(scratch->image, scratch->page, table->layout.page_bytes);
        page_word_set(scratch->image, POOL_BLOCK_ADDRESS, frame->address);
        page_set_version(scratch->image,
                         page_version(frame_bytes(&table->cache.frames, table->root_frame)) + 1);
        struct dex_page_write change = {.images = {scratch->image}, .count = 1};
        status = dex_write_pages_co(self, scratch, &change);
        *placed = status == PANDO_OK || status == PANDO_UNKNOWN;
    }
    if (status == PANDO_OK) {
        dex_relink_children_co(self, table->root_frame, scratch->image);
        page_set_version(scratch->page, page_version(scratch->page) + 1);
        enum pando_status freed = dex_free_page_co(self, scratch->page);
        (void)freed; /* what was loaded is there all the same */
    }
    frame_give_changed(frame);
    dex_scratch_give(self, scratch);
    return status;
}

/* All keys are ours, and there are none. */
static enum pando_status check_empty_co(struct dex *self)
{
    struct dex_table *table = self->table;
    struct pool_retry retry = {0};
    struct slice lowest = slice_of(NULL, 0);
    uint64_t owner = 0;

    struct step step;
    do
        step = owners_claim_co(&self->owners, lowest, &owner);
    while (dex_again_co(self, &retry, &step));
    if (!step_ok(step))
        return step.status;
    const uint8_t *root = frame_bytes(&table->cache.frames, table->root_frame);
    return owner != owners_self(&table->owners) || page_level(root) > 0 || page_pairs(root) > 0
               ? PANDO_EXISTS
               : PANDO_OK;
}

enum pando_status dex_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                   unsigned fill)
{
    struct dex *self = dex_of(engine);
    struct bulk bulk = {.self = self,
                        .fill = fill,
                        .taken = {.session = self->base.session,
                                  .table = self->table->id,
                                  .node_bytes = self->table->layout.page_bytes}};
    struct row rows[2] = {0};
    unsigned level = 0;
    bool placed = false;

    enum pando_status status = check_empty_co(self);
    if (status != PANDO_OK)
        return status;
    status = row_writer_init(&bulk.writer, self->base.session, self->table->layout.page_bytes);
    if (status != PANDO_OK)
        return status;
    status = leaves_co(&bulk, next, context, &rows[0]);
    while (status == PANDO_OK && rows[level % 2].count > 1) {
        row_free(&rows[(level + 1) % 2]);
        status = level_co(&bulk, &rows[level % 2], (uint8_t)(level + 1), &rows[(level + 1) % 2]);
        level++;
    }
    enum pando_status written = row_writer_finish_co(&bulk.writer);
    if (status == PANDO_OK)
        status = written;
    if (status == PANDO_OK)
        status = finish_root_co(&bulk, rows[level % 2].nodes[0].address, &placed);
    if (status != PANDO_OK && !placed)
        taken_give_back_co(&bulk.taken);
    row_free(&rows[0]);
    row_free(&rows[1]);
    row_writer_fini(&bulk.writer);
    taken_free(&bulk.taken);
    return status;
}
