/*
 * verify.c - walking the whole tree: for checking its structure, and for freeing it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tree/sherman/sherman_int.h"

struct walk {
    struct sherman *self;
    struct engine_census *census;
    char *error;
    size_t error_bytes;
    bool freeing;
};

static enum pando_status wrong(struct walk *walk, fabric_address address, const char *what)
{
    snprintf(walk->error, walk->error_bytes, "node %llx: %s", (unsigned long long)address, what);
    return PANDO_CORRUPT;
}

static enum pando_status free_node_co(struct walk *walk, const struct node_header *header)
{
    struct sherman *self = walk->self;
    struct pool_block block = {.address = header->address, .version = header->version + 1};
    return pool_free_co(self->base.session, &block, self->table->layout.node_bytes, false);
}

/* The pairs of a leaf. One whose last writer died may have a cell that is invalid: for checking that
 * is an error, for freeing it is mended in our copy, so that its blobs are found. */
static bool entries_of(struct walk *walk, struct scratch *scratch, const struct node_header *header,
                       uint32_t *count)
{
    const struct node_layout *layout = &walk->self->table->layout;
    if (leaf_entries(layout, header, scratch->node, scratch->entries, count))
        return true;
    if (!walk->freeing)
        return false;
    (void)leaf_repair(layout, header, scratch->node);
    return leaf_entries(layout, header, scratch->node, scratch->entries, count);
}

static enum pando_status visit_leaf_co(struct walk *walk, struct scratch *scratch,
                                       const struct node_header *header)
{
    uint32_t count;
    if (!entries_of(walk, scratch, header, &count))
        return wrong(walk, header->address, "a leaf with an invalid cell");
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && slice_compare(scratch->entries[i - 1].key, scratch->entries[i].key) >= 0)
            return wrong(walk, header->address, "a key twice in a leaf");
        if ((scratch->entries[i].flags & NODE_FLAG_BLOB) == 0)
            continue;
        fabric_address blob;
        size_t size = 0;
        memcpy(&blob, scratch->entries[i].value.data, sizeof(blob));
        enum pando_status status = walk->freeing
                                       ? sherman_blob_free_co(walk->self, blob)
                                       : sherman_blob_read_co(walk->self, blob, NULL, 0, &size);
        if (status == PANDO_STALE && walk->freeing)
            continue; /* freed by an earlier try */
        if (status == PANDO_STALE)
            status = wrong(walk, header->address, "a blob that is not there");
        if (status != PANDO_OK)
            return status;
        walk->census->bytes += sherman_blob_bytes(size);
    }
    walk->census->pairs += count;
    walk->census->leaves++;
    return PANDO_OK;
}

static enum pando_status visit_co(struct walk *walk, fabric_address address, int level,
                                  struct slice low, struct slice high, bool no_high);

static enum pando_status visit_children_co(struct walk *walk, struct scratch *scratch,
                                           const struct node_header *header)
{
    const struct node_layout *layout = &walk->self->table->layout;
    fabric_address leftmost;
    uint32_t count;
    enum pando_status status = PANDO_OK;

    inner_entries(layout, scratch->node, &leftmost, scratch->separators, &count);
    for (uint32_t i = 0; i <= count && status == PANDO_OK; i++) {
        const struct inner_entry *separators = scratch->separators;
        struct slice low = i == 0 ? header->low : separators[i - 1].key;
        bool last = i == count;
        status = visit_co(walk, i == 0 ? leftmost : separators[i - 1].child, header->level - 1, low,
                          last ? header->high : separators[i].key, last && header->no_high);
    }
    return status;
}

/* A node that must cover [low, high). Its right half may still be known to its sibling pointer
 * alone. */
static enum pando_status visit_co(struct walk *walk, fabric_address address, int level,
                                  struct slice low, struct slice high, bool no_high)
{
    struct sherman *self = walk->self;
    struct scratch *scratch = scratch_take(self);
    uint8_t next_low[ENGINE_KEY_MAX];
    struct node_header header;

    enum pando_status status = sherman_read_co(self, address, scratch->node, &header);
    if (walk->freeing && (status == PANDO_STALE || (status == PANDO_OK && header.dead))) {
        /* Freed by an earlier try, after all that hung on it; or by whoever merged it. */
        scratch_give(self, scratch);
        return PANDO_OK;
    }
    if (status == PANDO_STALE)
        status = wrong(walk, address, "no valid node here");
    if (status == PANDO_OK && (header.dead || (level >= 0 && header.level != level)))
        status = wrong(walk, address, "a dead node, or one of another level, is linked");
    if (status == PANDO_OK && !slice_equal(header.low, low))
        status = wrong(walk, address, "its low fence is not its separator");
    if (status == PANDO_OK) {
        walk->census->nodes++;
        walk->census->bytes += self->table->layout.node_bytes;
        status = header.level == 0 ? visit_leaf_co(walk, scratch, &header)
                                   : visit_children_co(walk, scratch, &header);
    }
    if (status == PANDO_OK && header.no_high != no_high && header.no_high)
        status = wrong(walk, address, "no high fence, but not the last");
    if (status == PANDO_OK && !header.no_high && (no_high || !slice_equal(header.high, high))) {
        /* A split that its parent was never told of: the rest is to the right. */
        if (header.sibling == 0 || (!no_high && slice_compare(header.high, high) > 0)) {
            status = wrong(walk, address, "its range does not reach its neighbour's");
        } else {
            memcpy(next_low, header.high.data, header.high.size);
            status = visit_co(walk, header.sibling, header.level,
                              slice_of(next_low, header.high.size), high, no_high);
        }
    }
    if (status == PANDO_OK && walk->freeing)
        status = free_node_co(walk, &header);
    scratch_give(self, scratch);
    return status;
}

static enum pando_status walk_co(struct walk *walk)
{
    fabric_address root;
    enum pando_status status = sherman_root_co(walk->self, true, &root);
    if (status != PANDO_OK)
        return status;
    return visit_co(walk, root, -1, slice_of(NULL, 0), slice_of(NULL, 0), true);
}

enum pando_status sherman_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                    size_t error_bytes)
{
    struct walk walk = {
        .self = sherman_of(engine), .census = out, .error = error, .error_bytes = error_bytes};
    *out = (struct engine_census){0};
    return walk_co(&walk);
}

enum pando_status sherman_drop_co(struct engine_table *base, struct pool_session *session)
{
    struct engine *engine;
    struct engine_census census = {0};
    struct sherman_table *table = container_of(base, struct sherman_table, base);
    char error[128] = "";
    enum pando_status status = base->ops->attach_co(base, session, &engine);
    if (status != PANDO_OK)
        return status;
    struct walk walk = {.self = sherman_of(engine),
                        .census = &census,
                        .error = error,
                        .error_bytes = sizeof(error),
                        .freeing = true};
    status = walk_co(&walk);
    if (status == PANDO_NOT_FOUND)
        status = PANDO_OK; /* no root: whoever created it died before it had one */
    if (status == PANDO_CORRUPT)
        log_error("cannot free a table", log_u64("table", table->id), log_text("why", error));
    if (status == PANDO_OK)
        status = pool_table_remove_co(session, table->slot, table->id);
    base->ops->detach_co(engine);
    return status;
}
