/*
 * split.c - leaves written anew: in place, or as two. What is the same of all nodes is in blink/split.c.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

/* Whether both halves fit when the right one begins with entry `keep`: its key becomes a fence of both,
 * which with long keys may be what is too much. */
static bool halves_fit(const struct sherman *self, const struct node_header *header,
                       const struct node_entry *entries, uint32_t count, uint32_t keep)
{
    const struct node_layout *layout = &self->table->blink.layout;
    struct node_header left = *header, right = *header;
    left.high = right.low = entries[keep].key;
    left.no_high = false;
    return leaf_fits(layout, &left, entries, keep) &&
           leaf_fits(layout, &right, entries + keep, count - keep);
}

/* Where to split: as near to the wanted place as both halves fit; 0 when there is no such place. */
static uint32_t split_place(const struct sherman *self, const struct node_header *header,
                            const struct node_entry *entries, uint32_t count, bool appending)
{
    uint32_t wanted = leaf_split_point(&self->table->blink.layout, entries, count, appending);
    for (uint32_t away = 0; away < count; away++) {
        if (wanted + away < count && halves_fit(self, header, entries, count, wanted + away))
            return wanted + away;
        if (wanted > away && halves_fit(self, header, entries, count, wanted - away))
            return wanted - away;
    }
    return 0;
}

enum pando_status sherman_rewrite_co(struct sherman *self, struct blink_lock *lock,
                                     struct blink_scratch *scratch,
                                     const struct node_header *header, uint32_t count,
                                     bool appending)
{
    const struct node_layout *layout = &self->table->blink.layout;
    const struct node_entry *entries = scratch->entries;
    struct node_header left = *header;
    struct pool_block block;
    uint8_t separator[ENGINE_KEY_MAX];

    left.version += self->table->on.versions;
    if (leaf_fits(layout, &left, entries, count)) {
        leaf_build(layout, &left, entries, count, scratch->image);
        return blink_replace_co(&self->blink, lock, scratch, header->address, NULL, NULL);
    }
    uint32_t keep = split_place(self, header, entries, count, appending);
    if (keep == 0)
        return blink_unlock_with_co(&self->blink, lock, PANDO_TOO_LARGE);
    enum pando_status status = pool_table_alloc_co(self->base.session, self->table->blink.id,
                                                   POOL_ANY_NODE, layout->node_bytes, &block);
    if (status != PANDO_OK)
        return blink_unlock_with_co(&self->blink, lock, status);
    struct slice middle = entries[keep].key;
    memcpy(separator, middle.data, middle.size);
    middle.data = separator;

    struct node_header right = blink_halve(&self->blink, &left, middle, &block);
    leaf_build(layout, &left, entries, keep, scratch->image);
    leaf_build(layout, &right, entries + keep, count - keep, scratch->sibling);
    uint64_t unlinked = 0;
    status = blink_replace_co(&self->blink, lock, scratch, header->address, &block, &unlinked);
    if (status != PANDO_OK)
        return status;
    blink_count(&self->table->blink.splits);
    index_cache_drop(self->table->blink.cache, 1, middle);
    rt_stall_point();
    /* The pair is stored; whether the split could be completed is nobody's concern but the next
     * reader's. */
    status = blink_complete_split_co(&self->blink, 1, middle, block.address, unlinked);
    (void)status;
    return PANDO_OK;
}
