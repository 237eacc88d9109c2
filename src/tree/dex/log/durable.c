/*
 * durable.c - when what was read or changed may be told: the log has it, and this process still is who it was.
 */
#include "tree/dex/dex_int.h"

enum pando_status dex_await_durable_co(struct dex *self, uint64_t end)
{
    struct dex_table *table = self->table;
    if (table->redo.log != NULL && !dex_log_durable(table->redo.log, end) && table->on.durable) {
        enum pando_status status = dex_log_wait_co(table->redo.log, self->base.session, end);
        if (status != PANDO_OK)
            return status;
    }
    if (pool_lease_valid(table->pool))
        return PANDO_OK;
    if (!table->on.lease)
        return PANDO_OK; /* broken on purpose (rule reply-under-lease) */
    return pool_fenced(table->pool) ? PANDO_FENCED : PANDO_TIMEOUT;
}
