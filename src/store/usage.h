/*
 * usage.h - what the engines' blocks are for, in words that people know.
 */
#ifndef STORE_USAGE_H
#define STORE_USAGE_H

#include <stdint.h>

#include "pool/call_fmt.h"

enum store_use {
    STORE_USE_PAIRS,     /* leaves: keys, short values, and the room that leaves have for more */
    STORE_USE_VALUES,    /* long values, in blocks of their own */
    STORE_USE_STRUCTURE, /* inner nodes, above the leaves */
    STORE_USE_LOGS,      /* owners' logs and maps */
    STORE_USES
};

/* Of live blocks of a table. */
enum store_use store_use_of(const struct pool_usage_table *blocks);
const char *store_use_name(enum store_use use);

#endif
