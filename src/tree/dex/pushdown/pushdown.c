/*
 * pushdown.c - having a memory node finish an operation at a page that is not cached: one call instead
 * of a READ for every level below it. Whether that is faster is estimated from how long calls and
 * READs took lately, for each memory node; now and then the other way is tried, so that both are
 * known.
 *
 * At a leaf a call saves no READ, only the WRITE of a page that is changed and not worth a frame. That is
 * faster where the memory node need not make sure first that it sees the page (visible.h).
 *
 * Below a page may lie pages of other memory nodes (place.c). A call that comes to one is answered with STALE
 * and was for nothing: it counts as long as it took and the READs take that it did not save, so that levels at
 * which that happens often are asked about less.
 *
 * While a call is under way a BUSY frame stands for the page, so that nobody else loads it. What a
 * change touched and is still cached is forgotten afterwards.
 */
#include <string.h>

#include "tree/dex/pushdown/pushdown_fmt.h"
#include "tree/dex/tree.h"

enum {
    SAMPLES = 50,    /* of the moving averages */
    SAMPLE_MOST = 3, /* times the average: what took longer was held up by something else */
    CONTRARY_ONE_OF = 100,
    LOCAL_SEARCH_NS = 300,  /* of a cached page: l_s */
    OVERHEAD_PERCENT = 130, /* what keeping a page costs besides: c */
};

/* ---- the estimate ---------------------------------------------------------------------------- */

static void average(_Atomic uint64_t *average_ns, uint64_t sample_ns)
{
    uint64_t old = atomic_load_explicit(average_ns, memory_order_relaxed);
    if (old != 0 && sample_ns > SAMPLE_MOST * old)
        sample_ns = SAMPLE_MOST * old;
    uint64_t now = old == 0 ? sample_ns : old - old / SAMPLES + sample_ns / SAMPLES;
    atomic_store_explicit(average_ns, now > 0 ? now : 1, memory_order_relaxed);
}

void dex_note_read_time(struct dex_table *table, uint16_t bank, uint64_t duration_ns)
{
    average(&table->pushdown.costs[bank % DEX_COST_NODES].read_ns, duration_ns);
}

static bool or_contrary(struct dex *self, bool pays)
{
    return prng_next(&self->prng) % CONTRARY_ONE_OF == 0 ? !pays : pays;
}

static bool leaf_pays(struct dex *self, struct dex_pushdown *push, fabric_address page,
                      const struct dex_cost *cost)
{
    struct dex_table *table = self->table;
    uint64_t read_ns = atomic_load_explicit(&cost->read_ns, memory_order_relaxed);
    uint64_t plain_ns = atomic_load_explicit(&cost->plain_ns, memory_order_relaxed);
    bool changes = push->operation != DEX_PUSHDOWN_GET;

    if (!changes && !table->on.offload_leaves)
        return false;
    /* A leaf that is changed again and again is to be cached in the end. */
    push->keep = changes && dex_admits(self);
    if (push->keep)
        return false;
    if (!or_contrary(self, plain_ns < (changes ? 2 : 1) * (read_ns + LOCAL_SEARCH_NS)))
        return false;
    push->barrier = table->on.barrier && !visible_is(&table->pushdown.visible, page);
    return !push->barrier || table->on.offload_leaves ||
           visible_due(&table->pushdown.visible, pool_bank(page), rt_now_ns());
}

bool dex_pushdown_pays(struct dex *self, struct dex_pushdown *push, fabric_address page,
                       uint8_t level)
{
    struct dex_table *table = self->table;
    struct dex_cost *cost = &table->pushdown.costs[pool_bank(page) % DEX_COST_NODES];
    uint64_t read_ns = atomic_load_explicit(&cost->read_ns, memory_order_relaxed);

    push->barrier = table->on.barrier;
    if (!table->on.offload || level > DEX_SUBTREE_LEVEL)
        return false;
    /* Nothing below it is cached but what is clean, unless a page above it was split lately. */
    if (level > 0 && atomic_load(&table->cache.orphans) > 0)
        return false;
    if (table->on.offload_only)
        return true;
    if (level == 0)
        return leaf_pays(self, push, page, cost);
    uint64_t call_ns = atomic_load_explicit(&cost->call_ns[level], memory_order_relaxed);
    return or_contrary(self, call_ns * 100 <
                                 (level + 1u) * (read_ns + LOCAL_SEARCH_NS) * OVERHEAD_PERCENT);
}

/* ---- the call -------------------------------------------------------------------------------- */

static size_t pack(struct dex *self, const struct dex_pushdown *push, fabric_address page,
                   uint8_t level, fabric_address slot, uint8_t *body)
{
    const struct page_layout *layout = &self->table->layout;
    struct dex_pushdown_request head = {.engine = DEX_PUSHDOWN,
                                        .operation = (uint8_t)push->operation,
                                        .table = self->table->id,
                                        .level = level,
                                        .page = page,
                                        .epoch = push->stamp.epoch,
                                        .lsn = push->stamp.lsn,
                                        .slot = slot,
                                        .page_bytes = layout->page_bytes,
                                        .key_size = layout->key_size,
                                        .value_size = layout->value_size,
                                        .key_max = layout->key_max,
                                        .value_max = layout->value_max,
                                        .key_bytes = (uint16_t)push->key.size,
                                        .value_bytes = (uint16_t)push->value.size};
    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), push->key.data, push->key.size);
    if (push->value.size > 0)
        memcpy(body + sizeof(head) + push->key.size, push->value.data, push->value.size);
    return sizeof(head) + push->key.size + push->value.size;
}

static enum pando_status call_co(struct dex *self, fabric_address page,
                                 struct pool_pushdown *pushdown)
{
    struct visible *visible = &self->table->pushdown.visible;
    uint16_t bank = pool_bank(page);
    if (bank >= pool_banks(self->table->pool))
        return PANDO_CORRUPT;
    uint64_t number = pushdown->barrier ? visible_begin(visible, bank) : 0;
    enum pando_status status = pool_pushdown_co(self->base.session, page, pushdown);
    if (pushdown->barrier && status == PANDO_OK)
        visible_ended(visible, bank, number);
    return status;
}

/* The record first: the change has a place in the log before the memory node makes it
 * (rule stamped-pushdown). */
static enum pando_status log_pushdown_co(struct dex *self, struct dex_pushdown *push)
{
    struct dex_table *table = self->table;
    struct dex_log_record record = {.kind = push->operation == DEX_PUSHDOWN_DELETE ? DEX_LOG_DELETE
                                                                                   : DEX_LOG_ASKED,
                                    .epoch = push->part->epoch,
                                    .key = push->key,
                                    .value = push->value};
    push->stamp.epoch = push->part->epoch;
    if (table->redo.log == NULL)
        return PANDO_OK;
    enum pando_status status =
        dex_log_append(table->redo.log, &record, &push->stamp.lsn, &push->end);
    return status == PANDO_OK ? dex_log_wait_co(table->redo.log, self->base.session, push->end)
                              : status;
}

/* A cached copy of a leaf that the memory node has changed is not to be used any more. */
static void forget_leaf_co(struct dex *self, fabric_address leaf)
{
    struct dex_table *table = self->table;
    uint32_t index = table->on.invalidate ? frame_find(&table->cache.frames, leaf) : FRAME_NONE;
    if (index == FRAME_NONE)
        return;
    struct frame *frame = frame_at(&table->cache.frames, index);
    frame_latch_co(&table->cache.frames, frame);
    if (frame->address == leaf &&
        atomic_load_explicit(&frame->state, memory_order_relaxed) == FRAME_COOLING &&
        !frame->dirty) {
        (void)cooling_remove(&table->cache.cooling, leaf, index);
        dex_evict(self, index);
    } else {
        frame_give(frame);
    }
}

static enum pando_status reply_read(struct dex_pushdown *push, const uint8_t *reply, uint32_t size)
{
    struct dex_pushdown_reply head;
    if (size < sizeof(head))
        return PANDO_CORRUPT;
    memcpy(&head, reply, sizeof(head));
    push->was_there = head.was_there == 1;
    push->old_blob = head.blob == 1 && (push->operation == DEX_PUSHDOWN_GET ||
                                        dex_pushdown_changes(push->operation, push->was_there));
    push->shrunk = head.shrunk == 1;
    push->leaf = head.leaf;
    /* Whether a key that is deleted had been there was told by a reply that was lost. */
    if (head.repeated == 1 && push->operation == DEX_PUSHDOWN_DELETE)
        return PANDO_UNKNOWN;
    if (head.repeated == 1)
        push->old_blob = false; /* it is the new value */
    push->found = slice_of(reply + sizeof(head), size - sizeof(head));
    return push->old_blob && push->found.size != sizeof(fabric_address) ? PANDO_CORRUPT : PANDO_OK;
}

/* Repeats a change until there is an answer: it may have been made, and nobody else may come to that
 * leaf before that is known. */
static enum pando_status answered_co(struct dex *self, fabric_address page,
                                     const struct dex_pushdown *push,
                                     struct pool_pushdown *pushdown)
{
    struct pool_retry retry = {0};
    for (;;) {
        enum pando_status status = call_co(self, page, pushdown);
        bool unknown = status == PANDO_BROKEN || status == PANDO_TIMEOUT;
        if (!unknown || push->operation == DEX_PUSHDOWN_GET)
            return status;
        /* Without a log a second call could not be told from the first. */
        status = push->stamp.lsn != 0 ? dex_retry_co(self, &retry) : PANDO_TIMEOUT;
        if (status == PANDO_TIMEOUT)
            pool_resign(self->table->pool);
        if (status != PANDO_OK)
            return PANDO_UNKNOWN;
    }
}

/* After a call that took so long. */
static void call_took(struct dex_table *table, uint16_t bank, const struct dex_pushdown *push,
                      uint8_t level, enum pando_status status, uint64_t duration_ns)
{
    struct dex_cost *cost = &table->pushdown.costs[bank % DEX_COST_NODES];
    uint64_t read_ns = atomic_load_explicit(&cost->read_ns, memory_order_relaxed);

    if (status == PANDO_STALE) {
        dex_count(&table->stats.pushdown_misses);
        duration_ns += (level + 1u) * (read_ns + LOCAL_SEARCH_NS);
    }
    average(push->barrier ? &cost->call_ns[level] : &cost->plain_ns, duration_ns);
}

struct step dex_pushdown_co(struct dex *self, struct dex_pushdown *push, fabric_address page,
                            uint8_t level, struct dex_scratch *scratch)
{
    struct dex_table *table = self->table;
    uint16_t bank = pool_bank(page);
    bool changes = push->operation != DEX_PUSHDOWN_GET;
    fabric_address slot = 0;
    struct pool_pushdown pushdown = {.barrier = push->barrier,
                                     .reply = scratch->message,
                                     .reply_capacity = FABRIC_CALL_BYTES_MAX};
    enum pando_status status = PANDO_OK;

    if (changes && table->on.log)
        status = pool_intent_take_co(self->base.session, bank, &slot);
    if (status == PANDO_OK && changes)
        status = log_pushdown_co(self, push);
    if (status == PANDO_OK) {
        uint8_t *body = scratch->image; /* a page holds any pair, and more */
        uint64_t begin_ns = rt_now_ns();
        pushdown.body = slice_of(body, pack(self, push, page, level, slot, body));
        status = answered_co(self, page, push, &pushdown);
        call_took(table, bank, push, level, status, rt_now_ns() - begin_ns);
    }
    if (slot != 0 && status != PANDO_UNKNOWN)
        pool_intent_give(self->base.session, slot);
    if (status == PANDO_OK)
        status = reply_read(push, scratch->message, pushdown.reply_size);
    if (status == PANDO_OK)
        dex_count(&table->stats.offloaded);
    if (changes) {
        pair_cache_ask(&table->cache.records, push->key, &push->token);
        dex_forget_record(table, push->key, &push->token);
    }
    if (changes && push->leaf != 0 && push->leaf != page) /* of that there is only our frame */
        forget_leaf_co(self, push->leaf);
    /* What it will not do is done here. Its record does no harm if that succeeds, or if it is known to be
     * for nothing: for want of room. */
    push->unknown = push->unknown || (push->end != 0 && status != PANDO_OK && status != PANDO_FULL);
    bool left_to_us = status == PANDO_STALE || status == PANDO_UNSUPPORTED ||
                      status == PANDO_FULL || status == PANDO_INVALID ||
                      (!changes && status != PANDO_OK);
    return left_to_us ? step_to(STEP_LOAD) : step_of(status);
}
