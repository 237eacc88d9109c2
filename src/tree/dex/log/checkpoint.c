/*
 * checkpoint.c - room in the log: what was changed longest ago is written back, and the log is
 * forgotten up to the oldest change that is not in the pool (rule truncate-after-write-back).
 */
#include "tree/dex/dex_int.h"

enum { SWEEPERS = 15 };

static enum pando_status write_back_frame_co(struct dex *self, uint32_t index)
{
    struct frame *frame = frame_at(&self->table->cache.frames, index);
    enum pando_status status = PANDO_OK;
    frame_latch_co(&self->table->cache.frames, frame);
    if (frame->dirty)
        status = dex_write_back_co(self, index);
    frame_give(frame);
    return status;
}

/* ---- many at a time -------------------------------------------------------------------------- */

struct sweep {
    struct dex *self;
    uint64_t until;                   /* only what was changed first before */
    const struct owners_range *range; /* only of these keys, unless NULL */
    uint32_t next, used;
    enum pando_status status;
    struct rt_countdown left;
};

/* Without the latch: what changes meanwhile may be judged wrongly. */
static bool wanted(const struct sweep *sweep, uint32_t index)
{
    const struct frames *frames = &sweep->self->table->cache.frames;
    uint8_t low[PAGE_KEY_ROOM];
    if (sweep->range != NULL)
        return owners_range_has(sweep->range, page_low(frame_bytes(frames, index), low));
    return sweep->until == UINT64_MAX ||
           atomic_load(&frame_at(frames, index)->first) < sweep->until;
}

static void sweep_on_co(struct sweep *sweep)
{
    while (sweep->status == PANDO_OK && sweep->next < sweep->used) {
        uint32_t index = sweep->next++;
        struct frame *frame = frame_at(&sweep->self->table->cache.frames, index);
        if (!atomic_load(&frame->dirty) || !wanted(sweep, index))
            continue;
        enum pando_status status = write_back_frame_co(sweep->self, index);
        if (status != PANDO_OK)
            sweep->status = status;
    }
}

static void sweep_task(void *arg)
{
    struct sweep *sweep = arg;
    sweep_on_co(sweep);
    rt_countdown_done(&sweep->left);
}

/* Their round trips overlap: writers may be waiting for this. */
static enum pando_status write_back_co(struct dex *self, uint64_t until,
                                       const struct owners_range *range)
{
    struct sweep sweep = {.self = self,
                          .until = until,
                          .range = range,
                          .used = atomic_load(&self->table->cache.fresh)};
    rt_countdown_init(&sweep.left, SWEEPERS);
    for (int i = 0; i < SWEEPERS; i++) {
        if (rt_spawn(rt_loop_self(), sweep_task, &sweep) != PANDO_OK)
            rt_countdown_done(&sweep.left);
    }
    sweep_on_co(&sweep);
    rt_countdown_wait_co(&sweep.left);
    return sweep.status;
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Writes back what was changed first before `until`, and forgets the log up to what is left. */
static enum pando_status checkpoint_co(struct dex *self, uint64_t until)
{
    struct dex_table *table = self->table;
    uint64_t begin = dex_log_end(table->redo.log);
    if (!table->on.truncate)
        return dex_log_truncate_co(table->redo.log, self->base.session,
                                   begin); /* broken on purpose */
    enum pando_status status = write_back_co(self, until, NULL);
    uint32_t used = atomic_load(&table->cache.fresh);

    for (uint32_t i = 0; i < used && status == PANDO_OK; i++) {
        struct frame *frame = frame_at(&table->cache.frames, i);
        uint64_t first = atomic_load(&frame->first);
        if (atomic_load(&frame->dirty) && first < begin)
            begin = first;
    }
    return status == PANDO_OK ? dex_log_truncate_co(table->redo.log, self->base.session, begin)
                              : status;
}

/* The older half of the log is to be forgotten. */
static enum pando_status checkpoint_half_co(struct dex *self)
{
    struct dex_table *table = self->table;
    uint64_t begin = dex_log_begin(table->redo.log), end = dex_log_end(table->redo.log);
    enum pando_status status = checkpoint_co(self, begin + (end - begin) / 2);
    dex_count(&table->stats.checkpoints);
    atomic_store(&table->redo.checkpoint_failed, status != PANDO_OK);
    rt_waitq_clear(&table->redo.checkpoint_end, &table->redo.checkpointing);
    return status;
}

static void checkpoint_task(void *arg)
{
    enum pando_status status = checkpoint_half_co(arg);
    (void)status; /* the next one is not in the background: its operation tells */
}

/* Only where the loop turns whether anybody calls it or not: an application's threads come back when they
 * like, and pages that are being written would wait for them. `checkpointing` is ours; who closes the
 * table first says so and then waits until it is nobody's. */
static bool in_background(struct dex *self)
{
    return self->owners.serves && !atomic_load(&self->table->owners.closing) &&
           !atomic_load(&self->table->redo.checkpoint_failed) &&
           rt_spawn(rt_loop_self(), checkpoint_task, self) == PANDO_OK;
}

enum pando_status dex_log_room_co(struct dex *self)
{
    struct dex_table *table = self->table;
    struct pool_retry retry = {0};
    enum pando_status status = PANDO_OK;

    if (table->redo.log == NULL)
        return PANDO_OK;
    for (;;) {
        uint64_t begin = dex_log_begin(table->redo.log), end = dex_log_end(table->redo.log);
        uint64_t used = end - begin, capacity = dex_log_capacity(table->redo.log);
        if (used * 2 < capacity)
            return PANDO_OK;
        if (!atomic_exchange(&table->redo.checkpointing, true) && !in_background(self)) {
            dex_count(&table->stats.log_waits);
            status = checkpoint_half_co(self);
        } else if (used * 8 < capacity * 7) {
            return PANDO_OK;
        } else {
            if (retry.count == 0)
                dex_count(&table->stats.log_waits);
            status = dex_retry_co(self, &retry);
        }
        if (status != PANDO_OK)
            return status;
    }
}

static bool checkpointing(const void *redo)
{
    return atomic_load(&((const struct dex_redo *)redo)->checkpointing);
}

void dex_checkpoint_end_co(struct dex_table *table)
{
    struct dex_redo *redo = &table->redo;
    (void)rt_waitq_while_co(&redo->checkpoint_end, checkpointing, redo, RT_NEVER);
}

enum pando_status dex_flush_co(struct dex *self, const struct owners_range *range)
{
    return write_back_co(self, UINT64_MAX, range);
}
