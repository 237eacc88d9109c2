/*
 * get.c - one pair, without a lock: one READ of its leaf when the cache knows where that is.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

/* STALE: the blob was freed between the two READs, so the pair has another value now. */
static enum pando_status copy_blob_co(struct sherman *self, const struct node_entry *entry,
                                      struct engine_part *part, blob_ref *missing)
{
    blob_ref blob;
    memcpy(&blob, entry->value.data, sizeof(blob));
    return blob_read_found_co(self->base.session, self->table->blink.id, entry->key, blob, part,
                              missing);
}

static enum pando_status copy_value_co(struct sherman *self, const struct node_entry *entry,
                                       struct engine_part *part, blob_ref *missing)
{
    if ((entry->flags & NODE_FLAG_BLOB) != 0)
        return copy_blob_co(self, entry, part, missing);
    size_t size = entry->value.size;
    size_t left = part->offset < size ? size - part->offset : 0;
    part->reference = 0;
    part->size = size;
    part->got = left < part->capacity ? left : part->capacity;
    if (part->got > 0)
        memcpy(part->to, entry->value.data + part->offset, part->got);
    return PANDO_OK;
}

/* Where the pair is in its leaf, which is read into bytes. */
static enum pando_status find_pair_co(struct sherman *self, struct slice key, uint8_t *bytes,
                                      enum leaf_find *found, struct leaf_slot *slot)
{
    struct sherman_table *table = self->table;
    struct blink_target target = {.key = key};
    struct node_header header;
    fabric_address at = blink_read_cached_leaf_co(&self->blink, key, bytes);

    if (at != 0 && table->blink.on.fences &&
        leaf_find_word(&table->blink.layout, at, bytes, key, NULL, slot)) {
        blink_count_own(&self->blink.hits);
        *found = LEAF_FOUND;
        return PANDO_OK;
    }
    enum pando_status status = blink_find_after_read_co(&self->blink, &target, at, bytes, &header);
    if (status == PANDO_OK)
        *found = leaf_find(&table->blink.layout, &header, bytes, key, slot);
    return status;
}

static enum pando_status read_co(struct sherman *self, struct slice key, struct engine_part *part)
{
    struct blink_scratch *scratch = blink_scratch_take(&self->blink);
    unsigned looks = 0;
    blob_ref missing = 0;
    enum pando_status status;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    rt_charge(RT_COST_OPERATION);
    do {
        enum leaf_find found;
        struct leaf_slot slot;
        status = find_pair_co(self, key, scratch->node, &found, &slot);
        if (status != PANDO_OK)
            break;
        if (found == LEAF_ABSENT) {
            status = PANDO_NOT_FOUND;
            break;
        }
        if (found == LEAF_FOUND) {
            status = copy_value_co(self, &slot.entry, part, &missing);
            if (status != PANDO_STALE)
                break;
        }
        status = sherman_retry_torn_co(self, key, &looks);
    } while (status == PANDO_OK);
    blink_scratch_give(&self->blink, scratch);
    return status;
}

enum pando_status sherman_part_co(struct engine *engine, struct slice key, struct engine_part *part)
{
    struct sherman *self = sherman_of(engine);
    if (part->reference == 0)
        return read_co(self, key, part);
    return blob_read_again_co(self->base.session, self->table->blink.id, key, part);
}
