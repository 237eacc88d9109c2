/*
 * batch.c - many gets and puts at once, as far as their leaves are cached: their ways from the root
 * to the leaves are gone level by level together, and what the next level will touch is asked for
 * before it is needed, so that the memory's delays overlap. What is not cached, full or contended is
 * left to the way of single operations. Changes of a batch are waited for once.
 */
#include <string.h>

#include "base/assert.h"
#include "tree/dex/tree.h"

enum { GROUP = 16 };

/* One of a group on its way down. */
struct lane {
    struct engine_batch_op *op;
    uint64_t word; /* the key, if keys are words */
    const struct map_partition *part;
    uint32_t frame;
    uint64_t version;
    uint32_t index; /* in a leaf of words: where the key is, or would be */
    bool found;
    struct pair_cache_token token;
};

struct batch {
    struct dex *self;
    bool inner_words, leaf_words; /* what kinds of pages there are */
    struct lane lanes[GROUP];
    unsigned count; /* lanes that are still on their way */
    uint64_t end;   /* in the log: behind all that was changed or seen */

    /* To put the pairs of a leaf together, which leaves of words never need. Taken beforehand: a change that
     * the log has must be done. NULL: there is no memory, and puts are left to single operations. */
    struct dex_scratch *scratch;
};

static bool key_fits(const struct dex_table *table, struct slice key)
{
    const struct engine_shape *shape = &table->base.shape;
    return key.size <= shape->key_max && (shape->key_size == 0 || key.size == shape->key_size);
}

/* The first 8 bytes as an integer that compares like them. */
static uint64_t key_word(struct slice key)
{
    uint64_t word = 0;
    memcpy(&word, key.data, key.size < sizeof(word) ? key.size : sizeof(word));
    return __builtin_bswap64(word);
}

/* One step down for a lane; false: not this way. */
static bool step_down(const struct batch *batch, struct lane *lane)
{
    struct dex_table *table = batch->self->table;
    const struct page_layout *layout = &table->layout;
    const uint8_t *bytes = frame_bytes(&table->cache.frames, lane->frame);
    struct frame *frame = frame_at(&table->cache.frames, lane->frame);
    uint64_t word = batch->inner_words
                        ? page_words_child(layout, bytes, lane->word)
                        : page_child(layout, bytes, page_child_index(layout, bytes, lane->op->key));

    if (!frame_swizzled(word) || !frame_same(frame, lane->version))
        return false;
    lane->frame = (uint32_t)word;
    frame_prefetch(&table->cache.frames, lane->frame);
    return true;
}

/* After the prefetch has come: whether the page is the right one. The parent was not looked at again
 * since its word was read, so the page may have become another in between: its fences and level tell. */
static bool arrive(const struct batch *batch, struct lane *lane, uint8_t level)
{
    struct dex_table *table = batch->self->table;
    struct frame *frame = frame_at(&table->cache.frames, lane->frame);
    const uint8_t *bytes = frame_bytes(&table->cache.frames, lane->frame);

    lane->version = frame_look(frame);
    if (frame_held(lane->version) ||
        atomic_load_explicit(&frame->state, memory_order_relaxed) != FRAME_HOT)
        return false;
    if (level > 0 ? batch->inner_words : batch->leaf_words)
        return page_words_cover(bytes, level, lane->word);
    return page_level(bytes) == level && !page_dead(bytes) && page_side(bytes, lane->op->key) == 0;
}

/* A lane goes on, in the next place; most are there already. */
static void go_on(struct batch *batch, unsigned from, unsigned *kept)
{
    if (*kept != from)
        batch->lanes[*kept] = batch->lanes[from];
    ++*kept;
}

/* All lanes to their leaves; lanes that cannot be led there drop out. */
static void descend(struct batch *batch)
{
    struct dex_table *table = batch->self->table;
    struct frame *root = frame_at(&table->cache.frames, table->root_frame);
    uint64_t version = frame_look(root);
    uint8_t level = page_level(frame_bytes(&table->cache.frames, table->root_frame));
    unsigned kept = 0;

    if (frame_held(version) || !frame_same(root, version)) {
        batch->count = 0;
        return;
    }
    for (unsigned i = 0; i < batch->count; i++) {
        batch->lanes[i].frame = table->root_frame;
        batch->lanes[i].version = version;
    }
    while (level > 0) {
        kept = 0;
        for (unsigned i = 0; i < batch->count; i++) {
            if (step_down(batch, &batch->lanes[i]))
                go_on(batch, i, &kept);
        }
        batch->count = kept;
        level--;
        kept = 0;
        for (unsigned i = 0; i < batch->count; i++) {
            if (arrive(batch, &batch->lanes[i], level))
                go_on(batch, i, &kept);
        }
        batch->count = kept;
    }
}

/* ---- at the leaves --------------------------------------------------------------------------- */

static void end_one(struct engine_batch_op *op, enum pando_status status)
{
    op->status = status;
    op->done = true;
}

static uint64_t note_end(struct batch *batch, const struct frame *frame)
{
    uint64_t end = atomic_load_explicit(&frame->end, memory_order_relaxed);
    if (end > batch->end)
        batch->end = end;
    return end;
}

static bool is_durable(const struct dex_table *table, uint64_t end)
{
    return table->redo.log == NULL || dex_log_durable(table->redo.log, end);
}

/* Where the word is, as long as the leaf is what it was. Its value lies in another cache line, which is
 * asked for before any latch is taken: that would wait for all stores before it. */
static void find_word(const struct batch *batch, struct lane *lane)
{
    const struct dex_table *table = batch->self->table;
    const struct page_layout *layout = &table->layout;
    const uint8_t *bytes = frame_bytes(&table->cache.frames, lane->frame);

    lane->index = page_words_below(layout, bytes, lane->word);
    lane->found =
        lane->index < page_pairs(bytes) && page_words_key(layout, bytes, lane->index) == lane->word;
    page_words_prefetch(layout, bytes, lane->index);
}

static void get_one(struct batch *batch, struct lane *lane)
{
    struct dex_table *table = batch->self->table;
    struct frame *frame = frame_at(&table->cache.frames, lane->frame);
    const uint8_t *bytes = frame_bytes(&table->cache.frames, lane->frame);
    struct engine_batch_op *op = lane->op;
    uint32_t index, size = 0;
    bool blob = false;

    bool found = lane->found;
    if (batch->leaf_words && op->capacity >= 8) {
        uint64_t value = page_words_value(&table->layout, bytes, lane->index);
        size = 8;
        memcpy(op->buffer, &value, found ? 8 : 0);
    } else {
        found = page_find(&table->layout, bytes, op->key, &index);
        if (found)
            size = page_value(&table->layout, bytes, index, op->buffer, op->capacity, &blob);
    }
    uint64_t end = note_end(batch, frame);
    if (!frame_same(frame, lane->version) || blob)
        return;
    op->size = size;
    end_one(op, found ? PANDO_OK : PANDO_NOT_FOUND);
    if (found && lane->token.room && size <= op->capacity && is_durable(table, end))
        pair_cache_keep(&table->cache.records, &lane->token, op->key, slice_of(op->buffer, size));
}

/* Whether a put needs no split. What is in the log is done, too: whoever replayed a change that was then
 * refused would do it, or find no room for it. */
static bool has_room(const struct batch *batch, const uint8_t *bytes, bool found, uint32_t index,
                     const struct page_pair *pair)
{
    return (found && batch->leaf_words) ||
           page_room(&batch->self->table->layout, bytes, found ? index : UINT32_MAX, pair->key.size,
                     pair->value.size);
}

/* In a leaf whose pairs lie apart there is room only after they were put together. */
static void put_pair(const struct batch *batch, uint8_t *bytes, bool found, uint32_t index,
                     const struct page_pair *pair)
{
    const struct page_layout *layout = &batch->self->table->layout;
    if (found ? page_update(layout, bytes, index, pair) : page_insert(layout, bytes, index, pair))
        return;
    pando_assert(batch->scratch != NULL);
    page_put(layout, bytes, index, found, pair, batch->scratch->other);
}

/* A put that replaces a value in its leaf, or finds room there. */
static void put_one(struct batch *batch, struct lane *lane)
{
    struct dex_table *table = batch->self->table;
    const struct page_layout *layout = &table->layout;
    struct frame *frame = frame_at(&table->cache.frames, lane->frame);
    uint8_t *bytes = frame_bytes(&table->cache.frames, lane->frame);
    struct engine_batch_op *op = lane->op;
    struct page_pair pair = {.key = op->key, .value = op->value};
    uint32_t size = table->base.shape.value_size;
    uint8_t old[8];
    uint32_t index = lane->index;
    bool blob = false;

    if ((size != 0 && op->value.size != size) || op->value.size > table->inline_max)
        return;
    if ((!batch->leaf_words && batch->scratch == NULL) || !frame_take(frame, lane->version))
        return;
    bool found = lane->found;
    if (!batch->leaf_words) {
        found = page_find(layout, bytes, op->key, &index);
        if (found)
            (void)page_value(layout, bytes, index, old, sizeof(old), &blob);
    }
    bool done = false;
    if (!blob && has_room(batch, bytes, found, index, &pair) &&
        dex_log_change(table, frame, lane->part, DEX_LOG_PUT, &pair, bytes) == PANDO_OK) {
        put_pair(batch, bytes, found, index, &pair);
        done = true;
        dex_forget_record(table, op->key, &lane->token);
        (void)note_end(batch, frame);
    }
    if (done) {
        frame_give_changed(frame);
        end_one(op, PANDO_OK);
    } else {
        frame_give(frame);
    }
}

/* Gets of single pairs that are kept are done before any way is gone. */
static void get_records(struct batch *batch)
{
    struct pair_cache *records = &batch->self->table->cache.records;
    unsigned left = 0;

    for (unsigned i = 0; i < batch->count; i++) {
        struct lane *lane = &batch->lanes[i];
        struct engine_batch_op *op = lane->op;
        if (op->kind == ENGINE_BATCH_GET &&
            pair_cache_get(records, op->key, op->buffer, op->capacity, &op->size, &lane->token))
            end_one(op, PANDO_OK);
        else
            go_on(batch, i, &left);
    }
    batch->count = left;
}

static void run_group(struct batch *batch)
{
    get_records(batch);
    descend(batch);
    for (unsigned i = 0; i < batch->count && batch->leaf_words; i++)
        find_word(batch, &batch->lanes[i]);
    for (unsigned i = 0; i < batch->count; i++) {
        if (batch->lanes[i].op->kind == ENGINE_BATCH_GET)
            get_one(batch, &batch->lanes[i]);
        else
            put_one(batch, &batch->lanes[i]);
    }
}

void dex_batch_co(struct engine *engine, struct engine_batch_op *ops, size_t count)
{
    struct dex *self = dex_of(engine);
    struct dex_table *table = self->table;
    struct batch batch = {.self = self,
                          .inner_words = table->layout.key_size == 8,
                          .leaf_words =
                              table->layout.key_size == 8 && table->layout.value_size == 8};
    struct owners_guard guard;
    size_t done = 0;

    if (dex_log_room_co(self) != PANDO_OK)
        return;
    if (!batch.leaf_words)
        batch.scratch = dex_scratch_take(self);
    owners_enter(&self->owners, slice_of(NULL, 0), &guard);
    for (size_t i = 0; i < count; i++) {
        const struct map_partition *part = map_find(guard.map, ops[i].key);
        if (ops[i].kind != ENGINE_BATCH_DELETE && key_fits(table, ops[i].key) &&
            owners_mine(&table->owners, part)) {
            struct lane *lane = &batch.lanes[batch.count++];
            *lane = (struct lane){.op = &ops[i], .part = part, .word = key_word(ops[i].key)};
            pair_cache_ask(&table->cache.records, ops[i].key, &lane->token);
        }
        if (batch.count == GROUP || i + 1 == count) {
            rt_charge(RT_COST_OPERATION);
            run_group(&batch);
            batch.count = 0;
        }
    }
    if (batch.scratch != NULL)
        dex_scratch_give(self, batch.scratch);
    for (size_t i = 0; i < count; i++)
        done += ops[i].done;
    owners_count_operations(&self->owners, done);
    enum pando_status status = done > 0 ? dex_await_durable_co(self, batch.end) : PANDO_OK;
    owners_leave(&self->owners, &guard);
    for (size_t i = 0; i < count && status != PANDO_OK; i++) {
        if (ops[i].done)
            ops[i].status = ops[i].kind == ENGINE_BATCH_PUT ? PANDO_UNKNOWN : status;
    }
}
