/*
 * engines.h - the engines there are, by name.
 */
#ifndef STORE_ENGINES_H
#define STORE_ENGINES_H

#include "engine/engine.h"
#include "pool/memnode.h"

/* NULL for an unknown name. */
const struct engine_ops *store_engine(const char *name);

/* Of tables whose creator does not say: dex. But in a pool that is this process's own memory there is
 * nothing to be nearer to, and a cache would only hold everything twice: there sherman. */
const struct engine_ops *store_default_engine(const struct pool *pool);

/* For messages: "dex, sherman". */
const char *store_engine_names(void);

/* What engines have memory nodes do, for memnode_options. */
PANDO_MUST_CHECK enum pando_status store_memory_work(const struct memnode_place *place,
                                                     struct fabric_request *request);

#endif
