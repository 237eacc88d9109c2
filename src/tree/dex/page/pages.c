/*
 * pages.c - pages in the pool: reading, writing.
 *
 * A page is replaced in place. If this process died in the middle, the page would be neither what
 * it was nor what it should be, and no log of single changes makes that good; so the new image goes
 * into an intent first, in the same list, and whoever recovers this process finishes it (rule
 * intent-first). Such an intent names no lock: nobody else writes the page, and while its slot
 * holds it, its list has not ended.
 *
 * Pages of several memory nodes are not written by one list. Then the intent is written before, by itself,
 * and cleared when all of them are:
 *
 *   1  [intent]                                at the change's home
 *   2  [page], for each that lies elsewhere, in their order
 *   3  [pages at home] [intent cleared] [lock released]
 *
 *   before 1   nothing has happened
 *   after it   recovery writes all images, and clears the intent. If it cannot come to one of these nodes it
 *              leaves the intent, and as long as it does nobody takes over from the dead one (recover.c)
 */
#include "base/assert.h"
#include "tree/dex/dex_int.h"

static const uint64_t zero;

enum pando_status dex_read_co(struct dex *self, fabric_address address, uint8_t *bytes)
{
    struct dex_table *table = self->table;

    if (address == 0 || pool_bank(address) >= pool_banks(table->pool))
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
                             const struct dex_page_write *change)
{
    const struct page_layout *layout = &self->table->layout;
    struct intent_builder builder;
    struct intent_lock home = {.word = pool_lock_word(pool_identity(self->table->pool), 1)};

    if (change->lock != NULL)
        home = (struct intent_lock){change->lock->address, change->lock->word};
    intent_begin(&builder, scratch->message, POOL_INTENT_BYTES, home);
    for (unsigned i = 0; i < change->count; i++)
        intent_add_image(&builder, page_address(change->images[i]),
                         slice_of(change->images[i], layout->page_bytes));
    return (uint32_t)intent_finish(&builder, layout->pool, slot);
}

/* Whether all pages lie in that bank. */
static bool all_in(const struct dex_page_write *change, uint16_t bank)
{
    bool all = true;
    for (unsigned i = 0; i < change->count; i++)
        all = all && pool_bank(page_address(change->images[i])) == bank;
    return all;
}

/* Pages that nobody else may write are their owner's alone; under a lock they are not. */
static enum pando_status persist_co(struct dex *self, const struct dex_page_write *change,
                                    fabric_address at, struct fabric_op *ops, uint32_t count)
{
    const atomic_bool *closing = &self->table->owners.closing;
    return change->lock != NULL
               ? pool_persist_co(self->base.session, at, ops, count, closing)
               : pool_persist_unseen_co(self->base.session, at, ops, count, closing);
}

/* Steps 1 and 2 of a change of several memory nodes. OK or UNKNOWN. */
static enum pando_status write_other_nodes_co(struct dex *self, struct dex_scratch *scratch,
                                              const struct dex_page_write *change, uint16_t home,
                                              fabric_address slot, uint32_t intent_bytes)
{
    struct fabric_op op = fabric_write(fabric_address_offset(slot), scratch->message, intent_bytes);
    enum pando_status status = persist_co(self, change, slot, &op, 1);
    for (unsigned i = 0; i < change->count && status == PANDO_OK; i++) {
        fabric_address at = page_address(change->images[i]);
        if (pool_bank(at) == home)
            continue;
        op = fabric_write(fabric_address_offset(at), change->images[i],
                          self->table->layout.page_bytes);
        status = persist_co(self, change, at, &op, 1);
    }
    return status;
}

/* The last step, or the only one. OK or UNKNOWN. */
static enum pando_status write_home_node_co(struct dex *self, struct dex_scratch *scratch,
                                            const struct dex_page_write *change, uint16_t home,
                                            fabric_address slot, uint32_t intent_bytes)
{
    const struct dex_table *table = self->table;
    struct fabric_op ops[DEX_WRITE_PAGES + 3];
    uint32_t count = 0;

    if (intent_bytes > 0)
        ops[count++] = fabric_write(fabric_address_offset(slot), scratch->message, intent_bytes);
    for (unsigned i = 0; i < change->count; i++) {
        fabric_address at = page_address(change->images[i]);
        if (pool_bank(at) == home)
            ops[count++] = fabric_write(fabric_address_offset(at), change->images[i],
                                        table->layout.page_bytes);
    }
    if (slot != 0)
        ops[count++] = fabric_write(fabric_address_offset(slot), &zero, sizeof(zero));
    if (change->lock == NULL)
        return pool_persist_unseen_co(self->base.session,
                                      slot != 0 ? slot : page_address(change->images[0]), ops,
                                      count, &table->owners.closing);
    ops[count++] = fabric_write(fabric_address_offset(change->lock->address),
                                pool_lock_release(change->lock), sizeof(uint64_t));
    return pool_persist_unlock_co(self->base.session, change->lock, ops, count,
                                  &table->owners.closing);
}

enum pando_status dex_write_pages_co(struct dex *self, struct dex_scratch *scratch,
                                     const struct dex_page_write *change)
{
    const struct page_layout *layout = &self->table->layout;
    uint16_t home = pool_bank(page_address(change->images[0]));
    uint32_t intent_bytes = 0;
    fabric_address slot = 0;
    enum pando_status status = PANDO_OK;

    pando_assert(change->count > 0 && change->count <= DEX_WRITE_PAGES);
    bool together = all_in(change, home);
    if (!together)
        home = change->lock != NULL ? pool_bank(change->lock->address) : change->home;
    pando_assert(together || !change->plain);
    for (unsigned i = 0; i < change->count; i++)
        page_seal(layout, change->images[i]);
    if (!change->plain) {
        status = pool_intent_take_co(self->base.session, home, &slot);
        intent_bytes = status == PANDO_OK ? build_intent(self, scratch, slot, change) : 0;
        if (status != PANDO_OK)
            return status;
        pando_assert(intent_bytes > 0);
    }
    if (!together) {
        status = write_other_nodes_co(self, scratch, change, home, slot, intent_bytes);
        intent_bytes = 0;
    }
    if (status == PANDO_OK)
        status = write_home_node_co(self, scratch, change, home, slot, intent_bytes);
    for (unsigned i = 0; i < change->count; i++)
        visible_wrote(&self->table->pushdown.visible, page_address(change->images[i]));
    if (slot != 0 && status == PANDO_OK)
        pool_intent_give(self->base.session, slot);
    return status;
}

void dex_image(const struct dex_table *table, uint32_t index, uint8_t *image)
{
    const struct page_layout *layout = &table->layout;
    page_copy(image, frame_bytes(&table->cache.frames, index), layout->page_bytes);
    if (page_level(image) == 0)
        return;
    for (uint32_t i = 0; i < page_pairs(image); i++) {
        uint64_t word = page_child(layout, image, i);
        if (frame_swizzled(word))
            page_set_child(layout, image, i,
                           frame_at(&table->cache.frames, (uint32_t)word)->address);
    }
}

static bool reserve_used(const void *self)
{
    return ((const struct dex *)self)->reserve == NULL;
}

/* What was changed must be written, so this does not fail for want of memory: writers then take turns. Whoever
 * has the reserve waits for the log and the pool only, never for a page. */
static struct dex_scratch *scratch_for_writing_co(struct dex *self, bool *reserve)
{
    struct dex_scratch *scratch = dex_scratch_take(self);
    *reserve = scratch == NULL;
    if (scratch == NULL) {
        (void)rt_waitq_while_co(&self->reserved, reserve_used, self, RT_NEVER);
        scratch = self->reserve;
        self->reserve = NULL;
    }
    return scratch;
}

enum pando_status dex_write_back_co(struct dex *self, uint32_t index)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);
    bool reserve;
    struct dex_scratch *scratch = scratch_for_writing_co(self, &reserve);
    enum pando_status status = PANDO_OK;

    /* log-before-page (R35): the log first. */
    if (table->redo.log != NULL)
        status = dex_log_wait_co(table->redo.log, self->base.session, atomic_load(&frame->end));
    if (status == PANDO_OK && table->on.write_back) {
        struct dex_page_write change = {
            .images = {scratch->image}, .count = 1, .plain = !table->on.log};
        dex_image(table, index, scratch->image);
        status = dex_write_pages_co(self, scratch, &change);
    }
    if (status == PANDO_OK) {
        frame->dirty = false;
        frame->first = 0;
    }
    if (reserve) {
        self->reserve = scratch;
        (void)rt_waitq_wake_one(&self->reserved);
    } else {
        dex_scratch_give(self, scratch);
    }
    return status;
}
