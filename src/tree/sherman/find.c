/*
 * find.c - from a key to the node that covers it.
 *
 * A search starts at the lowest cached inner node above its target, or at the root. What it reads
 * may be out of date in every way; a node is believed when its check, level and fences say so. Keys
 * beyond its high fence are found through its sibling, all else by starting again.
 */
#include <string.h>

#include "base/assert.h"
#include "tree/sherman/sherman_int.h"

enum { MOVES_RIGHT_MAX = 64 };

enum pando_status sherman_link_co(struct sherman *self, fabric_address address,
                                  const uint8_t *bytes)
{
    uint64_t linked;
    memcpy(&linked, bytes, sizeof(linked));
    struct fabric_op cas =
        fabric_cas(fabric_address_offset(address), node_link_word(linked), linked);
    enum pando_status status =
        pool_submit_co(self->base.session, fabric_address_node(address), &cas, 1);
    if (status != PANDO_OK)
        return status;
    return cas.old == linked || cas.old == node_link_word(linked) ? PANDO_OK : PANDO_STALE;
}

enum pando_status sherman_read_co(struct sherman *self, fabric_address address, uint8_t *bytes,
                                  struct node_header *header)
{
    return sherman_read_linked_co(self, address, 0, bytes, header);
}

/* The pointer led to the node as it is if both were read within the time that a freed block is left alone:
 * R22 asks for much less. The CAS is of that very version of the node, so it may come late. */
enum pando_status sherman_read_linked_co(struct sherman *self, fabric_address address,
                                         uint64_t pointer_ns, uint8_t *bytes,
                                         struct node_header *header)
{
    const struct node_layout *layout = &self->table->layout;
    struct pool_reading reading = {.address = address, .to = bytes, .size = layout->node_bytes};

    for (;;) {
        enum pando_status status = pool_read_co(self->base.session, &reading);
        if (status != PANDO_OK)
            return status;
        if (reading.recent && node_header_read(layout, address, bytes, header))
            return PANDO_OK;
        if (reading.recent && node_unlinked(layout, address, bytes, header)) {
            if (pointer_ns == 0 || !pool_recent(pointer_ns))
                return PANDO_STALE;
            status = sherman_link_co(self, address, bytes);
            if (status != PANDO_STALE)
                return status;
        }
        sherman_count(&self->table->rereads);
    }
}

enum pando_status sherman_root_co(struct sherman *self, bool fresh, fabric_address *root)
{
    struct sherman_table *table = self->table;
    *root = atomic_load_explicit(&table->root, memory_order_acquire);
    if (*root != 0 && !fresh)
        return PANDO_OK;
    enum pando_status status = pool_root_read_co(self->base.session, table->slot, root);
    if (status == PANDO_OK && *root == 0)
        return PANDO_NOT_FOUND; /* dropped, or not yet created */
    if (status == PANDO_OK)
        atomic_store_explicit(&table->root, *root, memory_order_release);
    return status;
}

enum sherman_fit sherman_fits(const struct sherman *self, const struct sherman_target *target,
                              const struct node_header *header)
{
    struct slice key = target->key;

    if (header->dead && self->table->on.dead)
        return FIT_NOT;
    if (!self->table->on.fences)
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

enum pando_status sherman_misled_co(struct sherman *self, const struct sherman_target *target,
                                    struct pool_retry *retry)
{
    fabric_address root;
    index_cache_drop(self->table->cache, (uint8_t)(target->level + 1), target->key);
    enum pando_status status = sherman_root_co(self, true, &root);
    return status == PANDO_OK ? pool_retry_co(self->table->pool, retry) : status;
}

/* A node was found only through its left sibling: its parent may never have been told. */
static void complete_split_co(struct sherman *self, const struct node_header *header)
{
    uint8_t low[ENGINE_KEY_MAX];
    if (header->low.size == 0 || header->low.size > sizeof(low))
        return;
    memcpy(low, header->low.data, header->low.size);
    enum pando_status status = sherman_adopt_co(
        self, (uint8_t)(header->level + 1), slice_of(low, header->low.size), header->address, 0);
    (void)status; /* somebody else will notice, too */
}

/* One way down. AGAIN: misled, start over. */
static enum pando_status descend_co(struct sherman *self, const struct sherman_target *target,
                                    bool use_cache, uint8_t *bytes, struct node_header *header)
{
    struct sherman_table *table = self->table;
    struct index_cache_hit hit;
    fabric_address address;
    int expected_level = -1; /* any: the root's is not known */
    bool moved_right = false, parent_read = false, cached = false;
    uint64_t pointer_ns = 0; /* of a cached pointer, or a root that was, it is not known */
    enum pando_status status;

    if (use_cache && table->on.cache &&
        index_cache_find(table->cache, target->key, target->level, target->before, &hit)) {
        address = hit.child;
        expected_level = hit.child_level;
        cached = true;
    } else {
        status = sherman_root_co(self, false, &address);
        if (status != PANDO_OK)
            return status;
    }
    if (target->level == 0)
        sherman_count_own(expected_level == 0 ? &self->hits : &self->misses);
    for (int moves = 0; moves < MOVES_RIGHT_MAX;) {
        uint64_t read_ns = rt_coarse_ns();
        status = sherman_read_linked_co(self, address, pointer_ns, bytes, header);
        if (status == PANDO_STALE)
            return cached ? PANDO_AGAIN : sherman_suspect_co(self, target, address);
        if (status != PANDO_OK)
            return status;
        cached = false;
        pointer_ns = read_ns;
        if (expected_level >= 0 && header->level != expected_level)
            return PANDO_AGAIN;
        if (expected_level < 0) {
            if (header->level < target->level)
                return PANDO_NOT_FOUND; /* the tree is not that high */
            atomic_store_explicit(&table->root_level, header->level, memory_order_relaxed);
            index_cache_pin(table->cache, header->level > 0 ? (uint8_t)(header->level - 1) : 1);
            expected_level = header->level;
        }
        switch (sherman_fits(self, target, header)) {
        case FIT_NOT:
            return PANDO_AGAIN;
        case FIT_RIGHT:
            if (header->sibling == 0)
                return PANDO_AGAIN;
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
                index_cache_drop(table->cache, (uint8_t)(header->level + 1), target->key);
                if (parent_read)
                    complete_split_co(self, header); /* uses memory of its own */
            }
            return PANDO_OK;
        }
        if (table->on.cache)
            index_cache_put(table->cache, header, bytes);
        uint32_t index;
        address = target->before ? inner_child_before(&table->layout, bytes, target->key, &index)
                                 : inner_child(&table->layout, bytes, target->key, &index);
        expected_level = header->level - 1;
        moved_right = false;
        parent_read = true;
    }
    return PANDO_AGAIN;
}

fabric_address sherman_leaf_at_once_co(struct sherman *self, struct slice key, uint8_t *bytes)
{
    struct sherman_table *table = self->table;
    struct index_cache_hit hit;

    if (!table->on.cache || !index_cache_find(table->cache, key, 0, false, &hit) ||
        hit.child_level != 0)
        return 0;
    struct fabric_endpoint *endpoint =
        pool_endpoint(self->base.session, fabric_address_node(hit.child));
    if (fabric_broken(endpoint))
        return 0;
    struct fabric_op read =
        fabric_read(fabric_address_offset(hit.child), bytes, table->layout.node_bytes);
    struct fabric_list list = {.ops = &read, .count = 1};
    uint64_t posted_ns = rt_coarse_ns();
    fabric_post(endpoint, &list);
    return fabric_wait_co(&list) == PANDO_OK && pool_recent(posted_ns) ? hit.child : 0;
}

enum pando_status sherman_find_co(struct sherman *self, const struct sherman_target *target,
                                  uint8_t *bytes, struct node_header *header)
{
    fabric_address at = 0;
    if (target->level == 0 && !target->before)
        at = sherman_leaf_at_once_co(self, target->key, bytes);
    return sherman_find_from_co(self, target, at, bytes, header);
}

enum pando_status sherman_find_from_co(struct sherman *self, const struct sherman_target *target,
                                       fabric_address at, uint8_t *bytes,
                                       struct node_header *header)
{
    if (at != 0 && node_header_read(&self->table->layout, at, bytes, header) &&
        header->level == 0 && sherman_fits(self, target, header) == FIT) {
        sherman_count_own(&self->hits);
        return PANDO_OK;
    }
    struct pool_retry retry = {0};
    for (;;) {
        /* After the second failure nothing cached is believed. */
        enum pando_status status = descend_co(self, target, retry.count < 2, bytes, header);
        if (status != PANDO_AGAIN)
            return status;
        status = sherman_misled_co(self, target, &retry);
        if (status != PANDO_OK)
            return status;
    }
}

enum pando_status sherman_locate_co(struct sherman *self, struct slice key, uint8_t level,
                                    uint8_t *bytes, fabric_address *address)
{
    struct sherman_table *table = self->table;
    struct index_cache_hit hit;
    struct node_header header;
    uint32_t index;

    if (table->on.cache && index_cache_find(table->cache, key, level, false, &hit) &&
        hit.child_level == level) {
        if (level == 0)
            sherman_count_own(&self->hits);
        *address = hit.child;
        return PANDO_OK;
    }
    if (level == 0)
        sherman_count_own(&self->misses);
    struct sherman_target parent = {.key = key, .level = (uint8_t)(level + 1)};
    enum pando_status status = sherman_find_co(self, &parent, bytes, &header);
    if (status == PANDO_NOT_FOUND)
        return sherman_root_co(self, false, address); /* it is the root itself, or nothing */
    if (status != PANDO_OK)
        return status;
    if (table->on.cache)
        index_cache_put(table->cache, &header, bytes);
    *address = inner_child(&table->layout, bytes, key, &index);
    return PANDO_OK;
}
