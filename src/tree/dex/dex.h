/*
 * dex.h - the DEX engine (README.md beside this file).
 */
#ifndef TREE_DEX_DEX_H
#define TREE_DEX_DEX_H

#include "engine/engine.h"

extern const struct engine_ops dex_engine;

#endif
