/*
 * engines.h - the engines there are, by name.
 */
#ifndef STORE_ENGINES_H
#define STORE_ENGINES_H

#include "engine/engine.h"

/* NULL for an unknown name. */
const struct engine_ops *store_engine(const char *name);

/* Of tables whose creator does not say. */
extern const char store_default_engine[];

/* For messages: "dex, sherman". */
const char *store_engine_names(void);

#endif
