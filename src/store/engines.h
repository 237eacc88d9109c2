/*
 * engines.h - the engines there are, by name.
 */
#ifndef STORE_ENGINES_H
#define STORE_ENGINES_H

#include "engine/engine.h"

/* NULL for an unknown name. */
const struct engine_ops *store_engine(const char *name);

/* For messages: "sherman". */
const char *store_engine_names(void);

#endif
