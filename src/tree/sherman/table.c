/*
 * table.c - creating, opening, attaching; switches and statistics.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/entry.h"
#include "tree/blink/node/node_fmt.h"
#include "tree/sherman/sherman_int.h"

enum { CACHE_LINE = 64 };

static const uint64_t CACHE_BYTES = (uint64_t)256 << 20;

/* ---- switches -------------------------------------------------------------------------------- */

static const struct engine_switch switches[] = {
    {.name = "combine", .offset = offsetof(struct sherman_table, blink.on.combine)},
    {.name = "onchip", .offset = offsetof(struct sherman_table, blink.on.onchip)},
    {.name = "hierarchical", .offset = offsetof(struct sherman_table, blink.on.hierarchical)},
    {.name = "queue", .offset = offsetof(struct sherman_table, blink.on.queue)},
    {.name = "handover", .offset = offsetof(struct sherman_table, blink.on.handover)},
    {.name = "twolevel", .offset = offsetof(struct sherman_table, on.twolevel)},
    {.name = "cache", .offset = offsetof(struct sherman_table, blink.on.cache)},
    {.name = "lockread", .offset = offsetof(struct sherman_table, blink.on.lockread)},
    {.name = "backoff", .offset = offsetof(struct sherman_table, blink.on.backoff)},
    {.name = "reuse", .offset = offsetof(struct sherman_table, blink.on.reuse)},
    {.name = "adopt", .offset = offsetof(struct sherman_table, on.adopt)},
    {.name = "merge", .offset = offsetof(struct sherman_table, on.merge)},
    {.name = "alone", .offset = offsetof(struct sherman_table, on.alone), .usually_off = true},
    {.name = "break-cells", .offset = offsetof(struct sherman_table, on.cells)},
    {.name = "break-fences", .offset = offsetof(struct sherman_table, blink.on.fences)},
    {.name = "break-intents", .offset = offsetof(struct sherman_table, blink.on.intents)},
    {.name = "break-locks", .offset = offsetof(struct sherman_table, blink.on.locks)},
    {.name = "break-release", .offset = offsetof(struct sherman_table, blink.on.release)},
    {.name = "break-handover", .offset = offsetof(struct sherman_table, blink.on.completed)},
    {.name = "break-versions", .offset = offsetof(struct sherman_table, on.versions)},
    {.name = "break-sibling", .offset = offsetof(struct sherman_table, blink.on.sibling)},
    {.name = "break-tiling", .offset = offsetof(struct sherman_table, on.tiling)},
    {.name = "break-merge-lock", .offset = offsetof(struct sherman_table, blink.on.merge_lock)},
    {.name = "break-separator", .offset = offsetof(struct sherman_table, blink.on.separator)},
    {.name = "break-dead", .offset = offsetof(struct sherman_table, blink.on.dead)},
    {.name = "break-repair", .offset = offsetof(struct sherman_table, on.proof)},
    {.name = "break-guards", .offset = offsetof(struct sherman_table, blink.on.guards)},
};
enum { SWITCHES = sizeof(switches) / sizeof(switches[0]) };

/* ---- creating -------------------------------------------------------------------------------- */

static enum pando_status layout_of(const struct pool *pool, const struct engine_shape *shape,
                                   uint16_t table, struct node_layout *layout)
{
    *layout = (struct node_layout){
        .pool = pool_id(pool),
        .table = table,
        .node_bytes = shape->node_bytes,
        .key_size = shape->key_size,
        /* A blob's reference is one word: a fixed slot that can hold one needs no more. */
        .value_size = shape->value_size > shape->value_inline ? 8 : shape->value_size,
    };
    return node_layout_init(layout, shape->key_max, shape->value_inline);
}

static enum pando_status create_co(struct pool_session *session, const char *name,
                                   const struct engine_shape *shape)
{
    struct pool *pool = pool_session_pool(session);
    struct node_layout layout;
    struct pool_block block;
    struct engine_entry entry;
    enum pando_status status = layout_of(pool, shape, 0, &layout);
    if (status != PANDO_OK)
        return status;
    /* The name first, with no root yet: the table's number is in every cell. */
    status =
        engine_entry_create_co(session, name, &sherman_engine, NODE_FORMAT_VERSION, shape, &entry);
    if (status != PANDO_OK)
        return status;
    status = pool_table_alloc_co(session, entry.table, POOL_ANY_NODE, shape->node_bytes, &block);
    uint8_t *bytes = status == PANDO_OK ? malloc(shape->node_bytes) : NULL;
    if (bytes == NULL) {
        enum pando_status dropped = pool_table_undo_co(session, entry.slot, entry.table);
        (void)dropped;
        return status == PANDO_OK ? PANDO_NO_MEMORY : status;
    }
    layout.table = entry.table;
    struct pool_tenure tenure = {
        .state = POOL_BLOCK_LIVE, .table = layout.table, .holder = pool_identity(pool)};
    struct node_header header = {.address = block.address,
                                 .version = block.version + 1,
                                 .tenure = pool_tenure_pack(tenure),
                                 .no_high = true};
    uint64_t found;
    leaf_build(&layout, &header, NULL, 0, bytes);
    struct fabric_op write =
        fabric_write(fabric_address_offset(block.address), bytes, layout.node_bytes);
    status = pool_write_unseen_co(session, block.address, &write, 1);
    if (status == PANDO_OK)
        status = pool_root_swap_co(session, entry.slot, 0, block.address, &found);
    free(bytes);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void table_free(struct sherman_table *table)
{
    blink_tree_fini(&table->blink);
    free(table);
}

static enum pando_status table_fill(struct sherman_table *table, struct pool_session *session,
                                    const char *name, const struct engine_config *config,
                                    char *error, size_t error_bytes)
{
    struct engine_entry entry;
    struct engine_shape *shape = &table->base.shape;
    enum pando_status status =
        engine_switches_parse(&sherman_engine, table, config, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    if (table->on.alone && !table->blink.on.hierarchical) {
        snprintf(error, error_bytes, "alone needs hierarchical: it has local locks only");
        return PANDO_INVALID;
    }
    if (table->on.alone)
        table->on.merge = false; /* a neighbour may be another's */
    if (!table->blink.on.release)
        table->blink.on.combine = false; /* broken on purpose where lists are not combined */
    status = engine_entry_open_co(session, name, &sherman_engine, NODE_FORMAT_VERSION, &entry,
                                  error, error_bytes);
    if (status != PANDO_OK)
        return status;
    table->blink.slot = entry.slot;
    table->blink.id = entry.table;
    *shape = entry.shape;
    uint64_t root;
    status = pool_root_await_co(session, table->blink.slot, &root);
    if (status != PANDO_OK && status != PANDO_TIMEOUT) { /* one without can be dropped */
        if (status == PANDO_CORRUPT)
            snprintf(error, error_bytes, "table '%s' is damaged: %s", name, blink_bad_root);
        else
            snprintf(error, error_bytes, "table '%s': %s", name, pando_status_text(status));
        return status;
    }
    if (engine_shape_check(shape) != PANDO_OK ||
        layout_of(table->blink.pool, shape, table->blink.id, &table->blink.layout) != PANDO_OK) {
        snprintf(error, error_bytes, "table '%s': damaged directory entry", name);
        return PANDO_CORRUPT;
    }
    table->blink.layout.unchecked = !table->on.cells;
    return PANDO_OK;
}

static enum pando_status open_co(struct pool_session *session, const char *name,
                                 const struct engine_config *config, struct engine_table **out,
                                 char *error, size_t error_bytes)
{
    struct sherman_table *table = calloc(1, sizeof(*table));
    if (table == NULL)
        return PANDO_NO_MEMORY;
    table->base.ops = &sherman_engine;
    table->blink.pool = pool_session_pool(session);
    table->blink.leaves = &sherman_leaves;
    enum pando_status status = table_fill(table, session, name, config, error, error_bytes);
    if (status == PANDO_OK) {
        uint64_t budget = config->cache_bytes == 0 ? CACHE_BYTES : config->cache_bytes;
        status = blink_tree_init(&table->blink, budget, table->base.shape.key_max);
    }
    if (status != PANDO_OK) {
        table_free(table);
        return status;
    }
    *out = &table->base;
    return PANDO_OK;
}

static void close_co(struct engine_table *base, struct pool_session *session)
{
    (void)session;
    table_free(container_of(base, struct sherman_table, base));
}

/* ---- handles --------------------------------------------------------------------------------- */

static enum pando_status attach_co(struct engine_table *table, struct pool_session *session,
                                   struct engine **out)
{
    /* Whole cache lines: it is written to with every operation of its thread. */
    size_t bytes = (sizeof(struct sherman) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    struct sherman *self = aligned_alloc(CACHE_LINE, bytes);
    if (self == NULL)
        return PANDO_NO_MEMORY;
    memset(self, 0, bytes);
    self->base.ops = &sherman_engine;
    self->base.table = table;
    self->base.session = session;
    self->table = container_of(table, struct sherman_table, base);
    blink_attach(&self->blink, &self->table->blink, session);
    *out = &self->base;
    return PANDO_OK;
}

static void detach_co(struct engine *engine)
{
    struct sherman *self = sherman_of(engine);
    blink_detach(&self->blink);
    free(self);
}

static void stats(const struct engine_table *base, struct engine_stats *out)
{
    struct sherman_table *table =
        container_of((struct engine_table *)base, struct sherman_table, base);
    struct index_cache_stats cache;
    struct local_lock_stats locks;
    uint64_t hits, misses;

    blink_lookups(&table->blink, &hits, &misses);
    index_cache_stats(table->blink.cache, &cache);
    local_locks_stats(table->blink.locks, &locks);
    *out = (struct engine_stats){
        .cache_hits = hits,
        .cache_misses = misses,
        .cache_bytes = cache.bytes,
        .cache_entries = cache.nodes,
        .rereads = atomic_load(&table->blink.rereads),
        .splits = atomic_load(&table->blink.splits),
        .merges = atomic_load(&table->blink.merges),
        .repairs = atomic_load(&table->repairs),
        .damage = atomic_load(&table->blink.damage),
        .lock_waits = locks.waits,
        .handovers = locks.handovers,
    };
}

static enum pando_status stage_open_co(struct engine *engine, struct slice key, uint64_t size,
                                       struct engine_stage **out)
{
    const struct sherman *self = sherman_of(engine);
    return blob_stage_open_co(engine->session, self->table->blink.id, key, size, out);
}

static enum pando_status leaf_repair_co(struct blink *self, struct slice key)
{
    return sherman_repair_leaf_co(container_of(self, struct sherman, blink), key);
}

const struct blink_leaves sherman_leaves = {
    .small_co = sherman_leaf_small_co,
    .join = sherman_leaf_join,
    .check_co = sherman_leaf_check_co,
    .repair_co = leaf_repair_co,
    .free_values_co = sherman_leaf_free_values_co,
};

/* The tenure of its nodes has no kind. */
static const struct engine_block_kind kinds[] = {{.kind = 0, .level_at = NODE_LEVEL}};

const struct engine_ops sherman_engine = {
    .name = "sherman",
    .kinds = kinds,
    .kind_count = sizeof(kinds) / sizeof(kinds[0]),
    .switches = switches,
    .switch_count = SWITCHES,
    .create_co = create_co,
    .open_co = open_co,
    .close_co = close_co,
    .drop_co = sherman_drop_co,
    .attach_co = attach_co,
    .detach_co = detach_co,
    .get_co = engine_get_as_part_co,
    .modify_co = sherman_modify_co,
    .part_co = sherman_part_co,
    .stage_open_co = stage_open_co,
    .stage_add_co = blob_stage_add_co,
    .stage_seal_co = blob_stage_seal_co,
    .stage_close_co = blob_stage_close_co,
    .swap_co = sherman_swap_co,
    .scan_co = sherman_scan_co,
    .bulk_load_co = sherman_bulk_load_co,
    .stats = stats,
    .verify_co = sherman_verify_co,
    .maintain_co = sherman_maintain_co,
};
