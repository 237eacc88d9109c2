/*
 * leaf.c - changing one pair: lock its leaf, look, write as little as possible, unlock.
 *
 * What a writer's death leaves at each point, and who repairs it:
 *   before the first write    a lock: released by recovery
 *   an update of one word     a cell whose check is wrong and whose payload is the old or the new
 *   one:
 *                             repaired by whoever meets it under the lock, which recovery has
 *                             marked (leaf_repair, rule lock-word)
 *   any other update          an intent: redone by recovery before it releases the lock
 *   an insertion              its header word is written last: before it, the slot is still empty
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tree/sherman/sherman_int.h"

/* The stacks of a loop's tasks share a first-level cache, so a change touches as little of its own as it can:
 * its usual steps are one function, and what it seldom does keeps nothing in that function's frame. */
#define USUAL inline __attribute__((always_inline))
#define RARE  __attribute__((noinline))

static const uint64_t zero;

/* What is wanted of a leaf. */
enum change_kind {
    CHANGE_MODIFY, /* what fn says */
    CHANGE_SWAP,   /* what swap says */
    CHANGE_REPAIR, /* nothing but that no cell is torn */
};

/* One operation on one leaf, under its lock. */
struct change {
    struct sherman *self;
    struct blink_scratch *scratch;
    struct blink_lock lock;
    struct node_header header;
    struct slice key;
    enum change_kind kind;
    unsigned how; /* ENGINE_BLIND, ENGINE_ANYWHERE */
    engine_modify_fn fn;
    void *context;
    const struct engine_swap *swap;
    enum pando_status answer; /* to a swap; else OK */
    bool looked;              /* found and slot are known with the lock */
    bool headless; /* where the leaf should be there was no valid header, in spite of the lock */
    bool reread;   /* a cell was invalid under the lock once, and is read again */
    enum leaf_find found;
    struct leaf_slot slot;
    blob_ref old_blob, new_blob;
    bool shrunk;               /* a pair was removed: perhaps the leaf should be merged */
    enum pando_status adopted; /* if somebody else did it: how it ended */
};

enum { ADOPTED_MAX = 4 };

/* Writes of single cells, by the holder and those it adopts: each is complete in itself, so that
 * they need no intent. The cells lie in scratch->image. */
struct cells {
    struct local_lock_waiter *adopted[ADOPTED_MAX];
    uint32_t adopted_count;
    uint32_t count, used_bytes;
    struct fabric_op ops[2 * (ADOPTED_MAX + 1) + 1];
};

static uint64_t leaf_offset(const struct change *change)
{
    return fabric_address_offset(change->header.address);
}

/* ---- committing ------------------------------------------------------------------------------ */

/* Sends writes under the protection of an intent that holds the image of [offset, offset + size) of
 * the leaf, and unlocks. */
static enum pando_status commit_with_intent_co(struct change *change, uint32_t offset,
                                               const uint8_t *image, uint32_t size)
{
    struct sherman *self = change->self;
    struct pool *pool = self->table->blink.pool;
    struct intent_builder builder;
    fabric_address slot = 0;
    fabric_address at = change->header.address + offset;
    struct fabric_op ops[5];
    uint32_t count = 0;

    if (self->table->blink.on.intents) {
        enum pando_status status = pool_intent_take_co(self->base.session, pool_bank(at), &slot);
        if (status != PANDO_OK) {
            enum pando_status released = blink_unlock_co(&self->blink, &change->lock);
            (void)released;
            return status;
        }
        intent_begin(&builder, change->scratch->intent, POOL_INTENT_BYTES,
                     (struct intent_lock){change->lock.global.address, change->lock.global.word});
        intent_add_image(&builder, at, slice_of(image, size));
        uint32_t bytes = (uint32_t)intent_finish(&builder, pool_id(pool), slot);
        pando_assert(bytes > 0);
        ops[count++] = fabric_write(fabric_address_offset(slot), change->scratch->intent, bytes);
    }
    ops[count++] = fabric_write(leaf_offset(change) + offset, image, size);
    if (slot != 0)
        ops[count++] = fabric_write(fabric_address_offset(slot), &zero, sizeof(zero));
    enum pando_status status = blink_commit_co(&self->blink, &change->lock, ops, count);
    if (slot != 0 && status == PANDO_OK)
        pool_intent_give(self->base.session, slot);
    return status;
}

/* The whole leaf, sorted, as the paper's baseline writes it: no intent, as the baseline has none.
 * */
static RARE enum pando_status commit_whole_leaf_co(struct change *change, uint32_t count)
{
    struct sherman *self = change->self;
    struct blink_scratch *scratch = change->scratch;
    struct node_header header = change->header;
    struct fabric_op ops[3];

    header.version++;
    leaf_build(&self->table->blink.layout, &header, scratch->entries, count, scratch->image);
    ops[0] =
        fabric_write(leaf_offset(change), scratch->image, self->table->blink.layout.node_bytes);
    return blink_commit_co(&self->blink, &change->lock, ops, 1);
}

/* proven-repair (R19): under the lock nobody is changing the leaf, so a cell that is invalid was
 * left by a holder that died, or is damaged. Repairs no more cells than the lock word says that
 * holders have died. STALE: repaired, or to be read once more. */
static RARE enum pando_status repair_co(struct change *change)
{
    struct sherman *self = change->self;
    const struct node_layout *layout = &self->table->blink.layout;
    uint8_t *image = change->scratch->image;
    unsigned deaths = self->table->on.proof ? pool_lock_deaths(change->lock.global.word)
                                            : POOL_LOCK_DEATHS_MAX; /* broken on purpose */

    memcpy(image, change->scratch->node, layout->node_bytes);
    int repaired = leaf_repair(layout, &change->header, image, deaths);
    if (repaired > 0) {
        change->lock.last = LAST_REPAIRS;
        change->lock.repaired = (uint8_t)repaired;
        change->lock.known = NULL;
        blink_count(&self->table->repairs);
        enum pando_status status = commit_with_intent_co(change, 0, image, layout->node_bytes);
        return status == PANDO_OK ? PANDO_STALE : status;
    }
    enum pando_status released = blink_unlock_co(&self->blink, &change->lock);
    if (released != PANDO_OK)
        return released;
    if (!change->reread) {
        change->reread = true;
        return PANDO_STALE;
    }
    return blink_damaged(&self->blink, change->header.address, change->key,
                         "a cell that no dead writer can have left");
}

/* ---- storing --------------------------------------------------------------------------------- */

/* The pairs of the leaf with this one in its place; false if the leaf is torn. */
static bool entries_with(struct change *change, const struct node_entry *entry, uint32_t *count,
                         bool *last)
{
    struct node_entry *entries = change->scratch->entries;
    if (!leaf_entries(&change->self->table->blink.layout, &change->header, change->scratch->node,
                      entries, count))
        return false;
    uint32_t at = 0;
    while (at < *count && slice_compare(entries[at].key, change->key) < 0)
        at++;
    bool replace = at < *count && slice_equal(entries[at].key, change->key);
    if (entry == NULL) {
        if (replace)
            memmove(&entries[at], &entries[at + 1], (--*count - at) * sizeof(*entries));
        return true;
    }
    if (!replace) {
        memmove(&entries[at + 1], &entries[at], (*count - at) * sizeof(*entries));
        ++*count;
    }
    entries[at] = *entry;
    *last = at + 1 == *count;
    return true;
}

static RARE enum pando_status rewrite_co(struct change *change, const struct node_entry *entry)
{
    uint32_t count;
    bool last = false;
    change->lock.known = NULL; /* it becomes another one */
    if (!entries_with(change, entry, &count, &last))
        return repair_co(change);
    return sherman_rewrite_co(change->self, &change->lock, change->scratch, &change->header, count,
                              last && change->header.no_high);
}

/* Clearing all of it would take as long as the rest of a small change. */
static void change_begin(struct change *change)
{
    change->lock.local.done = false;
    change->looked = change->headless = false;
    change->slot = (struct leaf_slot){0};
    change->old_blob = change->new_blob = 0;
    change->shrunk = false;
}

/* Likewise. */
static void cells_begin(struct cells *cells)
{
    cells->count = cells->used_bytes = cells->adopted_count = 0;
}

static void cells_add(const struct change *change, struct cells *cells, uint32_t offset,
                      const void *bytes, uint32_t size)
{
    fabric_write_at(&cells->ops[cells->count++], leaf_offset(change) + offset, bytes, size);
}

/* Where the next cell is built; NULL: there is no room. */
static uint8_t *cells_room(struct change *change, struct cells *cells, uint32_t bytes)
{
    if (bytes > change->self->table->blink.layout.node_bytes - cells->used_bytes)
        return NULL;
    cells->used_bytes += bytes;
    return change->scratch->image + cells->used_bytes - bytes;
}

/* A pair in a cell of its own: over its old one if only a word of that changes, else into an empty
 * one, the header last. The leaf's bytes at hand change, too. False: that is not possible. */
static bool cells_store(struct change *change, struct cells *cells, enum leaf_find found,
                        const struct leaf_slot *slot, const struct node_entry *entry)
{
    const struct node_layout *layout = &change->self->table->blink.layout;
    uint32_t key_size = (uint32_t)entry->key.size, value_size = (uint32_t)entry->value.size;
    uint32_t offset = slot->offset, bytes = slot->bytes;
    uint8_t *node = change->scratch->node;

    if (found == LEAF_FOUND
            ? leaf_cell_bytes(layout, key_size, value_size) > bytes
            : !leaf_place(layout, &change->header, node, key_size, value_size, &offset, &bytes))
        return false;
    uint8_t *cell = cells_room(change, cells, bytes);
    if (cell == NULL)
        return false;
    leaf_cell_build(layout, &change->header, offset, bytes, entry, cell);
    if (found == LEAF_FOUND) {
        if (!leaf_one_word(node + offset, cell, bytes))
            return false;
        cells_add(change, cells, offset, cell, bytes);
    } else {
        cells_add(change, cells, offset + 8, cell + 8, bytes - 8);
        cells_add(change, cells, offset, cell, 8);
    }
    memcpy(node + offset, cell, bytes);
    return true;
}

static bool cells_remove(struct change *change, struct cells *cells, const struct leaf_slot *slot)
{
    uint64_t word =
        leaf_cleared_word(&change->self->table->blink.layout, &change->header, slot->bytes);
    uint8_t *cleared = cells_room(change, cells, sizeof(word));
    if (cleared == NULL)
        return false;
    memcpy(cleared, &word, sizeof(word));
    cells_add(change, cells, slot->offset, cleared, sizeof(word));
    memcpy(change->scratch->node + slot->offset, &word, sizeof(word));
    return true;
}

/* Does what another task wants of this leaf, if that takes single cells. */
static bool adopt_one(struct change *change, struct cells *cells, struct change *other)
{
    const struct engine_shape *shape = &change->self->table->base.shape;
    struct leaf_slot slot = {0};

    if (!node_covers(&change->header, other->key))
        return false;
    enum leaf_find found = leaf_find(&change->self->table->blink.layout, &change->header,
                                     change->scratch->node, other->key, &slot);
    if (found == LEAF_TORN || (found == LEAF_FOUND && (slot.entry.flags & NODE_FLAG_BLOB) != 0))
        return false;
    struct slice old = slot.entry.value;
    struct engine_change wanted = other->fn(other->context, found == LEAF_FOUND ? &old : NULL);
    struct node_entry entry = {.key = other->key, .value = wanted.value};
    switch (wanted.what) {
    case ENGINE_STORE:
        return wanted.value.size <= shape->value_inline &&
               (shape->value_size == 0 || wanted.value.size == shape->value_size) &&
               cells_store(change, cells, found, &slot, &entry);
    case ENGINE_REMOVE:
        other->shrunk = found == LEAF_FOUND;
        return found != LEAF_FOUND || cells_remove(change, cells, &slot);
    default:
        return true;
    }
}

static void adopt(struct change *change, struct cells *cells)
{
    struct sherman_table *table = change->self->table;
    struct local_lock_waiter *waiter;

    while (cells->adopted_count < ADOPTED_MAX &&
           (waiter = local_lock_adopt(table->blink.locks, &change->lock.local,
                                      change->header.address)) != NULL) {
        if (!adopt_one(change, cells, local_lock_work(waiter))) {
            local_lock_put_back(table->blink.locks, &change->lock.local, waiter);
            break;
        }
        cells->adopted[cells->adopted_count++] = waiter;
    }
}

static USUAL enum pando_status cells_commit_co(struct change *change, struct cells *cells)
{
    struct sherman_table *table = change->self->table;

    if (table->on.adopt && table->blink.on.hierarchical && table->on.twolevel)
        adopt(change, cells);
    enum pando_status status =
        blink_commit_co(&change->self->blink, &change->lock, cells->ops, cells->count);
    for (uint32_t i = 0; i < cells->adopted_count; i++) {
        struct change *other = local_lock_work(cells->adopted[i]);
        other->adopted = status;
        local_lock_done(table->blink.locks, &change->lock.local, cells->adopted[i]);
    }
    return status;
}

/* A pair in a leaf that is written as a whole. */
static RARE enum pando_status store_in_whole_leaf_co(struct change *change,
                                                     const struct node_entry *entry)
{
    uint32_t count;
    bool last = false;
    if (entries_with(change, entry, &count, &last) &&
        leaf_fits(&change->self->table->blink.layout, &change->header, change->scratch->entries,
                  count))
        return commit_whole_leaf_co(change, count);
    return rewrite_co(change, entry);
}

/* More than one cell, or more of one than a word. */
static RARE enum pando_status update_large_co(struct change *change, const struct node_entry *entry)
{
    const struct node_layout *layout = &change->self->table->blink.layout;
    const struct leaf_slot *slot = &change->slot;
    uint8_t *cell = change->scratch->image;

    if (leaf_cell_bytes(layout, (uint32_t)entry->key.size, (uint32_t)entry->value.size) >
        slot->bytes)
        return rewrite_co(change, entry);
    leaf_cell_build(layout, &change->header, slot->offset, slot->bytes, entry, cell);
    return commit_with_intent_co(change, slot->offset, cell, slot->bytes);
}

static RARE enum pando_status remove_co(struct change *change)
{
    struct cells cells;

    cells_begin(&cells);
    change->shrunk = true;
    if (!change->self->table->on.twolevel) {
        uint32_t count;
        bool last;
        if (entries_with(change, NULL, &count, &last))
            return commit_whole_leaf_co(change, count);
    }
    bool possible = cells_remove(change, &cells, &change->slot);
    pando_assert(possible); /* it is the first */
    return cells_commit_co(change, &cells);
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* The value there is now, as the caller wants to see it. */
static enum pando_status old_value_co(struct change *change, struct slice *old)
{
    const struct node_entry *entry = &change->slot.entry;

    *old = entry->value;
    if ((entry->flags & NODE_FLAG_BLOB) == 0)
        return PANDO_OK;
    memcpy(&change->old_blob, entry->value.data, sizeof(change->old_blob));
    *old = slice_of(NULL, 0);
    if ((change->how & ENGINE_BLIND) != 0)
        return PANDO_OK;
    uint16_t table = change->self->table->blink.id;
    uint64_t most = (change->how & ENGINE_SHORT) != 0 ? ENGINE_SHORT_MAX : ENGINE_VALUE_MAX;
    struct blob_buffer buffer = {0};
    enum pando_status status = blob_fetch_co(change->self->base.session, table, entry->key,
                                             change->old_blob, most, &buffer, old);
    free(change->scratch->value);
    change->scratch->value = buffer.bytes;
    /* Under the lock: it is not freed meanwhile. */
    blob_ref missing = change->old_blob;
    return status == PANDO_STALE ? blob_missing(table, change->old_blob, &missing) : status;
}

/* A value as it is to lie in the leaf: itself, or the reference to a blob that is written first. */
static USUAL enum pando_status new_value_co(struct change *change, struct slice value,
                                            struct node_entry *entry)
{
    struct sherman *self = change->self;
    const struct engine_shape *shape = &self->table->base.shape;

    if ((shape->value_size != 0 && value.size != shape->value_size) ||
        value.size > ENGINE_VALUE_MAX)
        return PANDO_TOO_LARGE;
    entry->value = value;
    if (value.size <= shape->value_inline)
        return PANDO_OK;
    entry->value = slice_of(&change->new_blob, sizeof(change->new_blob));
    entry->flags = NODE_FLAG_BLOB;
    return blob_write_co(self->base.session, self->table->blink.id, change->key, value,
                         &change->new_blob);
}

/* What a modification wants of the leaf; if something is to be stored, the entry is that. */
static USUAL enum pando_status decide_co(struct change *change, int *what, struct node_entry *entry)
{
    bool found = change->found == LEAF_FOUND;
    struct slice old = {0};
    enum pando_status status = found ? old_value_co(change, &old) : PANDO_OK;

    if (status != PANDO_OK)
        return status;
    struct engine_change wanted = change->fn(change->context, found ? &old : NULL);
    *what = wanted.what == ENGINE_REMOVE && !found ? ENGINE_KEEP : wanted.what;
    if (*what == ENGINE_STORE)
        return new_value_co(change, wanted.value, entry);
    if (*what == ENGINE_KEEP)
        change->old_blob = 0;
    return PANDO_OK;
}

/* Whether the key is as a swap expects it. */
static bool as_expected(const struct change *change)
{
    const struct engine_swap *swap = change->swap;
    const struct node_entry *entry = &change->slot.entry;
    bool found = change->found == LEAF_FOUND;
    bool blob = found && (entry->flags & NODE_FLAG_BLOB) != 0;
    switch (swap->expect) {
    case ENGINE_EXPECT_NOTHING:
        return true;
    case ENGINE_EXPECT_ABSENT:
        return !found;
    case ENGINE_EXPECT_REFERENCE:
        return blob && memcmp(entry->value.data, &swap->expected_reference,
                              sizeof(swap->expected_reference)) == 0;
    default:
        return found && !blob && slice_equal(entry->value, swap->expected);
    }
}

/* What a swap wants of the leaf; its answer is kept. */
static RARE void decide_swap(struct change *change, int *what, struct node_entry *entry)
{
    const struct engine_swap *swap = change->swap;
    const struct node_entry *old = &change->slot.entry;
    bool found = change->found == LEAF_FOUND;

    change->answer = !as_expected(change) ? PANDO_STALE : PANDO_OK;
    if (change->answer == PANDO_OK && swap->staged == 0)
        change->answer = found ? PANDO_OK : PANDO_NOT_FOUND;
    else if (change->answer == PANDO_OK && swap->mode == ENGINE_INSERT && found)
        change->answer = PANDO_EXISTS;
    else if (change->answer == PANDO_OK && swap->mode == ENGINE_UPDATE && !found)
        change->answer = PANDO_NOT_FOUND;
    *what = ENGINE_KEEP;
    if (change->answer != PANDO_OK)
        return;
    if (found && (old->flags & NODE_FLAG_BLOB) != 0)
        memcpy(&change->old_blob, old->value.data, sizeof(change->old_blob));
    *what = swap->staged == 0 ? ENGINE_REMOVE : ENGINE_STORE;
    entry->value = slice_of(&swap->staged, sizeof(swap->staged));
    entry->flags = NODE_FLAG_BLOB;
}

/* Nothing is wanted but that the leaf is whole. */
static RARE enum pando_status repair_if_torn_co(struct change *change)
{
    uint32_t count;
    if (!leaf_entries(&change->self->table->blink.layout, &change->header, change->scratch->node,
                      change->scratch->entries, &count))
        return repair_co(change);
    return blink_unlock_co(&change->self->blink, &change->lock);
}

/* With the leaf locked and read: decides, writes and unlocks. STALE: what was read does not hold any more. */
static USUAL enum pando_status change_locked_leaf_co(struct change *change)
{
    struct sherman *self = change->self;
    struct node_entry entry = {.key = change->key};
    enum pando_status status = PANDO_OK;
    int what;

    if (change->kind == CHANGE_REPAIR)
        return repair_if_torn_co(change);
    if (!change->looked)
        change->found = leaf_find(&self->table->blink.layout, &change->header,
                                  change->scratch->node, change->key, &change->slot);
    if (change->found == LEAF_TORN)
        return repair_co(change);
    if (change->kind == CHANGE_SWAP)
        decide_swap(change, &what, &entry);
    else
        status = decide_co(change, &what, &entry);
    if (status != PANDO_OK || what == ENGINE_KEEP)
        return blink_unlock_with_co(&self->blink, &change->lock, status);
    if (what == ENGINE_REMOVE)
        return remove_co(change);
    if (!self->table->on.twolevel)
        return store_in_whole_leaf_co(change, &entry);
    struct cells cells;
    cells_begin(&cells);
    if (cells_store(change, &cells, change->found, &change->slot, &entry))
        return cells_commit_co(change, &cells);
    return change->found == LEAF_FOUND ? update_large_co(change, &entry)
                                       : rewrite_co(change, &entry);
}

/* Whether the leaf that was read there is the key's; mostly also where its pair is. */
static enum blink_fit inspect_leaf(struct change *change, fabric_address address)
{
    const struct sherman_table *table = change->self->table;
    const uint8_t *bytes = change->scratch->node;
    struct blink_target target = {.key = change->key};

    change->looked =
        table->blink.on.fences && leaf_find_word(&table->blink.layout, address, bytes, change->key,
                                                 &change->header, &change->slot);
    if (change->looked) {
        change->found = LEAF_FOUND;
        return FIT;
    }
    change->headless = !node_header_read(&table->blink.layout, address, bytes, &change->header);
    if (change->headless || change->header.level != 0)
        return FIT_NOT;
    return blink_fits(&change->self->blink, &target, &change->header);
}

/* The locked node is unlinked, but the sibling pointer that was just read refers to it: whoever split has
 * not come to say so (rule unlinked-sibling). Whether it is linked now. */
static bool link_co(struct change *change, fabric_address address, uint64_t pointer_ns)
{
    struct sherman *self = change->self;
    return pool_recent(pointer_ns) &&
           node_unlinked(&self->table->blink.layout, address, change->scratch->node,
                         &change->header) &&
           blink_link_co(&self->blink, address, change->scratch->node) == PANDO_OK;
}

/* Locks the leaf that covers the key, moving right where it has to. Restarts where it is misled. */
static USUAL struct step lock_leaf_co(struct change *change, fabric_address address)
{
    struct sherman *self = change->self;
    const struct sherman_switches *on = &self->table->on;
    struct blink_lock_options options = {
        .alone = on->alone,
        .work = on->adopt && (change->how & ENGINE_ANYWHERE) != 0 ? change : NULL,
    };
    uint64_t pointer_ns = 0; /* when the address was the locked left neighbour's sibling */

    for (int moves = 0; moves < BLINK_MOVES_RIGHT_MAX; moves++) {
        enum pando_status status = blink_lock_with_co(&self->blink, address, change->scratch->node,
                                                      &options, &change->lock);
        if (status != PANDO_OK || change->lock.local.done)
            return step_of(status);
        enum blink_fit fit;
        do
            fit = inspect_leaf(change, address);
        while (fit == FIT_NOT && change->headless && moves > 0 &&
               link_co(change, address, pointer_ns));
        if (fit == FIT) {
            change->lock.known = change->scratch->node;
            return step_of(PANDO_OK);
        }
        address = change->header.sibling;
        if (fit == FIT_RIGHT)
            pointer_ns = rt_coarse_ns();
        status = blink_unlock_co(&self->blink, &change->lock);
        if (status != PANDO_OK)
            return step_of(status);
        if (fit == FIT_NOT || address == 0)
            return step_to(STEP_RESTART);
        index_cache_drop(self->table->blink.cache, 1, change->key);
    }
    return step_to(STEP_RESTART);
}

/* What the change made superfluous. */
static void clean_up_co(struct change *change, struct step step)
{
    struct sherman *self = change->self;
    enum pando_status freed = PANDO_OK;

    if (step_ok(step) && change->old_blob != 0)
        freed = blob_free_co(self->base.session, self->table->blink.id, change->old_blob);
    if (!step_ok(step) && step.status != PANDO_UNKNOWN && change->new_blob != 0)
        freed = blob_free_co(self->base.session, self->table->blink.id, change->new_blob);
    (void)freed; /* what could not be reached stays until the table is dropped */
    if (step_ok(step) && change->shrunk && self->table->on.merge)
        blink_merge_co(&self->blink, 0, change->key);
}

/* Prepares another try of a change. Not OK: there is to be none, and this is how the change ends. */
static RARE enum pando_status prepare_retry_co(struct change *change, struct pool_retry *retry)
{
    struct sherman *self = change->self;
    struct blink_target target = {.key = change->key};
    struct node_header header;

    enum pando_status status = blink_restart_co(&self->blink, &target, retry);
    if (status == PANDO_OK && change->headless && retry->count > 1) /* knows damage */
        status = blink_find_co(&self->blink, &target, change->scratch->node, &header);
    return status;
}

/* Changes the leaf of a key. The caller has filled in `how` and what belongs to that kind. */
static enum pando_status change_co(struct change *change, struct sherman *self,
                                   enum change_kind kind, struct slice key)
{
    struct pool_retry retry = {0};
    enum pando_status status;

    rt_charge(RT_COST_OPERATION);
    rt_charge(RT_COST_WRITE); /* before the lock is held, not while others wait for it */
    change->scratch = blink_scratch_take(&self->blink);
    if (change->scratch == NULL)
        return PANDO_NO_MEMORY;
    change->self = self;
    change->key = key;
    change->kind = kind;
    change->answer = PANDO_OK;
    change->reread = false;
    do {
        fabric_address address;
        change_begin(change);
        status = blink_locate_co(&self->blink, key, 0, change->scratch->node, &address);
        struct step step = status == PANDO_OK ? lock_leaf_co(change, address) : step_of(status);
        if (step_ok(step)) {
            status = change->lock.local.done ? change->adopted : change_locked_leaf_co(change);
            step = status == PANDO_STALE ? step_to(STEP_RESTART) : step_of(status);
        }
        clean_up_co(change, step);
        status = step.status;
        if (step.next == STEP_DONE)
            break;
        status = prepare_retry_co(change, &retry);
    } while (status == PANDO_OK);
    blink_scratch_give(&self->blink, change->scratch);
    return status == PANDO_OK ? change->answer : status;
}

enum pando_status sherman_modify_co(struct engine *engine, struct slice key, unsigned how,
                                    engine_modify_fn fn, void *context)
{
    struct change change;
    change.how = how;
    change.fn = fn;
    change.context = context;
    return change_co(&change, sherman_of(engine), CHANGE_MODIFY, key);
}

enum pando_status sherman_swap_co(struct engine *engine, struct slice key,
                                  const struct engine_swap *swap)
{
    struct change change;
    change.how = 0;
    change.swap = swap;
    return change_co(&change, sherman_of(engine), CHANGE_SWAP, key);
}

enum pando_status sherman_repair_leaf_co(struct sherman *self, struct slice key)
{
    struct change change;
    change.how = 0;
    return change_co(&change, self, CHANGE_REPAIR, key);
}

enum pando_status sherman_retry_torn_co(struct sherman *self, struct slice key, unsigned *looks)
{
    enum { LOOKS_MAX = 64, DOUBLINGS = 6 };
    unsigned look = (*looks)++;

    blink_count(&self->table->blink.rereads);
    if (look == LOOKS_MAX)
        return PANDO_TIMEOUT;
    if (look == LOOKS_MAX / 2)
        return sherman_repair_leaf_co(self, key);
    if (look > 0) /* its writer may be another process */
        rt_sleep_co(RT_NS_PER_US << (look < DOUBLINGS ? look : DOUBLINGS));
    return PANDO_OK;
}
