/*
 * table.c - creating, opening, attaching; the switches; statistics.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/entry.h"
#include "owners/map_fmt.h"
#include "tree/dex/ownership.h"
#include "tree/dex/tree.h"

enum {
    CACHE_BYTES = 256 * 1024 * 1024,
    FRAMES_MIN = 24,   /* tasks that are at work hold a few each */
    COOLING_PART = 10, /* of the frames */
    RECORDS_PART = 4,  /* of the cache are records, besides the frames that are lent to them */
    PAGES_PART = 16,   /* of the frames have pages, whatever happens, */
    PAGES_LEAST = 256, /* and not fewer */
};

/* ---- switches -------------------------------------------------------------------------------- */

static const struct engine_switch switches[] = {
    {.name = "partition", .offset = offsetof(struct dex_switches, partition)},
    {.name = "cache", .offset = offsetof(struct dex_switches, cache)},
    {.name = "cooling-map", .offset = offsetof(struct dex_switches, cooling_map)},
    {.name = "path-aware", .offset = offsetof(struct dex_switches, path_aware)},
    {.name = "admission", .offset = offsetof(struct dex_switches, admission)},
    {.name = "records", .offset = offsetof(struct dex_switches, records)},
    {.name = "offload", .offset = offsetof(struct dex_switches, offload)},
    {.name = "prefetch", .offset = offsetof(struct dex_switches, prefetch)},
    {.name = "log", .offset = offsetof(struct dex_switches, log)},
    {.name = "merge", .offset = offsetof(struct dex_switches, merge)},
    {.name = "balance", .offset = offsetof(struct dex_switches, balance)},
    {.name = "offload-leaves",
     .offset = offsetof(struct dex_switches, offload_leaves),
     .usually_off = true},
    {.name = "offload-only",
     .offset = offsetof(struct dex_switches, offload_only),
     .usually_off = true},
    {.name = "lend-wildly",
     .offset = offsetof(struct dex_switches, lend_wildly),
     .usually_off = true},
    {.name = "small-log", .offset = offsetof(struct dex_switches, small_log), .usually_off = true},
    {.name = "join-eagerly",
     .offset = offsetof(struct dex_switches, join_eagerly),
     .usually_off = true},
    {.name = "break-cells", .offset = offsetof(struct dex_switches, cells)},
    {.name = "break-replay", .offset = offsetof(struct dex_switches, replay)},
    {.name = "break-invalidate", .offset = offsetof(struct dex_switches, invalidate)},
    {.name = "break-forget", .offset = offsetof(struct dex_switches, forget)},
    {.name = "break-barrier", .offset = offsetof(struct dex_switches, barrier)},
    {.name = "break-durable", .offset = offsetof(struct dex_switches, durable)},
    {.name = "break-stamps", .offset = offsetof(struct dex_switches, stamps)},
    {.name = "break-through", .offset = offsetof(struct dex_switches, through)},
    {.name = "break-partitions", .offset = offsetof(struct dex_switches, partitions)},
    {.name = "break-write-back", .offset = offsetof(struct dex_switches, write_back)},
    {.name = "break-truncate", .offset = offsetof(struct dex_switches, truncate)},
    {.name = "break-serve-lease", .offset = offsetof(struct dex_switches, lease)},
};
enum { SWITCHES = sizeof(switches) / sizeof(switches[0]) };

/* ---- creating -------------------------------------------------------------------------------- */

/* Every value in a leaf has to fit into a record of the log, and a page has room for four pairs: longer
 * ones are blobs, whatever the shape says. */
static uint32_t inline_max(const struct engine_shape *shape)
{
    uint32_t most = page_value_most(shape->node_bytes, shape->key_max);
    most = most < DEX_LOG_VALUE_MAX ? most : DEX_LOG_VALUE_MAX;
    return shape->value_inline < most ? shape->value_inline : most;
}

static enum pando_status layout_of(const struct pool *pool, const struct engine_shape *shape,
                                   uint16_t table, struct page_layout *layout)
{
    *layout = (struct page_layout){
        .pool = pool_id(pool),
        .table = table,
        .page_bytes = shape->node_bytes,
        .key_size = shape->key_size,
        .value_size = shape->value_size <= inline_max(shape) ? shape->value_size : 0,
        .key_max = shape->key_max,
        .value_max = inline_max(shape),
    };
    return page_layout_check(layout);
}

static uint64_t live_tenure(const struct pool *pool, uint16_t table)
{
    return pool_tenure_pack((struct pool_tenure){.state = POOL_BLOCK_LIVE,
                                                 .kind = PAGE_KIND,
                                                 .table = table,
                                                 .holder = pool_identity(pool)});
}

/* An empty leaf as the root, and a map that gives all keys to nobody. */
static enum pando_status create_tree_co(struct pool_session *session, unsigned slot,
                                        const struct page_layout *layout)
{
    struct pool_block block;
    uint8_t *bytes = aligned_alloc(64, layout->page_bytes);
    struct map *map = map_create();
    enum pando_status status = bytes == NULL || map == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    if (status == PANDO_OK)
        status =
            pool_table_alloc_co(session, layout->table, POOL_ANY_NODE, layout->page_bytes, &block);
    if (status == PANDO_OK) {
        struct page_header header = {.address = block.address,
                                     .version = block.version + 1,
                                     .tenure =
                                         live_tenure(pool_session_pool(session), layout->table),
                                     .no_high = true};
        page_init(layout, &header, bytes);
        page_seal(layout, bytes);
        struct fabric_op write =
            fabric_write(fabric_address_offset(block.address), bytes, layout->page_bytes);
        status = pool_write_unseen_co(session, block.address, &write, 1);
    }
    if (status == PANDO_OK) {
        map->root = block.address;
        status = map_swap_co(session, slot, layout->table, NULL, map);
    }
    /* Somebody thought that we had died: it has a tree. */
    if (status == PANDO_STALE) {
        block.version++;
        status = pool_free_co(session, &block, layout->page_bytes, false);
    }
    free(map);
    free(bytes);
    return status;
}

static enum pando_status create_co(struct pool_session *session, const char *name,
                                   const struct engine_shape *shape)
{
    struct page_layout layout;
    struct engine_entry entry;
    enum pando_status status = layout_of(pool_session_pool(session), shape, 0, &layout);
    if (status != PANDO_OK)
        return status;
    /* The name first, with no root yet: the table's number is in every cell. */
    status = engine_entry_create_co(session, name, &dex_engine, PAGE_FORMAT_VERSION, shape, &entry);
    if (status != PANDO_OK)
        return status;
    layout.table = entry.table;
    status = create_tree_co(session, entry.slot, &layout);
    if (status != PANDO_OK) {
        /* Whoever wanted to open it may have made the tree; or we did, and were not told. */
        enum pando_status undone = pool_table_undo_co(session, entry.slot, entry.table);
        if (undone == PANDO_EXISTS)
            status = PANDO_OK;
    }
    return status;
}

/* ---- handles --------------------------------------------------------------------------------- */

static void scratch_free(struct dex_scratch *scratch)
{
    free(scratch->page);
    free(scratch->image);
    free(scratch->sibling);
    free(scratch->other);
    free(scratch->value);
    free(scratch->blob);
    free(scratch->message);
    free(scratch);
}

static struct dex_scratch *scratch_create(uint32_t page_bytes)
{
    struct dex_scratch *scratch = calloc(1, sizeof(*scratch));
    if (scratch == NULL)
        return NULL;
    scratch->page = aligned_alloc(64, page_bytes);
    scratch->image = aligned_alloc(64, page_bytes);
    scratch->sibling = aligned_alloc(64, page_bytes);
    scratch->other = aligned_alloc(64, page_bytes);
    scratch->value = aligned_alloc(64, page_bytes);
    scratch->message = aligned_alloc(64, POOL_INTENT_BYTES);
    if (scratch->page != NULL && scratch->image != NULL && scratch->sibling != NULL &&
        scratch->other != NULL && scratch->value != NULL && scratch->message != NULL)
        return scratch;
    scratch_free(scratch);
    return NULL;
}

/* As many as tasks have been at work at once; none is allocated after that. NULL: no memory. */
struct dex_scratch *dex_scratch_take(struct dex *self)
{
    struct dex_scratch *scratch = self->free_scratch;
    if (scratch == NULL)
        return scratch_create(self->table->layout.page_bytes);
    self->free_scratch = scratch->next;
    return scratch;
}

void dex_scratch_give(struct dex *self, struct dex_scratch *scratch)
{
    if (scratch->blob != NULL) {
        free(scratch->blob);
        scratch->blob = NULL;
    }
    scratch->next = self->free_scratch;
    self->free_scratch = scratch;
}

enum pando_status dex_handle_create(struct dex_table *table, struct pool_session *session,
                                    struct dex **out)
{
    struct dex *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return PANDO_NO_MEMORY;
    self->reserve = scratch_create(table->layout.page_bytes);
    rt_waitq_init(&self->reserved);
    if (self->reserve == NULL) {
        free(self);
        return PANDO_NO_MEMORY;
    }
    self->base.ops = &dex_engine;
    self->base.table = &table->base;
    self->base.session = session;
    self->table = table;
    prng_seed(&self->prng, rt_random());
    owners_attach(&self->owners, &table->owners, session);
    *out = self;
    return PANDO_OK;
}

void dex_handle_destroy(struct dex *self)
{
    owners_detach(&self->owners);
    dex_frames_leave(self);
    while (self->free_scratch != NULL) {
        struct dex_scratch *scratch = self->free_scratch;
        self->free_scratch = scratch->next;
        scratch_free(scratch);
    }
    scratch_free(self->reserve);
    free(self);
}

static enum pando_status attach_co(struct engine_table *base, struct pool_session *session,
                                   struct engine **out)
{
    struct dex *self;
    enum pando_status status =
        dex_handle_create(container_of(base, struct dex_table, base), session, &self);
    if (status == PANDO_OK)
        *out = &self->base;
    return status;
}

static void detach_co(struct engine *engine)
{
    dex_handle_destroy(dex_of(engine));
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What is known of it before the table serves. */
static void prepare_owners(struct dex_table *table)
{
    struct owners *owners = &table->owners;
    owners->engine = &dex_owners_engine;
    owners->pool = table->pool;
    owners->slot = table->slot;
    owners->id = table->id;
    owners->shape = &table->base.shape;
    owners->inline_max = table->inline_max;
    owners->blobs = table->layout.value_size == 0;
    owners->balance = table->on.balance;
    owners->join_eagerly = table->on.join_eagerly;
}

static enum pando_status read_entry_co(struct dex_table *table, struct pool_session *session,
                                       const char *name, const struct engine_config *config,
                                       char *error, size_t error_bytes)
{
    struct engine_entry entry;
    struct engine_shape *shape = &table->base.shape;
    enum pando_status status =
        engine_switches_parse(&dex_engine, &table->on, config, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    status = engine_entry_open_co(session, name, &dex_engine, PAGE_FORMAT_VERSION, &entry, error,
                                  error_bytes);
    if (status != PANDO_OK)
        return status;
    table->slot = entry.slot;
    table->id = entry.table;
    *shape = entry.shape;
    if (engine_shape_check(shape) != PANDO_OK ||
        layout_of(table->pool, shape, table->id, &table->layout) != PANDO_OK) {
        snprintf(error, error_bytes, "table '%s': damaged directory entry", name);
        return PANDO_CORRUPT;
    }
    table->layout.unchecked = !table->on.cells;
    table->inline_max = inline_max(shape);
    /* Of a pool that ends with this process nobody could read a log. */
    if (pool_private(table->pool) || config->not_durable)
        table->on.log = false;
    prepare_owners(table);
    return PANDO_OK;
}

static enum pando_status cache_create(struct dex_table *table, uint64_t bytes)
{
    uint64_t most = bytes == 0 ? CACHE_BYTES : bytes;
    struct pair_cache_options options = {
        .bytes = table->on.cache && table->on.records ? most / RECORDS_PART : 0,
        .key_size = table->layout.key_size,
        .value_size = table->layout.value_size,
        .key_max = table->layout.key_max,
        .value_max = table->inline_max};
    uint64_t count = (most - options.bytes) / (table->layout.page_bytes + sizeof(struct frame));
    if (count < FRAMES_MIN)
        count = FRAMES_MIN;
    if (table->on.lend_wildly)
        count += FRAMES_MIN; /* some to lend, however small it is */
    if (count >= FRAME_NONE / 2)
        count = FRAME_NONE / 2;
    uint64_t least = table->on.lend_wildly ? FRAMES_MIN : PAGES_LEAST;
    uint64_t pages = count / PAGES_PART > least ? count / PAGES_PART : least;
    options.lent_most = (uint32_t)(count > pages ? count - pages : 0);
    enum pando_status status =
        frames_create(&table->cache.frames, (uint32_t)count, table->layout.page_bytes);
    table->cache.frames.pool = table->pool;
    if (status == PANDO_OK)
        status = pair_cache_create(&table->cache.records, &table->cache.frames, &options);
    if (status == PANDO_OK)
        status = cooling_create(&table->cache.cooling, (uint32_t)count / COOLING_PART,
                                !table->on.cooling_map);
    return status;
}

static enum pando_status make_tree_co(struct pool_session *session, void *context)
{
    const struct dex_table *table = context;
    log_info("made the tree of a table whose creator did not", log_u64("table", table->id));
    return create_tree_co(session, table->slot, &table->layout);
}

/* A table that is being created has a name before it has a tree. Whoever creates it may have died. */
static enum pando_status await_tree_co(struct dex_table *table, struct pool_session *session)
{
    uint64_t root;
    enum pando_status status = pool_root_await_co(session, table->slot, &root);
    if (status != PANDO_TIMEOUT)
        return status;
    return pool_table_locked_co(session, table->slot, table->id, make_tree_co, table);
}

/* The root has the first frame, for good. CORRUPT: `error` says what is damaged. */
static enum pando_status load_root_co(struct dex_table *table, const char *name, char *error,
                                      size_t error_bytes)
{
    struct map *map;
    struct dex *self = table->maintainer;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = await_tree_co(table, self->base.session);
    if (status == PANDO_OK)
        status = map_read_co(self->base.session, table->slot, table->id, &map);
    if (status != PANDO_OK) {
        if (status == PANDO_CORRUPT)
            snprintf(error, error_bytes, "table '%s' is damaged: its map of owners cannot be read",
                     name);
        dex_scratch_give(self, scratch);
        return status;
    }
    struct frame *frame = frame_at(&table->cache.frames, 0);
    atomic_store(&table->owners.map, map);
    table->root = frame->address = map->root;
    table->root_frame = 0;
    atomic_store(&table->cache.fresh, 1);
    frame->pinned = true;
    frame->parent = FRAME_NONE;
    frame->epoch = map->epoch;
    atomic_store(&frame->state, FRAME_HOT);
    status = dex_read_co(self, map->root, scratch->page);
    if (status == PANDO_OK)
        page_copy(frame_bytes(&table->cache.frames, 0), scratch->page, table->layout.page_bytes);
    if (status == PANDO_STALE)
        snprintf(error, error_bytes,
                 "table '%s' is damaged: its root, page 0x%" PRIx64 ", cannot be read", name,
                 map->root);
    dex_scratch_give(self, scratch);
    bool entered = frame_enter(&table->cache.frames, 0);
    pando_assert(entered);
    return status == PANDO_STALE ? PANDO_CORRUPT : status;
}

static void table_free(struct dex_table *table)
{
    if (table->maintainer != NULL)
        dex_handle_destroy(table->maintainer);
    pando_dassert(dex_frames_whole(table));
    frames_destroy(&table->cache.frames);
    cooling_destroy(&table->cache.cooling);
    pair_cache_destroy(&table->cache.records);
    dex_place_fini(table);
    owners_fini(&table->owners);
    dex_log_share_give(table);
    rt_pages_unmap_sparse(table, sizeof(*table));
}

static enum pando_status open_co(struct pool_session *session, const char *name,
                                 const struct engine_config *config, struct engine_table **out,
                                 char *error, size_t error_bytes)
{
    /* Most of it is stamps of pages, which a table that is little used has few of. */
    struct dex_table *table = rt_pages_map_sparse(sizeof(*table));
    if (table == NULL)
        return PANDO_NO_MEMORY;
    table->base.ops = &dex_engine;
    table->pool = pool_session_pool(session);
    table->cache.free_list = FRAME_NONE;
    owners_init(&table->owners);
    rt_waitq_init(&table->redo.checkpoint_end);
    rt_waitq_init(&table->cache.unused);
    enum pando_status status = read_entry_co(table, session, name, config, error, error_bytes);
    if (status == PANDO_OK)
        status = cache_create(table, config->cache_bytes);
    if (status == PANDO_OK)
        status = dex_place_init(table);
    if (status == PANDO_OK)
        status = dex_handle_create(table, session, &table->maintainer);
    if (status == PANDO_OK)
        status = load_root_co(table, name, error, error_bytes);
    bool serving = false;
    if (status == PANDO_OK) {
        status = owners_serve(&table->owners);
        serving = status == PANDO_OK;
    }
    table->owners.maintainer = table->maintainer != NULL ? &table->maintainer->owners : NULL;
    if (status == PANDO_OK && !config->kept)
        status = owners_maintenance_start(&table->owners);
    if (status != PANDO_OK) {
        if (error[0] == '\0')
            snprintf(error, error_bytes, "table '%s': %s", name, pando_status_text(status));
        if (serving)
            owners_serve_stop_co(&table->owners);
        table_free(table);
        return status;
    }
    *out = &table->base;
    return PANDO_OK;
}

/* Everything to the pool, and the keys to nobody. */
static enum pando_status give_all_co(struct dex_table *table)
{
    struct owners_range all = {.no_high = true};
    struct pool_retry retry = {0};
    struct step step;
    do
        step = owners_give_co(&table->maintainer->owners, &all, 0);
    while (dex_again_co(table->maintainer, &retry, &step));
    return step_ok(step) && pool_fenced(table->pool) ? PANDO_FENCED : step.status;
}

/* Of the background task, whose work is done by whoever calls. */
static void use_session(struct dex_table *table, struct pool_session *session)
{
    table->maintainer->base.session = session;
    table->maintainer->owners.session = session;
}

static void maintain_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    if (table->owners.retired)
        return;
    use_session(table, session);
    owners_maintain_co(&table->owners);
}

static enum pando_status release_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    if (table->owners.retired)
        return PANDO_OK;
    use_session(table, session);
    return give_all_co(table);
}

static enum pando_status log_destroy_co(struct dex_table *table, bool keep)
{
    enum pando_status status =
        table->redo.log == NULL
            ? PANDO_OK
            : dex_log_destroy_co(table->redo.log, table->maintainer->base.session, keep);
    table->redo.log = NULL;
    return status;
}

static enum pando_status retire_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    enum pando_status status = PANDO_OK;

    /* The task is done with the session that opened the table. */
    owners_maintenance_stop_co(&table->owners);
    dex_checkpoint_end_co(table);
    use_session(table, session);
    owners_serve_stop_co(&table->owners);
    if (!table->owners.retired)
        status = give_all_co(table);
    if (status == PANDO_OK) {
        table->owners.retired = true;
        status = log_destroy_co(table, pool_fenced(table->pool));
    }
    return status;
}

static void close_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    enum pando_status status = retire_co(base, session);

    if (status != PANDO_OK)
        log_warn("left the keys of a table to whoever takes over", log_u64("table", table->id),
                 log_status("status", status));
    /* Nobody takes over from a member that lives, and this one would not know of its log any more when it
     * opened the table again. A damaged map is no reason: all pages were written before it was read. */
    if (status != PANDO_OK && status != PANDO_CORRUPT && !pool_fenced(table->pool))
        pool_resign(table->pool);
    status = log_destroy_co(table, true); /* what is left of it after that is for them */
    (void)status;
    table_free(table);
}

static void stats(const struct engine_table *base, struct engine_stats *out)
{
    struct dex_table *table = container_of((struct engine_table *)base, struct dex_table, base);
    uint32_t used = atomic_load(&table->cache.fresh) - atomic_load(&table->cache.free_count);
    uint32_t lent = pair_cache_lent(&table->cache.records);
    uint64_t operations = owners_operations(&table->owners);
    uint64_t misses = atomic_load(&table->stats.misses);
    *out = (struct engine_stats){
        .cache_hits = operations > misses ? operations - misses : 0, /* what needed nothing else */
        .cache_misses = misses,
        .cache_bytes = (uint64_t)used * table->layout.page_bytes + table->cache.records.bytes,
        .cache_entries = used - lent,
        .rereads = atomic_load(&table->stats.rereads),
        .splits = atomic_load(&table->stats.splits),
        .merges = atomic_load(&table->stats.merges),
        .repairs = atomic_load(&table->stats.repairs),
        .damage = atomic_load(&table->stats.damage),
        .lock_waits = atomic_load(&table->stats.waits),
        .forwarded = atomic_load(&table->owners.forwarded),
        .moves = atomic_load(&table->owners.given) + atomic_load(&table->owners.takeovers),
        .offloaded = atomic_load(&table->stats.offloaded),
        .checkpoints = atomic_load(&table->stats.checkpoints),
        .log_waits = atomic_load(&table->stats.log_waits),
    };
}

static enum pando_status owners_co(struct pool_session *session, unsigned slot, uint64_t table,
                                   struct engine_owner *out, unsigned capacity, unsigned *count)
{
    struct map *map;
    enum pando_status status = map_read_co(session, slot, (uint16_t)table, &map);
    if (status != PANDO_OK)
        return status;
    *count = map_owners(map, out, capacity);
    free(map);
    return PANDO_OK;
}

static enum pando_status move_co(struct engine *engine, struct slice key, uint64_t choice)
{
    return owners_move_co(&dex_of(engine)->owners, key, choice);
}

static enum pando_status spread_co(struct engine *engine, bool others, unsigned *processes)
{
    return owners_spread_co(&dex_of(engine)->owners, others, processes);
}

static bool owns(struct engine *engine, struct slice key)
{
    return owners_owns(&dex_of(engine)->owners, key);
}

static enum pando_status stage_open_co(struct engine *engine, struct slice key, uint64_t size,
                                       struct engine_stage **out)
{
    const struct dex *self = dex_of(engine);
    return blob_stage_open_co(engine->session, self->table->id, key, size, out);
}

static const struct engine_block_kind kinds[] = {
    {.kind = PAGE_KIND, .level_at = PAGE_SHAPE},
    {.kind = MAP_KIND, .log = true},
    {.kind = DEX_LOG_CELL, .log = true},
};

const struct engine_ops dex_engine = {
    .name = "dex",
    .kinds = kinds,
    .kind_count = sizeof(kinds) / sizeof(kinds[0]),
    .pushdown = &dex_memory_side,
    .switches = switches,
    .switch_count = SWITCHES,
    .create_co = create_co,
    .open_co = open_co,
    .close_co = close_co,
    .drop_co = dex_drop_co,
    .attach_co = attach_co,
    .detach_co = detach_co,
    .get_co = engine_get_as_part_co,
    .modify_co = dex_modify_co,
    .part_co = dex_part_co,
    .stage_open_co = stage_open_co,
    .stage_add_co = blob_stage_add_co,
    .stage_seal_co = blob_stage_seal_co,
    .stage_close_co = blob_stage_close_co,
    .swap_co = dex_swap_value_co,
    .scan_co = dex_scan_co,
    .bulk_load_co = dex_bulk_load_co,
    .stats = stats,
    .verify_co = dex_verify_co,
    .batch_co = dex_batch_co,
    .move_co = move_co,
    .spread_co = spread_co,
    .owners_co = owners_co,
    .maintain_co = maintain_co,
    .release_co = release_co,
    .retire_co = retire_co,
    .owns = owns,
};
