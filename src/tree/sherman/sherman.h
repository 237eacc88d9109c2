/*
 * sherman.h - the Sherman engine (README.md beside this file).
 */
#ifndef TREE_SHERMAN_SHERMAN_H
#define TREE_SHERMAN_SHERMAN_H

#include "engine/engine.h"

extern const struct engine_ops sherman_engine;

#endif
