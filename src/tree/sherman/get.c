/*
 * get.c - one pair, without a lock: one READ of its leaf when the cache knows where that is.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

enum { TORN_MAX = 64 };

static const uint64_t TORN_PAUSE_NS = RT_NS_PER_US;

static enum pando_status copy_value_co(struct sherman *self, const struct node_entry *entry,
                                       void *value, size_t capacity, size_t *size)
{
    fabric_address blob;
    if ((entry->flags & NODE_FLAG_BLOB) != 0) {
        memcpy(&blob, entry->value.data, sizeof(blob));
        return blob_read_co(self->base.session, self->table->id, blob, value, capacity, size);
    }
    *size = entry->value.size;
    size_t stored = *size < capacity ? *size : capacity;
    if (stored > 0)
        memcpy(value, entry->value.data, stored);
    return PANDO_OK;
}

static struct engine_change keep(void *context, const struct slice *old)
{
    (void)context;
    (void)old;
    return (struct engine_change){.what = ENGINE_KEEP};
}

enum pando_status sherman_get_co(struct engine *engine, struct slice key, void *value,
                                 size_t capacity, size_t *size)
{
    struct sherman *self = sherman_of(engine);
    struct sherman_table *table = self->table;
    struct sherman_target target = {.key = key};
    struct scratch *scratch = scratch_take(self);
    enum pando_status status = PANDO_STALE;

    rt_charge(RT_COST_OPERATION);
    for (int torn = 0; torn < TORN_MAX; torn++) {
        struct node_header header;
        struct leaf_slot slot;
        status = sherman_find_co(self, &target, scratch->node, &header);
        if (status != PANDO_OK)
            break;
        enum leaf_find found = leaf_find(&table->layout, &header, scratch->node, key, &slot);
        if (found == LEAF_ABSENT) {
            status = PANDO_NOT_FOUND;
            break;
        }
        if (found == LEAF_FOUND) {
            status = copy_value_co(self, &slot.entry, value, capacity, size);
            if (status != PANDO_STALE)
                break;
            /* The blob was freed between the two READs: the pair has another value now. */
        }
        status = PANDO_TIMEOUT;
        sherman_count(&table->rereads);
        if (torn == TORN_MAX / 2) {
            /* R19: still torn. Under the leaf's lock it is repaired, or its writer is waited for.
             * */
            enum pando_status repaired = sherman_modify_co(engine, key, ENGINE_BLIND, keep, NULL);
            if (repaired != PANDO_OK) {
                status = repaired;
                break;
            }
        } else if (torn > 0) {
            rt_sleep_co(TORN_PAUSE_NS << (torn < 6 ? torn : 6));
        }
    }
    scratch_give(self, scratch);
    return status;
}
