/*
 * ownership.h - what this engine does when keys become its own, are asked for by others, and go (struct owners_engine).
 */
#ifndef TREE_DEX_OWNERSHIP_H
#define TREE_DEX_OWNERSHIP_H

#include "tree/dex/dex_int.h"

extern const struct owners_engine dex_owners_engine;

static inline struct dex *dex_of_handle(struct owners_handle *handle)
{
    return container_of(handle, struct dex, owners);
}

/* log/take_over.c: a log of one's own, and gives back what it has of what is meant for all logs of the process;
 * doing a dead owner's log again, and freeing it. */
PANDO_MUST_CHECK enum pando_status dex_log_prepare_co(struct owners_handle *handle);
void dex_log_share_give(struct dex_table *table);
PANDO_MUST_CHECK enum pando_status dex_log_take_over_co(struct owners_handle *handle,
                                                        const struct owners_log *log);
PANDO_MUST_CHECK enum pando_status dex_log_let_go_co(struct owners_handle *handle,
                                                     const struct owners_log *log);

#endif
