/*
 * engines.h - the engines there are, by name.
 */
#ifndef STORE_ENGINES_H
#define STORE_ENGINES_H

#include "engine/engine.h"
#include "pool/memnode.h"

/* The table of engines: EACH(name) for every one, with BETWEEN in between. An engine is <name>_engine. */
#define STORE_ENGINES(EACH, BETWEEN) EACH(dex) BETWEEN EACH(sherman)

/* Their names as a literal, for help texts: "dex" BETWEEN "sherman". */
#define STORE_ENGINE_NAME(name)     #name
#define STORE_ENGINE_NAMES(BETWEEN) STORE_ENGINES(STORE_ENGINE_NAME, BETWEEN)

/* NULL for an unknown name. */
const struct engine_ops *store_engine(const char *name);

/* Of tables whose creator does not say: dex. But in a pool that is this process's own memory there is
 * nothing to be nearer to, and a cache would only hold everything twice: there sherman. */
const struct engine_ops *store_default_engine(const struct pool *pool);

/* For messages: "dex, sherman". */
const char *store_engine_names(void);

/* The work of all engines on a memory node, for memnode_options. INVALID: the request is of none. */
PANDO_MUST_CHECK enum pando_status store_memory_pushdown(const struct memnode_place *place,
                                                         struct fabric_request *request);

/* Where nodes of their trees have their level, for memnode_options. */
uint32_t store_level_at(uint8_t kind);

/* Which engine's blocks are of that kind, and what for. NULL: no engine's. */
const struct engine_block_kind *store_block_kind(uint8_t kind);

#endif
