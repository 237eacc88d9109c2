/*
 * merge.c - two neighbours under one parent become one (rule merge-locks), and an empty root goes.
 *
 * Parent, left and right are locked without waiting for any of them; if somebody is in the way,
 * nothing happens and the next deletion tries again. Ranges move left only, and only whole.
 *
 *   before   locks alone: released by recovery
 *   during   an intent with the three images, home lock the left node's: redone by recovery. The
 *            other memory nodes with locks of the merge have guards, so that these are not lost with
 *            a lock table while the intent can still be redone (rule new-incarnation)
 *   after    the right node is dead and freed; a death before that leaves it to the sweep
 *
 * A root with one child is given up in its own list, under its lock and an intent: it is dead from then on,
 * and still names the child. Then the child takes its place in the directory, and then its block is freed.
 *
 *   before   the lock alone: released by recovery
 *   between  the directory names a dead root: whoever meets it puts the child in its place
 *            (blink_replace_root_co). Nobody changes it, as nobody changes a dead node
 *   after    nothing refers to it; a death before it is freed loses one block
 */
#include <limits.h>
#include <string.h>

#include "base/assert.h"
#include "tree/blink/blink_int.h"

static const uint64_t zero;

/* ---- locks ----------------------------------------------------------------------------------- */

static bool same_lock(const struct blink_lock *a, const struct blink_lock *b)
{
    return a->held && a->global.address == b->global.address;
}

/* Two nodes may share a lock word: it is taken once (rule local-handover). */
static enum pando_status try_lock_co(struct blink_merge *merge, fabric_address node,
                                     struct blink_lock *lock)
{
    const struct blink_tree *tree = merge->self->tree;
    if (!pool_address_ok(tree->pool, node, tree->layout.node_bytes))
        return PANDO_CORRUPT;
    struct blink_lock wanted = {.global.address = pool_lock_for(tree->pool, node)};
    if (same_lock(&merge->parent_lock, &wanted) || same_lock(&merge->left_lock, &wanted))
        return PANDO_OK;
    return blink_try_lock_co(merge->self, node, lock);
}

static const struct blink_lock *home_lock(const struct blink_merge *merge)
{
    return merge->left_lock.held ? &merge->left_lock : &merge->parent_lock;
}

static uint16_t bank_of(const struct blink_lock *lock)
{
    return pool_bank(lock->global.address);
}

/* The slot in that bank; NULL: there is none. */
static fabric_address *slot_in(struct blink_merge *merge, uint16_t bank)
{
    for (int i = 0; i < BLINK_MERGE_LOCKS; i++) {
        if (merge->slots[i] != 0 && pool_bank(merge->slots[i]) == bank)
            return &merge->slots[i];
    }
    return NULL;
}

/* Releases a lock, and before, in the same list, clears the guard that names it. */
static enum pando_status unlock_co(struct blink_merge *merge, struct blink_lock *lock)
{
    fabric_address *slot = slot_in(merge, bank_of(lock));
    struct fabric_op ops[2];
    if (slot == NULL)
        return blink_unlock_co(merge->self, lock);
    ops[0] = fabric_write(fabric_address_offset(*slot), &zero, sizeof(zero));
    enum pando_status status = blink_commit_co(merge->self, lock, ops, 1);
    if (status == PANDO_OK)
        pool_intent_give(merge->self->session, *slot);
    *slot = 0;
    return status;
}

/* After a change whose intent is cleared, or before one. */
static enum pando_status unlock_all_co(struct blink_merge *merge)
{
    /* The home lock last. If left and parent share a word, it is the parent's entry that is held.
     * */
    struct blink_lock *locks[] = {&merge->right_lock, &merge->parent_lock, &merge->left_lock};
    enum pando_status status = PANDO_OK;
    for (int i = 0; i < BLINK_MERGE_LOCKS; i++) {
        if (!locks[i]->held)
            continue;
        enum pando_status released = unlock_co(merge, locks[i]);
        if (status == PANDO_OK)
            status = released;
    }
    return status;
}

/* ---- looking --------------------------------------------------------------------------------- */

static enum pando_status read_co(struct blink_merge *merge, fabric_address address, uint8_t *bytes,
                                 struct node_header *header, uint8_t level)
{
    enum pando_status status = blink_read_co(merge->self, address, bytes, header);
    if (status != PANDO_OK)
        return status;
    return header->dead || header->level != level ? PANDO_STALE : PANDO_OK;
}

/* Finds the parent and locks it, the children and reads them all. BUSY or STALE: not now. */
static enum pando_status lock_and_read_co(struct blink_merge *merge, uint8_t level,
                                          struct slice key)
{
    struct blink *self = merge->self;
    const struct node_layout *layout = &self->tree->layout;
    struct blink_scratch *scratch = merge->scratch;
    struct blink_target target = {.key = key, .level = (uint8_t)(level + 1)};

    enum pando_status status = blink_find_co(self, &target, scratch->node, &merge->parent);
    if (status == PANDO_OK)
        status = try_lock_co(merge, merge->parent.address, &merge->parent_lock);
    if (status == PANDO_OK)
        status = read_co(merge, merge->parent.address, scratch->node, &merge->parent,
                         (uint8_t)(level + 1));
    if (status != PANDO_OK)
        return status;
    uint32_t separators = inner_count(layout, scratch->node);
    if (blink_fits(self, &target, &merge->parent) != FIT)
        return PANDO_STALE;
    merge->only_child = separators == 0;
    if (merge->only_child)
        return PANDO_STALE;
    (void)inner_child(layout, scratch->node, key, &merge->index);
    if (merge->index == separators)
        merge->index--;
    fabric_address left = inner_child_at(layout, scratch->node, merge->index);
    fabric_address right = inner_child_at(layout, scratch->node, merge->index + 1);
    status = try_lock_co(merge, left, &merge->left_lock);
    if (status == PANDO_OK && self->tree->on.merge_lock)
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

static struct node_header merged_header(const struct blink_merge *merge)
{
    struct node_header header = merge->left;
    header.version++;
    header.high = merge->right.high;
    header.no_high = merge->right.no_high;
    header.sibling = merge->right.sibling;
    return header;
}

static bool build_inner(struct blink_merge *merge, const struct node_header *header)
{
    struct blink *self = merge->self;
    const struct node_layout *layout = &self->tree->layout;
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
    if (size > 3 * blink_quarter(self) || !inner_fits(layout, header, entries, left + right + 1))
        return false;
    inner_build(layout, header, left_first, entries, left + right + 1, merge->images->node);
    return true;
}

/* What stays where the right node was: its header, dead, held by us until it is used again. */
static void build_dead(struct blink *self, const struct node_header *header, uint8_t *bytes)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_FREE,
                                 .table = self->tree->id,
                                 .holder = pool_identity(self->tree->pool)};
    struct node_header dead = *header;
    dead.version++;
    dead.dead = true;
    dead.tenure = pool_tenure_pack(tenure);
    if (header->level == 0)
        leaf_build(&self->tree->layout, &dead, NULL, 0, bytes);
    else
        inner_build(&self->tree->layout, &dead, 0, NULL, 0, bytes);
}

static void build_parent(struct blink_merge *merge)
{
    const struct node_layout *layout = &merge->self->tree->layout;
    struct inner_entry *entries = merge->scratch->separators;
    struct node_header header = merge->parent;
    fabric_address leftmost;
    uint32_t count;

    header.version++;
    inner_entries(layout, merge->scratch->node, &leftmost, entries, &count);
    memmove(&entries[merge->index], &entries[merge->index + 1],
            (count - merge->index - 1) * sizeof(*entries));
    inner_build(layout, &header, leftmost, entries, count - 1, merge->images->sibling);
    merge->parent_small = count - 1 == 0 || merge->parent.cell_bytes < blink_quarter(merge->self);
}

/* ---- doing it -------------------------------------------------------------------------------- */

static enum pando_status write_image_co(struct blink_merge *merge, fabric_address address,
                                        const uint8_t *bytes, uint32_t size)
{
    struct fabric_op write = fabric_write(fabric_address_offset(address), bytes, size);
    return blink_submit_co(merge->self, address, &write, 1);
}

_Static_assert(3 * (NODE_BYTES_MAX + 64) + 64 <= POOL_INTENT_BYTES, "any three nodes fit");

/* Takes a slot on every node that has locks of this merge, in order of nodes, so that two merges do not
 * wait for each other. */
static enum pando_status take_slots_co(struct blink_merge *merge)
{
    const struct blink_lock *locks[] = {&merge->left_lock, &merge->parent_lock, &merge->right_lock};
    struct pool_session *session = merge->self->session;
    enum pando_status status = PANDO_OK;
    int count = 0;

    for (int last = -1, next; status == PANDO_OK; last = next) {
        next = INT_MAX;
        for (int i = 0; i < BLINK_MERGE_LOCKS; i++) {
            if (locks[i]->held && bank_of(locks[i]) > last && bank_of(locks[i]) < next)
                next = bank_of(locks[i]);
        }
        if (next == INT_MAX)
            return PANDO_OK;
        status = pool_intent_take_co(session, (uint16_t)next, &merge->slots[count]);
        count += status == PANDO_OK;
    }
    while (count > 0) {
        pool_intent_give(session, merge->slots[--count]);
        merge->slots[count] = 0;
    }
    return status;
}

/* Begins an intent with the home lock, or the first lock of a guard's node, and adds the others. A guard
 * names those of its node only. */
static void add_locks(const struct blink_merge *merge, struct intent_builder *builder,
                      fabric_address slot, bool guard)
{
    const struct blink_lock *locks[] = {home_lock(merge), &merge->right_lock, &merge->parent_lock};
    bool begun = false;
    for (int i = 0; i < BLINK_MERGE_LOCKS; i++) {
        struct intent_lock lock = {locks[i]->global.address, locks[i]->global.word};
        if (!locks[i]->held || (i > 0 && locks[i] == locks[0]) ||
            (guard && bank_of(locks[i]) != pool_bank(slot)))
            continue;
        if (begun)
            intent_add_lock(builder, lock);
        else
            intent_begin(builder, merge->scratch->intent, POOL_INTENT_BYTES, lock);
        begun = true;
    }
    pando_assert(begun);
}

static uint32_t build_intent(struct blink_merge *merge, fabric_address slot, bool guard)
{
    struct blink *self = merge->self;
    uint32_t bytes = self->tree->layout.node_bytes;
    struct intent_builder builder;

    add_locks(merge, &builder, slot, guard);
    if (!guard) {
        intent_add_image(&builder, merge->left.address, slice_of(merge->images->node, bytes));
        intent_add_image(&builder, merge->right.address, slice_of(merge->images->other, bytes));
        intent_add_image(&builder, merge->parent.address, slice_of(merge->images->sibling, bytes));
    }
    uint32_t size = (uint32_t)intent_finish(&builder, pool_id(self->tree->pool), slot);
    pando_assert(size > 0);
    return size;
}

/* The guards, completed, then the intent. */
static enum pando_status write_intents_co(struct blink_merge *merge, fabric_address home)
{
    enum pando_status status = PANDO_OK;
    bool guards = merge->self->tree->on.guards;
    for (int i = 0; i < BLINK_MERGE_LOCKS && status == PANDO_OK; i++) {
        fabric_address slot = merge->slots[i];
        if (slot != 0 && slot != home && guards)
            status = write_image_co(merge, slot, merge->scratch->intent,
                                    build_intent(merge, slot, true));
    }
    return status == PANDO_OK ? write_image_co(merge, home, merge->scratch->intent,
                                               build_intent(merge, home, false))
                              : status;
}

/* Not OK: nothing was changed and there is no slot, or the outcome is unknown and the slots stay as they are
 * until this member is recovered. */
static enum pando_status perform_co(struct blink_merge *merge)
{
    struct blink *self = merge->self;
    uint32_t bytes = self->tree->layout.node_bytes;
    fabric_address *home = NULL;
    enum pando_status status = PANDO_OK;

    if (self->tree->on.intents) {
        status = take_slots_co(merge);
        if (status != PANDO_OK)
            return status;
        home = slot_in(merge, bank_of(home_lock(merge)));
        status = write_intents_co(merge, *home);
    }
    if (status == PANDO_OK)
        status = write_image_co(merge, merge->left.address, merge->images->node, bytes);
    if (status == PANDO_OK)
        status = write_image_co(merge, merge->right.address, merge->images->other, bytes);
    if (status == PANDO_OK)
        status = write_image_co(merge, merge->parent.address, merge->images->sibling, bytes);
    if (status == PANDO_OK && home != NULL)
        status = write_image_co(merge, *home, (const uint8_t *)&zero, sizeof(zero));
    if (status == PANDO_OK && home != NULL) {
        pool_intent_give(self->session, *home);
        *home = 0;
    }
    if (status != PANDO_OK)
        memset(merge->slots, 0, sizeof(merge->slots));
    return status;
}

static void retire_co(struct blink_merge *merge)
{
    struct blink *self = merge->self;
    struct pool_block block = {.address = merge->right.address,
                               .version = merge->right.version + 1};
    struct node_header check;
    enum pando_status status =
        pool_free_co(self->session, &block, self->tree->layout.node_bytes, true);
    (void)status; /* it is swept when this member is gone */
    if (merge->right.level > 0)
        index_cache_drop(self->tree->cache, merge->right.level, merge->right.low);
    index_cache_drop(self->tree->cache, merge->parent.level, merge->parent.low);
    if (self->tree->on.cache && node_header_read(&self->tree->layout, merge->parent.address,
                                                 merge->images->sibling, &check))
        index_cache_put(self->tree->cache, &check, merge->images->sibling);
    blink_count(&self->tree->merges);
}

enum merge_result {
    MERGED,
    MERGED_SMALL_PARENT, /* which is worth an attempt, too */
    ONLY_CHILD,          /* the parent has to be merged first */
    NOT_MERGED,
    IN_THE_WAY, /* somebody holds one of the locks */
};

static enum merge_result merge_once_co(struct blink *self, uint8_t level, struct slice key)
{
    struct blink_merge merge = {
        .self = self, .scratch = blink_scratch_take(self), .images = blink_scratch_take(self)};
    bool merged = false;

    if (merge.scratch == NULL || merge.images == NULL) {
        if (merge.scratch != NULL)
            blink_scratch_give(self, merge.scratch);
        if (merge.images != NULL)
            blink_scratch_give(self, merge.images);
        return NOT_MERGED;
    }
    enum pando_status status = lock_and_read_co(&merge, level, key);
    if (status == PANDO_OK) {
        struct node_header header = merged_header(&merge);
        if (level == 0 ? self->tree->leaves->join(&merge, &header) : build_inner(&merge, &header)) {
            build_dead(self, &merge.right, merge.images->other);
            build_parent(&merge);
            status = perform_co(&merge);
            merged = status == PANDO_OK;
        }
    }
    enum pando_status released = unlock_all_co(&merge);
    if (merged && released == PANDO_OK)
        retire_co(&merge);
    blink_scratch_give(self, merge.images);
    blink_scratch_give(self, merge.scratch);
    if (!merged)
        return status == PANDO_BUSY ? IN_THE_WAY : merge.only_child ? ONLY_CHILD : NOT_MERGED;
    return merge.parent_small ? MERGED_SMALL_PARENT : MERGED;
}

/* Tries again a few times when somebody is in the way; then it is left to maintenance. */
static enum merge_result merge_co(struct blink *self, uint8_t level, struct slice key)
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

/* Dead, of the table as before, and with its only child. */
static void build_given_up(struct blink *self, const struct node_header *header,
                           fabric_address child, uint8_t *bytes)
{
    struct node_header dead = *header;
    dead.version++;
    dead.dead = true;
    inner_build(&self->tree->layout, &dead, child, NULL, 0, bytes);
}

/* Locks the root and writes it dead if it has only one child. Not OK: it stays, or this is not known; whoever
 * meets it then finds out. */
static enum pando_status give_up_root_co(struct blink *self, fabric_address root,
                                         struct blink_scratch *scratch, struct node_header *header,
                                         fabric_address *child)
{
    const struct node_layout *layout = &self->tree->layout;
    struct blink_lock lock;
    enum pando_status status = blink_try_lock_co(self, root, &lock);

    if (status != PANDO_OK)
        return status;
    status = blink_read_co(self, root, scratch->node, header);
    if (status == PANDO_OK && (header->dead || header->level == 0 || !header->no_high ||
                               header->low.size > 0 || inner_count(layout, scratch->node) > 0))
        status = PANDO_STALE;
    if (status != PANDO_OK)
        return blink_unlock_with_co(self, &lock, status);
    *child = inner_child_at(layout, scratch->node, 0);
    build_given_up(self, header, *child, scratch->image);
    return blink_replace_co(self, &lock, scratch, root, NULL, NULL);
}

/* A root with one child: the child becomes the root. */
static bool shrink_root_co(struct blink *self)
{
    struct blink_tree *tree = self->tree;
    struct blink_scratch *scratch = blink_scratch_take(self);
    struct node_header header;
    fabric_address root, child = 0;

    if (scratch == NULL)
        return false;
    enum pando_status status = blink_root_co(self, true, &root);
    if (status == PANDO_OK)
        status = give_up_root_co(self, root, scratch, &header, &child);
    if (status == PANDO_OK) {
        index_cache_drop(tree->cache, header.level, header.low);
        status = blink_swap_root_co(self, root, child);
    }
    if (status == PANDO_OK) {
        struct pool_block block = {.address = root, .version = header.version + 1};
        enum pando_status freed =
            pool_free_co(self->session, &block, tree->layout.node_bytes, false);
        (void)freed; /* then one block is lost */
    }
    blink_scratch_give(self, scratch);
    return status == PANDO_OK;
}

/* Merges the node, and then its parents as far as that is worth it. Whether anything was merged. */
static bool merge_up_co(struct blink *self, uint8_t level, struct slice key)
{
    enum { LEVELS_MAX = 16 };
    bool merged = false;
    if (level == 0 && !self->tree->leaves->small_co(self, key))
        return false;
    enum merge_result result = merge_co(self, level, key);
    while ((result == MERGED_SMALL_PARENT || result == ONLY_CHILD) && level < LEVELS_MAX) {
        merged = merged || result == MERGED_SMALL_PARENT;
        level++;
        result = merge_co(self, level, key);
    }
    if (result == IN_THE_WAY)
        unmerged_add(self->tree->unmerged, level, key);
    if (level > 0) {
        while (shrink_root_co(self)) {
        }
    }
    return merged || result == MERGED;
}

void blink_merge_co(struct blink *self, uint8_t level, struct slice key)
{
    (void)merge_up_co(self, level, key);
}

/* ---- what was left --------------------------------------------------------------------------- */

bool blink_merges_left(struct blink_tree *tree)
{
    return unmerged_count(tree->unmerged) > 0 || unmerged_walks(tree->unmerged);
}

static void merge_remembered_co(struct blink *self, uint64_t end_ns)
{
    struct unmerged *unmerged = self->tree->unmerged;
    uint32_t left = unmerged_count(unmerged); /* what comes back is for the next time */
    uint8_t level, key[ENGINE_KEY_MAX];
    size_t size;

    for (; left > 0 && rt_now_ns() < end_ns && unmerged_take(unmerged, &level, key, &size); left--)
        blink_merge_co(self, level, slice_of(key, size));
}

/* Looks at one leaf. False: it cannot be read, so that nobody knows where the next one begins. */
static bool walk_leaf_co(struct blink *self, struct slice key, struct blink_scratch *scratch)
{
    struct unmerged *unmerged = self->tree->unmerged;
    struct blink_target target = {.key = key};
    struct node_header header;

    if (merge_up_co(self, 0, key))
        return true; /* what it has become is looked at next */
    if (blink_find_co(self, &target, scratch->node, &header) != PANDO_OK)
        return false;
    if (header.no_high)
        unmerged_walk_end(unmerged);
    else
        unmerged_walk_on(unmerged, header.high);
    return true;
}

static void walk_co(struct blink *self, uint64_t end_ns)
{
    struct unmerged *unmerged = self->tree->unmerged;
    struct blink_scratch *scratch = NULL;
    uint8_t key[ENGINE_KEY_MAX];
    size_t size;

    if (unmerged_walks(unmerged))
        scratch = blink_scratch_take(self);
    while (scratch != NULL && rt_now_ns() < end_ns && unmerged_walk(unmerged, key, &size)) {
        if (!walk_leaf_co(self, slice_of(key, size), scratch))
            unmerged_walk_end(unmerged);
    }
    if (scratch != NULL)
        blink_scratch_give(self, scratch);
}

void blink_merge_left_co(struct blink *self)
{
    static const uint64_t LONG_NS = 20 * RT_NS_PER_MS; /* the rest of maintenance waits, too */
    static const uint64_t WALK_NS = 50 * RT_NS_PER_MS; /* of what is much */
    uint64_t begin_ns = rt_now_ns();
    merge_remembered_co(self, begin_ns + LONG_NS);
    walk_co(self, begin_ns + WALK_NS);
}
