/*
 * modify.c - changing one pair: in its cached leaf, under the leaf's latch, with a record in the log.
 * The change is told to the caller when the log has it (rule log-results).
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "owners/call_fmt.h"
#include "tree/dex/tree.h"

/* A change under way. */
struct local_modify {
    struct dex *self;
    const struct map_partition *part;
    struct slice key;
    const struct owners_edit *edit;
    struct dex_scratch *scratch;

    /* A value that was made a blob before the leaf's latch was taken. */
    blob_ref blob;
    const uint8_t *blob_bytes; /* what is in it: the caller's of a put, which stay; else a copy */
    uint8_t *blob_copy;
    size_t blob_size;

    /* Of the leaf whose latch is held. */
    struct dex_spot spot;
    uint8_t *bytes;
    uint32_t index;
    bool found;
    bool old_blob;
    blob_ref old_ref;
    struct slice old;

    /* What was done; told when the log has it. */
    uint64_t end; /* in the log, behind what was done or seen */
    bool changed;
    bool frees;        /* the blob old_ref: nothing refers to it any more */
    bool keeps;        /* the record, if there is room for it, */
    struct slice kept; /* with this value */
    bool shrunk;
    bool unknown;              /* a memory node did not do it, but its record is in the log */
    struct page_stamp refused; /* of the record that a memory node found no room for; 0: none */
    struct pair_cache_token token;
};

/* ---- the old value --------------------------------------------------------------------------- */

static enum pando_status fetch_blob_co(struct local_modify *work)
{
    struct dex *self = work->self;
    uint64_t most = (work->edit->how & ENGINE_SHORT) != 0 ? ENGINE_SHORT_MAX : ENGINE_VALUE_MAX;
    struct blob_buffer buffer = {0};
    enum pando_status status = blob_fetch_co(self->base.session, self->table->id, work->key,
                                             work->old_ref, most, &buffer, &work->old);
    free(work->scratch->blob);
    work->scratch->blob = buffer.bytes;
    /* Under the latch: it is not freed meanwhile. */
    blob_ref missing = work->old_ref;
    return status == PANDO_STALE ? blob_missing(self->table->id, work->old_ref, &missing) : status;
}

static enum pando_status read_old_value_co(struct local_modify *work)
{
    struct dex_table *table = work->self->table;
    const struct page_layout *layout = &table->layout;

    work->bytes = frame_bytes(&table->cache.frames, work->spot.frame);
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

/* A put's value is the same at every try, and stays where it is. */
static bool is_put(const struct local_modify *work)
{
    const unsigned put = ENGINE_BLIND | ENGINE_ANYWHERE;
    return (work->edit->how & put) == put;
}

static bool blob_is(const struct local_modify *work, struct slice value)
{
    return work->blob != 0 && work->blob_size == value.size &&
           (is_put(work) || memcmp(work->blob_bytes, value.data, value.size) == 0);
}

static void blob_forget_co(struct local_modify *work)
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

static enum pando_status blob_make_co(struct local_modify *work, struct slice value)
{
    blob_forget_co(work);
    work->blob_bytes = value.data;
    if (!is_put(work)) {
        work->blob_copy = malloc(value.size);
        if (work->blob_copy == NULL)
            return PANDO_NO_MEMORY;
        memcpy(work->blob_copy, value.data, value.size);
        work->blob_bytes = work->blob_copy;
    }
    work->blob_size = value.size;
    return blob_write_co(work->self->base.session, work->self->table->id, work->key,
                         slice_of(work->blob_bytes, value.size), &work->blob);
}

static bool has_room(const struct local_modify *work, const struct page_pair *pair)
{
    const struct page_layout *layout = &work->self->table->layout;
    return page_room(layout, work->bytes, work->found ? work->index : UINT32_MAX, pair->key.size,
                     pair->value.size);
}

enum pando_status dex_log_change(struct dex_table *table, struct frame *frame,
                                 const struct map_partition *part, enum dex_log_kind kind,
                                 const struct page_pair *pair, uint8_t *bytes)
{
    struct page_stamp stamp = {.epoch = part->epoch};
    struct dex_log_record record = {
        .kind = kind, .epoch = part->epoch, .key = pair->key, .value = pair->value};
    uint64_t end;

    /* Before the record is there: a checkpoint that sees the record must see the page as dirty. */
    if (!atomic_load_explicit(&frame->dirty, memory_order_relaxed)) {
        atomic_store(&frame->first, table->redo.log != NULL ? dex_log_end(table->redo.log) : 0);
        atomic_store(&frame->dirty, true);
    }
    if (table->redo.log != NULL) {
        enum pando_status status = dex_log_append(table->redo.log, &record, &stamp.lsn, &end);
        if (status != PANDO_OK)
            return status;
        atomic_store_explicit(&frame->end, end, memory_order_relaxed);
    }
    page_set_stamp(bytes, stamp);
    return PANDO_OK;
}

static enum pando_status append(struct local_modify *work, const struct engine_change *change,
                                struct page_pair *pair)
{
    struct dex_table *table = work->self->table;
    struct frame *frame = frame_at(&table->cache.frames, work->spot.frame);
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
static bool as_expected(const struct local_modify *work)
{
    const struct owners_edit *edit = work->edit;
    switch (edit->expect) {
    case OWNERS_EXPECT_NOTHING:
        return true;
    case OWNERS_EXPECT_ABSENT:
        return !work->found;
    case OWNERS_EXPECT_BLOB:
        return work->found && work->old_blob && edit->expected.size == sizeof(work->old_ref) &&
               memcmp(edit->expected.data, &work->old_ref, sizeof(work->old_ref)) == 0;
    default:
        return work->found && !work->old_blob && slice_equal(edit->expected, work->old);
    }
}

/* The leaf has no room for what is asked, and the log has a record of it that a memory node refused. The
 * leaf then says that it has that record, or a replay would find room for it after a split, although the
 * caller may be told that it was not done. */
static void skip_refused(struct local_modify *work)
{
    struct dex_table *table = work->self->table;
    struct frame *frame = frame_at(&table->cache.frames, work->spot.frame);

    if (work->refused.lsn == 0 || !page_stamp_below(page_stamp(work->bytes), work->refused))
        return;
    if (!atomic_load_explicit(&frame->dirty, memory_order_relaxed)) {
        atomic_store(&frame->first, work->refused.lsn);
        atomic_store(&frame->dirty, true);
    }
    page_set_stamp(work->bytes, work->refused);
}

static enum pando_status edit_leaf_co(struct local_modify *work, struct engine_change *change,
                                      enum verdict *verdict)
{
    struct dex_table *table = work->self->table;
    struct frame *frame = frame_at(&table->cache.frames, work->spot.frame);
    struct page_pair pair = {.key = work->key};

    enum pando_status status = read_old_value_co(work);
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
    pair_cache_ask(&table->cache.records, work->key, &work->token);
    dex_forget_record(table, work->key, &work->token);
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

enum release {
    RELEASE_SAME,
    RELEASE_CHANGED,
    RELEASE_WRITTEN, /* changed, and written back first */
};

/* Lets the leaf go. Without a log what nobody else could read again is not freed before the leaf that
 * does not refer to it any more is in the pool. */
static enum pando_status release_leaf_co(struct local_modify *work, enum release release)
{
    struct dex *self = work->self;
    struct frame *frame = frame_at(&self->table->cache.frames, work->spot.frame);
    enum pando_status status = PANDO_OK;

    if (work->spot.private)
        return dex_private_end_co(self, work->spot.frame);
    if (release == RELEASE_WRITTEN && frame->dirty)
        status = dex_write_back_co(self, work->spot.frame);
    if (release == RELEASE_SAME)
        frame_give(frame);
    else
        frame_give_changed(frame);
    return status;
}

/* What a memory node could do: a change that needs to know no more than whether the key is there. False:
 * none. One that may come to nothing is asked for only where there is no log: its record would be there
 * before that is known. */
static bool make_pushdown(struct local_modify *work, struct dex_pushdown *push)
{
    const unsigned put = ENGINE_BLIND | ENGINE_ANYWHERE;
    const struct dex_table *table = work->self->table;
    struct slice nothing = {0};
    *push = (struct dex_pushdown){.part = work->part, .key = work->key};
    if (!table->on.offload || (work->edit->how & put) != put)
        return false;
    struct engine_change present = work->edit->fn(work->edit->context, &nothing);
    struct engine_change absent = work->edit->fn(work->edit->context, NULL);
    bool stores = present.what == ENGINE_STORE, inserts = absent.what == ENGINE_STORE;
    if (present.what == ENGINE_REMOVE) {
        push->operation = DEX_PUSHDOWN_DELETE;
        return true;
    }
    push->operation = !inserts  ? DEX_PUSHDOWN_UPDATE
                      : !stores ? DEX_PUSHDOWN_INSERT
                                : DEX_PUSHDOWN_PUT;
    push->value = stores ? present.value : absent.value;
    return (stores || inserts) && (!table->on.log || (stores && inserts)) &&
           !is_long(table, push->value);
}

/* A memory node has done it. */
static void take_pushdown(struct local_modify *work, const struct dex_pushdown *push)
{
    struct slice nothing = {0};

    (void)work->edit->fn(work->edit->context, push->was_there ? &nothing : NULL);
    work->end = push->end;
    work->changed = true;
    work->shrunk = push->shrunk;
    work->token = push->token;
    work->keeps = push->operation != DEX_PUSHDOWN_DELETE && push->token.room &&
                  dex_pushdown_changes(push->operation, push->was_there);
    work->kept = push->value;
    work->frees = push->old_blob;
    if (push->old_blob)
        memcpy(&work->old_ref, push->found.data, sizeof(work->old_ref));
}

/* After the log has it. */
static void clean_up_co(struct local_modify *work)
{
    struct dex *self = work->self;
    /* What was kept before, or has no page, is kept as it is now. */
    if (work->keeps && !work->edit->raw_blob && !is_long(self->table, work->kept))
        pair_cache_keep(&self->table->cache.records, &work->token, work->key, work->kept);
    if (work->frees) {
        enum pando_status freed = blob_free_co(self->base.session, self->table->id, work->old_ref);
        (void)freed;
    }
}

/* Changes the leaf, or has a memory node do it. *again: it is not done yet, if the status is OK. */
static enum pando_status try_modify_co(struct local_modify *work, bool *again)
{
    struct dex *self = work->self;
    struct dex_table *table = self->table;
    struct dex_pushdown push;
    struct dex_target target = {.key = work->key, .scratch = work->scratch};
    struct engine_change change = {0};
    enum verdict verdict = DONE;

    if (make_pushdown(work, &push))
        target.push = &push;

    *again = true;
    enum pando_status status = dex_log_room_co(self);
    if (status == PANDO_OK)
        status = dex_find_co(self, &target, &work->spot);
    work->unknown = work->unknown || push.unknown;
    work->refused = table->redo.log != NULL && push.end != 0 ? push.stamp : (struct page_stamp){0};
    if (status != PANDO_OK)
        return status;
    if (work->spot.pushed_down) {
        *again = false;
        take_pushdown(work, &push);
        return PANDO_OK;
    }
    if (!work->spot.private &&
        !frame_take(frame_at(&table->cache.frames, work->spot.frame), work->spot.version))
        return PANDO_OK;
    status = edit_leaf_co(work, &change, &verdict);
    bool changed = status == PANDO_OK && verdict == DONE && change.what != ENGINE_KEEP;
    work->changed = changed;
    work->frees = changed && work->old_blob;
    work->keeps =
        changed && change.what == ENGINE_STORE && (work->spot.private || work->token.room);
    work->kept = change.value;
    enum release release = !changed                                 ? RELEASE_SAME
                           : work->frees && table->redo.log == NULL ? RELEASE_WRITTEN
                                                                    : RELEASE_CHANGED;
    enum pando_status released = release_leaf_co(work, release);
    if (status != PANDO_OK)
        return status;
    /* A change whose leaf could not be written back stays in the cache, and lasts if the log has it. */
    if (released != PANDO_OK && (!changed || table->redo.log == NULL))
        return changed ? PANDO_UNKNOWN : released;
    if (verdict == MAKE_BLOB)
        return blob_make_co(work, change.value);
    if (verdict == SPLIT)
        return dex_split_co(self, work->key, 0);
    if (verdict == LOG_FULL)
        return PANDO_OK;
    *again = false;
    return PANDO_OK;
}

enum pando_status dex_local_modify_co(struct dex *self, const struct map_partition *part,
                                      struct slice key, const struct owners_edit *edit)
{
    struct local_modify work = {.self = self, .part = part, .key = key, .edit = edit};
    struct dex_tries tries = {0};
    enum pando_status status;
    bool again;

    owners_count_operations(&self->owners, 1);
    work.scratch = dex_scratch_take(self);
    if (work.scratch == NULL)
        return PANDO_NO_MEMORY;
    do
        status = try_modify_co(&work, &again);
    while (status == PANDO_OK && again && dex_try_again_co(self, &tries));
    if (status == PANDO_OK && again) {
        status = PANDO_TIMEOUT;
    } else if (status == PANDO_OK) {
        status = dex_await_durable_co(self, work.end);
        if (status == PANDO_OK)
            clean_up_co(&work);
        else if (work.changed)
            status = PANDO_UNKNOWN;
    }
    blob_forget_co(&work);
    dex_scratch_give(self, work.scratch);
    if (status == PANDO_OK && work.shrunk)
        dex_merge_co(self, key, 0);
    /* Whoever takes over may do what failed here. */
    return status != PANDO_OK && work.unknown ? PANDO_UNKNOWN : status;
}

/* ---- the engine's ---------------------------------------------------------------------------- */

static struct step modify_once_co(struct dex *self, struct slice key,
                                  const struct owners_edit *edit)
{
    struct owners_guard guard;
    uint64_t owner;

    owners_enter(&self->owners, key, &guard);
    if (owners_mine(&self->table->owners, guard.part)) {
        enum pando_status status = dex_local_modify_co(self, guard.part, key, edit);
        owners_leave(&self->owners, &guard);
        return step_of(status);
    }
    owners_leave(&self->owners, &guard);
    struct step step = owners_claim_co(&self->owners, key, &owner);
    if (!step_ok(step))
        return step;
    return owner == owners_self(&self->table->owners)
               ? step_to(STEP_RESTART)
               : owners_forward_modify_co(&self->owners, owner, key, edit);
}

enum pando_status dex_modify_co(struct engine *engine, struct slice key, unsigned how,
                                engine_modify_fn fn, void *context)
{
    struct dex *self = dex_of(engine);
    blob_ref missing = 0;
    struct owners_edit edit = {.how = how, .fn = fn, .context = context, .missing = &missing};
    struct pool_retry retry = {0};
    struct step step;

    rt_charge(RT_COST_OPERATION);
    rt_charge(RT_COST_WRITE);
    do
        step = modify_once_co(self, key, &edit);
    while (dex_again_co(self, &retry, &step));
    return step.status;
}

/* ---- swaps ----------------------------------------------------------------------------------- */

struct swap {
    const struct engine_swap *wanted;
    bool was_there;
    uint8_t mismatch;
};

static struct engine_change swap_change(void *context, const struct slice *old)
{
    struct swap *swap = context;
    const struct engine_swap *wanted = swap->wanted;
    struct engine_change change = {.what = ENGINE_KEEP};

    swap->was_there = old != NULL;
    if (wanted->staged == 0)
        change.what = old != NULL ? ENGINE_REMOVE : ENGINE_KEEP;
    else if (!(wanted->mode == ENGINE_INSERT && old != NULL) &&
             !(wanted->mode == ENGINE_UPDATE && old == NULL))
        change = (struct engine_change){.what = ENGINE_STORE,
                                        .value = slice_of(&wanted->staged, sizeof(wanted->staged))};
    return change;
}

static enum pando_status swap_answer(const struct swap *swap)
{
    const struct engine_swap *wanted = swap->wanted;
    if (swap->mismatch)
        return PANDO_STALE;
    if (swap->was_there)
        return wanted->staged != 0 && wanted->mode == ENGINE_INSERT ? PANDO_EXISTS : PANDO_OK;
    return wanted->staged == 0 || wanted->mode == ENGINE_UPDATE ? PANDO_NOT_FOUND : PANDO_OK;
}

enum pando_status dex_swap_value_co(struct engine *engine, struct slice key,
                                    const struct engine_swap *wanted)
{
    static const enum owners_expect expects[] = {[ENGINE_EXPECT_NOTHING] = OWNERS_EXPECT_NOTHING,
                                                 [ENGINE_EXPECT_ABSENT] = OWNERS_EXPECT_ABSENT,
                                                 [ENGINE_EXPECT_VALUE] = OWNERS_EXPECT_VALUE,
                                                 [ENGINE_EXPECT_REFERENCE] = OWNERS_EXPECT_BLOB};
    struct dex *self = dex_of(engine);
    struct swap swap = {.wanted = wanted};
    blob_ref missing = 0;
    struct owners_edit edit = {.how = ENGINE_BLIND,
                               .fn = swap_change,
                               .context = &swap,
                               .raw = true,
                               .raw_blob = wanted->staged != 0,
                               .expect = expects[wanted->expect],
                               .mismatch = &swap.mismatch,
                               .missing = &missing};
    struct pool_retry retry = {0};
    struct step step;

    if (wanted->expect == ENGINE_EXPECT_VALUE)
        edit.expected = wanted->expected;
    if (wanted->expect == ENGINE_EXPECT_REFERENCE)
        edit.expected = slice_of(&wanted->expected_reference, sizeof(wanted->expected_reference));
    rt_charge(RT_COST_OPERATION);
    rt_charge(RT_COST_WRITE);
    do {
        swap.mismatch = 0;
        step = modify_once_co(self, key, &edit);
        if (step.next == STEP_RESTART && dex_retry_co(self, &retry) != PANDO_OK)
            return PANDO_TIMEOUT;
    } while (step.next == STEP_RESTART);
    return step_ok(step) ? swap_answer(&swap) : step.status;
}
