/*
 * usage.h - what the engines' blocks are for, in words that people know.
 */
#ifndef STORE_USAGE_H
#define STORE_USAGE_H

#include <stdint.h>

enum store_use {
    STORE_USE_VALUES, /* long values, in blocks of their own */
    STORE_USE_NODES,  /* leaves, with keys and short values, and inner nodes */
    STORE_USE_LOGS,   /* owners' logs and maps */
    STORE_USES
};

/* Of a live block's kind (block_fmt.h). */
enum store_use store_use_of(uint8_t kind);
const char *store_use_name(enum store_use use);

#endif
