/*
 * get.c - one pair, without a lock: one READ of its leaf when the cache knows where that is.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

/* STALE: the blob was freed between the two READs, so the pair has another value now. */
static enum pando_status copy_value_co(struct sherman *self, const struct node_entry *entry,
                                       void *value, size_t capacity, size_t *size,
                                       blob_ref *missing)
{
    uint16_t table = self->table->id;
    blob_ref blob;
    if ((entry->flags & NODE_FLAG_BLOB) != 0) {
        memcpy(&blob, entry->value.data, sizeof(blob));
        enum pando_status status =
            blob_read_co(self->base.session, table, entry->key, blob, value, capacity, size);
        return status == PANDO_STALE ? blob_missing(table, blob, missing) : status;
    }
    *size = entry->value.size;
    size_t stored = *size < capacity ? *size : capacity;
    if (stored > 0)
        memcpy(value, entry->value.data, stored);
    return PANDO_OK;
}

/* Where the pair is in its leaf, which is read into bytes. */
static enum pando_status look_co(struct sherman *self, struct slice key, uint8_t *bytes,
                                 enum leaf_find *found, struct leaf_slot *slot)
{
    struct sherman_table *table = self->table;
    struct sherman_target target = {.key = key};
    struct node_header header;
    fabric_address at = sherman_leaf_at_once_co(self, key, bytes);

    if (at != 0 && table->on.fences && leaf_find_word(&table->layout, at, bytes, key, NULL, slot)) {
        sherman_count_own(&self->hits);
        *found = LEAF_FOUND;
        return PANDO_OK;
    }
    enum pando_status status = sherman_find_from_co(self, &target, at, bytes, &header);
    if (status == PANDO_OK)
        *found = leaf_find(&table->layout, &header, bytes, key, slot);
    return status;
}

enum pando_status sherman_get_co(struct engine *engine, struct slice key, void *value,
                                 size_t capacity, size_t *size)
{
    struct sherman *self = sherman_of(engine);
    struct scratch *scratch = scratch_take(self);
    unsigned looks = 0;
    blob_ref missing = 0;
    enum pando_status status;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    rt_charge(RT_COST_OPERATION);
    do {
        enum leaf_find found;
        struct leaf_slot slot;
        status = look_co(self, key, scratch->node, &found, &slot);
        if (status != PANDO_OK)
            break;
        if (found == LEAF_ABSENT) {
            status = PANDO_NOT_FOUND;
            break;
        }
        if (found == LEAF_FOUND) {
            status = copy_value_co(self, &slot.entry, value, capacity, size, &missing);
            if (status != PANDO_STALE)
                break;
        }
        status = sherman_torn_co(self, key, &looks);
    } while (status == PANDO_OK);
    scratch_give(self, scratch);
    return status;
}
