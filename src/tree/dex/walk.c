/*
 * walk.c - the whole tree as it is in the pool: checking it, and freeing it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tree/dex/tree.h"

enum {
    LOOKS_MAX = 6,
    LOOKS_BELOW_MAX = 24,
    LOOKS_IN_ALL =
        96, /* below all pages together, or damage would be looked at again by all above it */
};

static const uint64_t LOOK_PAUSE_NS = 200 * RT_NS_PER_US;

/* ---- what owners have not written yet -------------------------------------------------------- */

/* Everything that was changed before goes to the pool. Tells how much the map takes; of CORRUPT, what
 * is damaged. */
static struct step flush_all_co(struct dex *self, uint64_t *bytes, char *error, size_t error_bytes)
{
    struct dex_table *table = self->table;
    uint64_t me = owners_self(&table->owners), last = 0;
    struct map *map;
    enum pando_status status = map_read_co(self->base.session, table->slot, table->id, &map);

    if (status == PANDO_CORRUPT)
        snprintf(error, error_bytes,
                 "the table's map of owners, or the directory's word for that, is damaged");
    struct step step = step_of(status);
    if (!step_ok(step))
        return step;
    *bytes = map_block_bytes(map->bytes);
    for (uint32_t i = 0; i < map->count && step_ok(step); i++) {
        uint64_t owner = map->parts[i].owner, now;
        if (owner == 0 || owner == last)
            continue;
        last = owner;
        step = owner == me ? step_of(dex_flush_co(self, NULL))
                           : owners_forward_flush_co(&self->owners, owner);
        if (step.next == STEP_RESTART) {
            /* It is gone, or no longer the owner: whoever is will be asked at the next look. */
            step = owners_claim_co(&self->owners, map->parts[i].low, &now);
            if (step.status == PANDO_CORRUPT)
                snprintf(error, error_bytes,
                         "the keys of a dead owner cannot be taken over: its redo log at 0x%" PRIx64
                         ", or a page that this names, is damaged",
                         map->parts[i].log);
            if (step_ok(step))
                step = step_to(STEP_RESTART);
        }
    }
    free(map);
    return step;
}

/* ---- checking -------------------------------------------------------------------------------- */

struct verify {
    struct dex *self;
    struct engine_census *census;
    char *error;
    size_t error_bytes;
    unsigned looks;  /* below pages, in this look at the whole */
    uint64_t marked; /* memory nodes that the pool knows the table to use: pool_uses_bit */
};

static enum pando_status complain(struct verify *verify, fabric_address address, const char *what)
{
    snprintf(verify->error, verify->error_bytes, "page 0x%llx: %s", (unsigned long long)address,
             what);
    return PANDO_CORRUPT;
}

static enum pando_status verify_blob_co(struct verify *verify, const uint8_t *page, uint32_t index,
                                        struct slice key)
{
    struct dex *self = verify->self;
    struct dex_scratch *scratch = dex_scratch_take(self);
    uint64_t pool_bytes;
    blob_ref ref;
    bool blob;

    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    (void)page_value(&self->table->layout, page, index, scratch->value,
                     self->table->layout.page_bytes, &blob);
    memcpy(&ref, scratch->value, sizeof(ref));
    dex_scratch_give(self, scratch);
    if (!blob)
        return PANDO_OK;
    enum pando_status status =
        blob_check_co(self->base.session, self->table->id, key, ref, &pool_bytes);
    if (status == PANDO_OK)
        verify->census->bytes += pool_bytes;
    return status == PANDO_STALE || status == PANDO_CORRUPT
               ? complain(verify, page_address(page),
                          "a long value is not there, or is another key's")
               : status;
}

/* Keys in order and between the fences. */
static enum pando_status verify_pairs_co(struct verify *verify, const uint8_t *page)
{
    const struct page_layout *layout = &verify->self->table->layout;
    uint8_t one[PAGE_KEY_ROOM], two[PAGE_KEY_ROOM];
    uint8_t *now = one, *former = two;
    struct slice before = {0};
    enum pando_status status = PANDO_OK;

    for (uint32_t i = 0; i < page_pairs(page) && status == PANDO_OK; i++) {
        struct slice key = page_key(layout, page, i, now);
        if ((i > 0 && slice_compare(before, key) >= 0) || page_side(page, key) != 0)
            return complain(verify, page_address(page),
                            page_side(page, key) == 0 ? "keys are not in order"
                            : page_level(page) == 0   ? "a key is beyond the ends of its leaf"
                                                      : "a child is beyond the ends of its page");
        if (page_level(page) == 0)
            status = verify_blob_co(verify, page, i, key);
        before = key;
        uint8_t *other = former;
        former = now;
        now = other;
    }
    return status;
}

/* What a page is to be. */
struct place {
    fabric_address address;
    int level; /* -1: any */
    struct slice low, high;
    bool no_high;
};

static enum pando_status verify_page_co(struct verify *verify, const struct place *place);

/* The page again, after something below it was not as it says; CORRUPT: it does not have that key any
 * more. */
static enum pando_status look_again_co(struct verify *verify, fabric_address address,
                                       struct slice key, uint8_t *page)
{
    uint8_t level = page_level(page);
    rt_sleep_co(LOOK_PAUSE_NS); /* perhaps another process is changing it */
    enum pando_status status = dex_read_co(verify->self, address, page);
    if (status == PANDO_STALE)
        return complain(verify, address, "cannot be read");
    if (status != PANDO_OK)
        return status;
    return page_dead(page) || page_level(page) != level || page_side(page, key) != 0 ? PANDO_CORRUPT
                                                                                     : PANDO_OK;
}

/* All children, from left to right by key. Others may be at work, so that a child is not what its parent
 * said a moment ago: then the parent is looked at again. */
static enum pando_status verify_children_co(struct verify *verify, uint8_t *page)
{
    const struct page_layout *layout = &verify->self->table->layout;
    fabric_address address = page_address(page);
    uint8_t *keys = malloc(4 * PAGE_KEY_ROOM);
    enum pando_status status = PANDO_OK;
    int looks = 0;

    if (keys == NULL)
        return PANDO_NO_MEMORY;
    struct slice cursor = page_low(page, keys);
    for (bool done = false; status == PANDO_OK && !done;) {
        struct engine_census before = *verify->census;
        uint32_t at = page_child_index(layout, page, cursor);
        bool last = at + 1 >= page_pairs(page);
        struct place child = {.address = page_child(layout, page, at),
                              .level = page_level(page) - 1,
                              .low = page_key(layout, page, at, keys + PAGE_KEY_ROOM)};
        if (last)
            child.no_high = !page_high(page, keys + 2 * PAGE_KEY_ROOM, &child.high);
        else
            child.high = page_key(layout, page, at + 1, keys + 2 * PAGE_KEY_ROOM);
        if (page_pairs(page) == 0)
            status = complain(verify, address, "an inner page without children");
        else if (!slice_equal(child.low, cursor))
            status = complain(verify, address, "a child does not begin where it should");
        else
            status = verify_page_co(verify, &child);
        if (status == PANDO_CORRUPT && ++looks < LOOKS_BELOW_MAX &&
            verify->looks++ < LOOKS_IN_ALL) {
            *verify->census = before;
            status = look_again_co(verify, address, cursor, page);
        } else if (status == PANDO_OK) {
            looks = 0;
            done = last;
            memcpy(keys, child.high.data, child.high.size);
            cursor = slice_of(keys, child.high.size);
        }
    }
    free(keys);
    return status;
}

/* What a page's header says against what its parent says. */
static enum pando_status verify_fences(struct verify *verify, const struct place *place,
                                       const uint8_t *page)
{
    uint8_t low[PAGE_KEY_ROOM], fence[PAGE_KEY_ROOM];
    struct slice high;
    bool no_high = !page_high(page, fence, &high);

    if (page_dead(page) || (place->level >= 0 && page_level(page) != place->level))
        return complain(verify, place->address, "of another level, or merged away");
    if (!slice_equal(page_low(page, low), place->low))
        return complain(verify, place->address, "does not begin where its parent says");
    if (no_high != place->no_high && (no_high || page_sibling(page) == 0))
        return complain(verify, place->address, "does not end where its parent says");
    /* What is to the right of any other page is found by who is led to that page: its split is
     * completed. */
    if (place->level < 0 && !no_high)
        return complain(verify, place->address, "the root ends before the last key does");
    if (!no_high && !place->no_high && slice_compare(high, place->high) > 0)
        return complain(verify, place->address, "ends beyond what its parent says");
    return PANDO_OK;
}

/* Wherever a page lies, the pool knows that the table has memory there. */
static enum pando_status verify_place_co(struct verify *verify, fabric_address address)
{
    const struct dex_table *table = verify->self->table;
    uint16_t bank = pool_bank(address);
    bool marked = false;

    if ((verify->marked & pool_uses_bit(bank)) != 0)
        return PANDO_OK;
    enum pando_status status =
        pool_table_marked_co(verify->self->base.session, table->slot, table->id, bank, &marked);
    if (status == PANDO_OK && !marked)
        return complain(verify, address, "the pool does not know the table to use its memory node");
    if (marked)
        verify->marked |= pool_uses_bit(bank);
    return status == PANDO_STALE ? PANDO_OK : status; /* it is being dropped */
}

/* A page, all below it, and those to its right up to `high`: halves whose split was not
 * completed. */
static enum pando_status verify_page_co(struct verify *verify, const struct place *place)
{
    struct dex *self = verify->self;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    uint8_t *page = scratch->page;

    enum pando_status status = dex_read_co(self, place->address, page);
    if (status == PANDO_STALE)
        status = complain(verify, place->address, "cannot be read");
    if (status == PANDO_OK)
        status = verify_fences(verify, place, page);
    if (status == PANDO_OK)
        status = verify_place_co(verify, place->address);
    if (status == PANDO_OK) {
        verify->census->nodes++;
        verify->census->bytes += self->table->layout.page_bytes;
        verify->census->leaves += page_level(page) == 0;
        verify->census->pairs += page_level(page) == 0 ? page_pairs(page) : 0;
        status = verify_pairs_co(verify, page);
    }
    if (status == PANDO_OK && page_level(page) > 0) {
        status = verify_children_co(verify, page);
        if (status == PANDO_OK)
            status = verify_fences(verify, place, page); /* it may have been read again */
    }
    struct slice high = {0};
    bool more = status == PANDO_OK && page_high(page, scratch->key, &high) &&
                (place->no_high || slice_compare(high, place->high) < 0);
    if (more) {
        struct place right = *place;
        right.address = page_sibling(page);
        right.level = page_level(page);
        right.low = high;
        status = verify_page_co(verify, &right);
    }
    dex_scratch_give(self, scratch);
    return status;
}

enum pando_status dex_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                size_t error_bytes)
{
    struct dex *self = dex_of(engine);
    struct verify verify = {
        .self = self, .census = out, .error = error, .error_bytes = error_bytes};
    struct place root = {.address = self->table->root, .level = -1, .no_high = true};
    struct step step = step_to(STEP_RESTART);

    /* Others may be at work: what is wrong at one look and not at the next was only under way. */
    for (int look = 0;
         look < LOOKS_MAX && (step.status == PANDO_CORRUPT || step.next == STEP_RESTART); look++) {
        if (look > 0)
            rt_sleep_co(LOOK_PAUSE_NS << look);
        *out = (struct engine_census){0};
        verify.looks = 0;
        /* An owner that cannot be called gives its keys away first (wishes.c). */
        struct pool_retry retry = {0};
        do
            step = flush_all_co(self, &out->bytes, error, error_bytes);
        while (step.next == STEP_RESTART && dex_retry_co(self, &retry) == PANDO_OK);
        if (step_ok(step))
            step = step_of(verify_page_co(&verify, &root));
    }
    out->damaged = step.status == PANDO_CORRUPT;
    if (step_ok(step) && error_bytes > 0)
        error[0] = '\0';
    return step.next == STEP_RESTART ? PANDO_TIMEOUT : step.status;
}

/* ---- freeing --------------------------------------------------------------------------------- */

static enum pando_status free_blobs_co(struct dex *self, const uint8_t *page,
                                       struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    enum pando_status status = PANDO_OK;
    for (uint32_t i = 0; i < page_pairs(page) && status == PANDO_OK; i++) {
        blob_ref ref;
        bool blob;
        (void)page_value(&table->layout, page, i, scratch->value, table->layout.page_bytes, &blob);
        if (!blob)
            continue;
        memcpy(&ref, scratch->value, sizeof(ref));
        status = blob_free_co(self->base.session, table->id, ref);
        if (status == PANDO_STALE)
            status = PANDO_OK; /* freed by an earlier try */
    }
    return status;
}

/* A page, all below it, and what is to its right below `high`. */
static enum pando_status free_page_co(struct dex *self, fabric_address address, int level,
                                      struct slice high, bool no_high)
{
    struct dex_table *table = self->table;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    uint8_t *keys = malloc(2 * PAGE_KEY_ROOM);
    struct slice end = {0};

    enum pando_status status =
        keys == NULL ? PANDO_NO_MEMORY : dex_read_co(self, address, scratch->page);
    const uint8_t *page = scratch->page;
    if (status == PANDO_STALE || (status == PANDO_OK && page_dead(page))) {
        /* Freed by an earlier try, after all that hung on it; or by whoever merged it. */
        status = PANDO_OK;
        goto out;
    }
    if (status == PANDO_OK && level >= 0 && page_level(page) != level)
        status = PANDO_CORRUPT;
    if (status != PANDO_OK)
        goto out;
    bool last_page = !page_high(page, keys, &end);
    if (page_level(page) == 0)
        status = free_blobs_co(self, page, scratch);
    for (uint32_t i = 0; page_level(page) > 0 && i < page_pairs(page) && status == PANDO_OK; i++) {
        bool last = i + 1 == page_pairs(page);
        struct slice next =
            last ? end : page_key(&table->layout, page, i + 1, keys + PAGE_KEY_ROOM);
        status = free_page_co(self, page_child(&table->layout, page, i), page_level(page) - 1, next,
                              last && last_page);
    }
    if (status == PANDO_OK && !last_page && page_sibling(page) != 0 &&
        (no_high || slice_compare(end, high) < 0))
        status = free_page_co(self, page_sibling(page), page_level(page), high, no_high);
    if (status == PANDO_OK && address != table->root) {
        page_set_version(scratch->page, page_version(page) + 1);
        status = dex_free_page_co(self, scratch->page);
    }
out:
    free(keys);
    dex_scratch_give(self, scratch);
    return status;
}

/* Nobody uses the table: what owners have left is taken over, so that all of it is in the tree. */
static enum pando_status take_over_all_co(struct dex *self)
{
    struct dex_table *table = self->table;
    struct pool_retry retry = {0};
    struct step step;

    do {
        struct map *map;
        step = step_of(map_read_co(self->base.session, table->slot, table->id, &map));
        if (!step_ok(step))
            return step_status(step);
        for (uint32_t i = 0; i < map->count && step_ok(step); i++) {
            uint64_t owner;
            atomic_store(&table->owners.map_stale, true);
            step = owners_claim_co(&self->owners, map->parts[i].low, &owner);
            if (step_ok(step) && owner != owners_self(&table->owners))
                step = step_to(STEP_RESTART); /* it still has the table: it will let go */
        }
        free(map);
    } while (dex_again_co(self, &retry, &step));
    return step_ok(step) ? dex_flush_co(self, NULL) : step.status;
}

/* Of a tree that is freed but for its root. Without its root or its map nobody could open the table to go on
 * with this: they go when its entry has gone, and are lost if we die in between. */
static enum pando_status remove_co(struct dex *self)
{
    struct dex_table *table = self->table;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = dex_read_co(self, table->root, scratch->page);

    /* All of it is in the tree; and of a table that is gone nobody would free it. */
    if (status == PANDO_OK && table->redo.log != NULL)
        status = dex_log_retain_co(table->redo.log, self->base.session, false);
    if (status == PANDO_OK)
        status = pool_table_remove_co(self->base.session, table->slot, table->id);
    if (status == PANDO_OK) {
        table->owners.retired = true;
        page_set_version(scratch->page, page_version(scratch->page) + 1);
        enum pando_status page_freed = dex_free_page_co(self, scratch->page);
        enum pando_status map_freed =
            map_free_co(self->base.session, atomic_load(&table->owners.map));
        (void)page_freed;
        (void)map_freed;
    }
    dex_scratch_give(self, scratch);
    return status == PANDO_STALE ? PANDO_CORRUPT : status;
}

enum pando_status dex_drop_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    struct engine *engine;
    enum pando_status status = base->ops->attach_co(base, session, &engine);
    if (status != PANDO_OK)
        return status;
    struct dex *self = dex_of(engine);
    status = take_over_all_co(self);
    if (status == PANDO_OK)
        status = free_page_co(self, table->root, -1, slice_of(NULL, 0), true);
    if (status == PANDO_OK)
        status = remove_co(self);
    if (status == PANDO_CORRUPT)
        log_error("cannot free a table that is damaged", log_u64("table", table->id));
    base->ops->detach_co(engine);
    return status;
}
