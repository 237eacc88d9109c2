/*
 * split.c - nodes in two, and completing splits.
 *
 *   before   the sibling is written whole, unlinked; nobody knows of it, and nobody whom a stale
 *            pointer leads there believes it (a death here leaves one unused block)
 *   during   the node shrinks to its left half, under an intent; from then on the right half is
 *            reached through the sibling pointer, and the lock is free
 *   after    the parent gets the separator, under its own lock alone; a death before that is
 *            made good by whoever has to follow the sibling pointer (find.c)
 */
#include <string.h>

#include "base/assert.h"
#include "tree/blink/blink_int.h"

static const uint64_t zero;

struct node_header blink_header(const struct blink *self, fabric_address address, uint64_t version,
                                uint8_t level)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE,
                                 .table = self->tree->id,
                                 .holder = pool_identity(self->tree->pool)};
    return (struct node_header){
        .address = address, .version = version, .tenure = pool_tenure_pack(tenure), .level = level};
}

/* The header word of a node that was built. */
static uint64_t header_word(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* A block that was never written. */
static void give_back_co(struct blink *self, const struct pool_block *block)
{
    enum pando_status freed =
        pool_free_co(self->session, block, self->tree->layout.node_bytes, false);
    (void)freed; /* if not, it is swept when this member has gone */
}

enum pando_status blink_replace_co(struct blink *self, struct blink_lock *lock,
                                   struct blink_scratch *scratch, fabric_address address,
                                   const struct pool_block *fresh, uint64_t *unlinked)
{
    struct blink_tree *tree = self->tree;
    fabric_address sibling = fresh != NULL ? fresh->address : 0;
    uint16_t bank = pool_bank(address);
    uint32_t bytes = tree->layout.node_bytes;
    struct intent_builder builder;
    fabric_address slot = 0;
    struct fabric_op ops[7];
    uint32_t count = 0;
    bool together = false; /* sibling and node are in one list */
    enum pando_status status = PANDO_OK;

    if (tree->on.intents)
        status = pool_intent_take_co(self->session, bank, &slot);
    if (status != PANDO_OK) {
        if (fresh != NULL)
            give_back_co(self, fresh);
        return blink_unlock_with_co(self, lock, status);
    }
    if (sibling != 0 && tree->on.sibling) {
        node_unlink(scratch->sibling);
        *unlinked = header_word(scratch->sibling);
        struct fabric_op write =
            fabric_write(fabric_address_offset(sibling), scratch->sibling, bytes);
        together = pool_bank(sibling) == bank && tree->on.combine && !lock->alone;
        if (together) {
            ops[count++] = write;
            lock->last = LAST_SPLITS;
        } else {
            status = pool_persist_unseen_co(self->session, sibling, &write, 1, NULL);
            if (status != PANDO_OK) {
                if (slot != 0)
                    pool_intent_give(self->session, slot);
                return blink_unlock_with_co(self, lock, status);
            }
        }
    }
    if (slot != 0) {
        intent_begin(&builder, scratch->intent, POOL_INTENT_BYTES,
                     (struct intent_lock){lock->global.address, lock->global.word});
        intent_add_image(&builder, address, slice_of(scratch->image, bytes));
        uint32_t size = (uint32_t)intent_finish(&builder, pool_id(tree->pool), slot);
        pando_assert(size > 0);
        ops[count++] = fabric_write(fabric_address_offset(slot), scratch->intent, size);
    }
    ops[count++] = fabric_write(fabric_address_offset(address), scratch->image, bytes);
    if (together) {
        ops[count++] =
            fabric_cas(fabric_address_offset(sibling), *unlinked, node_link_word(*unlinked));
        *unlinked = 0;
    }
    if (slot != 0)
        ops[count++] = fabric_write(fabric_address_offset(slot), &zero, sizeof(zero));
    status = blink_commit_co(self, lock, ops, count);
    if (slot != 0 && status == PANDO_OK)
        pool_intent_give(self->session, slot);
    if (sibling != 0 && !tree->on.sibling && status == PANDO_OK) {
        ops[0] = fabric_write(fabric_address_offset(sibling), scratch->sibling, bytes);
        status = blink_submit_co(self, sibling, ops, 1);
    }
    return status;
}

struct node_header blink_halve(const struct blink *self, struct node_header *left,
                               struct slice middle, const struct pool_block *block)
{
    struct node_header right = blink_header(self, block->address, block->version + 1, left->level);
    right.low = middle;
    right.high = left->high;
    right.no_high = left->no_high;
    right.sibling = left->sibling;
    left->high = middle;
    left->no_high = false;
    left->sibling = block->address;
    return right;
}

/* ---- inner nodes ----------------------------------------------------------------------------- */

/* A new root above the present one, which was split. STALE: it is not the root any more. */
static enum pando_status grow_co(struct blink *self, struct blink_scratch *scratch, uint8_t level,
                                 struct slice low, fabric_address child)
{
    struct blink_tree *tree = self->tree;
    struct node_header old_root;
    struct pool_block block;
    fabric_address root;
    uint64_t found;

    enum pando_status status = blink_root_co(self, true, &root);
    if (status == PANDO_OK)
        status = blink_read_co(self, root, scratch->node, &old_root);
    if (status != PANDO_OK)
        return status;
    if (old_root.level + 1 != level || root == child || old_root.dead)
        return PANDO_STALE;
    status = pool_table_alloc_co(self->session, self->tree->id, POOL_ANY_NODE,
                                 tree->layout.node_bytes, &block);
    if (status != PANDO_OK)
        return status;
    struct node_header header = blink_header(self, block.address, block.version + 1, level);
    struct inner_entry entry = {.key = low, .child = child};
    header.no_high = true;
    inner_build(&tree->layout, &header, root, &entry, 1, scratch->image);
    node_unlink(scratch->image);
    struct fabric_op write =
        fabric_write(fabric_address_offset(block.address), scratch->image, tree->layout.node_bytes);
    status = pool_write_unseen_co(self->session, block.address, &write, 1);
    if (status == PANDO_OK)
        status = pool_root_swap_co(self->session, tree->slot, root, block.address, &found);
    if (status == PANDO_OK) {
        atomic_store_explicit(&tree->root, block.address, memory_order_release);
        node_unlink(scratch->image); /* undoes it */
        status = blink_link_co(self, block.address, scratch->image);
        (void)status; /* else whoever comes by it does that */
        return PANDO_OK;
    }
    if (status == PANDO_STALE) {
        block.version++;
        enum pando_status freed =
            pool_free_co(self->session, &block, tree->layout.node_bytes, false);
        (void)freed;
    }
    return status;
}

/* The separators with this one among them; false when it is there already. */
static bool separators_with(struct blink *self, struct blink_scratch *scratch,
                            const struct node_header *header, struct slice low,
                            fabric_address child, fabric_address *leftmost, uint32_t *count)
{
    struct inner_entry *entries = scratch->separators;
    if (slice_equal(header->low, low))
        return false; /* it went up in a split of this node: the child is the leftmost one */
    inner_entries(&self->tree->layout, scratch->node, leftmost, entries, count);
    uint32_t at = 0;
    while (at < *count && slice_compare(entries[at].key, low) < 0)
        at++;
    if (at < *count && slice_equal(entries[at].key, low))
        return false;
    memmove(&entries[at + 1], &entries[at], (*count - at) * sizeof(*entries));
    entries[at] = (struct inner_entry){.key = low, .child = child};
    ++*count;
    return true;
}

/* The node is locked and read. Releases it. */
static enum pando_status insert_separator_co(struct blink *self, struct blink_lock *lock,
                                             struct blink_scratch *scratch,
                                             const struct node_header *header, struct slice low,
                                             fabric_address child)
{
    const struct node_layout *layout = &self->tree->layout;
    struct inner_entry *entries = scratch->separators;
    struct node_header left = *header, check;
    struct pool_block block;
    fabric_address leftmost;
    uint32_t count;

    if (!separators_with(self, scratch, header, low, child, &leftmost, &count))
        return blink_unlock_with_co(self, lock, PANDO_OK);
    left.version++;
    if (inner_fits(layout, &left, entries, count)) {
        inner_build(layout, &left, leftmost, entries, count, scratch->image);
        enum pando_status status =
            blink_replace_co(self, lock, scratch, header->address, NULL, NULL);
        if (status == PANDO_OK && self->tree->on.cache &&
            node_header_read(layout, header->address, scratch->image, &check))
            index_cache_put(self->tree->cache, &check, scratch->image);
        return status;
    }
    enum pando_status status = pool_table_alloc_co(self->session, self->tree->id, POOL_ANY_NODE,
                                                   layout->node_bytes, &block);
    if (status != PANDO_OK)
        return blink_unlock_with_co(self, lock, status);
    uint32_t up = inner_split_point(layout, entries, count);
    uint8_t separator[ENGINE_KEY_MAX];
    struct slice middle = entries[up].key;
    memcpy(separator, middle.data, middle.size);
    middle.data = separator;

    struct node_header right = blink_halve(self, &left, middle, &block);
    inner_build(layout, &left, leftmost, entries, up, scratch->image);
    inner_build(layout, &right, entries[up].child, entries + up + 1, count - up - 1,
                scratch->sibling);
    uint8_t level = header->level;
    uint64_t unlinked = 0;
    status = blink_replace_co(self, lock, scratch, header->address, &block, &unlinked);
    if (status != PANDO_OK)
        return status;
    blink_count(&self->tree->splits);
    index_cache_drop(self->tree->cache, level, middle);
    return blink_complete_split_co(self, (uint8_t)(level + 1), middle, block.address, unlinked);
}

/* Links a child and reads it in one list. False: it has to be read anew. */
static bool link_and_read_co(struct blink *self, fabric_address child, uint64_t unlinked,
                             uint8_t *bytes, struct node_header *header)
{
    const struct node_layout *layout = &self->tree->layout;
    uint64_t offset = fabric_address_offset(child), posted_ns = rt_coarse_ns();
    struct fabric_op ops[] = {fabric_cas(offset, unlinked, node_link_word(unlinked)),
                              fabric_read(offset, bytes, layout->node_bytes)};
    return pool_cas_list_co(self->session, child, ops, 2) == PANDO_OK && pool_recent(posted_ns) &&
           node_header_read(layout, child, bytes, header);
}

/* separator-recheck (R25): only a child that is alive and begins where its separator says. */
static enum pando_status child_still_there_co(struct blink *self, struct blink_scratch *scratch,
                                              uint8_t level, struct slice low, fabric_address child,
                                              uint64_t unlinked)
{
    struct node_header header;
    enum pando_status status = PANDO_OK;
    if (unlinked == 0 || !link_and_read_co(self, child, unlinked, scratch->other, &header))
        status = blink_read_co(self, child, scratch->other, &header);
    if (status != PANDO_OK)
        return status;
    bool same = !header.dead && header.level + 1 == level && slice_equal(header.low, low);
    return same ? PANDO_OK : PANDO_STALE;
}

/* Restarts: the parent was not where it seemed to be. */
static struct step complete_split_once_co(struct blink *self, struct blink_scratch *scratch,
                                          uint8_t level, struct slice low, fabric_address child,
                                          uint64_t unlinked)
{
    struct blink_target target = {.key = low, .level = level};
    struct node_header header;
    struct blink_lock lock;

    enum pando_status status = blink_find_co(self, &target, scratch->node, &header);
    if (status == PANDO_NOT_FOUND) {
        status = child_still_there_co(self, scratch, level, low, child, unlinked);
        if (status != PANDO_OK)
            return step_of(status == PANDO_STALE ? PANDO_OK : status);
        status = grow_co(self, scratch, level, low, child);
        return status == PANDO_STALE ? step_to(STEP_RESTART) : step_of(status);
    }
    if (status != PANDO_OK)
        return step_of(status);
    fabric_address parent = header.address;
    status = blink_lock_co(self, parent, scratch->node, &lock);
    if (status != PANDO_OK)
        return step_of(status);
    if (!node_header_read(&self->tree->layout, parent, scratch->node, &header) ||
        header.level != level || blink_fits(self, &target, &header) != FIT)
        return step_restart_after(blink_unlock_co(self, &lock));
    if (self->tree->on.separator)
        status = child_still_there_co(self, scratch, level, low, child, unlinked);
    if (status != PANDO_OK)
        return step_of(
            blink_unlock_with_co(self, &lock, status == PANDO_STALE ? PANDO_OK : status));
    return step_of(insert_separator_co(self, &lock, scratch, &header, low, child));
}

enum pando_status blink_complete_split_co(struct blink *self, uint8_t level, struct slice low,
                                          fabric_address child, uint64_t unlinked)
{
    struct blink_scratch *scratch = blink_scratch_take(self);
    struct pool_retry retry = {0};
    struct blink_target target = {.key = low, .level = level};
    struct step step;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    do
        step = complete_split_once_co(self, scratch, level, low, child, unlinked);
    while (blink_again_co(self, &target, &retry, &step));
    blink_scratch_give(self, scratch);
    return step.status;
}
