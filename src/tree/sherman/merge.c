/*
 * merge.c - when two neighbouring leaves become one, and how. The rest is in blink/merge.c.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

bool sherman_leaf_join(struct blink_merge *merge, const struct node_header *header)
{
    struct blink *self = merge->self;
    const struct node_layout *layout = &self->tree->layout;
    struct node_entry *entries = merge->images->entries;
    uint32_t left, right, used = 0;

    if (!leaf_entries(layout, &merge->left, merge->scratch->other, entries, &left) ||
        !leaf_entries(layout, &merge->right, merge->scratch->sibling, merge->scratch->entries,
                      &right) ||
        left + right > NODE_ENTRIES_MAX)
        return false;
    memcpy(entries + left, merge->scratch->entries, right * sizeof(*entries));
    for (uint32_t i = 0; i < left + right; i++)
        used +=
            leaf_cell_bytes(layout, (uint32_t)entries[i].key.size, (uint32_t)entries[i].value.size);
    bool one_empty = left == 0 || right == 0;
    if ((used > 3 * blink_quarter(self) && !one_empty) ||
        !leaf_fits(layout, header, entries, left + right))
        return false;
    leaf_build(layout, header, entries, left + right, merge->images->node);
    return true;
}

/* Whether the leaf that covers the key is worth the attempt. */
bool sherman_leaf_small_co(struct blink *self, struct slice key)
{
    struct blink_scratch *scratch = blink_scratch_take(self);
    struct blink_target target = {.key = key};
    struct node_header header;
    uint32_t count = 0, used = 0;
    bool small = false;

    if (scratch == NULL)
        return false;
    if (blink_find_co(self, &target, scratch->node, &header) == PANDO_OK &&
        leaf_entries(&self->tree->layout, &header, scratch->node, scratch->entries, &count)) {
        for (uint32_t i = 0; i < count; i++)
            used += leaf_cell_bytes(&self->tree->layout, (uint32_t)scratch->entries[i].key.size,
                                    (uint32_t)scratch->entries[i].value.size);
        small = used < blink_quarter(self);
    }
    blink_scratch_give(self, scratch);
    return small;
}

void sherman_maintain_co(struct engine_table *base, struct pool_session *session)
{
    struct sherman_table *table = container_of(base, struct sherman_table, base);
    struct engine *engine;

    if (!blink_merges_left(&table->blink) || engine_attach_co(base, session, &engine) != PANDO_OK)
        return;
    blink_merge_left_co(&sherman_of(engine)->blink);
    engine_detach_co(engine);
}
