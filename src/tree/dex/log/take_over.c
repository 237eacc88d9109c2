/*
 * take_over.c - the log of this process's own, made when it first owns keys; and the log of an owner that died, done
 * again into the pages. These say for themselves how far it has come: each page carries the place in the log of
 * its last change.
 */
#include "base/log.h"
#include "tree/dex/ownership.h"
#include "tree/dex/tree.h"

enum {
    LOG_BYTES_SMALL = 16 * 1024,
    LOG_BYTES_MIN = 64 * 1024,
    LOG_BYTES_MAX = 4 * 1024 * 1024,
    LOG_PART_OF_POOL = 1024,
    LOG_SHARES = 16 /* logs of full size for all tables of a process together */
};

/* ---- a log of one's own ---------------------------------------------------------------------- */

/* A quarter of what is left for all tables of this process: the first have a log of full size, and thousands do
 * not take much more. */
static uint64_t log_share_take(struct dex_table *table, uint64_t full)
{
    _Atomic uint64_t *given = pool_shared_bytes(table->pool);
    uint64_t all = full * LOG_SHARES, before = atomic_load(given);
    uint64_t share = before < all ? (all - before) / 4 / LOG_BYTES_MIN * LOG_BYTES_MIN : 0;
    share = share < LOG_BYTES_MIN ? LOG_BYTES_MIN : share > full ? full : share;
    table->redo.share = share;
    atomic_fetch_add(given, share);
    return share;
}

void dex_log_share_give(struct dex_table *table)
{
    atomic_fetch_sub(pool_shared_bytes(table->pool), table->redo.share);
    table->redo.share = 0;
}

enum pando_status dex_log_prepare_co(struct owners_handle *handle)
{
    struct dex *self = dex_of_handle(handle);
    struct dex_table *table = self->table;
    uint64_t bytes = 0;

    if (table->redo.log != NULL || !table->on.log)
        return PANDO_OK;
    /* A small pool gets a small one. */
    for (uint16_t node = 0; node < pool_nodes(table->pool); node++)
        bytes += pool_superblock(table->pool, node)->chunks * POOL_CHUNK_BYTES;
    bytes = bytes / LOG_PART_OF_POOL / LOG_BYTES_MIN * LOG_BYTES_MIN;
    bytes = bytes < LOG_BYTES_MIN ? LOG_BYTES_MIN : bytes > LOG_BYTES_MAX ? LOG_BYTES_MAX : bytes;
    bytes = table->on.small_log ? LOG_BYTES_SMALL : log_share_take(table, bytes);
    for (;;) {
        struct dex_log *log;
        enum pando_status status =
            dex_log_create_co(self->base.session, table->id, (uint32_t)bytes, &log);
        if (status == PANDO_OK)
            atomic_store(&table->redo.log, log); /* background tasks look for it at any time */
        if (status != PANDO_OK && (status != PANDO_FULL || bytes <= LOG_BYTES_MIN))
            dex_log_share_give(table);
        if (status != PANDO_FULL || bytes <= LOG_BYTES_MIN)
            return status;
        bytes = LOG_BYTES_MIN; /* whatever block is left of the reserve has room for that */
    }
}

/* ---- replaying ------------------------------------------------------------------------------- */

struct replay {
    struct dex *self;
    struct dex_scratch *scratch;
    uint64_t records, applied;
    uint64_t left_out; /* of keys whose leaf is damaged */
};

/* Under the leaf's latch. False: it has no room. */
static bool apply_record(struct replay *replay, uint32_t index, const struct dex_log_record *record)
{
    struct dex_table *table = replay->self->table;
    const struct page_layout *layout = &table->layout;
    struct frame *frame = frame_at(&table->cache.frames, index);
    uint8_t *bytes = frame_bytes(&table->cache.frames, index);
    struct page_stamp stamp = {record->epoch, record->lsn};
    struct page_pair pair = {record->key, record->value, record->kind == DEX_LOG_BLOB};
    uint32_t at;

    if (!page_stamp_below(page_stamp(bytes), stamp) && table->on.stamps)
        return true;
    bool found = page_find(layout, bytes, record->key, &at);
    if (record->kind != DEX_LOG_DELETE) {
        if (!page_room(layout, bytes, found ? at : UINT32_MAX, pair.key.size, pair.value.size))
            return record->kind == DEX_LOG_ASKED; /* nor was it done then */
        page_put(layout, bytes, at, found, &pair, replay->scratch->other);
    } else if (found) {
        page_remove(layout, bytes, at);
    }
    page_set_stamp(bytes, stamp);
    if (!frame->dirty) {
        /* Not in our log: nothing of that may be forgotten because of it. */
        atomic_store(&frame->first, UINT64_MAX);
        atomic_store(&frame->dirty, true);
    }
    replay->applied++;
    return true;
}

/* Whether a find has failed because of the leaf itself. That is then lost to everybody: only its owner ever had it
 * in a cache. (Of an inner page others may have a copy that leads on to the leaf, as it is in the pool.) */
static bool leaf_damaged(struct replay *replay, enum pando_status status,
                         const struct dex_spot *spot)
{
    if (status != PANDO_CORRUPT || spot->suspect == 0 || spot->suspect_level != 0)
        return false;
    replay->left_out++;
    return true;
}

static enum pando_status replay_record_co(void *context, const struct dex_log_record *record)
{
    struct replay *replay = context;
    struct dex *self = replay->self;
    struct dex_table *table = self->table;
    struct dex_target target = {.key = record->key, .keep = true, .believe_damage = true};
    struct pool_retry retry = {0};

    replay->records++;
    if (record->key.size > table->layout.key_max ||
        !owners_taken_by_us(&table->owners, record->key))
        return PANDO_OK;
    for (;;) {
        struct dex_spot spot;
        enum pando_status status = dex_find_co(self, &target, &spot);
        if (leaf_damaged(replay, status, &spot))
            return PANDO_OK;
        if (status != PANDO_OK)
            return status;
        struct frame *frame = frame_at(&table->cache.frames, spot.frame);
        bool done = false;
        if (frame_take(frame, spot.version)) {
            done = apply_record(replay, spot.frame, record);
            frame_give_changed(frame);
            if (done)
                return PANDO_OK;
            status = dex_split_co(self, record->key, 0);
        }
        if (status == PANDO_OK)
            status = dex_retry_co(self, &retry);
        if (status != PANDO_OK)
            return status;
    }
}

enum pando_status dex_log_take_over_co(struct owners_handle *handle, const struct owners_log *log)
{
    struct dex *self = dex_of_handle(handle);
    struct replay replay = {.self = self, .scratch = dex_scratch_take(self)};
    enum pando_status status = PANDO_OK;
    uint64_t begin_ns = rt_now_ns();
    bool kept = false;

    if (replay.scratch == NULL)
        return PANDO_NO_MEMORY;
    /* What is left out is lost: only because of what this replay finds. */
    dex_damage_forget_leaves(self->table);
    if (log->address != 0)
        status = dex_log_retained_co(self->base.session, self->table->id, log->address,
                                     log->version, &kept);
    if (kept && self->table->on.replay)
        status = dex_log_replay_co(self->base.session, self->table->id, log->address,
                                   replay_record_co, &replay);
    dex_scratch_give(self, replay.scratch);
    uint64_t replayed_ns = rt_now_ns();
    if (status == PANDO_OK)
        status = dex_flush_co(self, NULL);
    if (status != PANDO_OK) { /* repeated many times a second while a memory node is away */
        log_debug("cannot replay a dead owner's log; will try", log_u64("table", self->table->id),
                  log_status("status", status));
        return status;
    }
    log_info("replayed a dead owner's log", log_u64("table", self->table->id),
             log_u64("kept", kept), log_u64("records", replay.records),
             log_u64("applied", replay.applied), log_u64("left_out", replay.left_out),
             log_u64("replay_ms", (replayed_ns - begin_ns) / RT_NS_PER_MS),
             log_u64("flush_ms", (rt_now_ns() - replayed_ns) / RT_NS_PER_MS));
    return PANDO_OK;
}

enum pando_status dex_log_let_go_co(struct owners_handle *handle, const struct owners_log *log)
{
    struct dex *self = dex_of_handle(handle);
    bool kept = false;
    enum pando_status status = PANDO_OK;
    if (log->address != 0)
        status = dex_log_retained_co(self->base.session, self->table->id, log->address,
                                     log->version, &kept);
    if (status == PANDO_OK && kept)
        status = dex_log_free_co(self->base.session, self->table->id, log->address);
    return status;
}
