/*
 * table.c - creating, opening, attaching; switches and statistics.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "engine/entry.h"
#include "tree/node/node_fmt.h"
#include "tree/sherman/sherman_int.h"

static const uint64_t CACHE_BYTES = (uint64_t)256 << 20;

/* ---- switches -------------------------------------------------------------------------------- */

static const struct engine_switch switches[] = {
    {"combine", offsetof(struct sherman_switches, combine)},
    {"onchip", offsetof(struct sherman_switches, onchip)},
    {"hierarchical", offsetof(struct sherman_switches, hierarchical)},
    {"queue", offsetof(struct sherman_switches, queue)},
    {"handover", offsetof(struct sherman_switches, handover)},
    {"twolevel", offsetof(struct sherman_switches, twolevel)},
    {"cache", offsetof(struct sherman_switches, cache)},
    {"lockread", offsetof(struct sherman_switches, lockread)},
    {"backoff", offsetof(struct sherman_switches, backoff)},
    {"reuse", offsetof(struct sherman_switches, reuse)},
    {"adopt", offsetof(struct sherman_switches, adopt)},
    {"merge", offsetof(struct sherman_switches, merge)},
    {"+alone", offsetof(struct sherman_switches, alone)},
    {"break-cells", offsetof(struct sherman_switches, cells)},
    {"break-fences", offsetof(struct sherman_switches, fences)},
    {"break-intents", offsetof(struct sherman_switches, intents)},
    {"break-locks", offsetof(struct sherman_switches, locks)},
    {"break-release", offsetof(struct sherman_switches, release)},
    {"break-handover", offsetof(struct sherman_switches, completed)},
    {"break-versions", offsetof(struct sherman_switches, versions)},
    {"break-sibling", offsetof(struct sherman_switches, sibling)},
    {"break-tiling", offsetof(struct sherman_switches, tiling)},
    {"break-merge-lock", offsetof(struct sherman_switches, merge_lock)},
    {"break-separator", offsetof(struct sherman_switches, separator)},
    {"break-dead", offsetof(struct sherman_switches, dead)},
    {"break-repair", offsetof(struct sherman_switches, proof)},
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
    status = pool_submit_co(session, fabric_address_node(block.address), &write, 1);
    if (status == PANDO_OK)
        status = pool_root_swap_co(session, entry.slot, 0, block.address, &found);
    free(bytes);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void table_free(struct sherman_table *table)
{
    if (table->cache != NULL)
        index_cache_destroy(table->cache);
    if (table->locks != NULL)
        local_locks_destroy(table->locks);
    unmerged_destroy(table->unmerged);
    free(table);
}

static enum pando_status table_fill(struct sherman_table *table, struct pool_session *session,
                                    const char *name, const struct engine_config *config,
                                    char *error, size_t error_bytes)
{
    struct engine_entry entry;
    struct engine_shape *shape = &table->base.shape;
    enum pando_status status =
        engine_switches_parse(&sherman_engine, &table->on, config->without, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    if (table->on.alone && !table->on.hierarchical) {
        snprintf(error, error_bytes, "+alone needs hierarchical: it has local locks only");
        return PANDO_INVALID;
    }
    if (table->on.alone)
        table->on.merge = false; /* a neighbour may be another's */
    if (!table->on.release)
        table->on.combine = false; /* broken on purpose where lists are not combined */
    status = engine_entry_open_co(session, name, &sherman_engine, NODE_FORMAT_VERSION, &entry,
                                  error, error_bytes);
    if (status != PANDO_OK)
        return status;
    table->slot = entry.slot;
    table->id = entry.table;
    *shape = entry.shape;
    uint64_t root;
    status = pool_root_await_co(session, table->slot, &root);
    if (status != PANDO_OK && status != PANDO_TIMEOUT) { /* one without can be dropped */
        snprintf(error, error_bytes, "table '%s': %s", name, pando_status_text(status));
        return status;
    }
    if (engine_shape_check(shape) != PANDO_OK ||
        layout_of(table->pool, shape, table->id, &table->layout) != PANDO_OK) {
        snprintf(error, error_bytes, "table '%s': damaged directory entry", name);
        return PANDO_CORRUPT;
    }
    table->layout.unchecked = !table->on.cells;
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
    table->pool = pool_session_pool(session);
    list_init(&table->handles);
    enum pando_status status = table_fill(table, session, name, config, error, error_bytes);
    if (status == PANDO_OK) {
        struct local_lock_options locks = {.no_queue = !table->on.queue,
                                           .no_handover = !table->on.handover};
        uint64_t budget = config->cache_bytes == 0 ? CACHE_BYTES : config->cache_bytes;
        table->cache = index_cache_create(&table->layout, budget, rt_random());
        table->locks = local_locks_create(table->pool, locks);
        table->unmerged = unmerged_create(table->base.shape.key_max);
        if (table->cache == NULL || table->locks == NULL || table->unmerged == NULL)
            status = PANDO_NO_MEMORY;
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

static void scratch_free(struct scratch *scratch)
{
    free(scratch->entries);
    free(scratch->separators);
    free(scratch->node);
    free(scratch->image);
    free(scratch->sibling);
    free(scratch->other);
    free(scratch->intent);
    free(scratch);
}

static struct scratch *scratch_create(uint32_t node_bytes)
{
    struct scratch *scratch = calloc(1, sizeof(*scratch));
    if (scratch == NULL)
        return NULL;
    scratch->entries = malloc((NODE_ENTRIES_MAX + 1) * sizeof(*scratch->entries));
    scratch->separators = malloc((NODE_ENTRIES_MAX + 1) * sizeof(*scratch->separators));
    scratch->node = aligned_alloc(64, node_bytes);
    scratch->image = aligned_alloc(64, node_bytes);
    scratch->sibling = aligned_alloc(64, node_bytes);
    scratch->other = aligned_alloc(64, node_bytes);
    scratch->intent = aligned_alloc(64, POOL_INTENT_BYTES);
    if (scratch->entries != NULL && scratch->separators != NULL && scratch->node != NULL &&
        scratch->image != NULL && scratch->sibling != NULL && scratch->other != NULL &&
        scratch->intent != NULL)
        return scratch;
    scratch_free(scratch);
    return NULL;
}

/* As many as tasks have been at work at once; none is allocated after that. NULL: no memory. */
struct scratch *scratch_take(struct sherman *self)
{
    struct scratch *scratch = self->free_scratch;
    if (scratch == NULL)
        return scratch_create(self->table->layout.node_bytes);
    self->free_scratch = scratch->next;
    return scratch;
}

void scratch_give(struct sherman *self, struct scratch *scratch)
{
    free(scratch->value);
    scratch->value = NULL;
    scratch->next = self->free_scratch;
    self->free_scratch = scratch;
}

static enum pando_status attach_co(struct engine_table *table, struct pool_session *session,
                                   struct engine **out)
{
    struct sherman *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return PANDO_NO_MEMORY;
    self->base.ops = &sherman_engine;
    self->base.table = table;
    self->base.session = session;
    self->table = container_of(table, struct sherman_table, base);
    rt_latch_lock(&self->table->handles_latch);
    list_push_back(&self->table->handles, &self->link);
    rt_latch_unlock(&self->table->handles_latch);
    *out = &self->base;
    return PANDO_OK;
}

static void detach_co(struct engine *engine)
{
    struct sherman *self = sherman_of(engine);
    struct sherman_table *table = self->table;
    rt_latch_lock(&table->handles_latch);
    list_remove(&self->link);
    table->gone_hits += atomic_load(&self->hits);
    table->gone_misses += atomic_load(&self->misses);
    rt_latch_unlock(&table->handles_latch);
    while (self->free_scratch != NULL) {
        struct scratch *scratch = self->free_scratch;
        self->free_scratch = scratch->next;
        scratch_free(scratch);
    }
    free(self);
}

static void lookups(struct sherman_table *table, uint64_t *hits, uint64_t *misses)
{
    rt_latch_lock(&table->handles_latch);
    *hits = table->gone_hits;
    *misses = table->gone_misses;
    list_for_each (link, &table->handles) {
        const struct sherman *handle = container_of(link, struct sherman, link);
        *hits += atomic_load_explicit(&handle->hits, memory_order_relaxed);
        *misses += atomic_load_explicit(&handle->misses, memory_order_relaxed);
    }
    rt_latch_unlock(&table->handles_latch);
}

static void stats(const struct engine_table *base, struct engine_stats *out)
{
    struct sherman_table *table =
        container_of((struct engine_table *)base, struct sherman_table, base);
    struct index_cache_stats cache;
    struct local_lock_stats locks;
    uint64_t hits, misses;

    lookups(table, &hits, &misses);
    index_cache_stats(table->cache, &cache);
    local_locks_stats(table->locks, &locks);
    *out = (struct engine_stats){
        .cache_hits = hits,
        .cache_misses = misses,
        .cache_bytes = cache.bytes,
        .cache_entries = cache.nodes,
        .rereads = atomic_load(&table->rereads),
        .splits = atomic_load(&table->splits),
        .merges = atomic_load(&table->merges),
        .repairs = atomic_load(&table->repairs),
        .damage = atomic_load(&table->damage),
        .lock_waits = locks.waits,
        .handovers = locks.handovers,
    };
}

const struct engine_ops sherman_engine = {
    .name = "sherman",
    .switches = switches,
    .switch_count = SWITCHES,
    .create_co = create_co,
    .open_co = open_co,
    .close_co = close_co,
    .drop_co = sherman_drop_co,
    .attach_co = attach_co,
    .detach_co = detach_co,
    .get_co = sherman_get_co,
    .modify_co = sherman_modify_co,
    .scan_co = sherman_scan_co,
    .bulk_load_co = sherman_bulk_load_co,
    .stats = stats,
    .verify_co = sherman_verify_co,
    .keep_co = sherman_keep_co,
};
