/*
 * pages.c - pages in the pool: reading, writing, allocating.
 *
 * A page is replaced in place. If this process died in the middle, the page would be neither what it
 * was nor what it should be, and no log of single changes mends that; so the new image goes into an
 * intent first, in the same list, and whoever recovers this process finishes it (R18). Such an intent
 * names no lock: nobody else writes the page, and while its slot holds it, its list has not ended.
 */
#include <string.h>

#include "base/assert.h"
#include "tree/dex/dex_int.h"

static const uint64_t zero;

enum pando_status dex_retry_co(struct dex *self, struct pool_retry *retry)
{
    /* Who is leaving does not wait long for a pool that cannot be reached: others will take over. */
    retry->leaving = &self->table->closing;
    return pool_retry_co(self->table->pool, retry);
}

enum pando_status dex_read_co(struct dex *self, fabric_address address, uint8_t *bytes)
{
    struct dex_table *table = self->table;

    if (address == 0 || fabric_address_node(address) >= pool_nodes(table->pool))
        return PANDO_STALE;
    struct pool_reading reading = {
        .address = address, .to = bytes, .size = table->layout.page_bytes};
    bool torn = false;
    for (;;) {
        enum pando_status status = pool_read_co(self->base.session, &reading);
        /* Nothing is known of a page if every READ of it came too late to count. */
        if (status == PANDO_STALE && reading.tries > 1 && !torn)
            return PANDO_TIMEOUT;
        if (status != PANDO_OK)
            return status;
        if (reading.recent && page_check(&table->layout, address, bytes))
            return PANDO_OK;
        torn = torn || reading.recent;
        dex_count(&table->stats.rereads);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* An intent with all images, or 0 when they do not fit into one. */
static uint32_t build_intent(struct dex *self, struct dex_scratch *scratch, fabric_address slot,
                             const struct dex_change *change)
{
    const struct page_layout *layout = &self->table->layout;
    struct intent_builder builder;
    struct intent_lock home = {.word = pool_lock_word(pool_identity(self->table->pool), 1)};

    if (change->lock != NULL)
        home = (struct intent_lock){change->lock->address, change->lock->word};
    intent_begin(&builder, scratch->intent, POOL_INTENT_BYTES, home);
    for (unsigned i = 0; i < change->count; i++)
        intent_add_image(&builder, page_address(change->images[i]),
                         slice_of(change->images[i], layout->page_bytes));
    return (uint32_t)intent_finish(&builder, layout->pool, slot);
}

enum pando_status dex_change_co(struct dex *self, struct dex_scratch *scratch,
                                const struct dex_change *change)
{
    const struct page_layout *layout = &self->table->layout;
    uint16_t node = fabric_address_node(page_address(change->images[0]));
    struct fabric_op ops[DEX_CHANGE_PAGES + 3];
    fabric_address slot = 0;
    uint32_t count = 0;
    enum pando_status status = PANDO_OK;

    pando_assert(change->count > 0 && change->count <= DEX_CHANGE_PAGES);
    for (unsigned i = 0; i < change->count; i++)
        page_seal(layout, change->images[i]);
    if (!change->plain) {
        status = pool_intent_take_co(self->base.session, node, &slot);
        uint32_t size = status == PANDO_OK ? build_intent(self, scratch, slot, change) : 0;
        if (status != PANDO_OK)
            return status;
        pando_assert(size > 0);
        ops[count++] = fabric_write(fabric_address_offset(slot), scratch->intent, size);
    }
    for (unsigned i = 0; i < change->count; i++)
        ops[count++] = fabric_write(fabric_address_offset(page_address(change->images[i])),
                                    change->images[i], layout->page_bytes);
    if (slot != 0)
        ops[count++] = fabric_write(fabric_address_offset(slot), &zero, sizeof(zero));
    if (change->lock != NULL) {
        ops[count++] = fabric_write(fabric_address_offset(change->lock->address),
                                    pool_lock_release(change->lock), sizeof(uint64_t));
        status = pool_persist_unlock_co(self->base.session, change->lock, ops, count,
                                        &self->table->closing);
    } else {
        status = pool_persist_co(self->base.session, node, ops, count, &self->table->closing);
    }
    for (unsigned i = 0; i < change->count; i++)
        visible_wrote(&self->table->visible, page_address(change->images[i]));
    if (slot != 0 && status == PANDO_OK)
        pool_intent_give(self->base.session, slot);
    return status;
}

void dex_image(const struct dex_table *table, uint32_t index, uint8_t *image)
{
    const struct page_layout *layout = &table->layout;
    page_copy(image, frame_bytes(&table->frames, index), layout->page_bytes);
    if (page_level(image) == 0)
        return;
    for (uint32_t i = 0; i < page_pairs(image); i++) {
        uint64_t word = page_child(layout, image, i);
        if (frame_swizzled(word))
            page_set_child(layout, image, i, frame_at(&table->frames, (uint32_t)word)->address);
    }
}

/* What was changed must be written, so this does not fail for want of memory: writers then take turns. Whoever
 * has the reserve waits for the log and the pool only, never for a page. */
static struct dex_scratch *scratch_for_writing_co(struct dex *self, bool *reserve)
{
    struct dex_scratch *scratch = dex_scratch_take(self);
    *reserve = scratch == NULL;
    while (scratch == NULL) {
        scratch = self->reserve;
        self->reserve = NULL;
        if (scratch == NULL)
            rt_sleep_co(RT_NS_PER_US);
    }
    return scratch;
}

enum pando_status dex_write_back_co(struct dex *self, uint32_t index)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->frames, index);
    bool reserve;
    struct dex_scratch *scratch = scratch_for_writing_co(self, &reserve);
    enum pando_status status = PANDO_OK;

    /* R35: the log first. */
    if (table->log != NULL)
        status = dex_log_wait_co(table->log, self->base.session, atomic_load(&frame->end));
    if (status == PANDO_OK && table->on.write_back) {
        struct dex_change change = {
            .images = {scratch->image}, .count = 1, .plain = !table->on.log};
        dex_image(table, index, scratch->image);
        status = dex_change_co(self, scratch, &change);
    }
    if (status == PANDO_OK) {
        frame->dirty = false;
        frame->first = 0;
    }
    if (reserve)
        self->reserve = scratch;
    else
        dex_scratch_give(self, scratch);
    return status;
}

/* ---- allocating ------------------------------------------------------------------------------ */

uint64_t dex_tenure(const struct dex_table *table, bool live)
{
    return pool_tenure_pack((struct pool_tenure){.state = live ? POOL_BLOCK_LIVE : POOL_BLOCK_FREE,
                                                 .kind = PAGE_KIND,
                                                 .table = table->id,
                                                 .holder = pool_identity(table->pool)});
}

static enum pando_status alloc_co(struct dex *self, uint16_t node, bool vital,
                                  struct page_header *header)
{
    struct pool_block block;
    uint32_t bytes = self->table->layout.page_bytes;
    enum pando_status status =
        pool_table_alloc_co(self->base.session, self->table->id, node, bytes, &block);
    /* A subtree lies on one memory node; when that is full, anywhere. */
    if (status == PANDO_FULL && node != POOL_ANY_NODE)
        status =
            pool_table_alloc_co(self->base.session, self->table->id, POOL_ANY_NODE, bytes, &block);
    if (status == PANDO_FULL && vital)
        status = pool_table_vital_alloc_co(self->base.session, self->table->id, bytes, &block);
    if (status != PANDO_OK)
        return status;
    header->address = block.address;
    header->version = block.version + 1;
    header->tenure = dex_tenure(self->table, true);
    return PANDO_OK;
}

enum pando_status dex_alloc_co(struct dex *self, uint16_t node, struct page_header *header)
{
    return alloc_co(self, node, false, header);
}

enum pando_status dex_alloc_half_co(struct dex *self, uint16_t node, uint8_t level,
                                    struct page_header *header)
{
    return alloc_co(self, node, level > 0, header);
}

enum pando_status dex_free_page_co(struct dex *self, const uint8_t *bytes)
{
    struct pool_block block = {.address = page_address(bytes), .version = page_version(bytes)};
    bool written = page_dead(bytes);
    return pool_free_co(self->base.session, &block, self->table->layout.page_bytes, written);
}
