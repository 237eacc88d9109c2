/*
 * checkpoint.c - room in the log: what was changed longest ago is written back, and the log is
 * forgotten up to the oldest change that is not in the pool (R38).
 */
#include "tree/dex/dex_int.h"

static enum pando_status write_back_frame_co(struct dex *self, uint32_t index)
{
    struct frame *frame = frame_at(&self->table->frames, index);
    enum pando_status status = PANDO_OK;
    frame_latch_co(frame);
    if (frame->dirty)
        status = dex_write_back_co(self, index);
    frame_give(frame, false);
    return status;
}

/* Writes back what was changed first before `until`, and forgets the log up to what is left. */
static enum pando_status checkpoint_co(struct dex *self, uint64_t until)
{
    struct dex_table *table = self->table;
    uint64_t begin = dex_log_end(table->log);
    uint32_t used = atomic_load(&table->fresh);
    enum pando_status status = PANDO_OK;

    for (uint32_t i = 0; i < used && status == PANDO_OK; i++) {
        struct frame *frame = frame_at(&table->frames, i);
        if (atomic_load(&frame->dirty) && atomic_load(&frame->first) < until)
            status = write_back_frame_co(self, i);
    }
    for (uint32_t i = 0; i < used && status == PANDO_OK; i++) {
        struct frame *frame = frame_at(&table->frames, i);
        uint64_t first = atomic_load(&frame->first);
        if (atomic_load(&frame->dirty) && first < begin)
            begin = first;
    }
    return status == PANDO_OK ? dex_log_truncate_co(table->log, self->base.session, begin) : status;
}

enum pando_status dex_log_room_co(struct dex *self)
{
    struct dex_table *table = self->table;
    struct dex_retry retry = {0};
    enum pando_status status = PANDO_OK;

    if (table->log == NULL)
        return PANDO_OK;
    for (;;) {
        uint64_t begin = dex_log_begin(table->log), end = dex_log_end(table->log);
        uint64_t used = end - begin, capacity = dex_log_capacity(table->log);
        if (used * 2 < capacity)
            return PANDO_OK;
        if (!atomic_exchange(&table->checkpointing, true)) {
            status = checkpoint_co(self, begin + used / 2);
            atomic_store(&table->checkpointing, false);
            if (status != PANDO_OK)
                return status;
        } else if (used * 8 < capacity * 7) {
            return PANDO_OK;
        } else {
            status = dex_retry_co(self, &retry);
        }
        if (status != PANDO_OK)
            return status;
    }
}

enum pando_status dex_flush_co(struct dex *self)
{
    struct dex_table *table = self->table;
    uint32_t used = atomic_load(&table->fresh);
    enum pando_status status = PANDO_OK;
    for (uint32_t i = 0; i < used && status == PANDO_OK; i++) {
        if (atomic_load(&frame_at(&table->frames, i)->dirty))
            status = write_back_frame_co(self, i);
    }
    return status;
}
