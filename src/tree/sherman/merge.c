/*
 * merge.c - two neighbours under one parent become one (R24), and an empty root goes.
 *
 * Parent, left and right are locked without waiting for any of them; if somebody is in the way,
 * nothing happens and the next deletion tries again. Ranges move left only, and only whole.
 *
 *   before   locks alone: released by recovery
 *   during   an intent with the three images, home lock the left node's: redone by recovery
 *   after    the right node is dead and freed; a death before that leaves it to the sweep
 */
#include <string.h>

#include "base/assert.h"
#include "tree/sherman/sherman_int.h"

static const uint64_t zero;

struct merge {
    struct sherman *self;
    struct scratch *scratch; /* node: the parent; other: left; sibling: right */
    struct scratch *images;  /* node: left; other: right; sibling: parent, as they shall be */
    struct sherman_lock parent_lock, left_lock, right_lock;
    struct node_header parent, left, right;
    uint32_t index; /* of the left child; the separator between them has the same */
    bool parent_small;
};

/* A node is merged when it is less than a quarter full, into one that is at most three quarters
 * full. */
static uint32_t quarter(const struct sherman *self)
{
    return self->table->layout.node_bytes / 4;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static bool same_lock(const struct sherman_lock *a, const struct sherman_lock *b)
{
    return a->held && a->global.address == b->global.address;
}

/* Two nodes may share a lock word: it is taken once (R12). */
static enum pando_status try_lock_co(struct merge *merge, fabric_address node,
                                     struct sherman_lock *lock)
{
    struct sherman_lock wanted = {.global.address = pool_lock_for(merge->self->table->pool, node)};
    if (same_lock(&merge->parent_lock, &wanted) || same_lock(&merge->left_lock, &wanted))
        return PANDO_OK;
    return sherman_try_lock_co(merge->self, node, lock);
}

static enum pando_status unlock_all_co(struct merge *merge)
{
    /* The home lock last. If left and parent share a word, it is the parent's entry that is held.
     * */
    struct sherman_lock *locks[] = {&merge->right_lock, &merge->parent_lock, &merge->left_lock};
    enum pando_status status = PANDO_OK;
    for (int i = 0; i < 3; i++) {
        if (!locks[i]->held)
            continue;
        enum pando_status released = sherman_unlock_co(merge->self, locks[i]);
        if (status == PANDO_OK)
            status = released;
    }
    return status;
}

static const struct sherman_lock *home_lock(const struct merge *merge)
{
    return merge->left_lock.held ? &merge->left_lock : &merge->parent_lock;
}

/* ---- looking --------------------------------------------------------------------------------- */

static enum pando_status read_co(struct merge *merge, fabric_address address, uint8_t *bytes,
                                 struct node_header *header, uint8_t level)
{
    enum pando_status status = sherman_read_co(merge->self, address, bytes, header);
    if (status != PANDO_OK)
        return status;
    return header->dead || header->level != level ? PANDO_STALE : PANDO_OK;
}

/* Finds the parent and locks it, the children and reads them all. BUSY or STALE: not now. */
static enum pando_status prepare_co(struct merge *merge, uint8_t level, struct slice key)
{
    struct sherman *self = merge->self;
    const struct node_layout *layout = &self->table->layout;
    struct scratch *scratch = merge->scratch;
    struct sherman_target target = {.key = key, .level = (uint8_t)(level + 1)};

    enum pando_status status = sherman_find_co(self, &target, scratch->node, &merge->parent);
    if (status == PANDO_OK)
        status = try_lock_co(merge, merge->parent.address, &merge->parent_lock);
    if (status == PANDO_OK)
        status = read_co(merge, merge->parent.address, scratch->node, &merge->parent,
                         (uint8_t)(level + 1));
    if (status != PANDO_OK)
        return status;
    uint32_t separators = inner_count(layout, scratch->node);
    if (sherman_fits(self, &target, &merge->parent) != FIT || separators == 0)
        return PANDO_STALE;
    (void)inner_child(layout, scratch->node, key, &merge->index);
    if (merge->index == separators)
        merge->index--;
    fabric_address left = inner_child_at(layout, scratch->node, merge->index);
    fabric_address right = inner_child_at(layout, scratch->node, merge->index + 1);
    status = try_lock_co(merge, left, &merge->left_lock);
    if (status == PANDO_OK && self->table->on.merge_lock)
        status = try_lock_co(merge, right, &merge->right_lock);
    if (status == PANDO_OK)
        status = read_co(merge, left, scratch->other, &merge->left, level);
    if (status == PANDO_OK)
        status = read_co(merge, right, scratch->sibling, &merge->right, level);
    if (status != PANDO_OK)
        return status;
    struct slice separator = inner_key_at(layout, scratch->node, merge->index);
    bool neighbours = merge->left.sibling == right && !merge->left.no_high &&
                      slice_equal(merge->left.high, separator) &&
                      slice_equal(merge->right.low, separator);
    return neighbours ? PANDO_OK : PANDO_STALE;
}

/* ---- building -------------------------------------------------------------------------------- */

static struct node_header merged_header(const struct merge *merge)
{
    struct node_header header = merge->left;
    header.version++;
    header.high = merge->right.high;
    header.no_high = merge->right.no_high;
    header.sibling = merge->right.sibling;
    return header;
}

static bool build_leaf(struct merge *merge, const struct node_header *header)
{
    struct sherman *self = merge->self;
    const struct node_layout *layout = &self->table->layout;
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
    if ((used > 3 * quarter(self) && !one_empty) ||
        !leaf_fits(layout, header, entries, left + right))
        return false;
    leaf_build(layout, header, entries, left + right, merge->images->node);
    return true;
}

static bool build_inner(struct merge *merge, const struct node_header *header)
{
    struct sherman *self = merge->self;
    const struct node_layout *layout = &self->table->layout;
    struct inner_entry *entries = merge->images->separators;
    fabric_address left_first, right_first;
    uint32_t left, right;

    inner_entries(layout, merge->scratch->other, &left_first, entries, &left);
    inner_entries(layout, merge->scratch->sibling, &right_first, merge->scratch->separators,
                  &right);
    if (left + right + 1 > NODE_ENTRIES_MAX)
        return false;
    entries[left] = (struct inner_entry){.key = merge->right.low, .child = right_first};
    memcpy(entries + left + 1, merge->scratch->separators, right * sizeof(*entries));
    uint32_t size = (merge->left.cell_bytes + merge->right.cell_bytes);
    if (size > 3 * quarter(self) || !inner_fits(layout, header, entries, left + right + 1))
        return false;
    inner_build(layout, header, left_first, entries, left + right + 1, merge->images->node);
    return true;
}

/* What stays where the right node was: its header, dead, held by us until it is used again. */
static void build_dead(struct sherman *self, const struct node_header *header, uint8_t *bytes)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_FREE,
                                 .table = self->table->id,
                                 .holder = pool_identity(self->table->pool)};
    struct node_header dead = *header;
    dead.version++;
    dead.dead = true;
    dead.tenure = pool_tenure_pack(tenure);
    if (header->level == 0)
        leaf_build(&self->table->layout, &dead, NULL, 0, bytes);
    else
        inner_build(&self->table->layout, &dead, 0, NULL, 0, bytes);
}

static void build_parent(struct merge *merge)
{
    const struct node_layout *layout = &merge->self->table->layout;
    struct inner_entry *entries = merge->scratch->separators;
    struct node_header header = merge->parent;
    fabric_address leftmost;
    uint32_t count;

    header.version++;
    inner_entries(layout, merge->scratch->node, &leftmost, entries, &count);
    memmove(&entries[merge->index], &entries[merge->index + 1],
            (count - merge->index - 1) * sizeof(*entries));
    inner_build(layout, &header, leftmost, entries, count - 1, merge->images->sibling);
    merge->parent_small = count - 1 == 0 || merge->parent.cell_bytes < quarter(merge->self);
}

/* ---- doing it -------------------------------------------------------------------------------- */

static enum pando_status write_image_co(struct merge *merge, fabric_address address,
                                        const uint8_t *bytes, uint32_t size)
{
    struct fabric_op write = fabric_write(fabric_address_offset(address), bytes, size);
    return sherman_write_co(merge->self, fabric_address_node(address), &write, 1);
}

_Static_assert(3 * (NODE_BYTES_MAX + 64) + 64 <= POOL_INTENT_BYTES, "any three nodes fit");

static uint32_t build_intent(struct merge *merge, fabric_address slot)
{
    struct sherman *self = merge->self;
    uint32_t bytes = self->table->layout.node_bytes;
    const struct sherman_lock *home = home_lock(merge);
    const struct sherman_lock *others[] = {&merge->right_lock, &merge->parent_lock};
    struct intent_builder builder;

    intent_begin(&builder, merge->scratch->intent, POOL_INTENT_BYTES,
                 (struct intent_lock){home->global.address, home->global.word});
    for (int i = 0; i < 2; i++) {
        if (others[i]->held && others[i] != home)
            intent_add_lock(
                &builder, (struct intent_lock){others[i]->global.address, others[i]->global.word});
    }
    intent_add_image(&builder, merge->left.address, slice_of(merge->images->node, bytes));
    intent_add_image(&builder, merge->right.address, slice_of(merge->images->other, bytes));
    intent_add_image(&builder, merge->parent.address, slice_of(merge->images->sibling, bytes));
    uint32_t size = (uint32_t)intent_finish(&builder, pool_id(self->table->pool), slot);
    pando_assert(size > 0);
    return size;
}

static enum pando_status perform_co(struct merge *merge)
{
    struct sherman *self = merge->self;
    uint32_t bytes = self->table->layout.node_bytes;
    uint16_t home_node = fabric_address_node(home_lock(merge)->global.address);
    fabric_address slot = 0;
    enum pando_status status = PANDO_OK;

    if (self->table->on.intents) {
        status = pool_intent_take_co(self->base.session, home_node, &slot);
        if (status != PANDO_OK)
            return status;
        status = write_image_co(merge, slot, merge->scratch->intent, build_intent(merge, slot));
    }
    if (status == PANDO_OK)
        status = write_image_co(merge, merge->left.address, merge->images->node, bytes);
    if (status == PANDO_OK)
        status = write_image_co(merge, merge->right.address, merge->images->other, bytes);
    if (status == PANDO_OK)
        status = write_image_co(merge, merge->parent.address, merge->images->sibling, bytes);
    if (status == PANDO_OK && slot != 0) {
        status = write_image_co(merge, slot, (const uint8_t *)&zero, sizeof(zero));
        if (status == PANDO_OK)
            pool_intent_give(self->base.session, slot);
    }
    return status;
}

static void retire_co(struct merge *merge)
{
    struct sherman *self = merge->self;
    struct pool_block block = {.address = merge->right.address,
                               .version = merge->right.version + 1};
    struct node_header check;
    enum pando_status status =
        pool_free_co(self->base.session, &block, self->table->layout.node_bytes, true);
    (void)status; /* it is swept when this member is gone */
    if (merge->right.level > 0)
        index_cache_drop(self->table->cache, merge->right.level, merge->right.low);
    index_cache_drop(self->table->cache, merge->parent.level, merge->parent.low);
    if (self->table->on.cache && node_header_read(&self->table->layout, merge->parent.address,
                                                  merge->images->sibling, &check))
        index_cache_put(self->table->cache, &check, merge->images->sibling);
    sherman_count(&self->table->merges);
}

enum merge_result {
    MERGED,
    MERGED_SMALL_PARENT, /* which is worth an attempt, too */
    NOT_MERGED,
    IN_THE_WAY, /* somebody holds one of the locks */
};

static enum merge_result merge_once_co(struct sherman *self, uint8_t level, struct slice key)
{
    struct merge merge = {
        .self = self, .scratch = scratch_take(self), .images = scratch_take(self)};
    bool merged = false;

    if (merge.scratch == NULL || merge.images == NULL) {
        if (merge.scratch != NULL)
            scratch_give(self, merge.scratch);
        if (merge.images != NULL)
            scratch_give(self, merge.images);
        return NOT_MERGED;
    }
    enum pando_status status = prepare_co(&merge, level, key);
    if (status == PANDO_OK) {
        struct node_header header = merged_header(&merge);
        if (level == 0 ? build_leaf(&merge, &header) : build_inner(&merge, &header)) {
            build_dead(self, &merge.right, merge.images->other);
            build_parent(&merge);
            status = perform_co(&merge);
            merged = status == PANDO_OK;
        }
    }
    enum pando_status released = unlock_all_co(&merge);
    if (merged && released == PANDO_OK)
        retire_co(&merge);
    scratch_give(self, merge.images);
    scratch_give(self, merge.scratch);
    if (!merged)
        return status == PANDO_BUSY ? IN_THE_WAY : NOT_MERGED;
    return merge.parent_small ? MERGED_SMALL_PARENT : MERGED;
}

/* Tries again a few times when somebody is in the way; then it is left to the keeper. */
static enum merge_result merge_co(struct sherman *self, uint8_t level, struct slice key)
{
    enum { TRIES = 4 };
    enum merge_result result = IN_THE_WAY;
    for (int i = 0; i < TRIES && result == IN_THE_WAY; i++) {
        if (i > 0)
            rt_sleep_co((RT_NS_PER_US << (2 * i)) + rt_random() % (RT_NS_PER_US << (2 * i)));
        result = merge_once_co(self, level, key);
    }
    return result;
}

/* ---- the root -------------------------------------------------------------------------------- */

/* A root with one child: the child becomes the root. */
static bool shrink_root_co(struct sherman *self)
{
    struct sherman_table *table = self->table;
    struct scratch *scratch = scratch_take(self);
    struct sherman_lock lock = {0};
    struct node_header header;
    fabric_address root;
    uint64_t found;
    bool shrunk = false;

    if (scratch == NULL)
        return false;
    enum pando_status status = sherman_root_co(self, true, &root);
    if (status == PANDO_OK)
        status = sherman_try_lock_co(self, root, &lock);
    if (status == PANDO_OK)
        status = sherman_read_co(self, root, scratch->node, &header);
    if (status == PANDO_OK && !header.dead && header.level > 0 && header.no_high &&
        header.low.size == 0 && inner_count(&table->layout, scratch->node) == 0) {
        fabric_address child = inner_child_at(&table->layout, scratch->node, 0);
        status = pool_root_swap_co(self->base.session, table->slot, root, child, &found);
        if (status == PANDO_OK) {
            build_dead(self, &header, scratch->image);
            struct fabric_op write =
                fabric_write(fabric_address_offset(root), scratch->image, table->layout.node_bytes);
            status = sherman_write_co(self, fabric_address_node(root), &write, 1);
            atomic_store_explicit(&table->root, child, memory_order_release);
            index_cache_drop(table->cache, header.level, header.low);
            shrunk = status == PANDO_OK;
        }
    }
    if (lock.held)
        status = sherman_unlock_co(self, &lock);
    if (shrunk && status == PANDO_OK) {
        struct pool_block block = {.address = root, .version = header.version + 1};
        enum pando_status freed =
            pool_free_co(self->base.session, &block, table->layout.node_bytes, true);
        (void)freed; /* it is swept when this member is gone */
    }
    scratch_give(self, scratch);
    return shrunk;
}

/* Whether the leaf that covers the key is worth the attempt. */
static bool leaf_small_co(struct sherman *self, struct slice key)
{
    struct scratch *scratch = scratch_take(self);
    struct sherman_target target = {.key = key};
    struct node_header header;
    uint32_t count = 0, used = 0;
    bool small = false;

    if (scratch == NULL)
        return false;
    if (sherman_find_co(self, &target, scratch->node, &header) == PANDO_OK &&
        leaf_entries(&self->table->layout, &header, scratch->node, scratch->entries, &count)) {
        for (uint32_t i = 0; i < count; i++)
            used += leaf_cell_bytes(&self->table->layout, (uint32_t)scratch->entries[i].key.size,
                                    (uint32_t)scratch->entries[i].value.size);
        small = used < quarter(self);
    }
    scratch_give(self, scratch);
    return small;
}

void sherman_merge_co(struct sherman *self, uint8_t level, struct slice key)
{
    enum { LEVELS_MAX = 16 };
    if (level == 0 && !leaf_small_co(self, key))
        return;
    enum merge_result result;
    while ((result = merge_co(self, level, key)) == MERGED_SMALL_PARENT && level < LEVELS_MAX)
        level++;
    if (result == IN_THE_WAY)
        unmerged_add(self->table->unmerged, level, key);
    if (level > 0) {
        while (shrink_root_co(self)) {
        }
    }
}

void sherman_keep_co(struct engine_table *base, struct pool_session *session)
{
    struct sherman_table *table = container_of(base, struct sherman_table, base);
    static const uint64_t LONG_NS = 20 * RT_NS_PER_MS; /* others wait for the keeper, too */
    uint32_t left = unmerged_count(table->unmerged);   /* what comes back is for the next time */
    uint64_t end_ns = rt_now_ns() + LONG_NS;
    uint8_t level, key[ENGINE_KEY_MAX];
    size_t size;
    struct engine *engine;

    if (left == 0 || engine_attach_co(base, session, &engine) != PANDO_OK)
        return;
    for (; left > 0 && rt_now_ns() < end_ns && unmerged_take(table->unmerged, &level, key, &size);
         left--)
        sherman_merge_co(sherman_of(engine), level, slice_of(key, size));
    engine_detach_co(engine);
}
