/*
 * modify.c - changing one pair: in its cached leaf, under the leaf's latch, with a record in the log.
 * The change is told to the caller when the log has it (R34).
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "tree/dex/call_fmt.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/offload_fmt.h"

enum { TRIES_MAX = 100000 };

/* A change under way. */
struct work {
    struct dex *self;
    const struct map_part *part;
    struct slice key;
    const struct dex_edit *edit;
    struct dex_scratch *scratch;

    /* A value that was made a blob before the leaf's latch was taken. */
    blob_ref blob;
    uint8_t *blob_copy; /* what is in it */
    size_t blob_size;

    /* Of the leaf whose latch is held. */
    struct dex_spot spot;
    uint8_t *bytes;
    uint32_t index;
    bool found;
    bool old_blob;
    blob_ref old_ref;
    struct slice old;

    uint64_t end; /* in the log, behind what was done or seen */
    bool shrunk;
    bool doubt;                /* a memory node did not do it, but its record is in the log */
    struct page_stamp refused; /* of the record that a memory node found no room for; 0: none */
    struct records_ticket ticket;
};

/* ---- the old value --------------------------------------------------------------------------- */

static enum pando_status fetch_blob_co(struct work *work)
{
    struct dex *self = work->self;
    struct blob_buffer buffer = {0};
    enum pando_status status = blob_fetch_co(self->base.session, self->table->id, work->key,
                                             work->old_ref, &buffer, &work->old);
    free(work->scratch->blob);
    work->scratch->blob = buffer.bytes;
    /* Under the latch: it is not freed meanwhile. */
    blob_ref missing = work->old_ref;
    return status == PANDO_STALE ? blob_missing(self->table->id, work->old_ref, &missing) : status;
}

static enum pando_status look_co(struct work *work)
{
    struct dex_table *table = work->self->table;
    const struct page_layout *layout = &table->layout;

    work->bytes = frame_bytes(&table->frames, work->spot.frame);
    work->found = page_find(layout, work->bytes, work->key, &work->index);
    work->old_blob = false;
    if (!work->found)
        return PANDO_OK;
    uint32_t size = page_value(layout, work->bytes, work->index, work->scratch->value,
                               layout->page_bytes, &work->old_blob);
    work->old = slice_of(work->scratch->value, size);
    if (!work->old_blob)
        return PANDO_OK;
    memcpy(&work->old_ref, work->scratch->value, sizeof(work->old_ref));
    work->old.size = 0;
    return (work->edit->how & ENGINE_BLIND) != 0 ? PANDO_OK : fetch_blob_co(work);
}

/* ---- the new one ----------------------------------------------------------------------------- */

static bool is_long(const struct dex_table *table, struct slice value)
{
    return value.size > table->inline_max;
}

static bool blob_is(const struct work *work, struct slice value)
{
    return work->blob != 0 && work->blob_size == value.size &&
           memcmp(work->blob_copy, value.data, value.size) == 0;
}

static void blob_forget_co(struct work *work)
{
    if (work->blob != 0) {
        enum pando_status freed =
            blob_free_co(work->self->base.session, work->self->table->id, work->blob);
        (void)freed;
    }
    free(work->blob_copy);
    work->blob_copy = NULL;
    work->blob = 0;
}

static enum pando_status blob_make_co(struct work *work, struct slice value)
{
    blob_forget_co(work);
    work->blob_copy = malloc(value.size);
    if (work->blob_copy == NULL)
        return PANDO_NO_MEMORY;
    memcpy(work->blob_copy, value.data, value.size);
    work->blob_size = value.size;
    return blob_write_co(work->self->base.session, work->self->table->id, work->key,
                         slice_of(work->blob_copy, value.size), &work->blob);
}

static bool has_room(const struct work *work, const struct page_pair *pair)
{
    const struct page_layout *layout = &work->self->table->layout;
    return page_room(layout, work->bytes, work->found ? work->index : UINT32_MAX, pair->key.size,
                     pair->value.size);
}

enum pando_status dex_log_change(struct dex_table *table, struct frame *frame,
                                 const struct map_part *part, enum dex_log_kind kind,
                                 const struct page_pair *pair, uint8_t *bytes)
{
    struct page_stamp stamp = {.epoch = part->epoch};
    struct dex_log_record record = {
        .kind = kind, .epoch = part->epoch, .key = pair->key, .value = pair->value};
    uint64_t end;

    /* Before the record is there: a checkpoint that sees the record must see the page as dirty. */
    if (!atomic_load_explicit(&frame->dirty, memory_order_relaxed)) {
        atomic_store(&frame->first, table->log != NULL ? dex_log_end(table->log) : 0);
        atomic_store(&frame->dirty, true);
    }
    if (table->log != NULL) {
        enum pando_status status = dex_log_append(table->log, &record, &stamp.lsn, &end);
        if (status != PANDO_OK)
            return status;
        atomic_store_explicit(&frame->end, end, memory_order_relaxed);
    }
    page_set_stamp(bytes, stamp);
    return PANDO_OK;
}

static enum pando_status append(struct work *work, const struct engine_change *change,
                                struct page_pair *pair)
{
    struct dex_table *table = work->self->table;
    struct frame *frame = frame_at(&table->frames, work->spot.frame);
    enum dex_log_kind kind = change->what == ENGINE_REMOVE ? DEX_LOG_DELETE
                             : pair->blob                  ? DEX_LOG_BLOB
                                                           : DEX_LOG_PUT;
    enum pando_status status = dex_log_change(table, frame, work->part, kind, pair, work->bytes);
    work->end = atomic_load_explicit(&frame->end, memory_order_relaxed);
    return status;
}

/* ---- one try --------------------------------------------------------------------------------- */

/* What came of the leaf whose latch is held. */
enum verdict { DONE, MAKE_BLOB, SPLIT, LOG_FULL };

/* Whether the key is as somebody else saw it. */
static bool as_expected(const struct work *work)
{
    const struct dex_edit *edit = work->edit;
    switch (edit->expect) {
    case DEX_EXPECT_NOTHING:
        return true;
    case DEX_EXPECT_ABSENT:
        return !work->found;
    case DEX_EXPECT_BLOB:
        return work->found && work->old_blob && edit->expected.size == sizeof(work->old_ref) &&
               memcmp(edit->expected.data, &work->old_ref, sizeof(work->old_ref)) == 0;
    default:
        return work->found && !work->old_blob && slice_equal(edit->expected, work->old);
    }
}

/* The leaf has no room for what is asked, and the log has a record of it that a memory node refused. The
 * leaf then says that it has that record, or a replay would find room for it after a split, although the
 * caller may be told that it was not done. */
static void skip_refused(struct work *work)
{
    struct dex_table *table = work->self->table;
    struct frame *frame = frame_at(&table->frames, work->spot.frame);

    if (work->refused.lsn == 0 || !page_stamp_below(page_stamp(work->bytes), work->refused))
        return;
    if (!atomic_load_explicit(&frame->dirty, memory_order_relaxed)) {
        atomic_store(&frame->first, work->refused.lsn);
        atomic_store(&frame->dirty, true);
    }
    page_set_stamp(work->bytes, work->refused);
}

static enum pando_status edit_leaf_co(struct work *work, struct engine_change *change,
                                      enum verdict *verdict)
{
    struct dex_table *table = work->self->table;
    struct frame *frame = frame_at(&table->frames, work->spot.frame);
    struct page_pair pair = {.key = work->key};

    enum pando_status status = look_co(work);
    if (status != PANDO_OK)
        return status;
    *verdict = DONE;
    work->end = atomic_load_explicit(&frame->end, memory_order_relaxed);
    *change = work->edit->fn(work->edit->context, work->found ? &work->old : NULL);
    if (!as_expected(work)) {
        *work->edit->mismatch = 1;
        change->what = ENGINE_KEEP;
    }
    if (change->what == ENGINE_KEEP || (change->what == ENGINE_REMOVE && !work->found)) {
        change->what = ENGINE_KEEP;
        return PANDO_OK;
    }
    if (change->what == ENGINE_STORE) {
        pair.value = change->value;
        pair.blob = work->edit->raw_blob;
        if (!work->edit->raw && is_long(table, change->value)) {
            *verdict = MAKE_BLOB;
            if (!blob_is(work, change->value))
                return PANDO_OK;
            *verdict = DONE;
            pair.value = slice_of(&work->blob, sizeof(work->blob));
            pair.blob = true;
        }
        if (!has_room(work, &pair)) {
            skip_refused(work);
            *verdict = SPLIT;
            return PANDO_OK;
        }
    }
    status = append(work, change, &pair);
    if (status == PANDO_FULL) {
        *verdict = LOG_FULL;
        return PANDO_OK;
    }
    if (status != PANDO_OK)
        return status;
    records_ask(&table->records, work->key, &work->ticket);
    dex_forget_record(table, work->key, &work->ticket);
    if (change->what == ENGINE_STORE) {
        page_put(&table->layout, work->bytes, work->index, work->found, &pair,
                 work->scratch->other);
        if (pair.blob && !work->edit->raw)
            work->blob = 0; /* the leaf's now */
    } else {
        page_remove(&table->layout, work->bytes, work->index);
        work->shrunk =
            page_pairs(work->bytes) == 0 ||
            page_used(&table->layout, work->bytes) * DEX_UNDERFULL < table->layout.page_bytes;
    }
    return PANDO_OK;
}

/* Lets the leaf go. Without a log what nobody else could read again is not freed before the leaf that
 * does not refer to it any more is in the pool. */
static enum pando_status release_co(struct work *work, bool changed, bool write_through)
{
    struct dex *self = work->self;
    struct frame *frame = frame_at(&self->table->frames, work->spot.frame);
    enum pando_status status = PANDO_OK;

    if (work->spot.private)
        return dex_private_end_co(self, work->spot.frame);
    if (write_through && frame->dirty)
        status = dex_write_back_co(self, work->spot.frame);
    frame_give(frame, changed);
    return status;
}

/* What a memory node could do: a change that needs to know no more than whether the key is there. False:
 * none. One that may come to nothing is asked for only where there is no log: its record would be there
 * before that is known. */
static bool make_push(struct work *work, struct dex_push *push)
{
    const unsigned put = ENGINE_BLIND | ENGINE_ANYWHERE;
    const struct dex_table *table = work->self->table;
    struct slice nothing = {0};
    *push = (struct dex_push){.part = work->part, .key = work->key};
    if (!table->on.offload || (work->edit->how & put) != put)
        return false;
    struct engine_change present = work->edit->fn(work->edit->context, &nothing);
    struct engine_change absent = work->edit->fn(work->edit->context, NULL);
    bool stores = present.what == ENGINE_STORE, inserts = absent.what == ENGINE_STORE;
    if (present.what == ENGINE_REMOVE) {
        push->operation = DEX_WORK_DELETE;
        return true;
    }
    push->operation = !inserts ? DEX_WORK_UPDATE : !stores ? DEX_WORK_INSERT : DEX_WORK_PUT;
    push->value = stores ? present.value : absent.value;
    return (stores || inserts) && (!table->on.log || (stores && inserts)) &&
           !is_long(table, push->value);
}

/* After the log has it: what was kept before, or has no page, is kept as it is now. */
static void keep_record(const struct work *work, const struct records_ticket *ticket,
                        struct slice value)
{
    struct dex_table *table = work->self->table;
    if (!work->edit->raw_blob && !is_long(table, value))
        records_keep(&table->records, ticket, work->key, value);
}

/* It was done elsewhere. */
static enum pando_status pushed_co(struct work *work, const struct dex_push *push)
{
    struct dex *self = work->self;
    struct slice nothing = {0};

    (void)work->edit->fn(work->edit->context, push->was_there ? &nothing : NULL);
    enum pando_status status = dex_settle_co(self, push->end);
    if (status != PANDO_OK)
        return PANDO_UNKNOWN;
    work->shrunk = push->shrunk;
    if (push->operation != DEX_WORK_DELETE && push->ticket.room &&
        dex_work_changes(push->operation, push->was_there))
        keep_record(work, &push->ticket, push->value);
    if (push->old_blob) {
        blob_ref ref;
        memcpy(&ref, push->found.data, sizeof(ref));
        enum pando_status freed = blob_free_co(self->base.session, self->table->id, ref);
        (void)freed;
    }
    return PANDO_OK;
}

static enum pando_status try_co(struct work *work, bool *again)
{
    struct dex *self = work->self;
    struct dex_table *table = self->table;
    struct dex_push push;
    struct dex_target target = {.key = work->key, .scratch = work->scratch};
    struct engine_change change = {0};
    enum verdict verdict = DONE;

    if (make_push(work, &push))
        target.push = &push;

    *again = true;
    enum pando_status status = dex_log_room_co(self);
    if (status == PANDO_OK)
        status = dex_find_co(self, &target, &work->spot);
    work->doubt = work->doubt || push.doubt;
    work->refused = table->log != NULL && push.end != 0 ? push.stamp : (struct page_stamp){0};
    if (status != PANDO_OK)
        return status;
    if (work->spot.pushed) {
        *again = false;
        return pushed_co(work, &push);
    }
    if (!work->spot.private &&
        !frame_take(frame_at(&table->frames, work->spot.frame), work->spot.version))
        return PANDO_OK;
    status = edit_leaf_co(work, &change, &verdict);
    bool changed = status == PANDO_OK && verdict == DONE && change.what != ENGINE_KEEP;
    bool frees = changed && work->old_blob;
    bool private = work->spot.private;
    enum pando_status released = release_co(work, changed, frees && table->log == NULL);
    if (status != PANDO_OK)
        return status;
    /* A change whose leaf could not be written back stays in the cache, and lasts if the log has it. */
    if (released != PANDO_OK && (!changed || table->log == NULL))
        return changed ? PANDO_UNKNOWN : released;
    if (verdict == MAKE_BLOB)
        return blob_make_co(work, change.value);
    if (verdict == SPLIT)
        return dex_split_co(self, work->key, 0);
    if (verdict == LOG_FULL)
        return PANDO_OK;
    *again = false;
    status = dex_settle_co(self, work->end);
    if (changed && status != PANDO_OK)
        return PANDO_UNKNOWN;
    if (changed && change.what == ENGINE_STORE && (private || work->ticket.room))
        keep_record(work, &work->ticket, change.value);
    if (status == PANDO_OK && frees) {
        enum pando_status freed = blob_free_co(self->base.session, table->id, work->old_ref);
        (void)freed;
    }
    return status;
}

enum pando_status dex_local_modify_co(struct dex *self, const struct map_part *part,
                                      struct slice key, const struct dex_edit *edit)
{
    struct work work = {.self = self, .part = part, .key = key, .edit = edit};
    struct frame_pause pause = {0};
    enum pando_status status = PANDO_TIMEOUT;
    bool again = true;

    dex_did(self, 1);
    work.scratch = dex_scratch_take(self);
    if (work.scratch == NULL)
        return PANDO_NO_MEMORY;
    for (int tries = 0; tries < TRIES_MAX && again; tries++) {
        if (tries > 1)
            frame_pause_co(&pause);
        status = try_co(&work, &again);
        if (status != PANDO_OK)
            break;
        if (again)
            status = PANDO_TIMEOUT;
    }
    blob_forget_co(&work);
    dex_scratch_give(self, work.scratch);
    if (status == PANDO_OK && work.shrunk)
        dex_merge_co(self, key, 0);
    /* Whoever takes over may do what failed here. */
    return status != PANDO_OK && work.doubt ? PANDO_UNKNOWN : status;
}

/* ---- the engine's ---------------------------------------------------------------------------- */

static enum pando_status once_co(struct dex *self, struct slice key, const struct dex_edit *edit)
{
    struct dex_guard guard;
    uint64_t owner;

    dex_enter(self, key, &guard);
    if (dex_mine(self->table, guard.part)) {
        enum pando_status status = dex_local_modify_co(self, guard.part, key, edit);
        dex_leave(self, &guard);
        return status;
    }
    dex_leave(self, &guard);
    enum pando_status status = dex_claim_co(self, key, &owner);
    if (status != PANDO_OK)
        return status;
    return owner == dex_self(self->table) ? PANDO_AGAIN
                                          : dex_forward_modify_co(self, owner, key, edit);
}

enum pando_status dex_modify_co(struct engine *engine, struct slice key, unsigned how,
                                engine_modify_fn fn, void *context)
{
    struct dex *self = dex_of(engine);
    blob_ref missing = 0;
    struct dex_edit edit = {.how = how, .fn = fn, .context = context, .missing = &missing};
    struct pool_retry retry = {0};
    enum pando_status status;

    rt_charge(RT_COST_OPERATION);
    rt_charge(RT_COST_WRITE);
    while ((status = once_co(self, key, &edit)) == PANDO_AGAIN) {
        status = dex_retry_co(self, &retry);
        if (status != PANDO_OK)
            break;
    }
    return status;
}
