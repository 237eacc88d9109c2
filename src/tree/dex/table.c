/*
 * table.c - creating, opening, attaching; the switches; statistics.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/entry.h"
#include "tree/dex/dex_int.h"

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
    {"partition", offsetof(struct dex_switches, partition)},
    {"cache", offsetof(struct dex_switches, cache)},
    {"cooling-map", offsetof(struct dex_switches, cooling_map)},
    {"path-aware", offsetof(struct dex_switches, path_aware)},
    {"admission", offsetof(struct dex_switches, admission)},
    {"records", offsetof(struct dex_switches, records)},
    {"offload", offsetof(struct dex_switches, offload)},
    {"prefetch", offsetof(struct dex_switches, prefetch)},
    {"log", offsetof(struct dex_switches, log)},
    {"merge", offsetof(struct dex_switches, merge)},
    {"balance", offsetof(struct dex_switches, balance)},
    {"+offload-leaves", offsetof(struct dex_switches, offload_leaves)},
    {"+offload-only", offsetof(struct dex_switches, offload_only)},
    {"+lend-wildly", offsetof(struct dex_switches, lend_wildly)},
    {"+small-log", offsetof(struct dex_switches, small_log)},
    {"+join-eagerly", offsetof(struct dex_switches, join_eagerly)},
    {"break-cells", offsetof(struct dex_switches, cells)},
    {"break-replay", offsetof(struct dex_switches, replay)},
    {"break-invalidate", offsetof(struct dex_switches, invalidate)},
    {"break-forget", offsetof(struct dex_switches, forget)},
    {"break-barrier", offsetof(struct dex_switches, barrier)},
    {"break-durable", offsetof(struct dex_switches, durable)},
    {"break-stamps", offsetof(struct dex_switches, stamps)},
    {"break-through", offsetof(struct dex_switches, through)},
    {"break-partitions", offsetof(struct dex_switches, partitions)},
    {"break-write-back", offsetof(struct dex_switches, write_back)},
    {"break-truncate", offsetof(struct dex_switches, truncate)},
    {"break-serve-lease", offsetof(struct dex_switches, lease)},
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
        status = pool_submit_co(session, fabric_address_node(block.address), &write, 1);
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
    free(scratch->intent);
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
    scratch->intent = aligned_alloc(64, POOL_INTENT_BYTES);
    if (scratch->page != NULL && scratch->image != NULL && scratch->sibling != NULL &&
        scratch->other != NULL && scratch->value != NULL && scratch->intent != NULL)
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
    if (self->reserve == NULL) {
        free(self);
        return PANDO_NO_MEMORY;
    }
    self->base.ops = &dex_engine;
    self->base.table = &table->base;
    self->base.session = session;
    self->table = table;
    prng_seed(&self->prng, rt_random());
    rt_latch_lock(&table->handles_latch);
    list_push_back(&table->handles, &self->link);
    rt_latch_unlock(&table->handles_latch);
    *out = self;
    return PANDO_OK;
}

void dex_handle_destroy(struct dex *self)
{
    struct dex_table *table = self->table;
    rt_latch_lock(&table->handles_latch);
    list_remove(&self->link);
    table->operations_before += atomic_load(&self->operations);
    rt_latch_unlock(&table->handles_latch);
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

static enum pando_status read_entry_co(struct dex_table *table, struct pool_session *session,
                                       const char *name, const struct engine_config *config,
                                       char *error, size_t error_bytes)
{
    struct engine_entry entry;
    struct engine_shape *shape = &table->base.shape;
    enum pando_status status =
        engine_switches_parse(&dex_engine, &table->on, config->without, error, error_bytes);
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
    return PANDO_OK;
}

static enum pando_status cache_create(struct dex_table *table, uint64_t bytes)
{
    uint64_t most = bytes == 0 ? CACHE_BYTES : bytes;
    struct records_options options = {
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
        frames_create(&table->frames, (uint32_t)count, table->layout.page_bytes);
    if (status == PANDO_OK)
        status = records_create(&table->records, &table->frames, &options);
    if (status == PANDO_OK)
        status =
            cooling_create(&table->cooling, (uint32_t)count / COOLING_PART, !table->on.cooling_map);
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

/* The root has the first frame, for good. */
static enum pando_status load_root_co(struct dex_table *table)
{
    struct map *map;
    struct dex *self = table->keeper;
    enum pando_status status = await_tree_co(table, self->base.session);
    if (status == PANDO_OK)
        status = map_read_co(self->base.session, table->slot, table->id, &map);
    if (status != PANDO_OK)
        return status;
    struct frame *frame = frame_at(&table->frames, 0);
    atomic_store(&table->map, map);
    table->root = frame->address = map->root;
    table->root_frame = 0;
    atomic_store(&table->fresh, 1);
    frame->pinned = true;
    frame->parent = FRAME_NONE;
    frame->epoch = map->epoch;
    atomic_store(&frame->state, FRAME_HOT);
    struct dex_scratch *scratch = dex_scratch_take(self);
    status = dex_read_co(self, map->root, scratch->page);
    if (status == PANDO_OK)
        page_copy(frame_bytes(&table->frames, 0), scratch->page, table->layout.page_bytes);
    dex_scratch_give(self, scratch);
    bool entered = frame_enter(&table->frames, 0);
    pando_assert(entered);
    return status == PANDO_STALE ? PANDO_CORRUPT : status;
}

static void table_free(struct dex_table *table)
{
    if (table->keeper != NULL)
        dex_handle_destroy(table->keeper);
    pando_dassert(dex_frames_whole(table));
    frames_destroy(&table->frames);
    cooling_destroy(&table->cooling);
    records_destroy(&table->records);
    free(atomic_load(&table->map));
    free(table);
}

static enum pando_status open_co(struct pool_session *session, const char *name,
                                 const struct engine_config *config, struct engine_table **out,
                                 char *error, size_t error_bytes)
{
    struct dex_table *table = aligned_alloc(alignof(struct dex_table), sizeof(*table));
    if (table == NULL)
        return PANDO_NO_MEMORY;
    memset(table, 0, sizeof(*table));
    table->base.ops = &dex_engine;
    table->pool = pool_session_pool(session);
    table->free_list = FRAME_NONE;
    list_init(&table->handles);
    rt_waitq_init(&table->wake);
    enum pando_status status = read_entry_co(table, session, name, config, error, error_bytes);
    if (status == PANDO_OK)
        status = cache_create(table, config->cache_bytes);
    if (status == PANDO_OK)
        status = dex_handle_create(table, session, &table->keeper);
    if (status == PANDO_OK)
        status = load_root_co(table);
    bool serving = false;
    if (status == PANDO_OK) {
        status = dex_serve(table);
        serving = status == PANDO_OK;
    }
    if (status == PANDO_OK && !config->kept)
        status = dex_keeper_start(table);
    if (status != PANDO_OK) {
        if (error[0] == '\0')
            snprintf(error, error_bytes, "table '%s': %s", name, pando_status_text(status));
        if (serving)
            dex_serve_no_more_co(table);
        table_free(table);
        return status;
    }
    *out = &table->base;
    return PANDO_OK;
}

/* Everything to the pool, and the keys to nobody. */
static enum pando_status give_all_co(struct dex_table *table)
{
    struct dex_range all = {.no_high = true};
    enum pando_status status = dex_give_co(table->keeper, &all, 0);
    return status == PANDO_OK && pool_fenced(table->pool) ? PANDO_FENCED : status;
}

static enum pando_status log_destroy_co(struct dex_table *table, bool keep)
{
    enum pando_status status =
        table->log == NULL ? PANDO_OK
                           : dex_log_destroy_co(table->log, table->keeper->base.session, keep);
    table->log = NULL;
    return status;
}

static enum pando_status retire_co(struct engine_table *base, struct pool_session *session)
{
    struct dex_table *table = container_of(base, struct dex_table, base);
    enum pando_status status = PANDO_OK;

    /* The task is done with the session that opened the table. */
    dex_keeper_stop_co(table);
    dex_checkpoint_end_co(table);
    table->keeper->base.session = session;
    dex_serve_no_more_co(table);
    if (!table->retired)
        status = give_all_co(table);
    if (status == PANDO_OK) {
        table->retired = true;
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
        pool_give_up(table->pool);
    status = log_destroy_co(table, true); /* what is left of it after that is for them */
    (void)status;
    table_free(table);
}

uint64_t dex_operations(struct dex_table *table)
{
    rt_latch_lock(&table->handles_latch);
    uint64_t sum = table->operations_before;
    list_for_each (link, &table->handles)
        sum += atomic_load_explicit(&container_of(link, struct dex, link)->operations,
                                    memory_order_relaxed);
    rt_latch_unlock(&table->handles_latch);
    return sum;
}

static void stats(const struct engine_table *base, struct engine_stats *out)
{
    struct dex_table *table = container_of((struct engine_table *)base, struct dex_table, base);
    uint32_t used = atomic_load(&table->fresh) - atomic_load(&table->free_count);
    uint32_t lent = records_lent(&table->records);
    uint64_t operations = dex_operations(table);
    uint64_t misses = atomic_load(&table->stats.misses);
    *out = (struct engine_stats){
        .cache_hits = operations > misses ? operations - misses : 0, /* what needed nothing else */
        .cache_misses = misses,
        .cache_bytes = (uint64_t)used * table->layout.page_bytes + table->records.bytes,
        .cache_entries = used - lent,
        .rereads = atomic_load(&table->stats.rereads),
        .splits = atomic_load(&table->stats.splits),
        .merges = atomic_load(&table->stats.merges),
        .repairs = atomic_load(&table->stats.repairs),
        .damage = atomic_load(&table->stats.damage),
        .lock_waits = atomic_load(&table->stats.waits),
        .forwarded = atomic_load(&table->stats.forwarded),
        .moves = atomic_load(&table->stats.given) + atomic_load(&table->stats.takeovers),
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

const struct engine_ops dex_engine = {
    .name = "dex",
    .switches = switches,
    .switch_count = SWITCHES,
    .create_co = create_co,
    .open_co = open_co,
    .close_co = close_co,
    .drop_co = dex_drop_co,
    .attach_co = attach_co,
    .detach_co = detach_co,
    .get_co = dex_get_co,
    .modify_co = dex_modify_co,
    .scan_co = dex_scan_co,
    .bulk_load_co = dex_bulk_load_co,
    .stats = stats,
    .verify_co = dex_verify_co,
    .batch_co = dex_batch_co,
    .move_co = dex_move_co,
    .spread_co = dex_spread_co,
    .owners_co = owners_co,
    .keep_co = dex_keep_co,
    .retire_co = retire_co,
    .owns = dex_owns,
};
