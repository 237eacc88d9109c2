/*
 * find.c - from a key to the node that covers it.
 *
 * A search starts at the lowest cached inner node above its target, or at the root. What it reads
 * may be out of date in every way; a node is believed when its check, level and fences say so. Keys
 * beyond its high fence are found through its sibling, all else by starting again.
 */
#include <string.h>

#include "tree/blink/blink_int.h"

enum pando_status blink_link_co(struct blink *self, fabric_address address, const uint8_t *bytes)
{
    uint64_t linked;
    memcpy(&linked, bytes, sizeof(linked));
    uint64_t old;
    enum pando_status status =
        pool_word_cas_co(self->session, address, node_link_word(linked), linked, &old);
    if (status != PANDO_OK)
        return status;
    return old == linked || old == node_link_word(linked) ? PANDO_OK : PANDO_STALE;
}

enum pando_status blink_read_co(struct blink *self, fabric_address address, uint8_t *bytes,
                                struct node_header *header)
{
    return blink_read_linked_co(self, address, 0, bytes, header);
}

/* The pointer led to the node as it is if both were read within the time that a freed block is left alone:
 * stale-read-limit (R22) asks for much less. The CAS is of that very version of the node, so it may come late. */
enum pando_status blink_read_linked_co(struct blink *self, fabric_address address,
                                       uint64_t pointer_ns, uint8_t *bytes,
                                       struct node_header *header)
{
    const struct node_layout *layout = &self->tree->layout;
    struct pool_reading reading = {.address = address, .to = bytes, .size = layout->node_bytes};

    for (;;) {
        enum pando_status status = pool_read_co(self->session, &reading);
        if (status != PANDO_OK)
            return status;
        if (reading.recent && node_header_read(layout, address, bytes, header))
            return PANDO_OK;
        if (reading.recent && node_unlinked(layout, address, bytes, header)) {
            if (pointer_ns == 0 || !pool_recent(pointer_ns))
                return PANDO_STALE;
            status = blink_link_co(self, address, bytes);
            if (status != PANDO_STALE)
                return status;
        }
        blink_count(&self->tree->rereads);
    }
}

const char blink_bad_root[] = "the directory's word for the root of the table fails its check";

enum pando_status blink_root_co(struct blink *self, bool fresh, fabric_address *root)
{
    struct blink_tree *tree = self->tree;
    *root = atomic_load_explicit(&tree->root, memory_order_acquire);
    if (*root != 0 && !fresh)
        return PANDO_OK;
    enum pando_status status = pool_root_read_co(self->session, tree->slot, root);
    if (status == PANDO_OK && *root == 0)
        return PANDO_NOT_FOUND; /* dropped, or not yet created */
    if (status == PANDO_CORRUPT ||
        (status == PANDO_OK && !pool_address_ok(tree->pool, *root, tree->layout.node_bytes)))
        return blink_damaged(self, pool_root_address(tree->pool, tree->slot), slice_of(NULL, 0),
                             blink_bad_root);
    if (status == PANDO_OK)
        atomic_store_explicit(&tree->root, *root, memory_order_release);
    return status;
}

enum pando_status blink_swap_root_co(struct blink *self, fabric_address root, fabric_address child)
{
    struct blink_tree *tree = self->tree;
    uint64_t found;
    enum pando_status status = pool_root_swap_co(self->session, tree->slot, root, child, &found);
    if (status == PANDO_OK)
        atomic_store_explicit(&tree->root, child, memory_order_release);
    return status == PANDO_STALE ? PANDO_OK : status;
}

/* The swap may come late by up to a lease, after which this member would be fenced: the block of the node
 * is not used again before (rule stale-read-limit). */
enum pando_status blink_replace_root_co(struct blink *self, const uint8_t *bytes,
                                        const struct node_header *header, uint64_t read_ns)
{
    fabric_address root;
    enum pando_status status = blink_root_co(self, true, &root);
    fabric_address child = inner_child_at(&self->tree->layout, bytes, 0);
    if (status != PANDO_OK || root != header->address || child == 0 || !pool_recent(read_ns))
        return status;
    return blink_swap_root_co(self, root, child);
}

enum pando_status blink_settled_root_co(struct blink *self, uint8_t *bytes, fabric_address *root)
{
    enum { GIVEN_UP_MAX = 16 }; /* one after the other, each by somebody who died */
    struct node_header header;

    for (int i = 0; i < GIVEN_UP_MAX; i++) {
        uint64_t read_ns = rt_coarse_ns();
        enum pando_status status = blink_root_co(self, true, root);
        if (status != PANDO_OK)
            return status;
        status = blink_read_linked_co(self, *root, read_ns, bytes, &header);
        if (status == PANDO_STALE || (status == PANDO_OK && !blink_given_up(&header)))
            return PANDO_OK; /* what is wrong with it is the caller's to find out */
        if (status == PANDO_OK)
            status = blink_replace_root_co(self, bytes, &header, read_ns);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

enum blink_fit blink_fits(const struct blink *self, const struct blink_target *target,
                          const struct node_header *header)
{
    struct slice key = target->key;

    if (header->dead && self->tree->on.dead)
        return FIT_NOT;
    if (!self->tree->on.fences)
        return FIT; /* broken on purpose */
    if (target->before) {
        if (slice_compare(header->low, key) >= 0 && header->low.size > 0)
            return FIT_NOT;
        return header->no_high || slice_compare(key, header->high) <= 0 ? FIT : FIT_RIGHT;
    }
    if (node_covers(header, key))
        return FIT;
    return node_right_of(header, key) ? FIT_RIGHT : FIT_NOT;
}

enum pando_status blink_restart_co(struct blink *self, const struct blink_target *target,
                                   struct pool_retry *retry)
{
    fabric_address root;
    index_cache_drop(self->tree->cache, (uint8_t)(target->level + 1), target->key);
    enum pando_status status = blink_root_co(self, true, &root);
    return status == PANDO_OK ? pool_retry_co(self->tree->pool, retry) : status;
}

/* A node was found only through its left sibling: its parent may never have been told. */
static void complete_met_split_co(struct blink *self, const struct node_header *header)
{
    uint8_t low[ENGINE_KEY_MAX];
    if (header->low.size == 0 || header->low.size > sizeof(low))
        return;
    memcpy(low, header->low.data, header->low.size);
    enum pando_status status = blink_complete_split_co(
        self, (uint8_t)(header->level + 1), slice_of(low, header->low.size), header->address, 0);
    (void)status; /* somebody else will notice, too */
}

/* One way down. Restarts where it is misled. */
static struct step descend_co(struct blink *self, const struct blink_target *target, bool use_cache,
                              uint8_t *bytes, struct node_header *header)
{
    struct blink_tree *tree = self->tree;
    struct index_cache_hit hit;
    fabric_address address;
    int expected_level = -1; /* any: the root's is not known */
    bool moved_right = false, parent_read = false, cached = false;
    uint64_t pointer_ns = 0; /* of a cached pointer, or a root that was, it is not known */
    enum pando_status status;

    if (use_cache && tree->on.cache &&
        index_cache_find(&self->reader, target->key, target->level, target->before, &hit)) {
        address = hit.child;
        expected_level = hit.child_level;
        cached = true;
    } else {
        status = blink_root_co(self, false, &address);
        if (status != PANDO_OK)
            return step_of(status);
    }
    if (target->level == 0)
        blink_count_own(expected_level == 0 ? &self->hits : &self->misses);
    for (int moves = 0; moves < BLINK_MOVES_RIGHT_MAX;) {
        uint64_t read_ns = rt_coarse_ns();
        status = blink_read_linked_co(self, address, pointer_ns, bytes, header);
        if (status == PANDO_STALE)
            return cached ? step_to(STEP_RESTART) : blink_suspect_co(self, target, address);
        if (status != PANDO_OK)
            return step_of(status);
        cached = false;
        pointer_ns = read_ns;
        if (expected_level >= 0 && header->level != expected_level)
            return step_to(STEP_RESTART);
        if (expected_level < 0) {
            if (blink_given_up(header))
                return step_restart_after(blink_replace_root_co(self, bytes, header, read_ns));
            if (header->level < target->level)
                return step_of(PANDO_NOT_FOUND); /* the tree is not that high */
            atomic_store_explicit(&tree->root_level, header->level, memory_order_relaxed);
            index_cache_pin(tree->cache, header->level > 0 ? (uint8_t)(header->level - 1) : 1);
            expected_level = header->level;
        }
        switch (blink_fits(self, target, header)) {
        case FIT_NOT:
            return step_to(STEP_RESTART);
        case FIT_RIGHT:
            if (header->sibling == 0)
                return step_to(STEP_RESTART);
            address = header->sibling;
            moved_right = true;
            moves++;
            continue;
        case FIT:
            break;
        }
        if (header->level == target->level) {
            if (moved_right && !target->before) {
                /* A cached parent is older than the split; one just read was never told of it. */
                index_cache_drop(tree->cache, (uint8_t)(header->level + 1), target->key);
                if (parent_read)
                    complete_met_split_co(self, header); /* uses memory of its own */
            }
            return step_of(PANDO_OK);
        }
        if (tree->on.cache)
            index_cache_put(tree->cache, header, bytes);
        uint32_t index;
        address = target->before ? inner_child_before(&tree->layout, bytes, target->key, &index)
                                 : inner_child(&tree->layout, bytes, target->key, &index);
        expected_level = header->level - 1;
        moved_right = false;
        parent_read = true;
    }
    return step_to(STEP_RESTART);
}

fabric_address blink_read_cached_leaf_co(struct blink *self, struct slice key, uint8_t *bytes)
{
    struct blink_tree *tree = self->tree;
    struct index_cache_hit hit;

    if (!tree->on.cache || !index_cache_find(&self->reader, key, 0, false, &hit) ||
        hit.child_level != 0)
        return 0;
    return pool_read_fast_co(self->session, hit.child, bytes, tree->layout.node_bytes) ? hit.child
                                                                                       : 0;
}

enum pando_status blink_find_co(struct blink *self, const struct blink_target *target,
                                uint8_t *bytes, struct node_header *header)
{
    fabric_address at = 0;
    if (target->level == 0 && !target->before)
        at = blink_read_cached_leaf_co(self, target->key, bytes);
    return blink_find_after_read_co(self, target, at, bytes, header);
}

enum pando_status blink_find_after_read_co(struct blink *self, const struct blink_target *target,
                                           fabric_address at, uint8_t *bytes,
                                           struct node_header *header)
{
    if (at != 0 && node_header_read(&self->tree->layout, at, bytes, header) && header->level == 0 &&
        blink_fits(self, target, header) == FIT) {
        blink_count_own(&self->hits);
        return PANDO_OK;
    }
    struct pool_retry retry = {0};
    struct step step;
    do /* After the second failure nothing cached is believed. */
        step = descend_co(self, target, retry.count < 2, bytes, header);
    while (blink_again_co(self, target, &retry, &step));
    return step.status;
}

enum pando_status blink_locate_co(struct blink *self, struct slice key, uint8_t level,
                                  uint8_t *bytes, fabric_address *address)
{
    struct blink_tree *tree = self->tree;
    struct index_cache_hit hit;
    struct node_header header;
    uint32_t index;

    if (tree->on.cache && index_cache_find(&self->reader, key, level, false, &hit) &&
        hit.child_level == level) {
        if (level == 0)
            blink_count_own(&self->hits);
        *address = hit.child;
        return PANDO_OK;
    }
    if (level == 0)
        blink_count_own(&self->misses);
    struct blink_target parent = {.key = key, .level = (uint8_t)(level + 1)};
    enum pando_status status = blink_find_co(self, &parent, bytes, &header);
    if (status == PANDO_NOT_FOUND)
        return blink_root_co(self, false, address); /* it is the root itself, or nothing */
    if (status != PANDO_OK)
        return status;
    if (tree->on.cache)
        index_cache_put(tree->cache, &header, bytes);
    *address = inner_child(&tree->layout, bytes, key, &index);
    return PANDO_OK;
}
